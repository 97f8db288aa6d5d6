"""`xpc verify --all` prints a line about the commit, and a line about each spec, lock, bundle, model and run in a
repository.
"""

import hashlib
import inspect
import json
import os
import shutil
import sys

import pytest
from case_support import ROW
from compile_support import LOCAL, put, xpc
from git_commands import git
from test_verify_models import MODEL
from tiers import slow_but

from xpc.compiler.files.folder_contents import walk
from xpc.compiler.review import verify
from xpc.compiler.review.finished_run import bundle_digest
from xpc.compiler.review.installed import pins
from xpc.runtime.core.checkpoint_integrity import final_files


def test_a_name_with_a_line_break_is_no_line_of_its_own(tmp_path):
    """A file's name contains a line break and then `specs/evil.bundle: is what specs/evil.xp compiles to`. In the
    output, this is not a line that looks like a verdict of xpc.
    """
    put(tmp_path, {"specs/a\nspecs/evil.bundle: is what specs/evil.xp compiles to.xp": "xpc 1\n"})
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    done = xpc("verify", "--all", ".", cwd=str(tmp_path))
    lines = (done.stdout + done.stderr).decode().splitlines()
    assert not [line for line in lines if line.startswith("specs/evil")], lines
    assert any(line.startswith("specs/a\\nspecs/evil.bundle") for line in lines), lines


def run_of(bundle, out):
    """Write the output folder of a finished run of a bundle; return its path."""
    plan = json.loads((bundle / "trainer_args.json").read_text())
    put(out, {"metrics.jsonl": '{"step": 10, "loss": 1.5, "tokens": 640}\n', "model.safetensors": b"w" * 50})
    facts = {
        "bundle": bundle_digest(str(bundle)), "world": plan["run"]["world_size"], "steps": 10, "epochs": 1.0,
        "sequences": 10 * plan["run"]["gbs"], "tokens": 640, "first_loss": 1.5, "last_loss": 1.5,
        "data": {"left_out": 0}, "versions": pins(str(bundle / "requirements.txt")), "arguments": plan["arguments"],
        "files": final_files(str(out)),
    }  # fmt: skip
    text = json.dumps(facts, indent=2)
    seal = hashlib.sha256(text.encode()).hexdigest()
    put(out, {"summary.json": f'{text[:-2]},\n  "seal": "sha256:{seal}"\n}}\n', "xpc_run.json": "{}\n"})


@pytest.fixture
def location(tmp_path):
    root = tmp_path / "r"
    put(root / "specs" / "models" / "tiny", MODEL)
    put(root / "specs", {"base.xp": "seed = 7\n", "x.xp": LOCAL.replace("xpc 1\n", 'xpc 1\n\nextends "base.xp"\n'),
                         "rows.jsonl": ROW * 40, "s.xp": LOCAL + "sweep { lr = [1e-5, 2e-5] }\n"})  # fmt: skip
    for name in ("x", "s"):
        done = xpc("compile", f"specs/{name}.xp", "-o", f"specs/{name}.bundle", cwd=str(root))
        assert done.returncode == 0, done
    run_of(root / "specs" / "x.bundle", root / "out" / "x")
    run_of(root / "specs" / "s.bundle" / "members" / "lr=2e-05", root / "out" / "s")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "all")
    return root


def chain(location, *words):
    done = xpc("verify", "--all", *words, cwd=str(location))
    assert b"broke the compiler" not in done.stderr, done.stderr
    return done.returncode, (done.stdout + done.stderr).decode().splitlines()


@pytest.mark.slow
def test_a_complete_chain_is_verified(location):
    status, lines = chain(location)
    assert lines[0].startswith("commit "), lines
    assert lines[0].endswith("tracked files are the same as in this commit"), lines
    assert lines[1:] == [
        "specs/base.xp: this spec describes no run; other specs extend it",
        "specs/s.xp: compiles",
        "specs/x.xp: compiles",
        "specs/s.bundle: is what specs/s.xp compiles to, 2 members",
        f"specs/models/tiny: {len(MODEL)} files are unchanged since specs/s.bundle was compiled",
        "specs/x.bundle: is what specs/x.xp compiles to",
        f"specs/models/tiny: {len(MODEL)} files are unchanged since specs/x.bundle was compiled",
        "out/s: is what specs/s.bundle/members/lr=2e-05 asks for: 10 steps, 40 sequences, 640 tokens",
        "out/x: is what specs/x.bundle asks for: 10 steps, 40 sequences, 640 tokens",
    ]
    assert status == 0


