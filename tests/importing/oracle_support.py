"""The arguments with which axolotl and LLaMA-Factory would train a file. `make oracles` has recorded them in oracles/.
This module converts them into a form that can be compared with a bundle.
"""

from __future__ import annotations

import json
import math
import os
import re
from functools import cache
from typing import Any

from import_support import REPOSITORY, Imported

FOLDER = os.path.join(REPOSITORY, "tests", "importing", "oracles")
Record = dict[str, Any]
STEPS = 1000
"""If the file of a recorded run does not state the number of steps, the run has this many. Shares of the run, such as
`warmup_ratio`, refer to this number.
"""


def lines(name: str) -> list[Record]:
    """The records of a JSONL file in oracles/."""
    with open(os.path.join(FOLDER, f"{name}.jsonl"), encoding="utf-8") as handle:
        return [json.loads(line) for line in handle]


@cache
def records(tool: str) -> tuple[Record, dict[str, Record]]:
    """A pair: the first record of a tool, which has versions and defaults, and a mapping from each file's name to the
    file's record.
    """
    head, *found = lines(tool)
    return head, {one["file"]: one for one in found}


def axolotl(name: str, version: str = "axolotl") -> Record | None:
    """The arguments with which axolotl would train a file, under the names that a bundle uses; None if axolotl refuses
    the file. `version` is "axolotl" or, for the records of the newer version, "axolotl-0.19".
    """
    head, known = records(version)
    record = known[name]
    if "refused" in record:
        return None
    stated = {**head["defaults"][record["class"]], **record["arguments"]}
    config = record["config"]
    out = {key: stated[key] for key in ARGUMENTS if key in stated}
    out["logging_steps"] = stated["logging_steps"]
    sharded = stated.get("fsdp_config") or {}
    # FSDP's activation checkpointing is never reentrant.
    again = bool(sharded.get("activation_checkpointing"))
    kwargs = stated.get("gradient_checkpointing_kwargs") or {}
    out["gradient_checkpointing"] = bool(
        stated["gradient_checkpointing"] or config.get("gradient_checkpointing") or again
    )
    if stated["gradient_checkpointing"] or again:
        out["use_reentrant"] = bool(kwargs.get("use_reentrant")) and not again
    out["liger"] = any(str(one).endswith("LigerPlugin") for one in config.get("plugins", ()))
    if any(str(one).endswith("SwanLabPlugin") for one in config.get("plugins", ())):
        # axolotl's SwanLab plugin adds the callback itself, without `report_to`
        out["report_to"] = [*out.get("report_to", ()), "swanlab"]
    out["warmup_steps"] = 0 if out["lr_scheduler_type"] in FLAT else out["warmup_steps"]
    out["optim"] = SAME_OPTIMIZERS.get(out["optim"], out["optim"])
    out["bf16"] = True if out["bf16"] == "auto" else out["bf16"]
    if config.get("max_steps") or config.get("streaming"):
        del out["num_train_epochs"]  # with max_steps, epochs have no effect
    if config.get("curriculum_sampling"):
        out["train_sampling_strategy"] = "sequential"
    if "torch_dtype" in config:  # axolotl's Ray workers set the dtype later
        out["dtype"] = config["torch_dtype"]
    out["max_length"] = config["sequence_len"]
    out["seed"] = config.get("seed", 42)
    if record["class"] == "AxolotlTrainingArguments":
        out["packing"] = bool(config.get("sample_packing"))
        out["eval_packing"] = bool(config.get("eval_sample_packing")) if out["packing"] else None
    if out["eval_strategy"] == "no":
        out.update(eval_steps=None, eval_packing=None, per_device_eval_batch_size=None)
    out["cosine_min_lr_ratio"] = stated.get("cosine_min_lr_ratio")
    if out["cosine_min_lr_ratio"] == 1:  # a cosine whose minimum is the full rate never decays
        out.update(cosine_min_lr_ratio=None, lr_scheduler_type="constant_with_warmup")
    out["adapter"] = _adapter(config)
    out["holdout"] = config.get("val_set_size") or None
    out["unique"] = bool(config.get("dataset_exact_deduplication"))
    plain = {str(one.get("type")) for one in config.get("datasets", ())} <= {"completion", "pretrain"}
    drops = config.get("excess_length_strategy", "drop") == "drop" and not plain
    out["max_tokens"] = config["sequence_len"] if drops else None
    if record["class"] == "AxolotlGRPOConfig":  # axolotl's GRPO accepts prompts of any length
        out.update(max_length=None, max_tokens=None)
    return out


