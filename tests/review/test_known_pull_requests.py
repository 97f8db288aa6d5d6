"""Each test makes one pull request, and knows the first line of its comment. The pull requests are about bases, sweeps,
data, templates, rewards, locks, bundles, stacks, renames, modes, encodings, links and merges.
"""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from compile_support import manifest_of, put
from git_commands import branch_off, git
from test_known_edits import lock

from xpc.compiler.review.pull_request import comment, entries

pytestmark = pytest.mark.slow

Edit = Callable[[Path], object]
NONE = "No run changes."
BUNDLES = "No spec changes its run, but committed bundles change."
HOUSE = """\
xpc 1

precision bf16
hardware 2 x h100-80gb
optimizer adamw { lr = 1e-5, weight_decay = 0 }
batch gbs=16 micro=4
"""
CHAT = """\
xpc 1

extends "house.xp"

train qwen2.5-0.5b-instruct on ultrachat-200k for 1 epochs with seed 8
batch seq=512
"""
A = 'xpc 1\n\nextends "../base/chat.xp"\n\nsave "out/a"\n'
SWEEP = 'xpc 1\n\nextends "../base/chat.xp"\n\nsave "out/sweep"\n\nsweep {\n  lr = [1e-6, 2e-6]\n}\n'
ROWS = """\
xpc 1

extends "../base/house.xp"

train qwen2.5-0.5b-instruct on "rows.jsonl" for 2 epochs

model { chat_template = file("t.jinja") }
save "out/rows"
"""
GRPO = """\
xpc 1

extends "../base/house.xp"

train qwen2.5-0.5b-instruct on "p.jsonl" for 1 epoch

method grpo(generations=8, rewards=["r.py:f"])
save "out/g"
"""
LOCKED = A.replace("out/a", "out/locked")
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
REWARD = "def f(completions, **kw):\n    return [1.0 for _ in completions]\n"


def row(number: int, answer: str = "a") -> str:
    turns = [("user", f"q{number}"), ("assistant", f"{answer}{number}")]
    return json.dumps({"messages": [{"role": role, "content": text} for role, text in turns]}) + "\n"


DATA = "".join(map(row, range(64)))
FILES = {
    "base/house.xp": HOUSE, "base/chat.xp": CHAT, "specs/a.xp": A, "specs/sweep.xp": SWEEP, "specs/rows.xp": ROWS,
    "specs/rows.jsonl": DATA, "specs/t.jinja": TEMPLATE, "specs/grpo.xp": GRPO, "specs/r.py": REWARD,
    "specs/p.jsonl": "".join(json.dumps({"prompt": f"q{n}"}) + "\n" for n in range(64)),
    "specs/locked.xp": LOCKED, "specs/locked.xp.lock": lock(), "specs/run.bundle/spec.xp": A,
    "specs/run.bundle/bundle.toml": manifest_of(A), "README.md": "x\n",
}  # fmt: skip


def text(name: str, old: str, new: str) -> Edit:
    """Replace a part of a file of the repository."""

    def edit(root: Path) -> None:
        was = (root / name).read_text(encoding="utf-8")
        assert old in was, (name, old)
        (root / name).write_bytes(was.replace(old, new).encode())

    return edit


def added(files: dict[str, str]) -> Edit:
    return lambda root: put(root, files)


def encoded(name: str, change: Callable[[str], bytes]) -> Edit:
    return lambda root: (root / name).write_bytes(change((root / name).read_text(encoding="utf-8")))


def crlf(name: str) -> Edit:
    return encoded(name, lambda was: was.replace("\n", "\r\n").encode())


def bom(name: str) -> Edit:
    return encoded(name, lambda was: b"\xef\xbb\xbf" + was.encode())


def moved(old: str, new: str) -> Edit:
    def edit(root: Path) -> None:
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        (root / old).rename(root / new)

    return edit


def removed(name: str) -> Edit:
    return lambda root: (root / name).unlink()


