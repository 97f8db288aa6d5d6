"""If a file of a local model or of its tokenizer changes, `xpc diff` and the comment on a pull request report it."""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from case_support import ROW
from compile_support import LOCAL, LOCAL_MODEL, put, xpc
from git_commands import branch_off, git

from xpc.compiler.files import file_digests
from xpc.compiler.review import diff
from xpc.compiler.review.pull_request.entries import entries

pytestmark = pytest.mark.slow

WEIGHTS = "models/tiny/model.safetensors"


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put(tmp_path / "models" / "tiny", LOCAL_MODEL)
    put(tmp_path, {"x.xp": LOCAL, "rows.jsonl": ROW * 40})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compiled(bundle: str) -> None:
    done = xpc("compile", "x.xp", "-o", bundle)
    assert done.returncode == 0, done.stdout


def compared(*words: str) -> tuple[str, int]:
    return diff.run(diff.parse([*words, "--exit-code"]))


def short(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]


@pytest.mark.parametrize("more", ["", "sweep { lr = [1e-5, 2e-5] }\n"])
def test_bundles_of_other_weights_differ(location: Path, more: str) -> None:
    """One bundle is compiled before the model's weights change, and one after it. They differ only in the digests in
    bundle.toml, and `diff` reports it.
    """
    put(location, {"x.xp": LOCAL + more})
    compiled("a.bundle")
    compiled("b.bundle")
    assert compared("a.bundle", "b.bundle")[1] == 0
    put(location, {WEIGHTS: b"v" * 4000})
    compiled("c.bundle")
    text, status = compared("a.bundle", "c.bundle")
    assert status == 1
    assert f"{WEIGHTS} {short(b'w' * 4000)} -> {short(b'v' * 4000)}" in text.partition("\n")[0]
    assert compared("a.bundle", "x.xp")[1] == 1
    assert compared("c.bundle", "x.xp")[1] == 0


def test_a_file_that_is_new_or_gone(location: Path) -> None:
    compiled("a.bundle")
    put(location, {"models/tiny/added_tokens.json": "{}"})
    text, status = compared("a.bundle", "x.xp")
    assert (status, "models/tiny/added_tokens.json absent -> " in text) == (1, True)


def test_a_model_in_a_commit_is_compared(location: Path) -> None:
    branch_off(".")
    assert compared("main:x.xp", "x.xp")[1] == 0
    put(location, {"models/tiny/tokenizer.json": "{ }"})
    text, status = compared("main:x.xp", "x.xp")
    assert (status, text.startswith("models/tiny/tokenizer.json ")) == (1, True), text
    git(".", "commit", "-qam", "another tokenizer")
    assert [one.line.partition(" ")[0] for one in entries(".", "main")] == ["models/tiny/tokenizer.json"]


def test_a_model_that_is_in_no_commit_is_not_read(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branch_off(".", "x.xp", "rows.jsonl")
    file_digests._known.clear()
    monkeypatch.setattr(file_digests, "_read", lambda path: pytest.fail(path))
    assert compared("main:x.xp", "x.xp")[1] == 0


def test_a_pointer_of_git_lfs_is_the_file_that_it_stands_for(location: Path) -> None:
    data = (location / WEIGHTS).read_bytes()
    put(location, {WEIGHTS: f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(data).hexdigest()}\n"
                         f"size {len(data)}\n"})  # fmt: skip
    branch_off(".")
    put(location, {WEIGHTS: data})
    assert compared("main:x.xp", "x.xp")[1] == 0
    put(location, {WEIGHTS: data + b"!"})
    assert compared("main:x.xp", "x.xp")[1] == 1


def test_the_first_line_names_a_file_next_to_a_setting(location: Path) -> None:
    compiled("a.bundle")
    put(location, {WEIGHTS: b"v" * 4000, "x.xp": LOCAL.replace("seq = 256", "seq = 128")})
    assert f"; {WEIGHTS} {short(b'w' * 4000)} -> " in compared("a.bundle", "x.xp")[0].partition("\n")[0]


