"""Torch's names for xpc's dtypes."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "bfloat16"}
"""With `precision fp8`, everything but the products of the linear layers is computed in bf16."""
