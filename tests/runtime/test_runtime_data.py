"""Rows: shapes, speakers, mixtures. Needs the datasets library."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
from runtime_bundles import plan, source, write

from xpc.runtime import bundle as bundles
from xpc.runtime import data, sources
from xpc.runtime.errors import RunError

datasets = pytest.importorskip("datasets")


def numbers(name: str, rows: int) -> object:
    return datasets.Dataset.from_dict({"id": [f"{name}{i}" for i in range(rows)]})


def test_the_mixture_is_the_published_one_row_for_row() -> None:
    a, b = numbers("a", 20), numbers("b", 10)
    train, held = data.mix([a, b], [{"take": {"fraction": 0.33}}, {"take": None}], 42, True, {"rows": 4})
    # alignment-handbook and open-r1, get_dataset: written out
    part = a.shuffle(seed=42).select(range(int(20 * 0.33)))
    whole = datasets.concatenate_datasets([part, b]).shuffle(seed=42)
    expected = whole.train_test_split(test_size=4, seed=42)
    assert train["id"] == expected["train"]["id"]
    assert held["id"] == expected["test"]["id"]
    assert len(train) == 6 + 10 - 4


def test_one_part_keeps_the_order_of_its_file_unless_shuffled() -> None:
    part = numbers("a", 50)
    assert data.mix([part], [{}], 1, False, None)[0]["id"] == part["id"]
    shuffled = data.mix([part], [{}], 1, True, None)[0]["id"]
    assert shuffled == part.shuffle(seed=1)["id"]
    assert shuffled != part["id"]


def test_rows_are_taken_and_too_many_are_refused() -> None:
    assert len(data.mix([numbers("a", 9)], [{"take": {"rows": 5}}], 1, True, None)[0]) == 5
    with pytest.raises(RunError, match="takes 10 rows, and has 9"):
        data.mix([numbers("a", 9)], [{"take": {"rows": 10}}], 1, True, None)
    with pytest.raises(RunError, match="holdout asks for 9 rows"):
        data.mix([numbers("a", 9)], [{}], 1, True, {"rows": 9})


CHAT = source("x", "conversations")


def test_from_value_turns_become_messages_with_the_system_prompt() -> None:
    row = {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]}
    assert sources.to_row(CHAT, row, 0, "Be kind.", "text") == {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "ho"},
        ]
    }


def test_a_system_turn_of_the_row_is_kept() -> None:
    row = {"conversations": [{"from": "system", "value": "own"}, {"from": "human", "value": "hi"}]}
    assert [m["content"] for m in sources.to_row(CHAT, row, 0, "ours", "text")["messages"]] == ["own", "hi"]


def test_an_unknown_speaker_is_named_with_its_row() -> None:
    with pytest.raises(RunError, match=r"x, row 17: 'narrator' is no known speaker"):
        sources.to_row(CHAT, {"conversations": [{"from": "narrator", "value": ""}]}, 17, None, "text")


def test_prompt_and_completion_are_renamed_and_the_context_is_appended() -> None:
    alpaca = source("x", "prompt_completion", columns=["instruction", "output"], context="input")
    row = {"instruction": "Add.", "input": "1 2", "output": "3"}
    assert sources.to_row(alpaca, row, 0, None, "text") == {"prompt": "Add.\n\n1 2", "completion": "3"}
    assert sources.to_row(alpaca, {**row, "input": ""}, 0, None, "text")["prompt"] == "Add."


def test_a_missing_column_is_told_with_what_there_is() -> None:
    assert sources.missing_columns(source("x"), ["messages"]) is None
    assert sources.missing_columns(source("x"), ["chat"]) == "x has no column 'messages'; it has 'chat'"


def bundle_with(tmp_path: Path, one: dict[str, object]) -> bundles.Bundle:
    folder = tmp_path / "bundle"
    folder.mkdir()
    return bundles.read(write(str(folder), plan("trl-1.16", "tiny", [one])))


def test_a_local_file_is_loaded_mapped_and_checked(tmp_path: Path) -> None:
    lines = [json.dumps({"conversations": [{"from": "human", "value": str(i)}], "id": i}) for i in range(10)]
    text = "\n".join(lines) + "\n"
    (tmp_path / "chat.jsonl").write_text(text)
    digest = sha256(text.encode()).hexdigest()
    bundle = bundle_with(tmp_path, source("chat.jsonl", "conversations", sha256=digest, slice="40%"))
    bundle.data["shuffle"] = False
    train, evaluation = data.build(bundle)
    assert train.column_names == ["messages"]
    assert [row["messages"][0]["content"] for row in train] == ["0", "1", "2", "3"]
    assert evaluation is None
    (tmp_path / "chat.jsonl").write_text(text + "\n")
    with pytest.raises(RunError, match="sha256 differs"):
        data.build(bundle)


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "text\nhello\n"), ("a.txt", "hello\n"), ("a.json", '[{"text": "hello"}]')]
)
def test_other_kinds_of_files_and_folders(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / name).write_text(content)
    bundle = bundle_with(tmp_path, source("folder", "text"))
    assert data.build(bundle)[0]["text"][:] == ["hello"]


def test_a_folder_of_two_kinds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.csv").write_text("")
    (tmp_path / "folder/b.txt").write_text("")
    with pytest.raises(RunError, match="no data of one kind"):
        data.build(bundle_with(tmp_path, source("folder", "text")))
