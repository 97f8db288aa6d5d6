"""The compiler writes a bundle completely or not at all, and with the same bytes in every environment. It never
replaces a folder that is not a bundle.
"""

import hashlib
import json
import os
import subprocess
import tomllib
from functools import cache

import pytest
from case_support import ROW, on_cpu, spec
from compile_support import CONFIG, SEED, SENTENCE, compiled, put, tree, xpc_process

from xpc.compiler.files import atomic
from xpc.compiler.files.bundle import BundleError, write

FILES = {"README.md": b"new\n", "launch.sh": b"#!/bin/sh\n", "trainer/main.py": b"pass\n", "bundle.toml": b"[files]\n"}


def is_executable(path):
    return bool(os.stat(path).st_mode & 0o111)


# -- a bundle is written completely or not at all -------------------------------------------------------------------


def test_bundle_is_written_completely(tmp_path):
    assert write(FILES, str(tmp_path / "new")) is None
    assert tree(tmp_path / "new") == FILES
    assert is_executable(tmp_path / "new" / "launch.sh")
    assert not is_executable(tmp_path / "new" / "README.md")
    assert os.listdir(tmp_path) == ["new"]


def test_a_missing_parent_is_made(tmp_path):
    write(FILES, str(tmp_path / "a" / "b" / "new"))
    assert tree(tmp_path / "a" / "b" / "new") == FILES


