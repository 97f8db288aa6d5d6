"""The runtime writes, names, verifies and deletes the files of a checkpoint, and writes events to metrics.jsonl."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest
from stacks import REPOSITORY

from xpc.runtime.core import checkpoint_integrity, fault_tolerance, signals
from xpc.runtime.core.errors import RunError
from xpc.runtime.features.saving import rotation

pytestmark = pytest.mark.slow


def checkpoint(out: str, name: str = "checkpoint-2") -> str:
    """Write a checkpoint into the folder in which a run collects an unfinished checkpoint, with the files of two
    processes.
    """
    folder = os.path.join(checkpoint_integrity.staging(out), name)
    os.makedirs(os.path.join(folder, "global_step2"))
    for file in (
        "model.safetensors",
        "rng_state_0.pth",
        "rng_state_1.pth",
        "global_step2/zero_pp_rank_1_mp_rank_00.pt",
    ):
        with open(os.path.join(folder, file), "wb") as handle:
            handle.write(file.encode() * 3)
    return folder


def finished(out: str, name: str = "checkpoint-2") -> str:
    folder = checkpoint(out, name)
    return checkpoint_integrity.finish(
        out, name, {**checkpoint_integrity.seal(folder, 0), **checkpoint_integrity.seal(folder, 1)}
    )


def test_each_process_seals_what_it_wrote(tmp_path: Path) -> None:
    folder = checkpoint(str(tmp_path))
    assert set(checkpoint_integrity.seal(folder, 0)) == {"model.safetensors", "rng_state_0.pth"}
    assert set(checkpoint_integrity.seal(folder, 1)) == {"rng_state_1.pth", "global_step2/zero_pp_rank_1_mp_rank_00.pt"}
    for name, process in {
        "bf16_zero_pp_rank_12_mp_rank_00_optim_states.pt": 12,
        "__3_0.distcp": 3,
        ".metadata": 0,
    }.items():
        assert checkpoint_integrity._writer(f"folder/{name}") == process


def test_checkpoint_gets_its_name_when_it_is_complete(tmp_path: Path) -> None:
    out = str(tmp_path)
    path = finished(out)
    assert os.listdir(out) == ["checkpoint-2"]
    assert checkpoint_integrity.broken(path, digests=True) is None
    rotation.remove(path)
    assert os.listdir(out) == []


def test_the_same_step_again_takes_the_place_of_what_was_broken(tmp_path: Path) -> None:
    path = finished(str(tmp_path))
    os.truncate(os.path.join(path, "model.safetensors"), 3)
    assert finished(str(tmp_path)) == path
    assert os.listdir(str(tmp_path)) == ["checkpoint-2"]
    assert checkpoint_integrity.broken(path, digests=True) is None


def test_every_kind_of_damage_is_named(tmp_path: Path) -> None:
    path = finished(str(tmp_path))
    name = os.path.join(path, "model.safetensors")
    with open(name, "rb") as handle:
        content = handle.read()
    for wrong, output in (
        (content[:-1], "model.safetensors is cut off (50 of 51 bytes)"),
        (content + b"x", "model.safetensors has grown"),
        (content[:-1] + b"x", "model.safetensors is corrupted (its sha256 differs from the recorded one)"),
    ):
        with open(name, "wb") as handle:
            handle.write(wrong)
        assert checkpoint_integrity.broken(path, digests=True) == output
    # the size is right, so a check without digests does not find this damage
    assert checkpoint_integrity.broken(path, digests=False) is None
    os.remove(name)
    assert checkpoint_integrity.broken(path, digests=False) == "model.safetensors is missing"


def test_a_file_that_is_missing_before_the_name_is_given(tmp_path: Path) -> None:
    folder = checkpoint(str(tmp_path))
    seals = checkpoint_integrity.seal(folder, 0)
    os.remove(os.path.join(folder, "rng_state_0.pth"))
    with pytest.raises(FileNotFoundError):
        checkpoint_integrity.finish(str(tmp_path), "checkpoint-2", seals)
    assert os.listdir(str(tmp_path)) == ["_saving"]


def test_a_large_file_is_hashed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint(str(tmp_path))
    one = checkpoint_integrity.seal(folder, 0)["model.safetensors"]
    monkeypatch.setattr(checkpoint_integrity, "PART", 16)
    parts = checkpoint_integrity.seal(folder, 0)["model.safetensors"]
    assert parts[0] == one[0] == 51
    assert parts[1] != one[1]
    written = b"model.safetensors" * 3
    hashes = [sha256(written[start : start + 16]).digest() for start in range(0, 51, 16)]
    assert parts[1] == sha256(b"".join(hashes)).hexdigest()


def torch_save(path: str) -> None:
    import torch

    torch.save({"step": 1}, path)


def safetensors_save(path: str) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, path)


def json_save(path: str) -> None:
    with open(path, "w", encoding="utf-8") as handle:
        json.dump({}, handle)


@pytest.mark.parametrize("write", [torch_save, safetensors_save, json_save])
def test_a_write_after_process_0_deleted_the_folder_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[str], None]
) -> None:
    """On a full disk, process 0 deletes the partial checkpoint. If another process still writes into this checkpoint,
    it reports one error, without a traceback.
    """
    monkeypatch.setenv("RANK", "1")
    folder = checkpoint(str(tmp_path))
    checkpoint_integrity.clear(str(tmp_path))
    with (
        pytest.raises(RunError, match=r"checkpoint-2 cannot be written to .*; free some space, and the same command"),
        fault_tolerance.writing("checkpoint-2", str(tmp_path), []),
    ):
        write(os.path.join(folder, "rng_state_1.pth"))


class Losses:
    """A class that stands in for a trainer. It computes the given losses, one per step."""

    def __init__(self, *losses: float) -> None:
        torch = pytest.importorskip("torch")
        self.losses = iter(torch.tensor(loss) for loss in losses)
        self.args = SimpleNamespace(device=torch.device("cpu"), world_size=1, fp16=False)
        self.state = SimpleNamespace(global_step=7, max_steps=20)
        # In a run of one process, `gather` returns its argument.
        self.accelerator = SimpleNamespace(gather=lambda losses: losses)

    def training_step(self) -> object:
        return next(self.losses)


class Trainer(fault_tolerance.FaultTolerant, Losses):
    """A stand-in for the trainer, which the runtime derives from a trainer of TRL."""


@pytest.mark.parametrize(("losses", "word"), [((1.0, float("inf")), "infinite"), ((float("nan"), 1.0), "nan")])
def test_one_micro_batch_without_a_number_is_enough(losses: tuple[float, ...], word: str) -> None:
    trainer = Trainer(*losses)
    for _ in losses:
        trainer.training_step()
    with pytest.raises(
        RunError, match=f"the loss is {word} at step 7; this step is not saved \\(there is no checkpoint"
    ):
        trainer.agree()


def test_unlogged_losses_are_in_the_next_log() -> None:
    first, second = Trainer(0.1, 0.2, 0.3), Trainer(0.4)
    total = first.training_step() + first.training_step() + first.training_step()
    first.windows, first._globalstep_last_logged = [float(first.window)], 5
    second.args.process_index = 0
    second.restore_unlogged(json.loads(json.dumps(first.unlogged())))
    assert second._globalstep_last_logged == 5
    assert float(second.training_step()) == float(total + 0.4)


@pytest.mark.slow  # this import loads transformers' trainer, which takes seconds
def test_lines_are_json_whatever_the_loss_is() -> None:
    pytest.importorskip("transformers")
    from xpc.runtime.core import metrics_file

    line = metrics_file.written({"step": 1, "loss": float("nan"), "grad_norm": float("-inf"), "lr": 1e-5})
    assert json.loads(line, parse_constant=pytest.fail) == {"step": 1, "loss": "nan", "grad_norm": "-inf", "lr": 1e-5}


DEAF = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from runtime.core import signals
signals.listen()
signals.StopRequest.training = True
child = os.fork()
if not child:
    time.sleep(60)
os.kill(child, signal.SIGUSR1)
time.sleep(0.2)
assert os.waitpid(child, os.WNOHANG) == (0, 0), "a process that loads data dies of SIGUSR1"
os.kill(child, signal.SIGTERM)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
assert signals.StopRequest.name is None
os.kill(os.getpid(), signal.SIGUSR1)
for _ in range(60_000):
    if signals.StopRequest.name:
        break
    time.sleep(0.01)
print(signals.StopRequest.name)
"""


def test_processes_that_load_data_do_not_hear_the_wish() -> None:
    done = subprocess.run([sys.executable, "-c", DEAF, REPOSITORY], capture_output=True, text=True, check=False)
    assert done.stdout == "SIGUSR1\n", done.stderr


def test_a_process_that_only_waits_hears_it() -> None:
    waits = "import sys, threading; sys.path.insert(0, sys.argv[1]); from runtime.core import signals; "
    waits += "signals.listen(); "
    waits += "print(flush=True); lock = threading.Lock(); lock.acquire(); lock.acquire()"
    with subprocess.Popen([sys.executable, "-c", waits, REPOSITORY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == signals.REQUEUE
        assert "asked to stop before the first step: there is nothing to save" in process.stdout.read()
