"""Translate xpc's names of dtypes to torch's names."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "bfloat16"}
"""For each precision, the dtype of torch. For `fp8` it is bfloat16, because only the matrix products of linear layers
are computed in fp8.
"""
