"""Rows may contain paths of images. The bundle and the lock have the digests of these images; commands and the run
compare the images with them.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest
from compile_support import put, xpc
from git_commands import branch_off, git

from xpc.compiler.files import file_digests
from xpc.compiler.resolve import image_digests
from xpc.compiler.review import diff
from xpc.compiler.review.pull_request.entries import entries
from xpc.runtime.core.errors import RunError
from xpc.runtime.features.rows import images

pytestmark = pytest.mark.slow

SPEC = """\
xpc 1

train qwen2.5-vl-3b-instruct on "rows.jsonl" for 1 epoch

hardware 2 x h100-80gb
strategy zero2
precision bf16

batch {
  gbs = 2
  micro = 1
  seq = 4096
}

method sft(assistant_only)
lora(rank=16)
save "out/x"
"""
TALK = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "A cat."}]
LIST = "data/rows-b354dd34.images.jsonl"


def row(*images: object) -> str:
    return json.dumps({"messages": TALK, "images": list(images)}) + "\n"


def lines(location: Path, bundle: str = "x.bundle", name: str = LIST) -> list[dict[str, object]]:
    return [json.loads(line) for line in (location / bundle / name).read_text().splitlines()]


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `s` with a spec, rows, and three pictures."""
    folder = tmp_path / "s"
    put(folder, {"x.xp": SPEC, "rows.jsonl": row("photos/cat.png") + row("photos/dog.png", "photos/cow.png") + row()})
    put(folder / "photos", {"cat.png": b"cat" * 9, "dog.png": b"dog" * 9, "cow.png": b"moo" * 99})
    monkeypatch.chdir(folder)
    return folder


def run(location: Path, *words: str, **env: str) -> tuple[int, str]:
    done = xpc(
        *words, cwd=str(location), env={"XPC_CACHE": "", "XDG_CACHE_HOME": str(location.parent / "cache"), **env}
    )
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def compared(*words: str) -> tuple[str, int]:
    return diff.run(diff.parse([*words, "--exit-code"]))


def test_a_bundle_lists_the_images_in_the_order_of_the_rows(location: Path) -> None:
    assert run(location, "compile", "x.xp")[0] == 0
    data = (location / "photos" / "cat.png").read_bytes()
    found = lines(location)
    assert [one["path"] for one in found] == ["photos/cat.png", "photos/dog.png", "photos/cow.png"]
    assert found[0] == {"path": "photos/cat.png", "bytes": 27, "sha256": sha256(data).hexdigest()}
    digest = sha256((location / "x.bundle" / LIST).read_bytes()).hexdigest()
    assert f'images = "sha256:{digest}"\nimage_files = 3\n' in (location / "x.bundle" / "bundle.toml").read_text()


@pytest.mark.parametrize("column", ["images", "photo"])
def test_images_of_preference_pairs_are_listed(location: Path, column: str) -> None:
    pair = {"prompt": "What?", "chosen": "A cat.", "rejected": "A dog.", column: ["photos/cat.png"]}
    named = "" if column == "images" else "data(format=image_preference, columns=[prompt, chosen, rejected, photo])\n"
    (location / "rows.jsonl").write_text((json.dumps(pair) + "\n") * 4)
    (location / "x.xp").write_text(SPEC.replace("method sft(assistant_only)", f"{named}method dpo"))
    assert run(location, "compile", "x.xp")[0] == 0
    assert [one["path"] for one in lines(location)] == ["photos/cat.png"]
    (location / "photos" / "cat.png").write_bytes(b"a cat")
    status, text = run(location, "verify", "x.bundle")
    assert status == 1
    assert "photos/cat.png" in text


def test_verify_names_the_image_that_changed(location: Path) -> None:
    assert run(location, "compile", "x.xp")[0] == 0
    assert run(location, "verify", "x.bundle") == (0, "x.bundle is what its spec compiles to\n")
    put(location, {"photos/dog.png": b"dog" * 10})
    status, out = run(location, "verify", "x.bundle")
    assert (status, "1 image changed; photos/dog.png is the first that differs: 27 -> 30 bytes" in out) == (1, True)
    put(location, {"photos/dog.png": b"god" * 9})
    assert "photos/dog.png is the first that differs: sha256 " in run(location, "verify", "x.bundle")[1]
    os.remove(location / "photos" / "dog.png")
    assert (
        "photos/dog.png is the first that differs: was there, and is not now" in run(location, "verify", "x.bundle")[1]
    )
    put(location, {"photos/dog.png": b"dog" * 9})
    assert run(location, "verify", "x.bundle")[0] == 0


