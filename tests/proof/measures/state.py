"""Functions with which proofs measure the state that accelerate has in a launched process."""

from __future__ import annotations

from typing import Any


def distributed(run: Any) -> dict[str, Any]:
    """Return a pair: the number of processes and the distributed type in accelerate's state."""
    from accelerate.state import AcceleratorState

    state = run.args.distributed_state
    whole = AcceleratorState()
    return {"processes": state.num_processes, "type": str(whole.distributed_type.value)}


def wrapper(run: Any) -> dict[str, Any]:
    """The name of the class that wraps the model when training begins."""
    return {"wrapper": type(run.trainer.model_wrapped).__name__}
