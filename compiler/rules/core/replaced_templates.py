"""Digests of the chat templates that trl 1.16 replaces. If a tokenizer's template is exactly one of these texts, trl
uses its own training template instead.
"""

from __future__ import annotations

import re
from functools import cache

from xpc.compiler.files.digest import sha256
from xpc.compiler.registry.chat_templates import native
from xpc.grammar.package_data import read_text

MARK = r"\{%-?\s*generation\s*-?%\}"
"""A pattern for a generation marker. trl 1.16 searches for the same pattern
(`chat_template_utils.has_generation_markers`).
"""

UNMARKED = ("llama-3.1-", "llama-3.2-", "llama-3.3-", "mistral-7b-instruct-", "mixtral-8x7b-instruct-", "smollm2-")
"""Aliases of models whose chat template has no generation markers and is not replaced by trl (see
trl/chat_templates/README.md).
"""


MARKED = "smollm3"
"""The built-in template whose published template has generation markers of its own."""


@cache
def replaced() -> frozenset[str]:
    """The templates that `get_training_chat_template` of trl 1.16 knows. Each template is identified by the first 16
    digits of its SHA-256.
    """
    return frozenset(read_text(__file__, "replaced_templates.txt").split()[::2])


def trainable(text: str, replaces: bool) -> bool:
    """Whether trl can find the assistant's tokens in the texts that the chat template `text` renders. It can if the
    template has generation markers, or if trl replaces the template by a training template with generation markers.
    `replaces` is the stack's fact `marks_templates`.
    """
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    known = replaces and sha256(plain.encode()).hexdigest()[:16] in replaced()
    return known or re.search(MARK, plain) is not None


def trainable_model(model: str, replaces: bool) -> bool:
    """The same for the published template of the registered model with this alias. True if the template is unknown."""
    return not model.startswith(UNMARKED) and (replaces or native(model) in (None, MARKED))
