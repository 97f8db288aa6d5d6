"""Find blocks of YAML, JSON and TOML that were pasted into a spec, and write them as blocks of xpc. For example,
`lora:` with indented lines below it becomes `lora {`, these lines, and `}`. If a block becomes a clause on one line,
its settings are joined. Imported only for such a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from xpc.compiler.language import schema
from xpc.compiler.language.expand import expand
from xpc.compiler.suggest.lines.machines import COUNTS, KINDS, NODES
from xpc.compiler.suggest.lines.nested import members, members_of_yaml
from xpc.compiler.suggest.meaning import meaning
from xpc.compiler.suggest.tables import words_of
from xpc.grammar.diagnostic import Edit
from xpc.grammar.nearest import letters
from xpc.grammar.parse import parse
from xpc.grammar.record import field, mutable, record
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Source, Span

WORDS = r"(?P<name>[A-Za-z_][\w.-]*)(?P<quote>[\"']?)(?P<more>(?:[ \t]+(?:[\w./-]+|\"[^\"\n]*\"))*)"
BRACE = re.compile(rf"[ \t]*[\"']?{WORDS}[ \t]*[:=][ \t]*(?P<open>\{{)[ \t]*(?:#.*)?")
"""A pattern for the first line of a block with braces, such as `"lora": {` and `launch slurm = {`."""
YAML = re.compile(rf"(?P<indent>[ \t]*){WORDS}[ \t]*:[ \t]*(?:#.*)?")
TOML = re.compile(r"[ \t]*\[(?P<name>[A-Za-z]\w*)\][ \t]*(?:#.*)?")
ITEM = re.compile(r"(?P<indent>[ \t]*)-[ \t]+(?P<item>[^\s#:][^#:\n]*?)[ \t]*(?:#.*)?")
PAIR = re.compile(r"[ \t]*[A-Za-z][\w.-]*[ \t]*=")
EMPTY = re.compile(r"[ \t]*(?:#.*)?")
PIECES = re.compile(r"\"[^\"\n]*\"|#[^\n]*|[{}\n]")
HEAD = re.compile(r"[A-Za-z][\w.-]*(?:[ \t]+(?:[\w./-]+|\"[^\"\n]*\"))*")
EVERYTHING = words_of("everything")
"""Names of other tools' blocks that contain settings of all kinds, such as `training`. They are in lower case without
separators.
"""
UNWRAPPED = (*EVERYTHING, "zerooptimization", "train", "specialtokens")
"""Names of blocks for which xpc has no clause. A rewritten spec has their settings outside of any block."""
UNKNOWN = ("XP101", "XP102", "XP106")


@record
class PastedBlock:
    """A pasted block that is written in another notation. `head` is the block's first line in xpc's notation, without
    the brace: `launch slurm`. `head` is "" for a block such as `training:`, which xpc does not have: its settings are
    then written without a block.

    `first` is the place of the old first line, and `end` is the position after the block's last line. `closed` is true
    if the edits need not add a closing brace. `items` are the items of a YAML list. `brace` is the line with the
    closing brace of a block in braces. `inside` has the name and the value of each setting in nested blocks.
    """

    head: str
    first: Span
    end: int
    closed: bool
    items: tuple[str, ...] = ()
    brace: Span | None = None
    inside: tuple[tuple[str, str], ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits that rewrite the first and the last line of the block."""
        if not self.head:
            return (Edit(self.first, ""), *(() if self.brace is None else (Edit(self.brace, ""),)))
        opened = Edit(self.first, f"{self.head} {{")
        return (opened,) if self.closed else (opened, Edit(Span(self.end, self.end), "\n}"))


