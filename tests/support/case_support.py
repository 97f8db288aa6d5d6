"""The class of a rule's test case (a rejected and an accepted spec), and functions that write such specs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from attrs import field, frozen

from xpc.compiler.language.methods import METHODS

UNCUT = [name for name, one in METHODS.items() if "batch.seq" not in one.reads]
LENGTH = re.compile(rf"\b({'|'.join(('seq', *UNCUT))})\b")
"""Matches lines that state the length of a sequence, or a method without such a length."""


@frozen
class Case:
    """A test case of a rule: two specs. For `rejected`, the check reports `code` and no other error or warning. For
    `accepted`, it reports no error, and not `code`. `files` are the local files that the specs name.
    """

    code: str
    rejected: str
    accepted: str
    files: Mapping[str, str | bytes] = field(factory=dict)
    variant: str = ""

    @property
    def title(self) -> str:
        return f"{self.code}-{self.variant}" if self.variant else self.code


def spec(
    *more: str,
    train: str = "qwen2.5-3b on infinity-instruct for 3 epochs",
    hardware: str = "8 x h100-80gb",
    strategy: str = "zero2",
    precision: str = "bf16",
    batch: str = "gbs=128 micro=16",
    save: str = 'save "out/run"',
) -> str:
    """A spec with the lines ``more``. It states every value that the compiler would otherwise assume and report."""
    lines = [
        "xpc 1",
        "",
        f"train {train}",
        "",
        f"hardware {hardware}",
        f"strategy {strategy}",
        f"precision {precision}",
        f"batch {_with_length(batch, more)}",
        save,
        *more,
    ]
    return "\n".join(lines) + "\n"


def _with_length(batch: str, more: tuple[str, ...]) -> str:
    """Add `seq=1024` to the batch line, unless the line already has `seq`, the method has no `seq`, or rows are not
    truncated.
    """
    uncut = "padding_free" in batch and not re.search(r"\bpacking\b(?!\.)", batch)
    if uncut or any(map(LENGTH.search, (batch, *more))):
        return batch
    head, mark, comment = batch.partition("#")
    return f"{head.rstrip()} seq=1024" + (f"  {mark}{comment}" if mark else "")


def on_cpu(*more: str, strategy: str = "zero2", precision: str = "fp32", batch: str = "gbs=8 micro=4") -> str:
    return spec(*more, hardware="2 x cpu", strategy=strategy, precision=precision, batch=batch)


def data(*lines: str, name: str = "") -> str:
    return "\n".join([f"data {name} {{".replace("  ", " "), *(f"  {line}" for line in lines), "}"])


def trained(what: str) -> str:
    return f"{what} for 3 epochs"


ROW = json.dumps({"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}) + "\n"
PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
MARKED = PLAIN.replace("{{ message", "{% generation %}{{ message").replace(
    "}}{% endfor", "}}{% endgeneration %}{% endfor"
)
