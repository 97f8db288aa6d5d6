"""Map xpc's names of dtypes to torch's names."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "bfloat16"}
"""Torch's dtype for each precision. `fp8` maps to bfloat16, because only the matrix products of linear layers are
computed in fp8.
"""
