"""Every near misspelling of every clause is answered by findings, in any form of its settings."""

from __future__ import annotations

import pytest
from compile_support import checked

from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.render import render

CLAUSES = sorted({path.partition(".")[0] for path in BY_PATH} | {"extends", "extra"})
FORMS = ("{ lr = [1e-5, 2e-5] }", "{ seed = 1 }", "(lr=[1e-5, 2e-5])", "", "= 1")
HEADER = "xpc 1\ntrain qwen2.5-0.5b on alpaca for 1 epochs\n"


def misspelt(word: str) -> set[str]:
    """A letter left out, doubled, exchanged with the next one or replaced, and an ending."""
    out = {word + "s", word.capitalize()}
    for at in range(len(word)):
        before, after = word[:at], word[at + 1 :]
        out |= {before + after, before + word[at] * 2 + after, before + "e" + after}
        out.add(before + after[:1] + word[at] + after[1:])
    return out - {word, ""}


@pytest.mark.parametrize("clause", CLAUSES)
def test_misspelt_clauses_are_findings(clause: str) -> None:
    for word in sorted(misspelt(clause)):
        found = checked(f"{HEADER}{word} {FORMS[len(word) % len(FORMS)]}\n")
        render(found.problems, "full")
        if clause == "sweep":
            for form in FORMS:
                assert checked(f"{HEADER}{word} {form}\n").problems, (word, form)
