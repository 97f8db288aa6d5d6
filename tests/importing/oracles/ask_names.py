"""Record the keys that axolotl accepts in a file and in a dataset's entry. The keys are read from the classes of
axolotl and of its plugins.

    python ask_names.py OUT.txt

Run it with the interpreter that has axolotl (`make oracles` installs it). OUT.txt has a name per line; keys of a
dataset begin with `datasets.`.
"""

from __future__ import annotations

import os
import sys

os.environ.update(AXOLOTL_DO_NOT_TRACK="1", HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
import importlib
import pkgutil
from types import ModuleType

import axolotl.integrations
from axolotl.utils.schemas import config, datasets
from pydantic import BaseModel

SETS = ("SFTDataset", "PretrainingDataset", "DPODataset", "KTODataset", "StepwiseSupervisedDataset")
"""axolotl's classes for an entry of the key `datasets`."""


def fields(model: type[BaseModel]) -> set[str]:
    """The names and aliases of a class's fields."""
    found = set(model.model_fields)
    for one in model.model_fields.values():
        found.update(str(name) for name in (one.alias, one.validation_alias) if name)
    return found


def plugins() -> list[ModuleType]:
    """The modules of axolotl's package that define the arguments of its plugins."""
    every = pkgutil.walk_packages(axolotl.integrations.__path__, "axolotl.integrations.")
    return [importlib.import_module(one.name) for one in every if one.name.endswith(".args")]


def main() -> None:
    """Write the names of all keys to the file `OUT.txt` of the command line."""
    names = fields(config.AxolotlConfigWCapabilities) | fields(config.AxolotlInputConfig)
    for module in plugins():
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, BaseModel) and one.__module__ == module.__name__:
                names |= fields(one)
    names |= {f"datasets.{name}" for kind in SETS for name in fields(getattr(datasets, kind))}
    with open(sys.argv[1], "w", encoding="utf-8") as handle:
        handle.write("".join(f"{one}\n" for one in sorted(names)))


if __name__ == "__main__":
    main()
