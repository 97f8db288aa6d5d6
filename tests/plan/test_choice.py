"""If a spec leaves settings to the compiler, the compiler chooses a combination that fits. Of these, it chooses the one
that the plan predicts to be fastest.
"""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path

import pytest

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.plan import FITS, choice
from xpc.compiler.plan.changed import Settings, changed
from xpc.compiler.plan.changes import faster
from xpc.compiler.plan.divisors import divisors
from xpc.compiler.plan.experiment import plan
from xpc.compiler.registry import build
from xpc.compiler.spec.checked import CheckedSpec

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPEC = "xpc 1\ntrain {model} on infinity-instruct:0625 for 1 epochs\nhardware {hardware}\n{more}\nbatch {batch}\n"
RUNS = [
    ("qwen2.5-0.5b", "1 x h100-80gb", "", "gbs=64 seq=2048"),
    ("qwen2.5-3b", "8 x h100-80gb", "", "gbs=128 seq=4096"),
    ("qwen2.5-3b", "8 x v100-32gb", "", "gbs=528"),
    ("qwen2.5-7b", "8 x a100-80gb", "zero3", "gbs=96 seq=4096"),
    ("llama-3.1-8b-instruct", "16 x h100-80gb", "lora", "gbs=64 seq=8192"),
    ("gemma-3-1b-it", "8 x h100-80gb", "memory(liger)", "gbs=64 seq=32768"),
    ("qwen3-0.6b", "4 x a100-40gb", "target trl-0.18", "gbs=36 seq=1024"),
    ("qwen2.5-7b", "8 x h100-80gb", "freeze(except_last = 4)", "gbs=64 seq=2048"),
]


def resolved(model: str, hardware: str, more: str, batch: str) -> tuple[CheckedSpec, list[str]]:
    text = SPEC.format(model=model, hardware=hardware, more=more, batch=batch)
    found = check_text(text.encode(), "t.xp", Workspace(ROOT))
    assert found.spec is not None, [one.message for one in found.problems]
    return found.spec, [one.message for one in found.problems]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run[0]} {run[1]} {run[2]}")
def test_nothing_that_fits_is_predicted_to_be_faster(run: tuple[str, str, str, str]) -> None:
    """The test plans every micro-batch, with and without recomputation, and both ZeRO-1 and ZeRO-2 if the compiler may
    choose the strategy. No combination that fits is predicted to train more tokens per second than the chosen one.
    """
    spec, notes = resolved(*run)
    chosen = plan(spec)
    assert chosen.verdict == FITS
    assert chosen.speed is not None
    strategy, share = spec.text("strategy"), spec.integer("batch.gbs") // spec.replicas
    alike = ("zero1", "zero2") if strategy in ("zero1", "zero2") and not spec.written("strategy") else (strategy,)
    for name, micro, recompute in product(alike, divisors(10**9, share), (False, True)):
        settings: Settings = {"strategy": name, "batch.micro": micro, "memory.checkpointing": recompute}
        other = plan(changed(spec, settings))
        assert other.speed is not None
        if other.verdict == FITS:
            assert other.speed.tokens <= chosen.speed.tokens * 1.000001, settings
    # The bundle's README gives the reason for each chosen value, with the memory in GiB.
    for path in ("memory.checkpointing", "batch.micro"):
        assert "GiB" in (spec.values[path].origin.why or ""), path  # type: ignore[index]
    for setting in ("checkpointing", "micro-batch"):
        assert len([one for one in notes if one.startswith(f"the spec states no {setting}: ")]) == 1, notes


def test_the_least_sharding_that_fits_is_taken_and_what_is_written_stays() -> None:
    """DDP is chosen if it fits, because ZeRO rounds differently in half precision. ZeRO-3 is chosen only if no other
    strategy fits, because it sends more data. If the spec states a strategy, it is not changed.
    """
    spec, _ = resolved("qwen2.5-3b", "8 x h100-80gb", "", "gbs=128 seq=4096")
    assert spec.text("strategy") in ("zero1", "zero2")
    ddp = changed(spec, {"strategy": "ddp"})
    for micro, recompute in product((1, 2, 4, 8, 16), (False, True)):
        assert plan(changed(ddp, {"batch.micro": micro, "memory.checkpointing": recompute})).verdict != FITS
    spec, notes = resolved("qwen2.5-72b", "32 x h100-80gb", "", "gbs=128 seq=4096")
    assert spec.text("strategy") == "zero3"
    (reported,) = [one for one in notes if "the spec states no strategy" in one]
    assert reported.endswith("; ddp does not fit; zero1 does not fit; zero2 does not fit"), reported
    assert spec.text("precision") == "bf16"
    spec, _ = resolved("qwen2.5-0.5b", "8 x h100-80gb", "", "gbs=128 seq=2048")
    assert spec.text("strategy") == "ddp"
    for path, text, value in (
        ("memory.checkpointing", "memory(checkpointing)", True),
        ("memory.checkpointing", "memory(checkpointing = false)", False),
        ("strategy", "zero3", "zero3"),
    ):
        spec, notes = resolved("qwen2.5-0.5b", "8 x h100-80gb", text, "gbs=128 micro=4 seq=2048")
        assert (spec.get(path), spec.integer("batch.micro")) == (value, 4)  # type: ignore[call-overload]
        assert not [one for one in notes if f"states no {path.rpartition('.')[2]}:" in one]


