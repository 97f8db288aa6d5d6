"""docs/requirements.md has a result of `make resolve` for every set of requirements that bundles have today."""

from __future__ import annotations

import os

import pytest

from tests.resolve import PAGE, PYTHONS, sets


def rows() -> dict[tuple[str, str], list[str]]:
    assert os.path.exists(PAGE)
    with open(PAGE, encoding="utf-8") as handle:
        found = [line.strip("| \n").split(" | ") for line in handle if line.startswith("| trl-")]
    return {(stack, what): answers for stack, what, *answers in found}


@pytest.mark.slow
def test_every_emitted_set_was_resolved_for_the_oldest_two_pythons():
    known = rows()
    wanted = sets()
    assert set(known) == set(wanted), "make resolve"
    for key, answers in known.items():
        assert len(answers) == len(PYTHONS)
        assert answers[:2] == [f"resolves on Python {one}" for one in PYTHONS[:2]], key
    assert any("vllm" in what for _, what in wanted)
    assert any("flash-attn" in what for _, what in wanted)
    assert any("lm-eval" in what or "lm_eval" in what for _, what in wanted)
