"""If the import reports a key as irrelevant, the key does not change the arguments with which the tool itself would
train. `make oracles` has recorded these arguments.

HARMLESS and OF_A_KEY list arguments that such a key may change nevertheless. For each, they state why the change does
not affect the result.
"""

from __future__ import annotations

import json
import os
import sys

import oracle_support
import pytest

from xpc.compiler.importing import keys

sys.path.append(oracle_support.FOLDER)

from irrelevant_cases import VALUES

MEGATRON = "it decides how Megatron computes, not the result"
"""The reason in keys.toml for Megatron's keys. Megatron is not installed, so no test runs a tool with them."""
IRRELEVANT = {
    tool: [
        key
        for key, why in keys.load(f"{tool}/keys.toml").column("irrelevant").items()
        if why != MEGATRON and not key.startswith("datasets.")
    ]
    for tool in ("axolotl", "llamafactory")
}
HARMLESS = {
    "include_num_input_tokens_seen": "reporting: tokens are counted",
    "ddp_find_unused_parameters": "the launch decides, and a gradient is the same",
    "torch_empty_cache_steps": "when memory that is free is given back",
    "dataloader_prefetch_factor": "how far workers read ahead",
    "sample_packing_efficiency": "an estimate of the steps of an epoch, which the rows decide",
}
"""Maps arguments of axolotl to the reason why they concern only the machine or the reports. A key that changes only
these arguments is irrelevant.
"""
OF_A_KEY = {
    # axolotl sets these arguments later, on Ray's workers
    "use_ray": {"batch_size", "fp16", "torch_dtype"},
    "gemma4_hybrid_attn_impl": {"attn_implementation", "multipack_real_batches", "sample_packing_drop_attention_mask"},
    # other attention kernels have the same result
}


def records(tool: str) -> dict[str, dict[str, object]]:
    with open(os.path.join(oracle_support.FOLDER, f"{tool}_irrelevant.jsonl"), encoding="utf-8") as handle:
        _, *lines = [json.loads(line) for line in handle]
    return {one["key"]: one for one in lines}


@pytest.mark.parametrize("tool", IRRELEVANT)
def test_the_tools_answer_does_not_depend_on_an_irrelevant_key(tool: str) -> None:
    known = records(tool)
    assert set(known) == set(IRRELEVANT[tool]) == set(VALUES[tool]), "make oracles"
    for key, one in known.items():
        assert "refused" not in one, one
        differs = one["differs"]
        assert isinstance(differs, list)
        assert not set(differs) - set(HARMLESS) - OF_A_KEY.get(key, set()), one
