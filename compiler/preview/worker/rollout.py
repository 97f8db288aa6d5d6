"""Make up one completion of a run with tools: each tool is called once with made-up arguments, as in TRL's loop."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from .session import Session
from .verdicts import Verdict, verdict


def played(session: Session, row: Mapping[str, Any], name: str) -> tuple[dict[str, Any], list[Verdict]]:
    """Call each tool of a run once with made-up arguments. Returns a pair: the made-up completion, and the findings.

    The completion is a dict: `calls` (the calls with their results, as text), `text` (the rendered conversation as a
    list of [text, whether it counts in the loss]), `reward` (the reward of the environment), and `prompt` (the number
    of the prompt's tokens). In the findings, the row is called ``name``.
    """
    tools = importlib.import_module("trainer.features.method.tools")
    problems = tools.Tools().before_rows(session.bundle, session.tokenizer)
    out: dict[str, Any] = {"calls": [], "text": [], "reward": None, "prompt": 0}
    if problems:
        return out, [verdict("XP166", one) for one in problems]
    functions, environment = tools.loaded(session.bundle)
    prompt: list[dict[str, Any]] = [dict(turn) for turn in row["prompt"]]
    instance: Any = None
    try:
        if environment is not None:
            instance = tools.instance_of(environment)
            observed = tools.first_rollout(instance, row)
            if observed is not None:
                prompt[-1]["content"] = prompt[-1]["content"] + observed
    except session.errors as error:
        return out, [verdict("XP166", f"{error}, with {name}")]
    called = [*functions, *(getattr(instance, one) for one in tools.method_names(environment))]
    answers, found = [], list[Verdict]()
    for one in called:
        call = tools.example_call(one)["function"]
        try:
            result = str(one(**call["arguments"]))
        except Exception as error:  # a tool may raise any exception, and TRL passes the error to the model
            result = str({"error": str(error)})
            why = f"the tool {one.__name__} raised {type(error).__name__} with made-up arguments: {error}"
            found.append({**verdict("XP166", why), "severity": "note"})
        answers.append({"role": "tool", "name": one.__name__, "content": result})
        arguments = ", ".join(f"{key}={value!r}" for key, value in call["arguments"].items())
        out["calls"].append({"call": f"{one.__name__}({arguments})", "result": result})
    try:
        if callable(getattr(instance, tools.SCORE, None)):
            out["reward"] = instance.get_reward()
    except session.errors as error:
        found.append(verdict("XP166", f"{error}, with {name}"))
    calls = {"role": "assistant", "content": "", "tool_calls": [tools.example_call(one) for one in called]}
    out["text"] = _pieces(session, called, [prompt, [calls], answers])
    out["prompt"] = len(session.tokenizer(out["text"][0][0], add_special_tokens=False)["input_ids"])
    return out, found


def _pieces(session: Session, called: list[Callable[..., Any]], parts: list[list[dict[str, Any]]]) -> list[list[Any]]:
    """Render the conversation part by part: the prompt, the calls, the results. Returns a list of [text of the part,
    whether it counts in the loss].

    If the complete text does not begin with the rendered prompt, only two parts are returned: the prompt and the
    complete text.
    """
    render, given = session.tokenizer.apply_chat_template, {"tools": called, "tokenize": False}
    prompt, calls, answers = parts
    first = render(prompt, add_generation_prompt=True, **given)
    second = render([*prompt, *calls], **given)
    third = render([*prompt, *calls, *answers], add_generation_prompt=True, **given)
    if not second.startswith(first) or not third.startswith(second):
        return [[first, False], [third, False]]
    return [[first, False], [second[len(first) :], True], [third[len(second) :], False]]
