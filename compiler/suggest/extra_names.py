"""Report names that `extra` cannot pass to a library. This module is imported only for such a name."""

from __future__ import annotations

from xpc.compiler.language import extras, schema
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.language.codes import report
from xpc.compiler.language.items import Item
from xpc.compiler.language.values import plain_value
from xpc.compiler.registry.types import Gpu
from xpc.compiler.stacks import Stack
from xpc.compiler.suggest.likeness import canonical
from xpc.compiler.suggest.meaning import Meaning, meaning
from xpc.compiler.suggest.no_equivalent import NO_EQUIVALENT, own_reason
from xpc.compiler.suggest.typed_form import intended_value, typed, written
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.nearest import letters, nearest
from xpc.grammar.record import evolve
from xpc.grammar.source import Span

NONE = "leave it out: the target has no similar name"
MOST = 100
"""If a spec has more findings than this, its unknown names get no suggestions, because suggestions take time."""


def owned(item: Item, name: str, path: str, known_as: str = "", gpu: Gpu | None = None) -> Diagnostic:
    """The finding for a name in `extra` that has a setting of its own (`path`), which decides its value. `known_as` is
    the argument's name in the chosen stack, if the library has renamed it.

    The help does not propose bf16 if the GPU does not have it.
    """
    if name.rpartition(".")[2].endswith("activation_checkpointing") and path == "strategy":
        setting = schema.BY_PATH["memory.checkpointing"]
        help = f"write `memory(checkpointing)` instead, which works under every strategy: {setting.doc}"
        return report("XP120", f"`{name[:60]}` is decided by `{setting.path}`", item.label, help=help)
    setting = schema.BY_PATH[path]
    written_as = _unknown_name(item, name)
    guess = meaning(name, exact=True)
    decided_value = guess.value if guess is not None and guess.path == path and guess.value != "!" else ""
    value = decided_value or intended_value(setting, written_as)
    form = typed(setting, value) if value else setting.name
    doc = f": {setting.doc}" if setting.doc != setting.name else ""
    if form == "precision=bf16" and gpu is not None and gpu.capability < (8, 0):
        form, doc = "precision=fp16", f": {gpu.name} has no bf16"
    called = f" is `{known_as}` here, which" if known_as else " is decided by"
    return report(
        "XP120",
        f"`{name[:60]}`{called} `{path}`{' decides' if known_as else ''}",
        item.label,
        help=f"write `{form or path}` instead{doc}",
    )


def unknown(stack: Stack, library: str, name: str, item: Item, method: str, suggest: bool = True) -> Diagnostic:
    """The finding for a name in `extra` that the stack does not have, or that xpc never sets. The help says what to
    write instead: another argument, a setting, or the most similar name.

    Without `suggest`, the finding has no suggestion, which is faster.
    """
    if not suggest:
        return _finding(stack, library, name, item, NONE)
    if library == "trl":
        found = _of_trl(stack, name, item, method)
        if found is not None:
            return found
    missing = extras.removed(stack, library, name)
    if missing is not None:
        return _finding(stack, library, name, item, missing)
    inside = _of_a_mapping(stack, library, name, item, method)
    if inside is not None:
        return inside
    elsewhere = "" if library == "trl" else _argument_of_trl(name)
    if elsewhere in extras.legal_names(stack, "trl", method):
        help = f"write `extra trl({elsewhere}={item.label.source.slice(item.node.span) if item.node else '...'})`"
        return _finding(stack, library, name, item, help + ": it is an argument of the trainer", elsewhere)
    guess = meaning(name, exact=True)
    key = None if library == "trl" else _near(name, extras.owned_names(stack, library, method))
    # a last part such as `stage` means the key of deepspeed.json, even if another setting has the same name
    if key is not None and key.endswith(f".{name}"):
        guess = Meaning(extras.owner(library, key, method) or "")
    path = near = None if guess is None or guess.path not in schema.BY_PATH else guess.path
    if near is None:
        known = extras.legal_names(stack, library, method)
        near = _near(name, known | extras.owned_names(stack, library, method))
        near = near or (_argument_of_trl(name) if library == "trl" and _argument_of_trl(name) in known else None)
        why = own_reason(name)
        if why is not None and not (near or "").endswith(name):
            return _finding(stack, library, name, item, NO_EQUIVALENT + why)
        path = None if near is None else extras.owner(library, near, method)
    if path is not None:
        setting = schema.BY_PATH[path]
        form = written(setting, _unknown_name(item, name))
        return _finding(stack, library, name, item, f"`{path}` decides it: write `{form}` outside of `extra`", near)
    fits = library != "trl" or extras.wrong_value(stack, "trl", near or "", plain_value(item.node), method) is None
    edit = _edit(item, name, near) if near and fits else None
    help = f"write `{near if edit is None else edit.text}`" if near else NONE
    return _finding(stack, library, name, item, help, near, edit)


def _argument_of_trl(name: str) -> str:
    """The trainer's argument that another tool's name stands for: `torch_compile_backend` for `dynamo_backend`. "" for
    any other name.
    """
    from xpc.compiler.suggest.extra_form import aliases

    return aliases().get(letters(name)) or aliases().get(canonical(name), "")


