"""Proofs of rules about the best checkpoint, evaluation at the start, determinism and formats of weights."""

from __future__ import annotations

from typing import Any

from case_support import spec, trained
from prove import Proof
from spec_parts import BEST, HELD, extra

SHORT = "qwen2.5-3b on infinity-instruct for 20 steps"
EACH = "eval(every=1)"
CONFIG: dict[str, Any] = {"at": "config", "raises": "ValueError"}


def best(evaluated: str, saved: str, *more: str) -> str:
    """A spec with the given intervals of evaluation and saving. At its end, the run loads the best checkpoint."""
    return spec(HELD, f"eval(every={evaluated})", *more, extra(BEST), save=f'save "out/run" every={saved}')


def metric(name: str, *more: str) -> str:
    """A spec that evaluates at every step. The best checkpoint is chosen by the given metric."""
    return spec(HELD, EACH, *more, extra(f'metric_for_best_model = "{name}"'))


def saved(*more: str, keep: str = "") -> str:
    """A spec that saves and evaluates at every step."""
    return spec(HELD, EACH, *more, save=f'save "out/run" every=1{keep}')


def late(delay: int, *more: str) -> str:
    """A spec of 20 steps that evaluates only from step `delay` on, and loads the best checkpoint at its end."""
    lines = (HELD, EACH, *more, extra(f"eval_delay = {delay}", BEST))
    return spec(*lines, train=SHORT, save='save "out/run" every=1')


def several(*more: str) -> str:
    """A spec that evaluates on two sets at every step."""
    return spec('eval(every=1, data=["held.jsonl", "far.jsonl"])', *more, train=trained('qwen2.5-3b on "rows.jsonl"'))


def cpu(*more: str) -> str:
    """A spec for a single process on the CPU, with ZeRO."""
    return spec(*more, hardware="cpu", precision="fp32", batch="gbs=4 micro=2")


PROOFS: tuple[Proof, ...] = (
    Proof("C01", "XP510", match="save and eval strategy to match", **CONFIG),
    Proof("C01", "XP510", case="XP510-without-evaluation", match="save and eval strategy to match", variant="no-evaluation",
          **CONFIG),
    Proof("C01", "XP510", case="XP510-without-checkpoints", match="save and eval strategy to match", variant="no-save",
          **CONFIG),
    Proof("C02", "XP511", match="which is not a round multiple of", **CONFIG),
    Proof("C02", "XP511", case="XP511-shares", match="which is not a multiple of 0.05", variant="shares", **CONFIG),
    Proof("C02", "XP511", case="XP511-rounding", match="0.3, which is not a round multiple of 0.1", variant="rounding",
          legal=best("10%", "20%", "target trl-0.18"), **CONFIG),
    Proof("C03", "XP511", case="XP511-mixed", match="mixing ratio and absolute steps", **CONFIG),
    Proof("C14", "XP515", needs="two machines without a shared folder"),
    Proof("C15", "XP514", at="init", text=saved(extra(BEST, "greater_is_better = true"), keep=" keep=1"), legal=saved(keep=" keep=1"),
          measure="best.kept", expect={"most": 2}, steps=3, common={"learning_rate": 1e-2}),
    Proof("C18", "XP705", at="train", text=spec("target trl-0.18", extra("save_safetensors = false"),
          save='save "out/run" every=1'), legal=spec("target trl-0.18", save='save "out/run" every=1'),
          measure="best.resumable", expect={"missing": "the weights are missing"}),
    Proof("C18", "XP121", case="XP121-removed", onto="legal", arguments={"save_safetensors": False}, raises="TypeError",
          match="save_safetensors"),
    Proof("C21", "XP704", at="init", measure="best.deterministic", expect={"blocking": True, "deterministic": True}),
    Proof("E04", "XP512", at="train", text=metric("accuracy"), legal=metric("mean_token_accuracy"), raises="KeyError",
          match="not found in the evaluation metrics", shape="messages"),
    Proof("E04", "XP512", at="train", text=metric("mean_token_accuracy", "target trl-0.18"),
          legal=metric("eval_loss", "target trl-0.18"), raises="KeyError", match="not found in the evaluation metrics",
          shape="messages", variant="0.18"),
    Proof("E13", "XP526", at="train", text=several(extra('metric_for_best_model = "eval_loss"')),
          legal=several(extra('metric_for_best_model = "eval_held_loss"')), raises="KeyError",
          match="not found in the evaluation metrics"),
    Proof("E13", "XP526", at="train", text=several(extra('metric_for_best_model = "eval_loss"')),
          legal=several(extra('metric_for_best_model = "eval_held_loss"')), raises="KeyError",
          match="not found in the evaluation metrics", target="trl-0.18", variant="0.18"),
    Proof("E20", "XP516", at="train", raises="ValueError", match="eval_dataset"),
    Proof("E26", "XP211", at="init", measure="evaluation.rows_seen", steps=3, expect={"more": True},
          legal=spec("data(holdout=200)", "eval(every=500)")),
    Proof("E21", "XP793", at="init", measure="best.patient", raises="AssertionError", match="requires IntervalStrategy"),
    Proof("E22", "XP794", at="init", measure="best.patient", warns="without load_best_model_at_end"),
    Proof("E23", "XP517", at="init", text=late(100), legal=late(1), measure="best.evaluated",
          expect={"evaluations": 0, "best": None}),
    Proof("E23", "XP517", at="init", text=late(100, "target trl-0.18"), legal=late(1, "target trl-0.18"),
          measure="best.evaluated", expect={"evaluations": 0, "best": None}, variant="0.18"),
    Proof("P20", "XP350", case="XP350-before-ampere", raises="ValueError", match="support bf16/gpu", variant="before-ampere"),
    Proof("P20", "XP350", case="XP350-before-ampere", raises="ValueError", match="support bf16/gpu", target="trl-0.18",
          variant="before-ampere-0.18"),
    Proof("P20", "XP350", case="XP350-zero", at="deepspeed", raises="ValueError", match="mismatch TrainingArguments",
          target="trl-0.18", variant="zero-0.18"),
    Proof("P04", "XP350", case="XP350-both", raises="ValueError", match="for full eval, but not both", target="trl-0.18",
          variant="0.18"),
    Proof("P32", "XP356", case="XP356-zero", raises="ValueError", match="not supported by apex", variant="zero"),
    Proof("D91", "XP494", at="deepspeed", text=cpu(extra("aio.use_gds = true", block="deepspeed")), legal=cpu(),
          raises="AssertionError", match="GDS"),
)  # fmt: skip
