"""Bundles for the runtime's tests, written by hand instead of by the compiler. They are launched in the same way as by
launch.sh.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

from patience import HUNG
from ports import free_port
from run_features import enabled, read

from xpc.compiler import stacks
from xpc.compiler.language.methods import METHODS
from xpc.compiler.lower.method import method_facts
from xpc.compiler.lower.payload import stack_section
from xpc.runtime.core import conditions
from xpc.runtime.core.conditions import trainer
from xpc.runtime.core.feature import Bundle

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
YAML = """compute_environment: LOCAL_MACHINE
debug: false
distributed_type: {kind}
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
num_machines: 1
num_processes: {world}
rdzv_backend: static
use_cpu: true
"""
DEEPSPEED_YAML = "deepspeed_config:\n  deepspeed_multinode_launcher: standard\n  zero3_init_flag: {init}\n"


def source(path: str, shape: str = "messages", **changes: Any) -> dict[str, Any]:
    """Make the entry of a data source in trainer_args.json."""
    out: dict[str, Any] = {
        "id": None, "config": None, "split": "train", "slice": None, "revision": None, "path": path, "bundled": None,
        "sha256": None, "shape": shape, "columns": None, "take": None,
    }  # fmt: skip
    return {**out, **changes}


def plan(
    model: str, sources: list[dict[str, Any]], *, stack: str = stacks.DEFAULT, world: int = 1, zero: int = 0
) -> dict[str, Any]:
    """The trainer_args.json of a tiny run with 8 steps, and a checkpoint after every second step."""
    arguments: dict[str, Any] = {
        "output_dir": "out", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 8,
        "logging_steps": 1, "report_to": "none", "save_strategy": "steps", "save_steps": 2, "learning_rate": 5e-3,
        "bf16": False, "fp16": False, "max_length": 128, "dataloader_pin_memory": False, "use_cpu": not zero,
        "seed": 42, "max_grad_norm": 1.0, "ddp_find_unused_parameters": False,
    }  # fmt: skip
    if zero:
        arguments["deepspeed"] = "deepspeed.json"
    kind = "DEEPSPEED" if zero else "MULTI_CPU" if world > 1 else "NO"
    return {
        "format": 1, "target": stack, "stack": stack_section(stacks.load(stack)), "config": "trl.SFTConfig",
        "method": method_facts(METHODS["sft"]), "arguments": arguments,
        "model": {"id": None, "path": model, "revision": None, "dtype": "float32", "attn_implementation": "sdpa",
                  "trust_remote_code": False, "liger": False},
        "tokenizer": {"chat_template": None, "eos_token": None, "pad_token": None},
        "data": {"sources": sources, "seed": 42, "shuffle": True, "holdout": None, "workers": None, "system": None,
                 "eval_split": None},
        "lora": None,
        "run": {"nodes": 1, "processes_per_node": world, "world_size": world, "micro": 4, "accumulation": 2,
                "gbs": 8 * world, "seq": 128, "distributed_type": kind, "zero_stage": zero, "device": "cpu",
                "deepspeed_extension": None, "gpu": None, "resume": "auto", "full_state": True,
                "division": {"step": None, "processes": None, "micro": None}},
    }  # fmt: skip


def of_method(facts: dict[str, Any], config: str) -> dict[str, Any]:
    """A copy of the plan for another method, which is given by its configuration class."""
    stack = stacks.load(facts["target"])
    assert stack is not None
    method = next(one for one in METHODS.values() if stack.config(one.name) == config)
    return {**facts, "config": config, "method": method_facts(method)}


def bundle_of(folder: str, facts: dict[str, Any], pins: dict[str, str] | None = None) -> Bundle:
    """The plan as the runtime's `Bundle`, without files on disk."""
    return Bundle(folder, {**facts, "trainer": trainer(facts)}, "sha256:0", pins or {}, enabled(facts).FEATURES)


def write(folder: str, facts: dict[str, Any], pins: str = "") -> str:
    """Write the bundle to disk. Its trainer/ is a copy of the runtime in which the features of the run are enabled."""
    run = facts["run"]
    world, zero = run["world_size"], run["zero_stage"]
    shutil.copytree(os.path.join(ROOT, "runtime"), os.path.join(folder, "trainer"), ignore=lambda *_: ["__pycache__"])
    for name in ("picture.py", "result.py"):
        shutil.copy(os.path.join(ROOT, "runtime", name), folder)
    with open(os.path.join(folder, "trainer", "enabled.py"), "r+", encoding="utf-8") as handle:
        source = conditions.enabled(handle.read(), facts)
        handle.seek(0)
        handle.truncate()
        handle.write(source)
    kind = "DEEPSPEED" if zero else "MULTI_GPU" if world > 1 else "NO"
    text = YAML.format(kind=kind, world=world)
    text += DEEPSPEED_YAML.format(init="true" if zero == 3 else "false") if zero else "mixed_precision: 'no'\n"
    deepspeed = {
        "train_batch_size": run["gbs"], "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0, "bf16": {"enabled": False}, "fp16": {"enabled": False}, "steps_per_print": 10**9,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": zero, "stage3_gather_16bit_weights_on_model_save": zero == 3},
    }  # fmt: skip
    facts = {**facts, "trainer": trainer(facts)}
    texts = {"trainer_args.json": json.dumps(facts), "accelerate.yaml": text, "requirements.txt": pins}
    if zero:
        texts["deepspeed.json"] = json.dumps(deepspeed)
    for name, content in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as handle:
            handle.write(content)
    return folder


def small_bundle(folder: object, pins: str = "") -> Bundle:
    """A bundle that trains the model "tiny" on d.jsonl, as the runtime reads it from a folder."""
    return read(write(str(folder), plan("tiny", [source("d.jsonl")]), pins))


def environment() -> dict[str, str]:
    """The environment variables of a launch: without a network, with one thread per process, and without variables of
    an outer launcher.
    """
    left_out = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def command(folder: str, python: str = sys.executable) -> list[str]:
    """The command that launch.sh runs for this bundle."""
    return [
        python, os.path.join(folder, "trainer", "launcher.py"), "accelerate.commands.launch",
        "--config_file", os.path.join(folder, "accelerate.yaml"),
        "--main_process_port", str(free_port()), os.path.join(folder, "trainer", "main.py"),
    ]  # fmt: skip


def launch(folder: str, cwd: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Launch the bundle from the folder ``cwd``."""
    return subprocess.run(
        command(folder, python), cwd=cwd, env=environment(), capture_output=True, text=True, timeout=HUNG, check=False
    )


LORA: dict[str, Any] = {
    "kind": "lora", "rslora": False, "dora": False, "parameters": None, "modules_to_save": None, "lr_ratio": None,
    "embedding_lr": None, "rank": 8, "alpha": 16, "dropout": 0.0, "targets": "all-linear", "adapter_dtype": "float32",
    "bits": None, "compute_dtype": "bfloat16", "storage_dtype": "bfloat16", "double_quant": True, "quant_type": "nf4",
}  # fmt: skip
"""The section `lora` of trainer_args.json, for adapters on a base that is not quantized."""
