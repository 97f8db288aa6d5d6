"""What the installed libraries really accept: read from the classes themselves, for `generate.py`.

Imported only there, in an environment with a target's versions; the compiler never imports this module. Where a library
has no table to read (which keys `accelerate launch` looks at, which top-level keys DeepSpeed looks at) its source is
scanned or it is run on a dictionary that remembers what was asked of it.
"""

import ast
import contextlib
import dataclasses
import enum
import importlib
import importlib.metadata
import inspect
import io
import logging
import os
import re
import types
import typing
import warnings
from typing import Any

BASE = "transformers.TrainingArguments"
READ = ("accelerate", "deepspeed", "torch", "transformers", "trl")  # the packages that the table is read from
CONFIGS = ("SFTConfig", "DPOConfig", "GRPOConfig", "KTOConfig", "RewardConfig", "RLOOConfig", "ORPOConfig")

# Fields whose effective value is the machine's: the clock and the host name, the logging level of the process, the
# launcher's environment; and `report_to` where unset means every integration that is installed (transformers 4).
MACHINE = frozenset({"disable_tqdm", "local_rank", "logging_dir"})


def introspect() -> dict[str, Any]:
    """Everything that a target's table says about the libraries."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(io.StringIO()):  # DeepSpeed logs to standard output when it is imported
        return {
            "versions": {name: importlib.metadata.version(name).partition("+")[0] for name in READ},  # not 2.13.0+cpu
            "configs": _configs(),
            "schedulers": _schedulers(),
            "accelerate": _accelerate(),
            "deepspeed": _deepspeed(),
        }


# --- configuration classes ---------------------------------------------------------------------------------------


def _configs() -> dict[str, Any]:
    """Each configuration class, as what it adds to or changes in TrainingArguments."""
    base = _fields(_load(BASE))
    tables: dict[str, Any] = {BASE: {"base": None, "fields": base}}
    for name in CONFIGS:
        path = _find(name)
        if path is not None:
            own = _fields(_load(path))
            changed = {field: record for field, record in own.items() if base.get(field) != record}
            tables[path] = {"base": BASE, "fields": changed}
    return tables


def _find(name: str) -> str | None:
    for path in (f"trl.{name}", f"trl.experimental.{name.removesuffix('Config').lower()}.{name}"):
        try:
            _load(path)
        except (ImportError, AttributeError):
            continue
        return path
    return None


def _load(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _fields(cls: Any) -> dict[str, Any]:
    """Every init field: type, declared default, the default that takes effect, choices, deprecation."""
    # On a CPU: once as if the CPU were asked for (precision stays the class's own choice), once as on a GPU machine.
    asked, asked_warnings = _construct(cls, use_cpu=True)
    plain, _ = _construct(cls, bf16=False)
    hints = typing.get_type_hints(cls)
    table = {}
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        declared = field.default
        if field.default_factory is not dataclasses.MISSING:
            declared = field.default_factory()
        record: dict[str, Any] = {"type": _type_text(hints[field.name]), "default": _plain(declared)}
        effective = _plain(getattr(asked if field.name == "bf16" else plain, field.name))
        if effective == "out":  # output_dir itself, and run_name where it follows output_dir
            effective = _plain(declared)
        elif field.name in MACHINE or (field.name == "report_to" and declared is None):
            record["machine"] = True
            effective = _plain(declared)
        elif field.name not in ("use_cpu", "bf16") and effective != _plain(getattr(asked, field.name)):
            record["machine"] = True
        if effective != record["default"]:
            record["effective"] = effective
        choices = _choices(hints[field.name], field.metadata.get("choices"))
        if choices:
            record["choices"] = choices
        if _deprecated(cls, field, hints[field.name], asked_warnings):
            record["deprecated"] = True
        table[field.name] = record
    return table


def _construct(cls: Any, **arguments: Any) -> tuple[Any, list[str]]:
    """An instance and the deprecation warnings that building it gave; the environment is as it was before."""
    saved = dict(os.environ)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            instance = cls(output_dir="out", **arguments)
    finally:
        os.environ.clear()
        os.environ.update(saved)
    kinds = (FutureWarning, DeprecationWarning)
    return instance, [str(w.message) for w in caught if issubclass(w.category, kinds)]


def _plain(value: Any) -> Any:
    """A JSON value: enums by value, objects by their dictionary."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if hasattr(value, "to_dict"):
        return _plain(value.to_dict())
    return value


