"""Compute axolotl's warm-up and its intervals of evaluations and checkpoints.

Source: axolotl 0.18.0, core/builders/ and utils/config/__init__.py (`normalize_config`).
"""

from __future__ import annotations

from xpc.compiler.importing.draft import NULL, Draft
from xpc.compiler.importing.keys import has_needed
from xpc.compiler.importing.outcomes import KeyOutcome
from xpc.compiler.importing.text.entries import Entries, Entry, is_on, is_stated, number
from xpc.compiler.importing.trl import schedule, switches
from xpc.compiler.language.kinds import EPOCH, Amount


def intervals(draft: Draft, named: Entries) -> None:
    """Set the intervals of evaluations and checkpoints. `evals_per_epoch: 4` with 1 epoch becomes 25% of the run.

    If `evals_per_epoch` gives at most one evaluation in the whole run, axolotl ignores it and reads `eval_strategy`;
    for `saves_per_epoch`, it then reads `save_strategy`.
    """
    length = named.get("num_train_epochs")
    epochs = number(length) or 1
    held = named.get("val_set_size")
    evaluates = (held is not None and bool(number(held))) or has_needed(named, "test_datasets")
    for key, path, steps, kind in (
        ("evals_per_epoch", "eval.every", "eval_steps", "eval_strategy"),
        ("saves_per_epoch", "save.every", "save_steps", "save_strategy"),
    ):
        one, counted, word = named.get(key), named.get(steps), named.get(kind)
        given = [entry for entry in (one, counted, word) if entry is not None]
        if path == "eval.every" and not evaluates:
            for entry in given:
                draft.note(entry, "no rows are held out")
            continue
        times = number(one) if is_on(one) else None
        if is_on(one) and (times is None or times < 0):
            draft.error(one, "the value must be a number that is not negative")
        elif one is not None and times and has_needed(named, steps):
            draft.error(one, f"`{steps}` on line {named[steps].line} is set, too", "keep one of the two")
        elif one is not None and times and times * epochs > 1:
            draft.put(path, Amount("share", 1 / (times * epochs)), one)
        elif one is not None:
            once = f"this is at most once in the run, so axolotl ignores it and reads `{kind}`"
            draft.note(one, once if times else "it is off")
        if not draft.has(path) and has_needed(named, steps):
            switches.every(None, counted, Amount("count", 500), draft, path)
        if not draft.has(path) and word is not None and word.value == "best" and path == "save.every":
            _best(draft, word)
        elif not draft.has(path) and is_stated(word):
            usual = Amount("count", 500) if path == "save.every" else _logging(named)
            switches.every(word, None, usual, draft, path)
        elif path == "save.every":
            draft.default(path, EPOCH, "not set: axolotl saves after each epoch")
        for entry in [one for one in given if not draft.handled(one)]:
            draft.mark(entry, "mapped", path) if not entry.empty else draft.note(entry, NULL)
    if evaluates and not draft.has("eval.every"):
        draft.warn(
            held,
            "rows are held out and never evaluated on: axolotl needs `eval_steps`, or `evals_per_epoch` with more "
            "than one evaluation in the run",
        )


def _logging(named: Entries) -> Amount:
    """The interval of logging, and of evaluations without `eval_steps`: by default half a percent of the run."""
    steps = (number(named["logging_steps"]) if has_needed(named, "logging_steps") else None) or 0.005
    return Amount("count", int(steps)) if steps >= 1 else Amount("share", steps)


def _best(draft: Draft, entry: Entry) -> None:
    """Import `save_strategy: best`, with which axolotl saves only after an evaluation with a better result. Report that
    a run of the spec saves after every evaluation.
    """
    evaluated = draft.value("eval.every")
    if evaluated in ("", "never"):
        draft.error(entry, "nothing is evaluated, so there is no best checkpoint", "write `steps` or `epoch`")
        return
    draft.raw("save.every", evaluated, entry)
    draft.differs("save_strategy", "axolotl saves only if the model evaluates better than before; the spec "
                  "saves at each evaluation", entry)  # fmt: skip


def evaluation(draft: Draft, named: Entries) -> None:
    """Turn on axolotl's evaluation before the first step, and import `load_best_model_at_end` and early stopping."""
    evaluated, saved = draft.value("eval.every"), draft.value("save.every")
    extra = draft.extra.setdefault("trl", {})
    if evaluated not in ("", "never"):
        extra.setdefault("eval_on_start", "true")
    kept, patience = named.get("load_best_model_at_end"), named.get("early_stopping_patience")
    wanted = is_on(kept) or is_on(patience)
    shares = [_counted(one) for one in (evaluated, saved)]
    agree = None not in shares and (shares[1] or 0) % (shares[0] or 1) == 0
    if wanted and agree and draft.method == "sft":
        extra.setdefault("load_best_model_at_end", "true")
        keeps = "extra trl { load_best_model_at_end = true }"
        why = "axolotl keeps the best checkpoint if saves and evaluations coincide"
        draft.defaults.append(KeyOutcome("", "", "", 0, "extra", keeps, why))
        draft.mark(kept, "extra", keeps)
    elif kept is not None:
        draft.note(kept, "it is off" if kept.off else "saves and evaluations do not coincide")
    switches.patience(draft, patience)
    if not extra:
        draft.extra.pop("trl")


def _counted(text: str) -> float | None:
    """The number in an interval: 100.0 for `100` steps, 0.25 for `25%` of the run, and None for `epoch` and `never`."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None


def warmup(draft: Draft, named: Entries) -> None:
    """Set the warm-up. axolotl's default is 3 % of the run, at most 100 steps. axolotl extends a warm-up of one step to
    two steps.
    """
    if schedule.flat(named.get("lr_scheduler_type")):
        return
    length = int(draft.settings["train.steps"].text) if draft.has("train.steps") else None
    written = draft.settings.get("schedule.warmup")
    if written is None and length is not None:
        steps = min(int(0.03 * length), 100)
        draft.default("schedule.warmup", Amount("count", 2 if steps == 1 else steps), "not set: axolotl's default")
    elif written is None:
        draft.default("schedule.warmup", Amount("share", 0.03), "not set: axolotl's default")
        why = "by default, axolotl warms up for 3 % of the run but at most 100 steps; the spec always warms up for 3 %"
        draft.differs("warmup_steps", why)
    elif written.text == "1" and written.entry is not None:
        draft.settings.pop("schedule.warmup")
        draft.put(
            "schedule.warmup", Amount("count", 2), written.entry, "axolotl extends a warm-up of 1 step to 2 steps"
        )
    elif written.text.endswith("%") and length is not None:
        steps = int(float(written.text[:-1]) / 100 * length)
        draft.settings.pop("schedule.warmup")
        why = "rounded down, as axolotl does"
        draft.put("schedule.warmup", Amount("count", 2 if steps == 1 else steps), written.entry, why)
