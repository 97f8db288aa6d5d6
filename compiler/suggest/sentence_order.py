"""The sentence, put right: another verb, another order, `and`, commas. Loaded only for a wrong spec.

`finetune llama-3.1-8b with lora, bf16 on alpaca` is `train llama-3.1-8b on alpaca with lora bf16`. Read word by word,
as a person does: a model, what it is trained on, how long, and the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xpc.compiler import registry
from xpc.compiler.language import schema
from xpc.compiler.language.expand import EITHER
from xpc.compiler.language.methods import DEFAULT, METHODS
from xpc.compiler.suggest.number_words import in_digits
from xpc.compiler.suggest.pasted import doing_what_is_said, meaning_of
from xpc.compiler.suggest.sentence import FILES
from xpc.grammar import codes
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, Label
from xpc.grammar.record import field, mutable
from xpc.grammar.source import Source, Span

CODES = ("XP014", "XP020", "XP030", "XP043", "XP101", "XP102", "XP104")
"""Findings that a sentence in other words has."""
VERBS = ("train", "finetune", "fine-tune", "fine_tune", "finetuning", "tune", "training", "run", "fit")
FILLERS = ("and", "plus", "the", "a", "an", "model", "dataset", "data", "please", "then", "by", "in", "at", "&")
"""Words of a spoken sentence that say nothing here."""
JOINED = ("with", "using", "use", "via", "under")
"""What others write before choices; `using` may also stand before the data."""
DEVICES = ("gpu", "gpus", "cards", "devices")
LONGEST = 1000
"""Characters of a line that is read as a sentence."""
HEADER = re.compile(r"(?:[ \t]*(?:#[^\n]*|xpc [0-9]+[ \t]*(?:#[^\n]*)?|extends \"[^\"\n]*\"[ \t]*(?:#[^\n]*)?)?\n)*")
WORD = re.compile(r"\"[^\"\n]*\"?|[A-Za-z0-9_.@:/%+\-]+(?:\[[^\]\n]*\])?|[=,()\[\]+&]|\S")
COUNT = re.compile(r"\b([0-9]+)x([A-Za-z][\w.\-]*)")
SETTING = re.compile(r"([A-Za-z_][\w.\-]*)=(.+)")


@mutable
class _Sentence:
    """What was read so far, each part as it is typed here."""

    model: str = ""
    data: list[str] = field(factory=list)
    budget: str = ""
    options: list[str] = field(factory=list)

    @property
    def unnamed(self) -> bool:
        """Whether it is not said which GPUs they are."""
        return any(one.endswith(" x GPU") for one in self.options)

    @property
    def text(self) -> str:
        """The sentence, with the lines of its sources where there are several."""
        several = len(self.data) > 1
        named = "mix" if several else "".join(self.data)
        budget = f" for {self.budget}" if self.budget else ""
        options = f" with {' '.join(self.options)}" if self.options else ""
        block = f"\ndata mix {{ {', '.join(self.data)} }}" if several else ""
        return f"train {self.model} on {named}{budget}{options}{block}"


def told(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The findings; those of a sentence in other words become one, with the sentence to type."""
    wrong = next((one for one in found if one.code in CODES and one.primary is not None), None)
    if wrong is None or wrong.primary is None:
        return [*found]
    source = wrong.primary.source
    line = _line(source.text)
    of_line = [one for one in found if one.code in CODES and _within(one, source, line)]
    if not of_line:
        return [*found]
    typed = source.slice(line)
    sentence = _read(typed) if len(typed) <= LONGEST else None
    if sentence is None or not _differs(typed, sentence.text):
        return [*found]
    right = doing_what_is_said(sentence.text)
    if right is None:
        return [*found]
    code = codes.INCOMPLETE_SENTENCE
    first = right.partition("\n")
    help = f"write `{first[0]}`" + (f" and, on the line below, `{first[2]}`" if first[2] else "")
    help += "; `xpc list gpus` has the names" if sentence.unnamed else ""
    order = "the sentence is: train MODEL on DATA, then `for` and its length, then `with` and all choices"
    message = wrong.message if EITHER in wrong.message else order
    label = Label(source, line)
    said = Diagnostic(
        code.code, code.slug, ERROR, message, label, help=help, edits=() if sentence.unnamed else (Edit(line, right),)
    )
    kept = [one for one in found if one not in of_line]
    at = next(at for at, one in enumerate(found) if one in of_line)
    before = [one for one in found[:at] if one in kept]
    return [*before, said, *kept[len(before) :]]


def _line(text: str) -> Span:
    """The line of the sentence: the first behind the edition, the base and comments, without its own comment."""
    match = HEADER.match(text)
    start = match.end() if match is not None else 0
    end = (text + "\n").index("\n", start)
    inside = re.match(r"(?:\"[^\"\n]*\"|[^\"#\n])*", text[start:end])
    return Span(start, start + len((inside[0] if inside is not None else "").rstrip()))


def _within(one: Diagnostic, source: Source, line: Span) -> bool:
    return (
        one.primary is not None
        and one.primary.source is source
        and line.start <= one.primary.span.start <= one.primary.span.end <= line.end + 1
    )