def test_another_model_is_a_setting(location: Path) -> None:
    put(location / "models" / "other", {**LOCAL_MODEL, "model.safetensors": b"v"})
    put(location, {"y.xp": LOCAL.replace("models/tiny", "models/other")})
    text = compared("x.xp", "y.xp")[0]
    assert text.startswith("model models/tiny -> models/other")
    assert "Files of local models" not in text


def test_pipes_and_links_to_nothing_are_not_waited_for(location: Path) -> None:
    compiled("a.bundle")
    os.remove(location / WEIGHTS)
    os.mkfifo(location / WEIGHTS)
    text, status = compared("a.bundle", "x.xp")
    assert (status, "-> unreadable" in text) == (1, True)


def test_a_new_file_in_a_folder_of_the_model_is_reported(location: Path) -> None:
    """A new file in the model's folder is reported if transformers would read it, such as
    `additional_chat_templates/tool_use.jinja`, which transformers uses for rows with tools.
    """
    compiled("a.bundle")
    branch_off(".", ".")
    put(location, {"models/tiny/additional_chat_templates/tool_use.jinja": "x"})
    for before in ("main:x.xp", "a.bundle"):
        text, status = compared(before, "x.xp")
        assert (status, "additional_chat_templates/tool_use.jinja absent -> " in text) == (1, True), text


@pytest.mark.parametrize("more", ["", "sweep { lr = [1e-5, 2e-5] }\n"])
def test_a_bundle_without_its_digests_of_the_model_is_reported(location: Path, more: str) -> None:
    """If the digests of the model are deleted from bundle.toml, a launch does not compare the model's files. `xpc diff`
    must report this.
    """
    put(location, {"x.xp": LOCAL + more})
    compiled("a.bundle")
    compiled("b.bundle")
    for manifest in (location / "b.bundle").rglob("bundle.toml"):
        above, _, rest = manifest.read_text().partition("[weights]\n")
        manifest.write_text(above + "[" + rest.partition("\n[")[2])
    for one, other in (("a.bundle", "b.bundle"), ("b.bundle", "a.bundle")):
        text, status = compared(one, other)
        assert (status, "has a digest of models/tiny/" in text) == (4, True), text


FOREIGN = f'"models/other/model.safetensors" = "sha256:{"1" * 64}"\n'


@pytest.mark.parametrize("more", ["", "sweep { lr = [1e-5, 2e-5] }\n"])
@pytest.mark.parametrize("head", ["[weights]\n", "[weights] # x\n", "weights.", "[ weights ]\n"])
def test_a_digest_of_a_file_of_no_local_model_is_reported(head: str, more: str, location: Path) -> None:
    """bundle.toml may have a digest of a model file although the run has no local model. `xpc diff` reports this; it
    once ignored it.
    """
    put(location, {"x.xp": LOCAL.replace('"models/tiny"', "qwen2.5-0.5b").replace("cpu", "h100-80gb") + more})
    compiled("a.bundle")
    compiled("b.bundle")
    for manifest in (location / "b.bundle").rglob("bundle.toml"):
        text = manifest.read_text()
        manifest.write_text(head + FOREIGN + text if head == "weights." else text + head + FOREIGN)
    for one, other in (("a.bundle", "b.bundle"), ("b.bundle", "a.bundle")):
        text, status = compared(one, other)
        assert (status, "differs in the digest of models/other/model.safetensors" in text) == (4, True), text


def test_another_digest_of_a_file_of_no_local_model_is_reported(location: Path) -> None:
    compiled("a.bundle")
    path = location / "a.bundle" / "bundle.toml"
    path.write_text(path.read_text().replace("[weights]\n", "[weights]\n" + FOREIGN))
    shutil.copytree("a.bundle", "b.bundle")
    assert compared("a.bundle", "b.bundle")[1] == 0
    path.write_text(path.read_text().replace("1" * 64, "2" * 64))
    assert compared("a.bundle", "b.bundle")[1] == 4
