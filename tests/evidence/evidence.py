"""Evidence for each rule: its proofs, and an example. The example has the lines in which the rejected spec of the
rule's test case differs from the accepted spec.

python tests/evidence/evidence.py writes compiler/explain/evidence.json, which `xpc explain CODE` prints

The program reads the proofs as data and does not run them. tests/docs/test_docs.py checks that the file is up to date.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from difflib import ndiff
from functools import cache

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path.append(os.path.join(TESTS, "support"))

from module_folders import put_on_path  # noqa: E402

put_on_path()

from case_support import Case  # noqa: E402
from compile_support import checked, placed  # noqa: E402
from prove import Proof, aimed, every  # noqa: E402
from rule_cases import CASES  # noqa: E402
from rule_table import TableRow, by_code  # noqa: E402

from xpc.compiler.stacks import DEFAULT, STACKS  # noqa: E402

PATH = os.path.join(os.path.dirname(TESTS), "compiler", "explain", "evidence.json")
MOST = 8
"""An example shows the difference of two specs only if it has at most this many lines of each."""
NO_PROOF = "no proof"
STAGES = {
    "launch": "during `accelerate launch`",
    "config": "when the trainer's configuration is built",
    "deepspeed": "when DeepSpeed reads its configuration",
    "load": "when the model is loaded",
    "init": "when the trainer is built",
    "train": "during training",
    "save": "when the model is saved",
}


@cache
def examples() -> dict[str, tuple[list[str], list[str]]]:
    """For each code, two lists: lines that only the rejected spec has, and lines that only the accepted spec has."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for case in CASES:
        lines = None if case.code in found else example(case)
        if lines is not None:
            found[case.code] = lines
    return found


def example(case: Case) -> tuple[list[str], list[str]] | None:
    """The lines in which the two specs of a case differ. If no line differs, or if more than MOST lines of one spec
    differ, the result is None.
    """
    lines = list(ndiff(case.rejected.splitlines(), case.accepted.splitlines()))
    rejected, accepted = ([line[2:] for line in lines if line.startswith(mark)] for mark in ("- ", "+ "))
    return (rejected, accepted) if 0 < max(len(rejected), len(accepted)) <= MOST else None


@cache
def proofs() -> dict[str, list[Proof]]:
    """The proofs of each row of the rule table, by the row's number."""
    found: dict[str, list[Proof]] = {}
    for proof in every():
        found.setdefault(proof.rule, []).append(proof)
    return found


def effect(proof: Proof) -> str:
    """The effect that a proof shows. Where it has braces, the caller inserts the stage of the run: `ValueError {}`
    becomes `ValueError when the model is loaded`, and `{after}` becomes `after the model is loaded`.
    """
    module, _, function = proof.measure.rpartition(".")
    measure = f"`{function}` (tests/proof/measures/{module.replace('.', '/')}.py)"
    if proof.raises and proof.measure:
        return f"{proof.raises} in {measure}, which the proof calls {{after}}"
    if proof.raises or proof.warns:
        return (proof.raises or "a library's warning") + " {}"
    differs = "returns different results for the rejected and the accepted spec"
    return f"no error, but {measure}, which the proof calls {{after}}, {differs}"


def proof_of(outcome: TableRow, code: str) -> str:
    """A phrase that says how a row of the rule table is proven for a code, such as `ValueError when the trainer is
    built or during training`.
    """
    found = proofs().get(outcome.row, [])
    own = [one for one in found if one.code == code] or found
    moments: dict[str, dict[str, list[str]]] = {}
    for proof in own:
        if not proof.needs:
            stacks = moments.setdefault(effect(proof), {}).setdefault(STAGES[proof.at], [])
            stacks += [stack] if (stack := proof.target or DEFAULT) not in stacks else []
    lines = []
    for shown, by_stage in moments.items():
        when = any_of(map(moment, sorted(by_stage.items(), key=order)))
        lines.append(shown.format(when, after=when.replace("when ", "after ").replace("during ", "after ")))
    lines += dict.fromkeys(f"{NO_PROOF}: it needs {proof.needs}" for proof in own if proof.needs)
    return "; ".join(lines) or f"{NO_PROOF}: {outcome.unproven}"


def any_of(texts: Iterable[str]) -> str:
    """Join texts for a sentence: `a, b or c`."""
    *first, last = texts
    return f"{', '.join(first)} or {last}" if first else last


def order(stage: tuple[str, list[str]]) -> int:
    """The position of a stage in a run, as a key for sorting."""
    return list(STAGES.values()).index(stage[0])


def moment(stage: tuple[str, list[str]]) -> str:
    """The stage of a run in which a proof shows its effect, such as `during training`.

    If the proof is not only for the default stack, the text also names its stacks: `during training (trl-0.18,
    trl-1.16)`.
    """
    when, stacks = stage
    return when if stacks == [DEFAULT] else f"{when} ({', '.join(sorted(stacks))})"


def measured() -> dict[str, list[str]]:
    """For each code, compile its cases for each stack; return the stacks on which the code appears."""
    titled, own = {case.title: case for case in CASES}, {case.code: case for case in CASES}
    found: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for code, outcomes in by_code().items():
            here = found.setdefault(code, set())
            chosen = [*(titled[outcome.case] for outcome in outcomes), *([own[code]] if code in own else [])]
            for case in {one.title: one for one in chosen}.values():
                root = placed(case.files, lambda: tempfile.mkdtemp(dir=folder))
                seen = {name for name in STACKS if code in refusals(aimed(case.rejected, name), root)}
                here |= seen or (set(STACKS) if code in refusals(case.rejected, root) else set())
    return {code: sorted(names) for code, names in found.items()}


def refusals(text: str, root: str) -> set[str]:
    """Check a spec with all rules; return the codes of its errors and warnings."""
    return {one.code for one in checked(text, root).problems}


def stated() -> dict[str, list[str]]:
    """Map each code to the stacks that the committed evidence.json names for it."""
    with open(PATH, encoding="utf-8") as handle:
        return {code: entry["holds"] for code, entry in json.load(handle).items() if "holds" in entry}


def evidence(holds: Mapping[str, list[str]]) -> str:
    """The text of evidence.json: for each code, its stacks and its example."""
    table: dict[str, dict[str, object]] = {code: {"holds": holds.get(code, [])} for code in by_code()}
    for code, (rejected, accepted) in examples().items():
        table.setdefault(code, {}).update(rejected=rejected, accepted=accepted)
    return json.dumps(dict(sorted(table.items())), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    text = evidence(measured())
    with open(PATH, "w", encoding="utf-8") as handle:
        handle.write(text)
    print(f"wrote {os.path.relpath(PATH)}")
