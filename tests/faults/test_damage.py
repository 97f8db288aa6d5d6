"""What is cut short, corrupted, full, lost or taken: told in a sentence, and gone on from what is good."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from emitted import NEW, put
from fault_runs import Going, Runs, checkpoints, differences, events, result, text

from xpc.runtime import checkpoints as checkpoints_of_runtime

pytestmark = pytest.mark.slow
LONG = 2000


def stopped(here: Runs, bundle: str, cwd: str, step: int) -> Going:
    """A run that was asked to stop after a step, and did."""
    going = here.start(bundle, cwd)
    going.until_step(step)
    going.send(signal.SIGTERM, 0)
    assert set(going.wait()) == {75}, going.text
    return going


def killed(here: Runs, bundle: str, cwd: str, name: str) -> Going:
    """A run that was killed once a checkpoint was there."""
    going = here.start(bundle, cwd)
    going.until(lambda: name in checkpoints(going.out))
    going.kill()
    return going


def cut(path: str) -> None:
    os.truncate(path, os.path.getsize(path) - 7)


def flip(path: str) -> None:
    with open(path, "r+b") as handle:
        handle.seek(os.path.getsize(path) // 2)
        byte = handle.read(1)
        handle.seek(-1, os.SEEK_CUR)
        handle.write(bytes([byte[0] ^ 1]))


DAMAGES = {
    "cut": ("one", "model.safetensors", cut, "model.safetensors is missing or cut off"),
    "corrupted": (
        "one",
        "optimizer.pt",
        flip,
        "optimizer.pt is corrupted (its sha256 is not that of what was written)",
    ),
    "lost": ("one", "rng_state.pth", os.remove, "rng_state.pth is missing"),
    "record": ("one", "xpc_files.json", cut, "xpc_files.json is cut off"),
    "shard": (
        "zero2",
        "global_step9/zero_pp_rank_1_mp_rank_00_optim_states.pt",
        flip,
        "_rank_00_optim_states.pt is corr",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over(runs: Callable[[str], Runs], tmp_path: object, damage: str) -> None:
    kind, name, do, reason = DAMAGES[damage]
    here = runs(NEW)
    shape = {"world": 1} if kind == "one" else {"world": 2, "strategy": "zero2"}
    bundle = here.compiled(text(steps=14, save="every=3 keep=2", every=1, **shape), f"damage-{kind}")  # type: ignore[arg-type]
    cwd = os.path.join(str(tmp_path), "cwd")
    going = killed(here, bundle, cwd, "checkpoint-9")
    assert checkpoints(going.out)[-1] == "checkpoint-9"
    do(os.path.join(going.out, "checkpoint-9", name))
    again = here.start(bundle, cwd)
    again.until_step(7)
    again.send(signal.SIGTERM)
    assert set(again.wait()) == {75}, again.text
    assert "checkpoint-9 is skipped: " in again.text
    assert reason in again.text
    assert "going on from checkpoint-6" in again.text
    # The broken one counts for nothing: `keep = 2` left the one that was gone on from.
    left = checkpoints(again.out)
    assert left[0] == "checkpoint-6"
    assert len(left) == 2
    here.finish(bundle, cwd)
    assert differences(result(again.out), here.alone(bundle)) == []


def hurt(path: str, chance: random.Random) -> str:
    """Something that happens to a file: cut anywhere, a bit turned over, bytes of its end doubled, or gone."""
    size = os.path.getsize(path)
    what = chance.choice(("cut", "bit", "longer", "gone") if size else ("longer", "gone"))
    if what == "gone":
        os.remove(path)
    elif what == "cut":
        os.truncate(path, chance.randrange(size))
    else:
        with open(path, "r+b") as handle:
            content = handle.read()
            place = chance.randrange(size) if what == "bit" else max(0, size - 8)
            turned = bytes([content[place] ^ 1 << chance.randrange(8)]) if what == "bit" else content[place:] + b"x"
            handle.seek(place if what == "bit" else size)
            handle.write(turned)
    return what


def test_whatever_happens_to_a_file_is_found(
    runs: Callable[[str], Runs], tmp_path: object, chance: random.Random
) -> None:
    here = runs(NEW)
    bundle = here.compiled(text(steps=14, save="every=3 keep=2", every=1, world=2, strategy="zero2"), "damage-zero2")
    going = killed(here, bundle, os.path.join(str(tmp_path), "cwd"), "checkpoint-9")
    newest = os.path.join(going.out, "checkpoint-9")
    files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(newest) for name in names)
    assert checkpoints_of_runtime.newest_complete(going.out, 2, True, digests=True)[0] == newest
    for number in range(100):
        path = chance.choice(files)
        with open(path, "rb") as handle:
            before = handle.read()
        what = hurt(path, chance)
        found, told = checkpoints_of_runtime.newest_complete(going.out, 2, True, digests=True)
        assert os.path.basename(found or "") == "checkpoint-6", (number, what, path)
        assert "checkpoint-9 is skipped: " in told[0]
        with open(path, "wb") as handle:
            handle.write(before)


def test_another_run_in_the_folder_is_refused(runs: Callable[[str], Runs], tmp_path: object) -> None:
    here = runs(NEW)
    bundle = here.compiled(text(world=1, steps=LONG, every=1, save="every=never"), "live")
    first = here.start(bundle, str(tmp_path))
    first.until_step(1)
    second = here.start(bundle, str(tmp_path))
    assert second.wait() == [1]
    assert second.text.count("a run is training into") == 1
    before = len(events(first.out))
    first.until_step(before + 1)  # it is none the worse
    first.kill()
    third = here.start(bundle, str(tmp_path))  # and a killed one holds nothing
    third.until(lambda: "no complete checkpoint to go on from: starting anew" in third.text)
    third.kill()


def test_a_lost_data_file_is_named_and_waited_for(runs: Callable[[str], Runs], tmp_path: object) -> None:
    here = runs(NEW)
    with open(os.path.join(here.place, "messages.jsonl"), encoding="utf-8") as handle:
        put(here.place, {"lost.jsonl": handle.read()})
    source = text(world=1, steps=9, every=1, save="every=4").replace("messages.jsonl", "lost.jsonl")
    bundle = here.compiled(source, "lost")
    data = os.path.join(bundle, "data")
    data, aside = os.path.join(data, os.listdir(data)[0]), os.path.join(here.place, "aside")
    cwd = os.path.join(str(tmp_path), "cwd")
    killed(here, bundle, cwd, "checkpoint-4")
    os.rename(data, aside)
    for preflight in ("passed", ""):
        refused = here.start(bundle, cwd, XPC_PREFLIGHT=preflight)
        assert refused.wait() == [1]
        assert os.path.basename(data) in refused.text
        assert "Traceback" not in refused.text
    with open(aside, encoding="utf-8") as handle:
        put(here.place, {os.path.relpath(data, here.place): handle.read().replace("red", "tan")})
    changed = here.start(bundle, cwd)
    assert changed.wait() == [1]
    assert "is not the file that this bundle was compiled with" in changed.text
    os.rename(aside, data)
    here.finish(bundle, cwd)
    assert differences(result(os.path.join(cwd, "out")), here.alone(bundle)) == []


@pytest.fixture
def small(tmp_path: object) -> Iterator[str]:
    """A folder on a disk of 4 MiB: one checkpoint of the tiny model, and not two."""
    folder = os.path.join(str(tmp_path), "small")
    os.mkdir(folder)
    words = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("XPC_EVERY_TEST"):
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path: str) -> None:
    """To the last byte."""
    with suppress(OSError), open(path, "wb", buffering=0) as handle:
        while True:
            handle.write(bytes(4096))


def grow(folder: str) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)


@pytest.mark.parametrize("kind", ["one", "zero2"])
def test_a_full_disk_while_saving(runs: Callable[[str], Runs], tmp_path: object, small: str, kind: str) -> None:
    here = runs(NEW)
    shape = {"world": 1} if kind == "one" else {"world": 2, "strategy": "zero2"}
    bundle = here.compiled(text(steps=14, save="every=3 keep=2", every=1, **shape), f"damage-{kind}")  # type: ignore[arg-type]
    full = here.start(bundle, small)
    status = full.wait()
    assert 1 in status, full.text
    assert None not in status, full.text
    told = re.search(r"checkpoint-(\d+) cannot be written to .*: No space left on device; free some space, and the "
                     r"same command goes on from (checkpoint-\d+)\n", full.text)  # fmt: skip
    assert told is not None, full.text
    good = f"checkpoint-{int(told[1]) - 3}"
    assert told[2] == good
    assert "Traceback" not in full.text, full.text
    assert checkpoints(full.out)[-1] == good
    grow(small)
    again = here.finish(bundle, small)
    assert f"going on from {good}" in again.text
    assert differences(result(again.out), here.alone(bundle)) == []


def test_a_full_disk_while_logging(runs: Callable[[str], Runs], tmp_path: object, small: str) -> None:
    here = runs(NEW)
    bundle = here.compiled(text(world=1, steps=40, every=1, save="every=3 keep=1"), "logging")
    going = here.start(bundle, small)
    going.until(lambda: checkpoints(going.out) == ["checkpoint-3"])
    going.send(signal.SIGSTOP)
    fill(os.path.join(small, "filler"))
    going.send(signal.SIGCONT)
    assert going.wait() == [1]
    assert "cannot be written" in going.text or "metrics.jsonl: No space left on device" in going.text
    assert "free some space, and the same command goes on from " in going.text
    assert "Traceback" not in going.text, going.text
    os.remove(os.path.join(small, "filler"))
    grow(small)
    here.finish(bundle, small)
    assert differences(result(going.out), here.alone(bundle)) == []


DIVERGES = text(steps=5, every=1, save="every=1 keep=2").replace("lr=1e-3", "lr=1e18")


def test_a_loss_that_is_no_number_stops_the_run(runs: Callable[[str], Runs], tmp_path: object) -> None:
    here = runs(NEW)
    bundle = here.compiled(DIVERGES, "diverges")
    for _ in range(2):  # once more from the checkpoint: it is as good as it was
        going = here.start(bundle, str(tmp_path))
        status = going.wait()
        assert 1 in status
        assert set(status) <= {1, -signal.SIGUSR2}  # the launcher sends away whom the other left behind
        assert going.text.count("error: the loss is nan at step 2; nothing is saved of it (checkpoint-1 is") == 1
        assert "Traceback" not in going.text
        assert checkpoints(going.out) == ["checkpoint-1"]
        assert not os.path.exists(os.path.join(going.out, "model.safetensors"))
    assert "going on from checkpoint-1" in going.text


def test_a_loss_that_is_no_number_is_allowed_where_written(runs: Callable[[str], Runs], tmp_path: object) -> None:
    here = runs(NEW)
    bundle = here.compiled(DIVERGES.replace("precision fp32", "precision fp32(nan=allow)"), "allowed")
    going = here.finish(bundle, str(tmp_path))
    assert going.text.count("the loss is nan at step 2; training goes on") == 1
    with open(os.path.join(going.out, "metrics.jsonl"), encoding="utf-8") as handle:
        lines = [json.loads(line, parse_constant=pytest.fail) for line in handle]  # JSON has no word NaN
    assert [event["loss"] for event in lines][1:] == ["nan"] * 4
    with open(os.path.join(going.out, "summary.json"), encoding="utf-8") as handle:
        assert json.load(handle, parse_constant=pytest.fail)["last_loss"] == "nan"
