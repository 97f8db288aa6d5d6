"""A file may contain a name that no spec can contain, such as `a b` or a text with control characters. `xpc import`
never raises an exception for such a file.
"""

import pytest
from compile_support import put, xpc

NAMES = ("/etc/passwd", "../x", "http://h/x", "a/../b", "//h", "a/b/c", "~/x", '"a\\x1b[2Jb"', '"\\u202ex"', '"a\\nb"',
         '"a\\0b"', '"a b"', '"\\ud800x"', "[]", "{a: b}", '""')  # fmt: skip
LLAMA_FACTORY = """\
stage: sft
model_name_or_path: {model}
dataset: {dataset}
template: qwen
finetuning_type: full
output_dir: {out}
run_name: {name}
per_device_train_batch_size: 1
learning_rate: 1.0e-5
"""
AXOLOTL = """\
base_model: {model}
datasets:
  - path: {dataset}
    type: alpaca
output_dir: {out}
wandb_name: {name}
micro_batch_size: 1
gradient_accumulation_steps: 1
learning_rate: 1e-5
num_epochs: 1
"""
PLAIN = {"model": "Qwen/Qwen2.5-0.5B", "dataset": "alpaca_en_demo", "out": "out", "name": "mine"}


@pytest.mark.slow
@pytest.mark.parametrize("text", [LLAMA_FACTORY, AXOLOTL], ids=["llama-factory", "axolotl"])
@pytest.mark.parametrize("key", PLAIN)
def test_a_name_that_no_spec_can_contain(text, key, tmp_path):
    for number, name in enumerate(NAMES):
        file = f"{number}.yaml"
        put(tmp_path, {file: text.format(**{**PLAIN, key: name})})
        done = xpc("import", file, cwd=str(tmp_path))
        printed = done.stdout + done.stderr
        assert b"broke the compiler" not in printed, (name, printed)
        assert b"\x1b" not in printed, name
        assert done.returncode in (0, 1, 2), name
