"""Read how a script configures its tracker: `wandb.init(project=..., name=...)`, and the variables of W&B."""

from __future__ import annotations

from xpc.compiler.importing.python.entries import Entries, unread
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import Argument, Object

STARTED = ("wandb.init", "trackio.init")
OPEN = (None, "all")
"""Values of `report_to` with which transformers 4 reports to every tracker that is installed."""


def gather(entries: Entries, machine: Machine) -> None:
    """Add the tracker that the script starts, with its project and the run's name, to the trainer's arguments.

    Without `report_to`, transformers 4 reports to this tracker, which is installed because the script imports it.
    """
    start = next((one for one in machine.calls if one.path in STARTED), None)
    disabled = machine.environment.get("WANDB_DISABLED")
    if disabled is not None and str(disabled.value).lower() in ("true", "1"):
        if "report_to" not in entries.values:
            entries.add("report_to", Argument("none", disabled.place))
        return
    given = entries.values.get("report_to")
    if start is not None and (given is None or given.value in OPEN) and not _is_off(start):
        entries.values.pop("report_to", None)
        entries.add("report_to", Argument(start.path.partition(".")[0], start.place))
        given = entries.values["report_to"]
    names = [] if given is None else [one.value for one in given.items] or [given.value]
    if not {"wandb", "trackio"} & {str(one) for one in names}:
        return
    project = machine.environment.get("WANDB_PROJECT")
    if start is not None:
        project = start.argument("project", 0 if start.path.startswith("trackio") else None) or project
        name = start.keywords.get("name")
        if name is not None and name.value is not None and not unread(name.value):
            entries.values.pop("run_name", None)  # the name is only known when the run starts
            entries.add("run_name", name)
    if project is not None and isinstance(project.value, str) and "wandb_project" not in entries.values:
        entries.add("project" if "project" in entries.values else "wandb_project", project)


def _is_off(start: Object) -> bool:
    mode = start.keywords.get("mode")
    return mode is not None and mode.value == "disabled"
