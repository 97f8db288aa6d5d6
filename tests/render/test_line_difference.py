"""Two random texts are compared line by line: the difference is correct. For hostile texts, the time is limited."""

from __future__ import annotations

import random
import time

import pytest

from xpc.compiler.render.line_difference import line_difference


def applied(old: list[str], difference: list[str]) -> list[str]:
    """Rebuild the new text from a difference and the old text. Lines that the difference removes or shows as context
    must be lines of the old text.
    """
    out: list[str] = []
    at = 0
    for line in difference[2:]:
        if line.startswith("@@"):
            start, _, count = line.split()[1][1:].partition(",")
            first = int(start) - (count != "0")
            out += old[at:first]
            at = first
            continue
        if line[0] in " -":
            assert old[at] == line[1:]
            at += 1
        out += [line[1:]] if line[0] in " +" else []
    return out + old[at:]


@pytest.mark.parametrize("context", [0, 1, 2])
def test_differences_of_drawn_texts_are_correct(context: int) -> None:
    chance = random.Random(context)
    for _ in range(500):
        old = [chance.choice("abcdefghij") for _ in range(chance.randint(0, 30))]
        new = list(old)
        for _ in range(chance.randint(0, 4)):
            at = chance.randint(0, len(new))
            new[at : at + chance.randint(0, 2)] = chance.choices("axyz", k=chance.randint(0, 2))
        found = line_difference(old, new, "old", "new", context)
        assert applied(old, found) == new
        assert bool(found) is (old != new)


def test_it_looks_as_difflib_writes_it() -> None:
    old = [str(number) for number in range(20)]
    new = [*old[:5], "x", *old[6:15], *old[16:]]
    assert line_difference(old, new, "before", "after") == [
        "--- before", "+++ after", "@@ -4,5 +4,5 @@", " 3", " 4", "-5", "+x", " 6", " 7",
        "@@ -14,5 +14,4 @@", " 13", " 14", "-15", " 16", " 17",
    ]  # fmt: skip


@pytest.mark.parametrize("different", [1, 2, 10, 100, 40_000])
def test_megabytes_of_repeated_lines_are_compared_quickly(different: int) -> None:
    chance = random.Random(different)
    old, new = ([str(chance.randrange(different)) for _ in range(length)] for length in (50_000, 50_001))
    started = time.process_time()
    assert applied(old, line_difference(old, new, "old", "new")) == new
    assert time.process_time() - started < 20
