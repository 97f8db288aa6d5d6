"""Read the arguments in `extra TARGET { }` blocks, which are passed unchanged to the library TARGET."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.language import extras
from xpc.compiler.language.codes import Problems
from xpc.compiler.language.items import SPEC, Item
from xpc.compiler.language.values import plain_text, plain_value
from xpc.compiler.registry.types import Gpu
from xpc.compiler.spec.values import Origin, Value
from xpc.compiler.stacks import Stack


def extra_values(
    written: Mapping[str, Mapping[str, Item]], stack: Stack, method: str, problems: Problems, gpu: Gpu | None
) -> dict[str, dict[str, Value]]:
    """The arguments in a spec's `extra` blocks, by library and name. They are sorted, because the order in the spec has
    no meaning.

    Errors are added to `problems`. No help text proposes a precision that the GPU lacks.
    """
    out: dict[str, dict[str, Value]] = {}
    for library, items in written.items():
        for path, item in items.items():
            value = _value(library, path, item, stack, method, problems, gpu)
            if value is not None:
                out.setdefault(library, {})[path] = value
    return {library: dict(sorted(out[library].items())) for library in sorted(out)}


def _value(
    library: str, path: str, item: Item, stack: Stack, method: str, problems: Problems, gpu: Gpu | None
) -> Value | None:
    owning = extras.owner(library, path, method)
    if owning is not None or path not in extras.legal_names(stack, library, method):
        from xpc.compiler.suggest import extra_names  # imported only here, because only a wrong spec needs it

        found = extra_names.owned(item, path, owning, gpu=gpu) if owning else None
        thought = len(problems) < extra_names.MOST
        problems.append(found or extra_names.unknown(stack, library, path, item, method, thought))
        return None
    value = plain_value(item.node)
    wrong = plain_text(value) if isinstance(value, str) else None
    if value is None or wrong:
        message = f"`{path}` cannot be passed to {library}: {wrong or 'its value has another form'}"
        problems.report("XP104", message, item.label, help="write a number, a quoted text, true, false or a list")
        return None
    expected = extras.wrong_value(stack, library, path, value, method)
    if expected is not None:
        # imported only here, because only a wrong spec needs it
        from xpc.compiler.suggest.extra_names import wrong_kind

        problems.append(wrong_kind(library, path, item, expected))
        return None
    return Value(value, Origin(SPEC, item.label))
