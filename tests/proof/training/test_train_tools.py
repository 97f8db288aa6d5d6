"""Real training by grpo with tools and an environment: the results of tool calls are in the model's input, but have no
loss.
"""

from __future__ import annotations

import json
import os
import shutil
from importlib.util import find_spec

import pytest
from emitted import put
from method_runs import Warm, small, tensors

pytestmark = pytest.mark.slow

TOOLS = '''\
import time

def add(a: int, b: int = 2) -> int:
    """Add.

    Args:
        a: one
        b: two
    """
    return 70 + a + b

def hang(a: int) -> int:
    """Hang.

    Args:
        a: one
    """
    time.sleep(1000)
'''
ODD = '''\
import asyncio


class Unprintable:
    def __str__(self):
        raise ValueError("no text")


def fail(a: int) -> int:
    """Fail.

    Args:
        a: one
    """
    raise KeyError(f"no row {a}")


def nothing(a: int) -> None:
    """Return nothing.

    Args:
        a: one
    """


def huge(a: int) -> str:
    """Return a long text.

    Args:
        a: one
    """
    return "word " * 100_000


def found(a: int) -> list[str]:
    """Return a list of texts.

    Args:
        a: one
    """
    return ["first", "second"]


def strange(a: int) -> object:
    """Return an object that has no text.

    Args:
        a: one
    """
    return Unprintable()


def raw(a: int) -> bytes:
    """Return bytes.

    Args:
        a: one
    """
    return b"\\xff" + str({1, 2}).encode()


async def later(a: int) -> str:
    """Answer later.

    Args:
        a: one
    """
    await asyncio.sleep(0.01)
    return "LATER"


async def never(a: int) -> str:
    """Never answer.

    Args:
        a: one
    """
    await asyncio.sleep(1000)
    return ""
'''
MAZE = '''\
class Maze:
    steps = 0

    def reset(self, prompt, row, **columns):
        self.steps = 0
        return " GO."

    def go(self, way: str) -> str:
        """Go.

        Args:
            way: left
        """
        self.steps += 1
        return f"WENT-{way}"

    def get_reward(self):
        return self.steps
'''
WATCH = """\
import json
from trl import GRPOTrainer

real = GRPOTrainer._compute_loss

def watched(self, model, inputs):
    text = self._tokenizer
    for ids, present, own in zip(inputs["completion_ids"], inputs["completion_mask"], inputs["tool_mask"]):
        kept = {"given": ids[(present == 1) & (own == 0)], "learned": ids[(present == 1) & (own == 1)]}
        with open("seen.jsonl", "a") as out:
            print(json.dumps({name: text.decode(one) for name, one in kept.items()}), file=out)
    with open("prompt.txt", "w") as out:
        out.write(text.decode(inputs["prompt_ids"][0]))
    return real(self, model, inputs)

GRPOTrainer._compute_loss = watched

def constant(completions, **columns):
    assert columns.get("environments") is None or all(one.steps < 2 for one in columns["environments"])
    return [0.5 for _ in completions]

def ordered(completions, **columns):
    return [float(at) for at, _ in enumerate(completions)]
"""


def caller(location: str) -> None:
    """The tiny model with a chat template whose tool calls TRL can read."""
    found = find_spec("trl")
    assert found is not None
    assert found.origin is not None
    shutil.copytree(os.path.join(location, "tiny"), os.path.join(location, "caller"), dirs_exist_ok=True)
    template = os.path.join(os.path.dirname(found.origin), "chat_templates", "qwen2_5.jinja")
    shutil.copy(template, os.path.join(location, "caller", "chat_template.jinja"))
    path = os.path.join(location, "caller", "tokenizer_config.json")
    with open(path, encoding="utf-8") as handle:
        config = json.load(handle)
    config.pop("chat_template", None)
    put(location, {"caller/tokenizer_config.json": json.dumps(config)})
    with open(os.path.join(location, "caller", "config.json"), encoding="utf-8") as handle:
        config = json.load(handle) | {"max_position_embeddings": 4096}  # the prompt describes the tools
    put(location, {"caller/config.json": json.dumps(config)})


