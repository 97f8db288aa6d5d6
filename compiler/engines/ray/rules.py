"""Rules of Ray (XP894, XP895): the shared folder, and a vLLM server."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.engines.cluster_rules import endless_server
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = chosen("launch", "ray")


@rule("XP894", "ray-folder-is-not-absolute")
def folder(spec: Spec) -> Iterator[Finding]:
    """The workers of a Ray job start in a copy of the bundle, which Ray deletes some time after the job.

    `volume` is the folder in which every node starts launch.sh: an absolute path such as `/mnt/shared`. A relative path
    would be inside that copy, and an address such as `s3://mine` is not a folder. Today: each node writes to its own
    copy, the nodes find no common checkpoint, and everything is deleted with the job. Source: ray 2.60
    `_private/runtime_env/working_dir.py` (`delete_uri`).
    """
    path = spec.get("launch.volume")
    if not isinstance(path, str) or (path.startswith("/") and path.isprintable()):
        return
    bare = path.partition("://")[2] if "://" in path else path
    kept = "/".join(part for part in bare.split("/") if part.isprintable() and part not in ("", ".", "..", "~"))
    yield Finding(
        spec.place("launch.volume", "not an absolute path" if path.isprintable() else "has a control character"),
        f"`{path[:60]}` is not a folder that every node of a Ray cluster could have",
        'write the path at which all nodes mount it, such as `volume = "/mnt/shared"`',
        replace=f'volume = "/mnt/{kept or "shared"}"' if '"' not in kept and "\\" not in kept else None,
    )


@rule("XP895", "server-on-ray")
def server(spec: Spec) -> Iterator[Finding]:
    """All workers of a Ray Train job run the same function, and the job ends when all have ended; a server never ends.

    Today: after the training the job waits for the server and keeps its nodes. Source: ray 2.60
    `train/v2/_internal/execution/controller/controller.py` (a run is finished when every worker has).
    """
    yield from endless_server(spec, "worker", "Ray Train job")
