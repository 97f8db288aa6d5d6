"""Data folders: their files are copied or hashed one by one, divided into splits by file name, and checked like single
files.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from case_support import ROW, spec
from compile_support import checked, errors, of, only, put, shown, xpc
from run_features import read

from xpc.compiler.data import contents as compiling
from xpc.compiler.files import file_memory
from xpc.compiler.files.file_memory import user_memory
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text, compile_text
from xpc.compiler.spec import folders
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.feature import Bundle
from xpc.runtime.features.rows import local_sources, split_files

FILES = {
    "rows/train/b.jsonl": ROW * 6,
    "rows/train/a.jsonl": ROW.replace("2 + 2?", "first") * 5,
    "rows/test/held.jsonl": ROW.replace("2 + 2?", "held") * 3,
    "rows/README.md": "about",
    "rows/dataset_info.json": "{}",
    "rows/.hidden/x.jsonl": "{",
    "rows/__pycache__/x.jsonl": "{",
}
LAYOUTS = [
    ["a.jsonl", "b.jsonl"],
    ["train.jsonl", "test.jsonl"],
    ["train-0.jsonl", "train-1.jsonl", "valid_1.jsonl", "other.jsonl"],
    ["train/a.jsonl", "test/b.jsonl", "train.jsonl"],
    ["data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl", "data/extra-00000-of-00001.jsonl"],
    ["en.training.jsonl", "en.dev.jsonl", "constrained.jsonl", "latest.jsonl"],
    ["my_train_set/a.jsonl", "my eval/a.jsonl"],
    ["evaluation.jsonl", "rows.jsonl"],
    ["sub/train2.jsonl", "sub/testing3.jsonl"],
]
"""Cases of a data folder: the names of the files in it."""


def text(*more: str, data: str = '"rows"') -> str:
    body = 'hardware 2 x cpu\nstrategy ddp\nprecision fp32\nbatch gbs=8 micro=2\nsave "out"'
    return "\n".join(["xpc 1", "", f"train qwen2.5-0.5b on {data} for 1 epochs", "", body, *more, ""])


def compiled(spec: str, root: str, out: Path | None = None) -> dict[str, bytes]:
    files, found = compile_text(spec.encode(), "run.xp", Workspace(root))
    assert files is not None, shown(found)
    if out is not None:
        put(out, files)
    return files


def stated(files: dict[str, bytes]) -> dict[str, Any]:
    return json.loads(files["trainer_args.json"])["data"]


def loaded(bundle: Bundle, split: str) -> list[bytes]:
    _, found = local_sources.files(bundle, bundle.data["sources"][0], split)
    return [Path(one).read_bytes() for one in found]


def test_every_file_is_copied_and_the_run_reads_the_copies(tmp_path: Path) -> None:
    root = put(tmp_path, FILES)
    files = compiled(text("eval(every=epoch, split=test)"), root, tmp_path / "x.bundle")
    (source,) = stated(files)["sources"]
    assert [one["path"] for one in source["files"]] == ["test/held.jsonl", "train/a.jsonl", "train/b.jsonl"]
    for one in source["files"]:
        assert files[one["bundled"]].decode() == FILES[f"rows/{one['path']}"]
        assert sha256(files[one["bundled"]]).hexdigest() == one["sha256"]
    for name in ("train/a.jsonl", "train/b.jsonl"):
        (tmp_path / "rows" / name).write_text("changed since\n")
    (tmp_path / "rows/train/c.jsonl").write_text("added since\n")
    bundle = read(str(tmp_path / "x.bundle"))
    assert loaded(bundle, "train") == [FILES["rows/train/a.jsonl"].encode(), FILES["rows/train/b.jsonl"].encode()]
    assert loaded(bundle, "test") == [FILES["rows/test/held.jsonl"].encode()]


def test_a_changed_copy_is_refused(tmp_path: Path) -> None:
    compiled(text(), put(tmp_path, FILES), tmp_path / "x.bundle")
    bundle = read(str(tmp_path / "x.bundle"))
    copy = bundle.data["sources"][0]["files"][1]["bundled"]
    (tmp_path / "x.bundle" / copy).write_text(ROW)
    with pytest.raises(RunError, match="sha256 differs"):
        loaded(bundle, "train")


def test_a_large_folder_is_hashed_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "MAX_DATA", 1000)
    root = put(tmp_path, FILES)
    files = compiled(text(), root, tmp_path / "x.bundle")
    assert not [name for name in files if name.startswith("data/")]
    bundle = read(str(tmp_path / "x.bundle"))
    assert len(loaded(bundle, "train")) == 2
    (tmp_path / "rows/train/b.jsonl").write_text(ROW * 7)
    with pytest.raises(RunError, match="sha256 differs"):
        loaded(bundle, "train")
    os.remove(tmp_path / "rows/train/b.jsonl")
    with pytest.raises(RunError, match="was not found"):
        loaded(bundle, "train")


def test_a_large_file_is_hashed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "MAX_DATA", 1000)
    root = put(tmp_path, {"rows.jsonl": ROW * 40})
    (source,) = stated(compiled(text(data='"rows.jsonl"'), root))["sources"]
    assert (source["bundled"], source["sha256"]) == (None, sha256((ROW * 40).encode()).hexdigest())


def test_the_manifest_says_what_the_folder_was(tmp_path: Path) -> None:
    before = compiled(text(), put(tmp_path, FILES))["bundle.toml"]
    assert compiled(text(), str(tmp_path))["bundle.toml"] == before
    (tmp_path / "rows/test/held.jsonl").write_text(ROW)
    after = compiled(text(), str(tmp_path))["bundle.toml"]
    lines = [line for line in before.decode().splitlines() if line.startswith("digest = ")]
    assert lines
    assert lines != [line for line in after.decode().splitlines() if line.startswith("digest = ")]


def test_rows_of_each_file_are_looked_at(tmp_path: Path) -> None:
    root = put(tmp_path, {**FILES, "rows/train/b.jsonl": ROW + '{"messages": []}\n'})
    found = checked(text(), root)
    assert any("rows/train/b.jsonl" in one.message for one in found.problems if one.severity == "error"), shown(found)


@pytest.mark.parametrize("large", [False, True])
def test_a_check_holds_until_a_file_of_the_folder_changes(
    large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """xpc caches the result of checking a file. If one file of a folder changes, the cached results of the folder's
    other files stay valid.
    """
    monkeypatch.setattr(file_memory, "SETTLED", -3600.0)
    if large:
        monkeypatch.setattr(compiling, "MAX_DATA", 700)
    root = put(tmp_path / "work", {**FILES, "t.xp": text()})
    environment = {"XPC_CACHE": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def check() -> str:
        return xpc("check", "t.xp", cwd=root, env=environment).stdout.decode()

    first = check()
    assert check() == first
    assert "error" not in first
    (tmp_path / "work/rows/train/b.jsonl").write_text('{"messages": []}\n' if large else ROW + '{"messages": []}\n')
    for name in ("train/a.jsonl", "test/held.jsonl") if large else ():
        (tmp_path / "work/rows" / name).write_text(ROW)  # now all files are small enough to be read
    assert "of `rows/train/b.jsonl` is not a row" in check()
    (tmp_path / "work/rows/train/b.jsonl").write_text(ROW)
    (tmp_path / "work/rows/train/z.jsonl").write_text('{"messages": []}\n')
    assert "of `rows/train/z.jsonl` is not a row" in check()


def test_what_is_remembered_of_a_file_is_checked_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_memory, "SETTLED", -3600.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("XPC_CACHE", raising=False)
    root = put(tmp_path / "work", {**FILES, "rows/train/b.jsonl": ROW + ROW.replace('"4"', '" "')})
    answers = []
    for _ in range(2):
        workspace = Workspace(root, memory=user_memory(), copies=False)
        answers.append(shown(check_text(text().encode(), "t.xp", workspace)))
    assert "XP533" in answers[0]
    assert answers[0] == answers[1]


def test_a_large_folder_waits_for_no_hash_in_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "MAX_DATA", 1000)
    workspace = Workspace(put(tmp_path, FILES), copies=False)
    found = check_text(text().encode(), "t.xp", workspace)
    assert found.spec is not None, shown(found)
    assert {part.sha256 for part in found.spec.data[0].parts} == {None}


@pytest.mark.parametrize(
    ("name", "split"),
    [("training", "train"), ("valid", "validation"), ("dev", "validation"), ("val", "validation"), ("testing", "test"),
     ("eval", "test"), ("evaluation", "test")],
)  # fmt: skip
def test_other_words_of_a_split_name_its_files(name: str, split: str) -> None:
    """A file belongs to a split if its name is one of the datasets library's words for the split. The words are
    SPLIT_KEYWORDS in `data_files.py` of datasets 5.2.
    """
    names = [f"{name}.jsonl", "other.jsonl"]
    assert split_files.of_split(names, split) == names[:1]


def test_three_files_stand_for_many(tmp_path: Path) -> None:
    wrong = {f"rows/{number}.jsonl": '{"messages": []}\n' for number in range(9)}
    found = of(checked(text(), put(tmp_path, wrong)), "XP554")
    assert len(found) == 3
    assert found[-1].message.endswith("; 6 more like this")


def test_a_folder_to_evaluate_on_is_its_test_split(tmp_path: Path) -> None:
    root = put(tmp_path, {**FILES, "own.jsonl": ROW.replace("2 + 2?", "own") * 40})
    data = stated(compiled(text('eval(data="rows")', data='"own.jsonl"'), root))
    assert data["evaluation"]["sets"][0]["sources"][0]["split"] == "test"


def test_a_file_that_folders_of_splits_hide_is_named(tmp_path: Path) -> None:
    root = put(tmp_path, {"rows/train/a.jsonl": ROW * 6, "rows/test.jsonl": ROW * 2})
    found = only(checked(text("eval(every=epoch, split=test)"), root), "XP580")
    assert (
        found.help
        == "datasets ignores `test.jsonl`, because the folder also has folders for splits (train): move it into `test/`"
    )
    os.makedirs(os.path.join(root, "rows", "test"))
    os.rename(os.path.join(root, "rows", "test.jsonl"), os.path.join(root, "rows", "test", "test.jsonl"))
    assert not errors(checked(text("eval(every=epoch, split=test)"), root))


def test_what_is_no_data_folder_is_refused(tmp_path: Path) -> None:
    root = put(tmp_path, {"empty/README.md": "x", "rows/a.jsonl": ROW * 9})
    assert errors(checked(text(data='"empty"'), root)) == ["XP110"]


@pytest.mark.parametrize(("name", "why"), [(b"train-\xff.jsonl", "it is not UTF-8"), (b"train-\n.jsonl", "control")])
def test_a_file_whose_name_bundle_toml_cannot_contain_is_refused(name: bytes, why: str, tmp_path: Path) -> None:
    root = put(tmp_path, FILES)
    (Path(root) / "rows" / os.fsdecode(name)).write_text(ROW)
    found = only(checked(text(), root), "XP110")
    assert why in found.message, found
    os.symlink(tmp_path, tmp_path / "rows" / "round")
    (found,) = of(checked(text(), root), "XP114")
    assert "link to a folder" in found.message


@pytest.mark.slow  # imports the datasets library
@pytest.mark.parametrize("names", LAYOUTS, ids=lambda names: names[0])
def test_splits_are_those_of_the_datasets_library(names: list[str], tmp_path: Path) -> None:
    from datasets.data_files import DataFilesList, get_data_patterns

    root = put(tmp_path, dict.fromkeys(names, ROW))
    patterns = get_data_patterns(root)
    for split in {*map(str, patterns), "train", "validation", "test"}:
        theirs = DataFilesList.from_patterns(patterns[split], base_path=root) if split in patterns else []
        found = folders.of_split(tuple(names), split)
        assert list(found) == sorted(os.path.relpath(one, root) for one in theirs), split


@pytest.mark.parametrize("named", ["..", ".", "../", "/", "sub/../.."])
def test_a_folder_that_holds_the_spec_is_refused(named: str, tmp_path: Path) -> None:
    root = put(tmp_path / "home" / "specs", {"rows.jsonl": ROW, "sub/x": ""})
    put(tmp_path / "home", {"mine.json": "{}"})
    found = only(checked(spec(train=f'qwen2.5-3b on "{named}" for 3 epochs'), root), "XP114")
    assert "contains the spec itself" in found.message
