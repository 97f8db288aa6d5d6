"""The command line has the documented exit statuses and output formats, and never prints a traceback. A spec can come
from standard input instead of a file.
"""

import errno
import gc
import io
import json
import os
import subprocess
import sys

import pytest
from case_support import spec
from compile_support import SEED, SENTENCE, put, tree, xpc
from patience import HUNG

from xpc.compiler.cli import main

CLEAN = spec()
WRONG = spec(batch="gbs=512 micro=11")
XPC = [sys.executable, "-m", "xpc.compiler.cli"]


def text(done):
    assert b"Traceback" not in done.stderr + done.stdout, done.stderr.decode()
    assert b"broke the compiler" not in done.stderr, done.stderr.decode()
    return done.stdout.decode()


# -- exit codes and formats -----------------------------------------------------------------------------------------


def test_exit_codes_of_check(tmp_path):
    root = put(
        tmp_path, {"clean.xp": CLEAN, "wrong.xp": WRONG, "warned.xp": spec(strategy="fsdp1"), "note.xp": SENTENCE}
    )
    for name, status in (("clean.xp", 0), ("warned.xp", 0), ("note.xp", 0), ("wrong.xp", 1)):
        done = xpc("check", name, cwd=root)
        assert done.returncode == status, text(done)
    assert text(xpc("check", "clean.xp", cwd=root)) == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["check"],
        ["compile"],
        ["frobnicate"],
        ["check", "none.xp"],
        ["check", "."],
        ["check", "--format", "xml", "a.xp"],
        ["compile", "none.xp"],
        ["compile", "."],
        ["compile", "a.xp", "b.xp"],
        ["explain"],
        ["explain", "XP999"],
        ["explain", "nonsense"],
        ["explain", "none.xp:gbs"],
        ["check", "a" * 5000],
        ["check", "\udcff.xp"],
        *([name, "x"] for name in ("plan", "lock", "report")),
        ["plan"],
        ["verify", "--deep", "DIR"],
    ],
    ids=lambda one: " ".join(one)[:20],
)
def test_wrong_use_is_status_2_and_one_sentence(arguments, tmp_path):
    done = xpc(*arguments, cwd=str(tmp_path))
    assert done.returncode == 2
    assert text(done) == ""
    assert done.stderr
    assert not os.listdir(tmp_path)


def test_reserved_commands_say_so(tmp_path):
    for name in ("sweep",):
        assert b"reserved" in xpc(name, "x", cwd=str(tmp_path)).stderr


def test_every_format_has_the_finding(tmp_path):
    root = put(tmp_path, {"w.xp": WRONG})
    outputs = {
        one: text(xpc("check", "w.xp", "--format", one, cwd=root))
        for one in ("full", "concise", "json", "github", "sarif")
    }
    (found,) = json.loads(outputs["json"])
    assert {"code", "severity", "message", "file", "line", "column", "end_column", "help", "related"} <= set(found)
    assert (found["code"], found["severity"], found["file"], found["line"], found["column"]) == (
        "XP201",
        "error",
        "w.xp",
        8,
        7,
    )
    assert outputs["concise"].startswith("w.xp:8:7: error XP201")
    assert outputs["github"].startswith("::error ")
    assert json.loads(outputs["sarif"])["runs"][0]["results"][0]["ruleId"] == "XP201"
    assert outputs["full"].startswith("XP201 batch-does-not-divide: ")


class Full(io.StringIO):
    """A stream that accepts text, but fails when it is flushed, as a file on a full disk does."""

    def flush(self):
        raise OSError(errno.ENOSPC, "No space left on device")

    def fileno(self):
        return self.own

    def __init__(self, path):
        super().__init__()
        self.own = os.open(path, os.O_WRONLY | os.O_CREAT)


def test_help_on_a_full_disk_is_reported(tmp_path, monkeypatch):
    error = io.StringIO()
    monkeypatch.setattr(sys, "stdout", Full(tmp_path / "full"))
    monkeypatch.setattr(sys, "stderr", error)
    try:
        status = main(["check", "--help"])
    finally:
        gc.unfreeze()
        gc.enable()
        monkeypatch.undo()
    assert (status, error.getvalue()) == (2, "xpc: standard output cannot be written: No space left on device\n")


def test_version_is_printed():
    assert text(xpc("--version")).startswith("xpc ")


# -- inputs ---------------------------------------------------------------------------------------------------------


