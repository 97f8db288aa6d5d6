"""Convert values of kinds that only the settings of methods, adapters and chat templates use. An example is a list of
losses, `[sigmoid, sft(weight=1)]`.
"""

from __future__ import annotations

from collections.abc import Callable

from xpc.compiler.language.items import Item
from xpc.compiler.language.kinds import Rope, Template, Weighted
from xpc.compiler.language.model_choices import ROPE
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import (
    InvalidValue,
    _choice,
    _file,
    _integer,
    _name,
    _names,
    _number,
    _share,
    _text,
    _wrong_kind,
    _wrong_unit,
    plain_value,
)
from xpc.grammar.record import evolve
from xpc.grammar.tree import Call, List, Number, Ref, String, Value
from xpc.grammar.tree import Setting as Written


def weighted(row: Setting, item: Item, node: Value | None) -> object:
    """Read a loss, a reward, or a list of losses or rewards. Each is written in one of these forms: `name`,
    `name(weight=1)`, `"file.py:function"`, `file("file.py:function", weight=1)`. A reward may also have arguments:
    `cosine(weight=1, max_len=2000)`.
    """
    nodes = node.items if isinstance(node, List) else (node,)
    if not nodes:
        raise _wrong_kind(row, item, node)
    return tuple(_one(row, item, part) for part in nodes)


def _one(row: Setting, item: Item, node: Value | None) -> Weighted:
    _require_quotes(row, item, node)
    if not isinstance(node, Call):
        return Weighted(str(_name(row, item, node)))
    name, weight = node.name.text, None
    rewards = row.path == "method.rewards"
    for part in node.args:
        if isinstance(part, Written) and part.name.text == "weight" and weight is None:
            weight = float(_number(row, item, part.value))
        elif isinstance(part, Written) and part.name.text != "weight" and rewards:
            continue  # `_arguments` reads this argument of the reward function
        elif name == "file" and isinstance(part, String):
            name = str(_text(row, item, part))
        else:
            wrong = part.value if isinstance(part, Written) else part
            message = f"an item of `{row.name}` takes only a weight"
            help = f"write `{node.name.text[:60]}`, with or without `(weight=1)`: other settings stand in `method`"
            raise InvalidValue("explained", "XP104", message, row, item, wrong, help=help)
    if name == "file":
        raise _wrong_kind(row, item, node)
    return Weighted(name, weight, arguments=_arguments(row, item, node, ("weight",)) if rewards else ())


def functions(row: Setting, item: Item, node: Value | None) -> object:
    """Read a function of a file, `"tools.py:search"` or `file("tools.py:search")`, or a list of such functions."""
    nodes = node.items if isinstance(node, List) else (node,)
    if not nodes:
        raise _wrong_kind(row, item, node)
    return tuple(Weighted(_function_name(row, item, part)) for part in nodes)


def _function_name(row: Setting, item: Item, node: Value | None) -> str:
    _require_quotes(row, item, node)
    named = _file(row, item, node) if isinstance(node, Call) else node
    return str(_text(row, item, named if isinstance(named, String) else node))


def _require_quotes(row: Setting, item: Item, node: Value | None) -> None:
    """Report the function of a file if it is written without quotes: `rewards.py:right`. Without quotes, the parser
    reads it as a reference to a model or a dataset.
    """
    if isinstance(node, Ref) and node.name.endswith(".py") and node.config is not None:
        message = "a file and its function are written in quotes"
        help = f'write `"{node.name[:80]}:{node.config[:60]}"`'
        raise InvalidValue("explained", "XP104", message, row, item, node, help=help)


def template(row: Setting, item: Item, node: Value | None) -> object:
    """Read a chat template: a name such as `chatml`, a file such as `file("x.jinja")`, or a name with arguments such as
    `qwen3(enable_thinking=false)`.
    """
    if isinstance(node, Ref) and node.is_name and not node.name.endswith((".jinja", ".jinja2", ".j2", ".json")):
        name = str(_choice(row, item, node))
        return Template(f"files/{name}.jinja", (), name)
    if not isinstance(node, Call):
        raise _wrong_kind(row, item, node)
    arguments = _arguments(row, item, node)
    files = [part for part in node.args if not isinstance(part, Written)]
    if node.name.text == "file":
        found = _file(row, item, evolve(node, args=tuple(files)))
        assert isinstance(found, String)
        return Template(found.value, arguments)
    if files:
        raise _wrong_kind(row, item, node)
    name = str(_choice(row, evolve(item, node=node), Ref(node.name.span, node.name.text)))
    return Template(f"files/{name}.jinja", arguments, name)


