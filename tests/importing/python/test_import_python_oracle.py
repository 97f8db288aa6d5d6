"""Scripts run with a trainer that only records the arguments that it gets. On each stack, the bundle of the imported
script must have these values.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from forks import shared
from import_support import imported
from tiers import EACH_STACK

RUNNER = os.path.join(os.path.dirname(__file__), "recorded_arguments.py")
START = """
import os
from dataclasses import dataclass, field
import argparse
import datasets, torch, transformers, trl
from peft import LoraConfig
data = datasets.load_dataset("org/rows", split="train")
"""
SCRIPTS = {
    "literals": """
args = trl.SFTConfig(output_dir="out", learning_rate=3e-5, per_device_train_batch_size=2, max_steps=7, warmup_steps=2,
                     weight_decay=0.01, lr_scheduler_type="cosine", seed=5, save_steps=3, logging_steps=2, bf16=False)
trl.SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=data).train()
""",
    "argparse": """
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default="4e-5")
p.add_argument("--steps", type=int, default=9)
p.add_argument("--no-clip", action="store_true")
p.add_argument("--acc", default=3, type=int)
a = p.parse_args([])
args = trl.SFTConfig(output_dir=f"out-{a.steps}", learning_rate=a.lr, max_steps=a.steps, bf16=False,
                     max_grad_norm=0.0 if a.no_clip else 0.5, gradient_accumulation_steps=a.acc)
trl.SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=data).train()
""",
    "dataclass": """
@dataclass
class Base:
    lr: float = 1e-5
    epochs: int = 2
@dataclass
class Mine(Base):
    lr: float = 2e-5
    extra: dict = field(default_factory=lambda: {"adam_beta1": 0.8, "adam_beta2": 0.95})
    def __post_init__(self):
        self.micro = self.epochs * 2
c = Mine(epochs=3)
args = trl.SFTConfig("out", learning_rate=c.lr, num_train_epochs=c.epochs, per_device_train_batch_size=c.micro,
                     bf16=False, **c.extra)
trl.SFTTrainer("Qwen/Qwen2.5-0.5B", args, train_dataset=data).train()
""",
    "branches": """
MODE = os.environ.get("XPC_TEST_MODE", "small")
sizes = {"small": 1, "large": 8}
if MODE == "small":
    rate, steps = 1e-4, 11
elif MODE == "large":
    rate, steps = 1e-6, 12
def settings(rate, **more):
    out = dict(learning_rate=rate * 2, max_steps=steps)
    out.update(more)
    return out
try:
    import a_module_that_is_not_there
except ImportError:
    pass
args = trl.DPOConfig(output_dir="out", beta=0.3, bf16=False, **settings(rate, per_device_train_batch_size=sizes[MODE]))
trl.DPOTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=data, processing_class=None).train()
""",
    "changed": """
args = trl.SFTConfig(output_dir="out", bf16=False)
args.learning_rate = 5e-5
args.num_train_epochs = 4
for name, value in [("weight_decay", 0.2), ("seed", 9)]:
    setattr(args, name, value)
lora = LoraConfig(r=4, lora_alpha=2 * 4, lora_dropout=0.1, target_modules=["q_proj"], task_type="CAUSAL_LM")
trl.SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=data, peft_config=lora).train()
""",
    "pairs": """
BASE = 1e-6
common = {"output_dir": "out", "bf16": False}
args = trl.KTOConfig(**common, beta=0.05, desirable_weight=1.2, learning_rate=BASE * 5, max_steps=5)
trl.KTOTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=data, processing_class=None).train()
""",
    "defaults": """
args = trl.SFTConfig(output_dir="out", bf16=False)
trl.SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=data).train()
""",
}
COMPARED = (
    "learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "num_train_epochs",
    "weight_decay", "max_grad_norm", "adam_beta1", "adam_beta2", "adam_epsilon", "seed", "beta", "desirable_weight",
    "undesirable_weight", "max_length", "save_steps", "logging_steps", "warmup_steps", "output_dir", "bf16", "fp16",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("stack", EACH_STACK)
def test_bundles_have_the_values_of_the_running_scripts(stack: str, tmp_path: Any) -> None:
    python = shared(stack).python
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    different: dict[str, object] = {}
    paths = [tmp_path / f"{name}.py" for name in SCRIPTS]
    for path, body in zip(paths, SCRIPTS.values()):
        path.write_text(START + body)
    ran = subprocess.run(
        [python, RUNNER, *map(str, paths)], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    lines = [one for one in ran.stdout.splitlines() if one.startswith("{")]
    for (name, body), line in zip(SCRIPTS.items(), lines, strict=True):
        recorded = json.loads(line)
        theirs = next(one for key, one in recorded.items() if key != "LoraConfig")
        found = imported(START + body, "--target", stack, "--trl", stack.removeprefix("trl-"),
                         "--hardware", "1 x h100-80gb", name="train.py")  # fmt: skip
        assert not found.draft.wrong, found.messages
        ours = found.arguments
        different |= {
            f"{name}.{key}": (theirs[key], ours[key])
            for key in COMPARED
            if key in theirs and key in ours and theirs[key] != ours[key]
        }
        if "LoraConfig" in recorded:
            lora = recorded["LoraConfig"]
            different |= {key: (lora[key], found.text) for key in ("r", "lora_alpha", "lora_dropout")
                          if f"= {lora[key]:g}" not in found.text}  # fmt: skip
    assert not different