def test_verify_all_has_a_line_for_the_images(location: Path) -> None:
    assert run(location, "compile", "x.xp")[0] == 0
    status, out = run(location, "verify", "--all")
    assert (status, "rows.jsonl: 3 images are unchanged since x.bundle was compiled\n" in out) == (0, True), out
    put(location, {"photos/dog.png": b"dog" * 10})
    status, out = run(location, "verify", "--all")
    assert (status, "1 image changed; photos/dog.png is the first" in out) == (1, True), out


def test_verify_finds_an_edited_list(location: Path) -> None:
    assert run(location, "compile", "x.xp")[0] == 0
    path = location / "x.bundle" / LIST
    path.write_text(path.read_text().replace('"bytes": 27', '"bytes": 28', 1))
    status, out = run(location, "verify", "x.bundle")
    assert (status, f"x.bundle/{LIST}:1: " in out) == (1, True), out


def test_quick_trusts_sizes_times_and_inodes(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_digests, "SETTLED", -1.0)
    assert run(location, "compile", "x.xp")[0] == 0
    with monkeypatch.context() as patched:
        patched.setattr(image_digests, "size_and_digest", lambda *_: pytest.fail("read"))
        status, out = run(location, "verify", "x.bundle", "--quick")
    assert (status, "the files of images were compared by size, times and inode" in out) == (0, True), out
    put(location, {"photos/dog.png": b"god" * 9})
    assert run(location, "verify", "x.bundle", "--quick")[0] == 1


def test_a_bundle_elsewhere_finds_its_images_below_the_data_root(location: Path) -> None:
    assert run(location, "compile", "x.xp", "-o", "../away/x.bundle")[0] == 0
    status, out = run(location, "verify", "../away/x.bundle")
    assert (status, "are not here; set XPC_DATA_ROOT to the folder" in out) == (1, True), out
    assert run(location, "verify", "../away/x.bundle", XPC_DATA_ROOT=str(location))[0] == 0


def test_the_lock_has_the_digest(location: Path) -> None:
    assert run(location, "lock", "x.xp")[0] == 1  # model and packages are not pinned
    assert '"rows.jsonl (images)" = "sha256:' in (location / "x.xp.lock").read_text()
    put(location, {"photos/dog.png": b"god" * 9})
    assert (
        "rows.jsonl (images) has changed; `xpc lock` writes it again" in run(location, "compile", "x.xp", "--locked")[1]
    )


def test_check_reads_no_image(location: Path) -> None:
    os.remove(location / "photos" / "cat.png")
    os.mkfifo(location / "photos" / "cat.png")
    assert run(location, "check", "x.xp")[0] == 0


def test_diff_says_which_image_differs(location: Path) -> None:
    branch_off(".")
    assert compared("main:x.xp", "x.xp") == ("the same run\n", 0)
    put(location, {"photos/cow.png": b"oom" * 99})
    text, status = compared("main:x.xp", "x.xp")
    assert (status, text.startswith("1 image changed; photos/cow.png is the first that differs: sha256 ")) == (1, True)
    assert "data.sources was [" not in text  # the two differ only in this key
    assert run(location, "compile", "x.xp", "-o", "y.bundle")[0] == 0
    git(".", "checkout", "-q", "photos")
    assert run(location, "compile", "x.xp")[0] == 0
    assert compared("x.bundle", "y.bundle")[0].startswith("1 image changed; photos/cow.png is")
    assert compared("x.bundle", "x.xp")[1] == 0
    assert compared("y.bundle", "x.xp")[1] == 1
    # the bundle's spec.xp is checked under the name z.xp, and its images have digests from the bundle
    put(location, {"z.xp": SPEC})
    assert compared("x.bundle", "z.xp")[1] == 0


def test_the_first_line_names_an_image_next_to_a_setting(location: Path) -> None:
    branch_off(".")
    put(location, {"photos/cow.png": b"oom" * 99, "x.xp": SPEC.replace("rank=16", "rank=32")})
    first = compared("main:x.xp", "x.xp")[0].partition("\n")[0]
    assert first.startswith("lora.rank 16 -> 32; 1 image changed; photos/cow.png is the first that differs: ")


