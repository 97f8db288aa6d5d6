"""Read the `extra` blocks of one file. A block's names and values are passed on to a library unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.language import schema
from xpc.compiler.language.items import Collector, Item
from xpc.grammar.nearest import nearest
from xpc.grammar.tree import Call, Clause, Name, Ref, Setting, String, Value

OTHERS = {
    "vllm": "write vLLM's settings in the method: `method grpo(rewards=[accuracy], vllm(gpu_memory=30%))`",
    "peft": "write the adapter's settings in its clause: `lora(rank=16)`",
    "bitsandbytes": "write `qlora`, or `lora(bits=8)`: they quantize the base",
    "wandb": 'write `track wandb(project="NAME")`: other options of wandb are variables, `launch(env=[...])`',
}
"""Maps a library or a program that `extra` does not support to a help text that says what to write instead."""
Part = Setting | Clause | Value


def extra(to: Collector, name: Name, body: list[Part]) -> None:
    """Read `extra trl { k = v }` into `to.out.extra["trl"]`. A name in a nested block becomes a dotted name: `a { b = 1
    }` is `a.b`.
    """
    title = body[0] if body else None
    if isinstance(title, Call):  # `extra trl(k=v)` has the same meaning as `extra trl { k = v }`
        body = [title, *title.args, *body[1:]]
        title = Ref(title.name.span, title.name.text)
    if not (isinstance(title, Ref) and title.name in schema.EXTRA_TARGETS):
        location = title.span if isinstance(title, Ref | String) else name.span
        near = nearest(to.typed(location), schema.EXTRA_TARGETS) or "trl"
        help = OTHERS.get(title.name if isinstance(title, Ref) else "") or (
            f"write `extra {near} {{`, and the arguments for {near} on the lines below"
        )
        to.problem("XP106", "`extra` goes to trl, accelerate or deepspeed", location, help=help)
        return
    table = to.out.extra.setdefault(title.name, {})
    for node in body[1:]:
        _item(to, table, "", node)


def _item(to: Collector, table: dict[str, Item], prefix: str, node: Part) -> None:
    block: Sequence[Part] | None = None
    if isinstance(node, Clause) and isinstance(node.head, Call) and not node.operands and node.block is None:
        node = node.head  # the name of the nested block
    if isinstance(node, Setting):
        key, value, span = node.name.text, node.value, node.span
    elif isinstance(node, Call):
        key, value, span, block = node.name.text, None, node.span, node.args
    elif isinstance(node, Clause) and isinstance(node.head, Ref) and not node.operands:
        key, value, span, block = node.head.name, None, node.span, node.block.statements if node.block else None
    elif isinstance(node, Ref) and node.is_name:
        key, value, span = node.name, None, node.span
    else:
        to.problem("XP104", "`extra` contains only lines `name = value`", node.span, help="write `name = value`")
        return
    if block is not None:
        for inner in block:
            _item(to, table, f"{prefix}{key}.", inner)
        return
    to.keep(table, prefix + key, value, span)
