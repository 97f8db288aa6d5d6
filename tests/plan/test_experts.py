"""Mixtures of experts with adapters or a quantized base: the plan counts the parameters and weights that the libraries
of each stack create.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forks import printed
from interpreters import DEFAULT
from tiers import EACH_STACK

from xpc.compiler import stacks
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.plan import packed_bytes
from xpc.compiler.plan.experiment import Plan, plan
from xpc.compiler.registry import find_model
from xpc.compiler.registry.architecture import facts_from_config
from xpc.compiler.registry.linear_layers import lora_parameters
from xpc.compiler.stacks.fused_experts import adapter_layers, expert_parameters, stacked

SIZES = {
    "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128, "head_dim": 16, "max_position_embeddings": 256,
    "num_experts_per_tok": 2,
}  # fmt: skip
CONFIGS = {
    "qwen3_moe": {**SIZES, "num_experts": 4, "moe_intermediate_size": 48},
    "mixtral": {**SIZES, "num_local_experts": 4},
    "gpt_oss": {**SIZES, "num_local_experts": 4},
}
LAYERS = {"qwen3_moe": ("gate_proj", "up_proj", "down_proj"), "mixtral": ("w1", "w2", "w3")}
STACKED = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
PROGRAM = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import peft, transformers
for family, keys, targets, parameters in json.load(sys.stdin):
    try:
        config = transformers.AutoConfig.for_model(family, **keys)
        named = {"target_parameters": parameters} if parameters else {}
        adapters = peft.LoraConfig(r=8, target_modules=targets, task_type="CAUSAL_LM", **named)
        model = peft.get_peft_model(transformers.AutoModelForCausalLM.from_config(config), adapters)
        print(json.dumps(sum(one.numel() for one in model.parameters() if one.requires_grad)))
    except (ValueError, TypeError) as error:
        print(json.dumps(str(error)[:80]))
"""


def families_to_adapt() -> list[tuple[str, object, tuple[str, ...]]]:
    """Tuples of a model family, target modules, and parameters to adapt. At least one stack can make these adapters."""
    found: list[tuple[str, object, tuple[str, ...]]] = [(family, "all-linear", ()) for family in CONFIGS]
    found += [(family, ("q_proj", *names), ()) for family, names in LAYERS.items()]
    found += [("qwen3_moe", ("q_proj", "v_proj", "gate"), ()), ("mixtral", ("q_proj", "k_proj"), ())]
    return [*found, ("gpt_oss", ("q_proj",), STACKED), ("qwen3_moe", ("q_proj",), STACKED)]


@pytest.mark.slow
@pytest.mark.parametrize("stack", EACH_STACK)
def test_adapters_have_the_parameters_that_peft_makes(stack: str, tmp_path: Path) -> None:
    """If target modules name the projections of stacked experts, the fused gate and up projection gets a single adapter
    with twice the rank.
    """
    lines = [
        (family, CONFIGS[family], targets if isinstance(targets, str) else list(targets), list(named))
        for family, targets, named in families_to_adapt()
    ]
    output = printed(stack, tmp_path, PROGRAM, given=json.dumps(lines))
    real = [json.loads(line) for line in output.splitlines() if line[:1].isdigit() or line[:1] == '"']
    assert len(real) == len(lines)
    known, seen = stacks.load(stack), 0
    assert known is not None
    for (family, targets, named), trained in zip(families_to_adapt(), real, strict=True):
        facts = facts_from_config({"model_type": family, **CONFIGS[family]}, family, family)
        if isinstance(trained, str):
            continue  # this stack does not have the family, or peft does not have the argument
        layers, merged = adapter_layers(known, facts, targets, named)
        if named and not stacked(known, facts):
            continue  # a rule refuses `parameters` if the experts are not stacked
        assert lora_parameters(facts, 8, layers) == trained, (family, targets, named)
        mlp = named or targets == "all-linear" or (isinstance(targets, tuple) and set(LAYERS[family]) <= set(targets))
        assert bool(merged) == bool(stacked(known, facts) and mlp and (family != "gpt_oss" or named))
        seen += 1
    assert seen >= 6


def test_adapters_on_the_experts_of_gpt_oss_have_a_plan() -> None:
    """all-linear finds no experts in gpt-oss; `parameters` adapts them, as XP600 proposes."""
    text = "xpc 1\ntrain gpt-oss-20b on multilingual-thinking for 1 epochs\nhardware 1 x h200-141gb\nprecision bf16\n"
    text += f"lora(parameters=[{', '.join(STACKED)}])\nmodel(dtype=bf16)\nbatch gbs=8 micro=1 seq=1024\n"
    found = check_text(text.encode(), "t.xp", Workspace("."))
    assert found.spec is not None, [one.message for one in found.problems]
    held = plan(found.spec).memory
    assert held is not None
    assert held.phases["forward"]["merged experts"] > 2 * 2 * 32 * 3 * 2880 * 2880