def llamafactory(name: str) -> Record | None:
    """The arguments with which LLaMA-Factory would train a file, under the names that a bundle uses; None if
    LLaMA-Factory refuses the file.
    """
    head, known = records("llamafactory")
    record = known[name]
    if "refused" in record:
        return None
    prefix = "v1." if record["layout"] else ""
    model, data, trainer, tuning = (
        {**head["defaults"].get(f"{prefix}{kind}", {}), **record["arguments"].get(kind, {})}
        for kind in ("ModelArguments", "DataArguments", "TrainingArguments", "FinetuningArguments")
    )
    return _second(model, trainer) if record["layout"] else _first(model, data, trainer, tuning)


def _first(model: Record, data: Record, trainer: Record, tuning: Record) -> Record:
    out = {key: trainer[key] for key in ARGUMENTS if key in trainer}
    out["logging_steps"], out["tf32"] = trainer["logging_steps"], bool(trainer["tf32"])
    whole, once_more = not model["disable_gradient_checkpointing"], bool(trainer.get("gradient_checkpointing"))
    out["gradient_checkpointing"] = whole or once_more
    again = (trainer.get("gradient_checkpointing_kwargs") or {}) if once_more else {}
    # With `gradient_checkpointing`, the Trainer turns checkpointing on a second time, with its own `use_reentrant`.
    here = again.get("use_reentrant", whole and model["use_reentrant_gc"])
    out["use_reentrant"] = here if out["gradient_checkpointing"] else None
    out["max_length"], out["seed"] = data["cutoff_len"], trainer["seed"]
    out["limit"] = data["max_samples"]
    out["holdout"] = data["val_size"] or None
    out["liger"] = model["enable_liger_kernel"]
    if out["lr_scheduler_type"] == "cosine_with_min_lr":
        out["lr_scheduler_type"] = "cosine"
        out["cosine_min_lr_ratio"] = (trainer.get("lr_scheduler_kwargs") or {}).get("min_lr_rate")
    if out["eval_strategy"] == "no":
        out.update(eval_steps=None, per_device_eval_batch_size=None)
    if tuning["stage"] in ("pt", "sft"):
        out["packing"] = bool(data["packing"]) if data["packing"] is not None else tuning["stage"] == "pt"
    warm = trainer.get("warmup_ratio") or trainer.get("warmup_steps") or 0
    warm = 0 if trainer["lr_scheduler_type"] in FLAT else warm
    out["warmup_steps"] = math.ceil(warm * (_steps(trainer) or STEPS)) if warm < 1 else warm
    if (trainer.get("max_steps") or -1) > 0:
        out.pop("num_train_epochs")
    if tuning["stage"] != "dpo":
        for key in ("beta", "loss_type", "label_smoothing", "desirable_weight", "undesirable_weight"):
            out.pop(key, None)
    if tuning["finetuning_type"] == "lora":
        bits, targets = model["quantization_bit"], tuning["lora_target"]
        out["adapter"] = {
            "rank": tuning["lora_rank"], "alpha": tuning["lora_alpha"], "dropout": tuning["lora_dropout"], "bits": bits,
            "targets": "all-linear" if targets in ("all", ["all"]) else targets,
            "modules_to_save": tuning["additional_target"],
        }  # fmt: skip
        out["loraplus_lr_ratio"] = tuning["loraplus_lr_ratio"]
    return out


