"""Proofs of rules about batch, optimizer, schedule, saving and the launch."""

from __future__ import annotations

from prove import Proof

PROOFS: tuple[Proof, ...] = (
    Proof("B02", "XP201", case="XP201-all-three", at="deepspeed", raises="AssertionError", match="512 != 11"),
    Proof("B01", "XP201", at="config", measure="batch.product", expect={"same": False}),
    Proof("O14", "XP205", at="train", raises="TypeError", match="num_decay_steps", onto="legal",
          arguments={"lr_scheduler_kwargs": {}}),
    Proof("N41", "XP910", case="XP910-ours", at="launch", measure="environment.rendezvous", expect={"address": "me"},
          variant="ours"),
    Proof("N42", "XP911", at="launch", measure="environment.token", expect={"token": "abc", "others": True}),
)  # fmt: skip
