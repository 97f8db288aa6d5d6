"""Record the arguments with which axolotl itself would train each file, on a CPU without a network.

python ask_axolotl.py PUBLISHED OUT.jsonl

Run it with the interpreter that has axolotl (`make oracles` installs it). Each file goes through axolotl's own code:
its plugins, `validate_config`, `normalize_config`, and the trainer builder. Two things are replaced: queries about the
machine, whose replacements report a GPU of compute capability 9.0 with bf16, and the lookup of the model's type, which
comes from our registry. OUT.jsonl has a line per file with the arguments that differ from the defaults of their class;
the first line has the defaults.
"""

from __future__ import annotations

import os
import sys
import tempfile
import tomllib
from types import ModuleType
from typing import Any

os.environ.update(
    AXOLOTL_DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
    CUDA_VISIBLE_DEVICES="",
    WANDB_MODE="disabled",
    AXOLOTL_SKIP_TELEMETRY="1",
)
from answers import files, plain, write
from transformers import AutoConfig, PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
STEPS = 1000
"""If a file does not state the number of steps, its run has this many. Shares of the run, such as `warmup_ratio`, refer
to this number.
"""
MACHINE = {
    "_n_gpu", "local_rank", "output_dir", "logging_dir", "use_cpu", "chat_template", "model_type", "max_steps",
    "accelerator_config", "hub_token", "push_to_hub_token", "dataset_num_proc", "dataloader_num_workers",
}  # fmt: skip
"""Arguments that are not recorded, because they depend on the machine or the folder. `chat_template` is not recorded
either, because ask_rows.py records its effect on rows.
"""
WANTED = {"axolotl", "torch", "trl", "transformers", "accelerate", "peft"}


def types() -> dict[str, str]:
    """The `model_type` of each model of our registry, by its lower-case id."""
    with open(os.path.join(REPOSITORY, "compiler", "registry", "models.toml"), "rb") as handle:
        table = tomllib.load(handle)

    def kind(row: dict[str, Any]) -> str:
        return str(row["config"]["model_type"]) if "model_type" in row.get("config", {}) else kind(table[row["like"]])

    return {str(row["id"]).lower(): kind(row) for row in table.values() if "id" in row}


class Captured(Exception):
    """Raised when axolotl's builder would create the trainer. The exception carries the trainer's arguments."""

    def __init__(self, arguments: Any) -> None:
        super().__init__("captured")
        self.arguments = arguments


def tokenizer() -> Any:
    """A tokenizer of bytes with a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {"<s>": 0, "</s>": 1, "<pad>": 2, "<unk>": 3}
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary.setdefault(letter, len(vocabulary))
    made = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(vocab=vocabulary, merges=[])), bos_token="<s>", eos_token="</s>",
        pad_token="<pad>", unk_token="<unk>",
    )  # fmt: skip
    made.chat_template = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    return made


def builder(cfg: Any) -> Any:
    """Run axolotl's builder; return the trainer's arguments that it makes."""
    from axolotl.core.builders import HFCausalTrainerBuilder, HFRLTrainerBuilder

    class Model:
        config = AutoConfig.for_model("llama", num_labels=1)

    if cfg.rl:
        return HFRLTrainerBuilder(cfg, Model(), tokenizer())._build_training_arguments(cfg.max_steps or STEPS)[0]

    class Causal(HFCausalTrainerBuilder):
        def hook_post_create_training_args(self, training_arguments: Any) -> Any:
            raise Captured(training_arguments)

    made = Causal(cfg, Model(), tokenizer())
    if cfg.test_datasets:
        # axolotl only checks that there are evaluation rows; it does not read them here
        made.eval_dataset = [{"input_ids": [0, 1], "labels": [0, 1]}]
    try:
        made.build(cfg.max_steps or STEPS)
    except Captured as found:
        return found.arguments
    raise RuntimeError("axolotl made no trainer arguments")


def arguments(made: Any, defaults: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Those arguments whose values are not the defaults of their class. As a side effect, `defaults` gets the defaults
    of the class.
    """
    name = type(made).__name__
    if name not in defaults:
        bare = type(made)(output_dir=tempfile.mkdtemp(), use_cpu=True)
        defaults[name] = {key: plain(value) for key, value in vars(bare).items() if kept(key)}
    output = {key: plain(value) for key, value in vars(made).items() if kept(key)}
    return {key: value for key, value in output.items() if value != defaults[name].get(key)}


