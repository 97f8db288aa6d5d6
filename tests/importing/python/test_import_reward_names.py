"""A reward function may use a global name that only the script's main block assigns. Then `--rewards FILE` writes this
assignment into FILE, next to the function. If nothing assigns the name, the import reports this.
"""

from __future__ import annotations

import math
from pathlib import Path

from test_import_launched_classes import launched

SCRIPT = """\
import math
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

def near(completions, **kwargs):
    found = [scale * len(one) for one in completions]
    try:
        return [math.log(1 + one) for one in found]
    except ValueError as error:
        print(error)
        return [0.0 for _ in found]

def train():
    GRPOTrainer(model="Qwen/Qwen2.5-3B", reward_funcs=[near], args=GRPOConfig(output_dir="out"),
                train_dataset=load_dataset("org/rows", split="train")).train()

if __name__ == "__main__":
    scale = 0.5
    other = open("never")
    train()
"""


def test_a_name_of_the_main_block_is_in_the_file_of_the_rewards(tmp_path: Path) -> None:
    found = launched(tmp_path, "python train.py\n", SCRIPT, "--rewards", "rewards.py")
    text = found.draft.files["rewards.py"].decode()
    assert "\nscale = 0.5\n" in text
    assert "other" not in text
    assert not any("does not set" in one for one in found.messages), found.messages
    scope: dict[str, object] = {}
    exec(text, scope)
    assert scope["near"](completions=["aaaa"]) == [math.log(3)]  # type: ignore[operator]


def test_a_name_that_nothing_sets_is_reported(tmp_path: Path) -> None:
    found = launched(tmp_path, "python train.py\n", SCRIPT.replace("scale = 0.5", "pass"), "--rewards", "rewards.py")
    (reported,) = [one.text for one in found.draft.messages if "which are not in their file" in one.text]
    assert "use `scale`" in reported
