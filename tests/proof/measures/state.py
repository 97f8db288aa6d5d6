"""What accelerate makes of a launch."""

from __future__ import annotations

from typing import Any


def distributed(run: Any) -> dict[str, Any]:
    """How many processes there are, and which distributed type accelerate's state says they run as."""
    from accelerate.state import AcceleratorState

    state = run.args.distributed_state
    whole = AcceleratorState()
    return {"processes": state.num_processes, "type": str(whole.distributed_type.value)}


def wrapper(run: Any) -> dict[str, Any]:
    """The class that the model was wrapped in when training began."""
    return {"wrapper": type(run.trainer.model_wrapped).__name__}
