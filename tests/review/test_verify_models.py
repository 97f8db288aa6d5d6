"""`xpc verify` and local models. A bundle and a lock have the digests of the model's files. The files themselves may
have been moved to another folder.
"""

import os

import pytest
from case_support import ROW
from compile_support import LOCAL, LOCAL_MODEL, put, xpc

from xpc.compiler.files import file_digests, file_memory

pytestmark = pytest.mark.slow

MODEL = {**LOCAL_MODEL, "vocab.txt": "a\nb\n", "merges.txt": "a b\n"}


@pytest.fixture
def location(tmp_path):
    put(tmp_path / "s" / "models" / "tiny", MODEL)
    put(tmp_path / "s", {"x.xp": LOCAL, "rows.jsonl": ROW * 40, "models/tiny/optimizer.pt": "state"})
    return tmp_path / "s"


def run(location, *words, **env):
    done = xpc(*words, cwd=str(location), env={"XPC_CACHE": "", "XDG_CACHE_HOME": str(location / "cache"), **env})
    return done.returncode, done.stdout.decode() + done.stderr.decode()


@pytest.mark.parametrize("name", MODEL)
def test_an_edited_file_of_the_model_is_reported(location, name):
    assert run(location, "compile", "x.xp")[0] == 0
    assert run(location, "verify", "x.bundle") == (0, "x.bundle is what its spec compiles to\n")
    path = location / "models" / "tiny" / name
    data = path.read_bytes()
    path.write_bytes(data + b" ")
    status, out = run(location, "verify", "x.bundle")
    assert (status, f"models/tiny/{name}" in out) == (1, True), out
    path.write_bytes(data)
    assert run(location, "verify", "x.bundle")[0] == 0
    os.remove(path)
    status, out = run(location, "verify", "x.bundle")
    assert (status, "models/tiny" in out) == (1, True), out


def test_an_added_file_of_the_model_is_reported(location):
    assert run(location, "compile", "x.xp")[0] == 0
    put(location, {"models/tiny/added_tokens.json": "{}"})
    status, out = run(location, "verify", "x.bundle")
    assert (status, "models/tiny/added_tokens.json, a file of a local model, was not there" in out) == (1, True), out


@pytest.mark.parametrize("name", ["parts", "additional_chat_templates"])
def test_files_behind_a_link_to_a_folder_are_compared(location, tmp_path, name):
    """If the index names `parts/a.safetensors`, loading the model reads this file even if `parts` is a link. So verify
    compares it, too.
    """
    put(tmp_path / "store", {"a.safetensors": b"w" * 400, "b.jinja": "{{ messages }}", "again/c.json": "{}"})
    (tmp_path / "store" / "circle").symlink_to("..")
    (location / "models" / "tiny" / name).symlink_to(tmp_path / "store")
    assert run(location, "compile", "x.xp")[0] == 0
    stated = (location / "x.bundle" / "bundle.toml").read_text()
    for one in ("a.safetensors", "b.jinja"):
        assert f'"models/tiny/{name}/{one}" = "sha256:' in stated
    assert "circle" not in stated
    assert run(location, "verify", "x.bundle")[0] == 0
    put(tmp_path / "store", {"a.safetensors": b"v" * 400})
    status, out = run(location, "verify", "x.bundle")
    assert (status, f"models/tiny/{name}/a.safetensors" in out) == (1, True), out


def test_digests_removed_from_the_manifest_are_reported(location):
    from xpc.compiler.files.bundle import sealed

    assert run(location, "compile", "x.xp")[0] == 0
    path = location / "x.bundle" / "bundle.toml"
    head, _, rest = path.read_bytes().rpartition(b"# The lines above")[0].partition(b"[weights]\n")
    path.write_bytes(sealed(head + b"[assumed]" + rest.partition(b"[assumed]")[2]))
    assert run(location, "verify", "x.bundle")[0] == 1


def test_check_hashes_no_weights(location, monkeypatch):
    monkeypatch.setattr(file_digests, "file_digest", lambda *_: pytest.fail("hashed"))
    os.remove(location / "models" / "tiny" / "model.safetensors")
    os.mkfifo(location / "models" / "tiny" / "model.safetensors")
    assert run(location, "check", "x.xp")[0] == 0


def test_quick_trusts_size_times_and_inode(location, monkeypatch):
    monkeypatch.setattr(file_memory, "SETTLED", -1.0)
    assert run(location, "compile", "x.xp")[0] == 0
    file_digests._known.clear()
    monkeypatch.setattr(file_digests, "_read", lambda path: pytest.fail(path))
    status, out = run(location, "verify", "x.bundle", "--quick")
    assert (status, "compared by size, times and inode" in out) == (0, True), out
    monkeypatch.undo()
    (location / "models" / "tiny" / "model.safetensors").write_bytes(b"v" * 4000)
    assert run(location, "verify", "x.bundle", "--quick")[0] == 1


@pytest.mark.parametrize("words", [["--spec", "x.xp", "x.bundle"], ["--all"]])
def test_quick_reads_no_weights_for_the_spec_and_the_lock(location, monkeypatch, words):
    """`verify --quick` compiles the spec without reading the weights of local models. It says how the weights are
    compared instead.
    """
    monkeypatch.setattr(file_memory, "SETTLED", -1.0)
    # status 1, because the lock pins no packages yet
    assert run(location, "lock", "x.xp")[0] == 1
    file_digests._known.clear()
    assert run(location, "compile", "x.xp")[0] == 0
    file_digests._known.clear()
    with monkeypatch.context() as patched:
        patched.setattr(file_digests, "_read", lambda path: pytest.fail(path))
        out = run(location, "verify", *words, "--quick")[1]
    assert "x.xp compiles to; the files of local models were compared by size, times and inode" in out
    assert "compared by size" not in run(location, "verify", *words)[1]


def test_a_bundle_elsewhere_finds_its_model_below_the_data_root(location, tmp_path):
    status, out = run(location, "compile", "x.xp", "-o", "../away/x.bundle")
    assert (status, "models/tiny is not next to the bundle: XPC_DATA_ROOT=." in out) == (0, True), out
    status, out = run(location, "verify", "../away/x.bundle")
    assert (status, "XPC_DATA_ROOT names the folder" in out) == (1, True), out
    assert run(location, "verify", "../away/x.bundle", XPC_DATA_ROOT=str(location))[0] == 0


def test_the_lock_has_the_digests(location):
    # status 1, because the lock pins no packages yet
    assert run(location, "lock", "x.xp")[0] == 1
    assert "models/tiny/model.safetensors" in (location / "x.xp.lock").read_text()
    assert "optimizer.pt" not in (location / "x.xp.lock").read_text()
    (location / "models" / "tiny" / "model.safetensors").write_bytes(b"v" * 4000)
    status, out = run(location, "compile", "x.xp", "--locked")
    assert (status, "models/tiny/model.safetensors has changed" in out) == (1, True), out


def test_hashing_shows_progress(location, monkeypatch):
    monkeypatch.setattr(file_digests, "BLOCK", 1000)
    monkeypatch.setattr(file_digests, "SHOWN", 2000)
    file_digests._known.clear()
    status, out = run(location, "compile", "x.xp")
    assert (status, "hashing: " in out) == (0, True), out
