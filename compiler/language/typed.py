"""Write values as a user would type them in a spec: a share of 0.1 becomes `10%`."""

from __future__ import annotations

from xpc.compiler.language import kinds as k
from xpc.compiler.language.kinds import Amount, Rope, Template, Weighted
from xpc.compiler.language.model_choices import TEMPLATES
from xpc.compiler.language.schema import Setting
from xpc.grammar.tree import quoted


def show(row: Setting, value: object) -> str:
    """Write a setting's value as it is typed in a spec: `10%`, `[q_proj, v_proj]`, `8 x h100-80gb`."""
    if isinstance(value, Template):
        return _template(value)
    if isinstance(value, Rope):
        original = () if value.original is None else (("original", value.original),)
        numbers = (("factor", value.factor), *original, *value.parameters)
        return f"{value.kind}({', '.join(f'{name}={real(one)}' for name, one in numbers)})"
    if row.kind is k.TEMPLATE and value in TEMPLATES:
        return str(value)
    if row.kind is k.FILE or row.kind is k.TEMPLATE:
        return f"file({quoted(str(value))})"
    if isinstance(value, Amount):
        return amount(value)
    if row.kind is k.DURATION:
        return f"{value}s"
    if row.kind is k.WEIGHTED and isinstance(value, tuple):
        return "[" + ", ".join(_weighted(one) for one in value) + "]"
    if row.kind is k.FUNCTIONS and isinstance(value, tuple):
        named = ", ".join(quoted(one.name if one.file is None else f"{one.file}:{one.function}") for one in value)
        return named if len(value) == 1 else f"[{named}]"
    if row.kind is k.TARGETS and isinstance(value, str):
        return value
    if row.kind is k.CHOICE or row.kind is k.HARDWARE or row.kind is k.MODEL or row.path == "target":
        return str(value)
    if row.kind is k.SOURCES:
        return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
    if row.kind is k.CHOICES and isinstance(value, tuple):
        return " ".join(map(str, value)) if row.head else f"[{', '.join(map(str, value))}]"
    return plain(value)


def _template(value: Template) -> str:
    """Write a chat template as in a spec: `chatml`, `qwen3(enable_thinking=false)`, `file("x.jinja")`."""
    arguments = [f"{name}={plain(one)}" for name, one in value.arguments]
    if value.name is None:
        return f"file({', '.join([quoted(value.file), *arguments])})"
    return f"{value.name}({', '.join(arguments)})" if arguments else value.name


def _weighted(one: Weighted) -> str:
    """Write a loss or a reward function as in a spec. If the function is in a file, the text has the path of the file's
    copy in the bundle.
    """
    weight = [] if one.weight is None else [f"weight={real(one.weight)}"]
    inside = [*weight, *(f"{name}={plain(value)}" for name, value in one.arguments)]
    if one.function is None:
        return f"{one.name}({', '.join(inside)})" if inside else one.name
    name = quoted(f"{one.file}:{one.function}")
    return f"file({', '.join([name, *inside])})" if inside else name


def plain(value: object, exact: bool = False) -> str:
    """Write plain data (texts, numbers, booleans, lists) as in a spec. With `exact`, 1.0 stays 1.0 and does not become
    1; arguments of `extra` need this to keep their type.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if exact else real(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(plain(one, exact) for one in value) + "]"
    return quoted(value) if isinstance(value, str) else str(value)


def real(value: float) -> str:
    """Write a number as in a spec, without a final `.0`: 3.0 becomes `3`."""
    return str(int(value)) if value == int(value) and abs(value) < 10**15 else repr(value)


def amount(value: Amount) -> str:
    """Write an amount: `10%` for a share, `500` for a count, `epoch`, `never`."""
    if value.unit in ("epoch", "never"):
        return value.unit
    if value.unit == "share":
        percent = round(value.value * 100, 10)
        return f"{real(percent)}%"
    return real(float(value.value)) if isinstance(value.value, float) else str(value.value)
