"""Record the arguments with which torchtune would train its own files, on a CPU without a network.

python ask_torchtune.py OUT.jsonl

Run it with the interpreter that has torchtune (`make oracles` installs it). Each file's components are built as the
recipe builds them, with two exceptions: the model is on the meta device, and the optimizer and the schedule have a
single parameter. OUT.jsonl has a line for each file, with the file's keys, the recipe that torchtune's registry names
for the file, and the arguments of the components.
"""

from __future__ import annotations

import inspect
import os
import sys
from importlib.metadata import version
from typing import Any

import torch
import torchtune
import yaml
from answers import plain, write
from omegaconf import OmegaConf
from torchtune import _recipe_registry, config
from torchtune.config._utils import _get_component_from_path
from torchtune.modules.peft import LoRALinear

STEPS = 1000
AT = (0, 1, 50, 100, 500, 999)
"""The learning rate is recorded at these steps of a run of STEPS steps."""
WANTED = ("torch", "torchao", "torchtune")


def made_with(part: Any) -> dict[str, Any]:
    """The arguments with which a component is built: the values that the file states, and defaults for all other
    arguments.
    """
    requested = inspect.signature(_get_component_from_path(part["_component_"])).parameters
    usual = {key: plain(one.default) for key, one in requested.items() if one.default is not inspect.Parameter.empty}
    return {**usual, **OmegaConf.to_container(part)}


def optimizer(table: Any) -> dict[str, Any]:
    """The optimizer's hyperparameters, and the learning rate at each of the steps AT, as a share of `lr`."""
    made = config.instantiate(table.optimizer, [torch.nn.Parameter(torch.zeros(2, 2))])
    output = {
        key: plain(one) for key, one in made.defaults.items() if key in ("lr", "betas", "eps", "weight_decay", "fused")
    }
    rates = [1.0] * len(AT)
    if table.get("lr_scheduler") is not None:
        schedule = config.instantiate(table.lr_scheduler, made, num_training_steps=STEPS, last_epoch=-1)
        rates = [schedule.lr_lambdas[0](step) for step in AT]
    return {**output, "class": type(made).__name__, "rates": rates}


def adapter(part: Any) -> dict[str, Any] | None:
    """The adapter's hyperparameters, and the modules of a layer that get an adapter. A module is named by the last part
    of its name.
    """
    output = made_with(part)
    if "lora_rank" not in output:
        return None
    whole = {key: one for key, one in output.items() if key != "quantize_base"}
    with torch.device("meta"):
        model = config.instantiate(OmegaConf.create({**whole, "quantize_base": False}))
    found = {name: one for name, one in model.named_modules() if hasattr(one, "lora_a")}
    one = next(iter(found.values()))
    rank = one.lora_a.out_features
    return {
        "modules": sorted({name.rpartition(".")[2] for name in found}),
        "rank": rank,
        "alpha": one.alpha if isinstance(one, LoRALinear) else one.scaling * rank,
        "dropout": getattr(one.dropout, "p", 0.0),
        "dora": not isinstance(one, LoRALinear),
        "bits": 4 if output["quantize_base"] else None,
    }


def one_layer() -> None:
    """Build every model with a single layer. This is enough, because all layers have the same modules."""
    for name, module in list(sys.modules.items()):
        if not (name.startswith("torchtune.models.") and name.endswith("._model_builders")):
            continue
        for key, made in list(vars(module).items()):
            built = inspect.isfunction(made) and made.__module__.endswith("_component_builders")
            if built and "num_layers" in inspect.signature(made).parameters:
                setattr(module, key, _shortened(made))


def _shortened(made: Any) -> Any:
    def short(*given: Any, **named: Any) -> Any:
        return made(*given, **{**named, "num_layers": 1})

    return short


def ask(path: str) -> dict[str, Any]:
    """The components and arguments with which torchtune would train one file."""
    table = OmegaConf.load(path)
    if "optimizer" not in table:
        return {}
    found = {"optimizer": optimizer(table), "loss": made_with(table.loss)}
    if "model" in table:
        found["adapter"] = adapter(table.model)
    parts = table.dataset if OmegaConf.is_list(table.get("dataset")) else [table.dataset] if "dataset" in table else []
    found["dataset"] = [made_with(one) for one in parts]
    found["tokenizer"] = made_with(table.tokenizer) if "tokenizer" in table else {}
    return found


def main() -> None:
    """Record torchtune's settings for every file that ships with it, or the reason why the file fails."""
    folder = os.path.join(os.path.dirname(os.path.dirname(torchtune.__file__)), "recipes", "configs")
    runs = {one.file_path: each.name for each in _recipe_registry._ALL_RECIPES for one in each.configs}
    lines = []
    one_layer()
    for location, _, names in sorted(os.walk(folder)):
        for name in sorted(one for one in names if one.endswith(".yaml")):
            path = os.path.join(location, name)
            short = os.path.relpath(path, folder)
            with open(path, encoding="utf-8") as handle:
                written = yaml.safe_load(handle)
            try:
                found = ask(path)
            except Exception as error:
                found = {"refused": f"{type(error).__name__}: {error}"[:400]}
            lines.append({"file": short, "recipe": runs.get(short), "written": written, **found})
            print(short, found.get("refused", "asked"), flush=True)
    head = {"tool": "torchtune", "versions": {one: version(one) for one in WANTED}, "at": AT, "steps": STEPS}
    write(sys.argv[1], head, lines)


if __name__ == "__main__":
    main()
