"""Bundles really train on a CPU: every strategy that works on a CPU, every row shape, and every stack."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from method_runs import Warm
from stacks import REPOSITORY, Run, payload
from tiers import nightly_but
from tiny_runs import COLD, LAYOUT, STRATEGIES, SYSTEM, spec

from xpc.compiler.stacks import DEFAULT, load

pytestmark = pytest.mark.slow

SEEN = {"one": "one process", "ddp": "2 processes, DDP"}


def on_default(name: str) -> bool:
    """Whether `make test` trains with this strategy: only on the default stack (see also test_train_methods.py)."""
    return STRATEGIES[name][2] == DEFAULT


@pytest.mark.parametrize("name", nightly_but(STRATEGIES, on_default))
def test_a_strategy_trains_on_the_processes_that_it_says(strategies: Callable[[str], Run], name: str) -> None:
    run = strategies(name)
    processes = SEEN.get(name.rpartition("-")[2], "2 processes, DeepSpeed")
    assert f"64 rows to train on, {processes}\n" in run.done.stdout
    assert run.steps == [1, 2, 3, 4, 5, 6]
    assert run.losses[-1] < run.losses[0] - 0.3
    assert run.summary["steps"] == 6
    assert run.summary["sequences"] == 48
    assert run.summary["first_loss"] == run.losses[0]
    assert run.summary["last_loss"] == run.losses[-1]


@pytest.mark.parametrize("name", nightly_but([name for name in STRATEGIES if name != "one"], on_default))
def test_strategies_and_targets_train_the_same(strategies: Callable[[str], Run], name: str) -> None:
    # With the same seed, rows and arithmetic, neither a sharding strategy nor another launcher may change the losses.
    one, other = strategies("one").losses, strategies(name).losses
    # Older versions of transformers divide a loss by the number of all tokens (here 28 per row), newer ones by the
    # number of predicted tokens (27).
    stack = load(STRATEGIES[name][2])
    share = 27 / 28 if stack.facts.loss_over_all_tokens else 1
    assert other == pytest.approx([share * loss for loss in one], abs=1e-4)
    rates = [[event["lr"] for event in strategies(which).metrics] for which in ("one", name)]
    # With DeepSpeed, the schedule has already advanced when transformers logs the learning rate
    assert rates[1] == pytest.approx(rates[0])


@pytest.mark.parametrize("name", nightly_but(STRATEGIES, on_default))
def test_nothing_warns(strategies: Callable[[str], Run], name: str) -> None:
    text = strategies(name).done.stderr.lower()
    for word in ("futurewarning", "deprecat", "userwarning", "traceback", "find_unused", "[warning]", "leaked"):
        lines = [line for line in text.splitlines() if word in line and "real_accelerator" not in line]
        assert not lines, lines
    assert strategies(name).done.stdout.startswith("[run] "), (
        "a library has printed something before the first line of the run"
    )


def test_a_strategy_of_each_stack_starts_cold() -> None:
    assert {STRATEGIES[name][2] for name in COLD} == {stack for *_, stack in STRATEGIES.values()}


@pytest.mark.nightly
def test_a_layer_is_compiled_once_and_the_losses_stay(
    train: Callable[..., Run], strategies: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_LOGS", "dynamo")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    run = train(spec("model(compile)"), "compiled", cold=True)
    assert run.losses == pytest.approx(strategies("one").losses, abs=1e-4)
    traced = [line for line in run.done.stderr.splitlines() if "start tracing forward_with_checkpointing" in line]
    assert len([line for line in traced if "/0]" in line]) == 1, (
        "the model has two layers of the same kind, compiled once"
    )
    assert any(tmp_path.iterdir()), "nothing was compiled"


WEIGHTS = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
before = AutoModelForCausalLM.from_pretrained(sys.argv[1]).state_dict()
for folder in sys.argv[2:]:
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    after = model.state_dict()
    changed = [name for name in after if not torch.equal(before[name], after[name])]
    words = tokenizer("What colour is the red apple?", return_tensors="pt")
    print(json.dumps({
        "same names": sorted(before) == sorted(after), "changed": len(changed), "of": len(after),
        "dtypes": sorted({str(value.dtype) for value in after.values()}),
        "finite": bool(model(**words).logits.isfinite().all()), "use_cache": model.config.use_cache,
        "eos": [tokenizer.eos_token_id, model.config.eos_token_id, model.generation_config.eos_token_id],
        "template": bool(tokenizer.chat_template), "norm": float(sum(v.double().norm() for v in after.values())),
    }))
"""


