"""The libraries of both stacks read the bundle of every recipe as it is meant (proof/look.py says what is seen)."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from compile_support import REPOSITORY
from recipe_support import bundle
from test_published import TAKEN

sys.path.append(os.path.join(REPOSITORY, "tests", "proof"))
from emitted import put
from stacks import looked_at

from xpc.compiler.stacks import DEFAULT, STACKS

KNOWN = ("'keep_end'", "torch.jit")
"""trl 1.16 says that it will drop what the DPO recipes rely on; torch says something of itself when it is imported."""


@pytest.mark.slow
@pytest.mark.parametrize("target", STACKS)
def test_the_libraries_read_what_was_stated(target: str, tmp_path: Any) -> None:
    recipes = [recipe for recipe, other in TAKEN if other == target]
    folders = {recipe: put(str(tmp_path / recipe), bundle(recipe, target)) for recipe in recipes}
    answers = looked_at(target, list(folders.values()))
    found = {recipe: answers[folder]["problems"] for recipe, folder in folders.items()}
    told = {recipe: [one for one in found[recipe] if not any(word in one for word in KNOWN)] for recipe in recipes}
    assert told == {recipe: [] for recipe in recipes}
    if target == DEFAULT:
        assert any("keep_end" in one for ones in found.values() for one in ones)
