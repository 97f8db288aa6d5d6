"""`xpc rehearse --ci` selects specs, caches results and prints a summary. Instead of a rehearsal, the tests call a
fake.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from case_support import spec as written
from compile_support import put
from git_commands import git

from xpc.compiler.preview.rehearsal import ci, command


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two specs, a fake interpreter, and a fake rehearsal that finds nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(ci, "interpreter", lambda spec, python: sys.executable)
    # stands in for an interpreter: `ci` only closes it
    monkeypatch.setattr(ci, "warm_interpreter", lambda python: open("/dev/null"))  # noqa: SIM115
    put(str(tmp_path), {".gitignore": "cache\n", "a.xp": written(), "sub/b.xp": written(save='save "out/b"')})
    commit("first")
    return tmp_path


def commit(message: str) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", message]):
        git(".", *words)


def report(*messages: str) -> dict[str, Any]:
    findings = [
        {"step": "load", "code": "", "message": one, "setting": "", "help": "", "severity": "error"} for one in messages
    ]
    return {
        "spec": "a.xp", "stack": "trl-1.16", "exercised": [], "replaced": [], "own_tokenizer": True, "made_rows": False,
        "findings": findings,
    }  # fmt: skip


def rehearsed(
    monkeypatch: pytest.MonkeyPatch, *words: str, messages: tuple[str, ...] = ()
) -> tuple[list[str], str, int]:
    """Run `xpc rehearse --ci` with a fake rehearsal; return the specs that it was called for, the summary and the exit
    status.
    """
    seen: list[str] = []

    def stand_in(spec: Any, path: str, warm: Any) -> dict[str, Any]:
        seen.append(path)
        return report(*messages)

    monkeypatch.setattr(ci, "rehearse", stand_in)
    text, status = command.run(command.parse(["--ci", *words]))
    return seen, text, status


@pytest.mark.slow
def test_a_spec_is_rehearsed_once(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rehearsed(monkeypatch)[0] == ["a.xp", "sub/b.xp"]
    (repository / "a.xp").write_text(written() + "# a comment\n")
    seen, text, status = rehearsed(monkeypatch)
    assert (seen, status) == ([], 0)
    assert text.startswith("**2 rehearsals, none with errors**")
    assert "rehearsed earlier without a finding, and unchanged since" in text
    (repository / "a.xp").write_text(written(batch="gbs=64 micro=8"))
    assert rehearsed(monkeypatch)[0] == ["a.xp"]


@pytest.mark.slow
def test_only_specs_that_changed_since_the_base_are_rehearsed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "sub" / "b.xp").write_text(written(batch="gbs=64 micro=8", save='save "out/b"'))
    commit("second")
    assert rehearsed(monkeypatch, "--base", "HEAD~1")[0] == ["sub/b.xp"]
    assert rehearsed(monkeypatch, "--base", "HEAD", "sub")[1] == "No spec to rehearse.\n"


@pytest.mark.slow
def test_a_finding_is_shown_and_not_remembered(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        seen, text, status = rehearsed(monkeypatch, "sub", messages=("the loss is nan | <b>",))
        assert (seen, status) == (["sub/b.xp"], 1)
        assert "| `sub/b.xp` | ✗ | 1 finding |" in text
        assert "the loss is nan &#124; &lt;b>" in text


def test_a_spec_that_does_not_compile_fails(repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    put(str(repository), {"sub/b.xp": written(batch="gbs=63 micro=16")})
    seen, text, status = rehearsed(monkeypatch, "sub")
    assert (seen, status) == ([], 1)
    assert "does not compile" in text


@pytest.mark.parametrize("words", [["--ci", "--rows", "x"], [], ["a.xp", "b.xp"], ["a.xp", "--base", "HEAD"]])
def test_options_that_do_not_fit_are_refused(words: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit):
        command.parse(words)
