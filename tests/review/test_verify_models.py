"""`xpc verify` and local models: bundle and lock have digests of the models' files, which may be in another place."""

import os

import pytest
from case_support import ROW
from compile_support import LOCAL, LOCAL_MODEL, put, xpc

from xpc.compiler.files import file_digests, file_memory

MODEL = {**LOCAL_MODEL, "vocab.txt": "a\nb\n", "merges.txt": "a b\n"}


@pytest.fixture
def place(tmp_path):
    put(tmp_path / "s" / "models" / "tiny", MODEL)
    put(tmp_path / "s", {"x.xp": LOCAL, "rows.jsonl": ROW * 40, "models/tiny/optimizer.pt": "state"})
    return tmp_path / "s"


def run(place, *words, **env):
    done = xpc(*words, cwd=str(place), env={"XPC_CACHE": "", "XDG_CACHE_HOME": str(place / "cache"), **env})
    return done.returncode, done.stdout.decode() + done.stderr.decode()


@pytest.mark.parametrize("name", MODEL)
def test_an_edited_file_of_the_model(place, name):
    assert run(place, "compile", "x.xp")[0] == 0
    assert run(place, "verify", "x.bundle") == (0, "x.bundle is what its spec compiles to\n")
    path = place / "models" / "tiny" / name
    data = path.read_bytes()
    path.write_bytes(data + b" ")
    status, out = run(place, "verify", "x.bundle")
    assert (status, f"models/tiny/{name}" in out) == (1, True), out
    path.write_bytes(data)
    assert run(place, "verify", "x.bundle")[0] == 0
    os.remove(path)
    status, out = run(place, "verify", "x.bundle")
    assert (status, "models/tiny" in out) == (1, True), out


def test_an_added_file_of_the_model(place):
    assert run(place, "compile", "x.xp")[0] == 0
    put(place, {"models/tiny/added_tokens.json": "{}"})
    status, out = run(place, "verify", "x.bundle")
    assert (status, "models/tiny/added_tokens.json, a file of a local model, was not there" in out) == (1, True), out


def test_digests_removed_from_the_manifest(place):
    from xpc.compiler.files.bundle import sealed

    assert run(place, "compile", "x.xp")[0] == 0
    path = place / "x.bundle" / "bundle.toml"
    head, _, rest = path.read_bytes().rpartition(b"# The lines above")[0].partition(b"[weights]\n")
    path.write_bytes(sealed(head + b"[assumed]" + rest.partition(b"[assumed]")[2]))
    assert run(place, "verify", "x.bundle")[0] == 1


def test_check_hashes_no_weights(place, monkeypatch):
    monkeypatch.setattr(file_digests, "file_digest", lambda *_: pytest.fail("hashed"))
    os.remove(place / "models" / "tiny" / "model.safetensors")
    os.mkfifo(place / "models" / "tiny" / "model.safetensors")
    assert run(place, "check", "x.xp")[0] == 0


def test_quick_trusts_size_times_and_inode(place, monkeypatch):
    monkeypatch.setattr(file_memory, "SETTLED", -1.0)
    assert run(place, "compile", "x.xp")[0] == 0
    file_digests._known.clear()
    monkeypatch.setattr(file_digests, "_read", lambda path: pytest.fail(path))
    status, out = run(place, "verify", "x.bundle", "--quick")
    assert (status, "compared by size, times and inode" in out) == (0, True), out
    monkeypatch.undo()
    (place / "models" / "tiny" / "model.safetensors").write_bytes(b"v" * 4000)
    assert run(place, "verify", "x.bundle", "--quick")[0] == 1


@pytest.mark.parametrize("words", [["--spec", "x.xp", "x.bundle"], ["--all"]])
def test_quick_reads_no_weights_for_the_spec_and_the_lock(place, monkeypatch, words):
    """The spec was once compiled with all files read again, and the output did not say how they were compared."""
    monkeypatch.setattr(file_memory, "SETTLED", -1.0)
    assert run(place, "lock", "x.xp")[0] == 1  # packages are not pinned
    file_digests._known.clear()
    assert run(place, "compile", "x.xp")[0] == 0
    file_digests._known.clear()
    with monkeypatch.context() as patched:
        patched.setattr(file_digests, "_read", lambda path: pytest.fail(path))
        out = run(place, "verify", *words, "--quick")[1]
    assert "x.xp compiles to; the files of local models were compared by size, times and inode" in out
    assert "compared by size" not in run(place, "verify", *words)[1]


def test_a_bundle_elsewhere_finds_its_model_below_the_data_root(place, tmp_path):
    status, out = run(place, "compile", "x.xp", "-o", "../away/x.bundle")
    assert (status, "models/tiny is not next to it: XPC_DATA_ROOT=." in out) == (0, True), out
    status, out = run(place, "verify", "../away/x.bundle")
    assert (status, "XPC_DATA_ROOT names the folder" in out) == (1, True), out
    assert run(place, "verify", "../away/x.bundle", XPC_DATA_ROOT=str(place))[0] == 0


def test_the_lock_has_the_digests(place):
    assert run(place, "lock", "x.xp")[0] == 1  # packages are not pinned
    assert "models/tiny/model.safetensors" in (place / "x.xp.lock").read_text()
    assert "optimizer.pt" not in (place / "x.xp.lock").read_text()
    (place / "models" / "tiny" / "model.safetensors").write_bytes(b"v" * 4000)
    status, out = run(place, "compile", "x.xp", "--locked")
    assert (status, "models/tiny/model.safetensors has changed" in out) == (1, True), out


def test_hashing_shows_progress(place, monkeypatch):
    monkeypatch.setattr(file_digests, "BLOCK", 1000)
    monkeypatch.setattr(file_digests, "SHOWN", 2000)
    file_digests._known.clear()
    status, out = run(place, "compile", "x.xp")
    assert (status, "hashing: " in out) == (0, True), out
