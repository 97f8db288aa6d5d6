"""The differential test with only a few random specs. `make differential` runs it with many."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import generated
import generator
import pytest
from case_support import spec as written
from compile_support import checked
from differential import Differential, report_text
from differential_refusals import claims
from differential_report import FOUND, page
from differential_steps import Candidate, chosen, step, trainable
from emitted import put
from inspectors import Looker
from interpreters import OTHERS
from prove import every
from stacks import REPOSITORY, interpreter
from tiers import nightly_but

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language import schema
from xpc.compiler.language.load import load
from xpc.compiler.pipeline import check_text
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import DEFAULT, STACKS
from xpc.grammar.read import decode

SPECS = 500
NEVER = {
    "model.config", "strategy.activation_checkpointing", "lora.block_size", "lora.parameters", "lora.lr_ratio",
    "lora.embedding_lr", "sweep", "method.teacher", "method.lmbda", "launch.env", "launch.setup", "launch.extra_args",
    "launch.mounts", "launch.tolerations", "launch.node_selector", "lora.from",
    "model.rope", "method.tools", "method.environment",
}  # fmt: skip
"""Settings that the generator does not write, or that are never legal. `rope` changes how a model is loaded from files,
but these runs load no files; tests/proof/training/test_train_rope.py trains with it, and test_train_tools.py trains
with tools.
"""


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Spec], int]:
    """Return a pair: the generated specs that compile, and the number of all generated specs."""
    location = put(str(tmp_path_factory.mktemp("drawn")), generated.FILES)
    found = [check_text(generator.spec(f"test-{i}").encode(), "t.xp", Workspace(location)).spec for i in range(SPECS)]
    return [one for one in found if one is not None], SPECS


@pytest.mark.parametrize(("rank", "trains"), [(32, True), (64, False)])
def test_a_spec_trains_if_the_tiny_model_is_as_wide_as_its_rank(rank: int, trains: bool) -> None:
    spec = checked(written(f"lora(rank={rank}, init=pissa)")).spec
    assert spec is not None
    assert trainable(spec) is trains


def test_a_seed_gives_one_text() -> None:
    assert generator.spec("same") == generator.spec("same")
    assert generator.spec("same") != generator.spec("other")


@pytest.mark.slow
def test_many_of_the_specs_compile(accepted: tuple[list[Spec], int]) -> None:
    assert 0.3 < len(accepted[0]) / accepted[1] < 0.8


@pytest.mark.slow
def test_specs_cover_the_language(accepted: tuple[list[Spec], int]) -> None:
    specs = accepted[0]
    assert {one.text("strategy") for one in specs} >= {"ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp1"}
    assert {one.text("method") for one in specs} >= {"sft", "dpo", "orpo", "kto", "reward", "grpo", "rloo"}
    assert {one.text("precision") for one in specs} == {"bf16", "fp16", "fp32"}
    assert {one.stack.name for one in specs} == set(STACKS)
    assert {one.on_cpu for one in specs} == {True, False}
    assert {name for one in specs for name in one.extra} == {"trl", "accelerate", "deepspeed"}
    assert {one.flag("lora") or one.flag("qlora") for one in specs} == {True, False}


@pytest.mark.slow
def test_every_setting_is_generated() -> None:
    written: set[str] = set()
    for number in range(1500):
        source, _ = decode(generator.spec(f"words-{number}").encode(), "t.xp")
        written.update(load(source, Workspace(".")).items)
    rows = [row.path for row in schema.TABLE if row.path not in NEVER]
    assert [path for path in rows if path not in written] == []


def test_values_of_pools_are_those_of_settings() -> None:
    assert set(generated.POOLS) <= set(schema.BY_PATH)
    assert set(generated.OFTEN) <= set(schema.BY_PATH)
    assert generator.pick(Random(0), {"a": 1}) == "a"


def test_steps_are_spread_over_kinds() -> None:
    drawn_ones = [Candidate(f"often-{i}", "", ("ddp", "sft")) for i in range(50)] + [
        Candidate("once", "", ("zero3", "rloo"))
    ]
    names = [one.name for one in chosen(drawn_ones, 4, "seed")]
    assert "once" in names
    assert len(set(names)) == 4
    assert names == [one.name for one in chosen(drawn_ones, 4, "seed")]


def test_a_claim_is_an_exception_of_the_text_alone() -> None:
    found = claims(every())
    tf32 = found["XP302", DEFAULT]
    assert tf32.constructs
    assert tf32.shown(["ValueError: --tf32 requires Ampere or a newer GPU arch"])
    assert not tf32.shown([])
    # there is no claim for XP126: its proof adds the violation to a legal text, so the text alone raises no exception
    assert ("XP126", DEFAULT) not in found
    # there is no claim for XP201: its proof measures a silent effect (a batch of another size)
    assert ("XP201", DEFAULT) not in found


def test_the_page_is_the_report() -> None:
    folder = os.path.join(REPOSITORY, "docs")
    with open(os.path.join(folder, "differential.json"), encoding="utf-8") as handle:
        report = json.load(handle)
    with open(FOUND, encoding="utf-8") as handle:
        text = page(report, handle.read())
    with open(os.path.join(folder, "differential.md"), encoding="utf-8") as handle:
        assert handle.read() == text, (
            "run: python tests/proof/differential/differential_report.py docs/differential.json docs/differential.md"
        )


TARGETS = {"first and last": (DEFAULT, OTHERS[0]), "between": OTHERS[1:]}
"""Groups of stacks for the generated specs. Stacks between the oldest and the default one are a group of their own,
because the code for each of them is the code for one of these two.
"""


@pytest.mark.slow
@pytest.mark.parametrize("targets", nightly_but(TARGETS, lambda name: name == "first and last"))
def test_accepted_specs_are_accepted_by_the_libraries(targets: str) -> None:
    for target in TARGETS[targets]:
        interpreter(target)
    report = Differential(wanted=60, steps=6, seed="ci", jobs=1, targets=TARGETS[targets]).run()
    assert report.accepted == 60
    assert report.stepped == 6
    assert not report.crashes, report_text(report)
    assert not report.false_accepts, report_text(report)
    assert not report.false_refusals, report_text(report)


ONCE_FAILED = {
    # trl 1.16 computes the reference in an engine of DeepSpeed, which casts the adapters to bf16
    "precomputed reference": (
        DEFAULT, 1, "preference.jsonl", "method dpo(precompute)\nlora\nstrategy zero1\nprecision bf16",
    ),
    # peft's `generate` calls the base model, so FSDP2 did not gather the embeddings
    "generation under FSDP2": (
        "trl-0.24", 0, "prompt.jsonl",
        "method grpo(generations=2, rewards=[format, tag_count])\nlora\nstrategy fsdp\nprecision fp32",
    ),
}  # fmt: skip
"""Accepted specs that once failed in a training step: the target, the number of the step, the rows, and lines."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ONCE_FAILED)
def test_specs_that_once_failed_train_a_step(name: str, tmp_path: Path) -> None:
    target, number, rows, lines = ONCE_FAILED[name]
    interpreter(target)
    text = f'xpc 1\ntrain "tiny" on "{rows}" for 10 steps\nhardware 8 x h100-80gb\ntarget {target}\n{lines}\n'
    text += 'batch(gbs=16, micro=2)\nsave "out/run"\n'
    _, job = step("once", text, put(str(tmp_path), generated.FILES), number)
    inspector = Looker(target, 1)
    try:
        inspector.send({**job, "eager": True}, most=1)
        (answer,) = inspector.collect()
    finally:
        inspector.close()
    assert (answer["raised"], answer["silent_effects"]) == (None, [])
