"""Rewrite lines that surround a setting with the marks of other notations: the bullets and backticks of Markdown,
Hydra's `+`, tags, brackets, and words such as `set`. `- **Learning rate**: 2e-5` becomes `lr=2e-5`. Imported only for
a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from xpc.compiler.language.schema import CLAUSES
from xpc.compiler.suggest.lines.nested import members
from xpc.compiler.suggest.lines.prose import finding_about, in_words, named_in_words, of_prose, without_preposition
from xpc.compiler.suggest.lines.rewriting import (
    NOTE,
    body,
    findings_in,
    findings_of,
    lines_with_errors,
    replaced,
)  # fmt: skip
from xpc.compiler.suggest.lines.shell import COMMAND, SHELL, command_help
from xpc.compiler.suggest.meaning import meaning
from xpc.compiler.suggest.pasted import QUOTES, Option, flags_of, option_rewritten
from xpc.compiler.suggest.pasted_blocks import closing_line, heads
from xpc.compiler.suggest.pasted_values import as_value
from xpc.compiler.suggest.sentence import method_of
from xpc.compiler.suggest.unknown_names.case import REFERENCE
from xpc.grammar.diagnostic import Diagnostic, Edit, Label, applied
from xpc.grammar.record import evolve, record
from xpc.grammar.source import Source, Span

BULLET = re.compile(r"(?:[-*•‣–>][ \t]+|\d{1,2}[.)][ \t]+|\+{1,2}(?=[A-Za-z])|\[[ xX]\][ \t]+)+")
WORDS = re.compile(r"(?:let|const|var|set|setenv|local|declare)[ \t]+(?=[\w\"'`])")
RULE = re.compile(
    r"(?:</?[A-Za-z][\w-]*>|<\?xml[^<>]*>"
    r"|```[\w-]*|~~~[\w-]*|---+|===+|\*\*\*+|\.\.\.|\"\"\"|'''|[{}\[\]()][,;]?|\|[-:| ]+\|)"
)
"""A pattern for a line that contains no setting: a fence of Markdown, `---` at the start of a YAML document, or a
bracket.
"""
CELLS = re.compile(r"\|(?P<name>[^|]+)\|(?P<value>[^|]+)\|(?:[^|]*\|)*")
TAG = re.compile(r"<(?P<name>[A-Za-z][\w.-]*)>(?P<value>[^<>]*)</(?P<close>[\w.-]+)>")
ATTRIBUTES = re.compile(
    r"<\w+[ \t]+(?:name|key|id)=[\"'](?P<name>[\w.-]+)[\"'][ \t]+value=[\"'](?P<value>[^\"'<>]*)[\"'][ \t]*/?>"
)
"""Patterns for a setting in XML: `<lr>1e-5</lr>`, `<param name="lr" value="1e-5"/>`."""
EXPORT = re.compile(r"(?:export|setenv)[ \t]+(?P<name>[A-Za-z_]\w*)[ \t]*[= \t][ \t]*(?P<value>\S+)")
ENVIRON = re.compile(
    r"(?:os\.)?environ(?:\.setdefault\()?\[?[\"'](?P<name>\w+)[\"']\]?[ \t]*[=,]"
    r"[ \t]*[\"']?(?P<value>[^\"'()]*)[\"']?\)?$"
)
"""A pattern for an environment variable in Python: `os.environ["NCCL_DEBUG"] = "INFO"`."""
INDEX = re.compile(r"\w+(?:\[[\"'][\w.-]+[\"']\]|\.\w+)*\[[\"'](?P<name>[\w.-]+)[\"']\][ \t]*=[ \t]*(?P<value>.+)")
SETTER = re.compile(
    r"(?:\w+\.)?set\w*\([ \t]*(?:\w+,[ \t]*)?[\"']?(?P<name>[\w.-]+)[\"']?,[ \t]*(?P<value>[^(),]+|\[.*\])\)"
)
"""A pattern for a call that sets a value: `set(lr, 1e-5)`, `config.set("lr", 1e-5)`, `setattr(args, "lr", 1e-5)`."""
TYPED = re.compile(r"(?P<name>[A-Za-z]\w*)[ \t]*:[ \t]*(?P<type>[A-Za-z][\w.\[\], |]*?)[ \t]*=[ \t]*(?P<value>.+)")
MAPPING = re.compile(r"[\"']?(?P<name>[A-Za-z][\w.-]*)[\"']?[ \t]*[:=]?[ \t]*(?P<value>\{.*[{:].*\})")
"""A pattern for a mapping with a mapping in it: `"optimizer": {"params": {"lr": 2e-5}}`."""
PAIR = re.compile(
    r"(?P<quote>[\"']?)(?P<name>[A-Za-z][\w.-]*(?:[ \t][\w.-]+){0,5})(?P=quote)[ \t]*"
    r"(?P<sign>:=|==|=>|->|<-|[=:]|[ \t](?:to|is|of)[ \t])[ \t]*(?P<value>\S.*)"
)
SPACED = re.compile(r"(?P<name>[A-Za-z]\w*)[ \t]+(?P<value>\S+)")
SIGNED = re.compile(r"(?P<name>[A-Za-z][\w.-]*)[ \t]*=[ \t]*(?P<value>\"[^\"]*\"|'[^']*'|\[[^\]]*\]|[^\s=\"'\[\]]+)"
                    r"(?:[ \t]*(?:,|;|&&?|and\b)[ \t]*|[ \t]+|$)")  # fmt: skip
WITH_COLONS = re.compile(r"[\w./-]+\[[\d%]*:[\d%]*\]|(?:\d+-)?\d+:\d\d(?::\d\d)?")
"""A pattern for a part of a split, and for a duration: `train[:5000]`, `08:00:00`."""
SENTENCE = re.compile(r"^train\b.*\bon\b", re.MULTILINE)
AROUND = (("`", "`"), ("<", ">"), ("{", "}"), ("(", ")"), ("**", "**"), ("__", "__"))


@record
class Pair:
    """A setting in another notation: its name, and its value in xpc's notation (None if it has no value)."""

    name: str
    value: str | None


