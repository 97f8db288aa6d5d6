"""The handbook's script for the alignment scan starts many runs. Each of these runs is a member of our sweep, with the
same arguments.

The script starts the file of each model with `--beta`, `--loss_type`, `--output_dir` and `--hub_model_revision`. Our
sweep differs from the script in two things. First, the script's third loss, `kto_pair`, is not a loss of DPO in trl
0.18 or 1.16, so a sweep with it is refused. Second, the output folder of a member is `<save>/<member>`, because a spec
cannot compute a folder's name from other values.
"""

from __future__ import annotations

import json
from functools import cache

import pytest
import recipe_support as support
from compile_support import checked, compiled, errors, only
from copy_published import SOURCES
from recipe_support import RECIPES, SPECS, SWEEPS, allowed, bundle, published, unlike
from tiers import every_fourth

from xpc.compiler.stacks import STACKS

pytestmark = pytest.mark.slow

GONE = ("kto_pair",)
"""Losses of the published script that no stack has for DPO."""
RUNS = [
    (name, loss, beta)
    for name, entry in SWEEPS.items()
    for loss in entry["loss_type"]
    for beta in entry["beta"]
    if loss not in GONE
]
EACH = pytest.mark.parametrize("name", SWEEPS)


@cache
def swept(name: str, target: str) -> dict[str, bytes]:
    """Compile a sweep for a target; return its files."""
    return compiled(f"{support.spec_text(name)}\ntarget {target}\n", SPECS, name + ".xp")


def member(name: str, target: str, loss: str, beta: float) -> dict[str, bytes]:
    start = f"members/loss={loss},beta={beta}/"
    return {path.removeprefix(start): data for path, data in swept(name, target).items() if path.startswith(start)}


@pytest.mark.parametrize("target", STACKS)
@pytest.mark.parametrize(("name", "loss", "beta"), every_fourth(RUNS))
def test_a_member_is_the_published_run(name: str, loss: str, beta: float, target: str) -> None:
    entry = SWEEPS[name]
    keys = {
        **published(entry["recipe"]),
        "loss_type": loss,
        "beta": beta,
        "output_dir": f"{entry['folder']}-{loss}-beta-{beta}",
        "hub_model_revision": f"{loss}-{beta}",
    }
    found = unlike(entry["recipe"], target, support.read(member(name, target, loss, beta)), keys)
    folder = (keys["output_dir"], f"{entry['folder']}/loss={loss},beta={beta}")
    assert found.pop("output_dir") == folder
    assert set(found) == set(allowed(entry["recipe"], target)), found


@EACH
@pytest.mark.parametrize("target", STACKS)
def test_every_run_that_can_be_is_a_member_and_no_other(name: str, target: str) -> None:
    listed = swept(name, target)["members.txt"].decode().split()
    assert listed == [f"loss={loss},beta={beta}" for one, loss, beta in RUNS if one == name]
    assert len(listed) == 20


@EACH
@pytest.mark.parametrize("target", STACKS)
def test_the_run_of_the_file_is_one_of_them(name: str, target: str) -> None:
    alone, found = bundle(SWEEPS[name]["recipe"], target), member(name, target, "sigmoid", 0.01)
    one, other = (json.loads(files["trainer_args.json"]) for files in (alone, found))
    for arguments in (one["arguments"], other["arguments"]):
        del arguments["output_dir"], arguments["run_name"]
    assert one == other
    for file in ("accelerate.yaml", "deepspeed.json", "launch.sh", "requirements.txt"):
        assert alone[file] == found[file]


@EACH
@pytest.mark.parametrize("target", STACKS)
def test_the_loss_that_is_missing_is_refused_at_its_place(name: str, target: str) -> None:
    text = f"{support.spec_text(name)}\ntarget {target}\n".replace("[sigmoid, ipo]", "[sigmoid, kto_pair, ipo]")
    found = checked(text, SPECS, name + ".xp")
    assert errors(found) == ["XP106"]
    label = only(found, "XP106").primary
    assert label is not None
    assert label.source.text[label.span.start : label.span.end] in GONE


@EACH
def test_the_header_cites_its_source(name: str) -> None:
    entry = SWEEPS[name]
    repository, commit, _ = SOURCES[RECIPES[entry["recipe"]]["family"]]
    assert f"# {repository} at {commit}, {entry['file']}\n" in support.spec_text(name)
