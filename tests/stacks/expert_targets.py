"""With a stack's libraries, add adapters to tiny mixtures of experts: `python expert_targets.py CASES FOLDER`.

CASES is a JSON list of [family, targets, within]. The program writes each family's config.json below FOLDER. For each
case it prints the runtime's findings about the adapters that PEFT makes, or PEFT's own error, and the adapted modules.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "proof"), os.path.dirname(os.path.dirname(HERE))]


def made(family: str, targets: Any, within: str | None, adapters: Any) -> dict[str, Any]:
    """Return a mapping with two lists. `wrong` has the messages with which the run would stop (none if it would start).
    `adapted` has the paths of the adapted modules, with N instead of numbers.
    """
    import re

    import torch
    from peft import LoraConfig, get_peft_model
    from tiny_models import config
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config(family))
    plan = {"targets": targets, "within": within, "kind": "lora", "rank": 2, "parameters": None,
            "modules_to_save": None, "adapter_dtype": None}  # fmt: skip
    names = adapters._inside_module(within, targets) if within else targets
    try:
        built = get_peft_model(model, LoraConfig(r=2, target_modules=names, task_type="CAUSAL_LM"))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return {"wrong": [f"{type(error).__name__}: {str(error)[:100]}"], "adapted": []}
    wrong = [f"{what} is {found}" for what, stated, found in adapters.built(plan, built) if found != stated]
    layers = [name for name, one in built.named_modules() if isinstance(getattr(one, "r", None), dict)]
    paths = {re.sub(r"\.\d+(?=\.|$)", ".N", one.replace(".base_layer", "")) for one in layers}
    return {"wrong": wrong, "adapted": sorted(one.removeprefix("base_model.model.") for one in paths)}


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    from tiny_models import config

    from runtime.features.model import adapters  # a stack's interpreter has no xpc

    with open(sys.argv[1], encoding="utf-8") as handle:
        cases = json.load(handle)
    for family in {one[0] for one in cases}:
        config(family).save_pretrained(os.path.join(sys.argv[2], family))
    print(json.dumps([made(*one, adapters) for one in cases]))
