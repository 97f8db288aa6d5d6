"""What the proofs of a code promise of a refused spec, so that a spec that is refused for nothing shows.

A code whose proofs on a target all name an exception of the library, seen on the text as it stands, claims that every
spec which it alone refuses fails there. `claims` collects these; where a proof measures a silent harm, needs a GPU or
puts its violation on top of a legal text, the text alone decides nothing, and the code claims nothing here.
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
"""Stages that need no model."""

DECIDED = frozenset({"XP210", "XP401", "XP444", "XP510"})
"""Refused on every target whether or not the library would: FSDP's own activation checkpointing by decision, the
device of an offload because another setting says it, which other rules read, a best model where nothing is evaluated
and none is kept (silence), and a batch that is never full: tiny rows stand in for the spec's here."""


@frozen
class Claim:
    """A refused spec fails at stage `at` or before, with a message that one of the patterns finds.

    What is seen at a stage with a model is claimed of specs like the proofs' own only: on the CPU or not, because specs
    for GPUs run as the CPU's variant there, and of their methods, because each has a trainer of its own.
    """

    at: str
    patterns: tuple[str, ...]
    keep: tuple[str, ...]
    on_cpu: bool
    methods: frozenset[str]

    @property
    def constructs(self) -> bool:
        """Whether it shows before there is a model."""
        return self.at in BEFORE

    def of(self, spec: Spec) -> bool:
        """Whether it is claimed of a spec."""
        if self.constructs:
            return True
        # Two processes over gloo have no mesh for context parallelism or copies, and no GPU that memory is pinned for.
        alone = spec.context_parallel == 1 and spec.text("strategy") != "hsdp"
        gloo = alone and spec.text("strategy.offload") == "none"
        alike = self.on_cpu == spec.on_cpu and spec.text("method") in self.methods
        return alike and (gloo or "fsdp" not in self.keep)

    def shown(self, problems: Iterable[str]) -> bool:
        """Whether what was seen is what is claimed."""
        return any(re.search(pattern, one) for pattern in self.patterns for one in problems)


def claims(proofs: Iterable[Proof]) -> Mapping[tuple[str, str], Claim]:
    """The claims by code and target."""
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
    """Whether the text by itself raises, with nothing put on top or replaced."""
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
