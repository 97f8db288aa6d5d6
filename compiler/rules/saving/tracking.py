"""Rules for experiment trackers (XP173, XP751, XP752, XP754)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import written
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able
from xpc.grammar.tree import quoted

WHEN = written("track", "track.name", "track.project")
LEGAL = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-+.")
"""The characters that SwanLab allows in a project's name."""


@rule("XP751", "tracker-not-in-the-target")
def tracker_of_the_target(spec: Spec) -> Iterator[Finding]:
    """The target's transformers must have a callback for the tracker; transformers 4.52 (trl-0.18) has none for
    trackio.

    Why it is bad: transformers reports to a tracker only through its callback.

    Without this rule: ValueError in the trainer's constructor, after the data is tokenized.

    Source: transformers 4.52 `integration_utils.py` (`INTEGRATION_TO_CALLBACK`); confirmed by running it.
    """
    if "trackio" in spec.names("track") and not spec.stack.facts.trackio:
        yield Finding(
            spec.location("track", "no callback for trackio"),
            f"{spec.stack.name} cannot report to trackio",
            f"write `track wandb`, or `target {able(lambda one: one.facts.trackio)}`",
            (spec.label("target", "the target"),),
        )


@rule("XP752", "trackio-without-a-project", "warning")
def trackio_project(spec: Spec) -> Iterator[Finding]:
    """`track trackio` needs a `project`.

    Why it is bad: all runs without a project are shown together in one default project, so runs of different
    experiments are mixed.

    Without this rule: every run goes to trackio's project `huggingface`.

    Source: transformers 5.23 `training_args.py` (`project`). LLaMA-Factory refuses trackio without a project.
    """
    if "trackio" in spec.names("track") and spec.get("track.project") is None and spec.stack.facts.trackio:
        yield Finding(
            spec.location("track", "the project is `huggingface`"),
            "trackio needs a project",
            f'write `track trackio(project="{spec.name}")`',
        )


@rule("XP173", "swanlab-project-name")
def swanlab_project(spec: Spec) -> Iterator[Finding]:
    """The name of a project in SwanLab may contain only letters, digits and `-_+.`.

    Why it is bad: the error comes late, because SwanLab opens the project when training begins, after the model is
    loaded and the data is tokenized.

    Without this rule: ValueError, `Project name ... is invalid`, when training begins.

    Source: swanlab 0.7.20 `formatter.py` (`check_proj_name_format`); confirmed by running it.
    """
    project = spec.get("track.project")
    if "swanlab" not in spec.names("track") or not isinstance(project, str):
        return
    legal = "".join(one if one in LEGAL else "-" for one in project)
    if legal != project or not project:
        yield Finding(
            spec.location("track.project", "SwanLab takes letters, digits and -_+."),
            f"SwanLab refuses the project name {quoted(project)}",
            write(f"project = {quoted(legal or spec.name)}"),
            (spec.label("track", "the trackers"),),
        )


@rule("XP754", "name-without-a-tracker", "warning")
def name_without_tracker(spec: Spec) -> Iterator[Finding]:
    """The name and the project of a run need a tracker.

    Why it is bad: the name and the project are sent only to trackers.

    Without this rule: nothing is reported; `run_name` and `project` are read only by the callbacks of trackers.

    Source: transformers 5.23 `integrations/integration_utils.py`.
    """
    if any(one != "none" for one in spec.names("track")):
        return
    for path in ("track.name", "track.project"):
        if spec.written(path):
            yield Finding(
                spec.location(path, "not sent anywhere"),
                f"`{path[6:]}` does nothing without a tracker",
                f"write `track wandb`, or leave `{path[6:]}` out",
                (spec.label("track", "no tracker"),),
            )
