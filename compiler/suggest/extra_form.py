"""Suggest `extra { }` for an unknown name that is an argument of a library. `extra` passes arguments to a library
unchanged. This module is imported only for an unknown name.
"""

from __future__ import annotations

import re
from functools import cache

from xpc.compiler import stacks
from xpc.compiler.language.advisor import Suggestion, UnknownName
from xpc.compiler.language.extras import MAPPING, ONLY_FSDP1, legal_names, wrong_value
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.values import plain_value
from xpc.compiler.suggest.likeness import canonical, parts
from xpc.compiler.suggest.no_equivalent import without_equivalent
from xpc.compiler.suggest.tables import extra_aliases, words_of
from xpc.grammar.nearest import letters
from xpc.grammar.record import record
from xpc.grammar.tree import Value

METRIC = "metric_for_best_model"
READERS = {"accelerate": ", which `strategy fsdp` reads", "deepspeed": ", which `strategy zero2` or `zero3` reads"}
"""The end of a help about an argument of accelerate or DeepSpeed. It names the strategies that read such arguments."""
OF_ZERO3 = ("stage3_", "zero_hpz_", "zero_quantized_weights", "zero_quantized_nontrainable_weights", "mics_")
"""Beginnings of DeepSpeed keys that only ZeRO-3 reads."""


@record
class ExtraArgument:
    """A library's argument that an unknown name stands for. `form` is the text to type, such as `extra trl { x = 1 }`.
    `fits` is true if this text is legal in every spec, so that an editor may insert it.

    If only one method's trainer has the argument, `method` is this method.
    """

    form: str
    library: str
    name: str
    fits: bool
    method: str = ""


def extra_suggestion(unknown: UnknownName, message: str) -> Suggestion | None:
    """Suggest to write a name in `extra`, which passes it to a library. None if no library has an argument of this
    name.
    """
    found = extra_argument(unknown.name, unknown.node, unknown.typed, unknown.header)
    if found is not None and found.name == METRIC and letters(unknown.typed or "") in words_of("uncomputed_metrics"):
        return without_equivalent(message, "uncomputed metric")
    chosen = found is not None and "..." in found.form and unknown.typed in ("auto", '"auto"')
    if found is not None and (chosen or _is_so_already(found, unknown)):
        why = "a bundle states a value for `auto`" if chosen else "every bundle has this value"
        return Suggestion("XP101", message, help=f"leave `{unknown.name[:60]}` out: {why}")
    elsewhere = unknown.clause not in (None, "strategy", "precision")
    general = len(parts(unknown.name)) < 2 or words_of("general").issuperset(parts(unknown.name))
    if found is None or (found.library != "trl" and elsewhere and general):
        return None  # `debug` and `output_file` in an unrelated block do not mean DeepSpeed's arguments
    outside = f" outside of `{unknown.clause}`" if unknown.clause else ""
    library = {"trl": "TRL's own", "accelerate": "accelerate's own", "deepspeed": "DeepSpeed's own"}[found.library]
    reader = f", which `method {found.method}` reads" if found.method else READERS.get(found.library, "")
    reader = f", which only `strategy fsdp1` reads; with FSDP2 it is always on, so {unknown.name} is left out" if (
        found.name in ONLY_FSDP1) else reader  # fmt: skip
    reader = ", which `strategy zero3` reads" if found.name.rpartition(".")[2].startswith(OF_ZERO3) else reader
    stated = unknown.typed is not None and any(
        re.search(rf"\b{one}\b", unknown.label.source.text) for one in re.findall(r"`(?:\w+ )?(\w+)`", reader)
    )
    reader = "" if stated else reader
    edit = found.form if (found.fits or stated) and not outside and "..." not in found.form else None
    return Suggestion("XP101", message, library, f"write `{found.form}`{outside}{reader}", edit, True)


def _is_so_already(found: ExtraArgument, unknown: UnknownName) -> bool:
    """Whether a user's value for an argument of TRL changes nothing, because bundles have it anyway:
    `logging_first_step = false`, or a switch that is off and that TRL has replaced by a choice, `group_by_length =
    false`.
    """
    stack = stacks.default()
    if unknown.node is None or found.library != "trl":
        return False
    config, value = stack.config(found.method or "sft"), plain_value(unknown.node)
    value = {"True": True, "False": False}.get(str(value), value)  # as Python writes them
    base = stack.base_arguments(config).get(found.name, ...)
    if base is None and str(value).lower() in ("no", "none", "off"):
        return True
    if isinstance(value, bool) or not isinstance(base, bool):
        return value == base or (value is False and unknown.name in stack.fields(config)[found.name].choices)
    return False


