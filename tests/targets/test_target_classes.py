"""The tables against the real classes, in an environment with each target's versions.

The default target is looked for in this environment, any other in the interpreter that XPC_PYTHON_TRL_0_18 (and the
like) names.
"""

import json
import os
import subprocess
import sys

import pytest

from xpc.compiler import schema, targets
from xpc.compiler.targets import generate

pytestmark = pytest.mark.slow


def interpreter(name: str) -> str:
    """The Python of an environment with the target's versions; skips the test where there is none."""
    variable = "XPC_PYTHON_" + name.upper().replace("-", "_").replace(".", "_")
    python = os.environ.get(variable) or (sys.executable if name == targets.DEFAULT else "")
    if not python:
        pytest.skip(f"one environment holds one stack: {variable} names none with the versions of {name}")
    code = "import importlib.metadata as m; print(m.version('trl'))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    target = targets.load(name)
    assert target is not None
    if found.stdout.strip() != target.pins["trl"]:
        pytest.skip(f"{variable} (or this interpreter) has TRL {found.stdout.strip() or 'none'}, not that of {name}")
    return python


def run(python: str, code: str, given: object = None) -> object:
    done = subprocess.run([python, "-c", code], input=json.dumps(given), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", targets.names())
def test_the_table_is_what_the_classes_say_today(name: str) -> None:
    script = os.path.join(generate.HERE, "generate.py")
    done = subprocess.run(
        [interpreter(name), script, name, "-o", "-"], capture_output=True, text=True, check=False, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with open(os.path.join(generate.HERE, name + ".json"), encoding="utf-8") as file:
        assert done.stdout == file.read()


BUILD = """
import json, sys, warnings
from importlib import import_module
name, stated = json.load(sys.stdin)
module, _, name = name.rpartition(".")
make = getattr(import_module(module), name)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    built = make(**stated)
kinds = (FutureWarning, DeprecationWarning)
def plain(value):
    value = getattr(value, "value", value)
    return value.to_dict() if hasattr(value, "to_dict") else value
print(json.dumps({
    "warnings": [str(w.message) for w in caught if issubclass(w.category, kinds)],
    "changed": {k: [v, plain(getattr(built, k))] for k, v in stated.items() if plain(getattr(built, k)) != v},
    "unstated": sorted(f for f, d in make.__dataclass_fields__.items() if d.init and f not in stated),
}))
"""


@pytest.mark.parametrize("method", schema.METHODS)
@pytest.mark.parametrize("name", targets.names())
def test_what_is_stated_builds_the_class_and_reads_back(name: str, method: str) -> None:
    target = targets.load(name)
    assert target is not None
    if target.refused(method):
        return  # no bundle states this class
    config = target.config(method)
    stated = {**target.base_arguments(config), "bf16": False, "use_cpu": True, "dataloader_pin_memory": False}
    answer = run(interpreter(name), BUILD, [config, stated])
    assert answer == {"warnings": [], "changed": {}, "unstated": sorted(target.omitted(config))}


ISOLATE = """
import json, sys
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
json.load(sys.stdin)
torch.manual_seed(0)
config = Qwen2Config(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=2, vocab_size=64)
model = Qwen2ForCausalLM._from_config(config, attn_implementation="sdpa").eval()
one, two = torch.randint(0, 64, (1, 7)), torch.randint(0, 64, (1, 9))
positions = torch.cat([torch.arange(7), torch.arange(9)])[None]
with torch.no_grad():
    packed = model(input_ids=torch.cat([one, two], 1), position_ids=positions, use_cache=False).logits
    apart = torch.cat([model(input_ids=one).logits, model(input_ids=two).logits], 1)
print(json.dumps((packed - apart).abs().max().item()))
"""


@pytest.mark.parametrize("name", targets.names())
def test_whether_sdpa_keeps_packed_documents_apart(name: str) -> None:
    target = targets.load(name)
    assert target is not None
    error = run(interpreter(name), ISOLATE)
    assert isinstance(error, float)
    assert (error < 1e-5) is target.facts["isolate_mask"]
    assert ("sdpa" in str(target.facts["isolate_attention"])) is target.facts["isolate_mask"]
    assert error < 1e-5 or error > 0.05


LIGER = """
import json, sys
from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
json.load(sys.stdin)
print(json.dumps(sorted(MODEL_TYPE_TO_APPLY_LIGER_FN)))
"""


@pytest.mark.parametrize("name", targets.names())
def test_the_models_that_liger_patches(name: str) -> None:
    target = targets.load(name)
    assert target is not None
    python = interpreter(name)
    code = "import importlib.metadata as m; print(m.version('liger-kernel'))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
    if found != target.pins["liger-kernel"]:
        pytest.skip(f"that environment has liger-kernel {found or 'none'}, not {target.pins['liger-kernel']}")
    assert run(python, LIGER) == target.facts["liger_models"]
