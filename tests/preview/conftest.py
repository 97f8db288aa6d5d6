"""A fixture with warm interpreters of all stacks, and a folder with a tiny model and data files of each row shape."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from emitted import put
from preview_samples import ROWS
from stacks import REPOSITORY
from tiny_runs import lines

from xpc.compiler.stacks import DEFAULT

if TYPE_CHECKING:
    from method_runs import Warm


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Warm:
    """Warm interpreters for all targets. Their working folder has data files and the models `tiny`, `teacher` and
    `begun`.
    """
    from method_runs import Warm, files

    made = Warm(str(tmp_path_factory.mktemp("place")))
    folder = made.location
    built = made.of(DEFAULT).run(folder, folder, os.path.join(folder, "tiny"),
                                 program=os.path.join(REPOSITORY, "tests", "support", "tiny.py"))  # fmt: skip
    assert built["status"] == [0], built["err"]
    settings = os.path.join(folder, "tiny", "tokenizer_config.json")
    with open(settings, encoding="utf-8") as handle:
        stated = {**json.load(handle), "tokenizer_class": "PreTrainedTokenizerFast"}
    put(folder, {"tiny/tokenizer_config.json": json.dumps(stated)})
    os.symlink("tiny", os.path.join(folder, "teacher"))
    # `begun` is `tiny` with a tokenizer that has a begin-of-sequence token
    shutil.copytree(os.path.join(folder, "tiny"), os.path.join(folder, "begun"))
    put(folder, {"begun/tokenizer_config.json": json.dumps({**stated, "bos_token": "<|endoftext|>"})})
    from tiny import conversations

    turns = conversations(ROWS)
    talks = [{"prompt": row[:1], "completion": row[1:]} for row in turns]
    put(folder, {
        **files(turns), "messages.jsonl": lines([{"messages": row} for row in turns]),
        "texts.jsonl": lines([{"text": f"{row[0]['content']} {row[1]['content']}"} for row in turns]),
        "completions.jsonl": lines([{"prompt": row[0]["content"], "completion": " yes"} for row in turns]),
        "talks.jsonl": lines(talks),
    })  # fmt: skip
    return made
