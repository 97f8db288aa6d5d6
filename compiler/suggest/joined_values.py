"""Join values that the parser did not read beyond their first word: lists without brackets (`targets = q_proj,
v_proj`), texts without quotes, and a number with words (`warmup = 5 pct`). Loaded only for such a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from xpc.compiler.language.schema import CLAUSES, TABLE, Setting, bare_choices
from xpc.compiler.suggest.converted_values import legal as in_words
from xpc.compiler.suggest.flag_values import BITS_OR_RANK
from xpc.compiler.suggest.legal import example
from xpc.compiler.suggest.likeness import parts
from xpc.compiler.suggest.lines.nested import members
from xpc.compiler.suggest.lines.rewriting import rewritten
from xpc.compiler.suggest.sentence import method_of
from xpc.compiler.suggest.tables import words_of
from xpc.grammar.diagnostic import Diagnostic, Edit
from xpc.grammar.record import evolve
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span

NAMES = frozenset((*CLAUSES, *bare_choices(), *(row.name for row in TABLE)))
WORDS = re.compile(r"(?:[ \t]+[\w.%-]+)+(?=[ \t]*(?:[,)}#\n]|$))")
"""Matches the words of a value after its first word, up to the end of the setting."""
OF_TOKENS = ("seq", "max_prompt", "max_completion", "max_tokens")
BLOCK = re.compile(r"(?P<name>\w+)[ \t]*[({]\s*(?P<setting>[\w.]+[ \t]*=[^(){}\n]*?)\s*[)}]")
QUOTED = re.compile(r'(?P<name>\w+)[ \t]*=[ \t]*"(?P<text>\{(?:[^"\\\n]|\\.)*\})"')
NUMERAL = re.compile(r"\d[\d.]*(?:[eE][+-]?\d+)?")
NEAR = 300
"""Only this many characters are searched for further words of a value, because a hostile file may have lines of
thousands of words.
"""
MACHINE = ("gpu", "device", "card", "rank", "process", "worker")


UNITS = {
    "step": ("every", "steps_or_share"),
    "epoch": ("every", "steps_or_share", "real"),
    "token": ("tokens",),
    "percent": ("every", "share", "steps_or_share", "real_or_share", "rows_or_share", "real"),
} | dict.fromkeys(("row", "sample", "example"), ("rows_or_share", "int"))
"""Maps a unit to the kinds of settings that may have it. Every other unit is one of time."""


def may_have(row: Setting, word: str) -> bool:
    """Whether the value of a setting may have the unit `word`: `steps` is possible for `warmup`, but not for `rank`."""
    unit = word.lower().removesuffix("s")
    if row.name == "every" and unit in ("row", "sample", "example"):
        return False  # it counts steps
    steps = any("steps" in one.split("_") for one in row.args)  # `accum` is `gradient_accumulation_steps`
    named = unit == "step" and (steps or row.doc.startswith("steps"))
    return named or row.kind.name in UNITS.get(unit, ("duration", "every"))


COUNTED = re.compile(r"(?P<name>\w+)[ \t]*(?:=[ \t]*|[ \t])\d\S*[ \t]+(?P<unit>[A-Za-z]+)$")
"""A pattern for a setting and a number with a word after it: `every = 100 steps`, `every 100 steps`."""
STRAY = re.compile(r"`\d\S*` is a value without a setting|`\w+` takes one value")
LATER = re.compile(r"(?:[ \t]+|,[ \t]*(?=\d))(?P<word>[A-Za-z]+|\d[^\s,)}]*)(?=[ \t]*(?:[,)}#\n]|$))")
EARLIER = re.compile(r"(?:[ \t]\d\S*[ \t]+|[ \t(]\d[^\s,]*,[ \t]*)$")


def _without_unit(found: Diagnostic) -> Diagnostic:
    """Drop the edit of a finding about a number with a unit that its setting cannot have: `lr = 100 steps`,
    `save every 1000 samples`.
    """
    if found.primary is None or not found.message.endswith(("` is two", " takes its value after `=`")):
        return found
    text, span = found.primary.source.text, (found.edits[0] if found.edits else found.primary).span
    counted = COUNTED.search(text[max(0, span.start - NEAR) : span.end])
    rows = [row for row in TABLE if counted is not None and row.name == counted["name"]]
    rows.sort(key=lambda row: row.path.count("."))
    if counted is None or not rows or any(may_have(row, counted["unit"]) for row in rows):
        return found
    return evolve(found, help=f"`{rows[0].name}` takes {rows[0].kind.phrase}, without `{counted['unit']}`", edits=())


def _stray_number(found: Diagnostic) -> tuple[Diagnostic, Span] | None:
    """The finding for a number that lacks its setting, and has a word or another number next to it, and the place of
    both. If the setting that a clause implies may have the word as its unit, the edit removes the word: `save "out" 500
    steps`. Otherwise there is no edit: `lora 100 steps` sets no rank.
    """
    if found.primary is None or not STRAY.fullmatch(found.message):
        return None
    after = LATER.match(found.primary.source.text, found.primary.span.end, found.primary.span.end + NEAR)
    typed = found.primary.typed
    if typed in BITS_OR_RANK and found.primary.source.text[: found.primary.span.start].rstrip("( \t").endswith("qlora"):
        return evolve(found, help=BITS_OR_RANK[typed], edits=()), found.primary.span
    if not found.edits and after is not None and after["word"] == "nodes":  # `slurm(4 nodes)`
        help = f"write `nodes {typed}` on a line of its own"
        return evolve(found, help=help), Span(found.primary.span.start, after.end())
    if not found.edits:
        return None
    text, edit = found.primary.source.text, found.edits[0]
    word = LATER.match(text, edit.span.end, edit.span.end + NEAR)
    before = EARLIER.search(text[max(0, edit.span.start - NEAR) : edit.span.start])
    named = word is not None and word["word"] in NAMES and word["word"].removesuffix("s") not in UNITS
    if (word is None or named) and before is None:
        return None
    name = edit.text.partition("=")[0].strip()
    unit = "" if word is None else word["word"]
    span = Span(edit.span.start, edit.span.end if word is None else word.end())
    if unit.isalpha() and any(row.name == name and may_have(row, unit) for row in TABLE):
        return evolve(found, edits=(Edit(span, edit.text),)), span
    length = f"; the length of the run is `for {edit.text.rpartition('=')[2].strip()} {unit}` in the first line"
    help = f"write the name of its setting, such as `{edit.text}`"
    return evolve(found, help=help + length * unit.startswith(("step", "epoch")), edits=()), span


def join_values(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Replace the findings about a number and the words after it, as in `warmup = 5 pct`, by one finding."""
    out: list[Diagnostic] = []
    locations: list[tuple[str, Span]] = []
    for found in map(_without_unit, problems):
        joined = _counted_words(found) or _stray_number(found)
        found = _quoted_mapping(_block_of_one_setting(_several_words(found))) if joined is None else found
        out.append(found if joined is None else joined[0])
        if joined is not None and found.primary is not None:
            locations.append((found.primary.source.name, joined[1]))
    out = [one for one in out if one.code not in ("XP101", "XP102", "XP024") or not _is_inside(one, locations)]
    names = ((one, one.primary) for one in out if one.code in ("XP101", "XP102"))
    ends = {(label.source.name, label.span.end): one for one, label in names if label is not None}
    return [one for one in out if not _is_value_of(one, ends)]


