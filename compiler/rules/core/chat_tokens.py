"""Control tokens of a chat template that a model's vocabulary does not have."""

from __future__ import annotations

from xpc.compiler.registry.chat_templates import native, new_tokens, text
from xpc.compiler.spec import Spec


def unknown(spec: Spec, template: str) -> tuple[str, ...]:
    """The control tokens in a template's text that the spec's model has no token for, as far as that is known."""
    known, added = spec.model.vocabulary, spec.names("model.tokens")
    if template == text("zephyr").decode():
        return ()  # its roles are words in angle brackets, as published
    if known is None:
        found = new_tokens(template, spec.model.name)
    else:
        import json
        import re

        written = dict.fromkeys(re.findall(r"<\|[^|<>{}'\"\s]+\|>|<(?:start|end)_of_turn>", template))
        spelt = ((one, {json.dumps(one, ensure_ascii=ascii).encode() for ascii in (True, False)}) for one in written)
        found = tuple(one for one, spellings in spelt if not any(spelling in known for spelling in spellings))
    return tuple(one for one in found if one not in added)


def adding(tokens: tuple[str, ...]) -> str:
    """The setting that adds tokens to a vocabulary."""
    return "`tokens = [" + ", ".join(f'"{one}"' for one in tokens) + "]`"


def advice(spec: Spec) -> str:
    """The template to write where a model has none, and what it asks of the vocabulary."""
    name = native(spec.model.name) or "chatml"
    new = unknown(spec, text(name).decode())
    if not new:
        return f"write `chat_template = {name}`" + (", the template of its family" if name != "chatml" else "")
    return (
        f"write `chat_template = {name}` beside {adding(new)}, which are new to its vocabulary: "
        "their embeddings are learned from nothing"
    )
