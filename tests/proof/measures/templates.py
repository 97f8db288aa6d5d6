"""Functions with which proofs measure the effect of the bundle's chat template in the libraries."""

from __future__ import annotations

import os
import re
from typing import Any


def _template(run: Any) -> str | None:
    name = run.plan["tokenizer"]["chat_template"]
    if name is None:
        return None
    with open(os.path.join(run.folder, name), encoding="utf-8") as handle:
        return handle.read()


def training(run: Any) -> dict[str, Any]:
    """Let TRL derive a training template (with loss marks) from the bundle's template. Raises any exception of TRL."""
    from trl.chat_template_utils import get_training_chat_template, has_generation_markers

    run.tokenizer.chat_template = _template(run)
    if not has_generation_markers(run.tokenizer.chat_template):
        get_training_chat_template(run.tokenizer)
    return {"trainable": True}


def stops(run: Any) -> dict[str, Any]:
    """Whether the token at the end of an assistant's turn has a loss."""
    from trl.chat_template_utils import is_chat_template_stop_token_trained

    return {"stop": is_chat_template_stop_token_trained(run.tokenizer, chat_template=_template(run))}


def trainer(run: Any) -> dict[str, Any]:
    """Build the trainer with a tokenizer that has the bundle's template, or no template. Raises any exception of
    the trainer.
    """
    run.tokenizer.chat_template = _template(run)
    return {"rows": len(run.trainer.train_dataset)}


def pieces(run: Any) -> dict[str, Any]:
    """Tokenize each control token of the template, such as `<|im_end|>`. Return the largest number of ids of a control
    token, which should be 1.
    """
    found = re.findall(r"<\|[^|]+\|>", _template(run) or "")
    return {"most": max(len(run.tokenizer(one, add_special_tokens=False)["input_ids"]) for one in found)}


def unread(run: Any) -> dict[str, Any]:
    """Whether the template ignores its arguments. If it does, it renders a question to the same text with and without
    them.
    """
    template = _template(run) or ""
    bare = re.sub(r"^(\{% set .* %\}\n)+", "", template)
    turns = [{"role": "user", "content": "2?"}]
    texts = {
        run.tokenizer.apply_chat_template(turns, tokenize=False, chat_template=one, add_generation_prompt=True)
        for one in (template, bare)
    }
    return {"same": len(texts) == 1, "bare": bare != template}


def instructed(run: Any) -> dict[str, Any]:
    """Render a system prompt with the published template that has the name of the bundle's built-in template."""
    import trl

    name = os.path.basename(run.plan["tokenizer"]["chat_template"])
    with open(os.path.join(os.path.dirname(trl.__file__), "chat_templates", name), encoding="utf-8") as handle:
        run.tokenizer.chat_template = handle.read()
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2?"}]
    return {"text": run.tokenizer.apply_chat_template(turns, tokenize=False)}


def ended(run: Any) -> dict[str, Any]:
    """Whether a row of turns, rendered by the bundle's template, contains the end token."""
    turns = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    stated = run.plan["arguments"]["eos_token"]
    run.tokenizer.add_special_tokens({"eos_token": "<eos>" if stated in (None, "<EOS_TOKEN>") else stated})
    run.tokenizer.chat_template = _template(run)
    ids = run.tokenizer(run.tokenizer.apply_chat_template(turns, tokenize=False))["input_ids"]
    return {"ends": run.tokenizer.eos_token_id in ids}
