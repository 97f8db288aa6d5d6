"""Find the families with latent attention that OFT cannot rotate, and the families with indexers that no gradient
reaches. The program runs in the interpreter of a stack and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "compiler", "preview", "rehearsal", "worker"))
SIZES = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
    "num_key_value_heads": 4, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 8,
}  # fmt: skip
LENGTH = 64
"""A sequence has this many tokens, more than an indexer selects. So the indexer decides which tokens attention reads.
"""


def tiny(family: str) -> Any:
    """A tiny model of a family with latent attention. None if the family has no latent attention, or if its model
    cannot be built.
    """
    import small_models
    import torch
    import transformers

    maker = transformers.CONFIG_MAPPING[family]
    known = small_models.names_of(maker)
    if "kv_lora_rank" not in known and "index_topk" not in known:
        return None
    sizes = {name: value for name, value in SIZES.items() if name in known}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(0)
    try:
        made = small_models.small_config(family, {}, vocab_size=256, **special, **sizes)
        return transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager").train()
    except Exception as error:
        print(f"{family}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return None


def passed(model: Any) -> str | None:
    """Run one forward and backward pass. Return the name of the exception that it raises; None if it raises none."""
    import torch

    ids = torch.randint(3, 200, (2, LENGTH))
    try:
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    except Exception as error:
        return type(error).__name__
    return None


def main() -> None:
    """Print three values for each family with latent attention: whether a tiny model trains, the exception with OFT on
    `kv_b_proj`, and those parameters of indexers that get no gradient.
    """
    import peft
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as FAMILIES

    warnings.simplefilter("ignore")
    found = {}
    for family in sorted(FAMILIES):
        model = tiny(family)
        if model is None or passed(model) is not None:
            continue
        idle = [name for name, one in model.named_parameters() if one.grad is None and ".indexer." in name]
        rotations = peft.OFTConfig(r=0, oft_block_size=4, target_modules=["kv_b_proj"])
        layers = any(name.endswith("kv_b_proj") for name, _ in model.named_modules())
        oft = passed(peft.get_peft_model(model, rotations)) if layers else None
        found[family] = {"oft": oft, "layers": layers, "idle": idle}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