def block_at(text: str, at: int, nested: bool = False) -> PastedBlock | None:
    """The pasted block whose first line contains the position `at`; None if there is none."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return next((one for one in pasted_blocks(text) if one.first.start <= at <= max(one.first.end, end)
                 and text.find("\n", one.first.start, at) < 0 and bool(one.inside) is nested), None)  # fmt: skip


def heads(text: str, at: int) -> str:
    """The first lines of all blocks around the position `at`, such as `lora {`, in xpc's notation. "" if no block is
    around the position, or if xpc does not have one of these blocks.
    """
    around = [one.head for one in pasted_blocks(text) if one.head and not one.closed and one.first.end < at <= one.end]
    found = around or [one for one in _in_braces(text, at) if letters(one) not in UNWRAPPED]
    if not found or not all(HEAD.fullmatch(head) for head in found):
        return ""
    return _legal("".join(f"{head} {{\n" for head in found))


@lru_cache(maxsize=64)
def _legal(lines: str) -> str:
    """Return `lines`, the first lines of nested blocks, if xpc has all these blocks; otherwise ""."""
    data = re.match(r"data ([\w-]+) ", lines)
    text = f"xpc 1\ntrain m on {'d' if data is None else data[1]}\n{lines}" + "}\n" * lines.count("{\n")
    file, found = parse(Source("heads.xp", text))
    unknown = found or [one for one in expand(file).problems if one.code in UNKNOWN]
    return "" if unknown else lines


def _in_braces(text: str, at: int) -> list[str]:
    """The text before the brace of each block that contains the position `at`."""
    found: list[str] = []
    start = 0
    for piece in PIECES.finditer(text, 0, at):
        if piece[0] == "{":
            opened = BRACE.match(text, start, piece.end())
            found.append(_clause(opened) if opened is not None else text[start : piece.start()].strip())
        elif piece[0] == "}":
            del found[-1:]
        if piece[0] in ("{", "}", "\n"):
            start = piece.end()
    return found


def _head(match: re.Match[str]) -> str:
    return f"{match['name']}{match['more']}"


def _clause(match: re.Match[str]) -> str:
    """The first line of a block with xpc's name of the clause: `schedule` for `lr_scheduler`."""
    name = match["name"]
    if name in schema.CLAUSES or match["more"] or letters(name) in UNWRAPPED:
        return _head(match)
    chosen = schema.bare_choices().get(name)
    if chosen in schema.CLAUSES and _has_settings(chosen):
        return f"{chosen} {name}"  # `grpo:` becomes `method grpo {`
    known = meaning(name, exact=True)
    own = known is not None and not known.value and known.path in schema.CLAUSES and _has_settings(known.path)
    return known.path if own and known is not None and known.path not in ("data", "train") else _head(match)


@lru_cache(maxsize=4)
def pasted_blocks(text: str) -> tuple[PastedBlock, ...]:
    """All pasted blocks of a text: first the blocks with braces, then sections of TOML, then blocks of YAML."""
    return (*_with_braces(text), *_of_toml(text), *_of_yaml(text))


def _lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield start, end
        start = end + 1


def _with_braces(text: str) -> Iterator[PastedBlock]:
    """Find blocks with braces, such as `"lora": {`."""
    for start, end in _lines(text):
        match = BRACE.fullmatch(text, start, end)
        if match is not None and (match["name"] in schema.CLAUSES or not match["more"]):
            first = match.start("name") - (text[match.start("name") - 1 : match.start("name")] in ('"', "'"))
            brace = closing_line(text, match.start("open"))
            inside = _members(match, brace)
            if brace is not None and inside:
                yield PastedBlock(match["name"], Span(first, brace.end), brace.end, True, inside=inside)
            if letters(match["name"]) in UNWRAPPED and brace is not None:
                yield PastedBlock("", Span(start, end), end, True, brace=brace)
            else:
                yield PastedBlock(_clause(match), Span(first, match.end("open")), end, True, brace=brace)


def _members(match: re.Match[str], brace: Span | None) -> tuple[tuple[str, str], ...]:
    """The settings in a block with braces that has further blocks in it, such as `"params": { "optimizer": { ... } }`.
    Empty for a block without further blocks, and for a block whose name is a clause of xpc.
    """
    if brace is None or match["more"] or match["name"] in schema.CLAUSES:
        return ()
    text = match.string[match.start("open") : brace.end].rstrip(", \t")
    found = members(text) if "{" in text[1:] else None
    return tuple(found or ())


