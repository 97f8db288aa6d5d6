"""Helpers of the compiler's tests: compile a spec from a string, write files into a folder, and run `xpc` commands."""

from __future__ import annotations

import gc
import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from xpc.compiler.cli import main
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import Checked, check_text, compile_text
from xpc.grammar.diagnostic import ERROR, Diagnostic, applied

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NOWHERE = os.path.join(REPOSITORY, "tests", "no-such-folder")

SENTENCE = "train qwen2.5-3b on infinity-instruct with zero2 gbs=528 bf16 liger\n"
SEED = """\
xpc 1

train qwen2.5-3b on infinity-instruct:0625 for 3 epochs

hardware 8 x v100-32gb
precision fp32

strategy zero2 {
  allgather_bucket = 500M
  overlap_comm = false
  round_robin_gradients
}

batch {
  gbs = 528
  micro = 11        # 528 = 11 x 6 accumulation x 8 GPUs
}

optimizer adamw {
  lr = 1e-5
  betas = [0.9, 0.95]
  weight_decay = 0
  clip = 1
}

schedule cosine {
  min_lr = 0
  warmup = 40
}

memory {
  liger
  checkpointing(reentrant=false)
}

save "out/qwen2.5-3b-infinity-instruct-0625"
track wandb(name="my-second-sft-exp")
"""
HEAD = "xpc 1\ntrain qwen2.5-3b on infinity-instruct for 3 epochs\nhardware 8 x h100-80gb\n"
"""The first three lines of a spec; a test adds the other lines, such as the strategy and the batch."""
CHATML = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
LOCAL = """\
xpc 1

train "models/tiny" on "rows.jsonl" for 1 epochs

hardware 2 x cpu
precision fp32

batch {
  gbs = 4
  micro = 1
  seq = 256
}

save "out/x"
"""
"""A spec that trains the local model `models/tiny` on `rows.jsonl`."""
LOCAL_MODEL: dict[str, str | bytes] = {
    "config.json": json.dumps(CONFIG), "tokenizer.json": "{}", "tokenizer_config.json": "{}",
    "chat_template.jinja": "{{ messages }}", "model.safetensors": b"w" * 4000,
}  # fmt: skip
"""The files of the folder `models/tiny`, which `LOCAL` trains."""


def checked(text: str | bytes, root: str = NOWHERE, name: str = "t.xp", allow_oom: bool = False) -> Checked:
    """Check a spec with all rules. ``root`` is the folder with the local files that the spec names."""
    data = text.encode() if isinstance(text, str) else text
    return check_text(data, name, Workspace(str(root), allow_oom=allow_oom))


@lru_cache(4096)
def _nowhere(text: str) -> Checked:
    return checked(text)


def checked_once(text: str, root: str = NOWHERE) -> Checked:
    """`checked` with a cache, for specs that name no files. All tests with the same text get the same object, so no
    test may change it.
    """
    return _nowhere(text) if root == NOWHERE else checked(text, root)


def compiled(text: str | bytes, root: str = NOWHERE, name: str = "t.xp", allow_oom: bool = False) -> dict[str, bytes]:
    """Compile a spec; return the bundle's files by name. Fails with the diagnostics if the spec has errors."""
    data = text.encode() if isinstance(text, str) else text
    files, found = compile_text(data, name, Workspace(str(root), allow_oom=allow_oom))
    assert files is not None, shown(found)
    return files


def codes(found: Checked, severity: str | None = None) -> list[str]:
    return [one.code for one in found.problems if severity in (None, one.severity)]


def errors(found: Checked) -> list[str]:
    return codes(found, ERROR)


def of(found: Checked, code: str) -> list[Diagnostic]:
    return [one for one in found.problems if one.code == code]


def only(found: Checked, code: str) -> Diagnostic:
    """The diagnostic with this code; fails unless there is exactly one."""
    matching = of(found, code)
    assert len(matching) == 1, shown(found)
    return matching[0]


def shown(found: Checked) -> str:
    return "\n".join(f"{one.severity} {one.code}: {one.message} (help: {one.help})" for one in found.problems)


def value(text: str, path: str, root: str = NOWHERE) -> object:
    """The value of the setting at ``path``, such as "optimizer.lr", in the resolved spec."""
    found = checked(text, root)
    assert found.spec is not None, shown(found)
    return found.spec.get(path)


