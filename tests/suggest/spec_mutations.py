"""Mistakes in correct specs: names are misspelt or those of other tools, values are written in other notations, lines
move to other blocks, and blocks are written in other ways. The spec before the mistake is the only right correction.
"""

from __future__ import annotations

import os
import random
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from glob import glob

from compile_support import REPOSITORY, read

from xpc.compiler.language import schema
from xpc.grammar.record import record

SPEC = re.compile(r"^```xp\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"(?P<indent>[ ]*)(?P<name>[a-z]\w*)(?P<sign> = |)(?P<value>[^#{}=]*?)(?P<comment>[ ]*#.*)?")
COMMENTS = ("", " # why", " // why", " -- why")
SIGNS = (": ", " == ", " := ", " => ", "=", " is ", " to ", " ")
JOINTS = (" ", ", ", "; ", " and ")
TARGETS = ("batch", "optimizer", "memory", "save", "eval", "track", "model")


@record
class Line:
    """A setting on a line of its own: its number, its clauses and the parts of its text."""

    number: int
    clauses: tuple[str, ...]
    indent: str
    name: str
    sign: str
    value: str
    comment: str

    @property
    def path(self) -> str:
        return ".".join((*self.clauses, self.name))


def specs() -> Iterator[str]:
    """The specs of specs/ and of the documentation."""
    for path in sorted(glob(os.path.join(REPOSITORY, "specs", "*.xp"))):
        yield read(path)
    for path in sorted(glob(os.path.join(REPOSITORY, "docs", "*.md"))):
        yield from (one for one in SPEC.findall(read(path)) if re.search("^train ", one, re.MULTILINE))


@cache
def other_names() -> dict[str, list[str]]:
    """Names of other tools for each setting, as a user types them. None of them is a name of xpc."""
    names = {row.name for row in schema.TABLE}
    table = tomllib.loads(read("compiler", "suggest", "other_names.toml"))
    joined = {path: [one.replace(" ", "_") for one in phrases] for path, phrases in table.items()}
    return {
        row.path: [one for one in (*joined.get(row.path, ()), *row.args) if one not in names] for row in schema.TABLE
    }


def typos(name: str) -> list[str]:
    """Typos of a name: letters are swapped, one letter is missing or doubled, or the separators or the case differ."""
    middle = len(name) // 2
    swapped = name[: middle - 1] + name[middle] + name[middle - 1] + name[middle + 1 :]
    others = (swapped, name[:-1], name + name[-1], name[:middle] + name[middle + 1 :], name.title())
    found = [*others, name.replace("_", "-"), name.replace("_", "")]
    legal = {*schema.CLAUSES, *schema.bare_choices(), *schema.outer_names(), *(row.name for row in schema.TABLE)}
    return [one for one in dict.fromkeys(found) if one not in legal and len(one) > 2]


def lines(text: str) -> list[Line]:
    """The settings of a spec that stand on lines of their own, in a block."""
    out, clauses = [], list[str]()
    for number, line in enumerate(text.split("\n")):
        code = line.partition("#")[0].rstrip()
        match = LINE.fullmatch(line)
        if match is not None and clauses and clauses[0] != "sweep" and not code.endswith("["):
            indent, name, sign, value, comment = (one or "" for one in match.groups())
            out += [Line(number, tuple(clauses), indent, name, sign, value, comment)] if sign or not value else []
        if code.endswith("{"):
            clauses.append(code.split()[0])
        elif code.strip() == "}" and clauses:
            clauses.pop()
    return out


def notations(line: Line) -> list[str]:
    """The value of a line in other notations, with the same meaning."""
    value, row = line.value, schema.BY_PATH.get(line.path)
    if re.fullmatch(r"[\d.]+%", value):
        return [f'"{value}"', f"{value[:-1]} percent", f"{value[:-1]} %"]
    if re.fullmatch(r"[\d.]+(?:e-?\d+)?", value):
        return [f'"{value}"', f"'{value}'", f"({value})", f"[{value}]", f"{value},", f"{value};"]
    if value.startswith("["):
        inner = value[1:-1]
        quoted = ", ".join(f"'{one.strip()}'" for one in inner.split(","))
        return [f"({inner})", f"{{{inner}}}", inner, inner.replace(",", ""), f"[{quoted}]"]
    if value in ("true", "false"):
        return [value.title(), f'"{value}"', "yes" if value == "true" else "no", "1" if value == "true" else "0"]
    if re.fullmatch(r"\d+[smhd]", value):
        return [f"{value[:-1]} {value[-1]}", f'"{value}"']
    if row is not None and value in row.choices:
        return [f'"{value}"', value.upper(), value.title(), f"'{value}'", f"[{value}]"]
    return [value.replace('"', "'")] if value.startswith('"') else []


def mistake(text: str, chance: random.Random) -> str:
    """A spec with one or two mistakes. The text is unchanged if the chosen mistake does not fit the chosen line."""
    found, written = lines(text), text.split("\n")
    if not found:
        return text
    line = chance.choice(found)
    names = [line.name, *typos(line.name)[:3], *other_names().get(line.path, ())]
    name, value = chance.choice(names), chance.choice([line.value, *notations(line)])
    kind = chance.choice((_renamed, _renamed, _signed, _moved, _joined, _one_line, _head))
    return kind(written, line, name, value, chance)


def _put(written: list[str], line: Line, name: str, sign: str, value: str, comment: str) -> None:
    written[line.number] = f"{line.indent}{name}{sign}{value}{comment}"


def _renamed(written: list[str], line: Line, name: str, value: str, chance: random.Random) -> str:
    """Another name, a value in another notation, another comment, and perhaps a typo on another line."""
    _put(written, line, name, line.sign, value, line.comment or chance.choice(COMMENTS))
    other = chance.choice(lines("\n".join(written)) or [line])
    if chance.random() < 0.3 and other.number != line.number:
        _put(written, other, chance.choice(typos(other.name) or [other.name]), other.sign, other.value, other.comment)
    return "\n".join(written)


def _signed(written: list[str], line: Line, name: str, value: str, chance: random.Random) -> str:
    """Another sign between the name and the value."""
    if line.sign:
        _put(written, line, chance.choice((name, line.name)), chance.choice(SIGNS), line.value, line.comment)
    return "\n".join(written)


def _moved(written: list[str], line: Line, name: str, value: str, chance: random.Random) -> str:
    """The line in the block of another clause, or outside of all blocks. Its name must belong to one clause only."""
    homes = [row for row in schema.TABLE if row.name == line.name]
    if len(homes) == 1 and line.name not in schema.SOURCE_SETTINGS:
        target = chance.choice([one for one in TARGETS if one not in line.clauses])
        start = next((n for n, one in enumerate(written) if re.fullmatch(rf"{target}\b.*\{{", one)), len(written) - 2)
        moved = f"{line.name}{line.sign}{line.value}{line.comment}"
        written = [one for number, one in enumerate([*written[: start + 1], moved, *written[start + 1 :]])
                   if number != line.number + (line.number > start)]  # fmt: skip
    return "\n".join(written)


def _joined(written: list[str], line: Line, name: str, value: str, chance: random.Random) -> str:
    """Two settings on one line."""
    other = next((one for one in lines("\n".join(written)) if one.number == line.number + 1), None)
    if other is not None and other.clauses == line.clauses and not line.comment:
        first = f"{line.indent}{line.name}{line.sign}{line.value}{chance.choice(JOINTS)}"
        second = chance.choice([other.name, *typos(other.name)[:2]])
        written[line.number : line.number + 2] = [f"{first}{second}{other.sign}{other.value}{other.comment}"]
    return "\n".join(written)


def _one_line(written: list[str], line: Line, name: str, value: str, chance: random.Random) -> str:
    """The block on one line, or in the notation of another language, with a wrong name."""
    start = max(number for number in range(line.number) if written[number].partition("#")[0].rstrip().endswith("{"))
    end = next(number for number in range(line.number, len(written)) if written[number].strip() == "}")
    inside = written[start + 1 : end]
    if len(line.clauses) > 1 or any("#" in one or "{" in one or one.rstrip().endswith("[") for one in inside):
        return "\n".join(written)
    _put(written, line, name, line.sign, line.value, "")
    head, body = written[start].partition("{")[0].rstrip(), [one.strip() for one in written[start + 1 : end]]
    opening, closing = chance.choice(((" {", "}"), ("(", ")"), (" = {", "}"), (":", ""), ("\n{", "}"), (" (", ")")))
    joint = chance.choice(JOINTS[:3])
    complete = f"{head}{opening} {joint.join(body)} {closing}" + chance.choice(COMMENTS)
    several = [head + opening, *(f"  {one}" for one in body), *([closing] if closing else [])]
    written[start : end + 1] = [complete] if closing and "\n" not in opening and chance.random() < 0.5 else several
    return "\n".join(written)


def _head(written: list[str], line: Line, name: str, value: str, chance: random.Random) -> str:
    """A wrong name of the clause."""
    start = next(n for n in range(line.number, -1, -1) if written[n].startswith(line.clauses[0]))
    wrong = chance.choice([*typos(line.clauses[0]), *other_names().get(line.clauses[0], ())] or [line.clauses[0]])
    written[start] = wrong + written[start][len(line.clauses[0]) :]
    return "\n".join(written)
