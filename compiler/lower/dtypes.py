"""Translate xpc's names of dtypes to torch's names."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "bfloat16"}
"""Maps each precision to the dtype in torch. The dtype of `fp8` is bfloat16, because only the matrix products of linear
layers are computed in fp8.
"""
