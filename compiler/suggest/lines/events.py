"""Read events in words: `save every 100 steps`, `hold out 5% for evaluation`. Imported only for a wrong spec."""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler.language import schema
from xpc.compiler.language.expand.missing_equals import SPLITS
from xpc.compiler.suggest.converted_values import REPOSITORY
from xpc.compiler.suggest.lines.units import COUNTED
from xpc.compiler.suggest.registry_names import gpus_named
from xpc.compiler.suggest.tables import mapped, words_of
from xpc.grammar.record import mutable

BETWEEN = words_of("between")
"""Words between a clause and `every`: `save a checkpoint every 500 steps`."""
TRACKERS = tuple(one for one in schema.BY_PATH["track"].choices if one != "none")
FALLS = ("decay", "decaying", "down", "annealing")
"""Words before the rate at the end of a schedule: `decay to 10%`."""
WEIGHTS = ("param", "params", "parameters", "weights")
OF_ROWS = ("of", "the", "rows", "row", "samples", "examples", "data", "dataset", "training", "set", "for")
REGULAR = mapped("regular")
"""Maps words for regular events to their clauses: `log every 10 steps` sets `track`."""


@mutable
class Reader:
    """Reads the words of a text one after another."""

    words: Sequence[str]
    header: bool
    method: str
    at: int = 0
    clause: str = ""
    """The clause of the last setting that was read."""

    def word(self, ahead: int = 0) -> str:
        """The word `ahead` places after the current one; "" after the end."""
        return self.words[self.at + ahead] if self.at + ahead < len(self.words) else ""


def _regularly(reader: Reader) -> str:
    """Read a regular event: `save a checkpoint every 100 steps`."""
    more = reader.word() in ("every", "each") and reader.clause in REGULAR.values()  # `save to "out/run" every epoch`
    clause = reader.clause if more else REGULAR.get(reader.word().lower(), "")
    after = 0 if more else 1 + (reader.word(1) in (":", "="))
    tracker, split = "", ""
    between = {"track": TRACKERS, "eval": (*SPLITS, "on", "split", "set")}.get(clause, ())
    while clause and (reader.word(after) in BETWEEN or reader.word(after) in between):
        tracker = reader.word(after) if reader.word(after) in TRACKERS else tracker
        split = reader.word(after) if clause == "eval" and reader.word(after) in SPLITS else split
        after += 1
    if not clause or reader.word(after) not in ("every", "each"):
        return ""
    after += reader.word(after + 1) in ("=", ":")
    count, unit = reader.word(after + 1), reader.word(after + 2).rstrip("s")
    last = next((ahead for ahead in (after + 3, after + 2) if reader.word(ahead) == "to"), 0)
    if clause == "track" and last and reader.word(last + 1) in TRACKERS:  # `log every 10 steps to wandb`
        tracker = reader.word(last + 1)
        reader.words = [*reader.words[: reader.at + last], *reader.words[reader.at + last + 2 :]]
    head = f"{clause} {tracker}" if tracker else clause
    epoch = count == "epoch" or (count == "1" and unit == "epoch")
    count = "1" if count in ("step", "iteration") else count
    if not epoch and (not re.fullmatch(r"\d[\d_]*%?", count) or unit == "epoch"):
        return ""
    reader.at += after + 2 + (count == "1" if epoch else unit in ("step", "iteration", "iter", "update"))
    after = 1 + (reader.word(1) == "the")
    if clause == "eval" and reader.word() == "on" and reader.word(1)[:1] == '"':
        reader.at += 2
        return f"eval(every={'epoch' if epoch else count}, data={reader.word(-1)})"
    if clause == "eval" and reader.word() == "on" and reader.word(after) in SPLITS:
        split = reader.word(after)
        reader.at += after + 1 + (reader.word(after + 1) in ("split", "set", "data"))
    return f"{head}({f'split={split}, ' if split else ''}every={'epoch' if epoch else count})"


def _kept(reader: Reader) -> str:
    """Read which checkpoints are kept: `keep the last 3`, `save only the final model`."""
    verb, after = reader.word().lower(), 1
    if verb not in ("keep", "keeping", "save"):
        return ""
    while reader.word(after) in ("the", "last", "best", "newest", "only", "latest", "final", "at", "most"):
        after += 1
    before = {*reader.words[reader.at + 1 : reader.at + after]}
    kept, named = _counted(reader.word(after)).rstrip("."), reader.word(after + 1).rstrip("s") == "checkpoint"
    newest = not before.isdisjoint(("last", "newest", "latest"))
    if kept.isdecimal() and (newest if verb == "save" else named or reader.clause == "save"):
        reader.at += after + 1 + named
        return f"save(keep={kept})"
    only = "only" in before or reader.word(after + 1) == "only"
    if only and "final" in before and reader.word(after) in ("model", "checkpoint", "weights", "adapter"):
        reader.at += after + 1 + (reader.word(after + 1) == "only")
        return "save(every=never)"
    return ""


