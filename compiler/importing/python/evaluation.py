"""Set the evaluation of a script: the rows that it holds out, or the dataset on which it evaluates."""

from __future__ import annotations

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python import program, token_rows
from xpc.compiler.importing.python.chain import Chain, chain_of
from xpc.compiler.importing.python.data import Data, understood
from xpc.compiler.importing.python.entries import Entries
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import Object, Unknown
from xpc.compiler.importing.python.sources import refuse_arrow, source_of, split_of
from xpc.compiler.importing.text.entries import LARGEST, Entry, is_on
from xpc.compiler.language.kinds import Amount

EVALUATION = ("eval_strategy", "evaluation_strategy", "eval_steps", "eval_delay", "eval_on_start", "do_eval")


def hold_out(draft: Draft, data: Data) -> None:
    """Set the rows that the script holds out of training, and the seed with which it selects them."""
    share = data.holdout
    if share is not None and data.held in ("", "train"):
        value = share.value
        found = share.location.entry("train_test_split.test_size", value)
        if data.last:
            why = "the script holds out the last rows; the spec holds out as many rows, drawn with the seed"
            draft.differs("train_dataset", why, found)
        elif data.drawn_otherwise:
            why = "the spec holds out other rows, as many as the script, because it shuffles the rows before the split"
            draft.differs("train_dataset", why, found)
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
        if 0 < number < LARGEST and (number < 1 or number == int(number)):
            draft.put("data.holdout", Amount("share", number) if number < 1 else Amount("count", int(number)), found)
        else:
            why = value.why if isinstance(value, Unknown) else "the value must be a share or a number of rows"
            draft.error(Entry(found.key, None, found.file, found.line), why)
    elif share is not None:
        draft.error(
            share.location.entry("train_dataset", data.held), "the script trains on the held-out part of the split"
        )
    seed = data.seed
    if seed is not None and isinstance(seed.value, int):
        draft.put("data.seed", seed.value, seed.location.entry("data.seed", seed.value))


def write(draft: Draft, machine: Machine, trainer: Object, train: Chain, data: Data, entries: Entries) -> None:
    """Set the evaluation data, or report why the spec does not evaluate."""
    given = program.argument(trainer, "eval_dataset")
    strategy = entries.values.get("eval_strategy") or entries.values.get("evaluation_strategy")
    evaluates = strategy is not None and str(strategy.value) not in ("no", "None", "False")
    if given is None or given.value is None:
        return
    found = given.location.entry("eval_dataset")
    if not evaluates:
        draft.note(found, "nothing is evaluated during training")
        return
    chain = chain_of(given.value)
    other = understood(machine, chain)
    if other.holdout is not None and data.holdout is not None and other.held in ("test", "validation"):
        draft.note(found, "the spec evaluates on the held-out rows, as the script does")
        some = other.take or other.limit
        if some is not None and isinstance(some.value, int) and other.after_holdout:
            why = f"the script evaluates on {some.value} of the held-out rows; the spec evaluates on all of them"
            draft.differs("eval_dataset", why, found)
        return
    found_at = chain.loaded is not None or chain.file is not None or bool(chain.rows)
    reasons = [one.why for one in chain.unknown]
    reasons += [why for _, why, _ in other.problems if token_rows.PADDED not in why]
    if reasons or not found_at or chain.parts:
        why = reasons[0] if reasons else "the script creates them itself"
        _unevaluated(draft, entries, found, f"the rows of the evaluation are not known: {why}")
        return
    if chain.loaded is not None and chain.loaded.last == "load_from_disk":
        refuse_arrow(draft, chain.loaded, other)
    elif chain.loaded is not None and train.loaded is not None and _path(train) == _path(chain):
        split, whole = split_of(chain.loaded, other), other.limit is None and other.take is None
        named = split.isidentifier() and split != split_of(train.loaded, data)
        if named and whole and not isinstance(_files(chain), dict):
            draft.put("eval.split", split, Entry("eval_dataset", split, found.file, found.line))
            return
    source = source_of(draft, chain, other)
    if source is not None and source.limit is None and source.take is None:
        draft.raw("eval.data", source.ref, found)
    elif source is not None:
        _unevaluated(draft, entries, found, "the script evaluates on a part of the rows")


def _unevaluated(draft: Draft, entries: Entries, found: Entry, why: str) -> None:
    """Report that the spec does not evaluate. This is a warning, or an error if the script keeps its best checkpoint,
    which only an evaluation finds.
    """
    best = entries.values.get("load_best_model_at_end")
    saving = entries.values.get("save_strategy")
    if is_on(best) or (saving is not None and saving.value == "best"):
        draft.error(found, why, "write `data { holdout = 5% }`, or `eval { data = ... }`")
        return
    draft.reserve(found, "eval { data = ... }", f"{why}, so the spec does not evaluate")
    for name in EVALUATION:
        one = entries.values.pop(name, None)
        draft.note(one, "nothing is evaluated")


def _files(chain: Chain) -> object:
    files = chain.loaded.keywords.get("data_files") if chain.loaded is not None else None
    return files.value if files is not None else None


def _path(chain: Chain) -> object:
    first = None if chain.loaded is None else chain.loaded.argument("path", 0)
    value = _files(chain)
    return (first.value if first is not None else None, value if isinstance(value, str) else None)
