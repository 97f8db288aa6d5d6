"""The trainer in a bundle contains every module that the run imports, and no other module."""

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
from compile_support import put
from tiers import every_fourth

from tests.golden_bundles import ROOT, SPECS, compiled
from xpc.compiler.lower.trainer_files import CHOSEN, trainer_files
from xpc.runtime.core import bundle as bundles
from xpc.runtime.core.conditions import DECISIVE, IMPORT, uses
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.feature import Feature
from xpc.runtime.enabled import FEATURES

RUNTIME = Path(ROOT, "runtime")
bundle = cache(compiled)


def modules(name: str) -> dict[str, bytes]:
    """The source files of the trainer in a bundle, by their paths below trainer/."""
    files = {one.removeprefix("trainer/"): data for one, data in bundle(name).items() if one.startswith("trainer/")}
    return {one: data for one, data in files.items() if one.endswith(".py")}


@cache
def imported(path: str, source: bytes) -> tuple[str, ...]:
    """The files that a module imports; cached, because most modules are the same in every bundle."""
    return tuple(imports(ast.parse(source), path))


def imports(node: ast.AST, path: str) -> Iterator[str]:
    """The files that a syntax node imports by relative imports, without imports under TYPE_CHECKING."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.ImportFrom) and node.level:
        location = os.path.normpath(os.path.join(os.path.dirname(path), *[".."] * (node.level - 1)))
        location = os.path.normpath(os.path.join(location, *(node.module or "").split(".")))
        for alias in node.names:
            inside = os.path.normpath(os.path.join(location, f"{alias.name}.py"))
            there = (one for one in (inside, f"{location}/__init__.py") if (RUNTIME / one).is_file())
            yield next(there, f"{location}.py")
    for child in ast.iter_child_nodes(node):
        yield from imports(child, path)


@pytest.mark.parametrize("name", every_fourth(tuple(SPECS)))
def test_every_import_is_in_the_bundle(name: str) -> None:
    there, seen = modules(name), 0
    for path, source in there.items():
        for file in imported(path, source):
            seen += 1
            assert (RUNTIME / file).is_file(), f"{path} imports {file}, which is nowhere"
            assert file in there, f"{path} imports {file}, which is not in the bundle"
    assert seen > 50


def test_the_core_names_no_feature() -> None:
    """Modules of the core import only modules that every bundle has. They reach features only by calling the methods of
    Feature.
    """
    always = set.intersection(*({Path(one).stem for one in bundle(name)} for name in SPECS))
    compilers = RUNTIME / "core" / "conditions.py"
    for path in {RUNTIME / "main.py", RUNTIME / "launcher.py", *(RUNTIME / "core").glob("*.py")} - {compilers}:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for file in imports(tree, str(path.relative_to(RUNTIME))):
            assert file.split("/")[0] not in CHOSEN or Path(file).stem in always, f"{path.name} imports {file}"


HOOKS = {name for name, value in vars(Feature).items() if callable(value)}


def test_every_moment_is_called_and_used() -> None:
    """The core calls every method of Feature for the features of a bundle, and at least one feature overrides each
    method.
    """
    called = set[str]()
    for path in [*RUNTIME.glob("*.py"), *(RUNTIME / "core").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called |= {node.func.attr} if ast.unparse(node.func.value) not in ("bundle", "self") else set()
    assert called & HOOKS == HOOKS
    assert {name for one in FEATURES for name in vars(type(one))} & HOOKS == HOOKS


def test_mypy_knows_the_functions_of_each_program() -> None:
    """`bundle.program("result.py")` is untyped. So each use is in the `else` branch of `if TYPE_CHECKING`, whose first
    branch imports the module for mypy. stage.py is an exception, because it imports the module in which it is used.
    """
    used, typed = list[str](), list[str]()
    for path in (RUNTIME / "core").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr="program"), args=[ast.Constant(value=str(name))]):
                    used.append(name)
                case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=[ast.ImportFrom(names=[one])], orelse=[made]):
                    assert ast.unparse(made) == f"{one.name} = bundle.program('{one.name}.py')"
                    typed.append(f"{one.name}.py")
                case ast.Call(func=ast.Name(id="run_path") | ast.Attribute(attr="run_path")):
                    assert path.name == "feature.py"
    assert sorted(typed) == ["prepare_rows.py", "result.py"]
    assert sorted(used) == [*sorted(typed), "stage.py"]


ORDER = {
    "before_rows": (
        "AssistantMasks",
        "GenerationPrompt",
        "Rewards",
        "Tools",
        "Teacher",
        "LigerFamily",
        "TokenizerFiles",
        "Images",
        "Mixture",
    ),
    "check_access": ("Hub", "ContinuedAdapter", "Packages", "Trackers"),
    "check_gpu_links": ("PeerToPeer", "AllReduce", "NodeAllReduce"),
    "tokenizer_loaded": (
        "Processor",
        "ChatTemplate",
        "TemplateTime",
        "AssistantMasks",
        "AddedTokens",
        "SpecialTokens",
        "MessageFields",
        "PromptRows",
        "Shares",
        "LengthLimits",
    ),
    "row_format": ("Images", "ImagePairs", "PromptRows", "ChatRows"),
    "row_converter": ("MessageFields", "Images", "PromptTemplate", "NamedRoles", "TokenRows"),
    "source_reader": ("FirstRows", "LocalSources"),
    "rows_mapped": ("Mixture", "Shares", "Streaming", "KtoRows", "LengthLimits"),
    "token_counter": ("TokenRows", "Streaming", "PairCounts", "OrpoCounts", "MixedShapes"),
    "tokens_counted": ("TokenRows", "Shares", "Packing", "LossMask", "RewardHead"),
    "model_options": ("RewardHead", "NewerConfig", "Rope", "Adapters"),
    "model_loaded": ("Fsdp", "WeightDtypes", "AddedTokens", "Liger", "Vision"),
    "making_trainer": ("Sampling", "Reference", "AnswerEnds", "WeightDtypes", "ContinuedAdapter"),
    "trainer_made": (
        "Evaluation",
        "OnPolicy",
        "LossDivision",
        "WeightDtypes",
        "Streaming",
        "LossMask",
        "Rope",
        "Muon",
        "ContinuedAdapter",
        "Adapters",
        "AdapterInit",
        "Vision",
    ),
    "before_first_step": ("Evaluation", "DeepSpeed", "Fsdp", "Float8", "Muon", "Idle"),
}
"""Maps a method of Feature to the features that override it, in the order in which they must run. A later feature reads
what an earlier one changes, or prints its message after the message of the earlier one.
"""


@pytest.mark.parametrize("moment", ORDER)
def test_features_act_in_this_order(moment: str) -> None:
    assert tuple(type(one).__name__ for one in FEATURES if moment in vars(type(one))) == ORDER[moment]


def test_every_method_of_a_feature_is_a_moment() -> None:
    """Each public method of a feature overrides a method of the class Feature. Any other method would never be
    called.
    """
    for one in FEATURES:
        public = {name for name, value in vars(type(one)).items() if callable(value) and not name.startswith("_")}
        assert public <= HOOKS, f"{type(one).__name__}: {public - HOOKS}"


def test_no_feature_is_found_by_its_name() -> None:
    """mypy can check every call of a feature: nothing is looked up by a name in a string, and no class is made by
    calling `type`.
    """
    for path in RUNTIME.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name, text = ast.unparse(node.func), ast.unparse(node)
            assert not (name == "type" and len(node.args) == 3), f"{path}: {text}"
            assert name != "getattr" or "feature" not in ast.unparse(node.args[0]).split("."), f"{path}: {text}"
            if name == "import_module":
                # `import_module` may load a library. It may not load a module of the runtime.
                assert "__package__" not in text, f"{path}: {text}"
                assert not any(isinstance(one, ast.Constant) and str(one.value)[:1] == "." for one in node.args), text


def names_of(source: bytes) -> tuple[list[str], list[str]]:
    """Read the source of an enabled.py: the features in it, and the base classes of its trainer, as they are listed."""
    tree = ast.parse(source)
    table = next(one.value for one in tree.body if isinstance(one, ast.AnnAssign))
    kind = next(one for one in ast.walk(tree) if isinstance(one, ast.ClassDef))
    assert isinstance(table, ast.Tuple)
    return [ast.unparse(one).removesuffix("()") for one in table.elts], [ast.unparse(one) for one in kind.bases]


@pytest.mark.parametrize("name", SPECS)
def test_a_bundle_enables_the_features_that_its_run_uses(name: str) -> None:
    plan, source = json.loads(bundle(name)["trainer_args.json"]), bundle(name)["trainer/enabled.py"]
    used = uses(plan)
    (features, bases), every = names_of(source), names_of((RUNTIME / "enabled.py").read_bytes())
    kept = {one for module, names in imported_names() if used[module] for one in names.split(", ")}
    assert features == [one for one in every[0] if one in kept]
    own = f"{plan['config'].rpartition('.')[2].removesuffix('Config')}Trainer"
    assert bases == [own if one == "SFTTrainer" else one for one in every[1] if one in {*kept, *CORE}]
    assert b"\n\n\n\n" not in source


CORE = ("FaultTolerant", "SFTTrainer")
"""The base classes of every trainer. `SFTTrainer` stands for the TRL trainer of the method."""


def imported_names() -> list[tuple[str, str]]:
    """The modules that runtime/enabled.py imports, with the imported names."""
    lines = (RUNTIME / "enabled.py").read_text(encoding="utf-8").split("\n")
    return [found.group(1, 2) for line in lines if (found := IMPORT.match(line))]


def test_every_condition_is_that_of_a_module_of_enabled() -> None:
    assert {module for module, _ in imported_names()} == set(uses(json.loads(bundle("sentence")["trainer_args.json"])))


def test_every_module_is_in_a_golden() -> None:
    found = {path.relative_to(RUNTIME).as_posix() for folder in CHOSEN for path in (RUNTIME / folder).rglob("*.py")}
    assert len({Path(one).stem for one in found} - {"__init__"}) == len([one for one in found if "__init__" not in one])
    emitted = {one for name in SPECS for one in bundle(name)}
    plan = json.loads(bundle("sentence")["trainer_args.json"])
    others: list[dict[str, Any]] = [
        {"model": {**plan["model"], "kernels": {"kernels-community/flash-attn2": "0" * 40}}},  # pinned by a lock
        {"data": {**plan["data"], "max_tokens": 99}},
        {"stack": {**plan["stack"], "losses_not_divided": ["sft"]}},
        {"config": "trl.GKDConfig", "method": {**plan["method"], "teacher": plan["model"]}},
        {"model": {**plan["model"], "id": None}},  # a local model
        {
            "arguments": {**plan["arguments"], "log_completions": True},
            "method": {**plan["method"], "rewarded": True},
        },
    ]
    for other in others:
        emitted |= set(trainer_files({**plan, **other}))  # type: ignore[typeddict-item]
    assert {f"trainer/{one}" for one in found} <= emitted
    assert not {"doctor", "payload", "conditions"} & {Path(one).stem for one in emitted}


def test_no_folder_is_large_or_repeats_its_name() -> None:
    for folder in (RUNTIME / "features").iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            names = [path.stem for path in folder.glob("*.py")]
            assert len(names) <= 20
            assert not [one for one in names if folder.name.rstrip("s") in one.split("_")]


def lines_of_code(source: bytes) -> int:
    """The number of lines of a source that are neither blank, nor comments, nor docstrings."""
    texts = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(source.decode().splitlines(), 1)
    return sum(1 for number, line in lines if number not in texts and line.strip()[:1] not in ("", "#"))


def test_the_sentence_has_a_short_trainer() -> None:
    """The trainer in the bundle of a one-line spec has at most 2,700 lines of code. core/feature.py is not counted,
    because it only declares methods.
    """
    files = {one: data for one, data in bundle("sentence").items() if one.startswith("trainer/")}
    code = {one: lines_of_code(data) for one, data in files.items() if one.endswith(".py")}
    assert sum(code.values()) - code["trainer/core/feature.py"] <= 2700
    assert sum(data.count(b"\n") for data in files.values()) <= 4450
    names = {Path(one).stem for one in files}
    assert not names & {"hub", "rewards", "adapters", "node_rendezvous", "during_training", "local_sources", "lengths"}


def test_the_training_path_is_about_a_quarter() -> None:
    """README.md lists the files on the training path. They have about a quarter (20 % to 30 %) of the trainer's lines
    of code.
    """
    files = bundle("sentence")
    text = files["trainer/README.md"].decode()
    path = text[text.index("## The training path") : text.index("## Features")]
    named = re.findall(r"`((?:core/)?\w+\.py)`", path)
    read = [f"trainer/{one if one in ('enabled.py',) or '/' in one else f'core/{one}'}" for one in named]
    code = {
        one: lines_of_code(data) for one, data in files.items() if one.startswith("trainer/") and one.endswith(".py")
    }
    assert set(read) <= set(code)
    assert 0.2 <= sum(code[one] for one in read) / sum(code.values()) <= 0.3


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
    put(tmp_path, bundle("sentence"))
    plan = json.loads((tmp_path / "trainer_args.json").read_text())
    assert bundles.read(str(tmp_path), ()).lora is None
    plan[section][name] = value
    (tmp_path / "trainer_args.json").write_text(json.dumps(plan))
    with pytest.raises(
        RunError, match=f"sets {section}.{name}, but trainer/ has no module for it: compile the spec again"
    ):
        bundles.read(str(tmp_path), ())


class Noted(dict[str, Any]):
    """A mapping that records in `requested` which of its keys have been read."""

    def __init__(self, section: dict[str, Any]) -> None:
        super().__init__(section)
        self.requested = set[str]()

    def __getitem__(self, name: str) -> Any:
        self.requested.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.requested.add(name)
        return super().get(name, default)


def test_no_module_depends_on_what_is_not_called_decisive() -> None:
    read: dict[str, set[str]] = {section: set() for section in DECISIVE}
    for name in SPECS:
        plan = json.loads(bundle(name)["trainer_args.json"])
        plan.update({section: Noted(plan[section]) for section in DECISIVE})
        uses(plan)
        for section, names in read.items():
            names |= plan[section].requested
    assert read == {section: set(names) for section, names in DECISIVE.items()}


@pytest.mark.parametrize("name", every_fourth(tuple(SPECS)))
def test_what_is_unused_would_need_another_module(name: str) -> None:
    """trainer_args.json lists the settings that the run does not use. Each of them, if it were set, would need a module
    that the bundle does not have.
    """
    plan = json.loads(bundle(name)["trainer_args.json"])
    before = uses(plan)
    for path in plan["trainer"]["unused"]:
        changed = copy.deepcopy(plan)
        *sections, last = path.split(".")
        section = changed
        for one in sections:
            section = section[int(one)] if isinstance(section, list) else section[one]
        section[last] = {"sets": [], "id": None}
        assert any(used and not before[one] for one, used in uses(changed).items()), path


MODULE = re.compile(r"(?:core|features|library_internals)/(?:\w+/)?\w+\.py")


@pytest.mark.parametrize("name", every_fourth(tuple(SPECS)))
def test_the_trainer_names_no_module_that_its_bundle_has_not(name: str) -> None:
    files = bundle(name)
    for path, data in files.items():
        if path.startswith("trainer/") and path.endswith(".py"):
            for cited in MODULE.findall(data.decode()):
                assert f"trainer/{cited}" in files, f"{path} names {cited}"


ELSEWHERE = re.compile(r"\bRULES\b|\bHOUSE\b|\bLANGUAGE\.md|\b(?:docs|tests|compiler|specs)/|\bruntime/(?!\w*engine)")
"""Matches paths of this repository that no bundle contains. `runtime/engine.py` does not match, because DeepSpeed has a
file of this name.
"""


def test_no_text_of_the_runtime_points_out_of_the_bundle() -> None:
    for path in (one for one in RUNTIME.rglob("*") if one.suffix in (".py", ".md")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not ELSEWHERE.search(line.replace("runtime/zero", "")), f"{path}:{number}: {line.strip()}"
