"""Run the program of a bundle with one simulated fault.

XPC_BAD names a wrong loss ("nan" or "inf"), and where it occurs: the step, the rank, and the micro-batch of the step.
XPC_LOST names a data file. Each process except process 0 renames the file just before it loads its data.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

import datasets
import trl

RANK = int(os.environ.get("RANK", "0"))


def compute_wrong(word: str, step: int, rank: int, batch: int) -> None:
    compute, seen = trl.SFTTrainer.compute_loss, list[int]()

    def wrong(self: Any, *given: Any, **named: Any) -> Any:
        loss = compute(self, *given, **named)
        if not self.model.training or self.state.global_step + 1 != step or rank != RANK:
            return loss
        seen.append(step)
        if len(seen) != batch:
            return loss
        if isinstance(loss, tuple):
            return loss[0] * float(word), *loss[1:]
        return loss * float(word)

    trl.SFTTrainer.compute_loss = wrong


def lose(path: str) -> None:
    load = datasets.load_dataset

    def late(*given: Any, **named: Any) -> Any:
        if RANK and os.path.exists(path):
            os.rename(path, f"{path}.away")
        return load(*given, **named)

    datasets.load_dataset = late


if __name__ == "__main__":
    if "XPC_BAD" in os.environ:
        _word, *_rest = os.environ["XPC_BAD"].split()
        compute_wrong(_word, *map(int, _rest))
    if "XPC_LOST" in os.environ:
        lose(os.environ["XPC_LOST"])
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
