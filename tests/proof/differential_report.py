"""What a differential run found, in words and as JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from attrs import Factory, define

KEPT = 25
"""Examples of one kind that a report holds."""


@define
class Report:
    """What was found, as it is published."""

    drawn: int = 0
    accepted: int = 0
    rejected: int = 0
    stepped: int = 0
    looked_past: int = 0
    stepped_past: int = 0
    seconds: float = 0.0
    by_target: Counter[str] = Factory(Counter)
    by_method: Counter[str] = Factory(Counter)
    by_strategy: Counter[str] = Factory(Counter)
    written: Counter[str] = Factory(Counter)
    codes: Counter[str] = Factory(Counter)
    warned: Counter[str] = Factory(Counter)
    false_accepts: list[dict[str, Any]] = Factory(list)
    false_refusals: list[dict[str, Any]] = Factory(list)
    unproven: dict[str, int] = Factory(dict)
    needs: dict[str, str] = Factory(dict)
    crashes: list[dict[str, Any]] = Factory(list)


def told(report: Report) -> str:
    """The report in words."""
    lines = [
        f"{report.drawn:,} specs drawn, {report.accepted:,} accepted, {report.rejected:,} rejected"
        f" ({report.seconds:.0f} s)",
        f"constructed by the libraries: {report.accepted:,}; trained a step: {report.stepped};"
        f" refused ones looked at past the checker: {report.looked_past:,} constructed, {report.stepped_past} trained",
        f"false accepts: {len(report.false_accepts)}; suspected false refusals: {len(report.false_refusals)};"
        f" crashes of the compiler: {len(report.crashes)}",
        "targets: " + ", ".join(f"{name} {number:,}" for name, number in report.by_target.most_common()),
        "methods: " + ", ".join(f"{name} {number:,}" for name, number in report.by_method.most_common()),
        "strategies: " + ", ".join(f"{name} {number:,}" for name, number in report.by_strategy.most_common()),
        "errors: " + ", ".join(f"{code} {number}" for code, number in report.codes.most_common()),
        "errors without a proof: "
        + (", ".join(f"{code} {n}" for code, n in sorted(report.unproven.items())) or "none"),
        "errors whose proof needs more: "
        + (", ".join(f"{code} ({why})" for code, why in report.needs.items()) or "none"),
    ]
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in report.false_accepts:
        kinds[f"{one['target']}: {one['problems'][0][:160]}"].append(one)
    for title, ones in sorted(kinds.items(), key=lambda pair: -len(pair[1])):
        lines += ["", f"FALSE ACCEPT x {len(ones)}: {title}", *(f"  {line}" for line in ones[0]["problems"][1:4])]
        lines += [f"    {line}" for line in ones[0]["text"].splitlines()]
    codes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in report.false_refusals:
        codes[one["code"]].append(one)
    for code, ones in codes.items():
        lines += ["", f"SUSPECTED FALSE REFUSAL x {len(ones)}: {code} on {ones[0]['target']}"]
        lines += [f"    {line}" for line in ones[0]["text"].splitlines()]
    for one in report.crashes[:5]:
        lines += ["", f"CRASH: {one['error']}", *(f"    {line}" for line in one["text"].splitlines())]
    return "\n".join(lines) + "\n"


def published(report: Report) -> dict[str, Any]:
    """The report as JSON has it, with as many examples of a kind as are read."""
    out = {name: getattr(report, name) for name in (field.name for field in Report.__attrs_attrs__)}
    for name in ("false_accepts", "false_refusals", "crashes"):
        out[f"{name}_in_all"] = len(out[name])
        seen: Counter[str] = Counter()
        kept = []
        for one in out[name]:
            kind = str(one.get("code") or one.get("error") or one["problems"][0][:60])
            seen[kind] += 1
            kept += [one] if seen[kind] <= KEPT else []
        out[name] = kept
    return out
