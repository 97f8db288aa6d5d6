"""Text prompts of grpo and rloo become user turns, so that the chat template and a system prompt are used. With other
methods, plain text for a chat model gets a warning.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from case_support import spec
from compile_support import checked, put

ROWS = '{"prompt": "2 + 2?", "solution": "$4$", "system": "Be short."}\n' * 40


@pytest.mark.parametrize("setting", [
    "chat_template = qwen2.5", 'data(system="Be short.")', "data(system_column=system)", "seed 7",
])  # fmt: skip
@pytest.mark.parametrize("method", ["grpo", "rloo"])
def test_the_template_and_the_system_prompt_of_texts_are_used(method: str, setting: str, tmp_path: Path) -> None:
    train = 'qwen2.5-3b-instruct on "rows.jsonl" for 3 epochs'
    text = spec(f"method {method}(rewards=accuracy)", setting, train=train, batch="gbs=128 micro=16")
    found = {one.code for one in checked(text, put(tmp_path, {"rows.jsonl": ROWS})).problems}
    assert not found & {"XP546", "XP557", "XP558", "XP774"}


def test_a_template_without_a_place_refuses_a_system_prompt_for_texts(tmp_path: Path) -> None:
    train = 'qwen2.5-3b-instruct on "rows.jsonl" for 3 epochs'
    settings = ("method grpo(rewards=accuracy)", "chat_template = gemma", 'data(system="Be short.")')
    found = checked(spec(*settings, train=train, batch="gbs=128 micro=16"), put(tmp_path, {"rows.jsonl": ROWS}))
    assert "XP567" in {one.code for one in found.problems}


def test_rows_of_another_method_get_only_the_error(tmp_path: Path) -> None:
    pairs = '{"prompt": "2 + 2?", "chosen": "It is 4.", "rejected": "It is 5."}\n' * 256
    train = 'qwen2.5-3b-instruct on "pairs.jsonl" for 3 epochs'
    found = {one.code for one in checked(spec(train=train), put(tmp_path, {"pairs.jsonl": pairs})).problems}
    assert "XP503" in found
    assert "XP186" not in found


def test_a_local_model_is_not_named_like_a_word(tmp_path: Path) -> None:
    rows = '{"prompt": "2 + 2?", "completion": "It is 4."}\n' * 256
    files = {
        "rows.jsonl": rows,
        "model/config.json": '{"model_type": "qwen2", "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1,'
        ' "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 32}',
        "model/chat_template.jinja": "{% for m in messages %}{{ m.role + m.content + eos_token }}{% endfor %}",
        "model/tokenizer_config.json": '{"eos_token": "</s>"}',
    }
    (tmp_path / "model").mkdir()
    found = checked(spec(train='"model" on "rows.jsonl" for 3 epochs'), put(tmp_path, files)).problems
    (warning,) = (one for one in found if one.code == "XP186")
    assert "which the model learns" in warning.message


def test_pairs_with_a_named_prompt_column_become_turns(tmp_path: Path) -> None:
    """If the spec names the column of the prompt, the help of XP186 does not ask for such a column."""
    rows = '{"question": "2 + 2?", "chosen": "It is 4.", "rejected": "It is 5."}\n' * 256
    train, files = 'qwen2.5-3b-instruct on "pairs.jsonl" for 3 epochs', put(tmp_path, {"pairs.jsonl": rows})
    found = checked(spec("method dpo", "data(prompt=question)", train=train), files).problems
    (warning,) = (one for one in found if one.code == "XP186")
    assert (warning.help or "").startswith("write `data(chat)`")
    assert "XP186" not in {
        one.code for one in checked(spec("method dpo", "data(prompt=question, chat)", train=train), files).problems
    }


def test_labels_in_words_get_a_help_for_the_column(tmp_path: Path) -> None:
    rows = '{"prompt": "2 + 2?", "completion": "It is 4.", "label": "yes"}\n' * 256
    train = 'qwen2.5-3b-instruct on "rows.jsonl" for 3 epochs'
    found = checked(spec("method kto", train=train), put(tmp_path, {"rows.jsonl": rows})).problems
    (error,) = (one for one in found if one.code == "XP554")
    assert error.help == "write true or false into this column of every row"
