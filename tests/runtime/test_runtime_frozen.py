"""Which weights of a model are trained where the bundle freezes the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xpc.runtime import frozen
from xpc.runtime.errors import RunError

torch = pytest.importorskip("torch")


class Layer(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.attn = torch.nn.Linear(2, 2, bias=False)
        self.mlp = torch.nn.Linear(2, 2, bias=False)


class Model(torch.nn.Module):  # type: ignore[misc]
    """Three layers between embeddings and a head that may be the same weight."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(num_hidden_layers=3))
        self.model = torch.nn.Module()
        self.model.embed = torch.nn.Embedding(5, 2)
        self.model.layers = torch.nn.ModuleList(Layer() for _ in range(3))
        self.model.norm = torch.nn.LayerNorm(2, bias=False)
        self.lm_head = torch.nn.Linear(2, 5, bias=False)
        self.score = torch.nn.Linear(2, 1, bias=False)
        self.inputs_have_gradients = False
        if tied:
            self.lm_head.weight = self.model.embed.weight

    def enable_input_require_grads(self) -> None:
        self.inputs_have_gradients = True


def trained(model: Model | None = None, method: str = "sft", arguments: Any = None, **plan: Any) -> set[str]:
    """The names of the weights that are trained."""
    made = model or Model()
    empty = dict.fromkeys(("last", "first", "layer_modules", "modules", "parameters"))
    frozen.freeze(SimpleNamespace(frozen={**empty, **plan}, method=method, arguments=arguments or {}), made)  # type: ignore[arg-type]
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
    assert trained(Model(tied=True), modules=["lm_head"]) == {"embed"}


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
def test_a_name_that_finds_nothing_is_told(plan: dict[str, Any], name: str) -> None:
    with pytest.raises(RunError, match=f"`freeze` names '{name}', and this model has no weight there"):
        trained(**plan)


def test_a_model_without_a_list_of_layers_is_told() -> None:
    model = Model()
    model.model.layers.append(Layer())
    with pytest.raises(RunError, match="finds no list of 3 layers in Model"):
        trained(model, last=1)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({}, False),
        ({"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}, True),
        ({"activation_checkpointing": True, "activation_checkpointing_kwargs": {"use_reentrant": False}}, False),
    ],
)
def test_what_is_recomputed_the_older_way_gets_gradients(arguments: dict[str, Any], wanted: bool) -> None:
    model = Model()
    trained(model, arguments=arguments, last=1)
    assert model.inputs_have_gradients is wanted
