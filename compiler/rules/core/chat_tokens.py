"""Find the control tokens of a chat template that are missing from a model's vocabulary."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from xpc.compiler.registry.chat_templates import native, new_tokens, text
from xpc.compiler.spec import Spec


def unknown_tokens(spec: Spec, template: str) -> tuple[str, ...]:
    """The control tokens of a chat template, such as `<|im_end|>`, that the model does not know: they are neither in
    its vocabulary nor in the spec's `tokens`.
    """
    known, added = spec.model.vocabulary, spec.names("model.tokens")
    if template.endswith(text("zephyr").decode()):
        return ()  # The roles of this template are ordinary words in angle brackets, not special tokens.
    if known is None:
        found = new_tokens(template, spec.model.name)
    else:
        written = dict.fromkeys(re.findall(r"<\|[^|<>{}'\"\s]+\|>|<(?:start|end)_of_turn>", template))
        spelt = ((one, {json.dumps(one, ensure_ascii=ascii).encode() for ascii in (True, False)}) for one in written)
        found = tuple(one for one, spellings in spelt if not any(spelling in known for spelling in spellings))
    return tuple(one for one in found if one not in added)


def tokens_setting(tokens: tuple[str, ...]) -> str:
    """The setting that adds tokens to the vocabulary, in backquotes: `tokens = ["<|x|>"]`."""
    return "`tokens = [" + ", ".join(f'"{one}"' for one in tokens) + "]`"


def template_advice(spec: Spec, names: Sequence[str] = ()) -> str:
    """The help for a model whose chat template is missing or cannot be used. The help names a built-in template, and
    the tokens to add for that template.

    `names` are the templates that may be suggested. If the template of the model's family is one of them, it is
    suggested, otherwise the template with the fewest unknown tokens. Without `names`, the family's template is
    suggested, or `chatml` if the family has no template.
    """
    own = native(spec.model.name)
    names = names or (own or "chatml",)
    name = own if own in names else min(names, key=lambda one: len(unknown_tokens(spec, text(one).decode())))
    new = unknown_tokens(spec, text(name).decode())
    if not new:
        return f"write `chat_template = {name}`" + (", the template of its family" if name == own else "")
    return (
        f"write `chat_template = {name}` and {tokens_setting(new)}, which are new to the model's vocabulary: "
        "their embeddings are learned from scratch"
    )
