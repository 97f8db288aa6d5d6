"""If a setting of an adapter or of `freeze` names a module, the model must have this module; otherwise the spec is
refused.
"""

from __future__ import annotations

import re

import pytest
from case_support import spec
from compile_support import checked, errors, shown

from xpc.compiler.rules.adapters.module_names import absent


def test_no_name_is_absent_where_the_modules_are_not_known() -> None:
    found = {}
    for model in ("qwen3-30b-a3b", "qwen2.5-0.5b"):
        one = checked(spec("lora", train=f"{model} on infinity-instruct for 1 epochs")).spec
        assert one is not None
        found[model] = absent(one, ("q_proj", "no_such_module"))
    assert found == {"qwen3-30b-a3b": [], "qwen2.5-0.5b": ["no_such_module"]}


MOE = "qwen3-30b-a3b on infinity-instruct for 1 epochs"
DENSE = "qwen2.5-0.5b on infinity-instruct for 1 epochs"  # the model has 24 layers
REFUSED = [
    (DENSE, "lora(targets=[layers.24.self_attn.q_proj])", "XP455", "has no layer 24"),
    (DENSE, "lora(targets=[q_proj], within=model.layers.99)", "XP466", "has no layer 99"),
    (DENSE, "lora(modules_to_save=[layers.24.mlp])", "XP466", "has no layer 24"),
    (DENSE, "freeze(except_last=2, layer_modules=[layers.31.mlp])", "XP466", "has no layer 31"),
    (MOE, "lora(targets=[q_proj], parameters=[layers.48.mlp.experts.down_proj])", "XP468", "has no layer 48"),
    (MOE, "lora(modules_to_save=[mlp.gates])", "XP466", "has no module `mlp.gates`"),
    (MOE, "lora(targets=[q_proj], within=model.towers)", "XP466", "has no module `model.towers`"),
    (MOE, "lora(targets=[q_proj], parameters=[experts.w1])", "XP468", "has no parameter `experts.w1`"),
    (MOE, "lora(targets=[q_proj], parameters=[q_proj])", "XP468", "has no parameter `q_proj`"),
    (DENSE, "lora(targets=[q_proj], parameters=[mlp.weights.weight])", "XP468", "has no parameter"),
    (DENSE, "lora(targets=[q_proj], parameters=[self_attn.q_proj.weight])", "XP625", "its module has one already"),
    (DENSE, "lora(targets=[v_proj], parameters=[q_proj.bias])", "XP625", "cannot have an adapter"),
]
ACCEPTED = [
    (DENSE, "lora(targets=[layers.23.self_attn.q_proj])"),
    (DENSE, "lora(targets=[q_proj], within=model.layers.23)"),
    (DENSE, "lora(modules_to_save=[layers.23.mlp, embed_tokens])"),
    (DENSE, "lora(targets=[q_proj], parameters=[mlp.up_proj.weight])"),
    (MOE, "lora(modules_to_save=[mlp.gate, norm])"),
    (MOE, "lora(targets=[q_proj], parameters=[layers.47.mlp.experts.gate_up_proj])"),
]


@pytest.mark.parametrize(("train", "line", "code", "message"), REFUSED)
def test_modules_that_the_model_lacks_are_refused(train: str, line: str, code: str, message: str) -> None:
    found = checked(spec(quoted(line), train=train), allow_oom=True)
    assert [one.code for one in found.problems if one.severity == "error"] == [code], shown(found)
    assert message in shown(found)


@pytest.mark.parametrize(("train", "line"), ACCEPTED)
def test_modules_that_the_model_has_are_accepted(train: str, line: str) -> None:
    assert not errors(checked(spec(quoted(line), train=train), allow_oom=True))


def quoted(line: str) -> str:
    """The line, with each name that contains a dot in quotation marks."""
    return re.sub(r"(?<=[\[ =])([\w]+(?:\.\w+)+)", r'"\1"', line)


@pytest.mark.parametrize(
    "pattern",
    ["^lm_head.weight$", "model.layers.2[0-7].", "mod.l.layers", ".*mlp", "(model.)?layers", "models?.layers", "lm"],
)
def test_a_pattern_that_may_match_is_accepted(pattern: str) -> None:
    assert errors(checked(spec(f'freeze(except_parameters=["{pattern}"])', train=DENSE))) == []


@pytest.mark.parametrize("pattern", ["transformer.h.1", "h.1", "mlp.down_proj"])
def test_a_pattern_with_the_beginning_of_no_parameter_is_refused(pattern: str) -> None:
    assert errors(checked(spec(f'freeze(except_parameters=["{pattern}"])', train=DENSE))) == ["XP574"]