def test_where_nothing_fits_the_strategy_that_needs_least_is_taken_if_it_may_do() -> None:
    """If no strategy fits with a margin, the compiler chooses the strategy that needs the least memory, and reports the
    run as `tight`. It would report the same if the spec stated this strategy. If even this strategy needs more memory
    than the GPU has, the compiler chooses none.
    """
    text = SPEC.format(model="{}", hardware="8 x h100-80gb", more="{}", batch="gbs=64")
    text = text.replace("infinity-instruct:0625", "gsm8k") + "data(prompt = question)\n"
    text += "method grpo(rewards = accuracy, vllm(gpu_memory = 70%))\n"
    open_, written, large = (
        check_text(text.format(*one).encode(), "t.xp", Workspace(ROOT))
        for one in (("qwen2.5-7b-instruct", ""), ("qwen2.5-7b-instruct", "zero3"), ("qwen2.5-14b-instruct", ""))
    )
    for found in (open_, written):
        assert found.spec is not None
        assert found.spec.text("strategy") == "zero3"
        assert "XP961" in [one.code for one in found.problems]
    (why,) = [one.message for one in open_.problems if "the spec states no strategy" in one.message]
    assert "nothing fits: the smallest choice needs 75.2 GiB, more than 80% of 79.1 GiB" in why
    assert large.spec is None


def test_what_is_learned_is_that_of_the_spec() -> None:
    """A spec that leaves settings open compiles to the same run as a spec that states the chosen values. So no choice
    of the compiler affects the data.
    """
    open_, _ = resolved("qwen2.5-3b", "8 x h100-80gb", "", "gbs=128 seq=4096")
    more = "zero1\nmemory(checkpointing = {})".format(str(open_.flag("memory.checkpointing")).lower())
    written, _ = resolved("qwen2.5-3b", "8 x h100-80gb", more, f"gbs=128 seq=4096 micro={open_.integer('batch.micro')}")
    assert {path: value.value for path, value in open_.values.items()} == {
        path: value.value for path, value in written.values.items()
    }
    small, _ = resolved("qwen2.5-3b", "8 x h100-80gb", "ddp\nmemory(checkpointing)\nlora", "gbs=128 seq=4096 micro=1")
    for path in ("batch.gbs", "batch.seq", "train.epochs", "data.seed", "optimizer.lr", "precision", "seed"):
        assert open_.get(path) == small.get(path), path  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("hardware", "more", "workers"),
    [
        ("8 x h100-80gb", "", 16),
        ("1 x h100-80gb", "", 2),
        ("8 x h100-80gb", "nodes 2", 16),  # on every node, the first process tokenizes, with the cores of this node
        ("8 x h100-80gb", "launch slurm(cpus=8)", 8),
        ("8 x h100-80gb", "launch slurm(cpus=1)", None),
        ("8 x h100-80gb", "data(workers=3)", 3),
        ("8 x cpu", "", None),
    ],
)
def test_many_rows_are_tokenized_by_two_processes_a_gpu(hardware: str, more: str, workers: int | None) -> None:
    spec, notes = resolved("qwen2.5-0.5b", hardware, more, "gbs=64 seq=2048")
    assert spec.get("data.workers") == workers
    reported = [one for one in notes if "the spec states no `workers`" in one]
    assert len(reported) == (workers is not None and "workers" not in more)


def test_prompts_that_are_completed_in_training_are_not_tokenized_ahead() -> None:
    text = (
        "xpc 1\ntrain qwen2.5-0.5b on tldr for 9 steps\nhardware 8 x h100-80gb\n"
        "method grpo(rewards=format, generations=8)\ndata(prompt=prompt)\n"
    )
    found = check_text(text.encode(), "t.xp", Workspace(ROOT))
    assert found.spec is not None, [one.message for one in found.problems]
    assert sum(one.rows or 0 for one in found.spec.data) > 50_000
    assert found.spec.get("data.workers") is None


