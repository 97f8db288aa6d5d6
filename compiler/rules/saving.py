"""Saving and reproducibility (XP70x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.kinds import NEVER
from xpc.compiler.rules.rule import Finding, rule
from xpc.compiler.spec import Spec


@rule("XP701", "remote-code-unpinned", "warning")
def remote_code_unpinned(spec: Spec) -> Iterator[Finding]:
    """Code that comes with a model runs on your machines; without a revision it can change between two runs.

    The hub's newest commit is fetched at each start, and nothing is said today.
    """
    if spec.flag("model.trust_remote_code") and spec.model.revision is None and spec.model.path is None:
        yield Finding(
            spec.place("model.trust_remote_code"),
            "remote code of no fixed revision",
            'write `model(revision="<commit>")`',
        )


@rule("XP702", "resume-without-state", "warning")
def resume_without_state(spec: Spec) -> Iterator[Finding]:
    """Without the full state a resumed run starts its optimizer, schedule and random numbers afresh, silently.

    Source: transformers 5.23 `trainer.py`; executed (Adam's step counter was 2 instead of 4).
    """
    if not spec.flag("save.full_state") and spec.get("save.resume") == "auto" and spec.amount("save.every") != NEVER:
        yield Finding(
            spec.place("save.full_state", "nothing to resume from but weights"),
            "a run resumed from weights alone is not the same run",
            "write `resume = never`",
        )


@rule("XP703", "keep-without-saving", "warning")
def keep_without_saving(spec: Spec) -> Iterator[Finding]:
    """`keep` limits checkpoints, and none is written.

    The argument is accepted and never read: nothing is said today.
    """
    if spec.written("save.keep") and spec.amount("save.every") == NEVER:
        yield Finding(
            spec.place("save.keep"),
            "`keep` without checkpoints",
            "write `every = epoch`, or leave `keep` out",
            (spec.label("save.every", "never"),),
        )


@rule("XP704", "full-determinism", "warning")
def full_determinism(spec: Spec) -> Iterator[Finding]:
    """Full determinism also makes every kernel launch wait for the one before, so that a run takes much longer.

    It chooses deterministic kernels, and an operation that has none is an error at the step that reaches it. `seed`
    alone fixes weights, dropout and the order of the rows. Source: transformers 5.23 and 4.52.3 `trainer_utils.py`
    `enable_full_determinism` (CUDA_LAUNCH_BLOCKING); executed.
    """
    if spec.extra_value("trl", "full_determinism") is True:
        yield Finding(
            spec.extra_place("trl", "full_determinism", "debugging"),
            "every kernel launch waits for the one before",
            "write `full_determinism = false`; `seed` fixes the order of the rows",
            (spec.label("seed"),),
            "full_determinism = false",
        )


@rule("XP705", "weights-not-safetensors", "warning")
def not_safetensors(spec: Spec) -> Iterator[Finding]:
    """A bundle goes on from checkpoints whose weights are safetensors, the one format whose length tells it is whole.

    trl-0.18 can write pickled `pytorch_model.bin` files instead; a run of ddp that is stopped then begins anew.
    transformers 5 has dropped them. Source: transformers 4.52.3 `Trainer._save`; the runtime's
    `checkpoints.missing`; executed.
    """
    if spec.extra_value("trl", "save_safetensors") is False:
        yield Finding(
            spec.extra_place("trl", "save_safetensors", "pickled weights"),
            "nothing can be resumed from pickled weights",
            "leave `save_safetensors` out",
            replace="save_safetensors = true",
        )


RULES = (remote_code_unpinned, resume_without_state, keep_without_saving, full_determinism, not_safetensors)
