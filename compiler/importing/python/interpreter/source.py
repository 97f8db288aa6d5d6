"""Parse a script, or the code cells of a notebook. A script that is too large or too deeply nested is refused."""

from __future__ import annotations

import ast
import json
import re
import sys
import warnings
from functools import lru_cache

from xpc.compiler.importing.text.entries import MAX_SIZE, Unreadable
from xpc.compiler.importing.text.fstrings import requoted
from xpc.grammar.record import field, record

MAX_NODES = 60_000
"""The largest number of nodes in a script's syntax tree."""
MAGIC = re.compile(r"\s*(?:[%!?]|pip install |conda install )")
"""Matches a line of a notebook with a command of the shell or of IPython, such as `!pip install trl` or
`%matplotlib`.
"""
ENCODING = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.A)
"""Matches a comment that states the encoding of a script (PEP 263)."""
UTF_8 = ("utf-8", "utf8", "utf-8-sig", "utf-8-unix")
LIKE_ASCII = ("ascii", "us-ascii", "latin-1", "latin1", "iso-8859-1", "iso-8859-15", "cp1252", "gbk", "cp936")
"""Encodings in which ASCII characters have the same bytes as in UTF-8."""
CELL = re.compile(r"\s*%%(\w+)")
PYTHON_CELLS = ("capture", "time", "timeit", "python", "python3")


@record
class Part:
    """The syntax tree of a script, or of one cell of a notebook. `label` is its name in messages, such as `train.ipynb
    cell 3`.
    """

    label: str
    tree: ast.Module = field(repr=False)
    text: str = field(repr=False)


@lru_cache(4096)  # cached, because a condition in a loop or a function is interpreted many times
def unparsed(node: ast.AST) -> str:
    """The source text of a node, in Python's own layout."""
    return ast.unparse(node)


@lru_cache(256)  # cached, because `--partial` reads a script and all its modules again for each decision
def parts(text: str, file: str) -> tuple[list[Part], list[str]]:
    """The syntax trees of a script, or of a notebook's cells, and the labels of cells that are not in Python. Raises
    Unreadable.
    """
    if not file.endswith(".ipynb") and not _is_notebook(text):
        _check_encoding(text)
        return [_script(text, file)], []
    found: list[Part] = []
    broken: list[str] = []
    cells = _cells(text)
    if sum(map(len, cells)) > MAX_SIZE:
        raise Unreadable(f"its code is longer than {MAX_SIZE} characters")
    for number, code in enumerate(cells, 1):
        label = f"{file} cell {number}"
        try:
            found.append(_part(_without_magic(code), label))
        except Unreadable:
            broken.append(label)
    return found, broken


def _check_encoding(text: str) -> None:
    """Raise Unreadable if a comment states another encoding than UTF-8, with which Python would read a different text:
    in UTF-7, `+AAo-` in a comment is a newline, and the text after it is code.
    """
    for number, line in enumerate(text.split("\n", 2)[:2]):
        found = ENCODING.match(line)
        if found is not None:
            name = found[1].lower().replace("_", "-")
            if name not in UTF_8 and not (name in LIKE_ASCII and text.isascii()):
                raise Unreadable(f"its encoding is `{name[:40]}`, and the import reads only UTF-8", number + 1)
            return
        if line.strip() and not line.lstrip().startswith("#"):
            return


def _script(text: str, file: str) -> Part:
    """Parse a script, which may be an exported notebook with lines such as `!pip install trl`."""
    try:
        return _part(text, file)
    except Unreadable as error:
        lines = text.split("\n")
        if not 0 < error.line <= len(lines) or not MAGIC.match(lines[error.line - 1]):
            raise
    return _part(_without_magic(text), file)


def _is_notebook(text: str) -> bool:
    return text.lstrip()[:1] == "{" and '"cells"' in text


def _part(text: str, label: str) -> Part:
    if len(text) > MAX_SIZE:
        raise Unreadable(f"it is longer than {MAX_SIZE} characters")
    try:
        with warnings.catch_warnings():
            # warnings about the script, such as those about invalid escapes, are ignored
            warnings.simplefilter("ignore")
            tree = _tree(text)
    except SyntaxError as error:
        raise Unreadable(f"it is not Python: {error.msg}", error.lineno or 0) from error
    except (RecursionError, MemoryError) as error:
        raise Unreadable("it is nested too deeply") from error
    except ValueError as error:
        raise Unreadable(f"it is not Python: {error}") from error
    for count, _ in enumerate(ast.walk(tree)):
        if count > MAX_NODES:
            raise Unreadable(f"it has more than {MAX_NODES} expressions and statements")
    return Part(label, tree, text)


def _tree(text: str) -> ast.Module:
    """Parse source text. As in Python 3.12, an f-string may contain the quotes that enclose it, even if xpc runs on an
    older Python.
    """
    try:
        return ast.parse(text)
    except SyntaxError as error:
        if sys.version_info >= (3, 12) or "f-string" not in (error.msg or ""):
            raise
        return ast.parse(requoted(text))


def _cells(text: str) -> list[str]:
    try:
        notebook = json.loads(text)
        cells = notebook["cells"]
        codes = ["".join(one["source"]) for one in cells if one["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable("it is not a notebook: it has no list of cells") from error
    if not codes:
        raise Unreadable("the notebook has no code")
    return codes


def _without_magic(code: str) -> str:
    """Replace each line that is for the shell or for IPython by `pass`, so that all other lines keep their numbers."""
    first = CELL.match(code)
    if first is not None and first[1] not in PYTHON_CELLS:
        return ""
    out: list[str] = []
    inside, quoted = False, False
    for line in code.split("\n"):
        magic = inside or (not quoted and MAGIC.match(line) is not None)
        if not magic and (line.count('"""') + line.count("'''")) % 2:
            # a string over several lines begins or ends here; inside it, a line that begins with `!` is not a command
            quoted = not quoted
        inside = magic and line.rstrip().endswith("\\")
        out.append(f"{line[: len(line) - len(line.lstrip())]}pass" if magic else line)
    return "\n".join(out)
