"""xpc caches what it has found out about a data file. It reads the file a second time only if the file has changed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from compile_support import codes, put, shown, tree, xpc

from xpc.compiler.data import survey_cache
from xpc.compiler.files import file_memory, private_folder
from xpc.compiler.files.file_memory import FileMemory, user_memory
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import Checked, check_text, compile_text
from xpc.compiler.spec.survey import Broken, Survey, Tally

SPEC = (
    b'xpc 1\ntrain qwen2.5-3b on "rows.jsonl" for 3 epochs\nhardware 1 x h100-80gb\nprecision bf16\n'
    b'batch gbs=2 micro=1 seq=512\nsave "out/x"\n'
)
GOOD = json.dumps({"messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "4"}]}) + "\n"
EMPTY = GOOD.replace('"4"', '" "')
LONG_AGO = time.time_ns() - 10**12


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("XPC_CACHE", raising=False)
    monkeypatch.setattr(file_memory, "SETTLED", -3600.0)
    (tmp_path / "spec").mkdir()
    file = tmp_path / "spec" / "rows.jsonl"
    file.write_text(GOOD + EMPTY)
    return file


class Counted(Workspace):
    """A workspace that counts how often its files are read."""

    def read(self, *given: object, **named: object) -> object:  # type: ignore[override]
        self.__dict__["times"] = self.__dict__.get("times", 0) + 1
        return super().read(*given, **named)  # type: ignore[arg-type]


def check(location: Path) -> tuple[Checked, int]:
    workspace = Counted(str(location.parent), memory=user_memory(), copies=False)
    found = check_text(SPEC, "t.xp", workspace)
    return found, workspace.__dict__.get("times", 0)


def entries(location: Path) -> list[Path]:
    folder = location.parent.parent / "cache/xpc/data"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_an_unchanged_file_is_not_read_again(location: Path) -> None:
    first, times = check(location)
    again, later = check(location)
    assert (times, later) == (1, 0)
    assert "XP533" in codes(first)
    assert shown(again) == shown(first)
    (entry,) = entries(location)
    assert entry.stat().st_mode & 0o777 == 0o600
    assert entry.parent.stat().st_mode & 0o777 == 0o700


def test_a_bundle_has_the_bytes_all_the_same(location: Path) -> None:
    check(location)
    workspace = Workspace(str(location.parent), memory=user_memory())
    files, found = compile_text(SPEC, "t.xp", workspace)
    assert files is not None, shown(found)
    assert (GOOD + EMPTY).encode() in files.values()
    location.write_text(GOOD * 2)
    files, found = compile_text(SPEC, "t.xp", Workspace(str(location.parent), memory=user_memory()))
    assert files is not None
    assert (GOOD * 2).encode() in files.values()
    assert "XP533" not in codes(found)


@pytest.mark.parametrize("how", ["size", "times", "inode", "link"])
def test_a_changed_file_is_read(location: Path, how: str) -> None:
    check(location)
    before = location.stat()
    if how == "size":
        location.write_text(GOOD)
    elif how == "times":  # same file and size, other content
        location.write_text(GOOD + GOOD.replace('"4"', '"5"'))
    elif how == "inode":  # the file is replaced by one with other content and the old modification time
        other = location.with_name("other")
        other.write_text(GOOD + GOOD.replace('"4"', '"5"'))
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        os.replace(other, location)
    else:
        other = location.with_name("other.jsonl")
        other.write_text(GOOD)
        location.unlink()
        location.symlink_to(other)
    found, times = check(location)
    assert times == 1
    assert "XP533" not in codes(found)


def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Workspace.read

    def late(self: Workspace, *given: object, **named: object) -> object:
        found = real(self, *given, **named)  # type: ignore[arg-type]
        location.write_text(GOOD)
        return found

    monkeypatch.setattr(Workspace, "read", late)
    assert "XP533" in codes(check(location)[0])
    assert not entries(location)


def test_a_file_of_this_moment_is_not_remembered(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_memory, "SETTLED", 3600.0)
    check(location)
    assert not entries(location)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stamp": 1}', "[" * 9999, '{"facts": {"": 1}}'])
def test_a_damaged_entry_is_none(location: Path, text: str) -> None:
    first, _ = check(location)
    (entry,) = entries(location)
    kept = json.loads(entry.read_text())
    entry.write_text(text)
    assert shown(check(location)[0]) == shown(first)
    facts = {name: {**one, "rows": "many"} for name, one in kept["facts"].items()}
    for damaged in ({"facts": facts}, {"facts": dict.fromkeys(facts, 1)}, {"facts": 1}, {"sha256": None}):
        entry.write_text(json.dumps({**kept, **damaged}))
        again, times = check(location)
        assert (shown(again), times) == (shown(first), 1), damaged


def test_no_link_is_followed(location: Path, tmp_path: Path) -> None:
    check(location)
    (entry,) = entries(location)
    kept = entry.read_bytes()
    target = tmp_path / "target"
    target.write_bytes(kept)
    entry.unlink()
    entry.symlink_to(target)
    assert check(location)[1] == 1
    assert target.read_bytes() == kept
    folder = entry.parent
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    folder.symlink_to(moved)
    before = sorted(os.listdir(moved))
    assert check(location)[1] == 1
    assert sorted(os.listdir(moved)) == before


def test_pruning_leaves_what_is_not_ours(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(location)
    folder = entries(location)[0].parent
    (folder / "notes.txt").write_text("mine")
    monkeypatch.setattr(private_folder, "MOST", 1)
    for name in ("a", "b"):
        other = location.with_name(f"{name}.jsonl")
        other.write_text(GOOD)
        memory = FileMemory(str(folder))
        memory.keep(str(other), memory.stamp(str(other)), "1", "messages", "0", {})
    left = sorted(os.listdir(folder))
    assert len(left) == 2
    assert "notes.txt" in left


def test_a_survey_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(GOOD)
    os.utime(file, ns=(LONG_AGO, LONG_AGO))
    memory = FileMemory(str(tmp_path / "data"))
    whole = Survey(
        7, ("a", "\udce9"), Broken(3, 4, "why", True), (2, "said"), True, {"same": Tally(1, 2)}, {"human": Tally(3, 4)},
        (5, 6), {3: 4},
    )  # fmt: skip
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:
        patched.setattr(file_memory, "SETTLED", -3600.0)
        known = survey_cache.CachedSurvey("abc", whole)
        survey_cache.keep(memory, str(file), memory.stamp(str(file)), "messages", ("m",), known)
        assert survey_cache.recall(memory, str(file), "messages", ("m",)) == known
        assert survey_cache.recall(memory, str(file), "messages", ("other",)) is None
        patched.setattr(survey_cache, "_version", lambda: "another")
        assert survey_cache.recall(memory, str(file), "messages", ("m",)) is None


def test_an_evaluation_file_with_the_columns_of_the_training_data_has_the_same_findings_later(location: Path) -> None:
    rows = "q,a\n" + "".join(f"{number} + 2?,4\n" for number in range(6))
    root = put(location.parent, {"rows.csv": rows, "eval.csv": rows.replace("2?", "3?")})
    spec = SPEC.replace(b"jsonl", b"csv") + b'data(format=prompt_completion, columns=[q, a])\neval data="eval.csv"\n'
    found = [shown(check_text(spec, "t.xp", Workspace(root, memory=user_memory()))) for _ in range(2)]
    assert "XP554" not in found[0]
    assert found[1] == found[0]


def test_a_memory_that_cannot_be_used_is_no_error(location: Path, tmp_path: Path) -> None:
    root = put(location.parent, {"t.xp": SPEC})
    put(tmp_path, {"file": "", "broken/xpc/data": ""})
    first = xpc("check", "t.xp", cwd=root)
    assert b"XP533" in first.stdout
    for home in ("/proc/nowhere", str(tmp_path / "file"), "relative", "", str(tmp_path / "broken")):
        environment = {"XPC_CACHE": "", "XDG_CACHE_HOME": home, "HOME": "/proc/nowhere"}
        again = xpc("check", "t.xp", cwd=root, env=environment)
        assert (again.stdout, again.stderr, again.returncode) == (first.stdout, b"", first.returncode)


def test_off_writes_nothing(location: Path, tmp_path: Path) -> None:
    root = put(location.parent, {"t.xp": SPEC})
    xpc("check", "t.xp", cwd=root, env={"XPC_CACHE": "off"})
    assert not (tmp_path / "cache").exists()
    xpc("check", "t.xp", cwd=root, env={"XPC_CACHE": ""})
    assert len(tree(tmp_path / "cache")) == 1
