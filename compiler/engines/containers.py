"""Names and paths that all engines with containers use: the shared folder, image names, and names of Kubernetes
objects.
"""

from __future__ import annotations

import re

from xpc.compiler.spec import Spec

FOLDER = "/workspace"
"""The path at which a container mounts the shared folder."""

CACHE = f"""\
export HF_HOME="${{HF_HOME:-{FOLDER}/.cache/huggingface}}"
"""
"""Shell lines that make the run store its downloads from the hub in the shared folder."""

LONGEST_NAME = 45
"""The maximum length of NAME in a pod's name, NAME-node-0-1023-abcde, which has at most 63 characters (DNS label)."""

TOKENS = {
    "wandb": ("WANDB_API_KEY",),
    "swanlab": ("SWANLAB_API_KEY",),
    "clearml": ("CLEARML_API_ACCESS_KEY", "CLEARML_API_SECRET_KEY"),
}
"""Maps each tracker to the environment variables that contain its secrets."""


def pod_name(name: str) -> str:
    """Return a legal name for a Kubernetes object (RFC 1035): lower case, digits and dashes, beginning with a letter.

    A name that is too long is cut, and gets a digest of the complete name, so that two long names stay different.
    """
    label = "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower()).strip("-")
    if not label[:1].isalpha():
        label = f"run-{label}".rstrip("-")
    if len(label) > LONGEST_NAME:
        from hashlib import sha256

        label = f"{label[: LONGEST_NAME - 9].rstrip('-')}-{sha256(name.encode()).hexdigest()[:8]}"
    return label


def tokens(spec: Spec) -> list[str]:
    """The names of the environment variables that contain the secrets of the run's trackers, such as WANDB_API_KEY.
    MLflow's server usually needs none.
    """
    return [name for tracker in spec.names("track") for name in TOKENS.get(tracker, ())]


def object_name_fault(name: str) -> str | None:
    """The reason why Kubernetes would refuse a name for a volume claim or a secret (RFC 1123 subdomain), or None."""
    if len(name) > 253:
        return "it is longer than 253 characters"
    for part in name.split("."):
        if not part:
            return "a part before or after a dot is empty"
        if not all(c.isascii() and (c.isdecimal() or c.islower() or c == "-") for c in part):
            return "it may contain lower case letters, digits, dashes and dots"
        if part.startswith("-") or part.endswith("-"):
            return "it begins and ends with a letter or a digit"
    return None


def nearest_object_name(name: str) -> str:
    """A legal name for a Kubernetes object that is similar to an illegal one."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-.") else "-" for c in name.lower())[:253]
    parts = [part.strip("-") for part in kept.split(".")]
    return ".".join(part for part in parts if part) or "my-name"


def image_fault(image: str) -> str | None:
    """The reason why an image name is illegal in every registry, or None. Source: distribution/reference's grammar."""
    if image.startswith("docker:"):
        return "`docker:` is SkyPilot's prefix, which xpc adds"
    if "://" in image:
        return "an image is a name, without `https://`"
    name, at, digest = image.partition("@")
    if at and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        return "a digest is `sha256:` and 64 hexadecimal digits"
    head, colon, tag = name.rpartition(":")
    if colon and "/" not in tag:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", tag):
            return "a tag has letters, digits, dots, dashes and underscores, 128 at most"
        name = head
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?", first):
            return "its registry is not a host name"
        name = rest
    if not all(re.fullmatch(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*", part) for part in name.split("/")):
        return "its name has lower case letters, digits, and single dots, dashes or underscores between them"
    return "it is longer than 255 characters" if len(name) > 255 else None
