"""Target modules on mixtures of experts: `xpc check` accepts exactly the targets that PEFT really adapts, and names
what is adapted.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from compile_support import checked
from forks import shared
from patience import HUNG
from stacks import REPOSITORY, environment

from xpc.compiler.stacks import DEFAULT, STACKS
from xpc.compiler.stacks.modules import EXPERTS, SHARED, modules, part

MLP = ["gate_proj", "up_proj", "down_proj"]
CASES: list[tuple[str, Any, str | None]] = [
    # models with a shared expert; PEFT does not accept the old names of the routed experts' layers
    ("qwen2_moe", MLP, None), ("qwen2_moe", ["q_proj", *MLP], None), ("qwen2_moe", "all-linear", None),
    ("qwen2_moe", ["shared_expert.gate_proj", "shared_expert.up_proj"], None), ("qwen2_moe", ["shared_expert"], None),
    ("qwen2_moe", ["gate"], None), ("qwen2_moe", ["mlp.down_proj"], None), ("qwen2_moe", ["experts.down_proj"], None),
    # models with a shared expert; PEFT accepts the old names of the routed experts' layers, and adapts the fused
    # parameters
    ("deepseek_v3", MLP, None), ("deepseek_v3", ["q_proj", "v_proj"], None), ("deepseek_v3", ["q_b_proj"], None),
    ("deepseek_v3", ["shared_experts.down_proj"], None), ("deepseek_v3", ["router"], None),
    ("deepseek_v3", ["o_proj", "w1"], None),
    # models without a shared expert
    ("qwen3_moe", MLP, None), ("qwen3_moe", "all-linear", None), ("qwen3_moe", ["gate_proj"], None),
    ("qwen3_moe", ["gate_up_proj"], None), ("qwen3_moe", ["layers.0.mlp.experts.down_proj"], None),
    ("qwen3_moe", ["q_proj", "down_proj"], "layers.1"), ("qwen3_moe", ["layers.1.self_attn.q_proj"], None),
    ("mixtral", ["w1", "w2", "w3"], None), ("mixtral", MLP, None), ("mixtral", ["gate"], None),
    ("olmoe", ["gate_proj", "up_proj"], None), ("olmoe", ["experts"], None),
    # families in which the experts of a layer are one parameter on every stack
    ("granitemoe", ["q_proj", "input_linear"], None), ("granitemoe", "all-linear", None),
]  # fmt: skip
"""28 cases. Each has the family, `targets` and `within` of a spec."""
SPEC = """\
xpc 1
train "{family}" on "rows.jsonl" for 2 steps
hardware cpu
strategy ddp
precision fp32
batch gbs=8 micro=2 seq=64
lora({lora})
save "out" every=never
target {target}
"""
NO_BALANCE = "extra trl { router_aux_loss_coef = 0.0 }\n"
"""The setting that a spec needs on stacks whose trainer requests a balancing loss from families that do not compute it.
"""


@pytest.mark.parametrize(
    "stack", [pytest.param(one, marks=pytest.mark.slow if one == DEFAULT else pytest.mark.nightly) for one in STACKS]
)
def test_check_accepts_the_targets_that_peft_adapts(stack: str, tmp_path: Path) -> None:
    known = [one for one in CASES if modules(stack, one[0])]
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps(known))
    words = [
        shared(stack).python,
        os.path.join(REPOSITORY, "tests", "stacks", "expert_targets.py"),
        str(cases),
        str(tmp_path),
    ]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False, timeout=HUNG)
    assert done.returncode == 0, done.stderr[-2000:]
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    wrong = []
    for (family, targets, within), made in zip(known, json.loads(done.stdout.splitlines()[-1]), strict=True):
        named = targets if isinstance(targets, str) else f"[{', '.join(targets)}]"
        more = "" if within is None else f", within={within}"
        text = SPEC.format(family=family, lora=f"targets={named}{more}, dropout=0", target=stack)
        text += NO_BALANCE if stack == DEFAULT else ""
        problems = checked(text, str(tmp_path)).problems
        errors = {one.code for one in problems if one.severity == "error"}
        if bool(errors) != bool(made["wrong"]):
            wrong.append((family, targets, within, made, sorted(errors)))
        if errors:
            continue
        parts = {part(path, "l") for path in made["adapted"]}
        reported = next((one for one in problems if one.code == "XP600"), None)
        if reported is not None and any(one in reported.message for one in parts):
            wrong.append((family, targets, within, made, [reported.message]))
        if "gate_proj" in targets and EXPERTS not in parts and (reported is None or reported.severity != "warning"):
            wrong.append((family, targets, within, made, ["no warning"]))
    assert wrong == []


SIZES = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 512, "num_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "kv_lora_rank": 16,
    "architectures": ["Any"],
}  # fmt: skip


def test_the_shared_expert_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    for family, config, without, severity in (
        ("qwen2_moe", {}, EXPERTS, "warning"),
        ("deepseek_v3", {"first_k_dense_replace": 0}, SHARED, "note"),
    ):
        (tmp_path / family).mkdir()
        (tmp_path / family / "config.json").write_text(json.dumps({"model_type": family, **SIZES, **config}))
        text = SPEC.format(family=family, lora=f"targets=[{', '.join(MLP)}]", target=DEFAULT)
        found = next(one for one in checked(text, str(tmp_path)).problems if one.code == "XP600")
        assert found.message == f"the adapters of {family} are not on {without}"
        assert found.severity == severity
        if severity == "warning":
            assert found.help == "`parameters = [gate_up_proj, down_proj]` adapts the experts"
            fixed = text.replace("down_proj])", "down_proj], parameters=[gate_up_proj, down_proj])")
            assert not {"XP600", "XP468", "XP460"} & {one.code for one in checked(fixed, str(tmp_path)).problems}
