"""Create the configuration objects that the argument parsers of transformers and TRL return, with the arguments of the
command.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache

from xpc.compiler import stacks
from xpc.compiler.importing.python.interpreter.files import contents
from xpc.compiler.importing.python.interpreter.functions import first, is_library, is_settings
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import (
    NO_DEFAULT,
    OPEN,
    Argument,
    Class,
    Function,
    Instance,
    Location,
    Name,
    Object,
    Table,
    Unknown,
)
from xpc.compiler.importing.text.entries import YES, Entry, not_set
from xpc.compiler.importing.text.values import RENAMES
from xpc.compiler.importing.trl import versions

PARSERS = ("HfArgumentParser", "TrlParser", "H4ArgumentParser")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
SEVERAL = re.compile(r"[\[(]([^\[\](){}]*)[\])]")
"""Matches a list or a tuple that contains no other brackets, such as `[q_proj, v_proj]`."""

FROM_VALUES = ("parse_dict", "parse_json_file", "parse_yaml_file")
"""Methods of an argument parser that read a dict or a file instead of the command line."""


def filled(machine: Machine, parser: Object, node: ast.AST, call: Object) -> object:
    """The objects that a parser returns, one for each of its classes. A field has its value in the command, or in the
    dict or file that the parser reads, or else its default.
    """
    given = first(parser.positional, parser.keywords, "dataclass_types")
    kinds = given if isinstance(given, list | tuple) else [given]
    names = [_known(one) for one in kinds if isinstance(one, Class | Name)]
    table: Table | None = None
    if call.last in FROM_VALUES:
        table = _values(machine, call, node)
    else:
        machine.command_line.append(machine.location(node))
    out = tuple(_filled(machine, one, node, frozenset().union(*names), table) for one in kinds)
    return out[0] if len(out) == 1 and parser.last == "H4ArgumentParser" else out


ADAPTER = {
    "r": "lora_r", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout", "target_modules": "lora_target_modules",
    "modules_to_save": "lora_modules_to_save", "task_type": "lora_task_type", "use_rslora": "use_rslora",
    "use_dora": "use_dora",
}  # fmt: skip
"""Maps an argument of peft's LoraConfig to the TRL argument that sets it (get_peft_config in trl/trainer/utils.py)."""
MIXTURE: Mapping[str, object] = {"datasets": [], "streaming": False, "test_split_size": None}
"""Maps each argument of TRL's DatasetMixtureConfig to its default (trl 0.23 to 1.16)."""
QUANTIZED = {"bnb_4bit_quant_type": "bnb_4bit_quant_type", "bnb_4bit_use_double_quant": "use_bnb_nested_quant",
             "bnb_4bit_compute_dtype": "torch_dtype"}  # fmt: skip
"""Maps an argument of a BitsAndBytesConfig for 4 bits to the TRL argument that sets it (get_quantization_config in
trl/trainer/utils.py).
"""


def adapter(machine: Machine, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST) -> object:
    """Compute TRL's `get_peft_config(model_args)`: a LoraConfig, or None if `use_peft` is off."""
    return _helper(machine, positional, "use_peft", "peft.LoraConfig", ADAPTER, node)


def quantization(machine: Machine, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST) -> object:
    """Compute TRL's `get_quantization_config(model_args)`. None if both `load_in_4bit` and `load_in_8bit` are off."""
    four = _helper(machine, positional, "load_in_4bit", "transformers.BitsAndBytesConfig", QUANTIZED, node)
    if four is None:
        return _helper(machine, positional, "load_in_8bit", "transformers.BitsAndBytesConfig", {}, node)
    return four


