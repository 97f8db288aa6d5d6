"""The report at the end of a rehearsal. It says what was tried, what could not be tried on this machine, and what was
found.
"""

from __future__ import annotations

import json

from xpc.compiler.render.color import Paint
from xpc.compiler.render.visible import visible
from xpc.grammar.diagnostic import ERROR, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from xpc.compiler.preview.rehearsal.steps import Rehearsal
    from xpc.grammar.diagnostic import Diagnostic

NEVER = (
    ("kernels", "flash attention, Liger and compiled kernels need a GPU"),
    ("memory", "the small model fits everywhere; `xpc plan` predicts the memory of the large model"),
    ("network", "NCCL, the hub and trackers are not used"),
)
"""The parts of a run that no rehearsal can try."""


def table(found: Rehearsal, problems: Sequence[Diagnostic]) -> dict[str, Any]:
    """The report of a rehearsal as JSON data. `problems` are the findings of `xpc check` for the spec."""
    return {
        "exercised": [
            {"step": one.name, "state": one.state, "text": one.text, "seconds": round(one.seconds, 1)}
            for one in found.steps
        ],
        "replaced": [vars(one) for one in found.twin.replaced],
        "not_here": [{"what": what, "why": why} for what, why in NEVER],
        "own_tokenizer": found.own_tokenizer,
        "made_rows": found.made_rows,
        "findings": [
            {"step": one.step, "code": one.code, "message": one.message, "setting": one.setting, "help": one.help,
             "severity": "error" if one.error else "warning"} for one in found.findings
        ],
        "warnings_of_check": [f"{one.code}: {one.message}" for one in problems if one.severity == WARNING],
    }  # fmt: skip


def status(report: dict[str, Any]) -> int:
    """The exit status: 1 if a step failed or an error was found, otherwise 0."""
    failed = any(one["state"] == "failed" for one in report["exercised"])
    return int(failed or any(one["severity"] == "error" for one in report["findings"]))


def as_json(report: dict[str, Any]) -> str:
    """The report as JSON."""
    return json.dumps(report, indent=1, ensure_ascii=False)


def text(report: dict[str, Any], color: bool = False) -> str:
    """The report for a terminal."""
    paint = Paint(color)
    lines = [f"rehearsed {visible(report['spec'])} on {report['stack']}, with a small model on this CPU", ""]
    width = max(len(one["step"]) for one in report["exercised"])
    for one in report["exercised"]:
        state = paint.severity(ERROR, one["state"]) if one["state"] == "failed" else one["state"]
        lines.append(f"  {one['step']:<{width}}  {state}  {one['seconds']:5.1f} s  {visible(one['text'])}".rstrip())
    lines += ["", "not as in the spec:"] if report["replaced"] else []
    for one in report["replaced"]:
        now = f" -> {visible(one['now'])}" if one["now"] else ""
        lines.append(f"  {one['setting']} = {visible(one['was'])}{now}: {visible(one['why'])}")
    lines += ["", "not exercised:", *(f"  {one['what']}: {one['why']}" for one in report["not_here"])]
    lines += _replacements(report, "  ")
    lines += (
        ["", *(_finding(one, paint) for one in report["findings"])] if report["findings"] else ["", "nothing is wrong"]
    )
    return "\n".join(lines) + "\n"


def _replacements(report: dict[str, Any], indent: str) -> list[str]:
    lines = (
        []
        if report["own_tokenizer"]
        else [f"{indent}tokenizer: the model's own is not on this machine; a substitute is used"]
    )
    return lines + (
        [f"{indent}rows: made up in the format of the data; --rows FILE gives real rows"] if report["made_rows"] else []
    )


def _finding(one: dict[str, Any], paint: Paint) -> str:
    head = paint.severity(one["severity"], one["severity"])
    code = f" {one['code']}" if one["code"] else ""
    where = f" ({one['setting']})" if one["setting"] else ""
    out = f"{head}{code}, {one['step']}: {visible(one['message'])}{where}"
    return out + (f"\n  help: {one['help']}" if one["help"] else "")


def markdown(report: dict[str, Any]) -> str:
    """The report as Markdown, for a pull request's comment or a job summary."""
    lines = [
        f"**Rehearsal of `{cell(report['spec'])}`** on {report['stack']}",
        "",
        "| step | | seconds | |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {one['step']} | {one['state']} | {one['seconds']} | {cell(one['text'])} |" for one in report["exercised"]
    ]
    lines += ["", "| finding | setting | help |", "|---|---|---|"] if report["findings"] else ["", "Nothing is wrong."]
    lines += [
        f"| {one['severity']} {one['code']} {cell(one['message'])} | {one['setting']} | {cell(one['help'])} |"
        for one in report["findings"]
    ]
    lines += ["", "| not as in the spec | | why |", "|---|---|---|"] if report["replaced"] else []
    lines += [
        f"| {one['setting']} = {cell(one['was'])} | {cell(one['now'])} | {cell(one['why'])} |"
        for one in report["replaced"]
    ]
    return "\n".join([*lines, "", *_replacements(report, "- ")]).rstrip() + "\n"


def cell(value: str) -> str:
    """A text as the content of a cell of a Markdown table."""
    return visible(value).replace("|", "&#124;").replace("`", "'").replace("<", "&lt;").replace("\n", " ")
