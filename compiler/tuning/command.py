"""`xpc plan SPEC...`: predict whether a run fits its GPUs, and how long it takes. With `--on`, the run is planned on
other GPUs than those of the spec.
"""

from __future__ import annotations

import argparse
import operator
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence

from xpc.compiler.data import preview_counts
from xpc.compiler.files.atomic import write_text
from xpc.compiler.files.inputs import UsageError, located, read_spec
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.plan.experiment import Assumptions, Plan, plan
from xpc.compiler.plan.price import HELP, price_argument
from xpc.compiler.registry import find_gpu
from xpc.compiler.render import render
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.compiler.render.output import show, show_rendered
from xpc.compiler.render.visible import visible
from xpc.compiler.spec import Spec
from xpc.compiler.tuning import calibration_file
from xpc.compiler.tuning.show import as_json, markdown, text, totals
from xpc.grammar.diagnostic import ERROR
from xpc.grammar.record import evolve

FORMATS: dict[str, Callable[[Sequence[Plan]], str]] = {"text": text, "json": as_json, "markdown": markdown}
NODE = 8
"""The number of GPUs of a node. If the number of GPUs in `--on` is a larger multiple of this, the plan assumes several
nodes.
"""
COMPARED = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
NAMES = ("cost", "gpu_hours", "hours", "steps", "peak_gib", "share", "tokens_per_step", "verdict")
EPILOG = (
    "Names of --fail-if: " + ", ".join(NAMES) + " (`share` is the peak divided by the card's memory). A "
    "condition on an unknown value counts as met. Exit status: 0 if all specs were planned, 1 if a spec does not "
    "compile or a condition is met, 2 for wrong usage."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser("xpc plan", description="Predict a run's memory and time.", epilog=EPILOG)
    parser.add_argument("files", nargs="+", metavar="SPEC", help="a spec, or - for standard input")
    parser.add_argument("--on", action="append", default=[], metavar="GPUS", help="plan for `8 x a100-80gb` instead")
    parser.add_argument("--rows", type=_positive, metavar="N", help="rows in an epoch, if xpc cannot count them")
    parser.add_argument("--tokens", type=_positive, metavar="N", help="average number of tokens in a row")
    parser.add_argument("--price", type=price_argument, default={}, metavar="PRICE", help=HELP)
    parser.add_argument("--calibration", metavar="FILE", help="measurements of real runs, as `xpc tune` writes them")
    parser.add_argument("--compare", action="store_true", help="print one line for each plan")
    parser.add_argument("--fail-if", action="append", default=[], metavar="EXPR", help="as 'gpu_hours > 500'")
    parser.add_argument("--html", metavar="FILE", help="also write the plan to an HTML page")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="output format (default: text)")
    return parser.parse_intermixed_args(list(arguments))  # options may stand before, between and after specs


