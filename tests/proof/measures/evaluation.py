"""What an evaluation answers."""

from __future__ import annotations

from typing import Any


def metrics(scene: Any) -> dict[str, Any]:
    """The names of the metrics that checkpoints and schedules can be chosen by, without their prefix."""
    found = scene.trainer.evaluate()
    names = [name.removeprefix("eval_") for name in found if name.startswith("eval_")]
    return {
        "names": sorted(set(names) - {"runtime", "samples_per_second", "steps_per_second", "model_preparation_time"})
    }


def interval(scene: Any) -> dict[str, Any]:
    """Steps between two evaluations, as the arguments have them once they are built."""
    return {"steps": scene.args.eval_steps}
