"""Every method of the language is trained from a compiled bundle, on every stack.

A run trains full weights, adapters, or adapters on a quantized base, in one process or in two. For each method, one run
is also resumed from a checkpoint. Runs are forks of a warm interpreter.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from emitted import put
from interpreters import OTHERS, methods_of
from method_runs import (
    KEPT,
    ONLINE_SETTINGS,
    RUNS,
    STEPS,
    Runs,
    Small,
    Warm,
    each_once,
    finite,
    small,
    tensors,
    types,
)
from stacks import Run, payload
from tiers import EACH_STACK, FIRST_AND_LAST, named, nightly_but

from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.rewards import REWARDS as REGISTERED
from xpc.compiler.review.finished_run import verify_run
from xpc.compiler.stacks import DEFAULT, STACKS

pytestmark = pytest.mark.slow

DRAWN = ("kto", *(name for name, method in METHODS.items() if method.generates))
"""Methods whose loss depends on which process gets which rows: kto has a baseline from the rows of a process, and the
other methods sample.
"""
KINDS = {"one": "one process", "ddp": "2 processes, DDP"}
every, resumed, sharing = (
    pytest.mark.parametrize(
        "small",
        # On other stacks, tests/faults/test_other_stacks.py always trains on two processes.
        named(chosen),
    )
    for chosen in (
        RUNS,
        [run for run in RUNS if run.resumes],
        [run for run in RUNS if run.world == 2 and not run.adapter and run.method not in DRAWN],
    )
)


@pytest.fixture(scope="module")
def runs(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return each_once(warm, tmp_path_factory)


@every
def test_a_method_trains(runs: Runs, small: Small) -> None:
    done = runs(small)[0]
    processes = KINDS.get(small.strategy, "2 processes, DeepSpeed")
    assert f"64 rows to train on, {processes}\n" in done.output
    losses = done.values("loss")
    assert [event["step"] for event in done.events] == list(range(1, STEPS + 1))
    assert all(map(math.isfinite, losses))
    assert min(done.values("grad_norm")) > 0
    # these losses are near 0, and rewards do not rise within four steps, so neither shows that the run has learned
    if METHODS[small.method].grouped:
        assert all(0 < value < 1 for value in done.values("reward"))
        taken = 0.05 if small.method == "rloo" else 1e-6  # rloo of trl 0.24 subtracts the KL divergence from the reward
        assert done.values("rewards/even/mean") == pytest.approx(done.values("reward"), abs=taken)
    else:
        assert losses[-1] < losses[0]
    assert (done.summary["steps"], done.summary["sequences"]) == (STEPS, STEPS * 8)
    checkpoints = ["checkpoint-2", "checkpoint-4"] if small.resumes else []
    assert sorted(name for name in os.listdir(done.out) if name.startswith("checkpoint")) == checkpoints


@every
def test_a_run_notes_that_it_is_what_its_bundle_asks_for(runs: Runs, small: Small) -> None:
    for done in runs(small):
        assert verify_run(done.folder, done.out, STEPS)[1] == 0, verify_run(done.folder, done.out, STEPS)[0]


@resumed
def test_it_goes_on_from_its_checkpoint_to_the_same_end(runs: Runs, small: Small) -> None:
    whole, again = runs(small)
    assert "resuming from checkpoint-2" in again.output
    assert again.summary["resumed_from"] == "checkpoint-2"
    assert [event["step"] for event in again.events] == list(range(1, STEPS + 1))
    assert again.values("loss") == pytest.approx(whole.values("loss"), abs=2e-5)
    assert again.values("grad_norm") == pytest.approx(whole.values("grad_norm"), rel=1e-3)
    assert again.values("tokens") == whole.values("tokens")


@every
def test_nothing_warns(runs: Runs, small: Small) -> None:
    for done in runs(small):
        assert [line for line in done.complained.splitlines() if "real_accelerator" not in line] == []


@sharing
def test_processes_and_shards_do_not_show(runs: Runs, small: Small) -> None:
    one, two = runs(Small(small.method, small.target))[0], runs(small)[0]
    assert two.values("loss") == pytest.approx(one.values("loss"), abs=1e-4)


@every
def test_what_is_saved(runs: Runs, ground: str, small: Small) -> None:
    for done in runs(small):
        names = os.listdir(done.out)
        assert "tokenizer.json" in names
        if not small.adapter:
            before = tensors(os.path.join(ground, "tiny", "model.safetensors"))
            after = tensors(os.path.join(done.out, "model.safetensors"))
            if "lm_head.weight" in after:  # under ZeRO-2, the file has tied weights twice
                assert after.pop("lm_head.weight") == after["model.embed_tokens.weight"]
            new = set(after) - set(before)
            assert new == ({"score.weight"} if small.method == "reward" else set())
            assert all(after[name] != weight for name, weight in before.items())
            assert finite(after)
            assert done.summary["adapter_of"] is None
            continue
        assert not [name for name in names if name.startswith("model")]
        adapters = tensors(os.path.join(done.out, "adapter_model.safetensors"))
        # the bundle keeps float32; trl 1.16 alone would convert the adapters of a 4-bit base to bf16
        assert types(os.path.join(done.out, "adapter_model.safetensors")) == {"F32"}
        trained = {name.split(".")[-2] for name in adapters}
        assert trained == {"lora_A", "lora_B", *(["score"] if small.method == "reward" else [])}
        # only A matrices: B is zero before training
        assert all(any(data) for name, data in adapters.items() if ".lora_B." in name)
        assert not any("lm_head" in name for name in adapters)
        assert done.summary["adapter_of"] == "tiny"


MERGE = """
import json, sys, torch
from peft import AutoPeftModelForCausalLM, AutoPeftModelForSequenceClassification
from transformers import AutoTokenizer
ids = torch.arange(3, 60)[None]
for folder in sys.argv[1:]:
    settings = json.load(open(folder + "/adapter_config.json"))
    scored = settings["task_type"] == "SEQ_CLS"
    kind = AutoPeftModelForSequenceClassification if scored else AutoPeftModelForCausalLM
    model = kind.from_pretrained(folder, **({"num_labels": 1} if scored else {})).eval()
    with torch.no_grad():
        with model.disable_adapter():  # the score of a reward model is random here, so its logits show nothing
            base = model(input_ids=ids, output_hidden_states=True).hidden_states[-1]
        own = model(input_ids=ids, output_hidden_states=True)
        merged = model.merge_and_unload()(input_ids=ids).logits
    tokenizer = AutoTokenizer.from_pretrained(folder)
    print(json.dumps({"moved": float((own.hidden_states[-1] - base).abs().max()),
                      "off": float((merged - own.logits).abs().max()),
                      "template": bool(tokenizer.chat_template), "finite": bool(own.logits.isfinite().all())}))
