"""A preview counts tokens and caches the statistics. The commands `check`, `compile` and `plan` use these in their
messages, but no bundle depends on them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from compile_support import put, tree
from tiny_runs import lines

from xpc.compiler import cli
from xpc.compiler.data.preview_counts import keep, recall
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.preview import process
from xpc.compiler.preview.process import Request

SPEC = """\
xpc 1
train qwen2.5-0.5b-instruct on "rows.jsonl" for 1 epochs
hardware 1 x h100-80gb
batch gbs=8 micro=4 seq=512
save "out"
"""
COUNTS = {
    "rows": 40, "tokens": 4000, "limit": 512, "quantiles": {"0.0": 20, "0.5": 90, "1.0": 600}, "cut": 2, "dropped": 0,
    "sequences": 40, "kept_tokens": 3900, "learned_tokens": 975, "steps": {"epoch": 5, "run": 5},
}  # fmt: skip
SENTENCE = (
    "rows have 20 to 600 tokens (median 90); 5.0 % are longer than 512; 25.0 % of the kept tokens bear loss, "
    "from a preview of 40 rows"
)


def rows(many: int, start: int = 0) -> str:
    return lines([
        {"messages": [{"role": "user", "content": f"Q{at}?"}, {"role": "assistant", "content": f"A{at}."}]}
        for at in range(start, start + many)
    ])  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("XPC_CACHE", raising=False)
    location = str(tmp_path / "specs")
    put(location, {"run.xp": SPEC, "rows.jsonl": rows(40)})
    return location


def previewed(folder: str, counts: Mapping[str, Any] = COUNTS) -> None:
    keep(*process._checked(os.path.join(folder, "run.xp"), Request(scan="all")), counts)


def checked(folder: str, capsys: pytest.CaptureFixture[str], name: str = "run.xp", *words: str) -> str:
    capsys.readouterr()
    assert cli.main([*(words or ("check",)), os.path.join(folder, name)]) == 0
    return "".join(capsys.readouterr())


def test_check_compile_and_plan_report_the_counts(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "from a preview" not in checked(folder, capsys)
    before, after = str(tmp_path / "before"), str(tmp_path / "after")
    checked(folder, capsys, "run.xp", "compile", "-o", before)
    plan = checked(folder, capsys, "run.xp", "plan")
    previewed(folder)
    assert f"note XP161 rows-of-a-preview: {SENTENCE}" in checked(folder, capsys)
    assert SENTENCE in checked(folder, capsys, "run.xp", "compile", "-o", after)
    assert tree(before) == tree(after)
    planned = checked(folder, capsys, "run.xp", "plan")
    assert "rows have 100 tokens on average, from a preview of 40 rows" in planned
    assert "4,096 tokens in one" in plan
    assert "800 tokens in one" in planned


def test_a_plan_counts_the_packed_sequences_of_a_preview(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """4,000 tokens would fill 8 sequences of 512, one step. Packed rows leave gaps: the preview counts 12."""
    put(folder, {"run.xp": SPEC.replace("seq=512", "seq=512 packing") + "model(attn=flash2)\n"})
    assert "`xpc preview --rows 1000` counts it" in checked(folder, capsys, "run.xp", "plan")
    previewed(folder, {**COUNTS, "sequences": 12})
    assert "steps: 2, 4,096 tokens in one" in checked(folder, capsys, "run.xp", "plan")
    assert "steps: 1, 4,096 tokens in one" in checked(folder, capsys, "run.xp", "plan", "--tokens", "100")


@pytest.mark.parametrize("change", ["rows", "seq", "template", "method", "off"])
def test_counts_of_other_rows_or_settings_are_not_reported(
    folder: str, change: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    previewed(folder)
    changed = {
        "rows": {"rows.jsonl": rows(40, 1)},
        "seq": {"run.xp": SPEC.replace("seq=512", "seq=256")},
        "template": {"run.xp": SPEC + "model(chat_template=chatml)\n"},
        "method": {"run.xp": SPEC + "method sft(assistant_only)\n"},
        "off": {},
    }[change]
    put(folder, changed)
    if change == "off":
        monkeypatch.setenv("XPC_CACHE", "off")
    assert "from a preview" not in checked(folder, capsys)


def test_counts_of_more_rows_are_kept(folder: str) -> None:
    previewed(folder)
    previewed(folder, {**COUNTS, "rows": 10})
    found = recall(*process._checked(os.path.join(folder, "run.xp"), Request(scan="all")))
    assert found is not None
    assert found["rows"] == 40


@pytest.mark.parametrize(
    "wrong", [{"rows": 0}, {"rows": "40"}, {"quantiles": {"0.5": 1}}, {"limit": -1}, {"cut": None}]
)
def test_a_damaged_entry_is_not_read(folder: str, wrong: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    previewed(folder)
    cache = os.path.join(os.path.dirname(folder), "cache", "xpc", "previews")
    (name,) = os.listdir(cache)
    put(cache, {name: json.dumps({**COUNTS, **wrong})})
    assert "from a preview" not in checked(folder, capsys)


@pytest.mark.slow
def test_few_rows_of_a_large_file_are_prepared_without_reading_all(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XPC_CACHE", "off")
    put(folder, {"rows.jsonl": rows(100_000)})
    spec, workspace = process._checked(os.path.join(folder, "run.xp"), Request())
    assert spec.data[0].content is None
    assert spec.data[0].sha256 is None
    assert "rows.jsonl" not in workspace.reads
    spec, workspace = process._checked(os.path.join(folder, "run.xp"), Request(scan="all"))
    assert spec.data[0].content is not None


def test_a_large_file_has_counts_after_its_digest_is_known(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from xpc.compiler.files import file_memory, workspace

    monkeypatch.setattr(workspace.Workspace, "size", lambda *_: workspace.MAX_DATA + 1)
    monkeypatch.setattr(file_memory, "SETTLED", -1.0)
    previewed(folder)
    assert SENTENCE in checked(folder, capsys)


def test_the_member_of_a_sweep_is_chosen(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder, {"sweep.xp": SPEC.replace(" seq=512", "") + "sweep { seq = [128, 256, 512] }\n"})
    path = os.path.join(folder, "sweep.xp")
    for member, length in ((None, 128), ("seq=256", 256), ("2", 512)):
        assert process._checked(path, Request(member=member))[0].integer("batch.seq") == length
    with pytest.raises(UsageError, match="the sweep has no member seq=255; the most similar name is seq=256"):
        process._checked(path, Request(member="seq=255"))
    with pytest.raises(UsageError, match=r"is not a sweep, and has no member seq=1"):
        process._checked(os.path.join(folder, "run.xp"), Request(member="seq=1"))
