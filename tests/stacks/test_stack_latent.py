"""The facts about families with latent attention: which ones OFT cannot rotate, and which have indexers that learn
nothing. The tests measure tiny models with each stack's libraries.
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import latent_families
import pytest
from stacks import environment, interpreter
from tiers import EACH_STACK

from xpc.compiler import registry
from xpc.compiler.stacks import load

pytestmark = pytest.mark.slow


@cache
def measured(stack: str) -> dict[str, dict[str, Any]]:
    """What latent_families.py prints in the stack's interpreter."""
    command = [interpreter(stack), str(Path(latent_families.__file__))]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("stack", EACH_STACK)
def test_the_families_that_oft_cannot_rotate(stack: str) -> None:
    layers = {family for family, found in measured(stack).items() if found["layers"]} & set(registry.families())
    failing = {family for family in layers if measured(stack)[family]["oft"]}
    assert layers
    assert failing == set(load(stack).facts.rotations_fail)


@pytest.mark.parametrize("stack", EACH_STACK)
def test_the_families_whose_indexer_gets_no_gradient(stack: str) -> None:
    idle = {family for family, found in measured(stack).items() if found["idle"]}
    assert idle == set(load(stack).facts.untrained_indexers)
