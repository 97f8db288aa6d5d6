"""The small files of an output folder may contain anything. A start reads them or skips them, and never ends with a
traceback.

The tests write into each file every kind of content that a full disk, an incomplete copy or an edit can cause.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_runtime_bundle import archive, checkpoint, made, recorded

from xpc.runtime.core import checkpoint_integrity, checkpoints, data_sources, output_folder
from xpc.runtime.core.errors import RunError
from xpc.runtime.features.distributed.deepspeed import DeepSpeed
from xpc.runtime.features.rows import local_sources
from xpc.runtime.features.saving import transformers_checkpoints
from xpc.runtime.features.saving.transformers_checkpoints import TransformersCheckpoints

pytestmark = pytest.mark.slow

STATES = {
    False: TransformersCheckpoints().check_checkpoint,
    True: DeepSpeed().check_checkpoint,
}

CONTENTS = {
    "no UTF-8": b"global_step4\xb9",
    "NUL": b"global\0step4",
    "empty": b"",
    "spaces": b"  \n",
    "a list": b"[1, 2]",
    "a text": b'"step"',
    "null": b"null",
    "nested": b"[" * 100_000,
    "infinite": b'{"files": {"optimizer.pt": [Infinity, "x"]}, "weight_map": 7, "global_step": 4}',
    "names that no file has": b'{"files": {"a\\u0000b": [1, "x"], "\\ud800": [1, "x"]}, "global_step": 4}',
    "names of another type": b'{"files": [[1, 2, 3]], "weight_map": {"a": 5, "b": null}, "global_step": 4}',
    "a long name": json.dumps({"files": {"x" * 5000: [1, "y"]}, "global_step": 4}).encode(),
}
SMALL = (
    "latest",
    "trainer_state.json",
    checkpoint_integrity.RECORD,
    "model.safetensors.index.json",
    "model.safetensors",
)


def folder(tmp_path: Path, deepspeed: bool) -> Path:
    """Write a folder with two complete checkpoints; return the path of the newer one."""
    for step in (2, 4):
        made_here = checkpoint(tmp_path, step)
        if deepspeed:
            (made_here / "latest").write_text(f"global_step{step}")
            (made_here / f"global_step{step}").mkdir()
            for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
                archive(made_here / f"global_step{step}" / name)
        recorded(made_here)
    return tmp_path / "checkpoint-4"


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("zero", [False, True], ids=["plain", "zero"])
def test_a_damaged_small_file_is_passed_over(tmp_path: Path, zero: bool, name: str, content: bytes) -> None:
    newest = folder(tmp_path, zero)
    if name == "latest" and not zero:
        name = "scheduler.pt"
    (newest / name).write_bytes(content)
    if name == checkpoint_integrity.RECORD or name.endswith("index.json"):
        (newest / "surplus").write_bytes(b"")
    for digests in (False, True):
        used, reported = checkpoints.newest_complete(str(tmp_path), 1, STATES[zero], digests)
        if not (name.endswith("index.json") and zero):  # ZeRO resumes from its own shards
            assert used == str(tmp_path / "checkpoint-2"), reported
            assert reported[0].startswith("checkpoint-4 is skipped: "), reported


def test_the_draw_that_failed_a_first_run(tmp_path: Path) -> None:
    """The random test failed with XPC_SEED=2064391426: one bit of the file `latest` was flipped, so that it was not
    UTF-8 any more.
    """
    newest = folder(tmp_path, deepspeed=True)
    (newest / "latest").write_bytes(b"global_step4"[:-1] + b"\xb4")
    used, reported = checkpoints.newest_complete(str(tmp_path), 1, DeepSpeed().check_checkpoint)
    assert used == str(tmp_path / "checkpoint-2")
    assert reported == ["checkpoint-4 is skipped: latest is damaged"]


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_weights_that_cannot_be_read_are_not_whole(tmp_path: Path, content: bytes) -> None:
    newest = folder(tmp_path, deepspeed=False)
    (newest / "model.safetensors").write_bytes(content)
    assert not transformers_checkpoints.weights_complete(str(newest))
    (newest / "model.safetensors.index.json").write_bytes(content)
    assert not transformers_checkpoints.weights_complete(str(newest))


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_damaged_marker_is_nobodys_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    bundle = made(tmp_path)
    out = Path(bundle.output_dir)
    out.mkdir(parents=True)
    (out / output_folder.MARKER).write_bytes(content)
    (out / "metrics.jsonl").write_bytes(b"")
    with pytest.raises(RunError, match="contains no run of a bundle"):
        output_folder.begin(bundle)
    # Only the line `finishing` is damaged, so the folder still belongs to this run.
    (out / output_folder.MARKER).write_bytes(json.dumps({"bundle": bundle.digest}).encode() + b"\n" + content)
    assert output_folder.begin(bundle)[0] is None


def test_a_revision_that_the_hub_lacks_is_named(tmp_path: Path) -> None:
    """The error of `datasets` names the revision; its cause, an error of the hub's client, is only "404"."""
    bundle = made(tmp_path)
    error = FileNotFoundError("Revision 'c0ffee' doesn't exist for dataset 'org/rows' on the Hub.")
    error.__cause__ = OSError("404 Client Error. (Request ID: 1)\n\nRevision Not Found")
    reported = data_sources.unreadable(
        bundle, {**bundle.data["sources"][0], "id": "org/rows", "path": None}, None, error
    )
    assert (
        reported == "cannot read org/rows (train): Revision 'c0ffee' doesn't exist for dataset 'org/rows' on the Hub."
    )


def test_data_that_goes_away_while_it_is_read_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bundle = made(tmp_path)
    row = {**bundle.data["sources"][0], "path": "data.jsonl", "sha256": "0" * 64}
    reported = data_sources.unreadable(bundle, row, None, FileNotFoundError(2, "No such file or directory"))
    assert reported.startswith("cannot read data.jsonl (train): 'data.jsonl' was not found")
    (tmp_path / "data.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match="is not the file that this bundle was compiled with"):
        local_sources.files(bundle, row, "train")
