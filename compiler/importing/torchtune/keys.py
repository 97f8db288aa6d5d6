"""torchtune's key table, and names of models, losses and schedules.

Source: torchtune 0.6.1, recipes/ and the signatures of the components that its files name.
"""

from __future__ import annotations

from xpc.compiler.importing.keys import load
from xpc.compiler.importing.text.entries import Entries, Entry, text

KEYS = load("torchtune/keys.toml")
RECIPES = ("policy_model", "ppo_epochs", "teacher_model", "kd_loss", "quantizer")
"""Keys that occur only in recipes that a spec cannot express, such as PPO and distillation, so that a file with such a
key is not imported.
"""
NO_TRAINING = "it names no optimizer, so it trains nothing: it may be for evaluation, generation or quantization"
VISION = "xpc does not import recipes with images"

COSINE = ("torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
          "torchtune.modules.get_cosine_schedule_with_warmup")  # fmt: skip
LOSSES = ("CEWithChunkedOutputLoss", "LinearCrossEntropyLoss", "CrossEntropyLoss")
PAIRS = {"DPOLoss": "sigmoid", "RSOLoss": "hinge"}
PUBLISHERS = {
    "llama": "meta-llama", "code_llama": "meta-llama", "mistral": "mistralai", "gemma": "google", "phi": "microsoft",
    "qwen": "Qwen",
}  # fmt: skip
"""Maps the beginning of a package's name in torchtune.models to the publisher of its models on the hub: `llama3` to
`meta-llama`.
"""
FOLDERS = r"(?:Meta-Llama|Llama|CodeLlama|Mistral|gemma|[Pp]hi|Qwen)-?[\w.\-]*"
"""Matches the name of a folder to which `tune download PUBLISHER/NAME` writes the model."""
FUSED = ("phi3", "phi4")
"""Model families in torchtune.models whose published checkpoints have the fused layers qkv_proj and gate_up_proj."""


def at(entries: Entries, path: str) -> Entry | None:
    """The entry at a dotted path such as `optimizer.lr`; None if the file does not have it."""
    head, *rest = path.split(".")
    one = entries.get(head)
    for name in rest:
        one = None if one is None else one.mapping.get(name)
    return one


def component(entry: Entry | None) -> str:
    """The class or function in `_component_`, such as `torch.optim.AdamW`; "" if there is none."""
    made = None if entry is None else entry.mapping.get("_component_")
    return text(made) or ""
