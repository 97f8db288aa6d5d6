"""The runtime changes a model's configuration to scaled rotary positions, in the form of transformers 5 or of
transformers 4.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xpc.runtime.core.errors import RunError
from xpc.runtime.features.model.rope import lengthen, scale

YARN = {"rope_type": "yarn", "factor": 4.0, "original": None, "parameters": {"beta_fast": 16.0}}


def config(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"max_position_embeddings": 512, **values})


def test_a_scaling_keeps_the_other_parameters_and_lengthens_the_context() -> None:
    made = config(rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    scale(made, YARN, "tiny")
    assert made.max_position_embeddings == 2048
    assert made.rope_parameters == {
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "beta_fast": 16.0,
        "original_max_position_embeddings": 512,
    }  # fmt: skip
    older = config(rope_scaling=None)
    scale(older, {**YARN, "original": 256}, "tiny")
    assert older.max_position_embeddings == older.rope_scaling["original_max_position_embeddings"] * 4 == 1024
    gemma = config(rope_theta=1e4)
    scale(gemma, YARN, "tiny")
    assert gemma.rope_scaling["rope_type"] == "yarn"


def test_the_dynamic_scaling_keeps_the_context_that_it_computes_from() -> None:
    made = config(rope_scaling=None)
    scale(made, {**YARN, "rope_type": "dynamic", "parameters": {}}, "tiny")
    assert (made.max_position_embeddings, made.rope_scaling) == (512, {"rope_type": "dynamic", "factor": 4.0})


@pytest.mark.parametrize(
    ("kind", "context", "limit", "longer"),
    [("yarn", 2048, 512, 2048), ("dynamic", 512, 512, 2048), ("yarn", 2048, 256, 256), ("yarn", 2048, 131072, 131072)],
)
def test_the_limit_of_the_tokenizer_follows_the_context(kind: str, context: int, limit: int, longer: int) -> None:
    """The tokenizer's limit of length grows with the context. A limit that was below the old context was set on
    purpose, so it does not change.
    """
    tokenizer = SimpleNamespace(model_max_length=limit)
    lengthen(tokenizer, context, {**YARN, "rope_type": kind})
    assert tokenizer.model_max_length == longer


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (config(rope_scaling={"type": "linear", "factor": 2.0}), "scaled already"),
        (config(rope_parameters={"rope_type": "llama3"}), "scaled already"),
        (config(rope_parameters={"full_attention": {"rope_type": "default"}}), "cannot be scaled"),
        (SimpleNamespace(rope_scaling=None), "cannot be scaled"),
        (config(), "cannot be scaled"),
    ],
)
def test_models_that_cannot_be_scaled_are_refused(found: Any, reason: str) -> None:
    with pytest.raises(RunError, match=reason):
        scale(found, YARN, "tiny")
