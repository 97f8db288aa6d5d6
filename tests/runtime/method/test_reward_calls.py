"""Before training, the runtime calls each reward function with the first row. A function that fails only later in the
run is also reported.
"""

from __future__ import annotations

import asyncio
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiers import FIRST_AND_LAST

from xpc.compiler.stacks import load
from xpc.runtime.core import progress
from xpc.runtime.core.errors import RunError
from xpc.runtime.features.method import reward_calls, rewards
from xpc.runtime.features.method.reward_progress import RewardProgress

pytestmark = pytest.mark.slow  # the test loads transformers and torch
ROW = {"prompt": [{"role": "user", "content": "6+1?"}], "solution": "7"}
TOKENIZER: Any = lambda text, **_: {"input_ids": [ord(one) for one in text]}  # noqa: E731
TOKENIZER.eos_token_id = 2


def call(code: str, stack: str = "trl-1.16", row: dict[str, Any] = ROW) -> str | None:
    """Run the text `code`, which defines a reward function `r`, and call `r` with a first row. Return what the runtime
    reports about the call.
    """
    inside: dict[str, Any] = {}
    exec(compile(code, "/b/files/r.py", "exec"), inside)
    facts = load(stack)
    assert facts is not None
    values, size = reward_calls.arguments(facts.facts.reward_given, row, 4, TOKENIZER)
    return reward_calls.first_call(inside["r"], values, size, "row 0 of d.jsonl")


WRONG = [
    (
        "def r(completions, solution, **_):\n    return solution[9]",
        "raised IndexError: list index out of range in line 2",
    ),
    ("def r(completions, **_):\n    import sys\n    sys.exit('gone')", "raised SystemExit: gone in line 3"),
    ("def r(completions, **_):\n    return 1.0", "returned a float (1.0)"),
    ("def r(completions, **_):\n    pass", "returned None,"),
    ("def r(completions, **_):\n    return 'good'", "returned a str ('good')"),
    ("def r(completions, **_):\n    return {'a': 1}", "returned a dict ({'a': 1})"),
    ("def r(completions, **_):\n    return [1.0]", "returned 1 value,"),
    (
        "def r(completions, **_):\n    return [[1.0, 2.0] for _ in completions]",
        "returned a list ([1.0, 2.0]) for answer 0",
    ),
    ("def r(completions, **_):\n    return [[1.0] for _ in completions]", "returned a list ([1.0]) for answer 0"),
    (
        "import numpy\ndef r(completions, **_):\n    return numpy.ones((len(completions), 1))",
        "returned a ndarray (array([1.])) for answer 0",
    ),
    ("def r(completions, **_):\n    return ['1.0' for _ in completions]", "returned a str ('1.0') for answer 0"),
    ("def r(completions, **_):\n    return [0.0, 'x', 0.0, 0.0]", "returned a str ('x') for answer 1"),
    ("def r(completions, **_):\n    return [float('-inf') for _ in completions]", "returned -inf for answer 0"),
    ("async def r(completions, **_):\n    return 2", "returned an int (2)"),
    (
        "def r(completions, **_):\n    return [float('7' in one) for one in completions]",
        'raised TypeError: a completion is a list of messages, not a text: search `in one[-1]["content"]` in line 2',
    ),
    ("import torch\ndef r(completions, **_):\n    return torch.tensor(1.0)", "returned a Tensor (tensor(1.))"),
]


@pytest.mark.parametrize(("code", "words"), WRONG)
def test_a_wrong_reward_is_one_sentence_with_its_row(code: str, words: str) -> None:
    why = str(call(code))
    assert why.startswith("the reward r ")
    assert words in why
    assert "called with row 0 of d.jsonl and 4 answers, the first of them empty" in why
    assert "raised" in why or "it must return a list with one number for each completion" in why
    assert "\n" not in why


RIGHT = [
    "def r(completions, solution, **_):\n    return [a in c[0]['content'] for a, c in zip(solution, completions)]",
    "def r(completions, **_):\n    return [None for _ in completions]",
    "def r(completions, **_):\n    return [True, 1, 0.5, float('nan')]",
    "async def r(completions, **_):\n    return [1.0 for _ in completions]",
    "import torch\ndef r(completions, **_):\n    return torch.ones(len(completions))",
    "import torch\ndef r(completions, **_):\n    return torch.ones(len(completions), 1)",
    "import numpy\ndef r(completions, **_):\n    return numpy.zeros(len(completions))",
    "def r(completions, **_):\n    return (1 for _ in completions)",
    "def r(completion_ids, prompts, solution, completions):\n"
    "    assert completion_ids[0] == [2] and len(completion_ids[1]) > 9 and solution == ['7'] * 4\n"
    "    return [0.0] * len(prompts)",
]


@pytest.mark.parametrize("code", RIGHT)
def test_what_trl_accepts_is_accepted(code: str) -> None:
    assert call(code, "trl-0.18" if "solution, completions)" in code else "trl-1.16") is None


