"""Read the arguments and keys that the installed libraries accept, for `generate.py`.

Only `generate.py` imports this module, in an environment with a stack's versions; the compiler never does. Some keys
are not declared in any class, such as those that `accelerate launch` reads, and DeepSpeed's top-level keys. Such keys
are found in two ways: by searching the library's source, or by running the library's code on a dictionary that records
which keys the code looks up.
"""

import contextlib
import dataclasses
import enum
import importlib
import importlib.metadata
import inspect
import io
import logging
import os
import pathlib
import re
import types
import typing
import warnings
from collections.abc import Iterable
from typing import Any

BASE = "transformers.TrainingArguments"
READ = ("accelerate", "deepspeed", "torch", "transformers", "trl")  # the packages whose classes are read

# Fields whose effective value depends on the machine: on the clock, the host name, the logging level or the launcher's
# environment. `report_to` is one of them: in transformers 4, an unset `report_to` means every installed integration.
MACHINE = frozenset({"disable_tqdm", "local_rank", "logging_dir"})


def introspect(classes: Iterable[str]) -> dict[str, Any]:
    """Return the part `library` of stack.json. `classes` lists the configuration classes of the training methods."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    logging.disable(logging.CRITICAL)
    # the import of DeepSpeed logs to standard output, which must contain only the JSON that this script prints
    with contextlib.redirect_stdout(io.StringIO()):
        return {
            # drop the local part of a version: 2.13.0+cpu becomes 2.13.0
            "versions": {name: importlib.metadata.version(name).partition("+")[0] for name in READ},
            "configs": _configs(classes),
            "schedulers": _schedulers(),
            "families": _load("introspect_families.families")(),
            "model_types": _load("introspect_families.model_types")(),
            "carrying": _load("introspect_families.carrying")(),
            "positions": _load("introspect_families.positions")(),
            # These modules are loaded from the script's folder, because the environment does not have the package xpc.
            "accelerate": _load("introspect_launch.accelerate")(),
            "deepspeed": _load("introspect_launch.deepspeed")(),
        }


# --- configuration classes ---------------------------------------------------------------------------------------


def _configs(classes: Iterable[str]) -> dict[str, Any]:
    """Map each configuration class to its fields. Fields that TrainingArguments has in the same form are left out."""
    base = _fields(_load(BASE))
    tables: dict[str, Any] = {BASE: {"base": None, "fields": base}}
    for path in classes:
        try:
            own = _fields(_load(path))
        except (AttributeError, ModuleNotFoundError):
            if _defined(path.rpartition(".")[2]):
                raise  # the class has moved: the stack's policy must state its new path
            continue  # this TRL has no such trainer, so the stack refuses the method
        changed = {field: record for field, record in own.items() if base.get(field) != record}
        tables[path] = {"base": BASE, "fields": changed}
    return tables


def _defined(name: str) -> bool:
    """Whether a file of TRL defines a class of this name."""
    files = (file for folder in _load("trl.__path__") for file in pathlib.Path(folder).rglob("*.py"))
    return any(f"class {name}(" in file.read_text("utf-8") for file in files)


def _load(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _fields(cls: Any) -> dict[str, Any]:
    """Map each argument of a class to its type, its declared default, its effective default, its choices, and whether
    it is deprecated.
    """
    # Two instances are built: one as on a CPU, where the class itself chooses the precision, and one as on a machine
    # with a GPU.
    requested, warnings_of_options = _construct(cls, use_cpu=True)
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
        effective = _plain(getattr(requested if field.name == "bf16" else plain, field.name))
        if (
            effective == "out"
        ):  # the class derives this default from output_dir; the default of `run_name` is an example
            effective = _plain(declared)
        elif field.name in MACHINE or (field.name == "report_to" and declared is None):
            record["machine"] = True
            effective = _plain(declared)
        elif field.name not in ("use_cpu", "bf16") and effective != _plain(getattr(requested, field.name)):
            record["machine"] = True
        if effective != record["default"]:
            record["effective"] = effective
        choices = _choices(hints[field.name], field.metadata.get("choices"))
        if choices:
            record["choices"] = choices
        if _deprecated(cls, field, hints[field.name], warnings_of_options):
            record["deprecated"] = True
        table[field.name] = record
    return table


def _construct(cls: Any, **arguments: Any) -> tuple[Any, list[str]]:
    """Build an instance of a class. Environment variables that the class changes are restored. Returns a pair: the
    instance, and the deprecation warnings.
    """
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
    """Convert a value to JSON. An enum is replaced by its value, and any other object by its dictionary."""
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
    """Write a type as text. Names of modules are removed, and `Optional[int]` and `int | None` give the same text."""
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
    """The legal values of a field, if its type is an enum or a literal, or if its metadata lists them."""
    if stated:
        return list(stated)
    for part in typing.get_args(hint) or (hint,):
        if isinstance(part, type) and issubclass(part, enum.Enum) and part.__name__ != "DebugOption":
            return [member.value for member in part]
    return []


def _deprecated(cls: Any, field: dataclasses.Field[Any], hint: Any, at_rest: list[str]) -> bool:
    """Whether a field is deprecated: its help says so, or the class warns when the field is set."""
    # trl 0.24 keeps a removed field to warn about its use; its help begins "Removed: this parameter was unused"
    if re.match(r"\s*(deprecated|removed\b|this parameter is deprecated)", str(field.metadata.get("help", "")), re.I):
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
    """Map each schedule to the names that `lr_scheduler_kwargs` may contain for it: required names, and optional names
    with their defaults.
    """
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
        try:  # get_scheduler passes `lr_scheduler_kwargs` to some schedules, and drops them for all others
            received = optimization.get_scheduler(name, None, 1, 10, dict.fromkeys(given, 0))
        finally:
            functions[name] = function
        reach = {key: default for key, default in given.items() if key in received}
        table[name.value] = {
            "required": sorted(key for key, default in reach.items() if default is inspect.Parameter.empty),
            "optional": {k: _plain(v) for k, v in reach.items() if v is not inspect.Parameter.empty},
        }
    return table