def _of_trl(stack: Stack, name: str, item: Item, method: str) -> Diagnostic | None:
    """The finding for a trainer argument that was renamed or removed, or that xpc never sets. None for any other
    name.
    """
    new = stack.rename(name)
    if new is not None:
        path = extras.owner("trl", new, method)
        if path is not None:
            return owned(item, name, path, new)
        if new in extras.legal_names(stack, "trl", method):
            return _renamed(stack, name, new, item, method)
    why = stack.removed.get(name)
    if why is not None:
        written_as = "leave it out" if why == "no equivalent" else f"leave it out: {why}"
        return _finding(stack, "trl", name, item, written_as)
    why = stack.omitted(stack.config(method)).get(name)
    if why is not None:
        return report("XP121", f"`{name}` cannot be set under `extra`", item.label, help=f"leave it out: {why}")
    return None


def _renamed(stack: Stack, name: str, new: str, item: Item, method: str) -> Diagnostic:
    """The finding for a renamed argument. A boolean argument may have become one choice of a new argument, as
    `group_by_length` became a choice of `train_sampling_strategy`. Then the help shows this choice.
    """
    start = item.label.span.start
    if extras.wrong_value(stack, "trl", new, plain_value(item.node), method) is None:
        return _finding(stack, "trl", name, item, f"write `{new}`, as it is called now", new, _edit(item, name, new))
    field = stack.fields(stack.config(method))[new]
    form = f"{new} = {name}" if name in field.choices else f"{new} = ..."
    edit = Edit(Span(start, item.label.span.end), form) if name in field.choices else None
    return _finding(stack, "trl", name, item, f"write `{form}`", new, edit)


def _finding(
    stack: Stack, library: str, name: str, item: Item, help: str, near: str | None = None, edit: Edit | None = None
) -> Diagnostic:
    label = evolve(item.label, text=f"did you mean `{near}`?" if near else "")
    edits = () if edit is None else (edit,)
    return report("XP121", f"{stack.name} has no `{name[:60]}` for {library}", label, help=help, edits=edits)


def _of_a_mapping(stack: Stack, library: str, name: str, item: Item, method: str) -> Diagnostic | None:
    """The finding for a name inside of an argument whose value is a mapping (`wandb.enabled`). `extra` cannot write
    such a value. None for any other name.
    """
    head, dot, last = name.partition(".")
    if not dot or head not in extras.legal_names(stack, library, method):
        return None
    if extras.wrong_value(stack, library, head, None, method) != extras.MAPPING:
        return None
    return _finding(stack, library, name, item, _mapping_help(library, head, last, item))


def wrong_kind(library: str, name: str, item: Item, expected: str) -> Diagnostic:
    """The finding for an argument with a value of a wrong type. If the argument takes a mapping, the help names the
    xpc setting that sets the argument.
    """
    mapping = expected == extras.MAPPING
    help = _mapping_help(library, name, "", item) if mapping else f"write {expected}, or leave `{name}` out"
    return report("XP104", f"`{name}` takes {expected}", item.label, help=help)


def _mapping_help(library: str, head: str, last: str, item: Item) -> str:
    """The help for the mapping `head` or the key `last` in it: what to write instead, or why that is not possible."""
    from xpc.compiler.suggest.extra_form import extra_argument

    if head in schema.BY_PATH["track"].choices:
        return f"`track` decides it: write `track={head}` outside of `extra`"
    written_as = _unknown_name(item, last)
    form = (
        extra_argument(last or head, written_as.node, written_as.typed, written_as.header) if library != "trl" else None
    )
    if form is not None and form.library == "trl":
        return f"write `{form.form}` outside of `extra {library}`"
    why = own_reason(head) or f"`{head}` is a mapping, which `extra` cannot write"
    return NO_EQUIVALENT + why


def _near(name: str, known: frozenset[str]) -> str | None:
    """The known name that is most similar to a name. A known name that ends with `name`, as `fsdp_offload_params` ends
    with `offload_params`, is preferred to a name with a similar spelling.

    Each part of a dotted name must be similar: `wandb.enabled` is not similar to `bf16.enabled`, because their first
    parts differ.
    """
    parts = name.split(".")
    known = frozenset(one for one in known if not name.startswith(one + "."))
    if len(parts) > 1:
        same = [one for one in known if one.count(".") == len(parts) - 1]
        known = frozenset(
            one for one in same if all(a == b or nearest(a, [b]) for a, b in zip(parts, one.split("."), strict=True))
        )
        return nearest(name, sorted(known))
    ends = [one for one in sorted(known, key=lambda one: (len(one), one)) if one.endswith((f"_{name}", f".{name}"))]
    return ends[0] if ends and len(name) > 4 else nearest(name, sorted(known))


def _edit(item: Item, name: str, near: str | None) -> Edit | None:
    """The edit that replaces a name by the similar name `near`. None if a replacement at this place is not enough,
    because `near` belongs in another block.
    """
    text, start = item.label.source.text, item.label.span.start
    # In `zero_optimization { stage = 2 }`, the name `zero_optimization.stage` is written only as `stage`. So compare
    # the source text with the complete name, then without its first part, and so on.
    for at in (0, *(i + 1 for i, c in enumerate(name) if c == ".")):
        if near is not None and near.startswith(name[:at]) and text.startswith(name[at:], start):
            return Edit(Span(start, start + len(name) - at), near[at:])
    return None


def _unknown_name(item: Item, name: str) -> UnknownName:
    node = item.node
    typed = None if node is None else item.label.source.slice(node.span)[:400]
    return UnknownName(name, None, node, typed, item.label)
