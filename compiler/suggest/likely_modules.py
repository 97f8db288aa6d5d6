"""Find the modules for a wrong target of an adapter, such as `Q_PROJ`, `q_proj|k_proj` or `self_attn`. Imported only
for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from xpc.compiler.suggest.likeness import typo_of


def likely(target: str, legal: Iterable[str]) -> tuple[str, ...]:
    """The last parts of the legal module paths that a wrong target probably means; empty if that is unclear.

    `Q_PROJ` becomes q_proj, `q_proj|k_proj` both, and a part of the model such as `self_attn` all modules in it.
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
