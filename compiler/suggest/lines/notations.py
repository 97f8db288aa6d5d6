"""Rewrite values in the notation of another tool: `seq = 2**12`, `every = each epoch`, `nccl_timeout = 1h30`. The
patterns are in notations.toml. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from functools import cache
from math import floor

from xpc.compiler.language.convert import convert
from xpc.compiler.language.expand import expand
from xpc.compiler.language.rewards import REWARDS
from xpc.compiler.language.schema import BY_PATH, Setting
from xpc.compiler.language.values import InvalidValue
from xpc.compiler.registry import find_gpu
from xpc.compiler.suggest.converted_values import SHARED, methods_with
from xpc.compiler.suggest.known_names import known_choice
from xpc.compiler.suggest.lines.units import COUNTED, arithmetic, duration, gibibytes
from xpc.compiler.suggest.meaning import meaning
from xpc.compiler.suggest.registry_names import gpus_named
from xpc.compiler.suggest.tables import notations, usual_columns
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.parse import parse
from xpc.grammar.source import Source

NUMBERS = (*SHARED, "int", "tokens", "real", "share")
LISTS = ("names", "targets", "tasks", "reals")
GROUPS = dict.fromkeys(NUMBERS, ("number",)) | {
    "duration": ("number",), "name": ("text", "words"), "text": ("words",), "text_or_file": ("file", "text", "words"),
    "template": ("file",), "path": ("text",),
}  # fmt: skip
"""Maps a kind of setting to tables of notations.toml. The tables of the kind and of the setting's name also apply."""
ROUNDS, LONGEST = 6, 80
WEIGHTED = re.compile(r"(?:(?P<before>[\d.]+)\s*\*\s*)?\"?(?P<name>[a-z]\w*)\"?(?:\s*[*:=]\s*(?P<after>[\d.]+))?")
PLAIN = re.compile(r"\d[\d_]*(?:\.\d+)?(?:e-?\d+)?")
MEMBER = re.compile(r"[A-Z]\w*\.([A-Z][A-Z_0-9]*)")
"""A pattern for a member of an enumeration of Python: `IntervalStrategy.EPOCH`."""
WORDED = re.compile(r"(?P<word>[A-Za-z_]\w*)(?: ?\(| )(?P<value>\d[^()]*)\)?|(?P<first>\d\S*) (?P<after>[A-Za-z_]\w*)")
"""A pattern for a number next to a word: `max_norm 1.0`, `L2(0.01)`."""
OF_EPOCH = re.compile(
    r"(?P<times>\d+|once|twice|thrice) ?(?:x|times)?[ _]?(?:an|a|per|each|every|/|in an|in each)[ _]?epoch|"
    r"(?P<share>.+?)[ _]?(?:of )?(?:an |a |one |each )?(?:epochs?|ep)"
)
"""A pattern for a part of an epoch, or how often something happens in it: `0.1 epochs`, `twice an epoch`."""
TIMES = {"once": 1, "twice": 2, "thrice": 3}
BRACKETS = re.compile(r"(?i)^(?:\w+\.)*(?:tuple|list|set|array|tensor|c|of)?[(\[{<]+|^select |[)\]}>]+$")
LOSS = re.compile(r"(\w+?)(?:\s*[-_/+:@&]\s*| with | )(\w+)")
"""A pattern for a method and its loss: `dpo-ipo`."""
PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")


