"""Functions with which proofs measure the teacher in TRL's distillation trainers."""

from __future__ import annotations

from typing import Any

import tiny_models


def _teacher(run: Any) -> Any:
    """Load a tiny teacher. If the bundle's teacher is Qwen2.5 7B, the vocabularies of the tiny teacher and of the
    student differ in size, as in reality.
    """
    stated = run.plan["method"]["teacher"]
    if stated is None:
        return None
    model = tiny_models.load(run.family, run.plan["model"], "causal")
    if stated["id"].endswith("-7B"):
        model.resize_token_embeddings(model.config.vocab_size + 128, mean_resizing=False)
    return model


def taught(run: Any) -> dict[str, Any]:
    """Build TRL's trainer with the bundle's teacher, without the runtime."""
    made = run.maker(model=run.model, teacher_model=_teacher(run), args=run.args, train_dataset=run.rows,
                 processing_class=run.tokenizer)  # fmt: skip
    return {"teacher": type(made.teacher_model).__name__}


def compared(run: Any) -> dict[str, Any]:
    """Compute TRL's loss from logits of student and teacher. Raises any exception of TRL."""
    import torch
    from trl import GKDTrainer

    ids = torch.arange(3, 9)[None]
    loss = GKDTrainer.generalized_jsd_loss(run.model(ids).logits, _teacher(run)(ids).logits)
    return {"loss": bool(loss >= 0)}