def _second(model: Record, trainer: Record) -> Record:
    """The arguments with which LLaMA-Factory would train a file of its newer layout. LLaMA-Factory trains such a file
    with another trainer: torch's AdamW at a constant learning rate.
    """
    out = {key: trainer[key] for key in ("learning_rate", "max_grad_norm", "bf16", "seed", "logging_steps",
                                         "save_total_limit")}  # fmt: skip
    out["max_length"], out["per_device_train_batch_size"] = trainer["cutoff_len"], trainer["micro_batch_size"]
    out["gradient_checkpointing"] = trainer["enable_activation_checkpointing"]
    out["use_reentrant"] = False if out["gradient_checkpointing"] else None
    out.update(weight_decay=0.01, lr_scheduler_type="constant", warmup_steps=0, adam_beta1=0.9, adam_beta2=0.999,
               adam_epsilon=1e-8)  # fmt: skip
    out["save_strategy"] = "epoch" if trainer["save_epochs"] else "steps" if trainer["save_steps"] else "no"
    if not trainer["max_steps"]:
        out["num_train_epochs"] = trainer["num_train_epochs"]
    made = model["peft_config"]
    if made is not None and made["name"] == "lora":
        targets = made.get("target_modules", "all")
        out["adapter"] = {
            "rank": made.get("r", 8), "alpha": made.get("lora_alpha", 16), "dropout": made.get("lora_dropout", 0.05),
            "bits": (model.get("quant_config") or {}).get("quantization_bit"), "modules_to_save": None,
            "targets": "all-linear" if targets == "all" else targets,
        }  # fmt: skip
    return out


def _adapter(config: Record) -> Record | None:
    if not config.get("adapter"):
        return None
    bits = 4 if config.get("load_in_4bit") else 8 if config.get("load_in_8bit") else None
    targets = config.get("lora_target_modules")
    linear = "all-linear" if config.get("lora_target_linear") else None
    return {"rank": config["lora_r"], "alpha": config["lora_alpha"], "dropout": config["lora_dropout"], "bits": bits,
            "targets": linear or targets or ["q_proj", "v_proj"],
            "modules_to_save": config.get("lora_modules_to_save") or None}  # fmt: skip


FLAT = ("constant", "reduce_lr_on_plateau", "greedy")
"""Schedules for which transformers ignores the warm-up."""
SAME_OPTIMIZERS = {"adamw_8bit": "adamw_bnb_8bit"}
"""Some optimizers have two names in transformers. Maps the first name to the second. The comparison uses only the
second.
"""
ARGUMENTS = (
    "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "lr_scheduler_type",
    "warmup_steps", "num_train_epochs", "gradient_accumulation_steps", "per_device_train_batch_size",
    "per_device_eval_batch_size", "optim", "bf16", "fp16", "tf32", "save_strategy", "save_steps", "save_total_limit",
    "eval_strategy", "eval_steps", "eval_on_start", "load_best_model_at_end", "average_tokens_across_devices",
    "neftune_noise_alpha", "train_sampling_strategy", "dataloader_drop_last", "push_to_hub", "hub_model_id",
    "hub_private_repo", "hub_strategy", "report_to", "torch_compile", "beta",
    "loss_type", "desirable_weight", "undesirable_weight", "center_rewards_coefficient", "label_smoothing",
    "loraplus_lr_ratio", "ddp_timeout",
)  # fmt: skip
"""Arguments of the trainer that decide what is trained, evaluated, saved and published."""


