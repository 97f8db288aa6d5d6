"""Every file, spec and command of the README, the tutorial, the data formats and the cookbook works as written."""

from __future__ import annotations

import json
import os
import re

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from compile_support import xpc  # noqa: E402

from xpc.compiler.files.workspace import Workspace  # noqa: E402
from xpc.compiler.pipeline import check_text  # noqa: E402
from xpc.compiler.render import render  # noqa: E402

BLOCK = re.compile(r"^```(\w*)(?: (\w+))?\n(.*?)^```", re.S | re.M)
NAMED = re.compile(r"`([\w.]+)`(?: says only what is different)?:\s*\Z")
METHOD = {"preference": "dpo", "unpaired": "kto", "prompt": "grpo"}
CONFIG = {"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
          "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
          "max_position_embeddings": 32768, "tie_word_embeddings": True}  # fmt: skip
"""A config.json with the keys that a check reads. In the cookbook, it stands in for the config.json that an earlier run
has written.
"""


def read(page: str) -> str:
    with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as handle:
        return handle.read()


def blocks(page: str) -> list[tuple[str, str, str, str]]:
    """Every fenced block of a page as a tuple: its language, the word after the language, the file that the text above
    the block names, and the block's content.
    """
    text, out = read(page), []
    for match in BLOCK.finditer(text):
        named = NAMED.search(text[: match.start()])
        out.append((match[1], match[2] or "", named[1] if named else "", match[3]))
    return out


def rows() -> dict[str, str]:
    """The example row of each shape on docs' page of data formats, by the shape's name."""
    return {word: content for language, word, _, content in blocks("data.md") if language == "json" and word}


def put_files(folder, page: str) -> list[str]:
    """Write the files that a page shows, and the rows that the page of data formats shows. Return the names of the
    specs.
    """
    for shape, row in rows().items():
        (folder / f"{shape}.jsonl").write_text("".join(_varied(row, number) for number in range(4)), encoding="utf-8")
    turns = [{"role": "customer", "content": "2 of them do not start."}, {"role": "agent", "content": "Are they on?"}]
    spoken = [_varied(json.dumps({"messages": turns}), number) + "\n" for number in range(4)]
    (folder / "support.jsonl").write_text("".join(spoken), encoding="utf-8")
    (folder / "eval.jsonl").write_text(_varied(rows()["messages"], 7), encoding="utf-8")
    (folder / "out" / "chat").mkdir(parents=True)
    (folder / "out" / "chat" / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / "out" / "chat" / name).touch()
    specs = []
    for _, _, name, content in blocks(page):
        if name:
            (folder / name).write_text(content, encoding="utf-8")
            specs += [name] if name.endswith(".xp") else []
    return specs


def _varied(row: str, number: int) -> str:
    """The row with its numbers changed, so that a file can have many such rows without duplicates."""
    row = row.replace("2", str(number + 2)).replace("Two", f"Two {number}")
    return row.replace("true", "false") if number % 2 else row


def problems(folder, name: str) -> list:
    text = (folder / name).read_bytes()
    return [one for one in check_text(text, name, Workspace(str(folder))).problems if one.severity != "note"]


@pytest.mark.parametrize(
    ("page", "least"), [("tutorial.md", 3), ("data.md", 2), ("raw-text.md", 2), ("cookbook.md", 8)]
)
def test_every_spec_checks_clean(page, least, tmp_path):
    specs = put_files(tmp_path, page)
    assert len(specs) >= least
    for name in specs:
        found = problems(tmp_path, name)
        assert bool(found) == (name == "wrong.xp"), f"{name}\n{render(found, 'full')}"


def test_the_spec_of_the_readme_wants_more_than_its_row(tmp_path):
    assert put_files(tmp_path, "../README.md") == ["mine.xp"]
    assert [one.code for one in problems(tmp_path, "mine.xp")] == ["XP208"]


def test_every_format_is_recognised(tmp_path):
    put_files(tmp_path, "data.md")
    (tmp_path / "reward.py").write_text("def f(completions, **columns): return [0.0 for _ in completions]\n")
    for shape in rows():
        method = METHOD.get(shape, "sft") + ('(rewards=["reward.py:f"], generations=2)' if shape == "prompt" else "")
        base = "" if shape in ("prompt_completion", "alpaca") else "-instruct"  # XP186: plain text for a chat model
        text = (
            f'train qwen2.5-0.5b{base} on "{shape}.jsonl" for 1 epochs with 1 x h100-80gb bf16 gbs=2 micro=2 '
            f'method {method} save "out"\n'
        )
        checked = check_text(text.encode(), "row.xp", Workspace(str(tmp_path)))
        assert checked.spec is not None, render(checked.problems, "full")
        expected = "prompt_completion" if shape == "alpaca" else shape
        assert checked.spec.data[0].shape == expected, shape
        assert not [one for one in checked.problems if one.severity != "note"], render(checked.problems, "full")


def test_the_commands_of_the_tutorial_print_what_it_shows(tmp_path):
    put_files(tmp_path, "tutorial.md")
    ran = 0
    for language, _, _, content in blocks("tutorial.md"):
        if language != "console":
            continue
        for command, shown in re.findall(r"^\$ xpc (.*)\n((?:(?!\$ ).*\n)*)", content, re.M):
            done = xpc(*command.split(), cwd=str(tmp_path))
            assert done.returncode == (1 if "wrong.xp" in command else 0), done.stderr
            if "XP201" not in command:  # the page shows only a part of the explanation of XP201
                assert done.stdout.decode() + done.stderr.decode() == shown, command
            ran += 1
    assert ran >= 7
