"""Compare the JSON and YAML files of two bundles, key by key."""

from __future__ import annotations

import json
from collections.abc import Mapping

from xpc.compiler.lower.drift import same_value
from xpc.compiler.review.differences.change import Change, scalar
from xpc.compiler.spec import Spec

ABSENT = "absent"


def argument_changes(
    one: Spec, other: Spec, before: dict[str, object], after: dict[str, object]
) -> tuple[tuple[Change, ...], tuple[Change, ...], int]:
    """Return three values: the renamed arguments, the arguments with changed values, and the number of unchanged
    arguments.
    """
    head = "trainer_args.json arguments."
    renamed: list[Change] = []
    why: dict[str, str] = {}
    for key in [key for key in before if key.startswith(head) and key not in after and one.stack is not other.stack]:
        name, dot, inner = key.removeprefix(head).partition(".")
        new = other.stack.rename(name) or next((o for o in other.stack.renamed if one.stack.rename(o) == name), None)
        moved = f"{head}{new}{dot}{inner}"
        if new is not None and moved in after and _exact(after[moved]) == _exact(before[key]):
            value = before.pop(key)
            renamed.append(Change(name + dot + inner, name + dot + inner, new + dot + inner, as_text(value)))
            del after[moved]
        else:
            missing = other.stack.removed.get(name) or other.stack.omitted(other.config).get(name)
            why[key] = missing or (f"now {new}" if new is not None else "")
    found: list[Change] = []
    same = 0
    for key in (*before, *(key for key in after if key not in before)):
        if key in before and key in after:
            across = one.stack is not other.stack and same_value(before[key], after[key])
            if across or _exact(before[key]) == _exact(after[key]):
                same += 1
                continue
        found += _entries(key, before.get(key), after.get(key)) or [_change(key, before, after, why.get(key, ""))]
    return tuple(renamed), tuple(found), same + len(renamed)


def _exact(value: object) -> str:
    """A value as JSON text. The JSON texts of 1, 1.0, true and "1" differ, although Python considers some of these
    values equal.
    """
    return json.dumps(value, sort_keys=True)


def _change(key: str, before: Mapping[str, object], after: Mapping[str, object], why: str = "") -> Change:
    """The change of one key. Two values that would be printed alike, such as 1 and "1", are shown as JSON."""
    was, now = (as_text(table[key]) if key in table else ABSENT for table in (before, after))
    if was == now:
        was, now = (_exact(table[key]) if key in table else ABSENT for table in (before, after))
    return Change(key, was, now, why, (scalar(before.get(key)), scalar(after.get(key))))


def _entries(key: str, before: object, after: object) -> list[Change]:
    """The changes between two lists of records, such as data sources, key by key. Records may contain lists of records,
    such as the files of a folder. Empty if a value is not a list of records.
    """
    lists = [each for each in (before, after) if isinstance(each, list) and all(isinstance(one, dict) for one in each)]
    if len(lists) < 2:
        return []
    if len(lists[0]) != len(lists[1]):
        texts = [f"{len(each)} entr{'y' if len(each) == 1 else 'ies'}" for each in lists]
        return [Change(key, texts[0], texts[1])]
    found: list[Change] = []
    for number, (one, other) in enumerate(zip(*lists, strict=True)):
        was, now = ({f"{key}[{number}].{name}": value for name, value in each.items()} for each in (one, other))
        for name in dict.fromkeys((*was, *now)):
            if (name in was) != (name in now) or _exact(was.get(name)) != _exact(now.get(name)):
                found += _entries(name, was.get(name), now.get(name)) or [_change(name, was, now)]
    return found


def as_text(value: object) -> str:
    """The value of a key, formatted for people."""
    return value if isinstance(value, str) else "unset" if value is None else json.dumps(value)
