"""Convert syntax nodes to values, one function for each kind of setting. Illegal values raise `InvalidValue`."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite

from xpc.compiler.language.items import Item
from xpc.compiler.language.kinds import BYTE_UNITS, COUNT_UNITS, EPOCH, NEVER, TIME_UNITS, Amount
from xpc.compiler.language.schema import CHOICE_REFUSED, Setting
from xpc.grammar.tree import Call, List, Number, Ref, String, Value

LARGEST = 2**63 - 1


class InvalidValue(Exception):
    """An illegal value, as `convert` returns it, with a description of the error. `xpc.compiler.suggest.legal` turns it
    into a finding that suggests a legal value.

    `value` is the value that the user probably means, or None. `text` is the text of the label. `kind` is "value",
    "choice" (an unknown choice), "bounds" (a number that is too small or too large), "fraction" (a number of rows or a
    share of them), or "explained" (the help is already complete).
    """

    def __init__(
        self, kind: str, code: str, message: str, row: Setting, item: Item, node: Value | None,
        value: str | None = None, text: str = "", help: str | None = None, edit: bool = True,
    ) -> None:  # fmt: skip
        self.kind, self.code, self.message, self.row, self.item, self.node = kind, code, message, row, item, node
        self.value, self.text, self.help, self.edit = value, text, help, edit


def wrong(
    code: str, message: str, row: Setting, item: Item, node: Value | None, value: str | None = None, text: str = ""
) -> InvalidValue:
    """Make an `InvalidValue` of kind "value". Its help suggests `value`, or describes the legal values if `value` is
    None.
    """
    return InvalidValue("value", code, message, row, item, node, value, text)


def _qualified_name(row: Setting) -> str:
    """The part of a setting's path after the clause: `hub.strategy` for `save.hub.strategy`."""
    return ".".join(row.path.split(".")[1:]) or row.name


def _wrong_kind(row: Setting, item: Item, node: Value | None, value: str | None = None) -> InvalidValue:
    return wrong("XP104", f"`{row.name}` takes {row.kind.phrase}", row, item, node, value)


def _wrong_unit(row: Setting, item: Item, node: Number, value: str | None) -> InvalidValue:
    shown = node.text if len(node.text) <= 40 else node.text[:37] + "..."
    message, text = f"`{shown}` has no meaning for `{row.name}`", f"expected {row.kind.phrase}"
    return wrong("XP105", message, row, item, node, value, text)


def _bounded(row: Setting, item: Item, node: Value | None, value: int | float) -> None:
    legal = (row.low is None or value >= row.low) and (row.high is None or value <= row.high)
    if not isfinite(value) or abs(value) > LARGEST or not legal:
        raise InvalidValue("bounds", "XP107", f"`{row.name}` is out of range", row, item, node)


def _integer(row: Setting, item: Item, node: Value | None, tokens: bool = False) -> int:
    if not isinstance(node, Number):
        raise _wrong_kind(row, item, node)
    if not isfinite(node.value):
        _bounded(row, item, node, node.value)
    unit = {"K": "k", "m": "M", "b": "B", "ki": "Ki", "mi": "Mi"}.get(node.unit or "", node.unit or "")
    scale = COUNT_UNITS.get(unit, 1)
    if tokens and unit in ("k", "M", "B"):
        exact, binary = _scaled(row, item, node, scale), _scaled(row, item, node, 1024)
        found = _wrong_unit(row, item, node, f"{binary if unit == 'k' else exact:.0f}")
        readings = f"{binary:.0f}, {node.value:g}Ki or " if unit == "k" else ""
        # `2k` may mean 2000 or 2048: the help names both, and no quick fix is offered
        found.help, found.edit = f"write {readings}{exact:.0f}", not readings and node.unit != "m"
        raise found
    if unit != (node.unit or ""):
        time = node.unit == "m" and row.high is not None  # `accum = 30m` does not mean 30 million
        raise _wrong_unit(row, item, node, None if time else f"{node.value:g}{unit}")
    if unit and unit not in COUNT_UNITS:
        of_another = unit == "%" or unit in TIME_UNITS or unit in BYTE_UNITS or row.kind.name == "every"
        raise _wrong_unit(row, item, node, None if of_another else f"{node.value:g}")
    value = _scaled(row, item, node, scale)
    if value != int(value):
        found = wrong("XP104", f"`{row.name}` takes a whole number", row, item, node, str(max(1, round(value))))
        found.edit = False  # the value only resembles a legal value, so an editor must not replace it automatically
        raise found
    _bounded(row, item, node, int(value))
    return int(value)


def _scaled(row: Setting, item: Item, node: Number, scale: int) -> int | float:
    """Multiply a number by its unit exactly: 1.005k is 1005. In binary arithmetic, 1.005 * 1000 would be
    slightly less.
    """
    value = node.value * scale
    if not isfinite(value):
        _bounded(row, item, node, value)
    rounded = round(value)
    return rounded if scale != 1 and abs(value - rounded) < 1e-6 else value


