"""When training resumes, continue the same runs in the trackers. Checkpoints store the ids of these runs."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ...core.errors import say
from ...core.feature import Arguments, Control, State


class TrackerRuns(TrainerCallback, ExportableState):  # type: ignore[misc]  # transformers has no types
    """Stores the ids of the trackers' runs in each trainer_state.json; when training resumes, continues these runs.

    Metrics that an earlier start logged after the checkpoint are logged a second time.
    """

    def __init__(self, reported: Sequence[str]) -> None:
        self.trackers = [one for one in RUNS if one in reported]

    def state(self) -> dict[str, Any]:
        """The state that transformers writes into the trainer_state.json of a checkpoint."""
        return {"args": {}, "attributes": {one: RUNS[one][0]() for one in self.trackers}}

    def on_save(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Send the metrics that ClearML has not sent yet, because a resumed run does not repeat their steps."""
        if "clearml" in self.trackers and state.is_world_process_zero:
            from clearml import Task

            if (task := Task.current_task()) is not None:
                task.flush()

    def on_train_begin(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Choose the runs to continue, before the trackers' own callbacks start new runs."""
        if "clearml" in self.trackers and state.is_world_process_zero:
            _without_fork()
        nothing: dict[str, object] = {"args": {}, "attributes": {}}
        before = state.stateful_callbacks.setdefault(type(self).__name__, nothing)["attributes"]
        for tracker in self.trackers:
            if before.get(tracker) and state.is_world_process_zero:
                RUNS[tracker][1](before[tracker])


def _mlflow() -> str | None:
    import mlflow

    run = mlflow.active_run()
    return None if run is None else str(run.info.run_id)


def _continue_mlflow(run: str) -> None:
    """Continue an MLflow run if it still exists in the experiment. It keeps the parameters of the first start, because
    MLflow cannot change them.
    """
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        found = mlflow.get_run(run).info
        experiment = mlflow.get_experiment(found.experiment_id).name
    except MlflowException:
        found = experiment = None
    if (
        found is None
        or found.lifecycle_stage != "active"
        or os.environ.get("MLFLOW_EXPERIMENT_NAME", experiment) != experiment
    ):
        say(f"MLflow has no run {run} in this experiment, so it starts a new one")
        return
    os.environ.setdefault("MLFLOW_RUN_ID", run)
    os.environ["MLFLOW_MAX_LOG_PARAMS"] = "0"


def _swanlab() -> str | None:
    """The id of the run in SwanLab's cloud. None for an offline run, because SwanLab cannot continue it."""
    import swanlab

    run = swanlab.get_run()
    return None if run is None else run.id


def _continue_swanlab(run: str) -> None:
    os.environ.setdefault("SWANLAB_RUN_ID", run)
    os.environ.setdefault("SWANLAB_RESUME", "allow")


def _without_fork() -> None:
    """Let ClearML report from threads of this process, not from a fork of it.

    ClearML forks while another of its threads starts git to describe the repository. The fork may happen when that
    thread has created the pipe to git, but git does not run yet. Then the fork keeps the pipe open, and the run, at its
    end, waits for the pipe forever (clearml 2.1, utilities/process/mp.py ``__start_subprocess_os_fork``, task.py
    ``_wait_for_repo_detection``; seen on a busy machine).
    """
    from clearml.config import config_obj

    config_obj.set_overrides({"sdk": {"development": {"report_use_subprocess": False}}})


def _clearml() -> str | None:
    from clearml import Task

    task = Task.current_task()
    return None if task is None else str(task.id)


def _continue_clearml(run: str) -> None:
    """Continue a ClearML task, with the options that transformers uses. Its metrics are logged at their real steps
    (offset 0)."""
    from clearml import Task

    project, name = os.environ.get("CLEARML_PROJECT", "HuggingFace Transformers"), os.environ["CLEARML_TASK"]
    connected = {"tensorboard": False, "pytorch": False}
    Task.init(project, name, reuse_last_task_id=run, continue_last_task=0, auto_connect_frameworks=connected)


RUNS: dict[str, tuple[Callable[[], str | None], Callable[[str], None]]] = {
    "mlflow": (_mlflow, _continue_mlflow),
    "swanlab": (_swanlab, _continue_swanlab),
    "clearml": (_clearml, _continue_clearml),
}
"""Maps each tracker to two functions. One returns the id of the open run; the other makes transformers continue the run
with this id."""