def test_a_spec_is_read_from_standard_input(tmp_path):
    assert xpc("check", "-", stdin=CLEAN.encode()).returncode == 0
    done = xpc("check", "-", "--format", "concise", stdin=WRONG.encode())
    assert done.returncode == 1
    assert "XP201" in text(done)
    done = xpc("compile", "-", "-o", "b", stdin=CLEAN.encode(), cwd=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "launch.sh" in tree(tmp_path / "b")


def test_findings_of_several_files_name_their_file(tmp_path):
    root = put(tmp_path, {"a.xp": WRONG, "sub/b.xp": spec("schedule cosin"), "c.xp": CLEAN})
    done = xpc("check", "c.xp", "a.xp", "sub/b.xp", "--format", "concise", cwd=root)
    assert done.returncode == 1
    assert [line.split(":")[0] for line in text(done).splitlines() if ".xp:" in line] == ["a.xp", "sub/b.xp"]


@pytest.mark.parametrize("typed", ["fnie.xp", "fine", "sub/../fine.x"])
def test_a_misspelt_name_of_a_spec_is_corrected(typed, tmp_path):
    root = put(tmp_path, {"fine.xp": SENTENCE, "other.xp": SENTENCE, "sub/a.xp": SENTENCE})
    folder = typed[: typed.rfind("/") + 1]
    for command in ("check", "plan", "compile"):
        done = xpc(command, typed, cwd=root)
        assert done.returncode == 2
        assert f"did you mean `{folder}fine.xp`?" in done.stderr.decode()
    assert b"did you mean" not in xpc("check", "nothing.xp", cwd=root).stderr


@pytest.mark.parametrize("command", ["check", "compile", "plan", "explain"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.yaml", "model_name_or_path: Qwen/Qwen2.5-3B\nlearning_rate: 1e-5\n"),
        ("t.sh", "#!/bin/sh\ntorchrun sft.py --learning_rate 1e-5\n"),
        ("t.py", "from trl import SFTTrainer\ntrain = load()\n"),
    ],
)
def test_the_file_of_another_tool_is_not_read_as_a_spec(command, name, text, tmp_path):
    done = xpc(command, name, cwd=put(tmp_path, {name: text}))
    help = f"xpc: {name} is not a spec: `xpc import {name} -o t.xp` makes one from the file of another tool\n"
    assert (done.returncode, done.stderr.decode()) == (2, help)


def test_a_spec_may_have_any_ending(tmp_path):
    assert xpc("check", "t.yaml", cwd=put(tmp_path, {"t.yaml": spec()})).returncode == 0


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        ("preview fine.xp --radnom 3", "--random"),
        ("check fine.xp --fromat=json", "--format"),
        ("plan fine.xp --al", None),
        ("compile fine.xp --alow-oom", "--allow-oom"),
        ("check fine.xp -x", None),
    ],
)
def test_a_misspelt_option_is_corrected(typed, suggested, tmp_path):
    done = xpc(*typed.split(), cwd=str(tmp_path))
    assert done.returncode == 2
    last = done.stderr.decode().splitlines()[-1]
    assert "unrecognized arguments: " in last
    assert last.endswith(f"; did you mean `{suggested}`?") == (suggested is not None), last


def test_names_as_typed_from_the_working_directory(tmp_path):
    root = put(
        tmp_path,
        {
            "specs/a.xp": spec().replace("xpc 1\n", 'xpc 1\nextends "base/b.xp"\n'),
            "specs/base/b.xp": "schedule cosin\n",
            "other/x": "",
        },
    )
    for cwd, path, shown in (
        (root, "specs/a.xp", "specs/base/b.xp:1:10:"),
        (root + "/specs", "a.xp", "base/b.xp:1:10:"),
        (root + "/other", "../specs/a.xp", "../specs/base/b.xp:1:10:"),
        ("/", f"{root}/specs/a.xp", f"{root}/specs/base/b.xp:1:10:"),
    ):
        assert text(xpc("check", path, "--format", "concise", cwd=cwd)).startswith(shown)


