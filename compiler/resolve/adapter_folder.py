"""Read the adapter of an earlier run for `lora(from = ...)`: its rank, targets and other settings come from
adapter_config.json.
"""

from __future__ import annotations

import json

from xpc.compiler.files.workspace import Unreadable, Workspace
from xpc.compiler.language.codes import Problems
from xpc.compiler.language.items import DERIVED
from xpc.compiler.language.schema import path_of
from xpc.compiler.language.setting import Path
from xpc.compiler.registry.adapter_config import SHAPES, stated
from xpc.compiler.spec.resources import AdapterFolder
from xpc.compiler.spec.values import Origin, Value
from xpc.grammar.diagnostic import Label

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
NOT_WRITTEN = (
    "alora_invocation_tokens", "alpha_pattern", "arrow_config", "block_share", "coft", "exclude_modules",
    "fan_in_fan_out", "layer_replication", "layers_pattern", "layers_to_transform", "lora_bias",
    "projection_prng_key", "rank_dropout", "rank_pattern", "trainable_token_indices", "use_qalora",
)  # fmt: skip
"""Options of peft for which xpc has no setting. A saved adapter with such an option is refused, because its training
would silently continue without the option.
"""
CHANGES_THE_BASE = ("corda", "loftq", "olora", "pissa")
"""A value of `init_lora_weights` that begins with one of these texts, such as `pissa`, also changes the base
weights.
"""


def read_adapter(values: dict[Path, Value], workspace: Workspace, problems: Problems) -> AdapterFolder | None:
    """Read the adapter in the folder `lora.from`. Settings of the adapter that the spec leaves out get their values
    from this adapter. Returns None after an error.
    """
    value = values["lora.from"]
    path, label = str(value.value), value.origin.label
    assert label is not None
    folder = path.rstrip("/")
    try:
        read = workspace.read(f"{folder}/{CONFIG}")
    except Unreadable as error:
        why, help = _no_adapter(path, str(error), workspace)
        return _refuse(problems, label, why, workspace.help_for_base(path, label.source.name) or help)
    if not workspace.kind(f"{folder}/{WEIGHTS}"):
        help = "save the adapter again with peft's `save_pretrained`, or name a folder that has its weights"
        return _refuse(problems, label, f"`{path[:80]}` has no {WEIGHTS}", help)
    try:
        config = json.loads(read.data)
    except (ValueError, RecursionError):
        config = None
    kind = config.get("peft_type") if isinstance(config, dict) else None
    if not isinstance(config, dict) or kind not in SHAPES:
        help = f"name an adapter that peft saved and whose type is one of {', '.join(SHAPES)}"
        return _refuse(problems, label, f"`{read.name}` describes no adapter that xpc can train", help)
    options = [name for name in NOT_WRITTEN if config.get(name)]
    options += ["bias"] if config.get("bias") not in (None, "none") else []
    if str(config.get("init_lora_weights")).lower().startswith(CHANGES_THE_BASE):
        options.append("init_lora_weights")
    if kind == "LOHA" and config.get("module_dropout"):
        options.append("module_dropout")
    # if MiSS was initialized in one of these ways, the widths of the saved matrices are not the rank
    if kind == "MISS" and config.get("init_weights") in ("bat", "mini"):
        options.append("init_weights")
    if kind == "VERA" and config.get("save_projection") is False:
        options.append("save_projection")
    if options:
        why = f"the adapter has `{options[0]} = {json.dumps(config[options[0]])[:40]}`, for which there is no setting"
        return _refuse(
            problems, label, why, "merge the adapter into its base model, and train the merged model with a new adapter"
        )
    wrong = _state(values, config, kind, path)
    if wrong:
        return _refuse(problems, label, f"`{read.name}` has no usable `{wrong}`", "name an adapter that peft saved")
    return AdapterFolder(path, config, read.digest, _bits(folder, workspace))


def _refuse(problems: Problems, label: Label, why: str, help: str) -> AdapterFolder | None:
    problems.report("XP930", why, label, help=help)
    return None


def _no_adapter(path: str, why: str, workspace: Workspace) -> tuple[str, str]:
    if workspace.kind(path.rstrip("/") + "/config.json"):
        return f"`{path[:80]}` contains a model, not an adapter", f'train the model: `train "{path}" on ...`'
    near = None if workspace.kind(path) else workspace.nearest_name(path.rstrip("/"))
    if near is not None:
        return f"{why}, so there is no adapter", f'name `"{near}"`, which is here'
    return f"{why}, so there is no adapter", f"name a folder with {CONFIG} and {WEIGHTS}"


def _state(values: dict[Path, Value], config: dict[str, object], kind: str, folder: str) -> str:
    """Set the settings that the spec leaves out to their values in adapter_config.json. Returns the name of a required
    key that is missing or unusable, or "".
    """
    for name, theirs in SHAPES[kind].items():
        path, found = path_of(f"lora.{name}"), stated(config, name)
        if found is None and (config.get(theirs) or name == "targets" or (name == "rank" and kind != "OFT")):
            return theirs
        if path not in values and found is not None and found is not False:
            values[path] = Value(found, Origin(DERIVED, None, f"that of {folder}"))
    return ""


def _bits(folder: str, workspace: Workspace) -> int | None:
    """The number of bits, 4 or 8, to which the base was quantized when xpc trained the adapter. None if the base was
    not quantized, and 0 if this is unknown.
    """
    marker = f"{folder}/xpc_run.json"
    try:
        settings = json.loads(workspace.read(marker).data.splitlines()[0])["settings"]
        bits = settings["lora.bits"]
    except (Unreadable, ValueError, LookupError, TypeError, RecursionError):
        return 0
    return bits if bits in (4, 8, None) else 0
