"""Golden diagnostics: for each code, a file with a spec that gets this code, and with the output of `xpc check` for
this spec.

`python tests/golden_diagnostics.py` writes golden/diagnostics, and removes files that have no case anymore.

tests/pipeline/test_goldens.py and tests/rules/core/test_rules.py compare these files with today's output.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from itertools import groupby

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "support"))

from module_folders import put_on_path  # noqa: E402

put_on_path()

from case_support import Case  # noqa: E402
from compile_support import checked_once, placed  # noqa: E402
from rule_cases import CASES, SYNTAX  # noqa: E402

from xpc.compiler.pipeline import Checked  # noqa: E402
from xpc.compiler.render import render  # noqa: E402

FOLDER = os.path.join(os.path.dirname(HERE), "golden", "diagnostics")
SEPARATOR = "=" * 100


def golden(case: Case, found: Checked | None = None) -> str:
    """The golden file of a case: its rejected spec, the files that the spec names, and the output of `xpc check`.
    `found` is the result of the check, if it was already made.

    Raises ValueError if the check no longer reports the case's code.
    """
    if found is None:
        with ExitStack() as kept:
            root = placed(case.files, lambda: kept.enter_context(tempfile.TemporaryDirectory()))
            found = checked_once(case.rejected, root)
    codes = [one.code for one in found.problems]
    if case.code not in codes:
        raise ValueError(f"the case {case.title} gives {', '.join(codes) or 'nothing'} instead of {case.code}")
    texts = {name: one if isinstance(one, str) else one.decode("utf-8", "replace") for name, one in case.files.items()}
    files = "".join(f"{SEPARATOR} {name}\n{counted(text)}" for name, text in texts.items())
    return f"{case.rejected}{files}{SEPARATOR}\n{render(found.problems, 'full')}"


def counted(text: str) -> str:
    """Shorten the text of a file: a line that is repeated four times or more in a row is written once, followed by the
    number of repeats.
    """
    runs = [(line, sum(1 for _ in same)) for line, same in groupby(text.rstrip("\n").split("\n"))]
    return "".join(f"{line}\n" * count if count < 4 else f"{line}\n... {count} times\n" for line, count in runs)


def kept(case: Case) -> str:
    """The text of a case's golden file as it is in the repository."""
    with open(os.path.join(FOLDER, f"{case.title}.txt"), encoding="utf-8", newline="") as handle:
        return handle.read()


def goldens() -> dict[str, str]:
    """The text of every golden file, by file name."""
    return {f"{case.title}.txt": golden(case) for case in (*SYNTAX, *CASES)}


def main() -> int:
    os.makedirs(FOLDER, exist_ok=True)
    try:
        wanted = goldens()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    for name in sorted({*os.listdir(FOLDER)} - {*wanted}):
        os.unlink(os.path.join(FOLDER, name))
        print(f"removed {name}")
    for name, text in wanted.items():
        path = os.path.join(FOLDER, name)
        before = None
        if os.path.exists(path):
            with open(path, encoding="utf-8", newline="") as handle:
                before = handle.read()
        if before != text:
            with open(path, "w", encoding="utf-8", newline="") as handle:
                handle.write(text)
            print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
