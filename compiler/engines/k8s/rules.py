"""Rules for Kubernetes: a pod needs an image and tokens, and the API must accept the names in the manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator

from xpc.compiler.engines.cluster_rules import image_fault
from xpc.compiler.engines.containers import nearest_object_name, object_name_fault, tokens
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = chosen("launch", "k8s")


@rule("XP860", "pods-without-an-image")
def no_image(spec: Spec) -> Iterator[Finding]:
    """Pods need an `image`: a pod runs in a container, and xpc cannot choose an image, because it does not know which
    images have bash and the packages of requirements.txt.

    Why it is bad: the job cannot be created.

    Without this rule: the API server refuses a container without an image.

    Source: Kubernetes `core/v1` Container; read, not run.
    """
    if spec.get("launch.image") is None:
        yield Finding(
            spec.location("launch", "names no image"),
            "pods need an image",
            'write `image = "ghcr.io/me/train:1"`, an image with the packages of requirements.txt',
        )


@rule("XP861", "image-that-is-no-name")
def image_name(spec: Spec) -> Iterator[Finding]:
    """`image` must be a legal name of an image, such as `ghcr.io/me/train:1`: a host before the name and a tag or
    digest after it are optional.

    Why it is bad: the job never starts.

    Without this rule: the pod stays in InvalidImageName, and the job waits.

    Source: the grammar of distribution/reference; read, not run.
    """
    yield from image_fault(spec)


@rule("XP862", "name-that-kubernetes-refuses")
def object_names(spec: Spec) -> Iterator[Finding]:
    """Names of claims and secrets must consist of lower-case letters, digits, dashes and dots (RFC 1123), at most 253
    characters.

    Why it is bad: the job never starts.

    Without this rule: the API server refuses the job, or the pod waits forever for an object that cannot exist.

    Source: Kubernetes, "Object Names and IDs"; read, not run.
    """
    for path in ("launch.volume", "launch.secret", "launch.pull_secret"):
        name = spec.get(path)
        why = object_name_fault(name) if isinstance(name, str) else None
        if why is not None:
            near = f"{path[7:]} = {json.dumps(nearest_object_name(str(name)))}"
            yield Finding(
                spec.location(path, why),
                f"`{str(name)[:60]}` is not a valid name of a {'claim' if path == 'launch.volume' else 'secret'}",
                f"write a valid name, such as `{near}`",
                replace=near,
            )


@rule("XP863", "pods-without-a-token", "warning")
def no_token(spec: Spec) -> Iterator[Finding]:
    """A run in pods that pushes to the hub, or that reports to wandb, SwanLab or ClearML, needs a `secret`: the
    Kubernetes Secret whose keys are variables such as HF_TOKEN and WANDB_API_KEY.

    Why it is bad: a pod does not get the variables of the shell that submits the job.

    Without this rule: the preflight in the pod stops the run because no token may write to the hub; wandb asks for a
    key and ends the run.

    Source: the JobSet that `launch k8s` writes (`envFrom`); wandb's documentation of WANDB_API_KEY.
    """
    offline = any(one in ("WANDB_MODE=offline", "WANDB_MODE=disabled") for one in spec.names("launch.env"))
    needed = [*(["HF_TOKEN"] if spec.flag("save.hub") else []), *tokens(spec)]
    missing = [name for name in needed if not (offline and name == "WANDB_API_KEY")]
    if missing and spec.get("launch.secret") is None:
        yield Finding(
            spec.location("launch", f"no `secret` has {' and '.join(missing)}"),
            f"a pod has no {missing[0]}",
            "write `secret = NAME`, the Secret whose keys are these variables",
            (spec.label("save.hub") if spec.flag("save.hub") else spec.label("track"),),
        )
