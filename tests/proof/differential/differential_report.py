"""Write the results of a differential run: as text, as JSON, and as the page docs/differential.md.

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
"""A report contains at most this many examples of each kind."""
ENDS = ("json", "md", "txt")
FOUND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "found.toml")
"""A file that is written by hand: the mistakes that earlier runs found, and how they were fixed."""


@define
class Report:
    """The results of a differential run. Times are wall-clock seconds."""

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
    second_answer: int = 0
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
    """The report as text, with an example of each kind of finding."""
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
    """Names with their counts, the most frequent first."""
    most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{name}: {number:,}" for name, number in most)


def published(report: Report) -> dict[str, Any]:
    """The report as JSON, with at most KEPT examples of each kind."""
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

Does xpc accept specs that the libraries refuse, or refuse specs that would run? `make differential` generates random
specs from a seed (`tests/proof/differential/generator.py`), with every setting of the language, and tries them in the
libraries.

**Accepted specs.** `accelerate launch` reads the bundle's YAML, DeepSpeed reads its JSON, and the trainer's
configuration class gets its arguments. A *false accept* is an exception, a value that reads back differently, or a
name that the libraries call deprecated or ignore.

**Rejected specs.** If only one rule refuses a spec, and each proof of that rule shows an exception, the spec is
compiled without the rule and tried in the same way. If the libraries raise no exception, or another exception than in
the proof, the rule is a *suspected false refusal*. Other rules are judged by their proofs alone ([rules.md](rules.md)).

**Training steps.** Some accepted specs train in the bundle's own program, for one step, or for two if they have a
warm-up. Then the trainer is compared with the bundle: the dtypes of weights, adapters and optimizer states; which
weights have gradients, and which changed; every argument; the attention; the evaluation; whether all processes have the
same weights. A loss of 0 or nan is a finding. In a packed row, a token of one document is replaced, and no logit of
another document may change. The loss and the gradient of a step are computed a second time, by a separate
implementation, from the tokens of the batch. That implementation also computes which tokens count in the loss (from the
rows), the optimizer's group and the weight decay of each trained weight (from its name), the learning rate of each step
(from the schedule's formula), and the weights that are saved.

**GPUs are simulated.** The libraries see the GPU capability and the number of processes that the spec states. A
training step of a spec for GPUs runs on a tiny model of its family on the CPU, with accumulation, bf16, ZeRO, quantized
bases (if bitsandbytes is installed) and the arithmetic of flash attention on packed rows. Specs for `cpu` and `2 x cpu`
run unchanged.

**Limits.** The random specs do not cover everything:

- Not covered are features that need a GPU: fp16's scaler, Liger's and Triton's kernels, compilation, vLLM, 8-bit
  optimizers, flex attention's backward pass, offloading, context parallelism, running out of memory; FSDP1;
  more than two processes, except for hsdp, which has four; accumulation beyond 4 and a micro-batch other than 2
- quantized bases on trl-0.18, whose environment here has no bitsandbytes
- errors after the first step (with a warm-up, the second), or after resuming from a checkpoint; other tests cover
  these ([recovery.md](recovery.md))
- a second computation of the loss for `cpo` (`tests/proof/training/test_cpo_loss.py` compares it with the published
  formulas), `grpo`, `rloo` and `distill`, for runs with dropout, NEFTune, ZeRO-3 or FSDP,
  and for `sft` with label smoothing, Liger, a balancing loss of experts, or a loss other than the cross-entropy; a
  second computation of the gradient under ZeRO or with a quantized base; packed rows under ZeRO-3 and FSDP
- labels of methods other than `sft`, of mixtures, of `assistant_only` and of packed completions; groups and saved
  weights with ZeRO and FSDP; rates of schedules other than linear, cosine and constant; what is saved over a quantized
  base, and the weights that several processes save
- real data and real weights: rows are tiny, the values of rewards are replaced by values that differ, and the teacher
  of `distill` is a more confident copy of the student
- specs that several rules refuse, and rules whose proofs measure a silent effect
"""


def page(report: Mapping[str, Any], found: str = "") -> str:
    """Format the results of a published differential run as a page of the documentation. `found` is the text of
    found.toml, which has the findings of earlier runs and how they were fixed.
    """
    lines = [INTRODUCTION]
    command = "python tests/proof/differential/differential.py"
    lines += [
        *(f"`{command} --accepted {run['wanted']} --steps {run['wanted_steps']} --seed {run['seed']}`:"
          f" {run['accepted']:,} specs constructed in {run['seconds_constructing'] / 60:.0f} minutes,"
          f" {run['stepped']} specs trained in {(run['seconds'] - run['seconds_constructing']) / 60:.0f}, on two cores"
          " shared with other work.\n" for run in report["runs"]),
        *(f"- {name}: " + ", ".join(f"{package} {number}" for package, number in pins.items())
          for name, pins in report["versions"].items()), "",
        "| | |", "|---|---|",
        *(f"| {name} | {number:,} |" for name, number in (
            ("specs generated", report["drawn"]), ("accepted; tried in the libraries", report["accepted"]),
            ("rejected", report["rejected"]), ("accepted; trained a step", report["stepped"]),
            ("rejected by one rule; tried without this rule", report["looked_past"]),
            ("rejected by one rule; trained without this rule", report["stepped_past"]),
            ("**false accepts**", report["false_accepts_in_all"]),
            ("**suspected false refusals**", report["false_refusals_in_all"]),
            ("crashes of the compiler", report["crashes_in_all"]),
        )), "",
        f"Accepted: {counted(report['by_target'])}; {counted(report['by_method'])}; {counted(report['by_strategy'])}."
        f" {len(report['written'])} settings occur in one or more of them.",
        "", f"Specs that were trained, by setting (a spec has several): {counted(report['steps_of'])}.", "",
        f"Rejected, by code (a spec may have several): {counted(report['codes'])}.", "",
        f"Errors of names and units, for which no bundle can be written: {counted(report['of_language'])}. "
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
    by_hand = tomllib.loads(found) if found else {}
    for one in by_hand.get("again", []):
        lines += [
            f"After fixing the findings above, with another seed (`{one['command']}`):"
            f" {one['accepted']:,} specs accepted and constructed, {one['rejected']:,} rejected,"
            f" {one['stepped']} trained a step, {one['past']} tried without their rule;"
            f" {one['false_accepts']} false accepts, {one['false_refusals']} suspected false refusals.",
            "",
        ]
    entries = by_hand.get("found", [])
    if entries:
        lines += [
            "## Found by earlier runs, and fixed",
            "",
            "Each line of this list names settings that xpc once handled wrongly, what happened in the libraries "
            "(in brackets), and what xpc does now.",
            "",
        ]
        lines += [f"- {one['what']}. Now: {one['outcome']}." for one in entries]
    return "\n".join(lines).rstrip() + "\n"


def merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge several published reports into one: numbers are added, and lists are joined."""
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
    """Write the JSON file and the page. The arguments are the paths of the reports, then the path of the JSON file,
    then the path of the page.
    """
    *sources, published_to, out = words
    reports = []
    for source in sources or [published_to]:
        with open(source, encoding="utf-8") as handle:
            reports.append(json.load(handle))
    report = merged(reports)
    for one in report["false_accepts"]:
        one.pop("output", None)  # the report must contain no paths of this machine
    with open(FOUND, encoding="utf-8") as handle:
        text = page(report, handle.read())
    for path, content in ((published_to, json.dumps(report, indent=1) + "\n"), (out, text)):
        with open(path, "w", encoding="utf-8") as handle:
            handle.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
