"""What stands behind a rule, for documents: the lines of its case, and how its rows are proven.

`evidence.json` is written from the cases and proofs of the tests by `tests/rule_evidence.py` (`make docs`), so that
pages and `xpc explain` need neither. Not read by `check`.
"""

from __future__ import annotations

import json
import os

from attrs import field

from xpc.grammar.record import record

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "evidence.json")
STAGES = {
    "launch": "by `accelerate launch`",
    "config": "when the trainer's configuration is built",
    "deepspeed": "when DeepSpeed reads its configuration",
    "load": "when the model is loaded",
    "init": "when the trainer is built",
    "train": "in training",
    "save": "when the model is saved",
}


@record
class Example:
    """The lines in which a case's rejected spec and its accepted neighbour differ."""

    rejected: tuple[str, ...]
    accepted: tuple[str, ...]


@record
class Proven:
    """How a row is proven for a code: `at` a stage by an exception, a warning, a measurement, or what that needs."""

    code: str
    at: str
    raises: str = ""
    warns: str = ""
    measure: str = ""
    needs: str = ""
    target: str = ""

    @property
    def words(self) -> str:
        """One phrase: `ValueError when the trainer is built`."""
        if self.needs:
            return f"not proven here: needs {self.needs}"
        where = STAGES[self.at] + (f", on {self.target}" if self.target else "")
        if self.raises:
            return f"{self.raises} {where}"
        if self.warns:
            return f"a warning of the library {where}"
        module, _, function = self.measure.rpartition(".")
        return f"measured {where} (`tests/proof/measures/{module.replace('.', '/')}.py`, `{function}`)"


@record
class Evidence:
    """Examples by code and proofs by row."""

    examples: dict[str, Example] = field(factory=dict)
    proofs: dict[str, tuple[Proven, ...]] = field(factory=dict)


def evidence() -> Evidence:
    """What the file says."""
    with open(PATH, encoding="utf-8") as handle:
        table = json.load(handle)
    return Evidence(
        {code: Example(tuple(one["rejected"]), tuple(one["accepted"])) for code, one in table["examples"].items()},
        {row: tuple(Proven(**one) for one in proofs) for row, proofs in table["proofs"].items()},
    )
