"""SkyPilot's names for GPUs, and a test whether a volume is a bucket."""

from __future__ import annotations

from xpc.grammar.package_data import read_json

BUCKETS = ("s3://", "gs://", "r2://", "cos://", "oci://", "nebius://", "cw://", "https://")
"""Prefixes by which SkyPilot recognizes the address of a bucket, such as `s3://`."""


def gpu_names() -> dict[str, str]:
    """Map the registry's name of a GPU to SkyPilot's name, from `gpus.json`. GPUs that SkyPilot does not know are left
    out.

    Source: SkyPilot's catalog v8 (`common/accelerators.csv`) and, for GPUs that no cloud lists,
    `sky/utils/gpu_names.py` of 0.14.1.
    """
    return read_json(__file__, "gpus.json")


def is_bucket(volume: str) -> bool:
    """Whether `volume` names a bucket. A bucket is object storage, and not a shared file system."""
    return volume.startswith(BUCKETS)
