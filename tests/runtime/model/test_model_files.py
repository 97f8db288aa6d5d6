"""Before the processes start, a launch compares the files of a local model with the digests in the bundle."""

from __future__ import annotations

import os
import stat
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from case_support import ROW
from compile_support import LOCAL, LOCAL_MODEL, put, xpc

from xpc.compiler.files import file_digests, file_memory
from xpc.compiler.stacks import DEFAULT
from xpc.runtime.core import bundle as bundles
from xpc.runtime.core import bundle_integrity
from xpc.runtime.enabled import FEATURES
from xpc.runtime.features.launch import known_digests, model_files, model_folder

MODEL = {**LOCAL_MODEL, "optimizer.pt": "state", "trainer_state.json": "{}", "summary.json": "{}"}


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle compiled for a local model. Digests of the model's files are not in the cache."""
    put(tmp_path / "models" / "tiny", MODEL)
    put(tmp_path, {"x.xp": LOCAL, "rows.jsonl": ROW * 40})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XPC_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    compiled()
    monkeypatch.delenv("XPC_CACHE")
    return tmp_path


def compiled() -> None:
    done = xpc("compile", "x.xp", "--force", env={"XPC_CACHE": "", **os.environ})
    assert done.returncode == 0, done.stdout


def found(folder: str = "x.bundle") -> list[str]:
    return bundle_integrity.problems(bundles.read(folder, FEATURES))


def test_an_unchanged_model_has_no_finding(location: Path) -> None:
    assert found() == []


def test_a_changed_file_stops_the_run_with_both_digests(location: Path) -> None:
    put(location, {"models/tiny/model.safetensors": b"v" * 4000})
    (line,) = found()
    was, now = (sha256(one * 4000).hexdigest()[:16] for one in (b"w", b"v"))
    assert line == (
        f"models/tiny/model.safetensors has sha256 {now}, and had {was} when this bundle was compiled; put the old "
        "files back, or compile the spec again with the current files"
    )
    compiled()
    assert found() == []


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "tokenizer_config.json"])
def test_the_tokenizer_and_the_configuration_count(name: str, location: Path) -> None:
    with open(location / "models" / "tiny" / name, "a", encoding="utf-8") as handle:
        handle.write(" ")
    assert f"models/tiny/{name} has sha256 " in found()[0]


def test_missing_and_new_files_are_reported(location: Path) -> None:
    put(location, {"models/tiny/added_tokens.json": "{}"})
    assert (
        "models/tiny/added_tokens.json exists now, but did not exist when this bundle was compiled; put" in found()[0]
    )
    os.remove(location / "models" / "tiny" / "tokenizer.json")
    assert (
        "models/tiny/tokenizer.json is missing now, but existed when this bundle was compiled (1 more differ)"
        in found()[0]
    )


def test_files_that_a_new_run_does_not_read(location: Path) -> None:
    put(location / "models" / "tiny", {"optimizer.pt": "x", "summary.json": "x", "checkpoint-1/model.safetensors": "x"})
    assert found() == []


def test_a_model_that_did_not_exist_when_the_bundle_was_compiled(location: Path) -> None:
    text = (location / "x.bundle" / "bundle.toml").read_text()
    (location / "x.bundle" / "bundle.toml").write_text(text.replace('"models/tiny/', '"models/other/'))
    assert found() == []