def edited(text: str, problem: Diagnostic) -> str:
    """The text after the edits that one diagnostic suggests."""
    return applied(text, problem.edits)


def xpc(
    *arguments: str, cwd: str | None = None, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run an `xpc` command inside this process. The command has its own streams, working directory and environment
    variables.
    """
    kept = sys.stdin, sys.stdout, sys.stderr, os.getcwd(), dict(os.environ)
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    sys.stdout, sys.stderr = io.TextIOWrapper(out, "utf-8"), io.TextIOWrapper(err, "utf-8")
    try:
        os.environ.update({"XPC_CACHE": "off", **(env or {})})
        os.chdir(cwd or kept[3])
        try:
            status = main(arguments)
        except SystemExit as left:
            status = int(left.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        return subprocess.CompletedProcess(["xpc", *arguments], status, out.getvalue(), err.getvalue())
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept[:3]
        os.chdir(kept[3])
        os.environ.clear()
        os.environ.update(kept[4])
        gc.enable()


def xpc_process(*arguments: str, cwd: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run an `xpc` command in a new process."""
    environment = {**os.environ, "XPC_CACHE": "off", **(env or {})}
    return subprocess.run(
        [sys.executable, "-m", "xpc.compiler.cli", *arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=600,
        check=False,
    )


IN_TURN = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from compile_support import xpc
for line in json.load(sys.stdin):
    done = xpc(*line, env=os.environ)
    told = [text.decode("utf-8", "surrogateescape") for text in (done.stdout, done.stderr)]
    print(json.dumps([done.returncode, *told]))
"""


def xpc_in_turn(
    lines: Sequence[Sequence[str]], cwd: str, env: Mapping[str, str] | None = None
) -> list[subprocess.CompletedProcess[bytes]]:
    """Run several `xpc` commands one after another in a single new process. This is faster than starting a new
    interpreter for each command.
    """
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, os.path.dirname(os.path.abspath(__file__))],
        cwd=cwd,
        input=json.dumps(lines).encode(),
        env={**os.environ, "XPC_CACHE": "off", **(env or {})},
        capture_output=True,
        timeout=600,
        check=True,
    )
    reported = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(reported) == len(lines)
    return [
        subprocess.CompletedProcess(
            ["xpc", *line], status, *(text.encode("utf-8", "surrogateescape") for text in (out, err))
        )
        for line, (status, out, err) in zip(lines, reported, strict=True)
    ]


def read(*names: str) -> str:
    """The text of a file of the repository: ``read("docs", "install.md")``."""
    with open(os.path.join(REPOSITORY, *names), encoding="utf-8") as handle:
        return handle.read()


def put(folder: object, files: Mapping[str, str | bytes]) -> str:
    """Write files into a folder and return its path as a string."""
    for name, data in files.items():
        path = os.path.join(str(folder), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as handle:
            handle.write(data.encode() if isinstance(data, str) else data)
    return str(folder)


def manifest_of(spec: str) -> str:
    """The text of a `bundle.toml` for a bundle with only one file, `spec.xp`, and the digest of this spec's text."""
    digest = hashlib.sha256(spec.encode()).hexdigest()
    head = '# made by a test\n\n[bundle]\nspec = "a.xp"\nname = "a"\nxpc = "0"\n\n[inputs]\n'
    return f'{head}\n[files]\n"spec.xp" = "sha256:{digest}"\n'


def placed(files: Mapping[str, str | bytes], folder: Callable[[], object]) -> str:
    """Write files into the folder that ``folder()`` returns, and return its path. Most cases have no files; for these,
    ``folder`` is not called.
    """
    return put(folder(), files) if files else NOWHERE


def tree(folder: object) -> dict[str, bytes]:
    """Maps the relative path of each file below a folder to the file's content. An empty folder also has an entry: its
    name with a `/` at the end, without content.
    """
    out: dict[str, bytes] = {}
    for where, folders, names in os.walk(str(folder)):
        for name in names:
            path = os.path.join(where, name)
            if os.path.islink(path) or not os.path.isfile(path):
                out[os.path.relpath(path, str(folder))] = b"not a regular file"
                continue
            with open(path, "rb") as handle:
                out[os.path.relpath(path, str(folder))] = handle.read()
        if not folders and not names:
            out[os.path.relpath(where, str(folder)) + "/"] = b""
    return out
