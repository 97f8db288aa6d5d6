"""Bundles train the tiny model and push it to a fake hub on this machine, with a branch for each checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from method_runs import Warm
from stacks import Run
from tiers import FIRST_AND_LAST
from tiny_runs import spec

from xpc.compiler.preview.rehearsal.local_hub import Hub
from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow
SAVE = 'save "out" every=2 keep=1 hub(name=model, revision=v1, strategy=checkpoint, checkpoint_branches, private)'
ALWAYS = "extra trl(hub_always_push=true)"
"""With this argument, every checkpoint is pushed. Without it, a push is skipped while the previous one is still
running, so the number of pushes would vary.
"""


@pytest.fixture(scope="module", params=FIRST_AND_LAST)
def pushed(
    request: pytest.FixtureRequest, warm: Warm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Hub, Run]]:
    """A run of four steps that pushes to the hub. It saves checkpoints after steps 2 and 4 and keeps only one. On one
    target, it has two processes.
    """
    target = request.param
    hardware = "2 x cpu" if target == DEFAULT else "cpu"
    text = spec(ALWAYS, length="4 steps", hardware=hardware, target=target, save=SAVE)
    with Hub() as hub:
        bundle, cwd = warm.compiled(text, f"hub-{target}"), str(tmp_path_factory.mktemp("hub"))
        yield hub, warm.launch(bundle, cwd, **hub.environment())


def test_it_trains_and_tells_where_the_model_is(pushed: tuple[Hub, Run]) -> None:
    hub, run = pushed
    assert run.done.returncode == 0, run.output
    assert f"pushed     {hub.url}/me/model (branches " in run.done.stdout
    assert run.steps == [1, 2, 3, 4]
    assert "Traceback" not in run.done.stderr
    assert not {"_hub", "checkpoint-2"} & set(os.listdir(run.out))


def test_model_is_on_the_requested_branch(pushed: tuple[Hub, Run]) -> None:
    hub, run = pushed
    model = hub.repositories["me/model"]
    saves = [f"Training in progress, step {step}{part}" for step in (2, 4) for part in ("", ", checkpoint")]
    assert model.private is True
    assert model.titles("v1") == ["initial commit", *saves, "End of training"]
    assert model.titles() == ["initial commit"]
    files = model.files("v1")
    with open(os.path.join(run.out, "model.safetensors"), "rb") as handle:
        assert files["model.safetensors"] == handle.read()
    assert {"config.json", "tokenizer.json", "training_args.bin", "metrics.jsonl", "README.md"} <= set(files)
    assert "last-checkpoint/optimizer.pt" in files
    assert not set(files) & {"xpc_run.json", "summary.json"}
    assert files["README.md"].decode().startswith("---\n")
    assert "| spec.xp | sha256:" in files["README.md"].decode()


def test_each_checkpoint_stands_on_a_branch_of_its_own(pushed: tuple[Hub, Run]) -> None:
    hub, run = pushed
    model = hub.repositories["me/model"]
    assert set(model.branches) == {"main", "v1", "v1-step-000000002", "v1-step-000000004"}
    first, last = (model.files(f"v1-step-00000000{step}") for step in (2, 4))
    with open(os.path.join(run.out, "checkpoint-4", "model.safetensors"), "rb") as handle:
        assert last["model.safetensors"] == handle.read()
    assert first["model.safetensors"] != last["model.safetensors"]
    assert json.loads(first["trainer_state.json"])["global_step"] == 2
    assert json.loads(last["config.json"])["use_cache"] is True
    assert not [name for name in last if name.endswith((".pt", ".pth")) or "/" in name]


def test_hub_is_queried_once_for_the_repository_and_never_for_files(pushed: tuple[Hub, Run]) -> None:
    hub, _ = pushed
    made = hub.requested.index("POST /api/repos/create")
    assert "GET /api/whoami-v2" in hub.requested[:made]
    assert hub.requested.count("POST /api/repos/create") == 1
    assert hub.requested.count("POST /api/models/me/model/branch/v1") == 1
    assert not [one for one in hub.requested if "/resolve/" in one]
