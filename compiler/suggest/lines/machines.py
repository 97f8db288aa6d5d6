"""Rewrite lines about the hardware: lines about several machines, such as `hardware 2 nodes x 8 h100-80gb`, and lines
without the name of a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from xpc.compiler import registry
from xpc.compiler.suggest.lines.notations import machines as gpus_of
from xpc.compiler.suggest.lines.units import COUNTED
from xpc.compiler.suggest.registry_names import YOUR_GPU, YOUR_GPUS, either, gpus_named
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.nearest import letters
from xpc.grammar.record import evolve
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span

COUNTS = (
    "count", "n", "num", "number", "gpus", "numgpus", "devices", "gpuspernode", "nprocpernode", "processes", "value",
)  # fmt: skip
KINDS = ("type", "gpu", "gputype", "name", "kind", "model", "device", "accelerator", "card")
NODES = ("nodes", "numnodes", "nnodes", "machines")

CODES = ("XP101", "XP102", "XP023", "XP025", "XP030", "XP043", "XP104", "XP112")
ALONE = re.compile(r"\d+ ?x? ?[A-Za-z][\w.-]*|[A-Za-z][\w.-]* ?[x*] ?\d+")
"""A pattern for a line that has only GPUs: `8 gpus`, `a100 x 4`."""
IN_A_NODE = 8
"""A node usually has at most this many GPUs."""
NODE = r"[ \t]*(?:nodes?|machines?|hosts?)"
GPU = r"[A-Za-z][\w.-]*"
MACHINES = re.compile(
    r"[ \t]*hardware[ \t]*=?[ \t]*(?:"
    rf"(?P<nodes>\d+){NODE}(?:[ \t]*[x*,]|[ \t]+of|[ \t]+with|[ \t]+each|[ \t]+having)?[ \t]*(?P<each>\d+)[ \t]*"
    rf"(?:x[ \t]*)?(?P<gpu>{GPU})(?:[ \t]+gpus?)?(?:[ \t]+each)?|"
    rf"(?P<all>\d+)[ \t]*x?[ \t]*(?P<card>{GPU})(?:[ \t]*,|[ \t]+on|[ \t]+over|[ \t]+across)?[ \t]*(?P<over>\d+){NODE}|"
    rf"(?P<first>\d+)[ \t]*x[ \t]*(?P<type>{GPU})(?:[ \t]+x[ \t]+|[ \t]*\*[ \t]*)(?P<times>\d+)(?:{NODE})?|"
    r"(?P<count>\d+)[ \t]*x?[ \t]*(?:gpus?|cards?|devices?))[ \t]*(?:#.*)?$"
)
"""Matches `hardware` lines in other notations, such as `hardware 2 nodes of 8 H100`, and lines without the name of a
GPU, such as `hardware 8 GPUs`.
"""


NODES_FIRST = re.compile(
    rf"(?:nodes?[ \t]*=?[ \t]*(?P<nodes>\d+)[ \t,]+gpus?[ \t]*=?[ \t]*(?P<each>\d+)"
    rf"|(?P<count>\d+){NODE}[ \t,]+(?:(?:of|with|x)[ \t]+)?(?P<gpus>\d+[ \t]*x?[ \t]*{GPU}))"
)
"""Matches lines about several machines without `hardware`: `nodes 2 gpus 8`, `2 nodes of 8 h100`."""
LISTED = re.compile(rf"hardware[ \t]*=?[ \t]*\[?[ \t]*(?P<gpu>{GPU})(?:[ \t]*[,+ ][ \t]*(?P=gpu)\b)+[ \t]*\]?")
"""Matches a line that repeats the GPU: `hardware [l40s, l40s]`."""


def rewrite_machines(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Replace all findings about a line such as `hardware 2 nodes x 8 h100-80gb` by a single finding about the complete
    line. Other findings are returned unchanged.
    """
    out: list[Diagnostic] = []
    lines: set[tuple[str, int]] = set()
    for found in problems:
        label = found.primary
        if label is None or found.code not in CODES:
            out.append(found)
            continue
        start, end = line_bounds(label.source.text, label.span.start, label.span.start)
        line = re.sub(r"^\w+(?= )", lambda one: str(COUNTED.get(one[0], one[0])), label.source.text[start:end].strip())
        first, listed = NODES_FIRST.fullmatch(line), LISTED.fullmatch(line)
        if first is not None:
            line = f"hardware {first['nodes'] or first['count']} nodes {first['gpus'] or first['each'] + ' gpus'}"
        elif listed is not None:
            line = f"{len(re.findall(re.escape(listed['gpu']), line.removeprefix('hardware')))} x {listed['gpu']}"
        machines = MACHINES.fullmatch(line) if first else MACHINES.fullmatch(label.source.text, start, end)
        alone = listed or (ALONE.fullmatch(line) and (found.code in ("XP025", "XP030") or line[:1].isdecimal()))
        if machines is None and alone:  # `8 gpus`, `one gpu`, `a100 x 4`
            forms = [f"hardware {one}" for one in gpus_of(line)]
            machines = None if forms else MACHINES.fullmatch(f"hardware {line}")
            if forms:
                edits = (Edit(Span(start, end), forms[0]),) if len(forms) == 1 else ()
                out.append(evolve(found, help=f"write {either(forms)}", edits=edits))
                continue
        if machines is None:
            out.append(found)
        elif (label.source.name, start) not in lines:
            lines.add((label.source.name, start))
            message = "`hardware` takes the GPUs of one node: a count, `x` and a GPU"
            help, form = _machines(machines)
            twice = "\nnodes " in form and _states_nodes(label.source.text)
            edits = (Edit(Span(start, end), form),) if form and not twice else ()
            out.append(evolve(found, message=message, help=help, edits=edits))
    return out


