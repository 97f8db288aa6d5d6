"""The rule table. In the files `rows/LETTER.toml`, each row has an entry that says how xpc treats the row. The
documents and the tests read the entries.

    [P01]
    name = "bf16-pre-ampere"
    outcome = "implemented"        # the spec can say it, and a code refuses it
    codes = ["XP301"]
    case = "XP301"                 # title of the case that violates the row
    unproven = "it needs a TPU"    # only where no proof shows what the libraries do

    [P02]
    name = "bf16-on-cpu-without-use_cpu"
    outcome = "unwritable"         # or: preflight (found when the bundle starts), refused (with the reason), open
    why = "use_cpu is derived from `hardware cpu`, never written"

`rows/obsolete.toml` lists obsolete restrictions of other tools and older versions, with specs that they forbid.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache

from xpc.grammar.record import record

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rows")
KINDS = ("implemented", "unwritable", "preflight", "refused", "open")
IMPLEMENTED, UNWRITABLE, PREFLIGHT, REFUSED, OPEN = KINDS
GROUPS = {
    "P": "Precision and hardware",
    "A": "Attention and packing",
    "D": "Distributed strategy",
    "B": "Batch arithmetic",
    "C": "Checkpoints, saving and resuming",
    "O": "Optimizer and schedule",
    "Q": "Adapters and quantization",
    "K": "Liger and fused kernels",
    "S": "Supervised fine-tuning",
    "R": "Preferences and rewards",
    "G": "Online reinforcement",
    "T": "Data, templates and loaders",
    "N": "Launchers and nodes",
    "E": "Evaluation and the best model",
    "H": "Hub and logging",
    "X": "Renamed and removed names",
}
"""Maps the letter with which the rows of a group begin to the group's title in the rule table."""


@record
class TableRow:
    """A row of the rule table, with the rules that implement it (`codes`) and the test case that shows it (`case`). If
    no rule implements the row, `why` gives the reason, and `codes`, `case` and `unproven` are empty.

    `unproven` is the reason why no proof shows what the libraries do without the rule, such as "it needs a TPU".
    """

    row: str
    name: str
    kind: str
    codes: tuple[str, ...] = ()
    case: str = ""
    why: str = ""
    unproven: str = ""


@record
class Ban:
    """A restriction of other tools or older versions that no longer applies: what it forbade (`restriction`), what is
    true now (`now`), and a spec that violates it (`text`).
    """

    name: str
    restriction: str
    now: str
    text: str = ""


def outcomes() -> tuple[dict[str, TableRow], list[str]]:
    """Return a pair. The first part maps the number of each row to its `TableRow`, in the order of the groups. The
    second part is the list of mistakes in the TOML files.
    """
    found: dict[str, TableRow] = {}
    wrong: list[str] = []
    for letter in GROUPS:
        for row, entry in sorted(_read(f"{letter}.toml", wrong).items(), key=lambda one: (len(one[0]), one[0])):
            problems = _problems(letter, row, entry)
            wrong += [f"{row}: {one}" for one in problems]
            if not problems and isinstance(entry, Mapping):
                found[row] = _outcome(row, entry)
    return found, wrong


@cache
def by_code() -> dict[str, list[TableRow]]:
    """The implemented rows of the rule table by code. The files are read only once."""
    out: dict[str, list[TableRow]] = {}
    for outcome in outcomes()[0].values():
        for code in outcome.codes:
            out.setdefault(code, []).append(outcome)
    return out


def bans() -> tuple[Ban, ...]:
    """The obsolete restrictions in `rows/obsolete.toml`."""
    wrong: list[str] = []
    table = _read("obsolete.toml", wrong)
    if wrong:
        raise ValueError(wrong[0])
    return tuple(
        Ban(name, str(one["said"]), str(one["now"]), str(one.get("text", "")))
        for name, one in table.items()
        if isinstance(one, Mapping)
    )


def _read(name: str, wrong: list[str]) -> dict[str, object]:
    import tomllib

    try:
        with open(os.path.join(FOLDER, name), "rb") as handle:
            return tomllib.load(handle)
    except FileNotFoundError:
        wrong.append(f"{name} is not there")
    except ValueError as error:
        wrong.append(f"{name}: {error}")
    return {}


def _problems(letter: str, row: str, entry: object) -> list[str]:
    if not (3 <= len(row) <= 4 and row[0] == letter and row[1:].isdigit()):
        return [f"no row of {letter}.toml"]
    if not isinstance(entry, Mapping):
        return ["no table"]
    kind = entry.get("outcome")
    if kind not in KINDS:
        return [f"outcome is {kind!r}, not one of {', '.join(KINDS)}"]
    texts, lists = (("name", "case"), ("codes",)) if kind == IMPLEMENTED else (("name", "why"), ())
    out = [f"{name} is no text" for name in texts if not (isinstance(entry.get(name), str) and entry[name].strip())]
    for name in lists:
        value = entry.get(name)
        if not (isinstance(value, list) and value and all(isinstance(one, str) for one in value)):
            out.append(f"{name} is no list of texts")
    extra = set(entry) - {"outcome", *texts, *lists, *(("unproven",) if kind == IMPLEMENTED else ())}
    return [*out, *([f"{', '.join(sorted(extra))} does not belong here"] if extra else [])]


def _outcome(row: str, entry: Mapping[str, object]) -> TableRow:
    codes = entry.get("codes", [])
    assert isinstance(codes, list)
    name, kind, *texts = (
        " ".join(str(entry.get(name, "")).split()) for name in ("name", "outcome", "case", "why", "unproven")
    )
    return TableRow(row, name, kind, tuple(codes), *texts)
