"""The runtime compares the FSDP plugin that accelerate has built with the settings in accelerate.yaml. This works on
every stack.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from compile_support import compiled
from emitted import put
from method_runs import Warm
from tiers import nightly_but

from xpc.compiler.stacks import DEFAULT, STACKS, load

pytestmark = pytest.mark.slow

PROGRAM = """\
import json, os, sys
folder, changed = sys.argv[1], json.loads(sys.argv[2])
for name in [one for one in os.environ if one.startswith("FSDP_")]:
    del os.environ[name]
sys.path.insert(0, folder)
from trainer.features.distributed import fsdp
path = os.path.join(folder, "accelerate.yaml")
stated = fsdp.stated_settings(path)
os.environ.update({name.upper(): value.lower() for name, value in stated.items()})
os.environ.update({"FSDP_SYNC_MODULE_STATES": "false", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false", **changed})
from accelerate import FullyShardedDataParallelPlugin
from types import SimpleNamespace
plugin = FullyShardedDataParallelPlugin()
bundle = SimpleNamespace(inside=lambda name: os.path.join(folder, name))
trainer = SimpleNamespace(accelerator=SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)))
rows = list(fsdp.Fsdp().made(bundle, trainer))
trainer.accelerator.state.fsdp_plugin = None
off = list(fsdp.Fsdp().made(bundle, trainer))
print(json.dumps({"compared": [what for what, *_ in rows], "wrong": [row for row in rows if row[1] != row[2]],
                  "off": off}))
"""
LAYERS = """\
import json, os, sys
folder, family = sys.argv[1:]
sys.path.insert(0, folder)
import torch
from accelerate import FullyShardedDataParallelPlugin
from trainer.features.distributed.fsdp import Fsdp
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
os.environ.update({"FSDP_SYNC_MODULE_STATES": "false", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false"})
os.environ["FSDP_AUTO_WRAP_POLICY"] = "TRANSFORMER_BASED_WRAP"
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[family](num_hidden_layers=4))
try:
    FullyShardedDataParallelPlugin().set_auto_wrap_policy(model)
    error = ""
except ValueError as caught:
    error = str(caught)
Fsdp().model_loaded(None, model, None)
plugin = FullyShardedDataParallelPlugin()
plugin.set_auto_wrap_policy(model)
wrapped = sorted(kind.__name__ for kind in plugin.auto_wrap_policy.keywords["transformer_layer_cls"])
print(json.dumps({"error": error, "wrapped": wrapped}))
"""
SPEC = """\
xpc 1
train qwen2.5-0.5b-instruct on alpaca for 10 steps
hardware 2 x h100-80gb
strategy {strategy}(state_dict=full)
precision bf16
batch gbs=8 micro=2 seq=64
target {target}
"""
CHANGED = {
    "FSDP_STATE_DICT_TYPE": ("SHARDED_STATE_DICT", "fsdp_state_dict_type"),
    "FSDP_AUTO_WRAP_POLICY": ("NO_WRAP", "fsdp_auto_wrap_policy"),
    "FSDP_OFFLOAD_PARAMS": ("true", "fsdp_offload_params"),
    "FSDP_ACTIVATION_CHECKPOINTING": ("true", "fsdp_activation_checkpointing"),
    "FSDP_SHARDING_STRATEGY": ("SHARD_GRAD_OP", "fsdp_sharding_strategy"),
    "FSDP_RESHARD_AFTER_FORWARD": ("false", "fsdp_reshard_after_forward"),
}
STRATEGIES = [
    (target, one) for target in STACKS for one in ("fsdp1", "fsdp") if one == "fsdp1" or load(target).facts.fsdp2
]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Warm:
    return Warm(str(tmp_path_factory.mktemp("place")))


@pytest.mark.parametrize(("target", "strategy"), nightly_but(STRATEGIES, lambda one: one[0] == DEFAULT))
def test_a_plugin_of_other_settings_is_found(warm: Warm, target: str, strategy: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "run.bundle")
    put(folder, compiled(SPEC.format(strategy=strategy, target=target), str(tmp_path)))
    (same,) = warm.program(target, PROGRAM, folder, "{}")
    assert same["wrong"] == []
    assert same["off"] == [["the sharding of accelerate", "FSDP", "off"]]
    assert len(same["compared"]) >= 5
    other = "FSDP_RESHARD_AFTER_FORWARD" if strategy == "fsdp1" else "FSDP_SHARDING_STRATEGY"
    for variable, (value, name) in CHANGED.items():
        if variable == other:
            continue
        (found,) = warm.program(target, PROGRAM, folder, json.dumps({variable: value}))
        assert [row[0] for row in found["wrong"]] == [f"{name} of accelerate"], variable
        assert os.path.exists(folder)


@pytest.mark.parametrize(
    ("target", "family", "layer"),
    [
        ("trl-1.16", "qwen3_5_text", "Qwen3_5DecoderLayer"),
        ("trl-0.24", "gemma3_text", "Gemma3DecoderLayer"),
        ("trl-0.18", "gemma3_text", "Gemma3DecoderLayer"),
    ],
)
def test_only_layers_of_the_model_are_wrapped(warm: Warm, target: str, family: str, layer: str, tmp_path: Path) -> None:
    """The model's class also lists classes of a vision model, and accelerate raises an error about them."""
    folder = str(tmp_path / "run.bundle")
    put(folder, compiled(SPEC.format(strategy="fsdp1", target=target), str(tmp_path)))
    (seen,) = warm.program(target, LAYERS, folder, family)
    assert "Could not find the transformer layer class" in seen["error"]
    assert seen["wrapped"] == [layer]