def _arguments(
    row: Setting, item: Item, node: Call, apart: tuple[str, ...] = ()
) -> tuple[tuple[str, bool | int | float | str], ...]:
    """The arguments of a chat template or a reward function, in the order of the spec. Names in `apart`, such as a
    reward's `weight`, are skipped: they belong to the language and are not passed to the function.
    """
    found: dict[str, bool | int | float | str] = {}
    for part in node.args:
        if not isinstance(part, Written) or part.name.text in apart:
            continue
        name, value = part.name.text, plain_value(part.value)
        if name in found or not name.isidentifier() or not isinstance(value, bool | int | float | str):
            message = f"`{name[:60]}` is written twice" if name in found else "arguments are names with one value each"
            shown = "cosine(max_len=1000)" if apart else f"{node.name.text[:60]}(enable_thinking=false)"
            help = "keep one of the two" if name in found else f"write `{shown}`"
            raise InvalidValue("explained", "XP104", message, row, item, part.value, help=help)
        found[name] = value
    return tuple(found.items())


def rope(row: Setting, item: Item, node: Value | None) -> object:
    """Read a scaling of rotary positions: `yarn(factor=4, original=4096)`. Which other parameters are legal depends on
    the kind of scaling.
    """
    if isinstance(node, Ref) and node.is_name:
        name = str(_choice(row, item, node))
        raise InvalidValue(
            "explained", "XP104", f"`{name}` needs a factor", row, item, node, help=f"write `{name}(factor=4)`"
        )
    if not isinstance(node, Call):
        raise _wrong_kind(row, item, node)
    kind = str(_choice(row, evolve(item, node=node), Ref(node.name.span, node.name.text)))
    numbers: dict[str, float] = {}
    for part in node.args:
        known = isinstance(part, Written) and part.name.text in ("factor", "original", *ROPE[kind])
        if not isinstance(part, Written) or not known or part.name.text in numbers:
            takes = " and ".join(f"`{name}`" for name in ("factor", "original", *ROPE[kind]))
            message = f"`{kind}` takes {takes}, each once"
            raise InvalidValue("explained", "XP104", message, row, item, node, help=f"write `{kind}(factor=4)`")
        if part.name.text == "original":
            numbers["original"] = _integer(evolve(row, low=1), item, part.value, tokens=True)
        else:
            numbers[part.name.text] = float(_number(evolve(row, low=0), item, part.value))
    if numbers.get("factor", 0) <= 1:
        message = f"`{kind}` needs a factor above 1"
        raise InvalidValue("explained", "XP107", message, row, item, node, help=f"write `{kind}(factor=4)`")
    factor, original = numbers.pop("factor"), numbers.pop("original", None)
    return Rope(kind, factor, None if original is None else int(original), tuple(numbers.items()))


def targets(row: Setting, item: Item, node: Value | None) -> object:
    """Read the value of `targets`: `all-linear`, or a list of module names."""
    if isinstance(node, List):
        return _names(row, item, node)
    if isinstance(node, Ref | String):
        written = str(_name(row, item, node))
        if written in ("all-linear", "all_linear"):
            return "all-linear"
    raise _wrong_kind(row, item, node)


def share(row: Setting, item: Item, node: Value | None) -> object:
    """Read a share such as `70%`. A number without `%` is refused, because it could be a count."""
    if not isinstance(node, Number):
        raise _wrong_kind(row, item, node)
    if node.unit != "%":
        percent = node.value * 100 if 0 < node.value <= 1 else node.value
        raise _wrong_unit(row, item, node, None if node.unit else f"{percent:g}%")  # `64G` is not 64%
    return _share(row, item, node)


def model(row: Setting, item: Item, node: Value | None) -> object:
    """Return the syntax node of a model unchanged. Later, `resolve` converts the node, because that needs the registry
    and local folders.
    """
    if not isinstance(node, Ref | String):
        raise _wrong_kind(row, item, node)
    return node


READERS: dict[str, Callable[[Setting, Item, Value | None], object]] = {
    "functions": functions,
    "weighted": weighted,
    "rope": rope,
    "template": template,
    "targets": targets,
    "share": share,
    "model": model,
}