def kept(key: str) -> bool:
    return not key.startswith(("_", "distributed_state", "deepspeed_plugin", "hf_deepspeed")) and key not in MACHINE


READ = (
    "adapter", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_target_linear",
    "lora_modules_to_save",
    "lora_target_parameters", "lora_model_dir", "lora_exclude_modules", "peft_use_dora", "peft_use_rslora",
    "peft_init_lora_weights", "load_in_4bit", "load_in_8bit", "torch_dtype", "bf16", "fp16", "attn_implementation",
    "sequence_len", "sample_packing", "eval_sample_packing", "pad_to_sequence_len", "excess_length_strategy",
    "val_set_size", "min_sample_len", "dataset_exact_deduplication", "shuffle_merged_datasets",
    "shuffle_before_merging_datasets", "curriculum_sampling", "train_on_inputs", "chat_template",
    "early_stopping_patience", "loss_watchdog_threshold", "loss_watchdog_patience", "dp_shard_size",
    "dp_replicate_size", "tensor_parallel_size", "context_parallel_size", "fsdp_version", "pretraining_dataset",
    "test_datasets", "relora", "seed", "rl", "reward_model", "unfrozen_parameters", "trust_remote_code",
    "tokens", "special_tokens", "datasets", "batch_size", "gradient_checkpointing", "activation_offloading",
    "device_map", "plugins", "max_steps", "streaming",
)  # fmt: skip
"""Keys of axolotl's configuration that matter but do not appear in the trainer's arguments. Their values are recorded
after axolotl has filled in its defaults.
"""


def ask(table: dict[str, Any], kinds: dict[str, str], defaults: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Three things with which axolotl would train a file with these keys: the class of the arguments, the arguments,
    and the configuration.
    """
    from axolotl.cli.config import plugin_set_cfg, prepare_plugins
    from axolotl.utils import config as configs
    from axolotl.utils.dict import DictDefault
    from axolotl.utils.trackio_ import setup_trackio_env_vars
    from axolotl.utils.wandb_ import setup_wandb_env_vars

    cfg = DictDefault(table)
    name = str(cfg.base_model).lower()
    known = kinds.get(name, "gemma4" if "gemma-4" in name else "llama")

    def of_the_registry(_cfg: Any) -> Any:
        try:
            return AutoConfig.for_model(known)
        except ValueError:
            return AutoConfig.for_model("llama")

    import transformers.training_args as training_args

    training_args.is_torch_bf16_gpu_available = lambda: True
    training_args.is_torch_tf32_available = lambda: True
    configs.load_model_config = of_the_registry
    configs.is_torch_bf16_gpu_available = lambda: True
    sys.modules.setdefault("ring_flash_attn", ModuleType("ring_flash_attn"))  # only imported, not called
    prepare_plugins(cfg)
    capabilities = {"bf16": True, "fp8": True, "tf32": True, "n_gpu": 1, "compute_capability": "sm_90"}
    cfg = configs.validate_config(cfg, capabilities, {"torch_version": "2.13.0"})
    configs.normalize_config(cfg)
    configs.normalize_cfg_datasets(cfg)
    for setup in (setup_wandb_env_vars, setup_trackio_env_vars):
        setup(cfg)
    plugin_set_cfg(cfg)
    cfg.use_cpu = True
    file = cfg.deepspeed
    # axolotl would read this DeepSpeed file, which does not exist here, so the record has only the file's name
    cfg.deepspeed = None
    made = builder(cfg)
    resolved = {key: plain(cfg.get(key)) for key in READ if cfg.get(key) is not None}
    resolved.update({"deepspeed": plain(file)} if file else {})
    return {"class": type(made).__name__, "arguments": arguments(made, defaults), "config": resolved}


def main() -> None:
    """Record the arguments for every file, or the reason why axolotl refuses the file."""
    from importlib.metadata import version

    published, out = sys.argv[1:3]
    only = sys.argv[3:]
    kinds, defaults, lines = types(), {}, []
    for name, table in files(published, "axolotl", version("axolotl").rpartition(".")[0]):
        if only and not any(one in name for one in only):
            continue
        try:
            found = ask(table, kinds, defaults)
        except Exception as error:
            found = {"refused": f"{type(error).__name__}: {error}"[:400]}
        lines.append({"file": name, **found})
        print(name, found.get("refused", "asked"), flush=True)
    versions = {one: version(one) for one in sorted(WANTED)}
    head = {"tool": "axolotl", "versions": versions, "steps": STEPS, "defaults": defaults}
    write(out, head, lines)


if __name__ == "__main__":
    main()
