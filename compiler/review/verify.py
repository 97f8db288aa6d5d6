"""`xpc verify DIR`: check that a bundle is unchanged, and that its spec compiles to it with this version of xpc."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence

from xpc.compiler import __version__
from xpc.compiler.files import bundled
from xpc.compiler.files.bundle import why_foreign
from xpc.compiler.files.inputs import UsageError, read_spec
from xpc.compiler.files.workspace import read_toml
from xpc.compiler.files.written import LENGTH, lines
from xpc.compiler.language.items import BASE
from xpc.compiler.pipeline import check_text
from xpc.compiler.render.visible import visible
from xpc.compiler.review.tables import PROSE
from xpc.compiler.spec import CheckedSpec, Origin, Value
from xpc.grammar.diagnostic import ERROR, Label
from xpc.grammar.record import evolve
from xpc.grammar.source import Source

EPILOG = (
    "The spec in the bundle is compiled again, and every file is compared byte for byte. --env compares the packages "
    "of an interpreter with the pins that the bundle's README.md installs. --run compares the summary.json of a run: "
    "arguments, versions, processes, steps and sequences. Exit status: 0 equal, 1 something differs, 2 wrong usage, or "
    "the bundle was written by another version of xpc."
)
SHOWN = 100
"""Maximum characters of a shown line."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options. Exits with status 2 if they are wrong, as argparse does."""
    parser = argparse.ArgumentParser(
        "xpc verify", description="Check that a bundle is what its own spec compiles to.", epilog=EPILOG
    )
    parser.add_argument(
        "folders",
        metavar="DIR",
        nargs="+",
        help="a bundle, the folder of a sweep, or any file of a bundle",
    )
    parser.add_argument("--env", action="store_true", help="compare the installed packages with the bundle's pins")
    parser.add_argument("--run", metavar="OUT", help="compare the finished run in this folder with the bundle")
    parser.add_argument("--python", metavar="PATH", help="the interpreter for --env (default: $PYTHON or python3)")
    return parser.parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """The printed text and the exit status. Raises UsageError."""
    folders = list(dict.fromkeys(map(_bundle_of, options.folders)))
    if len(folders) > 1 and (options.env or options.run is not None):
        raise UsageError("--env and --run take one bundle")
    results = [_verified(folder, options) for folder in folders]
    return "".join(text for text, _ in results), max(status for _, status in results)


def _bundle_of(path: str) -> str:
    """The bundle that contains a file (pre-commit passes files); a folder is returned unchanged."""
    folder = path
    while os.path.isfile(path) and folder and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        if os.path.isfile(os.path.join(folder, bundled.MANIFEST)):
            return folder
    return path


def _verified(folder: str, options: argparse.Namespace) -> tuple[str, int]:
    bundles = list(_bundles(folder))
    if options.env:
        from xpc.compiler.review.installed import verify_environment  # not needed otherwise

        return verify_environment(bundles[0][0], options.python or os.environ.get("PYTHON") or "python3")
    if options.run is not None:
        return _run(bundles[0], options.run)
    changed = why_foreign(os.path.realpath(folder)) or next(iter(_missing(bundles)), "")
    if changed:
        return visible(f"{folder} {changed}") + "\n" + _detail(bundles), 1
    others = sorted({table["bundle"]["xpc"] for _, table in bundles} - {__version__})
    if others:
        raise UsageError(
            f"{folder} was written by xpc {others[0]} and is unchanged, but this is xpc {__version__}: "
            f"`pip install xpc=={others[0]}` installs the version that can compile it again"
        )
    drifts = [one for path, table in bundles for one in _drifts(path, table)] or list(_launcher_drifts(folder, bundles))
    if drifts:
        more = (
            f"\n{len(drifts) - 1} more file{'s differ' if len(drifts) > 2 else ' differs'}" if len(drifts) > 1 else ""
        )
        return f"{visible(drifts[0])}{more}\n", 1
    many = f", {len(bundles)} members" if len(bundles) > 1 else ""
    return f"{visible(folder)} is what its spec compiles to{many}\n", 0


Table = Mapping[str, Mapping[str, str]]


def _run(bundle: tuple[str, Table], out: str) -> tuple[str, int]:
    from xpc.compiler.review.finished_run import verify_run
    from xpc.compiler.review.run_length import run_length

    spec = _recheck(*bundle) if bundle[1]["bundle"]["xpc"] == __version__ else ""
    text, status = verify_run(bundle[0], out, None if isinstance(spec, str) else run_length(spec).steps)
    return "".join(f"{visible(line)}\n" for line in text.splitlines()), status


def _bundles(folder: str) -> Iterator[tuple[str, Table]]:
    """The bundle, or each member of a sweep, with its manifest."""
    members = os.path.join(folder, "members")
    try:
        found = sorted(os.listdir(members)) if os.path.isdir(members) else []
    except OSError as error:
        raise UsageError(f"{members} cannot be read: {error.strerror}") from error
    for path in [os.path.join(members, one) for one in found] or [folder]:
        table = bundled.manifest(path)
        if table is None:
            raise UsageError(f"{path} is not a bundle: it has no bundle.toml of xpc")
        yield path, table


