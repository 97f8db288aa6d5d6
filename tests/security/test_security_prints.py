"""All output of the compiler goes through compiler/render/output.py. So no text of an input can act as a command of the
CI runner (such as `::error::`).
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from case_support import spec
from compile_support import REPOSITORY, put, xpc
from syntax import dotted, nodes
from tiers import nightly_but

from xpc.compiler.render.visible import cells, visible

pytestmark = pytest.mark.slow

OUTPUT = "compiler/render/output.py"
GENERATORS = {
    "compiler/explain/reference.py", "compiler/explain/stack_pages.py", "compiler/language/build.py",
    "compiler/registry/build.py", "compiler/rules/core/build.py", "compiler/stacks/generate.py",
}  # fmt: skip
"""Programs of `make docs`, which print names of this repository's files."""
SHIPPED = {"compiler/engines/ray/ray_job.py"}
"""Files that are copied into bundles. The compiler itself never runs them."""
WORKERS = {f"compiler/preview/rehearsal/worker/{name}.py" for name in ("fork_server", "load_result", "small_models")}
"""Programs that run in the interpreter that trains. `xpc rehearse` reads their output, and neutralises the parts that
it shows.
"""
NUMBERS = {"compiler/files/file_digests.py"}
"""Files of the compiler that print only numbers."""
EXACT = {"compiler/cli.py", "compiler/importing/cli.py"}
"""Files in which functions may print a text unchanged, because the output is read by programs."""
RENDERED = {
    "compiler/cli.py", "compiler/importing/cli.py", "compiler/preview/process.py",
    "compiler/preview/rehearsal/command.py", "compiler/review/diff.py", "compiler/review/fmt.py",
    "compiler/review/pull_request/check.py", "compiler/tuning/command.py", "compiler/tuning/tune.py",
}  # fmt: skip
SCRIPT = """\
from trl import SFTConfig, SFTTrainer
from datasets import load_dataset
text = {0}
args = SFTConfig(output_dir=text, learning_rate=text, lr_scheduler_type=text, run_name=text, **{{text: text}})
SFTTrainer(model=text, args=args, train_dataset=load_dataset(text, split=text)).train()
"""
EVIL = ("##[stop-commands]x", "::stop-commands::x", "  ::error::x", "a ##[add-mask]b", "%0A::error::x")


@cache
def calls() -> tuple[tuple[str, str, ast.Call], ...]:
    """Every call in the compiler that may print something: the file, the name of the called function, and the call's
    syntax node.
    """
    return tuple(parsed_calls())


def parsed_calls() -> Iterator[tuple[str, str, ast.Call]]:
    for folder, _, names in sorted(os.walk(os.path.join(REPOSITORY, "compiler"))):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not name.endswith(".py"):
                continue
            for node in nodes(path):
                if isinstance(node, ast.Call):
                    yield os.path.relpath(path, REPOSITORY), dotted(node.func), node


def test_only_one_file_prints() -> None:
    prints = (
        "print",
        "sys.stdout.write",
        "sys.stderr.write",
        "sys.stdout.buffer.write",
        "os.write",
        "sys.__stdout__.write",
    )
    found = {path for path, name, _ in calls() if name in prints}
    assert found <= {OUTPUT, *GENERATORS, *SHIPPED, *WORKERS, *NUMBERS, "compiler/language_server/server.py"}


def test_every_other_way_to_print_is_listed() -> None:
    assert {path for path, name, _ in calls() if name == "show_exact"} <= EXACT
    parsers = {path for path, name, _ in calls() if name == "argparse.ArgumentParser"}
    assert parsers <= GENERATORS, "compiler/render/argument_parser.py has the parser that neutralises arguments"
    assert {path for path, name, _ in calls() if name == "show_rendered"} <= RENDERED
    for path, name, call in calls():
        if name == "show_rendered":
            argument = ast.unparse(call.args[0])
            assert argument.startswith(("render(", "visible(")), (path, argument)


def obeyed(text: str) -> list[str]:
    """The lines of a log that GitHub's runner would treat as commands, parsed as its ActionCommand.cs does."""
    return [line for line in text.splitlines() if line.lstrip().startswith("::") or "##[" in line]