def _helper(machine: Machine, positional: list[Argument], switch: str, path: str, names: Mapping[str, str],
            node: ast.AST) -> object:  # fmt: skip
    """Compute TRL's `get_peft_config` or `get_quantization_config`. Returns an object of the class `path` with the
    arguments of a ModelConfig, None if the ModelConfig's argument `switch` is off, or NotImplemented if the ModelConfig
    does not come from the command.
    """
    model = positional[0].value if positional else None
    if not isinstance(model, Object) or "<command>" not in model.attributes:
        return NotImplemented
    usual = defaults(model.path)

    def stated(name: str) -> Argument:
        given = model.keywords.get(name)
        return Argument(usual.get(name), machine.location(node)) if given is None else given

    on = stated(switch)
    if not on.value or isinstance(on.value, Unknown):
        return on.value if isinstance(on.value, Unknown) else None
    words = {theirs: stated(name) for theirs, name in names.items()}
    made = Object(path, [], {key: one for key, one in words.items() if one.value is not None}, machine.location(node))
    if path.startswith("transformers"):
        made.keywords = {switch: on, **made.keywords}
    machine.calls.append(made)
    return made


def parameters(machine: Machine, function: Function) -> dict[str, Argument]:
    """The arguments of the command for a function that the library `fire` calls."""
    spec = function.node.args
    kinds = {one.arg: "" if one.annotation is None else ast.unparse(one.annotation)
             for one in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}  # fmt: skip
    if machine.command is None:
        return _given(machine, kinds)
    found = {key: one for key, one in machine.command.arguments.items() if key in kinds or spec.kwarg is not None}
    machine.command.used.update(found)
    locations = {key: Location(one.file, one.line) for key, one in found.items()}
    return {
        key: Argument(_fired(one, kinds.get(key, ""), locations[key]), locations[key]) for key, one in found.items()
    }


def _fired(entry: Entry, annotation: str, location: Location) -> object:
    """The value that `fire` gives to an argument. `fire` reads `[a, b]` and `(a, b)` as several values, even if the
    words have no quotes.
    """
    several = SEVERAL.fullmatch(entry.value) if isinstance(entry.value, str) and not entry.unset else None
    if several is None:
        return value_of(entry, annotation, location)
    items = [one.strip().strip("\"'") for one in several[1].split(",")]
    return [_converted(one, "") for one in items if one]


def settings(machine: Machine, kind: Class) -> dict[str, Argument]:
    """The arguments of the command that set fields of the class `kind`, which the library `tyro` fills from the command
    line.
    """
    return _words(machine, kind, _known(kind))


def _values(machine: Machine, call: Object, node: ast.AST) -> Table:
    """The arguments that a parser reads from a dict or a file, as in `parser.parse_json_file("a.json")`."""
    value = first(call.positional, call.keywords, "args")
    for name in ("json_file", "yaml_file"):
        value = call.keywords[name].value if value is None and name in call.keywords else value
    if isinstance(value, str):
        value = contents(machine.read, value) or machine.unknown(
            node, f"the contents of `{value[:60]}` cannot be read here"
        )
    if isinstance(value, dict):
        return Table(value, getattr(value, "locations", {}))
    why = value.why if isinstance(value, Unknown) else "the values that the parser reads are not known"
    return Table({OPEN: machine.unknown(node, why)})


def _filled(machine: Machine, kind: object, node: ast.AST, names: frozenset[str], table: Table | None) -> object:
    if not isinstance(kind, Class | Name):
        return machine.unknown(node, "the command line decides")
    if table is None:
        words = _words(machine, kind, names)
    else:
        known, location = _known(kind), machine.location(node)
        words = {str(key): Argument(one, table.locations.get(key, location)) for key, one in table.items()
                 if key in known or key == OPEN}  # fmt: skip
    if isinstance(kind, Class):
        made = machine.call(kind, [], words, node)
        _declare(machine, kind, made, words)
        if table is None and isinstance(made, Instance):
            _required(made)
    else:
        made = Object(kind.path, [], words, machine.location(node))
        machine.calls.append(made)
    if isinstance(made, Object):
        known_words = machine.command is not None or table is not None
        made.attributes["<command>" if known_words else "<command line>"] = True
    return made


def _required(made: Instance) -> None:
    """Set each field without a value to an unknown value, whose reason says how the user can state the value."""
    for name, value in {**dict.fromkeys(made.kind.required), **made.attributes}.items():
        unset = isinstance(value, Unknown) and value.why == NO_DEFAULT
        if unset or name not in made.attributes:
            location = value.location if isinstance(value, Unknown) else made.kind.required[name]
            why = f"the script takes `--{name}` from its command line, without a default: `--set {name}=VALUE` gives it"
            made.attributes[name], made.locations[name] = Unknown(why, location), location


