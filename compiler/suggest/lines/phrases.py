"""Read the settings of a text in words: `learning rate of 2e-5, cosine schedule with warmup 3%, and 3 epochs`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler.language import schema
from xpc.compiler.suggest.converted_values import methods_with, unit_of
from xpc.compiler.suggest.joined_values import UNITS, may_have
from xpc.compiler.suggest.known_names import NEVER_LEGAL, known_choice
from xpc.compiler.suggest.lines.events import EVENTS, FALLS, OF_ROWS, Reader
from xpc.compiler.suggest.lines.notations import LISTS
from xpc.compiler.suggest.lines.rewriting import rewritten
from xpc.compiler.suggest.lines.units import COUNTED
from xpc.compiler.suggest.meaning import is_known, meaning
from xpc.compiler.suggest.no_equivalent import advice
from xpc.compiler.suggest.pasted_blocks import joined
from xpc.compiler.suggest.pasted_values import as_value
from xpc.compiler.suggest.tables import words_of
from xpc.grammar.record import record

TOKENS = re.compile(
    r"\"[^\"\n]*\"|'[^'\n]*'|\[[^\]\n]*\]|[\w.-]+\([^()\n]*\)|:=|==|=>|->|<-|[,;&+=]|:(?=\s|$)"
    r"|[^\s,;&+=:\"'\[\]()]+(?::[^\s,;=:]+)*"
)
CLAUSE = re.compile(r"(\w+)(?:[( =]|$)")
WORD = re.compile(r"[A-Za-z][\w./-]*")
TUPLE = re.compile(r"\(([\d.eE, -]+)\)")
"""A pattern for numbers in round brackets: `betas=(0.9, 0.95)`."""
BITS = re.compile(r"\b([48])[ -]bits?\b")
UNIT = re.compile(r"(?<![\w.-])(\d+)((?:epochs?|eps?|steps?|iters?|its?)\b)")
LATER_WORD = re.compile(r"\w[\w./-]*")
VALUE = re.compile(r"\"[^\"]*\"|'[^']*'|\[[^\]]*\]|[\w.][\w.%+/-]*")
EQUALS = words_of("equals")
"""Signs and words between a name and its value, such as `of` in `learning rate of 2e-5`."""
EMPTY = words_of("empty")
"""Signs and words between two settings, such as `and` in `lr 2e-5 and 3 epochs`."""
LONGEST_NAME = 5
"""A name has at most this many words."""
MOST = 40
"""Only the first words of a text are read, at most this many."""
PERCENT = ("percent", "pct", "per cent")
TIMES = {"hour": "h", "hr": "h", "minute": "m", "min": "m", "day": "d", "second": "s", "sec": "s"}
COUNTS = ("step", "token", "row", "sample", "example", "sequence", "checkpoint", "layer", "gpu", "worker", "time")
REFUSED = frozenset(path.rpartition(".")[2] for path in NEVER_LEGAL)
"""The last parts of the paths in NEVER_LEGAL: names that are in the language only so that a rule can refuse them."""
NO_NAMES = frozenset((*schema.bare_choices(), *REFUSED)) - {*schema.CLAUSES, *schema.outer_names()}
NO_NAMES |= {"hardware", "from"}
"""Words that are never read as a name before a value: choices such as `cosine`, and the word `hardware`. Other
functions read the GPUs after `hardware`.
"""
WORDS = ("name", "text", "path", "repository", "model", "names", "targets")
"""Kinds of settings whose value can be any word."""
AMONG = ("use", "Use", "the", "a", "an", "first", "about", "around", "exactly", "only", "just")
"""Words between a name and its value that mean nothing: `warmup over the first 100 steps`."""
VERBS = ("train", "finetune", "fine-tune", "run", "make", "do", "add", "apply", "turn", "switch", "we", "i")
"""Words that a line may begin with before its settings: `Train in bf16`."""
ENDS = ("stop", "end", "finish", "train", "run")
"""First words of a phrase that states the length of a run: `stop after 500 steps`."""
LIMITS = (
    *(("at", "most"), ("up", "to"), ("a", "total", "of"), ("at", "maximum"), ("max",), ("maximum",)),
    *(("about",), ("roughly",), ("approximately",), ("around",)),
)
"""Words that may stand directly before the length of a run, such as `up to 500 steps`."""
FULL = ("full", "fully", "full-parameter", "full_parameter", "fft")
FULL_NOUNS = ("param", "finetun", "fine-tun", "tun", "train", "sft", "weight", "model")
"""Words for a training of all weights: `full parameter finetuning`."""
QUANTIZED = words_of("quantized")
TAKING = ("data", "take", "use", "only", "limit", "max", "maximum", "at", "most", "to", "the", "first")
"""Words before a number of rows: `use only the first 1000 rows`."""
LENGTHS = ("context", "sequence", "sequences", "length", "window", "limit")


@record
class Phrases:
    """The settings that a text states: `forms` is the text to write for each of them, and `length` is the length of the
    run, if the text states it. `unclear` are the helps for names that may mean several settings, such as `batch size`.
    """

    forms: tuple[str, ...]
    length: str = ""
    unclear: tuple[str, ...] = ()


def phrases(text: str, header: bool, method: str = "") -> Phrases | None:
    """The settings of a text. None if the text has no settings, or if a part of it is not understood. `method` is the
    training method of the spec.
    """
    text = re.sub(r"\bdeepspeed(?=[ \t]+zero)", "", text)
    text = re.sub(r"\.(?=\s)", ";", BITS.sub(r"\1-bit", UNIT.sub(r"\1 \2", TUPLE.sub(r"[\1]", text))))
    words = TOKENS.findall(text)
    # brackets and signs that no pattern matches are not words
    if len(words) > MOST or re.sub(r"\s", "", "".join(words)) != re.sub(r"\s", "", text):
        return None
    reader, forms, unclear, length, plain = Reader(words, header, method), list[str](), list[str](), "", False
    while reader.at < len(reader.words):
        engine = reader.word() == "on" and reader.word(1) in schema.BY_PATH["launch"].choices
        verb = not header and not reader.at and reader.word().lower() in VERBS
        rises = reader.word() == "linear" and reader.word(1).startswith("warm")  # skip `linear`: every warm-up is
        # `full finetuning` is the default: every weight is trained
        full = (
            reader.word() in FULL
            and reader.word(-1) not in EQUALS
            and (header or reader.word(1).startswith(FULL_NOUNS))
        )
        while full and reader.word(1).startswith(FULL_NOUNS):
            reader.at += 1
        plain = plain or full
        clause = (
            not reader.at and reader.word() in schema.CLAUSES and f"{reader.word()}.{reader.word(1)}" in schema.BY_PATH
        )
        reader.clause = reader.word() if clause else reader.clause
        if clause or engine or verb or rises or full or reader.word().lower() in EMPTY:
            reader.at += 1
        elif not length and (found := _length(reader)):
            length = found
        elif help := _of_several_meanings(reader):
            unclear.append(help)
        elif form := next((form for step in STEPS if (form := step(reader))), ""):
            forms.append(form if header else re.sub('^save="', 'save "', form))
            call = CLAUSE.match(form)
            reader.method = reader.method or (form if form in schema.BY_PATH["method"].choices else "")
            reader.clause = call[1] if call is not None and call[1] in schema.CLAUSES else ""
        else:
            return None
    named = dict(one.split("=", 1) for one in forms if re.match(r"\w+=", one))
    if any(one.partition("=")[2] != named.get(one.partition("=")[0], one.partition("=")[2]) for one in forms):
        return None  # two values of one setting
    known = forms or length or unclear or (plain and header)
    return Phrases(tuple(joined(forms)), length, tuple(unclear)) if known else None


def _of_several_meanings(reader: Reader) -> str:
    """Read a name that may mean several settings, and its value: `batch size 32`. Also read a number of rows, which is
    a setting of each source: `take the first 1000 rows`. Returns the help.
    """
    after = next((at for at in range(6) if reader.word(at) not in TAKING), 0)
    rows = reader.word(after + 1).removesuffix("s") in ("row", "sample", "example")
    if after and reader.word(after).isdecimal() and (rows or reader.word() == "data"):
        name, amount = "limit" if "first" in reader.words[reader.at : reader.at + after] else "take", reader.word(after)
        reader.at += after + 1 + rows
        return f"write `SOURCE({name}={amount})` in the `data` block, for each source"
    for count in range(LONGEST_NAME, 0, -1):
        named = [reader.word(ahead).rstrip(".") for ahead in range(count)]
        ahead = count + (reader.word(count) in EQUALS)
        value, length = _value(reader, ahead)
        help = advice("_".join(named), value) if length and all(map(WORD.fullmatch, named)) else None
        if help is not None and value in help and "` for " in help:
            reader.at += ahead + length
            return help
    return ""


def _length(reader: Reader) -> str:
    """Read the length of the run: `for 3 epochs`, `for at most 500 steps`, `epochs: 3`."""
    ends = reader.word().lower() in ENDS and reader.word(1) in ("after", "for", "at")
    after = 2 if ends else int(reader.word() in ("for", "during", "over"))
    after += reader.word(after) == "a"
    limit = next((one for one in LIMITS if tuple(map(reader.word, range(after, after + len(one)))) == one), ())
    after += len(limit)
    amount = str(COUNTED.get(reader.word(after), reader.word(after)))
    if amount.isdecimal() and reader.word(after + 1) == "," and re.fullmatch(r"\d{3}", reader.word(after + 2)):
        amount, after = amount + reader.word(after + 2), after + 2  # `1,000 steps`
    after += reader.word(after + 1) in ("training", "optimizer", "update", "gradient")
    unit = unit_of(reader.word(after + 1)) if amount.isdecimal() and reader.word(after + 1).isalpha() else None
    if unit is not None and (unit == "epochs" or after or not reader.at or reader.word(-1) == "train"):
        reader.at += after + 2
        return f"{amount} {unit[:-1] if amount == '1' else unit}"
    if reader.word() in ("once", "twice"):
        reader.at += 1
        return "1 epoch" if reader.word(-1) == "once" else "2 epochs"
    first = int(reader.word() == "for")
    name = reader.word(first)
    named = unit_of(name) if name.isidentifier() and not name.startswith("batch") else None
    sign = first + int(reader.word(first + 1) in EQUALS)
    if named is None or not reader.word(1 + sign).isdecimal() or (named == "steps" and not sign):
        return ""
    amount = reader.word(1 + sign)
    if rewritten(f"{name}={amount}", reader.header, reader.method).form is not None:
        return ""  # a setting of the method, such as `num_iterations` in grpo
    reader.at += 2 + sign
    return f"{amount} {named[:-1] if amount == '1' else named}"


def _is_name(name: str) -> bool:
    own = any(row.name == name for row in schema.TABLE)
    return own or (is_known(name, loosely=False) and advice(name, "") is None)


def _value(reader: Reader, ahead: int) -> tuple[str, int]:
    """Read the value at a position. Returns the value, and how many words it has."""
    word = reader.word(ahead)
    typed = str(COUNTED.get(word.lower(), word))
    if not VALUE.fullmatch(typed):
        return "", 0
    unit = reader.word(ahead + 1).lower().removesuffix("s")
    if re.fullmatch(r"\d[\d_.]*", typed):
        if reader.word(ahead + 1).lower() in PERCENT:
            return f"{typed}%", 2
        if unit in TIMES:
            return f"{typed}{TIMES[unit]}", 2
        if unit in COUNTS:
            return typed, 2
    return as_value(typed), 1


def _items(reader: Reader, ahead: int) -> tuple[str, int] | None:
    """Read a list without brackets: `q_proj, k_proj and v_proj`. Returns the list, and how many words it has."""
    items, at = [reader.word(ahead)], ahead + 1
    while reader.word(at) in (",", "and") and WORD.fullmatch(item := reader.word(at + 1)) and not _is_name(item):
        items.append(item)
        at += 2
    return (f"[{', '.join(items)}]", at - ahead) if len(items) > 1 and WORD.fullmatch(items[0]) else None


def _named(reader: Reader) -> str:
    """Read a name and its value: `learning rate of 2e-5`, `lr = 2e-5`."""
    for count in range(LONGEST_NAME, 0, -1):
        named = [reader.word(ahead).rstrip(".") for ahead in range(count)]
        name = "_".join(named)
        key = count == 1 and "_" in name  # `torch_dtype bfloat16`: a name of another tool, whose value follows
        if not all(map(WORD.fullmatch, named)) or not (key or _is_name(name)) or (not key and name in NO_NAMES):
            continue
        if _begins_with_the_method(named):
            continue
        known = meaning(name, exact=True)
        if any(one in NO_NAMES and _is_name("_".join(named[at + 1 :])) for at, one in enumerate(named[:-1])):
            continue  # `adamw lr 1e-5` is a choice and a setting, and not `adamw_lr`
        if known is not None and known.value and not (key and reader.word(1).lower() in ("true", "false")):
            continue  # the name states the value itself: `linear warmup`
        ahead = count
        while (
            reader.word(ahead) in EQUALS and not (reader.word(ahead) == "for" and unit_of(reader.word(ahead + 2)))
        ) or (reader.word(ahead) in ("set", "equal") and reader.word(ahead + 1) in EQUALS):
            ahead += 1
        while ahead > count and reader.word(ahead) in AMONG:
            ahead += 1
        value, length = _value(reader, ahead)
        row = None if known is None else schema.BY_PATH.get(known.path)
        if row is not None and row.kind.name in LISTS:
            value, length = _items(reader, ahead) or (value, length)
        unit = reader.word(ahead + 1).lower() if length == 2 else ""
        if value[-1:] in TIMES.values() and unit and (row is None or row.kind.name != "duration"):
            continue
        if row is not None and unit.removesuffix("s") in UNITS and value[-1:] != "%" and not may_have(row, unit):
            return ""  # `micro batch of 4096 tokens`: the unit belongs to another setting
        if not length or (value in (EMPTY if key else ("and", "with", "for", "on")) and ahead == count):
            continue
        # `lora dropout 0.1`: without a sign, only a number is surely the value
        plain = ahead == count and not key and not re.match(r"[\d.\"\[]|true$|false$", value)
        if plain and not _takes(name, value):
            continue
        named_after = reader.word(ahead + length) in ("in", "for") and reader.word(ahead + length + 1)
        clause = named_after or reader.clause
        home = "lora" if clause in schema.ADAPTERS else clause
        if f"{home}.{name}" in schema.BY_PATH and name not in schema.outer_names():
            typed = f"{clause}({name}={value})"  # the text names the clause: `lora of rank 16`
        else:
            typed, named_after = f"{name}={value}", ""
        form = rewritten(typed, reader.header, reader.method).form
        if form is not None:
            reader.at += ahead + length + 2 * bool(named_after)
            head = clause if clause in schema.ADAPTERS else "lora"
            return re.sub(r"^lora\(", f"{head}(", form.removesuffix("=true"))
    return ""


def _begins_with_the_method(named: Sequence[str]) -> bool:
    """Whether words are the method and the name of its setting, as in `dpo beta 0.1`."""
    return named[0] in schema.BY_PATH["method"].choices and len(named) > 1 and _is_name("_".join(named[1:]))


def _takes(name: str, value: str) -> bool:
    """Whether the setting `name` has a choice `value`, or accepts any word."""
    known = meaning(name, exact=True)
    row = None if known is None else schema.BY_PATH.get(known.path)
    word = row is not None and row.kind.name in WORDS and value not in EMPTY and not _is_name(value)
    loss = row is not None and row.path == "method.loss" and bool(methods_with(value))
    return row is not None and (value in row.choices or word or loss or bool(known_choice(row, value)))


def _after_its_value(reader: Reader) -> str:
    """Read a number and the name after it: `16 lora rank`, `2e-5 learning rate`."""
    value = str(COUNTED.get(reader.word(), reader.word()))
    if not re.fullmatch(r"\d[\d_.]*(?:e-?\d+)?(?:%|Ki|[kM])?", value):
        return ""
    if reader.word(1) in ("token", "tokens") and reader.word(2) in LENGTHS:  # `4096 token context`
        reader.at += 2
        while reader.word() in LENGTHS:
            reader.at += 1
        return f"seq={value}"
    if reader.word(1) in ("bit", "bits"):  # `16 bit` is a precision
        return ""
    unit = int(reader.word(1).removesuffix("s") in COUNTS)
    for count in range(LONGEST_NAME, 0, -1):
        named = [reader.word(ahead) for ahead in range(1 + unit, count + 1 + unit)]
        name = "_".join(named)
        if not all(map(WORD.fullmatch, named)) or not _is_name(name):
            continue
        form = rewritten(f"{name}={value}", reader.header, reader.method).form
        if form is not None:
            reader.at += count + 1 + unit
            return form
    return ""


OFF = ("schedule.warmup", "optimizer.weight_decay", "optimizer.clip")
"""Settings that are switched off by the number 0."""


def _off(reader: Reader) -> str:
    """Read a setting that is switched off: `no warmup`, `weight decay off`."""
    before = int(reader.word().lower() in ("no", "without", "disable", "disabled"))
    for count in range(LONGEST_NAME - 1, 0, -1):
        named = [reader.word(ahead) for ahead in range(before, count + before)]
        after = int(reader.word(count) in ("off", "disabled") and not before)
        known = meaning("_".join(named), exact=True) if (before or after) and all(map(WORD.fullmatch, named)) else None
        row = None if known is None else schema.BY_PATH.get(known.path)
        flag = row is not None and row.kind.name == "flag"
        if row is None or row.path in schema.ADAPTERS or not (flag or row.path in OFF):
            continue
        form = rewritten(f"{'_'.join(named)}={'false' if flag else '0'}", reader.header, reader.method).form
        if form is not None:
            reader.at += before + count + after
            return form
    return ""


def _alone(reader: Reader) -> str:
    """Read a choice or a switch: `gradient checkpointing`, `cosine schedule`, `zero2`, `lora(rank=8)`."""
    if re.fullmatch("4-?bits?", reader.word()) and reader.word(1) == "qlora":
        reader.at += 1
    if (bits := re.fullmatch("([48])-?bits?", reader.word())) is not None and reader.word(1) == "lora":
        reader.at += 2
        return "qlora" if bits[1] == "4" else "lora(bits=8)"
    if bits is not None and (not reader.word(1).isalpha() or reader.word(1) in (*EMPTY, *QUANTIZED, "lora", "for")):
        reader.at += 1
        while reader.word() in QUANTIZED:
            reader.at += 1
        return "qlora" if bits[1] == "4" else "lora(bits=8)"
    after = 2 if reader.word(1) == "chat" else 1
    if reader.word(after) == "template" and reader.word(after + 1) not in EQUALS:  # `chatml template`
        template = rewritten(f"chat_template={reader.word()}", reader.header, reader.method).form or ""
        reader.at += (after + 1) * bool(template)
        return template
    if reader.word(1) == "loss" and methods_with(reader.word().lower()):
        reader.at += 2
        return f"loss={reader.word(-2).lower()}"
    if re.fullmatch("8-?bits?", reader.word()) and reader.word(1).lower() in ("optimizer", "adam", "adamw"):
        reader.at += 2
        return "adamw8bit"
    if "(" in reader.word():
        call = rewritten(reader.word(), reader.header, reader.method).form or ""
        reader.at += bool(call)
        return call
    for count in range(LONGEST_NAME - 1, 0, -1):
        named = [reader.word(ahead) for ahead in range(count)]
        if not WORD.fullmatch(named[0]) or not all(map(LATER_WORD.fullmatch, named)):
            continue
        name = "_".join(named)
        legal = (name in schema.bare_choices() or name in schema.CLAUSES) and name not in (*REFUSED, "data", "model")
        known = None if legal else meaning(name, exact=True)
        row = None if known is None else schema.BY_PATH.get(known.path)
        switch = row is not None and known is not None and (row.kind.name == "flag" or known.value or row.bare)
        noun = count > 1 and named[-1] in ("schedule", "scheduler", "optimizer", "precision", "attention", "method")
        if count > 1 and re.match(r"\d", reader.word(count)):
            continue  # `constant learning rate 1e-5`
        if (
            not legal
            and reader.word(count) in (":", "=")
            and reader.word(count + 1).lower() not in ("", "true", "yes", "on")
        ):
            continue  # a value follows: `finetuning_type: freeze`
        stated = count > 1 and named[-1].isdecimal() and advice("_".join(named[:-1]), named[-1]) is not None
        if stated or _begins_with_the_method(named) or not {"on", "for"}.isdisjoint(named):
            continue
        if count > 1 and named[-1] in FALLS and reader.word(count) == "to":
            continue  # `cosine decay to 10%`
        if not (legal or switch or noun) or advice(name, "") is not None:
            continue
        name = row.name if name in REFUSED and row is not None else name
        form = rewritten(name if legal or switch else "_".join(named[:-1]), reader.header, reader.method).form
        if form is not None and (legal or "=" not in form or (known is not None and known.value) or noun):
            reader.at += count
            reader.at += 2 * (legal and reader.word() in ("=", ":") and reader.word(1).lower() == "true")
            reader.at += switch and reader.word() == "on" and reader.word(1) in ("", *EMPTY)
            while row is not None and row.clause == "data" and reader.word() in OF_ROWS:  # `shuffle the data`
                reader.at += 1
            return form
    return ""


STEPS = (*EVENTS, _off, _named, _after_its_value, _alone)
"""The functions that read one setting from a text, in the order in which they are tried."""