@pytest.mark.parametrize("fail_at", range(1, 5))
def test_a_failure_while_writing_leaves_nothing(tmp_path, monkeypatch, fail_at):
    calls = []
    real = open

    def failing(path, mode="r", *rest, **named):
        if "w" in mode:
            calls.append(path)
            if len(calls) == fail_at:
                raise OSError(28, "No space left on device")
        return real(path, mode, *rest, **named)

    monkeypatch.setattr("builtins.open", failing)
    with pytest.raises(BundleError, match="No space left"):
        write(FILES, str(tmp_path / "new"))
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("fail_at", [1, 2])
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_a_failure_while_replacing_leaves_the_old_bundle(tmp_path, monkeypatch, fail_at, error):
    """If the kernel cannot exchange two names atomically, the compiler replaces a bundle by two renames. If either
    rename fails, the old bundle stays.
    """
    monkeypatch.setattr(atomic, "exchange", lambda one, other: False)
    old = compiled(spec())
    write(old, str(tmp_path / "b"))
    calls = []
    real = os.rename

    def failing(source, target):
        calls.append(source)
        if len(calls) == fail_at:
            raise error
        real(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises((BundleError, KeyboardInterrupt)):
        write(compiled(spec("seed 1")), str(tmp_path / "b"))
    monkeypatch.undo()
    assert tree(tmp_path) == {os.path.join("b", name): data for name, data in old.items()}


def test_a_name_outside_of_the_bundle_is_refused(tmp_path):
    for name in ("../evil", "a/../../evil", "/etc/evil"):
        with pytest.raises(BundleError, match="outside"):
            write({name: b""}, str(tmp_path / "new"))
    assert os.listdir(tmp_path) == []


# -- an output path that already exists ------------------------------------------------------------------------------


def test_an_old_bundle_is_replaced(tmp_path):
    out = str(tmp_path / "b")
    write(compiled(spec()), out)
    second = compiled(spec("seed 1", strategy="ddp"))
    assert write(second, out) is None
    assert tree(out) == second  # the first bundle had a deepspeed.json; the second one lacks it, so it is deleted
    assert os.listdir(tmp_path) == ["b"]


def test_an_empty_folder_is_used(tmp_path):
    (tmp_path / "b").mkdir()
    assert write(FILES, str(tmp_path / "b")) is None
    assert tree(tmp_path / "b") == FILES


IGNORED = "__pycache__"


def note(out):
    """Append a line to a bundle's bundle.toml, as a user might."""
    with open(os.path.join(out, "bundle.toml"), "a") as handle:
        handle.write("# ran on Tuesday, diverged\n")


@cache
def bundle(*lines):
    """The files of a bundle, for tests that only write them."""
    return compiled(spec(*lines))


FOREIGN = [
    ("not a bundle", lambda out: put(out, {"notes.txt": "mine"})),
    ("a foreign file", lambda out: (write(bundle(), out), put(out, {"notes.txt": "mine"}))),
    ("a foreign file in a folder", lambda out: (write(bundle(), out), put(out, {"trainer/mine.py": "mine"}))),
    ("a changed file", lambda out: (write(bundle(), out), put(out, {"launch.sh": "mine"}))),
    ("checkpoints", lambda out: (write(bundle(), out), put(out, {"out/checkpoint-1/model.bin": "mine"}))),
    ("broken bundle.toml", lambda out: (write(bundle(), out), put(out, {"bundle.toml": "mine = "}))),
    ("odd bundle.toml", lambda out: put(out, {"bundle.toml": "bundle = 5\nfiles = {}\n"})),
    ("deep bundle.toml", lambda out: put(out, {"bundle.toml": "a = " + "[" * 5000 + "]" * 5000 + "\n"})),
    ("notes in bundle.toml", lambda out: (write(bundle(), out), note(out))),
    ("an empty folder", lambda out: (write(bundle(), out), os.mkdir(os.path.join(out, "mine")))),
    ("an empty folder inside", lambda out: (write(bundle(), out), os.mkdir(os.path.join(out, "trainer/mine")))),
    ("notes in __pycache__", lambda out: (write(bundle(), out), put(out, {"__pycache__/notes.txt": "mine"}))),
    ("a linked __pycache__", lambda out: (write(bundle(), out), os.symlink("/", os.path.join(out, IGNORED)))),
    ("a linked folder", lambda out: (write(bundle(), out), os.symlink("/", os.path.join(out, "mine")))),
    ("a linked file", lambda out: (write(bundle(), out), os.symlink("/nowhere", os.path.join(out, "mine")))),
]


@pytest.mark.parametrize("make", [make for _, make in FOREIGN], ids=[name for name, _ in FOREIGN])
def test_work_of_others_is_refused_and_with_force_moved_aside(tmp_path, make):
    out = str(tmp_path / "b")
    make(out)
    before = tree(out)
    with pytest.raises(BundleError, match="--force"):
        write(bundle("seed 1"), out)
    assert tree(out) == before
    assert os.listdir(tmp_path) == ["b"]
    moved = write(bundle("seed 1"), out, force=True)
    assert moved == os.path.join(os.path.realpath(tmp_path), "b.before-1")
    assert tree(moved) == before
    assert tree(out) == bundle("seed 1")
    put(out, {"more.txt": "mine"})
    assert (write(bundle(), out, force=True) or "").endswith("b.before-2")
    assert sorted(os.listdir(tmp_path)) == ["b", "b.before-1", "b.before-2"]


def test_a_file_in_the_way_is_kept_or_moved_by_force(tmp_path):
    put(tmp_path, {"b": "mine"})
    with pytest.raises(BundleError, match="is a file"):
        write(FILES, str(tmp_path / "b"))
    assert write(FILES, str(tmp_path / "b"), force=True)
    assert (tmp_path / "b.before-1").read_text() == "mine"


def test_a_parent_that_is_a_file(tmp_path):
    put(tmp_path, {"b": "mine"})
    with pytest.raises(BundleError, match="cannot be written"):
        write(FILES, str(tmp_path / "b" / "new"))
    assert (tmp_path / "b").read_text() == "mine"


def test_compiled_modules_of_a_run_are_nobodys_work(tmp_path):
    out = str(tmp_path / "b")
    write(compiled(spec()), out)
    put(out, {"trainer/__pycache__/main.cpython-311.pyc": "x"})
    assert write(compiled(spec("seed 1")), out) is None
    assert tree(out) == compiled(spec("seed 1"))


def test_a_link_to_a_folder_is_written_through(tmp_path):
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "b")
    write(compiled(spec()), str(tmp_path / "b"))
    assert os.path.islink(tmp_path / "b")
    assert tree(tmp_path / "real") == compiled(spec())
    assert sorted(os.listdir(tmp_path)) == ["b", "real"]


