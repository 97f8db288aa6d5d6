"""The runtime compares the tokenizer of a local model with the other files of the model, and with the first rows of the
data.
"""

from __future__ import annotations

import json
import os
import re
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from emitted import put

from xpc.compiler.cli import main
from xpc.compiler.preview.worker.verdicts import OF_TOKENIZER, about_tokenizer
from xpc.runtime.features.launch import tokenizer_files
from xpc.runtime.features.launch.tokenizer_files import TokenizerFiles, differs, ends, lacking

WORDS = {"<|end|>": 0, "<|stop|>": 1, "It": 2, "is": 3, "4": 4, "piece": 5}
ROWS = [{"messages": [{"role": "user", "content": "is"}, {"role": "assistant", "content": "It is 4"}]}]


class Words:
    """A tokenizer that splits a text at spaces. A word that it does not know becomes three tokens."""

    chat_template: str | None = "{{ '<|new|>' }}<|end|>"
    eos_token, eos_token_id, pad_token, bos_token = "<|end|>", 0, "<|end|>", None

    def __init__(self, words: dict[str, int] = WORDS) -> None:
        self.words = words

    def get_vocab(self) -> dict[str, int]:
        return self.words

    def decode(self, ids: list[int]) -> str:
        return " ".join(word for word, number in self.words.items() if number in ids)

    def convert_ids_to_tokens(self, number: int) -> str:
        return self.decode([number])

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        parts = ([self.words[word]] if word in WORDS else [5] * 3 for word in text.split())
        return {"input_ids": [one for part in parts for one in part]}


def bundle(folder: str, **plan: Any) -> Any:
    return SimpleNamespace(
        **{"model_path": folder, "model": {"id": None}, "base": "model", "tokenizer": {}, "lora": None, **plan}
    )


def of(folder: str, **files: Any) -> str:
    return put(folder, {"vocab.txt": "", **{f"{name}.json": json.dumps(content) for name, content in files.items()}})


def test_control_tokens_that_are_split_are_reported() -> None:
    assert lacking(Words(), ["<|new|> It <|end|>"]) == (
        "the chat template writes <|new|>, and the tokenizer has no such token: <|new|> is read as 3 pieces of text"
    )
    assert lacking(Words(), ["It <|end|>"]) == ""  # the template has not written this token


@pytest.mark.parametrize(
    ("stated", "lora", "words"),
    [
        ([0, 1], None, ""),
        (9, None, "names the end token 9, which the tokenizer does not have"),
        ([0, 3], None, "names 'is' (token 3) as an end token, and answers contain it: the trained model would stop"),
        (1, {}, ""),
        (1, {"rank": 4}, "the rows end with <|end|>, but generation_config.json of the base ends answers at"),
        (1, {"rank": 4, "merge": True}, ""),
        ([1, 0], {"rank": 4}, ""),
    ],
)
def test_end_tokens_of_generation(tmp_path: Any, stated: Any, lora: Any, words: str) -> None:
    folder = of(str(tmp_path), generation_config={"eos_token_id": stated}, config={"eos_token_id": 9})
    found = [*ends(bundle(folder, lora=lora), folder, Words(), ROWS)]
    assert len(found) == bool(words)
    assert words in "".join(found)


def weights(rows: int) -> bytes:
    size = rows * 8
    header = json.dumps({"model.embed_tokens.weight": {"dtype": "F32", "shape": [rows, 2], "data_offsets": [0, size]}})
    return struct.pack("<Q", len(header)) + header.encode() + bytes(size)


def test_another_vocab_size_than_the_weights_is_refused(tmp_path: Any) -> None:
    folder = of(str(tmp_path), config={"vocab_size": 6})
    put(folder, {"model.safetensors": weights(8)})
    (one,) = TokenizerFiles().before_rows(bundle(folder), None)
    assert one.startswith("config.json of model has vocab_size = 6, and its weights have 8 embeddings (model.embed_tok")
    put(folder, {"model.safetensors": weights(6)})
    assert TokenizerFiles().before_rows(bundle(folder), Words()) == []


