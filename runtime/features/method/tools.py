"""Tools (functions) and an environment (a class) of GRPO, in files of the bundle. The model calls them as it generates.

trl renders their signatures into the prompt, executes the calls in a completion, and appends the results; these are not
trained on (trl 1.16, ``GRPOTrainer._tool_call_loop``). If a tool raises an exception, the model gets the exception as
the tool's result. This module gives each call a time limit. It also reports some errors before the model is loaded,
which is earlier than trl.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from copy import copy, deepcopy
from functools import cache, wraps
from types import new_class
from typing import Any

from ...core.errors import RunError, first_line, say
from ...core.feature import Bundle, Feature, Model, Tokenizer, Trainer
from ..launch.time_limit import TooSlow, time_limit
from . import tool_calls
from .reward_calls import raised
from .rewards import of_file

Function = Callable[..., Any]
NO_TEXT: tuple[object, ...] = (object.__repr__, type(_ for _ in ()).__repr__)
"""The `__repr__` methods that only print a type and an address, such as `<generator object f at 0x7f3a>`."""
INSTEAD = "write `chat_template = qwen2.5` or `llama3.1`, or train a model with a template for tools"
START, SCORE = "reset", "get_reward"
"""The methods of an environment that trl itself calls. The model may call any other method without a leading
underscore."""


class Tools(Feature):
    """Hooks for a run whose model calls tools."""

    def before_rows(self, bundle: Bundle, tokenizer: Tokenizer | None) -> list[str]:
        """Load the files. Describe each tool as the prompt would, and check that trl can use the chat template."""
        try:
            tools, environment = loaded(bundle)
            instance = None if environment is None else instance_of(environment)
        except RunError as error:
            return [str(error)]
        found = [*_environment_problems(bundle, instance)]
        called = [*tools, *(getattr(instance, one) for one in method_names(environment))]
        names = [one.__name__ for one in called]
        found += [f"two tools are called {one}; rename one" for one in sorted({*names}) if names.count(one) > 1]
        found += [why for one in called if (why := schema_problem(one)) is not None]
        if tokenizer is not None and (why := template_problem(tokenizer)) is not None:
            found.append(why)
        return found

    def check_first_row(self, bundle: Bundle, source: str, row: Mapping[str, Any], tokenizer: Tokenizer) -> list[str]:
        """Start the environment with the first row of a source, and read its reward."""
        try:
            _, environment = loaded(bundle)
            if environment is not None:
                first_rollout(instance_of(environment), row)
        except RunError as error:
            return [f"{error}, with row 0 of {source}"]
        return []

    def first_rows_note(self, bundle: Bundle, rows: list[dict[str, object]], tokenizer: Tokenizer) -> str:
        """A note on the number of tokens that the descriptions of the tools add to each prompt."""
        try:
            tools, environment = loaded(bundle)
            called = [*tools, *(getattr(environment, one) for one in method_names(environment))]
            added = _tokens(tokenizer, called) - _tokens(tokenizer, None)
        except Exception:  # `before_rows` reports faults of the tools or the template
            return ""
        return f"; the descriptions of the tools add {added:,} tokens to each" if added else ""

    def trainer_options(self, bundle: Bundle, model: Model, load: Callable[[], Model], options: dict[str, Any]) -> None:
        """Pass the tool functions and the environment class to trl, and the tokenizer's parser of tool calls."""
        tools, environment = loaded(bundle)
        tool_calls.add_parser(options["processing_class"])
        options.update(tools=tools or None, environment_factory=environment)

    def made(self, bundle: Bundle, trainer: Trainer) -> Iterator[tuple[str, object, object]]:
        """Compare the tools of the trainer with the tools in the bundle."""
        tools, environment = loaded(bundle)
        names = [*(one.__name__ for one in tools), *method_names(environment)]
        yield "the tools", names, [one.__name__ for one in trainer.tools or ()]


