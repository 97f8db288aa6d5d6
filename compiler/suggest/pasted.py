"""Lines of command lines and YAML files that were pasted into a spec: what each option is in the language.

The parser stops at `--learning_rate 1e-5` and at `learning_rate: 1e-5`; a dash or a colon is no mistake to speak of.
Loaded only for a spec with such a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler import registry
from xpc.compiler.language.convert import convert
from xpc.compiler.language.expand import expand
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.values import Wrong
from xpc.compiler.suggest.legal import answer
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve, record
from xpc.grammar.source import Source, Span

CODES = ("XP014", "XP043")
VALUE = r"\"[^\"\n]*\"|'[^'\n]*'|\[[^\]\n]*\]|(?!--?[A-Za-z])[^\s#\\]+"
FLAG = re.compile(rf"--?(?P<name>[A-Za-z][\w.-]*)(?:=(?P<one>{VALUE})|(?P<many>(?:[ \t]+(?:{VALUE}))*))")
YAML = re.compile(rf"[ \t]*(?:- )?(?P<name>[A-Za-z][\w.-]*):[ \t]*(?P<one>{VALUE})?[ \t]*(?:#.*)?$", re.M)
COUNT = re.compile(r"(?P<count>\d+)[ \t]*x[ \t]*(?P<gpu>\d[\w.-]*)")
BARE = re.compile(r"[A-Za-z][\w.-]*|\d[\d_]*(\.\d+)?([eE][+-]?\d+)?(%|Ki|Mi|[kMBsmhd]|[KMGT]i?B)?|\[.*\]|\".*\"")
HEADER, BODY = "train m on d with ", "xpc 1\ntrain m on d\n"


@record
class Option:
    """An option that was pasted: its place, its name, and its value as the language would spell it."""

    span: Span
    name: str
    value: str | None


@record
class Said:
    """What an option is in the language: a form to type, or why there is none."""

    form: str | None
    help: str


def told(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The findings, those of pasted options with what to write instead."""
    return [_told(one) if one.code in CODES and one.primary is not None else one for one in problems]


def _told(found: Diagnostic) -> Diagnostic:
    assert found.primary is not None
    source, at = found.primary.source, found.primary.span.start
    text = source.text
    start, end = text.rfind("\n", 0, at) + 1, (text + "\n").index("\n", at)
    if found.code == "XP043":
        return _counted(found, source, start, end)
    if text[at : at + 1] == "-":
        options = _flags(text, at, end)
        message = "options of a command line are settings here, without dashes"
    else:
        match = YAML.fullmatch(text, start, end) if text[at : at + 1] == ":" else None
        options = [] if match is None else [_option(match, match["one"])]
        message = "lines of YAML are settings here, with `=`"
    if not options:
        return found
    header = "train" in text[start:at].split()
    said = [_meaning(one, header) for one in options]
    shown = [one.help for one in said]
    edits = tuple(Edit(one.span, what.form) for one, what in zip(options, said) if what.form is not None)
    whole = Span(options[0].span.start, options[-1].span.end)
    return evolve(
        found,
        message=message if len(edits) == len(options) or len(options) > 1 else f"{message}: `{options[0].name[:60]}`",
        primary=Label(source, whole),
        help="; ".join(dict.fromkeys(shown))[:600],
        edits=edits if len(edits) == len(options) and (header or len(options) == 1) else (),
    )


def _flags(text: str, at: int, end: int) -> list[Option]:
    """The options from a dash on, to the end of the line."""
    out: list[Option] = []
    while at < end:
        match = FLAG.match(text, at, end)
        if match is None:
            break
        many = re.findall(VALUE, match["many"] or "")
        out.append(
            _option(match, match["one"] or (many[0] if len(many) == 1 else f"[{', '.join(many)}]" if many else None))
        )
        at = match.end()
        while at < end and text[at] in " \t":
            at += 1
    return out


def _option(match: re.Match[str], value: str | None) -> Option:
    text = match.string
    start = match.start("name")
    while start and text[start - 1] == "-":
        start -= 1
    end = (
        match.end("one")
        if match["one"] is not None
        else match.end()
        if "many" in match.re.groupindex
        else match.end("name") + 1
    )
    return Option(Span(start, end), match["name"].replace("-", "_"), None if value is None else spelt(value))


def spelt(value: str) -> str:
    """A value of a command line or of YAML as the language spells it."""
    if value[:1] == "'":
        value = f'"{value[1:-1]}"' if '"' not in value else value
    if value.lower() in ("true", "false"):
        return value.lower()
    if re.fullmatch(r"\d+\.([eE][+-]?\d+)?", value):
        value = value.replace(".", ".0", 1)
    if re.fullmatch(r"\.\d+([eE][+-]?\d+)?", value):
        value = "0" + value
    if BARE.fullmatch(value) or re.fullmatch(r"-\d.*", value):
        return value
    return f'"{value}"' if '"' not in value and "\\" not in value else value


def _meaning(option: Option, header: bool) -> Said:
    """What an option is in the language, by writing it as a setting and reading what is said of that."""
    typed = option.name if option.value is None else f"{option.name}={option.value}"
    before = HEADER if header else BODY
    text = before + typed + "\n"
    file, problems = parse(Source("pasted.xp", text))
    if problems:
        return Said(None, f"a setting is written `{option.name} = value`")
    written = expand(file)
    found = [*problems, *written.problems]
    if not found:
        for path, item in written.items.items():
            value = convert(BY_PATH[path], item) if path in BY_PATH and path != "hardware" else None
            if isinstance(value, Wrong):
                found.append(answer(value))
    if not found:
        return Said(typed, f"write `{typed}`")
    first = found[0]
    for edit in sorted(first.edits, key=lambda one: one.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    form = text[len(before) :].rstrip("\n") if first.edits else None
    if form is not None and any(_is_wrong(form, before)):
        form = None
    return Said(form, f"write `{form}`" if form is not None else first.help or first.message)


def _is_wrong(form: str, before: str) -> list[bool]:
    """Whether a form is still no setting, or has a value that it cannot have."""
    written = expand(parse(Source("pasted.xp", f"{before}{form}\n"))[0])
    return [
        *(True for _ in written.problems),
        *(
            isinstance(convert(BY_PATH[path], item), Wrong)
            for path, item in written.items.items()
            if path in BY_PATH and path != "hardware"
        ),
    ]


def _counted(found: Diagnostic, source: Source, start: int, end: int) -> Diagnostic:
    """A GPU that begins with a digit, which is no name: the RTX 4090 of `1 x 4090`."""
    match = COUNT.search(source.text, start, end)
    gpu = None if match is None else registry.find_gpu(match["gpu"])
    if match is None or gpu is None:
        return found
    edit = Edit(Span(match.start("gpu"), match.end("gpu")), gpu.name)
    return evolve(found, help=f"write `{match['count']} x {gpu.name}`", edits=(edit,))
