"""Pushing to the hub, against a stand-in on this machine: before the run, while it goes, and at its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime_bundles import ROOT, command, environment, plan, source, write

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from hub import READ, SCOPED, WRITE, Hub

from xpc.runtime import hub as pushing
from xpc.runtime.bundle import Bundle, read
from xpc.runtime.errors import RunError

TINY = os.path.join(ROOT, "tests", "support", "tiny.py")
STATE = {"optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"}


@pytest.fixture
def server() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


def pushes(folder: Path, name: str | None = "me/model", **changes: Any) -> Bundle:
    """A bundle that pushes; ``changes`` are arguments, and `checkpoint_branches` and `revision` of its section."""
    facts = plan("trl-1.16", "tiny", [source("d.jsonl")])
    facts["hub"] = {one: changes.pop(one, None) for one in ("checkpoint_branches", "revision")}
    facts["arguments"].update({"push_to_hub": True, "hub_model_id": name, "output_dir": str(folder / "out"), **changes})
    return read(write(str(folder / "bundle"), facts))


def at(server: Hub, monkeypatch: pytest.MonkeyPatch, token: str | None = WRITE) -> None:
    """Sends this process's client to the stand-in."""
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
    assert pushing.problems(bundle) == []
    pushing.prepare(bundle)
    assert (bundle.repository, server.asked) == (None, [])


@pytest.mark.parametrize(
    ("name", "token", "words"),
    [
        ("me/model", None, "no token was found; set HF_TOKEN, or log in with `hf auth login`"),
        ("me/model", "hf_old", "does not know the token (it has expired, or is not whole); set another in HF_TOKEN"),
        ("model", READ, "pushes to me/model, and the token may only read; make one that may write"),
        ("them/model", WRITE, "is no member of them; name a repository of me, team"),
        ("team/model", SCOPED, "the token has no write access to repositories of team; give it that"),
        ("team/closed", WRITE, "which is there, and the token may not write to it; name another, or ask"),
    ],
)
def test_what_keeps_it_from_pushing_is_found_before(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, token: str | None, words: str
) -> None:
    server.make("team/closed")
    server.closed.add("team/closed")
    at(server, monkeypatch, token)
    found = pushing.problems(pushes(tmp_path, name))
    assert len(found) == 1
    assert words in found[0]
    assert not [one for one in server.asked if one.startswith("POST")], "asking changes nothing on the hub"