def rewrite_marked(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Replace all findings about a line with marks of another notation, such as `- **Learning rate**: 2e-5`, by one
    finding about the settings in the line.
    """
    out = list(problems)
    for source, start, end in _lines(problems):
        inside = findings_in(out, source, start, end)
        if not inside or settled(inside, source, start, end):
            continue
        made = (
            _rewritten(inside[0], source, start, end)
            or named_in_words(inside, source, start, end)
            or without_preposition(inside, source, start, end)
            or of_prose(inside, source, start, end)
        )
        if made is not None:
            out = replaced(out, inside, made)
    return out


def _lines(problems: Sequence[Diagnostic]) -> Iterator[tuple[Source, int, int]]:
    """Each line with an error about syntax or names, except the first line of the spec. An error about a setting that
    is written twice (XP103) does not count.
    """
    for source, start, end in lines_with_errors([one for one in problems if one.code != "XP103"]):
        words = source.text[start:end].split()
        # after the first line, `train 3 epochs` is a setting in words
        if words[:1] != ["train"] or ("on" not in words and SENTENCE.search(source.text, 0, start)):
            yield source, start, end


def settled(inside: Sequence[Diagnostic], source: Source, start: int, end: int) -> bool:
    """Whether the edits of the findings about a line already make the line legal. Also true for edits beyond the line,
    which rewrite a block of several lines.
    """
    edits = [edit for one in inside for edit in one.edits]
    if any(edit.span.start < start or edit.span.end > end for edit in edits):
        return True
    if not edits or any(one.span.end > other.span.start for one, other in pairwise(edits)):
        return False
    moved = [Edit(Span(one.span.start - start, one.span.end - start), one.text) for one in edits]
    line = applied(source.text[start:end], moved)
    if re.match(r"[ \t]*data\([^()]*\)[ \t]+\w", line):
        return False  # `data(chat) template chatml`, where the words would be sources
    sentence = line.lstrip().startswith("train ")
    method = "" if line.split()[:1] == ["method"] else method_of(source.text)
    before = "xpc 1\n" if sentence else body(method) + heads(source.text, start)
    return not findings_of(before + line + "\n" + "}\n" * before.count("{\n"))


def _rewritten(found: Diagnostic, source: Source, start: int, end: int) -> Diagnostic | None:
    text = source.text[start:end].strip()
    text = ENVIRON.sub(r"export \g<name>=\g<value>", text)
    variable = EXPORT.fullmatch(text)
    if variable is not None and meaning(variable["name"].lower(), exact=True) is not None:
        text = f"- {variable['name'].lower()} = {variable['value']}"
    command = COMMAND.match(text)
    sets_nothing = command is not None and (command["variable"] is not None or command["python"] is not None)
    if command is not None and found.message != SHELL and sets_nothing:
        return evolve(found, message=SHELL, help=command_help(command), edits=())
    if not text or command is not None or "{{" in text or "$" in text:
        return None
    typed = source.text[start:end]
    first = start + len(typed) - len(typed.lstrip())
    span = Span(first, first + len(typed.strip()))
    if RULE.fullmatch(text):
        return _without_line(found, source, text, Span(start, end))
    top = body(method_of(source.text))
    before = top + heads(source.text, start)
    if re.match("--?[A-Za-z]", text):
        options = flags_of(source.text, first, start + len(typed.rstrip(" \t\\")))
        if len(options) < 2 and not text.endswith("\\"):
            return None  # a single option already has a complete help, so the finding stays
        return (
            finding_about(found, source, span, [option_rewritten(one, before) for one in options]) if options else None
        )
    pairs = marked(source.text[start:end] if text == typed.strip() else text)
    if pairs is None:
        return in_words(found, source, text, span) if before == top else None
    rewrites = [option_rewritten(Option(span, one.name, one.value), before) for one in pairs]
    helpful = text.startswith("set") and not any(REFERENCE in one.help for one in rewrites)
    if WORDS.match(text) and not helpful and not all(one.form for one in rewrites):
        return None
    return finding_about(found, source, span, rewrites)


def _without_line(found: Diagnostic, source: Source, text: str, line: Span) -> Diagnostic | None:
    """The finding about a line without a setting, such as a fence of Markdown."""
    if text.strip("</>") in CLAUSES or text[0] in "}])" or (text[0] in "{[(" and text not in ("{", "{,")):
        return None
    edits = [Edit(line, "")]
    if text[0] == "{":
        last = closing_line(source.text, source.text.find("{", line.start))
        if last is None:
            return None
        edits.append(Edit(last, ""))
    shown = text[:20].replace("`", "'")
    message = f"the line {shown} has no setting"
    return evolve(found, message=message, primary=Label(source, line), help="leave the line out", edits=tuple(edits))


def marked(line: str) -> list[Pair] | None:
    """The settings of a line with marks of other notations. None for a line without such marks, and for a line that is
    unclear.
    """
    text = line.strip()
    if line[:1] in " \t" and line.lstrip()[:2] == "- ":
        return None  # the line is an item of a YAML list
    mapping = MAPPING.fullmatch(text.rstrip(", "))
    nested = mapping is not None and ("{" in mapping["value"][1:] or not re.match(r"[^{]*[:=]", text))
    if mapping is not None and nested and members(mapping["value"]) is not None:
        return [Pair(mapping["name"], mapping["value"])]
    typed = TYPED.fullmatch(text)
    if typed is not None and typed["type"].split("[")[0].lower() in ("int", "float", "str", "bool", "list", "optional"):
        return [Pair(typed["name"], _value(typed["value"]))]
    for pattern in (CELLS, TAG, ATTRIBUTES, INDEX, SETTER):
        found = pattern.fullmatch(text.rstrip(" ,;"))
        if found is not None:
            name = _bare(found["name"])
            return [Pair(name, _value(found["value"]))] if re.fullmatch(r"[A-Za-z][\w.-]*", name) else None
    return [Pair("config", text.rstrip(" ,;"))] if members(text.rstrip(" ,;")) else _unwrapped(text)


def _unwrapped(line: str) -> list[Pair] | None:
    """The settings of a line without its bullets, backticks, words and remarks. None for a line without such marks."""
    text = BULLET.sub("", line, count=1) if BULLET.match(line) else line
    text = WORDS.sub("", text, count=1) if WORDS.match(text) else text
    spoken = text != line
    text = text.replace("**", "").replace("`", "").replace("__", "") if re.search(r"\*\*|`|^__", text) else text
    text = NOTE.sub("", text) if text.count('"') % 2 == 0 else text
    if not line.endswith("`"):  # a point before a backtick belongs to the value
        text = re.sub(r"[ \t]*(?:\\|;|[ \t]\.|(?<=[A-Za-z\]\"'])\.)$", "", text.rstrip())
    clock = SPACED.fullmatch(text)  # `walltime 12:00:00`
    if clock is not None and re.fullmatch(r"(?:\d+-)?\d+(?::\d\d)+", clock["value"]):
        return [Pair(_bare(clock["name"]), _value(clock["value"]))]
    pair = PAIR.fullmatch(text) or (SPACED.fullmatch(text) if spoken else None)
    if pair is None or pair["name"].split()[-1].isdecimal():  # the colon of `launch slurm time 04:00:00`
        return None
    several = _several(text)
    if several is not None:
        return several
    quoted = pair.re is PAIR and bool(pair["quote"]) and pair["sign"] != ":"
    value = pair["value"].strip().rstrip(",")
    if value.startswith("{") and re.search(r"[:=]", value):
        return None  # a mapping
    if pair.re is PAIR and pair["sign"].strip().isalpha() and " " in value:
        return None  # a sentence: `Log to wandb every 10 steps`
    wrapped = any(value.startswith(one) and value.endswith(other) for one, other in AROUND)
    mended = value[:1].isdecimal() and as_value(value) not in (value, f'"{value}"')  # `2 * 10^-5`
    mended = mended or WITH_COLONS.fullmatch(value) is not None
    if text == line and not quoted and not wrapped and not mended:
        return None
    return [Pair(_bare(pair["name"]), _value(value))]


def _several(text: str) -> list[Pair] | None:
    """Several settings on one line: `lr=1e-5 gbs=64`, or `lr = 1e-5 and gbs = 64`. None for any other line."""
    out, at = [], 0
    while at < len(text):
        found = SIGNED.match(text, at)
        if found is None:
            return None
        out.append(Pair(_bare(found["name"]), _value(found["value"])))
        at = found.end()
    return out if len(out) > 1 else None


def _bare(name: str) -> str:
    """Join the words of a name by `_`: `Learning rate` becomes `learning_rate`."""
    words = re.sub(r"[`*\"']", "", name).strip().replace("-", "_").split()
    return "_".join(words) if len(words) == 1 else "_".join(words).lower()


def _value(typed: str) -> str:
    """Write a value in xpc's notation, without the brackets and quotes of other notations."""
    text = typed.strip().rstrip(",;").strip()
    if text.startswith("{") and ":" in text:
        return text  # a mapping
    for one, other in AROUND:
        # keep the signs of a token such as `<|im_end|>`
        if text.startswith(one) and text.endswith(other) and len(text) > 2 and text[1] not in "|/":
            inner = text[len(one) : -len(other)].strip()
            if one in inner or other in inner:
                return text  # `{model}-{lr}`
            text = f"[{inner}]" if one in "({" and "," in inner else inner
    known = text.strip(QUOTES)
    if known.lower() in ("true", "false", "yes", "no", "on", "off"):
        return known.lower()
    return as_value(text)