@cache
def loaded(bundle: Bundle) -> tuple[list[Function], type | None]:
    """Return a pair: the bundle's tool functions and environment class, with time limits. Raises RunError."""
    stated = bundle.plan["method"]["tools"]
    seconds = float(stated["seconds"])
    tools = []
    for one in stated["functions"]:
        tool = of_file(bundle, one, "tools")
        if not inspect.isroutine(tool):
            what = "a class" if isinstance(tool, type) else f"an object of type {type(tool).__name__}"
            raise RunError(f"the tool {one['function']} is {what}, and the model calls functions; write a function")
        tools.append(limited(tool, seconds))
    if stated["environment"] is None:
        return tools, None
    found = of_file(bundle, stated["environment"], "environment")
    if not isinstance(found, type):
        raise RunError(f"the environment {stated['environment']['function']} is not a class")
    return tools, limited_class(found, seconds)


def instance_of(environment: type) -> object:
    """Create an instance of the environment class. Raises RunError if that fails."""
    try:
        return environment()
    except Exception as error:  # the class may raise any exception
        raise RunError(raised(f"the environment {environment.__name__}", environment, error)) from error


def method_names(environment: type | None) -> list[str]:
    """The methods that the model may call, as trl finds them; empty without an environment."""
    found = inspect.getmembers(environment, inspect.isfunction) if environment is not None else []
    return [name for name, _ in found if name not in (START, SCORE) and not name.startswith("_")]


def _tokens(tokenizer: Tokenizer, tools: list[Function] | None) -> int:
    """The number of tokens of a short prompt that describes these tools."""
    turns = [{"role": "user", "content": "?"}]
    text = tokenizer.apply_chat_template(turns, tools=tools, tokenize=False, add_generation_prompt=True)
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _environment_problems(bundle: Bundle, instance: object) -> Iterator[str]:
    if instance is None:
        return
    name = type(instance).__name__
    if not callable(getattr(type(instance), START, None)):
        yield f"the environment {name} has no method `reset`, which starts a completion"
    if not bundle.plan["method"]["rewards"] and not callable(getattr(type(instance), SCORE, None)):
        yield f"nothing is rewarded: the environment {name} has no method `get_reward`, and the spec has no `rewards`"


def schema_problem(tool: Function) -> str | None:
    """A sentence that says why this function's signature cannot be rendered into the prompt; None if it can be."""
    from transformers.utils import get_json_schema

    try:
        get_json_schema(tool)
    except Exception as error:  # transformers cannot describe every docstring, type or signature
        why = first_line(error).rstrip(".")
        return f"the tool {tool.__name__} needs a docstring with an `Args:` section and a type for each argument: {why}"
    return None


def template_problem(tokenizer: Tokenizer) -> str | None:
    """A sentence that says why trl cannot train on tool calls with this tokenizer's chat template, or None."""
    from trl import chat_template_utils as templates

    if not templates.supports_tool_calling(tokenizer):
        return f"the chat template cannot write tool calls and their results; {INSTEAD}"
    trial = copy(tokenizer)
    if not tool_calls.add_parser(trial):
        return f"trl cannot read the tool calls that this chat template writes; {INSTEAD}"
    try:
        if not templates.is_chat_template_prefix_preserving(trial):
            templates.get_training_chat_template(trial)
    except ValueError:
        return f"this chat template writes an answer differently if the result of a tool follows it; {INSTEAD}"
    return None


def first_rollout(instance: Any, row: Mapping[str, Any]) -> object:
    """Try an environment with a row: call `reset`, and `get_reward` if the class has this method. Returns the text that
    `reset` adds to the prompt. Raises RunError for a value of a wrong type.
    """
    observed = instance.reset(**deepcopy(dict(row)))
    content = row["prompt"][-1]["content"] if isinstance(row.get("prompt"), list) else ""
    if observed is not None and not isinstance(observed, list | type(content)):
        name, kind = type(instance).__name__, type(observed).__name__
        raise RunError(f"`reset` of {name} returned {kind}; it must return text for the prompt or None")
    if callable(getattr(instance, SCORE, None)):
        instance.get_reward()
    return observed


