"""The importer has its own interpreter for Python. For each kind of expression and call, this interpreter computes the
value that Python would compute, or reports that the value is unknown.
"""

from __future__ import annotations

from typing import Any

import pytest
from import_support import imported

from xpc.compiler.importing.python.interpreter.functions import contains
from xpc.compiler.importing.python.interpreter.script import followed
from xpc.compiler.importing.python.interpreter.source import parts
from xpc.compiler.importing.python.interpreter.values import Argument, Location, Object, Unknown
from xpc.compiler.importing.python.program import argument

HERE = Location("train.py", 1)


def value(text: str) -> Any:
    """The value of `x` at the end of a script, according to the importer's interpreter."""
    found, broken = parts(text, "train.py")
    assert not broken
    return followed(found, lambda name: None).main["x"]


RECORD = "from dataclasses import dataclass\n@dataclass\nclass A:\n    b: int = 2\n    c: str = 'd'\n"


@pytest.mark.parametrize(("text", "expected"), [
    ("x = list(range(3))", [0, 1, 2]),
    ("x = [n for n in range(1, 6, 2)]", [1, 3, 5]),
    ("x = 'a' in {'a': 1}", True),
    ("x = 'b' not in 'abc'", False),
    ("x = 1 in [True]", False),
    ("import os\nx = 'NOT_SET' in os.environ", False),
    ("import os\nos.environ['SET'] = '1'\nx = 'SET' in os.environ", True),
    (f"{RECORD}x = list(A.__dataclass_fields__)", ["b", "c"]),
    (f"{RECORD}x = A.__dataclass_fields__['b'].default", 2),
])  # fmt: skip
def test_the_value_is_pythons(text: str, expected: object) -> None:
    assert value(text) == expected


def test_what_contains_an_unknown_value_is_unknown() -> None:
    unknown = Unknown("a reason", HERE)
    for left, right in ((unknown, "text"), ("a", unknown), (1, "text"), (unknown, {"a": 1}), (unknown, [1])):
        assert contains(left, right, positive=True) is None
    assert contains(1, [1], positive=True)
    assert contains(1, [True], positive=False)


@pytest.mark.parametrize(("trainer", "names"), [
    ("SFTTrainer", "model args data_collator train_dataset eval_dataset"),
    ("DPOTrainer", "model ref_model args"),
    ("GRPOTrainer", "model reward_funcs args train_dataset eval_dataset"),
    ("RLOOTrainer", "model reward_funcs args train_dataset eval_dataset"),
    ("KTOTrainer", "model ref_model args train_dataset eval_dataset"),
    ("RewardTrainer", "model args data_collator train_dataset eval_dataset"),
])  # fmt: skip
def test_arguments_without_a_name_have_the_trainers_order(trainer: str, names: str) -> None:
    order = names.split()
    made = Object(f"trl.{trainer}", [Argument(name, HERE) for name in order], {}, HERE)
    for name in order:
        found = argument(made, name)
        assert found is not None
        assert found.value == name
    assert argument(made, "processing_class") is None


SCRIPT = """
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
def short(completions, **kwargs):
    return [0.0 for one in completions]
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model.config.eos_token_id = 3
trainer = GRPOTrainer(model=model, reward_funcs=[short], train_dataset=load_dataset("org/rows", split="train"),
                      args=GRPOConfig(output_dir="out", reward_weights=[2.0]))
trainer.train()
"""


def test_the_outcome_of_a_key_names_its_setting() -> None:
    outcomes = {one.key: one for one in imported(SCRIPT, "--rewards", "r.py", name="train.py").draft.outcomes.values()}
    assert (outcomes["reward_weights"].outcome, outcomes["reward_weights"].to) == ("mapped", "method.rewards")
    assert outcomes["model.config.eos_token_id"].outcome == "irrelevant"


STOPPING = """\
from transformers import StoppingCriteria

class Words(StoppingCriteria):
    def __init__(self, words):
        if words:
            super().__init__(words)
        else:
            super().__init__()

def stop(words, loud):
    if loud in words:
        return Words(words)
    return Words(some())

x = [stop(some(), some())]
"""


def test_library_class_that_branches_initialize_with_more_or_fewer_arguments_has_arguments() -> None:
    made = value(STOPPING)[0]
    assert isinstance(made, Object)
    assert all(isinstance(one, Argument) for one in made.positional)