def _missing(bundles: Sequence[tuple[str, Table]]) -> Iterator[str]:
    for folder, table in bundles:
        for name in table["files"]:
            if not os.path.isfile(os.path.join(folder, name)):
                yield f"lacks {name}, which the compiler wrote"


def _detail(bundles: Sequence[tuple[str, Table]]) -> str:
    """A line with the first difference, if this version of xpc wrote the bundle."""
    for folder, table in bundles:
        if table["bundle"]["xpc"] == __version__ and os.path.isfile(os.path.join(folder, bundled.SPEC)):
            for one in _drifts(folder, table):
                return visible(one) + "\n"
    return ""


def _drifts(folder: str, table: Table) -> Iterator[str]:
    """Each file that differs from what the spec compiles to, with the first different line."""
    spec = _recheck(folder, table)
    if isinstance(spec, str):
        yield f"{os.path.join(folder, bundled.SPEC)} does not compile here: {spec}"
        return
    from xpc.compiler.lower import lower

    files = lower(spec)
    for name in sorted({*files, *table["files"]} - {bundled.MANIFEST}, key=lambda one: (one in PROSE, one)):
        path = os.path.join(folder, name)
        if name not in files:
            yield f"{path}: the spec does not compile to this file"
        elif not os.path.isfile(path):
            yield f"{path} is missing"
        else:
            on_disk = _bytes(path)
            if on_disk != files[name]:
                yield f"{path}:{_first_difference(on_disk, files[name])}"


def _launcher_drifts(folder: str, bundles: Sequence[tuple[str, Table]]) -> Iterator[str]:
    """For a sweep with correct members: each launch file of the sweep that differs from what the members give."""
    path = os.path.join(folder, "sweep.toml")
    found = read_toml(path)
    if found is None:
        return
    from xpc.compiler.engines.pin import LIST, pin
    from xpc.compiler.lower.sweep import starters

    try:
        names, title = [str(one["name"]) for one in found["member"]], str(found["sweep"]["name"])
    except (KeyError, TypeError):
        names, title = [], ""
    tables = {os.path.basename(one): (one, table) for one, table in bundles}
    if sorted(names) != sorted(tables):
        yield f"{path}: its members are not those in the folder"
        return
    specs = [spec for name in names if not isinstance(spec := _recheck(*tables[name]), str)]
    pins = {name: pin(_bytes(os.path.join(tables[name][0], LIST))) for name in names}
    for name, data in starters(specs, title, pins).items():
        launcher = os.path.join(folder, name)
        if not os.path.isfile(launcher):
            yield f"{launcher} is missing"
        elif _bytes(launcher) != data:
            yield f"{launcher}:{_first_difference(_bytes(launcher), data)}"


def _bytes(path: str) -> bytes:
    with open(path, "rb") as handle:
        return handle.read()


def _first_difference(on_disk: bytes, made: bytes) -> str:
    """The number of the first different line, its text on disk, and the text that the spec compiles to."""
    texts = [one.decode("utf-8", "replace").split("\n") for one in (on_disk, made)]
    length = max(map(len, texts))
    texts = [one + [""] * (length - len(one)) for one in texts]
    at = next(number for number in range(length) if texts[0][number] != texts[1][number])
    here, recompiled = (one[at].strip().rstrip(",")[:SHOWN] or "nothing" for one in texts)
    return f"{at + 1}: {here}, but the spec compiles to {recompiled}"


def _recheck(folder: str, table: Table) -> CheckedSpec | str:
    """The bundle's spec, checked again under its original name; or the message of its first error."""
    path = os.path.join(folder, bundled.SPEC)
    data, _, workspace = read_spec(path)
    workspace.hashes = True
    checked = check_text(data, table["bundle"]["spec"], workspace)
    spec = checked.spec
    if spec is None:
        return next(one.message for one in checked.problems if one.severity == ERROR)
    with open(path, encoding="utf-8", errors="surrogateescape") as handle:
        spec = _with_bases(spec, handle.read())
    above, name = os.path.split(os.path.dirname(os.path.abspath(path)))
    inside = f"{spec.name}.bundle/members/{name}" if os.path.basename(above) == "members" else ""
    named = evolve(spec, name=table["bundle"]["name"], folder=inside)
    return CheckedSpec.of(named, spec.problems, spec.silenced)


def _with_bases(spec: CheckedSpec, text: str) -> CheckedSpec:
    """The spec with settings attributed to their bases again, as the comments in the bundle's spec.xp say."""
    notes = {one.number: one.note.removeprefix(LENGTH) for one in lines(text)}
    bases = {number: Source(note, text) for number, note in notes.items() if note.endswith(".xp")}

    def restored(value: Value) -> Value:
        label = value.origin.label
        if label is None or not bases:
            return value
        source = bases.get(label.source.position(label.span.start)[0])
        return (
            value if source is None else evolve(value, origin=Origin(BASE, Label(source, label.span), value.origin.why))
        )

    values = {path: restored(value) for path, value in spec.values.items()}
    extra = {one: {name: restored(value) for name, value in table.items()} for one, table in spec.extra.items()}
    return CheckedSpec.of(evolve(spec, values=values, extra=extra), spec.problems, spec.silenced)
