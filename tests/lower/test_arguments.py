"""Each setting becomes the right trainer arguments on every stack. A new setting gets a row in this table.

A row has lines of a spec, the trainer arguments that these lines become, and exceptions for single stacks: other
arguments, or the code of the error if the stack refuses the setting. A name that begins with a dot is the path of a
value that the runtime reads elsewhere in trainer_args.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import field, frozen
from case_support import spec, trained
from compile_support import checked, compiled, errors
from method_support import PAIRS, PROMPTS
from spec_parts import BEST, EPOCHS, HELD, extra

from xpc.compiler import stacks

SFT = trained("qwen2.5-3b on infinity-instruct")
LLAMA = trained("llama-3.1-8b-instruct on infinity-instruct")
OLDEST = "trl-0.18"
OLDER = "trl-0.24"
ABSENT = "no argument"
Values = Mapping[str, object]


@frozen
class Row:
    """One row. `written` is one or more lines of a spec. `on` has the exceptions: it maps a stack to its different
    arguments, or to the code of its error.
    """

    written: str
    arguments: Values | str
    train: str = SFT
    on: Mapping[str, Values | str] = field(factory=dict)
    precision: str = "bf16"
    strategy: str = "zero2"


def online(settings: str) -> str:
    return f"method grpo(rewards=format, {settings})"


ROWS = {
    "optimizer and schedule": (
        Row("optimizer adamw(lr=5e-6, betas=[0.8, 0.9], eps=1e-6, weight_decay=0.1, clip=0.5)", {
            "learning_rate": 5e-6, "adam_beta1": 0.8, "adam_beta2": 0.9, "adam_epsilon": 1e-6, "weight_decay": 0.1,
            "max_grad_norm": 0.5,
        }),
        Row("optimizer muon(lr=1e-3, adamw_lr=1e-4, momentum=0.9, adjust_lr=original, weight_decay=0.1, clip=0)", {
            "optim": "adamw_torch_fused", "learning_rate": 1e-3, "optim_args": None,
            ".muon.matrices": {"lr": 1e-3, "weight_decay": 0.1, "momentum": 0.9, "adjust_lr": "original"},
            ".muon.others.lr": 1e-4, ".muon.others.weight_decay": 0.1, ".muon.others.betas": [0.9, 0.999],
        }, on={OLDEST: "XP135", OLDER: "XP135"}),
        Row("schedule linear(warmup=40)", {"lr_scheduler_type": "linear", "warmup_steps": 40}),
        Row("seed 7", {"seed": 7, ".data.seed": 7}),
        Row("model(rope=yarn(factor=4, beta_fast=16))", {
            ".model.rope.rope_type": "yarn", ".model.rope.factor": 4.0, ".model.rope.original": None,
            ".model.rope.parameters": {"beta_fast": 16.0},
        }),
        Row("model(rope=llama3(factor=8, original=8192))", {
            ".model.rope.original": 8192, ".model.rope.parameters": {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
        }),
        Row("precision(idle=stop)", {".run.idle": "stop"}),
        Row("model(compile)", {"bf16": False, "fp16": False, ".run.fp8": {"all_gather": False}}, precision="fp8",
            strategy="ddp", on={OLDEST: "XP345 XP361", OLDER: "XP361"}),
        Row("model(compile)", {"bf16": False, "fp16": False, ".run.fp8": {"all_gather": True}}, precision="fp8",
            strategy="fsdp", on={OLDEST: "XP345 XP361 XP409", OLDER: "XP345 XP361"}),
        Row("data(streaming, shuffle=false)", {
            "max_steps": 100, ".data.streaming": {"shuffle_buffer": None}, ".data.shuffle": False,
        }, train="qwen2.5-3b on infinity-instruct for 100 steps"),
        Row("data(streaming)", {".data.streaming": {"shuffle_buffer": 10_000}, "save_steps": 0.1,
                                ".arguments.accelerator_config.dispatch_batches": False},
            train="qwen2.5-3b on infinity-instruct for 100 steps"),
        Row("seed 7\ndata(seed=3)", {"seed": 7, ".data.seed": 3}),
        Row(f"{HELD}\n{EPOCHS}\nschedule reduce_lr_on_plateau",
            {"metric_for_best_model": "loss", "greater_is_better": False}),
    ),
    "the best checkpoint": tuple(
        Row("\n".join((HELD, EPOCHS, extra(*written))),
            {"metric_for_best_model": metric, "greater_is_better": greater})
        for written, metric, greater in (
            ((BEST,), "loss", False),
            ((BEST, 'metric_for_best_model = "eval_loss"'), "eval_loss", False),
            (('metric_for_best_model = "loss"', "greater_is_better = false"), "loss", False),
            (("greater_is_better = true",), None, True),
        )
    ),
    "compilation": tuple(
        Row(extra(written),
            {"torch_compile_mode": mode, "torch_compile_backend": backend, "torch_compile": compiles})
        for written, mode, backend, compiles in (
            ('torch_compile_mode = "default"', "default", "inductor", True),
            ('torch_compile_backend = "aot_eager"', None, "aot_eager", True),
            ("torch_compile = true", None, "inductor", True),
            ("torch_compile = false", None, None, False),
            ("full_determinism = false", None, None, False),
        )
    ),
    "hub": (
        *(Row(written, {
            "push_to_hub": False, "hub_model_id": None, "hub_strategy": "every_save", "hub_private_repo": None,
            "hub_always_push": False, "hub_revision": None, ".hub": None,
        }, on={OLDEST: {"hub_revision": ABSENT}}) for written in ("", "save(hub=false)")),
        Row("save(hub(name=me/model, private, revision=v1, strategy=checkpoint, checkpoint_branches))", {
            "push_to_hub": True, "hub_model_id": "me/model", "hub_strategy": "checkpoint", "hub_private_repo": True,
            "hub_always_push": False, "hub_revision": "v1", ".hub": {"revision": "v1", "checkpoint_branches": True},
        }, on={OLDEST: {"hub_revision": ABSENT}}),
    ),
    "preference": (
        Row("method dpo(loss=ipo, beta=0.01)", {"loss_type": ["ipo"], "loss_weights": None, "beta": 0.01}, PAIRS,
            on={OLDEST: {"loss_type": "ipo", "loss_weights": ABSENT}}),
        Row("method dpo(loss=[sigmoid(weight=0.8), bco_pair, sft(weight=0.2)])",
            {"loss_type": ["sigmoid", "bco_pair", "sft"], "loss_weights": [0.8, 1.0, 0.2]}, PAIRS,
            on={OLDEST: "XP106"}),
        # One loss with two names: `aot_pair` in TRL 0.18, `aot_unpaired` in 1.16 (dpo_trainer.py computes the same).
        *(Row(f"method dpo(loss={name})", {"loss_type": ["aot_unpaired"]}, PAIRS,
              on={OLDEST: {"loss_type": "aot_pair"}, OLDER: {"loss_type": ["aot_pair"]}})
          for name in ("aot_pair", "aot_unpaired")),
        Row("method dpo(precompute)", {"precompute_ref_log_probs": True, "sync_ref_model": False}, PAIRS),
        Row("method dpo(sync_reference(every=64, mixup=0.9))",
            {"sync_ref_model": True, "ref_model_sync_steps": 64, "ref_model_mixup_alpha": 0.9}, PAIRS),
        Row("method dpo(reference_free)", "XP127", PAIRS,
            on={OLDEST: {"reference_free": True}, OLDER: {"reference_free": True}}),
        Row("method dpo(rpo=0.5)", "XP127", PAIRS, on={OLDEST: {"rpo_alpha": 0.5}, OLDER: {"rpo_alpha": 0.5}}),
        Row("method dpo(loss=robust, label_smoothing=0.1)", {"label_smoothing": 0.1}, PAIRS),
        Row("method dpo(max_prompt=512)", {"max_prompt_length": ABSENT, ".data.max_prompt": 512}, PAIRS, on={
            OLDEST: {"max_prompt_length": 512, ".data.max_prompt": None},
            OLDER: {"max_prompt_length": 512, ".data.max_prompt": None},
        }),
        Row("method kto(desirable=1.3, undesirable=1, beta=0.2)", {
            "desirable_weight": 1.3, "undesirable_weight": 1.0, "beta": 0.2, "train_sampling_strategy": "sequential",
        }, PAIRS, on={stack: {"train_sampling_strategy": ABSENT} for stack in (OLDEST, OLDER)}),
        Row("method orpo(beta=0.2)", {"beta": 0.2, ".config": "trl.experimental.orpo.ORPOConfig"}, PAIRS,
            on={stack: {".config": "trl.ORPOConfig"} for stack in (OLDEST, OLDER)}),
        Row("method cpo(loss=simpo, beta=2, margin=1.5, likelihood=0.2)", {
            "loss_type": "simpo", "beta": 2.0, "simpo_gamma": 1.5, "cpo_alpha": 0.2,
            ".config": "trl.experimental.cpo.CPOConfig",
        }, PAIRS, on={stack: {".config": "trl.CPOConfig"} for stack in (OLDEST, OLDER)}),
        Row("method reward(center=0.01)", {"center_rewards_coefficient": 0.01}, PAIRS),
        Row("method sft(loss=dft)", {"loss_type": "dft"}, on={OLDEST: "XP127"}),
    ),
    "reinforcement": (
        Row(online(
            "top_p=0.9, top_k=50, min_p=0.1, repetition_penalty=1.1, iterations=2, epsilon=0.1, epsilon_high=0.28, "
            "delta=1.5, mask_truncated, log_completions, loss=dr_grpo, beta=0.04, steps_per_generation=2"
        ), {
            "top_p": 0.9, "top_k": 50, "min_p": 0.1, "repetition_penalty": 1.1, "num_iterations": 2, "epsilon": 0.1,
            "epsilon_high": 0.28, "delta": 1.5, "mask_truncated_completions": True, "log_completions": True,
            "loss_type": "dr_grpo", "beta": 0.04, "steps_per_generation": 2,
        }, PROMPTS),
        Row("method grpo(rewards=[cosine(weight=2, max_len=4000), repetition_penalty(ngram_size=4)])", {
            "reward_weights": [2.0, 1.0],
            ".method.rewards": [
                {"name": "cosine", "file": None, "function": None, "sha256": None, "options": {"max_len": 4000}},
                {"name": "repetition_penalty", "file": None, "function": None, "sha256": None,
                 "options": {"ngram_size": 4}},
            ],
        }, PROMPTS),
        Row(online("loss=grpo, level=sequence"), {"importance_sampling_level": "sequence"}, PROMPTS,
            on={OLDEST: "XP127"}),
        Row(online("scale_rewards=none"), {"scale_rewards": "none"}, PROMPTS, on={OLDEST: {"scale_rewards": False}}),
        Row(online("scale_rewards=batch"), {"scale_rewards": "batch"}, PROMPTS, on={OLDEST: "XP127"}),
        Row(online("vllm(mode=server, port=8001, timeout=10m)"),
            {"use_vllm": True, "vllm_mode": "server", "vllm_server_port": 8001, "vllm_server_timeout": 600.0}, PROMPTS),
        Row(online("vllm"), {"vllm_mode": "colocate"}, PROMPTS,
            on={stack: {"vllm_mode": "server"} for stack in (OLDEST, OLDER)}),
        Row(online("vllm(sleep)"), {"vllm_enable_sleep_mode": True}, PROMPTS, on={OLDEST: "XP127"}),
        *(Row(f"method grpo(rewards={rewards})", {"reward_weights": weights}, PROMPTS)
          for rewards, weights in (("format", None), ("[format, accuracy]", None),
                                   ("[accuracy(weight=1), format(weight=0.5)]", [1.0, 0.5]))),
    ),
    "adapters": (
        Row("", {".lora": None, ".freeze": None}),
        Row("lora", {".lora": {
            "kind": "lora", "rslora": False, "dora": False, "parameters": None, "modules_to_save": None,
            "lr_ratio": None, "embedding_lr": None, "rank": 16, "alpha": 32, "dropout": 0.05, "targets": "all-linear",
            "bits": None, "adapter_dtype": "float32", "compute_dtype": "bfloat16", "storage_dtype": "uint8",
            "double_quant": True, "quant_type": "nf4",
        }}),
        Row("lora(rank=8, alpha=16, dropout=0, targets=[q_proj, v_proj])",
            {".lora.rank": 8, ".lora.alpha": 16, ".lora.dropout": 0, ".lora.targets": ["q_proj", "v_proj"]}),
        Row("lora(modules_to_save=[lm_head], lr_ratio=16, rslora, dora)", {
            ".lora.kind": "lora", ".lora.modules_to_save": ["lm_head"], ".lora.lr_ratio": 16,
            ".lora.embedding_lr": 1e-6, ".lora.rslora": True, ".lora.dora": True, ".lora.parameters": None,
        }, LLAMA),
        Row("lora(init=pissa, init_iterations=16)", {".lora.init": "pissa", ".lora.init_iterations": 16}),
        Row("lora(init=eva)", {".lora.init": "eva", ".lora.init_rows": 256}),
        Row("lora(init=eva, init_rows=64)", {".lora.init_rows": 64}),
        Row("lora(init=olora)", {".lora.init": "olora"}),
        Row("qlora(init=loftq)", {".lora.init": "loftq", ".lora.bits": 4}),
        Row("lora(init=gaussian)", {".lora.init": "gaussian"}),
        Row("oft", {".lora.kind": "oft", ".lora.block_size": 32, ".lora.rank": None, ".lora.dropout": 0}),
        Row("oft(rank=8, dropout=0.1, bits=4)",
            {".lora.block_size": None, ".lora.rank": 8, ".lora.dropout": 0.1, ".lora.bits": 4}),
        Row("vera", "XP233", on={
            stack: {".lora.kind": "vera", ".lora.rank": 256, ".lora.dropout": 0} for stack in (OLDEST, OLDER)}),
        Row("vera(rank=64, bits=8)", "XP233", on={
            stack: {".lora.rank": 64, ".lora.bits": 8} for stack in (OLDEST, OLDER)}),
        Row("loha", {".lora.kind": "loha", ".lora.rank": 8, ".lora.alpha": 8}),
        Row("loha(rank=4, alpha=16)", {".lora.rank": 4, ".lora.alpha": 16}),
        Row("miss", {".lora.kind": "miss", ".lora.rank": 64, ".lora.dropout": 0}),
        Row("miss(rank=16, dropout=0.1)", {".lora.rank": 16, ".lora.dropout": 0.1}),
        Row("freeze(except_first=1, except_last=2, layer_modules=[mlp], except_modules=[norm])", {".freeze": {
            "last": 2, "first": 1, "layer_modules": ["mlp"], "modules": ["norm"], "parameters": None,
        }}),
    ),
}  # fmt: skip
CASES = [pytest.param(row, id=row.written or "nothing") for rows in ROWS.values() for row in rows]


def stated(payload: Any, name: str) -> object:
    """An argument of the trainer, or the value at a path such as `.data.seed`."""
    if not name.startswith("."):
        return payload["arguments"].get(name, ABSENT)
    for part in name[1:].split("."):
        payload = payload[part]
    return payload


@pytest.mark.parametrize("stack", stacks.names())
@pytest.mark.parametrize("row", CASES)
def test_a_setting_becomes_these_arguments(row: Row, stack: str) -> None:
    lines = (*row.written.splitlines(), f"target {stack}")
    text = spec(*lines, train=row.train, precision=row.precision, strategy=row.strategy)
    expected = row.on.get(stack, row.arguments)
    if isinstance(expected, str):
        assert set(errors(checked(text))) == {*expected.split()}
        return
    if isinstance(row.arguments, Mapping):
        expected = {**row.arguments, **expected}
    payload = json.loads(compiled(text)["trainer_args.json"])
    assert {name: stated(payload, name) for name in expected} == expected


@pytest.mark.parametrize(("gpus", "averaged"), [(1, False), (8, True)])
def test_tokens_are_averaged_across_several_processes_only(gpus: int, averaged: bool) -> None:
    batch = "gbs=128 micro=16 seq=1024 mean=global_tokens"
    text = spec(hardware=f"{gpus} x h100-80gb", strategy="ddp", batch=batch)
    found = json.loads(compiled(text)["trainer_args.json"])["arguments"]
    assert found["average_tokens_across_devices"] is averaged
