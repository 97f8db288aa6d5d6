"""Rules of SkyPilot (XP87x): names of GPUs, the image, the volume, and a vLLM server."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.engines.cluster_rules import endless_server, image_fault
from xpc.compiler.engines.containers import nearest_object_name, object_name_fault
from xpc.compiler.engines.sky.catalog import BUCKETS, GPUS, is_bucket
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = chosen("launch", "sky")


@rule("XP870", "gpu-that-skypilot-has-not")
def unknown_gpu(spec: Spec) -> Iterator[Finding]:
    """A task names accelerators of SkyPilot's catalog, which does not have every GPU of the registry.

    Today: SkyPilot searches its catalog and finds no cloud with the GPU. Source: skypilot 0.14.1 `gpu_names.py`, its
    catalog v8 `common/accelerators.csv`.
    """
    gpu = spec.hardware.gpu
    if gpu is not None and gpu.name not in GPUS:
        yield Finding(
            spec.place("hardware", "in none of its catalogs"),
            f"SkyPilot has no {gpu.name}",
            "write a GPU that clouds rent, such as `hardware 8 x h100-80gb`, or start it with `launch slurm`",
            (spec.label("launch", "the launcher"),),
        )


@rule("XP871", "server-on-skypilot")
def server(spec: Spec) -> Iterator[Finding]:
    """Every node of a task runs the same command, and the task ends when all have ended; a server never ends.

    A JobSet (`launch k8s`) has a separate job for the server, waits for its health, and ends it with the training.
    """
    yield from endless_server(spec, "node", "task of SkyPilot")


@rule("XP872", "bucket-between-nodes")
def bucket(spec: Spec) -> Iterator[Finding]:
    """In a mounted bucket a node sees its own files at once, and those of other nodes only some time later.

    A checkpoint of several nodes is renamed when all of its files exist, which a node cannot see in a bucket. A single
    node may keep its checkpoints there. Source: skypilot 0.14.1, storage mode MOUNT_CACHED (rclone).
    """
    volume = spec.get("launch.volume")
    if isinstance(volume, str) and is_bucket(volume) and spec.hardware.nodes > 1:
        yield Finding(
            spec.place("launch.volume", "a bucket"),
            f"{spec.hardware.nodes} nodes cannot write checkpoints to a bucket together",
            "write `volume = NAME`, the name of a volume (`sky volumes ls`), or `nodes 1`",
            (spec.label("nodes", "the nodes"),),
        )


@rule("XP873", "image-that-is-no-name-for-sky")
def image_name(spec: Spec) -> Iterator[Finding]:
    """An image is a name, with an optional host before it and an optional tag or digest after it; xpc adds `docker:`.

    Today: the cluster is rented, and then cannot pull the image. Source: skypilot 0.14.1 `resources.py`.
    """
    yield from image_fault(spec)


@rule("XP874", "volume-that-is-no-name")
def volume_name(spec: Spec) -> Iterator[Finding]:
    """A volume of SkyPilot has a legal name of Kubernetes; a bucket has an address such as s3://name.

    Today: the task is refused, or looks for a volume that cannot exist. Source: skypilot 0.14.1 `utils/volume.py`,
    `data/storage.py`.
    """
    volume = spec.get("launch.volume")
    if not isinstance(volume, str):
        return
    scheme = next((one for one in BUCKETS if volume.startswith(one)), "")
    name = volume.removeprefix(scheme).partition("/")[0] if scheme else volume
    why = object_name_fault(name)
    if why is not None:
        yield Finding(
            spec.place("launch.volume", why),
            f"`{volume[:60]}` is neither a volume nor a bucket",
            'write `volume = my-volume`, or a bucket such as `volume = "s3://my-bucket"`',
            replace=f'volume = "{scheme}{nearest_object_name(name)}"',
        )
