"""Hostile pull requests that change committed bundles, locks, images, local models or runs. They do no harm.

The tests run every command that a reviewer uses: the Action, the pre-commit hooks, diff, lock and verify --all.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from compile_support import CONFIG, put
from git_commands import branch_off, git
from tiers import nightly_but

pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))
MARK, SECRET = "zq7pwned", "zq7secret"
CODE = f"open({MARK!r}, 'w').write('{MARK}')\n"
EVIL_NAME = "\x1b[2J\u202e::error::\n##[stop-commands]x"
SECONDS = 400
"""The limit of CPU seconds for all commands on one pull request. The slowest pull request takes 60 CPU seconds on an
idle machine, and up to 120 on shared cores. With a limit of 90, two of these tests once failed.
"""
TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
ROW = json.dumps({"messages": TALK}) + "\n"
SPEC = """\
xpc 1

train "m" on "rows.jsonl" for 1 epoch

hardware 2 x cpu
precision fp32
batch gbs=4 micro=1 seq=256
save "out/a"
"""
PICTURED = """\
xpc 1

train qwen2.5-vl-3b-instruct on "p.jsonl" for 1 epoch

hardware 2 x h100-80gb
strategy zero2
precision bf16
batch gbs=2 micro=1 seq=4096
method sft(assistant_only)
lora(rank=16)
save "out/p"
"""
MODEL = {
    "m/config.json": json.dumps(CONFIG), "m/tokenizer.json": "{}", "m/tokenizer_config.json": "{}",
    "m/chat_template.jinja": "{{ messages }}", "m/model.safetensors": b"w" * 400,
}  # fmt: skip
DEEP = 100_000
QUIET = ("-c", "maintenance.auto=false")
"""Options with which git does not work in the background while a repository is copied."""


def pictures(*images: object, many: int = 1) -> str:
    return (json.dumps({"messages": TALK, "images": list(images)}) + "\n") * many


def specs(files: dict[str, str | bytes]) -> Callable[[Path], None]:
    return lambda root: put(root / "specs", files) and None


def linked(name: str, target: str, more: dict[str, str | bytes] | None = None) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        path = root / "specs" / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target.format(root=root))
        put(root / "specs", more or {})

    return make


def edited(name: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        path = root / "specs" / name
        path.write_text(change(path.read_text()))

    return make


def gitlink(path: str) -> Callable[[Path], None]:
    """Replace a folder by a submodule that is not cloned."""

    def make(root: Path) -> None:
        shutil.rmtree(root / path)
        git(root, "rm", "-r", "-q", "--cached", path)
        git(root, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},{path}")
        put(root, {".gitmodules": f'[submodule "x"]\n\tpath = {path}\n\turl = ext::sh -c "touch {MARK}"\n'})

    return make


def members(text: str) -> Callable[[Path], None]:
    return specs({"s.bundle/members.txt": text, "s.bundle/sweep.toml": '[sweep]\nspec = "a.xp"\n'})


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'1' * 64}\nsize {10**17}\n"
RUN = {"out/a/xpc_run.json": "{}", "out/a/metrics.jsonl": "{}"}
EVIL: dict[str, Callable[[Path], None]] = {
    "an image with a name of commands": specs({f"i/{EVIL_NAME}.png": b"1", "p.jsonl": pictures(f"i/{EVIL_NAME}.png")}),
    "an image that is a link to a secret": linked("i/a.png", "{root}/../secret"),
    "an image that is a link to a device": linked("i/a.png", "/dev/zero"),
    "a folder of images that is a link": linked("i", "{root}/.."),
    "images with names that are no names": specs({"p.jsonl": pictures(
        "x" * 10**6, "\ud800.png", "a\0.png", "", ".", "..", "/", "i", "http://h/x", {"path": ["x"]}, [["i/a.png"]], 7,
    )}),
    "20,000 images that are not there": specs({"p.jsonl": "".join(pictures(f"i/{n}.png") for n in range(20_000))}),
    "an image 20,000 times": specs({"p.jsonl": pictures("i/a.png", many=20_000)}),
    "an image 200,000 times": specs({"p.jsonl": pictures("i/a.png", many=200_000)}),
    "rows of images that are nested": specs({"p.jsonl": '{"images": ' + "[" * DEEP + "\n"}),
    "a list of images that is nested": specs({"p.bundle/data/x.images.jsonl": "[" * DEEP + "\n" * 10**5}),
    "a pointer to an image of petabytes": specs({"i/a.png": POINTER}),
    "a tokenizer with code": specs({
        "m/tokenization_x.py": CODE, "m/tokenizer_config.json": '{"auto_map": {"AutoTokenizer": ["x.T", null]}}',
    }),
    "a file of the model with a name of commands": specs({f"m/{EVIL_NAME}.json": "{}"}),
    "a model that is a link to everything": linked("m", "{root}/.."),
    "weights that are a link to a device": linked("m/model.safetensors", "/dev/zero"),
    "weights of petabytes": specs({"m/model.safetensors": POINTER}),
    "a model that is a submodule": gitlink("specs/m"),
    "a manifest with names that lead out": edited(
        "a.bundle/bundle.toml", lambda text: text.replace('"launch.sh"', '"../../../../../secret"')
    ),
    "a manifest of nested lists": specs({"a.bundle/bundle.toml": "x = " + "[" * DEEP + "\n"}),
    "a manifest of nested keys": specs({"a.bundle/bundle.toml": ".".join("a" * 20_000) + " = 1\n"}),
    "arguments that are nested": specs({"a.bundle/trainer_args.json": '{"a": ' * DEEP}),
    "arguments with a long number": specs({"a.bundle/trainer_args.json": '{"a": ' + "9" * 10**6 + "}"}),
    "YAML that is nested": specs({"a.bundle/accelerate.yaml": "a: " + "{b: " * DEEP + "\n"}),
    "a value of YAML with quotes": specs({"a.bundle/accelerate.yaml": "a: " + '"x" # ' * 10**5 + "\n"}),
    "a file of a bundle with a name of commands": specs({f"a.bundle/{EVIL_NAME}": "x"}),
    "a program of a bundle with lines of commands": edited("a.bundle/launch.sh", lambda text: EVIL_NAME + text),
    "members that lead out": members("../../../../secret\n"),
    "100,000 members": members("".join(f"m{n}\n" for n in range(10**5))),
    "a lock of nested lists": specs({"a.xp.lock": "x = " + "[" * DEEP + "\n"}),
    "a lock with names of commands": specs({
        "a.xp.lock": f'[lock]\nformat = 1\nxpc = "0"\ntarget = "trl-1.16"\n[files]\n{json.dumps(EVIL_NAME)} = '
        f'"sha256:{"1" * 64}"\n',
    }),
    "two specs that differ in capitals": specs({"A.xp": SPEC.replace("out/a", "out/A"), "a.XP": SPEC}),
    "names that look alike": specs({"é.xp": SPEC, "e\u0301.xp": SPEC, "a\u200b.xp": SPEC, "main:specs": SPEC}),
    "a spec that extends itself by a link": linked("b.xp", "a.xp", {"a.xp": 'xpc 1\n\nextends "b.xp"\n'}),
    "a spec that is a folder": linked("a.xp", ".", {}),
    "attributes that change what a checkout is": specs({
        "../.gitattributes": "* text eol=crlf ident export-subst diff=x filter=x\n",
        "../.lfsconfig": f'[lfs]\n\turl = ext::sh -c "touch {MARK}"\n',
    }),
    "a finished run that is nested": specs({**RUN, "out/a/summary.json": '{"bundle": ' + "[" * DEEP}),
    "a finished run with names that lead out": specs({
        **RUN, "out/a/summary.json": '{"bundle": "x", "files": {"../../../../secret": [1, "x"]}}',
    }),
    "10,001 files of rows": specs({
        **{f"rows/{n}.jsonl": "" for n in range(10_001)}, "a.xp": SPEC.replace("rows.jsonl", "rows"),
    }),
}  # fmt: skip


DAILY = {"nothing", "10,001 files of rows", *list(EVIL)[::2]} - {"an image 200,000 times"}
"""The pull requests that `make test` tries: the harmless one, and every second hostile one. `make slow` tries all."""


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two specs, their bundles, a local model, rows and images."""
    from compile_support import xpc

    root = tmp_path_factory.mktemp("reviewed") / "work"
    put(root / "specs", {"a.xp": SPEC, "p.xp": PICTURED, "rows.jsonl": ROW * 40, "i/a.png": b"1" * 99, **MODEL})
    put(root / "specs", {"p.jsonl": pictures("i/a.png") * 4})
    put(root.parent, {"secret": SECRET})
    for name in "ap":
        done = xpc("compile", f"{name}.xp", cwd=str(root / "specs"))
        assert done.returncode == 0, done.stdout
    branch_off(root, "-A", "-f")
    return root


