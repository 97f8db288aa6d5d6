"""Real training from hand-written bundles, on one and two CPU processes, on each stack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from runtime_bundles import ROOT, command, environment, launch, plan, source, write

pytestmark = pytest.mark.slow
TINY = os.path.join(ROOT, "tests", "support", "tiny.py")
STACKS = ["trl-1.16", "trl-0.18"]


def interpreter(target: str) -> str:
    if target == "trl-1.16":
        pytest.importorskip("trl")
        return sys.executable
    python = os.environ.get("XPC_PYTHON_TRL_0_18")
    if not python:
        pytest.skip("XPC_PYTHON_TRL_0_18 names no interpreter with that stack")
    return python


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The tiny model, built once a stack, on demand."""
    made: dict[str, str] = {}
    for target in STACKS:
        made[target] = str(tmp_path_factory.mktemp("tiny") / target)
    return made


def model(tiny: dict[str, str], target: str) -> str:
    if not os.path.exists(tiny[target]):
        subprocess.run([interpreter(target), TINY, tiny[target]], check=True, env=environment(), capture_output=True)
    return tiny[target]


def bundle(tmp_path: Path, tiny: dict[str, str], target: str, **shape: int) -> tuple[str, str, str, dict[str, Any]]:
    python, folder = interpreter(target), tmp_path / "bundle"
    place = model(tiny, target)
    folder.mkdir()
    cwd = tmp_path / "here"
    cwd.mkdir()
    facts = plan(target, place, [source(os.path.join(place, "messages.jsonl"))], **shape)
    return str(folder), str(cwd), python, facts


def metrics(cwd: str) -> list[dict[str, Any]]:
    with open(os.path.join(cwd, "out", "metrics.jsonl"), encoding="utf-8") as handle:
        return [json.loads(line) for line in handle]


def changed(python: str, before: str, after: str) -> str:
    code = (
        "import sys, torch\nfrom transformers import AutoModelForCausalLM as A, AutoTokenizer as T\n"
        "a, b = (A.from_pretrained(p) for p in sys.argv[1:])\n"
        "n = sum(not torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters()))\n"
        "t = T.from_pretrained(sys.argv[2])\n"
        "print(n == len(list(a.parameters())), b.dtype, b.config.use_cache, b.generation_config.eos_token_id"
        " == t.eos_token_id, bool(t.chat_template))"
    )
    done = subprocess.run([python, "-c", code, before, after], env=environment(), capture_output=True, text=True)
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("target", STACKS)
@pytest.mark.parametrize(("world", "zero"), [(1, 0), (2, 0), (2, 1), (2, 2), (2, 3)])
def test_it_trains(tmp_path: Path, tiny: dict[str, str], target: str, world: int, zero: int) -> None:
    folder, cwd, python, facts = bundle(tmp_path, tiny, target, world=world, zero=zero)
    facts["arguments"]["save_strategy"] = "no"
    write(folder, facts)
    done = launch(folder, cwd, python)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    events = metrics(cwd)
    assert [event["step"] for event in events] == list(range(1, 9))
    assert events[-1]["loss"] < events[0]["loss"] - 1
    assert events[-1]["tokens"] == 8 * 8 * world * 28  # every row has 28 tokens: no rank repeats another's rows
    assert changed(python, tiny[target], os.path.join(cwd, "out")) == "True torch.float32 True True True"
    with open(os.path.join(cwd, "out", "summary.json"), encoding="utf-8") as handle:
        summary = json.load(handle)
    assert (summary["steps"], summary["sequences"]) == (8, 64 * world)
    assert "step 8/8  loss" in done.stdout
    assert "done       8 steps" in done.stdout