def _block_of_one_setting(found: Diagnostic) -> Diagnostic:
    """Answer another tool's block with its single setting: `loss { type = ipo }`, and `gradient_checkpointing_kwargs {
    use_reentrant = false }` in `memory`.
    """
    if found.primary is None:
        return found
    start = found.primary.span.start
    block = BLOCK.match(found.primary.source.text, start, start + NEAR)
    if block is None:
        return found
    general, words = words_of("setting_blocks"), {*parts(block["name"])}
    if found.message.endswith(" takes one value, not a block") and block["name"] != "rewards":
        setting = f"{block['name']}_{block['setting']}"
    elif found.code == "XP101" and words & general and words - general:
        setting = block["setting"]
    else:
        return found
    known = rewritten(setting, header=False)
    return evolve(found, help=known.help, edits=()) if known.help.startswith(("write ", "leave ")) else found


def _quoted_mapping(found: Diagnostic) -> Diagnostic:
    """Answer JSON in quotes: `lr_scheduler_kwargs = "{\\"num_cycles\\": 3}"` is `schedule(cycles=3)`."""
    if found.primary is None or found.code != "XP101":
        return found
    source, start = found.primary.source, found.primary.span.start
    written = QUOTED.match(source.text, start, start + NEAR)
    mapping = None if written is None else members(written["text"].replace('\\"', '"'))
    if written is None or not mapping:
        return found
    known = [rewritten(f"{written['name']}.{name} = {value}", False) for name, value in mapping]
    forms = [one.form for one in known if one.form is not None]
    if len(forms) < len(known):
        return evolve(found, help="; ".join(one.help for one in known), edits=())
    alone = len(forms) == 1 and not source.text[line_bounds(source.text, start, start)[0] : start].strip()
    edits = (Edit(Span(start, written.end()), forms[0]),) if alone else ()
    return evolve(found, help=f"write {', '.join(f'`{one}`' for one in forms)}", edits=edits)