@lru_cache(maxsize=1)
def _states_nodes(text: str) -> bool:
    """Whether a line of a spec begins with `nodes`."""
    return any(line.partition("#")[0].split()[:1] == ["nodes"] for line in text.split("\n"))


def machines_of(line: str) -> tuple[str, str] | None:
    """Return a pair for a line such as `hardware 2 nodes with 8 h100-80gb each`: the help, and the lines to write (""
    if unclear). None for any other line.
    """
    line = re.sub(r"\b(?:a[ \t]+)?([a-z-]+)\b", lambda one: str(COUNTED.get(one[1], one[0])), line)
    only = re.fullmatch(rf"hardware (\d+){NODE}", line)
    if only is not None:
        return f"write `nodes {only[1]}`", f"nodes {only[1]}"
    machines = MACHINES.fullmatch(line)
    found = None if machines is None else _machines(machines)
    if found is not None and machines is not None and machines["nodes"] == "1":
        form = found[1].partition("\n")[0]  # `nodes 1` need not be written
        return f"write `{form}`", form
    return found


def _machines(machines: re.Match[str]) -> tuple[str, str]:
    """Return a pair: the help for a line about several machines, and the lines to write, or "" if this is unclear. If a
    line names no GPU, or a GPU that is not in the registry, the help contains the placeholder GPU instead of a name.
    """
    count, nodes = machines["each"] or machines["first"], machines["nodes"] or machines["times"]
    name = machines["gpu"] or machines["card"] or machines["type"] or ""
    if machines["all"] is not None:
        total, nodes = int(machines["all"]), machines["over"]
        each = total // int(nodes) if int(nodes) and total % int(nodes) == 0 else 0
        # the number may count all GPUs, or only the GPUs of one node
        if each and total <= IN_A_NODE and (known := registry.find_gpu(name)) is not None:
            both = (
                f"`hardware {one} x {known.name}` and `nodes {nodes}` for {one * int(nodes)} GPUs in all"
                for one in (each, total)
            )
            return f"write {', or '.join(both)}", ""
        count = str(each or "N")
    known = registry.find_gpu(name)
    if machines["count"] is not None or known is None:
        gpus = f"write `hardware {machines['count'] or count} x GPU`, {YOUR_GPU}"
        if machines["count"] is None and (cards := gpus_named(name).names):
            gpus = f"write {either([f'hardware {count} x {one}' for one in cards])}"
        return gpus if nodes is None else f"{gpus}; and `nodes {nodes}` on its own line", ""
    form = f"hardware {count} x {known.name}"
    lines = f"{form}\nnodes {nodes}" if count.isdecimal() else ""
    return f"write `{form}`, and `nodes {nodes}` on its own line", lines


def hardware_of(settings: Sequence[tuple[str, str]], header: bool) -> list[tuple[str | None, str]]:
    """Rewrite `hardware { type = h100-80gb, count = 8 }` as `hardware 8 x h100-80gb`. Returns pairs of the text to type
    and a help. The text is None if the GPU or the count is missing.
    """
    count = gpu = ""
    out: list[tuple[str | None, str]] = []
    for name, typed in settings:
        text, key = typed.strip('"'), letters(name)
        if key in NODES:
            out.append((f"nodes{'=' if header else ' '}{text}", ""))
        elif text.isdecimal() and key in COUNTS:
            count = text
        elif key in KINDS:
            gpu = text
    head = f"hardware{'=' if header else ' '}"
    if gpu == "cpu":
        return [(f"{head}{count} x cpu" if count else f"{head}cpu", ""), *out]
    cards = gpus_named(gpu).names[:4] if gpu else ("GPU",) if count else ()
    forms = [f"{head}{count or 'N'} x {one}" for one in cards]
    if gpu and not forms:
        return [(None, f"`{gpu[:40]}` is not a GPU of the registry: `xpc list gpus` prints the names"), *out]
    if len(forms) == 1 and count and gpu:
        return [(forms[0], ""), *out]
    have = f", with the {'GPU' if count else 'number'} that you have" if len(forms) == 1 else ""
    return [(None, f"write {either(forms)}{have}"), *out] if forms else out or [(None, YOUR_GPUS)]
