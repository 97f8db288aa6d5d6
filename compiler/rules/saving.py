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


RULES = (remote_code_unpinned, resume_without_state, keep_without_saving)
