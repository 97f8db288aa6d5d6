"""A spec, a file name or a row may contain escape sequences, or characters that reorder a line. No such character
reaches a terminal.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from case_support import spec
from compile_support import checked, codes, compiled, put, xpc

from xpc.compiler.files.bundle import write
from xpc.runtime.core import errors
from xpc.runtime.core.errors import RunError, findings

pytestmark = pytest.mark.slow

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2066\x7f"
FORMATS = ("full", "concise", "json", "github", "sarif")


def safe(data: bytes) -> None:
    text = data.decode()
    wrong = sorted({one for one in text if not one.isprintable() and one != "\n"})
    assert not wrong, (wrong, text)


@pytest.mark.parametrize("format", FORMATS)
def test_a_spec_of_escapes(format: str, tmp_path: Path) -> None:
    files = {
        "a.xp": spec(f'track wandb(name="{EVIL}")'),
        "b.xp": spec(train=f'"{EVIL}" on "{EVIL}.jsonl" for 3 epochs'),
        "c.xp": f"# {EVIL}\n" + spec().replace("strategy", f"strateg{EVIL}"),
        "d.xp": spec().replace("xpc 1\n", f'xpc 1\nextends "{EVIL}"\n'),
        "e.xp": spec('track wandb(name="a\\nb")', 'model(eos="\\t")'),
    }
    put(tmp_path, files)
    for name in files:
        for words in (("check", name), ("compile", name, "-o", "out")):
            done = xpc(*words, "--format", format, cwd=str(tmp_path))
            safe(done.stdout)
            safe(done.stderr)


@pytest.mark.parametrize("format", FORMATS)
def test_names_of_files_of_escapes(format: str, tmp_path: Path) -> None:
    name = EVIL.replace("/", "")
    put(tmp_path, {f"{name}.xp": spec(batch="gbs=512 micro=11"), f"{name}-right.xp": spec(), f"{name}/x": "mine"})
    for words in (
        ("check", f"{name}.xp"),
        ("check", f"{name}-gone.xp"),
        ("compile", f"{name}-right.xp"),
        ("compile", f"{name}-right.xp"),
        ("compile", f"{name}-right.xp", "-o", name),
        ("compile", f"{name}-right.xp", "-o", name, "--force"),
    ):
        done = xpc(*words, "--format", format, cwd=str(tmp_path))
        safe(done.stdout)
        safe(done.stderr)
    own = (("explain", name), ("explain", f"{name}:gbs"), ("import", f"{name}.yaml"), ("plan", name))
    for words in (*own, ("explain", f"{name}.xp:gbs"), ("explain", f"{name}-right.xp:gbs")):
        done = xpc(*words, cwd=str(tmp_path))
        safe(done.stdout + done.stderr)


def test_a_foreign_file_of_escapes_in_an_old_bundle(tmp_path: Path) -> None:
    write(compiled(spec()), str(tmp_path / "out"))
    put(tmp_path, {"a.xp": spec(), f"out/{EVIL}": ""})
    done = xpc("compile", "a.xp", "-o", "out", cwd=str(tmp_path))
    assert done.returncode == 2
    safe(done.stderr)


def test_a_system_prompt_of_escapes(tmp_path: Path) -> None:
    """The system prompt is printed by `explain` and written into the bundle's spec.xp. So its file may contain only
    characters that a spec may contain.
    """
    put(tmp_path, {"a.xp": spec('data(system=file("s.txt"))')})
    for text in (EVIL, "a\0b", "a\u2028b", "a\u200fb"):
        put(tmp_path, {"s.txt": text})
        for words in (("check", "a.xp"), ("explain", "a.xp:data.system")):
            done = xpc(*words, cwd=str(tmp_path))
            safe(done.stdout + done.stderr)
        found = checked(spec('data(system=file("s.txt"))'), str(tmp_path))
        assert codes(found, "error") == ["XP114"]
    put(tmp_path, {"s.txt": 'Be brief.\r\nBe "kind".\t\U0001f600\u200d\n'})
    files = compiled(spec('data(system=file("s.txt"))'), str(tmp_path))
    assert compiled(files["spec.xp"])["trainer_args.json"] == files["trainer_args.json"]


@pytest.mark.parametrize("report", ["text", "json"])
def test_a_published_file_of_escapes(report: str, tmp_path: Path) -> None:
    typed = r"\e[2J\e]0;owned\a\x9b31m\u202e\x7f"
    base = "model_name_or_path: org/x\ndataset_name: org/y\n"
    lines = (f'run_name: "{typed}"', f'"{typed}": 1', f'chat_template: "{typed}"', f'optim: "{typed}"',
             '"a\u202eb": 1', "hub_model_id: 'a\u202eb'", f'output_dir: "{typed}"')  # fmt: skip
    for number, line in enumerate(lines):
        put(tmp_path, {f"{number}.yaml": f"{base}{line}\n"})
        for words in ((), ("-o", f"{number}.xp")):
            done = xpc("import", f"{number}.yaml", "--report", report, *words, cwd=str(tmp_path))
            safe(done.stdout)
            safe(done.stderr)
    put(tmp_path, {"a.sh": f"torchrun train.py --{EVIL} 1 --model_name_or_path '{EVIL}'\n"})
    done = xpc("import", "a.sh", "--report", report, cwd=str(tmp_path))
    safe(done.stdout)
    safe(done.stderr)


def test_the_run_prints_rows_spelled_out(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime's `say` and `stop` escape texts that come from a row, a template or a column's name."""
    monkeypatch.setenv("RANK", "0")
    errors.say(f"rows of {EVIL}: a, b")
    errors.stop(findings([f"the template says {EVIL}", "two\tthings\r"]))
    errors.stop(RunError(f"{EVIL}\n{EVIL}"))
    out = capfd.readouterr()
    safe(out.out.encode())
    safe(out.err.encode())
    assert out.err.count("<U+001B>") == 6
    assert errors.shown("Grüße 中\n") == "Grüße 中\n"


def test_no_module_of_the_runtime_prints_past_them() -> None:
    """In the runtime, only `say` and `stop` may print text from data. Every other call of `print` has a constant
    text.
    """
    own = {
        "errors.py",
        "run.py",
        "launcher.py",
        "evaluate.py",
        "hub.py",
        "metrics_log.py",
        "picture.py",
        "rehearse.py",
        # This module writes Python code that calls `print`.
        "result.py",
        "vllm_server.py",
        "doctor.py",
    }
    folder = Path(errors.__file__).parents[1]
    modules = [path for path in folder.rglob("*.py") if path.name not in own]
    assert len(modules) > 30
    for path in modules:
        assert "print(" not in path.read_text(encoding="utf-8"), path