BROKEN = {
    "a spec": ("specs/x.xp", b"gbs = 4", b"gbs = 8", "specs/x.bundle: "),
    "a base": ("specs/base.xp", b"7", b"8", "specs/x.bundle: "),
    "a wrong spec": ("specs/x.xp", b"gbs = 4", b"gsb = 4", "specs/x.xp: does not compile"),
    "a bundle": ("specs/x.bundle/trainer/main.py", b"import", b"import this\nimport", "specs/x.bundle: "),
    "a member": ("specs/s.bundle/members/lr=1e-05/trainer_args.json", b"1e-05", b"3e-05", "specs/s.bundle: "),
    "weights": ("specs/models/tiny/model.safetensors", b"w", b"v", "specs/x.bundle: "),
    "a run's weights": ("out/x/model.safetensors", b"w", b"v", "out/x: model.safetensors was edited"),
    "a run's loss": ("out/s/summary.json", b"1.5", b"0.5", "out/s: summary.json was edited"),
    "another bundle's run": ("out/x/summary.json", b'"bundle": "sha256:', b'"bundle": "sha256:0', "out/x: the bundle"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", slow_but(BROKEN, ("a spec", "a bundle", "a run's weights").__contains__))
def test_a_broken_link_of_the_chain_is_reported(what, location):
    name, old, new, line = BROKEN[what]
    path = location / name
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    status, lines = chain(location)
    assert status == 1, lines
    assert any(one.startswith(line) and "is what" not in one for one in lines), lines
    assert lines[0].endswith("differs from it"), lines


@pytest.mark.slow
def test_a_deleted_file_hides_neither_a_bundle_nor_a_run(location):
    """Before a fix, a bundle without bundle.toml counted as a spec that compiles, and a run without summary.json was
    not listed.
    """
    os.unlink(location / "specs" / "x.bundle" / "bundle.toml")
    os.unlink(location / "out" / "s" / "summary.json")
    os.unlink(location / "out" / "x" / "xpc_run.json")
    status, lines = chain(location)
    assert status == 2
    assert "specs/x.bundle: is not a bundle: it has no bundle.toml of xpc" in lines
    assert "out/s: has no summary.json, which a run writes when it ends, and is not verified" in lines
    assert any(one.startswith("out/x: ") for one in lines)


@pytest.mark.slow
def test_a_lock_has_a_line(location):
    xpc("lock", "specs/x.xp", cwd=str(location))
    status, lines = chain(location)
    assert any(one.startswith("specs/x.xp.lock: the packages of requirements.txt are not resolved") for one in lines)
    assert status == 1


@pytest.mark.slow
def test_links_pipes_and_hidden_folders_are_not_entered(location, tmp_path):
    os.symlink("/", location / "root")
    os.symlink(location / "specs" / "x.xp", location / "link.xp")
    os.mkfifo(location / "pipe.xp")
    put(location, {".venv/x.xp": "nonsense"})
    assert chain(location)[0] == 0


@pytest.mark.slow
def test_a_folder_without_git_or_bundles_is_reported(location, tmp_path):
    shutil.rmtree(location / ".git")
    assert chain(location)[1][0].endswith(": not in a commit")
    put(tmp_path, {"empty/a.txt": ""})
    assert xpc("verify", "--all", "empty", cwd=str(tmp_path)).returncode == 2
    for words in (["--all", "--env"], ["--all", "a", "b"], []):
        assert xpc("verify", *words, cwd=str(tmp_path)).returncode == 2


def test_a_spec_that_cannot_be_read_does_not_hide_the_others(tmp_path):
    """A spec that is too large is reported, and the specs after it are still checked. Before a fix, the command ended
    at such a file.
    """
    put(tmp_path, {"z.xp": "xpc 1\ntrain qwen2.5-3b on alpaca for 10 steps\nhardware 1 x h100-80gb\n"})
    with open(tmp_path / "large.xp", "wb") as handle:
        handle.truncate(2**40)
    text, status = verify.run(verify.parse(["--all", str(tmp_path)]))
    lines = text.splitlines()
    assert status == 1
    assert len(lines) == 3
    assert "large.xp cannot be read" in lines[1]
    assert lines[2].endswith("z.xp: compiles")


@pytest.mark.slow
def test_nested_folders_are_walked_without_recursion(tmp_path):
    path = str(tmp_path)
    for _ in range(300):
        path += "/a"
        os.mkdir(path)
    before, depth = sys.getrecursionlimit(), len(inspect.stack(0))
    sys.setrecursionlimit(depth + 100)
    try:
        assert sum(1 for _ in walk(str(tmp_path))) == 301
    finally:
        sys.setrecursionlimit(before)
