"""What torch calls the dtypes of the language."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
