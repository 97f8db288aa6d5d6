"""What documents show of the cases and proofs: compiler/rules/evidence.json.

    python tests/rule_evidence.py          writes the file anew

Tests compare (tests/test_docs.py) and never write. Proofs are data: nothing is run here.
"""

from __future__ import annotations

import json
import os
import sys
from difflib import ndiff

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, name) for name in ("compiler", "proof") if os.path.join(HERE, name) not in sys.path]

from case_support import Case  # noqa: E402
from prove import Proof, every  # noqa: E402
from rule_cases import CASES  # noqa: E402

from xpc.compiler.rules.evidence import PATH  # noqa: E402

MOST = 8
"""Lines of a side that are shown; a longer difference is no example."""


def example(case: Case) -> dict[str, list[str]] | None:
    """The lines in which the two specs of a case differ, or None where that says nothing."""
    lines = list(ndiff(case.rejected.splitlines(), case.accepted.splitlines()))
    sides = [[line[2:] for line in lines if line.startswith(mark)] for mark in ("- ", "+ ")]
    if not any(sides) or max(map(len, sides)) > MOST:
        return None
    return {"rejected": sides[0], "accepted": sides[1]}


def proven(proof: Proof) -> dict[str, str]:
    """How a proof is made, without its texts."""
    fields = ("code", "at", "raises", "warns", "measure", "needs", "target")
    found = {name: getattr(proof, name) for name in fields if getattr(proof, name)}
    if proof.warns:
        found["warns"] = "yes"  # the pattern says nothing to a reader
    return found


def evidence() -> str:
    """The whole file."""
    examples: dict[str, object] = {}
    for case in CASES:
        shown = example(case) if case.code not in examples else None
        if shown is not None:
            examples[case.code] = shown
    proofs: dict[str, list[dict[str, str]]] = {}
    for proof in every():
        one = proven(proof)
        if one not in proofs.setdefault(proof.rule, []):
            proofs[proof.rule].append(one)
    table = {"examples": dict(sorted(examples.items())), "proofs": dict(sorted(proofs.items()))}
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    text = evidence()
    with open(PATH, "w", encoding="utf-8") as handle:
        handle.write(text)
    print(f"wrote {os.path.relpath(PATH)}")
