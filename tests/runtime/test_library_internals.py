"""Only modules in library_internals/ use private code of libraries. The tests compare this code with the version that
somebody has checked.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from library_digests import digests, table
from tiers import EACH_STACK

from xpc.compiler.lower.trainer_files import TOUCHED, readme

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "proof"))
RUNTIME = ROOT / "runtime"
INTERNALS = RUNTIME / "library_internals"
OWN = {("os", "_exit")}
LIBRARIES = ("datasets.", "transformers.", "trl.", "torch.", "accelerate.", "deepspeed.", "peft.")


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def private(path: Path) -> set[str]:
    """The private names of libraries that a module reads, sets, imports or overrides, and the functions of libraries
    that it replaces.
    """
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner not in ("self", "cls") and (owner, node.attr) not in OWN:
                found.add(node.attr)
        if isinstance(node, ast.Assign):
            replaced = [ast.unparse(one) for one in node.targets]
            found |= {one.partition("[")[0].rpartition(".")[2] for one in replaced if one.startswith(LIBRARIES)}
        if isinstance(node, ast.ImportFrom) and not node.level:
            found |= {one.name for one in node.names if re.match(r"_[a-z]", one.name)}
            found |= {part for part in (node.module or "").split(".") if re.match(r"_[a-z]", part)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            found |= {
                one.value for one in node.args if isinstance(one, ast.Constant) and re.match(r"_[a-z]", str(one.value))
            }
    return found


OUTSIDE = {"batched_calls.py": {"_tokenizer"}}
"""Maps a file outside of library_internals/ to the private names that it uses. ``batched_calls.py`` is run by its path,
so it cannot import from library_internals/. It compares its results with the results of the public functions while it
runs."""


@pytest.mark.slow
def test_only_library_internals_touches_them() -> None:
    for path in RUNTIME.rglob("*.py"):
        if path.parent != INTERNALS:
            found = private(path) - OUTSIDE.get(path.name, set())
            assert not found, f"{path}: move the code that uses {found} to library_internals/"


def stand_ins(path: Path) -> set[str]:
    """The names in a library's modules that the runtime replaces while it builds a trainer
    (``trl_modules.replaced``).
    """
    if " replaced(" not in path.read_text(encoding="utf-8"):
        return set()
    tables = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.AnnAssign | ast.Assign | ast.Call)]
    found: set[str] = set()
    for node in tables:
        if isinstance(node, ast.Call):
            dicts = [one for one in node.args if ast.unparse(node.func) == "replaced" and isinstance(one, ast.Dict)]
        else:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named = [one for one in targets if ast.unparse(one).startswith("replacements")]
            found |= {one.slice.value for one in named if isinstance(one, ast.Subscript)}  # type: ignore[attr-defined]
            dicts = [node.value] if named and isinstance(node.value, ast.Dict) else []
        found |= {key.value for one in dicts for key in one.keys if isinstance(key, ast.Constant)}
    return found


def test_the_readme_names_everything_that_is_replaced_in_trl() -> None:
    (row,) = [one for one in (RUNTIME / "README.md").read_text().splitlines() if "| trl `create_model" in one]
    names = set().union(*(stand_ins(path) for path in (RUNTIME / "features").rglob("*.py")))
    assert {"AutoConfig", "transformers", "get_peft_model", "concatenate_datasets"} <= names
    for name in names:
        assert f"`{name}`" in row


def test_a_bundle_has_the_rows_of_its_modules() -> None:
    whole = (RUNTIME / "README.md").read_bytes()
    modules = {path.name for path in INTERNALS.glob("[a-z]*.py")}
    assert {one.decode() for one in TOUCHED.findall(whole)} == modules
    made = readme(whole, ["core/run.py", "library_internals/liger_kernels.py"])
    assert TOUCHED.findall(made) == [b"liger_kernels.py"]
    assert TOUCHED.sub(b"", made) == TOUCHED.sub(b"", whole)


def overridden() -> set[str]:
    """The private methods that the classes in library_internals/ define. They override private methods of the library's
    trainers.
    """
    return {
        node.name
        for path in RUNTIME.rglob("*.py")
        for kind in ast.walk(parsed(path))
        if isinstance(kind, ast.ClassDef)
        for node in kind.body
        if isinstance(node, ast.FunctionDef) and path.parent == INTERNALS and re.match(r"_[a-z]", node.name)
    }


@pytest.mark.slow
def test_the_readme_names_everything_that_is_touched() -> None:
    readme = (RUNTIME / "README.md").read_text(encoding="utf-8")
    names = set().union(*(private(path) for path in INTERNALS.glob("*.py"))) | overridden()
    assert len(names) > 10
    for name in names:
        assert name in readme, f"runtime/README.md does not mention {name}"
        assert any(name in one for one in table()) or name in ("_metrics", "_stored_metrics", *READ), name


READ = (
    "__compatible_ops__",
    "_globalstep_last_logged",
    "_total_train_tokens",
    "_indices",
    "_worker_group",
    "_store",
    "_shutdown",
    "_attn_implementation",
    "_tokenizer",
    "_precomputed_eval_ref_log_probs",
    "_no_split_modules",
)
"""Attributes of libraries that the runtime reads. An attribute has no source code that could be compared. Instead, the
test compares the digest of a function that uses it."""


def test_every_entry_names_its_module() -> None:
    assert {entry["module"] for entry in table().values()} == {path.stem for path in INTERNALS.glob("[a-z]*.py")}


@pytest.mark.slow
@pytest.mark.parametrize("target", EACH_STACK)
def test_the_code_under_it_is_what_it_was(target: str) -> None:
    from forks import shared

    found = digests(shared(target).python)
    for name, kept in table().items():
        again = f"then: python tests/runtime/library_digests.py {target} PYTHON"
        assert kept.get(target) == found[name], (
            f"{name} of {target} has changed: does runtime/library_internals/{kept['module']}.py still work? {again}"
        )


@pytest.mark.slow
def test_no_other_private_method_is_overridden() -> None:
    """None of our private methods may have the name of a private method in a library's trainer, because our method
    would then replace the library's method.
    """
    trl = pytest.importorskip("trl")
    from xpc.runtime.core.fault_tolerance import FaultTolerant
    from xpc.runtime.features.evaluation.during_training import EvaluatingTrainer
    from xpc.runtime.features.model.adapters import AdapterTrainer
    from xpc.runtime.features.saving.hub import PublishingTrainer
    from xpc.runtime.library_internals.random_states import RandomStatesTrainer
    from xpc.runtime.library_internals.repeated_prompts import RepeatedPromptsTrainer
    from xpc.runtime.library_internals.rollout_rounds import RolloutRoundsTrainer
    from xpc.runtime.library_internals.synced_reference import SyncedReferenceTrainer

    intended = {"_maybe_log_save_evaluate", "_save_checkpoint", "_load_from_checkpoint", "_get_output_dir"}
    intended |= {"_load_rng_state", "_save_rng_state", "_get_train_sampler"}
    public = {"save_model", "create_optimizer", "training_step", "get_batch_samples", "evaluate", "prediction_step"}
    public |= {"get_eval_dataloader", "init_hf_repo", "create_model_card"}
    mixins = (FaultTolerant, RandomStatesTrainer, RepeatedPromptsTrainer, RolloutRoundsTrainer, EvaluatingTrainer,
              AdapterTrainer, SyncedReferenceTrainer)  # fmt: skip
    ours = {
        name
        for kind in (*mixins, PublishingTrainer)
        for base in kind.__mro__[:-1]
        for name, value in vars(base).items()
        if callable(value) and not name.startswith("__")
    }
    theirs = {name for kind in (trl.SFTTrainer, trl.DPOTrainer, trl.GRPOTrainer) for name in dir(kind)}
    assert ours & theirs == intended | public
