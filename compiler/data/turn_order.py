"""Find conversations whose turns are in an order that some chat templates refuse."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

from xpc.runtime.core.row_names import ROLES
from xpc.runtime.features.messages.turn_names import CALLERS


@lru_cache(maxsize=4096)  # because most rows have one of a few sequences of roles
def order(roles: tuple[str, ...]) -> frozenset[str]:
    """Return the properties of the order of roles in a conversation, as a set of names. Each of them stands for an
    order that some chat template refuses.

    - `two_questions`: two turns of the user follow each other; `two_answers`: two of the assistant follow each other
    - `answer_first`: an answer before the first question
    - `late_system`: a system prompt after the first turn
    """
    spoken = [role for role in roles if role != "system"]
    doubled = {one for one, other in pairwise(spoken) if one == other}
    found = {kind for role, kind in (("user", "two_questions"), ("assistant", "two_answers")) if role in doubled}
    found |= {"answer_first"} if spoken[:1] == ["assistant"] else set()
    return frozenset(found | ({"late_system"} if "system" in roles[1:] else set()))


def roles_of(value: object) -> tuple[str, ...]:
    """The roles of the turns in a prompt or an answer; empty for a text."""
    turns = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    return tuple(role_of(turn) for turn in turns if isinstance(turn, dict))


def role_of(turn: Mapping[str, object]) -> str:
    """The role of a turn: its key `role`, or the role of the speaker in its key `from`. "" if neither gives a role."""
    if "from" in turn:
        who = str(turn["from"])
        return "assistant" if who in CALLERS else ROLES.get(who, "")
    return "tool" if turn.get("role") == "function" else str(turn.get("role"))


def of_pair(prompt: object, answer: object) -> set[str]:
    """The properties of `order` for a prompt followed by its answer, and two more. `turn_in_answer`: the answer has a
    turn of the user, a tool or the system. `other_turn_first`: the answer begins with a turn of the user, a tool or the
    system, and the prompt does not end with a turn of the assistant.
    """
    first, then = roles_of(prompt), roles_of(answer)
    if not then:
        return set()
    found = {*order((*first, *then)), *({"turn_in_answer"} if {*then} != {"assistant"} else ())}
    return found | ({"other_turn_first"} if then[0] != "assistant" and first[-1:] != ("assistant",) else set())


def of_preference(prompt: object, chosen: object, rejected: object) -> set[str]:
    """The properties of `of_pair` for the chosen and for the rejected answer of a preference pair. If both answers
    begin with the prompt, they are split at their first difference.
    """
    if not isinstance(chosen, list) or not isinstance(rejected, list):
        return of_pair(prompt, chosen) | of_pair(prompt, rejected)
    if roles_of(chosen)[:1] != ("assistant",):
        shared = next((at for at, (one, other) in enumerate(zip(chosen, rejected, strict=False)) if one != other), None)
        shared = min(len(chosen), len(rejected)) - 1 if shared is None else shared
        prompt, chosen, rejected = chosen[:shared], chosen[shared:], rejected[shared:]
    return of_pair(prompt, chosen) | of_pair(prompt, rejected)
