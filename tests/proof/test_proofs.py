"""Every proof is right: the illegal spec causes the damage that the rule's docstring states, the legal one does not,
and `xpc check` reports the rule's code for the illegal spec only.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import Any

import prove
import pytest
from compile_support import checked, codes, errors, placed
from prove import Proof, Prover, both_jobs, every, failure

PROOFS = every()
SHOWN = [one for one in PROOFS if not one.needs]
FIRST = {one.code: one for one in reversed(SHOWN)}
MODELS = ("load", "init", "train", "save")
"""Stages of a proof in which a model is loaded, so that they take a second of processor time."""
OURS = ("RunError", "CheckpointError")
"""Exceptions that a bundle's own program raises."""


def by_day(proof: Proof) -> bool:
    """Whether `make test` tries a proof in the libraries; `make slow` tries all proofs. `make test` tries the first
    proof of each rule. If this proof loads a model, it is tried only for every third rule, because what a library does
    with a model changes only with the pinned version.

    If a rule is lost, `test_the_code_answers_the_text` fails.
    """
    pinned = proof.at in MODELS and proof.raises not in OURS
    return FIRST[proof.code] is proof and (not pinned or zlib.crc32(proof.code.encode()) % 3 == 0)


EACH = [pytest.param(one, id=one.title, marks=() if by_day(one) else pytest.mark.nightly) for one in SHOWN]


@pytest.fixture(scope="session")
def provers() -> Iterator[dict[str, Prover]]:
    """The process of each target, started when the first proof needs it."""
    kept: dict[str, Prover] = {}
    yield kept
    for one in kept.values():
        one.close()


def test_titles_are_unique() -> None:
    titles = [one.title for one in PROOFS]
    assert sorted(set(titles)) == sorted(titles)


@pytest.mark.slow  # most of the texts are the texts of the rules' cases (tests/rules/core/test_rules.py)
@pytest.mark.parametrize("code", sorted({one.code for one in PROOFS}))
def test_the_code_answers_the_text(code: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    for proof in (one for one in PROOFS if one.code == code):
        if not proof.text:
            assert proof.needs, proof.title
            continue
        root = placed(proof.files, lambda: tmp_path_factory.mktemp("proof"))
        refused = checked(proof.text, root, allow_oom=True)
        assert proof.code in codes(refused), f"{proof.title}: {codes(refused)}"
        passed = checked(proof.legal, root, allow_oom=True)
        assert proof.code not in codes(passed), proof.title
        assert not errors(passed), f"{proof.title}: {codes(passed)}"


@pytest.mark.slow
@pytest.mark.parametrize("proof", EACH)
def test_it_goes_wrong_in_the_libraries(proof: Proof, provers: dict[str, Prover], tmp_path: Any) -> None:
    both = both_jobs(proof, os.path.join(str(tmp_path)))
    target = both[0]["target"]
    if target not in provers:
        provers[target] = Prover(target)
    seen = provers[target].answers(both)
    illegal, legal = (seen[one["id"]] for one in both)
    why = failure(proof, illegal, legal)
    assert not why, f"{why}\n{illegal['output'][-1500:]}"


def test_every_measure_is_there() -> None:
    folder = os.path.join(prove.HERE, "measures")
    for proof in SHOWN:
        module, _, name = proof.measure.rpartition(".")
        if module:
            with open(os.path.join(folder, f"{module}.py"), encoding="utf-8") as handle:
                assert f"def {name}(" in handle.read(), proof.title