def test_the_model_below_the_data_root_is_the_one_that_is_compared(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(location / "far" / "models" / "tiny", {**MODEL, "model.safetensors": b"v" * 4000})
    monkeypatch.setenv("XPC_DATA_ROOT", str(location / "far"))
    assert len(found()) == 1


def test_unchanged_files_are_read_once(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_digests, "SETTLED", -1.0)
    assert found() == []
    read: list[str] = []
    monkeypatch.setattr(model_files, "_digest", lambda path: read.append(os.path.basename(path)) or "0")
    assert found() == []
    assert read == []
    put(location, {"models/tiny/model.safetensors": b"v" * 4000})
    assert len(found()) == 1
    assert read == ["model.safetensors"]


@pytest.mark.slow
def test_the_entries_are_those_of_the_compiler(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiler and launch share one cache of digests. So a launch after `compile` computes no digest again, and `verify
    --quick` after a launch computes no digest again.
    """
    monkeypatch.setattr(file_memory, "SETTLED", -1.0)
    monkeypatch.setattr(known_digests, "SETTLED", -1.0)
    file_digests._known.clear()
    compiled()
    with monkeypatch.context() as patched:
        patched.setattr(model_files, "_digest", lambda path: pytest.fail(path))
        assert found() == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(location / "another"))
    assert found() == []
    file_digests._known.clear()
    monkeypatch.setattr(file_digests, "_read", lambda path: pytest.fail(path))
    assert xpc("verify", "x.bundle", "--quick", env={"XPC_CACHE": "", **os.environ}).returncode == 0


def test_what_others_can_write_is_not_believed(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_digests, "SETTLED", -1.0)
    assert found() == []
    folder = location / "cache" / "xpc" / "data"
    path = location / "models" / "tiny" / "tokenizer.json"
    assert known_digests.recall(str(path)) is not None
    assert {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {0o600}
    folder.chmod(0o777)
    assert known_digests.recall(str(path)) is None
    folder.chmod(0o700)
    for one in folder.iterdir():
        one.chmod(0o666)
    assert known_digests.recall(str(path)) is None
    monkeypatch.setenv("XPC_CACHE", "off")
    assert known_digests.recall(str(path)) is None
    monkeypatch.delenv("XPC_CACHE")
    (location / "cache" / "xpc").rename(location / "elsewhere")
    (location / "cache" / "xpc").symlink_to(location / "elsewhere")
    assert known_digests.recall(str(path)) is None
    known_digests.keep(str(path), known_digests.stamp(str(path)), "0" * 64)  # `keep` never raises


def test_the_compiler_and_the_run_mean_the_same_files(location: Path) -> None:
    """The manifest lists exactly the files that a launch compares. It does not list training states, records, hidden
    files, and files deeper than two levels of folders."""
    extra = {"notes.txt": "n", "readme.md": "n", ".hidden.json": "{}", "scaler.pt": "s", "eval_results.json": "{}",
             "parts/a.json": "{}", "parts/b/c.json": "{}", "parts/b/d/e.json": "{}",
             "checkpoint-1/x.json": "{}"}  # fmt: skip
    put(location / "models" / "tiny", extra)
    compiled()
    stated = sorted(name.removeprefix("models/tiny/") for name in model_files.weights("x.bundle"))
    assert stated == model_files.listed("models/tiny")
    assert extra.keys() & set(stated) == {"notes.txt", "parts/a.json", "parts/b/c.json"}


@pytest.mark.slow
def test_a_model_of_links(location: Path, tmp_path: Path) -> None:
    """Files of the model may be behind a link to a folder. An earlier version of the launch reported such
    files as missing, and refused an unchanged model.
    """
    put(tmp_path / "store", {"a.safetensors": b"w" * 400, "b/c.json": "{}", "b/d/e.json": "{}"})
    put(tmp_path / "other", {"f.safetensors": b"w"})
    model = tmp_path / "models" / "tiny"
    (model / "parts").symlink_to("../../store")
    (tmp_path / "store" / "again").symlink_to("../other")
    (model / "itself").symlink_to(".")
    (model / "config.json").rename(tmp_path / "elsewhere.json")
    (model / "config.json").symlink_to("../../elsewhere.json")
    compiled()
    assert found() == []
    stated = model_files.weights("x.bundle")
    for name in ("parts/a.safetensors", "parts/b/c.json", "parts/again/f.safetensors"):
        assert f"models/tiny/{name}" in stated
    assert "models/tiny/parts/b/d/e.json" not in stated  # Only two levels of folders are searched.
    assert not [one for one in stated if "itself" in one]  # This link leads back to the model's own files.
    put(tmp_path / "other", {"f.safetensors": b"v"})
    assert "models/tiny/parts/again/f.safetensors has sha256 " in found()[0]
    assert xpc("verify", "x.bundle").returncode == 1


@pytest.mark.parametrize(("most", "inside"), [(2, ["a/c.json"]), (1, [])])
def test_a_search_ends_after_the_largest_number_of_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, inside: list[str]
) -> None:
    put(tmp_path, {"config.json": "{}", "a/c.json": "{}"})
    monkeypatch.setattr(model_folder, "MOST", most)
    assert model_folder.files(str(tmp_path)) == [*inside, "config.json"]


def test_a_model_with_more_files_than_are_searched(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(location, {"models/tiny/a/b/c.json": "{}"})
    monkeypatch.setattr(model_folder, "MOST", 3)
    compiled()
    assert found() == []
    assert not [one for one in model_files.weights("x.bundle") if "/a/" in one]


@pytest.mark.slow
def test_a_launch_stops_before_it_starts_a_process(tmp_path: Path) -> None:
    """If a model file has changed, the launch stops before it starts a process. With the old file back, the same launch
    trains.
    """
    import tiny
    from forks import shared

    tiny.build(str(tmp_path / "models" / "tiny"))
    put(tmp_path, {"x.xp": LOCAL.replace("1 epochs", "2 steps"), "rows.jsonl": ROW * 40})
    assert xpc("compile", "x.xp", cwd=str(tmp_path)).returncode == 0
    path = tmp_path / "models" / "tiny" / "tokenizer.json"
    data = path.read_text()
    path.write_text(data + "\n")
    environment = {**os.environ, "PYTHON": shared(DEFAULT).python, "HF_HUB_OFFLINE": "1"}
    command = [str(tmp_path / "x.bundle" / "launch.sh")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "models/tiny/tokenizer.json has sha256 " in done.stderr + done.stdout
    path.write_text(data)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
