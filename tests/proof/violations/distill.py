"""Proofs of rules about distillation."""

from __future__ import annotations

from prove import Proof

from violations.extras import small
from xpc.compiler.stacks import DEFAULT, STACKS

OLD = "trl-0.18"


def student(strategy: str) -> str:
    """A spec for distillation on the CPU, in which the student is trained with adapters."""
    method = "distill(teacher=qwen2.5-1.5b, max_completion=8)"
    return small("lora", method=method, on="deepmath-103k", strategy=strategy, batch="gbs=2 micro=2")


PROOFS: tuple[Proof, ...] = (
    Proof("G33", "XP645", at="train", raises="AttributeError", match="NoneType"),
    Proof("G33", "XP645", target=OLD, at="load", measure="distill.taught", raises="AttributeError",
          match="NoneType", variant="0.18"),
    Proof("G34", "XP646", at="load", measure="distill.taught", raises="ValueError", match="vocab_size"),
    Proof("G34", "XP646", target=OLD, at="load", measure="distill.compared", raises="RuntimeError", match="equal size",
          variant="0.18"),
    Proof("G36", "XP648", onto="legal", arguments={"lmbda": 0.5}, raises="TypeError", match="lmbda"),
    Proof("G37", "XP649", raises="ValueError", match="beta must be in"),
    Proof("G37", "XP649", target=OLD, raises="ValueError", match="beta must be in", variant="0.18"),
    Proof("G38", "XP650", needs="several GPUs"),
    *(Proof("G45", "XP653", at="train", target=target, shape="messages", raises="IndexError", match="empty deque",
            text=student("zero3"), legal=student("zero2"), variant=target.partition("-")[2])
      for target in STACKS if target != DEFAULT),
    Proof("G39", "XP651", needs="a GPU"),
)  # fmt: skip
