"""Convert values from the notation of other tools: "24:00:00" becomes `24h`, a ratio of 0.1 becomes `10%`.

A function returns None if the setting cannot have such a value. This module is imported only for a wrong spec.
"""

from __future__ import annotations

import re

from xpc.compiler import stacks
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.rewards import REWARDS
from xpc.compiler.language.schema import ADAPTERS, Setting
from xpc.compiler.suggest.likeness import typo_of
from xpc.compiler.suggest.lines.units import duration, gibibytes
from xpc.compiler.suggest.tables import mapped
from xpc.grammar.nearest import letters
from xpc.grammar.tree import Call, List, Number, Ref, String, Value

YES = ("true", "ture", "treu", "tru", "yes", "yess", "on", "1", "enabled", "enable", "y", "t")
NO = ("false", "flase", "fasle", "fals", "no", "off", "0", "disabled", "disable", "none", "n", "f", "null", "never")
SWITCHES = ("true", "false", "null")
NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?")
UNITS = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?(%|Ki|Mi|[kMBsmhd]|[KMGT]i?B)?")
RATIO = ("ratio", "frac", "fraction", "rate", "proportion", "pct", "percent", "percentage", "portion", "factor", "f")
ABOVE, BELOW = ("lora.alpha", "lora.lr_ratio", "optimizer.lr", "train.epochs"), ("lora.dropout",)
"""Settings that must be greater than their lower bound (ABOVE), or less than their upper bound (BELOW), because a run
with the bound as the value would train nothing: `lora.alpha` must be greater than 0.
"""
TEXTS = re.compile(r"[\w./~-]+\.(?:jinja2?|j2|txt|tmpl|template)")
ROWS = re.compile(r"[\w./~-]+\.(?:jsonl?|csv|parquet|arrow|txt)(?:\.gz)?")
"""TEXTS matches file names of templates, and ROWS matches file names of data."""
LENGTHS = mapped("lengths")
"""Maps other words for the two units of a run's length, in small letters without separators, to these units."""
LENGTH = re.compile(r"(\d[\d_]*(?:\.\d+)?)([A-Za-z_]*)")
BLOCKS = mapped("blocks")
"""Maps names for a part of each decoder layer, such as `mlp`, to the linear modules of this part in most model
families.
"""
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*[\w]")
FILES = re.compile(r".*\.(?:jsonl?|csv|parquet|arrow|txt|gz|py|ya?ml)")
SHARED = ("steps_or_share", "real_or_share", "rows_or_share", "every")


def plain(node: Value | None, typed: str | None) -> str:
    """The typed text without its quotes."""
    return (node.value if isinstance(node, String) else typed or "").strip()


def converted(row: Setting, name: str, node: Value, typed: str) -> str | None:
    """Convert a value of another tool to xpc's notation. `name` is the other tool's name for the setting, and `typed`
    is the value as text. None if the value cannot be converted.
    """
    text = plain(node, typed)
    kind = row.kind.name
    if kind == "reals":
        return None
    if kind == "flag":
        return _flag(row, text.lower())
    if kind == "every":
        return _every(name, text)
    if kind == "duration":
        return _duration(row, name, text)
    if kind == "targets" and not isinstance(node, List):
        return _targets(text)
    if row.path == "launch.host_memory":
        return gibibytes(text)
    if kind in SHARED and NUMBER.fullmatch(text) and _is_ratio(name, text):
        return _percent(name, text)
    if kind in ("text", "path", "name", "text_or_file", "repository"):
        if not isinstance(node, String) and (
            text.lower() in (*SWITCHES, "yes", "no", "on", "off") or (kind == "path" and isinstance(node, Number))
        ):
            return None  # a switch is not a text, and a number is not a path: `output_dir = true`
        if (row.path.startswith("data.") or row.path == "eval.split") and isinstance(node, Number):
            return None  # neither a column nor a split is called 64
        return typed if isinstance(node, String) else _quoted(text) if isinstance(node, Ref | Number) else None
    if kind == "weighted":
        if isinstance(node, String) and _is_known(row, Ref(node.span, node.value)):
            return node.value  # a choice in quotes, such as `loss_type = "hinge"`
        quoted = [one.value for one in node.items if isinstance(one, String)] if isinstance(node, List) else []
        if quoted and isinstance(node, List) and len(quoted) == len(node.items):
            known = [_is_known(row, Ref(node.span, one)) for one in quoted]
            return f"[{', '.join(quoted)}]" if all(known) else typed if _is_known(row, node) else None
        return typed if _is_known(row, node) else None
    if kind in ("file", "template") and TEXTS.fullmatch(text):
        return f'file("{text}")'
    if kind == "sources" and isinstance(node, Ref) and ROWS.fullmatch(text):
        return _quoted(text)
    if isinstance(node, String) and not row.choices and UNITS.fullmatch(text):
        return text
    return None


def expected(row: Setting, name: str, text: str) -> str:
    """The legal values of a setting, as text: "a number of at least 1". If the user's value is a number of times per
    epoch, the text states the equivalent shares of the run.
    """
    if row.kind.name == "every" and _per_epoch(name) and text.isdecimal() and int(text):
        each, once = 100 / int(text), 100 / int(text) / 3
        return (
            f"it is a share of the whole run. {text} times an epoch is `every = {each:.4g}%` for one epoch, and "
            f"`every = {once:.4g}%` for three"
        )
    if row.path == "launch.time" and text.isdecimal():
        return f"a duration with its unit: {text}s, {text}m or {text}h (Slurm reads {text} as minutes)"
    return legal(row)


def legal(row: Setting) -> str:
    """The legal values of a setting, as text: its choices, or its type and bounds."""
    if row.choices:
        return "one of " + ", ".join(row.choices)
    return row.kind.phrase + bounds(row)