def link(name: str, target: str) -> Edit:
    def edit(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(target)

    return edit


def mode(name: str, bits: int = 0o755) -> Edit:
    return lambda root: (root / name).chmod(bits)


def then(*edits: Edit) -> Edit:
    def edit(root: Path) -> None:
        for one in edits:
            one(root)

    return edit


def swapped(root: Path) -> None:
    moved("specs/a.xp", "kept")(root)
    moved("specs/locked.xp", "specs/a.xp")(root)
    moved("kept", "specs/locked.xp")(root)


def committed(root: Path, message: str = "change") -> None:
    git(root, "add", "-A", "-f")
    git(root, "commit", "-q", "--allow-empty", "-m", message)


def merged(root: Path) -> None:
    """Main changes a base; the pull request changes a spec, and then merges main."""
    git(root, "checkout", "-q", "main")
    text("base/house.xp", "lr = 1e-5", "lr = 2e-5")(root)
    committed(root, "main goes on")
    git(root, "checkout", "-q", "change")
    text("specs/rows.xp", "for 2 epochs", "for 3 epochs")(root)
    committed(root)
    git(root, "merge", "-q", "main", "-m", "merge")


def merged_otherwise(root: Path) -> None:
    """The two merged branches set different values in one line of a base, and the merge commit has a third value."""
    git(root, "checkout", "-q", "main")
    text("base/house.xp", "gbs=16", "gbs=32")(root)
    committed(root, "main goes on")
    git(root, "checkout", "-q", "change")
    git(root, "merge", "-q", "-s", "ours", "main", "-m", "merge")
    text("base/house.xp", "gbs=16", "gbs=64")(root)


def reverted(root: Path) -> None:
    text("base/house.xp", "gbs=16", "gbs=32")(root)
    committed(root)
    git(root, "revert", "--no-edit", "HEAD")


def renamed_base(root: Path) -> None:
    moved("base/house.xp", "base/home.xp")(root)
    text("base/chat.xp", "house.xp", "home.xp")(root)
    for name in ("rows", "grpo"):
        text(f"specs/{name}.xp", "house.xp", "home.xp")(root)


def inlined(root: Path) -> None:
    clauses = HOUSE.partition("\n\n")[2]
    text("base/chat.xp", 'extends "house.xp"\n\n', "")(root)
    text("base/chat.xp", "seed 8\n", f"seed 8\n\n{clauses}")(root)
    for name in ("rows", "grpo"):
        text(f"specs/{name}.xp", 'extends "../base/house.xp"\n\n', "")(root)
        path = root / f"specs/{name}.xp"
        path.write_text(path.read_text() + clauses)
    removed("base/house.xp")(root)


HOURS = r"[+-][\d.,]+ GPU-hours"
DISK = r"[+-][\d.]+ [GM]iB"
PULLS: dict[str, tuple[Edit, str]] = {
    # sweeps
    "values of a sweep in another order": (text("specs/sweep.xp", "1e-6, 2e-6", "2e-6, 1e-6"), NONE),
    "a value of a sweep in another form": (text("specs/sweep.xp", "1e-6", "0.000001"), NONE),
    "a value of a sweep twice": (text("specs/sweep.xp", "2e-6", "2e-6, 2e-6"), NONE),
    "a sweep on one line": (
        text("specs/sweep.xp", "sweep {\n  lr = [1e-6, 2e-6]\n}", "sweep { lr = [1e-6, 2e-6] }"),
        NONE,
    ),
    "one more value": (
        text("specs/sweep.xp", "2e-6", "2e-6, 3e-6"),
        rf"specs/sweep.xp: swept: optimizer.lr \(2\) -> optimizer.lr \(3\); 1 run new; {HOURS}, {DISK}",
    ),
    "one value less": (
        text("specs/sweep.xp", ", 2e-6", ""),
        rf"specs/sweep.xp: swept: optimizer.lr \(2\) -> optimizer.lr \(1\); 1 run removed; {HOURS}, {DISK}",
    ),
    "another value": (
        text("specs/sweep.xp", "2e-6", "4e-6"),
        r"specs/sweep.xp: swept: optimizer.lr \(1e-06, 2e-06\) -> optimizer.lr \(1e-06, 4e-06\); 1 run new; "
        r"1 run removed",
    ),
    "an axis of one value that is the default": (
        text("specs/sweep.xp", "2e-6]", "2e-6]\n  warmup = [0]"),
        r"specs/sweep.xp: swept: optimizer.lr \(2\) -> optimizer.lr \(2\), schedule.warmup \(1\); "
        "2 runs under a new name",
    ),
    "an axis more": (
        text("specs/sweep.xp", "2e-6]", "2e-6]\n  gbs = [16, 32]"),
        r"specs/sweep.xp: swept: optimizer.lr \(2\) -> optimizer.lr \(2\), batch.gbs \(2\); 2 runs new; "
        rf"2 runs under a new name; {HOURS}, {DISK}",
    ),
    "an axis in a zip of its own": (
        text("specs/sweep.xp", "lr = [1e-6, 2e-6]", "zip {\n    lr = [1e-6, 2e-6]\n  }"),
        NONE,
    ),
    "no sweep any more": (
        text("specs/sweep.xp", "sweep {\n  lr = [1e-6, 2e-6]\n}\n", ""),
        rf"specs/sweep.xp: 2 runs -> 1 run: optimizer.lr no longer swept; {HOURS}, {DISK}",
    ),
    "a sweep of a single run": (
        text("specs/a.xp", 'save "out/a"\n', 'save "out/a"\nsweep { seed = [1, 2, 3] }\n'),
        rf"specs/a.xp: 1 run -> 3 runs: seed swept; {HOURS}, {DISK}",
    ),
    "a sweep in a base": (
        text("base/chat.xp", "seed 8\n", "seed 8\n\nsweep { warmup = [10, 20] }\n"),
        rf"3 changed; {HOURS}, {DISK}",  # chat, a and locked; sweep.xp sweeps another setting
    ),
    "a base's value that the sweep overrides": (
        text("base/house.xp", "lr = 1e-5", "lr = 2e-5"),
        "base/house.xp:5 optimizer.lr 1e-05 -> 2e-05: 5 specs",
    ),
    "the folder of a sweep": (
        text("specs/sweep.xp", "out/sweep", "out/other"),
        r'specs/sweep.xp: save "out/sweep/MEMBER" -> "out/other/MEMBER" in 2 of 2 runs',
    ),
    # bases
    "a renamed base": (renamed_base, NONE),
    "a base that is copied into its specs": (inlined, NONE),
    "a base that is gone": (removed("base/house.xp"), "6 broken"),
    "a setting that moves between bases": (
        then(
            text("base/house.xp", "precision bf16\n", ""),
            text("base/chat.xp", "seed 8\n", "seed 8\nprecision bf16\n"),
            text("specs/rows.xp", 'save "', 'precision bf16\nsave "'),
            text("specs/grpo.xp", 'save "', 'precision bf16\nsave "'),
        ),
        NONE,
    ),
    "a base between": (
        then(added({"base/middle.xp": 'xpc 1\n\nextends "chat.xp"\n'}), text("specs/a.xp", "chat.xp", "middle.xp")),
        r"base/middle.xp: new: Qwen/Qwen2.5-0.5B-Instruct on HuggingFaceH4/ultrachat_200k, .*",
    ),
    "a base between without a run": (
        then(
            added({"base/half.xp": "xpc 1\n\nseed 9\n"}),
            text("base/house.xp", "xpc 1\n", 'xpc 1\n\nextends "half.xp"\n'),
        ),
        "base/half.xp:3 seed 42 -> 9: 2 specs",  # rows.xp and grpo.xp; base/chat.xp has its own seed
    ),
    "a comment in a base": (text("base/house.xp", "optimizer", "# why\noptimizer"), NONE),
    "a default that a base states": (text("base/house.xp", "precision", "schedule linear\nprecision"), NONE),
    "line ends of a base": (crlf("base/house.xp"), NONE),
    "a byte order mark of a base": (bom("base/house.xp"), NONE),
    "a base in Latin-1": (encoded("base/house.xp", lambda was: b"# \xe9\n" + was.encode()), "6 broken"),
    "a base in UTF-16": (encoded("base/house.xp", lambda was: was.encode("utf-16")), "6 broken"),
    "an executable base": (mode("base/house.xp"), NONE),
    "a base that is a link to its copy": (
        then(moved("base/house.xp", "base/real.xp"), link("base/house.xp", "real.xp")),
        NONE,
    ),
    "a base that is a link to another": (
        then(added({"base/real.xp": HOUSE.replace("gbs=16", "gbs=32")}), link("base/house.xp", "real.xp")),
        r"base/house.xp:6 batch.gbs 16 -> 32: 5 specs, 1 sweep \(2 members\); .*",
    ),
    "a base that extends its spec": (
        text("base/house.xp", "xpc 1\n", 'xpc 1\n\nextends "../specs/a.xp"\n'),
        "7 broken",
    ),
    "a base that trains": (
        text("base/house.xp", "xpc 1\n", "xpc 1\n\ntrain qwen2.5-3b on alpaca for 1 epochs\n"),
        r"base/house.xp: new: Qwen/Qwen2.5-3B on tatsu-lab/alpaca, .*",
    ),
    "a base that does not train": (
        then(
            text("base/chat.xp", "train", "# train"),
            *(
                text(
                    f"specs/{name}.xp",
                    "save",
                    "train qwen2.5-0.5b-instruct on ultrachat-200k for 1 epochs with seed 8\nsave",
                )
                for name in ("a", "sweep", "locked")
            ),
        ),
        r"base/chat.xp: no longer describes a run: it has no `train`.*",
    ),
    # data
    "one more row": (
        encoded("specs/rows.jsonl", lambda was: (was + row(64)).encode()),
        r'specs/rows.xp: data "rows.jsonl" content \w+ -> content \w+: 10 steps .*; '
        r"rows.jsonl: 1 row added, 0 removed \(64 -> 65 rows\).*",
    ),
    "line ends of rows": (crlf("specs/rows.jsonl"), r".*; rows.jsonl: the same rows, written in another way"),
    "a byte order mark of rows": (bom("specs/rows.jsonl"), r"specs/rows.xp: .*"),
    "rows without the last line end": (
        encoded("specs/rows.jsonl", lambda was: was[:-1].encode()),
        r".*; rows.jsonl: the same rows, written in another way",
    ),
    "rows in another order": (
        encoded("specs/rows.jsonl", lambda was: "".join(was.splitlines(keepends=True)[::-1]).encode()),
        r".*; rows.jsonl: the same rows in another order, from row 0 on",
    ),
    "renamed rows": (
        then(
            moved("specs/rows.jsonl", "specs/data/rows.jsonl"),
            text("specs/rows.xp", '"rows.jsonl"', '"data/rows.jsonl"'),
        ),
        NONE,
    ),
    "renamed rows with one row more": (
        then(
            moved("specs/rows.jsonl", "specs/data.jsonl"),
            then(
                text("specs/rows.xp", '"rows.jsonl"', '"data.jsonl"'),
                encoded("specs/data.jsonl", lambda was: (was + row(64)).encode()),
            ),
        ),
        r"specs/rows.xp: data .*",
    ),
    "rows that are gone": (removed("specs/rows.jsonl"), r"specs/rows.xp: does not compile"),
    "executable rows": (mode("specs/rows.jsonl"), NONE),
    "rows behind a link": (
        then(moved("specs/rows.jsonl", "specs/real.jsonl"), link("specs/rows.jsonl", "real.jsonl")),
        NONE,
    ),
    "rows that nothing reads": (added({"specs/other.jsonl": DATA, "README.md": "y\n"}), NONE),
    "prompts and rows": (
        then(
            encoded("specs/rows.jsonl", lambda was: was.replace("a63", "b63").encode()),
            encoded("specs/p.jsonl", lambda was: was.replace("q63", "z63").encode()),
        ),
        "2 changed",
    ),
    # templates and rewards
    "a space in a template": (
        text("specs/t.jinja", "{{ m.role }}: ", "{{ m.role }}:  "),
        r"specs/rows.xp: .*t.*jinja.*",
    ),
    "line ends of a template": (crlf("specs/t.jinja"), r"specs/rows.xp: .*t.*jinja.*"),
    "a renamed template": (
        then(moved("specs/t.jinja", "specs/u.jinja"), text("specs/rows.xp", "t.jinja", "u.jinja")),
        NONE,
    ),
    "a template that is gone": (removed("specs/t.jinja"), "specs/rows.xp: does not compile"),
    "a comment in a reward": (text("specs/r.py", "def f", "# x\ndef f"), r"specs/grpo.xp: .*r.*py.*"),
    "another function of a reward": (
        then(text("specs/r.py", "def f", "def g"), text("specs/grpo.xp", "r.py:f", "r.py:g")),
        r'specs/grpo.xp: rewards \["files/r-\w+.py:f"\] -> \["files/r-\w+.py:g"\]',
    ),
    "a module next to a reward": (added({"specs/helper.py": "x = 1\n"}), NONE),
    "a reward that is no Python": (text("specs/r.py", "def f(", "def f(("), "specs/grpo.xp: does not compile"),
    # locks
    "a new lock": (
        added({"specs/a.xp.lock": lock()}),
        rf"specs/a.xp: model.revision unset -> {'a' * 40}; numpy absent -> 2.4.6, .*",
    ),
    "torch of a lock": (
        added({"specs/locked.xp.lock": lock("2.12.0")}),
        r"specs/locked.xp: same settings, other code or packages: torch 2.13.0 -> 2.12.0",
    ),
    "a commit of a lock": (
        added({"specs/locked.xp.lock": lock().replace("a" * 40, "b" * 40)}),
        rf"specs/locked.xp: model.revision {'a' * 40} -> {'b' * 40}; .*",
    ),
    "line ends of a lock": (crlf("specs/locked.xp.lock"), NONE),
    "a byte order mark of a lock": (bom("specs/locked.xp.lock"), "specs/locked.xp: does not compile"),
    "a lock that is gone": (
        removed("specs/locked.xp.lock"),
        rf"specs/locked.xp: model.revision {'a' * 40} -> unset; numpy 2.4.6 -> absent, .*",
    ),
    "a lock that is no TOML": (added({"specs/locked.xp.lock": "x"}), "specs/locked.xp: does not compile"),
    "a spec renamed with its lock": (
        then(moved("specs/locked.xp", "specs/z.xp"), moved("specs/locked.xp.lock", "specs/z.xp.lock")),
        "specs/locked.xp -> specs/z.xp: the same run",
    ),
    "a spec renamed without its lock": (
        moved("specs/locked.xp", "specs/z.xp"),
        r"specs/locked.xp -> specs/z.xp: .*(packages|torch|revision).*",
    ),
    # bundles and stacks
    "a README of a bundle": (added({"specs/run.bundle/README.md": "x\n"}), BUNDLES),
    "another spec of a bundle": (
        added({"specs/run.bundle/spec.xp": LOCKED, "specs/run.bundle/bundle.toml": manifest_of(LOCKED)}),
        BUNDLES,
    ),
    "a bundle whose manifest is gone": (
        removed("specs/run.bundle/bundle.toml"),
        r"specs/run.bundle/spec.xp: does not compile",
    ),
    "a moved bundle": (lambda root: shutil.move(root / "specs/run.bundle", root / "other.bundle"), BUNDLES),
    "another stack": (
        text("specs/a.xp", "save", "target trl-0.24\nsave"),
        r"specs/a.xp: target trl-1.16 -> trl-0.24: \d+ arguments unchanged.*",
    ),
    "the default stack, written": (text("specs/a.xp", "save", "target trl-1.16\nsave"), NONE),
    # renames
    "a rename with an edit": (
        then(moved("specs/rows.xp", "specs/z.xp"), text("specs/z.xp", "2 epochs", "3 epochs")),
        r"specs/rows.xp -> specs/z.xp: train.epochs 2 -> 3: 12 steps instead of 8, 1.5 times the tokens.*",
    ),
    "a rename into another folder": (
        then(moved("specs/a.xp", "specs/deep/er/a.xp"), text("specs/deep/er/a.xp", "../base", "../../../base")),
        "specs/a.xp -> specs/deep/er/a.xp: the same run",
    ),
    "a rename in capitals": (moved("specs/a.xp", "specs/A.xp"), "specs/a.xp -> specs/A.xp: the same run"),
    "two specs with each other's names": (swapped, "2 changed"),
    "a copy": (lambda root: shutil.copy(root / "specs/a.xp", root / "specs/b.xp"), r"specs/b.xp: new: .*"),
    "another spec under the old name": (
        encoded("specs/a.xp", lambda _: ROWS.encode()),
        r"specs/a.xp: model|specs/a.xp: .*data .*",
    ),
    "a link in place of a spec": (
        then(removed("specs/a.xp"), link("specs/a.xp", "locked.xp")),
        r"specs/a.xp: is a symbolic link now, and is not checked.*",
    ),
    "an executable spec": (mode("specs/a.xp"), NONE),
    "a spec without the edition": (text("specs/a.xp", "xpc 1\n\n", ""), NONE),
    "a spec of a hidden folder": (moved("specs/a.xp", ".ci/a.xp"), r"specs/a.xp -> .ci/a.xp: the same run"),
    # commits
    "a merge of main": (merged, r"specs/rows.xp: train.epochs 2 -> 3: 12 steps instead of 8, 1.5 times the tokens.*"),
    "a merge with a value of its own": (
        merged_otherwise,
        r"base/house.xp:6 batch.gbs 32 -> 64: 5 specs, 1 sweep \(2 members\); .*",
    ),
    "a change and its revert": (reverted, NONE),
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, FILES)
    branch_off(tmp_path)
    return tmp_path


@pytest.mark.parametrize("what", PULLS)
def test_a_pull_request_gets_the_right_first_line(what: str, repository: Path) -> None:
    edit, expected = PULLS[what]
    edit(repository)
    committed(repository)
    found = list(entries(".", "main"))
    first = html.unescape(comment(found)).splitlines()[1].strip("*")
    assert first == expected or re.fullmatch(expected, first), first
