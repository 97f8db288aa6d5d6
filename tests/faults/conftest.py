"""A fixture for runs of a tiny model with dropout, in one warm interpreter for each stack."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

import pytest
from emitted import put
from fault_runs import Runs
from method_runs import files
from stacks import REPOSITORY, interpreter
from tiny import conversations
from tiny_runs import lines


def fill(here: Runs) -> None:
    """Write the models `tiny` and `teacher` (with attention dropout), and data files of 64 rows, into the folder in
    which the runs start.
    """
    folder = here.location
    for seed, name in enumerate(("tiny", "teacher")):
        here.program(os.path.join(REPOSITORY, "tests", "support", "tiny.py"), os.path.join(folder, name), str(seed))
    # transformers 5 writes a tokenizer class that transformers 4 does not know; both versions know
    # `PreTrainedTokenizerFast`.
    changes = {"tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast"}, "config": {"attention_dropout": 0.1}}
    for name, change in changes.items():
        for model in ("tiny", "teacher"):
            with open(os.path.join(folder, model, f"{name}.json"), encoding="utf-8") as handle:
                stated = json.load(handle)
            put(folder, {f"{model}/{name}.json": json.dumps({**stated, **change})})
    turns = conversations(64)
    put(folder, {"messages.jsonl": lines([{"messages": row} for row in turns]), **files(turns)})


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Runs]]:
    """A function that returns the `Runs` of a target: its warm interpreter, and the folder with models and data."""
    made: dict[str, Runs] = {}

    def of(target: str) -> Runs:
        if target not in made:
            made[target] = Runs(interpreter(target), str(tmp_path_factory.mktemp("faults")))
            fill(made[target])
        return made[target]

    yield of
    for one in made.values():
        one.close()
