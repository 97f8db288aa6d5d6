"""The cache of `xpc check` knows what was read, where links led to, and which files are its own."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from case_support import PLAIN, ROW, spec
from compile_support import put, tree, xpc

from xpc.compiler.files import cache
from xpc.compiler.files import workspace as files

WRONG = spec(batch="gbs=512 micro=11")


@pytest.fixture
def check(tmp_path: Path):
    """`xpc check t.xp` in `tmp_path / work`, with a cache of its own."""

    def run():
        environment = {"XPC_CACHE": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return xpc("check", "t.xp", cwd=str(tmp_path / "work"), env=environment)

    return run


def entries(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "xpc" / "check"


@pytest.mark.parametrize("first", [WRONG, spec()], ids=["wrong first", "right first"])
def test_a_file_that_is_saved_while_it_is_checked(first: str, check, tmp_path: Path, monkeypatch) -> None:
    """An editor saves between the reading and the answer: the answer is of what was read, and is not given again."""
    other = spec() if first == WRONG else WRONG
    root = put(tmp_path / "work", {"t.xp": first})
    real = cache.store

    def saving(*arguments: object) -> None:
        put(root, {"t.xp": other})
        real(*arguments)

    monkeypatch.setattr(cache, "store", saving)
    assert check().returncode == (first == WRONG)
    monkeypatch.undo()
    assert check().returncode == (other == WRONG)


@pytest.mark.parametrize("name", ["base.xp", "chat.jinja", "tiny/config.json", "rows.jsonl"])
def test_a_file_that_changes_between_two_looks_is_not_kept(name: str, check, tmp_path: Path, monkeypatch) -> None:
    """Every file that a spec names; the change comes when the check is done, and is seen by the next one."""
    text = spec('model(chat_template=file("chat.jinja"))', train='"tiny" on "rows.jsonl" for 3 epochs')
    config = {"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
              "num_attention_heads": 4, "vocab_size": 300, "max_position_embeddings": 512}  # fmt: skip
    root = put(tmp_path / "work", {
        "t.xp": text.replace("xpc 1\n", 'xpc 1\nextends "base.xp"\n'), "base.xp": "batch seq=512\n",
        "chat.jinja": PLAIN, "tiny/config.json": json.dumps(config), "rows.jsonl": ROW,
    })  # fmt: skip
    real = cache.store

    def saving(*arguments: object) -> None:
        put(root, {name: "\udcff".encode("utf-8", "surrogateescape")})
        real(*arguments)

    monkeypatch.setattr(cache, "store", saving)
    first = check()
    assert first.returncode == 0, first.stdout
    monkeypatch.undo()
    assert check().stdout != first.stdout


def test_a_large_file_that_changed_a_moment_ago_is_looked_at_again(check, tmp_path: Path) -> None:
    """Size and time cannot tell two writes within one tick apart, so such an answer is kept only for an older file."""
    root = put(tmp_path / "work", {"t.xp": spec(train='qwen2.5-3b on "rows.jsonl" for 3 epochs')})
    put(root, {"rows.jsonl": ROW * (cache.LARGE // len(ROW) + 2)})
    written = os.stat(tmp_path / "work" / "rows.jsonl").st_mtime
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cache.time, "time", lambda: written)
        assert check().returncode == 0
        assert tree(tmp_path / "cache") == {}
        patched.setattr(cache.time, "time", lambda: written + 60)
        first = check()
    (entry,) = entries(tmp_path).iterdir()
    entry.write_text(json.dumps({**json.loads(entry.read_text()), "output": "kept\n"}))
    assert check().stdout == b"kept\n"
    with open(tmp_path / "work" / "rows.jsonl", "r+b") as handle:
        handle.write(b"[")  # the same size
    assert check().stdout not in (first.stdout, b"kept\n")


# -- links -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed_first", [True, False])
def test_a_link_that_leads_elsewhere_with_the_same_bytes(allowed_first: bool, check, tmp_path: Path) -> None:
    """What may be read is a matter of where a link leads, so an answer is, too; both ways."""
    root = tmp_path / "work"
    put(tmp_path, {"work/t.xp": spec('data(system=file("system.txt"))'), "work/own.txt": "Be brief.",
                   ".hidden/theirs.txt": "Be brief."})  # fmt: skip
    ways = ["own.txt", "../.hidden/theirs.txt"]
    for target, status in sorted(zip(ways, (0, 1), strict=True), reverse=not allowed_first):
        if (root / "system.txt").is_symlink():
            (root / "system.txt").unlink()
        (root / "system.txt").symlink_to(target)
        assert [check().returncode, check().returncode] == [status, status], target


def test_a_folder_on_the_way_that_becomes_a_link(check, tmp_path: Path) -> None:
    root = put(
        tmp_path / "work", {"t.xp": spec('data(system=file("texts/system.txt"))'), "texts/system.txt": "Be brief."}
    )
    assert check().returncode == 0
    os.rename(os.path.join(root, "texts"), tmp_path / ".texts")
    os.symlink("../.texts", os.path.join(root, "texts"))
    assert check().returncode == 1


# -- the folder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["xpc", "xpc/check"])
def test_a_link_in_the_place_of_the_cache_is_not_followed(which: str, check, tmp_path: Path) -> None:
    """Neither for reading, nor for writing, nor for pruning."""
    put(tmp_path / "work", {"t.xp": spec()})
    names = {f"{number:064x}": "mine" for number in range(cache.MOST + 20)}
    put(tmp_path / "mine" / ("check" if which == "xpc" else "."), names)
    (tmp_path / "mine").chmod(0o700)
    place = tmp_path / "cache" / which
    place.parent.mkdir(parents=True, mode=0o700)
    place.symlink_to(tmp_path / "mine")
    before = tree(tmp_path / "mine")
    assert check().returncode == 0
    assert tree(tmp_path / "mine") == before


def test_pruning_deletes_entries_alone(check, tmp_path: Path) -> None:
    put(tmp_path / "work", {"t.xp": spec()})
    place = entries(tmp_path)
    place.mkdir(parents=True, mode=0o700)
    old = {f"{number:064x}": "{}" for number in range(cache.MOST + 20)}
    others = {
        "notes.txt": "mine",
        "A" * 64: "mine",
        "0" * 63: "mine",
        "f" * 64 + ".txt": "mine",
        "e" * 64 + "/x": "mine",
    }
    put(place, {**old, **others})
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (place / ("d" * 64)).symlink_to(victim)
    for name in (*others, *old):
        os.utime(place / name, (1, 1))
    check()
    left = {name for name in tree(place) if name in old}
    assert len(left) == cache.MOST - 1
    assert all((place / name).read_text() == "mine" for name in others)
    assert (place / ("d" * 64)).is_symlink()
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o077])
def test_the_cache_is_the_users_alone_under_any_umask(mask: int, check, tmp_path: Path) -> None:
    put(tmp_path / "work", {"t.xp": spec()})
    before = os.umask(mask)
    try:
        check()
    finally:
        os.umask(before)
    (entry,) = entries(tmp_path).iterdir()
    assert [stat.S_IMODE(one.stat().st_mode) for one in (entry, entry.parent, entry.parent.parent)] == [
        0o600,
        0o700,
        0o700,
    ]


def test_an_entry_that_is_a_pipe_is_not_waited_for(check, tmp_path: Path) -> None:
    put(tmp_path / "work", {"t.xp": spec()})
    first = check()
    (entry,) = entries(tmp_path).iterdir()
    entry.unlink()
    os.mkfifo(entry)
    assert check().stdout == first.stdout


def test_two_looks_at_one_path_agree_or_are_not_kept() -> None:
    seen = cache.joined(("/a", cache.FILE), ("/a", "sha256:1"))
    assert seen == ("/a", "sha256:1") == cache.joined(seen, ("/a", cache.ANY))
    for other in (("/a", "sha256:2"), ("/b", "sha256:1"), ("/a", cache.GONE), ("/a", cache.FOLDER)):
        assert cache.joined(seen, other)[1] == cache.UNSURE
        assert cache.joined(other, seen)[1] == cache.UNSURE
    workspace = files.Workspace("/nowhere")
    workspace.read("x")
    workspace.kind("x")
    assert workspace.seen == {"/nowhere/x": ("/nowhere/x", cache.GONE)}


def test_every_file_of_the_package_counts() -> None:
    """An upgrade that changes a template, or what is said of a name, brings no old answer back."""
    package = Path(cache.__file__).parent
    endings = (".py", ".json", ".jinja", ".txt")
    apart = {*cache.APART}
    there = {path.name for path in package.rglob("*") if path.suffix in endings and not apart & {*path.parts}}
    counted = {one.partition(":")[0].rpartition("/")[2] for one in cache._installation()}
    assert there <= counted


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 9999, '{"files": [1], "output": 1, "status": 0}'])
def test_a_damaged_entry_is_none(text: str, check, tmp_path: Path) -> None:
    put(tmp_path / "work", {"t.xp": spec()})
    first = check()
    (entry,) = entries(tmp_path).iterdir()
    entry.write_text(text)
    again = check()
    assert (again.returncode, again.stdout, again.stderr) == (first.returncode, first.stdout, first.stderr)
