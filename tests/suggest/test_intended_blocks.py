"""A block with an unknown name gives one finding. The settings inside it count as settings of the block that was
probably intended.
"""

from __future__ import annotations

import pytest

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.load import load
from xpc.compiler.suggest.advisor import Advisor
from xpc.compiler.suggest.blocks import rewrite_foreign_forms
from xpc.compiler.suggest.registry_names import model
from xpc.grammar.source import Source

HEAD = "xpc 1\n\ntrain qwen2.5-0.5b on infinity-instruct for 1 epochs\n\n"


@pytest.mark.parametrize(("block", "paths"), [
    ("optim_config { learning_rate = 1e-4 }", {"optimizer.lr"}),
    ("training(micro_batch_size=64)", {"batch.micro"}),
])  # fmt: skip
def test_an_unknown_block_is_one_finding(block: str, paths: set[str]) -> None:
    loaded = load(Source("a.xp", HEAD + block + "\n"), Workspace("."), Advisor)
    problems, intended = rewrite_foreign_forms(loaded.problems)
    assert [one.code for one in problems] == ["XP101"]
    assert intended == paths


@pytest.mark.parametrize("word", ["instruct", "chat", "it", "instruction", "inst"])
def test_each_word_for_a_chat_model_means_the_instructed_one(word: str) -> None:
    found = model(f"llama-3.1-8b-{word}")
    assert (found.names, found.certain) == (("llama-3.1-8b-instruct",), True)
