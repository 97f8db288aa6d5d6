"""Compare the files of local models (weights, tokenizer, adapter) of two runs. Bundles do not contain these files."""

from __future__ import annotations

import os
from collections.abc import Mapping

from xpc.compiler.files.file_digests import size_and_digest
from xpc.compiler.files.file_memory import user_memory
from xpc.compiler.resolve.weights import model_files
from xpc.compiler.review.differences.change import Change
from xpc.compiler.spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.files.workspace import Workspace

ABSENT = "absent"
LARGEST = 2**50
"""Maximum size in bytes of a model file that is read; larger files count as unreadable."""
DIGITS = 16
"""Number of characters of a digest that are shown."""
STATED = "sha256:"


def model_paths(spec: Spec, workspace: Workspace) -> dict[str, str]:
    """Map the name in the spec of each file of a local model to the file's path on disk."""
    return {name: workspace.locate(name)[1] for name in model_files(spec, workspace)}


def model_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """The files that differ. The values of `before` and `after` are digests from bundle.toml (`sha256:...`) or paths of
    files, which are hashed.

    Only folders that both runs use are compared, because another folder is another model. Equal paths name the same
    file, which is not read.
    """
    folders = {os.path.dirname(name) for name in before} & {os.path.dirname(name) for name in after}
    found = []
    for name in sorted({*before, *after}):
        was, now = before.get(name), after.get(name)
        if os.path.dirname(name) not in folders or was == now:
            continue
        texts = [ABSENT if one is None else _digest(one) for one in (was, now)]
        if texts[0] != texts[1]:
            found.append(Change(name, texts[0][:DIGITS], texts[1][:DIGITS]))
    return tuple(found)


def _digest(stated_or_path: str) -> str:
    if stated_or_path.startswith(STATED):
        return stated_or_path.removeprefix(STATED)
    found = size_and_digest(stated_or_path, LARGEST, user_memory())
    return "unreadable" if found is None else found[1]
