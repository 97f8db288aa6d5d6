"""Guess a model's architecture from the name of its folder on another machine, so that the spec can be compiled on this
machine.
"""

from __future__ import annotations

import json
import re

from xpc.compiler import registry
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.registry.types import ModelFacts
from xpc.grammar.package_data import read_table

NEAREST = 3
"""The number of last parts of a path that are compared with names of models, because the name may not be the last part:
`qwen3-8b-sft/checkpoint-3000`.
"""


def adapter(draft: Draft, overrides: Overrides) -> None:
    """Warn if the run continues an adapter whose folder does not exist, and name the nearby YAML that writes it."""
    written = draft.settings.get("lora.from")
    folder = draft.value("lora.from").strip('"').rstrip("/\\")
    if written is not None and overrides.read(f"{folder}/adapter_config.json") is None:
        output = re.escape(re.sub(r"^\./|/checkpoint-\d+$", "", folder))
        line = re.compile(rf"""^(\w+):[ \t]*["']?(?:\./)?{output}/?["']?[ \t]*(?:#.*)?$""", re.MULTILINE)
        earlier = [name for name, text in overrides.configs() if line.findall(text) == ["output_dir"]]
        why = f"`{folder}` does not exist here, and `xpc compile` reads the adapter's shape from it"
        first = f"first run the spec of `{earlier[0]}`" if earlier else "put the folder next to the spec"
        draft.warn(written.entry, why, f"{first}, or leave the key out to train a new adapter")


def architecture(draft: Draft, overrides: Overrides) -> None:
    """Find the architecture of a model whose folder does not exist here. If the folder's name contains the name of a
    registered model, write this model's config.json next to the spec, and warn.
    """
    folder = _folder(draft.model)
    if not folder or draft.has("model.config") or overrides.read(f"{folder}/config.json") is not None:
        return
    alias = _alias(folder)
    if alias is None:
        draft.warn(
            None,
            f"`{folder}` does not exist here, and no registered model has its name; its architecture is not checked, "
            "and the folder must exist next to the spec when it compiles",
            "name another model by `--model`, or the folder's own config.json by `model(config=file(...))`",
        )
        return
    name = f"{draft.stem}.config.json"
    draft.files[name] = (json.dumps(_config(alias), indent=2) + "\n").encode()
    draft.raw("model.config", f'file("{name}")', None)
    known = registry.find_model(alias)
    draft.warn(
        None,
        f"`{folder}` does not exist here: by its name, the architecture is assumed to be that of "
        f"{alias if known is None else known.id}",
        "name the folder's own config.json by `model(config=file(...))`, or another model by `--model`",
    )


def registered(model: str, overrides: Overrides) -> ModelFacts | None:
    """The sizes of a registered model, or of a folder whose name contains the name of a registered model.

    None if no model matches, or if the folder exists and has a config.json.
    """
    folder = _folder(model)
    if folder and overrides.read(f"{folder}/config.json") is not None:
        return None
    return registry.find_model((_alias(folder) or "") if folder else model)


def _folder(model: str) -> str:
    """The model's folder if the spec names it by a path in quotes; "" for a model of the hub or registry."""
    return model[1:-1].replace("\\\\", "\\").rstrip("/\\") if model.startswith('"') else ""


def _alias(folder: str) -> str | None:
    return next(filter(None, map(model_called, re.split(r"[/\\]", folder)[: -NEAREST - 1 : -1])), None)


def model_called(name: str) -> str | None:
    """The registered model with the longest name that occurs in `name`: `qwen3-8b` for `Qwen3-8B-sft`; None if no name
    occurs. The name may lack `instruct`, because a base model has the architecture of its instruct model.
    """
    words = re.findall("[a-z]+|[0-9]+", name.lower())
    runs = {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
    spelled = {"".join(re.findall("[a-z0-9]+", one)): one for one in registry.model_names()}
    spelled = {one.removesuffix("instruct"): name for one, name in spelled.items()} | spelled
    return spelled.get(max(runs & spelled.keys(), key=len, default=""))


def _config(alias: str) -> dict[str, object]:
    """The config.json of a model in the registry."""
    row = read_table(registry.__file__, "models.toml")[alias]
    return {**(_config(row["like"]) if "like" in row else {}), **row.get("config", {})}
