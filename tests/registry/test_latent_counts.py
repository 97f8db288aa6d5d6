"""Models with latent attention (MLA): the registry counts the parameters of the model that each stack's transformers
builds on the meta device, and the parameters of the model's adapters.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forks import printed
from tiers import EACH_STACK

from xpc.compiler import stacks
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.plan.experiment import plan
from xpc.compiler.registry.architecture import facts_from_config
from xpc.compiler.registry.latent_attention import LATENT
from xpc.compiler.registry.linear_layers import lora_parameters
from xpc.compiler.stacks.fused_experts import adapter_layers

SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 128, "max_position_embeddings": 64, "kv_lora_rank": 24, "q_lora_rank": 40,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 20,
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 3,
           "n_group": 1, "topk_group": 1}  # fmt: skip
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"q_lora_rank": None},
    {"attention_bias": True, "tie_word_embeddings": True},
    {"tie_word_embeddings": False, "v_head_dim": 8, "num_hidden_layers": 4},
    {"first_k_dense_replace": 2, "mlp_layer_types": ["dense", "sparse", "sparse"]},
    {"first_k_dense_replace": 0, "n_shared_experts": 1},
)
PROGRAM = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import peft, torch, transformers
for family, keys in json.load(sys.stdin):
    try:
        config = transformers.AutoConfig.for_model(family, pad_token_id=0, **keys)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
        model.tie_weights()
        whole = sum(one.numel() for one in model.parameters())
        tuned = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
        print(json.dumps([whole, sum(one.numel() for one in tuned.parameters() if one.requires_grad)]))
    except (ValueError, TypeError, KeyError) as error:
        print(json.dumps([str(error)[:80], 0]))
"""


def configurations() -> list[tuple[str, dict[str, Any]]]:
    """Pairs: a family, and a configuration of this family. There is one pair for each change that is tested."""
    out = []
    for family in LATENT:
        experts = {} if family in ("minicpm3", "youtu") else EXPERTS
        out += [(family, {**SIZES, **experts, **change}) for change in CHANGES]
    return out


@pytest.mark.slow
@pytest.mark.parametrize("stack", EACH_STACK)
def test_latent_attention_has_the_parameters_that_are_counted(stack: str, tmp_path: Path) -> None:
    given, known, seen = configurations(), stacks.load(stack), set()
    assert known is not None
    output = printed(stack, tmp_path, PROGRAM, given=json.dumps(given))
    real = [json.loads(line) for line in output.splitlines() if line.startswith("[")]
    assert len(real) == len(given)
    for (family, keys), (whole, trained) in zip(given, real, strict=True):
        facts = facts_from_config({"model_type": family, **keys}, family, family)
        if isinstance(whole, str):
            # the stack lacks the family; or it has transformers 4.52, in which queries always have a low rank
            assert known.lacks_family(family) or keys["q_lora_rank"] is None, (family, whole)
            continue
        assert facts.params == whole, (family, keys)
        layers, _ = adapter_layers(known, facts, "all-linear")
        assert lora_parameters(facts, 4, layers) == trained, (family, keys)
        seen.add(family)
    assert seen == {family for family in LATENT if not known.lacks_family(family)}


SPEC = """xpc 1
train "model" on infinity-instruct:0625 for 1 epochs
hardware 1 x h100-80gb
{more}
precision bf16
batch gbs=8 micro=1 seq=1024
save "out"
"""
YOUTU = {
    "model_type": "youtu", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 131072,
}  # fmt: skip


def planned(folder: Path, config: dict[str, Any], more: str) -> Any:
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    found = check_text(SPEC.format(more=more).encode(), "t.xp", Workspace(str(folder), allow_oom=True))
    assert found.spec is not None, [one.message for one in found.problems]
    return plan(found.spec)


def test_a_dense_model_with_latent_attention_has_a_plan(tmp_path: Path) -> None:
    """Full training in bf16 with fp32 weights holds 16 bytes for each of the 1.96 billion parameters of Youtu-LLM-2B,
    and adapters hold far less.
    """
    full = planned(tmp_path, YOUTU, "model(dtype=fp32)").memory
    facts = facts_from_config(YOUTU, "youtu", "youtu")
    assert facts.params == 1_961_560_064
    assert 16 * facts.params < full.peak < 25 * facts.params
    assert planned(tmp_path, YOUTU, "lora").memory.peak < full.peak / 2


def test_a_mixture_with_latent_attention_has_a_plan(tmp_path: Path) -> None:
    """DeepSeek V2 Lite has 15.7 billion parameters. In bf16, training with adapters on all linear layers fits on a GPU
    of 80 GiB, and full training does not.
    """
    config = {
        "model_type": "deepseek_v2", "vocab_size": 102400, "hidden_size": 2048, "intermediate_size": 10944,
        "num_hidden_layers": 27, "num_attention_heads": 16, "max_position_embeddings": 163840,
        "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
        "first_k_dense_replace": 1,
    }  # fmt: skip
    full = planned(tmp_path, config, "")
    assert full.memory.peak > 16 * 15.7e9
    assert full.verdict == "no"
    adapted = planned(tmp_path, config, "lora(targets=[q_proj, kv_b_proj, o_proj])\nmodel(dtype=bf16)")
    assert 2 * 15.7e9 < adapted.memory.peak < 2.6 * 15.7e9
    assert adapted.verdict == "fits"
