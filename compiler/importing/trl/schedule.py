"""Import the learning-rate schedule: `lr_scheduler_type`, `lr_scheduler_kwargs` and the warm-up, which is a number of
steps or a share of the run.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.importing.draft import NULL, Draft
from xpc.compiler.importing.text.entries import Entry, is_stated, number, text
from xpc.compiler.importing.text.values import KEYS, SCHEDULES
from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.setting import Path

FLAT = ("constant", "reduce_lr_on_plateau", "greedy")
"""Schedules for which transformers ignores the warm-up (optimization.py, `get_scheduler`)."""
OF_ARGUMENT: Mapping[str, Path] = {
    "eps": "optimizer.eps", "momentum": "optimizer.momentum", "weight_decay": "optimizer.weight_decay",
}  # fmt: skip
"""Maps an argument in `optim_args` to its setting."""
SHARES = ("min_lr_rate", "min_lr_ratio", "warmup_lr_rate")


def schedule(draft: Draft, named: Mapping[str, Entry]) -> None:
    """Set the schedule, its arguments and the warm-up."""
    entry, kwargs = named.get("lr_scheduler_type"), named.get("lr_scheduler_kwargs")
    if entry is not None:
        name = SCHEDULES.get(str(entry.value).lower())
        given = "" if kwargs is None else " ".join(kwargs.mapping)
        if name is None:
            draft.error(entry, "xpc has no such schedule", "`xpc explain schedule` lists them")
        else:
            draft.put("schedule", name, entry)
        if name == "cosine" and ("min_lr" in given) != ("min_lr" in str(entry.value)):
            lack, end = ("has no", "this rate") if "min_lr" in given else ("needs a", "0")
            draft.warn(entry, f"transformers stops: its schedule {lack} final learning rate; the spec's ends at {end}")
        elif "warmup_with_min_lr" in str(entry.value) and "warmup_lr" not in given:
            draft.differs("lr_scheduler_type", "this schedule is one step ahead of the spec's cosine", entry)
    if not is_stated(kwargs):
        draft.note(kwargs, NULL)
    elif not kwargs.mapping:
        draft.error(kwargs, "the value must be a mapping such as {min_lr_rate: 0.1}")
    else:
        for name, argument in kwargs.mapping.items():
            if name != "num_stable_steps":
                _argument(draft, name, argument)
    steps, ratio = named.get("warmup_steps"), named.get("warmup_ratio")
    if flat(entry):
        for counted in (steps, ratio):
            draft.note(counted, "transformers has no warm-up for this schedule")
    else:
        warmup(draft, steps, ratio)
    stable = None if kwargs is None else kwargs.mapping.get("num_stable_steps")
    if stable is not None:
        _stable(draft, stable, named.get("max_steps"))


def _stable(draft: Draft, entry: Entry, most: Entry | None) -> None:
    """Check `num_stable_steps` of the schedule warmup-stable-decay. The steps of warm-up, stable phase and decay must
    add up to `max_steps`.
    """
    parts = [draft.settings.get(path) for path in ("schedule.warmup", "schedule.decay")]
    counts = [int(one.text) for one in parts if one is not None and one.text.isdecimal()]
    length, value = number(most), number(entry)
    if entry.empty:
        draft.note(entry, NULL)
    elif value is not None and length is not None and len(counts) == 2 and sum(counts) + value == length:
        draft.note(entry, "it follows from the number of steps, the warm-up and the decay")
    else:
        draft.error(entry, "the spec's learning rate stays at its peak for all steps between warm-up and decay",
                    "leave it out, or set `max_steps` to the sum of the three")  # fmt: skip


def flat(entry: Entry | None) -> bool:
    """Whether transformers ignores the warm-up for this `lr_scheduler_type`."""
    return entry is not None and str(entry.value).lower() in FLAT


def _argument(draft: Draft, name: str, entry: Entry) -> None:
    path = KEYS.block("lr_scheduler_kwargs").column("setting").get(name)
    value = number(entry)
    if path is None:
        draft.error(entry, "no schedule of xpc has this argument")
    elif path == "schedule.decay_type":
        draft.put(path, "sqrt" if entry.value == "1-sqrt" else text(entry) or "", entry)
    elif value is None:
        draft.error(entry, "the value must be a number")
    elif name == "num_cycles" and value == 0.5 and draft.value("schedule") in ("cosine", "wsd"):
        draft.note(entry, "half a cosine cycle is the default")
    elif path in ("schedule.min_lr", "schedule.warmup_lr", "schedule.max_lr"):
        draft.put(path, Amount("share" if name in SHARES else "absolute", value), entry)
    elif path == "schedule.decay":
        draft.put(path, Amount("count", int(value)), entry)
    else:
        draft.put(path, value if path in ("schedule.power", "schedule.factor") else int(value), entry)


def warmup(draft: Draft, steps: Entry | None, ratio: Entry | None) -> None:
    """Set the warm-up. As in transformers 4, `warmup_steps` above 0 overrides `warmup_ratio`, and below 1 it is a share
    of the run.
    """
    count, share = number(steps), number(ratio)
    for one, value in ((steps, count), (ratio, share)):
        if not is_stated(one):
            draft.note(one, NULL)
        elif value is None or value < 0:
            draft.error(one, "the value must be a number that is not negative")
            return
    if count:
        draft.put("schedule.warmup", Amount("share", count) if count < 1 else Amount("count", int(count)), steps)
        if share is not None:
            draft.note(ratio, "`warmup_steps` is above 0, and overrides this key")
        if share:
            why = "it decides in the spec and in transformers 4; in transformers 5, `warmup_ratio` decides"
            draft.differs("warmup_steps", why, ratio)
    elif share is not None:
        draft.put("schedule.warmup", Amount("share", share) if share else Amount("count", 0), ratio)
        if count is not None:
            draft.note(steps, "`warmup_ratio` decides")
    elif count is not None:
        draft.put("schedule.warmup", Amount("count", 0), steps)


def optimizer_arguments(draft: Draft, entry: Entry | None) -> None:
    """Import `optim_args`. The arguments in it override keys such as `weight_decay`."""
    if not is_stated(entry):
        return
    if not entry.mapping:
        draft.keep_in_extra("trl", "optim_args", entry)
        return
    for key, one in entry.mapping.items():
        path = OF_ARGUMENT.get(key)
        if path is not None and number(one) is not None:
            draft.settings.pop(path, None)
            draft.put(path, number(one), one)
        else:
            draft.error(one, "xpc's optimizers have no such argument")
