"""Torch's names for xpc's dtypes."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
