"""Makes the quickstart's data: whole numbers from 0 to 999, from digits to words and back.

    Write 347 in words.                              three hundred forty-seven
    Which number is three hundred forty-seven?       347

The task is a rule with a thousand cases, so that learning can be distinguished from memorizing. `data.jsonl` (the
training set) and `heldout.jsonl` (the demo's questions before and after training) share no question, and no held-out
number appears in the training set, in either direction. This script writes both files again; a test checks that it
writes the same files.
"""

from __future__ import annotations

import json
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = 20
TRAIN_NUMBERS = 400
HELDOUT_NUMBERS = 20

ONES = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]

Message = dict[str, str]


def in_words(number: int) -> str:
    """The English name of a whole number from 0 to 999."""
    if number < 20:
        return ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return f"{TENS[tens]}-{ONES[ones]}" if ones else TENS[tens]
    hundreds, rest = divmod(number, 100)
    return f"{ONES[hundreds]} hundred {in_words(rest)}" if rest else f"{ONES[hundreds]} hundred"


def conversations(number: int) -> list[list[Message]]:
    """The two conversations about a number: the first asks for its words, the second for its digits."""
    pairs = [(f"Write {number} in words.", in_words(number)), (f"Which number is {in_words(number)}?", str(number))]
    return [[{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in pairs]


def make() -> tuple[list[list[Message]], list[list[Message]]]:
    """The training and the held-out conversations, the same on every machine.

    All numbers below 20 are in the training set, because no other number shows what 13 is called. The other numbers of
    the training set are drawn at random.
    """
    draw = random.Random(SEED)
    numbers = list(range(20, 1000))
    draw.shuffle(numbers)
    trained = [*range(20), *numbers[: TRAIN_NUMBERS - 20]]
    heldout = numbers[TRAIN_NUMBERS - 20 :][:HELDOUT_NUMBERS]
    training = [row for number in trained for row in conversations(number)]
    draw.shuffle(training)
    return training, [row for number in heldout for row in conversations(number)]


def lines(rows: list[list[Message]]) -> str:
    """JSON lines in the `messages` format."""
    return "".join(json.dumps({"messages": row}) + "\n" for row in rows)


def main() -> None:
    """Write both files next to this script."""
    for name, rows in zip(("data.jsonl", "heldout.jsonl"), make()):
        with open(os.path.join(HERE, name), "w", encoding="utf-8", newline="\n") as out:
            out.write(lines(rows))
        print(f"{name}: {len(rows)} conversations")


if __name__ == "__main__":
    main()
