"""Templates, prompts and tokens against the data and the model's vocabulary (XP557 to XP560)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from xpc.compiler import rows
from xpc.compiler.rules.rule import Finding, rule
from xpc.compiler.spec import Spec


@rule("XP557", "system-prompt-never-used", "warning")
def system_never_used(spec: Spec) -> Iterator[Finding]:
    """A system prompt is the first message of a conversation; plain text has no place for it, and it is left out.

    The runtime leaves texts as they are (`sources.py`), so the prompt would be in no row.
    """
    if spec.get("data.system") is not None and all(rows.conversational(source) is False for source in spec.data):
        yield Finding(
            spec.place("data.system", "never used"),
            "a system prompt, and no conversation that it could stand in",
            "leave `system` out",
            (spec.data[0].label,),
        )


@rule("XP558", "template-never-used", "warning")
def template_never_used(spec: Spec) -> Iterator[Finding]:
    """A chat template renders conversations; plain text is tokenized as it is.

    Today, silently: it is saved with the tokenizer, and no row was rendered by it.
    """
    written = spec.written("model.chat_template")
    if written and all(rows.conversational(source) is False for source in spec.data):
        yield Finding(
            spec.place("model.chat_template", "saved with the tokenizer, not trained with"),
            "a chat template, and no conversation to render",
            "leave `chat_template` out",
            (spec.data[0].label,),
        )


@rule("XP559", "token-not-in-vocabulary")
def token_not_in_vocabulary(spec: Spec) -> Iterator[Finding]:
    """The end and padding tokens must be tokens of the model. Of a local model its tokenizer.json is read.

    Today: trl 1.16 raises ValueError after the model is loaded; trl 0.18 takes the unknown token, and pads or ends with
    that. Of other models the preflight looks at the vocabulary. Source: `sft_trainer.py` of both; executed.
    """
    added = spec.names("model.tokens")
    for path in ("model.eos", "model.pad"):
        token = spec.get(path)
        known = spec.model.vocabulary
        if isinstance(token, str) and known is not None and token not in added and not _has(known, token):
            yield Finding(
                spec.place(path, "no such token"),
                f"`{token[:60]}` is not in the vocabulary of {spec.model.name}",
                f"name a token of its tokenizer.json, or leave `{path[6:]}` out",
                (spec.model.label,),
            )


@rule("XP560", "template-token-not-in-vocabulary", "warning")
def template_token(spec: Spec) -> Iterator[Finding]:
    """A control token of a chat template that the tokenizer does not know is cut into pieces like any text.

    Today, silently: the model learns several tokens where one was meant, and nothing stops it there. Of a local model
    its tokenizer.json is read. Source: trl 1.16 `sft_config.py` (`chat_template_path`); executed.
    """
    name, known = spec.get("model.chat_template"), spec.model.vocabulary
    if not isinstance(name, str) or known is None:
        return
    text = spec.bundled.get(name, b"").decode("utf-8", "replace")
    written = dict.fromkeys(re.findall(r"<\|[^|<>{}'\"\s]+\|>", text))
    unknown = [token for token in written if token not in spec.names("model.tokens") and not _has(known, token)]
    if unknown:
        listed = ", ".join(f"`{token[:40]}`" for token in unknown[:4])
        yield Finding(
            spec.place("model.chat_template", listed.replace("`", "")),
            f"the chat template writes {listed}, which {spec.model.name} has no token for",
            "use the tokens of the model's own tokenizer.json",
            (spec.model.label,),
        )


def _has(vocabulary: bytes, token: str) -> bool:
    return any(json.dumps(token, ensure_ascii=ascii).encode() in vocabulary for ascii in (True, False))


RULES = (
    system_never_used,
    template_never_used,
    token_not_in_vocabulary,
    template_token,
)