def extra_argument(name: str, node: Value | None, typed: str | None, header: bool) -> ExtraArgument | None:
    """The argument of a library that an unknown name stands for, on the newest stack; None if no library has it.

    If the library has renamed the argument, the result has the new name. A key of accelerate or DeepSpeed is found by
    its last part. For such a key, `fits` of the result is false, because only some strategies read it.
    """
    stack = stacks.default()
    value, own = typed if typed is not None else "...", _of_trl(stack, name)
    if own is not None:
        new, method = own
        config = stack.config(method or "sft")
        fits = wrong_value(stack, "trl", new, plain_value(node), method or "sft") is None and typed is not None
        field = stack.fields(config).get(new)
        if not fits and field is not None:
            value, fits = (name, True) if name in field.choices else ("...", False)
            if typed is None and field.type == "bool":
                value, fits = "true", True
        return ExtraArgument(_form(header, "trl", new, value), "trl", new, fits and not method, method)
    for library in ("accelerate", "deepspeed"):
        full = _of_file(library, name)
        if full is not None:
            wrong = wrong_value(stack, library, full, plain_value(node))
            if wrong == MAPPING:
                return None
            fits = wrong is None and typed is not None
            return ExtraArgument(_form(header, library, full, value if fits else "..."), library, full, False)
    return None


def _of_trl(stack: stacks.Stack, name: str) -> tuple[str, str] | None:
    """Find an argument of a trainer by its name, its old name or an alias. Returns a pair: the argument's current name,
    and the method whose trainer has the argument ("" if the trainer of sft has it). None if no trainer has such an
    argument.
    """
    new = stack.rename(name) if name not in stack.fields() else None
    names = (new or name, aliases().get(letters(name)) or aliases().get(canonical(name), ""))
    for method in ("", *METHODS):
        legal = () if stack.refused(method) else legal_names(stack, "trl", method or "sft")
        found = next((one for one in names if one in legal), None)
        if found is not None:
            return found, method
    return None


@cache
def aliases() -> dict[str, str]:
    """Maps other tools' names of trainer arguments to TRL's names. Each name is a key in two forms: only its letters,
    and as `canonical` writes it.
    """
    rows = [(phrase, name) for name, phrases in extra_aliases().items() for phrase in phrases]
    return {form(phrase): name for form in (canonical, letters) for phrase, name in rows}


def _of_file(library: str, name: str) -> str | None:
    """The full name of a key of accelerate.yaml or deepspeed.json; `library` selects the file. `name` may be the last
    part of the key. None if the key is unknown or ambiguous.
    """
    keys = legal_names(stacks.default(), library)
    full = name.removeprefix("deepspeed_config.").removeprefix("fsdp_config.").removeprefix("deepspeed.")
    found = [one for one in (full, f"fsdp_{full}", f"zero_optimization.{full}") if one in keys]
    ends = [one for one in keys if one.endswith(f".{full}")]
    return found[0] if found else ends[0] if len(ends) == 1 else None


@cache
def names() -> tuple[str, ...]:
    """The names of all arguments that `extra` can pass to a library. For a dotted name, only its last part."""
    stack = stacks.default()
    found = {one for method in METHODS if stack.refused(method) is None
             for one in legal_names(stack, "trl", method)}  # fmt: skip
    for library in ("accelerate", "deepspeed"):
        found |= {
            one.rpartition(".")[2]
            for one in legal_names(stack, library)
            if (full := _of_file(library, one.rpartition(".")[2]))
            and wrong_value(stack, library, full, None) != MAPPING
        }
    return tuple(sorted(found))


def _form(header: bool, library: str, name: str, value: str) -> str:
    """The text to type for an argument of `extra`: after `with` in the `train` line if `header` is true, otherwise on a
    line of its own.
    """
    *blocks, last = name.split(".")
    inner = f"{last}={value}"
    for block in reversed(blocks):
        inner = f"{block}({inner})"
    return f"extra({library}, {inner})" if header else f"extra {library}({inner})"
