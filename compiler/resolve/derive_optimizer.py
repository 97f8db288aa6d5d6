"""Defaults of special optimizers, and of schedules that change the learning rate when a metric stops improving. This
module is imported only for specs with such an optimizer or schedule.
"""

from __future__ import annotations

from xpc.compiler.language.items import DEFAULT
from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.optimizers import LOW_RANK, PACKAGES, SCHEDULE_FREE
from xpc.compiler.language.schema import path_of
from xpc.compiler.resolve.open_spec import OpenSpec

FACTORS = {"reduce_lr_on_plateau": 0.1, "greedy": 0.95}
PATIENCE = 10
MOMENTUM = 0.95
"""The default momentum of Muon, as in torch 2.13 `optim/_muon.py`. DeepSpeed 0.19.8, LLaMA-Factory and axolotl have the
same.
"""


def own_defaults(of: OpenSpec, optimizer: str, schedule: str) -> None:
    """Set settings to the defaults of transformers' own classes, with two exceptions.

    GreedyLR's own default would raise the learning rate up to 1.0. Because `lr` is documented as the peak, GreedyLR's
    maximum is set to `lr`. A schedule-free optimizer needs no decay, so the schedule is set to constant.
    """
    if optimizer in LOW_RANK:
        scale = 0.25 if optimizer in PACKAGES["galore"] else 1.0
        for name, value in (("rank", 128), ("scale", scale), ("update_proj_gap", 200)):
            of.default(path_of(f"optimizer.{name}"), value, "transformers' own")
    if optimizer == "muon":
        of.default("optimizer.momentum", MOMENTUM, "torch's own")
        of.default("optimizer.adjust_lr", "match_rms_adamw", "fits learning rates that were chosen for AdamW")
        of.default("optimizer.adamw_lr", of.get("optimizer.lr"), "the learning rate of the hidden matrices")
    if optimizer in SCHEDULE_FREE and of.values["schedule"].origin.kind == DEFAULT:
        of.set("schedule", "constant", f"{optimizer} needs no decay", DEFAULT)
    if schedule in FACTORS:
        of.default("schedule.factor", FACTORS[schedule], "transformers' own")
        of.default("schedule.patience", PATIENCE, "transformers' own")
    if schedule == "greedy":
        of.default("schedule.max_lr", Amount("share", 1.0), "`lr` is the highest learning rate")