def _positive(word: str) -> int:
    if re.fullmatch(r"[0-9]{1,18}", word) is None or not int(word):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not `{word[:40]}`")
    return int(word)


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the printed text and the exit status. Raises UsageError."""
    conditions = [_condition(one) for one in options.fail_if]
    readings = calibration_file.read(options.calibration) if options.calibration is not None else ()
    given = Assumptions(options.rows, options.tokens, readings=readings, prices=options.price)
    plans: list[Plan] = []
    wrong = False
    for path in options.files:
        data, name, workspace = read_spec(path)
        for hardware in options.on or [None]:
            specs = _specs(data, name, workspace, hardware, path)
            wrong = wrong or not specs
            plans += [plan(spec, _of_preview(spec, workspace, given)) for spec in specs]
    if not plans:
        return "", 1
    form = markdown if options.compare and options.format == "text" else FORMATS[options.format]
    met = list(_met(conditions, plans))
    for line in met:
        show(f"xpc: {line}", sys.stderr)
    if options.html is not None:
        from xpc.compiler.tuning.html import page

        write_text(options.html, page(plans, given))
    reported = form(plans)
    # with `--on`, the plans are alternatives (one run on several kinds of hardware), so their total has no meaning
    if form is markdown and len(plans) > 1 and not options.on:
        reported += f"\n{totals(plans)}"
    if form is not as_json:  # names of files may contain control characters, which JSON escapes
        reported = "\n".join(map(visible, reported.split("\n")))
    return reported, int(wrong or bool(met))


def _of_preview(spec: Spec, workspace: Workspace, given: Assumptions) -> Assumptions:
    """Add the average length of a row, in tokens, and the number of packed sequences to the assumptions of the command
    line, if `launch.sh --prepare` or `xpc preview --rows` has counted them. If `--tokens` states a length, nothing is
    added.
    """
    if given.tokens is not None:
        return given

    prepared = None
    if os.environ.get("XPC_PREPARED"):
        from xpc.compiler.preview.prepared_counts import prepared_counts

        prepared = prepared_counts(spec, workspace.root)
    counts = prepared or preview_counts.recall(spec, workspace)
    tokens = None if counts is None else preview_counts.mean(counts)
    if counts is None or tokens is None:
        return given
    many = f"{tokens:,} tokens on average, from {'the' if prepared else 'a preview of'} {counts['rows']:,} "
    many += "prepared rows" if prepared else "rows"
    show(f"xpc: {visible(spec.name)}: rows have {many}", sys.stderr)
    return evolve(given, tokens=tokens, packed=counts.get("sequences", 0) / counts["rows"] or None)


def _specs(data: bytes, name: str, workspace: Workspace, hardware: str | None, path: str) -> list[Spec]:
    """Compile a spec, with other hardware if `hardware` is given. Return its run, or the runs of its sweep. If the spec
    does not compile, print its errors and return an empty list.
    """
    if hardware is not None:
        data, name = _moved(name, hardware, path), f"{name.removesuffix('.xp')} on {hardware}.xp"
    # compile even a run that does not fit its GPUs, because its plan shows how much memory it needs
    checked = check_text(data, name, evolve(workspace, allow_oom=True))
    if checked.members:
        from xpc.compiler.lower.sweep import named  # imported here, because only sweeps need it

        return [named(one.spec, one.name) for one in checked.members if one.spec is not None]
    if checked.spec is not None:
        return [checked.spec]
    errors = [one for one in checked.problems if one.severity == ERROR]
    show_rendered(render(located(errors, path) if hardware is None else errors, "full"), sys.stderr)
    return []


def _moved(name: str, hardware: str, path: str) -> bytes:
    """The text of a spec that extends the given spec and states other hardware. `16 x h100-80gb` becomes two nodes of
    eight GPUs; `h100-80gb` without a number becomes one GPU.
    """
    one = find_gpu(hardware.strip())
    found = re.fullmatch(r"\s*(\d+)\s*x\s*([\w.-]+)\s*", hardware if one is None else f"1 x {one.name}")
    if found is None or not int(found[1]):
        raise UsageError(f"`--on {hardware}` names no GPUs: write --on '8 x a100-80gb'")
    if path == "-":
        raise UsageError("--on needs a spec in a file, not standard input")
    count = int(found[1])
    nodes = count // NODE if count > NODE and count % NODE == 0 else 1
    machines = f"nodes {nodes}\nhardware {count // nodes} x {found[2]}\n"
    return f'xpc 1\n\nextends "{os.path.basename(path)}"\n\n{machines}'.encode()


def _condition(words: str) -> tuple[str, str, str]:
    found = re.fullmatch(r"\s*(\w+)\s*(>=|<=|==|!=|>|<)\s*([\w.]+)\s*", words)
    if found is None or found[1] not in NAMES:
        raise UsageError(f"`--fail-if {words}` is not a name, a comparison and a value, as 'gpu_hours > 500'")
    name, compared, value = found[1], found[2], found[3]
    if (name == "verdict") != (value in ("fits", "tight", "no", "unknown")):
        raise UsageError(f"`--fail-if {words}`: {name} cannot be compared with `{value}`")
    if name != "verdict" and re.fullmatch(r"\d+(\.\d+)?", value) is None:
        raise UsageError(f"`--fail-if {words}`: {value} is not a number")
    if name == "verdict" and compared not in ("==", "!="):
        raise UsageError(f"`--fail-if {words}`: a verdict can only be compared with == or !=")
    return name, compared, value


def _met(conditions: Sequence[tuple[str, str, str]], plans: Sequence[Plan]) -> Iterator[str]:
    """Yield a line for each condition of `--fail-if` and each plan, if the condition is true for the plan, or if it is
    unknown whether it is true. A condition is a triple: a name, an operator and a value.
    """
    for name, compared, value in conditions:
        for one in plans:
            found = value_of(one, name)
            if found is None:
                yield f"{one.spec.name}: {name} is not known, and --fail-if asks for it"
            elif COMPARED[compared](found, value if name == "verdict" else float(value)):
                shown = found if isinstance(found, str) else f"{found:,.0f}" if found >= 1000 else f"{found:.4g}"
                yield f"{one.spec.name}: {name} is {shown}, and --fail-if is '{name} {compared} {value}'"


def value_of(one: Plan, name: str) -> float | str | None:
    """The number or verdict that `name` means in a condition of `--fail-if`. None if it is unknown."""
    if name == "verdict":
        return one.verdict
    peak = None if one.peak is None else one.peak.value
    values: dict[str, float | None] = {
        "cost": None if one.cost is None else one.cost.value,
        "gpu_hours": None if one.gpu_hours is None else one.gpu_hours.value,
        "hours": None if one.hours is None else one.hours.value,
        "steps": one.steps,
        "peak_gib": None if peak is None else peak / 2**30,
        "share": None if peak is None or not one.capacity else peak / one.capacity,
        "tokens_per_step": one.tokens_per_step,
    }
    return values[name]
