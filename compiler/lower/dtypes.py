"""Torch's names of the language's dtypes."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