@pytest.mark.parametrize("name", pushing.OFFLINE)
def test_offline_is_found_before(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    at(server, monkeypatch)
    monkeypatch.setenv(name, "1")
    (found,) = pushing.problems(pushes(tmp_path))
    assert f"{name}=1 keeps it from the network; unset it, or leave `hub` out" in found
    assert server.asked == []


def test_a_hub_that_does_not_answer_is_found_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hub() as gone:
        at(gone, monkeypatch)
    (found,) = pushing.problems(pushes(tmp_path))
    assert "cannot be asked" in found


def test_who_may_push_passes(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, (name, token) in enumerate((("model", WRITE), ("team/model", WRITE), ("me/model", SCOPED))):
        at(server, monkeypatch, token)
        assert pushing.problems(pushes(tmp_path / str(number), name)) == []
    server.make("me/model")
    assert pushing.problems(pushes(tmp_path / "there")) == []
    assert "me/model is on the hub already: this run adds commits to it" in capsys.readouterr().out


def checkpoint(out: Path, step: int) -> str:
    """A folder with the names of a checkpoint; its weights tell its step."""
    folder = out / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", *STATE):
        (folder / name).write_text(f"{name} {step}")
    return str(folder)


def test_the_repository_and_the_branch_are_made(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(server, monkeypatch)
    bundle = pushes(tmp_path, None, hub_private_repo=True, revision="v1.0")
    for _ in range(2):  # a run that goes on finds both there
        pushing.prepare(bundle)
    assert bundle.repository == "me/out"
    made = server.repositories["me/out"]
    assert (made.private, list(made.branches)) == (True, ["main", "v1.0"])
    with pytest.raises(RunError, match="cannot make them/model on the hub"):
        pushing.prepare(pushes(tmp_path / "other", "them/model"))


def publisher(bundle: Bundle) -> pushing.Publisher:
    pushing.prepare(bundle)
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
        os.rename(folder, folder + ".gone")  # as `keep` would: what is being pushed does not need it
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
    below = {"checkpoint": {"last-checkpoint"}, "all_checkpoints": {"checkpoint-2", "checkpoint-4"}}.get(strategy, set())
    assert {name.partition("/")[0] for name in model.files() if "/" in name} == below
    for place in below:
        assert {name.partition("/")[2] for name in model.files() if name.startswith(place + "/")} >= STATE
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
        assert files["model.safetensors"] == f"model.safetensors {step}".encode()
        assert set(files) & STATE == {"trainer_state.json"}  # as Open-R1: no *.pt and no *.pth
    assert model.titles() == ["initial commit"]
    told = capsys.readouterr().out
    assert f"pushed     {server.url}/me/model (branches v1-step-000000100, v1-step-000000200, v1)" in told


def test_what_was_not_pushed_is_pushed_by_the_next_start(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(server, monkeypatch)
    waiting = tmp_path / "out" / pushing.FOLDER
    checkpoint(waiting, 8)
    checkpoint(waiting, 9)
    os.rename(waiting / "checkpoint-9", waiting / "checkpoint-9.part")  # was being put there
    publisher(pushes(tmp_path, checkpoint_branches=True)).finish()
    assert set(server.repositories["me/model"].branches) == {"main", "main-step-000000008"}


def test_a_failed_push_is_told_and_does_not_stop_the_run(
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
    told = str(caught.value)
    assert "checkpoint-2 to me/model, branch main-step-000000002" in told
    assert "storage limit reached" in told
    assert f"push the model with: hf upload me/model {tmp_path / 'out'} . --exclude '_*' --exclude 'checkpoint-*'" in told
    assert "not pushed: checkpoint-2" in capsys.readouterr().out
    assert "main-step-000000004" in server.repositories["me/model"].branches


@pytest.mark.slow
@pytest.mark.parametrize("target", ["trl-1.16", "trl-0.18"])
def test_a_bundle_trains_and_pushes(server: Hub, tmp_path: Path, target: str) -> None:
    """Saves at steps 2 and 4 of 4, keeps one: each has its branch, the model stands on a branch that was asked for."""
    pytest.importorskip("trl")
    python = sys.executable if target == "trl-1.16" else os.environ.get("XPC_PYTHON_TRL_0_18")
    if not python:
        pytest.skip("XPC_PYTHON_TRL_0_18 names no interpreter with that stack")
    tiny, here = str(tmp_path / "tiny"), tmp_path / "here"
    here.mkdir()
    subprocess.run([python, TINY, tiny], check=True, env=environment(), capture_output=True)
    facts = plan(target, tiny, [source(os.path.join(tiny, "messages.jsonl"))])
    facts["arguments"].update(max_steps=4, save_total_limit=1, push_to_hub=True, hub_model_id="model",
                              hub_strategy="checkpoint", hub_always_push=True)  # fmt: skip
    facts["hub"] = {"revision": "v1", "checkpoint_branches": True}
    folder = write(str(tmp_path / "bundle"), facts)
    ran = subprocess.run(
        command(folder, python), cwd=here, env={**environment(), **server.environment()}, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"pushed     {server.url}/me/model (branches " in ran.stdout
    model, out = server.repositories["me/model"], here / "out"
    assert set(model.branches) == {"main", "v1", "v1-step-000000002", "v1-step-000000004"}
    saves = [f"Training in progress, step {step}{part}" for step in (2, 4) for part in ("", ", checkpoint")]
    assert model.titles("v1") == ["initial commit", *saves, "End of training"]
    files = model.files("v1")
    assert files["model.safetensors"] == (out / "model.safetensors").read_bytes()
    assert {"config.json", "tokenizer.json", "training_args.bin", "metrics.jsonl", "README.md"} <= set(files)
    assert "last-checkpoint/optimizer.pt" in files
    assert not set(files) & {"xpc_run.json", "summary.json"}
    last = model.files("v1-step-000000004")
    assert last["model.safetensors"] == (out / "checkpoint-4" / "model.safetensors").read_bytes()
    assert last["model.safetensors"] != model.files("v1-step-000000002")["model.safetensors"]
    assert json.loads(last["config.json"])["use_cache"] is True
    assert not any(name.endswith((".pt", ".pth")) for name in last)
    card = files["README.md"].decode()
    assert "me/model" in card or "# Model Card for model" in card
    created = server.asked.index("POST /api/repos/create")
    assert sum(one == "POST /api/repos/create" for one in server.asked) == 1
    assert "GET /api/whoami-v2" in server.asked[:created]
    assert server.asked.count("POST /api/models/me/model/branch/v1") == 1
    assert not any(one.startswith("GET") and "/resolve/" in one for one in server.asked)
