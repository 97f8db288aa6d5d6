#!/usr/bin/env python3
"""Run every proof on a chosen stack, to answer two questions: does the illegal spec fail in the stack's libraries, and
does the compiler refuse the spec?

    python tests/proof/aimed.py trl-0.24 [CODE ...] [--out FILE]

A proof is usually run on the one stack whose libraries show its effect best. This program compiles and runs each proof
on the chosen stack instead. There are five verdicts. `holds`: the compiler refuses the illegal spec, and the spec
fails. `fine`: the spec is not refused and does not fail. `refused for nothing`: the spec is refused but does not fail.
`missed`: the spec fails but is not refused. `no proof`: the texts cannot be compiled for that stack, or the legal spec
fails; the reason is printed. The last three verdicts need a look: a rule may apply to the wrong stacks, or a proof may
use a name that the stack does not have.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

from attrs import evolve
from prove import Proof, Prover, aimed, both_jobs, codes, every, failure

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.grammar.diagnostic import ERROR


def refused(proof: Proof, folder: str) -> tuple[bool, list[str]]:
    """Return a pair: whether the proof's illegal spec has an error with the code of the rule under proof, and the codes
    of all errors in its legal spec, which should have none.
    """
    location = Workspace(folder, allow_oom=True)
    found = check_text(proof.text.encode(), "t.xp", location)
    legal = check_text(proof.legal.encode(), "t.xp", location)
    return proof.code in codes(found), [one.code for one in legal.problems if one.severity == ERROR]


def verdict(proof: Proof, answered: bool, wrong: list[str], illegal: Any, legal: Any) -> tuple[str, str]:
    """Return a pair: one of the five verdicts of the module's docstring, and a text about what happened."""
    why = failure(proof, illegal, legal)
    if legal["raised"] is not None or wrong:
        return "no proof", f"legal spec: {' '.join(wrong)} {why}"[:300]
    if why:
        return ("refused for nothing" if answered else "fine"), why[:300]
    return ("holds" if answered else "missed"), ""


def main(words: list[str]) -> int:
    """Run the proofs on a stack; prints one line per proof, sorted by verdict."""
    out = words.pop(words.index("--out") + 1) if "--out" in words else ""
    stack, wanted = words[0], {word for word in words[1:] if not word.startswith("-")}
    chosen = [one for one in every() if not one.needs and (not wanted or {one.rule, one.code, one.title} & wanted)]
    prover, answers, reported = Prover(stack), {}, []
    with tempfile.TemporaryDirectory() as folder:
        jobs, facts = [], {}
        for number, proof in enumerate(chosen):
            one = evolve(proof, target=stack, case="", variant=f"{proof.variant}#{number}")
            one = evolve(one, text=aimed(proof.text, stack), legal=aimed(proof.legal, stack))
            location = os.path.join(folder, str(number))
            try:
                both = both_jobs(one, location)
                facts[one.title] = (one, both, *refused(one, os.path.join(location, "files")))
                jobs += both
            except Exception as error:
                reported.append(("no proof", proof.title, f"{type(error).__name__}: {error}"[:300]))
        answers = prover.answers(jobs)
    prover.close()
    for one, both, answered, wrong in facts.values():
        illegal, legal = (answers[side["id"]] for side in both)
        word, why = verdict(one, answered, wrong, illegal, legal)
        reported.append((word, one.title.partition("#")[0].rstrip("-"), why))
    reported.sort()
    lines = [f"{word:20} {title:30} {why}" for word, title, why in reported]
    count = {word: sum(one[0] == word for one in reported) for word in sorted({one[0] for one in reported})}
    if out:
        with open(out, "w", encoding="utf-8") as handle:
            handle.write("\n".join(lines) + "\n")
    else:
        print("\n".join(lines))
    print(json.dumps(count))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
