"""A written node to a value of the setting's kind, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable

from xpc.compiler.language.items import Item
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import (
    Wrong,
    _choice,
    _choices,
    _count_or_share,
    _duration,
    _every,
    _file,
    _flag,
    _int,
    _itself,
    _name,
    _names,
    _real,
    _real_or_share,
    _reals,
    _repository,
    _sources,
    _template,
    _text,
    _text_or_file,
    _tokens,
)
from xpc.grammar.tree import Value


def convert(row: Setting, item: Item) -> object | Wrong:
    """The value of an item under its schema row."""
    try:
        return _CONVERTERS[row.kind.name](row, item, item.node)
    except Wrong as wrong:
        return wrong.with_traceback(None)


def _of_methods(row: Setting, item: Item, node: Value | None) -> object:
    from xpc.compiler.language.convert_methods import CONVERTERS  # only methods and adapters have these kinds

    return CONVERTERS[row.kind.name](row, item, node)


_CONVERTERS: dict[str, Callable[[Setting, Item, Value | None], object]] = {
    "flag": _flag,
    "int": _int,
    "tokens": _tokens,
    "real": _real,
    "steps_or_share": _count_or_share,
    "real_or_share": _real_or_share,
    "every": _every,
    "rows_or_share": _count_or_share,
    "choice": _choice,
    "choices": _choices,
    "text": _text,
    "file": _file,
    "template": _template,
    "text_or_file": _text_or_file,
    "path": _text,
    "name": _name,
    "repository": _repository,
    "reals": _reals,
    "names": _names,
    "tasks": _names,
    "sources": _sources,
    "weighted": _of_methods,
    "targets": _of_methods,
    "share": _of_methods,
    "model": _of_methods,
    "duration": _duration,
    "hardware": _itself,
}
