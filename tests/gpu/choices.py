"""Compare the speed of the micro-batch and recomputation that the compiler chooses with the speeds of a small grid.

The specs differ only in micro-batch and recomputation. Apart from rounding, neither changes the trained weights; they
change only speed and memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from attrs import frozen
from machine import Failed, Machine, output
from runs import Case, bundle, command, facts

WRITTEN = ("gradient_checkpointing", "activation_checkpointing")


@frozen
class Choice:
    """A micro-batch and a recomputation to measure. For the spec that leaves both to the compiler, `micro` is 0 and
    `checkpointing` is None.
    """

    micro: int
    checkpointing: bool | None

    @property
    def name(self) -> str:
        """The name of the measurement."""
        if self.checkpointing is None:
            return "the compiler's own"
        return f"micro {self.micro}, {'recomputed' if self.checkpointing else 'kept'}"


def choices(location: Machine) -> Iterator[Choice]:
    """The settings to measure: first the compiler's choice, then a grid of micro-batches (divisors of the global
    batch), each with and without recomputation.
    """
    yield Choice(0, None)
    for micro in (2, 8) if location.rehearsal else (1, 2, 4, 8, 16):
        for checkpointing in (False, True):
            yield Choice(micro, checkpointing)


def read(choice: Choice, location: Machine) -> dict[str, Any]:
    """Compile and run the spec. A run that is out of GPU memory counts as a result, not as an error."""
    lines = "" if choice.checkpointing is None else f"memory(checkpointing={str(choice.checkpointing).lower()})"
    case = Case(f"choice {choice.name}", f"strategy ddp\n{lines}", micro=choice.micro)
    made = bundle(case, location, steps=6 if location.rehearsal else 30)
    with open(os.path.join(made, "trainer_args.json"), encoding="utf-8") as handle:
        arguments = json.load(handle)["arguments"]
    started = command(made)
    recomputes = any(arguments.get(name) for name in WRITTEN)
    chosen = {"micro": arguments["per_device_train_batch_size"], "checkpointing": recomputes}
    try:
        output(started, os.path.dirname(made), XPC_PREFLIGHT="passed")
    except Failed as error:
        if choice.checkpointing is None or "out of memory" not in str(error):
            raise
        return {**chosen, "out_of_memory": True}
    return {**facts(made, started), **chosen}


def compared(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence: how fast the compiler's own choice is, as a share of the speed of the fastest spec."""
    speeds = {one["piece"]: one.get("tokens_per_second") or 0.0 for one in found.values() if one["kind"] == "choice"}
    own = next((speeds[name] for name in speeds if name.endswith(Choice(0, None).name)), 0.0)
    if own and len(speeds) > 1:
        best = max(speeds, key=lambda name: speeds[name])
        share = f"{own / speeds[best]:.0%} of the best"
        yield f"the compiler's own choice runs at {share} ({best}: {speeds[best]:,.0f} tokens/s)"
