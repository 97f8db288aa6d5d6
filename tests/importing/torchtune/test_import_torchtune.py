"""The tests import the files that ship with torchtune (oracles/torchtune.jsonl, made by `make oracles`). The bundle
states the arguments of torchtune's components, or the import reports the difference. If xpc does not support a file's
recipe, the import refuses the file in one sentence.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any

import pytest
import yaml
from import_support import Imported, imported, unaccounted
from oracle_support import FOLDER

from xpc.compiler.importing.text import yaml as yamltext
from xpc.compiler.registry import find_model

with open(os.path.join(FOLDER, "torchtune.jsonl"), encoding="utf-8") as handle:
    HEAD, *RECORDS = [json.loads(line) for line in handle]
TRAINS = ("full_finetune", "lora_finetune", "full_dpo", "lora_dpo")
NOT_OURS = {
    "qat": "quantization-aware training", "knowledge_distillation": "distillation", "ppo": "ppo",
    "eleuther_eval": "optimizer", "generate": "optimizer", "quantize": "optimizer", "dev/": "",
}  # fmt: skip
"""Maps recipes that the language excludes to a word of the message that refuses the recipe."""
NAMES = {"output_proj": "o_proj", "w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj",
         "up_proj": "gate_up_proj"}  # fmt: skip
"""Maps each layer that torchtune has separately to the fused layer in the published checkpoint that contains this
layer.
"""
OPTIMIZERS = {"AdamW": "adamw_torch", "PagedAdamW": "paged_adamw_32bit", "PagedAdamW8bit": "paged_adamw_8bit"}


def brought(record: dict[str, Any], **other: Any) -> Imported:
    """Import one of torchtune's files. The hardware is one GPU if the file's recipe is for a single device, and eight
    GPUs otherwise.
    """
    name = record["file"]
    single = "single_device" in str(record["recipe"])
    text = yaml.safe_dump({**record["written"], **other}, sort_keys=False)
    found = imported(text, "--hardware", "1 x h100-80gb" if single else "8 x h100-80gb", name=name)
    assert unaccounted(found.draft, yamltext.read(text, name)) == [], name
    return found


def ours(record: dict[str, Any]) -> bool:
    seen = str(record["written"].get("model", {})) + str(record["written"].get("dataset", {}))
    recipe = record["recipe"] or {"dev/8B_full_experimental.yaml": "full_finetune_distributed"}.get(record["file"], "")
    return recipe.startswith(TRAINS) and "vision" not in seen


@pytest.mark.slow
def test_every_file_of_a_full_lora_or_dpo_recipe_is_what_torchtune_would_train() -> None:
    wrong: dict[str, Any] = {}
    trained = [record for record in RECORDS if ours(record)]
    assert len(trained) > 90
    for record in trained:
        found = brought(record)
        assert not found.draft.wrong, (record["file"], found.messages)
        assert not found.errors, (record["file"], found.errors)
        differ = {key: pair for key, pair in _compared(record, found).items() if pair[0] != pair[1]}
        wrong.update({record["file"]: differ} if differ else {})
        for line in found.draft.differences.values():
            assert line in found.text, "the spec must state a difference"
    assert wrong == {}


@pytest.mark.slow
def test_what_the_language_will_not_have_is_refused_in_one_sentence() -> None:
    others = [record for record in RECORDS if not ours(record)]
    assert others
    for record in others:
        found = brought(record)
        output = [one for one in found.messages if one.startswith("error")]
        assert len(output) == 1, (record["file"], output)
        part = next((why for name, why in NOT_OURS.items() if name in f"{record['recipe']} {record['file']}"), "images")
        assert part in output[0], (record["file"], output)


def _compared(record: dict[str, Any], found: Imported) -> dict[str, tuple[Any, Any]]:
    """Map each compared name to a pair: the value that torchtune would use, and the value that the bundle states."""
    written, made, stated, payload = record["written"], record["optimizer"], found.arguments, found.payload
    output = found.draft.differences
    out = {
        "micro": (written["batch_size"], stated["per_device_train_batch_size"]),
        "accum": (written["gradient_accumulation_steps"], stated["gradient_accumulation_steps"]),
        "lr": (made["lr"], stated["learning_rate"]),
        "decay": (made["weight_decay"], stated["weight_decay"]),
        "betas": (made["betas"], [stated["adam_beta1"], stated["adam_beta2"]]),
        "eps": (made["eps"], stated["adam_epsilon"]),
        "optimizer": (OPTIMIZERS[made["class"]] + "_fused" * bool(made.get("fused")), stated["optim"]),
        "clip": (written.get("clip_grad_norm") or 0.0, stated["max_grad_norm"]),
        "rates": (made["rates"], _rates(stated)),
        "checkpointing": (bool(written["enable_activation_checkpointing"]), _checkpointing(stated)),
        "logging": (written.get("log_every_n_steps") or 1, stated["logging_steps"]),
        "compile": (bool(written["compile"]), bool(payload["model"].get("compile_layers"))),
        "bf16": (written["dtype"] == "bf16", stated["bf16"]),
        "shuffle": (written["shuffle"], payload["data"]["shuffle"]),
        "saved": ("epoch", stated["save_strategy"]),
        "mean": ("single_device" not in str(record["recipe"]), stated["average_tokens_across_devices"]),
        "seed": (written["seed"] or 42, stated["seed"]),
        "fsdp": (
            "single_device" not in str(record["recipe"]),
            bool(found.files.get("accelerate.yaml", b"").count(b"FSDP")),
        ),
    }
    most = written["max_steps_per_epoch"]
    out["steps"] = (
        (most * written["epochs"], stated["max_steps"]) if most else (written["epochs"], stated["num_train_epochs"])
    )
    length = record["tokenizer"]["max_seq_len"]
    out["length"] = (length, stated["max_length"]) if length else (True, "max_seq_len" in output)
    dpo = "dpo" in str(record["recipe"])
    if dpo:
        out["beta"] = (record["loss"]["beta"], stated["beta"])
        out["smoothing"] = (record["loss"]["label_smoothing"], stated["label_smoothing"])
    for made_with, source in zip(record["dataset"], payload["data"]["sources"], strict=True):
        out["source"] = (made_with["source"], source["id"])
        if not dpo:
            out["questions"] = (made_with["train_on_input"], not stated["completion_only_loss"])
            out["packed"] = (made_with["packed"], stated["packing"])
    out["adapter"] = (_theirs(record, "apply_lora_to_output" in output), _adapter(payload["lora"]))
    return out


def _theirs(record: dict[str, Any], output: bool) -> Any:
    made = record["adapter"]
    if made is None:
        return None
    names = {NAMES.get(one, one) for one in made["modules"]}
    if ".phi" in record["written"]["model"]["_component_"]:
        names = {FUSED.get(one, one) for one in names}
    if output:
        names -= {"output"}
    return [sorted(names), made["rank"], made["alpha"], made["dropout"], made["dora"], made["bits"]]


def _adapter(made: Any) -> Any:
    if made is None:
        return None
    return [
        sorted(made["targets"]),
        made["rank"],
        made["alpha"],
        made["dropout"],
        bool(made.get("dora")),
        made.get("bits"),
    ]


def _checkpointing(stated: dict[str, Any]) -> bool:
    """Whether the bundle checkpoints activations. Fails if the checkpointing is reentrant."""
    on = bool(stated.get("activation_checkpointing", stated.get("gradient_checkpointing")))
    kwargs = stated.get("activation_checkpointing_kwargs") or stated.get("gradient_checkpointing_kwargs") or {}
    assert not (on and kwargs.get("use_reentrant"))
    return on


def _rates(stated: dict[str, Any]) -> list[float]:
    """The learning rates of transformers' schedule, as shares of `lr`. They are the rates at the steps for which
    torchtune's learning rates are recorded.
    """
    if stated["lr_scheduler_type"].startswith("constant"):
        return [1.0] * len(HEAD["at"])
    assert stated["lr_scheduler_type"] == "cosine"
    warm, steps = stated["warmup_steps"], HEAD["steps"]
    return [
        step / max(1, warm) if step < warm else 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
        for step in HEAD["at"]
    ]


FULL = {
    "output_dir": "out", "model": {"_component_": "torchtune.models.qwen2_5.qwen2_5_0_5b"},
    "tokenizer": {"_component_": "torchtune.models.qwen2_5.qwen2_5_tokenizer", "path": "x", "max_seq_len": 512},
    "checkpointer": {"_component_": "torchtune.training.FullModelHFCheckpointer",
                     "checkpoint_dir": "/tmp/Qwen2.5-0.5B-Instruct", "output_dir": "${output_dir}"},
    "dataset": {"_component_": "torchtune.datasets.alpaca_dataset"}, "seed": 7, "shuffle": True, "batch_size": 2,
    "optimizer": {"_component_": "torch.optim.AdamW"}, "epochs": 1, "max_steps_per_epoch": None, "device": "cuda",
    "loss": {"_component_": "torch.nn.CrossEntropyLoss"}, "gradient_accumulation_steps": 1, "dtype": "bf16",
    "resume_from_checkpoint": False, "metric_logger": {"_component_": "torchtune.training.metric_logging.StdoutLogger"},
}  # fmt: skip


def written(**other: Any) -> Imported:
    """Import a small torchtune file with these keys changed."""
    return brought({"file": "recipe.yaml", "recipe": "full_finetune_distributed", "written": FULL}, **other)


def test_the_defaults_of_the_components_are_stated() -> None:
    stated = written().arguments
    assert (stated["learning_rate"], stated["weight_decay"], stated["max_grad_norm"]) == (1e-3, 0.01, 0.0)
    assert (stated["lr_scheduler_type"], stated["completion_only_loss"]) == ("constant", False)


def test_no_schedule_is_a_constant_rate() -> None:
    found = written(lr_scheduler=None)
    assert found.arguments["lr_scheduler_type"] == "constant"
    assert found.outcomes["lr_scheduler"] == "irrelevant"


def test_the_folder_of_the_weights_is_the_model(tmp_path) -> None:
    assert find_model(written().draft.model) is not None
    other = written(checkpointer={**FULL["checkpointer"], "checkpoint_dir": "/data/mine"})
    assert other.draft.model == '"/data/mine"'


@pytest.mark.parametrize(
    ("dataset", "shape", "columns"),
    [
        ({"_component_": "torchtune.datasets.chat_dataset", "source": "org/rows", "conversation_column": "talk",
          "conversation_style": "openai"}, "messages", ["talk"]),
        ({"_component_": "torchtune.datasets.chat_dataset", "source": "org/rows",
          "conversation_column": "conversations", "conversation_style": "sharegpt", "train_on_input": True},
         "conversations", None),
        ({"_component_": "torchtune.datasets.instruct_dataset", "source": "org/rows",
          "column_map": {"input": "q", "output": "a"}}, "prompt_completion", ["q", "a"]),
        ({"_component_": "torchtune.datasets.samsum_dataset", "split": "train[:10%]"}, "prompt_completion",
         ["dialogue", "summary"]),
        ({"_component_": "torchtune.datasets.text_completion_dataset", "source": "org/rows", "column": "body"}, "text",
         ["body"]),
        ({"_component_": "torchtune.datasets.wikitext_dataset"}, "text", ["page"]),
    ],
)  # fmt: skip
def test_other_data_sets(dataset: dict[str, Any], shape: str, columns: list[str] | None) -> None:
    found = written(dataset=dataset)
    (source,) = found.payload["data"]["sources"]
    assert (source["shape"], source["columns"]) == (shape, columns)
    if shape != "text":
        only = found.arguments[
            "assistant_only_loss" if columns != ["q", "a"] and shape != "prompt_completion" else "completion_only_loss"
        ]
        assert only is not dataset.get("train_on_input", False)


def test_two_data_sets_are_two_sources() -> None:
    both = [{"_component_": "torchtune.datasets.alpaca_dataset"},
            {"_component_": "torchtune.datasets.alpaca_cleaned_dataset"}]  # fmt: skip
    assert len(written(dataset=both).payload["data"]["sources"]) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"tensor_parallel_dim": 2}, {"resume_from_checkpoint": True},
        {"optimizer": {"_component_": "torch.optim.LBFGS"}},
        {"dataset": {"_component_": "mine.rows"}}, {"loss": {"_component_": "mine.loss"}}, {"epoch": 3},
        {"lr_scheduler": {"_component_": "torch.optim.lr_scheduler.StepLR", "step_size": 2}}, {"dtype": "fp16"},
        {"metric_logger": {"_component_": "torchtune.training.metric_logging.CometLogger"}},
    ],
)  # fmt: skip
def test_what_decides_something_and_has_no_setting_is_refused(other: dict[str, Any]) -> None:
    assert written(**other).draft.wrong