def _swept(reader: Reader) -> str:
    """Read the values of a sweep: `sweep lr over 1e-6, 2e-6`."""
    name, after, values = reader.word(1), 2, list[str]()
    if reader.word() != "sweep" or name not in schema.outer_names():
        return ""
    while reader.word(after) in ("over", "in", "from", "across", "of", "=", ":"):
        after += 1
    while re.fullmatch(r"[\d.][\w.%-]*", reader.word(after)):
        values.append(reader.word(after))
        after += 1 + (reader.word(after + 1) in (",", "and", "or"))
    if len(values) < 2:
        return ""
    reader.at += after
    return f"sweep {{ {name} = [{', '.join(values)}] }}"


def _tracked_as(reader: Reader) -> str:
    """Read a tracker and the name of the run: `track wandb as my-run`."""
    after = 1 + (reader.word(1) in ("to", "with", "in"))
    named = reader.word(after + 2) if reader.word(after + 1) in ("as", "named", "called") else ""
    if REGULAR.get(reader.word()) != "track" or reader.word(after) not in TRACKERS or not named:
        return ""
    tracker, name = reader.word(after), named.strip('"')
    reader.at += after + 3
    return f'track {tracker}(name="{name}")'


def _offloaded(reader: Reader) -> str:
    """Read what is kept in host memory: `offload the optimizer to cpu`, `optimizer offload`, `cpu offloading`."""
    if reader.word(1) in ("offload", "offloading") and reader.word() in ("cpu", "optimizer"):
        reader.at += 2
        return f"offload={reader.word(-2)}"
    to = next((at for at in range(1, 7) if reader.word(at) == "to"), 0)
    parts = {*reader.words[reader.at + 1 : reader.at + to]} - {"the", "and", ",", "states", "state", "model"}
    host = reader.word(to + 1).lower() in ("cpu", "host", "ram", "memory")
    if reader.word() != "offload" or not to or not host or not parts <= {"optimizer", *WEIGHTS}:
        return ""
    reader.at += to + 2
    return "offload=optimizer" if parts == {"optimizer"} else "offload=cpu"


def _whole_batch(reader: Reader) -> str:
    """Read the global batch after the name of its clause: `batch 64 micro 4`, `batch of 64`."""
    after = 1 + (reader.word(1) == "of")
    known = reader.word() == "batch" and reader.word(after).isdecimal()
    then = reader.word(after + 1)
    if not known or not (then in ("", ",", "and", "with") or f"batch.{then}" in schema.BY_PATH):
        return ""  # `batch 8 per gpu`, `batch 4096 tokens`
    reader.at += after + 1
    reader.clause = "batch"
    return f"gbs={reader.word(-1)}"


def _saved_in(reader: Reader) -> str:
    """Read the folder of a run: `save the result in "out/run"`, `save every 100 steps to /scratch/run`."""
    after = 1 if reader.word().lower() in ("save", "saving", "saves") else 0
    while after and reader.word(after) in (*BETWEEN, "result", "model", "everything", "it"):
        if reader.word(after) == "to":
            break
        after += 1
    folder = reader.word(after + 1)
    quoted = folder[:1] == '"' or re.fullmatch(r"[./~\w-]*/[\w./-]+", folder)
    if reader.word(after) not in ("to", "in", "into", "under") or not quoted or not (after or reader.clause == "save"):
        return ""
    reader.at += after + 2
    text = folder.strip('"')
    return f'save{"=" if reader.header else " "}"{text}"'


def _held_out(reader: Reader) -> str:
    """Read the rows for evaluation: `hold out 5% for validation`, `reserve 500 rows for eval`."""
    first, second = reader.word().lower(), reader.word(1)
    after = 2 if (first, second) in (("hold", "out"), ("set", "aside")) else int(first in ("reserve", "holdout"))
    if first == "on" and (reader.clause == "eval" or reader.word(-1) == "eval"):
        after = 1 + (second in ("holdout", "a", "the"))  # `evaluate every epoch on 5% of the data`
    share, rows = reader.word(after), after + 1
    if not re.fullmatch(r"\d[\d_]*%?", share):
        return ""
    if reader.word(rows) in ("percent", "pct"):
        share, rows = f"{share}%", rows + 1
    while reader.word(rows) in OF_ROWS:
        rows += 1
    named = REGULAR.get(reader.word(rows)) == "eval" or reader.word(rows) in ("test", "testing", "val")
    if not after and not (named and rows > after + 1):
        return ""  # `10% of the data for validation` has no verb
    reader.at += rows + named
    return f"holdout={share}"


