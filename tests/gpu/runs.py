"""Runs of compiled bundles: each strategy, adapter and method for a few steps, and one run that is killed and
resumed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from attrs import frozen
from machine import Failed, Machine, output

HEAD = """\
xpc 1
train "model" on "{rows}.jsonl" for {steps} steps
hardware {hardware}
precision {precision}
batch gbs=16{batch}
optimizer adamw(lr=1e-4)
track none(every=1)
save "out" every={every}
{more}
"""


@frozen
class Case:
    """One run. All runs with the same `group` should have the same losses, which the campaign compares. `needs` is a
    package without which the run is left out.

    `cards` is the number of GPUs. FSDP needs two GPUs, because the compiler refuses FSDP on one GPU. `rows` names the
    file of the data. `micro` is the number of sequences per GPU. If `micro` is 0, the compiler chooses; if `micro` is
    None, the number of the campaign is used.
    """

    name: str
    lines: str
    group: str = ""
    needs: str = ""
    cards: int = 1
    rows: str = "rows"
    micro: int | None = None

    def spec(self, hardware: str, precision: str, micro: int, seq: int, steps: int, every: str) -> str:
        """The text of the run's spec. `micro` is the campaign's micro-batch: if the case states no micro-batch, `micro`
        is divided by the case's number of GPUs.
        """
        at_once = micro // self.cards if self.micro is None else self.micro
        batch = f" micro={at_once}" if at_once else ""
        batch += f" seq={seq}" if self.rows != "prompts" else ""
        text = HEAD.format(
            rows=self.rows, hardware=hardware, precision=precision, batch=batch, steps=steps, every=every,
            more=self.lines,
        )  # fmt: skip
        return text.replace("adamw(", f"{self.optimizer}(")

    @property
    def optimizer(self) -> str:
        """The optimizer of the run."""
        return "adamw8bit" if self.name == "adamw in 8 bits" else "adamw"


PLAIN = "memory(checkpointing=false)"
GRPO = f'method grpo(generations=4, max_completion=32, rewards="rewards.py:short")\n{PLAIN}'


def cases(location: Machine) -> Iterator[Case]:
    """Every case that the machine can run; a rehearsal excludes cases that a CPU cannot run."""
    for one in CASES:
        gpu_only = any(word in one.lines for word in GPU_ONLY)
        there = not one.needs or importlib.util.find_spec(one.needs) is not None
        if there and not (location.rehearsal and gpu_only) and one.cards <= max(1, location.facts["cards"]):
            yield one


GPU_ONLY = ("fsdp", "liger", "offload", "flash2", "qlora", "adamw8bit", "compile")
CASES = (
    Case("ddp", f"strategy ddp\n{PLAIN}", "full"),
    Case("zero1", f"strategy zero1\n{PLAIN}", "full", "deepspeed"),
    Case("zero2", f"strategy zero2\n{PLAIN}", "full", "deepspeed"),
    Case("zero3", f"strategy zero3\n{PLAIN}", "full", "deepspeed"),
    Case("fsdp", f"strategy fsdp\n{PLAIN}", "full", cards=2),
    Case("checkpointing", "strategy ddp\nmemory(checkpointing)", "full"),
    Case("offload", f"strategy zero3(offload=cpu)\n{PLAIN}", "full", "deepspeed"),
    Case("activations in host memory", "strategy ddp\nmemory(checkpointing=false, offload_activations)", "full"),
    Case("liger", "strategy ddp\nmemory(liger, checkpointing=false)", "full", "liger_kernel"),
    Case("selective checkpointing", "strategy ddp\nmodel(attn=sdpa)\nmemory {\n  checkpointing(selective)\n}", "full"),
    Case("compiled by layer", f"strategy ddp\n{PLAIN}\nmodel(compile)", "full"),
    Case("compiled whole", f"strategy ddp\n{PLAIN}\nextra trl {{ torch_compile = true }}", "full"),
    Case("flash attention", f"strategy ddp\n{PLAIN}\nmodel(attn=flash2)", "full", "flash_attn"),
    Case("packed", f"strategy ddp\n{PLAIN}\nmodel(attn=flash2)\nbatch(packing)", "", "flash_attn"),
    Case("adamw in 8 bits", f"strategy ddp\n{PLAIN}", "", "bitsandbytes"),
    Case("lora", f"strategy ddp\n{PLAIN}\nlora(rank=8)", "lora", "peft"),
    Case("lora under zero2", f"strategy zero2\n{PLAIN}\nlora(rank=8)", "lora", "peft"),
    Case("qlora", f"strategy ddp\n{PLAIN}\nqlora(rank=8)", "", "bitsandbytes"),
    Case("dpo", f"strategy ddp\n{PLAIN}\nmethod dpo", "dpo", rows="pairs"),
    Case("dpo under zero3", f"strategy zero3\n{PLAIN}\nmethod dpo", "dpo", "deepspeed", rows="pairs"),
    Case("reward", f"strategy ddp\n{PLAIN}\nmethod reward", rows="pairs"),
    Case("kto", f"strategy ddp\n{PLAIN}\nmethod kto", rows="pairs"),
    Case("orpo", f"strategy ddp\n{PLAIN}\nmethod orpo", rows="pairs"),
    Case("grpo", f"strategy ddp\n{GRPO}", rows="prompts"),
    Case("rloo", f"strategy ddp\n{GRPO.replace('grpo', 'rloo')}", rows="prompts"),
)


def bundle(case: Case, location: Machine, steps: int = 6, every: str = "never") -> str:
    """Compile the bundle of a case into a new folder of its own; returns the bundle's path."""
    folder = os.path.join(location.folder, "runs", re.sub(r"\W+", "-", case.name))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name in ("model", "rows.jsonl", "pairs.jsonl", "prompts.jsonl", "rewards.py"):
        os.symlink(os.path.join(location.folder, name), os.path.join(folder, name))
    micro, seq = (2, 64) if location.rehearsal else (8, 512)
    text = case.spec(location.hardware(case.cards), location.precision, micro, seq, steps, every)
    with open(os.path.join(folder, "run.xp"), "w", encoding="utf-8") as handle:
        handle.write(text)
    output([sys.executable, "-m", "xpc.compiler.cli", "compile", "run.xp"], folder)
    return os.path.join(folder, "run.bundle")


