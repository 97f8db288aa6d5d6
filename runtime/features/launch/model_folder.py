"""List the files of a local model's folder. The compiler computes their digests, and the launch compares them."""

import os

READ = (".safetensors", ".bin", ".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")
"""Endings of the files that transformers and peft read."""
STATES = ("optimizer", "scheduler", "scaler", "rng_state", "trainer_state", "training_args", "pytorch_model_fsdp")
"""Beginnings of the names of checkpoint files that are not read when a model is loaded. They are not compared."""
RECORDS = ("xpc_run.json", "summary.json", "all_results.json", "train_results.json", "eval_results.json")
"""Files that a run writes next to its model. They are not compared."""
SKIPPED = (".", "checkpoint-", "global_step")
"""Subfolders whose names begin with one of these texts are not searched."""
LEVELS, MOST = 2, 10_000
"""At most LEVELS levels of folders are searched. The search ends after MOST files and folders."""


def files(place: str) -> list[str]:
    """The names of the files in a folder and its subfolders, relative to the folder, without hidden files. Links to
    folders are followed, because loading a model follows them, too.
    """
    out, count = list[str](), 0
    for where, folders, names in os.walk(place, followlinks=True):
        prefix = os.path.relpath(where, place).replace(os.sep, "/") + "/"
        out += [("" if prefix == "./" else prefix) + name for name in names if not name.startswith(".")]
        count += len(names) + len(folders)
        deep = prefix.count("/") >= LEVELS or count > MOST
        circle = {os.path.realpath(one) for one in (place, where)}  # following links to these folders would never end
        folders[:] = sorted(
            one for one in folders
            if not (deep or one.startswith(SKIPPED) or os.path.realpath(os.path.join(where, one)) in circle)
        )  # fmt: skip
    return sorted(out)


def is_read(name: str) -> bool:
    """Whether loading the model reads the file."""
    return name.endswith(READ) and not name.startswith(STATES) and name not in RECORDS
