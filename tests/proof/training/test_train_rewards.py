"""If a reward function returns a wrong value, the run ends with one message. If it returns None for a completion, the
log says so.
"""

from __future__ import annotations

import pytest
from emitted import put
from method_runs import ONLINE_SETTINGS, Warm, small
from tiers import FIRST_AND_LAST

pytestmark = pytest.mark.slow

OWN = """\
def number(completions, **columns):
    return 1.0

def late(completions, row, **columns):
    if max(row) > 0:
        raise KeyError("colour")
    return [0.5 for _ in row]

def absent(completions, **columns):
    return [None for _ in completions]
"""


def bundle(warm: Warm, reward: str, target: str) -> str:
    put(warm.location, {"own.py": OWN})
    text = small(f'method grpo(rewards="own.py:{reward}", {ONLINE_SETTINGS})', method="grpo", target=target)
    return warm.compiled(text, f"{target}-{reward}")


@pytest.mark.parametrize("target", FIRST_AND_LAST)
@pytest.mark.parametrize(
    ("reward", "words"),
    [
        ("number", "the reward number returned a float (1.0), called with row 0 of prompts.jsonl and 4 answers"),
        ("late", "the reward late raised KeyError: 'colour' in line 6 of"),
    ],
)
def test_a_wrong_reward_ends_the_run_with_one_message(
    warm: Warm, tmp_path_factory: pytest.TempPathFactory, reward: str, words: str, target: str
) -> None:
    done = warm.of(target).run(bundle(warm, reward, target), str(tmp_path_factory.mktemp(reward)))
    assert done["status"] == [1]
    (line,) = [one for one in done["err"].splitlines() if one.startswith("error: ")]
    assert words in line
    assert "Traceback" not in done["err"]
    assert ("rows to train on" in done["out"]) == (reward == "late")


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_a_window_without_rewards_is_logged(warm: Warm, tmp_path_factory: pytest.TempPathFactory, target: str) -> None:
    done = warm.run(bundle(warm, "absent", target), str(tmp_path_factory.mktemp("absent")), target, idle=True)
    assert [event["step"] for event in done.events] == [1, 2, 3, 4]
    assert target != "trl-1.16" or "reward none" in done.output
