"""Compare tokens per second of a bundle and of a plain TRL script with the same arguments. The two run alternately."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from attrs import frozen
from machine import SUPPORT, Machine, output
from runs import PLAIN, Case, bundle, command, facts

SCRIPT = os.path.join(SUPPORT, "plain_trl.py")


@frozen
class Pair:
    """A bundle and a TRL script that has the same arguments as the bundle."""

    case: Case
    times: int = 2

    @property
    def name(self) -> str:
        """The name of the measurement."""
        return self.case.name


def comparisons(location: Machine) -> Iterator[Pair]:
    """The bundles and scripts whose speeds are compared."""
    yield Pair(Case("plain", f"strategy ddp\n{PLAIN}"))
    yield Pair(Case("recomputed", "strategy ddp\nmemory(checkpointing)"))
    if not location.rehearsal:
        yield Pair(Case("with liger", "strategy ddp\nmemory(liger)", needs="liger_kernel"))


def read(pair: Pair, location: Machine) -> dict[str, Any]:
    """Run bundle and script alternately: the tokens per second of each, and whether their losses are equal."""
    steps = 12 if location.rehearsal else 60
    found: dict[str, list[dict[str, Any]]] = {"bundle": [], "script": []}
    for _ in range(pair.times):
        for way in found:
            made = bundle(pair.case, location, steps)
            folder = os.path.dirname(made)
            os.makedirs(os.path.join(folder, "out"), exist_ok=True)
            started = command(made) if way == "bundle" else [sys.executable, SCRIPT, f"{made}/trainer_args.json"]
            if way == "bundle":
                os.rmdir(os.path.join(folder, "out"))
            output(started, folder, XPC_PREFLIGHT="passed")
            found[way].append(facts(made, started))
    speeds = {way: [one.get("tokens_per_second") for one in all_] for way, all_ in found.items()}
    losses = {json.dumps(one["losses"]) for all_ in found.values() for one in all_}
    return {"tokens_per_second": speeds, "equal": len(losses) == 1, "losses": found["bundle"][0]["losses"]}
