"""Cases of preference tuning, reinforcement, adapters (XP45x to XP48x, XP63x to XP69x)."""

from __future__ import annotations

from case_support import Case

CASES: tuple[Case, ...] = ()
