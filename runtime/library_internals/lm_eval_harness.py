"""Models and task files for lm-evaluation-harness (lm-eval 0.4)."""

import subprocess
from typing import Any


def model(quantized: Any, **arguments: Any) -> Any:
    """lm-eval's class for transformers models, with the base quantized as in training.

    lm-eval itself quantizes a model only if the model's own configuration says so.
    """
    from lm_eval.models.huggingface import HFLM

    class Model(HFLM):  # type: ignore[misc]
        def _create_model(self, *positional: object, **kwargs: object) -> None:
            if quantized is not None:
                kwargs["quantization_config"] = quantized
            super()._create_model(*positional, **kwargs)

    return Model(**arguments)


def task(path: str) -> dict[str, Any]:
    """The contents of a task file. Functions that the file names (`!function`) are loaded."""
    from lm_eval.tasks._yaml_loader import load_yaml

    return dict(load_yaml(path, resolve_func=True))


def record_commit_silently() -> None:
    """Make lm-eval record the commit of the working directory, without git's message if there is no commit.

    Outside of a repository, git prints "fatal: not a git repository", which looks as if the evaluation had failed.
    """
    from lm_eval import evaluator

    def commit() -> str | None:
        try:
            done = subprocess.run(["git", "describe", "--always"], capture_output=True, text=True)
        except OSError:  # git is not installed
            return None
        return done.stdout.strip() or None

    evaluator.get_git_commit_hash = commit
