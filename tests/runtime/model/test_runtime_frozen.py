"""The runtime freezes all weights except those that the bundle names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from xpc.runtime.core.errors import RunError
from xpc.runtime.features.model import frozen_weights

if TYPE_CHECKING:
    from layered import Model

pytestmark = pytest.mark.slow


def model(tied: bool = False) -> Model:
    pytest.importorskip("torch")
    from layered import Model

    return Model(tied)


def trained(made: Model | None = None, method: str = "sft", arguments: Any = None, **plan: Any) -> set[str]:
    """Freeze a model as this plan states; return the names of the weights that remain trainable."""
    made = made or model()
    empty = dict.fromkeys(("last", "first", "layer_modules", "modules", "parameters"))
    bundle = SimpleNamespace(
        plan={"freeze": {**empty, **plan}, "method": {"name": method, "scores": method == "reward"}},
        arguments=arguments or {},
    )
    frozen_weights.freeze(bundle, made)  # type: ignore[arg-type]
    return {name.removesuffix(".weight").removeprefix("model.") for name, one in made.named_parameters()
            if one.requires_grad}  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "wanted"),
    [
        ({"last": 1}, {"layers.2.attn", "layers.2.mlp"}),
        ({"first": 1}, {"layers.0.attn", "layers.0.mlp"}),
        ({"first": 1, "last": 1, "layer_modules": ["mlp"]}, {"layers.0.mlp", "layers.2.mlp"}),
        ({"modules": ["norm", "lm_head"]}, {"norm", "lm_head"}),
        ({"last": 1, "layer_modules": ["attn"], "modules": ["embed"]}, {"layers.2.attn", "embed"}),
        ({"parameters": [r"model.layers.[01].mlp", "^lm_head.weight$"]}, {"layers.0.mlp", "layers.1.mlp", "lm_head"}),
        ({"last": 9, "layer_modules": ["mlp"]}, {f"layers.{i}.mlp" for i in range(3)}),
    ],
)
def test_what_is_named_is_trained(plan: dict[str, Any], wanted: set[str]) -> None:
    assert trained(**plan) == wanted


def test_a_weight_of_two_modules_is_trained_where_one_is_named() -> None:
    assert trained(model(tied=True), modules=["lm_head"]) == {"embed"}


def test_the_score_of_a_reward_model_is_always_trained() -> None:
    assert trained(method="reward", last=1) == {"layers.2.attn", "layers.2.mlp", "score"}


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        ({"modules": ["nrm"]}, "nrm"),
        ({"last": 1, "layer_modules": ["mlp", "moe"]}, "moe"),
        ({"parameters": ["x"]}, "x"),
    ],
)
def test_a_name_that_finds_nothing_is_reported(plan: dict[str, Any], name: str) -> None:
    with pytest.raises(RunError, match=f"`freeze` names '{name}', but no weight of this model has that name"):
        trained(**plan)


def test_a_model_without_a_list_of_layers_is_reported() -> None:
    made = model()
    made.model.layers.append(made.model.layers[0])
    with pytest.raises(RunError, match="finds no list of 3 layers in Model"):
        trained(made, last=1)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({}, False),
        ({"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}, True),
        ({"activation_checkpointing": True, "activation_checkpointing_kwargs": {"use_reentrant": False}}, False),
    ],
)
def test_what_is_recomputed_the_older_way_gets_gradients(arguments: dict[str, Any], wanted: bool) -> None:
    made = model()
    trained(made, arguments=arguments, last=1)
    assert made.inputs_have_gradients is wanted
