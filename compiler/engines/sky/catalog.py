"""SkyPilot's names of GPUs, and addresses of buckets."""

from __future__ import annotations

BUCKETS = ("s3://", "gs://", "r2://", "cos://", "oci://", "nebius://", "cw://", "https://")
"""Prefixes of bucket addresses in SkyPilot."""

GPUS = {
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
"""SkyPilot's names of the registry's GPUs. Source: its catalog v8 (`common/accelerators.csv`) and, for GPUs that no
cloud lists, `sky/utils/gpu_names.py` of 0.14.1."""


def is_bucket(volume: str) -> bool:
    """Whether a volume of SkyPilot is a bucket, which is object storage and not a shared file system."""
    return volume.startswith(BUCKETS)
