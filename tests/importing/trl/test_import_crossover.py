"""Files with random keys and values of TRL: the bundle has the arguments that TRL's own parser reads from the file, or
the import reports the difference.

XPC_SEED, which `make soak` sets, chooses other files, and ten times as many.
"""

from __future__ import annotations

import os
import random
import tomllib
from pathlib import Path
from typing import Any

import oracle_support
import pytest
import yaml
from import_support import HEAD, imported
from interpreters import methods_of, stack_of
from trl_arguments import differing, parsed

from xpc.compiler.importing.trl import switches
from xpc.compiler.language.methods import METHODS
from xpc.compiler.stacks import STACKS

pytestmark = pytest.mark.slow

FILES = 600 if "XPC_SEED" in os.environ else 60
KEYS = (2, 3, 4, 5, 6)
"""A file has one of these numbers of keys."""
EXCLUDED = {
    "average_tokens_across_devices": "the parser runs in one process",
    "dataset_kwargs": "the targets read none of its keys",
    "dataset_text_field": "a bundle renames the column",
    "fp16_backend": "the targets have one backend of fp16 on a GPU",
    "half_precision_backend": "the targets have one backend of fp16 on a GPU",
    "no_cuda": "the parser runs on a CPU anyway",
    "save_safetensors": "a bundle always writes safetensors",
    "shuffle_dataset": "a bundle shuffles the rows itself",
    "use_cache": "training does not use the cache of generation",
    "use_cpu": "the parser runs on a CPU anyway",
    "use_legacy_prediction_loop": "a bundle has one loop of evaluation",
    "use_mps_device": "the parser runs on a CPU anyway",
}
"""Maps arguments that the files do not have, and whose values are not compared, to the reason."""
File = tuple[str, dict[str, Any]]
"""A method, and the keys and values of a file."""
FIXED: tuple[File, ...] = (
    ("sft", {"fp16": False}),
    ("sft", {"logging_strategy": "steps"}),
    ("sft", {"eval_strategy": "steps"}),
    ("sft", {"gradient_checkpointing_kwargs": {"use_reentrant": False}}),
    ("kto", {"max_length": 512}),
    ("dpo", {"lr_scheduler_type": "cosine_with_min_lr"}),
    ("dpo", {"lr_scheduler_type": "cosine_warmup_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}}),
)
"""Files that an import once read differently from TRL without reporting the difference."""
CHOICES = 12
"""An argument with more choices, such as `optim`, gets its values only from trl_values.toml."""


def written_values() -> dict[str, Any]:
    """The content of trl_values.toml."""
    with open(os.path.join(oracle_support.FOLDER, "trl_values.toml"), "rb") as handle:
        return tomllib.load(handle)


def values(stack: str, method: str) -> dict[str, list[Any]]:
    """The values of each argument that the stack's class of a method has."""
    table = written_values()
    table["loss_type"] = table["loss_type"].get(method, [])
    out = {}
    for name, argument in stack_of(stack).fields(stack_of(stack).config(method)).items():
        found = [*table.get(name, ())]
        found += [True, False] if "bool" in argument.type.split(" | ") else []
        found += argument.choices if len(argument.choices) <= CHOICES else ()
        if found and name not in EXCLUDED:
            out[name] = found
    return out


def generated(chance: random.Random, stack: str, count: int) -> list[File]:
    """Random files for the methods of a stack."""
    known = {method: values(stack, method) for method in methods_of(stack) if method != "distill"}
    out = []
    for method in chance.choices(sorted(known), k=count):
        names = chance.sample(sorted(known[method]), chance.choice(KEYS))
        out.append((method, {name: chance.choice(known[method][name]) for name in names}))
    return out


def silent(stack: str, file: File, theirs: dict[str, Any]) -> dict[str, tuple[Any, Any]] | None:
    """The arguments that differ although the import does not report a difference of them. None if the import or the
    compiler refuses the file.
    """
    method, table = file
    text = HEAD + yaml.safe_dump(table) + ("reward_funcs: [accuracy]\n" if METHODS[method].grouped else "")
    version = stack.removeprefix("trl-")
    found = imported(text, "--trl", version, "--method", method, "--hardware", "1 x h100-80gb")
    if found.draft.wrong or found.errors:
        return None
    unset = () if "hub_model_id" in table else ("hub_model_id",)
    different = differing(theirs, found, method, (*EXCLUDED, *unset))
    reported = {name for name in different for one in found.draft.messages if one.text.startswith(f"`{name}`")}
    return {name: pair for name, pair in different.items() if name not in {*found.draft.differences, *reported}}


def answers(stack: str, files: list[File], folder: Path) -> list[dict[str, Any] | None]:
    """For each file, the arguments that the stack's TRL reads from it; None if TRL refuses the file."""
    requested = []
    for number, (method, table) in enumerate(files):
        path = folder / f"{number}.yaml"
        path.write_text(yaml.safe_dump(table))
        requested.append((str(path), method))
    found = parsed(stack, requested)
    return [found[path].get("arguments") for path, _ in requested]


def test_every_value_is_of_an_argument_of_some_stack() -> None:
    known = {name for stack in STACKS for method in methods_of(stack) for name in values(stack, method)}
    assert {*written_values()} - known == set()


@pytest.mark.parametrize("stack", STACKS)
def test_a_bundle_has_trls_arguments_or_the_import_reports_the_difference(
    stack: str, chance: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [(method, {"report_to": "none", **table}) for method, table in (*FIXED, *generated(chance, stack, FILES))]
    theirs = answers(stack, files, tmp_path)
    compared = [(file, found) for file, output in zip(files, theirs, strict=True)
                if output is not None and (found := silent(stack, file, output)) is not None]  # fmt: skip
    print(f"{stack}: {len(compared)} of {len(files)} files compared")
    wrong = [f"{method} {table}: {found}" for (method, table), found in compared if found]
    assert not wrong, "\n".join(wrong)
    assert len(compared) > len(files) / 3

    # the comparison notices an import that takes transformers' defaults for those of the version
    monkeypatch.setattr(switches, "_default", lambda draft, name: 500)
    noticed = [silent(stack, file, output) for file, output in zip(files[: len(FIXED)], theirs) if output is not None]
    expected = {"gradient_checkpointing", "logging_steps"}
    assert any(expected & set(found or ()) for found in noticed), noticed