def _declare(machine: Machine, kind: Class, made: object, given: Mapping[str, Argument]) -> None:
    """Record the defaults that the script's own classes give to TRL's arguments, except arguments in the command."""
    if machine.command is None:
        return
    for name in _fields(kind):
        value = made.keywords.get(name) if isinstance(made, Object) else None
        found = value.value if value is not None else getattr(made, "attributes", {}).get(name)
        location = next(
            (one.locations[name] for one in kind.lineage() if name in one.locations), machine.location(ast.Pass())
        )
        plain = isinstance(found, list) and found and all(isinstance(one, str | int | float) for one in found)
        if name in given or name not in argument_names() or not (isinstance(found, str | int | float) or plain):
            continue
        entry = location.entry(name, found)
        if isinstance(found, list):
            entry = location.entry(name, [location.entry(f"{name}[{n}]", one) for n, one in enumerate(found)])
        machine.command.declared.setdefault(name, entry)


@cache
def _configs() -> Mapping[str, list[tuple[stacks.Stack, str]]]:
    """Maps the name of each configuration class, such as `SFTConfig`, to the stacks that have it, each with the class's
    dotted name.
    """
    out: dict[str, list[tuple[stacks.Stack, str]]] = {}
    for stack in filter(None, map(stacks.load, stacks.names())):
        for config in stack.configs:
            out.setdefault(config.rpartition(".")[2], []).append((stack, config))
    return out


@cache
def argument_names() -> frozenset[str]:
    """The arguments that TRL's configuration classes have in any version. Arguments about the model and the data are
    excluded, because scripts often declare unused defaults for them.
    """
    every = frozenset({"reward_funcs"}).union(*map(_names, (*_configs(), "ModelConfig", "ScriptArguments")))
    return frozenset(one for one in every if not one.startswith(("dataset_", "model_name")))


def _words(machine: Machine, kind: Class | Name, names: frozenset[str]) -> dict[str, Argument]:
    """Maps each field of the class `kind` that the command sets to the command's argument.

    As in argparse, an argument may be abbreviated if only one of `names`, the arguments of all the parser's classes,
    begins like this.
    """
    own = _fields(kind)
    if machine.command is None:
        return _given(machine, own)
    known = _known(kind)
    out: dict[str, Argument] = {}
    for key, entry in machine.command.arguments.items():
        off = key.startswith("no_") and key[3:] in own
        name = key[3:] if off else key
        longer = [] if name in names else [one for one in names if one.startswith(name)]
        name = longer[0] if len(longer) == 1 else name
        if name not in known:
            continue
        machine.command.used.add(key)
        location = Location(entry.file, entry.line)
        value = False if off else value_of(entry, own.get(name, ""), location)
        out[name] = Argument(value, location)
    return out


def _given(machine: Machine, kinds: Mapping[str, str]) -> dict[str, Argument]:
    """The values that `--set` gives to the names in `kinds`, which maps names to their annotations."""
    location = next((one.location for one in machine.calls[-1:]), Location(machine.label, 0))
    machine.use(*kinds)
    given = machine.given
    return {name: Argument(_converted(given[name], kind), location) for name, kind in kinds.items() if name in given}


def _fields(kind: Class | Name) -> dict[str, str]:
    """Maps each field that the script declares in a class or in its bases to the source text of its annotation."""
    if isinstance(kind, Name):
        return {}
    return {name: one.annotations.get(name, "") for one in reversed(kind.lineage()) for name in one.fields}


def _known(kind: Class | Name) -> frozenset[str]:
    """All argument names of a class: the fields that the script defines, and the arguments that its base class in a
    library has in any version.
    """
    path = kind.base() if isinstance(kind, Class) else kind.path
    return frozenset(_fields(kind)) | (_names(path.rpartition(".")[2]) if path and is_library(path) else frozenset())