"""


MERGES = [(one, nightly) for nightly in (False, True) for one in STACKS]


@pytest.mark.parametrize(("target", "nightly"), nightly_but(MERGES, lambda one: not one[1]))
def test_adapters_load_on_their_base_and_merge_into_it(
    runs: Runs, warm: Warm, tmp_path: Path, target: str, nightly: bool
) -> None:
    """Load adapters on their base, and merge them into it. Other tests of this file have trained these adapters. `make
    test` does this with adapters of daily runs, `make slow` with adapters of nightly runs.
    """
    program = os.path.join(tmp_path, "merge.py")
    put(str(tmp_path), {"merge.py": MERGE})
    chosen = [run for run in RUNS if run.adapter and run.target == target and run.nightly is nightly]
    assert chosen
    folders = [done.out for run in chosen for done in runs(run)]
    done = warm.of(target).run(str(tmp_path), str(tmp_path), *folders, program=program)
    assert done["status"] == [0], done["err"][-3000:]
    seen = [json.loads(line) for line in done["out"].splitlines() if line.startswith("{")]
    assert len(seen) == len(folders)
    for facts in seen:
        assert (facts["template"], facts["finite"]) == (True, True)
        assert facts["moved"] > 1e-4
        assert facts["off"] < 1e-4


# -- rewards ----------------------------------------------------------------------------------------------------------

WEIGHTS = {
    "silent": 'rewards=[file("rewards.py:even", weight=1), file("rewards.py:short", weight=0)]',
    "heavy": 'rewards=[file("rewards.py:even", weight=1), file("rewards.py:short", weight=2)]',
}


WEIGHED = (("rloo", DEFAULT), *(("grpo", one) for one in STACKS))


@pytest.mark.parametrize(("method", "target"), nightly_but(WEIGHED, lambda one: one[1] == DEFAULT))
def test_weights_of_rewards_reach_the_weights_of_the_model(
    runs: Runs, warm: Warm, tmp_path_factory: pytest.TempPathFactory, method: str, target: str
) -> None:
    done = {"alone": runs(Small(method, target))[0]}  # the reward of this run is `even`
    for name, rewards in WEIGHTS.items():
        text = small(f"method {method}({rewards}, {ONLINE_SETTINGS})", method=method, target=target)
        cwd = str(tmp_path_factory.mktemp(name))
        done[name] = warm.train(text, f"{target}-{method}-{name}", target, cwd)
    model = {name: tensors(os.path.join(one.out, "model.safetensors")) for name, one in done.items()}
    assert model["silent"] == model["alone"]
    assert model["heavy"] != model["alone"]
    for event in done["heavy"].events:
        even, short = event["rewards/even/mean"], event["rewards/short/mean"]
        assert event["reward"] == pytest.approx(even + 2 * short, abs=1e-5)
        assert short < 0
    for name in ("even", "short"):
        values = done["heavy"].values(f"rewards/{name}/mean")
        assert f"\n  {name:<8} {values[0]:.4f} -> {values[-1]:.4f}" in done["heavy"].output
        assert done["heavy"].summary["results"][f"rewards/{name}/mean"]["best"] == pytest.approx(max(values))


@pytest.mark.parametrize("target", EACH_STACK)
def test_rewards_with_a_name(warm: Warm, tmp_path_factory: pytest.TempPathFactory, target: str) -> None:
    text = small(f"method grpo(rewards=[{', '.join(REGISTERED)}], {ONLINE_SETTINGS})", method="grpo", target=target)
    done = warm.train(text, f"{target}-registered", target, str(tmp_path_factory.mktemp("registered")))
    called = [name for name in done.events[0] if name.startswith("rewards/") and name.endswith("/mean")]
    # `len` and `length` name the same function
    assert len(called) == len({*REGISTERED} - {"len"})
    assert all(math.isfinite(event["reward"]) for event in done.events)


# -- data -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dpo", "orpo"])
def test_rows_with_too_long_a_prompt_are_left_out(
    warm: Warm, tmp_path_factory: pytest.TempPathFactory, method: str
) -> None:
    text = small(f"method {method}(max_prompt=30)", method=method, data="ragged").replace("seq=64", "seq=40")
    done = warm.train(text, f"{method}-ragged", DEFAULT, str(tmp_path_factory.mktemp("ragged")))
    assert "16 of 64 rows are left out: their prompts have over 30 tokens" in done.output
    assert "48 rows to train on" in done.output
    # The counts are the same for both methods, although TRL truncates rows of ORPO while it tokenizes them, and rows of
    # DPO only later.
    facts = done.summary["data"]
    assert (facts["rows"], facts["tokens"], facts["cut_rows"], facts["cut_tokens"]) == (48, 3984, 48, 720)


@pytest.mark.parametrize("target", FIRST_AND_LAST)
@pytest.mark.parametrize("method", ["dpo", "orpo", "kto"])
def test_a_prompt_that_fills_seq_costs_its_row_and_no_more(
    warm: Warm, tmp_path_factory: pytest.TempPathFactory, method: str, target: str
) -> None:
    text = small(f"method {method}", "data(holdout=16)", "eval(every=2)", method=method, data="ragged", target=target)
    text = text.replace("seq=64", "seq=28")
    done = warm.train(text, f"{target}-{method}-full", target, str(tmp_path_factory.mktemp("full")))
    losses = [*done.values("loss"), *done.values("eval_loss")]
    assert len(losses) > STEPS
    assert all(map(math.isfinite, losses)), losses
    if method == "orpo" and target == DEFAULT:
        rows, dropped = done.summary["data"]["rows"], done.summary["data"]["left_out"]
        assert rows == 48
        assert 0 < dropped < rows
        assert f"{dropped} of 48 rows are left out by the trainer: they have no learned token" in done.output
        assert f"{48 - dropped} rows to train on" in done.output


@pytest.mark.parametrize("target", EACH_STACK)
def test_kto_takes_pairs_apart(warm: Warm, tmp_path_factory: pytest.TempPathFactory, target: str) -> None:
    text = small("method kto", method="kto", data="preferences", target=target)
    done = warm.train(text, f"{target}-kto-pairs", target, str(tmp_path_factory.mktemp("pairs")))
    assert "128 rows to train on" in done.output
    assert done.values("loss")[-1] < done.values("loss")[0]


# -- launch.sh, and a resumed run -------------------------------------------------------------------------------------


def test_launch_sh_trains_the_same(ground: str, runs: Runs, train: Callable[..., Run]) -> None:
    chosen = Small("grpo", DEFAULT, "zero2")
    launched = train(chosen.text, "launched")
    assert launched.steps == list(range(1, STEPS + 1))
    assert launched.losses == pytest.approx(runs(chosen)[0].values("loss"), abs=1e-4)
    plan = payload(os.path.join(ground, "launched.bundle"))
    assert [reward["function"] for reward in plan["method"]["rewards"]] == ["even"]


@pytest.mark.nightly  # tests/faults/test_kills.py kills runs of grpo, too
def test_a_killed_run_of_generations_goes_on(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = Small("grpo", DEFAULT, "ddp", "lora").text
    text = text.replace(f"{STEPS} steps", "20 steps").replace("every=never", f"every={KEPT}")
    bundle, cwd = warm.compiled(text, "killed"), str(tmp_path_factory.mktemp("killed"))
    reached = os.path.join(cwd, "out", "checkpoint-6", "trainer_state.json")
    killed = warm.of(DEFAULT).run(bundle, cwd, world=2, kill_at=reached)
    assert killed["killed"], killed["err"][-3000:]
    assert not os.path.exists(os.path.join(cwd, "out", "summary.json")), "the run ended before it was killed"
    again = warm.run(bundle, cwd, DEFAULT, 2, XPC_PREFLIGHT="passed")
    assert again.summary["resumed_from"].startswith("checkpoint-")
    # The second start repeats some steps of the first start. Nevertheless, metrics.jsonl has each step only once.
    assert [event["step"] for event in again.events] == list(range(1, 21))


def test_every_method_is_here() -> None:
    trained = {(run.target, run.method, run.world, run.adapter) for run in RUNS}
    for method in METHODS:
        for world, adapter in ((1, ""), (2, ""), (2, "lora"), (1, "qlora")):
            assert (DEFAULT, method, world, adapter) in trained
            for other in OTHERS:
                left_out = adapter == "qlora" or method not in methods_of(other)
                assert left_out or (other, method, world, adapter) in trained


def test_every_method_goes_on() -> None:
    again = {(run.target, run.method, run.world, run.adapter) for run in RUNS if run.resumes}
    for method in METHODS:
        for target in STACKS:
            assert (target, method, 2, "") in again or method not in methods_of(target)
    for target in STACKS:
        adapted = {run.strategy for run in RUNS if run.resumes and run.adapter and run.target == target}
        assert adapted == {"ddp", "zero3"}
