"""Numbers in words: `for one epoch`, `five hundred steps`, `half an epoch`. Loaded only for a wrong spec."""

from __future__ import annotations

import re

WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
SMALL = {word: number for number, word in enumerate(WORDS)}
SMALL |= {"a": 1, "an": 1, "single": 1, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70,
          "eighty": 80, "ninety": 90}  # fmt: skip
LARGE = {"dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6}
HALVES = {"half": 0.5, "quarter": 0.25}
UNITS = ("epoch", "epochs", "step", "steps", "gpu", "gpus", "cards", "devices", "nodes", "x")
"""Words before which a number is a count."""
BUDGET = re.compile(r"\bfor[ \t]+(?P<said>[A-Za-z][A-Za-z \t-]*?)[ \t]+(?P<unit>epochs?|steps?)\b")


def number(words: str) -> float | None:
    """The number that words say, or None where they say none."""
    parts = re.sub(r"\ban? (?=half|quarter)", "", words.lower().replace("-", " ")).split()
    if not parts or len(parts) > 10:
        return None
    total, part, share, known = 0.0, 0.0, 0.0, False
    for word in parts:
        if word in SMALL:
            part += SMALL[word] if not share else 0
        elif word in LARGE and not share:
            part = (part or 1) * LARGE[word]
            total, part = (total + part, 0.0) if LARGE[word] >= 1000 else (total, part)
        elif word in HALVES and not share:
            share = HALVES[word]
        elif word not in ("and", "of"):
            return None
        known = known or word not in ("and", "of")
    return total + part + share if known and total + part + share > 0 else None


def typed(number: float) -> str:
    """A number as it is typed."""
    return f"{number:.0f}" if number.is_integer() else f"{number:g}"


def in_digits(words: list[str]) -> list[str]:
    """The words of a sentence, where each number in words before a count's unit is one of digits."""
    out: list[str] = []
    for word in words:
        first = len(out)
        if word.lower() in UNITS:
            while first and out[first - 1].lower() in (*SMALL, *LARGE, *HALVES, "and"):
                first -= 1
            while first < len(out) and out[first].lower() == "and":
                first += 1
        said = number(" ".join(out[first:])) if first < len(out) else None
        if said is not None:
            out[first:] = [typed(said)]
        out.append(word)
    return out