def reviewed(root: Path) -> dict[str, object]:
    """Run a reviewer's commands in a repository; return their results."""
    command = [sys.executable, "-P", os.path.join(HERE, "audited_commands.py"), str(root)]
    temporary = root.parent / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=root, timeout=3600,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join([HERE, *filter(None, sys.path)])},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


def assert_harmless(found: dict[str, object], root: Path) -> dict[str, object]:
    """Check that no foreign code ran, that every command ended in an ordinary way, and that neither the secret nor a
    control character was printed. Return the exit status of each command.
    """
    assert not list(root.rglob(MARK))
    statuses = found["statuses"]
    assert isinstance(statuses, dict)
    assert all(one in (0, 1, 2, 4, 5) or str(one).startswith("UsageError") for one in statuses.values()), statuses
    for text in (str(found["output"]), str(found["comment"])):
        assert SECRET not in text
        assert "Traceback" not in text
        assert "broke the compiler" not in text
        assert all(one.isprintable() or one == "\n" for one in text)
    return statuses


def assert_no_commands(printed: str) -> None:
    """Check that no printed line is a command of GitHub's runner, except the annotations that xpc writes."""
    for line in printed.splitlines():
        assert "##[" not in line
        own = line.startswith(("::error ", "::warning ", "::notice ")) or line.count("::") == 1  # ` ::: base.xp:3:7`
        assert not line.lstrip().startswith("::") or own


@pytest.mark.parametrize("what", nightly_but(["nothing", *EVIL], DAILY.__contains__))
def test_what_a_reviewer_runs(what: str, honest: Path, tmp_path: Path) -> None:
    root = tmp_path / "work"
    shutil.copytree(honest, root, symlinks=True)
    put(tmp_path, {"secret": SECRET})
    put(root / "specs", {"rows.jsonl": ROW * 41})
    if what != "nothing":
        EVIL[what](root)
    git(root, "add", "-A", "-f", *([":!specs/m"] if "submodule" in what else []))
    git(root, "commit", "-qm", "two")
    found = reviewed(root)
    assert found["findings"] == []
    statuses = assert_harmless(found, root)
    assert_no_commands(str(found["output"]))
    if what == "nothing":
        assert statuses["diff"] == 1
        assert "1 row added" in str(found["output"])
        assert "rows" in str(found["comment"])