def bounds(row: Setting) -> str:
    """The bounds of a number, as text: ` of at least 1 and at most 8`. Empty if there are no bounds."""
    above, below = row.path in ABOVE, row.path in BELOW
    low = "" if row.low is None else f" above {row.low:g}" if above else f" of at least {row.low:g}"
    of = "" if low else " of"
    high = "" if row.high is None else f" below {row.high:g}" if below else f"{of} at most {row.high:.0f}"
    return low + (" and" if low and high else "") + high


def _flag(row: Setting, text: str) -> str | None:
    if row.path in ADAPTERS:
        return "true" if text in YES or text in ADAPTERS else "false" if text in NO else None
    full = row.path == "memory.checkpointing" and text in ("full", "block")
    return "true" if full or text in (*YES, row.name) else "false" if text in NO else None


def _is_ratio(name: str, text: str) -> bool:
    """Whether a number after a name is a ratio. A learning rate, as in `end_rate = 1e-6`, is not a ratio, although its
    setting also accepts a share.
    """
    if name.lower().endswith("rate") and ("learning" in name.lower() or abs(float(text)) < 1e-3):
        return False
    last = name.lower().replace("-", "_").rpartition("_")[2]
    return last in RATIO or re.search("(?<!du)ratio(?!n)|percent|pct", name.lower()) is not None


def _percent(name: str, text: str) -> str:
    """Write a ratio as a percentage: 0.1 becomes `10%`. If the name contains "percent" or "pct", a value of 1 or more
    is already a percentage: 5 becomes `5%`. 0 stays 0, because it is no share of anything.
    """
    if float(text) == 0:
        return "0"
    lower = ("pct" in name.lower() or "percent" in name.lower()) and float(text) >= 1
    return f"{float(text) if lower else round(float(text) * 100, 10):g}%"


def _per_epoch(name: str) -> bool:
    """Whether a name is a number of times per epoch, such as `saves_per_epoch`. `epochs_per_save` is a number of
    epochs.
    """
    return name.lower().rfind("epoch") > name.lower().find("per") >= 0


def _every(name: str, text: str) -> str | None:
    lower = text.lower()
    if lower in ("epoch", "epochs"):
        return "epoch"
    if lower in ("no", "none", "off", "false", "never"):
        return "never"
    if _per_epoch(name):
        return "epoch" if lower == "1" else "never" if lower == "0" else None
    if "epoch" in name.lower():  # a number of epochs
        return "epoch" if lower == "1" else None
    counted = LENGTH.fullmatch(text)
    if counted is not None and (unit := unit_of(counted[2])) is not None:  # `500ba` of MosaicML
        return counted[1] if unit == "steps" else "epoch" if counted[1] == "1" else None
    if not UNITS.fullmatch(text):
        return None
    if NUMBER.fullmatch(text) and 0 < float(text) < 1:
        return f"{round(float(text) * 100, 10):g}%"
    positive = NUMBER.fullmatch(text.rstrip("%kMBi")) and float(text.rstrip("%kMBi")) > 0
    return text if positive and (text.isdecimal() or text[-1] in "%kMi") else None


def _duration(row: Setting, name: str, text: str) -> str | None:
    if not text.isdecimal():
        return text if re.fullmatch(r"\d+(\.\d+)?[smhd]", text) else duration(text)
    lower = re.split(r"[\W_]+", name.lower())
    for unit, forms in (("m", "min mins minute minutes"), ("h", "hour hours hrs"), ("s", "sec secs second seconds")):
        if not set(forms.split()).isdisjoint(lower):
            return text + unit
    # a number without a unit means seconds, except for `launch.time`: Slurm reads it as minutes, so the unit is unclear
    return None if row.path == "launch.time" or not int(text) else f"{text}s"


def _targets(text: str) -> str | None:
    every = re.fullmatch(r"all|every|everything|true|yes|(all[-_])?(linear|layers)([-_]layers)?", text.lower())
    if every is not None or typo_of(text, ("all-linear",)) is not None:
        return "all-linear"
    if text.lower() in BLOCKS or text.lower() in NO:
        return BLOCKS.get(text.lower())
    names = [part.strip() for part in text.split(",")]
    if len(names) > 1 and all(re.fullmatch(r"[A-Za-z_][\w.]*", part) for part in names):
        return f"[{', '.join(names)}]"
    return f"[{text}]" if re.fullmatch(r"[A-Za-z_]\w*", text) else None


def _quoted(text: str) -> str | None:
    return None if '"' in text or "\\" in text else f'"{text}"'


def _is_known(row: Setting, node: Value) -> bool:
    """Whether every name in a value is known. For `method.rewards`, built-in rewards and functions in files are known.
    For a setting that lists losses, the losses of all methods are known.
    """
    known = {*REWARDS, "file"}
    if row.path != "method.rewards":
        known = {name for method in METHODS for name in stacks.default().losses(method)}
    parts = node.items if isinstance(node, List) else (node,)
    return bool(parts) and all(
        row.path == "method.rewards" and ".py:" in one.value
        if isinstance(one, String)
        else (one.name.text if isinstance(one, Call) else one.name if isinstance(one, Ref) else "") in known
        for one in parts
    )


def methods_with(loss: str) -> list[str]:
    """The methods that have a loss with the name `loss` on the newest stack."""
    return [method for method in METHODS if loss in stacks.default().losses(method)]


def unit_of(word: str) -> str | None:
    """The unit that a word stands for: `epochs` or `steps`. None for any other word."""
    typed = letters(word)
    if typed in LENGTHS:
        return LENGTHS[typed]
    near = typo_of(typed, ("epoch", "epochs", "step", "steps", "iterations"))
    return None if near is None else "epochs" if near.startswith("epoch") else "steps"
