"""Rules for runs on every cluster (XP89x): settings that its launcher reads, checkpoints, a shared folder."""

from __future__ import annotations

import json
from collections.abc import Iterator

from xpc.compiler.engines.containers import image_fault as image_name_fault
from xpc.compiler.engines.engine import engine
from xpc.compiler.engines.restarts import reads_requeue, restart_blocker
from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.launch_settings import readers
from xpc.compiler.language.schema import children
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import either, given, names_an_engine
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = either(names_an_engine, given("launch.retries"))


@rule("XP890", "setting-of-another-launcher", reads=tuple(row.path for row in children("launch")))
def another_launcher(spec: Spec) -> Iterator[Finding]:
    """A setting of `launch` belongs to another launcher: partitions are Slurm's, and images are for containers.

    A setting that nothing reads would promise what does not happen. `requeue = false` is accepted, as it asks for
    nothing, and so are settings that a base writes for a launcher that its child replaces.
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
            spec.place(row.path, f"read with {owners}"),
            f"`{row.name}` means nothing to `launch {name}`",
            f"leave `{row.name}` out",
            (spec.label("launch", "the launcher"),),
        )


@rule("XP891", "requeue-from-nothing", "warning")
def requeue_from_nothing(spec: Spec) -> Iterator[Finding]:
    """A restarted run resumes from its newest checkpoint; without one it begins from the start, every time.

    A checkpoint without the optimizer's state cannot be resumed from, and `resume = never` does not look for one, so
    that the second start is refused. Without checkpoints the defaults of `requeue` and `retries` are off. Source:
    runtime/core/checkpoints.py; transformers 5.23 `save_only_model`.
    """
    reason = restart_blocker(spec)
    requeue = spec.flag("launch.requeue") and reads_requeue(spec)
    again: Path = "launch.requeue" if requeue else "launch.retries"
    if reason is not None and (requeue or spec.get("launch.retries")):
        name = reason.rpartition(".")[2]
        value = {"save.every": "epoch", "save.full_state": "true", "save.resume": "auto"}[reason]
        yield Finding(
            spec.place(
                again, "is refused each time" if reason == "save.resume" else "starts from the beginning each time"
            ),
            "a restarted run finds no checkpoint to resume from",
            f"write `{name} = {value}` in `save`, or leave `{again.rpartition('.')[2]}` out",
            (spec.label(reason, "because of this"),),
        )


@rule("XP892", "nodes-share-no-folder")
def no_shared_folder(spec: Spec) -> Iterator[Finding]:
    """Pods and rented machines keep nothing: checkpoints are lost with them, and no node sees another's files.

    Several nodes resume from one checkpoint that each must read, so they need a folder that all of them mount. For one
    node it is a warning, unless the hub keeps the model. A local model or data file that is not in the bundle reaches
    the nodes in such a folder, or in an image.
    """
    what = engine(spec).volume
    if not what or spec.get("launch.volume") is not None or "launch.volume" in spec.wrong:
        return
    answer = f"write `volume = NAME`, the name of {what}"
    paths = [] if spec.written("launch.image") else _outside(spec)  # an image may contain them
    if paths:
        yield Finding(
            spec.place("launch", "mounts no folder"),
            f"{paths[0][:60]} is not in the bundle, and the nodes have no folder to find it in",
            answer,
        )
    elif spec.hardware.nodes > 1:
        yield Finding(
            spec.place("launch", "mounts no folder"),
            f"{spec.hardware.nodes} nodes share no folder for checkpoints",
            answer,
            (spec.label("nodes", "the nodes"),),
        )
    elif not spec.flag("save.hub"):
        yield Finding(
            spec.place("launch", "mounts no folder"),
            "nothing that the run writes outlives its machine",
            f"{answer}, or push to the hub: `save hub`",
            severity="warning",
        )


@rule("XP913", "option-of-a-submission")
def submission_options(spec: Spec) -> Iterator[Finding]:
    """`extra_args` of SkyPilot and Ray are added to the command that submits the run, which README.md prints.

    Each is a complete option (`--use-spot`, `--infra=aws`) without characters that a shell interprets. Options that the
    command or the file has already are refused, and so are those that change the number of nodes or GPUs. Source:
    skypilot 0.14.1 `sky jobs launch --help`, ray 2.60 `ray job submit --help`.
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
            spec.place(
                "launch.extra_args", "written by the file itself" if taken else "not `--name` or `--name=value`"
            ),
            f"`{text[:60]}` cannot be passed to the submission",
            "write complete options, each a text, and leave out those that other settings decide",
        )


def _outside(spec: Spec) -> list[str]:
    """Local files and folders that the run reads and the bundle does not contain."""
    found = [spec.model.path] if spec.model.path else []
    return found + [
        one.path for one in spec.sources if one.path and any(part.bundled is None for part in one.parts or (one,))
    ]


def endless_server(spec: Spec, node: str, job: str) -> Iterator[Finding]:
    """A vLLM server in a job that ends when all of its nodes have ended; shared by the launchers of such jobs."""
    if spec.asks_server:
        yield Finding(
            spec.place("method.vllm.mode", f"a {node} that never ends"),
            f"a {job} cannot end a vLLM server",
            "write `mode = colocate`, or `launch k8s`",
            (spec.label("launch", "the launcher"),),
            replace="mode = colocate" if spec.written("method.vllm.mode") else None,
        )


def image_fault(spec: Spec) -> Iterator[Finding]:
    """An illegal name of a container's image; shared by the launchers that read `image`."""
    image = spec.get("launch.image")
    why = image_name_fault(image) if isinstance(image, str) else None
    if why is not None:
        bare = str(image).removeprefix("docker:").removeprefix("https://")
        yield Finding(
            spec.place("launch.image", why),
            f"`{str(image)[:60]}` is not an image",
            'write a name such as `image = "ghcr.io/me/train:1"`',
            replace=f"image = {json.dumps(bare)}" if bare != image and image_name_fault(bare) is None else None,
        )