def test_diff_counts_images_that_are_new_and_gone(location: Path) -> None:
    branch_off(".")
    put(location, {"photos/hen.png": b"hen", "rows.jsonl": row("photos/cat.png") + row("photos/hen.png")})
    assert "1 image added, 2 removed; photos/hen.png is the first" in compared("main:x.xp", "x.xp")[0]


def test_diff_reads_unchanged_images_once_and_copies_none(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branch_off(".")
    file_digests._known.clear()
    read: list[str] = []
    monkeypatch.setattr(file_digests, "_read", lambda path: read.append(path) or sha256(path.encode()).hexdigest())
    assert compared("main:x.xp", "x.xp")[1] == 0
    assert sorted(read) == [str(location / "photos" / f"{one}.png") for one in ("cat", "cow", "dog")]


def test_a_pointer_of_git_lfs_is_the_image_that_it_stands_for(location: Path) -> None:
    data = (location / "photos" / "cow.png").read_bytes()
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(data).hexdigest()}\nsize {len(data)}\n"
    put(location, {"photos/cow.png": text})
    branch_off(".")
    assert compared("main:x.xp", "x.xp")[1] == 0
    put(location, {"photos/cow.png": data})
    assert compared("main:x.xp", "x.xp")[1] == 0
    put(location, {"photos/cow.png": data + b"!"})
    assert compared("main:x.xp", "x.xp")[1] == 1


def test_the_comment_on_a_pull_request_names_the_image(location: Path) -> None:
    put(location, {"other.xp": SPEC.replace("qwen2.5-vl-3b-instruct", "qwen2.5-0.5b").replace("rows.jsonl", "t.jsonl"),
                "t.jsonl": json.dumps({"messages": TALK}) + "\n"})  # fmt: skip
    branch_off(".")
    put(location, {"photos/cow.png": b"oom" * 99})
    git(".", "commit", "-qam", "another cow")
    found = list(entries(".", "main"))
    assert [(one.path, one.line.partition(":")[0]) for one in found] == [
        ("x.xp", "1 image changed; photos/cow.png is the first that differs"),
    ]


@pytest.mark.parametrize("stored", ["../secret.png", "photos/link.png", "/etc/hostname", "photos/pipe.png", "photos"])
def test_nothing_is_followed_out_of_the_folder_of_the_rows(stored: str, location: Path) -> None:
    put(location.parent, {"secret.png": b"secret"})
    (location / "photos" / "link.png").symlink_to("../../secret.png")
    os.mkfifo(location / "photos" / "pipe.png")
    put(location, {"rows.jsonl": row(stored)})
    assert run(location, "compile", "x.xp")[0] == 0
    assert lines(location) == [{"path": stored, "bytes": None, "sha256": None}]
    branch_off(".")
    assert compared("main:x.xp", "x.xp")[1] == 0


