"""Each test makes one edit of a bundle, a sweep or a lock. The right verdict of `xpc diff` on this edit is known: `same
run`, `same settings, other code or packages`, or `differs`.

Each edit is compared in both directions.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from compile_support import put, xpc

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.review import diff, verify

SAME, CODE, DIFFERS, REFUSED, BROKEN = 0, 4, 1, 2, 5
Edit = Callable[[Path], object]
ROWS = "".join(
    json.dumps({"messages": [{"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": f"a{n}"}]}) + "\n"
    for n in range(64)
)
SPEC = """\
xpc 1

train qwen2.5-0.5b-instruct on "rows.jsonl" for 1 epoch

hardware 2 x a100-80gb
strategy zero2
precision bf16
batch gbs=32 micro=4 seq=1024
model { chat_template = file("t.jinja") }
save "out/run"
"""
GRPO = """\
xpc 1

train qwen2.5-0.5b-instruct on "p.jsonl" for 1 epoch

hardware 2 x a100-80gb
precision bf16
batch gbs=32 micro=4
method grpo(generations=8, rewards=["r.py:f"])
save "out/g"
"""
FILES = {
    "a.xp": SPEC, "g.xp": GRPO, "k.xp": SPEC + "launch sky(volume=shared)\n",
    "s.xp": SPEC + "sweep { lr = [1e-5, 2e-5, 3e-5] }\n", "j.xp": SPEC + "launch slurm\n", "rows.jsonl": ROWS,
    "js.xp": SPEC + "launch slurm\nsweep { lr = [1e-5, 2e-5] }\n",
    "p.jsonl": "".join(json.dumps({"prompt": f"q{n}"}) + "\n" for n in range(64)),
    "r.py": "def f(completions, **kw):\n    return [1.0 for _ in completions]\n",
    "t.jinja": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
}  # fmt: skip
PIP, ARGS, YAML = "requirements.txt", "trainer_args.json", "accelerate.yaml"


def replaced(name: str, pattern: str, new: str) -> Edit:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        changed = re.sub(pattern, new, text, count=1)
        assert changed != text, (name, pattern)
        (folder / name).write_text(changed)

    return edit


def appended(name: str, text: str) -> Edit:
    def edit(folder: Path) -> None:
        (path,) = sorted(folder.glob(name))[:1]
        path.write_bytes(path.read_bytes() + text.encode())

    return edit


def rewritten(name: str, change: Callable[[str], str]) -> Edit:
    def edit(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_text()).encode())

    return edit


def added(name: str, text: str = "x = 1\n") -> Edit:
    return lambda folder: put(folder, {name: text})


def member(number: int, edit: Edit) -> Edit:
    return lambda folder: edit(sorted((folder / "members").iterdir())[number])


def backwards(text: str) -> str:
    return "".join(sorted(text.splitlines(keepends=True), reverse=True))


def reordered(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


def dotted(text: str, table: str, key: str) -> str:
    """Move a key of a table to the top, under the name `TABLE.KEY`."""
    found = json.loads(text)
    found[f"{table}.{key}"] = found[table].pop(key)
    return json.dumps(found)


def twice(text: str) -> str:
    found = json.loads(text)
    found["data"]["sources"] *= 2
    return json.dumps(found)


def swapped(folder: Path) -> None:
    one, other, _ = sorted((folder / "members").iterdir())
    one.rename(folder / "kept")
    other.rename(one)
    (folder / "kept").rename(other)


def linked(folder: Path) -> None:
    (folder / "launch.sh").unlink()
    (folder / "launch.sh").symlink_to("/etc/passwd")


def without_a_member(folder: Path) -> None:
    shutil.rmtree(sorted((folder / "members").iterdir())[1])
    there = os.listdir(folder / "members")
    rewritten("members.txt", lambda text: "".join(f"{one}\n" for one in text.split() if one in there))(folder)


EDITS: dict[str, tuple[str, int, Edit]] = {
    "a README": ("a", SAME, appended("README.md", "x\n")),
    "a model card": ("a", SAME, appended("model_card.md", "x\n")),
    "parameters in the manifest": ("a", SAME, replaced("bundle.toml", r"params = \d+", "params = 7")),
    "a digest in the manifest": ("a", CODE, replaced("bundle.toml", r'("launch.sh" = "sha256:)....', r"\g<1>0000")),
    "JSON in another order": ("a", SAME, rewritten(ARGS, reordered)),
    "a number in another form": ("a", SAME, replaced(ARGS, '"learning_rate": 2e-05', '"learning_rate": 0.00002')),
    "a key twice, another last": ("a", DIFFERS, replaced(ARGS, '"seed": 42', '"seed": 42, "seed": 43')),
    "a key twice, the same last": ("a", SAME, replaced(ARGS, '"seed": 42', '"seed": 43, "seed": 42')),
    "NaN": ("a", DIFFERS, replaced(ARGS, r'"weight_decay": [0-9.]+', '"weight_decay": NaN')),
    "minus zero": ("a", DIFFERS, replaced(ARGS, r'"weight_decay": 0\.0', '"weight_decay": -0.0')),
    "a number beyond floats": ("a", DIFFERS, replaced(ARGS, '"seed": 42', '"seed": 42000000000000000001')),
    "a text for a number": ("a", DIFFERS, replaced(ARGS, '"seed": 42', '"seed": "42"')),
    "an escaped letter": ("a", SAME, replaced(ARGS, '"output_dir": "out/run"', r'"output_dir": "out/r\\u0075n"')),
    "an empty table": ("a", DIFFERS, replaced(ARGS, r'"arguments": \{', '"arguments": {"new": {},')),
    "JSON on one line": ("a", SAME, rewritten("deepspeed.json", lambda text: json.dumps(json.loads(text)))),
    "a key with a dot": ("a", DIFFERS, rewritten(ARGS, lambda text: dotted(text, "run", "gbs"))),
    "ZeRO's stage with a dot": (
        "a", DIFFERS, rewritten("deepspeed.json", lambda text: dotted(text, "zero_optimization", "stage")),
    ),
    "a table without a name": ("a", DIFFERS, rewritten(ARGS, lambda text: json.dumps({"": json.loads(text)}))),
    "another path of a source": ("a", DIFFERS, replaced(ARGS, '"path": "rows.jsonl"', '"path": "other.jsonl"')),
    "another copy of a source": ("a", DIFFERS, replaced(ARGS, '"bundled": "data/rows', '"bundled": "data/other')),
    "another copy of a template": ("a", DIFFERS, replaced(ARGS, '"files/t-', '"files/u-')),
    "a source twice": ("a", DIFFERS, rewritten(ARGS, twice)),
    "ZeRO's stage": ("a", DIFFERS, replaced("deepspeed.json", '"stage": 2', '"stage": 1')),
    "a comment after a value of YAML": ("a", SAME, replaced(YAML, "(num_processes: 2)", r"\1  # two")),
    "a value of YAML": ("a", DIFFERS, replaced(YAML, "num_processes: 2", "num_processes: 3")),
    "a key of YAML twice": ("a", DIFFERS, appended(YAML, "num_processes: 3\n")),
    "a key of YAML on a line that only YAML ends": ("a", DIFFERS, appended(YAML, "# x\rnum_processes: 3\n")),
    "a key after a line separator": ("a", DIFFERS, appended(YAML, "# x\u2028num_processes: 3\n")),
    "a key after a next line": ("a", DIFFERS, appended(YAML, "# x\x85num_processes: 3\n")),
    "a second document of YAML": ("a", DIFFERS, appended(YAML, "---\nnum_processes: 3\n")),
    "a second line of a value": ("a", DIFFERS, replaced(YAML, "(num_processes: 2)\n", r"\1\n  3\n")),
    "an indented key of YAML": ("a", DIFFERS, replaced(YAML, "num_processes: 2", "  num_processes: 2")),
    "an indented key in a block of YAML": ("a", DIFFERS, replaced(YAML, "  zero3_init_flag", "    zero3_init_flag")),
    "a block of YAML twice": ("a", DIFFERS, appended(YAML, "deepspeed_config:\n  zero3_init_flag: false\n")),
    "a key of YAML without a value": ("a", DIFFERS, appended(YAML, "mixed_precision:\n")),
    "a key of YAML with a hash": ("a", DIFFERS, replaced(YAML, "(num_processes: 2)", r"\1#x")),
    "a tag of YAML": ("a", DIFFERS, replaced(YAML, "num_processes: 2", "num_processes: !!str 2")),
    "a merge of YAML": ("a", DIFFERS, appended(YAML, "<<: {num_processes: 3}\n")),
    "a block of YAML with more spaces": (
        "a", SAME, rewritten(YAML, lambda text: re.sub(r"(?m)^  (\S)", r"    \1", text)),
    ),
    "a word of YAML that is a flag": ("a", DIFFERS, replaced(YAML, 'downcast_bf16: "no"', "downcast_bf16: no")),
    "a text of YAML without quotes": ("a", SAME, replaced(YAML, 'function: "main"', "function: main")),
    "a date of YAML": ("a", DIFFERS, replaced(YAML, 'function: "main"', "function: 2001-01-01")),
    "a member's word of YAML": ("s", DIFFERS, member(1, replaced(YAML, 'downcast_bf16: "no"', "downcast_bf16: no"))),
    "a new key of YAML": ("a", DIFFERS, appended(YAML, "debug: true\n")),
    "a comment among the packages": ("a", SAME, appended(PIP, "# x\n")),
    "packages in another order": ("a", SAME, rewritten(PIP, backwards)),
    "a package in capitals": ("a", SAME, replaced(PIP, "torch==", "Torch==")),
    "spaces around ==": ("a", SAME, replaced(PIP, "torch==", "torch == ")),
    "another version": ("a", CODE, replaced(PIP, r"trl==1\.16\.0", "trl==1.15.0")),
    "a local version": ("a", CODE, replaced(PIP, r"torch==2\.13\.0", "torch==2.13.0+cpu")),
    "an index": ("a", CODE, appended(PIP, "--index-url https://x\n")),
    "a digest of a package": ("a", CODE, replaced(PIP, r"(trl==1\.16\.0)", rf"\1 --hash=sha256:{'1' * 64}")),
    "an encoding of the packages": ("a", CODE, rewritten(PIP, lambda text: f"# coding: utf-7\n# +AAo---pre\n{text}")),
    "an index on two lines": ("a", CODE, appended(PIP, "--index-url \\\n https://x\n")),
    "a comment that swallows the next package": ("a", CODE, replaced(PIP, r"(trl==1\.16\.0)\n", r"\1 # x \\\n")),
    "a comment with a backslash": ("a", SAME, appended(PIP, "# x \\\n")),
    "an index behind a form feed": ("a", CODE, appended(PIP, "# x\x0c--index-url https://x\n")),
    "another file of packages": ("a", CODE, appended(PIP, "-r other.txt\n")),
    "a package less": ("a", CODE, replaced(PIP, r"trl==1\.16\.0\n", "")),
    "a package more": ("a", CODE, appended(PIP, "evil_package==1\n")),
    "a lower bound": ("a", CODE, replaced(PIP, r"trl==1\.16\.0", "trl>=1.16.0")),
    "an arbitrary version": ("a", CODE, replaced(PIP, r"trl==1\.16\.0", "trl===1.16.0")),
    "a marker": ("a", CODE, replaced(PIP, r"trl==1\.16\.0", 'trl==1.16.0; python_version<"3"')),
    "a package twice": ("a", CODE, appended(PIP, "trl==1.15.0\n")),
    "a comment in a script": ("a", CODE, appended("launch.sh", "# x\n")),
    "the list of digests": ("a", CODE, appended("run.sha256", "# x\n")),
    "a program next to the trainer": ("a", CODE, appended("stage.py", "# x\n")),
    "a row": ("a", DIFFERS, appended("data/*.jsonl", ROWS.partition("\n")[0] + "\n")),
    "a space in a template": ("a", DIFFERS, appended("files/*.jinja", " ")),
    "a comment in a reward": ("g", DIFFERS, appended("files/*.py", "# x\n")),
    "a comment in the spec": ("a", SAME, appended("spec.xp", "# mine\n")),
    "a value in the spec": ("a", DIFFERS, replaced("spec.xp", "seq = 1024", "seq = 2048")),
    "a script that is not executable": ("a", CODE, lambda folder: (folder / "launch.sh").chmod(0o644)),
    "an executable README": ("a", SAME, lambda folder: (folder / "README.md").chmod(0o755)),
    "a hidden file": ("a", CODE, added(".env", "A=1\n")),
    "a module that Python imports by itself": ("a", CODE, added("trainer/sitecustomize.py")),
    "a module in a new folder": ("a", CODE, added("trainer/core/a/b/c.py")),
    "a table that nothing reads": ("a", CODE, added("extra.json", "{}\n")),
    "a file of tasks that nothing reads": ("a", CODE, added("evaluation.json", '{"a": 1}\n')),
    "an empty folder": ("a", SAME, lambda folder: os.makedirs(folder / "trainer" / "core" / "empty")),
    "other line ends": ("a", CODE, rewritten("trainer/core/run.py", lambda text: text.replace("\n", "\r\n"))),
    "bytecode next to a module": ("a", CODE, added("trainer/core/run.pyc")),
    "a module among bytecode": ("a", CODE, added("trainer/core/__pycache__/x.py")),
    "a module with a name like bytecode": ("a", CODE, added("trainer/core/__pycache__/x.pyc.py")),
    "bytecode that nothing reads": ("a", SAME, added("trainer/core/__pycache__/run.cpython-311.pyc")),
    "a digest less in the manifest": ("a", CODE, replaced("bundle.toml", '"trainer/main.py" = .*\n', "")),
    "a digest twice in the manifest": ("a", REFUSED, replaced("bundle.toml", r'("launch.sh" = .*\n)', r"\1\1")),
    "a table twice in the manifest": ("a", REFUSED, appended("bundle.toml", "[pins]\n")),
    "a letter at the end of the manifest": ("a", REFUSED, appended("bundle.toml", "x")),
    "a number for the weights": ("a", REFUSED, rewritten("bundle.toml", lambda text: f"weights = 5\n{text}")),
    "a list for a digest of the weights": ("a", REFUSED, appended("bundle.toml", '[weights]\n"a/b" = []\n')),
    "other line ends of the manifest": ("a", SAME, rewritten("bundle.toml", lambda text: text.replace("\n", "\r\n"))),
    "a digest twice in a member's manifest": (
        "s", REFUSED, member(1, replaced("bundle.toml", r'("launch.sh" = .*\n)', r"\1\1")),
    ),
    "a comment in a script of SkyPilot": ("k", CODE, appended("sky.yaml", "# x\n")),
    "a module less": ("a", CODE, lambda folder: os.remove(folder / "trainer" / "core" / "run.py")),
    "a link": ("a", REFUSED, linked),
    "a sweep's README": ("s", SAME, appended("README.md", "x\n")),
    "a sweep's script": ("s", CODE, appended("launch.sh", "# x\n")),
    "a member's trainer": ("s", CODE, member(1, appended("trainer/core/run.py", "# x\n"))),
    "a member's seed": ("s", DIFFERS, member(2, replaced(ARGS, '"seed": 42', '"seed": 43'))),
    "a member's README": ("s", SAME, member(1, appended("README.md", "x\n"))),
    "a member's JSON in another order": ("s", SAME, member(1, rewritten(ARGS, reordered))),
    "a comment in a member's YAML": ("s", SAME, member(1, appended(YAML, "# x\n"))),
    "a comment after a value of a member": ("s", SAME, member(1, replaced(YAML, "(num_processes: 2)", r"\1 # x"))),
    "a member's packages in another order": ("s", SAME, member(1, rewritten(PIP, backwards))),
    "a member's package": ("s", CODE, member(0, replaced(PIP, r"trl==1\.16\.0", "trl==1.15.0"))),
    "a member's row": ("s", DIFFERS, member(1, appended("data/*.jsonl", "\n"))),
    "a digest in a member's manifest": (
        "s", CODE, member(1, replaced("bundle.toml", r'("launch.sh" = "sha256:)....', r"\g<1>0000")),
    ),
    "a table next to a member's": ("s", CODE, member(1, added("extra.json", "{}\n"))),
    "a member that is gone": ("s", DIFFERS, without_a_member),
    "a member whose folder is gone": (
        "s", DIFFERS, lambda folder: shutil.rmtree(sorted((folder / "members").iterdir())[1]),
    ),
    "members in another order": ("s", SAME, rewritten("members.txt", backwards)),
    "an empty line among the members": ("s", REFUSED, rewritten("members.txt", lambda text: f"\n{text}")),
    "two members with each other's files": ("s", DIFFERS, swapped),
    "a member that is not listed": ("s", DIFFERS, rewritten("members.txt", lambda text: text.split("\n", 1)[1])),
    "a comment in sweep.toml": ("s", SAME, appended("sweep.toml", "# x\n")),
    "a file among the members": ("s", CODE, added("members/x.sh")),
    "a folder among the members": ("s", CODE, added("members/other/x.sh")),
}  # fmt: skip


def lock(torch: str = "2.13.0", *more: str) -> str:
    return "\n".join((
        "[lock]", "format = 1", 'xpc = "0.4.0"', 'target = "trl-1.16"', "[[model]]",
        'id = "Qwen/Qwen2.5-0.5B-Instruct"', f'revision = "{"a" * 40}"', '[environment."requirements.txt"]',
        f'asked = ["torch=={torch}"]', f'resolved = ["numpy==2.4.6", "torch=={torch}", "trl==1.16.0"]', *more, "",
    ))  # fmt: skip


LOCKS = {
    "a comment": (SAME, "# x\n" + lock()),
    "another torch": (CODE, lock("2.12.0")),
    "another order": (SAME, re.sub(r'("numpy[^,]*), (.*)\]', r"\2, \1]", lock())),
    "capitals": (SAME, lock().replace('"numpy==', '"NumPy==')),
    "another commit": (DIFFERS, lock().replace("a" * 40, "b" * 40)),
    "a package less": (CODE, lock().replace('"numpy==2.4.6", ', "")),
    "the digest of the bundle": (SAME, lock("2.13.0", "[bundle]", f'digest = "sha256:{"1" * 64}"')),
    "the digest of a file": (SAME, lock("2.13.0", "[files]", f'"rows.jsonl" = "sha256:{"1" * 64}"')),
    "another version of xpc": (SAME, lock().replace("0.4.0", "0.3.9")),
    "an option of pip": (BROKEN, lock().replace("numpy==2.4.6", r"numpy==2.4.6\n--index-url https://x")),
}  # fmt: skip


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    location = tmp_path_factory.mktemp("edits")
    put(location, FILES)
    for name in "agks":
        assert xpc("compile", f"{name}.xp", cwd=str(location)).returncode == 0
    return location


def compared(before: Path, after: Path) -> tuple[str, int]:
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return diff.run(diff.parse([str(before), str(after), "--exit-code"]))
    except UsageError as error:
        return str(error), REFUSED


@pytest.mark.slow
@pytest.mark.parametrize("what", EDITS)
def test_an_edit_gets_the_right_verdict(what: str, bundles: Path, tmp_path: Path) -> None:
    name, expected, edit = EDITS[what]
    before, after = bundles / f"{name}.bundle", tmp_path / "b.bundle"
    shutil.copytree(before, after, symlinks=True)
    edit(after)
    for one, other in ((before, after), (after, before)):
        text, status = compared(one, other)
        assert status == expected, text
        assert text.partition("\n")[0].strip()
    if expected != SAME:
        assert not verified(after)


def verified(bundle: Path) -> bool:
    try:
        return verify.run(verify.parse([str(bundle)]))[1] == 0
    except UsageError:
        return False


@pytest.mark.parametrize("spec", ["a.xp", "j.xp", "js.xp"])
@pytest.mark.parametrize("what", LOCKS)
def test_an_edit_of_a_lock_gets_the_right_verdict(what: str, spec: str, tmp_path: Path) -> None:
    """Slurm's job has a digest of all files that run, also of the lock's copy."""
    expected, text = LOCKS[what]
    for name, written in (("one", lock()), ("other", text)):
        put(tmp_path / name, {**FILES, f"{spec}.lock": written})
    out, status = compared(tmp_path / "one" / spec, tmp_path / "other" / spec)
    assert status == expected, out


def test_bundles_of_a_lock_in_another_order_are_the_same_run(tmp_path: Path) -> None:
    for folder, what in (("one", "another torch"), ("other", "another order"), ("third", "capitals")):
        put(tmp_path / folder, {**FILES, "js.xp.lock": LOCKS[what][1]})
        assert xpc("compile", "js.xp", cwd=str(tmp_path / folder)).returncode == 0
    assert compared(tmp_path / "other/js.bundle", tmp_path / "third/js.bundle")[1] == SAME
    assert compared(tmp_path / "other/js.bundle", tmp_path / "third/js.xp")[1] == SAME
    assert compared(tmp_path / "other/js.bundle", tmp_path / "one/js.bundle")[1] == CODE
    job = tmp_path / "third/js.bundle/job.sbatch"
    job.write_text(job.read_text() + "true\n")
    assert compared(tmp_path / "other/js.bundle", tmp_path / "third/js.bundle")[1] == CODE


def test_verify_takes_any_file_of_a_sweep(bundles: Path) -> None:
    for name in ("sweep.toml", "launch.sh"):
        text, status = verify.run(verify.parse([str(bundles / "s.bundle" / name)]))
        assert (status, "is what its spec compiles to, 3 members" in text) == (0, True), text