def _type_text(hint: Any) -> str:
    """A type as text, the same under either spelling of a union and without module names."""
    if hint is type(None):
        return "None"
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(sorted(_type_text(part) for part in typing.get_args(hint)))
    if origin is typing.Literal:
        return f"Literal[{', '.join(repr(part) for part in typing.get_args(hint))}]"
    if origin is not None:
        inner = ", ".join(_type_text(part) for part in typing.get_args(hint))
        return f"{getattr(origin, '__name__', str(origin))}[{inner}]"
    return str(getattr(hint, "__name__", hint))


def _choices(hint: Any, stated: Any) -> list[Any]:
    """The legal values of a field whose type is an enum or a literal, or whose metadata lists them."""
    if stated:
        return list(stated)
    for part in typing.get_args(hint) or (hint,):
        if isinstance(part, type) and issubclass(part, enum.Enum) and part.__name__ != "DebugOption":
            return [member.value for member in part]
    return []


def _deprecated(cls: Any, field: dataclasses.Field[Any], hint: Any, at_rest: list[str]) -> bool:
    """Whether the help says so, or the class warns about the field when it is given a value of its type."""
    if re.match(r"\s*(deprecated|this parameter is deprecated)", str(field.metadata.get("help", "")), re.I):
        return True
    trainer = cls.__name__.replace("Config", "Trainer")
    if re.search(rf"deprecated in [^.]*`{trainer}`", str(field.metadata.get("help", "")), re.I):
        return True
    names = re.compile(rf"`(--)?{field.name}[`=]")
    if any(names.search(message) and message.index(field.name) < 40 for message in at_rest):
        return True
    parts = typing.get_args(hint) or (hint,)
    probe: Any = None
    if bool in parts:
        probe = not field.default
    elif str in parts and field.name not in ("output_dir", "deepspeed", "fsdp", "fsdp_config", "accelerator_config"):
        probe = "x"
    elif dict in parts or any(typing.get_origin(part) is dict for part in parts):
        probe = {"use_reentrant": False}
    elif int in parts or float in parts:
        probe = 1
    if probe is None or field.name in ("output_dir", "use_cpu"):
        return False
    arguments = {"use_cpu": True, field.name: probe}
    try:
        _, messages = _construct(cls, **arguments)
    except Exception:
        return False
    return any(names.search(message) and message.index(field.name) < 40 for message in messages)


# --- schedules ---------------------------------------------------------------------------------------------------


def _schedulers() -> dict[str, Any]:
    """For each schedule, the `lr_scheduler_kwargs` that reach it: the required ones, and the others with defaults."""
    optimization = importlib.import_module("transformers.optimization")
    table: dict[str, Any] = {}
    functions = optimization.TYPE_TO_SCHEDULER_FUNCTION
    for name, function in dict(functions).items():
        given = {
            parameter.name: parameter.default
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name not in ("optimizer", "num_warmup_steps", "num_training_steps", "last_epoch")
            and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }
        functions[name] = lambda *_, **received: received
        try:  # get_scheduler hands kwargs on for some schedules and drops them for others
            received = optimization.get_scheduler(name, None, 1, 10, dict.fromkeys(given, 0))
        finally:
            functions[name] = function
        reach = {key: default for key, default in given.items() if key in received}
        table[name.value] = {
            "required": sorted(key for key, default in reach.items() if default is inspect.Parameter.empty),
            "optional": {k: _plain(v) for k, v in reach.items() if v is not inspect.Parameter.empty},
        }
    return table


