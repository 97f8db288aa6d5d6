"""Find the keys that launchers read from accelerate's configuration file and from DeepSpeed's JSON file.

Only `introspect.py` imports this module, in an environment with a stack's versions. Keys that a library does not
declare are found in two ways: by searching its source, or by running its code on a dictionary that records which keys
the code looks up.
"""

import ast
import contextlib
import dataclasses
import enum
import importlib
import inspect
import typing
from typing import Any

from introspect import _load, _plain, _type_text  # type: ignore[import-not-found, unused-ignore]

# --- accelerate --------------------------------------------------------------------------------------------------


def accelerate() -> dict[str, Any]:
    """The keys of accelerate's configuration file: the keys at the top level, and the keys in blocks that the launcher
    reads.
    """
    cluster = _load("accelerate.commands.config.config_args.ClusterConfig")
    hints = typing.get_type_hints(cluster)
    plugin = _load("accelerate.utils.dataclasses.FullyShardedDataParallelPlugin")
    parser = _load("accelerate.commands.launch.launch_command_parser")()
    defaults = {action.dest: action.default for action in parser._actions}
    read = _attributes_of(importlib.import_module("accelerate.utils.launch"), "args")
    # The launcher adds the prefix "fsdp_" to a key of fsdp_config that lacks it. Keys of parallelism_config have
    # another prefix.
    fsdp = sorted(name for name in read if name.startswith("fsdp_"))
    parallelism = sorted(name for name in read if name.startswith("parallelism_config_"))
    deepspeed = sorted(_deepspeed_yaml_keys() & read)
    return {
        "cluster": {
            field.name: {
                "type": _type_text(hints[field.name]),
                "default": _plain(None if field.default is dataclasses.MISSING else field.default),
            }
            for field in dataclasses.fields(cluster)
        },
        "fsdp_config": fsdp,
        "fsdp_fields": {name: _fsdp_field(name, defaults.get(name)) for name in fsdp},
        "fsdp_plugin_env": _environment_names(plugin, "FSDP_"),
        "parallelism_config": parallelism,
        "deepspeed_config": deepspeed,
        "trainer_fsdp_config": _trainer_fsdp_keys(),
    }


def _fsdp_field(name: str, default: Any) -> dict[str, Any]:
    """The type and the choices of a key of fsdp_config. They come from accelerate's parser of options, in which the
    default of a flag is the text "true" or "false".
    """
    if default in ("true", "false"):
        return {"type": "bool", "default": default == "true"}
    if isinstance(default, int | float):  # accelerate 1.4 writes the default of an integer as 1e8, a float
        return {"type": "int", "default": int(default), "low": 0}
    record: dict[str, Any] = {"type": "str", "default": default}
    constants = importlib.import_module("accelerate.utils.constants")
    choices = getattr(constants, name.upper(), None)
    return {**record, "choices": list(choices)} if choices else record


def _deepspeed_yaml_keys() -> set[str]:
    groups = _load("accelerate.commands.launch.launch_command_parser")()._action_groups
    return {
        action.dest
        for group in groups
        if group.title is not None and "deepspeed" in group.title.lower()
        for action in group._group_actions
    }


def _attributes_of(module: Any, name: str) -> set[str]:
    """Every attribute that a module's source code reads from the variable `name`."""
    tree = ast.parse(inspect.getsource(module))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == name}


