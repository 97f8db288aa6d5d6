"""What Kubernetes and SkyPilot call legal, and what a cluster asks of a run. Loaded only for specs that name one."""

from __future__ import annotations

from xpc.compiler.spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.language.paths import Path

READ_BY = {
    "partition": ("slurm",),
    "account": ("slurm",),
    "exclusive": ("slurm",),
    "time": ("slurm", "k8s"),
    "requeue": ("slurm", "k8s", "sky"),
    "image": ("k8s", "sky"),
    "volume": ("k8s", "sky"),
    "secret": ("k8s",),
}
"""Settings of `launch` that only some launchers read; `launcher` and `nccl_timeout` are for all."""

BUCKETS = ("s3://", "gs://", "r2://", "cos://", "oci://", "nebius://", "cw://", "https://")
"""What a bucket's address begins with, as SkyPilot reads it."""

TEMPFAIL = 75
"""The status of a run that was asked to stop, and that goes on when it is started again."""

RESTARTS = 3
"""Times that a run which failed is begun again; one that was asked to stop is begun again without counting."""

FOLDER = "/workspace"
"""Where a container finds the shared folder that the run reads and writes."""

CACHE = f"""\
export HF_HOME="${{HF_HOME:-{FOLDER}/.cache/huggingface}}"
"""
"""Lines of a container's shell: what the hub sends is kept in the shared folder."""

LONGEST_NAME = 45
"""A pod is called NAME-node-0-1023-abcde, which is a DNS label of at most 63 characters."""

SKY_GPUS = {
    "p100-16gb": "P100",
    "p100-pcie-16gb": "P100",
    "v100-16gb": "V100",
    "v100-pcie-16gb": "V100",
    "v100-32gb": "V100-32GB",
    "v100-pcie-32gb": "V100-32GB",
    "t4": "T4",
    "a100-40gb": "A100",
    "a100-pcie-40gb": "A100",
    "a100-80gb": "A100-80GB",
    "a100-pcie-80gb": "A100-80GB",
    "a800-80gb": "A800",
    "a30": "A30",
    "a10": "A10",
    "a10g": "A10G",
    "a40": "A40",
    "rtx-a5000": "RTXA5000",
    "rtx-a6000": "RTXA6000",
    "rtx-3090": "RTX3090",
    "rtx-4090": "RTX4090",
    "rtx-5090": "RTX5090",
    "rtx-6000-ada": "RTX6000-Ada",
    "rtx-pro-6000": "RTXPRO6000",
    "l4": "L4",
    "l40": "L40",
    "l40s": "L40S",
    "h100-80gb": "H100",
    "h100-pcie-80gb": "H100",
    "h100-nvl-94gb": "H100-NVL",
    "h200": "H200",
    "gh200-96gb": "GH200",
    "b200": "B200",
    "gb200": "GB200",
}
"""The registry's GPUs as SkyPilot names them: its catalog v8 (`common/accelerators.csv`) and, for what no cloud lists,
`sky/utils/gpu_names.py` of 0.14.1."""


def pod_name(name: str) -> str:
    """A name for an object of Kubernetes (RFC 1035): lower case, digits and dashes, a letter first.

    A longer one is cut, and the digest of the whole keeps two of them apart.
    """
    label = "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower()).strip("-")
    if not label[:1].isalpha():
        label = f"run-{label}".rstrip("-")
    if len(label) > LONGEST_NAME:
        from hashlib import sha256

        label = f"{label[: LONGEST_NAME - 9].rstrip('-')}-{sha256(name.encode()).hexdigest()[:8]}"
    return label


def object_name_fault(name: str) -> str | None:
    """Why Kubernetes would refuse the name of a claim or a secret (RFC 1123 subdomain), or None."""
    if len(name) > 253:
        return "it is longer than 253 characters"
    for part in name.split("."):
        if not part:
            return "nothing stands before or after a dot"
        if not all(c.isascii() and (c.isdigit() or c.islower() or c == "-") for c in part):
            return "it may hold lower case letters, digits, dashes and dots"
        if part.startswith("-") or part.endswith("-"):
            return "it begins and ends with a letter or a digit"
    return None


def nearest_object_name(name: str) -> str:
    """A legal name that is close to a name that is not."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-.") else "-" for c in name.lower())[:253]
    parts = [part.strip("-") for part in kept.split(".")]
    return ".".join(part for part in parts if part) or "my-name"


def image_fault(image: str) -> str | None:
    """Why no registry has an image of this name, or None. Source: the reference grammar of distribution/reference."""
    import re

    if image.startswith("docker:"):
        return "`docker:` is SkyPilot's word for it, and is written for you"
    if "://" in image:
        return "it is a name and no address: no `https://`"
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
            return "the host of its registry is no host"
        name = rest
    if not all(re.fullmatch(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*", part) for part in name.split("/")):
        return "its name has lower case letters, digits, and single dots, dashes or underscores between them"
    return "it is longer than 255 characters" if len(name) > 255 else None


def is_bucket(volume: str) -> bool:
    """Whether a volume of SkyPilot is a bucket: storage of objects, and no shared file system."""
    return volume.startswith(BUCKETS)


def starts_over(spec: Spec) -> Path | None:
    """The setting because of which a run that is started again has nothing to go on from, or None."""
    every = spec.amount("save.every")
    if every.unit == "never":
        return "save.every"
    if not spec.flag("save.full_state"):
        return "save.full_state"
    return "save.resume" if spec.get("save.resume") == "never" else None


def requeues(spec: Spec) -> bool:
    """Whether the engine starts the run again: as written, or where there is something to go on from."""
    return spec.flag("launch.requeue") if spec.written("launch.requeue") else starts_over(spec) is None


def outside(spec: Spec) -> list[str]:
    """Local files and folders that the run reads and the bundle does not hold."""
    found = [spec.model.path] if spec.model.path else []
    return found + [
        one.path for one in spec.sources if one.path and any(part.bundled is None for part in one.parts or (one,))
    ]


def grace(spec: Spec) -> int:
    """Seconds from the request to stop to the end: a step, and a checkpoint at 500 MB/s.

    14 bytes a parameter is what AdamW in mixed precision saves; five minutes at least.
    """
    facts = spec.model.facts
    seconds = 900 if facts is None else 120 + facts.params * 14 // 500_000_000
    return max(300, -(-seconds // 60) * 60)


def server_gpus(spec: Spec) -> int:
    """GPUs that a vLLM server needs for the weights in 16 bits, which may take 60 % of each: 1, 2, 4 and so on."""
    gpu, facts = spec.hardware.gpu, spec.model.facts
    count = 1
    if gpu is not None and facts is not None:
        while count < spec.hardware.processes and facts.params * 2 > 0.6 * gpu.memory_gib * 2**30 * count:
            count *= 2
    return min(count, spec.hardware.processes) if gpu is not None else 1
