"""The rule that a checkpoint must have been saved with the head that the method needs (XP654)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import states_its_class
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import Model

WHEN = states_its_class

OTHER_HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
"""Endings of the names of classes, such as `Qwen2ForSequenceClassification`, whose head does not predict text."""
WITH_A_HEAD = ("LMHeadModel", "DoubleHeadsModel", "LMModel")
"""Endings of the names of older classes that have a head for text, such as `LMHeadModel`. They must be listed, because
names of classes without a head end with `Model`, too.
"""


@rule("XP654", "head-of-another-task", reads=("method.teacher",))
def trained_head(spec: Spec) -> Iterator[Finding]:
    """A method that trains on text needs a model with a trained language modeling head, and not one with a classifier's
    head or without a head. `architectures` in config.json names the class that saved the model. A checkpoint of a
    classifier has a head for classes instead of a head for text, and a checkpoint of a class such as `Qwen2Model` has
    no head. For a reward model this does not matter, because it always gets a new head.

    Why it is bad: the missing head is initialized at random, and training starts from noise.

    Without this rule: transformers logs "newly initialized: lm_head.weight" and trains. The runtime stops such a run
    once the model is loaded.

    Source: transformers 5.23 and 4.52 `modeling_utils.py` (`missing_keys`); confirmed by running it
    (`tests/proof/training/test_train_as_stated.py`).
    """
    for model in () if spec.method.scores else spec.models:
        yield from _finding(model, spec)


def _finding(model: Model, spec: Spec) -> Iterator[Finding]:
    named = model.config.get("architectures")
    saved = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
    other = saved.endswith(OTHER_HEADS)
    without = saved.endswith("Model") and not saved.endswith(WITH_A_HEAD) and not _tied(model)
    if other or without:
        yield Finding(
            model.label,
            f"`{model.name[:80]}` was saved as {saved[:60]}, which has {'another head' if other else 'no head'}; "
            f"{spec.text('method')} needs a trained language model",
            "name a model whose `architectures` end with ForCausalLM"
            + ("; `method reward` trains a classifier on pairs of answers" if other and model is spec.model else ""),
        )


def _tied(model: Model) -> bool:
    """Whether the output head shares the weights of the embeddings. If it does, a checkpoint needs no separate weights
    for the head.
    """
    facts = model.facts
    return facts.tied if facts is not None else model.config.get("tie_word_embeddings") is True
