"""Rewrite a line of words as settings: `use a learning rate of 2e-5 and cosine schedule`, `expert parallel 8`. Imported
only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from xpc.compiler.language.schema import ADAPTERS, BY_PATH, CLAUSES, TABLE, outer_names
from xpc.compiler.suggest.lines.phrases import TUPLE, phrases
from xpc.compiler.suggest.lines.rewriting import NOTE, Rewritten, rewritten
from xpc.compiler.suggest.lines.shell import COMMAND
from xpc.compiler.suggest.meaning import is_known
from xpc.compiler.suggest.pasted_blocks import heads, joined
from xpc.compiler.suggest.pasted_values import as_value
from xpc.compiler.suggest.sentence import method_of
from xpc.compiler.suggest.tables import words_of
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.record import evolve
from xpc.grammar.source import Source, Span

ALONE = ("launch", "extra")
"""Clauses for which lines in words, such as `nodes is 2`, are never rewritten as settings."""
HEADS = tuple(row.path for row in TABLE if row.head and row.choices)
PROSE = re.compile(r"[ \t]*[A-Za-z][\w'%-]*(?:[ \t,;]+[\w'%.-]+)+[.!]?[ \t]*")
"""A pattern for a line that consists only of words, without a sign such as `=`."""
IN_CLAUSE = re.compile(
    r"[ \t]*(?P<head>[^={(#]+?)[ \t]+(?P<word>on|with|for)[ \t]+(?P<rest>[^={(#]*[^={(#\s])[ \t]*(#.*)?"
)
"""A pattern for a clause with a word of the first line in it."""
NAME = re.compile(r"[A-Za-z][A-Za-z_-]*")
OF_WORDS = re.compile(r"(?:[ \t]+(?!(?:and|with|for|on)\b)[A-Za-z_]+){2,}")
"""A pattern for a value of several words, none of which joins two settings."""


def named_in_words(inside: Sequence[Diagnostic], source: Source, start: int, end: int) -> Diagnostic | None:
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


def without_preposition(inside: Sequence[Diagnostic], source: Source, start: int, end: int) -> Diagnostic | None:
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
    found = finding_about(inside[0], source, Span(line.start("head"), line.end("rest")), [best])
    return evolve(found, message=f"`{word}` belongs to the first line, and not into a clause")


def of_prose(inside: Sequence[Diagnostic], source: Source, start: int, end: int) -> Diagnostic | None:
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


def in_words(found: Diagnostic, source: Source, text: str, span: Span) -> Diagnostic | None:
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


def finding_about(found: Diagnostic, source: Source, span: Span, rewrites: Sequence[Rewritten]) -> Diagnostic:
    """Make a finding about a text whose settings are rewritten: the help and the edit state all of them."""
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
