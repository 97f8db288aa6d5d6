"""Rules of Kubernetes (XP86x): the image, and names that its API accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator

from xpc.compiler.engines.cluster_rules import image_fault
from xpc.compiler.engines.containers import nearest_object_name, object_name_fault
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = chosen("launch", "k8s")


@rule("XP860", "pods-without-an-image")
def no_image(spec: Spec) -> Iterator[Finding]:
    """A pod needs a container image, and only you know one that has bash and the packages of requirements.txt.

    Today: the API server refuses a container without an image. Source: Kubernetes `core/v1` Container.
    """
    if spec.get("launch.image") is None and "launch.image" not in spec.wrong:
        yield Finding(
            spec.place("launch", "names no image"),
            "pods need an image",
            'write `image = "ghcr.io/me/train:1"`, an image with what requirements.txt lists',
        )


@rule("XP861", "image-that-is-no-name")
def image_name(spec: Spec) -> Iterator[Finding]:
    """An image is a name, with an optional host before it and an optional tag or digest after it.

    Today: the pod stays in InvalidImageName, and the job waits. Source: the grammar of distribution/reference.
    """
    yield from image_fault(spec)


@rule("XP862", "name-that-kubernetes-refuses")
def object_names(spec: Spec) -> Iterator[Finding]:
    """Names of claims and secrets have lower case letters, digits, dashes and dots (RFC 1123), 253 at most.

    Today: the API server refuses the job, or the pod waits forever for an object that cannot exist. Source:
    Kubernetes, "Object Names and IDs".
    """
    for path in ("launch.volume", "launch.secret", "launch.pull_secret"):
        name = spec.get(path)
        why = object_name_fault(name) if isinstance(name, str) else None
        if why is not None:
            near = f"{path[7:]} = {json.dumps(nearest_object_name(str(name)))}"
            yield Finding(
                spec.place(path, why),
                f"Kubernetes has no {'claim' if path == 'launch.volume' else 'secret'} `{str(name)[:60]}`",
                f"write its name, such as `{near}`",
                replace=near,
            )
