"""Import the trackers of an axolotl file, such as wandb and SwanLab."""

from __future__ import annotations

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.text.entries import Entries, boolean, is_stated, words

TRACKERS = {
    "wandb": ("use_wandb", "wandb_project", "wandb_name"),
    "trackio": ("use_trackio", "trackio_project_name", "trackio_run_name"),
    "tensorboard": ("use_tensorboard", "", ""),
    "mlflow": ("use_mlflow", "mlflow_experiment_name", "mlflow_run_name"),
    "swanlab": ("use_swanlab", "swanlab_project", "swanlab_experiment_name"),
}
"""Maps each tracker to its switch, the key of its project and the key of its run name. A tracker is on if its switch is
true or its project is set.
"""


def trackers(draft: Draft, named: Entries) -> None:
    """Set the trackers, the project and the run name. If several trackers have a project or a name, the first tracker's
    are used. SwanLab is on only if the file lists its plugin.
    """
    found = {one: [named.get(key) for key in keys if key] for one, keys in TRACKERS.items()}
    plugins = words(named["plugins"]) if "plugins" in named else None
    on = tuple(
        one for one, (use, *names) in found.items()
        if boolean(use) or any(map(is_stated, names[:1]))
        if one != "swanlab" or any(plugin.endswith("SwanLabPlugin") for plugin in plugins or ())
    )  # fmt: skip
    draft.default("track", on or ("none",), "the source reports to these trackers")
    if on:
        draft.put("track", on)
    for tracker, (use, *names) in found.items():
        draft.mark(use, "mapped", "track")
        for one, path in zip(names, ("track.project", "track.name"), strict=False):
            if one is not None and one.empty:
                draft.note(one, "null: nothing is tracked")
            elif one is not None and tracker in on:
                draft.setting(path, one, weak=True)
            elif one is not None:
                draft.note(one, "nothing is tracked")
    run = named.get("wandb_run_id")
    if run is not None and "wandb" in on and not run.empty and not draft.has("track.name"):
        draft.setting("track.name", run)
    elif run is not None:
        draft.note(run, "a spec does not set the tracker's run id")
