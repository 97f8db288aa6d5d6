"""Rewrite values in the notation of another tool: `seq = 2**12`, `every = each epoch`, `nccl_timeout = 1h30`. The
patterns are in notations.toml. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from functools import cache

from xpc.compiler.language.convert import convert
from xpc.compiler.language.expand import expand
from xpc.compiler.language.rewards import REWARDS
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import InvalidValue
from xpc.compiler.registry import find_gpu
from xpc.compiler.suggest.converted_values import SHARED, methods_with
from xpc.compiler.suggest.known_names import known_choice
from xpc.compiler.suggest.lines.units import COUNTED, arithmetic, duration, gibibytes
from xpc.compiler.suggest.tables import notations
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
    value = by_patterns(row.kind.name, row.name, value)
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
    if row.path == "launch.host_memory" and (size := gibibytes(value)) is not None:
        return size
    if kind == "hardware":
        count, x, name = value.rpartition(" x ")
        gpu = find_gpu(name)
        return None if gpu is None else f"{COUNTED.get(count.lower(), count)}{x}{gpu.name}"
    if kind in LISTS:
        return _list(row, value)
    if kind == "choice" and " " in value and re.fullmatch(r"[\w .-]+", value):
        return known_choice(row, value)
    if kind == "weighted":
        return _weighted(value)
    return _number(row, value, text) if kind in NUMBERS else None


def _number(row: Setting, value: str, text: str) -> str | None:
    """Read a number with its unit, a calculation, or number words."""
    both = re.fullmatch(r"(\d+)[/:](\d+)", value) if row.kind.name == "rows_or_share" else None
    if both is not None and int(both[1]) + int(both[2]) == 100:  # `holdout = 95/5`
        return f"{min(int(both[1]), int(both[2]))}%"
    if row.path == "nodes" and "x" in value:  # `nodes 2 x 8` also has GPUs
        return None
    value = re.sub(r"[a-z]+(?:-[a-z]+)?", lambda word: str(COUNTED.get(word[0], word[0])), value)
    counted = re.fullmatch(r"(\d[\d.,]*|\d.*\d)\s*([a-z-]{3,})(?: per [a-z]+)?", value)
    nouns = {one.removesuffix("s") for one in re.findall(r"[a-z]+", f"{row.doc.lower()} {row.name}")}
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
    if PLAIN.fullmatch(point) and row.kind.name not in SHARED:
        return point  # `0,00001`
    small = (
        0 < result < 1
        and row.kind.name in (*SHARED, "share")
        and not (row.kind.name == "real_or_share" and result < 0.005)
    )
    if (small and not share) or (share and row.kind.name == "share"):
        return f"{round(result * (1 if share else 100), 8):g}%"
    if share:
        return f"{result:.12g}%" if row.kind.name in SHARED else f"{round(result / 100, 12):g}"
    return f"{result:.12g}".replace("e-0", "e-")


def _list(row: Setting, value: str) -> str | None:
    """A list with other brackets, separators and quotes: `q_proj | v_proj`, `(0.9, 0.95)`."""
    if row.path == "model.tokens" and (tokens := re.findall(r"<[^<>\s,\"']+>", value)):
        plain = re.sub(r"[\s,;\[\](){}\"']", "", value) == "".join(tokens)
        return "[" + ", ".join(f'"{one}"' for one in tokens) + "]" if plain else None
    inner = re.sub(r"^(?:tuple|list|set)?[(\[{<]|[)\]}>]$", "", value.strip("\"'")).strip()
    inner = inner.replace("->", ",") if row.path == "data.columns" else inner
    if row.path == "data.columns" and re.fullmatch(r"(\"?\w+\"?\s*[:=]\s*\"?\w+\"?(,\s*|$))+", inner):
        inner = re.sub(r"\"?\w+\"?\s*[:=]\s*", "", inner)
    parts = [one.strip("\"'- ") for one in re.split(r"\s*[,;|&+:/]\s*|\s+and\s+|\s+", inner.strip())]
    pattern = r"\d*\.\d+%?|\d+%?" if row.kind.name == "reals" else r"[A-Za-z_][\w.]*"
    if len(parts) < 2 or not all(re.fullmatch(pattern, one) for one in parts):
        return None
    if row.kind.name == "reals":
        parts = [
            f"{float(one[:-1]) / 100:g}" if one[-1] == "%" else f"0{one}" if one[0] == "." else one for one in parts
        ]
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
