"""Import how a script configures its tracker: by calls such as `wandb.init(project=..., name=...)`, and by environment
variables.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.importing.python.entries import Entries, unread
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import Argument, Object

STARTED: Mapping[str, tuple[str, int | None, str, int | None]] = {
    "wandb.init": ("project", None, "name", None),
    "trackio.init": ("project", 0, "name", None),
    "swanlab.init": ("project", 0, "experiment_name", None),
    "clearml.Task.init": ("project_name", 0, "task_name", 1),
    "mlflow.set_experiment": ("experiment_name", 0, "", None),
    "mlflow.start_run": ("", None, "run_name", None),
}
"""Maps each call that starts a tracker to the names and positions of two of its arguments: the project and the run's
name.
"""
PROJECTS = {
    "wandb": ("WANDB_PROJECT", "wandb_project"), "trackio": ("WANDB_PROJECT", "wandb_project"),
    "mlflow": ("MLFLOW_EXPERIMENT_NAME", "mlflow_experiment_name"), "swanlab": ("SWANLAB_PROJECT", "swanlab_project"),
    "clearml": ("CLEARML_PROJECT", "clearml_project"),
}  # fmt: skip
"""Maps each tracker to the environment variable for the project, and the key from which the importer of TRL reads the
project (`TRACKER_NAMES` in trl/switches.py).
"""
OPEN = (None, "all")
"""Values of `report_to` that make transformers 4 report to every installed tracker."""


def gather(entries: Entries, machine: Machine) -> None:
    """Add `report_to` for the tracker that the script starts, with the project and the name of the run.

    Without `report_to`, transformers 4 reports to all installed trackers, including the tracker that the script
    starts.
    """
    starts = [one for one in machine.calls if one.path in STARTED]
    tracker = starts[0].path.partition(".")[0] if starts else ""
    disabled = machine.environment.get("WANDB_DISABLED")
    if disabled is not None and str(disabled.value).lower() in ("true", "1"):
        if "report_to" not in entries.values:
            entries.add("report_to", Argument("none", disabled.location))
        return
    given = entries.values.get("report_to")
    if starts and (given is None or given.value in OPEN) and not _is_off(starts[0]):
        entries.values.pop("report_to", None)
        entries.add("report_to", Argument(tracker, starts[0].location))
        given = entries.values["report_to"]
    names = [] if given is None else [one.value for one in given.items] or [given.value]
    reported = [one for one in PROJECTS if one in names]
    if not reported:
        return
    variable, key = PROJECTS[tracker if tracker in reported else reported[0]]
    project = machine.environment.get(variable)
    for start in (one for one in starts if one.path.startswith(f"{tracker}.")):
        project_argument, first, name_argument, second = STARTED[start.path]
        project = start.argument(project_argument, first) or project
        name = start.argument(name_argument, second)
        if name is not None and name.value is not None and not unread(name.value):
            # a name in the call that starts the tracker takes precedence over `run_name`
            entries.values.pop("run_name", None)
            entries.add("run_name", name)
    if project is not None and isinstance(project.value, str) and key not in entries.values:
        entries.add("project" if "project" in entries.values else key, project)


def _is_off(start: Object) -> bool:
    mode = start.keywords.get("mode")
    return mode is not None and mode.value == "disabled"
