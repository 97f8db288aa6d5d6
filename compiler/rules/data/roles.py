"""Rules about names of speakers in the rows, and the roles of these speakers (XP775 to XP777)."""

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
"""The settings that list the names of speakers: one setting for each role, in the order of ROLES."""

ANSWERING, ASKING = ("assistant", "gpt", "chatgpt", "model", "bot", "bard", "bing", "ai"), ("user", "human")
"""Names of speakers: those in ANSWERING always mean the assistant, those in ASKING always mean the user."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""A pattern for a name that needs no quotes, such as `human`."""


@rule("XP775", "speaker-of-two-roles", reads=PATHS)
def of_two_roles(spec: Spec) -> Iterator[Finding]:
    """`user_roles`, `assistant_roles`, `system_roles` and `tool_roles` must not name the same speaker for two roles.

    Why it is bad: a turn would be trained with the wrong role.

    Without this rule: in axolotl, which has the same lists in its setting `roles`, a name that is listed for two roles
    silently gets the last of these roles.

    Source: axolotl 0.18.0 `prompt_strategies/chat_template.py`; read, not run.
    """
    seen: dict[str, str] = {}
    for role, path in zip(ROLES, PATHS, strict=True):
        names = spec.names(path)
        twice = [name for name in names if seen.setdefault(name, role) != role]
        if twice:
            rest = [name for name in names if name not in twice]
            yield Finding(
                spec.location(path, f"`{twice[0][:40]}` is also the {seen[twice[0]]}"),
                "a speaker has two roles",
                f"write `{role}_roles = [{listed(rest)}]`" if rest else f"leave `{role}_roles` out",
            )


def listed(names: Sequence[str]) -> str:
    """Join names with commas for a list in a spec: `human, "the model"`. A name gets quotes only if it needs them."""
    return ", ".join(name if NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in names)


@rule("XP776", "roles-without-turns", reads=PATHS)
def without_turns(spec: Spec) -> Iterator[Finding]:
    """`user_roles`, `assistant_roles` and `tool_roles` name the speakers of turns, so they need conversations. Rows of
    plain text have no turns.

    Why it is bad: on plain text, `user_roles` and the other settings of roles have no effect.

    Without this rule: the runtime does not change plain text, so nothing would read the names of speakers.

    Source: the runtime's `named_roles.py`.
    """
    path = next((one for one in PATHS if spec.get(one) is not None), None)
    if path is not None and spec.data and rows.all_texts(spec.data):
        yield Finding(
            spec.location(path, "never used"),
            "there are names of speakers, but no row is a conversation",
            f"leave `{path.rpartition('.')[2]}` out",
        )


@rule("XP777", "roles-swapped", "warning", reads=PATHS)
def swapped(spec: Spec) -> Iterator[Finding]:
    """`user_roles` should not name a speaker that always answers, such as `gpt`, and `assistant_roles` should not name
    a speaker that always asks, such as `human`.

    Why it is bad: the model would learn to write the questions.

    Without this rule: nothing is reported, and the loss falls as in any run.

    Source: the names of speakers in the datasets of the registry (ShareGPT's `human` and `gpt`).
    """
    pairs: tuple[tuple[NamesPath, tuple[str, ...], str], ...] = (
        ("data.user_roles", ANSWERING, "assistant"), ("data.assistant_roles", ASKING, "user"),
    )  # fmt: skip
    for path, others, role in pairs:
        found = next((name for name in spec.names(path) if name.lower() in others), None)
        if found is not None:
            yield Finding(
                spec.location(path, f"`{found[:40]}` is usually the {role}"),
                f"the speaker `{found[:40]}` gets the role of the other speaker",
                f"write `{role}_roles = [{listed([found])}]`",
            )
