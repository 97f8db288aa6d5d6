"""Find the modules that a wrong target of an adapter means: `Q_PROJ`, `q_proj|k_proj`, `self_attn`. Loaded only for a
wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from xpc.compiler.suggest.likeness import typo_of


def likely(target: str, legal: Iterable[str]) -> tuple[str, ...]:
    """The last names of the legal paths that a target means; empty if that is not clear.

    `Q_PROJ` means q_proj, `q_proj|k_proj` both, and a part of the model such as `self_attn` every module in it.
    """
    legal = tuple(legal)
    last = tuple(dict.fromkeys(path.rpartition(".")[2] for path in legal))
    out: list[str] = []
    for part in re.split(r"[|,\s]+", re.sub(r"[\^$()*\\]|\.(?=\*)", "", target).strip(" .")):
        found = [name for name in last if name.lower() == part.rpartition(".")[2].lower()]
        found = found or [path.rpartition(".")[2] for path in legal if part.lower() in path.lower().split(".")[:-1]]
        near = None if found else typo_of(part, last)
        if not found and near is None:
            return ()
        out += [*found, *([near] if near else [])]
    return tuple(dict.fromkeys(out))
