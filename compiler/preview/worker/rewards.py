"""Call the reward functions of a run on a row, as TRL does. Each function gets an empty answer and a made-up answer. A
function that reads a text column of the row, such as `solution`, also gets the column's text as an answer, plain and in
`\\boxed{}`.
"""

import asyncio
import importlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import iscoroutinefunction, signature
from typing import Any

from .session import Session
from .verdicts import Verdict, verdict

EMPTY, MADE_UP, BOXED = "empty", "made-up", "boxed"
"""Names of the answers that the reward functions get. The row's own answer is used twice: as it is, and inside of
`\\boxed{}`, which math_verify needs.
"""
SECONDS = 60.0
"""Time limit of a call, in seconds, as in a run. A function that exceeds it is not called again for other rows."""
_slow = dict[str, str]()
"""Maps the name of each reward function that exceeded the time limit to a sentence that reports this."""


def judged(session: Session, row: Mapping[str, Any], name: str) -> tuple[list[dict[str, Any]], list[Verdict]]:
    """Call each reward function with each answer. Returns a pair: the rewards (for each function, and each answer), and
    the findings.
    """
    loaded = importlib.import_module("trainer.features.method.rewards").functions(session.bundle)
    out, found = [], list[Verdict]()
    for function in loaded:
        title = _calls().name_of(function)
        if title in _slow:
            out.append({"name": title, "values": {}, "spread": None})
            found.append({**verdict("XP588", _slow[title]), "severity": "note"})
            continue
        with _reported() as sentences:
            values, why = _values(session, function, row, name)
        if late := [one for one in sentences if "took more than" in one]:
            _slow[title] = late[0]
        found += [{**verdict("XP588", one), "severity": "note"} for one in sentences if not values and why is None]
        numbers = [one for one in values.values() if one is not None]
        spread = max(numbers) - min(numbers) if numbers else None
        out.append({"name": title, "values": values, "spread": spread})
        found += [verdict("XP588", why)] if why is not None else _own(title, values)
    return out, found


@contextmanager
def _reported() -> Iterator[list[str]]:
    """A context that collects the messages of the runtime about a call, for example that the call takes too long."""
    calls, sentences = _calls(), list[str]()
    real = calls.say, calls.SECONDS
    calls.say, calls.SECONDS = sentences.append, SECONDS
    try:
        yield sentences
    finally:
        calls.say, calls.SECONDS = real


def _calls() -> Any:
    return importlib.import_module("trainer.features.method.reward_calls")


def _values(
    session: Session, function: Callable[..., Any], row: Mapping[str, Any], name: str
) -> tuple[dict[str, float | None], str | None]:
    """Call a reward function with each answer. Returns a pair: the value for each answer, and an error message. The
    message is None if the call succeeds. If the function fails or returns an unusable result, there are no values. If
    the call takes too long, there are neither values nor a message.
    """
    column = next((one for one in _parameters(function) if isinstance(row.get(one), str) and one != "prompt"), None)
    answers = [EMPTY, MADE_UP, *([column, f"{BOXED} {column}"] if column else [])]
    given, size = _calls().arguments(session.bundle.stack["reward_given"], row, len(answers), session.tokenizer)
    if column:
        text, tokenizer = row[column], session.tokenizer
        talks = isinstance(row["prompt"], list)
        for location, one in ((-2, text), (-1, f"\\boxed{{{text.strip().strip('$')}}}")):
            turns = [{"role": "assistant", "content": one}]
            given["completions"][location] = type(given["completions"][0])(turns) if talks else one
            ids = tokenizer(one, add_special_tokens=False)["input_ids"]
            given["completion_ids"][location] = [*ids, tokenizer.eos_token_id]
    recorded = _Recorded(function)
    why = _calls().first_call(recorded, given, size, name)
    if why is not None or recorded.values is None:
        return {}, why
    return {answer: _number(one) for answer, one in zip(answers, recorded.values, strict=True)}, None


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(signature(function).parameters)
    except (TypeError, ValueError):  # builtin functions have no signature
        return []


class _Recorded:
    """A reward function that stores the values that it returns. It has the name and the code of the original function,
    because messages contain them.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.values: list[Any] | None = None
        self.__name__ = _calls().name_of(function)
        self.__code__ = getattr(function, "__code__", None)

    def __call__(self, **given: Any) -> Any:
        returned = self.function(**given)
        if iscoroutinefunction(self.function):
            returned = asyncio.run(returned)
        self.values = _calls()._values(returned)
        return returned if self.values is None else self.values


def _number(one: Any) -> float | None:
    value = None if one is None else float(one)
    return None if value is None or math.isnan(value) else value


def _own(name: str, values: Mapping[str, float | None]) -> list[Verdict]:
    """Report a reward function that gives the row's own answer no higher value than an empty answer."""
    column = next((one for one in values if one not in (EMPTY, MADE_UP)), None)
    if column is None:
        none = bool(values) and all(one is None for one in values.values())
        what = f"the reward {name} returns None for every answer: no answer is rewarded"
        return [verdict("XP589", what, "return a number for each answer that can be judged")] if none else []
    empty = values[EMPTY]
    given = [one for answer, one in values.items() if answer not in (EMPTY, MADE_UP)]
    own = max((one for one in given if one is not None), default=None)
    help = f"look at the column `{column}` of the row, and at the form that the reward expects"
    if own is None:
        message = f"the reward {name} returns None for the answer in the row's `{column}`: no answer is rewarded"
        return [verdict("XP589", message, help)]
    if empty is not None and own <= empty:
        what = f"the reward {name} is {own:g} for the answer in the row's `{column}`, and {empty:g} for an empty answer"
        return [verdict("XP589", what, help)]
    return []