def test_tokens_without_an_embedding_are_reported(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = of(str(tmp_path), config={"vocab_size": 5})
    assert TokenizerFiles().before_rows(bundle(folder), Words()) == []
    assert "the tokenizer has 1 token without an embedding, such as 'piece'" in capsys.readouterr().out
    assert TokenizerFiles().before_rows(bundle(folder, tokenizer={"added": ["piece"]}), Words()) == []
    found = TokenizerFiles().before_rows(bundle(folder), Words({**WORDS, "<|end|>": 7}))
    assert found == [f"the {one} token '<|end|>' has no embedding: model has 5 embeddings" for one in ("eos", "pad")]


def trainer(ids: list[list[int]]) -> Any:
    rows = type("Rows", (dict,), {"column_names": ["input_ids"]})({"input_ids": ids})
    return SimpleNamespace(processing_class=Words(), train_dataset=rows)


def test_a_row_with_a_token_without_an_embedding_stops_the_run(tmp_path: Any) -> None:
    folder = of(str(tmp_path), config={"vocab_size": 5})
    TokenizerFiles().before_training(bundle(folder), trainer([[0, 4], []]))
    with pytest.raises(Exception, match=r"row 1 of the prepared rows has the token 'piece' \(5\), which has no embed"):
        TokenizerFiles().before_training(bundle(folder), trainer([[0, 4], [5, 1]]))


def test_the_help_for_another_tokenizer_leads_to_stacks_of_transformers_4(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = re.findall("`xpc ([^`]+)`", OF_TOKENIZER["parts"][1])
    assert main(command.split()) == 0
    assert "transformers 4." in capsys.readouterr().out


def test_a_fault_of_the_tokenizer_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows of each source show the same fault with other tokens; other kinds of faults are not left out."""
    found = [
        [("parts", "'1', '9' differ"), ("ends", "a"), ("ends", "b")],
        [("parts", "'2', '7' differ"), ("ends", "c")],
    ]
    monkeypatch.setattr(tokenizer_files, "notes", lambda *_: found.pop(0))
    feature = TokenizerFiles()
    for _ in range(2):
        feature.first_rows_note(bundle(""), ROWS, Words())
    assert [line.removeprefix("[run] ") for line in capsys.readouterr().out.splitlines()] == [
        "'1', '9' differ", "a", "b", "c",
    ]  # fmt: skip
    of_rows = [{"code": "XP175", "message": one, "help": ""} for one in ("'1', '9' differ", "'2', '7' differ")]
    assert len({*map(about_tokenizer, of_rows)}) == 1
    assert about_tokenizer({"code": "XP591", "message": "nothing is learned", "help": ""}) == ""


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", "normalizer", "pre_tokenizer", "post_processor"])
def test_a_tokenizer_that_is_loaded_otherwise_is_reported(tmp_path: Any, part: str) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    stated = Tokenizer(models.WordLevel({**WORDS, "it": 6, "[UNK]": 7}, unk_token="[UNK]"))
    stated.pre_tokenizer = pre_tokenizers.Whitespace()
    stated.save(os.path.join(tmp_path, "tokenizer.json"))
    loaded = Tokenizer.from_str(stated.to_str())
    if part == "normalizer":
        loaded.normalizer = normalizers.Lowercase()
    elif part == "pre_tokenizer":
        loaded.pre_tokenizer = pre_tokenizers.CharDelimiterSplit("-")
    elif part == "post_processor":
        loaded.post_processor = processors.TemplateProcessing("<|end|> $A", special_tokens=[("<|end|>", 0)])
    found = differs(str(tmp_path), PreTrainedTokenizerFast(tokenizer_object=loaded, unk_token="[UNK]"), ["It is 4"])
    assert (f"whose {part} differs from tokenizer.json: the tokens of a row differ, such as " in found) == bool(part)
    assert bool(found) == bool(part)


def test_a_model_without_a_tokenizer_is_named(tmp_path: Any) -> None:
    folder = str(tmp_path)
    put(folder, {"config.json": json.dumps({"vocab_size": 6})})
    (found,) = TokenizerFiles().before_rows(bundle(folder), Words())
    assert found.startswith("model has no tokenizer: copy tokenizer.json and tokenizer_config.json")
    put(folder, {"vocab.txt": "It"})
    assert TokenizerFiles().before_rows(bundle(folder), Words()) == []
