"""Method `orpo`: odds ratio preference optimization, which learns from preference pairs without a reference model."""

from __future__ import annotations

from xpc.compiler.language.methods.definition import Method

ORPO = Method(
    "orpo",
    "learns to prefer the better of two answers by their odds, without a reference model",
    ("preference",),
    ("method.beta", "method.max_prompt", "batch.seq", "data.max_tokens", "data.chat"),
    sequences=2,
    counts="pairs",
    cuts_rows="uncounted",
    head="model",
    aliases="odds ratio; odds ratio preference optimization; odds ratio preference",
)
