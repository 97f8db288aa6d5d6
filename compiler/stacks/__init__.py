"""The stacks: sets of library versions, such as `trl-1.16`, for which xpc writes bundles. Each folder here is one
stack.

The compiler loads `NAME/stack.json`, which has two parts. The part "library" is what `generate.py` reads from the
classes of the installed libraries. The part "policy" is written by hand in `NAME/policy.toml`. To add a stack, write
its policy.toml, and run generate.py in an environment with the stack's versions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import cache, cached_property

from xpc.compiler.stacks.facts import Facts
from xpc.compiler.stacks.json_values import Json as Json
from xpc.compiler.stacks.json_values import copy_of, mapping_of, strings_of
from xpc.grammar.package_data import read_json
from xpc.grammar.record import entity, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    Packing: TypeAlias = Literal["exact", "unaware", "stateful", "kernel"]

DEFAULT = "trl-1.16"
HERE = os.path.dirname(os.path.abspath(__file__))
STACKS = tuple(sorted(name for name in os.listdir(HERE) if os.path.isfile(os.path.join(HERE, name, "stack.json"))))
"""The names of the supported stacks. Each stack has a folder of this name here."""

SFT = "trl.SFTConfig"


@entity
class Field:
    """One argument of a configuration class.

    `declared` is the default in the class. `effective` is the value in an instance that is built without arguments;
    TRL, for example, turns on bf16 if it is not set. `machine` is true if the effective value depends on the machine.
    In this case, `effective` is the value on a machine with a GPU or, if that is unknown, the declared default.
    `choices` is empty if any value of the type is allowed.
    """

    name: str
    type: str
    declared: Json
    effective: Json
    choices: tuple[Json, ...]
    deprecated: bool
    machine: bool


@record
class Family:
    """The support of a stack for one `model_type`, such as `qwen3`.

    `layers` are the classes that FSDP wraps. `attention` are the attention implementations other than eager. `packing`
    tells whether attention keeps packed documents apart without flash attention: "exact" (yes, because the mask is made
    from position ids), "unaware" (no, because the mask ignores position ids), "stateful" (no, because a recurrent state
    passes from one document into the next) or "kernel" (only with the package causal-conv1d; without it, the model
    raises an error).
    """

    model_type: str
    layers: tuple[str, ...]
    attention: tuple[str, ...]
    scores: bool
    packing: Packing


@entity  # a stack's `repr` is its name, because a generated `repr` would print the complete table
class Stack:
    """A supported stack, such as `trl-1.16`. The argument `config` of methods is a class, such as `trl.SFTConfig`."""

    name: str
    table: Mapping[str, Mapping[str, Json]]

    @property
    def title(self) -> str:
        """The main versions of the stack: "TRL 1.16, transformers 5.23, torch 2.13"."""
        return str(self.table["policy"]["title"])

    @cached_property
    def configs(self) -> tuple[str, ...]:
        """The configuration classes that the stack has."""
        return tuple(mapping_of(self.table["library"]["configs"]))

    @cached_property
    def pins(self) -> Mapping[str, str]:
        """The exact version of every package that a bundle of this stack can need."""
        return {package: str(version) for package, version in self._policy("pins").items()}

    @cached_property
    def extras(self) -> Mapping[str, tuple[str, ...]]:
        """The packages of each optional part of a bundle (`zero`, `liger`, `wandb`, ...)."""
        return {extra: strings_of(packages) for extra, packages in self._policy("extras").items()}

    def requirements(self, *extras: str, vllm: bool = False) -> Mapping[str, str]:
        """The pinned packages of a bundle: the packages that all bundles need, and the packages of the given `extras`
        (`zero`, `liger`, ...).

        With `vllm`, vLLM is added, and the other packages get versions that can be installed together with it.
        """
        optional = self.extras
        wanted = {name for extra in extras for name in optional.get(extra, ())}
        left_out = {name for names in optional.values() for name in names} - wanted
        next_to = self._policy("pins_with_vllm") if vllm else {}
        pins = {**self.pins, **{package: str(version) for package, version in next_to.items()}}
        return {package: version for package, version in pins.items() if package not in left_out}

    @cached_property
    def facts(self) -> Facts:
        """The abilities and bugs of the stack's libraries, from [facts] in its policy.toml."""
        return Facts(self._policy("facts"))

    @cached_property
    def arguments(self) -> Mapping[str, str]:
        """For arguments whose name is not the same in all stacks: maps xpc's name, such as `warmup_ratio`, to the name
        in this stack.
        """
        return {meaning: str(name) for meaning, name in self._policy("arguments").items()}

    @cached_property
    def optimizers(self) -> Mapping[str, str]:
        """Maps xpc's names of optimizers to values of the argument `optim`, without those that the stack lacks."""
        return {choice: str(name) for choice, name in self._policy("optimizers").items()}

    def lacking(self, what: str) -> Mapping[str, str]:
        """The optimizers or schedules (`what`) that the stack lacks, by name, each with the reason."""
        return {choice: str(reason) for choice, reason in self._policy(f"{what}_lacking").items()}

    def config(self, method: str) -> str:
        """The configuration class of a method, such as `trl.SFTConfig`; transformers' class if the stack has none."""
        named = str(self._policy("methods")[method])
        return named if named in self.configs else "transformers.TrainingArguments"

    def refused(self, method: str) -> str | None:
        """The reason why the stack cannot train a method as xpc defines it; None if the stack can."""
        named = str(self._policy("methods").get(method, ""))
        if reason := self._policy("methods_refused").get(method):
            return str(reason)
        return None if named in ("", *self.configs) else f"TRL {self.pins['trl']} has no class {named.split('.')[-1]}"

    def losses(self, method: str) -> Mapping[str, str]:
        """Map xpc's names of a method's losses to the stack's names. Empty if the method has only one loss."""
        table = self._policy("losses").get(method, {})
        return {name: str(here) for name, here in mapping_of(table).items()}

    @cached_property
    def packing(self) -> tuple[str, ...]:
        """The packing strategies that the stack's trainer has."""
        return tuple(self._policy("packing"))

    @cached_property
    def schedulers(self) -> Mapping[str, Mapping[str, Json]]:
        """Map each schedule to the names that `lr_scheduler_kwargs` may contain for it: `required` names, and
        `optional` names with their defaults.
        """
        return {name: mapping_of(entry) for name, entry in mapping_of(self.table["library"]["schedulers"]).items()}

    @cached_property
    def removed(self) -> Mapping[str, str]:
        """Maps each argument of other versions that this stack neither has nor replaces to the reason why not."""
        return {name: str(reason) for name, reason in self._policy("removed").items()}

    def rename(self, old: str) -> str | None:
        """This stack's name for an argument that another version calls `old`, or None."""
        new = self._policy("renames").get(old)
        return None if new is None else str(new)

    @property
    def renamed(self) -> tuple[str, ...]:
        """The arguments of other versions that have another name in this stack (see `rename`)."""
        return tuple(self._policy("renames"))

    def fields(self, config: str = SFT) -> Mapping[str, Field]:
        """All arguments of a configuration class, by name. Raises KeyError if the stack lacks the class."""
        return _fields(self, config)

    def legal(self, method: str, name: str) -> Mapping[str, Json]:
        """The legal values of an argument whose class accepts any number or text. The keys are the bounds `low`,
        `above` (exclusive), `high` and `below` (exclusive), the excluded values `other_than`, and the list `one_of`.
        Empty if every value is legal. The limits may differ between methods.
        """
        legal = self._policy("legal")
        return mapping_of(legal.get(f"{method}.{name}", legal.get(name, {})))

    def free(self, method: str, name: str) -> str | None:
        """The reason why a numeric argument has no limits, so that every number is legal. None if it has limits."""
        reason = self._policy("free").get(name)
        return None if reason is None or self.legal(method, name) else str(reason)

    def omitted(self, config: str = SFT) -> Mapping[str, str]:
        """The arguments of a configuration class that bundles leave out, each with the reason."""
        return _omitted(self, config)

    def base_arguments(self, config: str = SFT) -> dict[str, Json]:
        """For each argument that a bundle states, its value if no setting decides it: the value in the table [base] of
        the policy or, without one, the library's effective default. The caller may change the returned dictionary.
        """
        return {name: copy_of(value) for name, value in _base_arguments(self, config).items()}

    def base_argument(self, name: str, config: str) -> Json:
        """The value of one argument of `base_arguments`. Raises KeyError for an argument that no bundle states."""
        return copy_of(_base_arguments(self, config)[name])

    def family(self, model_type: str | None) -> Family | None:
        """The stack's support for a `model_type`, such as `qwen3`. None if this family is missing in the registry or in
        the stack's transformers.
        """
        return None if model_type is None else _family(self, model_type)

    def carries(self, model_type: str | None) -> bool:
        """Whether a `model_type` is a family of causal language models with a recurrent state, such as mamba."""
        return model_type in self.carrying

    @cached_property
    def carrying(self) -> tuple[str, ...]:
        """Every `model_type` whose causal language model has a recurrent state, such as mamba."""
        return strings_of(self.table["library"]["carrying"])

    def positions(self, model_type: str | None) -> dict[str, Json]:
        """The defaults for rotary positions of a `model_type` in transformers 4, by the key of config.json. A default
        that most families have, such as a `rope_theta` of 10,000, is left out.
        """
        found = mapping_of(self.table["library"]["positions"]).get(model_type or "", {})
        return {name: value for name, value in mapping_of(found).items() if name != "type"}

    def lacks_family(self, model_type: str | None) -> bool:
        """Whether the stack's transformers has no class for a `model_type`. False for None, an unknown family."""
        library = self.table["library"]
        known, types = mapping_of(library["families"]), strings_of(library["model_types"])
        return model_type is not None and known.get(model_type, model_type in types) in (None, False)

    @property
    def layers(self) -> frozenset[str]:
        """The names of the layer classes of all families, such as `LlamaDecoderLayer`."""
        families = mapping_of(self.table["library"]["families"]).values()
        return frozenset(name for one in families if one is not None for name in strings_of(mapping_of(one)["layers"]))

    def keys(self, where: str) -> frozenset[str]:
        """The keys that one part of the launch configuration accepts and reads.

        `where` names the part. In accelerate's YAML file: `accelerate` (the top level), `fsdp_config`,
        `parallelism_config` and `deepspeed_config` (the blocks). In DeepSpeed's JSON file: `deepspeed` (the top level),
        `zero_optimization`, `offload_optimizer` and `offload_param`. `deepspeed_removed` and `zero_removed` are keys of
        older DeepSpeed versions; this version refuses them with any value. Keys with a prefix, such as `fsdp_`, are
        returned with the prefix. Raises KeyError for any other part.
        """
        accelerate, deepspeed = self.table["library"]["accelerate"], self.table["library"]["deepspeed"]
        match where:
            case "accelerate":
                return frozenset(mapping_of(mapping_of(accelerate)["cluster"]))
            case "fsdp_config" | "parallelism_config" | "deepspeed_config":
                return frozenset(strings_of(mapping_of(accelerate)[where]))
            case "deepspeed":
                return frozenset(strings_of(mapping_of(deepspeed)["top"]))
            case "deepspeed_removed":
                return frozenset(strings_of(mapping_of(deepspeed)["top_removed"]))
            case "zero_removed":
                return frozenset(strings_of(mapping_of(deepspeed)["zero_removed"]))
            case "zero_optimization" | "offload_optimizer" | "offload_param":
                return frozenset(mapping_of(mapping_of(deepspeed)[where]))
        raise KeyError(where)

    def launch_keys(self, file: str) -> Mapping[str, Mapping[str, Json]]:
        """Map the dotted name of each key whose value is plain (not a block) to a description: `type`, `default` and,
        if known, `choices`, `low`, `above` (exclusive) and `high`.

        `file` is `accelerate` (keys at the top level, and those of `fsdp_config` under their full names) or `deepspeed`
        (the top level, `zero_optimization` and its offload blocks, and blocks with plain keys). Deprecated keys are
        left out.
        """
        library = mapping_of(self.table["library"][file])
        if file == "accelerate":
            parts = {"": library["cluster"], "fsdp": library["fsdp_fields"]}
            return {key: mapping_of(record) for part in parts.values() for key, record in mapping_of(part).items()}
        parts = {f"{name}.": block for name, block in mapping_of(library["blocks"]).items()}
        parts["zero_optimization."] = library["zero_optimization"]
        for name in ("offload_optimizer", "offload_param"):
            parts[f"zero_optimization.{name}."] = library[name]
        parts[""] = library["top_plain"]
        found = {
            pre + key: mapping_of(record) for pre, part in parts.items() for key, record in mapping_of(part).items()
        }
        return {key: record for key, record in found.items() if "deprecated" not in record}

    def zero_defaults(self) -> dict[str, Json]:
        """DeepSpeed's default for each key of `zero_optimization`, without deprecated keys."""
        records = mapping_of(mapping_of(self.table["library"]["deepspeed"])["zero_optimization"])
        entries = {key: mapping_of(record) for key, record in records.items()}
        return {key: copy_of(record["default"]) for key, record in entries.items() if "deprecated" not in record}

    def _policy(self, section: str) -> Mapping[str, Json]:
        return mapping_of(self.table["policy"][section])


