"""Rows may have other names for the speakers (roles) than usual. On each stack, a run learns the same from them as from
rows with the usual names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from runtime_bundles import source, write
from test_runtime_trains import Stacks, bundle, metrics, stacks
from tiers import EACH_STACK

__all__ = ["stacks"]

pytestmark = pytest.mark.slow
NAMES = {"user": "guest", "assistant": "host"}


def losses(tmp_path: Path, stacks: Stacks, target: str, rows: str | None, **data: Any) -> list[float]:
    tmp_path.mkdir()
    folder, cwd, _, facts = bundle(tmp_path, stacks, target)
    facts["arguments"].update(max_steps=3, save_strategy="no")
    if rows is not None:
        facts["data"]["sources"] = [source(rows)]
    facts["data"].update(data)
    stacks.fork(target, write(folder, facts), cwd)
    return [event["loss"] for event in metrics(cwd)]


@pytest.mark.parametrize("target", EACH_STACK)
def test_names_that_stand_for_roles_train_as_the_roles(tmp_path: Path, stacks: Stacks, target: str) -> None:
    with open(os.path.join(stacks.tiny(target), "messages.jsonl"), encoding="utf-8") as handle:
        every = [json.loads(line)["messages"] for line in handle]
    named = [[{**turn, "role": NAMES[turn["role"]]} for turn in turns] for turns in every]
    rows = tmp_path / "named.jsonl"
    rows.write_text("".join(json.dumps({"messages": turns}) + "\n" for turns in named))
    usual = losses(tmp_path / "usual", stacks, target, None)
    roles = {name: role for role, name in NAMES.items()}
    assert losses(tmp_path / "named", stacks, target, str(rows), roles=roles) == usual
    # `losses` raises AssertionError with the output of a run that failed
    with pytest.raises(AssertionError, match="no assistant turn to learn from"):
        losses(tmp_path / "unnamed", stacks, target, str(rows))
