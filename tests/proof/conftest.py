"""What the training proofs share: a tiny model with data beside it, and one run of each strategy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from emitted import NEW, compiled, put
from stacks import REPOSITORY, Run, environment, interpreter, launch
from tiny_runs import LAUNCHED, LAYOUT, STRATEGIES, lines, spec

if TYPE_CHECKING:
    from method_runs import Warm


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with `tiny` (model and tokenizer), data of each shape, and a template; specs are compiled in it."""
    python = interpreter(NEW)
    folder = str(tmp_path_factory.mktemp("place"))
    script = os.path.join(REPOSITORY, "tests", "support", "tiny.py")
    subprocess.run([python, script, os.path.join(folder, "tiny")], check=True, env=environment(), capture_output=True)
    # The older transformers does not know the class that the newer one writes down for the same tokenizer.
    settings = os.path.join(folder, "tiny", "tokenizer_config.json")
    with open(settings, encoding="utf-8") as handle:
        stated = json.load(handle)
    put(folder, {"tiny/tokenizer_config.json": json.dumps({**stated, "tokenizer_class": "PreTrainedTokenizerFast"})})
    sys.path.insert(0, os.path.dirname(script))
    try:
        from tiny import conversations
    finally:
        sys.path.pop(0)
    turns = conversations(64)
    shared = [
        [{"from": {"user": "human", "assistant": "gpt"}[m["role"]], "value": m["content"]} for m in row]
        for row in turns
    ]
    return put(folder, {
        "messages.jsonl": lines([{"messages": row, "id": i} for i, row in enumerate(turns)]),
        "shared.jsonl": lines([{"conversations": row} for row in shared]),
        "pairs.jsonl": lines([{"prompt": row[0]["content"], "completion": " " + row[1]["content"]} for row in turns]),
        "text.jsonl": lines([{"text": f"{row[0]['content']} {row[1]['content']}"} for row in turns]),
        "layout.jinja": LAYOUT,
    })  # fmt: skip


@pytest.fixture(scope="session")
def ground(place: str) -> str:
    """The tiny model with the data of every method beside it."""
    from method_runs import files
    from tiny import conversations

    return put(place, files(conversations(64)))


@pytest.fixture(scope="session")
def warm(ground: str) -> Iterator[Warm]:
    """The interpreters that runs are forked from."""
    from method_runs import Warm

    made = Warm(ground)
    yield made
    made.close()


@pytest.fixture(scope="session")
def train(place: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Compiles a text beside the tiny model and launches it, from a folder of its own; the result is a finished run."""

    def run(text: str, name: str) -> Run:
        bundle = compiled(text, place, os.path.join(place, f"{name}.bundle"), f"{name}.xp")
        finished = launch(bundle, str(tmp_path_factory.mktemp(name)))
        assert finished.done.returncode == 0, finished.said
        return finished

    return run


@pytest.fixture(scope="session")
def strategies(train: Callable[..., Run], warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """The run of a strategy, each trained once a session: some by launch.sh, the others as forks."""
    kept: dict[str, Run] = {}

    def run(name: str) -> Run:
        if name not in kept:
            hardware, strategy, target = STRATEGIES[name]
            text = spec(hardware=hardware, strategy=strategy, target=target)
            if name in LAUNCHED:
                kept[name] = train(text, name)
            else:
                world = 1 if hardware == "cpu" else 2
                done = warm.train(text, name, target, str(tmp_path_factory.mktemp(name)), world)
                kept[name] = Run(subprocess.CompletedProcess([], 0, done.said, done.complained), done.out)
        return kept[name]

    return run
