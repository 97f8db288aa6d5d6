"""Write `model_card.md`, the model card with the metadata that the hub reads. The run saves it as README.md next to the
trained weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from xpc.compiler import __version__
from xpc.compiler.files.digest import sha256
from xpc.compiler.lower.manifest import requirements
from xpc.compiler.spec import Spec

FILE, MERGED = "model_card.md", "model_card_merged.md"


def model_card(spec: Spec, files: Mapping[str, str], merged: bool = False) -> str:
    """The model card of the trained weights. For a run with adapters, the result is the card of the adapters or, if
    `merged` is true, the card of the merged weights. `files` has the digests of the bundle's files.

    If the base model is a local folder, only the text of the card contains its name, because the hub accepts only the
    id of a repository as `base_model` in the metadata.
    """
    base, adapter, method = spec.model.id, spec.lora and not merged, spec.text("method")
    kind = ["lora" if spec.low_rank else spec.adapter] if spec.lora else []
    head: dict[str, object] = {
        "base_model": base,
        "base_model_relation": "adapter" if adapter else "finetune",
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": _task(spec),
        "tags": ["xpc", "trl", method, *kind],
        "datasets": list(dict.fromkeys(one.id for one in spec.data if one.id is not None)),
    }
    name = spec.model.name + (f"@{spec.model.revision}" if spec.model.revision else "")
    table = {
        "base": f"`{name}`",
        "method": method + (f" with {kind[0]}" if kind else "") + (", merged" if merged else ""),
        "data": ", ".join(f"`{one.name}`" for one in spec.data),
        **{file: f"sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}" for file, text in files.items()},
        "versions": ", ".join(requirements(spec).splitlines()),
        "compiled by": f"xpc {__version__}",
    }
    what = "Adapters of" if adapter else "A model trained from"
    if base is None:
        del head["base_model_relation"]
    lines = [f"{key}: {json.dumps(value)}" for key, value in head.items() if value]
    rows = [f"| {key} | {value.replace('|', '&#124;')} |" for key, value in table.items()]
    text = f"{what} `{name}`. The results of the run are in summary.json, its settings in spec.xp of the bundle."
    return "\n".join(["---", *lines, "---", "", f"# {spec.name}", "", text, "", "| | |", "|---|---|", *rows, ""])


def _task(spec: Spec) -> str:
    """The hub's name for the task of the model, such as `text-generation`."""
    if spec.method.scores:
        return "text-classification"
    return "image-text-to-text" if spec.reads_images else "text-generation"
