"""With `lora { within }`, adapters are added only inside of one module of the model."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.slow


def test_adapters_stand_inside_of_one_module() -> None:
    import torch
    from peft import LoraConfig, get_peft_model

    from xpc.runtime.features.model.adapters import _inside_module

    def tower() -> torch.nn.Module:
        return torch.nn.ModuleDict({"q_proj": torch.nn.Linear(2, 2), "up_proj": torch.nn.Linear(2, 2)})

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.language_model, self.visual = tower(), tower()
            self.config: dict[str, object] = {}

    pattern = _inside_module("language_model", ["q_proj"])
    made = get_peft_model(Model(), LoraConfig(target_modules=pattern))
    found = {re.sub(r"^base_model\.model\.", "", name) for name, one in made.named_modules() if hasattr(one, "lora_A")}
    assert found == {"language_model.q_proj"}
