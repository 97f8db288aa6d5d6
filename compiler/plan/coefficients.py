"""Read how many bytes autograd keeps per token and layer. Each stack has a file coefficients.json with these numbers
for each model family. `make coefficients` writes the files.

The bytes are a sum over a layer's sizes, such as `hidden`. Each size is multiplied by a whole number, its coefficient.
tests/plan/oracle.py counts the bytes on real models, with the libraries of each stack.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache

from xpc.compiler.registry.types import ModelFacts
from xpc.compiler.stacks import DEFAULT, HERE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def table_of(stack: str) -> str:
    """The path of a stack's coefficients.json."""
    return os.path.join(HERE, stack, "coefficients.json")


@cache
def _text(stack: str) -> str:
    if not os.path.exists(table_of(stack)):  # this stack was not measured
        return '{\n "families": {\n },\n "versions": {\n }\n}'
    with open(table_of(stack), encoding="utf-8") as handle:
        return handle.read()


@cache
def _read(stack: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_text(stack))
    return found


@cache
def family(name: str, stack: str = DEFAULT) -> Mapping[str, Mapping[str, float]]:
    """The coefficients of a model family, by mode such as `full/bf16/sdpa`. Empty if the family was not measured. Only
    this family's lines of the file are parsed, which saves time.
    """
    text = _text(stack)
    head = f'\n  "{name}": {{'
    start = text.find(head, text.index('\n "families": {'), text.index('\n "versions": {'))
    if start < 0:
        return {}
    found: Mapping[str, Mapping[str, float]] = json.loads(text[start + len(head) - 1 : text.index("\n  }", start) + 4])
    return found


def families(stack: str = DEFAULT) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """The coefficients of all model families, by family and mode."""
    found: Mapping[str, Mapping[str, Mapping[str, float]]] = _read(stack)["families"]
    return found


def differences(stack: str = DEFAULT) -> Mapping[str, Mapping[str, str]]:
    """How much the memory according to the coefficients differs from the measured memory: a text for each model family
    and mode. Modes without a difference are left out.
    """
    found: Mapping[str, Mapping[str, str]] = _read(stack)["differences"]
    return found


def sizes(facts: ModelFacts, rank: int = 0) -> dict[str, float]:
    """The sizes of a layer by name, such as `hidden`. Coefficients multiply these sizes. The sizes of experts are 0 for
    a layer without experts.
    """
    each = facts.experts_per_token
    return {
        "hidden": facts.hidden,
        "intermediate": facts.intermediate,
        "heads x width": facts.heads * facts.head_dim,
        "kv heads x width": facts.kv_heads * facts.head_dim,
        "heads": facts.heads,
        "kv heads": facts.kv_heads,
        "head width": facts.head_dim,
        "heads x value width": facts.values,
        "heads x rotated": facts.heads * facts.rotated,
        "query rank": facts.query_rank,
        "latent": facts.latent,
        "rotated": facts.rotated,
        "shared": facts.shared_width,
        "one": 1,
        "rank": rank,
        "experts": facts.experts,
        "chosen": each,
        "chosen x hidden": each * facts.hidden,
        "chosen x intermediate": each * facts.intermediate,
        "chosen x rank": each * rank,
    }


def row(name: str, mode: str, stack: str = DEFAULT) -> Mapping[str, float] | None:
    """The coefficients of a mode such as `full/bf16/sdpa`, or None if this mode was not measured."""
    return family(name, stack).get(mode)


def saved(found: Mapping[str, float], facts: ModelFacts, length: int, rank: int = 0) -> float:
    """The bytes that a layer saves per token, computed from its coefficients `found`. If the name of a term contains
    "length", the term is also multiplied by `length`, the number of tokens in a row.
    """
    known = sizes(facts, rank)
    total = 0.0
    for name, factor in found.items():
        base, grows, _ = name.partition(" x length")
        total += factor * known[base] * (length if grows else 1)
    return total
