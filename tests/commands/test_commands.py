"""`xpc list`, `new`, `schema` and `completion` print the names that the compiler knows, and write specs that
compile.
"""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from case_support import PLAIN, ROW, spec  # noqa: E402
from compile_support import codes, put, xpc  # noqa: E402

from xpc.compiler.commands import COMMANDS  # noqa: E402
from xpc.compiler.commands.listing import KINDS  # noqa: E402
from xpc.compiler.commands.settings_schema import schema  # noqa: E402
from xpc.compiler.commands.starter import recipes  # noqa: E402
from xpc.compiler.files.workspace import Workspace  # noqa: E402
from xpc.compiler.language.kinds import BLOCK  # noqa: E402
from xpc.compiler.language.schema import BY_PATH  # noqa: E402
from xpc.compiler.pipeline import check_text  # noqa: E402


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_is_the_same_in_both_forms(kind, tmp_path):
    rows = json.loads(xpc("list", kind, "--format", "json", cwd=str(tmp_path)).stdout)
    lines = xpc("list", kind, cwd=str(tmp_path)).stdout.decode().splitlines()
    assert len(lines) == len(rows) + 1
    assert len(rows) >= 2
    assert [line.split()[0] for line in lines[1:]] == [row["name"] for row in rows]


def test_words_filter_a_list_and_an_unmatched_word_is_reported(tmp_path):
    found = json.loads(xpc("list", "models", "qwen2.5", "instruct", "--format", "json", cwd=str(tmp_path)).stdout)
    assert found
    assert all("qwen2.5" in row["name"] and "instruct" in row["name"] for row in found)
    wrong = xpc("list", "gpus", "h100-80bg", cwd=str(tmp_path))
    assert wrong.returncode == 2
    assert b"did you mean h100-80gb?" in wrong.stderr
    assert b"did you mean `xpc list datasets`?" in xpc("list", "datsets", cwd=str(tmp_path)).stderr
    one, all_ = xpc("list", "stack", cwd=str(tmp_path)), xpc("list", "stacks", cwd=str(tmp_path))
    assert one.stdout == all_.stdout != b""


@pytest.mark.slow
def test_what_is_listed_is_known(tmp_path):
    for kind, text in (
        ("models", "train {} on capybara for 1 epochs with 8 x h200-141gb"),
        ("gpus", "train qwen2.5-0.5b on capybara for 1 epochs with 1 x {}"),
        ("datasets", "train qwen2.5-0.5b on {} for 1 epochs with 1 x h100-80gb"),
    ):
        for row in KINDS[kind][0]():
            found = check_text(text.format(row["name"]).encode(), "one.xp", Workspace(str(tmp_path)))
            assert not {"XP110", "XP111", "XP112", "XP113"} & set(codes(found)), row["name"]


