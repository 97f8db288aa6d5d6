"""Which runs use which modules of features/ and library_internals/: a bundle has those of its run, and no others.

Every condition asks trainer_args.json. Such a module is imported below ``if bundle.uses(NAME)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .payload import Payload, Source

EIGHT_BIT = ("8bit", "bnb", "paged", "lion", "ademamix")
"""Parts of the names of optimizers that are bitsandbytes' (transformers, trainer_optimizer.py)."""

CHATS = ("text", "messages", "conversations")
"""Shapes of rows without a prompt of their own."""


def sources(plan: Payload) -> list[Source]:
    """Every source of the run: what is trained on, and the sets that are evaluated on."""
    evaluation = plan["data"].get("evaluation")
    sets = evaluation["sets"] if evaluation else []
    return [*plan["data"]["sources"], *(source for one in sets for source in one["sources"])]


def _evaluates(plan: Payload) -> bool:
    data, arguments = plan["data"], plan["arguments"]
    asked = arguments.get("eval_strategy", "no") != "no" or arguments.get("eval_on_start")
    return bool(asked or data.get("eval_split") or data.get("evaluation") or data.get("holdout"))


def _mixes(plan: Payload) -> bool:
    data = plan["data"]
    parts = len(data["sources"]) > 1 or any(one.get("take") for one in sources(plan))
    return bool(parts or data["holdout"] or data.get("eval_split") or data.get("evaluation"))


def _filters(plan: Payload) -> bool:
    data = plan["data"]
    return data.get("max_prompt") is not None or data.get("min_tokens") is not None or bool(data.get("unique"))


def _has_prompts(plan: Payload) -> bool:
    return any(one["shape"] not in CHATS for one in sources(plan))


def _local(plan: Payload) -> bool:
    return any(one["path"] is not None for one in sources(plan))


def _nodes(plan: Payload) -> bool:
    return bool(plan["run"]["nodes"] > 1)


def _on_cpu(plan: Payload) -> bool:
    return bool(plan["run"]["device"] == "cpu")


def _gpus(plan: Payload) -> bool:
    return bool(not _on_cpu(plan) and plan["run"]["processes_per_node"] > 1)


def _extra_packages(plan: Payload) -> bool:
    arguments, attention = plan["arguments"], str(plan["model"]["attn_implementation"])
    optimizer = str(arguments.get("optim", ""))
    reports = arguments.get("report_to") not in (None, [], "none", ["none"])
    kernels = attention.startswith("flash") or any(part in optimizer for part in EIGHT_BIT)
    return bool(
        reports or kernels or arguments.get("use_vllm") or plan["lora"] or (plan.get("method") or {}).get("rewards")
    )


def _plain_checkpoints(plan: Payload) -> bool:
    return bool(not plan["run"]["zero_stage"] or plan["run"].get("full_state") is False or _pushes(plan))


def _pushes(plan: Payload) -> bool:
    return bool(plan["arguments"].get("push_to_hub"))


def _refers(plan: Payload) -> bool:
    return plan["config"] not in ("trl.SFTConfig", "trl.RewardConfig")


def _without_bfloat16(plan: Payload) -> bool:
    return not plan["arguments"].get("bf16") and plan["model"]["dtype"] != "bfloat16"


USES: Mapping[str, Callable[[Payload], object]] = {
    "adapters": lambda plan: plan["lora"],
    "added_tokens": lambda plan: plan["tokenizer"].get("added"),
    "all_reduce": lambda plan: _gpus(plan) or _nodes(plan),
    "assistant_marks": lambda plan: plan["arguments"].get("assistant_only_loss"),
    "checkpoint_rotation": lambda plan: plan["arguments"].get("save_total_limit"),
    "cpu_processes": _on_cpu,
    "data_folders": _local,
    "datasets_rows": lambda plan: True,
    "deepspeed": lambda plan: plan["run"]["zero_stage"],
    "deepspeed_engine": lambda plan: plan["run"]["zero_stage"] == 3 or (plan["run"]["zero_stage"] and _on_cpu(plan)),
    "evaluation": _evaluates,
    "executed_files": lambda plan: plan["tokenizer"]["chat_template"] or plan["arguments"].get("chat_template_path"),
    "frozen_weights": lambda plan: plan.get("freeze"),
    "fsdp": lambda plan: plan["run"]["distributed_type"] == "FSDP",
    "hub": _pushes,
    "kto_rows": lambda plan: plan["config"] == "trl.KTOConfig",
    "liger": lambda plan: plan["model"]["liger"],
    "liger_kernels": lambda plan: plan["model"]["liger"],
    "local_data": _local,
    "masked_rows": lambda plan: plan["arguments"].get("assistant_only_loss") or _has_prompts(plan),
    "mixture": _mixes,
    "node_all_reduce": _nodes,
    "node_facts": _nodes,
    "node_messages": _nodes,
    "node_network": _nodes,
    "node_rendezvous": _nodes,
    "orpo_lengths": lambda plan: plan["config"].endswith("ORPOConfig"),
    "packages": _extra_packages,
    "paired_rows": _has_prompts,
    "plain_checkpoints": _plain_checkpoints,
    "reference_model": _refers,
    "reward_model": lambda plan: plan["config"] == "trl.RewardConfig",
    "rewards": lambda plan: plan["config"] in ("trl.GRPOConfig", "trl.RLOOConfig"),
    "row_filters": _filters,
    "shared_folder": _nodes,
    "torch_distributed": lambda plan: True,
    "torch_exit_barrier": _nodes,
    "transformers_trainer": lambda plan: True,
    "trl_modules": lambda plan: _refers(plan) or _without_bfloat16(plan),
    "weight_dtypes": _without_bfloat16,
}
