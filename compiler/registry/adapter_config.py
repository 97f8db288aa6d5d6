"""Read the settings of an adapter, such as `lora` or `oft`, from peft's adapter_config.json."""

from __future__ import annotations

from collections.abc import Mapping

SHAPES = {
    "LORA": {
        "rank": "r", "alpha": "lora_alpha", "dropout": "lora_dropout", "rslora": "use_rslora", "dora": "use_dora",
        "targets": "target_modules", "parameters": "target_parameters", "modules_to_save": "modules_to_save",
    },
    "OFT": {
        "rank": "r", "block_size": "oft_block_size", "dropout": "module_dropout", "targets": "target_modules",
        "modules_to_save": "modules_to_save",
    },
    "VERA": {
        "rank": "r", "dropout": "vera_dropout", "targets": "target_modules", "modules_to_save": "modules_to_save",
    },
    "LOHA": {"rank": "r", "alpha": "alpha", "targets": "target_modules", "modules_to_save": "modules_to_save"},
    "MISS": {
        "rank": "r", "dropout": "miss_dropout", "targets": "target_modules", "modules_to_save": "modules_to_save",
    },
}  # fmt: skip
"""For each kind of adapter (`peft_type`), a map from xpc's settings to keys of adapter_config.json, such as `rank` to
`r`.
"""
COUNTS = {"rank", "block_size"}


def stated(config: Mapping[str, object], name: str) -> object:
    """The value that an adapter_config.json states for an xpc setting such as `rank`. None if the file lacks the value,
    or if the value has a wrong type.
    """
    theirs = SHAPES[str(config["peft_type"])].get(name)
    found = None if theirs is None else config.get(theirs)
    if name in ("targets", "parameters", "modules_to_save"):
        if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
            return found if found == "all-linear" and name == "targets" else None
        return tuple(sorted(found)) or None
    if name in ("rslora", "dora"):
        return found if isinstance(found, bool) else None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= 2**31:
        return None
    if name in COUNTS:
        return found if isinstance(found, int) and found else None
    return float(found)
