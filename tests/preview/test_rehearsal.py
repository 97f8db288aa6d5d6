"""Two recipes are rehearsed completely. The tests check the files that a rehearsal writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
from compile_support import REPOSITORY, put
from tiers import nightly_but

pytestmark = pytest.mark.slow

SPEC = """\
xpc 1
train "tiny" on "messages.jsonl" for 40 steps
hardware cpu
batch gbs=4 micro=2 seq=64
save "{out}" every=10
{more}
"""
STEPS = [
    "rows and masks", "load, train, evaluate, save", "kill -9 after the first checkpoint", "resume, and stop",
    "go on to the end", "load the result in plain transformers, and generate",
]  # fmt: skip


def rehearsed(folder: str, spec: str, *words: str) -> tuple[dict[str, Any], int]:
    done = subprocess.run(
        [sys.executable, "-m", "xpc.compiler.cli", "rehearse", spec, "--format", "json", *words], cwd=folder,
        capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.stdout, done.stderr[-3000:]
    return json.loads(done.stdout), done.returncode


RECIPES = ("sentence", "vicuna-7b-sharegpt-lora-1xa100")


@pytest.mark.parametrize("recipe", nightly_but(RECIPES, lambda name: name == "sentence"))
def test_a_recipe_rehearses_to_its_end_and_leaves_nothing_behind(recipe: str, tmp_path: Path) -> None:
    place = shutil.copytree(os.path.join(REPOSITORY, "specs"), tmp_path / "specs")
    before = set(os.listdir(place))
    report, status = rehearsed(str(place), recipe + ".xp", "--keep", "kept")
    assert [one["step"] for one in report["exercised"]][:6] == STEPS
    assert {one["state"] for one in report["exercised"]} - {"not here"} == {"done"}
    assert report["exercised"][4]["text"].startswith("the same weights, bit for bit")
    assert not [one for one in report["findings"] if one["severity"] == "error"]
    assert status == 0
    assert set(os.listdir(place)) - before == {"kept"}
    assert Path(place, "kept", "twin.xp").exists()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("place")
    tiny.build(str(made / "tiny"))
    tiny.write_messages(str(made / "messages.jsonl"), 64)
    return str(made)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["vera(rank=8)", "loha", "miss(rank=8)"])
def test_an_adapter_of_each_kind_is_seen_to_have_learned(folder: str, kind: str) -> None:
    name = kind.partition("(")[0]
    put(folder, {f"{name}.xp": SPEC.format(more=kind, out=f"out-{name}")})
    report, status = rehearsed(folder, f"{name}.xp")
    assert (report["findings"], status) == ([], 0)
    assert report["exercised"][4]["text"].startswith("the same weights, bit for bit")