def closing_line(text: str, start: int) -> Span | None:
    """The line of the `}` that closes the `{` at `start`, if nothing else but a comma is on it. None otherwise."""
    depth = 0
    for piece in PIECES.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(piece[0], 0)
        if depth == 0:
            first, last = line_bounds(text, piece.start(), piece.start())
            alone = text[first : piece.start()].strip() == "" and text[piece.end() : last].strip() in ("", ",")
            return Span(first, last) if alone else None
    return None


def _of_toml(text: str) -> Iterator[PastedBlock]:
    """Find sections of TOML, such as `[lora]`."""
    head: re.Match[str] | None = None
    last = 0
    for start, end in [*_lines(text), (len(text), len(text))]:
        if head is not None and PAIR.match(text, start, end):
            last = end
        elif head is not None and (start == len(text) or not EMPTY.fullmatch(text, start, end)):
            first = Span(head.start("name") - 1, head.end("name") + 1)
            if last and _has_settings(head["name"]):
                yield PastedBlock(head["name"], first, last, False)
            elif last:
                yield PastedBlock("", first, last, False)
            head = None
        opened = TOML.fullmatch(text, start, end) if text[start:end].lstrip()[:1] == "[" else None
        if opened is not None and (_has_settings(opened["name"]) or letters(opened["name"]) in UNWRAPPED):
            head, last = opened, 0


def _has_settings(name: str) -> bool:
    return name in ("sweep", "extra") or (name in schema.CLAUSES and any(schema.children(name)))


def _of_yaml(text: str) -> Iterator[PastedBlock]:
    """Find blocks of YAML such as `lora:` with indented lines below it, and lists with one item on each line."""
    opened: list[OpenBlock] = []
    for start, end in _lines(text):
        if EMPTY.fullmatch(text, start, end):
            continue
        indent = len(text[start:end]) - len(text[start:end].lstrip())
        item = ITEM.fullmatch(text, start, end)
        # the items of a YAML list may have the same indentation as its name
        if not opened or item is None or indent != opened[-1].indent:
            while opened and indent <= opened[-1].indent:
                yield from _closed(opened.pop())
        for one in opened:
            one.end = end
        if opened:
            opened[-1].items.append("" if item is None else item["item"])
        match = YAML.fullmatch(text, start, end)
        if match is not None and len(opened) < 4:
            opened.append(OpenBlock(match, match.end()))
    for one in reversed(opened):
        yield from _closed(one)


@mutable
class OpenBlock:
    """A line of YAML that may begin a block. `end` is the end of the block's last line. `items` has an entry for each
    line of the block below the first: the text of a list's item, or "" for any other line.
    """

    match: re.Match[str]
    end: int
    items: list[str] = field(factory=list)

    @property
    def indent(self) -> int:
        """The number of characters before the name."""
        return len(self.match["indent"])


def _closed(block: OpenBlock) -> Iterator[PastedBlock]:
    """The block that a line of YAML begins, if lines that belong to it follow."""
    match, end, items = block.match, block.end, block.items
    first = Span(match.start("name"), match.end())
    if end == first.end:
        return
    if match["name"] == "hardware" or _is_hardware(match.string[first.end : end]):
        yield PastedBlock("hardware", Span(first.start, end), end, True, ("",))
    elif items and all(items) and not match["more"]:
        yield PastedBlock(match["name"], Span(first.start, end), end, True, tuple(items))
    elif letters(match["name"]) == "parameters" and "values" in match.string[first.end : end]:
        yield PastedBlock("sweep", Span(first.start, first.end), end, False)  # a sweep in W&B's notation
    elif not any(items) and _is_elsewhere(match["name"], match.string[first.end : end]):
        yield PastedBlock("", first, end, False)
    elif match["name"] != "train" and not any(items) and _has_settings(_clause(match).partition(" ")[0]):
        colon = match.string.rfind(":", first.start, first.end) + 1
        yield PastedBlock(_clause(match), Span(first.start, colon), end, False)
    elif letters(match["name"]) in UNWRAPPED:
        yield PastedBlock("", first, end, False)
    elif match["name"] not in schema.CLAUSES and not match["more"]:
        inside = members_of_yaml(match.string[first.end + 1 : end].split("\n"))
        if inside is not None:
            yield PastedBlock(match["name"], Span(first.start, end), end, True, inside=tuple(inside))


