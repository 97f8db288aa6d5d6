"""`python tests/evidence/reports.py docs/reports.md`: write the page of publicly reported problems from
reports.toml.
"""

from __future__ import annotations

import os
import sys
import tomllib
from functools import lru_cache

from attrs import field, frozen

HERE = os.path.dirname(os.path.abspath(__file__))
REFUSED, WARNED, MENDED, RIGHT, UNSAYABLE, OPEN = "refused", "warned", "mended", "right", "unsayable", "open"
OUTCOMES = {
    REFUSED: "xpc refuses the spec",
    WARNED: "xpc warns",
    MENDED: "the bundle's runtime avoids or reports it",
    RIGHT: "a test shows that the problem does not occur",
    UNSAYABLE: "no spec can express it, or no target has the versions",
    OPEN: "accepted, but no test shows that the run is right",
}
"""Maps the values of `now` in reports.toml to their meaning."""
GROUPS = {
    "division": "The loss or its gradient is divided by the wrong number",
    "packing": "Packed rows attend to each other",
    "labels": "The wrong tokens bear loss",
    "adapters": "Adapters that are not trained, not saved, or changed by merging",
    "sharding": "Sharding, precision and communication",
    "numbers": "Losses of 0 and gradients of nan",
    "reference": "Reference models and preferences",
    "online": "Generated completions and rewards",
    "checkpoints": "Checkpoints, resuming and the best model",
    "arguments": "Arguments that are silently dropped",
}
"""Maps the groups of reports to their titles, in the order of the page."""
HEAD = """\
# What is known to go wrong, and what xpc does about it

Written by `make docs` from `tests/evidence/reports.toml`; do not edit.

This page has {reports} problems that people reported in {threads} public issue threads of 2024 to 2026: training
configurations that fail late, or silently change what is learned. Each thread was read as far as a search index of
issues shows it, so later comments can be missing. If a spec can express the configuration, the report has that spec. A
test checks every spec that xpc refuses or warns about, and that the named tests exist. The list is a sample, and does
not show how often a problem occurs.

| outcome | reports |
|---|---|
"""


@frozen
class Report:
    """An entry of reports.toml: one problem of a library, the issue threads about the problem, and what xpc does today
    about the problem.

    `threads` maps each thread to the versions that it mentions.
    """

    group: str
    threads: dict[str, str]
    what: str
    now: str
    codes: list[str] = field(factory=list)
    by: str = "check"
    test: str = ""
    why: str = ""
    spec: str = ""
    files: dict[str, str] = field(factory=dict)

    @property
    def text(self) -> str:
        """The spec of the report, as the text of a file."""
        return f"xpc 1\n\n{self.spec.strip()}\n" if self.spec else ""


@lru_cache
def reports() -> tuple[Report, ...]:
    """Every report in reports.toml."""
    with open(os.path.join(HERE, "reports.toml"), "rb") as handle:
        return tuple(Report(**one) for one in tomllib.load(handle)["report"])


def page() -> str:
    """The text of docs/reports.md."""
    every = reports()
    lines = [HEAD.format(threads=sum(len(one.threads) for one in every), reports=len(every)).rstrip("\n")]
    lines += [f"| {text} | {sum(one.now == now for one in every)} |" for now, text in OUTCOMES.items()]
    for name, title in GROUPS.items():
        lines += ["", f"## {title}", "", "| what happened | threads | today |", "|---|---|---|"]
        lines += [
            f"| {cell(one.what)} | {'<br>'.join(link(*thread) for thread in one.threads.items())} | {outcome(one)} |"
            for one in every
            if one.group == name
        ]
    return "\n".join(lines) + "\n"


def link(thread: str, versions: str) -> str:
    """A Markdown link to an issue thread. After the link stand the library versions that the thread mentions."""
    name, _, number = thread.partition("#")
    return f"[{thread}](https://github.com/{name}/issues/{number}) ({cell(versions)})"


def outcome(one: Report) -> str:
    """A table cell: what xpc does about the report's problem today, with the codes that refuse it or the test that
    shows it.
    """
    codes = ", ".join(f"[{code}](rules.md#{code.lower()})" for code in one.codes)
    test = f"`{one.test.rpartition('::')[2]}` in `{one.test.partition('::')[0]}`"
    return {
        REFUSED: f"refused: {codes}",
        WARNED: f"`xpc {one.by}` warns: {codes}",
        MENDED: f"the runtime avoids or reports it, as shown by {test}",
        RIGHT: f"does not occur, as shown by {test}",
        UNSAYABLE: f"xpc cannot produce such a run: {cell(one.why)}",
        OPEN: f"**open**: {cell(one.why)}",
    }[one.now]


def cell(text: str) -> str:
    """Format a text as a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "docs/reports.md"
    with open(path, "w", encoding="utf-8", newline="\n") as handle:
        handle.write(page())
    print(f"wrote {path}")
