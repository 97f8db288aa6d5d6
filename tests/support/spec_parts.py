"""Lines of specs that tests of several folders write."""

from __future__ import annotations

from case_support import spec, trained

BEST = "load_best_model_at_end = true"
HELD = "data(holdout=5%)"
EPOCHS = "eval(every=epoch)"
FEW = '{"prompt": "2 + 2?", "solution": "$4$"}\n'


def extra(*lines: str, block: str = "trl") -> str:
    """An `extra` block."""
    return "\n".join([f"extra {block} {{", *(f"  {line}" for line in lines), "}"])


def zero(*lines: str) -> str:
    """`extra deepspeed` with keys of its `zero_optimization`."""
    return extra(*(f"zero_optimization.{line}" for line in lines), block="deepspeed")


def grpo(settings: str = "", *more: str, method: str = "grpo", on: str = "qwen2.5-3b on deepmath-103k",
         batch: str = "gbs=128 micro=16", **others: str) -> str:  # fmt: skip
    """A spec of grpo or rloo with a reward for accuracy."""
    inner = ", ".join(one for one in ("rewards=[accuracy]", settings) if one)
    return spec(f"method {method}({inner})", *more, train=trained(on), batch=batch, **others)
