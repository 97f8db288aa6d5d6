"""The tables of each stack agree with the real classes of its libraries. For this, the tests use an environment that
has the stack's versions.

The default target is tested in this environment. Any other target is tested in the interpreter that an environment
variable names, such as XPC_PYTHON_TRL_0_18.
"""

import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from forks import shared
from interpreters import interpreter, stack_of
from tiers import EACH_STACK

from xpc.compiler import stacks
from xpc.compiler.language.methods import METHODS
from xpc.compiler.stacks import generate, introspect

pytestmark = pytest.mark.slow

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "class_answers.py")
Ask = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Return a function that gets a target and returns the output of class_answers.py. The output is computed only once
    for each target. Its entry `table` is the text that generate.py writes.
    """
    folder = tmp_path_factory.mktemp("tables")

    @cache
    def ask(name: str) -> dict[str, Any]:
        stack = stack_of(name)
        out = os.path.join(str(folder), name + ".json")
        classes = {
            method: (stack.config(method), stated(stack, method)) for method in METHODS if not stack.refused(method)
        }
        given = {"generate": [os.path.join(generate.HERE, "generate.py"), name, "-o", out], "classes": classes}
        done = subprocess.run(
            [shared(name).python, SCRIPT], input=json.dumps(given), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        with open(out, encoding="utf-8") as file:
            return {"table": file.read(), **json.loads(done.stdout.splitlines()[-1])}

    return ask


def stated(stack: stacks.Stack, method: str) -> dict[str, Any]:
    """The arguments that all bundles of a method state for a run on a CPU."""
    base = stack.base_arguments(stack.config(method))
    workers = {"dataset_num_proc": 4} if "dataset_num_proc" in base else {}
    return {**base, "bf16": False, "use_cpu": True, "dataloader_pin_memory": False, **workers}


@pytest.mark.parametrize("name", EACH_STACK)
def test_the_table_is_what_the_classes_say_today(name: str, answers: Ask) -> None:
    with open(os.path.join(generate.HERE, name, "stack.json"), encoding="utf-8") as file:
        assert answers(name)["table"] == file.read()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", EACH_STACK)
def test_what_is_stated_builds_the_class_and_reads_back(name: str, method: str, answers: Ask) -> None:
    stack = stack_of(name)
    if stack.refused(method):
        return  # no bundle states an argument of this class
    omitted = sorted(stack.omitted(stack.config(method)))
    assert answers(name)["built"][method] == {"warnings": [], "changed": {}, "unstated": omitted}


@pytest.mark.parametrize("name", EACH_STACK)
def test_whether_sdpa_keeps_packed_documents_apart(name: str, answers: Ask) -> None:
    stack = stack_of(name)
    error = answers(name)["packed"]
    assert (error < 1e-5) is stack.facts.isolate_mask
    assert error < 1e-5 or error > 0.05


@pytest.mark.parametrize("name", EACH_STACK)
def test_the_table_has_the_models_that_liger_patches(name: str, answers: Ask) -> None:
    stack = stack_of(name)
    found, models = answers(name)["liger"]
    if found != stack.pins["liger-kernel"]:
        pytest.skip(f"the stack's environment has liger-kernel {found or 'none'}, not {stack.pins['liger-kernel']}")
    assert models == list(stack.facts.liger_models)


@pytest.mark.parametrize("name", stacks.names())
def test_the_table_has_the_methods_that_widen_a_quantized_base(name: str) -> None:
    """Some methods convert the unquantized weights of a quantized base to float32. Such a method calls peft's
    prepare_model_for_kbit_training, either in its own trainer or in a function that all trainers share.
    """
    stack = stack_of(name)
    where = "import importlib.util as u; print(u.find_spec('trl').submodule_search_locations[0])"
    done = subprocess.run([interpreter(name), "-c", where], capture_output=True, text=True, check=True)
    trl = Path(done.stdout.strip())
    called = "= prepare_model_for_kbit_training("
    shared = trl / "models" / "utils.py"
    asks = ("prepare_peft_model(",) if called in shared.read_text() else ()
    widened = set()
    for method in METHODS:
        text = "".join(one.read_text() for one in trl.glob(f"**/{method}_trainer.py"))
        if any(words in text for words in (called, *asks, "return prepare_model_for_kbit_training(")):
            widened.add(method)
    if "sft" in widened:
        widened.add("distill")  # GKDTrainer is a subclass of SFTTrainer
    assert widened == set(stack.facts.quantized_widened)


def test_a_class_that_trl_lacks_is_left_out_and_a_class_that_moved_is_an_error() -> None:
    assert list(introspect._configs(["trl.NoSuchConfig", "trl.experimental.none.NoneConfig"])) == [introspect.BASE]
    with pytest.raises(AttributeError, match="CPOConfig"):
        introspect._configs(["trl.CPOConfig"])  # it is in trl.experimental.cpo
