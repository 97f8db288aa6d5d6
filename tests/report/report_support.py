"""Output folders of runs for the tests: an active run, a run that died, and a finished run. A real bundle is next to
the folders.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compile_support import put

from xpc.compiler.cli import main
from xpc.compiler.report.bundle_record import digest_of
from xpc.compiler.review.installed import pins

ROWS = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' * 40
SPEC = """\
xpc 1
train qwen2.5-3b on "rows.jsonl" for 2 epochs
hardware 2 x h100-80gb
precision bf16
strategy zero2
batch gbs=8 micro=2 seq=1024
memory(checkpointing)
optimizer adamw(lr=1e-5)
model(eos="<|im_end|>")
save "out"
"""
STEPS = 10


def compiled(location: Path, name: str = "x", text: str = SPEC) -> Path:
    """Compile a spec and its rows into NAME.bundle. The bundle's run would write into out/NAME."""
    put(location, {f"{name}.xp": text.replace('"out"', f'"out/{name}"'), "rows.jsonl": ROWS})
    assert main(["compile", str(location / f"{name}.xp"), "-o", str(location / f"{name}.bundle")]) == 0
    return location / f"{name}.bundle"


def events(steps: int = STEPS, start: float = 4.0) -> list[dict[str, Any]]:
    """Logged events. The loss falls from `start`; each step has a learning rate, 1,000 tokens and 2 seconds."""
    return [
        {"step": one, "loss": start / one, "lr": 1e-5, "tokens": 1000.0 * one, "seconds": 2.0 * one}
        for one in range(1, steps + 1)
    ]


def measured(bundle: Path, steps: Sequence[int] = (0,), end: int = STEPS) -> list[dict[str, Any]]:
    """The lines of measured.jsonl for a run with several starts; `steps` has the first step of each start, such as (0,
    40). A start has two lines: a line about the start, and a line with its measurements up to the step `end`.
    """
    versions = pins(str(bundle / "requirements.txt"))
    lines: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        lines.append({
            "step": step, "started": f"2026-11-26T2{number}:00:00Z", "bundle": str(bundle), "digest": "sha256:0",
            "world": 2, "device": "NVIDIA H100 80GB HBM3", "versions": versions,
            "data": {"rows": 40, "tokens": 400, "cut_rows": 3, "cut_tokens": 30, "left_out": 0, "unlearned": 0,
                     "empty": 0},
        })  # fmt: skip
        lines.append({
            "step": end, "seconds": {"load": 10.0, "train": 16.0, "save": 2.0}, "waits": 4.0, "saves": 2,
            "saved_bytes": 2**30, "real_tokens": 600, "padded_tokens": 800,
            "memory": {"load": {"allocated": 2**30, "reserved": 2**31},
                       "step": {"allocated": 3 * 2**30, "reserved": 2**32}},
            "peaks": {"allocated": [2**31, 3 * 2**30], "reserved": [2**32, 2**32]},
        })  # fmt: skip
    return lines


def run(
    location: Path,
    name: str = "x",
    steps: int = STEPS,
    starts: Sequence[int] = (0,),
    finished: bool = True,
    **summary: Any,
) -> Path:
    """Make the output folder of a run of the bundle NAME.bundle, and return its path."""
    bundle, out = location / f"{name}.bundle", location / "out" / name
    plan = json.loads((bundle / "trainer_args.json").read_text())
    digest = digest_of(str(bundle))
    settings = {f"arguments.{key}": value for key, value in plan["arguments"].items()}
    put(out, {
        "metrics.jsonl": lines(events(steps)), "measured.jsonl": lines(measured(bundle, starts, steps)),
        "xpc_run.json": lines([{"bundle": digest, "target": plan["target"], "settings": settings}]),
    })  # fmt: skip
    (out / f"checkpoint-{steps // 2}").mkdir(exist_ok=True)
    if finished:
        found = {
            "bundle": digest, "steps": steps, "sequences": 8 * steps, "tokens": 1000.0 * steps, "seconds": 2.0 * steps,
            "world": 2, "versions": pins(str(bundle / "requirements.txt")), "arguments": plan["arguments"],
            "utilisation": {"flops_per_second": 4e14, "share": 0.4},
        }  # fmt: skip
        put(out, {"summary.json": json.dumps({**found, **summary})})
    return out


def lines(objects: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)
