"""Call reward functions: first once with a row, before the model is loaded, and then in each step.

Errors become one sentence with the row, the function, what it returned, and what trl expects. trl's own errors come
later, after the model is loaded and the first completions are generated (``GRPOTrainer._calculate_rewards``).
"""

import asyncio
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import iscoroutinefunction, unwrap
from typing import Any

from ...core.errors import RunError, first_line, put, say, shown
from ...core.feature import Tokenizer
from ..launch.time_limit import TooSlow, time_limit
from ..rows.message_fields import unpacked

SECONDS = 60.0
"""A reward call that takes more seconds than this is reported. The first one, before training, is also ended."""
ANSWER = "Let me think. 6 + 1 = 7, so the answer is 7."
"""A made-up completion for the call of a reward function before the run."""
EXPECTED = "it must return a list with one number for each completion, or None for a completion without a reward"
FROM_TRAINING = ("wandb.init", "trackio.init", "process group has not been initialized", "init_process_group")
"""Texts in errors that a function raises if there is no tracker or process group yet. If the first call of a reward
function, which is before training, raises such an error, the run goes on."""


class Messages(list[dict[str, str]]):
    """A completion as a list of messages, for the first call of a reward function. `"7" in completion` raises an error,
    because it would be false for every completion: a message is no text.
    """

    def __contains__(self, one: object) -> bool:
        if isinstance(one, str):
            raise TypeError('a completion is a list of messages, not a text: search `in one[-1]["content"]`')
        return super().__contains__(one)


def name_of(function: Callable[..., object]) -> str:
    """The function's name in messages and logs."""
    return str(getattr(function, "__name__", type(function).__name__))


