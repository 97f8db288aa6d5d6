"""The class `Method`, which describes a training method. Every other file of this folder defines one method."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xpc.compiler.language.setting import Path, Setting
from xpc.compiler.stacks import Json
from xpc.grammar.record import field, record

Get = Callable[["Path"], object]
"""The type of a function that returns the value of the setting at a path, or None if it has no value."""


def none(get: Get) -> int:
    """The default of `Method.references`: 0, for methods without a frozen copy of the model."""
    return 0


@record
class Method:
    """A training method, such as sft or dpo.

    - `shapes`: the formats of rows that it can train on, the usual format first (compiler/data/shapes.py lists their
      columns).
    - `reads`: the paths of settings that the method shares with other methods.
    - `settings`: the settings that only this method has.
    - `sequences`: how many sequences a row consists of: 2 for preference pairs, otherwise 1.
    - `counts`: what the batch size counts, such as sequences.
    - `generates`: whether the model writes completions while it trains.
    - `grouped`: whether the completions of one prompt are compared, so that a batch must have complete groups.
    - `scores`: whether the model returns a score instead of tokens.
    - `scores_twice`: whether the trainer computes the log-probabilities of completions twice: once before the step, and
      in the step.
    - `weighs_losses`: whether the method adds up several losses, each with a weight.
    - `cuts_rows`: what happens to rows longer than a sequence: "counted" (they are cut, and the run prints the number
      of cut rows at its start), "uncounted" (they are cut without a count) or "dropped".
    - `references`: a function that counts the frozen copies of the trained model in a process.
    - `defaults`: default values of settings for this method, the same on every stack, even if TRL's defaults differ.
    - `arguments`: TRL arguments that no setting decides. A bundle states each of them that the stack's configuration
      class has.
    - `head`: what computes logits from hidden states: "fused" (the head that trl 1.16 puts into the model), "weight"
      (the trainer itself, with the weight of the model's head), or "model" (the model's unchanged `forward`).
    - `aliases`: the method's names in other tools and papers.
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
        """The paths of all settings that a spec with this method may have: those in `reads` and in `settings`."""
        return (*self.reads, *(row.path for row in self.settings))


def generates_itself(method: Method, get: Get) -> bool:
    """Whether the trainer generates completions with the model that it trains. False if vLLM generates, or if all
    completions come from the data (`lmbda = 0`).
    """
    return method.generates and get("method.vllm") is not True and get("method.lmbda") != 0
