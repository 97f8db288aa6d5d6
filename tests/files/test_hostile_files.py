"""If a spec names a hostile file (a folder, a pipe, a device, or a broken configuration or data file), the compiler
reports a diagnostic.
"""

import json
import os
import subprocess
import sys
import tomllib

import pytest
from case_support import ROW, spec
from compile_support import (
    CONFIG,
    errors,
    put,
    shown,
    xpc_in_turn,
)
from hostile_support import checked, compiled

pytestmark = pytest.mark.slow

# -- files that are not what they seem ------------------------------------------------------------------------------

STRANGE = (
    "/dev/zero",
    "/dev/stdin",
    "/dev/tty",
    "/dev/full",
    "fifo",
    "folder",
    "loop",
    "dangling",
    "/proc/self/mem",
    "/proc/self/environ/x",
    "big",
    "a" * 5000,
    "x/" * 3000,
    "/",
    ".",
    "..",
    "~",
    " ",
    "\\u0000",
)


@pytest.fixture
def strange(tmp_path):
    put(tmp_path, {"folder/x": ""})
    os.mkfifo(tmp_path / "fifo")
    os.symlink("loop", tmp_path / "loop")
    os.symlink("nowhere", tmp_path / "dangling")
    with open(tmp_path / "big", "wb") as handle:
        handle.truncate(2**40)
    for ending in (".jsonl", ".csv"):
        os.symlink("fifo", tmp_path / f"fifo{ending}")
        os.symlink(f"loop{ending}", tmp_path / f"loop{ending}")
        os.symlink("/dev/zero", tmp_path / f"zero{ending}")
        os.symlink("big", tmp_path / f"big{ending}")
    return str(tmp_path)


@pytest.mark.parametrize("path", STRANGE)
def test_extends_file_and_model_of_strange_files(path, strange):
    for text in (
        spec().replace("xpc 1\n", f'xpc 1\nextends "{path}"\n'),
        spec(f'model(chat_template=file("{path}"))'),
        spec(f'model(config=file("{path}"))'),
        spec(f'data(system=file("{path}"))'),
        spec(train=f'"{path}" on infinity-instruct for 3 epochs'),
        spec(train=f'"{path}" on "{path}" for 3 epochs'),
    ):
        found = checked(text, strange)
        assert found.spec is None, text
        assert errors(found)


def test_a_file_that_never_ends_is_not_waited_for(strange):
    """/proc/kmsg says that it is a regular file, but a read of it blocks until the kernel logs something. The compiler
    must not wait.
    """
    if os.path.exists("/proc/kmsg"):
        checked(spec().replace("xpc 1\n", 'xpc 1\nextends "/proc/kmsg"\n'), strange)


@pytest.mark.parametrize("name", ["fifo", "loop", "zero", "big", "folder", "dangling"])
@pytest.mark.parametrize("ending", ["", ".jsonl", ".csv"])
def test_data_in_strange_files_is_reported_and_not_read(name, ending, strange):
    found = checked(spec(train=f'qwen2.5-3b on "{name}{ending}" for 3 epochs'), strange)
    assert found.problems is not None
    if found.spec is not None:
        assert found.spec.data[0].content is None


def test_unreadable_data_is_a_diagnostic(tmp_path, monkeypatch):
    root = put(tmp_path, {"rows.jsonl": ROW})
    real = open

    def refusing(path, *rest, **named):
        if str(path).endswith("rows.jsonl"):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **named)

    monkeypatch.setattr("builtins.open", refusing)
    assert "XP114" in errors(checked(spec(train='qwen2.5-3b on "rows.jsonl" for 3 epochs'), root))


def test_specs_that_are_strange_files(strange):
    for done in xpc_in_turn([["check", path] for path in ("/dev/zero", "loop", "dangling", "folder", "big")], strange):
        assert done.returncode == 2, done.args
        assert b"Traceback" not in done.stderr
        assert b"broke the compiler" not in done.stderr


def test_a_spec_from_a_pipe_is_checked(tmp_path):
    put(tmp_path, {"a.xp": spec(batch="gbs=512 micro=11")})
    script = 'cat a.xp | "$0" -m xpc.compiler.cli check /dev/stdin'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        env={**os.environ, "XPC_CACHE": "off"},
    )
    assert done.returncode == 1
    assert b"XP201" in done.stdout


# -- config.json and data -------------------------------------------------------------------------------------------

HOSTILE_CONFIGS = (
    "",
    "null",
    "[]",
    "1",
    '"x"',
    "{}",
    "{" * 100_000,
    "[" * 100_000,
    '{"a":' * 5000 + "1" + "}" * 5000,
    "NaN",
    '{"hidden_size": NaN}',
    "\x00",
    "\ufeff{}",
    "{'a': 1}",
    '{"hidden_size": 1e999}',
    *(
        json.dumps({**CONFIG, key: value})
        for key in CONFIG
        for value in (None, "", "x", [], {}, -1, 0, 1.5, True, 1e300, 10**30, 2**62, [[]], "\u202e", "\ud800")
    ),
)


@pytest.mark.parametrize("way", ["folder", "file"])
def test_hostile_configs_are_refused_or_compile(way, tmp_path):
    text = (
        spec(train='"tiny" on alpaca for 3 epochs')
        if way == "folder"
        else spec('model(config=file("tiny/config.json"))', train="org/x on alpaca for 3 epochs")
    )
    # Without `micro`, the compiler chooses the micro-batch, and for this computes memory from the hostile numbers of
    # the config.
    text = text.replace(" micro=16", "")
    accepted = 0
    huge = json.dumps(CONFIG).replace('"hidden_size": 64', '"hidden_size": 1' + "0" * 4000)
    for config in (*HOSTILE_CONFIGS, huge):
        root = put(tmp_path, {"tiny/config.json": config.encode("utf-8", "surrogatepass")})
        found = checked(text, root, allow_oom=True)  # some models are too large for any GPU
        if found.spec is None:
            # XP342: no stack has such a `model_type`
            assert {"XP118", "XP342"} & {*errors(found)}, (config[:200], shown(found))
        else:
            accepted += 1
            tomllib.loads(compiled(text, root, allow_oom=True)["bundle.toml"].decode())
    assert accepted  # at least one of the unusual configs is legal and compiles


HOSTILE_ROWS = (
    "",
    "\n",
    "null",
    "[]",
    "1",
    "{}",
    "[" * 100_000,
    '{"a":' * 100_000,
    '{"messages": ' + "[" * 5000 + "]" * 5000 + "}",
    "\x00",
    '{"messages": []',
    '{"text": ' + "9" * 6000 + "}",
    '{"\u202e": 1}',
    '{"": 1}',
    '{"' + "a" * 10_000 + '": 1}',
    "\ufeff" + ROW,
    "[" + ROW.strip() + "]",
    '{"messages": 1e999}',
    '{"messages": NaN}',
    "a,b,c\n",
    '"messages"\n',
    ROW * 3,
)


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "txt", "parquet", "exe", ""])
def test_hostile_data_is_reported_or_copied_unchanged(ending, tmp_path):
    for row in HOSTILE_ROWS:
        root = put(tmp_path, {f"rows.{ending}": row})
        text = spec(train=f'qwen2.5-3b on "rows.{ending}" for 3 epochs')
        found = checked(text, root)
        assert all(one.primary is not None for one in found.problems)
        if found.spec is not None:
            files = compiled(text, root)
            (name,) = [one for one in files if one.startswith("data/")]
            assert files[name] == row.encode()
