"""Rules for SkyPilot: names of GPUs, images and volumes that it refuses, buckets as shared folders, and vLLM
servers.
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.engines.cluster_rules import endless_server, image_fault
from xpc.compiler.engines.containers import nearest_object_name, object_name_fault
from xpc.compiler.engines.sky.catalog import BUCKETS, gpu_names, is_bucket
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = chosen("launch", "sky")


@rule("XP870", "gpu-that-skypilot-has-not")
def unknown_gpu(spec: Spec) -> Iterator[Finding]:
    """SkyPilot's catalog must have the GPU, because a task requests accelerators by the catalog's names. Some GPUs of
    xpc's registry are not in the catalog.

    Why it is bad: the run cannot start.

    Without this rule: SkyPilot searches its complete catalog and then reports that no cloud has the GPU.

    Source: skypilot 0.14.1 `gpu_names.py`, its catalog v8 `common/accelerators.csv`; read, not run.
    """
    gpu = spec.hardware.gpu
    if gpu is not None and gpu.name not in gpu_names():
        yield Finding(
            spec.location("hardware", "not in its catalog"),
            f"SkyPilot has no {gpu.name}",
            "write a GPU that clouds offer, such as `hardware 8 x h100-80gb`, or start it with `launch slurm`",
            (spec.label("launch", "the launcher"),),
        )


@rule("XP871", "server-on-skypilot")
def server(spec: Spec) -> Iterator[Finding]:
    """A task of SkyPilot cannot include a vLLM server: every node runs the same command, and the task ends only when
    all nodes have ended. `launch k8s` can include a server: its JobSet has a separate job for the server, and ends this
    job when the training ends.

    Why it is bad: the task does not end after the training, so its nodes have to be paid for.

    Without this rule: nothing is reported, and the task never ends, because the server never ends.

    Source: not tested, because it needs a cloud account.
    """
    yield from endless_server(spec, "node", "task of SkyPilot")


@rule("XP872", "bucket-between-nodes")
def bucket(spec: Spec) -> Iterator[Finding]:
    """If the run has several nodes, their checkpoints must be in a volume, and not in a bucket. A single node may keep
    its checkpoints in a bucket.

    Why it is bad: on a mounted bucket, a node sees its own files at once but the files of other nodes only some time
    later.

    Without this rule: when all nodes have written their files of a checkpoint, one node renames the checkpoint's
    folder. On a bucket, this node may not see the other nodes' files yet, so the renamed folder may lack some of these
    files.

    Source: skypilot 0.14.1, storage mode MOUNT_CACHED (rclone); read, not run.
    """
    volume = spec.get("launch.volume")
    if isinstance(volume, str) and is_bucket(volume) and spec.hardware.nodes > 1:
        yield Finding(
            spec.location("launch.volume", "a bucket"),
            f"{spec.hardware.nodes} nodes cannot write checkpoints to a bucket together",
            "write `volume = NAME`, the name of a volume (`sky volumes ls`), or `nodes 1`",
            (spec.label("nodes", "the nodes"),),
        )


@rule("XP873", "image-that-is-no-name-for-sky")
def image_name(spec: Spec) -> Iterator[Finding]:
    """`image` must be a legal name of an image, such as `ghcr.io/me/train:1`, without the prefix `docker:`, which xpc
    adds for SkyPilot.

    Why it is bad: the run never starts, but the cluster has to be paid for.

    Without this rule: SkyPilot rents the machines, and these then cannot pull the image.

    Source: skypilot 0.14.1 `resources.py`; read, not run.
    """
    yield from image_fault(spec)


@rule("XP874", "volume-that-is-no-name")
def volume_name(spec: Spec) -> Iterator[Finding]:
    """A volume of SkyPilot must have a name that Kubernetes accepts; a bucket has an address such as s3://name.

    Why it is bad: the run has no folder for its checkpoints.

    Without this rule: the task is refused, or looks for a volume that cannot exist.

    Source: skypilot 0.14.1 `utils/volume.py`, `data/storage.py`; read, not run.
    """
    volume = spec.get("launch.volume")
    if not isinstance(volume, str):
        return
    scheme = next((one for one in BUCKETS if volume.startswith(one)), "")
    name = volume.removeprefix(scheme).partition("/")[0] if scheme else volume
    why = object_name_fault(name)
    if why is not None:
        yield Finding(
            spec.location("launch.volume", why),
            f"`{volume[:60]}` is neither a volume nor a bucket",
            'write `volume = my-volume`, or a bucket such as `volume = "s3://my-bucket"`',
            replace=f'volume = "{scheme}{nearest_object_name(name)}"',
        )
