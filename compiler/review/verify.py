"""`xpc verify DIR`: check that a bundle is unchanged, and that its spec compiles to the same files with this version of
xpc.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from xpc.compiler import __version__
from xpc.compiler.files import bundled
from xpc.compiler.files.bundle import MANIFESTS, why_foreign
from xpc.compiler.files.file_memory import user_memory
from xpc.compiler.files.folder_contents import Tree, tree
from xpc.compiler.files.inputs import UsageError, read_spec
from xpc.compiler.pipeline import compile_text
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.compiler.render.visible import LONGEST, visible
from xpc.compiler.resolve.image_digests import without_digests
from xpc.compiler.review.verifying import Verify
from xpc.compiler.review.verifying.file_differences import differences
from xpc.compiler.review.verifying.images import image_drifts
from xpc.compiler.review.verifying.recompiled import (
    LOOKED,
    RecompileError,
    Table,
    looked_in,
    recheck,
    recompiled,
    sweep_files,
)
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.diagnostic import ERROR
from xpc.grammar.record import evolve

EPILOG = (
    "The spec in the bundle is compiled again, and every file is compared byte for byte. --env compares the packages "
    "of an interpreter with the pins that the bundle's README.md installs. --run compares the summary.json of a run: "
    "arguments, versions, processes, steps and sequences. Exit status: 0 equal, 1 something differs, 2 wrong usage, or "
    "the bundle has no readable manifest or was written by another version of xpc."
)


class OtherVersionError(UsageError):
    """Raised if another version of xpc wrote the bundle, so that its spec cannot be compiled again for comparison."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser(
        "xpc verify", description="Check that a bundle is what its own spec compiles to.", epilog=EPILOG
    )
    help = "a bundle, the folder of a sweep, or any file of a bundle; with --all a folder (the working directory)"
    parser.add_argument("folders", metavar="DIR", nargs="*", help=help)
    parser.add_argument("--env", action="store_true", help="compare the installed packages with the bundle's pins")
    parser.add_argument("--spec", metavar="SPEC", help="also compare the bundle with what this spec compiles to now")
    parser.add_argument("--run", metavar="OUT", help="compare the finished run in this folder with the bundle")
    parser.add_argument(
        "--quick", action="store_true",
        help="do not read unchanged files of local models and images again (same size, times and inode)",
    )  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bundle contains bytecode")
    parser.add_argument("--python", metavar="PATH", help="the interpreter for --env (default: $PYTHON or python3)")
    parser.add_argument(
        "--all", action="store_true",
        help="every spec, lock, bundle, local model and finished run below the folder, a line each",
    )  # fmt: skip
    options = parser.parse_args(list(arguments))
    if options.all and (options.env or options.run is not None or options.spec is not None):
        parser.error("--all takes neither --env, --run nor --spec")
    if options.all and len(options.folders) > 1:
        parser.error("--all takes one folder")
    if not options.all and not options.folders:
        parser.error("the following arguments are required: DIR")
    return options


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the printed text and the exit status. Raises UsageError."""
    if options.all:
        from xpc.compiler.review.verifying.chain import chain

        text, status = chain(options.folders[0] if options.folders else ".", *checkers(options), options.quick)
        return "".join(f"{visible(line)}\n" for line in text.splitlines()), status
    folders = list(dict.fromkeys(map(_bundle_of, options.folders)))
    if len(folders) > 1 and (options.env or options.run is not None or options.spec is not None):
        raise UsageError("--env, --run and --spec take one bundle")
    results = [_verified(folder, options) for folder in folders]
    return "".join(text for text, _ in results), max(status for _, status in results)


def checkers(
    options: argparse.Namespace, unchanged: Callable[[str], bool] = lambda folder: False
) -> tuple[Verify, Verify]:
    """Return two functions for `--all`: the first verifies a bundle, the second a finished run.

    A bundle that another version of xpc wrote cannot be compiled again. The first function reports this as an error,
    unless `unchanged` is true for the folder.
    """

    def verify(folder: str, spec: str | None) -> tuple[str, int]:
        own = argparse.Namespace(**{**vars(options), "spec": spec})
        try:
            return _verified(folder, own)
        except OtherVersionError as error:
            return f"{visible(str(error))}\n", 0 if unchanged(folder) else 2
        except UsageError as error:  # an unreadable bundle must not hide the lines about the others
            return f"{visible(str(error))}\n", 2

    def verify_run(folder: str, out: str | None) -> tuple[str, int]:
        assert out is not None
        table = bundled.manifest(folder)
        assert table is not None
        return _run((folder, table), out)

    return verify, verify_run


def _bundle_of(path: str) -> str:
    """The bundle or the sweep that contains the file `path`. This is for pre-commit, which passes the paths of files,
    not of bundles. The path of a folder is returned unchanged.
    """
    folder = path
    while os.path.isfile(path) and folder and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        if any(os.path.isfile(os.path.join(folder, one)) for one in MANIFESTS):
            return folder
    return path


def _verified(folder: str, options: argparse.Namespace) -> tuple[str, int]:
    try:
        found = tree(folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}") from error
    if found.special_files:  # a folder with links or other special files is not read
        name, why = next(iter(found.special_files.items()))
        return f"{visible(f'{os.path.join(folder, name)} {why}')}\n", 1
    bundles = list(_bundles(folder))
    if options.env:
        from xpc.compiler.review.installed import verify_environment  # imported only here, because only --env needs it

        return verify_environment(bundles[0][0], options.python or os.environ.get("PYTHON") or "python3")
    if options.run is not None:
        return _run(bundles[0], options.run)
    others = sorted({table["bundle"]["xpc"] for _, table in bundles} - {__version__})
    if others:
        changed = why_foreign(os.path.realpath(folder)) or next(iter(_missing(bundles)), "")
        if changed:
            return visible(f"{folder} {changed}") + "\n", 1
        raise OtherVersionError(
            f"{folder} was written by xpc {others[0]} and is unchanged, but this is xpc {__version__}: "
            f"xpc {others[0]} can compile it again, in a clone at that version"
        )
    return _compared(folder, found, bundles, options)


def _stale(folder: str, found: Tree, table: Table, options: argparse.Namespace) -> tuple[str, Sequence[CheckedSpec]]:
    """Compile the spec `options.spec`. Returns a pair: lines about the first difference between the bundle and the
    compiled files ("" if there is no difference), and the runs of the spec.
    """
    data, name, workspace = read_spec(options.spec)
    allow_oom = bool(table["bundle"].get("allow_oom"))
    workspace = evolve(workspace, memory=user_memory(), allow_oom=allow_oom, trusts_memory=options.quick)
    made, checked = compile_text(data, name, workspace)
    if made is None:
        error = next(one.message for one in checked.problems if one.severity == ERROR)
        return f"{visible(options.spec)} does not compile: {visible(error)}\n", ()
    for drift in differences(folder, found, made):
        return f"{visible(drift)}\n{visible(folder)} is not what {visible(options.spec)} compiles to now\n", ()
    return "", [one for one in (checked.spec, *(each.spec for each in checked.members)) if one is not None]


def _weights(path: str, spec: CheckedSpec, table: Table) -> Iterator[str]:
    """A sentence for each file of a local model that has changed since the bundle was compiled."""
    stated = table.get("weights", {})
    for name in sorted({*stated, *spec.weights}):
        if name not in spec.weights:
            yield f"{name}, a file of a local model of {path}, is not here; {LOOKED}"
        elif stated.get(name) != f"sha256:{spec.weights[name]}":
            how = "is not the one" if name in stated else "was not there when"
            yield f"{name}, a file of a local model, {how} {path} was compiled{' with' * (name in stated)}"


def _compared(
    folder: str, found: Tree, bundles: Sequence[tuple[str, Table]], options: argparse.Namespace
) -> tuple[str, int]:
    """Compare every file of a bundle or sweep with the file that its spec compiles to. If `options.spec` compiles to
    the bundle's files, the bundle's own spec.xp need not be compiled.
    """
    stale, specs = ("", ()) if options.spec is None else _stale(folder, found, bundles[0][1], options)
    if not specs:
        specs, drifts = _own_drifts(folder, found, bundles, options)
        if drifts:
            changed = why_foreign(os.path.realpath(folder)) or next(iter(_missing(bundles)), "")
            count = len(drifts) - 1
            more = f"{count} more file{'s differ' if count > 1 else ' differs'}" if count else ""
            lines = [f"{folder} {changed}" if changed else "", drifts[0], more]
            return "".join(f"{visible(line)}\n" for line in lines if line), 1
    bytecode = [f"{os.path.join(folder, name)} was not written by the compiler; launch.sh reads no bytecode of a bundle"
                for name in found.bytecode]  # fmt: skip
    if bytecode and options.strict:
        return "".join(f"{visible(line)}\n" for line in bytecode), 1
    if stale:
        return stale, 1
    many = f", {len(bundles)} members" if len(bundles) > 1 else ""
    read = {"local models": any(spec.weights for spec in specs),
            "images": any(one.name for spec in specs for one in spec.images.values())}  # fmt: skip
    quick = " and ".join(f"the files of {what}" for what, there in read.items() if there)
    quick = f"; {quick} were compared by size, times and inode" if options.quick and quick else ""
    unseen = dict.fromkeys(one for spec in specs if spec.images for one in without_digests(spec))
    made_of = "its spec" if options.spec is None else options.spec
    lines = [f"{folder} is what {made_of} compiles to{many}{quick}", *unseen, *bytecode]
    return "".join(f"{visible(line)}\n" for line in lines), 0


def _own_drifts(
    folder: str, found: Tree, bundles: Sequence[tuple[str, Table]], options: argparse.Namespace
) -> tuple[Sequence[CheckedSpec], list[str]]:
    """Compile the spec.xp of a bundle, or of each member of a sweep. Returns the checked specs, and a sentence for each
    file on disk that differs from the file to which its spec compiles.
    """
    memory = user_memory()
    expected: dict[str, bytes] = {}
    broken: list[str] = []
    members: dict[str, tuple[CheckedSpec, Mapping[str, bytes]]] = {}
    for path, table in bundles:
        try:
            made = recompiled(path, table, memory, options.quick)
        except RecompileError as error:
            broken.append(f"{os.path.join(path, bundled.SPEC)} does not compile here: {error}{looked_in(table)}")
            continue
        broken += [*_weights(path, made[0], table), *image_drifts(path, made[0])]
        prefix = os.path.relpath(path, folder).replace(os.sep, "/") + "/" if path != folder else ""
        expected |= {prefix + name: data for name, data in made[1].items()}
        members[os.path.basename(path)] = made
    if len(members) == len(bundles) and "sweep.toml" in found.files and "bundle.toml" not in found.files:
        try:
            expected |= sweep_files(folder, members)
        except RecompileError as error:
            broken.append(f"{os.path.join(folder, 'sweep.toml')}: {error}")
    return [spec for spec, _ in members.values()], broken or list(differences(folder, found, expected))


def _run(bundle: tuple[str, Table], out: str) -> tuple[str, int]:
    from xpc.compiler.review.finished_run import verify_run
    from xpc.compiler.review.run_length import run_length

    steps = None
    if bundle[1]["bundle"]["xpc"] == __version__:
        with suppress(RecompileError):
            steps = run_length(recheck(*bundle, None, False)).steps
    text, status = verify_run(bundle[0], out, steps)
    return "".join(f"{visible(line, LONGEST)}\n" for line in text.splitlines()), status


def _bundles(folder: str) -> Iterator[tuple[str, Table]]:
    """Yield the folder and the manifest of a bundle or, for a sweep, of each member."""
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
    for folder, _ in bundles:
        for name in (bundled.manifest(folder) or {}).get("files", ()):
            if not os.path.isfile(os.path.join(folder, name)):
                yield f"lacks {name}, which the compiler wrote"