@cache
def _patterns(kind: str, name: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    groups = (*GROUPS.get(kind, ()), kind, name)
    return tuple((re.compile(one), form) for group in groups for one, form in notations().get(group, {}).items())


def notation(row: Setting, typed: str, text: str = "") -> str | None:
    """The value in xpc's notation. None if the setting cannot have it, or if it is already in xpc's notation. `text` is
    the spec, in which an expression such as `2 * rank` finds its factor.
    """
    value = re.sub(rf"^{row.name}[ \t]*[=:][ \t]*", "", typed.strip())  # `lr = lr=1e-5`
    if len(value) > LONGEST:
        return None
    member = MEMBER.fullmatch(value)
    value = by_patterns(row.kind.name, row.name, value if member is None else member[1].lower())
    value = _converted(row, value, text) or value
    return value if value != typed.strip() and is_legal(row, value) else None


def by_patterns(kind: str, name: str, value: str) -> str:
    """Apply the patterns of notations.toml to a value until none of them matches."""
    for _ in range(ROUNDS):
        found = ((one.fullmatch(value), form) for one, form in _patterns(kind, name))
        value = next((match.expand(form) for match, form in found if match is not None), value)
    return value


def is_legal(row: Setting, value: str) -> bool:
    """Whether a setting can have a value."""
    typed, path = (f"{row.name} {value}", row.path) if row.head else (f"seed = {value}", "seed")
    file, wrong = parse(Source("value.xp", f"xpc 1\ntrain m on d\n{typed}\n"))
    written = None if wrong else expand(file)
    if row.path == "hardware" and not value.endswith("cpu") and find_gpu(value.rpartition(" x ")[2]) is None:
        return False
    item = None if written is None or written.problems else written.items.get(path)
    return item is not None and not isinstance(convert(row, item), Diagnostic | InvalidValue)


def _converted(row: Setting, value: str, text: str) -> str | None:
    kind = row.kind.name
    if kind == "duration":
        return duration(value)
    if row.path == "launch.host_memory":
        return gibibytes(value) or _number(row, value, text)
    if kind == "hardware":
        forms = machines(value)
        return forms[0] if len(forms) == 1 else None
    if row.path == "method" and (found := LOSS.fullmatch(value)) is not None:
        return f"{found[1]}(loss={found[2]})" if found[1] in methods_with(found[2]) else None
    if kind == "names" and value.count('"') == 2 and re.fullmatch(r'"[^"]*[/=][^"]*"', value):
        return "[" + re.sub(r"\s*,\s*", '", "', value) + "]"
    if kind in LISTS:
        return _list(row, value)
    if kind in ("choice", "template") and re.fullmatch(r"[\w ./-]+", value):
        return known_choice(row, value)
    if kind == "weighted":
        return _weighted(value)
    return _number(row, value, text) if kind in NUMBERS else None


def holdout_help(typed: str) -> str:
    """The help for a number as the name of a split: `split = 0.1` keeps a share of the rows. "" for any other text."""
    share = notation(BY_PATH["data.holdout"], typed) or (typed if re.fullmatch(r"\d+%?", typed) else "")
    if share.endswith("%") and float(share[:-1]) > 50:  # the share of the training rows
        share = f"{100 - float(share[:-1]):g}%"
    return f"write `data(holdout={share})` outside of `eval`, which keeps training rows apart" if share else ""


def machines(typed: str) -> list[str]:
    """The values of `hardware` that a text may mean: `8 x h100-80gb` and others for `gpu:h100:8`."""
    typed = re.sub(r"^[a-z]+", lambda word: COUNTED.get(word[0], word[0]), typed)
    count, x, name = by_patterns("hardware", "hardware", typed).rpartition(" x ")
    return [f"{count}{x}{one}" for one in gpus_named(name).names] if count.isdecimal() or not x else []


def _number(row: Setting, value: str, text: str) -> str | None:
    """Read a number with its unit, a calculation, or number words."""
    both = re.fullmatch(r"(\d+)[/:](\d+)", value) if row.kind.name == "rows_or_share" else None
    if both is not None and int(both[1]) + int(both[2]) == 100:  # `holdout = 95/5`
        return f"{min(int(both[1]), int(both[2]))}%"
    if row.path == "nodes" and "x" in value:  # `nodes 2 x 8` also has GPUs
        return None
    if row.kind.name in ("every", "steps_or_share") and (part := _of_epoch(row, value, text)) is not None:
        return part
    value = re.sub(r"[a-z]+(?:-[a-z]+)?", lambda word: str(COUNTED.get(word[0], word[0])), value)
    worded = WORDED.fullmatch(value)
    known = None if worded is None else meaning((worded["word"] or worded["after"]).lower(), exact=True)
    if worded is not None and known is not None and known.path == row.path and not known.value:
        value = worded["value"] or worded["first"]
    counted = re.fullmatch(r"(\d[\d.,]*|\d.*\d)\s*([a-z-]{3,})(?: per [a-z]+)?", value)
    nouns = {one.removesuffix("s") for one in re.findall(r"[a-z]+", f"{row.doc.lower().partition(';')[0]} {row.name}")}
    if counted is not None and any(noun.startswith(counted[2].removesuffix("s")) for noun in nouns - {"share"}):
        value = counted[1]
    if row.path == "lora.alpha":
        ranks = {*re.findall(r"\b(?:rank|r)[ \t]*=[ \t]*(\d+)", text)} or {"16"}
        value = re.sub(r"(?<=\d)x?(?=r$)", "*", value)
        value = re.sub(r"\b(?:rank|r)\b", ranks.pop(), value) if len(ranks) == 1 else value
    share = value.endswith("%")
    result = arithmetic(value.removesuffix("%").strip())
    if share and (row.path == "lora.alpha" or (row.path == "optimizer.lr" and result and result < 0.01)):
        return None  # `alpha = 200%` may mean twice the rank, and `lr = 2e-5%` probably does not mean 2e-7
    if result is None or (PLAIN.fullmatch(value) and not (row.kind.name in (*SHARED, "share") and result < 1)):
        return value
    point = re.sub(r"^(\d),(?=\d+$)(?!\d{3}$)", r"\1.", value)
    if PLAIN.fullmatch(point) and row.kind.name not in (*SHARED, "share"):
        return point  # `0,00001`
    least = 0.005 if row.kind.name == "real_or_share" else 0
    small = row.kind.name in (*SHARED, "share") and least <= result < 1
    if (small and not share) or (share and row.kind.name == "share"):
        return f"{round(result * (1 if share else 100), 8):g}%"
    if share:
        return f"{result:.12g}%" if row.kind.name in SHARED else f"{round(result / 100, 12):g}"
    return f"{result:.12g}".replace("e-0", "e-")


def _of_epoch(row: Setting, value: str, text: str) -> str | None:
    """The share of the run for a part of an epoch: `5%` for `0.1 epochs` in a run for 2 epochs. None for any other
    value, and if the spec does not state the length in epochs.
    """
    part = OF_EPOCH.fullmatch(value)
    length = re.search(r"^train [^#\n]*?\bfor (\d+(?:\.\d+)?) epochs?\b", text, re.M)
    if part is None or (length is None and re.search(r"^train [^#\n]*\bfor\b|^extends\b", text, re.M)):
        return None
    times = f"1/{TIMES.get(part['times'], part['times'])}"
    share = arithmetic(by_patterns("int", "", part["share"] or times).replace("%", "/100"))
    run = (share or 0) / (3 if length is None else float(length[1]))
    return (
        "epoch" if share == 1 and row.kind.name == "every" else f"{floor(run * 1e6) / 1e4:g}%" if 0 < run < 1 else None
    )


def _columns(inner: str) -> str | None:
    """The columns of a mapping, in the order of the parts of a row: `question, answer` for `completion: answer, prompt:
    question`, and also for `answer: completion, question: prompt`.
    """
    pairs = re.findall(r"\"?(\w+)\"?\s*(?:[:=]>?|->)\s*\"?(\w+)\"?", inner)
    parts = usual_columns()
    for roles in sorted((0, 1), key=lambda side: -len(parts.keys() & {one[side] for one in pairs})):
        order = {name: at for at, names in enumerate(parts.values()) for name in names}
        if all(one[roles] in order for one in pairs):
            return ", ".join(one[1 - roles] for one in sorted(pairs, key=lambda one: order[one[roles]]))
    return None


def _list(row: Setting, value: str) -> str | None:
    """A list with other brackets, separators and quotes: `q_proj | v_proj`, `(0.9, 0.95)`."""
    if row.path == "model.tokens" and (tokens := re.findall(r"<[^<>\s,\"']+>", value)):
        plain = re.sub(r"[\s,;\[\](){}\"']", "", value) == "".join(tokens)
        return "[" + ", ".join(f'"{one}"' for one in tokens) + "]" if plain else None
    inner = BRACKETS.sub("", value.strip("\"'")).strip()
    if row.path == "data.columns" and re.fullmatch(r"(\"?\w+\"?\s*(?:[:=]>?|->)\s*\"?\w+\"?(,\s*|$))+", inner):
        inner = re.sub(r"[-=]>", ",", inner) if inner.count(">") == 1 else _columns(inner) or inner
    if row.path == "optimizer.betas" and re.search(r"1\"? ?[:=].*2\"? ?[:=]", inner):
        inner = re.sub(r"\"?\b[a-zβ_]*[12]\"? ?[:=] ?", "", inner)  # `beta1=0.9, beta2=0.95`
    parts = [one.strip("\"'- ") for one in re.split(r"\s*[,;|&+:/]\s*|\s+and\s+|\s+", inner.strip())]
    pattern = r"\d*\.\d+%?|\d+%?" if row.kind.name == "reals" else r"[A-Za-z_][\w.]*"
    if len(parts) < 2 or not all(re.fullmatch(pattern, one) for one in parts):
        return None
    if row.kind.name == "reals":
        parts = [f"{float(one.rstrip('%')) / (100 if one[-1] == '%' else 1):.12g}" for one in parts]
    elif {*parts} <= {*PROJECTIONS}:
        parts = [f"{one}_proj" for one in parts]
    return f"[{', '.join(parts)}]"


def _weighted(value: str) -> str | None:
    """A list of names with weights: `[sigmoid(weight=0.8), sft]` for `0.8*sigmoid + sft`."""
    found = [
        WEIGHTED.fullmatch(one)
        for one in re.split(r"\s*[,+]\s*|\s+and\s+", re.sub(r"^[\[{(]\s*|\s*[\]})]$", "", value))
    ]
    items = [(one["name"], one["before"] or one["after"]) for one in found if one is not None]
    if len(items) != len(found) or (len(items) < 2 and not (items and items[0][1])):
        return None
    if not all(name in REWARDS or methods_with(name) for name, _ in items):
        return None
    return f"[{', '.join(name if weight is None else f'{name}(weight={weight})' for name, weight in items)}]"
