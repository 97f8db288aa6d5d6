"""The runtime sets the environment variables of MLflow, SwanLab and ClearML, and checks the login of each. After a
resume, each tracker continues the run that it had before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from run_features import read
from runtime_bundles import plan, source, write

from xpc.runtime.core.feature import Bundle
from xpc.runtime.features.launch.trackers import Trackers

NAMES = ("SWANLAB_API_KEY", "SWANLAB_MODE", "SWANLAB_PROJECT", "SWANLAB_LOG_DIR", "CLEARML_OFFLINE_MODE",
         "CLEARML_API_ACCESS_KEY", "CLEARML_AUTH_TOKEN", "CLEARML_CONFIG_FILE")  # fmt: skip


def made(tmp_path: Path, *trackers: str, project: str | None = "apples") -> Bundle:
    facts = plan("tiny", [source("d.jsonl")])
    facts["arguments"].update(report_to=list(trackers), run_name="first")
    facts["run"]["project"] = project
    return read(write(str(tmp_path), facts))


def test_the_names_of_the_spec_are_in_the_environment_unless_the_launch_has_its_own(tmp_path: Path) -> None:
    bundle = made(tmp_path, "mlflow", "swanlab", "clearml")
    environ = {"SWANLAB_PROJECT": "mine", "CLEARML_LOG_MODEL": "TRUE"}
    Trackers().before_imports(bundle, environ)
    assert environ == {
        "MLFLOW_EXPERIMENT_NAME": "apples", "SWANLAB_PROJECT": "mine", "CLEARML_PROJECT": "apples",
        "CLEARML_TASK": "first", "CLEARML_TASK_NO_REUSE": "1", "CLEARML_LOG_MODEL": "TRUE",
    }  # fmt: skip


def test_a_run_without_a_project_has_the_trackers_own(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    Trackers().before_imports(made(tmp_path, "clearml", project=None), environ)
    assert environ == {"CLEARML_TASK": "first", "CLEARML_TASK_NO_REUSE": "1", "CLEARML_LOG_MODEL": "FALSE"}


@pytest.mark.parametrize(
    ("trackers", "variables", "found"),
    [
        (("mlflow",), {}, []),
        (("swanlab", "clearml"), {}, ["SWANLAB_API_KEY", "CLEARML_API_HOST"]),
        (("swanlab",), {"SWANLAB_MODE": "online"}, ["SWANLAB_API_KEY"]),
        (("swanlab",), {"SWANLAB_MODE": "offline"}, []),
        (("swanlab",), {"SWANLAB_API_KEY": "k" * 20}, []),
        (("swanlab",), {"SWANLAB_API_KEY": "k" * 20, "SWANLAB_PROJECT": "two words"}, ["letters, digits"]),
        (("clearml",), {"CLEARML_OFFLINE_MODE": "1"}, []),
        (("clearml",), {"CLEARML_API_ACCESS_KEY": "k" * 20}, []),
        (("wandb",), {"SWANLAB_PROJECT": "two words"}, []),
    ],
)
def test_a_missing_login_is_found_before_anything_is_loaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trackers: tuple[str, ...],
    variables: dict[str, str],
    found: list[str],
) -> None:
    bundle = made(tmp_path, *trackers)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    messages = Trackers().check_access(bundle)
    assert len(messages) == len(found)
    assert all(one in message for one, message in zip(found, messages, strict=True))
    (home / ".swanlab").mkdir()
    (home / ".swanlab" / ".netrc").write_text("machine swanlab.cn\n")
    (home / "clearml.conf").write_text("api {}\n")
    assert [one for one in Trackers().check_access(bundle) if "was found" in one or "were found" in one] == []


class Failed(Exception):
    """Replaces the exception class of mlflow."""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[object, ...]]]:
    """Return a function that installs fake packages for the three trackers, each with an open run. The function returns
    the list of ClearML tasks that were started."""

    def put(lifecycle: str = "active", experiment: str = "apples", **missing: bool) -> list[tuple[object, ...]]:
        started: list[tuple[object, ...]] = []

        def get_run(run: str) -> Any:
            if missing.get("mlflow"):
                raise Failed(run)
            return SimpleNamespace(info=SimpleNamespace(run_id=run, experiment_id="7", lifecycle_stage=lifecycle))

        class Task:
            current_task = staticmethod(lambda: SimpleNamespace(id="c1"))
            init = staticmethod(lambda *one, **more: started.append((*one, *more.items())))

        stubs: dict[str, dict[str, Any]] = {
            "mlflow": {
                "active_run": lambda: SimpleNamespace(info=SimpleNamespace(run_id="m1")), "get_run": get_run,
                "get_experiment": lambda _: SimpleNamespace(name=experiment),
            },
            "mlflow.exceptions": {"MlflowException": Failed},
            "swanlab": {"get_run": lambda: SimpleNamespace(id="s1")},
            "clearml": {"Task": Task},
            "clearml.config": {"config_obj": SimpleNamespace(set_overrides=lambda one: started.append(("set", one)))},
        }  # fmt: skip
        for name, members in stubs.items():
            module = ModuleType(name)
            module.__spec__ = ModuleSpec(name, None)
            for member, value in members.items():
                setattr(module, member, value)
            monkeypatch.setitem(sys.modules, name, module)
        for name in ("MLFLOW_RUN_ID", "MLFLOW_MAX_LOG_PARAMS", "SWANLAB_RUN_ID", "SWANLAB_RESUME", "CLEARML_PROJECT"):
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "apples")
        monkeypatch.setenv("CLEARML_TASK", "first")
        return started

    return put


def resumed(before: dict[str, Any] | None, *trackers: str, first: bool = True) -> dict[str, str]:
    """Resume from a checkpoint with the given state of the trackers; return their state in the next checkpoint."""
    from xpc.runtime.features.launch.tracker_runs import TrackerRuns

    callback = TrackerRuns(trackers)
    callbacks = {} if before is None else {"TrackerRuns": {"args": {}, "attributes": before}}
    state = SimpleNamespace(stateful_callbacks=callbacks, is_world_process_zero=first)
    callback.on_train_begin(None, state, None)
    # transformers only replaces existing entries of `stateful_callbacks`: a save fails if a callback has no entry
    assert "TrackerRuns" in state.stateful_callbacks
    found: dict[str, str] = callback.state()["attributes"]
    return found


RUNS = {"mlflow": "m1", "swanlab": "s1", "clearml": "c1"}


@pytest.mark.slow
def test_a_checkpoint_has_the_runs_and_a_resume_continues_them(
    installed: Callable[..., list[tuple[object, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    started = installed()
    assert resumed(None, "wandb", *RUNS) == RUNS
    assert "MLFLOW_RUN_ID" not in os.environ
    threads = ("set", {"sdk": {"development": {"report_use_subprocess": False}}})
    assert started == [threads]
    started.clear()
    resumed(RUNS, *RUNS, first=False)
    assert ("MLFLOW_RUN_ID" not in os.environ, started) == (True, [])
    resumed(RUNS, *RUNS)
    assert (os.environ["MLFLOW_RUN_ID"], os.environ["MLFLOW_MAX_LOG_PARAMS"]) == ("m1", "0")
    assert (os.environ["SWANLAB_RUN_ID"], os.environ["SWANLAB_RESUME"]) == ("s1", "allow")
    first, (project, name, *more) = started
    # this setting must be made before ClearML's task begins
    assert first == threads
    assert (project, name) == ("HuggingFace Transformers", "first")
    assert {("reuse_last_task_id", "c1"), ("continue_last_task", 0)} <= {one for one in more if one[1] in ("c1", 0)}


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{"lifecycle": "deleted"}, {"experiment": "pears"}, {"mlflow": True}])
def test_a_run_that_mlflow_no_longer_has_does_not_stop_the_resume(
    installed: Callable[..., list[tuple[object, ...]]], capsys: pytest.CaptureFixture[str], changed: dict[str, Any]
) -> None:
    import os

    installed(**changed)
    resumed({"mlflow": "m0"}, "mlflow")
    assert "MLFLOW_RUN_ID" not in os.environ
    assert "MLflow has no run m0 in this experiment" in capsys.readouterr().out
