"""Train a small model by transformers' Trainer under FSDP1 on CPU processes of gloo.

``python orig_params.py true|false FOLDER`` is started once per process; the argument is accelerate's
`fsdp_use_orig_params`. FOLDER/moved gets the number of weight matrices that changed, the number of all matrices, and
the losses of the steps.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ.update(
    ACCELERATE_USE_CPU="true", ACCELERATE_USE_FSDP="true", FSDP_VERSION="1", FSDP_SHARDING_STRATEGY="FULL_SHARD",
    FSDP_AUTO_WRAP_POLICY="TRANSFORMER_BASED_WRAP", FSDP_TRANSFORMER_CLS_TO_WRAP="Qwen2DecoderLayer",
    FSDP_USE_ORIG_PARAMS=sys.argv[1], FSDP_STATE_DICT_TYPE="SHARDED_STATE_DICT", FSDP_SYNC_MODULE_STATES="false",
)  # fmt: skip

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp1
from transformers import AutoModelForCausalLM, Qwen2Config, Trainer, TrainingArguments

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "tie_word_embeddings": False}


def shard_on_cpu() -> None:
    """Let accelerate use FSDP for processes on the CPU. Otherwise it uses DDP for them."""
    begin = AcceleratorState.__init__

    def started(self: Any, *words: Any, fsdp_plugin: Any = None, **settings: Any) -> None:
        begin(self, *words, fsdp_plugin=fsdp_plugin, **settings)
        if fsdp_plugin is not None:
            self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
            # accelerate sets the device `cpu:0`, which FSDP1 refuses
            self.device = torch.device("cpu")

    AcceleratorState.__init__ = started


def main(folder: str) -> None:
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(Qwen2Config(**SIZES, **HEADS))
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    rows = [{"input_ids": torch.arange(16) % 7, "labels": torch.arange(16) % 7}] * 32
    arguments = TrainingArguments(
        output_dir=folder, max_steps=4, learning_rate=1e-2, per_device_train_batch_size=2, use_cpu=True,
        logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True, lr_scheduler_type="constant",
        fsdp="full_shard auto_wrap", fsdp_config={"fsdp_version": 1, "version": 1,
            "transformer_layer_cls_to_wrap": ["Qwen2DecoderLayer"], "use_orig_params": sys.argv[1],
            # sync_module_states would need a GPU, and all processes have the same weights because of the seed
            "sync_module_states": "false"},
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train()
    assert isinstance(trainer.model_wrapped, Fsdp1), type(trainer.model_wrapped)
    plugin = trainer.accelerator.state.fsdp_plugin
    assert plugin.use_orig_params is (sys.argv[1] == "true")
    with Fsdp1.summon_full_params(trainer.model_wrapped):
        after = {name.replace("_fsdp_wrapped_module.", ""): one.detach().clone()
                 for name, one in trainer.model_wrapped.named_parameters()}  # fmt: skip
    if dist.get_rank() == 0:
        moved = sum(not torch.equal(before[name], after[name]) for name in before)
        losses = [one["loss"] for one in trainer.state.log_history if "loss" in one]
        with open(os.path.join(folder, "moved"), "w", encoding="utf-8") as handle:
            json.dump({"moved": moved, "of": len(before), "losses": losses}, handle)


shard_on_cpu()
main(sys.argv[2])