def _tokens(row: Setting, item: Item, node: Value | None) -> object:
    return _integer(row, item, node, tokens=True)


def _number(row: Setting, item: Item, node: Value | None) -> float | int:
    if not isinstance(node, Number):
        raise _wrong_kind(row, item, node)
    if node.unit:
        # suggest no value, because it is unclear which number `lr = 2k` stands for
        if node.unit in (*COUNT_UNITS, *TIME_UNITS, *BYTE_UNITS, "K"):
            raise _wrong_unit(row, item, node, None)
        intended = node.value / 100 if node.unit == "%" else node.value
        raise _wrong_unit(row, item, node, f"{intended:g}")
    _bounded(row, item, node, node.value)
    return node.value


def _real(row: Setting, item: Item, node: Value | None) -> object:
    return float(_number(row, item, node))


def _share(row: Setting, item: Item, node: Number) -> Amount:
    _bounded(row, item, node, node.value)
    if not 0 <= node.value <= 100:
        message, text = f"`{row.name}` is out of range", "a share is between 0% and 100%"
        raise wrong("XP107", message, row, item, node, None, text)
    return Amount("share", hundredth(node.value))


def hundredth(value: int | float) -> float:
    """Convert a percentage to a share exactly: 0.7 % is 0.007. In binary arithmetic, 0.7 / 100 would be
    slightly less.
    """
    digits = repr(value)
    return value / 100 if "e" in digits else float(digits + "e-2")


def _count_or_share(row: Setting, item: Item, node: Value | None) -> object:
    if isinstance(node, Number) and node.unit == "%":
        return _share(row, item, node)
    if isinstance(node, Number) and isinstance(node.value, float) and not node.unit and _may_be_a_share(node.value):
        raise InvalidValue("fraction", "XP105", "", row, item, node)
    return Amount("count", _integer(row, item, node))


def _may_be_a_share(value: float) -> bool:
    """Whether the user may have meant a number as a share. True for 1.0 (100 %) and 2.5 (2.5 %), which are not
    plausible counts; false for 40.0 and 1e3, which are whole numbers above 1.
    """
    return 0 < value <= 1 or (value > 1 and isfinite(value) and value != int(value))


def _real_or_share(row: Setting, item: Item, node: Value | None) -> object:
    if isinstance(node, Number) and node.unit == "%":
        return _share(row, item, node)
    return Amount("absolute", _number(row, item, node))


_EVERY_WORDS = {"no": "never", "none": "never", "off": "never", "false": "never", "epochs": "epoch"}


def _every(row: Setting, item: Item, node: Value | None) -> object:
    if isinstance(node, Ref) and node.is_name and node.name in ("epoch", "never"):
        return EPOCH if node.name == "epoch" else NEVER
    if isinstance(node, Ref):
        near = _EVERY_WORDS.get(node.name.lower())
        raise _wrong_kind(row, item, node, near)
    amount = _count_or_share(row, item, node)
    assert isinstance(amount, Amount)
    if amount.value <= 0:
        raise wrong("XP107", f"`{row.name}` is out of range", row, item, node, "never", "0 would mean never")
    # 100% is refused: as the number 1, transformers would read it as "every step", not "once per run"
    if amount.unit == "share" and amount.value >= 1:
        raise wrong("XP107", f"`{row.name}` is out of range", row, item, node, None, "a share is below 100%")
    return amount


def _flag(row: Setting, item: Item, node: Value | None) -> object:
    if node is None:
        return True
    if isinstance(node, Ref) and node.is_name and node.name in ("true", "false"):
        return node.name == "true"
    raise _wrong_kind(row, item, node)


def _choice(row: Setting, item: Item, node: Value | None) -> object:
    if not (isinstance(node, Ref) and node.is_name):
        raise _wrong_kind(row, item, node)
    if node.name not in row.choices:
        message = f"`{node.name[:60]}` is not a choice of `{_qualified_name(row)}`"
        reason = CHOICE_REFUSED.get((row.path, node.name))
        if reason:
            raise InvalidValue("explained", "XP106", message, row, item, node, help=reason)
        raise InvalidValue("choice", "XP106", message, row, item, node)
    return node.name


def _choices(row: Setting, item: Item, node: Value | None) -> object:
    nodes = node.items if isinstance(node, List) else (node,)
    chosen = tuple(dict.fromkeys(str(_choice(row, item, part)) for part in nodes))
    if len(chosen) > 1 and "none" in chosen:
        raise InvalidValue(
            "explained", "XP106", "`none` cannot be combined", row, item, node, help="drop `none` or the others"
        )
    return chosen


def plain_text(value: str) -> str | None:
    """The reason why a text cannot be a name or a path, or None. A name or a path is a single line that is not
    empty.
    """
    if not value.strip():
        return "it is empty"
    if len(value) > 4096:
        return "it is longer than 4096 characters"
    if any(ord(c) < 32 or ord(c) == 127 for c in value):
        return "it contains a control character"
    if any("\ud800" <= c <= "\udfff" for c in value):  # os.listdir returns surrogates for non-UTF-8 bytes
        return "it is not UTF-8"
    return None


