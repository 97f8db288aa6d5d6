"""What the trainers of distillation make of their teacher."""

from __future__ import annotations

from typing import Any

import tiny_models


def _teacher(scene: Any) -> Any:
    """The bundle's teacher as a tiny model: with another vocabulary where the bundle names the larger Qwen2.5."""
    stated = scene.plan["method"]["teacher"]
    if stated is None:
        return None
    model = tiny_models.load(scene.family, scene.plan["model"], "causal")
    if stated["id"].endswith("-7B"):
        model.resize_token_embeddings(model.config.vocab_size + 128, mean_resizing=False)
    return model


def taught(scene: Any) -> dict[str, Any]:
    """The trainer, built as the library builds it."""
    made = scene.maker(model=scene.model, teacher_model=_teacher(scene), args=scene.args, train_dataset=scene.rows,
                 processing_class=scene.tokenizer)  # fmt: skip
    return {"teacher": type(made.teacher_model).__name__}


def compared(scene: Any) -> dict[str, Any]:
    """trl's own loss of the logits of both models."""
    import torch
    from trl import GKDTrainer

    ids = torch.arange(3, 9)[None]
    loss = GKDTrainer.generalized_jsd_loss(scene.model(ids).logits, _teacher(scene)(ids).logits)
    return {"loss": bool(loss >= 0)}
