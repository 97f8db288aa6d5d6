"""Import keys of transformers' TrainingArguments and of TRL's configuration classes. Importers of other tools use this
module for keys that these tools share with TRL.

The column `args` of the table of settings has the arguments of each setting.
"""

from __future__ import annotations

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, integer, is_stated, number, words
from xpc.compiler.importing.text.json import unfolded
from xpc.compiler.importing.text.values import KEYS, RENAMES, optimizers
from xpc.compiler.importing.trl import methods as online
from xpc.compiler.importing.trl import schedule, switches
from xpc.compiler.language import kinds
from xpc.compiler.language.schema import TABLE, Setting
from xpc.compiler.stacks import Stack

PLAIN_KINDS = (kinds.INT, kinds.TOKENS, kinds.REAL, kinds.FLAG, kinds.TEXT, kinds.NAME, kinds.MODEL, kinds.PATH,
               kinds.DURATION, kinds.SHARE)  # fmt: skip
COMBINED = ("train.steps", "batch.packing.eval", "save.full_state", "method.vllm.mode", "save.hub")
"""Settings that `simple` skips, because another function of this folder imports them, although each follows from a
single argument.
"""
MAPPINGS = ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs", "lr_scheduler_kwargs",
            "accelerator_config")  # fmt: skip
"""Arguments whose values are mappings, written as JSON on a command line."""
PADS = "the target stack's dpo pads anyway: this changes speed and memory, not the loss"


def simple(name: str) -> Setting | None:
    """The setting with the same meaning and unit as an argument: `optimizer.lr` for `learning_rate`. None if there is
    no such setting, or if it depends on several arguments.
    """
    for row in TABLE:
        decides = row.args == (name,) or (row.methods and name in row.args)
        if decides and row.kind in PLAIN_KINDS and row.path not in COMBINED:
            return row
    return None


def canonical(entries: Entries) -> dict[str, Entry]:
    """The entries under the names in the table of settings: `evaluation_strategy` becomes `eval_strategy`."""
    out: dict[str, Entry] = {}
    for name, entry in entries.items():
        value = unfolded(entry) if name in MAPPINGS else entry
        if name in RENAMES:
            out.setdefault(RENAMES[name], value)
        else:
            out[name] = value
    return out


def arguments(draft: Draft, entries: Entries) -> None:
    """Import every key of the trainer: first keys that depend on each other in groups, such as the keys about the
    schedule, and then each remaining key.
    """
    for old, new in ((entries.get(old), entries.get(new)) for old, new in RENAMES.items()):
        if old is not None and new is not None and old.value == new.value:
            draft.note(old, f"`{new.key}` says the same")
        elif old is not None and new is not None:
            draft.error(old, f"`{new.key}` on line {new.line} sets the same argument", "keep one of the two")
    named = canonical(entries)
    for part in (_length, _precision, _optimizer, schedule.schedule, switches.intervals, switches.trackers,
                 switches.checkpointing, switches.packing, switches.switches, switches.hub, switches.accelerator,
                 online.online):  # fmt: skip
        part(draft, named)
    for name, entry in named.items():
        if not draft.handled(entry):
            one(draft, name, entry)


def one(draft: Draft, name: str, entry: Entry) -> None:
    """Import a single key as a setting or an argument under `extra`, or report it as an error or a key without
    effect.
    """
    row = simple(name)
    if row is not None and row.methods and draft.method not in row.methods:
        if entry.off:
            draft.note(entry, f"it is off, and {draft.method} has no such setting")
        elif not draft.keep_in_extra("trl", name, entry):
            draft.error(entry, f"{draft.method} has no such setting", f"it is a setting of {', '.join(row.methods)}")
    elif name == "padding_free" and draft.method == "dpo" and not draft.stack.facts.dpo_padding_free:
        draft.note(entry, PADS)
        if not entry.off:
            draft.warn(entry, PADS)
    elif row is not None:
        draft.setting(row.path, entry)
    elif name in KEYS.column("irrelevant"):
        draft.note(entry, KEYS[name].irrelevant)
    elif name in KEYS.column("refused"):
        draft.error(draft.on(entry), KEYS[name].refused)
    elif not draft.keep_in_extra("trl", name, entry, _stated(draft.stack, draft.method, name)):
        missing = draft.stack.removed.get(name) or draft.stack.omitted(draft.stack.config(draft.method)).get(name)
        if missing and (entry.off or "cannot change numbers" in missing):
            draft.note(entry, missing if not entry.off else f"it is off ({missing})")
        elif missing:
            draft.error(entry, f"{draft.stack.name} has no such argument: {missing}")


def _stated(stack: Stack, method: str, name: str) -> object:
    return stack.base_arguments(stack.config(method)).get(name)


def _length(draft: Draft, named: Entries) -> None:
    steps, epochs = named.get("max_steps"), named.get("num_train_epochs")
    count = integer(steps)
    if not is_stated(steps) or (count is not None and count <= 0):
        draft.note(steps, "it is not a positive number of steps, so the number of epochs decides")
    elif count is None:
        draft.error(steps, "the value must be a whole number")
    else:
        draft.put("train.steps", count, steps)
    if draft.has("train.steps"):
        draft.note(epochs, "the number of steps decides")
    else:
        draft.setting("train.epochs", epochs)


def _precision(draft: Draft, named: Entries) -> None:
    present = {name: named[name] for name in ("bf16", "fp16") if name in named}
    on = [(name, one) for name, one in present.items() if boolean(one)]
    if len(on) == 2:
        draft.note(on[0][1], "`fp16` is on, too")
        draft.error(on[1][1], f"`bf16` is on, too (line {on[0][1].line})", "keep one of the two")
        return
    for name, entry in present.items():
        if entry.empty or boolean(entry) is False:
            if not on and not entry.empty and name == "bf16":  # without `bf16`, TRL's default decides
                draft.put("precision", "fp32", entry, "bf16 is off, and no other precision is on")
            else:
                draft.note(entry, "it is off")
        elif boolean(entry) is None:
            draft.error(entry, "the value must be true or false")
        else:
            draft.put("precision", name, entry)


def _optimizer(draft: Draft, named: Entries) -> None:
    entry = named.get("optim")
    if entry is not None:
        name = optimizers().get(str(entry.value))
        if name is None:
            draft.error(entry, "xpc has no such optimizer", "`xpc explain optimizer` lists them")
        else:
            draft.put("optimizer", name, entry)
    betas = [named.get("adam_beta1"), named.get("adam_beta2")]
    given = [one for one in betas if is_stated(one)]
    if given:
        values = [number(one) if is_stated(one) else usual for one, usual in zip(betas, (0.9, 0.999))]
        for one in given:
            if number(one) is None:
                draft.error(one, "the value must be a number")
        if all(value is not None for value in values):
            why = "" if len(given) == 2 else "the second beta has its default"
            for one in given:
                draft.put("optimizer.betas", tuple(values), one, why)
    modules = named.get("optim_target_modules")
    if is_stated(modules):
        names = words(modules)
        linear = names is not None and [one.lower() for one in names] in (["all-linear"], ["all"])
        draft.put("optimizer.targets", "all-linear" if linear else tuple(names or ()), modules)