def _text(row: Setting, item: Item, node: Value | None) -> object:
    if not isinstance(node, String):
        raise _wrong_kind(row, item, node)
    why = plain_text(node.value)
    if why:
        raise wrong("XP107", f"`{row.name}` cannot be used: {why}", row, item, node)
    return node.value


def _file(row: Setting, item: Item, node: Value | None) -> object:
    """Read `file("x")`, and return the syntax node of "x". `resolve` reads the file later."""
    if isinstance(node, Call) and node.name.text == "file" and len(node.args) == 1 and isinstance(node.args[0], String):
        return node.args[0]
    raise _wrong_kind(row, item, node)


def _text_or_file(row: Setting, item: Item, node: Value | None) -> object:
    if isinstance(node, String):
        return node.value
    return _file(row, item, node)


def _name(row: Setting, item: Item, node: Value | None) -> object:
    plain = isinstance(node, Ref) and node.config is None and node.split is None and node.revision is None
    # in Python and YAML, `revision = None` leaves the revision unset, and does not name one
    if isinstance(node, Ref) and plain and node.name.lower() not in ("none", "null"):
        return node.name
    return _text(row, item, node)


def _repository(row: Setting, item: Item, node: Value | None) -> object:
    # imported here, because only a spec that pushes to the hub needs it
    from xpc.compiler.language.repository_names import fault, nearest_name

    name = str(_name(row, item, node))
    why = fault(name)
    if why:
        message, near = f"`{name[:100]}` is not a legal name of a repository: {why}", f'"{nearest_name(name)}"'
        raise InvalidValue("value", "XP107", message, row, item, node, near, edit=False)
    return name


def _reals(row: Setting, item: Item, node: Value | None) -> object:
    if not isinstance(node, List):
        raise _wrong_kind(row, item, node)
    values = tuple(float(_number(row, item, part)) for part in node.items)
    if row.path == "optimizer.betas" and (len(values) != 2 or not all(0 <= v < 1 for v in values)):
        raise wrong("XP107", "`betas` are two numbers from 0 to below 1", row, item, node)
    return values


def _names(row: Setting, item: Item, node: Value | None) -> object:
    if not isinstance(node, List) or not node.items:
        raise _wrong_kind(row, item, node)
    return tuple(str(_name(row, item, part)) for part in node.items)


def _sources(row: Setting, item: Item, node: Value | None) -> object:
    """Return the syntax node of data sources unchanged. Later, `resolve` converts the node, because that needs the
    `data` blocks and the files.
    """
    for part in node.items if isinstance(node, List) else (node,):
        if not isinstance(part, Ref | String):
            raise _wrong_kind(row, item, node)
    if isinstance(node, List) and not node.items:
        raise _wrong_kind(row, item, node)
    return node


def _duration(row: Setting, item: Item, node: Value | None) -> object:
    if not isinstance(node, Number):
        raise _wrong_kind(row, item, node)
    if node.unit not in TIME_UNITS:
        slurm = row.path == "launch.time"  # Slurm reads a number without a unit as minutes
        raise _wrong_unit(row, item, node, None if slurm or node.unit else f"{node.value:.15g}s")
    _bounded(row, item, node, node.value)
    seconds = _scaled(row, item, node, TIME_UNITS[node.unit])
    _bounded(row, item, node, seconds)
    if seconds < 1 or seconds != int(seconds):
        raise wrong("XP107", f"`{row.name}` is at least one second, in whole seconds", row, item, node)
    return int(seconds)


READERS: dict[str, Callable[[Setting, Item, Value | None], object]] = {
    "flag": _flag,
    "int": _integer,
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
    "text_or_file": _text_or_file,
    "path": _text,
    "name": _name,
    "repository": _repository,
    "reals": _reals,
    "names": _names,
    "tasks": _names,
    "sources": _sources,
    "duration": _duration,
    "hardware": lambda row, item, node: node,
}
"""Maps a kind of setting to the function that converts its values. The module convert_methods.py has the functions for
kinds that only settings of methods and adapters have.
"""


def plain_value(node: Value | None) -> object | None:
    """Convert the value of an `extra` argument to plain data: a text, number, boolean or list. For a name without a
    value, return True. For an illegal value, return None.
    """
    if node is None:
        return True
    if isinstance(node, Number):
        unit = node.unit or ""
        scale = {**COUNT_UNITS, **TIME_UNITS, **BYTE_UNITS, "": 1}.get(unit)
        if unit == "%":
            return hundredth(node.value) if isfinite(node.value) else None
        value = node.value * scale if scale is not None else inf
        if not isfinite(value):
            return None
        return int(value) if unit and value == int(value) else value
    if isinstance(node, String):
        return node.value
    if isinstance(node, Ref) and node.is_name:
        return {"true": True, "false": False}.get(node.name, node.name)
    if isinstance(node, List):
        items = [plain_value(part) for part in node.items]
        return None if any(item is None for item in items) else items
    return None