def _is_hardware(inside: str) -> bool:
    """Whether a block names only machines and their GPUs, as `compute:` with `nodes` and `gpus_per_node` does."""
    names = [letters(match["name"]) for line in inside.splitlines() if (match := KEY.match(line)) is not None]
    return len(names) > 1 and {*names} <= {*COUNTS, *KINDS, *NODES} and not {*names}.isdisjoint(KINDS)


def _is_elsewhere(clause: str, inside: str) -> bool:
    """Whether all settings of a block belong to another clause, as `lora_rank` and `lora_alpha` in a block `model`
    do.
    """
    if not _has_settings(clause) or clause in NESTED:
        return False
    names = [match["name"] for line in inside.splitlines() if (match := KEY.match(line)) is not None]
    found = [meaning(name, clause, exact=True) for name in names[:20]]
    paths = {"" if one is None else one.path.partition(".")[0] for one in found}
    return len(paths) == 1 and paths.isdisjoint((clause, "", "train"))


NESTED = ("sweep", "extra", "data")
"""Clauses whose blocks may contain names that are not settings of the clause: settings of other clauses (`sweep`),
arguments of libraries (`extra`) or names of data sources (`data`).
"""
KEY = re.compile(r"[ \t]*(?P<name>[A-Za-z]\w*)[ \t]*:")
CALL = re.compile(r"(?P<clause>\w+(?: [\w-]+)?)\((?P<settings>.*)\)")


def of_one_clause(advised: list[tuple[str | None, str]]) -> list[tuple[str | None, str]]:
    """If a setting of a pasted block may belong to several clauses, let the block's other settings decide: next to
    `lora(alpha=32)`, `rank = 16` is `lora(rank=16)`, and not `optimizer(rank=16)`.
    """
    heads = {call["clause"] for form, _ in advised if form is not None and (call := CALL.fullmatch(form))}
    out: list[tuple[str | None, str]] = []
    for form, help in advised:
        ways = re.findall(r"`(\w+)(\([^`]*\))`", help) if form is None and " or `" in help else []
        fitting = [head + rest for head, rest in ways if head in heads]
        out.append((fitting[0], "") if len(fitting) == 1 else (form, help))
    return out


def clause_of(form: str) -> str:
    """The clause or the switch with settings that a form states, such as `lora` for `qlora(rank=8)`, and `packing` for
    `packing`. "" for any other form.
    """
    call = CALL.fullmatch(form)
    head = form.removesuffix("=true") if call is None else call["clause"].split(" ")[0]
    if head in ("lora", "qlora"):
        return "lora"
    switch = head in schema.ADAPTERS or any(schema.children(row.path) for row in schema.TABLE if row.name == head)
    return head if switch and (call is not None or head not in schema.CLAUSES or head in schema.ADAPTERS) else ""


def joined(forms: Sequence[str]) -> list[str]:
    """Join the settings of a clause, which may be written only once: `lora(rank=8, alpha=16)`."""
    out: dict[str, tuple[str, list[str]]] = {}
    clauses = [clause_of(form) for form in forms]
    for form in forms:
        if clauses.count(clause_of(form)) > 1:
            form = form.removesuffix("=true")  # `lora=true` adds nothing to `lora(rank=8)`
        call, clause = CALL.fullmatch(form), clause_of(form)
        head = form if call is None else call["clause"]
        before, settings = out.get(clause or form, (head, []))
        new = [] if call is None else [call["settings"]]
        out[clause or form] = max(head, before, key=len), [*settings, *(one for one in new if one not in settings)]
    return [f"{head}({', '.join(settings)})" if settings else head for head, settings in out.values()]
