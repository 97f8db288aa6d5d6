"""Rules for Ray: the shared folder must be an absolute path, and a job cannot include a vLLM server."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.engines.cluster_rules import endless_server
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = chosen("launch", "ray")


@rule("XP894", "ray-folder-is-not-absolute")
def folder(spec: Spec) -> Iterator[Finding]:
    """`volume` of a Ray job must be an absolute path such as `/mnt/shared`: launch.sh starts in this folder on every
    node. A relative path would be inside the copy of the bundle that Ray makes for the workers, and an address such as
    `s3://mine` is not a folder.

    Why it is bad: Ray deletes each node's copy of the bundle some time after the job, with all checkpoints in it.

    Without this rule: each node writes to its own copy, the nodes find no common checkpoint, and everything is deleted
    with the job.

    Source: ray 2.60 `_private/runtime_env/working_dir.py` (`delete_uri`); read, not run.
    """
    path = spec.get("launch.volume")
    if not isinstance(path, str) or (path.startswith("/") and path.isprintable()):
        return
    bare = path.partition("://")[2] if "://" in path else path
    kept = "/".join(part for part in bare.split("/") if part.isprintable() and part not in ("", ".", "..", "~"))
    yield Finding(
        spec.location("launch.volume", "not an absolute path" if path.isprintable() else "has a control character"),
        f"`{path[:60]}` is not a folder that all nodes of a Ray cluster can share",
        'write the path at which all nodes mount it, such as `volume = "/mnt/shared"`',
        replace=f'volume = "/mnt/{kept or "shared"}"' if '"' not in kept and "\\" not in kept else None,
    )


@rule("XP895", "server-on-ray")
def server(spec: Spec) -> Iterator[Finding]:
    """A Ray Train job cannot include a vLLM server: all workers run the same function, and the job ends only when all
    workers have ended. The worker with the server would never end.

    Why it is bad: the job never ends, so it keeps its nodes.

    Without this rule: the job waits for the server after the training has ended.

    Source: ray 2.60 `train/v2/_internal/execution/controller/controller.py` (a run is finished when every worker is);
    read, not run.
    """
    yield from endless_server(spec, "worker", "Ray Train job")