# --- accelerate --------------------------------------------------------------------------------------------------


def _accelerate() -> dict[str, Any]:
    """What a configuration file may hold: top-level keys, and the nested keys that the launcher really reads."""
    cluster = _load("accelerate.commands.config.config_args.ClusterConfig")
    plugin = _load("accelerate.utils.dataclasses.FullyShardedDataParallelPlugin")
    read = _attributes_of(importlib.import_module("accelerate.utils.launch"), "args")
    # The launcher prefixes a key of fsdp_config with "fsdp_" where it has none; parallelism_config has its own prefix.
    fsdp = sorted(name for name in read if name.startswith("fsdp_"))
    parallelism = sorted(name for name in read if name.startswith("parallelism_config_"))
    deepspeed = sorted(_deepspeed_yaml_keys() & read)
    return {
        "cluster": {
            field.name: _plain(None if field.default is dataclasses.MISSING else field.default)
            for field in dataclasses.fields(cluster)
        },
        "fsdp_config": fsdp,
        "fsdp_plugin_env": _environment_names(plugin, "FSDP_"),
        "parallelism_config": parallelism,
        "deepspeed_config": deepspeed,
        "trainer_fsdp_config": _trainer_fsdp_keys(),
    }


def _deepspeed_yaml_keys() -> set[str]:
    groups = _load("accelerate.commands.launch.launch_command_parser")()._action_groups
    return {
        action.dest
        for group in groups
        if group.title is not None and "deepspeed" in group.title.lower()
        for action in group._group_actions
    }


def _attributes_of(module: Any, name: str) -> set[str]:
    """Every attribute that a module's code reads off the variable `name`."""
    tree = ast.parse(inspect.getsource(module))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == name}


def _environment_names(cls: Any, prefix: str) -> list[str]:
    """The environment variables under `prefix` that a class reads."""
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
    """The keys of `TrainingArguments.fsdp_config` that transformers reads; any other is dropped in silence."""
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
    """A dictionary that remembers every key that it was asked for."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def keys(self) -> Any:
        return self


def _deepspeed() -> dict[str, Any]:
    """Accepted keys of the JSON configuration: top level, `zero_optimization` and its offload blocks, removed ones."""
    config = importlib.import_module("deepspeed.runtime.config")
    offload = importlib.import_module("deepspeed.runtime.zero.offload_config")
    removed = sorted(getattr(config, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", {}))
    recorder = _Recorder({"train_batch_size": 1, "zero_optimization": {"stage": 2}})
    config.DeepSpeedConfig(recorder)
    return {
        "top": sorted(recorder.asked - set(removed)),
        "top_removed": removed,
        "zero_optimization": _model_fields(_load("deepspeed.runtime.zero.config.DeepSpeedZeroConfig")),
        "zero_removed": sorted(getattr(config, "_REMOVED_ZERO_CONFIG_KEYS", {})),
        "offload_optimizer": _model_fields(offload.DeepSpeedZeroOffloadOptimizerConfig),
        "offload_param": _model_fields(offload.DeepSpeedZeroOffloadParamConfig),
        "optimizers": sorted(config.DEEPSPEED_OPTIMIZERS),
    }


def _model_fields(model: Any) -> dict[str, Any]:
    """The fields of a pydantic model under the names that the JSON uses, with the defaults that take effect."""
    instance = model()
    table = {}
    for name, field in model.model_fields.items():
        record: dict[str, Any] = {"type": _type_text(field.annotation), "default": _json(getattr(instance, name))}
        extra = field.json_schema_extra or {}
        if extra.get("deprecated"):
            record["deprecated"] = True
        table[field.alias or name] = record
    return table


def _json(value: Any) -> Any:
    value = _plain(value.model_dump(mode="json") if hasattr(value, "model_dump") else value)
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)
