"""Method `distill`: a student learns a teacher's probabilities on completions that the student generates."""

from __future__ import annotations

from xpc.compiler.language import kinds as k
from xpc.compiler.language.methods.definition import Method
from xpc.compiler.language.setting import Setting

DISTILL = Method(
    "distill",
    "generates completions, and learns the probabilities that a teacher gives to their tokens",
    ("prompt", "prompt_completion"),
    (
        "method.beta", "method.max_prompt", "method.max_completion", "method.temperature", "method.top_p",
        "method.top_k", "method.min_p", "method.repetition_penalty", "method.log_completions",
    ),
    (
        Setting("method.teacher", k.MODEL, "model to learn from", args=("teacher_model_name_or_path",),
                methods=("distill",), inner=True, example="qwen2.5-1.5b-instruct"),
        Setting("method.teacher_dtype", k.CHOICE, "dtype of the loaded teacher; default is the model's",
                choices=("fp32", "bf16", "fp16"), bare=False, methods=("distill",), inner=True,
                example="bf16"),
        Setting("method.lmbda", k.REAL, "share of the batches whose completions the student generates; the other "
                "batches use completions from the data (trl-0.18, trl-0.24)", low=0, high=1, default=1.0,
                args=("lmbda",), methods=("distill",), inner=True),
    ),
    defaults={
        "optimizer.lr": 1e-6, "method.beta": 1.0, "method.temperature": 1.0, "method.max_completion": 512,
    },
    arguments={"disable_dropout": False, "dataset_kwargs": {"skip_prepare_dataset": True}},
    counts="completions",
    generates=True,
    head="weight",
    aliases="gkd; distillation; knowledge distillation; kd; generalized knowledge distillation; on policy "
    "distillation; distil; teacher student; distilling",
)  # fmt: skip
