"""Parts of the runtime that use only the standard library: the world size, paths, the output folder, and
checkpoints.
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest
from run_features import enabled, read
from runtime_bundles import plan, source, write

from xpc.runtime.core import bundle as bundles
from xpc.runtime.core import checkpoint_integrity, checkpoints, output_folder, same_run
from xpc.runtime.core.errors import RunError, findings
from xpc.runtime.core.feature import Bundle
from xpc.runtime.features.distributed.deepspeed import DeepSpeed
from xpc.runtime.features.distributed.fsdp import Fsdp
from xpc.runtime.features.launch import local_files
from xpc.runtime.features.rows import local_sources
from xpc.runtime.features.saving.transformers_checkpoints import TransformersCheckpoints

PLAIN = TransformersCheckpoints().check_checkpoint

RUN = {"micro": 4, "accumulation": 2, "gbs": 16, "world_size": 2}


def test_the_world_that_was_planned_passes() -> None:
    bundles.check_world(RUN, {"WORLD_SIZE": "2"})


@pytest.mark.parametrize("world", ["1", "4"])
def test_another_world_size_is_refused_with_the_arithmetic(world: str) -> None:
    with pytest.raises(RunError, match=f"{world} x 4 sequences x 2 accumulation"):
        bundles.check_world(RUN, {"WORLD_SIZE": world})


def test_no_launcher_counts_as_one_process() -> None:
    with pytest.raises(RunError, match="started 1 process"):
        bundles.check_world(RUN, {})


def made(tmp_path: Path, name: str = "bundle", **arguments: object) -> Bundle:
    facts = plan("tiny", [source("data.jsonl")])
    facts["arguments"].update(arguments)
    (tmp_path / name).mkdir()
    return read(write(str(tmp_path / name), facts, "trl==1.16.0\ntorch==2.13.0 ; python_version > '3'\n"))


def test_a_bundle_is_read_with_its_pins(tmp_path: Path) -> None:
    assert dict(made(tmp_path).pins) == {"trl": "1.16.0", "torch": "2.13.0"}


def test_a_bundle_of_another_format_or_no_json_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "trainer_args.json").write_text('{"format": 99}')
    with pytest.raises(RunError, match="format 99"):
        read(str(tmp_path))
    (tmp_path / "trainer_args.json").write_text("{")
    with pytest.raises(RunError, match="is not JSON"):
        read(str(tmp_path))


def test_a_local_file_is_found_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, here, root = made(tmp_path), tmp_path / "here", tmp_path / "root"
    here.mkdir(), root.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("XPC_DATA_ROOT", str(root))
    with pytest.raises(RunError, match=r"tried .*root.*here"):
        local_files.find(bundle.folder, "d.jsonl")
    # the list is ordered: each folder is preferred to the folders before it
    for folder in (here, tmp_path, root):
        (folder / "d.jsonl").write_text("")
        assert local_files.find(bundle.folder, "d.jsonl") == str(folder / "d.jsonl")
    assert local_sources.path_of(bundle, "d.jsonl", "data/copy.jsonl") == str(tmp_path / "bundle/data/copy.jsonl")


def test_a_local_file_of_a_sweeps_member_is_found_next_to_the_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "s.bundle" / "members" / "lr=1e-06"
    folder.mkdir(parents=True)
    (tmp_path / "tiny").mkdir()
    with pytest.raises(RunError, match="was not found"):
        local_files.find(str(folder), "tiny")
    (tmp_path / "s.bundle" / "sweep.toml").write_text("")
    assert local_files.find(str(folder), "tiny") == str(tmp_path / "tiny")


def test_a_bundled_name_never_leads_out(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not inside the bundle"):
        made(tmp_path).inside("../secret")


def test_findings_are_reported_at_once() -> None:
    assert str(findings(["one"])) == "one"
    assert str(findings(["one", "two"])).splitlines()[1:] == ["  - one", "  - two"]


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("data", "x")


def safetensors(path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))


def checkpoint(out: Path, step: int) -> Path:
    folder = out / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    safetensors(folder / "model.safetensors")
    archive(folder / "optimizer.pt")
    archive(folder / "scheduler.pt")
    return folder


def test_the_newest_whole_checkpoint_is_used(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        checkpoint(tmp_path, step)
    used, reported = checkpoints.newest_complete(str(tmp_path), 1, PLAIN)
    assert used == str(tmp_path / "checkpoint-100")
    assert reported == [
        "checkpoint-100 has no xpc_files.json: the structure of its files was checked, not every byte",
    ]


def recorded(folder: Path) -> None:
    """Write xpc_files.json, which records the files of a checkpoint, as a save does."""
    seals = checkpoint_integrity.seal(str(folder), 0)
    (folder / checkpoint_integrity.RECORD).write_text(json.dumps({"files": seals}))


def test_what_is_proven_comes_before_what_is_newer(tmp_path: Path) -> None:
    for step in (2, 4, 6):
        checkpoint(tmp_path, step)
    recorded(tmp_path / "checkpoint-4")
    reason = "checkpoint-6 is skipped: its record xpc_files.json is missing"
    assert checkpoints.newest_complete(str(tmp_path), 1, PLAIN, digests=True) == (
        str(tmp_path / "checkpoint-4"),
        [reason],
    )
    (tmp_path / "checkpoint-4" / "optimizer.pt").unlink()  # now no checkpoint has both all files and digests
    assert checkpoints.newest_complete(str(tmp_path), 1, PLAIN, digests=True)[0] == str(tmp_path / "checkpoint-6")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("trainer_state.json", "trainer_state.json is cut off"),
        ("model.safetensors", "model.safetensors is missing or cut off"),
        ("optimizer.pt", "optimizer.pt is missing or cut off"),
        ("scheduler.pt", "scheduler.pt is missing or cut off"),
    ],
)
def test_a_cut_file_makes_a_checkpoint_unusable(tmp_path: Path, name: str, reason: str) -> None:
    recorded(checkpoint(tmp_path, 2))
    cut = checkpoint(tmp_path, 4) / name
    cut.write_bytes(cut.read_bytes()[:-3])
    used, skipped = checkpoints.newest_complete(str(tmp_path), 1, PLAIN)
    assert used == str(tmp_path / "checkpoint-2")
    assert len(skipped) == 1
    assert reason in skipped[0]


def test_sharded_weights_need_every_shard(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 2)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(shards))
    assert "model-00002-of-00002" in str(checkpoints.missing(str(folder), 2, 1, PLAIN))
    safetensors(folder / "model-00002-of-00002.safetensors")
    assert checkpoints.missing(str(folder), 2, 1, PLAIN) is None


def test_deepspeed_needs_a_shard_of_every_process(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 2)
    (folder / "latest").write_text("global_step2")
    (folder / "global_step2").mkdir()
    archive(folder / "global_step2/mp_rank_00_model_states.pt")
    archive(folder / "global_step2/zero_pp_rank_0_mp_rank_00_optim_states.pt")
    assert checkpoints.missing(str(folder), 2, 1, DeepSpeed().check_checkpoint) is None
    assert "1 optimizer shards" in str(checkpoints.missing(str(folder), 2, 2, DeepSpeed().check_checkpoint))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"])
def test_an_empty_file_makes_a_checkpoint_unusable(tmp_path: Path, name: str) -> None:
    folder = checkpoint(tmp_path, 2)
    (folder / name).write_bytes(b"")
    assert name in str(checkpoints.missing(str(folder), 2, 1, PLAIN))


def test_a_random_state_that_is_cut_off_is_found(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 2)
    archive(folder / "rng_state_0.pth")
    (folder / "rng_state_1.pth").write_bytes(b"")
    assert checkpoints.missing(str(folder), 2, 2, PLAIN) == "rng_state_1.pth is cut off"
    os.remove(folder / "rng_state_1.pth")  # transformers resumes even without random states
    assert checkpoints.missing(str(folder), 2, 2, PLAIN) is None


def shards(folder: Path) -> None:
    folder.mkdir()
    for name in ("__0_0.distcp", "__1_0.distcp", ".metadata"):
        (folder / name).write_bytes(b"x")


def test_fsdp_folders_need_every_shard_and_their_metadata(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 2)
    for name in ("model.safetensors", "optimizer.pt"):
        os.remove(folder / name)
    shards(folder / "pytorch_model_fsdp_0")
    assert checkpoints.missing(str(folder), 2, 2, Fsdp().check_checkpoint) == "optimizer is missing"
    shards(folder / "optimizer_0")
    assert checkpoints.missing(str(folder), 2, 2, Fsdp().check_checkpoint) is None
    os.remove(folder / "optimizer_0/.metadata")
    assert checkpoints.missing(str(folder), 2, 2, Fsdp().check_checkpoint) == "optimizer_0 is cut off"
    (folder / "optimizer_0/.metadata").write_bytes(b"x")
    (folder / "pytorch_model_fsdp_0/__1_0.distcp").write_bytes(b"")
    assert checkpoints.missing(str(folder), 2, 2, Fsdp().check_checkpoint) == "pytorch_model_fsdp_0 is cut off"


def test_whole_fsdp_files_are_archives(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 2)
    archive(folder / "pytorch_model_fsdp.bin")
    os.rename(folder / "optimizer.pt", folder / "optimizer.bin")
    assert checkpoints.missing(str(folder), 2, 2, Fsdp().check_checkpoint) is None
    (folder / "optimizer.bin").write_bytes(b"")
    assert checkpoints.missing(str(folder), 2, 2, Fsdp().check_checkpoint) == "optimizer.bin is cut off"


def test_weights_that_training_cannot_go_on_from_are_not_trained_over(tmp_path: Path) -> None:
    out = tmp_path / "out"
    bundle = made(tmp_path, output_dir=str(out), save_only_model=True)
    bundle.run["full_state"] = False
    bundle.features = enabled(bundle.plan).FEATURES
    folder = checkpoint(out, 4)
    (out / output_folder.MARKER).write_text(json.dumps({"bundle": bundle.digest}) + "\n")
    for name in ("optimizer.pt", "scheduler.pt"):
        os.remove(folder / name)
    with pytest.raises(RunError, match="checkpoints of weights only"):
        output_folder.begin(bundle)
    (folder / "model.safetensors").write_bytes(b"")  # an incomplete first save: nothing is lost
    assert output_folder.begin(bundle)[0] is None


@pytest.mark.parametrize("kept", [0, 1, 4096, -1])
def test_a_marker_that_a_kill_cut_off_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """A truncated marker file counts as a missing file. In this file, the line with the settings is several pages long,
    so a kill can truncate the file between two pages.
    """
    monkeypatch.setattr(output_folder, "LOCK_SECONDS", 0)
    out = tmp_path / "out"
    bundle = made(tmp_path, output_dir=str(out), optim_args="n" * 5000)
    output_folder.lock(bundle)
    assert output_folder._locked is not None
    output_folder._locked.close()
    marker = out / output_folder.MARKER
    whole = marker.read_bytes()
    assert whole.endswith(b"\n")
    assert len(whole) > 4097
    marker.write_bytes(whole[:kept])
    assert output_folder.begin(bundle) == (None, [])
    output_folder.lock(bundle)
    output_folder._locked.close()
    assert marker.read_bytes() == whole
    marker.write_bytes(whole[:kept])
    (out / "thesis.txt").write_text("")  # nothing shows that this folder belongs to a run
    with pytest.raises(RunError, match="contains no run of a bundle"):
        output_folder.begin(bundle)


def test_a_marker_is_written_whole_where_the_system_takes_it_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    bundle = made(tmp_path, output_dir=str(out))
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, bytes(data)[:100]))
    output_folder.lock(bundle)
    assert output_folder._locked is not None
    output_folder._locked.close()
    assert output_folder.difference(bundle) == ""


def test_a_marker_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / output_folder.MARKER).mkdir(parents=True)
    bundle = made(tmp_path, output_dir=str(out))
    output_folder.begin(bundle)
    with pytest.raises(RunError, match=r"cannot write to .*: Is a directory"):
        output_folder.lock(bundle)


def test_a_world_size_that_is_no_number_is_one_sentence() -> None:
    with pytest.raises(RunError, match="WORLD_SIZE is 'two'"):
        bundles.check_world(RUN, {"WORLD_SIZE": "two"})


@pytest.mark.slow
def test_the_output_folder_is_never_reused_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_folder, "LOCK_SECONDS", 0)  # a killed run may hold the lock a moment longer
    out = tmp_path / "out"
    bundle = made(tmp_path, output_dir=str(out), per_device_eval_batch_size=4)
    other = made(tmp_path, "other", output_dir=str(out), per_device_eval_batch_size=4, seed=7)
    assert output_folder.begin(bundle) == (None, [])
    out.mkdir()
    (out / "thesis.txt").write_text("")
    with pytest.raises(RunError, match="contains no run of a bundle"):
        output_folder.begin(bundle)
    os.remove(out / "thesis.txt")
    output_folder.lock(bundle)
    with pytest.raises(RunError, match="is training into"):
        output_folder.begin(bundle)
    assert output_folder._locked is not None
    output_folder._locked.close()  # the end of a process also closes its lock
    assert output_folder.begin(bundle) == (None, ["no complete checkpoint to resume from: starting from the beginning"])
    # A run that was refused before its first step leaves no files. So the folder is free for a run of the corrected
    # spec.
    assert output_folder.begin(other) == (None, ["no complete checkpoint to resume from: starting from the beginning"])
    never = made(tmp_path, "never", output_dir=str(out), per_device_eval_batch_size=4)
    never.run["resume"] = "never"
    assert output_folder.begin(never)[0] is None
    (out / "metrics.jsonl").write_text("")
    with pytest.raises(RunError, match=r"a run of another bundle: arguments.seed was \S+ and is 7; name"):
        output_folder.begin(other)
    with pytest.raises(RunError, match="does not resume"):
        output_folder.begin(never)
    recorded(checkpoint(out, 4))
    assert output_folder.begin(bundle) == (str(out / "checkpoint-4"), ["resuming from checkpoint-4"])
    others = {"save_steps": 3, "save_total_limit": 1, "logging_steps": 7, "ddp_timeout": 60}
    free = made(tmp_path, "free", output_dir=str(out), per_device_eval_batch_size=4, **others)
    assert free.digest != bundle.digest
    assert output_folder.begin(free) == (str(out / "checkpoint-4"), ["resuming from checkpoint-4"])
    moved = made(tmp_path, "moved", output_dir=str(tmp_path / "moved-out"))  # a folder may be moved between two starts
    assert same_run.differences(same_run.settings(bundle), same_run.settings(moved), bundle.run["division"]) == ""
    more = made(tmp_path, "more", output_dir=str(out), per_device_eval_batch_size=2)
    more.run.update(world_size=2 * bundle.run["world_size"], micro=bundle.run["micro"] // 2)
    more.digest = "sha256:more"
    found, notes = output_folder.begin(more)
    assert (found, notes[-1]) == (str(out / "checkpoint-4"), "resuming from checkpoint-4")
    assert notes[-2].startswith(
        "a step's 8 sequences are 2 process(es) x 2 sequences x 2 accumulation now; the run began"
    )
    more.run["division"]["step"] = "`dataloader_drop_last` leaves out rows"
    with pytest.raises(RunError, match=r"of another bundle: .*run.world_size was 1 and is 2 \(`dataloader_drop"):
        output_folder.begin(more)
    (out / "summary.json").write_text("{}")
    for one in (bundle, free):
        with pytest.raises(output_folder.Finished, match="finished"):
            output_folder.begin(one)
    bundle.run["resume"] = "never"
    with pytest.raises(RunError, match="does not resume"):
        output_folder.begin(bundle)
