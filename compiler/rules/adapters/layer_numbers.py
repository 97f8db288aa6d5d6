"""Check layer numbers in names of modules, such as `layers.30.mlp`: a model with 24 layers has layers 0 to 23."""

from __future__ import annotations

import re
from collections.abc import Iterator

from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.rule import Finding
from xpc.compiler.spec import Spec

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,9})(?=\.|$)")
"""Matches the number of a layer after the name of the list of layers (`layers.30`, `h.30`), for any family."""


def missing_layer(spec: Spec, path: Path) -> Iterator[Finding]:
    """Report the first name in a setting whose layer number is too high for the model."""
    facts, written = spec.model.facts, spec.get(path)
    names = written if isinstance(written, tuple) else (written,)
    if facts is None:
        return
    for name in names:
        found = LAYER.search(name) if isinstance(name, str) else None
        if found is not None and int(found[1]) >= facts.layers:
            yield Finding(
                spec.place(path, f"its layers are 0 to {facts.layers - 1:,}"),
                f"{spec.model.name} has no layer {int(found[1]):,}: `{name[:60]}` names nothing",
                f"name a layer from 0 to {facts.layers - 1:,}",
                (spec.model.label,),
            )
            return
