"""Each tracker stores the right values of a run, and of the same run after a resume. This is tested on every target,
without a network.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

import pytest
from forks import notes
from interpreters import with_trackers
from method_runs import KEPT, STEPS, Trained, Warm, cut, small
from rule_cases import CASES
from stacks import has
from tiers import EACH_STACK

from xpc.compiler.rules.saving.tracking import LEGAL
from xpc.compiler.stacks import DEFAULT, STACKS, load

pytestmark = pytest.mark.slow
IN_STACK = ("wandb", "trackio", "tensorboard")
"""The trackers in the stacks' environments. Some older environments do not have trackio."""
ADDED = ("mlflow", "swanlab", "clearml")
"""The trackers in `.venv-trackers`, which `make slow` installs. Their tests are nightly."""
OFFLINE = {
    "WANDB_MODE": "offline", "SWANLAB_MODE": "offline", "CLEARML_OFFLINE_MODE": "1", "CLEARML_CONFIG_FILE": "none.conf",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}  # fmt: skip
Tracked = Callable[[str, str], tuple[Trained, Trained]]


@pytest.fixture(scope="module")
def with_added(warm: Warm) -> Warm:
    """A fixture: warm interpreters that can import the additional trackers."""
    return Warm(warm.location, with_trackers)


@pytest.fixture(scope="module")
def tracked(warm: Warm, with_added: Warm, tmp_path_factory: pytest.TempPathFactory) -> Tracked:
    """Return a function that gets a target and a tracker, and returns two runs: a run that reports to the trackers of
    the target's environment, and the same run resumed from its first checkpoint. Both are trained only once.
    """

    @cache
    def run(target: str, names: tuple[str, ...]) -> tuple[Trained, Trained]:
        interpreters = with_added if names == ADDED else warm
        text = small(method="sft", target=target, save=f'save "out" every={KEPT}').replace(
            "track none(every=1)", f'track {" ".join(names)} (project="colours", name="answers", every=1)'
        )
        cwd = str(tmp_path_factory.mktemp(target))
        variables = {**OFFLINE, "CLEARML_CACHE_DIR": os.path.join(cwd, "clearml")}
        first = interpreters.train(text, f"tracked-{names[0]}-{target}", target, cwd, **variables)
        complete = os.path.join(cwd, "complete")
        os.rename(first.out, complete)
        shutil.copytree(complete, first.out)
        cut(first)
        again = interpreters.run(first.folder, cwd, target, XPC_PREFLIGHT="passed", **variables)
        return Trained(first.folder, complete, first.status, first.output, first.complained, first.events), again

    def of(target: str, tracker: str) -> tuple[Trained, Trained]:
        return run(target, ADDED if tracker in ADDED else tuple(one for one in IN_STACK if reports(target, one)))

    return of


def reports(target: str, tracker: str) -> bool:
    """Whether the target's transformers has a callback for a tracker, and the target's environment has the tracker's
    package.
    """
    return (tracker != "trackio" or load(target).facts.trackio) and has(target, tracker)


def read(path: str) -> bytes:
    with open(path, "rb") as handle:
        return handle.read()


def both(runs: tuple[Trained, Trained], name: str = "loss") -> list[tuple[int, float]]:
    """The (step, value) pairs that a tracker gets: first the pairs of the first start, then the pairs that the resumed
    run sends a second time.
    """
    first, again = ([(one["step"], one[name]) for one in run.events if name in one] for run in runs)
    return [*first, *(one for one in again if one[0] > KEPT)]


@pytest.mark.parametrize("target", EACH_STACK)
def test_wandb_keeps_every_step(tracked: Tracked, target: str) -> None:
    done, _ = tracked(target, "wandb")
    path, *_ = sorted(glob(os.path.join(os.path.dirname(done.out), "wandb", "offline-run-*", "*.wandb")))
    kept = read(path)
    assert b"colours" in kept  # The name of the project.
    assert b"answers" in kept  # The name of the run.
    for loss in done.values("loss"):
        assert repr(loss)[:12].encode() in kept


@pytest.mark.parametrize("target", EACH_STACK)
def test_tensorboard_keeps_every_step(tracked: Tracked, target: str) -> None:
    done, _ = tracked(target, "tensorboard")
    (path,) = glob(os.path.join(done.out, "runs", "*", "events.out.tfevents.*"))
    assert read(path).count(b"train/loss") == STEPS


def test_trackio_keeps_every_step(tracked: Tracked, warm: Warm) -> None:
    done = tracked(DEFAULT, "trackio")
    with sqlite3.connect(os.path.join(notes(), "colours.db")) as kept:
        rows = [(name, json.loads(event)) for name, event in kept.execute("select run_name, metrics from metrics")]
    assert {name for name, _ in rows} == {"answers"}
    losses = [event["train/loss"] for _, event in rows if "train/loss" in event]
    assert losses == [loss for _, loss in both(done)]


