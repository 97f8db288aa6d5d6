"""Small runs on the CPU: their specs, and the data beside the tiny model."""

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
"""A chat template other than the tokenizer's own."""


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
    """A small run: 8 sequences a step, every loss logged."""
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
"""The strategies that run on a CPU: name to hardware, strategy and target."""
COLD = ("ddp", *(f"{other}-{sharded(other, 'zero2')}" for other in OTHERS))
"""Those whose launch.sh starts interpreters that have imported nothing; for the others they are warm."""