def trained(
    warm: Warm, cwd: str, settings: str, name: str, *more: str, steps: int = 2
) -> tuple[list[dict[str, str]], str, dict[str, float]]:
    """Train some steps. The first completions call the tools one after another. ``more`` are additional lines of the
    spec. Return the completions (as trained text and tool results), the prompt, and the metrics of the last step.
    """
    put(warm.location, {"tools.py": TOOLS, "odd.py": ODD, "maze.py": MAZE, "watch.py": WATCH})
    caller(warm.location)
    method = f"method grpo(generations=2, max_completion=150, tool_turns=1, {settings})"
    text = small(method, *more, method="grpo").replace('"tiny"', '"caller"').replace("gbs=8 micro=4", "gbs=2 micro=2")
    done = warm.train(text.replace("4 steps", f"{steps} steps"), name, "trl-1.16", cwd, XPC_MADE_UP_TOOL_CALLS="1")
    with open(os.path.join(cwd, "seen.jsonl"), encoding="utf-8") as handle:
        seen = [json.loads(line) for line in handle]
    with open(os.path.join(cwd, "prompt.txt"), encoding="utf-8") as handle:
        prompt = handle.read()
    before = tensors(os.path.join(warm.location, "caller", "model.safetensors"))
    after = tensors(os.path.join(done.out, "model.safetensors"))
    return seen, prompt, {**done.events[-1], "moved": sum(before[one] != after[one] for one in before)}


def test_results_of_tools_are_given_and_not_learned(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = 'tools="tools.py:add", environment="maze.py:Maze", rewards="watch.py:constant"'
    seen, prompt, event = trained(warm, str(tmp_path_factory.mktemp("tools")), settings, "tools")
    added, went = sorted((one for one in seen if one["given"]), key=lambda one: "WENT" in one["given"])
    assert "<tool_response>\n73\n</tool_response>" in added["given"]
    assert "<tool_response>\nWENT-apple\n</tool_response>" in went["given"]
    assert '"name": "add", "arguments": {"a": 1}' in added["learned"]
    assert "73" not in added["learned"]
    assert all("<tool_call>" not in one["given"] for one in seen)
    for words in ('"description": "Add."', '"description": "Go."', "? GO.<|im_end|>"):
        assert words in prompt
    assert (event["tools/call_frequency"], event["tools/failure_frequency"]) == (0.5, 0.0)
    assert event["rewards/Maze/mean"] == 0.5
    assert event["moved"] > 0  # only the environment makes the rewards of the completions differ


def test_calls_are_read_from_a_built_in_template(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> None:
    """TRL does not know this built-in chat template, so it cannot parse the template's tool calls by itself. The run
    tells TRL how to parse them.
    """
    settings = 'tools="tools.py:add", rewards="watch.py:constant"'
    cwd = str(tmp_path_factory.mktemp("built-in"))
    seen, prompt, event = trained(warm, cwd, settings, "built-in", "model(chat_template=qwen2.5)")
    (added,) = {one["given"] for one in seen if one["given"]}
    assert "<tool_response>\n73\n</tool_response>" in added
    assert "# Tools" in prompt
    assert (event["tools/call_frequency"], event["tools/failure_frequency"]) == (0.5, 0.0)


def test_a_tool_that_hangs_does_not_hang_the_run(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = 'tools="tools.py:hang", tool_timeout=1s, rewards="watch.py:constant"'
    seen, _, event = trained(warm, str(tmp_path_factory.mktemp("hang")), settings, "hang")
    assert "hang took more than 1 s" in "".join(one["given"] for one in seen)
    assert event["tools/failure_frequency"] == 1.0


def test_every_result_of_a_tool_is_a_text_or_an_error(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each step calls one of these tools. No tool ends the run. A result that is too long is dropped."""
    expected = {
        "fail": "{'error': \"'no row 1'\"}",
        "nothing": "None",
        "huge": "",
        "found": "['first', 'second']",
        "strange": "{'error': 'no text'}",
        "raw": "b'\\xff{1, 2}'",
        "later": "LATER",
        "never": "{'error': 'never took more than 10 s'}",
    }
    tools = ", ".join(f'"odd.py:{one}"' for one in expected)
    settings = f'tools=[{tools}], tool_timeout=10s, rewards="watch.py:ordered"'
    cwd = str(tmp_path_factory.mktemp("odd"))
    seen, _, event = trained(warm, cwd, settings, "odd", steps=len(expected))
    given = dict(zip(expected, (one["given"] + two["given"] for one, two in zip(seen[::2], seen[1::2])), strict=True))
    for name, text in expected.items():
        assert (f"<tool_response>\n{text}\n</tool_response>" in given[name]) == bool(text), (name, given[name])
    assert given["huge"] == ""
    assert event["tools/failure_frequency"] == 1.0
    assert event["moved"] > 0
