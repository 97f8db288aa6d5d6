"""The host memory of a machine: closed forms, and the memory of two processes that load a model on the CPU."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from interpreters import installed, interpreter
from ports import free_ports
from test_differences import CHATS, PAIRS, PARAMS, planned

from xpc.compiler.stacks import load

SHARE = PARAMS / 8
LORA, QLORA = "ddp\nlora(rank=16)\n", "ddp\nqlora(rank=16)\n"
PROGRAM = str(Path(__file__).parents[1] / "support" / "programs" / "load_model.py")


@pytest.mark.parametrize(("more", "data", "expected"), [
    (LORA, CHATS, {"load": 8 * 4 * PARAMS}),
    (LORA + "model(dtype=bf16)", CHATS, {}),  # the weights are pages of the checkpoint's file
    (QLORA, CHATS, {}),
    ("zero2", CHATS, {"load": 8 * 4 * PARAMS}),
    ("zero2\nmethod dpo", PAIRS, {"load": 2 * 8 * 4 * PARAMS}),
    ("zero3", CHATS, {"save": 2 * PARAMS}),
    ("fsdp(state_dict=sharded)", CHATS, {"load": 8 * 4 * PARAMS}),
    ("fsdp(state_dict=full)\ntarget trl-0.24", CHATS, {"load": 4 * PARAMS, "save": 8 * PARAMS}),
    # accelerate 1.15 converts trained weights to float32 before FSDP2 shards them
    ("fsdp(state_dict=sharded)\nmodel(dtype=bf16)", CHATS, {"load": 8 * 4 * PARAMS}),
    ("fsdp1(state_dict=sharded)\nmodel(dtype=bf16)", CHATS, {}),
    # a pinned tensor takes a power of two: 3.55 GiB become 4, and 1.77 GiB become 2
    ("zero2(offload=optimizer)\nmodel(dtype=bf16)", CHATS, {"train": 8 * (8 * SHARE + (4 + 4 + 2) * 2**30)}),
    ("zero3(offload=optimizer)", CHATS, {
        "train": 8 * ((8 + 4) * SHARE + (4 + 2) * 2**30), "save": 8 * ((8 + 4) * SHARE + (4 + 2) * 2**30) + 2 * PARAMS,
    }),
    ("zero3(offload=cpu)", CHATS, {
        "train": 8 * ((8 + 4) * SHARE + (4 + 2 + 2) * 2**30),
        "save": 8 * ((8 + 4) * SHARE + (4 + 2 + 2) * 2**30) + 2 * PARAMS,
    }),
])  # fmt: skip
def test_each_phase_needs_the_bytes_of_its_closed_form(more: str, data: str, expected: dict[str, float]) -> None:
    assert planned(more, data).host == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("stack", installed())
def test_processes_that_load_a_model_take_the_planned_memory(tmp_path: Path, stack: str) -> None:
    """Two processes load a checkpoint in bfloat16, each with its own memory or with the pages of the file."""
    subprocess.run([interpreter(stack), PROGRAM, str(tmp_path)], check=True, capture_output=True)
    once = load(stack).facts.fsdp_loads_once
    for way, dtype, copies in (("ddp", "float32", 2), ("ddp", "bfloat16", 0), ("fsdp", "float32", 1 if once else 2)):
        launcher = [interpreter(stack), "-m", "torch.distributed.run", "--nproc_per_node=2"]
        command = [*launcher, f"--master_port={free_ports(1)[0]}", PROGRAM, str(tmp_path), way, dtype]
        done = subprocess.run(command, capture_output=True, text=True)
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert len(found) == 2, done.stderr
        size = 4 * found[0]["params"]
        assert sum(one["taken"] for one in found) == pytest.approx(copies * size, abs=0.2 * size), (way, dtype)
