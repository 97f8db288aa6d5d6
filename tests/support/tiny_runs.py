"""Specs of small runs that train the tiny model on the CPU, and the strategies that these runs can have."""

from __future__ import annotations

import json

from interpreters import OTHERS, sharded

from xpc.compiler.stacks import DEFAULT

SYSTEM = "You know the colour of everything."
LAYOUT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}: "
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|im_end|>{% endif %}{% endfor %}"
)
"""A chat template that differs from the tiny model's own template."""


def lines(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


HEAD = """\
xpc 1
train "tiny" on {data} for {length}
hardware {hardware}
strategy {strategy}
precision fp32
batch {sizes}{batch}
optimizer adamw(lr=1e-3)
memory(checkpointing=false)
track none(every=1)
target {target}
"""


def spec(
    *more: str, data: str = '"messages.jsonl"', length: str = "6 steps", hardware: str = "cpu", strategy: str = "ddp",
    batch: str = "", target: str = DEFAULT, save: str = 'save "out" every=never', sizes: str = "gbs=8 micro=2 seq=64",
) -> str:  # fmt: skip
    """The spec of a small run: 6 steps of 8 sequences, with the loss of each step in the log."""
    head = HEAD.format(
        data=data, length=length, hardware=hardware, strategy=strategy, batch=batch, target=target, sizes=sizes
    )
    return head + "\n".join([save, *more]) + "\n"


STRATEGIES = {
    "one": ("cpu", "ddp", DEFAULT),
    "ddp": ("2 x cpu", "ddp", DEFAULT),
    "zero1": ("2 x cpu", "zero1", DEFAULT),
    "zero2": ("2 x cpu", "zero2", DEFAULT),
    "zero3": ("2 x cpu", "zero3", DEFAULT),
    **{f"{other}-one": ("cpu", "ddp", other) for other in OTHERS},
    **{
        f"{other}-{spread}": ("2 x cpu", spread, other)
        for other in OTHERS
        for spread in ("ddp", sharded(other, "zero2"))
    },
}
"""Maps the name of a run to its hardware, strategy and target. Together the runs have every strategy that works on a
CPU.
"""
COLD = ("ddp", *(f"{other}-{sharded(other, 'zero2')}" for other in OTHERS))
"""Names of runs in `STRATEGIES` whose launch.sh starts new interpreters. All other runs are forks of a warm
interpreter, which has already imported the libraries.
"""