@pytest.mark.parametrize("stack", FIRST_AND_LAST)
def test_every_stack_passes_its_own_arguments(stack: str) -> None:
    found = load(stack)
    assert found is not None
    names = sorted([*found.facts.reward_given, "solution"])
    code = f"def r(**given):\n    assert sorted(given) == {names!r}, sorted(given)"
    assert "returned None" in str(call(code, stack))


def test_a_text_prompt_has_texts_for_answers() -> None:
    code = "def r(completions, **_):\n    return [float(len(one)) for one in completions]"
    assert call(code, row={"prompt": "6+1="}) is None


def test_a_slow_reward_is_reported_and_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reward_calls, "SECONDS", 0.2)
    assert call("import time\ndef r(completions, **_):\n    time.sleep(60)") is None
    assert "the reward r took more than 0 s" in capsys.readouterr().out


def test_what_exists_only_in_training_refuses_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        call("def r(completions, **_):\n    raise ValueError('You must call wandb.init() before wandb.log()')") is None
    )
    assert "the reward r cannot be checked before training" in capsys.readouterr().out


def test_a_reward_that_fails_in_a_later_step_is_one_sentence() -> None:
    def late(completions: list[str], **_: Any) -> list[float]:
        return [1 / len(one) for one in completions]

    judged = reward_calls.checked(late)
    assert judged.__name__ == "late"
    assert judged(prompts=["a"], completions=["ab"]) == [0.5]
    with pytest.raises(RunError, match="the reward late raised ZeroDivisionError: division by zero in line") as raised:
        judged(prompts=["What?"], completions=[""])
    assert "called with 1 completions, the first for the prompt 'What?'" in str(raised.value)
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    with pytest.raises(RunError, match=r"the first for the prompt 'Why\?'"):
        judged(prompts=[turns], completions=[""])


@pytest.mark.parametrize("head", ["", "async "])
def test_a_reward_that_hangs_in_a_later_step_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], head: str
) -> None:
    """Every process prints the line. The time between two lines doubles."""
    monkeypatch.setattr(reward_calls, "SECONDS", 0.05)
    monkeypatch.setenv("RANK", "1")
    inside: dict[str, Any] = {}
    exec(f"import time\n{head}def judge(completions, **_):\n    time.sleep(0.5)\n    return [1.0]", inside)
    returned = reward_calls.checked(inside["judge"])(prompts=["What?"], completions=["ab"])
    assert (asyncio.run(returned) if head else returned) == [1.0]
    printed = capsys.readouterr().out.splitlines()
    assert 2 <= len(printed) <= 4
    for line in printed:
        assert line.startswith(
            "[run] the reward judge, called with 1 completions, the first for the prompt 'What?', has not returned for"
        )


def test_a_model_that_a_reward_loads_writes_no_bar_into_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tqdm import std

    monkeypatch.setattr(std.tqdm, "__init__", std.tqdm.__init__)
    monkeypatch.setattr(progress.Phase, "bar", progress.Phase.bar)
    bundle: Any = SimpleNamespace(plan={"method": {"rewards": []}}, stack={}, arguments={})
    monkeypatch.setattr(rewards, "_loaded", lambda _: list(std.tqdm(range(3))))
    assert rewards.Rewards().before_rows(bundle, None) == []
    assert capsys.readouterr().err == ""


def test_a_window_without_a_reward_has_a_line() -> None:
    words = RewardProgress().log_words
    bundle: Any = SimpleNamespace()
    assert words(bundle, {"reward": None}) == ["reward none"]
    assert words(bundle, {"reward": float("nan"), "rewards/margins": 0.25}) == ["reward none", "margin 0.250"]


def test_the_preflight_calls_each_function_once(tmp_path: Path) -> None:
    from test_runtime_methods import made

    calls = tmp_path / "calls"
    code = f"def r(completions, **_):\n    open({str(calls)!r}, 'a').write('x')\n    return 1.0\n"
    bundle = made(tmp_path, code=code, functions=("r",), num_generations=3)
    feature = next(one for one in bundle.features if type(one).__name__ == "Rewards")
    (why,) = feature.check_first_row(bundle, "d.jsonl", ROW, TOKENIZER)
    assert "returned a float (1.0), called with row 0 of d.jsonl and 3 answers" in why
    assert calls.read_text() == "x"


def test_arguments_of_a_function_of_a_file_are_set_under_its_own_name() -> None:
    def close(completions: list[str], *, most: int, scale: float = 1.0, **_: Any) -> list[float]:
        return [scale * min(most, len(one)) for one in completions]

    made = rewards._with_options(close, {"most": 3})
    assert reward_calls.name_of(made) == "close"
    assert made(completions=["ab", "abcd"], solution=["7", "7"]) == [2.0, 3.0]
    assert list(signature(made).parameters) == ["completions", "most", "scale", "_"]
    signature(made).bind(completions=[], solution=[])
    assert rewards._with_options(close, {}) is close
