"""Compute the digests of the files of local models: weights, tokenizers, adapters.

Local models are not copied into the bundle. Instead, its manifest has their digests. `xpc check` does not compute them,
because hashing takes minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.files.file_digests import file_digest
from xpc.compiler.files.file_memory import FileMemory
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.spec import Spec
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.record import evolve

READ = (".safetensors", ".bin", ".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")
"""Endings of those files in a model's folder that transformers and peft read."""
STATES = ("optimizer", "scheduler", "scaler", "rng_state", "trainer_state", "training_args", "pytorch_model_fsdp")
"""Prefixes of files in a checkpoint that a new run does not read, such as optimizer states."""
RECORDS = ("xpc_run.json", "summary.json", "all_results.json", "train_results.json", "eval_results.json")
"""Files that a run of xpc or transformers writes into a model's folder, and that are not a part of the model."""


def with_weights(
    spec: CheckedSpec, workspace: Workspace, memory: FileMemory | None = None, trusted: bool = False
) -> CheckedSpec:
    """The spec with the digests of its local models' files, by the name of each file in the spec.

    Digests are stored in `memory`; with `trusted`, a stored digest is used without reading the file again.
    """
    found: dict[str, str] = {}
    for name in model_files(spec, workspace):
        digest = file_digest(workspace.locate(name)[1], memory, trusted)
        if digest is not None:
            found[name] = digest
    if not found:
        return spec
    return CheckedSpec.of(evolve(spec, weights=found), spec.problems, spec.silenced)


def local_models(spec: Spec) -> list[str]:
    """The folders of local models, by their paths in the spec: the model, the teacher and the adapter to continue.
    Models on the hub are not included.
    """
    models = [spec.model.path, spec.teacher.path if spec.teacher else None]
    folders = [*models, spec.continued.path if spec.continued else None]
    return list(dict.fromkeys(one.rstrip("/") for one in folders if one))


def model_files(spec: Spec, workspace: Workspace) -> Iterator[str]:
    """The files of a spec's local models that a run reads. Folders that do not exist on this machine are skipped."""
    for folder in local_models(spec):
        for name in workspace.listed(folder) if workspace.kind(folder) == "folder" else ():
            if name.endswith(READ) and not name.startswith(STATES) and name not in RECORDS:
                yield f"{folder}/{name}"
