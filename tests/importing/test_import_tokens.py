"""Rows in every prompt format of axolotl and LLaMA-Factory. The bundle trains on the tool's token ids and loss mask;
otherwise the import reports a difference or refuses the file. `make oracles` has recorded the tools' ids and masks.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from token_support import alike, cases, laid, laid_together, records, trained_on

pytestmark = pytest.mark.slow

DIFFERENT = {
    "axolotl": {
        "chatml over a base model's end": "eot_tokens",
        "alpaca, an answer that begins with the end of a line": "datasets.type",
        "completion of a longer text": "sequence_len",
        "dpo chat_template.default (llama3)": "datasets.type",
        "dpo chatml.intel after a first token": "datasets.type",
        "drop_system_message": "drop_system_message",
        "orpo": "datasets.type",
        "orpo by qwen3": "datasets.type",
        "reward": "datasets.system",
        "reward with a system prompt": "datasets.system",
    },
    "llamafactory": {
        "an answer that begins with the end of a line": "tokenizer",
        "no template": "template",
        "rows that are too long": "cutoff_len",
        "pretraining": "packing",
        "pretraining without packing": "tokenizer",
        "turns that do not alternate": "formatting",
    },
}
"""Cases in which the bundle's tokens differ from the tool's. Each is mapped to the key for which the import reports the
difference.
"""
REFUSED = {
    "axolotl": {
        "roles_to_train: none", "train_on_eos: last", "train_on_eos: none", "other keys of a message",
        "message_field_training",
        "context_qa.load_v2",
        "input_output", "dpo with columns of its own",
    },
    "llamafactory": {
        "openai",
    },
}  # fmt: skip
"""Cases that the import refuses."""
DAILY = {
    "axolotl": {
        "chatml", "chatml over a base model's end", "llama3", "qwen_25", "qwen3", "train_on_inputs",
        "roles_to_train: both", "rows that are too long", "alpaca", "dpo chatml.intel (chatml)", "orpo",
    },
    "llamafactory": {
        "alpaca by qwen", "alpaca by llama3", "sharegpt by qwen", "sharegpt by llama3", "thoughts", "thoughts off",
        "pairs, dpo", "judged answers", "pretraining", "rows that are too long", "mask_history over thoughts",
    },
}  # fmt: skip
"""The cases that `make test` runs: the most common formats. `make slow` runs all cases."""


def every() -> list[object]:
    return [
        pytest.param(tool, name, id=f"{tool}: {name}", marks=() if name in DAILY[tool] else (pytest.mark.nightly,))
        for tool in sorted(DIFFERENT)
        for name in cases(tool)
    ]


@pytest.mark.parametrize(("tool", "name"), every())
def test_a_bundle_trains_on_the_tools_tokens(tool: str, name: str, tmp_path: Path) -> None:
    found, record = laid(cases(tool)[name], tool, str(tmp_path)), records(tool)[name]
    if name in REFUSED[tool]:
        assert found.draft.wrong or found.errors, found.text
        return
    theirs = record["rows"]
    assert not found.draft.wrong, found.messages
    assert not found.errors, found.errors
    ours = trained_on(found, str(tmp_path))
    if name in DIFFERENT[tool]:
        assert DIFFERENT[tool][name] in found.draft.differences
        assert not alike(theirs, ours), "the import reports a difference although there is none"
    else:
        assert alike(theirs, ours), (theirs, ours, found.text)


TOGETHER = {
    "axolotl": ("chatml", "alpaca", "completion of another column"),
    "llamafactory": ("alpaca by qwen", "sharegpt by qwen", "messages with tags", "a column of system prompts"),
}
"""Maps each tool to cases with different row formats. These are combined into one file with several datasets."""


@pytest.mark.parametrize("tool", sorted(TOGETHER))
def test_a_mixture_of_shapes_has_the_tools_tokens_of_each(tool: str, tmp_path: Path) -> None:
    found = laid_together([cases(tool)[name] for name in TOGETHER[tool]], tool, str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert not found.errors, found.errors
    theirs = [row for name in TOGETHER[tool] for row in records(tool)[name]["rows"]]
    ours = trained_on(found, str(tmp_path))
    assert alike(theirs, ours), (theirs, ours, found.text)


def test_every_case_has_a_record() -> None:
    for tool in DIFFERENT:
        assert set(cases(tool)) == set(records(tool))
        named = {*DIFFERENT[tool], *REFUSED[tool], *DAILY[tool]}
        assert named <= set(cases(tool)), named - set(cases(tool))
        refused = {name for name, one in records(tool).items() if "refused" in one}
        assert refused <= REFUSED[tool], "the import must refuse rows that the tool refuses"
