"""Check the names of repositories on the hub. This module is loaded only for a spec that pushes to the hub."""

from __future__ import annotations

LONGEST = 96


def fault(name: str) -> str:
    """The reason why the hub refuses the name of a repository, or "" for a legal name.

    Source: huggingface_hub 0.36 and 2.4 `utils/_validators.py` (`validate_repo_id`).
    """
    parts = name.split("/")
    if len(parts) > 2 or not all(parts):
        return "it is `model` or `owner/model`"
    if len(parts[-1]) > LONGEST:
        return f"it has {len(parts[-1])} characters; the limit is {LONGEST}"
    strange = next((one for one in name if not (one.isascii() and (one.isalnum() or one in "-_./"))), None)
    if strange is not None:
        return f"it contains {strange!r}; a name has only letters, digits, `-`, `_` and `.`"
    if any(one[0] in "-." or one[-1] in "-." for one in parts):
        return "it begins or ends with `-` or `.`"
    if "--" in name or ".." in name:
        return "it has `--` or `..`"
    return "it ends with `.git`" if name.endswith(".git") else ""


def nearest_name(name: str) -> str:
    """Return a legal name that is similar to a repository's illegal name. If none of its characters can be kept, return
    `model`.
    """
    parts = []
    for part in [one for one in name.split("/") if one][-2:]:
        kept = "".join(one if one.isascii() and (one.isalnum() or one in "_.") else "-" for one in part)
        while "--" in kept or ".." in kept:
            kept = kept.replace("--", "-").replace("..", ".")
        parts.append(kept[:LONGEST].removesuffix(".git").strip("-."))
    return "/".join(one for one in parts if one) or "model"


def of_folder(path: str) -> str:
    """The repository to which a run pushes by default. As in transformers, its name is the last part of the output
    folder's path.
    """
    return path.rstrip("/").rpartition("/")[2]
