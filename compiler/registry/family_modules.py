"""The names of the modules of each model family whose decoder layers are all alike (modules.toml)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from xpc.compiler.registry.tables import table
from xpc.grammar.record import record


@record
class Modules:
    """The names of a family's modules; modules.toml explains the keys."""

    linear: Mapping[str, str]
    embeddings: Sequence[str]
    blocks: Sequence[str]
    containers: Sequence[str]
    norms: Sequence[str]
    projections: Sequence[str]

    @property
    def names(self) -> tuple[str, ...]:
        """The last parts of the names of linear layers, and the names of embeddings."""
        return (*dict.fromkeys(name.rpartition(".")[2] for name in self.linear.values()), *self.embeddings)


@cache
def family_modules() -> dict[str, Modules]:
    """The modules of each family. Mixtures of experts and hybrids are not listed, because their modules depend on the
    version of transformers and on the configuration.
    """
    return {family: Modules(**names) for family, names in table("modules").items()}