def ours(found: Imported) -> Record:
    """The arguments in the bundle of an imported file. They have the same names as in the tools' records, so that they
    can be compared with these.
    """
    payload, stated = found.payload, found.arguments
    out = {key: stated.get(key) for key in ARGUMENTS}
    # an fp8 run uses fp8 only for matrix products, and bf16 for everything else
    out["bf16"] = stated.get("bf16") or "fp8" in payload["run"]
    warm = stated.get("warmup_steps") or stated.get("warmup_ratio") or 0
    out["warmup_steps"] = math.ceil(warm * (_steps(stated) or STEPS) - 1e-9) if warm < 1 else warm
    out["logging_steps"] = stated["logging_steps"]
    out["gradient_checkpointing"] = stated.get("gradient_checkpointing", stated.get("activation_checkpointing"))
    kwargs = stated.get("gradient_checkpointing_kwargs") or stated.get("activation_checkpointing_kwargs") or {}
    out["use_reentrant"] = kwargs.get("use_reentrant") if out["gradient_checkpointing"] else None
    out["dtype"] = payload["model"]["dtype"]
    out["max_length"] = stated.get("max_length")
    out["seed"] = stated["seed"]
    out["packing"] = stated.get("packing")
    out["eval_packing"] = stated.get("eval_packing") if out["packing"] else None
    if out["eval_strategy"] == "no":
        out.update(eval_steps=None, eval_packing=None, per_device_eval_batch_size=None)
    floor = (stated.get("lr_scheduler_kwargs") or {}).get("min_lr_rate")
    out["cosine_min_lr_ratio"] = floor
    if out["lr_scheduler_type"] == "cosine_with_min_lr":
        out["lr_scheduler_type"] = "cosine"
    out["liger"] = payload["model"]["liger"] or bool(stated.get("use_liger_kernel"))
    lora = payload["lora"]
    out["loraplus_lr_ratio"] = (lora or {}).get("lr_ratio")
    out["adapter"] = None if lora is None else {
        "rank": lora["rank"], "alpha": lora.get("alpha"), "dropout": lora["dropout"],
        "bits": lora.get("bits"), "targets": lora["targets"], "modules_to_save": lora.get("modules_to_save") or None,
    }  # fmt: skip
    held = payload["data"]["holdout"]
    out["holdout"] = next(iter(held.values())) if held else None
    out["unique"] = payload["data"]["unique"]
    out["limit"] = payload["data"]["sources"][0].get("limit")
    out["max_tokens"] = payload["data"].get("max_tokens")
    return out


BLOCKS = ("mlp", "self_attn", "cross_attn")
NAMES = ("q", "k", "v", "o", "gate", "up", "down", "in", "out")
COVERS = {
    "sample_packing": ("packing", "eval_packing", "dataloader_drop_last"),
    "lora_target_modules": ("adapter.targets",),
    "lora_dropout": ("adapter.dropout",),
    "torch_dtype": ("dtype",),
    "optimizer": ("optim",),
    "micro_batch_size": ("per_device_train_batch_size", "gradient_accumulation_steps"),
    "stage": ("train_sampling_strategy",),
}
"""Maps each key of the tool's file to the trainer arguments that it decides: `optimizer` to `optim`. If the import
reports a difference for the key, these arguments may differ.
"""


def differing(theirs: Record, mine: Record, output: Any) -> dict[str, tuple[Any, Any]]:
    """Return the differences that the import should have reported. These are the arguments that the tool and the bundle
    set to different values although the import reports no difference. Each is mapped to a pair: the tool's value and
    the bundle's value.
    """
    spoken = {key for name in output for key in COVERS.get(name, (name,))}
    spoken |= set() if theirs["save_strategy"] == "steps" else {"save_steps"}
    flat = _flat(mine)
    return {key: (value, flat.get(key)) for key, value in _flat(theirs).items()
            if key not in spoken and not _alike(value, flat.get(key))}  # fmt: skip


def _flat(record: Record) -> Record:
    inside = record.get("adapter") or {}
    named = {f"adapter.{key}": value for key, value in inside.items()}
    return {**{key: value for key, value in record.items() if key != "adapter"}, **named}


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, float):  # YAML 1.1 reads 5e-6 as a string
        return math.isclose(float(one), other, rel_tol=1e-9)
    if isinstance(one, str) and isinstance(other, list):  # a regular expression: peft also matches names with it
        homes = ("model.layers.3", "model.language_model.layers.3")
        names = [f"{home}.{block}.{name}_proj" for home in homes for block in BLOCKS for name in NAMES]
        return {found.rpartition(".")[2] for found in names if re.fullmatch(one, found)} == set(other)
    if isinstance(one, bool) or isinstance(other, bool) or not isinstance(one, int | float):
        return bool(one == other)
    return isinstance(other, int | float) and math.isclose(one, other, rel_tol=1e-9)


def _steps(stated: Record) -> int | None:
    count = stated.get("max_steps")
    return count if isinstance(count, int) and count > 0 else None
