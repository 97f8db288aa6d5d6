"""What makes two bundles the same run: every value that decides numbers. Standard library only.

`keep`, `save every`, `track`, time-outs and the output folder decide none: they may change between two starts. Neither
does which GPU it is, and how a step is divided where batch_division says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .batch_division import DIVIDED, refusal

if TYPE_CHECKING:
    from .bundle import Bundle

FREE = {
    *(f"arguments.save_{name}" for name in ("strategy", "steps", "total_limit", "only_model")),
    *(f"arguments.logging_{name}" for name in ("strategy", "steps", "first_step")),
    *(f"arguments.{name}" for name in ("ddp_timeout", "output_dir", "project", "report_to", "run_name")),
    *(f"run.{name}" for name in ("disk", "full_state", "project", "resume")),
    "format",
    "trainer",
    "lora.merge",
    "run.gpu",
}
"""Of trainer_args.json, what decides no number."""
MOST = 8
"""Differences that a sentence names."""


def settings(bundle: Bundle) -> dict[str, Any]:
    """Every value that decides numbers, by its dotted name in the files of the bundle."""
    found = {name: value for name, value in _flat("", bundle.plan) if not {name, name.rpartition(".")[0]} & FREE}
    for file in ("accelerate.yaml", "deepspeed.json"):
        path = os.path.join(bundle.folder, file)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as handle:
                text = handle.read()
            words = json.loads(text) if file.endswith("json") else _lines(text)
            found.update(_flat(file + ": ", words))
    return found


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        yield from _flat(f"{name}{'.' if name and not name.endswith(' ') else ''}{key}", inner)


def _lines(text: str) -> dict[str, str]:
    pairs = (line.strip().partition(": ") for line in text.splitlines() if not line.startswith("#"))
    return {key: value for key, _, value in pairs}


def differences(was: dict[str, Any], now: dict[str, Any]) -> str:
    """What differs, setting by setting, as the end of a sentence: "" where the run can go on."""
    names = [name for name in sorted({*was, *now}) if was.get(name) != now.get(name)]
    names = [name for name in names if not {name, name.rpartition(".")[0]} & FREE]  # an older bundle wrote more
    divided = DIVIDED.intersection(names)
    why = refusal(was, now) if divided else None
    if divided and not why:
        names = [name for name in names if name not in divided]
        if "run.gbs" in names:
            why = f"write `gbs = {was.get('run.gbs')}` in batch, and another number of processes can go on"
    told = [f"{name} was {json.dumps(was.get(name))} and is {json.dumps(now.get(name))}" for name in names[:MOST]]
    more = f", and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(told) + more + (f" ({why})" if names and why else "")
