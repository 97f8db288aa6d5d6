"""Tiny models of every family, their tokenizer, and rows of every shape. Each is made only once on a machine, by the
interpreter of a stack.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(TESTS, "support"))
sys.path.append(os.path.join(os.path.dirname(TESTS), "compiler", "preview", "rehearsal", "worker"))

import small_models  # noqa: E402

VOCABULARY = 1024
SIZES: dict[str, Any] = {
    **small_models.SIZES, **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers"), 2),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 512), "vocab_size": VOCABULARY,
}  # fmt: skip
"""Sizes for the configurations of all families. A configuration class gets only those sizes that it knows."""

TEMPORARY = tempfile.gettempdir()
"""The machine's temporary folder. It is read only once, when this module is imported, because small_run.py later sets
another one for runs of several processes.
"""


def _location() -> str:
    """The folder in which tiny models are stored. Each version of transformers has a folder of its own."""
    import transformers

    return os.path.join(TEMPORARY, f"xpc-tiny-{os.getuid()}-{transformers.__version__}")


def _once(name: str, make: Callable[[str], object]) -> str:
    """A folder whose content is made only once on a machine. If two processes make the content at the same time, the
    content of the process that finishes first is used.
    """
    folder = os.path.join(_location(), name)
    if not os.path.isdir(folder):
        os.makedirs(_location(), exist_ok=True)
        made = tempfile.mkdtemp(dir=_location())
        try:
            make(made)
            with contextlib.suppress(OSError):
                os.rename(made, folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def tokenizer() -> str:
    """Make a byte-level BPE tokenizer with a ChatML template; return its folder."""
    from tiny import build

    return _once("tokenizer", lambda folder: build(folder, vocab=VOCABULARY))


def config(family: str) -> Any:
    """A tiny configuration for a `model_type`. Raises KeyError if transformers does not know this type."""
    from transformers import CONFIG_MAPPING

    maker = CONFIG_MAPPING[family]
    values = small_models.sizes_of(maker, family, SIZES)
    return maker(**values, pad_token_id=0, bos_token_id=0, eos_token_id=2)


def model(family: str) -> str:
    """Make a tiny model of the family with random weights; return its folder."""

    def make(folder: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.manual_seed(0)
        with contextlib.suppress(AttributeError):
            torch.set_default_dtype(torch.float32)
        AutoModelForCausalLM.from_config(config(family)).save_pretrained(folder)

    return _once(family, make)


def load(family: str, plan: dict[str, Any], kind: str = "causal", quantized: Any = None) -> Any:
    """Load the family's tiny model as a bundle's program does, with the dtype, attention and bits that
    trainer_args.json states.
    """
    import torch
    import transformers

    name = "dtype" if hasattr(transformers.PretrainedConfig(), "dtype") else "torch_dtype"
    options = {name: getattr(torch, plan["dtype"])}
    if plan["attn_implementation"]:
        options["attn_implementation"] = plan["attn_implementation"]
    if quantized is not None:
        options["quantization_config"] = quantized
    maker = transformers.AutoModelForCausalLM
    if kind == "reward":
        maker, options["num_labels"] = transformers.AutoModelForSequenceClassification, 1
    made = maker.from_pretrained(model(family), **options)
    made.config.use_cache = False
    return made


def rows(shape: str, number: int = 32) -> Any:
    """Rows of a shape, with the columns that TRL reads. `preference` rows have a prompt column, and answers of nearly
    equal length.
    """
    import datasets
    from tiny import conversations

    turns = conversations(number)
    requested = [row[0]["content"] for row in turns]
    answered = [" " + row[1]["content"] for row in turns]
    made: dict[str, dict[str, Any]] = {
        "messages": {"messages": turns},
        "conversations": {"messages": turns},
        "prompt_completion": {"prompt": requested, "completion": answered},
        "text": {"text": [a + b for a, b in zip(requested, answered, strict=True)]},
        "preference": {"prompt": requested, "chosen": answered, "rejected": answered[1:] + answered[:1]},
        "unpaired": {"prompt": requested, "completion": answered, "label": [i % 2 == 0 for i in range(number)]},
        "prompt": {"prompt": requested, "answer": answered},
        "tokens": {"input_ids": [[3 + (i + j) % 100 for j in range(8 + i % 4)] for i in range(number)]},
    }
    return datasets.Dataset.from_dict(made[shape])


def as_turns(row: dict[str, Any]) -> dict[str, Any]:
    """Convert the texts of a row to lists of turns, as the runtime does for a source with the option `chat`."""
    speakers = {"prompt": "user", "completion": "assistant", "chosen": "assistant", "rejected": "assistant"}
    return {
        name: [{"role": speakers[name], "content": value}] if name in speakers else value for name, value in row.items()
    }


def reward(index: int) -> Any:
    """Make a reward function whose values differ for the completions of one prompt, so that there is something to
    learn.
    """

    def score(completions: list[Any], **_: Any) -> list[float]:
        return [float((len(str(one)) + i + index) % 3) for i, one in enumerate(completions)]

    score.__name__ = f"score_{index}"
    return score


def adapters(plan: dict[str, Any], method: str) -> Any:
    """Build PEFT's configuration for the section `lora` of trainer_args.json."""
    from peft import LoHaConfig, LoraConfig, MissConfig, OFTConfig, VeraConfig

    task = "SEQ_CLS" if method == "reward" else "CAUSAL_LM"
    common = {"target_modules": plan["targets"], "modules_to_save": plan["modules_to_save"], "task_type": task}
    if plan["kind"] == "oft":
        sizes = {"r": plan["rank"] or 0, "oft_block_size": plan["block_size"] or 0}
        return OFTConfig(**sizes, module_dropout=plan["dropout"], **common)
    if plan["kind"] == "vera":
        return VeraConfig(r=plan["rank"], vera_dropout=plan["dropout"], **common)
    if plan["kind"] == "miss":
        return MissConfig(r=plan["rank"], miss_dropout=plan["dropout"], **common)
    if plan["kind"] == "loha":
        return LoHaConfig(r=plan["rank"], alpha=plan["alpha"], **common)
    # a bundle computes LoftQ's initialization itself; peft's code for it would need a GPU
    init = True if plan.get("init") == "loftq" else plan.get("init") or True
    return LoraConfig(r=plan["rank"], lora_alpha=plan["alpha"], lora_dropout=plan["dropout"],
                      use_rslora=plan["rslora"], use_dora=plan["dora"], target_parameters=plan["parameters"],
                      init_lora_weights=init,
                      **common)  # fmt: skip
