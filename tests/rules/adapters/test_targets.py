"""Which target modules an adapter may have, for mixtures of experts and for dense models. A table of modules for each
stack decides this.
"""

from __future__ import annotations

import pytest
from compile_support import checked_once, only

from xpc.compiler.stacks import STACKS
from xpc.compiler.stacks.modules import ends, modules, possible

HEAD = (
    "xpc 1\ntrain {model} on infinity-instruct for 1 epochs\nhardware 8 x h100-80gb\nstrategy zero2\nprecision bf16\n"
)
BAD = (
    ("qwen3-30b-a3b", "w1, w2, w3"), ("qwen3-30b-a3b", "q_proj, w1"), ("qwen3-30b-a3b", "q_proj, c_attn"),
    ("qwen3-30b-a3b", "gate_up_proj"), ("qwen3-30b-a3b", "q_proj, gate_up_proj"), ("qwen3-30b-a3b", "experts"),
    ("qwen3-30b-a3b", "query_key_value"), ("qwen3-30b-a3b", "q_proj, router"), ("qwen3-30b-a3b", "attn.q_proj"),
    ("qwen3-30b-a3b", "q_proj, fc1"), ("qwen3-30b-a3b", "self_attn"), ("qwen3-30b-a3b", "Q_PROJ"),
    ("mixtral-8x7b-v0.1", "q_proj, up_proj"), ("mixtral-8x7b-v0.1", "gate_proj, up_proj, down_proj"),
    ("mixtral-8x7b-v0.1", "block_sparse_moe"), ("mixtral-8x7b-v0.1", "q_proj, dense"),
)  # fmt: skip
GOOD = (
    ("qwen3-30b-a3b", "q_proj, k_proj, v_proj, o_proj"), ("qwen3-30b-a3b", "gate_proj, up_proj, down_proj"),
    ("qwen3-30b-a3b", "q_proj, gate"), ("qwen3-30b-a3b", "self_attn.q_proj"),
    ("qwen3-30b-a3b", "layers.3.self_attn.q_proj"),
    ("mixtral-8x7b-v0.1", "w1, w2, w3"), ("mixtral-8x7b-v0.1", "q_proj, v_proj"),
)  # fmt: skip


def codes(model: str, targets: str, target: str, adapter: str = "lora") -> set[str]:
    text = HEAD.format(model=model) + f"batch gbs=64 micro=1 seq=512\n{adapter}(targets=[{targets}])\ntarget {target}\n"
    return {one.code for one in checked_once(text).problems}


@pytest.mark.parametrize("target", STACKS)
def test_targets_that_no_module_has_are_refused(target: str) -> None:
    old = {"gate_proj, up_proj, down_proj", "experts"}
    bad = [(model, names) for model, names in BAD if not (model.startswith("mixtral") and names in old)]
    assert [one for one in bad if "XP455" not in codes(*one, target)] == []


@pytest.mark.parametrize("target", STACKS)
def test_targets_of_the_model_are_accepted(target: str) -> None:
    assert [one for one in GOOD if "XP455" in codes(*one, target)] == []


def test_the_help_names_legal_targets() -> None:
    text = HEAD.format(model="qwen3-30b-a3b") + "batch gbs=64 micro=1 seq=512\nlora(targets=[q_proj, w1])\n"
    found = only(checked_once(text), "XP455")
    assert found.severity == "error"
    assert found.help == "write `targets = [q_proj]`"
    assert found.primary.text == "qwen3_moe has down_proj, gate_proj, up_proj, gate, k_proj, o_proj, q_proj, v_proj"


def test_rotations_do_not_reach_stacked_experts() -> None:
    assert "XP455" in codes("mixtral-8x7b-v0.1", "q_proj, w1", "trl-1.16", "oft")


@pytest.mark.parametrize("target", STACKS)
def test_every_registered_family_with_experts_is_in_the_table(target: str) -> None:
    for family in ("qwen2_moe", "qwen3_moe", "mixtral", "olmoe", "gpt_oss", "deepseek_v3", "granitemoe"):
        known = modules(target, family)
        assert known or target == "trl-0.18", family
        assert not known or ends("q_proj", known) or ends("q_b_proj", known)


@pytest.mark.parametrize(
    ("family", "mixer", "attention", "inside"),
    [
        ("lfm2", "conv", "full_attention", "conv"),
        ("granitemoehybrid", "mamba", "attention", "mamba"),
        ("qwen3_next", "linear_attention", "full_attention", "linear_attn"),
        ("qwen3_5_text", "linear_attention", "full_attention", "linear_attn"),
    ],
)
def test_a_model_has_the_mixers_of_its_layer_types(family: str, mixer: str, attention: str, inside: str) -> None:
    def found(*kinds: str) -> set[str]:
        paths = possible(STACKS[-1], family, {"layer_types": [*kinds]})
        return {name for name in ("self_attn", inside) if any(f".{name}." in path for path in paths)}

    assert found(mixer, mixer) == {inside}
    assert found(attention, attention) == {"self_attn"}
    assert found(mixer, attention) == {"self_attn", inside}
