"""The rule that methods which train a language model do not accept encoders, such as BERT (XP169)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler import registry
from xpc.compiler.rules.core.conditions import outside_of_the_registry
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = outside_of_the_registry


@rule("XP169", "encoder", reads=("method.teacher",))
def encoder(spec: Spec) -> Iterator[Finding]:
    """A method that trains a language model needs a decoder, and not an encoder such as BERT, RoBERTa or DeBERTa. The
    teacher of `method distill` must be a decoder, too. xpc recognizes an encoder of the hub by its name, and a local
    one by the `model_type` in its config.json. A model with `is_decoder = true` in its config.json is accepted. `method
    reward` can train an encoder.

    Why it is bad: each token of an encoder sees the tokens after it. The model copies the token that it should predict,
    so the loss falls to zero, and the model learns nothing. From such a teacher, a student learns to repeat the token
    that it has just read.

    Without this rule: transformers loads BERT and RoBERTa as language models, and only logs that `is_decoder` should be
    set. For families such as DeBERTa it raises "Unrecognized configuration class".

    Source: transformers 5.23 `modeling_auto.py`, `models/bert/modeling_bert.py`; confirmed by running it
    (`tests/registry/test_encoders.py`).
    """
    for model in () if spec.method.scores else spec.models:
        own_code = spec.flag("model.trust_remote_code") and model is spec.model
        family = registry.encoder(model.model_type, model.id or "")
        if family is None or own_code or model.config.get("is_decoder") is True:
            continue
        called = "is" if model.model_type is not None else "is the name of"
        yield Finding(
            model.label,
            f"`{model.name[:80]}` {called} an encoder ({family}), which sees the tokens that it should predict",
            "write a causal language model, such as `qwen2.5-3b`",
        )
