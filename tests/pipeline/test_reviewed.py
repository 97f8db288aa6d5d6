"""Some warnings are for a person who reviews the spec of a stranger. The bundle's README begins with these warnings,
and a comment in the spec cannot silence them.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from case_support import PLAIN, ROW, spec
from compile_support import checked, codes, compiled, put, xpc

REMOTE = "model(trust_remote_code)"
KNOWN = "# xpc: allow XP701 it is known"


def executed(files: dict[str, bytes]) -> str:
    """The section of the bundle's README about code that the run executes. It is at the beginning of the README."""
    head, title, rest = files["README.md"].decode().partition("## What this run executes\n")
    assert title
    assert "## " not in head
    return rest.partition("\n## ")[0]


@pytest.mark.parametrize("silence", [f"{KNOWN}\n{REMOTE}", f"{REMOTE}  {KNOWN}"], ids=["above", "beside"])
def test_remote_code_is_not_silenced_by_the_spec_that_asks_for_it(silence: str, tmp_path: Path) -> None:
    found = checked(spec(silence))
    assert "XP701" in codes(found, "warning")
    assert "XP901" in codes(found)
    assert found.silenced == ()
    put(tmp_path, {"a.xp": spec(silence)})
    assert xpc("check", "a.xp", "--deny", "warnings", cwd=str(tmp_path)).returncode == 1
    done = xpc("compile", "a.xp", "-o", "b", "--deny", "warnings", cwd=str(tmp_path))
    assert done.returncode == 1
    assert not (tmp_path / "b").exists()


def test_rows_of_a_hidden_folder_are_not_silenced(tmp_path: Path) -> None:
    root = put(tmp_path, {".cache/rows.jsonl": ROW, "specs/x": ""}) + "/specs"
    text = spec(train='qwen2.5-3b on "../.cache/rows.jsonl" for 3 epochs  # xpc: allow XP590 it is known')
    assert "XP590" in codes(checked(text, root), "warning")


def test_the_page_begins_with_what_is_executed(tmp_path: Path) -> None:
    reward = b"def f(completions, **rest):\n    return [0.0 for _ in completions]\n"
    root = put(tmp_path, {"own.py": reward, "chat.jinja": PLAIN})
    text = spec(f"{REMOTE}\nmodel(pickle)", "method grpo(generations=16, rewards=[\"own.py:f\"])",
                'model(chat_template=file("chat.jinja"))', train=f"org/x@{'a' * 40} on org/y for 3 epochs")  # fmt: skip
    text = text.replace(f"{REMOTE}\nmodel(pickle)\n", "").replace(
        "model(chat_template", "model(trust_remote_code, pickle, chat_template"
    )
    reported = executed(compiled(text, root))
    assert "Python code of the model's repository, org/x" in reported
    assert f"commit {'a' * 40}" in reported
    assert "pickled weights" in reported
    assert "own" in reported
    assert f"sha256:{sha256(reward).hexdigest()}" in reported
    assert f"sha256:{sha256(PLAIN.encode()).hexdigest()}" in reported


def test_a_run_of_nothing_else_says_so() -> None:
    assert "nothing that the spec names" in executed(compiled(spec()))