def command(made: str) -> list[str]:
    """The training command that launch.sh would run, as `--dry-run` prints it. The campaign runs it without launch.sh,
    because launch.sh refuses library versions other than the pinned ones.
    """
    return shlex.split(output([os.path.join(made, "launch.sh"), "--dry-run"], PYTHON=sys.executable))


def events(made: str) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl that have a loss."""
    with open(os.path.join(os.path.dirname(made), "out", "metrics.jsonl"), encoding="utf-8") as handle:
        return [one for one in map(json.loads, handle) if "loss" in one]


def facts(made: str, started: list[str]) -> dict[str, Any]:
    """The results of a run: its losses, its tokens per second from the first to the last step, and its command."""
    found = events(made)
    out: dict[str, Any] = {
        "losses": [one["loss"] for one in found],
        "command": [os.path.basename(one) for one in started],
    }
    if len(found) > 1 and "tokens" in found[0]:
        spent = found[-1]["seconds"] - found[0]["seconds"]
        out["tokens_per_second"] = round((found[-1]["tokens"] - found[0]["tokens"]) / spent, 1) if spent else None
    return out


def read(case: Case, location: Machine) -> dict[str, Any]:
    """Compile and run one case."""
    made = bundle(case, location)
    started = command(made)
    output(started, os.path.dirname(made), XPC_PREFLIGHT="passed")
    group = {"group": case.group} if case.group else {}
    return {**facts(made, started), **group}


def killed(location: Machine) -> dict[str, Any]:
    """Compare two runs of the same bundle: one run is killed with -9 after its first checkpoint and started again; the
    other run is undisturbed.
    """
    case = Case("killed", f"strategy ddp\n{PLAIN}")
    made = bundle(case, location, steps=20, every="4")
    started, folder = command(made), os.path.dirname(made)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "XPC_PREFLIGHT": "passed"}
    process = subprocess.Popen(started, cwd=folder, env=environment, start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    first, limit = os.path.join(folder, "out", "checkpoint-4", "xpc_files.json"), time.monotonic() + 300
    while not os.path.exists(first) and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.05)
    if process.poll() is not None:
        raise Failed("the run was over before it could be killed")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    output(started, folder, XPC_PREFLIGHT="passed")
    again = [one["loss"] for one in events(made)]
    alone = bundle(Case("left alone", case.lines), location, steps=20)
    output(command(alone), os.path.dirname(alone), XPC_PREFLIGHT="passed")
    whole = [one["loss"] for one in events(alone)]
    return {"losses": again, "undisturbed": whole, "equal": again == whole, "ok": again == whole}


def preflight(location: Machine) -> dict[str, Any]:
    """Run a bundle's preflight; return its output. The output also names installed versions that differ from the pinned
    versions.
    """
    made = bundle(CASES[0], location)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHON": sys.executable}
    done = subprocess.run([os.path.join(made, "launch.sh"), "--preflight"], cwd=os.path.dirname(made), env=environment,
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    printed = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    doctor = subprocess.run([sys.executable, "-m", "xpc.compiler.cli", "doctor", "--python", sys.executable],
                            capture_output=True, text=True, timeout=300)  # fmt: skip
    return {"status": done.returncode, "said": printed, "doctor": doctor.stdout.splitlines()}