def _differs(typed: str, sentence: str) -> bool:
    """Whether the words are others, or in another order: how one of them is spelt has a finding of its own."""
    return [*_words(COUNT.sub(r"\1 x \2", typed.replace('"', "")))] != [*_words(sentence.replace('"', ""))]


def _words(text: str) -> Iterator[str]:
    """The words of a line. A call, a list, and a setting with its value are one."""
    out, depth = "", 0
    pieces = [match[0] for match in WORD.finditer(text)]
    for at, piece in enumerate(pieces):
        following = pieces[at + 1] if at + 1 < len(pieces) else ""
        depth += (piece in ("(", "[")) - (piece in (")", "]"))
        out += piece + (" " if depth and piece == "," else "")
        if depth <= 0 and piece != "=" and following not in ("=", "("):
            yield out
            out = ""
    if out:
        yield out


def _read(line: str) -> _Sentence | None:
    """A sentence as it is spoken, or None where a model or data are missing or a word has no place."""
    words = in_digits([*_words(line)])
    out = _Sentence()
    if len(words) > 2 and words[1] == "on" and words[0] not in schema.CLAUSES and words[0].lower() not in VERBS:
        words.insert(0, VERBS[0])  # `qwen2.5-0.5b on alpaca`
    first = next((at for at, word in enumerate(words) if word.lower() in (*VERBS, *METHODS)), None)
    if first is None or any(not word.isalpha() or word in schema.outer_names() for word in words[:first]):
        return None
    verb = words[first].lower()
    if verb in METHODS and verb != DEFAULT:
        out.options.append(verb)
    at, data = first + 1, False
    while at < len(words):
        word = words[at]
        at += 1
        plain = word.lower()
        if data and word in (",", "+", "and") and at < len(words) and _is_data(words[at]) and not out.options:
            data = True
            out.data.append(_typed(words[at]))
            at += 1
        elif (plain in FILLERS and _behind(words, at - 1) == at) or word in (",", "+"):
            continue
        elif plain == "for" and at + 1 < len(words):
            out.budget, data = f"{words[at]} {words[at + 1]}", False
            at += 2
        elif plain in ("on", "over", "using") and not out.data and at < len(words):
            while at + 1 < len(words) and words[at].lower() in FILLERS:
                at += 1
            listed = [one.strip() for one in words[at].strip("[]").split(",")] if words[at][:1] == "[" else [words[at]]
            if not all(map(_is_data, listed)):
                return None
            out.data += map(_typed, listed)
            data, at = True, at + 1
        elif out.model and not out.data and registry.find_dataset(word) is not None:
            out.data.append(word)  # `train qwen2.5-0.5b alpaca`
        elif plain in JOINED or plain == "on":
            data = False
        elif not out.model and out.options in ([], [verb]) and not SETTING.fullmatch(word):
            out.model = _typed(word)
        else:
            data = False
            at = _option(out, words, at - 1)
    return out if out.model and out.data else None


def _is_data(word: str) -> bool:
    """Whether a word can name data: no number, no setting, no choice of the language."""
    if SETTING.fullmatch(word) or not re.match(r"[A-Za-z\"./~_]", word) or word.lower() in (*JOINED, "for"):
        return False
    return registry.find_gpu(word) is None and word not in (
        *schema.outer_names(),
        *schema.bare_choices(),
        *schema.CLAUSES,
    )


def _typed(word: str) -> str:
    """Files and paths stand in double quotes."""
    if word[:1] == '"':
        return word
    return f'"{word}"' if FILES.fullmatch(word) or word[:1] in "./~" else word


def _behind(words: list[str], at: int) -> int:
    """The place behind a clause's name and its own settings: `lora r=8 alpha=16`."""
    word, end = words[at], at + 1
    if word in schema.CLAUSES:
        own = {row.name for row in schema.children("lora" if word in schema.ADAPTERS else word)}
        while end < len(words) and (one := SETTING.fullmatch(words[end])):
            if one[1] in schema.outer_names() and one[1] not in own:
                break
            end += 1
    return end


def _option(out: _Sentence, words: list[str], at: int) -> int:
    """Takes the choice that begins at a word; returns the place behind it."""
    word = words[at]
    following = words[at + 1] if at + 1 < len(words) else ""
    glued = COUNT.fullmatch(word)
    if glued:
        out.options.append(f"{glued[1]} x {glued[2]}")
        return at + 1
    if word.isdigit() and following == "x" and at + 2 < len(words):
        out.options.append(f"{word} x {words[at + 2]}")
        return at + 3
    if word.isdigit() and following.lower() in ("epoch", "epochs", "step", "steps") and not out.budget:
        out.budget = f"{word} {following}"
        return at + 2
    if word.isdigit() and following.lower() in DEVICES:
        out.options.append(f"{word} x GPU")
        return at + 2
    if word.isdigit() and registry.find_gpu(following) is not None:
        out.options.append(f"{word} x {following}")
        return at + 2
    said = SETTING.fullmatch(word)
    if said and said[1] in ("epochs", "steps") and not out.budget and not said[2].startswith("["):
        out.budget = f"{said[2]} {said[1]}"
        return at + 1
    end = _behind(words, at)
    if end > at + 1:
        form = meaning_of(f"{word}({', '.join(words[at + 1 : end])})", True).form
        if form is not None:
            out.options.append(form)
            return end
    out.options.append(word)
    return at + 1