def _until(reader: Reader) -> str:
    """Read when a run ends early, or which layers are trained: `early stop after 3 evals`, `freeze all but the last 2
    layers`.
    """
    number = next((at for at in range(1, 12) if re.fullmatch(r"\d+", _counted(reader.word(at)))), 0)
    before = [one.lower() for one in reader.words[reader.at : reader.at + number]]
    unit = reader.word(number + 1).rstrip("s")
    value, early = _counted(reader.word(number)), before[:1] == ["early"] and before[-1:] == ["after"]
    stops = early or (before[:2] == ["stop", "early"] and before[-1:] in (["for"], ["after"]))
    frozen = before[:1] == ["freeze"] and {"except", "but"}.intersection(before) and unit in ("layer", "block")
    if not number or not (frozen or (stops and unit in ("eval", "evaluation", "check"))):
        return ""
    reader.at += number + 2
    if frozen:
        return f"freeze(except_{'first' if 'first' in before else 'last'}={value})"
    while reader.word() in ("without", "an", "any", "improvement", "improving", "with", "no"):
        reader.at += 1
    return f"eval(patience={value})"


def _everywhere(reader: Reader) -> str:
    """Read which modules get adapters: `lora on all linear layers`."""
    before = int(reader.word() in ("on", "to", "in", "for"))
    every, *kind = (reader.word(before + at).lower() for at in range(3))
    if reader.clause not in ("lora", "qlora") or every not in ("all", "every") or kind[0] != "linear":
        return ""
    reader.at += before + 2 + (kind[1] in ("layers", "layer", "modules", "module"))
    return f"{reader.clause}(targets=all-linear)"


def _best(reader: Reader) -> str:
    """Read `keep the best checkpoint`."""
    words = [one.lower() for one in reader.words[reader.at : reader.at + 5] if one.lower() not in ("the", "only")]
    best = words[1:3] in (["best", "checkpoint"], ["best", "model"])
    if words[:1] not in (["keep"], ["save"], ["keeping"], ["saving"]) or not best:
        return ""
    while reader.word().lower() not in ("checkpoint", "model"):
        reader.at += 1
    reader.at += 1
    return f"extra{'(trl, ' if reader.header else ' trl('}load_best_model_at_end=true)"


def _counted(word: str) -> str:
    """Write a number word in digits: `2` for `two`."""
    return str(COUNTED.get(word.lower(), word))


def _falls_to(reader: Reader) -> str:
    """Read the final learning rate: `decay to 10%`, `decaying to 1e-6`."""
    if reader.word() not in FALLS or reader.word(1) != "to":
        return ""
    value = reader.word(2)
    zero = value == "zero"
    if not zero and not re.fullmatch(r"[\d.]+(?:e-?\d+)?%?", value):
        return ""
    reader.at += 3
    return f"min_lr={0 if zero else value}"


def _to_the_hub(reader: Reader) -> str:
    """Read an upload: `push it to me/model`, `push to the hub`."""
    if reader.word() not in ("push", "upload", "publish", "save"):
        return ""
    after, saved = 1, reader.word() == "save"
    while reader.word(after) in ("it", "the", "model", "adapter", "weights", "to", "hf", "huggingface"):
        after += 1
    named = reader.word(after)
    if named != "hub" and (saved or not REPOSITORY.fullmatch(named)):
        return ""
    reader.at += after + 1
    title = int(reader.word() == "as")
    if named == "hub" and REPOSITORY.fullmatch(reader.word(title)):
        named = reader.word(title)
        reader.at += title + 1
    return "hub" if named == "hub" else f"hub(name={named})"


GPUS = tuple(
    re.compile(
        r"(?:(?:on|across|over|hardware|gpus?|devices?|[:=]) )*(?P<one>(?:an?|my|our|the) )?"
        rf"(?:(?P<count>\d\d?\d?|{'|'.join(COUNTED)})(?: ?x ?| ))?(?:(?:gpus?|nvidia|geforce|tesla) )*"
        rf"(?P<gpu>(?!x )[a-z\d][\w.-]*(?: [a-z\d][\w.-]*){{{words}}})(?: ?[x*:] ?(?P<after>\d+))?"
        r"(?: (?:gpu|card)s?)?(?!\S)",
        re.IGNORECASE,
    )
    for words in (2, 1, 0)
)
"""Patterns for a count and a GPU in three, two or one words: `on two RTX 4090s`, `a single h200`, `4090 x 2`."""


def _gpus(reader: Reader) -> str:
    """Read a count and a GPU."""
    text = " ".join(reader.words[reader.at : reader.at + 12])
    for pattern in GPUS:
        found = pattern.match(text)
        guess = None if found is None else gpus_named("-".join(found["gpu"].split()))
        if found is None or guess is None or len(guess.names) != 1:
            continue
        a_single = found["one"] or (reader.at and reader.word(-1) in ("a", "an", "my"))
        count = _counted(found["after"] or found["count"] or ("1" if a_single else ""))
        if not count.isdecimal() or not int(count):
            return ""
        reader.at += len(found[0].split())
        return f"{'' if reader.header else 'hardware '}{count} x {guess.names[0]}"
    return ""


EVENTS = (
    _best,
    _kept,
    _saved_in,
    _regularly,
    _swept,
    _tracked_as,
    _offloaded,
    _whole_batch,
    _held_out,
    _until,
    _everywhere,
    _falls_to,
    _to_the_hub,
    _gpus,
)
"""The functions that read events, in the order in which they are tried."""
