"""A run pushes to a fake hub on this machine. It checks its access first, pushes checkpoints during the training, and
pushes the final model at the end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_features import read
from runtime_bundles import ROOT, plan, source, write

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from xpc.compiler.preview.rehearsal.local_hub import READ, SCOPED, WRITE, Hub
from xpc.runtime.core import output_folder, preflight
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.feature import Bundle
from xpc.runtime.features.saving import hub as pushing

pytestmark = pytest.mark.slow

STATE = {"optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"}


@pytest.fixture
def server() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


def pushes(folder: Path, name: str | None = "me/model", **changes: Any) -> Bundle:
    """A bundle that pushes to the hub. ``changes`` are trainer arguments, or the values `checkpoint_branches` and
    `revision` of the section `hub`.
    """
    facts = plan("tiny", [source("d.jsonl")])
    facts["hub"] = {one: changes.pop(one, None) for one in ("checkpoint_branches", "revision")}
    facts["arguments"].update({"push_to_hub": True, "hub_model_id": name, "output_dir": str(folder / "out"), **changes})
    return read(write(str(folder / "bundle"), facts))


def at(server: Hub, monkeypatch: pytest.MonkeyPatch, token: str | None = WRITE) -> None:
    """Let this process's hub client use the fake hub."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import constants

    for name in ("ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.setattr(constants, name, server.url if name == "ENDPOINT" else False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    for name in (*pushing.OFFLINE, "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", os.devnull)
    if token:
        monkeypatch.setenv("HF_TOKEN", token)


def test_a_run_that_does_not_push_asks_nothing(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at(server, monkeypatch)
    bundle = pushes(tmp_path, push_to_hub=False)
    assert pushing.Hub().check_access(bundle) == []
    pushing.Hub().output_folder_locked(bundle)
    assert (bundle.repository, server.requested) == (None, [])


@pytest.mark.parametrize(
    ("name", "token", "words"),
    [
        ("me/model", None, "no token was found; set HF_TOKEN, or log in with `hf auth login`"),
        ("me/model", "hf_old", "does not know the token (it has expired, or is not complete); set another in HF_TOKEN"),
        ("model", READ, "me/model, and the token may only read; create one with write access, and set it in HF_TOKEN"),
        ("them/model", WRITE, "is not a member of them; name a repository of me, team"),
        ("team/model", SCOPED, "no write access to repositories of team; add this access, or create another token"),
        ("team/closed", WRITE, "which exists, and the token may not write to it; name another repository"),
    ],
)
def test_what_keeps_it_from_pushing_is_found_before(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, token: str | None, words: str
) -> None:
    server.make("team/closed")
    server.closed.add("team/closed")
    at(server, monkeypatch, token)
    found = pushing.Hub().check_access(pushes(tmp_path, name))
    assert len(found) == 1
    assert words in found[0]
    assert not [one for one in server.requested if one.startswith("POST")], "the check changes nothing on the hub"


@pytest.mark.parametrize("name", pushing.OFFLINE)
def test_offline_is_found_before(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    at(server, monkeypatch)
    monkeypatch.setenv(name, "1")
    (found,) = pushing.Hub().check_access(pushes(tmp_path))
    assert f"{name}=1 disables the network; unset it, or remove `hub` from the spec" in found
    assert server.requested == []


def test_the_preflight_tells_it(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at(server, monkeypatch, READ)
    monkeypatch.setattr(preflight.machine, "devices", lambda *_: [])
    for check in ("disk", "rows_and_tokens"):
        monkeypatch.setattr(preflight, check, lambda _: [])
    with pytest.raises(RunError, match="the token may only read"):
        preflight.check(pushes(tmp_path), 0, 0)


def test_a_hub_that_does_not_answer_is_found_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hub() as removed:
        at(removed, monkeypatch)
    (found,) = pushing.Hub().check_access(pushes(tmp_path))
    assert "cannot be reached" in found


def test_who_may_push_passes(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, (name, token) in enumerate((("model", WRITE), ("team/model", WRITE), ("me/model", SCOPED))):
        at(server, monkeypatch, token)
        assert pushing.Hub().check_access(pushes(tmp_path / str(number), name)) == []
    server.make("me/model")
    assert pushing.Hub().check_access(pushes(tmp_path / "there")) == []
    assert "me/model is on the hub already: this run adds commits to it" in capsys.readouterr().out


def checkpoint(out: Path, step: int) -> str:
    """Make a folder with the files of a checkpoint. The content of each file depends on `step`."""
    folder = out / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", *STATE):
        (folder / name).write_text(f"{name} {step}")
    (folder / "model.safetensors").write_bytes(weights(step))
    return str(folder)


def weights(step: int) -> bytes:
    """A safetensors file that has no tensors. Its header contains the number of the step."""
    header = json.dumps({"__metadata__": {"step": str(step)}}).encode()
    return len(header).to_bytes(8, "little") + header


def test_the_repository_and_the_branch_are_made(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at(server, monkeypatch)
    bundle = pushes(tmp_path, None, hub_private_repo=True, revision="v1.0")
    for _ in range(2):  # a resumed run does not create the repository and the branch again
        pushing.Hub().output_folder_locked(bundle)
    assert bundle.repository == "me/out"
    made = server.repositories["me/out"]
    assert (made.private, list(made.branches)) == (True, ["main", "v1.0"])
    with pytest.raises(RunError, match="cannot create them/model on the hub"):
        pushing.Hub().output_folder_locked(pushes(tmp_path / "other", "them/model"))


def publisher(bundle: Bundle) -> pushing.Publisher:
    pushing.Hub().output_folder_locked(bundle)
    return pushing.Publisher(bundle)


@pytest.mark.parametrize("strategy", ["every_save", "end", "checkpoint", "all_checkpoints"])
def test_each_strategy_pushes_what_transformers_does(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    at(server, monkeypatch)
    out = tmp_path / "out"
    one = publisher(pushes(tmp_path, hub_strategy=strategy, hub_always_push=True))
    for step in (2, 4):
        folder = checkpoint(out, step)
        one.saved(folder, f"Training in progress, step {step}")
        os.rename(folder, folder + ".gone")  # because of `keep`, a checkpoint may be deleted while it is pushed
        os.rename(folder + ".gone", tmp_path / f"gone-{step}")
    (out / "model.safetensors").write_text("the end")
    (out / "summary.json").write_text("{}")
    one.finish()
    model = server.repositories["me/model"]
    progress = [f"Training in progress, step {step}" for step in (2, 4)]
    more = {"every_save": progress, "end": []}.get(
        strategy, [f"{words}{part}" for words in progress for part in ("", ", checkpoint")]
    )
    assert model.titles() == ["initial commit", *more, "End of training"]
    assert model.files()["model.safetensors"] == b"the end"
    below = {"checkpoint": {"last-checkpoint"}, "all_checkpoints": {"checkpoint-2", "checkpoint-4"}}.get(
        strategy, set()
    )
    assert {name.partition("/")[0] for name in model.files() if "/" in name} == below
    for location in below:
        assert {name.partition("/")[2] for name in model.files() if name.startswith(location + "/")} >= STATE
    top = {name for name in model.files() if "/" not in name}
    kept = set() if strategy == "end" else {"config.json", "tokenizer.json"}
    assert top == {".gitattributes", "model.safetensors"} | kept
    assert not (out / pushing.FOLDER).exists()


def test_each_checkpoint_has_a_branch_of_its_own(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at(server, monkeypatch)
    out = tmp_path / "out"
    one = publisher(pushes(tmp_path, hub_strategy="end", checkpoint_branches=True, revision="v1"))
    for step in (100, 200):
        one.saved(checkpoint(out, step), "")
    one.finish()
    model = server.repositories["me/model"]
    assert set(model.branches) == {"main", "v1", "v1-step-000000100", "v1-step-000000200"}
    for step in (100, 200):
        name = f"v1-step-{step:09d}"
        files = model.files(name)
        assert model.titles(name) == ["initial commit", f"Add {name} checkpoint"]
        assert files["model.safetensors"] == weights(step)
        # the push leaves out *.pt and *.pth files, as Open-R1 does
        assert set(files) & STATE == {"trainer_state.json"}
    assert model.titles() == ["initial commit"]
    reported = capsys.readouterr().out
    assert f"pushed     {server.url}/me/model (branches v1-step-000000100, v1-step-000000200, v1)" in reported


def test_what_was_not_pushed_is_pushed_by_the_next_start(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(server, monkeypatch)
    waiting = tmp_path / "out" / pushing.FOLDER
    checkpoint(waiting, 8)
    checkpoint(waiting, 9)
    # A checkpoint's folder is renamed to this while it is pushed.
    os.rename(waiting / "checkpoint-9", waiting / "checkpoint-9.part")
    publisher(pushes(tmp_path, checkpoint_branches=True)).finish()
    assert set(server.repositories["me/model"].branches) == {"main", "main-step-000000008"}


def test_a_failed_push_is_reported_and_does_not_stop_the_run(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at(server, monkeypatch)
    one = publisher(pushes(tmp_path, hub_strategy="end", checkpoint_branches=True))
    server.broken.update(("main", "main-step-000000002"))
    for step in (2, 4):
        one.saved(checkpoint(tmp_path / "out", step), "")
    (tmp_path / "out" / "model.safetensors").write_text("the end")
    with pytest.raises(RunError) as caught:
        one.finish()
    reported = str(caught.value)
    assert "checkpoint-2 to me/model, branch main-step-000000002" in reported
    assert "storage limit reached" in reported
    assert (
        f"push the model with: hf upload me/model {tmp_path / 'out'} . --exclude '_*' --exclude 'checkpoint-*'"
        in reported
    )
    assert "not pushed: checkpoint-2" in capsys.readouterr().out
    assert "main-step-000000004" in server.repositories["me/model"].branches


def test_a_checkpoint_of_shards_is_not_pushed(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at(server, monkeypatch)
    one = publisher(pushes(tmp_path))
    folder = checkpoint(tmp_path / "out", 2)
    os.remove(os.path.join(folder, "model.safetensors"))
    (tmp_path / "out" / "checkpoint-2" / "pytorch_model_fsdp_0").mkdir()
    one.saved(folder, "step 2")
    (tmp_path / "out" / "model.safetensors").write_text("the end")
    one.finish()
    assert server.repositories["me/model"].titles() == ["initial commit", "End of training"]
    assert "checkpoint-2 has no weights that can be loaded from the hub: not pushed" in capsys.readouterr().out


@pytest.mark.parametrize("moment", ["before the push", "a failed push"])
def test_the_next_launch_pushes_what_a_killed_one_did_not(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], moment: str
) -> None:
    """A run ends only after its push. If the run is killed between its summary and the end of the push, the next launch
    makes the push.
    """
    at(server, monkeypatch)
    bundle = pushes(tmp_path, hub_strategy="end")
    one = publisher(bundle)
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    (out / "model.safetensors").write_text("the end")
    pushing.Hub().final_saved(bundle, SimpleNamespace(publisher=one), None)
    if moment == "a failed push":
        server.broken.add("main")
        with pytest.raises(RunError):
            one.finish()
        server.broken.clear()
    done = output_folder.Finished("finished")
    assert output_folder.finished(bundle, done, only_report=True) == 0
    assert "End of training" not in server.repositories["me/model"].titles()
    assert output_folder.finished(bundle, done) == 0
    assert "End of training" in server.repositories["me/model"].titles()
    assert "pushed     " in capsys.readouterr().out
    server.requested.clear()
    assert output_folder.finished(bundle, done) == 0
    assert server.requested == [], "the final model is pushed only once"