def test_two_processes_see_the_same_losses_under_every_strategy(tmp_path: Path, tiny: dict[str, str]) -> None:
    curves = []
    for zero in (0, 2, 3):
        (tmp_path / str(zero)).mkdir()
        folder, cwd, python, facts = bundle(tmp_path / str(zero), tiny, "trl-1.16", world=2, zero=zero)
        facts["arguments"].update(max_steps=3, save_strategy="no")
        done = launch(write(folder, facts), cwd, python)
        assert done.returncode == 0, done.stderr[-3000:]
        curves.append([event["loss"] for event in metrics(cwd)])
    assert curves[1] == pytest.approx(curves[0], abs=1e-4)
    assert curves[2] == pytest.approx(curves[0], abs=1e-4)


def kill(started: subprocess.Popen[Any]) -> None:
    """The launcher and its workers at once, as a machine that goes away; torchrun's workers outlive their parent."""
    psutil = pytest.importorskip("psutil")
    family = [psutil.Process(started.pid), *psutil.Process(started.pid).children(recursive=True)]
    for one in family:
        one.kill()
    psutil.wait_procs(family)
    started.wait()


@pytest.mark.parametrize("target", STACKS)
@pytest.mark.parametrize(("world", "zero"), [(1, 0), (2, 2)])
def test_a_killed_run_goes_on(tmp_path: Path, tiny: dict[str, str], target: str, world: int, zero: int) -> None:
    folder, cwd, python, facts = bundle(tmp_path, tiny, target, world=world, zero=zero)
    facts["arguments"].update(max_steps=400, save_total_limit=3)
    write(folder, facts)
    started = subprocess.Popen(
        command(folder, python), cwd=cwd, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    out = os.path.join(cwd, "out")
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and not os.path.exists(os.path.join(out, "checkpoint-4", "trainer_state.json")):
        assert started.poll() is None, "the run ended before its second checkpoint"
        time.sleep(0.05)
    kill(started)
    reached = max(int(name.split("-")[1]) for name in os.listdir(out) if name.startswith("checkpoint-"))
    with open(os.path.join(out, f"checkpoint-{reached}", "trainer_state.json"), "w", encoding="utf-8") as handle:
        handle.write("{")  # the newest one was being written
    again = subprocess.Popen(
        command(folder, python), cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    lines: list[str] = []
    assert again.stdout is not None
    for line in again.stdout:
        lines.append(line)
        if line.startswith(f"step {reached + 4}/"):
            break
    kill(again)
    text = "".join(lines)
    assert f"checkpoint-{reached} is skipped: trainer_state.json is cut off" in text
    assert f"going on from checkpoint-{reached - 2}" in text
    steps = [event["step"] for event in metrics(cwd)]
    assert steps[: reached + 4] == list(range(1, reached + 5)), "a step is missing or stands twice"


def test_what_cannot_be_is_refused_in_one_sentence(tmp_path: Path, tiny: dict[str, str]) -> None:
    folder, cwd, python, facts = bundle(tmp_path, tiny, "trl-1.16", world=2)
    facts["run"]["distributed_type"] = "FSDP"  # accelerate makes plain DDP of it on a CPU
    done = launch(write(folder, facts), cwd, python)
    assert done.returncode == 1
    assert "this bundle is for FSDP, and accelerate runs plain data parallel on the CPU" in done.stderr


def test_the_preflight_lists_everything_at_once(tmp_path: Path, tiny: dict[str, str]) -> None:
    folder, cwd, python, facts = bundle(tmp_path, tiny, "trl-1.16")
    facts["data"]["sources"] = [source("missing.jsonl"), {**facts["data"]["sources"][0], "columns": ["chat"]}]
    facts["tokenizer"]["eos_token"] = "<|none|>"
    write(folder, facts)
    main = os.path.join(folder, "trainer", "main.py")
    done = subprocess.run(
        [python, main, "--preflight"], cwd=cwd, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "error: 3 things stop this run:" in done.stderr
    for finding in ("'<|none|>' is not in the vocabulary", "'missing.jsonl' was not found", "has no column 'chat'"):
        assert finding in done.stderr
