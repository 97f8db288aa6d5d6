"""What a differential run found: in words, as JSON, and as the page docs/differential.md.

python tests/proof/differential/differential_report.py docs/differential.json docs/differential.md
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import Factory, define

KEPT = 25
"""Examples of one kind that a report holds."""
ENDS = ("json", "md", "txt")
FOUND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "found.toml")
"""What earlier runs found and what became of it; written by hand."""


@define
class Report:
    """What was found, as it is published. Times are in seconds of the clock."""

    seed: str = ""
    wanted: int = 0
    wanted_steps: int = 0
    versions: dict[str, dict[str, str]] = Factory(dict)
    drawn: int = 0
    accepted: int = 0
    rejected: int = 0
    stepped: int = 0
    looked_past: int = 0
    stepped_past: int = 0
    asked_again: int = 0
    seconds: float = 0.0
    seconds_constructing: float = 0.0
    by_target: Counter[str] = Factory(Counter)
    by_method: Counter[str] = Factory(Counter)
    by_strategy: Counter[str] = Factory(Counter)
    steps_of: Counter[str] = Factory(Counter)
    written: Counter[str] = Factory(Counter)
    codes: Counter[str] = Factory(Counter)
    warned: Counter[str] = Factory(Counter)
    false_accepts: list[dict[str, Any]] = Factory(list)
    false_refusals: list[dict[str, Any]] = Factory(list)
    of_language: dict[str, int] = Factory(dict)
    unproven: dict[str, int] = Factory(dict)
    needs: dict[str, str] = Factory(dict)
    crashes: list[dict[str, Any]] = Factory(list)


def report_text(report: Report) -> str:
    """The report in words, with an example of each kind of finding."""
    lines = [
        f"{report.drawn:,} specs drawn, {report.accepted:,} accepted, {report.rejected:,} rejected"
        f" ({report.seconds:.0f} s, {report.seconds_constructing:.0f} of them until all were constructed)",
        f"constructed by the libraries: {report.accepted:,}; trained a step: {report.stepped};"
        f" refused ones looked at past the checker: {report.looked_past:,} constructed, {report.stepped_past} trained",
        f"false accepts: {len(report.false_accepts)}; suspected false refusals: {len(report.false_refusals)};"
        f" crashes of the compiler: {len(report.crashes)}",
        f"targets: {counted(report.by_target)}",
        f"methods: {counted(report.by_method)}",
        f"strategies: {counted(report.by_strategy)}",
        f"steps: {counted(report.steps_of)}",
        f"errors: {counted(report.codes)}",
        f"errors of the language itself, with nothing to lower: {counted(report.of_language)}",
        "errors without a proof: "
        + (", ".join(f"{code} {n}" for code, n in sorted(report.unproven.items())) or "none"),
        "errors whose proof needs more: "
        + (", ".join(f"{code} ({why})" for code, why in sorted(report.needs.items())) or "none"),
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
        seen = "; ".join(ones[0]["seen"])[:300] or "nothing"
        lines += ["", f"SUSPECTED FALSE REFUSAL x {len(ones)}: {code} on {ones[0]['target']}, past the checker: {seen}"]
        lines += [f"    {line}" for line in ones[0]["text"].splitlines()]
    for one in report.crashes[:5]:
        lines += ["", f"CRASH: {one['error']}", *(f"    {line}" for line in one["text"].splitlines())]
    return "\n".join(lines) + "\n"


def counted(counts: Mapping[str, int]) -> str:
    """Names with their numbers, the most frequent first."""
    return ", ".join(f"{name} {number:,}" for name, number in sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def published(report: Report) -> dict[str, Any]:
    """The report as JSON has it, with as many examples of a kind as are read."""
    out = {name: getattr(report, name) for name in (field.name for field in Report.__attrs_attrs__)}
    of_run = ("seed", "wanted", "wanted_steps", "accepted", "stepped", "seconds", "seconds_constructing")
    out["runs"] = [{name: out[name] for name in of_run}]
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


INTRODUCTION = """\
# Random specs against the libraries

Does the compiler accept what the libraries refuse, or refuse what they would have run? `make differential` generates
random specs over the entire language from a seed (`tests/proof/differential/generator.py`: common settings often,
everything else now and then) and tries them in the libraries. For an accepted spec the emitted files are tested:
`accelerate launch` reads the YAML, DeepSpeed the JSON, the configuration class takes the arguments. An exception, a
value that reads back differently, a mismatch, or a deprecated or ignored name is a false accept, and so is an exception
in a training step.
A spec refused by a single code goes past the checker to the same libraries if every proof of the code promises an
exception for the unchanged text; no exception, or another one, is a suspected false refusal. Codes that are proven by
a measured silent effect, or that refuse what cannot be lowered at all, are judged only by their proofs
([rules.md](rules.md)).

A training step runs as in the bundle's own program (`runtime/core/trainer.py`: its trainer, adapters, frozen weights,
and the registered reward functions), and a silent effect is a finding (`tests/proof/silent_effect.py`).
Afterwards the trainer is compared with the bundle: dtypes of weights, adapters and optimizer states;
which weights have gradients, and which changed; every argument, read back; the attention; whether the processes have
the same weights; the evaluation, if any; a loss that is 0 or nan. A token of one document in a
packed row is replaced, in training and evaluation rows, and no logit of another document may change. The step's loss
and gradient are computed a second time: from the tokens of its micro-batches for `sft`, from each micro-batch alone
for `dpo`, `orpo`, `kto` and `reward`. Numbers in `extra` are zero, negative, at bounds, beyond them or
between whole numbers. A step that takes too long is retried alone with three times the limit before it
counts.

