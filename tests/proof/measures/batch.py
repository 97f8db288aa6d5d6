"""Functions with which proofs measure batch sizes: how many sequences and rows the libraries use."""

from __future__ import annotations

import contextlib
from typing import Any


def product(run: Any) -> dict[str, Any]:
    """Return two numbers of sequences per optimizer step: the number that follows from the trainer's arguments, and the
    number in the spec.
    """
    args = run.args
    trained = args.per_device_train_batch_size * args.gradient_accumulation_steps * run.plan["run"]["world_size"]
    requested = run.plan["run"]["gbs"]
    return {"trained": trained, "asked": requested, "same": trained == requested}


def steps(run: Any) -> dict[str, Any]:
    """Return two numbers of rows: how many the largest optimizer step of a run uses, over all processes, and the global
    batch in the spec.
    """
    import torch
    import torch.distributed as dist

    trainer, rows = run.trainer, [0]
    step = trainer.training_step

    def training_step(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        while len(rows) <= trainer.state.global_step:
            rows.append(0)
        rows[trainer.state.global_step] += len(inputs["input_ids"])
        return step(model, inputs, *args, **kwargs)

    trainer.training_step = training_step
    trainer.train()
    largest = torch.tensor(max(rows))
    dist.all_reduce(largest)
    return {"largest": largest.item(), "asked": run.plan["run"]["gbs"]}


def served(run: Any) -> dict[str, Any]:
    """Return two numbers of rows: the number that all processes together read in one epoch, and the number that the
    data has.
    """
    import torch
    import torch.distributed as dist

    loader = run.trainer.get_train_dataloader()
    handed = torch.tensor(sum(len(batch["input_ids"]) for batch in loader))
    dist.all_reduce(handed)
    return {"served": handed.item(), "rows": len(run.rows)}


def shrunk(run: Any) -> dict[str, Any]:
    """Pretend that the first training step runs out of memory. Return whether the trainer then reduces its batch sizes
    for training and for evaluation. Also return its number of accumulation steps.
    """
    import torch

    trainer, args = run.trainer, run.args
    train, evaluation = trainer._train_batch_size, args.per_device_eval_batch_size
    step, calls = trainer.training_step, []

    def training_step(*more: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return step(*more, **kwargs)

    trainer.training_step = training_step
    with contextlib.suppress(torch.OutOfMemoryError):
        trainer.train()
    return {
        "train": trainer._train_batch_size < train,
        "evaluation": args.per_device_eval_batch_size < evaluation,
        "accumulation": args.gradient_accumulation_steps,
    }


def readers(run: Any) -> dict[str, Any]:
    """Return two numbers of processes that read different data: the number that the trainer's sampler uses, and the
    number that follows from the batch sizes.
    """
    args, facts = run.args, run.plan["run"]
    counted = run.trainer._get_train_sampler().dp_size
    true = facts["gbs"] // (args.per_device_train_batch_size * args.gradient_accumulation_steps)
    return {"counted": counted, "true": true, "same": counted == true}


def sums(run: Any) -> dict[str, Any]:
    """Add up the gradients of a step's micro-batches in the dtype in which DeepSpeed's engine adds them. All gradients
    are equal. Return the sum.
    """
    import json
    import os
    from types import SimpleNamespace

    import torch
    from deepspeed.runtime.engine import DeepSpeedEngine

    with open(os.path.join(run.folder, "deepspeed.json"), encoding="utf-8") as file:
        table = json.load(file)
    reported = table.get("data_types", {}).get("grad_accum_dtype")
    engine = SimpleNamespace(
        _config=SimpleNamespace(grad_accum_dtype=reported),
        fp16_enabled=lambda: table["fp16"]["enabled"],
        bfloat16_enabled=lambda: table["bf16"]["enabled"],
        zero_optimization=lambda: table["zero_optimization"]["stage"] > 0,
    )
    dtype = DeepSpeedEngine.get_data_types(engine)[1]
    accum = table["gradient_accumulation_steps"]
    total = torch.zeros((), dtype=dtype)
    for _ in range(accum):
        total += torch.ones((), dtype=dtype)
    return {"dtype": str(dtype), "sum": total.item(), "lost": total.item() < accum}