def test_compile_prints_the_command_that_launches(tmp_path):
    root = put(tmp_path, {"a.xp": CLEAN, "sp ace.xp": CLEAN})
    done = xpc("compile", "a.xp", cwd=root)
    assert done.returncode == 0
    assert text(done).splitlines()[-1].strip() == "./a.bundle/launch.sh"
    assert os.path.exists(os.path.join(root, "a.bundle", "launch.sh"))
    command = text(xpc("compile", "sp ace.xp", cwd=root)).splitlines()[-1].strip()
    done = subprocess.run(["sh", "-c", f"{command} --dry-run"], cwd=root, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_compile_names_the_assumed_settings_in_one_note_and_check_explains_each(tmp_path):
    root = put(tmp_path, {"a.xp": "xpc 1\ntrain qwen2.5-3b on infinity-instruct\n"})
    each = json.loads(text(xpc("check", "a.xp", "--format", "json", cwd=root)))
    shown = text(xpc("compile", "a.xp", cwd=root))
    assert text(xpc("check", "a.xp", cwd=root)).count("XP190") == len(each) == 10
    assert shown.count("XP190") == 1
    assert "the spec states no hardware, strategy, precision, checkpointing, longest sequence, global batch, " in shown
    assert "help: `xpc check a.xp` prints each value with its reason" in shown
    assert json.loads(text(xpc("compile", "a.xp", "--force", "--format", "json", cwd=root))) == each


def test_compile_of_a_wrong_spec_writes_nothing(tmp_path):
    root = put(tmp_path, {"a.xp": WRONG})
    assert xpc("compile", "a.xp", "-o", "b", cwd=root).returncode == 1
    assert os.listdir(root) == ["a.xp"]


def test_compile_refuses_and_force_moves(tmp_path):
    root = put(tmp_path, {"a.xp": CLEAN, "b/mine.txt": "mine"})
    done = xpc("compile", "a.xp", "-o", "b", cwd=root)
    assert done.returncode == 2
    assert b"--force" in done.stderr
    assert tree(tmp_path / "b") == {"mine.txt": b"mine"}
    done = xpc("compile", "a.xp", "-o", "b", "--force", cwd=root)
    assert done.returncode == 0
    assert "b.before-1" in text(done)
    assert tree(tmp_path / "b.before-1") == {"mine.txt": b"mine"}


def test_json_of_compile_stays_json(tmp_path):
    root = put(tmp_path, {"a.xp": spec(strategy="fsdp1")})
    done = xpc("compile", "a.xp", "--format", "json", cwd=root)
    assert done.returncode == 0
    assert [one["code"] for one in json.loads(done.stdout)] == ["XP410"]
    assert b"launch.sh" in done.stderr


# -- closed and broken streams --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_closed_standard_output_causes_no_traceback(tmp_path):
    root = put(tmp_path, {"a.xp": WRONG})
    for command in ("check a.xp", "compile a.xp", "explain XP201", "--version"):
        done = subprocess.run(
            ["sh", "-c", f'"$0" -m xpc.compiler.cli {command} >&-', sys.executable],
            cwd=root,
            capture_output=True,
            check=False,
        )
        assert b"Traceback" not in done.stderr, done.stderr
        assert b"broke the compiler" not in done.stderr, done.stderr
        assert done.returncode in (0, 1, 2)


@pytest.mark.slow
def test_a_reader_that_goes_away(tmp_path):
    root = put(tmp_path, {"a.xp": "= 1\n" * 5000})
    process = subprocess.Popen([*XPC, "check", "a.xp"], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, stderr = process.communicate(timeout=HUNG)
    assert b"Traceback" not in stderr
    assert b"broke the compiler" not in stderr
    assert process.returncode in (1, 2)


@pytest.mark.slow
def test_a_working_directory_that_is_missing(tmp_path):
    root = put(tmp_path, {"gone/x": ""})
    script = f'cd gone && rm -r ../gone && "$0" -m xpc.compiler.cli check {root}/a.xp'
    done = subprocess.run(["sh", "-c", script, sys.executable], cwd=root, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    assert done.returncode == 2


# -- explain --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("XP301", "bf16-before-ampere"),
        ("xp101", "unknown-setting"),
        ("XP013", "stray-bracket"),
        ("gbs", "batch.gbs"),
        ("batch.seq", "2048"),
        ("every", "save.every"),
        ("attn", "flash2"),
        ("rope", "yarn(factor=4)"),
    ],
)
def test_explain_finds_codes_settings_and_names(what, expected):
    done = xpc("explain", what)
    assert done.returncode == 0, done.stderr
    if what != "batch.seq":
        assert expected in text(done)


def test_explain_shows_the_origin_of_a_value_of_a_spec(tmp_path):
    root = put(tmp_path, {"seed.xp": SEED})
    reported = text(xpc("explain", "seed.xp:accum", cwd=root))
    assert "batch.accum = 6" in reported
    assert "528 / (11 x 8)" in reported
    assert "seed.xp:16" in text(xpc("explain", "seed.xp:batch.micro", cwd=root))
    assert "has no value" in text(xpc("explain", "seed.xp:chat_template", cwd=root))


def test_every_code_and_setting_explains_itself():
    from xpc.compiler.explain.texts import explain
    from xpc.compiler.language.codes import CODES
    from xpc.compiler.language.schema import TABLE
    from xpc.compiler.rules import every
    from xpc.grammar.codes import CODES as GRAMMAR

    for what in (*CODES, *GRAMMAR, *(rule.code for rule in every()), *(row.path for row in TABLE)):
        reported = explain(what)
        assert reported, what
        assert len(reported) > 20, what
    everything = [*CODES, *GRAMMAR, *(rule.code for rule in every())]
    assert len(set(everything)) == len(everything)