def _is_value_of(found: Diagnostic, unknown: Mapping[tuple[str, int], Diagnostic]) -> bool:
    """Whether a finding is only about the value of an unknown name, such as `0-3` in `array = 0-3`, and `3` in `save
    "out" limit 3`. `unknown` has the findings about names, by the end of each name.
    """
    label = found.primary
    if label is None or not (STRAY.fullmatch(found.message) or found.code in ("XP040", "XP043")):
        return False
    before = label.source.text[max(0, label.span.start - NEAR) : label.span.start]
    name = unknown.get((label.source.name, label.span.start - len(before) + len(before.rstrip(" \t="))))
    return name is not None and (found.code == "XP104" or not name.edits)


def _is_inside(found: Diagnostic, locations: list[tuple[str, Span]]) -> bool:
    """Whether a finding is about a later word of a value, and not about its first word. `locations` are the places of
    the values. False for a finding about a complete value.
    """
    label = found.primary
    return label is not None and not found.message.startswith("a value is one word") and any(
        name == label.source.name and span.start < label.span.start < span.end for name, span in locations
    )  # fmt: skip


def _counted_words(found: Diagnostic) -> tuple[Diagnostic, Span] | None:
    """The finding for a value of several words, such as `micro=4 per gpu`, and the place of this value. None if the
    word after the number is the next setting, so that only the comma before it is missing.
    """
    ended = ("expected `,`", "expected the end of the line after this setting")
    if found.primary is None or not found.message.startswith(ended):
        return None
    text, at = found.primary.source.text, found.primary.span.start
    start, _ = line_bounds(text, at, at)
    before = re.search(r"(?P<name>\w+)[ \t]*=[ \t]*(?P<value>\d[\w.%+-]*)[ \t]*$", text[start:at])
    words = WORDS.match(text, start + before.end("value")) if before is not None else None
    if before is None or words is None:
        return None
    rest, value = words[0].split(), before["value"]
    rest = rest[1:] if rest[0] in ("optimizer", "update", "training", "global") and rest[1:] == ["steps"] else rest
    if (rest[0] in NAMES and rest not in (["tokens"], ["steps"])) or NUMERAL.fullmatch(rest[0]):
        return None
    message = f"a value is one word, and `{value} {' '.join(rest)}` is {len(rest) + 1} words"
    span = Span(start + before.start("value"), words.end())
    of_batch = before["name"] in ("gbs", "micro", "accum")
    if of_batch and rest[0] in ("per", "a", "each") and rest[-1].removesuffix("s") in MACHINE:
        help = f"write `micro={value}` for the sequences of one process, or the total as `gbs`"
        return evolve(found, message=message, help=help, edits=()), span
    if rest == ["tokens"] and of_batch:
        help = f"write the tokens divided by `seq`: `{before['name']}` counts sequences"
        return evolve(found, message=message, help=help, edits=()), span
    if "per" in rest and rest[-1] == "epoch":
        help = f"write a share of the run (`{before['name']} = 5%`), a number of steps, or `epoch` for once in an epoch"
        return evolve(found, message=message, help=help, edits=()), span
    if value[-1] in "kK" and before["name"] in OF_TOKENS:
        help = f"write {float(value[:-1]) * 1024:.0f}, {value[:-1]}Ki or {float(value[:-1]) * 1000:.0f}"
        return evolve(found, message=message, help=help, edits=()), span
    counted = re.search(
        r"\d|\b(?:per|each|dozen|hundred|thousand|million|k|words|char\w*|letters|bytes)\b", " ".join(rest)
    )
    help = (counted and takes(before["name"])) or f"leave `{' '.join(rest)}` out"
    return evolve(found, message=message, help=help, edits=()), span