@cache
def _names(last: str) -> frozenset[str]:
    """The names of the arguments that a library's configuration class, such as `SFTConfig`, has in any version."""
    table, block = versions.table(), _block(last)
    if block in ("model", "script"):
        return frozenset(table[block])
    if block == "mixture":
        return frozenset(MIXTURE)
    known = {name for stack, config in _configs().get(last, ()) for name in stack.fields(config)}
    renamed = {old for old, new in RENAMES.items() if new in known}
    older = set(table.get(last.removesuffix("Config").lower(), {}))
    return frozenset(known | renamed | older | set(table["inherited"]))


def signature_names(value: object) -> frozenset[str] | None:
    """The names in a signature such as `fields(SFTConfig)` or `inspect.signature(SFTConfig).parameters`, in any version
    of the library. None for a class that no stack has.
    """
    while isinstance(value, Object) and value.receiver is not None:
        value = value.receiver
    if isinstance(value, Object) and value.positional:
        value = value.positional[0].value
    parts = value.path.split(".") if isinstance(value, Name) else []
    last = next((one for one in reversed(parts) if one.endswith("Config")), "")
    return _names(last) if last in _configs() else None


def lacks(value: Object, name: str) -> bool:
    """Whether a configuration certainly lacks a field: the script does not define it, and TRL's class does not have it
    in any version.
    """
    kind = value.attributes.get("<class>")
    given = {**value.attributes, **value.keywords}
    fields = _known(kind if isinstance(kind, Class) else Name(value.path))
    return value.path.startswith("trl.") and is_settings(value) and name not in given and name not in fields


def _block(last: str) -> str:
    special = {"ModelConfig": "model", "DatasetMixtureConfig": "mixture"}.get(last, "config")
    return "script" if last.endswith("ScriptArguments") else special


@cache
def defaults(path: str) -> Mapping[str, object]:
    """The defaults of a library's configuration class. Defaults that differ between versions of the library are
    omitted.
    """
    last = path.rpartition(".")[2]
    block = _block(last)
    if block == "mixture":
        return MIXTURE
    if block != "config":
        rows = versions.table()[block]
        found = {name: [one[1] for one in changes if len(one) > 1] for name, changes in rows.items()}
        same = {name: values[0] for name, values in found.items() if values.count(values[0]) == len(values)}
        # the default of `dtype` is null up to trl 0.26 and float32 later; without `dtype`, the spec also has fp32
        return {**same, "dtype": None} if block == "model" else same
    fields = [stack.fields(config) for stack, config in _configs().get(last, ())]
    common = set.intersection(*map(set, fields)) if fields else set()
    return {name: fields[0][name].declared for name in common
            if all(one[name].declared == fields[0][name].declared for one in fields)}  # fmt: skip


def value_of(entry: Entry, annotation: str, location: Location) -> object:
    """Convert an argument of the command to the type that the annotation of its field states."""
    if entry.unset:
        return Unknown(": ".join(not_set(entry.unset)), location)
    if entry.mapping:
        return Table({key.rpartition(".")[2]: value_of(one, "", location) for key, one in entry.mapping.items()},
                     {key: Location(one.file, one.line) for key, one in entry.mapping.items()})  # fmt: skip
    if isinstance(entry.value, list):
        return [_converted(one.value, annotation) for one in entry.value]
    value = _converted(entry.value, annotation)
    several = re.match(r"(?:Optional\[)?(?:typing\.)?[Ll]ist\b", annotation)
    return [value] if several and value is not None else value


def _converted(value: object, annotation: str) -> object:
    """Convert a string of the command line to a number or a bool, if the annotation of the field allows it."""
    if not isinstance(value, str) or (re.search(r"\bstr\b", annotation) and not re.search("int|float", annotation)):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if re.search(r"\bbool\b", annotation):
        return value.lower() in (*YES, "y", "t")
    if NUMBER.fullmatch(value) and len(value) < 40:
        return int(value) if re.fullmatch(r"[-+]?\d+", value) and "float" not in annotation else float(value)
    return value
