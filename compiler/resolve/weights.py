"""Compute the digests of the files of local models: weights, tokenizers, adapters.

Local models are not copied into the bundle; the bundle's manifest contains their digests instead. `xpc check` does not
compute the digests, because this takes minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.files.file_digests import file_digest
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.spec import Spec
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.record import evolve
from xpc.runtime.features.launch.model_folder import is_read


def with_weights(spec: CheckedSpec, workspace: Workspace) -> CheckedSpec:
    """Return the spec with the digests of the files of its local models, each under the file's name in the spec.

    The digests are stored in `workspace.memory`. If `workspace.trusts_memory` is true, a file with a stored digest is
    read again only if its size, times or inode have changed.
    """
    found: dict[str, str] = {}
    for name in model_files(spec, workspace):
        digest = file_digest(workspace.locate(name)[1], workspace.memory, workspace.trusts_memory)
        if digest is not None:
            found[name] = digest
    return evolve(spec, weights=found) if found else spec


def local_models(spec: Spec) -> list[str]:
    """The folders of local models, as the spec writes them: the model, the teacher, and the adapter whose training
    continues. Models on the hub are not included.
    """
    models = [spec.model.path, spec.teacher.path if spec.teacher else None]
    folders = [*models, spec.continued.path if spec.continued else None]
    return list(dict.fromkeys(one.rstrip("/") for one in folders if one))


def model_files(spec: Spec, workspace: Workspace) -> Iterator[str]:
    """The files of a spec's local models that a run reads. Folders that do not exist on this machine are skipped."""
    for folder in local_models(spec):
        for name in workspace.listed(folder) if workspace.kind(folder) == "folder" else ():
            if is_read(name):
                yield f"{folder}/{name}"


def model_paths(spec: Spec, workspace: Workspace) -> dict[str, str]:
    """Map the name of each file of a local model in the spec to its path on disk."""
    return {name: workspace.locate(name)[1] for name in model_files(spec, workspace)}