def limited(function: Function, seconds: float, checked: Callable[[object], str | None] | None = None) -> Function:
    """The function with a time limit for each call; a coroutine function is run to its end.

    A tool's exception is printed once, and trl passes it to the model as the tool's result. If a method that trl calls,
    such as `reset`, raises an exception or returns a wrong result, the run stops. ``checked`` gets the result of such a
    method, and returns what is wrong with it, or None.
    """
    name, reported = getattr(function, "__name__", type(function).__name__), list[str]()

    def call(*args: Any, **given: Any) -> Any:
        try:
            with time_limit(seconds):
                returned = function(*args, **given)
                return _awaited(returned) if inspect.iscoroutine(returned) else returned
        except TooSlow:
            raise TimeoutError(f"{name} took more than {seconds:g} s") from None
        except SystemExit as error:
            raise RuntimeError(f"{name} called sys.exit({error.code!r})") from error

    @wraps(function)
    def tool(*args: object, **given: Any) -> object:
        try:
            returned = call(*args, **given)
            kind: Any = type(returned)
            if kind.__str__ is object.__str__ and kind.__repr__ in NO_TEXT:
                raise TypeError(f"it returned an object of type {kind.__name__}, which is not a text")
            return returned
        except Exception as error:
            if not reported:
                reported.append(name)
                say(f"{raised(f'the tool {name}', function, error)}; the model reads the error as the tool's result")
            raise

    @wraps(function)
    def of_trl(*args: object, **given: object) -> object:
        try:
            returned = call(*args, **given)
        except Exception as error:  # the method may raise any exception
            raise RunError(raised(f"the environment's {name}", function, error), local=True) from error
        why = checked(returned) if checked is not None else None
        if why is not None:
            raise RunError(f"the environment's {name} {why}", local=True)
        return returned

    return tool if checked is None else of_trl


def as_text(tool: Function) -> Function:
    """The tool, but with its result in the form that the model reads (see `result_text`)."""

    @wraps(tool)
    def called(*args: Any, **given: object) -> object:
        return result_text(tool(*args, **given))

    return called


def result_text(value: object) -> object:
    """The text of a tool's result. A list of text parts is returned unchanged: trl uses it as the message's content.
    trl would use any other list in the same way, such as a list of texts, but chat templates cannot read it.
    """
    parts = value if isinstance(value, list) else []
    kinds = [one.get("type") if isinstance(one, Mapping) else None for one in parts]
    if "image" in kinds:
        raise TypeError("the tool returned an image, which this run's model does not read")
    if parts and all(kind == "text" and isinstance(one.get("text"), str) for kind, one in zip(kinds, parts)):
        return value
    return str(value)


def limited_class(environment: type, seconds: float) -> type:
    """A subclass of ``environment`` with the same name, whose methods have a time limit."""
    found = dict(inspect.getmembers(environment, inspect.isfunction))
    checks: Mapping[str, Callable[[object], str | None]] = {START: lambda _: None, SCORE: _not_a_reward}
    methods = {name: limited(one, seconds, checks.get(name)) for name, one in found.items() if not name.startswith("_")}
    return new_class(environment.__name__, (environment,), {}, lambda space: space.update(methods))


def _not_a_reward(value: object) -> str | None:
    if value is None or (isinstance(value, int | float) and value not in (float("inf"), float("-inf"))):
        return None
    return f"returned {type(value).__name__} ({value!r:.80}); it must return a finite number or None"


_loops: list[asyncio.AbstractEventLoop] = []
"""The event loop for coroutine functions, if it was started. It runs in its own thread and serves all calls, so that a
later call can use a session that an earlier call has opened."""


def _awaited(coroutine: Any) -> object:
    """Run a coroutine on the event loop and return its result. If the coroutine exceeds the time limit, the next
    coroutine gets a new loop, because the old one may be blocked.
    """
    if not _loops:
        _loops.append(asyncio.new_event_loop())
        threading.Thread(target=_loops[0].run_forever, daemon=True, name="tools").start()
    future = asyncio.run_coroutine_threadsafe(coroutine, _loops[0])
    try:
        return future.result()
    except TooSlow:
        future.cancel()
        _loops.clear()
        raise


EXAMPLES: Mapping[str, object] = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
"""Maps types in a tool's JSON schema to made-up values. A type that is not listed gets a text."""


def example_call(tool: Function) -> dict[str, object]:
    """A made-up call of the tool, with its required arguments, in the form of an assistant's ``tool_calls``."""
    from transformers.utils import get_json_schema

    described = get_json_schema(tool)["function"]["parameters"]
    arguments = {name: _example(described["properties"][name]) for name in described.get("required", ())}
    return {"type": "function", "function": {"name": tool.__name__, "arguments": arguments}}


def _example(schema: Mapping[str, Any]) -> object:
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "string")
    return EXAMPLES.get(kind[0] if isinstance(kind, list) else kind, "apple")