def _environment_names(cls: Any, prefix: str) -> list[str]:
    """The environment variables with the prefix `prefix` that a class reads."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(cls))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.environ.get":
            text = ast.unparse(node.args[0])
            constant = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
            name = str(constant[0]) if constant else ""
            if "env_prefix" in text:
                name = prefix + name
            if name.startswith(prefix):
                found.add(name)
    return sorted(found)


def _trainer_fsdp_keys() -> list[str]:
    """The keys of `TrainingArguments.fsdp_config` that transformers reads. transformers silently drops any other
    key.
    """
    found = set()
    for module in ("transformers.training_args", "transformers.trainer"):
        for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module)))):
            owner, key = None, None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                if node.func.attr in ("get", "pop"):
                    owner, key = node.func.value, node.args[0]
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                owner, key = node.value, node.slice
            if owner is None or ast.unparse(owner).rpartition(".")[2] != "fsdp_config":
                continue
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.add(key.value)
    return sorted(found)


# --- DeepSpeed ---------------------------------------------------------------------------------------------------


class _Recorder(dict[str, Any]):
    """A dictionary that records each key that is looked up in it, together with the default that the look-up passes."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.requested: set[str] = set()
        self.defaults: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        self.requested.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.requested.add(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.requested.add(key)
        self.defaults.setdefault(key, default)
        return super().get(key, default)

    def keys(self) -> Any:
        return self


BARE = {"train_batch_size": 1, "zero_optimization": {"stage": 2}}
"""The smallest deepspeed.json that DeepSpeed accepts."""
DTYPES = ["bf16", "fp16", "fp32"]
KNOWN: dict[str, dict[str, Any]] = {
    "communication_data_type": {"type": "str", "default": None, "choices": DTYPES},
    "seq_parallel_communication_data_type": {"type": "str", "default": "fp32", "choices": DTYPES},
    "steps_per_print": {"type": "int", "default": None, "low": 1},
    "vocabulary_size": {"type": "int", "default": None, "low": 1},
    "gradient_predivide_factor": {"type": "float", "default": 1.0, "above": 0},
    "data_types.keep_in_fp32_modules": {"type": "list | str", "default": "auto"},
    "data_types.grad_accum_dtype": {"type": "str", "default": None, "choices": DTYPES},
    "checkpoint.tag_validation": {"type": "str", "default": "WARN", "choices": ["WARN", "IGNORE", "FAIL"]},
    "flops_profiler.output_file": {"type": "str", "default": None},
    "fp16.loss_scale": {"type": "float", "default": 0.0, "low": 0},
    "fp16.loss_scale_window": {"type": "int", "default": 1000, "low": 1},
    "fp16.min_loss_scale": {"type": "int", "default": 1, "low": 1},
}
"""The types of keys whose default does not show the type, because the default is None or has another type than legal
values. Source: deepspeed/runtime/config.py (`get_communication_data_type` etc.).
"""
BLOCKS: dict[str, tuple[str, dict[str, Any]]] = {
    "aio": ("", {}),
    "bf16": ("deepspeed.runtime.precision_config.DeepSpeedBF16Config", {"enabled": True}),
    "checkpoint": ("", {}),
    "comms_logger": ("deepspeed.comm.config.CommsLoggerConfig", {}),
    "data_types": ("", {}),
    "flops_profiler": ("", {}),
    "fp16": ("deepspeed.runtime.precision_config.DeepSpeedFP16Config", {"enabled": True, "initial_scale_power": 16}),
}
"""Maps each block of deepspeed.json to a pair: the class that reads it ("" if there is none), and the settings with
which DeepSpeed reads all keys of the block.
"""


def deepspeed() -> dict[str, Any]:
    """The keys that DeepSpeed accepts in its JSON configuration.

    The result contains all keys at the top level, the keys with a plain value, the removed keys, the keys of each
    block, the keys of `zero_optimization` and its offload blocks, and the names of DeepSpeed's optimizers.
    """
    config = importlib.import_module("deepspeed.runtime.config")
    offload = importlib.import_module("deepspeed.runtime.zero.offload_config")
    removed = sorted(getattr(config, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", {}))
    recorder = _Recorder(BARE)
    config.DeepSpeedConfig(recorder)
    top = sorted(recorder.requested - set(removed))
    plain = {name: record for name in top if (record := _plain_key(config, name, recorder.defaults)) is not None}
    return {
        "top": top,
        "top_plain": plain,
        "top_removed": removed,
        "blocks": {name: _block(config, name) for name in sorted(BLOCKS)},
        "zero_optimization": _model_fields(_load("deepspeed.runtime.zero.config.DeepSpeedZeroConfig")),
        "zero_removed": sorted(getattr(config, "_REMOVED_ZERO_CONFIG_KEYS", {})),
        "offload_optimizer": _model_fields(offload.DeepSpeedZeroOffloadOptimizerConfig),
        "offload_param": _model_fields(offload.DeepSpeedZeroOffloadParamConfig),
        "optimizers": sorted(config.DEEPSPEED_OPTIMIZERS),
    }


def _plain_key(config: Any, name: str, defaults: dict[str, Any]) -> dict[str, Any] | None:
    """The type and the default of a key, taken from the default with which DeepSpeed looks up the key. None if the key
    is a block.
    """
    if name in KNOWN:
        return dict(KNOWN[name])
    default = defaults.get(name)
    # a block has no plain default; DeepSpeed's default False means that the block is off
    if not isinstance(default, bool | int | float | str) or name == "datastates_ckpt":
        return None
    record = {"type": type(default).__name__, "default": default}
    choices = getattr(config, f"{name.upper()}_SUPPORTED", None)
    return {**record, "choices": list(choices)} if choices else record


def _block(config: Any, name: str) -> dict[str, Any]:
    """The keys of a block: the fields of the class that reads the block or, if no class reads it, the keys that
    DeepSpeed looks up.
    """
    path, content = BLOCKS[name]
    with contextlib.suppress(ImportError, AttributeError):
        if path:
            return {key: KNOWN.get(f"{name}.{key}", field) for key, field in _model_fields(_load(path)).items()}
    recorder = _Recorder(content)
    config.DeepSpeedConfig({**BARE, name: recorder})
    found = {key: _plain_key(config, key, recorder.defaults) for key in sorted(recorder.requested)}
    found.update({key: dict(KNOWN[f"{name}.{key}"]) for key in found if f"{name}.{key}" in KNOWN})
    return {key: record for key, record in found.items() if record is not None}


def _model_fields(model: Any) -> dict[str, Any]:
    """The fields of a pydantic model, under their names in the JSON file, with their effective defaults."""
    instance = model()
    table = {}
    for name, field in model.model_fields.items():
        record: dict[str, Any] = {"type": _type_text(field.annotation), "default": _json(getattr(instance, name))}
        for bound in field.metadata:
            for ours, theirs in (("low", "ge"), ("above", "gt"), ("high", "le")):
                if getattr(bound, theirs, None) is not None:
                    record[ours] = getattr(bound, theirs)
        if isinstance(field.annotation, type) and issubclass(field.annotation, enum.Enum):
            record["choices"] = [member.value for member in field.annotation]
        extra = field.json_schema_extra or {}
        if extra.get("deprecated"):
            record["deprecated"] = True
        table[field.alias or name] = record
    return table


def _json(value: Any) -> Any:
    value = _plain(value.model_dump(mode="json") if hasattr(value, "model_dump") else value)
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)