GPUs are simulated: construction pretends their capability and world size, and a step of a spec for GPUs runs on a tiny
model of its family on the CPU, with accumulation, bf16, ZeRO and the arithmetic of flash attention on packed rows, and
with quantized bases if bitsandbytes is installed. Specs for `cpu` and `2 x cpu` run unchanged, and FSDP2 over gloo.

Not covered:

- what only a GPU has: fp16's scaler, Liger's and Triton's kernels, compilation, vLLM, 8-bit optimizers, flex
  attention's backward pass, offloading, context parallelism, running out of memory; more than two processes,
  FSDP1 and copies of shards; accumulation beyond 4 and a micro-batch other than 2
- quantized bases on trl-0.18, whose environment here has no bitsandbytes
- errors after the second step, or after resuming from a checkpoint; other tests cover these
  ([recovery.md](recovery.md))
- the scale of the loss of `grpo` and `rloo`, and of others with dropout, NEFTune, label smoothing, losses other
  than the cross-entropy for `sft`, ZeRO-3 and FSDP; the gradient's scale with any ZeRO; packed rows under ZeRO-3 and
  FSDP
- real data and real weights: rows are tiny, and rewards are called but their numbers are replaced by ones that differ;
  the teacher of `distill` is a more confident copy of the student
- specs refused by several codes, or by a code whose proofs measure a silent effect, past the checker
"""


def page(report: Mapping[str, Any], found: str = "") -> str:
    """The page of a published report; `found` is the text of found.toml."""
    lines = [INTRODUCTION]
    command = "python tests/proof/differential/differential.py"
    lines += [
        *(f"`{command} --accepted {run['wanted']} --steps {run['wanted_steps']} --seed {run['seed']}`:"
          f" {run['accepted']:,} specs constructed in {run['seconds_constructing'] / 60:.0f} minutes,"
          f" {run['stepped']} steps trained in {(run['seconds'] - run['seconds_constructing']) / 60:.0f}, on two cores"
          " shared with other work.\n" for run in report["runs"]),
        *(f"- {name}: " + ", ".join(f"{package} {number}" for package, number in pins.items())
          for name, pins in report["versions"].items()), "",
        "| | |", "|---|---|",
        *(f"| {name} | {number:,} |" for name, number in (
            ("specs generated", report["drawn"]), ("accepted, and constructed by the libraries", report["accepted"]),
            ("rejected", report["rejected"]), ("trained a step", report["stepped"]),
            ("rejected, and constructed past the checker", report["looked_past"]),
            ("rejected, and trained past the checker", report["stepped_past"]),
            ("**false accepts**", report["false_accepts_in_all"]),
            ("**suspected false refusals**", report["false_refusals_in_all"]),
            ("crashes of the compiler", report["crashes_in_all"]),
        )), "",
        f"Accepted: {counted(report['by_target'])}; {counted(report['by_method'])}; {counted(report['by_strategy'])}."
        f" {len(report['written'])} settings occur in one or more of them.",
        "", f"Steps: {counted(report['steps_of'])}.", "",
        f"Rejected, by code (a spec may have several): {counted(report['codes'])}.", "",
        f"Errors in names and units, with nothing to lower: {counted(report['of_language'])}. "
        "Rules without a proof: " + (counted(report["unproven"]) or "none") + ". Proofs that need more than a CPU: "
        + (", ".join(f"{code} ({why})" for code, why in sorted(report["needs"].items())) or "none") + ".", "",
    ]  # fmt: skip
    for title, name in (("False accepts", "false_accepts"), ("Suspected false refusals", "false_refusals")):
        kinds: Counter[str] = Counter()
        for one in report[name]:
            what = one["problems"][0] if "problems" in one else f"{one['code']}: {'; '.join(one['seen']) or 'silence'}"
            kinds[f"{one['target']}: {' '.join(what.split())[:160]}"] += 1
        if kinds:
            lines += [
                f"{title} of this run:",
                "",
                *(f"- {what} ({number})" for what, number in kinds.most_common()),
                "",
            ]
    told_of = tomllib.loads(found) if found else {}
    for one in told_of.get("again", []):
        lines += [
            f"After fixing the findings above, with another seed (`{one['command']}`):"
            f" {one['accepted']:,} specs accepted and constructed, {one['rejected']:,} rejected,"
            f" {one['stepped']} trained a step, {one['past']} tested past the checker;"
            f" {one['false_accepts']} false accepts, {one['false_refusals']} suspected false refusals.",
            "",
        ]
    entries = told_of.get("found", [])
    if entries:
        lines += ["Found by earlier runs, and fixed:", ""]
        lines += [f"- {one['what']}: {one['fate']}" for one in entries]
    return "\n".join(lines).rstrip() + "\n"


def merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several published reports as one: numbers are added, lists are joined."""
    out = dict(reports[0])
    for other in reports[1:]:
        for name, value in other.items():
            if isinstance(value, int | float):
                out[name] += value
            elif isinstance(value, list):
                out[name] = [*out[name], *value]
            elif isinstance(value, dict) and name not in ("versions", "needs"):
                out[name] = dict(Counter(out[name]) + Counter(value))
        out["needs"] = {**out["needs"], **other["needs"]}
    return out


def main(words: list[str]) -> int:
    """Writes the JSON and the page: paths of reports, then of the JSON, then of the page."""
    *sources, published_to, out = words
    reports = []
    for source in sources or [published_to]:
        with open(source, encoding="utf-8") as handle:
            reports.append(json.load(handle))
    report = merged(reports)
    for one in report["false_accepts"]:
        one.pop("output", None)  # paths of the machine
    with open(FOUND, encoding="utf-8") as handle:
        text = page(report, handle.read())
    for path, content in ((published_to, json.dumps(report, indent=1) + "\n"), (out, text)):
        with open(path, "w", encoding="utf-8") as handle:
            handle.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