def test_the_weights_load_and_are_the_same(strategies: Callable[[str], Run], warm: Warm, location: str) -> None:
    names = [name for name, (_, _, stack) in STRATEGIES.items() if stack == DEFAULT]
    folders = [strategies(name).out for name in names]
    seen = warm.program(DEFAULT, WEIGHTS, os.path.join(location, "tiny"), *folders)
    assert len(seen) == len(names)
    for name, facts in zip(names, seen, strict=True):
        assert (facts["same names"], facts["finite"], facts["template"]) == (True, True, True), name
        assert facts["changed"] == facts["of"], name
        assert facts["dtypes"] == ["torch.float32"], name
        assert facts["use_cache"] is True, name
        assert len(set(facts["eos"])) == 1, name
        assert facts["norm"] == pytest.approx(seen[0]["norm"], rel=1e-4), name


# The published recipe's batch on the tiny model: 11 x 6 x 2 = 132 sequences per step.
SCALED = """\
xpc 1
extends "seed.xp"
train "tiny" on "messages.jsonl" for 12 epochs
hardware 2 x cpu
batch {
  gbs = 132
}
model(dtype=fp32)
memory {
  liger = false
}
track none(every=1)
save "out" every=never
"""


@pytest.fixture(scope="module")
def scaled(train: Callable[..., Run], location: str) -> Run:
    """The project's first recipe on a small scale: two processes, ZeRO-2, 12 epochs of 64 rows, and 500 times the
    learning rate.
    """
    with open(os.path.join(REPOSITORY, "specs", "qwen2.5-3b-infinity-8xv100.xp"), encoding="utf-8") as handle:
        text = handle.read()
    with open(os.path.join(location, "seed.xp"), "w", encoding="utf-8") as out:
        out.write(text.replace("lr = 1e-5", "lr = 5e-3"))
    return train(SCALED, "scaled")


def test_the_seed_recipe_scaled_trains(scaled: Run, location: str) -> None:
    plan = payload(os.path.join(location, "scaled.bundle"))
    run, arguments = plan["run"], plan["arguments"]
    assert (run["micro"], run["accumulation"], run["world_size"], run["gbs"]) == (11, 6, 2, 132)
    assert (run["zero_stage"], arguments["warmup_steps"], arguments["adam_beta2"]) == (2, 40, 0.95)
    assert arguments["lr_scheduler_kwargs"] == {"min_lr": 0}
    assert "2 processes, DeepSpeed" in scaled.done.stdout
    rates = [event["lr"] for event in scaled.metrics if "lr" in event]
    assert rates == sorted(rates)  # 40 warm-up steps, more than the run has
    assert scaled.summary["steps"] == 12
    assert scaled.losses[-1] < scaled.losses[0] - 0.5
    assert len(scaled.summary["measured"]["peaks"]["resident"]) == 2


def test_torchrun_trains_prompts_with_completions(train: Callable[..., Run], location: str) -> None:
    text = spec("launch local(launcher=torchrun)", data='"pairs.jsonl"', hardware="2 x cpu", length="1 epochs")
    run = train(text, "torchrun")
    arguments = payload(os.path.join(location, "torchrun.bundle"))["arguments"]
    assert arguments["completion_only_loss"] is True
    assert "2 processes, DDP" in run.done.stdout
    assert run.steps == list(range(1, 9))
    assert run.losses[-1] < run.losses[0]


