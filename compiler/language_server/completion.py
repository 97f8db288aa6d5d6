"""The completions that are possible at a position of a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from xpc.compiler import registry, stacks
from xpc.compiler.explain.reference import first_sentence
from xpc.compiler.language import kinds as k
from xpc.compiler.language.launch_settings import ENGINES
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.optimizers import LOW_RANK
from xpc.compiler.language.schema import (
    ADAPTERS,
    BY_PATH,
    CLAUSES,
    EXTRA_TARGETS,
    OF_KIND,
    OF_ONE_KIND,
    TABLE,
    bare_choices,
    children,
)
from xpc.compiler.language.setting import Setting
from xpc.compiler.language.typed import show
from xpc.compiler.language_server.cursor_context import CursorContext, setting_of_value
from xpc.compiler.rules.optimizer.requirements import MOMENTUM, OF_MUON, PROJECTED
from xpc.compiler.rules.optimizer.schedule import READ_BY
from xpc.compiler.rules.strategy.sharding import FSDP_ONLY, ZERO_ONLY
from xpc.grammar.record import record

WORDS = ("train", "extends", "data")
"""Words that can begin a statement, in addition to the names of clauses."""


@record
class Item:
    """One completion: the label that is shown, the text that is inserted, its kind (`setting`, `clause` or `value`),
    and its documentation. With `snippet`, the inserted text has placeholders such as `${1:name}`.
    """

    label: str
    insert: str
    sort: str
    doc: str = ""


SNIPPET = """\
xpc 1

train ${1:qwen2.5-0.5b-instruct} on ${2:"train.jsonl"} for ${3:1 epochs}

hardware ${4:1 x h100-80gb}
precision bf16
batch(gbs=${5:16}, seq=${6:1024})
"""
"""A snippet that inserts a complete spec into an empty file."""


OF_CHOICE: Mapping[str, Sequence[str]] = {
    **{str(path): schedules for path, schedules in READ_BY.items()},
    **dict.fromkeys(PROJECTED, LOW_RANK),
    **dict.fromkeys(OF_MUON, ("muon",)),
    "optimizer.momentum": MOMENTUM,
    **{f"strategy.{name}": ("zero1", "zero2", "zero3") for name in ZERO_ONLY},
    **{f"strategy.{name}": ("fsdp", "fsdp1", "hsdp") for name in FSDP_ONLY},
    "strategy.shard": ("hsdp",),
    "strategy.activation_checkpointing": (),
}
"""Some settings are legal only with certain choices of their clause (XP221, XP241, XP401, XP404). Maps each of them to
these choices: `strategy.shard` to `hsdp`.
"""


def complete(location: CursorContext) -> list[Item]:
    """The completions at a position, the most likely ones first."""
    if location.key == "#":
        return []
    path = setting_of_value(location)
    if path:
        return list(_values(BY_PATH[path]))
    return list({one.label: one for one in _names(location)}.values())


def _names(location: CursorContext) -> Iterator[Item]:
    if location.begins:
        yield Item("xpc 1 ... (a spec to begin with)", SNIPPET, "snippet", without_locations(SNIPPET))
        yield Item("xpc 1", "xpc 1", "keyword")
    # settings that are already written are not offered, except in `data` blocks: each block has its own settings
    written = frozenset[str]() if location.clause.startswith("data") else location.written
    rows = [row for row in TABLE if not row.inner and row.path not in written]
    clauses = [Item(one, one, "clause", _doc(one)) for one in CLAUSES if one != "train" and one not in written]
    if not location.clause:
        yield from (Item(one, one, "keyword") for one in WORDS if one not in written or one == "data")
        yield from clauses
    elif location.follows == "x" and location.clause in ("train", "hardware"):
        yield from (Item(one, one, "gpu") for one in (*registry.gpu_names(), "cpu"))
    elif location.clause == "train":
        yield from (Item(one, one, "model") for one in registry.model_names())
        yield from (Item(one, one, "dataset") for one in registry.dataset_names())
        yield from (*clauses, *(_setting(row) for row in rows if not row.head))
        yield from (
            Item(one, one, "value", BY_PATH[path].doc) for one, path in bare_choices().items() if path not in written
        )
    elif location.clause == "sweep":
        yield from (_setting(row) for row in rows if row.kind is not k.BLOCK)
    else:
        yield from _inside(location, written)


def _inside(location: CursorContext, written: frozenset[str]) -> Iterator[Item]:
    """The completions inside a clause: its values, and its settings that are not yet written."""
    if location.clause == "extra":
        yield from (Item(one, one, "clause") for one in EXTRA_TARGETS)
    head = BY_PATH.get(location.clause)
    if head is not None and not location.first and (not location.chosen or head.kind is k.CHOICES):
        yield from _values(head)
    if head is not None and head.kind is k.HARDWARE and location.follows.isdecimal():
        yield from (Item(one, f"x {one}", "gpu") for one in (*registry.gpu_names(), "cpu"))
    clause = "lora" if location.clause in ADAPTERS else location.clause
    legal = (row for row in children(clause) if _is_legal(row, location.chosen))
    yield from (_setting(row) for row in legal if row.path not in written)


def _is_legal(row: Setting, chosen: str) -> bool:
    """Whether a setting can be used together with the choice `chosen` of its clause. The choice is a method, an engine,
    a strategy, an optimizer, a schedule or a kind of adapter.
    """
    readers, choices = OF_CHOICE.get(row.path), BY_PATH[row.clause].choices if row.path in OF_CHOICE else ()
    if readers is not None and (not readers or (chosen in choices and chosen not in readers)):
        return False
    if row.clause == "lora" and chosen in ADAPTERS:
        if chosen not in OF_KIND:
            return row.name != "block_size"
        return row.name in OF_KIND[chosen] if row.name in OF_ONE_KIND else (chosen, row.name) != ("loha", "dropout")
    of_method = chosen not in METHODS or not row.methods or chosen in row.methods
    return of_method and (chosen not in ENGINES or not row.engines or chosen in row.engines)


def without_locations(snippet: str) -> str:
    """The text of a snippet without its placeholders, for an editor that does not support snippets."""
    return re.sub(r"\$\{\d+:([^}]*)\}", r"\1", snippet)


def _doc(clause: str) -> str:
    return BY_PATH[clause].doc if clause in BY_PATH else ""


def _setting(row: Setting) -> Item:
    flag = row.kind in (k.FLAG, k.BLOCK)
    return Item(row.name, row.name if flag else f"{row.name} = ", "setting", first_sentence(row.doc))


def _values(row: Setting) -> Iterator[Item]:
    """The legal values of a setting. For a setting that takes a number, these are its default and an example."""
    choices = stacks.names() if row.path == "target" else ("true", "false") if row.kind is k.FLAG else row.choices
    if row.kind is k.HARDWARE:
        yield from (Item(one, f"8 x {one}", "gpu") for one in registry.gpu_names())
        yield Item("cpu", "cpu", "gpu")
    elif row.kind is k.MODEL:
        yield from (Item(one, one, "model") for one in registry.model_names())
    elif choices:
        yield from (Item(one, one, "value", row.doc) for one in choices)
    else:
        default = None if row.default is None else show(row, row.default)
        for one in dict.fromkeys(filter(None, (default, row.kind.example))):
            yield Item(one, one, "value", row.doc)
