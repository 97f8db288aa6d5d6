"""A recipe's bundle contains a spec.xp that states every default. This spec.xp compiles to the same bundle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from compile_support import compiled, put
from recipe_support import bundle
from test_published import TAKEN
from tiers import every_fourth

DIGESTS = re.compile(r"(?:files|rewards)/([\w-]+?)(?:-[0-9a-f]{8})*\.(?=jinja|py)")
"""Matches the name of a file in a bundle, with the digests in it. If a bundle is compiled from another bundle's
spec.xp, its file names have several digests.
"""


@pytest.mark.parametrize(("recipe", "target"), every_fourth(TAKEN))
def test_it_compiles_to_the_same_numbers(recipe: str, target: str, tmp_path: Path) -> None:
    first = bundle(recipe, target)
    again = compiled(first["spec.xp"], put(tmp_path, first), recipe + ".xp")
    for name in ("trainer_args.json", "accelerate.yaml", "deepspeed.json"):
        assert (name in first) is (name in again)
        one, other = (DIGESTS.sub(r"\1.", files.get(name, b"").decode()) for files in (first, again))
        assert one == other
