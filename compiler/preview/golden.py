"""Golden previews: previews that are kept in files, so that a change of rows, tokens or loss masks shows up as a
changed file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from math import isclose

from xpc.compiler.files.atomic import write_text
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.files.workspace import read_file
from xpc.compiler.preview.show import text
from xpc.compiler.render.line_difference import line_difference
from xpc.compiler.render.visible import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST = 64 * 2**20
SHOWN = 200
"""Maximum number of lines of a difference that are printed."""
REWARDS = re.compile(r" +(?:reward |\w+ XP589 )")
"""Matches the beginning of a line with the values of rewards: `  reward short: empty 0, made-up 0.25; spread 0.25`."""
NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?:e[+-]\d+)?(?![\w.]*\w)")
RELATIVE, ABSOLUTE = 1e-2, 1e-3
"""The largest relative and absolute difference between a reward and its value in the golden file. A reward model in
bfloat16 has three significant digits, and its sums are rounded differently on another CPU. The absolute bound is for
values near 0, such as a spread.
"""


def content(found: Mapping[str, Any]) -> str:
    """The text of a golden file, which lists every token with its id. The text contains no versions of packages, so an
    upgrade that changes no token does not change the file.
    """
    begin, end, padding = (found["tokenizer"][one] for one in ("begin", "end", "padding"))
    head = [
        f"# xpc preview {visible(found['spec'])}, {found['method']}: written by `--golden`, compared as text.",
        f"# begin {_token(begin)}, end {_token(end)}, padding {_token(padding)}",
        "",
    ]
    return "\n".join(head) + "\n" + text(found, tokens=True, complete=True)


def _token(one: list[Any]) -> str:
    return "none" if one[0] is None else f"{one[0]} {visible(str(one[1]))}"


def compare(path: str, found: Mapping[str, Any], update: bool) -> tuple[str, bool]:
    """Compare the preview `found` with the golden file, or write this file if it does not exist. Returns the text to
    print, and whether the preview and the file differ. Raises UsageError.
    """
    new = content(found)
    # links are not followed, because a stranger's repository may contain a link to any file of this user
    if os.path.islink(path):
        raise UsageError(f"{path} is a link, and is not followed")
    if update or not os.path.lexists(path):
        write_text(path, new)
        return f"wrote {visible(path)}\n", False
    try:
        old = read_file(path, LARGEST).decode("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if _same(old.splitlines(), new.splitlines()):
        return f"{visible(path)} is as before: {len(found['rows'])} rows\n", False
    lines = line_difference(old.splitlines(), new.splitlines(), path, "now")
    shown = [visible(one) for one in lines[:SHOWN]]
    if len(lines) > SHOWN:
        shown.append(f"... {len(lines) - SHOWN:,} more lines")
    changed = sum(one.startswith(("+", "-")) for one in lines) - 2
    shown.append(f"the preview differs from {visible(path)} in {changed:,} lines; --update writes the file again")
    return "\n".join(shown) + "\n", True


def _same(old: list[str], new: list[str]) -> bool:
    """Whether two texts are equal, up to small differences of rewards."""
    return len(old) == len(new) and all(x == y or _close(x, y) for x, y in zip(old, new, strict=True))


def _close(old: str, new: str) -> bool:
    """Whether two lines have the values of the same rewards, and these values are nearly equal."""
    if not REWARDS.match(old) or NUMBER.sub("#", old) != NUMBER.sub("#", new):
        return False
    values = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    return all(isclose(float(x), float(y), rel_tol=RELATIVE, abs_tol=ABSOLUTE) for x, y in values)
