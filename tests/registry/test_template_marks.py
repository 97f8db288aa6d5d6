"""Built-in templates mark the same tokens for the loss as TRL's own training templates, token by token."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from xpc.compiler.registry import chat_templates

pytestmark = pytest.mark.slow  # imports transformers

OF_TRL = {
    "qwen2.5": "qwen2_5", "qwen3": "qwen3", "llama3": "llama3", "phi3": "phi3", "gemma": "gemma", "gemma3": "gemma3",
}  # fmt: skip
"""Maps each template to TRL's name for it. The template with generation marks is TRL's file `NAME_training.jinja`."""
ASK, ANSWER = {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "It is two."}
CALL = {"type": "function", "function": {"name": "add", "arguments": {"first": 1}}}
TALKS = {
    "one": [ASK, ANSWER],
    "several": [ASK, ANSWER, ASK, ANSWER],
    "system": [{"role": "system", "content": "Be short."}, ASK, ANSWER],
    "call": [ASK, {"role": "assistant", "content": "I add.", "tool_calls": [CALL]}],
    "reasoning": [ASK, {**ANSWER, "reasoning_content": "One and one."}],
}
OTHERWISE = {("qwen3", "several"), ("gemma", "system")}
"""Pairs of a template and a conversation which TRL's template and the built-in one render differently: TRL's Qwen3
template also writes reasoning before early answers, and its Gemma template refuses a system prompt.
"""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny tokenizer with a begin token."""
    import tiny
    from transformers import AutoTokenizer

    folder = str(tmp_path_factory.mktemp("tiny"))
    tiny.build(folder)
    made = AutoTokenizer.from_pretrained(folder)  # type: ignore[no-untyped-call, unused-ignore]
    made.bos_token = "<|endoftext|>"
    return made


def learned(tokenizer: Any, template: str, messages: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """For each token of a rendered conversation, a pair: the token's id, and 1 if the template marks the token for the
    loss, otherwise 0.
    """
    made = tokenizer.apply_chat_template(
        messages, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    return list(zip(made["input_ids"], made["assistant_masks"], strict=True))


@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("name", OF_TRL)
def test_the_same_tokens_are_learned_as_with_trls_template(tokenizer: Any, name: str, talk: str) -> None:
    trl = pytest.importorskip("trl")
    if (name, talk) in OTHERWISE:
        pytest.skip("TRL's template differs from the published template")
    path = Path(os.path.dirname(trl.__file__), "chat_templates", f"{OF_TRL[name]}_training.jinja")
    own = learned(tokenizer, chat_templates.text(name).decode(), TALKS[talk])
    assert own == learned(tokenizer, path.read_text(encoding="utf-8"), TALKS[talk])
    assert any(mark for _, mark in own)