@pytest.mark.parametrize(("take", "workers"), [("50000", 16), ("49999", None), ("1%", None), ("10%", 16)])
def test_few_rows_are_tokenized_by_one_process(take: str, workers: int | None) -> None:
    mixture = f"data mix {{\n  infinity-instruct:0625 {{\n    take = {take}\n  }}\n}}"
    text = SPEC.format(model="qwen2.5-0.5b", hardware="8 x h100-80gb", more=mixture, batch="gbs=64")
    found = check_text(text.replace("infinity-instruct:0625 for", "mix for").encode(), "t.xp", Workspace(ROOT))
    assert found.spec is not None, [one.message for one in found.problems]
    assert found.spec.get("data.workers") == workers


@pytest.mark.parametrize("more", ["hardware 8 x cpu", "memory(offload_activations)"])
def test_what_the_plan_does_not_know_recomputes(more: str) -> None:
    hardware = "8 x h100-80gb" if "cpu" not in more else more.removeprefix("hardware ")
    spec, notes = resolved("qwen2.5-0.5b", hardware, "" if "cpu" in more else more, "gbs=16 seq=1024")
    assert spec.flag("memory.checkpointing")
    assert spec.text("strategy") == "ddp"
    assert not [one for one in notes if "the spec states no checkpointing" in one]


def test_kto_gets_the_two_rows_that_it_compares(tmp_path: Path) -> None:
    """kto compares rows of a micro-batch, and refuses a micro-batch of 1 (XP638). So the compiler must not choose 1,
    which would be fastest for this run.
    """
    rows = [{"prompt": "a", "completion": one, "label": one == "b"} for one in "bc"]
    (tmp_path / "kto.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = 'xpc 1\ntrain qwen2.5-7b-instruct on "kto.jsonl" for 1 epochs\nhardware 8 x h100-80gb\n'
    text += "method kto\ndata { format = unpaired }\nbatch gbs=64 seq=2048\n"
    found = check_text(text.encode(), "t.xp", Workspace(str(tmp_path)))
    assert found.spec is not None, [one.message for one in found.problems]
    assert found.spec.integer("batch.micro") >= 2


def test_frozen_layers_below_the_trained_ones_cost_their_forward_pass() -> None:
    """Frozen layers below the first trained layer need no backward pass. Nothing is saved or recomputed for them, so
    they need less memory and fewer operations.
    """
    found = {}
    for more in ("", "freeze(except_last = 4)"):
        settings = f"zero2\nmemory(checkpointing)\n{more}"
        found[more] = plan(resolved("qwen2.5-7b", "8 x h100-80gb", settings, "gbs=64 micro=2 seq=2048")[0])
    whole, part = found.values()
    assert whole.speed is not None
    assert part.speed is not None
    assert whole.peak is not None
    assert part.peak is not None
    assert whole.peak.value > 1.5 * part.peak.value
    # Operations per parameter and token with recomputation: a trained layer needs 8, 2 of them in the forward pass. If
    # 4 of 28 layers are trained, all 28 layers need the forward pass, but only these 4 need the other 6 operations.
    assert 2 < part.speed.tokens / whole.speed.tokens < 4


def test_members_of_a_sweep_that_differ_in_a_rate_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[object] = []
    search = choice._search
    monkeypatch.setattr(choice, "_search", lambda spec, *more: (requested.append(spec), search(spec, *more))[1])
    text = SPEC.format(model="qwen2.5-3b", hardware="8 x h100-80gb", more="", batch="gbs=128")
    found = check_text((text + "sweep { lr = [1e-6, 2e-6, 3e-6] }\n").encode(), "t.xp", Workspace(ROOT))
    assert (len(found.members), len(requested)) == (3, 1)
    assert len({member.spec.integer("batch.micro") for member in found.members}) == 1
    check_text((text + "sweep { seq = [512, 4096] }\n").encode(), "t.xp", Workspace(ROOT))
    assert len(requested) == 3


def test_two_specs_with_equal_settings_share_no_search(tmp_path: Path) -> None:
    """Two specs train folders of the same name, which contain different models."""
    text = SPEC.format(model='"m"', hardware="8 x h100-80gb", more="strategy zero3", batch="gbs=64 micro=1 seq=1024")
    registered = build.read("models.toml")
    for alias in ("qwen2.5-0.5b", "qwen2.5-1.5b"):
        folder = tmp_path / alias / "m"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(build.model_config(registered, alias)))
        spec = check_text(text.encode(), "t.xp", Workspace(str(folder.parent))).spec
        assert spec is not None
        assert [one.plan.spec.model.facts for one in faster(spec)][:1] == [spec.model.facts]
