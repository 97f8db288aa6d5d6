"""Rewrite lines that surround a setting with the marks of other notations: the bullets and backticks of Markdown,
Hydra's `+`, tags, brackets, and words such as `set`. `- **Learning rate**: 2e-5` becomes `lr=2e-5`. Imported only for
a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile

from xpc.compiler.language.schema import ADAPTERS, BY_PATH, CLAUSES, TABLE, outer_names
from xpc.compiler.suggest.lines.nested import members
from xpc.compiler.suggest.lines.phrases import TUPLE, phrases
from xpc.compiler.suggest.lines.rewriting import (
    NOTE,
    Rewritten,
    body,
    findings_in,
    findings_of,
    lines_with_errors,
    replaced,
    rewritten,
)  # fmt: skip
from xpc.compiler.suggest.lines.shell import COMMAND, SHELL, command_help
from xpc.compiler.suggest.meaning import is_known, meaning
from xpc.compiler.suggest.pasted import QUOTES, Option, flags_of, option_rewritten
from xpc.compiler.suggest.pasted_blocks import closing_line, heads, joined
from xpc.compiler.suggest.pasted_values import as_value
from xpc.compiler.suggest.sentence import method_of
from xpc.compiler.suggest.tables import words_of
from xpc.compiler.suggest.unknown_names.case import REFERENCE
from xpc.grammar.diagnostic import Diagnostic, Edit, Label, applied
from xpc.grammar.record import evolve, record
from xpc.grammar.source import Source, Span

ALONE = ("launch", "extra")
"""Clauses for which lines in words, such as `nodes is 2`, are never rewritten as settings."""
HEADS = tuple(row.path for row in TABLE if row.head and row.choices)
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
PROSE = re.compile(r"[ \t]*[A-Za-z][\w'%-]*(?:[ \t,;]+[\w'%.-]+)+[.!]?[ \t]*")
"""A pattern for a line that consists only of words, without a sign such as `=`."""
SENTENCE = re.compile(r"^train\b.*\bon\b", re.MULTILINE)
IN_CLAUSE = re.compile(
    r"[ \t]*(?P<head>[^={(#]+?)[ \t]+(?P<word>on|with|for)[ \t]+(?P<rest>[^={(#]*[^={(#\s])[ \t]*(#.*)?"
)
"""A pattern for a clause with a word of the first line in it."""
NAME = re.compile(r"[A-Za-z][A-Za-z_-]*")
OF_WORDS = re.compile(r"(?:[ \t]+(?!(?:and|with|for|on)\b)[A-Za-z_]+){2,}")
"""A pattern for a value of several words, none of which joins two settings."""
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
            or _named_in_words(inside, source, start, end)
            or _without_preposition(inside, source, start, end)
            or _of_prose(inside, source, start, end)
        )
        if made is not None:
            out = replaced(out, inside, made)
    return out


def _named_in_words(inside: Sequence[Diagnostic], source: Source, start: int, end: int) -> Diagnostic | None:
    """The finding about a line that begins with a name in several words for which xpc has advice, such as `expert
    parallel 8`. Helps about its single words would be wrong. None for other lines.
    """
    words = source.text[start:end].partition("#")[0].split()
    named = list(takewhile(NAME.fullmatch, words[:5]))
    if len(named) < 2 or COMMAND.match(source.text, start, end) or named[0] in (*CLAUSES, *outer_names()):
        return None
    for count in range(len(named), 1, -1):
        name, rest = "_".join(named[:count]), words[count:]
        if is_known(name, loosely=False) and len(rest) < 2:
            value = f"={as_value(rest[0])}" if rest and rest[0] not in ("on", "enabled") else ""
            advised = rewritten(f"{name}{value}", False, method_of(source.text))
            message = f"`{' '.join(named[:count])[:60]}` is not a setting of the language"
            first = start + source.text[start:end].index(words[0])
            span = Span(first, start + len(source.text[start:end].partition("#")[0].rstrip()))
            edits = () if advised.form is None else (Edit(span, advised.form),)
            return evolve(inside[0], message=message, primary=Label(source, span), help=advised.help, edits=edits)
    return None


def _without_preposition(inside: Sequence[Diagnostic], source: Source, start: int, end: int) -> Diagnostic | None:
    """The finding about a clause with a word of the first line in it: `launch on slurm`, `lora on attention`. None for
    other lines.
    """
    line = IN_CLAUSE.fullmatch(source.text, start, end)
    wrong = line is not None and any(one.primary is not None and one.primary.typed == line["word"] for one in inside)
    if line is None or not wrong or heads(source.text, start):
        return None
    head, word, rest = line["head"], line["word"], line["rest"]
    forms = [f"{head} {rest}"] + [f"{head}\n{rest}"] * (word == "with")
    forms += [f"{head}(targets={rest})"] * (head in ADAPTERS)
    advised = [rewritten(one, False, method_of(source.text)) for one in forms]
    best = next((one for one in advised if one.form is not None), advised[0])
    if best.form is None and (" " in rest or not best.help.startswith("write ")):
        return None
    found = _advised(inside[0], source, Span(line.start("head"), line.end("rest")), [best])
    return evolve(found, message=f"`{word}` belongs to the first line, and not into a clause")


def _of_prose(inside: Sequence[Diagnostic], source: Source, start: int, end: int) -> Diagnostic | None:
    """The finding about a line of words that is not understood: `use whatever works best`. Helps about its single words
    would only lead to other errors. None for other lines.
    """
    text = source.text[start:end]
    words = text.split()
    if not words:
        return None
    plain = PROSE.fullmatch(text) is not None and words[0] not in outer_names() and words[0] not in CLAUSES
    least = 4 if any(one.edits for one in inside) or words[0] in words_of("empty") else 6
    if not plain or len(words) < least or COMMAND.match(text) or " -" in text:
        return None
    typed = text.strip()
    span = Span(start + text.index(typed), start + text.index(typed) + len(typed))
    message = "a setting is written `name = value`, on a line of its own"
    help = "write settings such as `lr = 1e-5`: `xpc list settings` prints them all"
    return evolve(inside[0], message=message, primary=Label(source, span), help=help, edits=())


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
        return _advised(found, source, span, [option_rewritten(one, before) for one in options]) if options else None
    pairs = marked(source.text[start:end] if text == typed.strip() else text)
    if pairs is None:
        return _in_words(found, source, text, span) if before == top else None
    rewrites = [option_rewritten(Option(span, one.name, one.value), before) for one in pairs]
    helpful = text.startswith("set") and not any(REFERENCE in one.help for one in rewrites)
    if WORDS.match(text) and not helpful and not all(one.form for one in rewrites):
        return None
    return _advised(found, source, span, rewrites)


def _advised(found: Diagnostic, source: Source, span: Span, rewrites: Sequence[Rewritten]) -> Diagnostic:
    forms = joined([form for one in rewrites if one.form is not None for form in one.form.split("\n")])
    complete = all(one.form is not None for one in rewrites)
    message = "a setting is written `name = value`, without other signs around it"
    if len(forms) > 1:
        message = "each setting is written `name = value`, on its own line"
    each = ", each on its own line" * (len(forms) > 1)
    help = f"write {', '.join(f'`{one}`' for one in forms)}{each}" if complete else "; ".join(o.help for o in rewrites)
    _, column = source.text[: span.start].rpartition("\n")[1:]
    # a remark may state a setting of a setting, as in `hub = "me/model" (private)`
    remark = NOTE.search(source.text[span.start : span.end])
    words = re.findall(r"\w+", remark[0]) if remark is not None else []
    states = not {row.name for row in TABLE if row.path.count(".") > 1}.isdisjoint(words)
    help = f"{help}, with `{' '.join(words)}` in its block" if states else help
    edits = (Edit(span, f"\n{column}".join(forms)),) if complete and not states else ()
    return evolve(found, message=message, primary=Label(source, span), help=help[:600], edits=edits)


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


def _in_words(found: Diagnostic, source: Source, text: str, span: Span) -> Diagnostic | None:
    """The finding about settings in words: `use a learning rate of 2e-5 and cosine schedule`."""
    note = NOTE.search(text)
    plain = TUPLE.sub(r"[\1]", text if note is None else text[: note.start()]).rstrip(" \t.;,")
    if (
        " " not in plain
        or "(" in plain
        or text.endswith(":")
        or plain.split()[0] in ALONE
        or any(sign in plain for sign in "{}<>|`$")
    ):
        return None
    plain = re.sub(rf"^({'|'.join(HEADS)})[ \t]*=[ \t]*", r"\1 ", plain)  # `schedule = cosine with 3% warmup`
    legal, (clause, *rest) = re.match(r"(\w+)[ \t]*=", plain), plain.split()
    if legal is not None and (legal[1] in outer_names() or OF_WORDS.fullmatch(plain, legal.end())):
        return None  # another finding reports `gbs = 64 sequences` and `optimizer_name = adamw torch`
    names = {row.name for row in TABLE}
    if clause in CLAUSES and all(re.match(r'"|\w+=', one) or one in names for one in rest):
        return None  # a clause on one line, with a name that is not one of its settings: `batch gbs=2 isolate=mask`
    several = [one for one in re.split(r"[\s,=]+", plain) if one not in ("and", clause)]
    if clause == "track" and len(several) > 1 and {*several} <= {*BY_PATH["track"].choices}:
        form = f"track {' '.join(several)}"
        message = "trackers are separated by spaces"
        return evolve(found, message=message, help=f"write `{form}`", edits=(Edit(span, form),))
    read = phrases(plain, False, method_of(source.text))
    if read is None or (not read.forms and not read.length and re.search("[:=]", plain)):
        return None
    forms = [one for one in read.forms if one not in CLAUSES or one in BY_PATH] or read.forms  # `batch` alone is empty
    message = "settings are written `name = value`, each on its own line"
    if re.fullmatch(r"[\w.]+[ \t]*=[ \t]*\S+", plain):  # `epochs = 2` is written so
        message = f"`{clause.partition('=')[0]}` is not a setting of the language"
    length = [f"`for {read.length}` in the first line, after the data"] if read.length else []
    written = ", ".join([*(f"`{one}`" for one in forms), *length])
    help = "; ".join([*([f"write {written}"] if written else []), *read.unclear])
    edits = () if read.length or read.unclear else (Edit(span, "\n".join(forms)),)
    return evolve(found, message=message, primary=Label(source, span), help=help[:600], edits=edits)


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
    if pair is None:
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
