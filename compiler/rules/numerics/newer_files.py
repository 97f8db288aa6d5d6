"""The rule about models whose files were saved by a transformers newer than the stack's (XP568)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from xpc.compiler import stacks
from xpc.compiler.rules.core.conditions import older_transformers
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import Model

WHEN = older_transformers

CLASS = re.compile(rb'"tokenizer_class":\s*"TokenizersBackend"')
TOKENS = re.compile(rb'"extra_special_tokens":\s*\[')
USUAL = {"rope_theta": 10000.0, "partial_rotary_factor": 1.0}
"""If config.json does not state these settings of rotary positions, most classes of transformers 4 use these values."""


@rule("XP568", "saved-by-newer-transformers")
def newer_files(spec: Spec) -> Iterator[Finding]:
    """A model that transformers 5 saved may not load on a target with transformers 4. transformers 4 fails on the
    tokenizer class `TokenizersBackend` and on a list in `extra_special_tokens`. It also ignores `rope_parameters`,
    which holds the base of the rotary positions, their scaling, and the part of each head that is rotated. If these
    values are the defaults of the model's class, the rule accepts the model.

    Why it is bad: if `rope_parameters` is ignored, the model trains without an error on positions with another base or
    without scaling.

    Without this rule: ValueError, "Tokenizer class TokenizersBackend does not exist", or AttributeError, "'list' object
    has no attribute 'keys'". For `rope_parameters`, transformers reports nothing; the bundle's runtime stops the run.

    Source: transformers 4.57.6 and 4.52.3 `AutoTokenizer` and `AutoConfig`; confirmed by running them.
    """
    for model in spec.models:
        found = None if model.path is None else _unread(model, spec.stack)
        if found is not None:
            what, help = found
            able = stacks.able(lambda stack: stack.facts.reads_newer_files)
            yield Finding(
                model.label,
                f"{what} of `{model.name[:80]}` was saved by transformers 5, and {spec.stack.name} cannot read it",
                f"write `target {able}`, or {help}",
            )


def _unread(model: Model, stack: stacks.Stack) -> tuple[str, str] | None:
    """Return a pair of texts: which of a model's files transformers 4 cannot read, and what to change in this file.
    None if transformers 4 can read all files.
    """
    tokens = model.vocabulary or b""
    if CLASS.search(tokens):
        return "the tokenizer", 'write `"tokenizer_class": "PreTrainedTokenizerFast"` in its tokenizer_config.json'
    if TOKENS.search(tokens):
        return (
            "the tokenizer",
            "rename `extra_special_tokens` to `additional_special_tokens` in its tokenizer_config.json",
        )
    from xpc.runtime.features.model.newer_config import ignored, written

    config = model.config.get("text_config")
    config = config if isinstance(config, dict) else model.config
    kind = config.get("model_type")
    missing = ignored({**USUAL, **stack.positions(kind if isinstance(kind, str) else None), **config})
    return ("config.json", f"add {written(missing)}") if missing else None
