"""On every stack, the libraries read each recipe's bundle as intended. proof/inspect_bundles.py compares what they read
with the bundle.
"""

from __future__ import annotations

from typing import Any

import pytest
from emitted import put
from recipe_support import bundle
from stacks import looked_at
from test_published import TAKEN
from tiers import EACH_STACK

from xpc.compiler.stacks import DEFAULT

KNOWN = ("'keep_end'", "torch.jit")
"""Expected warnings: trl 1.16 announces that it will drop `keep_end`, which DPO recipes use, and torch warns about
itself when it is imported.
"""


@pytest.mark.slow
@pytest.mark.parametrize("target", EACH_STACK)
def test_the_libraries_read_what_was_stated(target: str, tmp_path: Any) -> None:
    recipes = [recipe for recipe, other in TAKEN if other == target]
    folders = {recipe: put(str(tmp_path / recipe), bundle(recipe, target)) for recipe in recipes}
    answers = looked_at(target, list(folders.values()))
    found = {recipe: answers[folder]["problems"] for recipe, folder in folders.items()}
    reported = {recipe: [one for one in found[recipe] if not any(word in one for word in KNOWN)] for recipe in recipes}
    assert reported == {recipe: [] for recipe in recipes}
    if target == DEFAULT:
        assert any("keep_end" in one for ones in found.values() for one in ones)
