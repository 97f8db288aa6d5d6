"""Each launch engine is one file or folder. No code outside of it depends on which engine a run uses."""

from __future__ import annotations

import ast
import os
import re

import pytest
from case_support import spec
from cluster_support import k8s, ray, sky, slurm
from compile_support import REPOSITORY, checked, compiled, put, shown

from tests.test_imports import imported
from xpc.compiler.engines.engine import named
from xpc.compiler.language.launch_settings import ALSO_CALLED, ENGINES, readers
from xpc.compiler.language.schema import children
from xpc.grammar.diagnostic import ERROR

LAUNCH = {"local": "launch local", "slurm": slurm(), "k8s": k8s(), "sky": sky("volume=runs"), "ray": ray()}
ROOMS = os.path.join("compiler", "engines")
ASKS = re.compile(rf"""["'](launch|{"|".join(ENGINES)})["']""")


def sources():
    """The syntax trees of those Python files of the compiler and the runtime that contain an engine's name. Files in
    the engines' folder are left out.

    The table of settings is skipped, because it lists all engines.
    """
    for folder in ("compiler", "runtime", "grammar"):
        for where, _, names in os.walk(os.path.join(REPOSITORY, folder)):
            path = os.path.relpath(where, REPOSITORY)
            for name in names:
                outside = not (path + os.sep).startswith(ROOMS + os.sep)
                if name.endswith(".py") and name != "launch_settings.py" and outside:
                    with open(os.path.join(where, name), encoding="utf-8") as handle:
                        text = handle.read()
                    if ASKS.search(text):
                        yield os.path.join(path, name), ast.parse(text)


def test_nobody_outside_names_an_engine():
    """No other room contains the name of an engine. `local` is also an ordinary word, so the test looks for it only in
    comparisons with the value of `launch`.
    """
    found = []
    for path, tree in sources():
        if "Generated" in (ast.get_docstring(tree) or ""):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in set(ENGINES) - {"local"}:
                found.append(f"{path}:{node.lineno} {node.value}")
            if isinstance(node, ast.Compare) and "'launch'" in (text := ast.dump(node)) and "'local'" in text:
                found.append(f"{path}:{node.lineno} local")
    assert not found


def test_the_list_is_what_lies_in_the_folder():
    rooms = set()
    for name in os.listdir(os.path.join(REPOSITORY, ROOMS)):
        path = os.path.join(REPOSITORY, ROOMS, name)
        path = path if name.endswith(".py") else os.path.join(path, "__init__.py")
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as handle:
                rooms |= {name.removesuffix(".py")} if "\nENGINE = " in handle.read() else set()
    assert rooms == set(ENGINES) == set(LAUNCH)


@pytest.mark.parametrize("row", tuple(children("launch")), ids=lambda row: row.name)
def test_readers_of_a_setting_are_engines_in_their_order(row):
    assert list(readers(row)) == [name for name in ENGINES if name in readers(row)]
    assert len(row.engines) < len(ENGINES), "leave the column empty: every engine reads it"


def test_a_task_of_skypilot_names_its_image():
    task = compiled(spec(sky('volume=runs, image="org/train:1"')))["sky.yaml"].decode()
    assert '\n  image_id: "docker:org/train:1"\n' in task


def test_every_engine_has_other_words():
    assert tuple(ALSO_CALLED) == ENGINES


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_only_the_engine_in_question_is_imported(engine, tmp_path):
    root = put(tmp_path, {"run.xp": spec(LAUNCH[engine])})
    status, names = imported("compile", "run.xp", "-o", "out", cwd=root)
    assert status == 0
    rooms = {name.split(".")[3] for name in names if name.startswith("xpc.compiler.engines.")}
    assert rooms & set(ENGINES) == {engine}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_only_adds_files(engine):
    """A bundle for a launch engine has every file that the same bundle without an engine has. At most four of these
    files differ, such as README.md.
    """
    reported = {"README.md", "model_card.md", "spec.xp", "bundle.toml"}
    plain, files = compiled(spec()), compiled(spec(LAUNCH[engine]))
    assert {name: data for name, data in plain.items() if name not in reported}.items() <= files.items()
    assert bool(set(files) - set(plain)) is (engine != "local")


@pytest.mark.parametrize("engine", sorted({*ENGINES} - {"local"}))
def test_an_engine_of_a_cluster_submits_a_sweep_itself(engine):
    """By default, the command for a sweep starts every member on the machine where a user types the command. An engine
    for clusters must replace the command.
    """
    assert "sweep_command" in vars(type(named(engine))), "override sweep_command, or refuse sweeps"


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_starts_the_server_of_completions_or_says_who_does(engine):
    text = spec("method grpo(generations=8, rewards=[accuracy], vllm(mode=server))", LAUNCH[engine],
                train="qwen2.5-3b on deepmath-103k for 3 epochs", hardware="8 x h100-80gb")  # fmt: skip
    found = checked(text)
    if found.spec is None:
        assert [one.code for one in found.problems if one.severity == ERROR] in (["XP871"], ["XP895"]), shown(found)
        return
    files = compiled(text)
    started = [name for name, data in files.items() if not name.startswith("trainer/") and b"vllm_server.py" in data]
    assert started or engine == "local", "start trainer/vllm_server.py, or refuse mode=server as XP895 does"
