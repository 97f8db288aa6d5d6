"""The GPU campaign can be stopped and started again, and reports the measurements that failed. The tests run it on a
CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import campaign
import choices
import machine
import memory
import pytest
import runs

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.grammar.diagnostic import ERROR

pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.parametrize(
    ("card", "gib", "name"),
    [
        ("NVIDIA H200", 139.8, "h200"),
        ("NVIDIA H100 80GB HBM3", 79.1, "h100-80gb"),
        ("NVIDIA A100-SXM4-40GB", 39.4, "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", 79.2, "a100-pcie-80gb"),
        ("Tesla V100-SXM2-32GB", 31.7, "v100-32gb"),
        ("NVIDIA GeForce RTX 4090", 23.5, "rtx-4090"),
        ("NVIDIA RTX 6000 Ada Generation", 47.4, "rtx-6000-ada"),
        ("NVIDIA L40S", 44.4, "l40s"),
    ],
)
def test_a_card_has_its_name_in_the_registry(card, gib, name):
    assert machine.card_name(card, int(gib * 2**30)) == name


def test_unknown_card_is_reported():
    with pytest.raises(SystemExit, match="no GPU like"):
        machine.card_name("Voodoo 2", 2**30)


@pytest.mark.parametrize("gpu", ["h200", "a100-80gb", "h100-80gb"])
@pytest.mark.parametrize("case", runs.CASES, ids=lambda one: one.name)
def test_every_case_is_a_spec_that_compiles_for_a_gpu(case, gpu, tmp_path):
    """Every spec of the campaign compiles for a GPU. This test needs no GPU, so that an error is found before a machine
    with a GPU is used.
    """
    text = case.spec(f"{case.cards} x {gpu}", "bf16", 8, 512, 6, "never")
    text = text.replace('"model"', "qwen2.5-0.5b-instruct")
    row = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    pair = {"prompt": "a", "chosen": "b", "rejected": "c"}
    for name, one in (("rows", row), ("pairs", pair), ("prompts", {"prompt": "a"})):
        (tmp_path / f"{name}.jsonl").write_text(f"{json.dumps(one)}\n" * 32)
    (tmp_path / "rewards.py").write_text(machine.REWARDS)
    found = check_text(text.encode(), "run.xp", Workspace(str(tmp_path)))
    assert [one.message for one in found.problems if one.severity == ERROR] == []


def test_shapes_are_about_forty_of_four_sizes():
    found = list(memory.shapes(False))
    assert len(found) == len({one.name for one in found}) == 40


def test_the_plan_knows_every_shape():
    for shape in memory.shapes(False):
        output = memory.planned(shape, 12 * shape.layers * shape.hidden**2)
        assert max(output.values()) > shape.tokens * shape.hidden


def test_the_plan_s_error_is_printed():
    found = {"a": {"off": 0.02}, "b": {"off": -0.04}, "c": {}}
    assert list(campaign.planned(found)) == ["the plan is off by 3.0% on average (3.0% median, 4.0% worst of 2)"]


def test_the_compiler_s_own_choice_is_held_against_the_best():
    speeds = {"the compiler's own": 900.0, "micro 8, kept": 1000.0, "micro 16, kept": None}
    found = {
        name: {"piece": f"choice {name}", "kind": "choice", "tokens_per_second": one} for name, one in speeds.items()
    }
    (output,) = choices.compared(found)
    assert output == "the compiler's own choice runs at 90% of the best (choice micro 8, kept: 1,000 tokens/s)"


def test_runs_that_compute_the_same_are_compared():
    found = {
        "a": {"piece": "run a", "kind": "run", "ok": True, "group": "full", "losses": [2.0, 1.0]},
        "b": {"piece": "run b", "kind": "run", "ok": True, "group": "full", "losses": [2.0, 1.0005]},
        "c": {"piece": "run c", "kind": "run", "ok": True, "group": "full", "losses": [2.0, 1.01]},
        "d": {"piece": "run d", "kind": "run", "ok": True, "group": "lora", "losses": [5.0, 4.0]},
    }
    (reported,) = campaign.unequal(found)
    assert reported.startswith("run c")


@pytest.mark.nightly
def test_a_rehearsal_is_stopped_and_goes_on(tmp_path):
    ask = [sys.executable, os.path.join(HERE, "campaign.py"), "--out", str(tmp_path), "--rehearse"]

    def lines() -> list[dict]:
        with open(tmp_path / "readings.jsonl", encoding="utf-8") as handle:
            return [json.loads(line) for line in handle]

    assert subprocess.run([*ask, "--minutes", "0.02"]).returncode == campaign.UNFINISHED
    begun = len(lines())
    assert begun >= 1
    assert subprocess.run([*ask, "--minutes", "60"]).returncode == 0
    found = {one["piece"]: one for one in lines()}
    assert len(lines()) == len(found), "no measurement is repeated"
    assert found["run killed"]["equal"]
    own = found["choice the compiler's own"]
    assert own["micro"] > 0
    assert own["tokens_per_second"]
    assert found["throughput plain"]["equal"], "the bundle has the same losses as the script"
    mixed = found["memory 2x64 v1024 t128 mixed kept full"]
    assert mixed["held"]["optimizer"] >= 8 * mixed["parameters"]
    less = found["memory 2x64 v1024 t128 mixed recomputed full"]
    assert less["phases"]["forward"]["saved"] < mixed["phases"]["forward"]["saved"]