def test_experts_are_most_of_a_mixture() -> None:
    facts = find_model("qwen3-30b-a3b")
    assert facts is not None
    assert expert_parameters(facts) == 48 * 128 * 3 * 2048 * 768


SPEC = """xpc 1
train qwen3-30b-a3b on infinity-instruct:0625 for 1 epochs
hardware 1 x {gpu}
{more}
precision bf16
batch gbs=8 micro=1 seq=1024
save "out"
"""


def planned(more: str, gpu: str = "h100-80gb") -> Plan:
    found = check_text(SPEC.format(more=more, gpu=gpu).encode(), "t.xp", Workspace(".", allow_oom=True))
    assert found.spec is not None, [one.message for one in found.problems]
    return plan(found.spec)


def test_experts_that_are_not_linear_layers_are_not_packed() -> None:
    """bitsandbytes quantizes only linear layers. If transformers keeps all experts in one tensor, 28.9 of the 30.5
    billion weights stay in bf16. These are too many for a GPU of 40 GiB.
    """
    adapters = "qlora(targets=[q_proj, v_proj])"
    whole, packed = planned(adapters, "a100-40gb"), planned(f"{adapters}\ntarget trl-0.24", "a100-40gb")
    assert whole.memory is not None
    assert packed.memory is not None
    facts = find_model("qwen3-30b-a3b")
    assert facts is not None
    experts = expert_parameters(facts)
    more = whole.memory.phases["load"]["weights"] - packed.memory.phases["load"]["weights"]
    assert more == pytest.approx((2 - packed_bytes(4, True)) * experts, rel=1e-3)
    assert (whole.verdict, packed.verdict) == ("no", "fits")


def test_adapters_of_a_stack_of_experts_hold_a_copy_of_it() -> None:
    """For adapters on stacked experts, PEFT makes a copy of the experts with the adapters merged in. With
    recomputation, only one layer's copy exists at a time; without it, the copies of all layers do.
    """
    held = planned("lora(rank=8)\nmodel(dtype=bf16)\nmemory(checkpointing)").memory
    every = planned("lora(rank=8)\nmodel(dtype=bf16)\nmemory(checkpointing=false)").memory
    none = planned("lora(rank=8, targets=[q_proj, v_proj])\nmodel(dtype=bf16)\nmemory(checkpointing)").memory
    assert held is not None
    assert every is not None
    assert none is not None
    copy = 2 * 128 * 3 * 2048 * 768
    assert copy < held.phases["forward"]["merged experts"] < 1.2 * copy
    assert every.phases["forward"]["merged experts"] == pytest.approx(48 * held.phases["forward"]["merged experts"])
    assert "merged experts" not in none.phases["forward"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "attention", "parameters"),
    [("qwen3_moe", "sdpa", ()), ("mixtral", "sdpa", ()), ("gpt_oss", "eager", STACKED)],
)
@pytest.mark.parametrize("precision", ["bf16", "amp"])
def test_adapted_experts_keep_what_the_plan_counts(
    family: str, attention: str, parameters: tuple[str, ...], precision: str
) -> None:
    """The plan's bytes for the merged copy of the experts are exact. Its bytes for the adapters are an upper bound."""
    oracle = pytest.importorskip("oracle")
    mode, known = f"lora-all/{precision}/{attention}", stacks.load(DEFAULT)
    assert known is not None
    for shape, rank in (((256, 128, 4, 2, 64, 16, 2), 4), ((192, 256, 6, 3, 32, 8, 2), 8)):
        one, two, three = oracle.measure(family, shape, rank, {mode: oracle.modes(family)[mode]})[mode]
        linear, quadratic = oracle.growth([one, two, three])
        fixed = one - linear * oracle.LENGTHS[0] - quadratic * oracle.LENGTHS[0] ** 2
        facts = oracle.facts(family, shape, 2)
        layers, merged = adapter_layers(known, facts, "all-linear", parameters)
        adapters = lora_parameters(facts, rank, layers) / facts.layers
        counted = adapters * (2 if precision == "bf16" else 6)
        copies = 2 * merged * (2 if parameters else 1)
        assert copies <= fixed <= copies + 1.1 * counted, (shape, fixed - copies, counted)
