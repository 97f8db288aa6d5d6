"""Only the user can use the cache folder. xpc follows no symbolic link in it, and reads, writes and deletes only its
own files there.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from compile_support import put, tree

from xpc.compiler.files import private_folder as private
from xpc.runtime.features.launch import private_entries

NAME = "0" * 64
ENTRY = '{"a": 1}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache/xpc/data"


def test_an_entry_is_read_as_it_was_written(folder: Path) -> None:
    assert private.read(str(folder), NAME) is None
    private.write(str(folder), NAME, ENTRY)
    assert private.read(str(folder), NAME) == {"a": 1}


@pytest.mark.parametrize("which", ["xpc", "xpc/data"])
def test_a_link_in_the_place_of_the_folder_is_not_followed(which: str, folder: Path, tmp_path: Path) -> None:
    """If the cache folder is a symbolic link, xpc does not follow the link: it neither reads nor writes there, and
    deletes no old entries.
    """
    names = {f"{number:064x}": ENTRY for number in range(private.MOST + 20)}
    put(tmp_path / "mine" / ("data" if which == "xpc" else "."), names)
    (tmp_path / "mine").chmod(0o700)
    location = tmp_path / "cache" / which
    location.parent.mkdir(parents=True, mode=0o700)
    location.symlink_to(tmp_path / "mine")
    before = tree(tmp_path / "mine")
    assert private.read(str(folder), NAME) is None
    private.write(str(folder), "f" * 64, ENTRY)
    assert tree(tmp_path / "mine") == before


def test_pruning_deletes_the_oldest_entries_alone(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    old = {f"{number:064x}": "{}" for number in range(private.MOST + 20)}
    others = dict.fromkeys(("notes.txt", "A" * 64, "0" * 63, "f" * 64 + ".txt", "e" * 64 + "/x"), "mine")
    put(folder, {**old, **others})
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder / ("d" * 64)).symlink_to(victim)
    for number, name in enumerate((*others, *old)):
        os.utime(folder / name, (number, number))
    private.write(str(folder), "c" * 64, ENTRY)
    assert sorted(name for name in tree(folder) if name in old) == sorted(old)[21:]
    assert private.read(str(folder), "c" * 64) == {"a": 1}
    assert all((folder / name).read_text() == "mine" for name in others)
    assert (folder / ("d" * 64)).is_symlink()
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o077])
def test_entries_are_the_users_alone_under_any_umask(mask: int, folder: Path) -> None:
    before = os.umask(mask)
    try:
        private.write(str(folder), NAME, ENTRY)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (folder / NAME, folder, folder.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_a_folder_of_others_is_neither_read_nor_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private.write(str(folder), NAME, ENTRY)
    folder.chmod(0o777)
    assert private.read(str(folder), NAME) is None
    private.write(str(folder), "f" * 64, ENTRY)
    assert os.listdir(folder) == [NAME]
    folder.chmod(0o700)
    assert private.read(str(folder), NAME) == {"a": 1}
    (folder / NAME).chmod(0o666)
    assert private.read(str(folder), NAME) is None
    (folder / NAME).chmod(0o600)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    assert private.read(str(folder), NAME) is None


def test_a_link_in_the_place_of_a_new_entry_is_not_followed(folder: Path, tmp_path: Path) -> None:
    private.write(str(folder), NAME, ENTRY)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    link = folder / f"{'f' * 64}.{os.getpid()}"
    link.symlink_to(victim)
    private.write(str(folder), "f" * 64, ENTRY)
    assert victim.read_text() == "mine"
    assert link.is_symlink()


def test_an_entry_that_is_a_pipe_is_not_waited_for(folder: Path) -> None:
    private.write(str(folder), NAME, ENTRY)
    (folder / NAME).unlink()
    os.mkfifo(folder / NAME, 0o600)
    assert private.read(str(folder), NAME) is None


def test_a_large_entry_is_neither_written_nor_read(folder: Path) -> None:
    private.write(str(folder), NAME, json.dumps("x" * private_entries.LARGEST))
    assert not folder.exists()
    private.write(str(folder), NAME, ENTRY)
    os.truncate(folder / NAME, 2**40)  # a sparse file
    assert private.read(str(folder), NAME) is None


@pytest.mark.parametrize("text", ["", "null", "[]", "[" * 9999, "\0", '{"a":', b"\xff"])
def test_a_damaged_entry_is_none(text: str | bytes, folder: Path) -> None:
    private.write(str(folder), NAME, ENTRY)
    put(folder, {NAME: text})
    assert private.read(str(folder), NAME) is None


def test_the_folder_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XPC_CACHE", "")
    for home, expected in (("/x", "/x/xpc/data"), ("relative", None)):
        monkeypatch.setenv("XDG_CACHE_HOME", home)
        assert private.private_folder("data") == expected
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert private.private_folder("data") == str(tmp_path / ".cache/xpc/data")
    monkeypatch.setenv("XPC_CACHE", "off")
    assert private.private_folder("data") is None
