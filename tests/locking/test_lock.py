"""The tests run `xpc lock` and `--locked` with a fake hub and a fake package index."""

import ast
import json
import os
import subprocess
import sys
import tomllib

import pytest
from compile_support import CONFIG, LOCAL, REPOSITORY, put, tree, xpc
from hub_index import Repository, Served
from interpreters import interpreter
from tiers import nightly_but
from tiny import write_messages

from xpc.compiler import stacks
from xpc.compiler.files.pins import Environment
from xpc.compiler.locking import command

pytestmark = pytest.mark.slow

FIRST, SECOND, THIRD, TEACHER, KERNEL = ("1" * 40, "2" * 40, "3" * 40, "4" * 40, "5" * 40)
SPEC = LOCAL.replace('"models/tiny" on "rows.jsonl"', "me/model on me/rows")
TEMPLATE = b"{% for one in messages %}{{ one.content }}{% endfor %}"
ENTRY = {"features": [{"name": "chosen", "dtype": "string"}, {"name": "prompt"}, {"name": "completion"}],
         "splits": [{"name": "train", "num_examples": 40}, {"name": "test", "num_examples": 7}]}  # fmt: skip


@pytest.fixture
def served():
    pins = stacks.load(stacks.DEFAULT).pins
    with Served() as server:
        files = {
            "config.json": json.dumps(CONFIG).encode(),
            "tokenizer_config.json": b"{}",
            "chat_template.jinja": TEMPLATE,
        }
        server.repositories = {
            ("models", "me/model"): Repository({"main": FIRST, "v1": THIRD}, files),
            ("models", "me/teacher"): Repository({"main": TEACHER}, files),
            ("datasets", "me/rows"): Repository({"main": SECOND}, card={"dataset_info": ENTRY}),
            ("models", "me/closed"): Repository({"main": FIRST}, files, token="hf_read"),
            ("kernels", "kernels-community/flash-attn2"): Repository({"main": FIRST, "v3": SECOND, "v4": KERNEL}),
            ("models", "kernels-community/flash-attn"): Repository({"main": KERNEL}),
        }
        server.packages = dict.fromkeys(pins.items(), ())
        server.packages["torch", pins["torch"]] = ("triton>=3", "filelock")
        server.packages |= {("triton", "3.1"): (), ("triton", "3.7"): (), ("filelock", "3.20"): ()}
        yield server


def run(root, served, *words):
    done = xpc(*words, cwd=str(root), env=served.environment)
    out = done.stdout.decode() + done.stderr.decode()
    assert "broke the compiler" not in out, out
    return done.returncode, out


@pytest.fixture(autouse=True)
def resolver(request, monkeypatch):
    """Replace pip, which takes seconds, by a function that returns the requested packages and one more. Tests with
    `with_pip` in their name use the real pip.
    """
    if "with_pip" not in request.node.name:
        monkeypatch.setattr(
            command,
            "resolve",
            lambda requested, _: {name: Environment(one, (*one, "filelock==3.20")) for name, one in requested.items()},
        )


@pytest.fixture
def locked(tmp_path, served):
    put(tmp_path, {"x.xp": SPEC})
    status, out = run(tmp_path, served, "lock", "x.xp", "--update", "--python", sys.executable)
    assert status == 0, out
    return tmp_path


def table(root, name="x.xp.lock"):
    return tomllib.loads((root / name).read_text())


def payload(root, out="x.bundle"):
    return json.loads((root / out / "trainer_args.json").read_text())


def test_a_lock_pins_commits_packages_and_the_bundle_with_pip(locked, served):
    held = table(locked)
    assert [(one["id"], one["revision"], one["chat"]) for one in held["model"]] == [("me/model", FIRST, True)]
    assert json.loads(held["model"][0]["config"]) == CONFIG
    assert held["dataset"] == [
        {
            "id": "me/rows",
            "revision": SECOND,
            "columns": ["chosen", "prompt", "completion"],
            "rows": {"test": 7, "train": 40},
        }
    ]
    packages = held["environment"]["requirements.txt"]["resolved"]
    assert {"triton==3.7", "filelock==3.20", f"torch=={stacks.load(stacks.DEFAULT).pins['torch']}"} <= set(packages)
    status, out = run(locked, served, "compile", "x.xp", "--locked")
    assert status == 0, out
    assert payload(locked)["model"]["revision"] == FIRST
    # The lock contains the model's config.json, from which the number of parameters is computed.
    assert table(locked, "x.bundle/bundle.toml")["model"]["params"] > 0
    assert [one["revision"] for one in payload(locked)["data"]["sources"]] == [SECOND]
    assert (locked / "x.bundle" / "constraints.txt").read_text().split() == packages
    assert "pip install -r requirements.txt -c constraints.txt" in (locked / "x.bundle" / "README.md").read_text()


