"""`xpc diff` never gives a wrong verdict. Each of 200 tests makes one random edit of a bundle, sweep, lock or spec,
with a fixed seed, and knows the right verdict.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Sequence

import pytest
from case_support import MARKED, ROW, spec
from compile_support import put, xpc

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.files.pins import Environment, Lock, Pin
from xpc.compiler.locking.lock_text import written
from xpc.compiler.review import diff
from xpc.compiler.review.compare import CODE, DIFFERS, SAME

EDITS = 50
"""For each of the four kinds of operands, this many random edits are made."""
STATUS = {SAME: 0, CODE: 4, DIFFERS: 1}
SPEC = spec(
    'model {\n  chat_template = file("chat.jinja")\n}\n', "optimizer adamw {\n  lr = 2e-5\n  weight_decay = 0.1\n}",
    "seed 7", train='qwen2.5-3b on "rows.jsonl" for 2 epochs', batch="gbs=16 micro=2",
)  # fmt: skip
SWEEP = SPEC.replace('on "rows.jsonl"', "on alpaca") + "sweep {\n  lr = [1e-6, 2e-6]\n}\n"
PACKAGES = ("jinja2==3.1.6", "markupsafe==3.0.2", "torch==2.13.0")
LOCK = Lock(
    "t.xp.lock",
    (
        Pin("model", "Qwen/Qwen2.5-3B", "", "a" * 40),
        Pin("dataset", "tatsu-lab/alpaca", "", "b" * 40, rows={"train": 640}),
    ),
    environments={"requirements.txt": Environment(("torch==2.13.0",), PACKAGES)},
    target="trl-1.16", xpc="1",
)  # fmt: skip
Edit = Callable[[random.Random, str], str]


def verdict(before: str, after: str) -> str:
    """The verdict that a diff prints. Check that the exit status fits it, and that the first line is not empty and does
    not show the same text twice.
    """
    text, status = diff.run(diff.parse([before, after, "--format", "json", "--exit-code"]))
    found = json.loads(text, parse_constant=pytest.fail)
    assert status == STATUS[found["verdict"]]
    assert found["same"] == (found["verdict"] == SAME)
    assert found["headline"]
    for one in re.findall(r"(\S+) -> (\S+?)[;,:]?(?: |$)", found["headline"]):
        assert one[0] != one[1], found["headline"]
    return str(found["verdict"])


def read(path: str) -> str:
    with open(path, encoding="utf-8") as handle:
        return handle.read()


def write(path: str, text: str) -> None:
    """Write a new file instead of changing the old one in place, so that other hard links to the old file keep its
    content.
    """
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "w", encoding="utf-8") as handle:
        handle.write(text)


def replaced(path: str, pattern: str, new: str) -> None:
    text = read(path)
    changed = re.sub(pattern, new, text, count=1, flags=re.M)
    assert changed != text, (path, pattern)
    write(path, changed)


# -- edits of a bundle; each returns the verdict ---------------------------------------------------------------------


def trainer_code(draw: random.Random, folder: str) -> str:
    names = [
        os.path.join(where, name)
        for where, _, names in sorted(os.walk(os.path.join(folder, "trainer")))
        for name in sorted(names)
        if name.endswith(".py")
    ]
    path = draw.choice(names)
    lines = read(path).split("\n")
    lines.insert(draw.randrange(len(lines)), "print('here')")
    write(path, "\n".join(lines))
    return CODE


def trainer_module(draw: random.Random, folder: str) -> str:
    name = draw.choice(["json.py", "core/torch.py", "sitecustomize.py", "core/x.pyc", "x.so"])
    write(os.path.join(folder, "trainer", name), "import os\n")
    return CODE


def trainer_removed(draw: random.Random, folder: str) -> str:
    path = os.path.join(folder, "trainer", "core")
    os.unlink(os.path.join(path, draw.choice(sorted(one for one in os.listdir(path) if one.endswith(".py")))))
    return CODE


def another_version(draw: random.Random, folder: str) -> str:
    name = draw.choice(["torch", "trl", "transformers", "accelerate"])
    replaced(os.path.join(folder, "requirements.txt"), rf"^{name}==.*$", f"{name}==0.1.{draw.randrange(99)}")
    return CODE


def another_index(draw: random.Random, folder: str) -> str:
    path = os.path.join(folder, "requirements.txt")
    write(path, read(path) + draw.choice(["--index-url https://evil\n", "evil\n", "git+https://evil/x\n"]))
    return CODE


def other_order(draw: random.Random, folder: str) -> str:
    path = os.path.join(folder, "requirements.txt")
    lines = read(path).splitlines()
    draw.shuffle(lines)
    write(path, "\n".join(["# packages", *lines, "", ""]))
    return SAME


def an_export(draw: random.Random, folder: str) -> str:
    replaced(
        os.path.join(folder, "launch.sh"), r"^set -euo pipefail$", f"set -euo pipefail\nexport X={draw.randrange(9)}"
    )
    return CODE


def no_longer_executable(draw: random.Random, folder: str) -> str:
    path = os.path.join(folder, "launch.sh")
    shutil.copy(path, path + ".new")
    os.chmod(path + ".new", 0o644)
    os.replace(path + ".new", path)
    return CODE


def prose(draw: random.Random, folder: str) -> str:
    path = os.path.join(folder, draw.choice(["README.md", "model_card.md", "trainer/README.md"]))
    write(path, read(path) + "\nA note.\n")
    return SAME


def leaves(table: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    inside = table.items() if isinstance(table, dict) else ()
    return [one for name, value in inside for one in leaves(value, (*path, name))] or [path]


def table_value(draw: random.Random, folder: str) -> str:
    """Replace a random value in a JSON file. The new value may differ from the old one only in its type: 1 becomes "1"
    or true.
    """
    path = os.path.join(folder, draw.choice(["trainer_args.json", "deepspeed.json"]))
    table = json.loads(read(path))
    where = draw.choice([one for one in leaves(table) if one[0] not in ("stack", "trainer")])
    inside = table
    for name in where[:-1]:
        inside = inside[name]
    old = inside[where[-1]]
    kinds = [
        str(old) + "x",
        not old,
        None if old is not None else 0,
        json.dumps(old) if not isinstance(old, str) else 7,
    ]
    inside[where[-1]] = draw.choice([one for one in kinds if json.dumps(one) != json.dumps(old)])
    write(path, json.dumps(table))
    return DIFFERS


def table_facts(draw: random.Random, folder: str) -> str:
    replaced(os.path.join(folder, "trainer_args.json"), r'"quantized_on_cpu": \w+', '"quantized_on_cpu": 7')
    return CODE


def table_layout(draw: random.Random, folder: str) -> str:
    path = os.path.join(folder, draw.choice(["trainer_args.json", "deepspeed.json"]))
    write(path, json.dumps(json.loads(read(path)), indent=draw.choice([None, 1, 7]), sort_keys=draw.random() < 0.5))
    return SAME


def accelerate_value(draw: random.Random, folder: str) -> str:
    replaced(
        os.path.join(folder, "accelerate.yaml"), r"^num_processes: \d+$", f"num_processes: {draw.randrange(9, 99)}"
    )
    return DIFFERS


def accelerate_comment(draw: random.Random, folder: str) -> str:
    path = os.path.join(folder, "accelerate.yaml")
    write(path, read(path) + "# a note\n\n")
    return SAME


def spec_value(draw: random.Random, folder: str) -> str:
    replaced(os.path.join(folder, "spec.xp"), r"weight_decay = 0.1$", f"weight_decay = 0.{draw.randrange(2, 9)}")
    return DIFFERS


def spec_comment(draw: random.Random, folder: str) -> str:
    replaced(os.path.join(folder, "spec.xp"), r"^xpc 1$", "xpc 1\n\n# a note")
    return SAME


def rows(draw: random.Random, folder: str) -> str:
    (name,) = os.listdir(os.path.join(folder, "data"))
    write(os.path.join(folder, "data", name), ROW * draw.randrange(1, 30))
    return DIFFERS


def template(draw: random.Random, folder: str) -> str:
    (name,) = os.listdir(os.path.join(folder, "files"))
    write(os.path.join(folder, "files", name), MARKED + "!")
    return DIFFERS


def list_of_digests(draw: random.Random, folder: str) -> str:
    name = draw.choice(["run.sha256", "bundle.toml"])
    replaced(os.path.join(folder, name), r"[0-9a-f]{64}(?=.*main.py)" if name == "run.sha256" else
             r'(?<=^"trainer/main.py" = "sha256:)[0-9a-f]{64}', "0" * 64)  # fmt: skip
    return CODE


def foreign_folder(draw: random.Random, folder: str) -> str:
    os.makedirs(os.path.join(folder, draw.choice(["Qwen", "torch", "out"]), "x"))
    return CODE


OF_RUN: Sequence[Edit] = (
    trainer_code, trainer_module, trainer_removed, another_version, another_index, other_order, an_export,
    no_longer_executable, prose, table_value, table_value, table_facts, table_layout, accelerate_value,
    accelerate_comment, spec_value, spec_comment, list_of_digests, foreign_folder,
)  # fmt: skip


def nothing_wrong(
    edits: Sequence[Edit], kind: str, one: str, folder: str, location: Callable[[random.Random], str]
) -> None:
    """Apply random edits to copies of a folder. After each edit, compare the original with the copy, and the copy with
    the original. Both verdicts must be the one that the edit function returns.
    """
    draw = random.Random(f"{kind} 32")
    copy = folder + ".copy"
    for _ in range(EDITS):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        edit = draw.choice(edits)
        wanted = edit(draw, os.path.join(copy, location(draw)))
        assert verdict(one, copy) == wanted, edit.__name__
        assert verdict(copy, one) == wanted, edit.__name__


@pytest.mark.slow
def test_edits_of_a_bundle_get_the_right_verdict(tmp_path):
    root = put(tmp_path, {"t.xp": SPEC, "chat.jinja": MARKED, "rows.jsonl": ROW * 40})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    bundle = os.path.join(root, "t.bundle")
    assert verdict(os.path.join(root, "t.xp"), bundle) == SAME
    nothing_wrong((*OF_RUN, rows, template), "bundle", os.path.join(root, "t.xp"), bundle, lambda draw: "")


@pytest.mark.slow
def test_edits_of_a_sweep_get_the_right_verdict(tmp_path):
    root = put(tmp_path, {"t.xp": SWEEP, "chat.jinja": MARKED})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    bundle = os.path.join(root, "t.bundle")
    shutil.copytree(bundle, bundle + ".before")
    assert verdict(os.path.join(root, "t.xp"), bundle) == SAME
    members = sorted(os.listdir(os.path.join(bundle, "members")))
    edits = [one for one in OF_RUN if one is not spec_value]
    nothing_wrong(edits, "sweep", bundle + ".before", bundle, lambda draw: f"members/{draw.choice(members)}")


@pytest.mark.slow
def test_edits_of_the_launcher_and_the_list_of_a_sweep(tmp_path):
    root = put(tmp_path, {"t.xp": SWEEP, "chat.jinja": MARKED})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    bundle, copy = os.path.join(root, "t.bundle"), os.path.join(root, "copy")
    shutil.copytree(bundle, copy)
    replaced(os.path.join(copy, "launch.sh"), r"^set -euo pipefail$", "set -euo pipefail\nexport X=1")
    assert (verdict(bundle, copy), verdict(os.path.join(root, "t.xp"), copy)) == (CODE, CODE)
    shutil.copy(os.path.join(bundle, "launch.sh"), copy)
    replaced(os.path.join(copy, "members.txt"), r"^.*\n", "")
    assert verdict(bundle, copy) == DIFFERS
    names = read(os.path.join(bundle, "members.txt"))
    write(os.path.join(copy, "members.txt"), names)
    assert verdict(bundle, copy) == SAME
    for name in ("members/other", "other"):
        os.mkdir(os.path.join(copy, name))
        assert verdict(bundle, copy) == CODE
        os.rmdir(os.path.join(copy, name))
    write(os.path.join(copy, "members.txt"), names + names)
    with pytest.raises(UsageError, match="twice, and its run would start twice"):
        verdict(bundle, copy)


@pytest.mark.slow
def test_edits_of_a_lock_get_the_right_verdict(tmp_path):
    text = SPEC.replace('on "rows.jsonl"', "on tatsu-lab/alpaca")
    files = {"chat.jinja": MARKED, "t.xp": text}
    lock = written(LOCK).decode()
    before = put(tmp_path / "before", {**files, "t.xp.lock": lock})
    draw = random.Random("lock 32")
    edits = (
        (r'"markupsafe==.*",$', '"markupsafe==2.4.{}",', CODE), (r'"jinja2==.*",$', '"jinja2==3.{}",', CODE),
        (r"^resolved = \[$", 'resolved = [\n  "evil=={}",', CODE), (r'  "markupsafe.*\n', "", CODE),
        (r"^resolved = \[$", "resolved = [  # {} packages", SAME), (r"^xpc = .*$", 'xpc = "2.{}"', SAME),
        (r'  ("jinja2.*)\n  ("mark.*)\n', r"  \2\n  \1\n", SAME), (r"aaaa", "{}bcd", DIFFERS),
        (r"bbbb", "{}abc", DIFFERS),
    )  # fmt: skip
    for number in range(EDITS):
        old, new, wanted = draw.choice(edits)
        edited = re.sub(old, new.format(draw.randrange(9)), lock, count=1, flags=re.M)
        after = put(tmp_path / f"after{number}", {**files, "t.xp.lock": edited})
        paths = [os.path.join(one, "t.xp") for one in (before, after)]
        if edited != lock:
            assert (verdict(*paths), verdict(*paths[::-1])) == (wanted, wanted), (old, new)


@pytest.mark.slow
def test_edits_of_a_spec_get_the_right_verdict(tmp_path):
    draw = random.Random("spec 32")
    edits = (
        ("lr = 2e-5", "lr = {}e-5", DIFFERS), ("weight_decay = 0.1", "weight_decay = 0.0{}", DIFFERS),
        ("seed 7", "seed {}", DIFFERS), ("gbs=16", "gbs=32", DIFFERS),
        ("micro=2", "micro=1", DIFFERS), ("seq=1024", "seq=102{}", DIFFERS),
        ("strategy zero2", "strategy zero3", DIFFERS),
        ("for 2 epochs", "for {} steps", DIFFERS), ("xpc 1", "xpc 1\n# {}", SAME), ("lr = 2e-5", "lr = 0.00002", SAME),
        ("seed 7", "target trl-1.16\nseed 7", SAME),
        ("weight_decay = 0.1", "weight_decay = 0.1\n  betas = [0.9, 0.999]", SAME),
        ('file("chat.jinja")', 'file("other.jinja")', DIFFERS), ('"rows.jsonl"', '"others.jsonl"', DIFFERS),
        ("8 x h100-80gb", "8 x a100-80gb", DIFFERS), ('"out/run"', '"out/run{}"', DIFFERS),
        ("strategy zero2\nprecision bf16", "precision bf16\nstrategy zero2", SAME),
    )  # fmt: skip
    files = {"chat.jinja": MARKED, "other.jinja": MARKED + "!", "rows.jsonl": ROW * 40, "others.jsonl": ROW * 39}
    for _ in range(EDITS):
        old, new, wanted = draw.choice(edits)
        assert old in SPEC
        digit = draw.choice("35689")
        root = put(tmp_path, {**files, "a.xp": SPEC, "b.xp": SPEC.replace(old, new.format(digit))})
        paths = [os.path.join(root, one) for one in ("a.xp", "b.xp")]
        assert (verdict(*paths), verdict(*paths[::-1])) == (wanted, wanted), (old, new, digit)


# -- files of strangers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["link", "link to a folder", "pipe", "device", "large"])
def test_strange_files_of_a_bundle_are_not_read(kind, tmp_path):
    root = put(tmp_path, {"t.xp": SPEC, "chat.jinja": MARKED, "rows.jsonl": ROW * 40, "secret": "the secret"})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    path = os.path.join(root, "t.bundle", "trainer", "main.py")
    os.unlink(path)
    if kind == "link":
        os.symlink(os.path.join(root, "secret"), path)
    elif kind == "link to a folder":
        shutil.rmtree(os.path.join(root, "t.bundle", "trainer", "core"))
        os.symlink("/proc", os.path.join(root, "t.bundle", "trainer", "core"))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        os.symlink("/dev/zero", path)
    else:
        with open(path, "wb") as handle:
            handle.truncate(2**40)
    for operands in (("t.xp", "t.bundle"), ("t.bundle", "t.xp")):
        done = xpc("diff", *operands, cwd=root)
        assert (done.returncode, b"the secret" in done.stdout + done.stderr) == (2, False)
        assert b"not read" in done.stderr
        assert b"broke" not in done.stderr


def test_numbers_that_json_does_not_have_are_texts(tmp_path):
    """An edited bundle may contain NaN and Infinity. Python's json module reads and writes them, but other JSON parsers
    refuse them.
    """
    root = put(tmp_path, {"t.xp": SPEC, "chat.jinja": MARKED, "rows.jsonl": ROW * 40})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    bundle = os.path.join(root, "t.bundle")
    for number in ("NaN", "1e999", "[-Infinity]"):
        copy = shutil.copytree(bundle, os.path.join(root, "copy"), dirs_exist_ok=True)
        replaced(os.path.join(copy, "trainer_args.json"), r'"max_grad_norm": [\d.]+', f'"max_grad_norm": {number}')
        assert (verdict(bundle, copy), verdict(copy, bundle)) == (DIFFERS, DIFFERS)


def test_a_side_that_does_not_compile_is_status_5(tmp_path):
    root = put(tmp_path, {"a.xp": SPEC.replace("bf16", "bf61"), "b.xp": SPEC, "chat.jinja": MARKED, "rows.jsonl": ROW})
    assert xpc("diff", "a.xp", "b.xp", "--exit-code", cwd=root).returncode == 5
    assert xpc("diff", "a.xp", "b.xp", cwd=root).returncode == 1
    done = xpc("diff", "a.xp", "b.xp", "--exit-code", "--format", "json", cwd=root)
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (5, "does not compile")
