"""A call of a tool or an environment has a time limit. Mistakes in the files that define them are reported before a
model is loaded.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xpc.runtime.core.errors import RunError
from xpc.runtime.features.method import tools

pytestmark = pytest.mark.slow


def sleeps(text: str) -> str:
    """Sleep."""
    time.sleep(60)
    return text


async def waits(text: str) -> str:
    await asyncio.sleep(60)
    return text


async def blocks(text: str) -> str:
    time.sleep(60)
    return text


async def answers(text: str) -> str:
    await asyncio.sleep(0)
    return text.upper()


@pytest.mark.parametrize("tool", [sleeps, waits, blocks])
def test_a_tool_that_does_not_end_is_an_error_for_the_model(tool: Any, capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    for _ in range(2):
        with pytest.raises(TimeoutError, match=f"{tool.__name__} took more than 0.1 s"):
            tools.limited(tool, 0.1)(text="a")
    assert time.monotonic() - begun < 50  # without the limit, a call takes 60 seconds
    assert tools.limited(answers, 60)(text="a") == "A"
    assert f"the tool {tool.__name__} raised TimeoutError" in capsys.readouterr().out


def test_a_result_without_a_text_of_its_own_is_an_error_for_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    """If a tool returns an object whose text is only its address in memory, the model gets an error instead. The
    address would differ from run to run.
    """
    made: list[Any] = [object(), (one for one in "ab"), map(str, [1])]
    for one in made:
        with pytest.raises(TypeError, match="which is not a text"):
            tools.limited(lambda given: given, 5)(one)
    assert "it returned an object of type object, which is not a text" in capsys.readouterr().out
    for kept in (None, 3, {"a": [1]}, ("b",), Path("c"), "d"):
        assert tools.limited(lambda given: given, 5)(kept) == kept


@pytest.mark.parametrize(("made", "what"), [("class Adder: ...", "a class"), ("Adder = object()", "of type object")])
def test_a_tool_that_is_no_function_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, what: str
) -> None:
    space: dict[str, Any] = {}
    exec(made, space)
    monkeypatch.setattr(tools, "of_file", lambda bundle, one, what: space["Adder"])
    stated = {"seconds": 5, "functions": [{"function": "Adder"}], "environment": None}
    with pytest.raises(RunError, match=rf"the tool Adder is .*{what}, and the model calls functions"):
        tools.loaded.__wrapped__(SimpleNamespace(plan={"method": {"tools": stated}}))


def test_what_a_tool_raises_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(x: int) -> int:
        raise SystemExit(3) if x else KeyError("colour")

    tool = tools.limited(broken, 5)
    with pytest.raises(KeyError):
        tool(0)
    with pytest.raises(RuntimeError, match=r"broken called sys.exit\(3\)"):
        tool(1)
    (line,) = capsys.readouterr().out.splitlines()
    assert "the tool broken raised KeyError: 'colour' in line " in line
    assert line.endswith("the model reads the error as the tool's result")


class Maze:
    """A maze whose reward becomes invalid after two steps."""

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, prompt: Any, level: int, **columns: Any) -> Any:
        if level > 2:
            raise ValueError("no such level")
        return {0: None, 1: " Go.", 2: 7}[level]

    def step(self, direction: str) -> int:
        self.steps += 1
        return self.steps

    def get_reward(self) -> Any:
        return float("inf") if self.steps > 1 else self.steps

    def _hidden(self) -> None: ...


def test_an_environment_is_limited_and_checked() -> None:
    limited = tools.limited_class(Maze, 5)
    assert (limited.__name__, tools.method_names(limited)) == ("Maze", ["step"])
    assert issubclass(limited, Maze)
    row = {"prompt": [{"role": "user", "content": "Where?"}]}
    assert tools.first_rollout(limited(), {**row, "level": 1}) == " Go."
    assert tools.first_rollout(limited(), {**row, "level": 0}) is None
    with pytest.raises(RunError, match="`reset` of Maze returned int; it must return text"):
        tools.first_rollout(limited(), {**row, "level": 2})
    with pytest.raises(RunError, match="the environment's reset raised ValueError: no such level in line"):
        tools.first_rollout(limited(), {**row, "level": 3})
    with pytest.raises(RunError, match="missing 1 required positional argument: 'level'"):
        tools.first_rollout(limited(), row)
    environment = limited()
    assert (environment.step("left"), environment.get_reward()) == (1, 1)
    environment.step("right")
    with pytest.raises(RunError, match=r"get_reward returned float \(inf\); it must return a finite number or None"):
        environment.get_reward()


def test_what_an_environment_lacks() -> None:
    bundle: Any = SimpleNamespace(plan={"method": {"rewards": []}})
    empty = type("Empty", (), {})()
    assert [one.partition(" has ")[2] for one in tools._environment_problems(bundle, empty)] == [
        "no method `reset`, which starts a completion", "no method `get_reward`, and the spec has no `rewards`"
    ]  # fmt: skip
    bundle.plan["method"]["rewards"] = [{}]
    assert len([*tools._environment_problems(bundle, empty)]) == 1
    assert not [*tools._environment_problems(bundle, None)]


def test_made_up_values_have_the_type_of_their_schema() -> None:
    schemas = ({"type": "integer"}, {"type": ["number", "null"]}, {"enum": ["up"]}, {"type": "string"}, {})
    assert [tools._example(one) for one in schemas] == [1, 1.0, "up", "apple", "apple"]


def test_only_a_class_is_an_environment(tmp_path: Path) -> None:
    from hashlib import sha256

    code = b"def maze():\n    return None\n"
    (tmp_path / "e.py").write_bytes(code)
    named = {"file": "e.py", "function": "maze", "sha256": sha256(code).hexdigest()}
    stated = {"functions": [], "environment": named, "seconds": 3}

    class Bundle:
        plan = {"method": {"tools": stated}}  # noqa: RUF012

        def inside(self, name: str) -> str:
            return str(tmp_path / name)

    with pytest.raises(RunError, match="the environment maze is not a class"):
        tools.loaded(Bundle())  # type: ignore[arg-type]


class WordTokenizer:
    """A tokenizer with one token per word. Its chat template writes the names of the tools."""

    def apply_chat_template(self, turns: list[dict[str, str]], tools: Any, **options: Any) -> str:
        assert options == {"tokenize": False, "add_generation_prompt": True}
        return " ".join([*(f"tool {one.__name__}" for one in tools or ()), *(turn["content"] for turn in turns)])

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[str]]:
        return {"input_ids": text.split()}


def test_the_first_rows_say_what_the_tools_add_to_each_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shop:
        def buy(self, what: str) -> str:
            return what

    feature, bundle, tokenizer = tools.Tools(), SimpleNamespace(), WordTokenizer()
    monkeypatch.setattr(tools, "loaded", lambda _: ([sleeps], Shop))
    note = feature.first_rows_note(bundle, [], tokenizer)  # type: ignore[arg-type]
    assert note == "; the descriptions of the tools add 4 tokens to each"
    monkeypatch.setattr(tokenizer, "apply_chat_template", lambda *_, **__: "no tools")
    assert feature.first_rows_note(bundle, [], tokenizer) == ""  # type: ignore[arg-type]


def test_a_template_that_fails_with_tools_is_reported_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "loaded", lambda _: ([sleeps], None))
    assert tools.Tools().first_rows_note(SimpleNamespace(), [], None) == ""  # type: ignore[arg-type]
