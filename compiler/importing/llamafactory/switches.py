"""Import LLaMA-Factory's trackers, activation checkpointing, packing and checkpoint interval. Also import keys for
which a spec has only one value.

Source: LLaMA-Factory 0.9.5, hparams/ and v1/config/.
"""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.keys import has_needed
from xpc.compiler.importing.llamafactory.keys import KEYS, SECOND
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, is_stated, number, text, words
from xpc.compiler.importing.text.values import TRACKERS
from xpc.compiler.language.kinds import EPOCH, Amount

FAMILIES = ("ernie4_5_moe", "granitemoe", "jamba", "llama4", "mixtral", "olmoe", "phimoe", "qwen2_moe", "qwen3_moe")
"""Model families for which LLaMA-Factory adds the router's load-balancing loss if `moe_aux_loss_coef` is set
(model/model_utils/moe.py).
"""


def switches(draft: Draft, named: Entries, stage: str) -> None:
    """Import the weight of the router's load-balancing loss, and keys for which a spec has only one value. Also report
    keys without effect because the file lacks a key that they need.
    """
    KEYS.apply_usual(draft, named)
    KEYS.note_unneeded(draft, named)
    _balance(draft, named.get("moe_aux_loss_coef"))


def _balance(draft: Draft, entry: Entry | None) -> None:
    """Set the weight of the router's load-balancing loss to `moe_aux_loss_coef`."""
    known = registry.find_model(draft.model)
    if entry is None:
        return
    if entry.off or not number(entry):
        draft.note(entry, "no loss is added")
    elif known is not None and known.model_type not in FAMILIES:
        draft.note(entry, f"LLaMA-Factory adds no load-balancing loss for {known.model_type}")
    elif not draft.keep_in_extra("trl", "router_aux_loss_coef", entry):
        draft.error(entry, f"{draft.stack.name} has no load-balancing loss for {draft.method}")


def swanlab(draft: Draft, named: Entries) -> None:
    """If `use_swanlab` is on, add SwanLab to the trackers in `report_to`. Without a key for the project, the spec
    states LLaMA-Factory's default project.
    """
    use, others = named.get("use_swanlab"), named.get("report_to")
    names = {"track.project": named.get("swanlab_project"), "track.name": named.get("swanlab_run_name")}
    if not boolean(use):
        for one in (use, *names.values()):
            draft.note(one, "SwanLab is off")
        return
    draft.settings.pop("track", None)
    reported = tuple(one for one in words(others) or [] if one in TRACKERS)
    draft.put("track", (*reported, "swanlab"), use)
    for path, one in names.items():
        draft.setting(path, one, weak=True)
    draft.default("track.project", "llamafactory", "not set: LLaMA-Factory's default")


def trainers(draft: Draft, rest: Entries, named: Entries) -> Entries:
    """The keys that are the trainer's arguments. The older layout ignores `gradient_checkpointing: false`, and without
    `gradient_checkpointing: true` also `gradient_checkpointing_kwargs`.

    Source: model/model_utils/checkpointing.py (`prepare_model_for_training`).
    """
    if "train_dataset" in named or has_needed(named, "gradient_checkpointing"):
        return rest
    one, kwargs = named.get("gradient_checkpointing"), named.get("gradient_checkpointing_kwargs")
    draft.note(kwargs, "read only with `gradient_checkpointing: true`")
    if has_needed(named, "disable_gradient_checkpointing"):
        draft.note(one, "`disable_gradient_checkpointing` turns it off")
    elif boolean(one) is False:
        why = "`false` has no effect: LLaMA-Factory recomputes activations by default, and so does the spec; only "
        why += "`disable_gradient_checkpointing` turns this off"
        draft.note(one, why)
        draft.warn(one, why)
    return {key: entry for key, entry in rest.items() if entry is not one and entry is not kwargs}


def recomputing(draft: Draft, named: Entries) -> None:
    """Set activation checkpointing, which LLaMA-Factory turns on by default. `disable_gradient_checkpointing` turns it
    off, unless the file also states `gradient_checkpointing: true`.
    """
    off, again = named.get("disable_gradient_checkpointing"), named.get("use_reentrant_gc")
    newer = named.get("enable_activation_checkpointing")
    if is_stated(newer):
        draft.put("memory.checkpointing", boolean(newer) is True, newer)
    if boolean(off) and has_needed(named, "gradient_checkpointing"):
        draft.note(off, "`gradient_checkpointing` turns checkpointing on again")
    elif off is not None:
        draft.put("memory.checkpointing", not boolean(off), off)
    if not boolean(off):
        draft.setting("memory.checkpointing.reentrant", again)
        if "train_dataset" not in named:
            draft.default("memory.checkpointing.reentrant", True, "not set: LLaMA-Factory's default")
        elif off is None and newer is None:
            draft.default("memory.checkpointing", True, "not set: LLaMA-Factory's default")
    elif again is not None:
        draft.note(again, "`disable_gradient_checkpointing` is on")


def layout(draft: Draft, entries: Entries) -> None:
    """Report errors for keys of the older layout in a file of the newer layout, which LLaMA-Factory refuses."""
    for key, entry in entries.items() if "train_dataset" in entries else ():
        if key not in SECOND and entry.value is not None:
            why = "LLaMA-Factory 0.9.5 has no such key in a file with `train_dataset`, and refuses this file"
            draft.error(entry, why, "leave it out")


def saved_by_epochs(draft: Draft, entry: Entry | None, epochs: Entry | None) -> None:
    """Import `save_epochs` of the newer layout (v1), which overrides `save_steps`."""
    if not is_stated(entry):
        draft.note(entry, "it is empty")
        return
    each = number(entry)
    length = number(epochs) if is_stated(epochs) else 3.0
    draft.overrule("save.every", "`save_epochs` decides")
    if each == 1:
        draft.put("save.every", EPOCH, entry)
    elif each and length and each < length and not draft.has("train.steps"):
        draft.put("save.every", Amount("share", each / length), entry, f"of {length:g} epochs")
    else:
        draft.error(
            entry, f"a run saves by steps, by epochs or by shares of the run, and {text(entry)} fits none of these"
        )


def packed(draft: Draft, named: Entries, stage: str) -> None:
    """Import packing. LLaMA-Factory's packed sequences are one token shorter than `cutoff_len`. Without `neat_packing`,
    documents in a packed sequence attend to earlier documents.
    """
    packs, neat = (key in named and not named[key].off for key in ("packing", "neat_packing"))
    size = draft.settings.get("batch.seq")
    if not (packs or neat) or "train_dataset" in named or size is None:
        return
    if size.entry is not None:
        draft.outcomes.pop((size.entry.file, size.entry.key), None)
    draft.raw("batch.seq", str(int(size.text) - 1), size.entry)
    if neat or stage == "pt" or draft.method != "sft":
        return
    if draft.value("model.attn") == "flash2" and draft.value("batch.micro") == "1":
        # no difference: with flash attention and their position ids, packed documents do not attend to each other in
        # LLaMA-Factory either
        return
    dropped = draft.differences.pop("sample_packing", None)
    draft.messages = [one for one in draft.messages if dropped is None or dropped not in one.text]
    here = (
        "keeps them apart"
        if draft.value("batch.packing") == "true"
        else "has one row per sequence, because packed rows of this model would attend to each other. A larger `micro` "
        "gives as many tokens a step"
    )
    draft.differs(
        "packing",
        "LLaMA-Factory packs several rows into a sequence, where each attends to those before it (`neat_packing` is "
        f"off); the spec {here}",
        named["packing"],
    )
