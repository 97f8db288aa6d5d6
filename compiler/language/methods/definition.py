"""The record of a training method. Each other file of this folder defines one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xpc.compiler.language.setting import Path, Setting
from xpc.compiler.stacks import Json
from xpc.grammar.record import field, record

Get = Callable[["Path"], object]
"""A function that returns the value of a setting by its path, or None."""


def none(get: Get) -> int:
    """Return 0: the method keeps no frozen copy of the model."""
    return 0


@record
class Method:
    """One training method.

    - `shapes`: the shapes of its rows, the usual one first (compiler/data/shapes.py has their columns).
    - `reads`: paths of settings that several methods share; `settings`: the method's own rows of the table of settings.
    - `sequences`: the number of sequences that a step computes for one sample; `counts`: what a batch counts.
    - `generates`: whether the model writes completions while it trains. `grouped`: whether completions of one prompt
      are compared, so that a batch must have complete groups.
    - `scores`: whether the model returns a score instead of tokens. `scores_twice`: whether the trainer also computes
      the log-probabilities of completions before the step.
    - `weighs_losses`: whether the method adds up several losses, each with a weight.
    - `cuts_rows`: what happens to rows longer than a sequence: "counted" (cut, and the run counts them), "uncounted" or
      "dropped".
    - `references`: a function that counts the frozen copies of the trained model in a process.
    - `defaults`: values that are the same on every stack although the classes differ.
    - `arguments`: arguments that no setting decides; a bundle states them if the class has them.
    - `head`: what computes logits from hidden states: "fused" (a head that trl 1.16 puts into the model), "weight" (the
      trainer, with the head's weight), or "model".
    - `aliases`: names in other tools and papers.
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
        """The method-specific settings that this method reads: shared ones and its own."""
        return (*self.reads, *(row.path for row in self.settings))


def generates_itself(method: Method, get: Get) -> bool:
    """Whether the trainer generates with the trained model, not with vLLM, and does not read completions from
    the data.
    """
    return method.generates and get("method.vllm") is not True and get("method.lmbda") != 0
