"""Fixtures for tests that train: warm interpreters, a folder with a tiny model and its data, a run of each strategy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from emitted import put
from stacks import REPOSITORY, Run, launch
from tiny_runs import COLD, LAYOUT, STRATEGIES, lines, spec

from xpc.compiler.stacks import DEFAULT

if TYPE_CHECKING:
    from method_runs import Warm


@pytest.fixture(scope="session")
def interpreters(tmp_path_factory: pytest.TempPathFactory) -> Warm:
    """The warm interpreters, each of which forks a process for every run, and the folder in which specs are
    compiled.
    """
    from method_runs import Warm

    return Warm(str(tmp_path_factory.mktemp("place")))


@pytest.fixture(scope="session")
def location(interpreters: Warm) -> str:
    """The folder in which specs are compiled, with the models `tiny` and `teacher`, data files and a chat template."""
    folder = interpreters.location
    script = os.path.join(REPOSITORY, "tests", "support", "tiny.py")
    built = interpreters.of(DEFAULT).run(folder, folder, os.path.join(folder, "tiny"), program=script)
    assert built["status"] == [0], built["err"]
    built = interpreters.of(DEFAULT).run(folder, folder, os.path.join(folder, "teacher"), "1", program=script)
    assert built["status"] == [0], built["err"]
    for name in ("tiny", "teacher"):
        # transformers 4 does not know the tokenizer class that transformers 5 writes, but both know
        # PreTrainedTokenizerFast. Without `model_input_names`, this class would return token_type_ids in 4.52, which
        # Qwen2 does not accept.
        settings = os.path.join(folder, name, "tokenizer_config.json")
        with open(settings, encoding="utf-8") as handle:
            stated = json.load(handle)
        stated |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
        put(folder, {f"{name}/tokenizer_config.json": json.dumps(stated)})
    from tiny import conversations

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
def ground(location: str) -> str:
    """Add data files for every training method to the folder `location`; return its path."""
    from method_runs import files
    from tiny import conversations

    return put(location, files(conversations(64)))


@pytest.fixture(scope="session")
def warm(ground: str, interpreters: Warm) -> Warm:
    """The fixture `interpreters`, after the models and all data files have been written into its folder."""
    assert ground == interpreters.location
    return interpreters


@pytest.fixture(scope="session")
def train(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Return a function that compiles a spec, runs the bundle's launch.sh in a new working folder, and returns the
    finished run.

    The run's processes are forks of a warm interpreter, unless ``cold`` is true.
    """

    def run(text: str, name: str, cold: bool = False) -> Run:
        bundle, cwd = warm.compiled(text, name), str(tmp_path_factory.mktemp(name))
        finished = launch(bundle, cwd) if cold else warm.launch(bundle, cwd)
        assert finished.done.returncode == 0, finished.output
        return finished

    return run


@pytest.fixture(scope="session")
def strategies(train: Callable[..., Run]) -> Callable[[str], Run]:
    """Return a function that returns the finished run of a strategy. The first call for a strategy trains; later calls
    return the same run.
    """
    kept: dict[str, Run] = {}

    def run(name: str) -> Run:
        if name not in kept:
            hardware, strategy, target = STRATEGIES[name]
            kept[name] = train(spec(hardware=hardware, strategy=strategy, target=target), name, name in COLD)
        return kept[name]

    return run
