"""Rewrite a first line (`train M on D ...`) whose settings are written in words: `train M on D with a learning rate of
2e-5` becomes `train M on D with lr=2e-5`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler import registry
from xpc.compiler.language.expand import expand
from xpc.compiler.language.methods import METHODS
from xpc.compiler.suggest.converted_values import FILES, REPOSITORY
from xpc.compiler.suggest.lines.phrases import phrases
from xpc.compiler.suggest.lines.rewriting import findings_in, findings_of, lines_with_errors, replaced
from xpc.compiler.suggest.sentence import method_of
from xpc.compiler.suggest.tables import words_of
from xpc.grammar.checks import VERBS
from xpc.grammar.diagnostic import Diagnostic, Edit, Label, applied
from xpc.grammar.nearest import letters
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve, record
from xpc.grammar.source import Source, Span

HEAD = re.compile(rf"(?P<verb>(?:[A-Za-z',]+[ \t]+){{0,6}}?(?:{'|'.join(VERBS)}))[ \t]+(?P<model>[^\s,]+)[ \t]+on[ \t]+"
                  r"(?!(?:with|for|on|extends)\b)(?P<data>\"[^\"\n]*\"|[^\s,]+),?(?P<rest>(?:[ \t].*)?)")  # fmt: skip
KEYS = re.compile(
    r"(?<!\S)-{0,2}(?:(?P<model>(?:base_)?model(?:_name(?:_or_path)?|_id|_path)?)"
    r"|(?:train_)?data(?:set)?(?:_name|_path)?)(?:[=:][ \t]*|[ \t]+)(?=[\w\".])"
)
"""A pattern for the model and the data as settings: `model=M data=D`, `--model M --dataset D`."""
DASHES = re.compile(r"(?<!\S)--?(?=[A-Za-z])")
IN_CLAUSE = re.compile(r"(?<!\S)([a-z]+)[@:/>](?=[a-z_]+=)")
"""A pattern for a clause before its setting, with another sign than a dot: `lora@rank=8`."""
SPLIT = re.compile(r"(?<!\S)(?:with[ \t]+)?split[ \t]*=?[ \t]*([A-Za-z]\w*)(?!\S)")
FILLERS = words_of("first_line")
"""Words in a wrong first line that name neither a model, nor data, nor a length, such as `finetune` and `using`."""
WORD = re.compile(r"\"[^\"\n]*\"|[\w./-]+\([^()\n]*\)|[^\s\",]+|,")
LONGEST_NAME = 5
"""The name of a model or of a dataset may be written in at most this many words, such as `llama 3.1 8b instruct`."""
LONGEST_LINE = 600
LONGEST = 200
"""A help shows at most this many characters of the corrected first line."""


def rewrite_header(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """If the first line has settings in English words, replace all findings about it by one about the complete line."""
    out = list(problems)
    for source, start, end in lines_with_errors(problems, LONGEST_LINE):
        begins = {*source.text[start:end].split()[:7]}
        if begins.isdisjoint(VERBS) and begins.isdisjoint(METHODS):
            continue
        inside = findings_in(out, source, start, end)
        text = source.text[start:end]
        # `micro=8` after `eval split=test` may belong to `eval` or to `batch`: the user must choose
        unclear = any(one.code == "XP104" and "`, or `" in (one.help or "") for one in inside)
        rewrite = None if unclear else _form(text)
        if rewrite is not None and rewrite.unclear and " with " in text and "," not in text:
            break  # keep the findings: there is one for each unclear word
        form = "" if rewrite is None else rewrite.sentence
        if (
            form in ("", text)
            or parse(Source("line.xp", f"{form}\n"))[1]
            or (text.startswith("train ") and _says_the_same(inside, source, Span(start, end), form))
        ):
            break  # keep the findings about single words, because they are more exact
        if inside and rewrite is not None:
            out = replaced(out, inside, _made(inside[0], source, Span(start, end), rewrite))
        break
    return out


@record
class _Rewrite:
    """A first line, rewritten: the sentence, the comment of the line, and `unclear`, the helps for names that may mean
    several settings.
    """

    sentence: str
    comment: str
    unclear: tuple[str, ...]


def _says_the_same(inside: Sequence[Diagnostic], source: Source, line: Span, form: str) -> bool:
    """Whether the edits of the findings already make the first line legal, with the same settings as `form`."""
    edits = [
        Edit(Span(e.span.start - line.start, e.span.end - line.start), e.text) for one in inside for e in one.edits
    ]
    if not edits or any(edit.span.start < 0 for edit in edits) or not all(one.edits for one in inside):
        return False
    text = applied(source.text[line.start : line.end], edits)
    left = {one.code for one in findings_of(f"xpc 1\n{text}\n")}
    own, rewritten = _settings(text), _settings(form)
    # findings about values, such as `warmup=0.1`, are made later, and have edits of their own
    return (
        own == rewritten
        if not left
        else left <= {"XP105", "XP106"} and [path for path, _ in own] == [path for path, _ in rewritten]
    )


def _settings(text: str) -> list[tuple[str, str]]:
    source = Source("line.xp", f"{text}\n")
    items = expand(parse(source)[0]).items
    return sorted((path, "" if one.node is None else source.slice(one.node.span)) for path, one in items.items())


def _made(found: Diagnostic, source: Source, span: Span, rewrite: _Rewrite) -> Diagnostic:
    help = "; ".join((f"write `{rewrite.sentence[:LONGEST]}`", *rewrite.unclear))
    edits = () if rewrite.unclear else (Edit(span, rewrite.sentence + rewrite.comment),)
    if HEAD.match(source.text, span.start, span.end) is None:
        return evolve(found, help=help, edits=edits)  # the finding is about the model or the data
    message = "choices and settings go after `with`, and values follow `=`"
    return evolve(found, message=message, primary=Label(source, span), help=help, edits=edits)


def _form(line: str) -> _Rewrite | None:
    """Rewrite a first line. None if some words are not understood."""
    text, _, comment = line.partition(" #")
    text = re.sub(r"[ \t]\(([^()]*)\)$", r" \1", text.rstrip(" \t.;,?!"))  # `(2 epochs)`
    if len({*METHODS}.intersection(text.split())) > 1 or "++" in text:
        return None  # `sft ... then dpo` states two runs, and `reinforce++` is no `reinforce`
    method, comment = method_of(line), f" #{comment}" if comment else ""
    return _read(text, method, comment) or _read(in_order(text), method, comment)


def _read(text: str, method: str, comment: str) -> _Rewrite | None:
    """Rewrite the part of a first line after its data. None if some words are not understood."""
    head = HEAD.fullmatch(text)
    if head is None:
        return None
    rest = re.sub(r"(?<!\S)w/(?!\S)", "with", head["rest"])
    split = None if head["data"][-1] in '"]' else SPLIT.search(rest)
    rest = rest if split is None else f"{rest[: split.start()]} {rest[split.end() :]}"
    read = phrases(IN_CLAUSE.sub(r"\1.", DASHES.sub("", rest)), True, method)
    form = "" if split is None else f"[{split[1]}]"
    if read is not None:
        form += (f" for {read.length}" if read.length else "") + (f" with {' '.join(read.forms)}" if read.forms else "")
    else:
        form += rest.rstrip()
    if findings_of(f"xpc 1\ntrain m on d{form}\n"):
        return None
    sentence = f"train{text[head.end('verb') : head.end('data')]}{form}"
    return _Rewrite(sentence, comment, () if read is None else read.unclear)


def in_order(line: str) -> str:
    """A first line with its model and its data in the order of the language, `train MODEL on DATA`, followed by all
    other words. "" if the line does not name a model and data.
    """
    words = WORD.findall(DASHES.sub("", KEYS.sub(lambda one: f"{'model' if one['model'] else 'on'} ", line)))
    while words and words[0].lower() in (*FILLERS, *VERBS):
        words = words[1:]
    data = _data(words)
    rest = words if data is None else _without(words, data)
    model = _model(rest)
    if data is None or model is None:
        return ""
    others = " ".join(_without(rest, model)).replace(" ,", ",").strip(" ,")
    return f"train {model.text} on {data.text} {others}"


@record
class _Place:
    """A name in a list of words: the places of its first word and after its last word, and the name to write."""

    start: int
    end: int
    text: str


def _without(words: Sequence[str], name: _Place) -> list[str]:
    """The words without a name, and without the fillers before it, such as `on the dataset`."""
    start = name.start
    while start and words[start - 1].lower() in FILLERS and words[start - 1] != "for":
        start -= 1
    end = name.end + (words[name.end : name.end + 1] in (["dataset"], ["data"], ["model"]))
    return [*words[:start], *words[end:]]


def _after_fillers(words: Sequence[str], start: int) -> int:
    return next((at for at in range(start, len(words)) if words[at].lower() not in FILLERS), len(words))


def _data(words: Sequence[str]) -> _Place | None:
    """Find the data of a first line: the name after `on`, or a dataset or a file at any other place."""
    names, on = registry.dataset_names(), next((at for at, one in enumerate(words) if one == "on"), len(words))
    at = _after_fillers(words, on)
    here = _registered(names, words, at)
    word = words[at] if at < len(words) else ""
    if here is None and (word[:1] == '"' or FILES.fullmatch(word) or REPOSITORY.match(word)):
        return _Place(at, at + 1, word)
    found = here or next(filter(None, (_registered(names, words, at) for at in range(len(words)))), None)
    file = next((at for at, one in enumerate(words) if FILES.fullmatch(one.strip('"'))), None)
    if found is None and file is not None:
        return _Place(file, file + 1, words[file])
    plain = re.fullmatch(r"[A-Za-z][\w.-]*(?:\[.*\])?", word) and registry.find_gpu(word) is None
    return _Place(at, at + 1, word) if found is None and plain else found


def _model(words: Sequence[str]) -> _Place | None:
    """Find the model of a first line without its data: a registered model, or the first name."""
    names, at = registry.model_names(), _after_fillers(words, 0)
    found = next(filter(None, (_registered(names, words, at) for at in range(len(words)))), None)
    word = words[at] if at < len(words) else ""
    named = word[:1] == '"' or REPOSITORY.fullmatch(word)
    return _Place(at, at + 1, word) if found is None and named else found


def _registered(names: Sequence[str], words: Sequence[str], at: int) -> _Place | None:
    """Find a registered name that begins at a place of the words, and may be written in several words."""
    known = {letters(one): one for one in names}
    for count in range(LONGEST_NAME, 0, -1):
        named = words[at : at + count]
        name = known.get(letters(re.split(r"[:@\[]", "".join(named))[0] if count == 1 else "".join(named)))
        if name is not None and len(named) == count and all(map(letters, named)):
            return _Place(at, at + count, named[0] if count == 1 else name)
    return None