def test_a_dangling_link_gets_its_folder(tmp_path):
    os.symlink("later", tmp_path / "b")
    write(FILES, str(tmp_path / "b"))
    assert tree(tmp_path / "later") == FILES


def test_a_long_name(tmp_path):
    name = "\U0001f600" * 60
    write(compiled(spec()), str(tmp_path / name))
    write(compiled(spec("seed 1")), str(tmp_path / name))
    assert os.listdir(tmp_path) == [name]
    with pytest.raises(BundleError):
        write(FILES, str(tmp_path / ("a" * 300)))


# -- the same bytes -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_bundle_has_the_same_bytes_everywhere(tmp_path):
    """The bytes of a bundle do not depend on the working directory, the locale, the timezone, the hash seed or the
    parent folder, nor on whether the path is relative or absolute.
    """
    files = {
        "specs/t.xp": spec(
            'model(chat_template=file("../chatml.jinja"))', train='qwen2.5-3b on "rows.jsonl" for 3 epochs'
        ).replace("xpc 1\n", 'xpc 1\nextends "base/base.xp"\n'),
        "specs/base/base.xp": "seed 7\n",
        "chatml.jinja": "{{ messages }}\u00e9\n",
        "specs/rows.jsonl": ROW,
    }
    first, second = put(tmp_path / "first", files), put(tmp_path / "other place" / "second \u00e9", files)
    ways = [
        (first, "specs/t.xp", {"LC_ALL": "C", "TZ": "UTC", "PYTHONHASHSEED": "0"}),
        (first + "/specs", "t.xp", {"LC_ALL": "de_DE.UTF-8", "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "1"}),
        (second, "specs/t.xp", {"LC_ALL": "C.UTF-8", "TZ": "America/St_Johns", "PYTHONHASHSEED": "12345"}),
        (second + "/specs/base", "../t.xp", {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONHASHSEED": "7"}),
        ("/", second + "/specs/t.xp", {"LANG": "tr_TR.UTF-8", "HOME": "/nonexistent", "PYTHONHASHSEED": "99"}),
    ]
    seen = []
    for number, (cwd, path, env) in enumerate(ways):
        out = str(tmp_path / f"out{number}")
        done = xpc_process("compile", path, "-o", out, cwd=cwd, env=env)
        assert done.returncode == 0, done.stderr
        seen.append(tree(out))
    assert all(one == seen[0] for one in seen[1:])
    assert len(seen[0]) > 10
    assert not [name for name, data in seen[0].items() if str(tmp_path).encode() in data]


# -- files of a bundle ----------------------------------------------------------------------------------------------


def test_bundle_toml_is_read_by_the_standard_library_and_its_digests_match():
    files = compiled(SEED, name="seed.xp")
    table = tomllib.loads(files["bundle.toml"].decode())
    assert set(table["files"]) == set(files) - {"bundle.toml"}
    for name, digest in table["files"].items():
        assert digest == "sha256:" + hashlib.sha256(files[name]).hexdigest()
    assert table["bundle"]["spec_digest"] == "sha256:" + hashlib.sha256(SEED.encode()).hexdigest()
    assert table["bundle"]["target"] == "trl-1.16"
    assert table["bundle"]["spec"] == "seed.xp"
    assert "batch.accum" in table["assumed"]
    assert "batch.gbs" not in table["assumed"]
    for line in files["requirements.txt"].decode().splitlines():
        package, _, version = line.partition("==")
        assert table["pins"][package] == version


ODD = (
    "c:\\xyz",
    "a\\\\x41b",
    '"quoted"',
    "\\u0041 \\n",
    "caf\u00e9 \U0001f600",
    "a # b = [c]",
    "x'y'''z",
    "{{ }} %s $(id)",
)


@pytest.mark.parametrize("name", ODD)
def test_texts_survive_toml_json_and_the_spec(name):
    written = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    files = compiled(
        spec(
            f"track tensorboard(name={written})",
            "data(format=messages)",
            train=f"{written} on {written} for 3 epochs",
            save=f'save "out-{written[1:]}',
        ).replace("train " + written, "train qwen2.5-3b")
    )
    assert tomllib.loads(files["bundle.toml"].decode())["data"][0]["path"] == name
    arguments = json.loads(files["trainer_args.json"])
    assert arguments["data"]["sources"][0]["path"] == name
    assert (arguments["arguments"]["output_dir"], arguments["arguments"]["run_name"]) == (f"out-{name}", name)
    again = compiled(files["spec.xp"])
    assert again["trainer_args.json"] == files["trainer_args.json"]


def test_input_names_survive_toml(tmp_path):
    name = 'c\\xyz "q" \u00e9.jinja'
    written = name.replace("\\", "\\\\").replace('"', '\\"')
    files = compiled(spec(f'model(chat_template=file("{written}"))'), put(tmp_path, {name: "{{ messages }}"}))
    assert name in tomllib.loads(files["bundle.toml"].decode())["inputs"]


def test_zero_alone_has_a_deepspeed_file():
    assert "deepspeed.json" in compiled(spec(strategy="zero2"))
    assert "deepspeed.json" not in compiled(spec(strategy="fsdp"))
    assert "deepspeed.json" not in compiled(spec(strategy="ddp"))


LAUNCHES = {
    "zero": SENTENCE,
    "seed": SEED,
    "cpu": on_cpu(strategy="ddp"),
    "one-cpu": "train gpt2 on alpaca with cpu\n",
    "one-gpu": spec(hardware="h100-80gb", strategy="ddp"),
    "fsdp": spec(strategy="fsdp"),
    "nodes": spec("nodes 2", batch="gbs=128 micro=8"),
    "torchrun": spec("launch(launcher=torchrun)"),
    "torchrun-nodes": spec("nodes 2", "launch(launcher=torchrun)", batch="gbs=128 micro=8"),
    "hsdp": spec("nodes 2", strategy="hsdp", batch="gbs=128 micro=8"),
    "older": spec("target trl-0.18"),
    "older-nodes": spec("target trl-0.18", "nodes 3", batch="gbs=48 micro=1"),
    "torchrun-cpu": on_cpu("launch(launcher=torchrun)"),
}


@pytest.mark.parametrize("name", ["zero", "torchrun", "one-cpu"])
def test_a_dry_run_prints_and_runs_nothing(name, tmp_path):
    out = str(tmp_path / "a b $(touch pwned)")
    write(compiled(LAUNCHES[name]), out)
    script = os.path.join(out, "launch.sh")
    done = subprocess.run([script, "--dry-run"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "trainer/main.py" in done.stdout
    for wrong in (["--lr", "1"], ["--lr=1"], ["$(touch pwned)"], ["x", "y"]):
        done = subprocess.run([script, *wrong], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "launch.sh:" in done.stderr
    assert os.listdir(tmp_path) == ["a b $(touch pwned)"]


def test_no_text_of_the_spec_stands_in_the_launcher(tmp_path):
    evil = "zq7 $(touch pwned) `id`; rm -rf / #'\\\""
    written = '"' + evil.replace("\\", "\\\\").replace('"', '\\"') + '"'
    text = spec(
        f'model(eos={written}, pad={written}, revision={written}, chat_template=file("zq7.jinja"))',
        f"track wandb(name={written}, project={written})",
        f"data(system={written})",
        "data(holdout=5%)",
        "eval(every=epoch)",
        train='"zq7" on "zq7.jsonl" for 3 epochs',
        save=f"save {written}",
        batch="gbs=128 micro=16 seq=512",
    )
    root = put(tmp_path, {"zq7.jinja": "zq7", "zq7.jsonl": ROW * 40, "zq7/config.json": json.dumps(CONFIG)})
    files = compiled(text, root, name="zq7 $(id).xp")
    plain = compiled(spec("track wandb", batch="gbs=128 micro=16 seq=512"))
    assert b"zq7" in files["trainer_args.json"]
    assert files["launch.sh"] == plain["launch.sh"]
    assert files["accelerate.yaml"] == plain["accelerate.yaml"]
    assert files["requirements.txt"] == plain["requirements.txt"]
    assert all("zq7" not in name or name.startswith(("data/zq7-", "files/zq7-")) for name in files)
