"""The final folder of a run loads in plain transformers and peft of each stack, with the weights of the trainer's last
checkpoint.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from interpreters import methods_of
from method_runs import DATA, STEPS, Warm, small

from xpc.compiler.stacks import DEFAULT, STACKS

pytestmark = pytest.mark.slow

PROGRAM = """\
import json, sys
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
out, checkpoint, adapter = sys.argv[1:]
if adapter:
    from peft import PeftModel, get_peft_model_state_dict
    base = json.load(open(f"{out}/adapter_config.json"))["base_model_name_or_path"]
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), out)
    values, saved = get_peft_model_state_dict(loaded), load_file(f"{checkpoint}/adapter_model.safetensors")
else:
    loaded = AutoModelForCausalLM.from_pretrained(out)
    values, saved = loaded.state_dict(), load_file(f"{checkpoint}/model.safetensors")
ids = AutoTokenizer.from_pretrained(out)("What colour?", return_tensors="pt")["input_ids"]
finite = bool(torch.isfinite(loaded(input_ids=ids).logits).all())
different = [name for name in saved if not torch.equal(values[name].cpu(), saved[name])]
print(json.dumps({"tensors": len(saved), "different": different, "finite": finite}))
"""
LOADED = [
    (target, method, adapter)
    for target in STACKS
    for method in ("sft", "dpo")
    for adapter in ("", "lora")
    if target == DEFAULT or method in methods_of(target)
]


@pytest.mark.parametrize(("target", "method", "adapter"), LOADED)
def test_the_final_folder_loads_with_the_trained_weights(
    warm: Warm, tmp_path: Path, target: str, method: str, adapter: str
) -> None:
    save = f'save "out" every={STEPS}'
    text = small(f"method {method}", adapter, method=method, target=target, data=DATA[method], save=save)
    run = warm.train(text, f"loaded-{target}-{method}-{adapter}", target, str(tmp_path))
    checkpoint = os.path.join(run.out, f"checkpoint-{STEPS}")
    (found,) = warm.program(target, PROGRAM, run.out, checkpoint, adapter)
    assert found["tensors"] > 0, json.dumps(found)
    assert (found["different"], found["finite"]) == ([], True)
