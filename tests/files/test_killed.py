"""If the compiler is killed at any system call, the old or the new bundle is complete, and the next compilation removes
the temporary files.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from case_support import ROW, spec
from compile_support import compiled, put, tree, xpc
from killed import killed_everywhere

from xpc.compiler.files import atomic
from xpc.compiler.files.bundle import write

pytestmark = pytest.mark.slow


def small(number: int) -> dict[str, bytes]:
    """A complete small bundle. It has few files, so that the compiler makes few system calls, and the test can kill the
    compiler at each call.
    """
    import hashlib

    from xpc.compiler.files.bundle import sealed

    files = {"launch.sh": b"#!/bin/sh\n", "trainer/main.py": b"x = %d\n" % number * 99, "seed.txt": b"%d\n" % number}
    lines = "".join(f'"{name}" = "sha256:{hashlib.sha256(data).hexdigest()}"\n' for name, data in files.items())
    return {**files, "bundle.toml": sealed(f'[bundle]\nxpc = "0"\n[files]\n{lines}'.encode())}


def many(number: int) -> dict[str, bytes]:
    """The files of a sweep with two members. Its sweep.toml has the digests of both bundles and a digest of itself."""
    from xpc.compiler.files.bundle import sealed
    from xpc.compiler.files.digest import shared_digest

    both = {f"members/{name}/{file}": data for name in "ab" for file, data in small(number).items()}
    table = ["[sweep]", 'xpc = "0"', "[files]"]
    for name in "ab":
        table += ["[[member]]", f'name = "{name}"', f'bundle = "{shared_digest(both[f"members/{name}/bundle.toml"])}"']
    return {**both, "sweep.toml": sealed("\n".join([*table, ""]).encode())}


@pytest.mark.parametrize("swap", [True, False], ids=["exchanged", "renamed"])
@pytest.mark.parametrize("made", [small, pytest.param(many, marks=pytest.mark.nightly)])
def test_a_kill_at_any_call_leaves_the_old_or_the_new(made, swap: bool, tmp_path: Path) -> None:
    out, old, new = str(tmp_path / "b"), made(1), made(2)

    def before() -> None:
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        write(old, out)

    seen = set()
    for at in killed_everywhere(lambda: write(new, out), before, swap):
        there = tree(out) if os.path.exists(out) else None
        assert there in (old, new) or (there is None and not swap), (at, sorted(os.listdir(tmp_path)))
        seen.add(None if there is None else there == new)
        assert write(made(3), out) is None
        assert tree(tmp_path) == {f"b/{name}": data for name, data in made(3).items()}, at
    assert seen == ({False, True} if swap else {False, None, True})


@pytest.mark.parametrize("swap", [True, False], ids=["exchanged", "renamed"])
def test_a_kill_while_replacing_work_of_others_loses_nothing(swap: bool, tmp_path: Path) -> None:
    out, new = str(tmp_path / "b"), small(2)

    def before() -> None:
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        put(tmp_path, {"b/notes.txt": "mine", "b/deep/x": "mine"})

    for at in killed_everywhere(lambda: write(new, out, force=True), before, swap):
        found = [name for name in os.listdir(tmp_path) if os.path.exists(tmp_path / name / "deep" / "x")]
        assert len(found) == 1, at
        assert found[0] in ("b", "b.before-1"), (at, found)
        write(small(3), out, force=True)
        assert tree(out) == small(3)
        assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []
        assert any(os.path.exists(tmp_path / name / "notes.txt") for name in os.listdir(tmp_path)), at


def test_where_an_old_bundle_is_missing_after_a_kill_it_is_put_back_first(tmp_path: Path) -> None:
    """If the compiler is killed between its two renames, no bundle is at the path. The next compilation first puts the
    old bundle back, including a file that a user has added to it.
    """
    out = str(tmp_path / "b")

    def before() -> None:
        shutil.rmtree(tmp_path)
        write(small(1), out)

    for _ in killed_everywhere(lambda: write(small(2), out), before, swap=False):
        if not os.path.exists(out):
            break
    (hidden,) = os.listdir(tmp_path)
    put(tmp_path, {f"{hidden}/old/notes.txt": "mine"})
    with pytest.raises(Exception, match=r"notes\.txt, which the compiler did not write"):
        write(small(3), out)
    assert tree(out) == {**small(1), "notes.txt": b"mine"}
    assert os.listdir(tmp_path) == ["b"]


def test_what_a_living_process_writes_is_not_cleared_away(tmp_path: Path) -> None:
    out, wrote = str(tmp_path / "b"), []

    def filling(folder: str) -> None:
        if not wrote:
            wrote.append(folder)
            write(small(1), out)  # a second compiler, not killed, writes the same bundle meanwhile
        put(folder, small(2))

    atomic.replace_folder(os.path.realpath(out), filling, lambda path: "", aside=False)
    assert tree(tmp_path) == {f"b/{name}": data for name, data in small(2).items()}


def test_a_note_that_comes_while_the_new_is_made_is_kept(tmp_path: Path) -> None:
    from xpc.compiler.files import bundle

    out = str(tmp_path / "b")
    write(small(1), out)

    def filling(folder: str) -> None:
        put(folder, small(2))
        put(out, {"notes.txt": "mine"})

    kept = atomic.replace_folder(os.path.realpath(out), filling, bundle.why_foreign, aside=False)
    assert kept == os.path.realpath(out) + ".before-1"
    assert tree(kept) == {**small(1), "notes.txt": b"mine"}
    assert tree(out) == small(2)


# -- what `xpc import` writes ----------------------------------------------------------------------------------------


def test_an_import_that_is_killed_leaves_each_file_old_or_new(tmp_path: Path) -> None:
    put(tmp_path / "in", {"rows.jsonl": ROW})
    put(tmp_path / "made", compiled(spec(train='qwen2.5-3b on "rows.jsonl" for 3 epochs'), str(tmp_path / "in")))
    work = tmp_path / "work"

    def before() -> None:
        shutil.rmtree(work, ignore_errors=True)
        put(work, {"t.xp": "# the old one\n", "data/rows.jsonl": "old"})

    def run() -> None:
        assert xpc("import", "../made", "-o", "t.xp", "--force", cwd=str(work)).returncode == 0

    before()
    old = tree(work)
    run()
    new = tree(work)
    assert set(old) == set(new)
    points = []
    for at in killed_everywhere(run, before):
        there = {name: data for name, data in tree(work).items() if "/." not in f"/{name}"}
        assert set(there) == set(old)
        assert all(there[name] in (old[name], new[name]) for name in there), at
        assert there["t.xp"] == old["t.xp"] or there == new, "spec.xp is written last"
        points.append(there == new)
        run()
        assert tree(work) == new, at
    assert len(points) > 10


def test_an_import_on_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {"a.yaml": "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: org/x\n", "t.xp": "# the old one\n"})
    real = os.fdopen

    def full(held: int, mode: str):
        handle = real(held, mode)
        if "r" in mode:
            return handle

        class Full:
            def __enter__(self):
                return self

            def __exit__(self, *rest: object):
                handle.close()

            def write(self, data: bytes):
                handle.write(data[:5])
                raise OSError(28, "No space left on device")

        return Full()

    monkeypatch.setattr(os, "fdopen", full)
    done = xpc("import", "a.yaml", "-o", "t.xp", "--force", cwd=str(tmp_path))
    assert done.returncode == 2
    assert b"No space left" in done.stderr
    assert (tmp_path / "t.xp").read_text() == "# the old one\n"
    assert sorted(os.listdir(tmp_path)) == ["a.yaml", "t.xp"]


def test_an_import_keeps_the_mode_and_writes_through_a_link(tmp_path: Path) -> None:
    put(tmp_path, {"a.yaml": "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: org/x\n", "real/t.xp": "# old\n"})
    (tmp_path / "real/t.xp").chmod(0o640)
    (tmp_path / "t.xp").symlink_to("real/t.xp")
    assert xpc("import", "a.yaml", "-o", "t.xp", "--force", cwd=str(tmp_path)).returncode == 0
    assert (tmp_path / "t.xp").is_symlink()
    assert "train" in (tmp_path / "real/t.xp").read_text()
    assert (tmp_path / "real/t.xp").stat().st_mode & 0o777 == 0o640


def test_an_import_over_what_is_no_file_is_refused(tmp_path: Path) -> None:
    put(tmp_path, {"a.yaml": "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: org/x\n", "folder/x": ""})
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "folder"):
        for more in ((), ("--force",)):
            done = xpc("import", "a.yaml", "-o", name, *more, cwd=str(tmp_path))
            assert done.returncode == 2
            assert b"is not a regular file" in done.stderr