def test_a_starter_checks_clean_with_rows_of_ones_own(tmp_path):
    assert xpc("new", "mine", cwd=str(tmp_path)).returncode == 0
    turns = [{"role": "user", "content": "2 + {}?"}, {"role": "assistant", "content": "{}"}]
    rows = [json.dumps({"messages": turns}).replace("{}", str(number)) for number in range(64)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n")
    checked = xpc("check", "mine.xp", cwd=str(tmp_path))
    assert checked.returncode == 0
    assert checked.stdout == b""


def test_a_starter_overwrites_nothing(tmp_path):
    (tmp_path / "mine.xp").write_text("# mine\n")
    assert xpc("new", "mine.xp", cwd=str(tmp_path)).returncode == 2
    assert (tmp_path / "mine.xp").read_text() == "# mine\n"


@pytest.mark.slow
def test_every_recipe_can_be_copied_with_what_it_names(tmp_path):
    assert len(recipes()) >= 30
    for name, path in recipes().items():
        folder = tmp_path / name
        done = xpc("new", f"{name}/copy", "--from", name, cwd=str(tmp_path))
        assert done.returncode == 0, done.stderr
        copy = check_text((folder / "copy.xp").read_bytes(), "copy.xp", Workspace(str(folder)))
        with open(path, "rb") as handle:
            first = check_text(handle.read(), "copy.xp", Workspace(os.path.dirname(path)))
        assert codes(copy) == codes(first), name


def test_the_spec_of_a_bundle_is_copied_with_the_files_it_was_compiled_from(tmp_path):
    text = spec('model(chat_template=file("chat.jinja"))', train='qwen2.5-3b on "rows.jsonl" for 3 epochs')
    root = put(tmp_path / "first", {"run.xp": text, "chat.jinja": PLAIN, "rows.jsonl": ROW})
    assert xpc("compile", "run.xp", "-o", "b", cwd=root).returncode == 0
    assert xpc("new", "copy", "--from", "first/b/spec.xp", cwd=str(tmp_path)).returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["chat.jinja", "copy.xp", "first", "rows.jsonl"]
    assert xpc("check", "copy.xp", cwd=str(tmp_path)).returncode == 0


def test_a_recipe_that_is_none_gets_a_suggestion(tmp_path):
    done = xpc("new", "a", "--from", "smollm3-3b-sft-64xh10", cwd=str(tmp_path))
    assert done.returncode == 2
    assert b"did you mean smollm3-3b-sft-64xh100?" in done.stderr
    done = xpc("new", "a", "--from", "vicuna", cwd=str(tmp_path))
    assert b"did you mean vicuna-7b-sharegpt-lora-1xa100?" in done.stderr


def test_the_schema_takes_legal_settings_and_refuses_others():
    Draft202012Validator.check_schema(schema())
    takes = Draft202012Validator(schema())
    assert set(schema()["properties"]) == {path for path, row in BY_PATH.items() if row.kind is not BLOCK}
    legal = {
        "batch.gbs": 528,
        "schedule.warmup": "3%",
        "save.every": "epoch",
        "precision": "bf16",
        "memory.liger": True,
    }
    assert takes.is_valid(legal)
    for wrong in (
        {"batch.gbs": "528"},
        {"batch.gbz": 528},
        {"schedule.warmup": "3 %"},
        {"precision": "bf61"},
        {"memory.liger": "yes"},
        {"save.every": "sometimes"},
    ):
        assert not takes.is_valid(wrong), wrong


COMPLETED = {
    "xpc ch": ["check"],
    "xpc list mo": ["models"],
    "xpc check --format j": ["json"],
    "xpc diff --format m": ["markdown"],
    "xpc completion z": ["zsh"],
    "xpc new mine.xp --from smollm3-3b-s": ["smollm3-3b-sft-64xh100"],
    "xpc check sent": ["sentence.xp"],
}
"""Maps a command line to the words to which the shell completes its last word."""


def around(folder) -> dict[str, str]:
    """Environment variables of a shell. PATH has the folder of this xpc. HOME is a folder with a spec, but without
    settings of the user.
    """
    (folder / "sentence.xp").write_text("train qwen2.5-3b on alpaca\n")
    own = os.path.dirname(sys.executable)
    return {**os.environ, "PATH": f"{own}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb"}


@pytest.mark.slow
@pytest.mark.parametrize(("line", "words"), COMPLETED.items())
def test_bash_completes(line, words, tmp_path):
    typed = line.split()
    requested = f"\nCOMP_WORDS=({line}); COMP_CWORD={len(typed) - 1}; _xpc; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    text = xpc("completion", "bash", cwd=str(tmp_path)).stdout.decode() + requested
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, env=around(tmp_path), capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (words, "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed here")
@pytest.mark.parametrize(("line", "words"), COMPLETED.items())
def test_fish_completes(line, words, tmp_path):
    (tmp_path / "xpc.fish").write_bytes(xpc("completion", "fish", cwd=str(tmp_path)).stdout)
    requested = ["fish", "--no-config", "-c", f"source xpc.fish; complete -C '{line}'"]
    done = subprocess.run(requested, cwd=tmp_path, env=around(tmp_path), capture_output=True, text=True, check=True)
    assert [one.split("\t")[0] for one in done.stdout.splitlines()] == words


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed here")
def test_zsh_completes(tmp_path):
    """Type a line and the Tab key in a terminal with zsh, and read the completed line."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execvpe("zsh", ["zsh", "-f", "-i"], around(tmp_path))

    def typed(keys: str, wanted: str) -> None:
        os.write(terminal, keys.encode())
        shown = ""
        while wanted not in shown:
            ready, _, _ = select.select([terminal], [], [], 120)
            assert ready, f"{keys!r} became {shown!r} instead of {wanted!r}"
            shown += os.read(terminal, 65536).decode()

    try:
        loading = 'autoload -Uz compinit && compinit -u -D; eval "$(xpc completion zsh)"; print BE""GUN\n'
        typed(loading, "BEGUN")
        for line, (word,) in COMPLETED.items():
            typed(f"\x15{line}\t", word)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


READ_ONLY = {
    "check sentence.xp": 0,
    "explain sentence.xp": 0,
    "plan sentence.xp": 0,
    "diff sentence.xp sentence.xp": 0,
    "fmt --check sentence.xp": 0,
    "list models": 0,
    "compile sentence.xp": 2,
    "new mine": 2,
    "lock sentence.xp": 2,
}


@pytest.mark.slow
def test_commands_on_a_file_system_that_is_mounted_read_only(tmp_path):
    """On a read-only file system, commands that write files end with status 2 and say that they cannot write. All other
    commands work, without a cache.
    """
    environment = {**around(tmp_path), "XDG_CACHE_HOME": ""}
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && cd "$1" && shift && exec "$@"'
    inside = ["unshare", "--mount", "bash", "-c", script, "bash", str(tmp_path)]
    tried = subprocess.run([*inside, "touch", "x"], capture_output=True, text=True, check=False)
    if "Read-only file system" not in tried.stderr and not os.environ.get("XPC_EVERY_TEST"):
        pytest.skip(f"nothing can be mounted here: {tried.stderr.strip()}")
    for line, status in READ_ONLY.items():
        done = subprocess.run([*inside, "xpc", *line.split()], env=environment, capture_output=True, text=True)
        assert done.returncode == status, (line, done.stdout, done.stderr)
        assert done.stderr.endswith("Read-only file system\n") == bool(status), (line, done.stderr)


def test_every_command_is_in_the_help_and_in_no_other_way(tmp_path):
    text = xpc("--help", cwd=str(tmp_path)).stdout.decode()
    assert [line.split()[0] for line in text.splitlines() if line.startswith("    ") and line[4] != " "] == list(
        COMMANDS
    )
