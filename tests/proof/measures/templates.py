"""What the libraries make of a chat template of the bundle."""

from __future__ import annotations

import os
import re
from typing import Any


def _template(scene: Any) -> str | None:
    name = scene.plan["tokenizer"]["chat_template"]
    if name is None:
        return None
    with open(os.path.join(scene.folder, name), encoding="utf-8") as handle:
        return handle.read()


def training(scene: Any) -> dict[str, Any]:
    """trl's training template for the bundle's; what it refuses is raised."""
    from trl.chat_template_utils import get_training_chat_template, has_generation_markers

    scene.tokenizer.chat_template = _template(scene)
    if not has_generation_markers(scene.tokenizer.chat_template):
        get_training_chat_template(scene.tokenizer)
    return {"trainable": True}


def stops(scene: Any) -> dict[str, Any]:
    """Whether the token that ends a turn is among those that are learned."""
    from trl.chat_template_utils import is_chat_template_stop_token_trained

    return {"stop": is_chat_template_stop_token_trained(scene.tokenizer, chat_template=_template(scene))}


def trainer(scene: Any) -> dict[str, Any]:
    """The trainer with a tokenizer that has the bundle's template, or none."""
    scene.tokenizer.chat_template = _template(scene)
    return {"rows": len(scene.trainer.train_dataset)}


def pieces(scene: Any) -> dict[str, Any]:
    """How many tokens a control token of the template becomes, at most."""
    found = re.findall(r"<\|[^|]+\|>", _template(scene) or "")
    return {"most": max(len(scene.tokenizer(one, add_special_tokens=False)["input_ids"]) for one in found)}


def instructed(scene: Any) -> dict[str, Any]:
    """A system prompt under the published template that the bundle's built-in one is called after."""
    import trl

    name = os.path.basename(scene.plan["tokenizer"]["chat_template"])
    with open(os.path.join(os.path.dirname(trl.__file__), "chat_templates", name), encoding="utf-8") as handle:
        scene.tokenizer.chat_template = handle.read()
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2?"}]
    return {"text": scene.tokenizer.apply_chat_template(turns, tokenize=False)}


def ended(scene: Any) -> dict[str, Any]:
    """Whether a row of chat, rendered by the bundle's template, holds the end token."""
    turns = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    stated = scene.plan["arguments"]["eos_token"]
    scene.tokenizer.add_special_tokens({"eos_token": "<eos>" if stated in (None, "<EOS_TOKEN>") else stated})
    scene.tokenizer.chat_template = _template(scene)
    ids = scene.tokenizer(scene.tokenizer.apply_chat_template(turns, tokenize=False))["input_ids"]
    return {"ends": scene.tokenizer.eos_token_id in ids}
