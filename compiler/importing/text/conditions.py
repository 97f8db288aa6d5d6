"""Evaluate conditions of a shell script, such as `[ "$X" = a ]`, whose outcome follows from the script's text."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping

from xpc.compiler.importing.text.arithmetic import WHOLE, computed
from xpc.compiler.importing.text.expansion import Variables
from xpc.compiler.importing.text.shell_words import Word

COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-lt": int.__lt__, "-le": int.__le__, "-gt": int.__gt__, "-ge": int.__ge__,
}  # fmt: skip
ORDERS = {"==": "-eq", "!=": "-ne", "<": "-lt", "<=": "-le", ">": "-gt", ">=": "-ge"}
"""Maps an operator of arithmetic conditions to the operator of a test: `((N > 1))` is `[ "$N" -gt 1 ]`."""
EMPTY = {"=": "-z", "==": "-z", "!=": "-n"}
"""Maps the operator of a comparison with the empty text to the operator of a shorter test: `[ "$X" = "" ]` is `[ -z
"$X" ]`.
"""
COMPARED = re.compile(r"([^<>=!]*)(?:([<>]=?|[=!]=)([^<>=!]*))?")


def truth_of(words: list[Word]) -> bool | None:
    """Whether a test such as `[ "$X" = a ]` succeeds; None if this depends on unknown values."""
    if words and words[0].text == "!":
        inner = truth_of(words[1:])
        return None if inner is None else not inner
    if words and words[0].text in ("true", ":"):
        return True
    if words and words[0].text == "false":
        return False
    if len(words) == 1 and words[0].text.startswith("((") and words[0].text.endswith("))"):
        return None if words[0].open else _computed_truth(words[0].text[2:-2])
    parts = [one for one in words if one.text not in ("[", "]", "[[", "]]", "test")]
    if parts == words or not parts:  # this command is not a test, so its outcome is unknown
        return None
    if any(one.open or "$" in one.text for one in parts) or len(parts) > 4:
        return None
    texts = [one.text for one in parts]
    if texts[0] == "!":
        inner = _compared(texts[1:])
        return None if inner is None else not inner
    return _compared(texts)


def compared(words: list[Word]) -> tuple[Word, Word] | None:
    """The two sides of a test for equality, such as `[ "$1" = small ]`. None if the right side is unknown, or for any
    other command.
    """
    parts = [one for one in words if one.text not in ("[", "]", "[[", "]]", "test")]
    equal = len(parts) == 3 and len(parts) < len(words) and parts[1].text in ("=", "==") and not parts[2].open
    return (parts[0], parts[2]) if equal else None


def _computed_truth(text: str) -> bool | None:
    """Evaluate an arithmetic condition without variables, such as `4 > 1`. None if the condition is not supported."""
    found = COMPARED.fullmatch(text)
    left, right = (
        (computed(one) if one else None for one in (found[1], found[3])) if found is not None else (None, None)
    )
    if found is None or left is None or (found[2] and right is None):
        return None
    return left != 0 if right is None else COMPARISONS[ORDERS[found[2]]](left, right)


def _compared(texts: list[str]) -> bool | None:
    """Evaluate a test whose words are all known, such as `a = b` or `-z ""`; None for an unsupported operator."""
    if len(texts) == 1:
        return bool(texts[0])
    if len(texts) == 2 and texts[0] in ("-z", "-n"):
        return (texts[1] == "") == (texts[0] == "-z")
    if len(texts) != 3:
        return None
    left, operator, right = texts
    if operator in ("=", "==", "!="):
        return fnmatch.fnmatchcase(left, right) == (operator != "!=")
    if operator in COMPARISONS and WHOLE.fullmatch(left) and WHOLE.fullmatch(right):
        return COMPARISONS[operator](int(left), int(right))
    return None


def concerns_unset(words: list[Word], state: Variables, operator: str = "-z") -> bool:
    """Whether a condition is `[ -z "$X" ]` or `[ "$X" = "" ]` for a variable that the script never sets. Another
    `operator` replaces `-z`.
    """
    texts = [one.text for one in words if one.text not in ("[", "]", "[[", "]]", "test")]
    if len(texts) == 3 and texts[1] in EMPTY and not texts[2]:
        texts = [EMPTY[texts[1]], texts[0]]
    if len(texts) != 2 or texts[0] != operator:
        return False
    name = re.fullmatch(r"\$\{?([A-Za-z_]\w*)\}?", texts[1])
    return name is not None and name[1] not in state.known and name[1] not in state.missing


def both(one: bool | None, other: bool | None, link: str) -> bool | None:
    """The outcome of `one && other` or `one || other` (`link` is the operator); None is an unknown outcome, also of an
    operand.
    """
    decides = link == "||"
    if one is decides or other is decides:
        return decides
    return None if one is None or other is None else not decides
