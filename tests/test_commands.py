"""`xpc list`, `new`, `schema` and `completion` print what the program knows, and write what compiles."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "compiler"))

from compile_support import codes, xpc  # noqa: E402

from xpc.compiler.commands import COMMANDS  # noqa: E402
from xpc.compiler.commands.listing import KINDS  # noqa: E402
from xpc.compiler.commands.settings_schema import schema  # noqa: E402
from xpc.compiler.commands.starter import recipes  # noqa: E402
from xpc.compiler.files import Workspace  # noqa: E402
from xpc.compiler.language.kinds import BLOCK  # noqa: E402
from xpc.compiler.language.schema import BY_PATH  # noqa: E402
from xpc.compiler.pipeline import check_text  # noqa: E402


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_is_the_same_in_both_forms(kind, tmp_path):
    rows = json.loads(xpc("list", kind, "--format", "json", cwd=str(tmp_path)).stdout)
    lines = xpc("list", kind, cwd=str(tmp_path)).stdout.decode().splitlines()
    assert len(lines) == len(rows) + 1
    assert len(rows) >= 2
    assert [line.split()[0] for line in lines[1:]] == [row["name"] for row in rows]


def test_words_narrow_a_list_and_a_word_without_a_match_is_told(tmp_path):
    found = json.loads(xpc("list", "models", "qwen2.5", "instruct", "--format", "json", cwd=str(tmp_path)).stdout)
    assert found
    assert all("qwen2.5" in row["name"] and "instruct" in row["name"] for row in found)
    wrong = xpc("list", "gpus", "h100-80bg", cwd=str(tmp_path))
    assert wrong.returncode == 2
    assert b"did you mean h100-80gb?" in wrong.stderr


def test_what_is_listed_is_known(tmp_path):
    for kind, text in (
        ("models", "train {} on capybara for 1 epochs with 8 x h200-141gb"),
        ("gpus", "train qwen2.5-0.5b on capybara for 1 epochs with 1 x {}"),
        ("datasets", "train qwen2.5-0.5b on {} for 1 epochs with 1 x h100-80gb"),
    ):
        for row in KINDS[kind]():
            found = check_text(text.format(row["name"]).encode(), "one.xp", Workspace(str(tmp_path)))
            assert not {"XP110", "XP111", "XP112", "XP113"} & set(codes(found)), row["name"]


def test_a_starter_checks_clean_with_rows_of_ones_own(tmp_path):
    assert xpc("new", "mine", cwd=str(tmp_path)).returncode == 0
    turns = [{"role": "user", "content": "2 + {}?"}, {"role": "assistant", "content": "{}"}]
    rows = [json.dumps({"messages": turns}).replace("{}", str(number)) for number in range(64)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n")
    checked = xpc("check", "mine.xp", cwd=str(tmp_path))
    assert checked.returncode == 0
    assert checked.stdout == b""


def test_a_starter_overwrites_nothing(tmp_path):
    (tmp_path / "mine.xp").write_text("# mine\n")
    assert xpc("new", "mine.xp", cwd=str(tmp_path)).returncode == 2
    assert (tmp_path / "mine.xp").read_text() == "# mine\n"


def test_every_recipe_can_be_copied_with_what_it_names(tmp_path):
    assert len(recipes()) >= 30
    for name, path in recipes().items():
        folder = tmp_path / name
        done = xpc("new", f"{name}/copy", "--from", name, cwd=str(tmp_path))
        assert done.returncode == 0, done.stderr
        copy = check_text((folder / "copy.xp").read_bytes(), "copy.xp", Workspace(str(folder)))
        with open(path, "rb") as handle:
            first = check_text(handle.read(), "copy.xp", Workspace(os.path.dirname(path)))
        assert codes(copy) == codes(first), name


def test_a_recipe_that_is_none_gets_a_suggestion(tmp_path):
    done = xpc("new", "a", "--from", "smollm3-3b-sft-64xh10", cwd=str(tmp_path))
    assert done.returncode == 2
    assert b"did you mean smollm3-3b-sft-64xh100?" in done.stderr


def test_the_schema_takes_legal_settings_and_refuses_others():
    Draft202012Validator.check_schema(schema())
    takes = Draft202012Validator(schema())
    assert set(schema()["properties"]) == {path for path, row in BY_PATH.items() if row.kind is not BLOCK}
    legal = {
        "batch.gbs": 528,
        "schedule.warmup": "3%",
        "save.every": "epoch",
        "precision": "bf16",
        "memory.liger": True,
    }
    assert takes.is_valid(legal)
    for wrong in (
        {"batch.gbs": "528"},
        {"batch.gbz": 528},
        {"schedule.warmup": "3 %"},
        {"precision": "bf61"},
        {"memory.liger": "yes"},
        {"save.every": "sometimes"},
    ):
        assert not takes.is_valid(wrong), wrong


def test_the_script_of_bash_completes(tmp_path):
    script = xpc("completion", "bash", cwd=str(tmp_path)).stdout.decode()
    asked = '\nCOMP_WORDS=(xpc {words}); COMP_CWORD={at}; _xpc 2>/dev/null; printf "%s\\n" "${{COMPREPLY[@]}}"'

    def completed(words: str, at: int) -> list[str]:
        text = script + asked.format(words=words, at=at)
        return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True).stdout.split()

    assert completed("''", 1) == [*COMMANDS, "--help", "--version"]
    assert completed("ch", 1) == ["check"]
    assert completed("list mo", 2) == ["models"]
    assert completed("check --format j", 3) == ["json"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed here")
def test_the_script_of_fish_is_fish(tmp_path):
    script = xpc("completion", "fish", cwd=str(tmp_path)).stdout
    assert subprocess.run(["fish", "--no-execute"], input=script, check=False).returncode == 0


def test_every_command_is_in_the_help_and_in_no_other_way(tmp_path):
    text = xpc("--help", cwd=str(tmp_path)).stdout.decode()
    assert [line.split()[0] for line in text.splitlines() if line.startswith("    ") and line[4] != " "] == list(
        COMMANDS
    )
