"""Lines and specs that tests in several folders use."""

from __future__ import annotations

from case_support import spec, trained

BEST = "load_best_model_at_end = true"
HELD = "data(holdout=5%)"
EPOCHS = "eval(every=epoch)"
FEW = '{"prompt": "2 + 2?", "solution": "$4$"}\n'


def extra(*lines: str, block: str = "trl") -> str:
    """An `extra` block with these lines: ``extra("seed = 1")`` is the text of `extra trl { seed = 1 }`."""
    return "\n".join([f"extra {block} {{", *(f"  {line}" for line in lines), "}"])


def zero(*lines: str) -> str:
    """An `extra deepspeed` block with these keys in its block `zero_optimization`: ``zero("overlap_comm = true")``."""
    return extra(*(f"zero_optimization.{line}" for line in lines), block="deepspeed")


def grpo(settings: str = "", *more: str, on: str = "qwen2.5-3b on deepmath-103k",
         batch: str = "gbs=128 micro=16", **others: str) -> str:  # fmt: skip
    """A spec for GRPO with the reward `accuracy`. ``settings`` are added to the settings of the method."""
    inner = ", ".join(one for one in ("rewards=[accuracy]", settings) if one)
    return spec(f"method grpo({inner})", *more, train=trained(on), batch=batch, **others)