def test_a_packed_mixture_with_a_holdout_and_a_template_trains(train: Callable[..., Run], location: str) -> None:
    more = [
        "data mix {", '  "messages.jsonl" {', "    take = 40", "  }", '  "shared.jsonl" {', "    take = 50%", "  }",
        f'  system = "{SYSTEM}"', "  holdout = 8", "  workers = 1", "}", "method sft(assistant_only)",
        'model(chat_template=file("layout.jinja"))', "eval(every=3, micro=4)", "schedule cosine(warmup=2, min_lr=10%)",
    ]  # fmt: skip
    text = spec(*more, data="mix", batch=" packing(isolate=mask)", save='save "out" every=3 keep=1')
    run = train(text, "mixture")
    # 40 + 32 rows, 8 in the holdout; packed into sequences of 64 tokens
    assert "64 rows to train on, packed into " in run.done.stdout
    evaluated = [event for event in run.metrics if "eval_loss" in event]
    assert [event["step"] for event in evaluated] == [3, 6]
    assert evaluated[-1]["eval_loss"] < evaluated[0]["eval_loss"]
    assert run.losses[-1] < run.losses[0]
    with open(os.path.join(run.out, "chat_template.jinja"), encoding="utf-8") as handle:
        assert handle.read() == LAYOUT
    assert [name for name in os.listdir(run.out) if name.startswith("checkpoint")] == ["checkpoint-6"]


SHARING = [
    ("zero1(", ""),
    ("zero2(", " packing(strategy=wrapped)"),
    ("zero3(", ""),
    ("zero2(reduce_scatter=false, ", ""),
]
"""Cases in which several processes share each sequence: the beginning of the strategy's name, and how the rows are
packed.
"""


