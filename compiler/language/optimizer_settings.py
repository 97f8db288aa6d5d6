"""The settings of `optimizer` and `schedule`."""

from __future__ import annotations

from xpc.compiler.language import kinds as k
from xpc.compiler.language.optimizers import NAMES
from xpc.compiler.language.setting import Setting

OPTIMIZER = (
    Setting("optimizer", k.CHOICE, "optimizer", default="adamw", head=True, choices=NAMES, args=("optim",)),
    Setting("optimizer.lr", k.REAL, "peak learning rate", default=2e-5, low=0, high=1, args=("learning_rate",)),
    Setting("optimizer.betas", k.REALS, "decay rates of Adam's moments", default=(0.9, 0.999),
            args=("adam_beta1", "adam_beta2")),
    Setting("optimizer.eps", k.REAL, "Adam's epsilon", default=1e-8, low=0, args=("adam_epsilon",)),
    Setting("optimizer.weight_decay", k.REAL, "decoupled weight decay", default=0.0, low=0, args=("weight_decay",)),
    Setting("optimizer.clip", k.REAL, "maximum gradient norm; 0 turns clipping off", default=1.0, low=0,
            args=("max_grad_norm",)),
    Setting("optimizer.targets", k.TARGETS, "linear modules whose gradients are projected (galore, apollo)",
            args=("optim_target_modules",), inner=True),
    Setting("optimizer.rank", k.INT, "rank of the projection (galore, apollo)", low=1, high=2**16, inner=True),
    Setting("optimizer.scale", k.REAL, "scale of the projected update (galore, apollo)", low=0, inner=True),
    Setting("optimizer.update_proj_gap", k.INT, "steps between two projections (galore, apollo)", low=1, inner=True),
    Setting("optimizer.momentum", k.REAL, "momentum (sgd, rmsprop, muon)", low=0, high=1, inner=True),
    Setting("optimizer.adamw_lr", k.REAL,
            "peak learning rate of embeddings, head, norms and biases, which AdamW trains (muon)", low=0, high=1,
            inner=True),
    Setting("optimizer.adjust_lr", k.CHOICE,
            "factor by which Muon scales the learning rate of a matrix: 0.2 x sqrt(longer side), which suits AdamW's "
            "rates (match_rms_adamw), or sqrt(rows / columns), at least 1 (original)",
            choices=("match_rms_adamw", "original"), inner=True, bare=False),
    Setting("schedule", k.CHOICE, "how the learning rate changes over the run", default="linear", head=True,
            choices=("linear", "cosine", "constant", "wsd", "polynomial", "inverse_sqrt", "cosine_with_restarts",
                     "reduce_lr_on_plateau", "greedy"), args=("lr_scheduler_type",)),
    Setting("schedule.warmup", k.STEPS_OR_SHARE, "length of the linear warm-up", default=k.Amount("count", 0), low=0,
            args=("warmup_steps", "warmup_ratio")),
    Setting("schedule.min_lr", k.REAL_OR_SHARE, "learning rate at the end (cosine, wsd, polynomial), or the lowest "
            "(reduce_lr_on_plateau, greedy)", low=0, args=("lr_scheduler_kwargs",)),
    Setting("schedule.max_lr", k.REAL_OR_SHARE, "highest learning rate that the schedule may reach (greedy); "
            "default is `lr`", low=0, inner=True),
    Setting("schedule.warmup_lr", k.REAL_OR_SHARE, "learning rate at the start of the warm-up (cosine with `min_lr`)",
            low=0, inner=True),
    Setting("schedule.decay", k.STEPS_OR_SHARE, "length of the final decay (wsd)", low=0),
    Setting("schedule.decay_type", k.CHOICE, "shape of the final decay (wsd)", choices=("cosine", "linear", "sqrt"),
            bare=False, inner=True),
    Setting("schedule.cycles", k.INT, "number of times the learning rate restarts (cosine_with_restarts)", low=1,
            high=10**6, inner=True),
    Setting("schedule.power", k.REAL, "power of the decay (polynomial)", low=0, inner=True),
    Setting("schedule.timescale", k.INT, "steps after which the rate is divided by sqrt(2) (inverse_sqrt)",
            low=1, inner=True),
    Setting("schedule.factor", k.REAL, "factor by which the rate changes (reduce_lr_on_plateau, greedy)", low=0, high=1,
            inner=True),
    Setting("schedule.patience", k.INT, "evaluations without progress before the rate changes (reduce_lr_on_plateau, "
            "greedy)", low=0, inner=True),
)  # fmt: skip
"""The rows of the clauses `optimizer` and `schedule` in the table of settings (`schema.py`)."""