def names() -> tuple[str, ...]:
    """The names of the supported stacks."""
    return STACKS


def load(name: str) -> Stack | None:
    """The stack with this name, or None if no stack has this name."""
    return _read(name) if name in STACKS else None


def default() -> Stack:
    """The stack that a spec without `target` gets."""
    return _read(DEFAULT)


def every() -> tuple[Stack, ...]:
    """All supported stacks, sorted by name."""
    return tuple(map(_read, STACKS))


@cache
def _read(name: str) -> Stack:
    return Stack(name, read_json(__file__, f"{name}/stack.json"))


def able(can: Callable[[Stack], object]) -> str:
    """Return the name of a stack for which `can` is true, for a help such as `write target NAME`. The default stack is
    tried first. If no stack can, the default stack is returned.
    """
    return next((name for name in (DEFAULT, *reversed(STACKS)) if can(_read(name))), DEFAULT)


@cache
def _omitted(stack: Stack, config: str) -> Mapping[str, str]:
    known, omitted = _records(stack, config), stack._policy("omitted")
    out = {name: str(reason) for name, reason in omitted.items() if name in known}
    # An argument may be deprecated in one class only, such as `dataset_num_proc` in rloo's class of trl 0.24.
    deprecated = (name for name, record in known.items() if "deprecated" in record)
    return {**dict.fromkeys(deprecated, "deprecated by this class"), **out}


