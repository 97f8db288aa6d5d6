"""The model's generation_config.json has sampling values, and the caller of `generate` passes other values. Print the
values with which `generate` really samples.

python sampled_as_stated.py FOLDER    # prints JSON: the values without and with the runtime's correction
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[3])
sys.path.insert(0, ROOT)

from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config, Qwen2ForCausalLM  # noqa: E402

from runtime.features.method import sampling  # noqa: E402

STATED = {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0}
OTHER = {"temperature": 0.6, "top_p": 0.5, "repetition_penalty": 1.3}


def sampled(model) -> dict[str, float]:
    """The values with which `generate` would really sample if it is called with the values STATED."""
    requested = GenerationConfig(do_sample=True, max_new_tokens=2, **STATED)
    prepared, _ = model._prepare_generation_config(requested)
    return {name: getattr(prepared, name) for name in STATED}


def main(folder: str) -> None:
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    made = Qwen2ForCausalLM(Qwen2Config(vocab_size=32, num_key_value_heads=2, **size))
    made.generation_config = GenerationConfig(do_sample=True, **OTHER)
    made.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    before = sampled(model)
    sampling.sample_as_stated(model)
    after = sampled(model)
    model.save_pretrained(os.path.join(folder, "again"))
    with open(os.path.join(folder, "again", "generation_config.json"), encoding="utf-8") as handle:
        kept = json.load(handle)
    with open(os.path.join(folder, "generation_config.json"), encoding="utf-8") as handle:
        first = json.load(handle)
    print(json.dumps({"before": before, "after": after, "same_file": kept == first}))


main(sys.argv[1])