@pytest.mark.nightly
@pytest.mark.parametrize("target", STACKS)
def test_mlflow_has_one_run_with_every_step_and_the_parameters(tracked: Tracked, target: str) -> None:
    runs = tracked(target, "mlflow")
    with sqlite3.connect(os.path.join(os.path.dirname(runs[0].out), "mlflow.db")) as kept:
        ((run, status, experiment),) = kept.execute(
            "select r.run_uuid, r.status, e.name from runs r join experiments e using (experiment_id)"
        )
        ((name,),) = kept.execute("select value from tags where key = 'mlflow.runName' and run_uuid = ?", [run])
        steps = kept.execute("select step, value from metrics where key = 'loss' order by timestamp, step").fetchall()
        parameters = dict(kept.execute("select key, value from params"))
    assert (experiment, name, status) == ("colours", "answers", "FINISHED")
    assert steps == both(runs)
    assert (parameters["learning_rate"], parameters["max_steps"]) == ("0.001", str(STEPS))
    assert "MLflow" not in runs[1].output


@pytest.mark.nightly
@pytest.mark.parametrize("target", STACKS)
def test_swanlab_keeps_every_step(tracked: Tracked, target: str) -> None:
    runs = tracked(target, "swanlab")
    folders = sorted(glob(os.path.join(os.path.dirname(runs[0].out), "swanlog", "run-*")))
    assert len(folders) == 2  # SwanLab cannot continue an offline run
    kept = read(os.path.join(folders[0], "backup.swanlab"))
    assert b"colours" in kept
    assert b"answers" in kept
    for loss in runs[0].values("loss"):
        assert repr(loss)[:12].encode() in kept
    assert b"learning_rate" in read(os.path.join(folders[0], "files", "config.yaml"))


@pytest.mark.nightly
@pytest.mark.parametrize("target", STACKS)
def test_clearml_has_one_task_with_every_step_and_no_checkpoint(tracked: Tracked, target: str) -> None:
    runs = tracked(target, "clearml")
    (folder,) = glob(os.path.join(os.path.dirname(runs[0].out), "clearml", "offline", "*", ""))
    with open(os.path.join(folder, "task.json"), encoding="utf-8") as handle:
        task = json.load(handle)
    assert (task["project_name"], task["name"]) == ("colours", "answers")
    hyperparameters = task["hyperparams"]["Transformers"]
    assert hyperparameters["learning_rate"]["value"] == "0.001"
    events: list[dict[str, Any]] = []
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as handle:
        for line in handle:
            events += json.loads(line)
    steps = [(one["iter"], one["value"]) for one in events if (one["metric"], one["variant"]) == ("train", "loss")]
    assert steps == both(runs)
    assert not task["offline_output_models"]


SAVED = """\
import glob, json, os, sys, time
bundle, cache, off = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
os.environ |= {**off, "CLEARML_CACHE_DIR": cache}
sys.path.insert(0, bundle)
from types import SimpleNamespace
from clearml import Task
from trainer.features.launch.tracker_runs import TrackerRuns
first = SimpleNamespace(is_world_process_zero=True, stateful_callbacks={})
runs = TrackerRuns(["clearml"])
runs.on_train_begin(None, first, None)
task = Task.init("colours", "answers", auto_connect_frameworks=False)
for step in range(3):
    task.get_logger().report_scalar("train", "loss", 1.0, step)
runs.on_save(None, first, None)
events, end = [], time.monotonic() + 600  # a thread of ClearML writes them
while len(events) < 3 and time.monotonic() < end:
    time.sleep(0.1)
    (path,) = glob.glob(os.path.join(cache, "offline", "*", "metrics.jsonl")) or [os.devnull]
    with open(path) as handle:
        events = [one["iter"] for line in handle for one in json.loads(line) if one["metric"] == "train"]
print(json.dumps({"steps": sorted(events)}))
task.close()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("target", STACKS)
def test_clearml_has_every_step_before_a_checkpoint(with_added: Warm, tmp_path: Path, target: str) -> None:
    """After a kill, a run resumes from its checkpoint, and does not log the steps before the checkpoint again."""
    text = small(method="sft", target=target).replace("track none", "track clearml")
    bundle = with_added.compiled(text, f"saved-{target}")
    (seen,) = with_added.program(target, SAVED, bundle, str(tmp_path), json.dumps(OFFLINE))
    assert seen["steps"] == [0, 1, 2]


PROJECT = """\
import json, sys, swanlab
from swanlab.formatter import check_proj_name_format
def accepts(name):
    try:
        check_proj_name_format(name)
    except ValueError as error:
        assert "is invalid" in str(error), error
        return False
    return True
print(json.dumps({"characters": "".join(one for one in map(chr, range(32, 0x250)) if accepts(f"a{one}a"))}))
for name in sys.argv[1:]:
    try:
        swanlab.init(project=name, mode="offline")
        opened = swanlab.get_run().public.project_name
        swanlab.finish()
    except ValueError as error:
        opened = str(error)
    print(json.dumps({"opened": opened}))
"""


@pytest.mark.nightly
def test_swanlab_refuses_the_project_names_of_xp173(with_added: Warm) -> None:
    (case,) = (one for one in CASES if one.code == "XP173")
    names = [text.split('project="')[1].split('"')[0] for text in (case.rejected, case.accepted)]
    characters, refused, opened = with_added.program(DEFAULT, PROJECT, *names)
    assert set(characters["characters"]) == LEGAL
    assert refused["opened"].startswith(f"Project name `{names[0]}` is invalid")
    assert opened["opened"] == names[1]


@pytest.mark.parametrize("target", EACH_STACK)
def test_our_own_metrics_are_there_all_the_same(tracked: Tracked, target: str) -> None:
    assert [event["step"] for event in tracked(target, "wandb")[0].events] == list(range(1, STEPS + 1))
