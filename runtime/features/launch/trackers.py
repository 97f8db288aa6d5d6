"""Report to MLflow, SwanLab and ClearML: the variables that they read, and their logins."""

import os
import re
from collections.abc import Mapping, MutableMapping

from ...core.feature import Bundle, Feature, Trainer

ONLINE = ("cloud", "online")
"""Values of SWANLAB_MODE with which SwanLab needs a key. The first value is SwanLab's default."""


class Trackers(Feature):
    """Hooks that report to MLflow, SwanLab and ClearML."""

    def before_imports(self, bundle: Bundle, environ: MutableMapping[str, str]) -> None:
        """Set the project of MLflow, SwanLab and ClearML, and the name of the run in ClearML. These trackers read both
        only from environment variables.

        CLEARML_TASK_NO_REUSE keeps ClearML from overwriting the last task of the same name (clearml 2.1, task.py,
        ``_create_dev_task``). CLEARML_LOG_MODEL keeps transformers from uploading optimizer states.
        """
        values = {"CLEARML_TASK": bundle.arguments["run_name"], "CLEARML_TASK_NO_REUSE": "1"}
        values["CLEARML_LOG_MODEL"] = "FALSE"
        if bundle.run.get("project"):
            names = ("MLFLOW_EXPERIMENT_NAME", "SWANLAB_PROJECT", "CLEARML_PROJECT")
            values.update(dict.fromkeys(names, bundle.run["project"]))
        for name, value in values.items():
            environ.setdefault(name, str(value))

    def check_access(self, bundle: Bundle) -> list[str]:
        """Check the logins now. Otherwise, once the model is loaded, SwanLab would ask for a login on the terminal, and
        ClearML would raise an error. MLflow needs no login: without a server it writes mlflow.db in this folder.
        """
        reported, environ, found = bundle.arguments["report_to"], os.environ, list[str]()
        project = environ.get("SWANLAB_PROJECT") or os.path.basename(os.getcwd())
        if "swanlab" in reported and not re.fullmatch(r"[0-9A-Za-z_+.-]+", project):
            found.append(
                f"SwanLab refuses the project name {project!r}: set SWANLAB_PROJECT to letters, digits and -_+."
            )
        if "swanlab" in reported and environ.get("SWANLAB_MODE", ONLINE[0]) in ONLINE and not _swanlab_key(environ):
            found.append(
                "this run reports to swanlab, and no key was found; set SWANLAB_API_KEY, log in with `swanlab login`, "
                "or set SWANLAB_MODE=offline"
            )
        if "clearml" in reported and not _clearml_key(environ):
            found.append(
                "this run reports to clearml, and no credentials were found; set CLEARML_API_HOST, "
                "CLEARML_API_ACCESS_KEY and CLEARML_API_SECRET_KEY, run `clearml-init`, or set CLEARML_OFFLINE_MODE=1"
            )
        return found

    def before_training(self, bundle: Bundle, trainer: Trainer) -> None:
        """Add the callback that continues the trackers' runs, before the trackers' own callbacks."""
        from .tracker_runs import TrackerRuns

        trainer.callback_handler.callbacks.insert(0, TrackerRuns(bundle.arguments["report_to"]))


def _swanlab_key(environ: Mapping[str, str]) -> bool:
    """Whether SwanLab has a key or needs none. It needs none if ``swanlab offline`` has written ``settings`` to its log
    folder.
    """
    login = os.path.join(environ.get("SWANLAB_SAVE_DIR", "~/.swanlab"), ".netrc")
    mode = os.path.join(environ.get("SWANLAB_LOG_DIR", "swanlog"), "settings")
    return bool(environ.get("SWANLAB_API_KEY")) or any(os.path.exists(os.path.expanduser(one)) for one in (login, mode))


def _clearml_key(environ: Mapping[str, str]) -> bool:
    """Whether ClearML has credentials or is in its offline mode."""
    names = ("CLEARML_OFFLINE_MODE", "CLEARML_API_ACCESS_KEY", "CLEARML_AUTH_TOKEN")
    file = environ.get("CLEARML_CONFIG_FILE", "~/clearml.conf")
    return any(environ.get(name) for name in names) or os.path.exists(os.path.expanduser(file))