def test_rules_apply_to_a_locked_model_and_dataset(locked, served):
    before = xpc("check", "x.xp", cwd=str(put(locked / "other", {"x.xp": SPEC})))
    assert {b"XP109", b"XP111"} <= set(before.stdout.split())
    status, out = run(locked, served, "check", "x.xp")
    assert (status, "XP109" in out, "XP111" in out) == (0, False, False), out
    put(locked, {"x.xp": SPEC.replace("gbs = 4", "gbs = 64").replace("seq = 256", "seq = 1024")})
    status, out = run(locked, served, "check", "x.xp")
    assert "there are 40 rows" in out, out
    assert "1024" in out, out
    assert "512" in out, out  # the length exceeds the model's context of 512 tokens
    put(locked, {"x.xp": SPEC.replace("hardware", "method dpo\nhardware")})
    status, out = run(locked, served, "check", "x.xp")
    assert (status, "dpo cannot train on prompt_completion" in out) == (1, True), out


def test_rows_of_a_registered_dataset_are_those_of_the_pinned_commit(tmp_path, served):
    put(tmp_path, {"x.xp": SPEC.replace("me/rows", "capybara")})
    served.repositories["datasets", "trl-lib/Capybara"] = Repository({"main": SECOND}, card={"dataset_info": ENTRY})
    assert "steps: unknown" in run(tmp_path, served, "plan", "x.xp")[1]
    status, out = run(tmp_path, served, "lock", "x.xp", "--update")
    assert status == 0, out
    assert "steps: 10," in run(tmp_path, served, "plan", "x.xp")[1]


def test_commands_without_update_send_no_request(locked, served):
    served.requested.clear()
    for words in (["lock", "x.xp"], ["check", "x.xp"], ["compile", "x.xp", "--locked"], ["verify", "x.bundle"],
                  ["diff", "x.xp", "x.bundle"]):  # fmt: skip
        status, out = run(locked, served, *words)
        assert status == 0, out
    assert served.requested == []


def test_a_lock_that_is_written_again_is_the_same(locked, served):
    before = (locked / "x.xp.lock").read_bytes()
    assert run(locked, served, "lock", "x.xp")[0] == 0
    assert run(locked, served, "lock", "x.xp", "--update", "--python", sys.executable)[0] == 0
    assert (locked / "x.xp.lock").read_bytes() == before


def test_update_of_one_name_changes_only_that_pin(locked, served):
    served.repositories["models", "me/model"].branches["main"] = THIRD
    served.repositories["datasets", "me/rows"].branches["main"] = THIRD
    status, out = run(locked, served, "lock", "x.xp", "--update", "me/rows")
    assert (status, f"dataset me/rows {SECOND[:12]} -> {THIRD[:12]}" in out) == (0, True), out
    assert [table(locked)[kind][0]["revision"] for kind in ("model", "dataset")] == [FIRST, THIRD]
    assert run(locked, served, "lock", "x.xp", "--update", "me/other")[0] == 2


STALE = {
    "another-branch": ("train me/model", "train me/model@v1", "the model me/model@v1 is not pinned"),
    "another-dataset": ("on me/rows", "on me/others", "the spec no longer names the dataset me/rows"),
    "another-setting": ("gbs = 4", "gbs = 8", "the lock was written for another bundle"),
    "another-stack": ("batch {", "target trl-0.24\nbatch {", "the lock is for trl-1.16"),
    "more-packages": ("batch {", "track wandb\nbatch {", "the packages of requirements.txt are not resolved"),
    "a-file": ("batch {", 'model {\n  chat_template = file("t.jinja")\n}\nbatch {', "t.jinja is not in the lock"),
}


@pytest.mark.parametrize(("old", "new", "why"), STALE.values(), ids=STALE)
def test_locked_refuses_what_is_stale(locked, served, old, new, why):
    put(locked, {"x.xp": SPEC.replace(old, new), "t.jinja": TEMPLATE})
    status, out = run(locked, served, "compile", "x.xp", "--locked")
    assert (status, why in out) == (1, True), out
    assert not (locked / "x.bundle").exists()
    assert run(locked, served, "compile", "x.xp")[0] == 0  # without --locked, the stale lock is not an error


def test_locked_refuses_a_spec_without_a_lock_and_a_file_that_changed(tmp_path, served):
    root = put(tmp_path, {"x.xp": SPEC.replace("me/rows", '"rows.jsonl"'), "rows.jsonl": b'{"text": "a"}\n' * 9})
    assert "there is no x.xp.lock" in run(root, served, "compile", "x.xp", "--locked")[1]
    assert run(tmp_path, served, "lock", "x.xp", "--update", "--python", sys.executable)[0] == 0
    assert table(tmp_path)["rows"] == {"rows.jsonl": 9}
    assert run(tmp_path, served, "compile", "x.xp", "--locked")[0] == 0
    put(tmp_path, {"rows.jsonl": b'{"text": "b"}\n' * 9})
    assert "rows.jsonl has changed" in run(tmp_path, served, "compile", "x.xp", "--locked")[1]