def arguments(
    given: Sequence[str], row: Mapping[str, Any], generations: int, tokenizer: Tokenizer
) -> tuple[dict[str, Any], int]:
    """Return a pair: the keyword arguments that trl passes for one group of completions, and the group's size.

    ``given`` are the arguments that the installed trl's trainer adds; ``row`` has the trainer's form. The first
    completion is empty; the other completions are made up.
    """
    from transformers import TrainerState

    answers = ["", *[ANSWER] * max(1, generations - 1)]
    turns = isinstance(row["prompt"], list)
    completions = [Messages([{"role": "assistant", "content": one}]) if turns else one for one in answers]
    ids = [[*tokenizer(one, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id] for one in answers]
    made = {
        "prompts": own_messages([row["prompt"]] * len(answers)), "completions": completions, "completion_ids": ids,
        "trainer_state": TrainerState(), "log_extra": lambda *_: None, "log_metric": lambda *_: None,
    }  # fmt: skip
    columns = {
        key: [value] * len(answers) for key, value in row.items() if not key.startswith(("prompt", "completion"))
    }
    return {**columns, **{key: made[key] for key in given}}, len(answers)


def own_messages(prompts: Sequence[Any]) -> list[object]:
    """The prompts, with the original keys of their messages, which the runtime stores as JSON under `FIELDS`."""
    return [
        [{**own, "content": turn["content"]} for own, turn in zip(unpacked(one)[0], one, strict=True)]
        if isinstance(one, list)
        else one
        for one in prompts
    ]


def first_call(function: Callable[..., Any], values: Mapping[str, object], size: int, row: str) -> str | None:
    """Call the function once. Returns a sentence if it raises an exception or its result cannot be used; None if the
    call works.
    """
    where = f"called with {row} and {size} answers, the first of them empty"
    try:
        with time_limit(SECONDS):
            returned = function(**values)
            if iscoroutinefunction(function):
                returned = asyncio.run(returned)
            return _problem(function, returned, _values(returned), size, where)
    except TooSlow:
        say(f"the reward {name_of(function)} took more than {SECONDS:.0f} s, {where}; each step calls it again")
    except (Exception, SystemExit) as error:  # the function may raise any exception
        if any(words in str(error) for words in FROM_TRAINING):
            say(f"the reward {name_of(function)} cannot be checked before training: {first_line(error)}")
        else:
            return _raised(function, error, where)
    return None


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a reward function for trl's trainer. If it raises an exception, or if trl cannot use its result, raise a
    RunError that quotes the first prompt.
    """

    @contextmanager
    def judged(given: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
        """A context manager for one call. The caller appends the result to the list; at the end, it has the values."""
        returned = list[Any]()
        size, question = len(given["completions"]), _question(given["prompts"][0])
        where = f"called with {size} completions, the first for the prompt {question}"
        with _reported(f"the reward {name_of(function)}, {where}"):
            try:
                yield {**given, "prompts": own_messages(given["prompts"])}, returned
                values = _values(returned[0])
            except Exception as error:  # the function may raise any exception
                raise RunError(_raised(function, error, where), local=True) from error
        why = _problem(function, returned[0], values, size, where)
        if why is not None:
            raise RunError(why, local=True)
        returned[:] = values or []

    async def asynchronous(**given: Any) -> Any:
        with judged(given) as (own, returned):
            returned.append(await function(**own))
        return returned

    def synchronous(**given: Any) -> Any:
        with judged(given) as (own, returned):
            returned.append(function(**own))
        return returned

    synchronous.__name__ = name_of(function)
    return wraps(function)(asynchronous if iscoroutinefunction(function) else synchronous)


@contextmanager
def _reported(call: str) -> Iterator[None]:
    """Print a line after SECONDS, and whenever the call's time has doubled. Any process with a slow call prints it."""
    ended, begun = threading.Event(), time.monotonic()

    def report(seconds: float = SECONDS) -> None:
        while not ended.wait(seconds):
            put(f"[run] {shown(call)}, has not returned for {time.monotonic() - begun:.0f} s")
            seconds = time.monotonic() - begun

    threading.Thread(target=report, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _question(prompt: object) -> str:
    """The end of a prompt, in quotes. If the prompt consists of messages, the end of the last message's content."""
    text = prompt[-1].get("content") if isinstance(prompt, list) and prompt else prompt
    return repr(str(text)[-200:])


def _raised(function: Callable[..., Any], error: BaseException, where: str) -> str:
    return f"{raised(f'the reward {name_of(function)}', function, error)}, {where}"


def raised(what: str, function: Any, error: BaseException) -> str:
    """A sentence about an exception of ``function``: with its message, and the line in the function's file."""
    code = getattr(unwrap(function), "__code__", None) if callable(function) else None
    frames = [one for one in traceback.extract_tb(error.__traceback__) if code and one.filename == code.co_filename]
    line = f" in line {frames[-1].lineno} of {frames[-1].filename}" if frames else ""
    return f"{what} raised {type(error).__name__}: {first_line(error).rstrip('.')}{line}"


def _values(returned: Any) -> list[object] | None:
    """The values in ``returned``; None if it is not an ordered container."""
    if isinstance(returned, str | bytes | Mapping | set):
        return None
    try:
        first = iter(returned)
    except TypeError:  # a number, or a tensor without dimensions, cannot be iterated
        return None
    return [*first]


def _problem(
    function: Callable[..., object], returned: object, values: Sequence[object] | None, size: int, where: str
) -> str | None:
    """A sentence that says why trl cannot use the function's result; None if trl can."""
    import torch

    before = f"the reward {name_of(function)} returned"
    if values is None:
        return f"{before} {_described(returned)}, {where}; {EXPECTED}"
    if len(values) != size:
        return f"{before} {len(values)} value{'' if len(values) == 1 else 's'}, {where}; {EXPECTED}"
    for number, one in enumerate(values):
        try:
            value = torch.as_tensor(torch.nan if one is None else one, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError):
            value = None
        # torch.tensor makes a matrix of lists with one number each, but trl needs a vector
        if value is None or value.numel() != 1 or (value.dim() and not isinstance(one, torch.Tensor)):
            return f"{before} {_described(one)} for answer {number}, {where}; {EXPECTED}"
        if value.isinf().any():
            return f"{before} {one} for answer {number}, {where}; {EXPECTED}, and not an infinite one"
    return None


def _described(value: object) -> str:
    kind = type(value).__name__
    return "None" if value is None else f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind} ({value!r:.80})"