@pytest.mark.parametrize(("strategy", "packed"), nightly_but(SHARING, lambda one: one[1] or one[0] == "zero3("))
def test_processes_that_share_sequences_train_as_one_over_epochs_and_starts(
    warm: Warm, tmp_path: Path, strategy: str, packed: str
) -> None:
    """DeepSpeed's own data loader for shared sequences has three defects, which a bundle corrects. In every epoch after
    the first, it drops the first step. After a resume, it starts at a wrong row.

    And it multiplies the gradient by the number of processes that share a sequence.
    """
    sizes, save = f"gbs=8 micro=4 seq=32 mean=local_tokens{packed}", 'save "out" every=10 keep=2'
    alone = spec(length="20 steps", sizes=sizes, save=save)  # 8 rows per epoch
    shared = spec(length="20 steps", sizes=sizes, save=save, hardware="2 x cpu",
                  strategy=f"{strategy}context_parallel=2)")  # fmt: skip
    (tmp_path / "one").mkdir()
    one = warm.launch(warm.compiled(alone, "alone"), str(tmp_path / "one"))
    bundle = warm.compiled(shared, f"shared-{strategy[:5]}-{len(strategy)}")
    whole = warm.launch(bundle, str(tmp_path))
    assert whole.done.returncode == 0, whole.output
    assert len(whole.losses) == 20
    assert whole.losses == pytest.approx(one.losses, abs=1e-4)
    norms = [[event["grad_norm"] for event in run.metrics] for run in (one, whole)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)
    assert [event["tokens"] for event in whole.metrics] == [event["tokens"] for event in one.metrics]
    weights = (tmp_path / "out" / "model.safetensors").read_bytes()
    for path in (tmp_path / "out").iterdir():
        if path.name not in ("metrics.jsonl", "xpc_run.json", "checkpoint-10"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = warm.launch(bundle, str(tmp_path))
    assert "resuming from checkpoint-10" in again.done.stdout
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == weights


def test_processes_that_share_sequences_are_started_as_such(warm: Warm, tmp_path: Path) -> None:
    text = spec(
        hardware="2 x cpu", strategy="zero1(context_parallel=2)", sizes="gbs=8 micro=4 seq=32 mean=local_tokens"
    )
    bundle = warm.compiled(text, "shared-alone")
    answer = warm.of(DEFAULT).run(bundle, str(tmp_path), world=2, XPC_PREFLIGHT="passed")
    assert 0 not in answer["status"]
    assert "2 processes share a sequence, but accelerate is not set up for this" in answer["out"] + answer["err"]


def test_processes_that_tokenize_change_nothing(train: Callable[..., Run]) -> None:
    """For runs on GPUs, the compiler chooses `data.workers` (the processes that tokenize). Their number changes no
    count of rows, no loss and no weight.
    """
    left = []
    for workers in ("", "workers=3, "):
        text = spec(
            f"data({workers}holdout=8)", "eval(every=3, micro=4)", length="4 steps", sizes="gbs=8 micro=2 seq=24"
        )
        run = train(text, f"tokenized{len(left)}")
        with open(os.path.join(run.out, "model.safetensors"), "rb") as handle:
            weights = handle.read()
        counts = {name: value for name, value in run.summary.items() if name in ("data", "tokens", "sequences")}
        assert counts["data"]["cut_rows"], counts
        left.append((run.losses, weights, counts))
    assert left[0] == left[1]


def test_plain_text_trains_in_the_order_of_the_file(train: Callable[..., Run]) -> None:
    text = spec("data(shuffle=false)", data='"text.jsonl"', length="4 steps").replace("every=1)", "every=3)")
    run = train(text, "text")
    assert run.steps == [3, 4]  # the last step is always logged
    assert run.losses[-1] < run.losses[0]


def test_the_readme_says_what_works(strategies: Callable[[str], Run], location: str) -> None:
    strategies("one")
    with open(os.path.join(location, "one.bundle", "README.md"), encoding="utf-8") as handle:
        text = handle.read()
    commands = [line for line in text.split("```")[1].splitlines() if line]
    assert commands == ["pip install -r requirements.txt", "./launch.sh"]
    assert os.access(os.path.join(location, "one.bundle", "launch.sh"), os.X_OK)


def test_a_finished_run_is_not_trained_again(strategies: Callable[[str], Run], warm: Warm, location: str) -> None:
    first = strategies("zero2")
    again = warm.launch(os.path.join(location, "zero2.bundle"), os.path.dirname(first.out))
    assert (again.done.returncode, again.done.stderr) == (0, "")
    assert again.done.stdout.count("\n") == 1
    assert "contains this run, finished" in again.done.stdout
    assert len(first.losses) == 6


def test_another_bundle_does_not_use_the_folder(strategies: Callable[[str], Run], warm: Warm) -> None:
    first = strategies("one")
    refused = warm.launch(warm.compiled(spec("seed 7"), "other"), os.path.dirname(first.out))
    assert refused.done.returncode == 1
    assert refused.done.stderr.count("\n") == 1
    assert "contains a run of another bundle: arguments.seed was 42 and is 7" in refused.done.stderr
    assert "continues from the model in that folder" in refused.done.stderr


def test_what_decides_no_number_may_change_between_two_starts(warm: Warm, tmp_path: Path) -> None:
    first = warm.launch(warm.compiled(spec(save='save "out" every=3'), "every-3"), str(tmp_path))
    assert first.done.returncode == 0, first.output
    losses = first.losses
    for name in os.listdir(first.out):  # as if the run had been killed after its fourth step
        path = os.path.join(first.out, name)
        if os.path.isfile(path) and name not in ("metrics.jsonl", "xpc_run.json"):
            os.remove(path)
    shutil.rmtree(os.path.join(first.out, "checkpoint-6"))
    changed = spec("launch local(nccl_timeout=1h)", save='save "out" every=1 keep=2')
    again = warm.launch(warm.compiled(changed, "every-1"), str(tmp_path))
    assert again.done.returncode == 0, again.output
    assert "resuming from checkpoint-3" in again.done.stdout
    assert {name for name in os.listdir(again.out) if name.startswith("checkpoint-")} == {
        "checkpoint-5",
        "checkpoint-6",
    }
    assert again.losses == losses
