"""Properties that every suggested edit must have. They are judged without a written answer, from the spec before the
edit and the finding. The module's functions return what is wrong with an edit, as texts.

Choices are judged by their spelling alone. Whether `flash_attention_2` is `flash2` is a matter of the lists of
`unknown_names/`, which have written answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from difflib import SequenceMatcher
from functools import cache
from itertools import permutations

from compile_support import edited
from test_unknown_names import SENTENCE, stated

from xpc.compiler.language import schema
from xpc.compiler.language.values import InvalidValue
from xpc.compiler.suggest.known_names import known, spellings
from xpc.compiler.suggest.lines.units import COUNTED
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.source import Span

TOKEN = re.compile(
    r"""(?P<comment>(?:\#|//).*)
    |(?P<string>"[^"\n]*"|'[^'\n]*')
    |(?P<time>(?:\d+-)?\d+:\d\d(?::\d\d)?|\d+[dh]\d+[hm]?)
    |(?P<number>(?<![\w.])[-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?
        (?:[ \t]*(?:%|(?:[kKMGTB]i?B?|min|ms|s|m|h|d)\b))?(?![\w-]*[A-Za-z]))
    |(?P<word>[^\W\d][\w\-./:]*|\d\w*[\w\-./]*)""",
    re.VERBOSE,
)
UNITS = {
    "%": (0.01,), "k": (1e3, 1024), "K": (1e3, 1024), "KB": (1e3, 1024), "M": (1e6, 2**20), "MB": (1e6, 2**20),
    "G": (1e9, 2**30), "GB": (1e9, 2**30), "T": (1e12, 2**40), "TB": (1e12, 2**40), "B": (1e9, 1),
    "Ki": (1024,), "Mi": (2**20,), "Gi": (2**30,), "KiB": (1024,), "MiB": (2**20,), "GiB": (2**30,), "TiB": (2**40,),
    "s": (1,), "ms": (0.001,), "m": (60, 1e6), "min": (60,), "h": (3600,), "d": (86400,),
}  # fmt: skip
"""The factors that a unit may stand for."""
POWER = re.compile(r"\d[ ]?[x×*][ ]?10[ ]?(?:\^|\*\*)?[-⁻]?\w+")
"""A power of ten in another notation than xpc's: `2×10⁻⁵`, `1x10^-5`."""
SWITCHES = {"true", "false", "on", "off", "yes", "no", "none", "null", "auto", "never", "epoch"}
FILLERS = frozenset(re.findall(r"\w+", """
    of the and using with in to a an by at every is set type name params step steps epoch epochs per cent percent as be
    should tokens rows enabled word each config args value file model days hours minutes seconds hour min sec times
    last total_steps causal_lm gpu deepspeed int float select method split
"""))  # fmt: skip
"""Words that say nothing, or only repeat the unit or the kind of a value."""
CHOICES = {one for row in schema.TABLE for one in row.choices}
KNOWN = {
    *schema.CLAUSES, *schema.bare_choices(), *(row.name for row in schema.TABLE), *schema.SOURCE_SETTINGS, *CHOICES,
    *SWITCHES, "xpc", "train", "on", "for", "with", "steps", "epochs", "extra", "trl", "deepspeed", "zero_optimization",
    "all-linear", "weight",
    "x", *(f"{one}_proj" for one in ("q", "k", "v", "o", "gate", "up", "down")),
}  # fmt: skip
FEATURES = {"fsdp", "zero1", "zero2", "zero3"}
"""Words of a name that stand for a feature of their own: `fsdp_cpu_offload` states `fsdp`, too."""


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """The tokens of a spec, as pairs of a kind and a text."""
    for match in TOKEN.finditer(text):
        kind = str(match.lastgroup)
        yield kind, match[0] if kind in ("comment", "string") else match[0].rstrip(":,.-/")


def letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


@cache
def synonyms() -> frozenset[frozenset[str]]:
    """Pairs of a choice or setting and another spelling of it, from the compiler's tables."""
    choices = {frozenset(map(letters, pair)) for row in schema.TABLE for pair in spellings(row)}
    names = {frozenset((one.letters, letters(one.path.rpartition(".")[2]))) for one in known()}
    values = {frozenset((one.letters, letters(one.value))) for one in known()}
    return frozenset(choices | names | values)


def similar(word: str, others: Iterable[str]) -> bool:
    """Whether a word contains one of others, is contained in it, is a synonym of it, or resembles it."""
    own = letters(word)
    for other in map(letters, others):
        if frozenset((own, other)) in synonyms() or (own and own in other) or (len(other) > 1 and other in own):
            return True
        if SequenceMatcher(None, own, other).ratio() >= 0.6:
            return True
    return False


def quantities(text: str) -> set[float]:
    """The values that a number, with or without a unit, or a time may have."""
    if clock := re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d)(?::(\d\d))?", text):
        days, first, second, third = (int(one or 0) for one in clock.groups())
        return {86400.0 * days + 3600 * first + 60 * second + third, 60.0 * first + second}
    if found := re.fullmatch(r"(\d+)([dh])(\d+)[hm]?", text):
        return {float(int(found[1]) * UNITS[found[2]][0] + int(found[3]) * {"d": 3600, "h": 60}[found[2]])}
    match = re.fullmatch(r"([-+]?[\d_,.]+(?:[eE][-+]?\d+)?)[ \t]*(\D*)", text)
    out: set[float] = set()
    for form in () if match is None else (match[1].replace(",", ""), match[1].replace(",", ".")):
        try:
            value = float(form)
        except ValueError:
            continue
        out |= {value, *(value * factor for factor in UNITS.get(match[2] if match else "", (1,)))}
    return out


def close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def same_number(one: str, other: str) -> bool:
    """Whether two numbers may mean the same quantity, in possibly different units, or as a share and its rest."""
    scales = (1, 60, 3600, 1 / 60, 1 / 3600, 0.01, 100, 1024, 1 / 1024)
    return any(
        close(1 - x, y) or (x and close(1 / x, y)) or any(close(x * scale, y) for scale in scales)
        for x in quantities(one)
        for y in quantities(other)
    )


def results(numbers: Iterable[str]) -> list[float]:
    """The results of calculations with two of the numbers, and their common product."""
    found = [value for one in numbers for value in quantities(one)][:8]
    out = [1.0]
    for x, y in permutations(found, 2):
        out += [x * y, x + y, x / y if y else x]
        out += [x**y] if abs(x) < 100 and abs(y) < 40 and x else []
        out += [float(int(x) << int(y))] if 0 <= y < 40 and abs(x) < 1e6 else []
    for one in found:
        out[0] *= one
    return out


class Edited:
    """A spec before and after the edits of a finding."""

    def __init__(self, before: str, found: Diagnostic) -> None:
        self.before, self.found, self.after = before, found, edited(before, found)
        old, new = Counter(tokens(before)), Counter(tokens(self.after))
        self.lost, self.new = list((old - new).elements()), list((new - old).elements())
        self.written, self.left = [text for _, text in old], [text for _, text in new]
        self.help = found.help or ""
        self.results = results(text for kind, text in self.lost if kind in ("number", "time"))

    def says(self, text: str) -> bool:
        """Whether the help names a token."""
        return bool(re.search(rf"(?<![\w.]){re.escape(text)}(?!\w)", self.help))

    def blames(self, text: str) -> bool:
        """Whether the message is about a token."""
        typed = "" if self.found.primary is None else self.found.primary.typed
        return letters(text) in letters(self.found.message) or typed.strip("\"' ") == text

    def has_number(self, number: str, texts: Collection[str]) -> bool:
        """Whether one of several tokens has a number, or the result of a calculation."""
        digits = {*re.findall(r"[1-9]\d*", " ".join(texts))} & {*re.findall(r"[1-9]\d*", number)}
        computed = [one for text in texts for one in quantities(text) if any(close(one, each) for each in self.results)]
        return bool(digits or computed) or any(same_number(number, one) for one in texts)

    def is_a_name(self, text: str) -> bool:
        """Whether a word of the spec before the edit is the name of a setting, and not a value."""
        own = re.escape(text)
        return bool(re.search(rf"\b{own}\"?[ \t]*[={{(:]|(?:^[ \t]*\W*|--){own}\b", self.before, re.MULTILINE))

    def lost_value(self, kind: str, text: str) -> bool:
        """Whether a value that the spec before the edit has is neither in the spec after the edit nor in the help."""
        content = text.strip("\"'")
        texts = [one for _, one in self.new]
        if self.help.startswith("leave "):
            if "says it" not in self.help or kind not in ("number", "string"):
                return False
            texts = self.left
        power = POWER.search(self.before)
        if power is not None and letters(content) in letters(power[0]):
            return False
        if self.says(content) or content.lower() in FILLERS | SWITCHES or not letters(content):
            return False
        if kind == "comment":
            left_out = any(
                not one.text and text in self.before[one.span.start : one.span.end] for one in self.found.edits
            )
            return not left_out and text.lstrip("#/- ") not in self.after
        if re.fullmatch(r"\d+(?:x?r|-?bits?)", content) or (content == "2" and "fsdp_version" in self.before):
            return False  # `2r` is twice the rank, and `fsdp` is version 2
        if kind in ("number", "time") or quantities(content):
            switch = content in ("0", "1", "-1") and not {*texts}.isdisjoint(KNOWN)
            return not switch and not self.has_number(content, texts)
        if content in COUNTED and any(one[:1].isdecimal() for one in texts):
            return False
        features = FEATURES & {*re.split(r"[\W_]", content.lower())}
        if any(one not in self.help and one not in letters(self.after).replace("shard", "fsdp") for one in features):
            return True
        prose = any(one in self.found.message for one in ("settings are written", "settings go after", "Python call"))
        if (
            similar(content, texts)
            or self.blames(content)
            or prose
            or (self.is_a_name(content) and content not in KNOWN)
        ):
            return False
        return not any(one in CHOICES for one in texts)

    def new_value(self, kind: str, text: str) -> bool:
        """Whether a value of the spec after the edit is not in the spec before the edit."""
        content = text.strip("\"'")
        if kind in ("number", "time"):
            words = {text.lower() for _, text in self.lost}
            in_words = not words.isdisjoint(SWITCHES if content == "0" else {*COUNTED, "half"})
            computed = any(close(one, each) for one in quantities(content) for each in self.results)
            if content in ("0.9", "0.999") and "betas" in self.help:
                return False  # the default of the other beta
            return not in_words and not computed and not self.has_number(content, self.written)
        if f"`on {content}`" in self.help:
            return False  # the name of a mixture
        return content.lower() not in KNOWN and not similar(content, self.written)

    def problems(self) -> Iterator[str]:
        """What is wrong with the edits."""
        yield from (f"loses the {kind} {text}" for kind, text in self.lost if self.lost_value(kind, text))
        yield from (f"invents the {kind} {text}" for kind, text in self.new if self.new_value(kind, text))
        if SENTENCE.search(self.before) and not SENTENCE.search(self.after):
            yield "removes the first line"
        labels = [one for one in (self.found.primary, *self.found.related) if one is not None]
        lines = {line for one in labels for line in line_numbers(self.before, one.span)}
        for edit in self.found.edits:
            removed = self.before[edit.span.start : edit.span.end].strip(" \n\t{}[]()")
            if removed and lines.isdisjoint(line_numbers(self.before, edit.span)):
                yield f"removes {removed!r} on another line"
        old, new = settings(self.before), settings(self.after)
        for path, value in old.items():
            if new.get(path) != value and not self.names(path):
                yield f"changes {path} from {value} to {new.get(path)}"
        yield from (
            f"sets {path}, which the help does not name" for path in new if path not in old and not self.names(path)
        )

    def names(self, path: str) -> bool:
        """Whether the help or the message is about a setting, its value or its block."""
        own = re.split(r"[.:]", path)[-1]
        value = str(settings(self.after).get(path, ""))
        return own in self.written or any(
            self.says(one) or self.blames(one) for one in (own, path.split(".")[0], value, value.title()) if one
        )


def settings(text: str) -> dict[str, object]:
    """The legal settings of a spec. The data, the model and the contents of `sweep` are judged as tokens."""
    excluded = ("sweep", "hardware", "MODEL", "DATA")
    return {
        path: value
        for path, value in stated(text).items()
        if not isinstance(value, InvalidValue) and path not in excluded and not isinstance(value, str | tuple)
    }


def line_numbers(text: str, span: Span) -> range:
    """The lines of a text in which a span lies."""
    return range(text.count("\n", 0, span.start), text.count("\n", 0, max(span.start, span.end - 1)) + 1)


def violations(text: str, problems: Iterable[Diagnostic]) -> list[str]:
    """What is wrong with the edits of the findings about syntax and names in a spec."""
    out = []
    for found in problems:
        if found.edits and found.code < "XP125":
            wrong = list(Edited(text, found).problems())
            out += [f"{text!r} -> {edited(text, found)!r} ({found.help}): {'; '.join(wrong)}"] if wrong else []
    return out
