"""Lower a checked sweep: write the files of its folder, which are a bundle for each member, and scripts that start
these bundles.

`members/NAME/` is a complete bundle, and can be run without the other files of the sweep. Next to `members/` are
`launch.sh`, which starts one member or all of them; `members.txt`, which lists the names of the members; `sweep.toml`;
and README.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xpc.compiler import __version__
from xpc.compiler.engines.engine import MEMBERS, engine
from xpc.compiler.engines.pin import LIST, pin
from xpc.compiler.files.bundle import sealed
from xpc.compiler.files.digest import shared_digest
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.typed import show
from xpc.compiler.lower import lower
from xpc.compiler.lower.readme import cell, finding
from xpc.compiler.lower.sweep_launch import launch
from xpc.compiler.lower.toml_text import value as quoted
from xpc.compiler.resolve.sweep_member import Member, plain_name
from xpc.compiler.spec import Spec
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.record import evolve

FORMAT = 1


def sweep(members: Sequence[Member]) -> dict[str, bytes]:
    """All files in the folder of a sweep, by name; `sweep.toml` is the last. The same spec and the same input files
    always give the same bytes.
    """
    first = members[0].spec
    assert first is not None  # the caller must not lower a sweep that has errors
    out: dict[str, bytes] = {}
    digests: list[str] = []
    pins: dict[str, str] = {}
    for member in members:
        spec = member.spec
        assert spec is not None
        files = lower(named(spec, member.name))
        digests.append(shared_digest(files["bundle.toml"]))
        pins[member.name] = pin(files[LIST])
        out.update({f"{MEMBERS}/{member.name}/{name}": data for name, data in files.items()})
    source = shared_digest(first.source.text.encode("utf-8", "surrogatepass"))
    return {**out, **top_files(first, members, digests, pins, source)}


def top_files(
    first: Spec, members: Sequence[Member], digests: Sequence[str], pins: Mapping[str, str], source: str
) -> dict[str, bytes]:
    """The files next to `members/`, by name. `digests` has the digest of each member's bundle.toml, and `pins` the
    digest of each member's run.sha256. `source` is the digest of the spec.
    """
    specs = [one.spec for one in members if one.spec is not None]
    top = {"README.md": _readme(first, members).encode("utf-8", "surrogatepass"), **starters(specs, first.name, pins)}
    top["sweep.toml"] = sealed(_table(first, members, digests, top, source).encode("utf-8", "surrogatepass"))
    return top


def starters(specs: Sequence[Spec], name: str, pins: Mapping[str, str]) -> dict[str, bytes]:
    """The files that start the members, by name. `pins` are the digests of the members' `run.sha256`, in the order of
    the members.
    """
    texts = {
        "launch.sh": launch(len(pins)),
        "members.txt": "".join(f"{one}\n" for one in pins),
    }
    texts.update(engine(specs[0]).sweep_files(specs, name, pins))
    return {name: text.encode("utf-8", "surrogatepass") for name, text in texts.items()}


def named(spec: CheckedSpec, member: str) -> CheckedSpec:
    """The spec of a member, with the name and the output folder that the member's bundle gets."""
    folder = f"{spec.name}.bundle/{MEMBERS}/{member}"
    return evolve(spec, name=f"{spec.name}-{plain_name(member)}", folder=folder)


def value(member: Member, path: str) -> str:
    """The value that a swept setting has in one member, written as in a spec."""
    spec = member.spec
    assert spec is not None
    if path == "model":
        return spec.model.location
    row = BY_PATH[path]
    return show(row, spec.get(row.path))


def _table(
    first: Spec, members: Sequence[Member], digests: Sequence[str], top: Mapping[str, bytes], source: str
) -> str:
    """The text of `sweep.toml`: the name and the spec of the sweep, the digests of the files next to sweep.toml, and
    each member with its settings.
    """
    lines = [
        "[sweep]",
        f"format = {FORMAT}",
        f"xpc = {quoted(__version__)}",
        f"name = {quoted(first.name)}",
        f"target = {quoted(first.stack.name)}",
        f"spec = {quoted(first.source.name)}",
        f"spec_digest = {quoted(source)}",
        f"members = {len(members)}",
        "",
        "[files]",
        *(f"{quoted(name)} = {quoted(shared_digest(data))}" for name, data in sorted(top.items())),
    ]
    for member, bundle in zip(members, digests, strict=True):
        settings = ", ".join(f"{quoted(path)} = {quoted(value(member, path))}" for path, _ in member.settings)
        lines += ["", "[[member]]", f"index = {member.index}", f"name = {quoted(member.name)}"]
        lines += [f"settings = {{ {settings} }}", f"bundle = {quoted(bundle)}"]
    return "\n".join(lines) + "\n"


def _readme(first: Spec, members: Sequence[Member]) -> str:
    paths = [path for path, _ in members[0].settings]
    commands = engine(first).sweep_readme([one.name for one in members])
    width = max(len(command) for command, _ in commands)
    title = "model" if first.model.path is None else "model folder"
    lines = [
        f"# {cell(first.name)}",
        "",
        f"A sweep of {len(members)} runs, compiled by xpc. Each folder in `members/` is a bundle that runs alone; its",
        "README.md has every number of that run.",
        "",
        "```",
        f"pip install -r {MEMBERS}/{members[0].name}/requirements.txt",
        *(f"{command:{width}}  # {what}" for command, what in commands),
        "```",
        "",
        "After an interruption, the same command resumes the runs. A member's folder can be copied away and run alone.",
        "",
        "| | |",
        "|---|---|",
        f"| {title} | {cell(first.model.location) if 'model' not in paths else 'one per member'} |",
        f"| target | {first.stack.name}: {cell(first.stack.title)} |",
        f"| output | {cell(first.text('save').rpartition('/')[0])}, one folder per member |",
        "",
        "## Members",
        "",
        "| | " + " | ".join(cell(path) for path in paths) + " | member |",
        "|---|" + "---|" * (len(paths) + 1),
    ]
    for member in members:
        values = " | ".join(cell(value(member, path)) for path in paths)
        lines.append(f"| {member.index} | {values} | {cell(member.name)} |")
    shown = _findings(members)
    if shown:
        lines += ["", "## Warnings and notes", "", *shown]
    return "\n".join(lines) + "\n"


def _findings(members: Sequence[Member]) -> list[str]:
    """The findings of all members as items of a list. A finding that several members have is listed once. If only some
    members have it, the item names these members.
    """
    names: dict[str, list[str]] = {}
    for member in members:
        for text in {finding(one) for one in (() if member.spec is None else member.spec.problems)}:
            names.setdefault(text, []).append(member.name)
    return sorted(text + _some(have, len(members)) for text, have in names.items())


def _some(names: Sequence[str], of: int) -> str:
    if len(names) == of:
        return ""
    first = cell(", ".join(names[:2]))
    more = f" and {len(names) - 2} more of {of}" if len(names) > 2 else ""
    return f" (member{'s' * (len(names) > 1)} {first}{more})"
