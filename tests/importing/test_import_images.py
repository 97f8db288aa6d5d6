"""LLaMA-Factory's files that train Qwen2.5-VL on images become specs. If a file uses a feature that no spec has, the
import reports one error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_import_cli import run

YAML = """\
model_name_or_path: Qwen/Qwen2.5-VL-7B-Instruct
stage: {stage}
finetuning_type: lora
lora_target: all
trust_remote_code: true
dataset: rows
template: qwen2_vl
cutoff_len: 2048
output_dir: out
per_device_train_batch_size: 1
max_steps: 20
bf16: true
"""
QUESTION, ANSWER = {"from": "human", "value": "<image>Which?"}, {"from": "gpt", "value": "Red."}
TURNS = {"messages": "conversations", "images": "images"}
TALK = {"formatting": "sharegpt", "columns": TURNS}
PAIR = {"formatting": "sharegpt", "ranking": True, "columns": {**TURNS, "chosen": "good", "rejected": "bad"}}
OPENAI = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}


def written(folder: Path, about: dict[str, Any], row: dict[str, Any], more: str = "", stage: str = "sft") -> str:
    """Write the configuration file, its dataset and an image; return the name of the configuration file."""
    (folder / "data").mkdir()
    (folder / "data" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "data" / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json", **about}}))
    (folder / "data" / "rows.json").write_text(json.dumps([{**row, "images": ["a.png"]}] * 40))
    (folder / "v.yaml").write_text(YAML.format(stage=stage) + more)
    return "v.yaml"


@pytest.mark.parametrize(
    ("about", "row", "stage", "columns"),
    [
        (TALK, {"conversations": [QUESTION, ANSWER]}, "sft", "columns = [conversations, images]"),
        (
            {"formatting": "sharegpt", "columns": {"messages": "messages", "images": "images"}, "tags": OPENAI},
            {"messages": [{"role": "user", "content": "<image>?"}, {"role": "assistant", "content": "Red."}]},
            "sft", "format = images",
        ),
        (
            PAIR, {"conversations": [QUESTION], "good": ANSWER, "bad": {**ANSWER, "value": "Blue."}}, "dpo",
            "columns = [conversations, good, bad, images]",
        ),
        (
            {"ranking": True, "columns": {"prompt": "q", "chosen": "good", "rejected": "bad", "images": "images"}},
            {"q": "Which?", "good": "Red.", "bad": "Blue."}, "dpo", "columns = [q, good, bad, images]",
        ),
    ],
)  # fmt: skip
def test_rows_with_images_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, about: dict[str, Any], row: dict[str, Any],
    stage: str, columns: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    found, out, err = run(written(tmp_path, about, row, stage=stage), "--hardware", "1 x a100-80gb", capsys=capsys)
    assert found == 0, err
    assert columns in out
    # the file names no template: the model's own template is used, which also places the images
    assert "max_pixels = 589824" in out
    assert "chat_template" not in out  # the model's own template, which also places the images
    assert ("assistant_only" in out) == (stage == "sft")
    assert "error" not in err


@pytest.mark.parametrize(
    ("about", "more", "stage", "why"),
    [
        (TALK, "freeze_vision_tower: false\n", "sft", "never trains the vision tower"),
        (TALK, "media_dir: pictures\n", "sft", "relative to the file with the rows"),
        (TALK, "image_min_pixels: 100352\n", "sft", "the processor enlarges every image below 3,136 pixels"),
        (TALK, "freeze_language_model: true\n", "sft", "trains the language model"),
        (TALK, "", "pt", "a spec trains them by sft or dpo"),
        (
            {**TALK, "columns": {"messages": "conversations", "videos": "v"}},
            "",
            "sft",
            "which a spec does not train on",
        ),
        ({**TALK, "columns": {"messages": "conversations"}}, "", "sft", "has no column of images"),
        ({**TALK, "tags": {"user_tag": "visitor"}}, "", "sft", "names of speakers that a run does not know"),
        ({"columns": {"prompt": "q", "response": "a", "images": "images"}}, "", "sft", "has instructions with images"),
    ],
)
def test_what_a_spec_does_not_train_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, about: dict[str, Any], more: str, stage: str,
    why: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    name = written(tmp_path, about, {"conversations": [QUESTION, ANSWER]}, more, stage)
    found, out, err = run(name, "--hardware", "1 x a100-80gb", capsys=capsys)
    assert (found, out) == (1, "")
    (line,) = [one for one in err.splitlines() if ": error: " in one]
    assert why in line


def test_pixels_of_an_unknown_model_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    name = written(tmp_path, TALK, {"conversations": [QUESTION, ANSWER]}, "image_max_pixels: 262144\n")
    (tmp_path / name).write_text((tmp_path / name).read_text().replace("Qwen/Qwen2.5-VL-7B-Instruct", "org/eyes"))
    found, _, err = run(name, "--hardware", "1 x a100-80gb", capsys=capsys)
    assert found == 1
    assert "xpc imports only Qwen2.5-VL" in err


@pytest.mark.parametrize(("stage", "row", "line"), [
    ("sft", {"messages": [{"role": "user", "content": "<image>?"}, {"role": "assistant", "content": "Red."}]},
     "format = images"),
    ("dpo", {"conversations": [QUESTION], "chosen": ANSWER, "rejected": ANSWER},
     "columns = [conversations, chosen, rejected, images]"),
])  # fmt: skip
def test_rows_of_a_missing_dataset_info_are_taken_for_rows_with_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, stage: str, row: dict[str, Any], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    name = written(tmp_path, TALK, row, stage=stage)
    (tmp_path / "data" / "dataset_info.json").unlink()
    found, out, err = run(name, "--hardware", "1 x a100-80gb", capsys=capsys)
    assert found == 0, err
    assert line in out
    assert "does not exist: the import assumes rows with images" in err
