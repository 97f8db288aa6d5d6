"""A bundle's trainer has what its run imports, and no module that its run does not use."""

from __future__ import annotations

import ast
import copy
import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.golden_bundles import ROOT, SPECS, compiled
from xpc.compiler.lower.trainer_files import CHOSEN, imported, trainer_files
from xpc.runtime.core import bundle as bundles
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.features import DECISIVE, STEPS, trainer, uses

RUNTIME = Path(ROOT, "runtime")
bundle = cache(compiled)


def modules(name: str) -> dict[str, ast.Module]:
    """The modules of a bundle's trainer by their path in it."""
    files = {one.removeprefix("trainer/"): data for one, data in bundle(name).items() if one.startswith("trainer/")}
    return {one: ast.parse(data) for one, data in files.items() if one.endswith(".py")}


def asked(test: ast.expr) -> set[str]:
    """The names X of `uses("X")` that a condition requires: itself, or what stands in it beside `and`."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    calls = [one for one in parts if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)]
    return {call.args[0].value for call in calls if call.func.attr == "uses" and isinstance(call.args[0], ast.Constant)}


def imports(node: ast.AST, path: str, guards: frozenset[str] = frozenset()) -> Iterator[tuple[str, frozenset[str]]]:
    """Every relative import as the file that it reads, with what `uses` was asked for around it."""
    if isinstance(node, ast.If):
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        for child in node.body:
            yield from imports(child, path, guards | asked(node.test))
        for child in node.orelse:
            yield from imports(child, path, guards)
        return
    if isinstance(node, ast.ImportFrom) and node.level:
        place = os.path.normpath(os.path.join(os.path.dirname(path), *[".."] * (node.level - 1)))
        place = os.path.normpath(os.path.join(place, *(node.module or "").split(".")))
        for alias in node.names:
            inside = os.path.normpath(os.path.join(place, f"{alias.name}.py"))
            there = (one for one in (inside, f"{place}/__init__.py") if (RUNTIME / one).is_file())
            yield next(there, f"{place}.py"), guards
    for child in ast.iter_child_nodes(node):
        yield from imports(child, path, guards)


@pytest.mark.parametrize("name", SPECS)
def test_every_import_is_in_the_bundle_or_asked_for(name: str) -> None:
    there, plan = modules(name), json.loads(bundle(name)["trainer_args.json"])
    seen = 0
    for path, tree in there.items():
        for file, guards in imports(tree, path):
            seen += 1
            module = Path(file).stem
            assert (RUNTIME / file).is_file(), f"{path} imports {file}, which is nowhere"
            if file not in there:
                assert module in guards, (
                    f"{path} imports {file}, which is not in the bundle, without `uses({module!r})`"
                )
                assert not uses(plan)[module]
    assert seen > 50


def test_the_core_names_no_feature() -> None:
    """What a feature adds to a run it adds at a step: the core imports those alone that every run has."""
    always = set.intersection(*({Path(one).stem for one in bundle(name)} for name in SPECS))
    compilers = RUNTIME / "core" / "features.py"
    for path in {RUNTIME / "main.py", RUNTIME / "launcher.py", *(RUNTIME / "core").glob("*.py")} - {compilers}:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for file, _ in imports(tree, str(path.relative_to(RUNTIME))):
            assert file.split("/")[0] not in CHOSEN or Path(file).stem in always, f"{path.name} imports {file}"


def parameters(module: str, name: str) -> list[str] | None:
    """Those of a function of a module of features/ or library_internals/; None where it has none of that name. A class
    of that name counts as a function of the bundle."""
    folder, _, file = module.rpartition(".")
    tree = ast.parse((RUNTIME / (folder or "features") / f"{file}.py").read_text(encoding="utf-8"))
    found = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name]
    if any(isinstance(one, ast.ClassDef) and one.name == name for one in tree.body):
        return ["bundle"]
    return [one.arg for one in found[0].args.args] if found else None


def asked_steps() -> Iterator[tuple[str, int | None]]:
    """The steps that the core does, with the number of values that their functions get; None where it is not told."""
    methods = {"step": 0, "found": 0, "changed": 0, "parts": None}
    for path in [RUNTIME / "launcher.py", *(RUNTIME / "core").glob("*.py")]:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in methods:
                first = call.args[0] if call.args else None
                if isinstance(first, ast.Constant):
                    yield first.value, None if call.func.attr == "parts" else len(call.args)


@pytest.mark.slow
def test_steps_are_functions_of_the_modules_that_add_to_them() -> None:
    steps = list(asked_steps())
    assert {name for name, _ in steps} == set(STEPS)
    for name, given in steps:
        for module in STEPS[name]:
            found = parameters(module, name)
            assert found is not None, f"{module} has no function {name}"
            assert given is None or len(found) == given, f"{module}.{name} takes {found}"
    for path in (one for folder in CHOSEN for one in (RUNTIME / folder).glob("*.py")):
        for step in STEPS:
            module = path.stem if path.parent.name == "features" else f"{path.parent.name}.{path.stem}"
            named = (parameters(module, step) or [""])[0] == "bundle"
            assert not named or module in STEPS[step], f"{path.name}: {step}"


def test_every_module_has_its_condition_and_is_in_a_golden() -> None:
    found = {path.stem for folder in CHOSEN for path in (RUNTIME / folder).glob("*.py")} - {"__init__"}
    known = set(uses(json.loads(bundle("sentence")["trainer_args.json"])))
    assert known <= found
    sources = [path.read_bytes() for path in RUNTIME.rglob("*.py")]
    assert found - known <= set().union(*map(imported, sources))  # those come with what imports them
    emitted = {Path(one).stem for name in SPECS for one in bundle(name)}
    locked = json.loads(bundle("sentence")["trainer_args.json"])
    locked["model"]["kernels"] = {
        "kernels-community/flash-attn2": "0" * 40
    }  # which a lock states, and no golden has one
    emitted |= {Path(one).stem for one in trainer_files({**locked, "trainer": trainer(locked)})}
    assert found <= emitted
    assert not {"doctor", "payload", "features"} & emitted


def test_the_sentence_has_a_short_trainer() -> None:
    files = {one: data for one, data in bundle("sentence").items() if one.startswith("trainer/")}
    assert sum(data.count(b"\n") for one, data in files.items() if one.endswith(".py")) <= 3000
    assert sum(data.count(b"\n") for data in files.values()) <= 3050
    names = {Path(one).stem for one in files}
    assert not names & {"hub", "rewards", "adapters", "node_rendezvous", "evaluation", "local_data", "row_filters"}


def test_programs_come_with_the_runs_that_start_them() -> None:
    plan = json.loads(bundle("sentence")["trainer_args.json"])
    assert not {"trainer/evaluate.py", "trainer/vllm_server.py"} & set(trainer_files(plan))
    assert "trainer/evaluate.py" in trainer_files(plan, evaluates=True)
    plan["arguments"].update(use_vllm=True, vllm_mode="server")
    assert "trainer/vllm_server.py" in trainer_files(plan)
    plan["arguments"]["vllm_mode"] = "colocate"
    assert "trainer/vllm_server.py" not in trainer_files(plan)


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("arguments", "push_to_hub", True),
        ("arguments", "report_to", ["wandb"]),
        ("arguments", "eval_strategy", "steps"),
        ("data", "holdout", {"rows": 7}),
    ],
)
def test_a_setting_that_needs_a_module_which_is_not_there_is_one_sentence(
    tmp_path: Path, section: str, name: str, value: Any
) -> None:
    for one, data in bundle("sentence").items():
        (tmp_path / one).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / one).write_bytes(data)
    plan = json.loads((tmp_path / "trainer_args.json").read_text())
    assert not bundles.read(str(tmp_path)).uses("adapters")
    plan[section][name] = value
    (tmp_path / "trainer_args.json").write_text(json.dumps(plan))
    with pytest.raises(
        RunError, match=f"was given {section}.{name}, which trainer/ has no module for: compile it again"
    ):
        bundles.read(str(tmp_path))


class Noted(dict[str, Any]):
    """A section that notes what is asked of it."""

    def __init__(self, section: dict[str, Any]) -> None:
        super().__init__(section)
        self.asked = set[str]()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


def test_no_module_depends_on_what_is_not_called_decisive() -> None:
    read: dict[str, set[str]] = {section: set() for section in DECISIVE}
    for name in SPECS:
        plan = json.loads(bundle(name)["trainer_args.json"])
        plan.update({section: Noted(plan[section]) for section in DECISIVE})
        uses(plan)
        for section, names in read.items():
            names |= plan[section].asked
    assert read == {section: set(names) for section, names in DECISIVE.items()}


@pytest.mark.parametrize("name", SPECS)
def test_what_is_unused_would_need_another_module(name: str) -> None:
    """Each setting that a bundle calls unused brings a module when it is set, and what was set is not called so."""
    plan = json.loads(bundle(name)["trainer_args.json"])
    before = uses(plan)
    assert set(plan["trainer"]["modules"]) == {one for one, used in before.items() if used}
    for path in plan["trainer"]["unused"]:
        changed = copy.deepcopy(plan)
        *sections, last = path.split(".")
        section = changed
        for one in sections:
            section = section[int(one)] if isinstance(section, list) else section[one]
        section[last] = {"sets": [], "id": None}
        assert any(used and not before[one] for one, used in uses(changed).items()), path


MODULE = re.compile(r"(?:core|features|library_internals)/\w+\.py")


@pytest.mark.parametrize("name", SPECS)
def test_the_trainer_names_no_module_that_its_bundle_has_not(name: str) -> None:
    files = bundle(name)
    for path, data in files.items():
        if path.startswith("trainer/") and path.endswith(".py"):
            for cited in MODULE.findall(data.decode()):
                assert f"trainer/{cited}" in files, f"{path} names {cited}"


ELSEWHERE = re.compile(r"\bRULES\b|\bHOUSE\b|\bLANGUAGE\.md|\b(?:docs|tests|compiler|specs)/|\bruntime/(?!\w*engine)")
"""Texts of this repository that no bundle has; `runtime/` is also a folder of DeepSpeed's."""


def test_no_text_of_the_runtime_points_out_of_the_bundle() -> None:
    for path in (one for one in RUNTIME.rglob("*") if one.suffix in (".py", ".md")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not ELSEWHERE.search(line.replace("runtime/zero", "")), f"{path}:{number}: {line.strip()}"