def test_commits_can_be_pinned_without_the_hub(tmp_path, served):
    put(tmp_path, {"x.xp": SPEC.replace("me/model", f"qwen2.5-3b@{FIRST}")})
    status, out = run(tmp_path, served, "lock", "x.xp", "--pin", f"me/rows={SECOND}")
    assert served.requested == []
    assert (status, "not pinned yet: the packages;" in out) == (1, True), out
    assert run(tmp_path, served, "compile", "x.xp")[0] == 0
    found = payload(tmp_path)
    assert (found["model"]["revision"], found["data"]["sources"][0]["revision"]) == (FIRST, SECOND)
    assert run(tmp_path, served, "lock", "x.xp", "--pin", "me/rows=main")[0] == 2
    done = xpc("lock", "x.xp", "--update", cwd=str(tmp_path), env={**served.environment, "HF_HUB_OFFLINE": "1"})
    assert (done.returncode, b"HF_HUB_OFFLINE" in done.stderr) == (2, True)


def test_a_lock_pins_remote_code(tmp_path, served):
    put(tmp_path, {"x.xp": SPEC + "\nmodel(trust_remote_code)\n"})
    status, out = run(tmp_path, served, "check", "x.xp")
    assert (status, "XP701" in out) == (1, True), out
    run(tmp_path, served, "lock", "x.xp", "--pin", f"me/model={SECOND}")
    status, out = run(tmp_path, served, "check", "x.xp")
    assert status == 0, out


def test_a_teacher_evaluation_rows_and_every_member_of_a_sweep_are_pinned(tmp_path, served):
    text = SPEC.replace("  seq = 256\n", "").replace(
        "batch {", "method distill {\n  teacher = me/teacher\n}\neval(every=2, data=me/rows[test])\nbatch {"
    )
    put(tmp_path, {"x.xp": text + "\nsweep {\n  lr = [1e-5, 2e-5]\n}\n"})
    status, out = run(tmp_path, served, "lock", "x.xp", "--update", "--python", sys.executable)
    assert status == 0, out
    status, out = run(tmp_path, served, "compile", "x.xp", "--locked")
    assert status == 0, out
    members = sorted(os.listdir(tmp_path / "x.bundle" / "members"))
    assert len(members) == 2
    for one in members:
        found = payload(tmp_path, f"x.bundle/members/{one}")
        assert found["method"]["teacher"]["revision"] == TEACHER
        assert found["data"]["evaluation"]["sets"][0]["sources"][0]["revision"] == SECOND
    assert run(tmp_path, served, "verify", "x.bundle")[0] == 0


def test_a_bundle_compiles_again_without_the_lock(locked, served):
    assert run(locked, served, "compile", "x.xp", "--locked")[0] == 0
    os.rename(locked / "x.bundle", locked / "moved")
    for name in ("x.xp", "x.xp.lock"):
        os.remove(locked / name)
    before = tree(locked / "moved")
    status, out = run(locked, served, "verify", "moved")
    assert status == 0, out
    assert run(locked, served, "check", "moved/spec.xp")[0] == 0
    assert tree(locked / "moved") == before


def test_a_gated_repository_needs_a_token(tmp_path, served):
    put(tmp_path, {"x.xp": SPEC.replace("me/model", "me/closed")})
    words = ("lock", "x.xp", "--update", "me/closed")
    status, out = run(tmp_path, served, *words)
    assert (status, "HF_TOKEN" in out) == (2, True), out
    assert not (tmp_path / "x.xp.lock").exists()
    done = xpc(*words, cwd=str(tmp_path), env={**served.environment, "HF_TOKEN": "hf_read"})
    assert table(tmp_path)["model"][0]["revision"] == FIRST, done.stderr


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"[lock]\nformat = 9\n", b"model = 3\n[lock]\nformat = 1\nxpc='1'\ntarget='t'\n"]
)
def test_a_lock_that_cannot_be_read_is_an_error(locked, served, text):
    (locked / "x.xp.lock").write_bytes(text)
    status, out = run(locked, served, "check", "x.xp")
    assert (status, "XP114" in out, "x.xp.lock" in out) == (1, True, True), out
    # a new lock replaces the broken one; the status 1 is for pins that are still missing
    assert run(locked, served, "lock", "x.xp")[0] == 1


def test_unresolvable_requirements_are_reported_with_pips_words(tmp_path, served):
    put(tmp_path, {"x.xp": SPEC})
    served.packages["trl", stacks.load(stacks.DEFAULT).pins["trl"]] = ("triton<3",)
    status, out = run(tmp_path, served, "lock", "x.xp", "--update", "--python", sys.executable)
    assert (status, "pip cannot resolve" in out) == (2, True), out
    assert os.listdir(tmp_path) == ["x.xp"]


