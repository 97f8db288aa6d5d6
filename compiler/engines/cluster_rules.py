"""Rules for all engines that use a cluster: settings that the engine does not read, restarts without a checkpoint, and
a missing shared folder.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator

from xpc.compiler.engines.containers import image_fault as image_name_fault
from xpc.compiler.engines.engine import engine
from xpc.compiler.engines.restarts import reads_requeue, restart_blocker
from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.launch_settings import readers
from xpc.compiler.language.schema import children
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import any_of, has_value, names_an_engine
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.saving.checkpoints import OWN
from xpc.compiler.spec import Spec

WHEN = any_of(names_an_engine, has_value("launch.retries"))


@rule("XP890", "setting-of-another-launcher", reads=tuple(row.path for row in children("launch")))
def another_launcher(spec: Spec) -> Iterator[Finding]:
    """A setting of `launch` needs a launcher that reads it, such as `launch slurm` for `partition`. For example, only
    Slurm has partitions, only containers have images, and a run on this machine has no time limit. `requeue = false` is
    always allowed. A spec that extends a base may choose another launcher than the base; this rule then ignores the
    inherited settings of the base's launcher.

    Why it is bad: the spec states something that does not happen.

    Without this rule: nothing is reported, and the launcher ignores the setting.

    Source: the compiler's own engines (`xpc.compiler.engines`).
    """
    name = spec.text("launch")
    replaced = spec.values["launch"].origin.kind == SPEC
    for row in children("launch"):
        if not spec.written(row.path) or name in readers(row) or spec.get(row.path) is False:
            continue
        if replaced and spec.values[row.path].origin.kind == BASE:
            continue
        owners = " or ".join(f"`launch {one}`" for one in readers(row))
        yield Finding(
            spec.location(row.path, f"read with {owners}"),
            f"`launch {name}` does not read `{row.name}`",
            f"leave `{row.name}` out",
            (spec.label("launch", "the launcher"),),
        )


@rule("XP891", "requeue-from-nothing", "warning")
def requeue_from_nothing(spec: Spec) -> Iterator[Finding]:
    """`requeue` restarts a stopped run, and `retries` restarts a failed run. Both settings need a checkpoint from which
    the run can continue. They should stay off (the default) if the run saves no checkpoints, if its checkpoints lack
    the optimizer's state, or if `resume = never`.

    Why it is bad: the run starts from the beginning each time.

    Without this rule: each restart trains from the first step again. With `resume = never`, the restart is refused.

    Source: the runtime's `core/checkpoints.py`; transformers 5.23 `save_only_model`.
    """
    reason = restart_blocker(spec)
    requeued = spec.flag("launch.requeue") and reads_requeue(spec)
    again: Path = "launch.requeue" if requeued else "launch.retries"
    if reason is not None and (requeued or spec.get("launch.retries")):
        name = reason.rpartition(".")[2]
        value = {"save.every": "epoch", "save.full_state": "true", "save.resume": "auto"}[reason]
        yield Finding(
            spec.location(
                again, "each restart is refused" if reason == "save.resume" else "each restart begins at step 0"
            ),
            "a restarted run finds no checkpoint to continue from",
            f"write `{name} = {value}` in `save`, or leave `{again.rpartition('.')[2]}` out",
            (spec.label(reason, "the cause"),),
        )


@rule("XP892", "nodes-share-no-folder")
def no_shared_folder(spec: Spec) -> Iterator[Finding]:
    """A run in pods or on rented machines needs a `volume` for its checkpoints and its model, because all nodes resume
    from the same checkpoint. On a single node, a missing volume is only a warning, and it is not reported if the run
    pushes its model to the hub. A local model or data file that is not in the bundle must be in the volume or in the
    image.

    Why it is bad: without a volume, the files of the run are deleted together with the machine, and no node sees
    another node's files.

    Without this rule: the nodes find no common checkpoint, and the run stops.

    Source: confirmed by running two nodes (`tests/launch/test_two_nodes.py`); showing that a pod keeps nothing would
    need a cluster.
    """
    what = engine(spec).volume
    if not what or spec.get("launch.volume") is not None:
        return
    answer = f"write `volume = NAME`, the name of {what}"
    # the image in the spec may contain the local files
    paths = [] if spec.written("launch.image") else _outside(spec)
    if paths:
        yield Finding(
            spec.location("launch", "mounts no folder"),
            f"{paths[0][:60]} is neither in the bundle nor in a folder that the nodes share",
            answer,
        )
    elif spec.hardware.nodes > 1:
        yield Finding(
            spec.location("launch", "mounts no folder"),
            f"{spec.hardware.nodes} nodes share no folder for checkpoints",
            answer,
            (spec.label("nodes", "the nodes"),),
        )
    elif not spec.flag("save.hub"):
        yield Finding(
            spec.location("launch", "mounts no folder"),
            "the run's files are deleted with its machine",
            f"{answer}, or push to the hub: `save hub`",
            severity="warning",
        )


@rule("XP913", "option-of-a-submission")
def submission_options(spec: Spec) -> Iterator[Finding]:
    """`extra_args` of SkyPilot and Ray must be complete options (`--use-spot`, `--infra=aws`) of the command that
    submits the run, without characters that a shell interprets. README.md of the bundle prints that command.

    Why it is bad: an option may contradict the command or the job file, or change the number of nodes or GPUs.

    Without this rule: the option is given twice, or the job gets other resources than the spec states.

    Source: skypilot 0.14.1 `sky jobs launch --help`, ray 2.60 `ray job submit --help`; read, not run.
    """
    if not engine(spec).submission:
        return
    for text in spec.names("launch.extra_args"):
        name = text.removeprefix("--").partition("=")[0]
        plain = all(c.isascii() and (c.isalnum() or c in "-_=.,:/+@%") for c in text)
        taken = name in engine(spec).submission
        if text.startswith("--") and name and plain and not taken:
            continue
        yield Finding(
            spec.location("launch.extra_args", "written by the bundle" if taken else "not `--name` or `--name=value`"),
            f"`{text[:60]}` cannot be passed to the command that submits the run",
            'write complete options, such as `extra_args = ["--name=value"]`, but no option that the bundle sets',
        )


def _outside(spec: Spec) -> list[str]:
    """The local files and folders that the run reads, except those that are copied into the bundle."""
    found = [spec.model.path] if spec.model.path else []
    return found + [
        one.path for one in spec.sources if one.path and any(part.bundled is None for part in one.parts or (one,))
    ]


def endless_server(spec: Spec, node: str, job: str) -> Iterator[Finding]:
    """Refuse a vLLM server if the job ends only when all of its nodes have ended. A server never ends by itself, so
    such a job would never end. The rules of engines with such jobs call this function.
    """
    if spec.asks_server:
        yield Finding(
            spec.location("method.vllm.mode", f"a {node} that never ends"),
            f"a {job} ends only when all of its nodes end, and a vLLM server never ends",
            "write `mode = colocate`, or `launch k8s`",
            (spec.label("launch", "the launcher"),),
            replace="mode = colocate" if spec.written("method.vllm.mode") else None,
        )


@rule("XP896", "saved-outside-of-the-volume", "warning")
def outside_of_the_volume(spec: Spec) -> Iterator[Finding]:
    """On Kubernetes and with SkyPilot, `save` should be a relative path, or a folder inside of /workspace, because
    /workspace is where the `volume` is mounted.

    Why it is bad: a folder such as /data/out is on the disk of one pod or one rented machine. Other nodes cannot read
    it, and it is deleted together with the machine.

    Without this rule: nothing is reported. A restarted run finds no checkpoint, and the model is lost at the end.

    Source: the files that `launch k8s` and `launch sky` write (`volumeMounts`, `volumes`).
    """
    mounted = engine(spec).mounted
    folder = posixpath.normpath(spec.text("save"))
    if not mounted or spec.get("launch.volume") is None or not folder.startswith("/"):
        return
    if folder != mounted and not folder.startswith((f"{mounted}/", *(f"{one}/" for one in OWN))):
        yield Finding(
            spec.location("save", f"the volume is mounted at {mounted}"),
            "the run saves outside of its volume",
            f'write `save "out/{posixpath.basename(folder)}"`, a folder of {mounted}',
            (spec.label("launch.volume", "the volume"),),
            f'"out/{posixpath.basename(folder)}"',
        )


def image_fault(spec: Spec) -> Iterator[Finding]:
    """Refuse an invalid image name. The rules of all engines that read `image` call this function."""
    image = spec.get("launch.image")
    why = image_name_fault(image) if isinstance(image, str) else None
    if why is not None:
        # pyxis calls enroot, and enroot writes a `#` after the registry: nvcr.io#nvidia/pytorch
        bare = str(image).partition("://")[2] or str(image).removeprefix("docker:")
        bare = bare.replace("#", "/", 1)
        legal = f"image = {json.dumps(bare)}" if image_name_fault(bare) is None else None
        yield Finding(
            spec.location("launch.image", why),
            f"`{str(image)[:60]}` is not the name of an image",
            f"write `{legal}`" if legal else 'write a name such as `image = "ghcr.io/me/train:1"`',
            replace=legal,
        )
