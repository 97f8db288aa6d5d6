"""Files that are cut off, corrupted or lost, and losses that are NaN or infinite: the run reports them, and resumes
from intact files.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from emitted import put
from fault_runs import Going, Runs, checkpoints, events, sound, text
from moments import pause
from safetensors.numpy import load_file, save_file
from tiers import nightly_but

from xpc.compiler.stacks import DEFAULT
from xpc.runtime.core import checkpoint_integrity
from xpc.runtime.core import checkpoints as checkpoints_of_runtime
from xpc.runtime.features.distributed.deepspeed import DeepSpeed

pytestmark = pytest.mark.slow
WORDS = {"nan": "nan", "inf": "infinite"}
SHAPES = {"one": {"world": 1}, "ddp": {}, "zero2": {"strategy": "zero2"}}
STEPS = 14


def compiled(here: Runs, kind: str) -> str:
    source = text(steps=STEPS, save="every=3 keep=2", every=1, **SHAPES[kind])  # type: ignore[arg-type]
    return here.compiled(source, f"damage-{kind}")


def hurt(path: str, chance: random.Random) -> str:
    """Damage a file: truncate it anywhere, flip a bit, append bytes, or remove it."""
    size = os.path.getsize(path)
    what = chance.choice(("cut", "bit", "longer", "gone") if size else ("longer", "gone"))
    if what == "gone":
        os.remove(path)
    elif what == "cut":
        os.truncate(path, chance.randrange(size))
    else:
        with open(path, "r+b") as handle:
            content = handle.read()
            location = chance.randrange(size) if what == "bit" else max(0, size - 8)
            turned = (
                bytes([content[location] ^ 1 << chance.randrange(8)]) if what == "bit" else content[location:] + b"x"
            )
            handle.seek(location if what == "bit" else size)
            handle.write(turned)
    return what


def files(folder: str) -> list[str]:
    return sorted(os.path.join(location, name) for location, _, names in os.walk(folder) for name in names)


@pytest.mark.parametrize("kind", nightly_but(["one", "zero2"], lambda kind: kind == "one"))
def test_a_damaged_checkpoint_is_passed_over(
    runs: Callable[[str], Runs], chance: random.Random, tmp_path: Path, kind: str
) -> None:
    here = runs(DEFAULT)
    bundle = compiled(here, kind)
    for going, hit in here.disturbed(bundle, str(tmp_path), 2):
        pause(here, going, bundle, chance)
        while going.lives and len(checkpoints(going.out)) < 2:
            time.sleep(0.01)
        going.kill()
        good = sound(going.out)
        if len(good) < 2 or going.done:
            continue
        path = chance.choice(files(os.path.join(going.out, good[-1])))
        what = hurt(path, chance)
        going.damaged.add(good[-1])
        hit[f"{what}: {os.path.relpath(path, going.out)}"] += 1
        again = here.start(bundle, going.cwd)
        again.until(lambda again=again: re.search(r"resuming from checkpoint-\d+\n", again.text))  # type: ignore[misc]
        assert f"{good[-1]} is skipped: " in again.text, (dict(hit), again.text)
        assert f"resuming from {good[-2]}\n" in again.text, (dict(hit), again.text)
        pause(here, again, bundle, chance)
        again.kill()
        # `keep` counts only intact checkpoints. So the checkpoint from which the run resumed stays until two newer ones
        # exist.
        again.check()


def test_whatever_happens_to_a_file_is_found(
    runs: Callable[[str], Runs], tmp_path: Path, chance: random.Random
) -> None:
    here = runs(DEFAULT)
    going = here.start(compiled(here, "zero2"), os.path.join(tmp_path, "cwd"))
    going.until(lambda: "checkpoint-9" in checkpoints(going.out))
    going.kill()
    newest = os.path.join(going.out, "checkpoint-9")
    assert checkpoints_of_runtime.newest_complete(going.out, 2, DeepSpeed().check_checkpoint, digests=True)[0] == newest
    found_there = files(newest)
    for number in range(100):
        path = chance.choice(found_there)
        with open(path, "rb") as handle:
            before = handle.read()
        what = hurt(path, chance)
        found, reported = checkpoints_of_runtime.newest_complete(
            going.out, 2, DeepSpeed().check_checkpoint, digests=True
        )
        assert os.path.basename(found or "") == "checkpoint-6", (number, what, path)
        assert "checkpoint-9 is skipped: " in reported[0]
        with open(path, "wb") as handle:
            handle.write(before)


def refused(here: Runs, bundle: str, cwd: str, **environ: str) -> Going:
    """Start a run; check that every process ends before the first step, and that the output has a single error
    message.
    """
    going = here.start(bundle, cwd, **environ)
    status = going.wait()
    assert 1 in status, f"{status}: {going.text}"
    assert set(status) <= {1, -signal.SIGUSR2}, f"{status}: {going.text}"
    assert going.text.count("error: ") == 1, going.text
    assert "Traceback" not in going.text, going.text
    return going


@pytest.mark.parametrize("kind", nightly_but(["one", "ddp"], lambda kind: kind == "ddp"))
def test_a_lost_data_file_is_named_and_waited_for(
    runs: Callable[[str], Runs], chance: random.Random, tmp_path: Path, kind: str
) -> None:
    """A run that has already read its rows continues when their file is lost. A run that starts while the file is
    missing fails; it succeeds when the file is back.
    """
    here = runs(DEFAULT)
    with open(os.path.join(here.location, "messages.jsonl"), encoding="utf-8") as handle:
        rows = handle.read()
    put(here.location, {"lost.jsonl": rows})
    source = text(steps=9, every=1, save="every=2 keep=2", **SHAPES[kind])  # type: ignore[arg-type]
    bundle = here.compiled(source.replace("messages.jsonl", "lost.jsonl"), f"lost-{kind}")
    data = os.path.join(bundle, "data", os.listdir(os.path.join(bundle, "data"))[0])
    aside, name = os.path.join(here.location, "aside"), os.path.basename(data)

    def start(bundle: str, cwd: str) -> Going:
        if chance.random() < 1 / 3:
            # in a third of the starts, the data file is lost before the run starts
            os.rename(data, aside)
        return here.start(bundle, cwd)

    for going, hit in here.disturbed(bundle, str(tmp_path), 3, start):
        if not os.path.exists(aside):
            pause(here, going, bundle, chance)
            moment, late = going.moment, chance.randrange(len(going.pids))
            if len(going.pids) > 1:
                # One process is paused, so that the others can read the file first; the file is then lost before the
                # paused process reads it.
                going.send(signal.SIGSTOP, late)
                time.sleep(chance.uniform(0, 0.3))
            os.rename(data, aside)
            time.sleep(chance.uniform(0, 0.3))
            going.send(signal.SIGCONT, late)
            pause(here, going, bundle, chance)
        else:
            moment = "before"
        if chance.random() < 0.5:
            going.send(signal.SIGKILL)
        status = going.wait()
        assert None not in status, going.text
        if 1 in status:
            assert name in going.text, going.text
        hit[f"lost while {moment}, ended with {status}"] += 1
        if going.done:
            os.rename(aside, data)
            continue
        assert name in refused(here, bundle, going.cwd).text
        with open(data, "w", encoding="utf-8") as handle:
            handle.write(rows.replace("red", "tan"))
        other = refused(here, bundle, going.cwd, XPC_PREFLIGHT="" if kind == "one" else "passed")
        assert "is not the file that this bundle was compiled with" in other.text
        os.rename(aside, data)


@pytest.mark.parametrize("lora", nightly_but(["", "lora(rank=4)"], lambda lora: bool(lora)))
def test_a_weight_of_another_shape_is_a_sentence(runs: Callable[[str], Runs], tmp_path: Path, lora: str) -> None:
    """A checkpoint without a record of digests has a weight of another shape. The status is not that of a temporary
    failure, because every start would fail.
    """
    here = runs(DEFAULT)
    source = text(*filter(None, [lora]), world=1, steps=2, save="every=1 keep=2")
    bundle = here.compiled(source, f"shape-{bool(lora)}")
    assert here.start(bundle, str(tmp_path), "faulty.py", XPC_BAD="nan 2 0 1").wait() == [1]
    path = tmp_path / "out" / "checkpoint-1" / ("adapter_model.safetensors" if lora else "model.safetensors")
    weights = load_file(path)
    name = next(name for name, weight in weights.items() if weight.ndim == 2)
    save_file({**weights, name: weights[name][1:]}, path, {"format": "pt"})
    (path.parent / checkpoint_integrity.RECORD).unlink()
    printed = refused(here, bundle, str(tmp_path)).text
    assert "error: delete the checkpoint, which does not fit the model: size mismatch for " in printed
    assert name.partition(".lora")[0] in printed


def test_a_process_that_alone_finds_no_data_tells_it(runs: Callable[[str], Runs], tmp_path: Path) -> None:
    here = runs(DEFAULT)
    bundle = here.compiled(text(steps=3), "alone")
    data = os.path.join(bundle, "data", os.listdir(os.path.join(bundle, "data"))[0])
    going = here.start(bundle, str(tmp_path), "faulty.py", XPC_LOST=data)
    status = going.wait()
    assert status == [-signal.SIGUSR2, 1], going.text
    assert going.text.count("error: cannot read messages.jsonl (train): ") == 1, going.text
    assert data in going.text
    assert "Traceback" not in going.text, going.text


@pytest.mark.parametrize("kind", nightly_but(["ddp", "zero2"], lambda kind: kind == "ddp"))
def test_a_step_that_was_computed_wrong_is_done_again(
    runs: Callable[[str], Runs], chance: random.Random, tmp_path: Path, kind: str
) -> None:
    """In one process, one loss is NaN or infinite: the run stops at that step, and the next start resumes from a
    checkpoint of an earlier step.
    """
    here = runs(DEFAULT)
    bundle = compiled(here, kind)
    drawn = ["", 0]

    def start(bundle: str, cwd: str) -> Going:
        there = checkpoints(os.path.join(cwd, "out"))
        first = int(there[-1].split("-")[1]) if there else 0
        drawn[:] = chance.choice(["nan", "inf"]), chance.randint(first + 1, STEPS)
        where = f"{drawn[0]} {drawn[1]} {chance.randrange(2)} {chance.randint(1, 2)}"
        return here.start(bundle, cwd, "faulty.py", XPC_BAD=where)

    for going, hit in here.disturbed(bundle, str(tmp_path), 3, start):
        status = going.wait()
        assert 1 in status, f"{drawn}: {going.text}"
        assert set(status) <= {1, -signal.SIGUSR2}, f"{status}: {going.text}"
        word, step = WORDS[str(drawn[0])], int(drawn[1])
        good = (step - 1) // 3 * 3
        reported = f"checkpoint-{good} is the newest one" if good else "there is no checkpoint yet"
        assert going.text.count(f"error: the loss is {word} at step {step}; this step is not saved ({reported})") == 1
        assert checkpoints(going.out)[-1:] == ([f"checkpoint-{good}"] if good else [])
        assert all(event["step"] < step for event in events(going.out))
        hit[f"{word} at step {step}"] += 1


def test_a_loss_that_is_no_number_is_allowed_where_written(
    runs: Callable[[str], Runs], chance: random.Random, tmp_path: Path
) -> None:
    here = runs(DEFAULT)
    source = text(world=1, steps=9, every=1, save="every=never").replace("precision fp32", "precision fp32(nan=allow)")
    bundle = here.compiled(source, "allowed")
    for number in range(3):
        word, step, batch = chance.choice(list(WORDS)), chance.randint(1, 9), chance.randint(1, 4)
        cwd = os.path.join(tmp_path, str(number))
        going = here.start(bundle, cwd, "faulty.py", XPC_BAD=f"{word} {step} 0 {batch}")
        assert going.wait() == [0], going.text
        assert going.text.count(f"the loss is {WORDS[word]} at step {step}; training continues") == 1
        assert going.text.count("training continues") == 1
        with open(os.path.join(going.out, "metrics.jsonl"), encoding="utf-8") as handle:
            # strict JSON has no NaN, so the line must not contain one
            lines = [json.loads(line, parse_constant=pytest.fail) for line in handle]
        assert [line["step"] for line in lines] == list(range(1, 10))
        assert all(isinstance(line["loss"], float) for line in lines[: step - 1])
        assert [line["loss"] for line in lines][step - 1 :] == [word] + ["nan"] * (9 - step)
        with open(os.path.join(going.out, "summary.json"), encoding="utf-8") as handle:
            assert json.load(handle, parse_constant=pytest.fail)["last_loss"] == (word if step == 9 else "nan")


def test_weights_that_overflow_stop_the_run(runs: Callable[[str], Runs], chance: random.Random, tmp_path: Path) -> None:
    here = runs(DEFAULT)
    rate = f"{10 ** chance.uniform(9, 18.9):.3e}".replace("+", "")
    source = text("schedule constant(warmup=2)", steps=8, every=1, save="every=1 keep=2")
    bundle = here.compiled(source.replace("lr=1e-3", f"lr=1, weight_decay={rate}"), "diverges")
    steps = []
    for _ in range(2):  # both starts fail at the same step; the second one has resumed from a checkpoint
        going = refused(here, bundle, str(tmp_path))
        reported = re.search(
            r"error: the loss is (nan|infinite) at step (\d+); this step is not saved \((\S+) is", going.text
        )
        assert reported is not None, going.text
        steps.append(int(reported[2]))
        good = [f"checkpoint-{one}" for one in range(1, steps[0])][-2:]
        assert reported[3] == good[-1]
        assert checkpoints(going.out) == good
        assert not os.path.exists(os.path.join(going.out, "model.safetensors"))
    assert steps[0] == steps[1]
    assert f"resuming from {good[-1]}" in going.text