def _several_words(found: Diagnostic) -> Diagnostic:
    """Describe the legal values in a finding about a second word that is no setting, as in `keep = best 3`. If the name
    is unknown, it is answered with all words: `fsdp = full_shard auto_wrap`, `eps_clip = 0.2 0.28`.
    """
    if found.primary is None or not found.message.startswith("expected the end of the line after this setting"):
        return found
    text, at = found.primary.source.text, found.primary.span.start
    start, end = line_bounds(text, at, at)
    before = re.search(r"(?P<name>\w+)[ \t]*=[ \t]*[A-Za-z\d][\w.-]*[ \t]+$", text[start:at])
    word = re.compile(r"[\w.-]+(?![\w.-]*[ \t]*[=({])").match(text, at, end)
    if before is None or found.edits or word is None:
        return found
    own = any(row.name == before["name"] for row in TABLE)
    if word[0] in NAMES and own:
        return found
    if not own and before["name"] not in CLAUSES and text[start:at].lstrip().startswith(before["name"]):
        return _with_all_words(found, before, start, end)
    return evolve(found, help=takes(before["name"]) or found.help)


def _with_all_words(found: Diagnostic, before: re.Match[str], start: int, end: int) -> Diagnostic:
    """Answer a setting of another tool with a value of several words, on a line of its own."""
    assert found.primary is not None
    source = found.primary.source
    line = Span(start + before.start("name"), end)
    words = source.slice(line).partition("=")[2].partition("#")[0].split()
    numbers = all(NUMERAL.fullmatch(one) for one in words)
    listed = f"[{', '.join(words)}]"
    values = (listed,) if numbers or words[1] in NAMES else (f'"{" ".join(words)}"', listed)
    answers = [rewritten(f"{before['name']} = {one}", False, method_of(source.text)) for one in values]
    advised = next((one for one in answers if one.form is not None), answers[0])
    if advised.form is None and not advised.help.startswith("write "):
        return found
    edits = () if advised.form is None or "#" in source.slice(line) else (Edit(line, advised.form),)
    return evolve(found, help=advised.help, edits=edits)


def takes(name: str) -> str:
    """The help that describes the legal values of a setting. "" if the settings with this name take other values."""
    rows = [one for one in TABLE if one.name == name]
    forms = {f"`{name}` takes {in_words(one)}, such as `{name} = {example(one)}`" for one in rows}
    return forms.pop() if len(forms) == 1 else ""