def test_a_large_image_is_not_read(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(location / "photos" / "cat.png", "wb") as handle:
        handle.truncate(2**40)
    assert run(location, "compile", "x.xp")[0] == 0
    assert lines(location)[0] == {"path": "photos/cat.png", "bytes": None, "sha256": None}
    assert image_digests.LARGEST == images.LARGEST


def test_images_inside_the_rows_are_not_listed(location: Path) -> None:
    put(location, {"rows.jsonl": row("data:image/png;base64,AAAA", {"bytes": "AAAA", "path": "x.png"})})
    assert run(location, "compile", "x.xp")[0] == 0
    assert not (location / "x.bundle" / LIST).exists()
    assert '"images"' not in (location / "x.bundle" / "trainer_args.json").read_text().replace('"shape": "images"', "")


def test_a_file_of_rows_that_is_not_copied(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler reads image paths only from JSON Lines. For a file in another format, the comparison says that its
    images are not compared.
    """
    from xpc.compiler.data import contents

    monkeypatch.setattr(contents, "MAX_DATA", 100)
    assert run(location, "compile", "x.xp")[0] == 0
    assert len(lines(location)) == 3
    assert run(location, "verify", "x.bundle")[0] == 0
    rows = [json.loads(line) for line in (location / "rows.jsonl").read_text().splitlines()]
    put(location, {"rows.json": json.dumps(rows), "x.xp": SPEC.replace("rows.jsonl", "rows.json")})
    assert run(location, "compile", "x.xp")[0] == 0
    source = json.loads((location / "x.bundle" / "trainer_args.json").read_text())["data"]["sources"][0]
    assert (source["images"], source["images_sha256"]) == (None, None)
    assert compared("x.bundle", "x.xp")[1] == 0


@pytest.mark.parametrize("name", ["rows.json", "rows.csv", "rows.parquet"])
def test_compile_and_verify_say_which_images_have_no_digest(
    name: str, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling reads neither the rows of Parquet files nor the rows of JSON and CSV files that are not copied. compile
    and verify say that the images in such rows have no digest.
    """
    from xpc.compiler.data import contents

    monkeypatch.setattr(contents, "MAX_DATA", 100)
    rows = [{"messages": TALK, "images": ["photos/cat.png"]}] * 4
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(rows), location / "rows.parquet")
    data = {"json": json.dumps(rows), "csv": "messages,images\n" + 'x,"photos/cat.png"\n' * 9}
    put(location, {name: data.get(name.rpartition(".")[2], (location / "rows.parquet").read_bytes())})
    put(location, {"x.xp": SPEC.replace("rows.jsonl", name)})
    output = f"images that {name} names have no digest, so `verify` cannot notice changes of them"
    status, out = run(location, "compile", "x.xp")
    assert (status, output in out) == (0, True), out
    for words in (["x.bundle"], ["x.bundle", "--spec", "x.xp"], ["--all"], ["--all", "--quick"]):
        status, out = run(location, "verify", *words)
        assert (status, output in out, "by size" in out) == (0, True, False), out


def test_images_of_a_folder_are_relative_to_it(location: Path) -> None:
    put(
        location,
        {"rows/train.jsonl": row("cat.png"), "rows/cat.png": b"cat", "x.xp": SPEC.replace("rows.jsonl", "rows")},
    )
    assert run(location, "compile", "x.xp")[0] == 0
    name = image_digests.list_name("rows")
    assert lines(location, name=name) == [{"path": "cat.png", "bytes": 3, "sha256": sha256(b"cat").hexdigest()}]
    assert run(location, "verify", "x.bundle")[0] == 0


def test_members_of_a_sweep_share_the_list(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    listed = image_digests._listed
    monkeypatch.setattr(image_digests, "_listed", lambda source, *rest: made.append("") or listed(source, *rest))
    put(location, {"x.xp": SPEC + "sweep { lr = [1e-5, 2e-5, 3e-5] }\n"})
    assert run(location, "compile", "x.xp")[0] == 0
    assert len(made) == 1
    assert len(list((location / "x.bundle" / "members").glob(f"*/{LIST}"))) == 3
    put(location, {"photos/dog.png": b"god" * 9})
    assert run(location, "verify", "x.bundle")[0] == 1


def test_progress_is_shown(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_digests, "SHOWN", 30)
    assert "hashing: 1 of 3 images" in run(location, "compile", "x.xp")[1]


def test_a_run_compares_its_images(location: Path) -> None:
    """If an image has changed, the run stops; the message names the row, the image, and the old and the new digest."""
    assert run(location, "compile", "x.xp")[0] == 0
    source = json.loads((location / "x.bundle" / "trainer_args.json").read_text())["data"]["sources"][0]
    put(location, {"photos/dog.png": b"dog" * 10})
    stored = {"messages": TALK, "images": ["photos/dog.png"]}
    with pytest.raises(RunError) as refused:
        images._read(str(location / "x.bundle"), images.to_row, source, stored, 4)
    assert "row 4: image 0, 'photos/dog.png', is not the file" in str(refused.value)
    assert "it had 27 bytes (sha256 " in str(refused.value)
    assert "and has 30 (sha256 " in str(refused.value)


def test_a_run_says_which_images_have_no_digest(location: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.remove(location / "photos" / "cow.png")
    assert run(location, "compile", "x.xp")[0] == 0
    source = json.loads((location / "x.bundle" / "trainer_args.json").read_text())["data"]["sources"][0]
    bundle = SimpleNamespace(folder=str(location / "x.bundle"), sources=lambda: [source])
    assert images.Images().before_rows(bundle, None) == []
    assert "1 images were missing when the spec was compiled" in capsys.readouterr().out
    (location / "x.bundle" / LIST).write_text("{}\n")
    images.listed.cache_clear()
    assert "is not the file that this bundle was compiled with" in images.Images().before_rows(bundle, None)[0]
    unlisted = {**source, "images": None, "images_sha256": None}
    bundle = SimpleNamespace(folder=str(location / "x.bundle"), sources=lambda: [unlisted])
    assert images.Images().before_rows(bundle, None) == []
    assert "the bundle has no digests of its images" in capsys.readouterr().out
