"""Names that the speakers of the rows have instead of roles (XP775, XP776)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from xpc.compiler.data import rows
from xpc.compiler.language.setting import ROLES, NamesPath
from xpc.compiler.rules.core.conditions import written
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = written("data.user_roles", "data.assistant_roles", "data.system_roles", "data.tool_roles")
PATHS: tuple[NamesPath, ...] = ("data.user_roles", "data.assistant_roles", "data.system_roles", "data.tool_roles")
"""The settings of ROLES, in its order."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""A name that is written without quotes."""


@rule("XP775", "speaker-of-two-roles", reads=PATHS)
def of_two_roles(spec: Spec) -> Iterator[Finding]:
    """A name of a speaker stands for one role.

    Today, silently: axolotl's `roles` turn a list of names around, and the last role that names a speaker has it.
    Source: axolotl 0.18.0, prompt_strategies/chat_template.py.
    """
    seen: dict[str, str] = {}
    for role, path in zip(ROLES, PATHS, strict=True):
        names = spec.names(path)
        twice = [name for name in names if seen.setdefault(name, role) != role]
        if twice:
            rest = [name for name in names if name not in twice]
            yield Finding(
                spec.place(path, f"`{twice[0][:40]}` is the {seen[twice[0]]}, too"),
                "a speaker of two roles",
                f"write `{role}_roles = [{_listed(rest)}]`" if rest else f"leave `{role}_roles` out",
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name if NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in names)


@rule("XP776", "roles-without-turns", reads=PATHS)
def without_turns(spec: Spec) -> Iterator[Finding]:
    """Names of speakers are read in the turns of conversations, and rows of plain text have none.

    The runtime leaves texts as they are, so that the names would be in no row. Source: the runtime's `named_roles.py`.
    """
    path = next((one for one in PATHS if spec.get(one) is not None), None)
    if path is not None and spec.data and rows.all_texts(spec.data):
        yield Finding(
            spec.place(path, "never used"),
            "names of speakers, and no conversation that they could stand in",
            f"leave `{path.rpartition('.')[2]}` out",
        )