def test_visible_text_is_no_command() -> None:
    for one in EVIL:
        assert obeyed(visible(one)) == []
        assert visible(visible(one)) == visible(one)
        assert "##[" not in cells(one)[0]
        assert len(cells(one)[1]) == len(one) + 1
    assert visible("a::b # [c] #[d]") == "a::b # [c] #[d]"
    assert visible("  ::: base/house.xp:7:3") == "  ::: base/house.xp:7:3"  # the place of a second label
    assert visible("::: a::b.xp:7:3") == "<U+003A>:: a::b.xp:7:3"


LIBRARIES = [(command, "c.xp") for command in ("preview", "rehearse", "tune")]
"""Commands that load the training libraries if c.xp has no error. With EVIL[0], which is a comment, c.xp has none."""
COMMANDS = [*((evil, False) for evil in EVIL), (EVIL[0], True)]


@pytest.mark.parametrize(("evil", "libraries"), nightly_but(COMMANDS, lambda one: not one[1]))
def test_no_command_prints_a_command_of_a_runner(evil: str, libraries: bool, tmp_path: Path) -> None:
    """The lines, names, values, comments and file names of a spec contain workflow commands, such as `::error::`. xpc
    prints them in a form that the GitHub runner does not execute.
    """
    quoted = json.dumps(evil)
    name = evil.replace("/", "") + ".xp"
    files = {
        name: spec(f"# {evil}", f"sed 8 # {evil}"), "b.xp": spec(f"# {evil}", f"track wandb(name={quoted})"),
        "c.xp": f"{evil}\n{spec()}", "d.xp": spec().replace("seq=1024", f"seq=1024 {quoted}"), "e.xp": spec(),
        "f.xp": spec(train=f'{quoted} on {quoted} for 1 epochs'), "g.yaml": f"{evil}: x\nmodel: {quoted}\n",
        "h.xp": spec().replace("xpc 1\n", f"xpc 1\nextends {quoted}\n"),
    }  # fmt: skip
    script = SCRIPT.format(quoted)
    cells = [{"cell_type": "code", "source": [one]} for one in (evil, script)]
    files |= {"train.py": script, "train.ipynb": json.dumps({"cells": cells})}
    put(tmp_path, files)
    put(tmp_path / "sweep", {"a.xp": spec(f'sweep {{ track.name = [{quoted}, "b"] }}', "track wandb")})
    specs = [one for one in files if one.endswith(".xp")]
    lines = [
        *(("check", "--format", one, "--", *specs) for one in ("full", "concise", "json", "sarif")),
        *(("fmt", one, "--", *specs) for one in ("--check", "--diff")),
        *(("diff", "e.xp", "b.xp", "--format", one) for one in ("text", "json", "markdown")),
        ("diff", "b.xp", "e.xp"), ("diff", "e.xp", name), ("explain", "b.xp"), ("explain", evil),
        ("explain", "b.xp:track.name"), ("plan", "b.xp", "f.xp"), ("plan", "--format", "json", "b.xp"),
        ("verify", evil), ("compile", "b.xp", "-o", "out"), ("import", "g.yaml"),
        ("import", "--report", "json", "g.yaml"),
        ("import", "train.py"), ("import", "--partial", "train.py", "-o", "p.xp"), ("import", "train.ipynb"),
        ("import", evil), ("check", f"--{evil}"), ("preview", evil),
        ("rehearse", evil), ("report", "."), ("report", evil), ("verify", "--all", "."),
        ("doctor", "--python", evil), ("new", evil), ("schema", evil), ("lsp", evil), ("completion", evil),
        ("lock", "b.xp"), ("upgrade", "b.xp", "--target", "trl-0.18"), ("check", "sweep/a.xp"), (evil,),
        ("list", "models", evil),
    ]  # fmt: skip
    for line in [*(lines if not libraries else []), *(LIBRARIES if libraries or evil != EVIL[0] else [])]:
        done = xpc(*line, cwd=str(tmp_path))
        assert obeyed((done.stdout + done.stderr).decode()) == [], line
        assert b"broke" not in done.stderr, (line, done.stderr)
    done = xpc("check", "--format", "github", "--", *specs, cwd=str(tmp_path))
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in done.stdout.decode().splitlines())
    assert obeyed(done.stderr.decode()) == []
