"""The value that a name of another tool decides, or that was typed behind it. Loaded only for a misspelt spec."""

from __future__ import annotations

from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.language.kinds import FLAG
from xpc.compiler.language.schema import Setting
from xpc.compiler.suggest.converted_values import NO, YES
from xpc.compiler.suggest.example import example
from xpc.compiler.suggest.meaning import Meaning, choice
from xpc.compiler.suggest.typed_form import meant_value


def decided(row: Setting, said: UnknownName, meant: Meaning) -> str | None:
    """The value to write: what the name decides, what was typed where that is legal, or what it means in our form.

    Of a name that was typed without a value, an example. None where nothing that was typed could be meant.
    """
    if meant.value == "!":
        return "true" if (said.typed or "").lower() in ("false", "no", "off") else "false"
    text = (said.typed or "").strip('"').lower()
    if meant.value and row.choices and text in NO:
        return "none" if "none" in row.choices else None
    if meant.value and (said.node is None or not row.choices or text in (*YES, "auto")):
        return meant.value
    if meant.value and row.kind is not FLAG:  # what the value says goes before what the name alone would mean
        return choice(row, text)
    if meant.value:
        return meant.value
    if said.node is None:
        return None if row.kind is FLAG else example(row)
    return meant_value(row, said)
