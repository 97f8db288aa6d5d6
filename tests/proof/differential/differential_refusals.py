"""Find specs that a rule refuses although they would work. To find them, claims are made from the proofs of rules.

A claim says: on this stack, every spec that only this code refuses fails. There is such a claim if, in every proof of
the code on the stack, a library raises an exception for the rejected spec itself. There is no claim for a code with a
proof that measures a silent effect, needs a GPU, or adds its violation to a legal text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from attrs import frozen
from prove import CPU_STAGES, Proof
from small_run import STAGES

from xpc.compiler.spec import Spec
from xpc.compiler.stacks import DEFAULT

BEFORE = ("launch", "config", "deepspeed")
"""Stages of a proof in which no model is loaded."""

DECIDED = frozenset({"XP210", "XP401", "XP412", "XP425", "XP444", "XP477", "XP510", "XP582"})
"""Codes of rules that may refuse a spec although the libraries raise no exception for it. Such a refusal is not counted
as a suspected false refusal.

- XP210: a batch that is never full cannot be tested, because the rows here are tiny
- XP401: FSDP's own activation checkpointing may work
- XP412: the tokens of the tiny rows may be routed to every expert
- XP425: the tiny model of a family may not tie its weights
- XP444: the device of an offload is checked together with another setting
- XP477: packed tiny rows fill only one micro-batch, so no gradients are accumulated
- XP510: without evaluations or checkpoints, `load_best_model_at_end` has no effect
- XP582: on some stacks, a checkpoint restores no adapter, which only a resumed run shows
"""


@frozen
class Claim:
    """A claim about the specs that are refused by one code only: they fail at the stage `at` of a run, or earlier, and
    the message matches one of the patterns.

    If the stage needs a model, the claim covers only specs whose method and hardware (CPU or GPU) occur in the proofs:
    each method has its own trainer, and specs for GPUs run as their CPU variant.
    """

    at: str
    patterns: tuple[str, ...]
    keep: tuple[str, ...]
    on_cpu: bool
    methods: frozenset[str]

    @property
    def constructs(self) -> bool:
        """Whether the refused spec must fail before a model is loaded."""
        return self.at in BEFORE

    def of(self, spec: Spec) -> bool:
        """Whether the claim covers this spec."""
        if self.constructs:
            return True
        # Context parallelism cannot be tested, because its attention kernels need a GPU; offloading cannot be tested
        # either, because pinned memory needs one; and a torch without GPUs cannot train FSDP1.
        alone = spec.context_parallel == 1 and (spec.text("strategy") != "hsdp" or not spec.by_fsdp1)
        gloo = alone and spec.text("strategy.offload") == "none"
        alike = self.on_cpu == spec.on_cpu and spec.text("method") in self.methods
        return alike and (gloo or "fsdp" not in self.keep)

    def shown(self, problems: Iterable[str]) -> bool:
        """Whether the observed exception is the claimed one."""
        return any(re.search(pattern, one) for pattern in self.patterns for one in problems)


def claims(proofs: Iterable[Proof]) -> Mapping[tuple[str, str], Claim]:
    """Make claims from the proofs of rules that refuse specs. The result maps pairs, a code and a target, to the claim
    about them.
    """
    groups: dict[tuple[str, str], list[Proof]] = defaultdict(list)
    proofs = [one for one in proofs if one.text]
    silent = {one.code for one in proofs if not one.raises and not one.needs}
    for one in proofs:
        if one.code not in silent and one.code not in DECIDED:
            groups[one.code, _target(one.text)].append(one)
    patterns: dict[str, list[str]] = defaultdict(list)
    for (code, _), members in groups.items():
        patterns[code] += [one.match for one in members if one.raises]
    found = {key: _claim(members, patterns[key[0]]) for key, members in groups.items()}
    return {key: claim for key, claim in found.items() if claim is not None}


def _claim(proofs: list[Proof], patterns: list[str]) -> Claim | None:
    if not all(_plain(one) for one in proofs):
        return None
    last = max((one.at for one in proofs), key=STAGES.index)
    machines = {_on_cpu(one.text) for one in proofs}
    keep = {one.keep for one in proofs}
    if last not in BEFORE and (last == "save" or len(machines) > 1 or len(keep) > 1):
        return None
    methods = frozenset(_method(one.text) for one in proofs)
    return Claim(last, tuple(patterns), next(iter(keep)), machines.pop(), methods)


def _plain(one: Proof) -> bool:
    """Whether a proof's text alone causes the exception. This is so if the proof adds nothing to the text, and replaces
    nothing in it.
    """
    on_top = one.arguments or one.yaml or one.deepspeed or one.payload or one.common or one.onto == "legal"
    replaced = one.family or one.shape or one.measure or (one.processes > 1 and "fsdp" not in one.keep)
    model = one.at in CPU_STAGES
    return bool(one.raises) and not on_top and not (model and replaced) and not (one.measure and not model)


def _target(text: str) -> str:
    named = re.search(r"^\s*target (\S+)", text, re.MULTILINE)
    return named[1] if named else DEFAULT


def _method(text: str) -> str:
    named = re.search(r"^\s*method (\w+)", text, re.MULTILINE)
    return named[1] if named else "sft"


def _on_cpu(text: str) -> bool:
    return re.search(r"^hardware (\d+ x )?cpu", text, re.MULTILINE) is not None
