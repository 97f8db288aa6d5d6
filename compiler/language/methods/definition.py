"""What a training method states about itself. Each file beside this one holds the record of one method."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xpc.compiler.language.setting import Path, Setting
from xpc.compiler.stacks import Json
from xpc.grammar.record import field, record

Get = Callable[["Path"], object]
"""Reads the value of a setting by its path; None where it has none."""


def none(get: Get) -> int:
    """The method keeps nothing beside the model that it trains."""
    return 0


@record
class Method:
    """One training method.

    `shapes` are the shapes of rows that it trains on, the usual one first (compiler/data/shapes.py has their columns).
    `reads` are the paths of settings that it shares with other methods, `settings` the rows of the table that are its
    own. `sequences` is how many sequences of one sample a step computes at once; `counts` is what a batch counts.
    `generates`: the model writes its own completions while it trains. `grouped`: the completions of one prompt are
    compared with each other, so that a batch holds whole groups. `scores`: what is trained gives a score, and no
    tokens. `scores_twice`: what the model wrote is scored before the step, too. `weighs_losses`: several losses, each
    with a weight. `cuts_rows`, where the rows of a dataset are longer
    than a sequence: "counted" (the run counts them), "uncounted", or "dropped". `defaults` are values of settings that
    are the same on every stack, where the classes of the stacks differ; `arguments` are those that no setting decides,
    stated where a class has them. `references` counts the frozen copies of the trained model that a process keeps.
    `aliases` are the names that other tools and papers use for it. `head` says who makes logits of hidden states:
    "fused" (a head that trl 1.16 puts in the model's place), "weight" (the trainer, from the head's weight), or "model"
    (the model's own).
    """

    name: str
    doc: str
    shapes: tuple[str, ...]
    reads: tuple[Path, ...] = ()
    settings: tuple[Setting, ...] = ()
    sequences: int = 1
    counts: str = "sequences"
    generates: bool = False
    grouped: bool = False
    scores: bool = False
    scores_twice: bool = False
    weighs_losses: bool = False
    cuts_rows: str = "counted"
    references: Callable[[Get], int] = none
    defaults: Mapping[str, object] = field(factory=dict)
    arguments: Mapping[str, Json] = field(factory=dict)
    head: str = "fused"
    aliases: str = ""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every setting that some methods read and others do not, and that this one does."""
        return (*self.reads, *(row.path for row in self.settings))


def generates_itself(method: Method, get: Get) -> bool:
    """Whether the trainer generates with the model that it trains, and not with vLLM or from a file."""
    return method.generates and get("method.vllm") is not True and get("method.lmbda") != 0
