"""SkyPilot's names for GPUs, and addresses of buckets."""

from __future__ import annotations

from xpc.grammar.package_data import read_json

BUCKETS = ("s3://", "gs://", "r2://", "cos://", "oci://", "nebius://", "cw://", "https://")
"""Prefixes of bucket addresses in SkyPilot."""


def gpu_names() -> dict[str, str]:
    """SkyPilot's name for each GPU of the registry that it knows, from `gpus.json`.

    Source: SkyPilot's catalog v8 (`common/accelerators.csv`) and, for GPUs that no cloud lists,
    `sky/utils/gpu_names.py` of 0.14.1.
    """
    return read_json(__file__, "gpus.json")


def is_bucket(volume: str) -> bool:
    """Whether a volume of SkyPilot is a bucket, which is object storage and not a shared file system."""
    return volume.startswith(BUCKETS)
