"""The first part of a differential run, in separate processes: generate a spec from its number, check it, and write its
bundle and jobs.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import generator
from attrs import define, field
from differential_refusals import Claim
from differential_steps import kind, trainable
from lowered import complete_bundle, lowered_files, resolved, write

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.grammar.diagnostic import ERROR

BLOCK = 50
"""A process generates this many specs at a time."""
UNLOWERED = (LookupError, TypeError, ValueError, ArithmeticError, AssertionError)
"""Exceptions that lowering may raise if a spec is compiled although a rule refuses it. The spec may then lack a part
that the rule requires.
"""


@define
class One:
    """A generated spec and the result of its check. `folder` has its bundle. `past` is "" or the code of a rule that
    refuses the spec; then the bundle was compiled without this rule.
    """

    name: str
    text: str
    codes: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    accepted: bool = False
    target: str = ""
    method: str = ""
    strategy: str = ""
    written: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    folder: str = ""
    past: str = ""
    lone: str = ""
    crash: str = field(default="")


def one(name: str, text: str, location: str, claims: Mapping[tuple[str, str], Claim], targets: tuple[str, ...]) -> One:
    """Check a spec and write its bundle below `location`."""
    out = One(name, text)
    try:
        checked = check_text(text.encode(), f"{name}.xp", Workspace(location))
        out.codes = tuple(sorted({one.code for one in checked.problems if one.severity == ERROR}))
        if checked.spec is None:
            _refused(out, location, claims, targets)
            return out
        spec = checked.spec
        warned = [one for one in checked.problems if one.severity == "warning"]
        told_of = [word for one in warned for word in re.findall(r"`([\w.]+)", f"{one.message} {one.help}")]
        out.warned = tuple({one.code for one in warned})
        out.words = frozenset(word.rpartition(".")[2] for word in told_of)
        out.accepted, out.target = True, spec.stack.name
        if out.target not in targets:
            return out
        out.method, out.strategy = spec.text("method"), spec.text("strategy")
        out.written = tuple(path for path in spec.values if spec.written(path))
        out.folder = os.path.join(location, "out", name)
        write(complete_bundle(spec), out.folder)
        out.kind = kind(spec) if trainable(spec) else ()
    except Exception as error:
        out.crash = f"{type(error).__name__}: {error}"
    return out


def _refused(out: One, location: str, claims: Mapping[tuple[str, str], Claim], targets: tuple[str, ...]) -> None:
    """If all errors of a spec have the same code, and the proofs of this code name the exception that such a run
    raises, compile the spec without the rule of this code.
    """
    if len(out.codes) != 1 or not any(known == out.codes[0] for known, _ in claims):
        return
    code = out.codes[0]
    spec = resolved(out.text, location)
    out.target = spec.stack.name
    claim = claims.get((code, out.target))
    if claim is None or out.target not in targets or not claim.of(spec):
        return
    if not claim.constructs:
        out.lone = code if trainable(spec) else ""
        return
    folder = os.path.join(location, "past", f"{code}-{out.name}")
    try:
        write(lowered_files(spec), folder)
    except UNLOWERED:
        return
    out.past, out.folder = code, folder


def _block(start: int, seed: str, location: str, claims: Any, targets: tuple[str, ...]) -> list[One]:
    gc.freeze()  # all objects so far are needed until the end, so the garbage collector need not look at them
    names = [f"{seed}-{number}" for number in range(start, start + BLOCK)]
    return [one(name, generator.spec(name), location, claims, targets) for name in names]


def generated_specs(
    seed: str, wanted: int, location: str, claims: Any, targets: tuple[str, ...], jobs: int, until: float
) -> Iterator[One]:  # fmt: skip
    """Yield specs in the order of their numbers until enough specs are accepted, or the time is over. Raises
    RuntimeError if hardly any spec compiles.
    """
    draw = partial(_block, seed=seed, location=location, claims=claims, targets=targets)
    accepted = number = 0
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=200) as pool:
        starts = iter(range(0, 50 * max(wanted, BLOCK), BLOCK))
        waiting = [pool.apply_async(draw, (next(starts),)) for _ in range(2 * jobs)]
        while accepted < wanted and time.monotonic() < until:
            if not waiting:
                raise RuntimeError("hardly any generated spec compiles")
            for found in waiting.pop(0).get():
                yield found
                number += 1
                # a spec counts if its stack is installed; only then it has a folder
                accepted += bool(found.accepted and found.folder)
                if accepted >= wanted:
                    return
            waiting += [pool.apply_async(draw, (start,)) for start in [next(starts, -1)] if start >= 0]


def counted(specs: list[One]) -> Counter[str]:
    """Map each code of an error to the number of specs that have such an error."""
    return Counter(code for one in specs for code in one.codes)
