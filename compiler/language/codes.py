"""The codes of diagnostics about names and values in a spec, and of the diagnostics of `xpc preview`. The explanations
of these codes are in `codes.toml`. Rules state their own codes.
"""

from __future__ import annotations

import re

from xpc.grammar import codes as syntax
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.package_data import read_table

CODES: dict[str, tuple[str, str]] = {
    "XP101": ("unknown-setting", "error"),
    "XP102": ("misplaced-setting", "error"),
    "XP103": ("written-twice", "error"),
    "XP104": ("wrong-kind", "error"),
    "XP105": ("wrong-unit", "error"),
    "XP106": ("unknown-choice", "error"),
    "XP107": ("out-of-range", "error"),
    "XP108": ("unknown-model", "error"),
    "XP109": ("unregistered-model", "note"),
    "XP110": ("unknown-dataset", "error"),
    "XP111": ("unregistered-dataset", "note"),
    "XP112": ("unknown-gpu", "error"),
    "XP113": ("unknown-target", "error"),
    "XP114": ("file-not-read", "error"),
    "XP115": ("extends-chain", "error"),
    "XP117": ("no-header", "error"),
    "XP118": ("model-facts", "error"),
    "XP119": ("unused-data", "error"),
    "XP120": ("owned-by-a-setting", "error"),
    "XP121": ("unknown-extra", "error"),
    "XP122": ("two-revisions", "error"),
    "XP123": ("data-not-here", "error"),
    "XP124": ("unknown-columns", "error"),
    "XP125": ("no-edition", "warning"),
    "XP126": ("setting-of-another-method", "error"),
    "XP128": ("encoder-decoder", "error"),
    "XP129": ("task-file", "error"),
    "XP130": ("vision-model", "error"),
    "XP140": ("part-of-a-split", "error"),
    "XP930": ("continued-adapter-folder", "error"),
    "XP935": ("checkpoint-without-weights", "error"),
    "XP161": ("rows-of-a-preview", "note"),
    "XP190": ("assumed", "note"),
    "XP199": ("rows-not-read", "note"),
    "XP880": ("sweep-shape", "error"),
    "XP881": ("zip-of-unequal-lists", "error"),
    "XP882": ("not-swept", "error"),
    "XP883": ("too-many-members", "error"),
    "XP884": ("same-members", "warning"),
    "XP885": ("written-and-swept", "warning"),
    "XP886": ("members-on-one-branch", "error"),
    "XP887": ("array-of-several-shapes", "error"),
    "XP590": ("data-from-a-hidden-folder", "warning"),
    "XP166": ("tool-fails", "error"),
    "XP175": ("tokenizer-not-as-in-its-file", "warning"),
    "XP177": ("end-token-of-generation", "warning"),
    "XP587": ("special-token-in-text", "warning"),
    "XP588": ("reward-fails", "error"),
    "XP589": ("own-answer-not-rewarded", "warning"),
    "XP591": ("nothing-learned", "warning"),
    "XP592": ("end-not-learned", "warning"),
    "XP593": ("begin-token-twice", "warning"),
    "XP594": ("empty-thoughts-learned", "warning"),
    "XP595": ("answer-cut-away", "warning"),
    "XP596": ("turn-cut", "warning"),
    "XP597": ("everything-learned", "warning"),
    "XP598": ("lost-by-the-template", "error"),
    "XP599": ("written-in-another-form", "error"),
    "XP888": ("array-larger-than-usual", "warning"),
    "XP901": ("unused-silence", "warning"),
    "XP902": ("malformed-silence", "warning"),
}
"""Maps a code to its slug (a short name) and its severity."""


def explanation(code: str) -> str:
    """The paragraph that `xpc explain CODE` prints for a code in `CODES`, or for a syntax error's code."""
    texts = read_table(__file__, "codes.toml")
    return " ".join((texts if code in texts else read_table(syntax.__file__, "codes.toml"))[code].split())


def first_sentence(text: str) -> str:
    """The first sentence of an explanation, on one line. A dot between backticks, or in `Dr.` or `e.g.`, does not end
    the sentence.
    """
    line = " ".join(text.split())
    ends = (found.start() for found in re.finditer(r"(?<=\.)(?<!\bDr\.)(?<!\be\.g\.) ", line))
    return line[: next((end for end in ends if line.count("`", 0, end) % 2 == 0), None)]


def report(
    code: str,
    message: str,
    primary: Label | None = None,
    *,
    related: tuple[Label, ...] = (),
    help: str | None = None,
    edits: tuple[Edit, ...] = (),
) -> Diagnostic:
    """Make a diagnostic with this code. `CODES` has the slug and the severity of each code."""
    slug, severity = CODES[code]
    return Diagnostic(code, slug, severity, message, primary, related, help, edits)


class Problems(list[Diagnostic]):
    """Collects diagnostics in the order in which they are found."""

    def report(
        self,
        code: str,
        message: str,
        primary: Label | None = None,
        *,
        related: tuple[Label, ...] = (),
        help: str | None = None,
        edits: tuple[Edit, ...] = (),
    ) -> None:
        """Append a diagnostic with this code. `CODES` has the slug and the severity of each code."""
        self.append(report(code, message, primary, related=related, help=help, edits=edits))
