"""Cases of syntax (XP0xx)."""

from __future__ import annotations

from case_support import Case

CASES: tuple[Case, ...] = (
    Case("XP005", "seed = " + "[" * 70 + "]" * 70 + "\n", ""),
    Case("XP006", "]\n" * 22, ""),
    Case("XP010", 'save "out\n', ""),
    Case("XP011", 'save "out\\run"\n', ""),
    Case("XP012", "batch {\n  gbs = 8\n", ""),
    Case("XP013", "seed 1\n}\n", ""),
    Case("XP014", "seed = 1; nodes 2\n", ""),
    Case("XP020", "train qwen2.5-3b infinity-instruct\n", ""),
    Case("XP021", "seed =\n", ""),
    Case("XP022", "batch { gbs = 8 micro = 1 }\n", "batch { gbs = 8, micro = 1 }\n"),
    Case("XP023", "seed = 1 nodes = 2\n", ""),
    Case("XP024", "optimizer adamw(betas=[0.9 0.95])\n", ""),
    Case("XP025", "= 1\n", ""),
    Case("XP030", "train qwen2.5-3b on with for 3 epochs\n", ""),
    Case("XP031", "train qwen2.5-3b on infinity-instruct with zero2 for 3 epochs\n", ""),
    Case("XP032", "train gpt2 on alpaca\ntrain gpt2 on c4\n", ""),
    Case("XP033", 'seed 1\nextends "base.xp"\n', ""),
    Case("XP034", "seed 1\nxpc 1\n", ""),
    Case("XP035", "xpc 2\n", ""),
    Case("XP040", "seed = 1__0\n", ""),
    Case("XP041", "seed = 1e999\n", ""),
    Case("XP042", "seed = " + "9" * 400 + "\n", ""),
    Case("XP043", "hardware 8x h100-80gb\n", ""),
    Case("XP044", "train gpt2 on alpaca[:20%]\n", ""),
)
"""Texts that do not parse: one a code of the grammar, for the goldens. `accepted` is not used."""
