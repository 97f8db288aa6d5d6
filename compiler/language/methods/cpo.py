"""Method `cpo`: contrastive preference optimization, and SimPO as one of its losses. Both learn from preference pairs
without a reference model.
"""

from __future__ import annotations

from xpc.compiler.language import kinds as k
from xpc.compiler.language.methods.definition import Method
from xpc.compiler.language.setting import Setting

CPO = Method(
    "cpo",
    "learns to make the better of two answers likelier, without a reference model; `loss = simpo` is SimPO",
    ("preference",),
    ("method.loss", "method.beta", "method.max_prompt", "batch.seq", "data.max_tokens", "data.chat"),
    (
        Setting("method.margin", k.REAL, "margin by which the better answer should be likelier (`loss = simpo`)",
                args=("simpo_gamma",), methods=("cpo",), low=0, inner=True, example="0.5"),
        Setting("method.likelihood", k.REAL, "weight of an additional likelihood loss on the chosen answer; SimPO as "
                "published has 0", args=("cpo_alpha",), methods=("cpo",), low=0, inner=True, example="0"),
    ),
    sequences=2,
    counts="pairs",
    cuts_rows="uncounted",
    head="model",
    aliases="contrastive preference optimization",
)  # fmt: skip