FLASH = """\
xpc 1

train "tiny" on "rows.jsonl" for 1 epochs

target {target}
hardware 1 x h100-80gb
precision bf16
model(attn=flash2)

batch {{
  gbs = 4
  micro = 1
  seq = 256
}}

save "out/x"
"""
KERNELS = {
    name: found["flash2"].partition("@")[0]
    for name in stacks.names()
    if (found := stacks.load(name).facts.flash_kernels)
}
LOADED = os.path.join(os.path.dirname(__file__), "loaded_kernels.py")


@pytest.mark.parametrize(("target", "id"), nightly_but(KERNELS.items(), lambda one: one[0] == stacks.DEFAULT))
def test_a_kernel_of_the_hub_is_pinned_and_loaded_at_that_commit(tmp_path, served, target, id):
    """The kernel is loaded by the real transformers. A fake package `kernels` records the kernels and commits that
    transformers requests.
    """
    python = interpreter(target)
    put(tmp_path, {"x.xp": FLASH.format(target=target)})
    # only config.json: the program loaded_kernels.py later writes the model's weights
    put(tmp_path / "tiny", {"config.json": json.dumps(CONFIG).encode()})
    write_messages(str(tmp_path / "rows.jsonl"), 8)
    assert run(tmp_path, served, "compile", "x.xp")[0] == 0
    assert "kernels" not in payload(tmp_path)["model"]  # without a lock, no commit is pinned
    status, out = run(tmp_path, served, "lock", "x.xp")
    assert (status, f"not pinned yet: the kernel {id}" in out) == (1, True), out
    status, out = run(tmp_path, served, "compile", "x.xp", "--locked")
    assert (status, f"the kernel {id}" in out, "is not pinned" in out) == (1, True, True), out
    status, out = run(tmp_path, served, "lock", "x.xp", "--update", "--python", sys.executable)
    assert status == 0, out
    assert [(one["id"], one["revision"]) for one in table(tmp_path)["kernel"]] == [(id, KERNEL)]
    status, out = run(tmp_path, served, "compile", "x.xp", "--locked")
    assert status == 0, out
    assert payload(tmp_path)["model"]["kernels"] == {id: KERNEL}
    assert f"{id} at {KERNEL}" in (tmp_path / "x.bundle" / "README.md").read_text()
    words = [python, LOADED, "x.bundle", stacks.load(target).facts.kernels]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    requested = json.loads(done.stdout.splitlines()[-1])
    assert {(one["id"], one["revision"], one["version"]) for one in requested} == {(id, KERNEL, None)}
    put(tmp_path, {"x.xp": FLASH.format(target=target).replace("flash2", "sdpa")})
    out = run(tmp_path, served, "compile", "x.xp", "--locked")[1]
    assert f"the spec no longer names the kernel {id}" in out


def test_a_kernel_commit_can_be_pinned_by_hand(tmp_path, served):
    id = KERNELS[stacks.DEFAULT]
    put(tmp_path, {"x.xp": FLASH.format(target=stacks.DEFAULT), "rows.jsonl": b'{"text": "a"}\n' * 9})
    put(tmp_path / "tiny", {"config.json": json.dumps(CONFIG).encode()})
    run(tmp_path, served, "lock", "x.xp", "--pin", f"{id}={SECOND}")
    assert served.requested == []
    assert [one["revision"] for one in table(tmp_path)["kernel"]] == [SECOND]
    assert "kernel" in run(tmp_path, served, "lock", "x.xp", "--update", id)[1]
    assert [one["revision"] for one in table(tmp_path)["kernel"]] == [KERNEL]


def test_every_load_of_the_runtime_names_a_commit():
    """Every call in runtime/ that loads something from the hub states a commit: it passes `revision`, or the arguments
    of `Bundle.loading`, which contain `revision`.
    """
    seen = 0
    for where, _, names in os.walk(os.path.join(REPOSITORY, "runtime")):
        for name in names:
            if not name.endswith(".py"):
                continue
            with open(os.path.join(where, name), encoding="utf-8") as handle:
                text = handle.read()
            for node in ast.walk(ast.parse(text)):
                called = node.func if isinstance(node, ast.Call) else None
                if getattr(called, "attr", getattr(called, "id", "")) not in ("from_pretrained", "load_dataset"):
                    continue
                given = ast.get_source_segment(text, node)
                # A call that loads local files (rows, or a checkpoint of this run) needs no `revision`.
                local = "data_files=" in given or name == "renamed_weights.py"
                options = "**options" in given and "options = bundle.loading()" in text
                assert local or options or "revision=" in given or "bundle.loading()" in given, (name, given)
                seen += 1
    assert seen > 6
