"""The machine of a measurement campaign: its GPU, its package versions, and a folder with a model and rows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from attrs import frozen

from xpc.compiler.registry import find_gpu, gpu_names

SUPPORT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support")
PACKAGES = (
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "deepspeed",
    "peft",
    "liger-kernel",
    "bitsandbytes",
    "flash-attn",
)
SHAPE = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
}
LOOK = """
import json, torch
there = torch.cuda.is_available()
one = torch.cuda.get_device_properties(0) if there else None
print(json.dumps({
    "card": one.name if there else "cpu", "memory": one.total_memory if there else 0,
    "capability": list(torch.cuda.get_device_capability(0)) if there else [], "cuda": torch.version.cuda or "",
    "cards": torch.cuda.device_count() if there else 0,
}))
"""
MODEL = """
import json, sys
from tiny import build, write_messages
folder, rows, sizes = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
build(folder + "/model", context=4096, **sizes)
write_messages(folder + "/rows.jsonl", rows)
"""
REWARDS = """\
def short(completions, **others):
    return [-float(len(str(one))) for one in completions]
"""


class Failed(Exception):
    """Raised if a measurement's command fails or takes too long, with the last lines that it printed."""


@frozen
class Machine:
    """The machine of a campaign. `gpu` is the registry's name of the GPU, "cpu" in a rehearsal."""

    folder: str
    facts: dict[str, Any]
    gpu: str
    rehearsal: bool

    def hardware(self, cards: int = 1) -> str:
        """The text after `hardware` in the campaign's specs, such as `2 x h100-80gb`, or `cpu` in a rehearsal."""
        return "cpu" if self.rehearsal else f"{cards} x {self.gpu}"

    @property
    def precision(self) -> str:
        """The precision of the runs: bf16 if the GPU supports it."""
        return "bf16" if not self.rehearsal and tuple(self.facts["capability"]) >= (8, 0) else "fp32"


def find_machine(folder: str, rehearsal: bool) -> Machine:
    """Find the GPU and the package versions, and build the model and the rows. Ends the program if there is no GPU."""
    facts = json.loads(output([sys.executable, "-c", LOOK]))
    if rehearsal:
        facts = {**facts, "card": "cpu", "memory": 0, "capability": [], "cards": 0}
    elif not facts["cards"]:
        sys.exit("torch sees no GPU; --rehearse tries the measurements on a CPU")
    facts["versions"] = {name: found for name in PACKAGES if (found := _version(name))}
    location = Machine(folder, facts, "cpu" if rehearsal else card_name(facts["card"], facts["memory"]), rehearsal)
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(os.path.join(folder, "rewards.py")):
        output([sys.executable, "-c", MODEL, folder, "512", json.dumps({} if rehearsal else SHAPE)])
        for name, answers in (("pairs", ("chosen", "rejected")), ("prompts", ())):
            with open(os.path.join(folder, f"{name}.jsonl"), "w", encoding="utf-8") as out:
                for row in range(256):
                    found = {"prompt": f"Count to {row}.", **{one: f"{one} answer {row}" for one in answers}}
                    out.write(json.dumps(found) + "\n")
        with open(os.path.join(folder, "rewards.py"), "w", encoding="utf-8") as out:
            out.write(REWARDS)
    return location


def card_name(card: str, memory: int) -> str:
    """The registry's name of a GPU. The driver reports a name (`NVIDIA H100 80GB HBM3`) and the memory in bytes; the
    registry's entry must fit both.
    """
    words = set(re.split(r"[^a-z0-9]+", card.lower()))
    found = []
    for name in gpu_names():
        gpu = find_gpu(name)
        assert gpu is not None
        own = name.split("-")
        off = abs(gpu.memory_gib - memory / 2**30)
        if own[0] in words and off < 0.1 * gpu.memory_gib:
            found.append((-sum(one in words for one in own), off, name))
    if not found:
        raise SystemExit(
            f"the registry has no GPU like {card} with {memory / 2**30:.1f} GiB: add it to compiler/registry"
        )
    return min(found)[2]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def output(command: list[str], folder: str | None = None, seconds: float = 460, **environment: str) -> str:
    """Run a command; return its output. If the command fails or takes more than `seconds`, raises Failed with the last
    lines of the output.
    """
    added = {"PYTHONPATH": SUPPORT, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    whole = {**os.environ, **added, **environment}
    try:
        done = subprocess.run(command, cwd=folder, env=whole, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{command[-1]} took more than {seconds:.0f} s") from error
    if done.returncode:
        raise Failed(f"status {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    return done.stdout