@cache
def _base_arguments(stack: Stack, config: str) -> Mapping[str, Json]:
    omitted, base = stack.omitted(config), stack._policy("base")
    return {
        name: base[name] if name in base else record.get("effective", record["default"])
        for name, record in _records(stack, config).items()
        if name not in omitted
    }


@cache  # cached, because one compilation calls this function many times
def _records(stack: Stack, config: str) -> Mapping[str, Mapping[str, Json]]:
    """The JSON entries of a class's fields, the inherited fields included. An entry of the class replaces the entry of
    its base class.
    """
    entry = mapping_of(mapping_of(stack.table["library"]["configs"])[config])
    own = {name: mapping_of(record) for name, record in mapping_of(entry["fields"]).items()}
    return {**_records(stack, str(entry["base"])), **own} if entry["base"] is not None else own


@cache
def _family(stack: Stack, model_type: str) -> Family | None:
    record = mapping_of(stack.table["library"]["families"]).get(model_type)
    if record is None:
        return None
    table, facts = mapping_of(record), stack.facts
    lacking = facts.family_lacks.get(model_type, ())
    kinds: tuple[tuple[Packing, Collection[str]], ...] = (
        ("unaware", facts.families_unaware),
        ("stateful", facts.families_stateful),
        ("kernel", facts.families_convolving),
    )
    return Family(
        model_type=model_type,
        layers=strings_of(table["layers"]),
        attention=tuple(one for one in strings_of(table["attention"]) if one not in lacking),
        scores=bool(table["scores"]),
        packing=next((kind for kind, families in kinds if model_type in families), "exact"),
    )


@cache
def _fields(stack: Stack, config: str) -> Mapping[str, Field]:
    return {name: _field(name, record) for name, record in _records(stack, config).items()}


def _field(name: str, record: Mapping[str, Json]) -> Field:
    choices = record.get("choices", [])
    return Field(
        name=name,
        type=str(record["type"]),
        declared=record["default"],
        effective=record.get("effective", record["default"]),
        choices=tuple(choices) if isinstance(choices, list) else (),
        deprecated=bool(record.get("deprecated")),
        machine=bool(record.get("machine")),
    )
