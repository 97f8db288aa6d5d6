"""What the alignment handbook's scripts do with every file that has a `dataset_mixer`, such as packing, although no key
of the file states it.
"""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Entries, Entry, is_stated, text

PACKS = "the alignment handbook's script for files with `dataset_mixer` always packs, and so does the spec"
CHATS = ("sft", "dpo", "orpo")
"""The training methods whose scripts in the handbook's older release render conversations."""
SWITCH = "auto_insert_empty_system_msg"


def with_packing(entries: Entries, method: str, overrides: Overrides) -> Entries:
    """Add `packing: true` to the entries of an sft file with a `dataset_mixer`, because the handbook's script always
    packs such files; not if scripts near the file train without packing.
    """
    mixer = entries.get("dataset_mixer")
    if mixer is None or "packing" in entries or method != "sft":
        return entries
    scripts = [body for _, body in overrides.scripts() if "SFTTrainer(" in body]
    packs = not scripts or any("packing=True" in body for body in scripts)
    return {**entries, "packing": Entry("packing", True, mixer.file, mixer.line)} if packs else entries


def report(draft: Draft, entries: Entries, given: Entries, overrides: Overrides) -> None:
    """Warn about changes of the rows that the handbook's scripts make and a run of the spec does not. `given` are the
    keys of the file, and `entries` the keys after `with_packing`.
    """
    mixer, switch = given.get("dataset_mixer"), given.get(SWITCH)
    if mixer is None:
        return
    if entries.get("packing") is not given.get("packing"):
        draft.warn(entries["packing"], PACKS, "write `packing: false` if the script that reads the file does not pack")
    scripts = [body for _, body in overrides.scripts() if "Trainer(" in body]
    own = scripts and not any(SWITCH in body or "from alignment import" in body for body in scripts)
    if draft.method not in CHATS or (own and switch is None):
        return
    if switch is not None:
        draft.note(switch, "the spec adds no system message")
    if switch is None or not switch.off:
        draft.differs("system", "the alignment handbook's scripts put an empty system message before a conversation "
                      "without one, if the chat template has a place for it; the spec adds none")  # fmt: skip
    draft.differs("dataset_mixer", "the alignment handbook's scripts drop rows that contain tasks of HumanEval; "
                  "the spec keeps them")  # fmt: skip
    template, named = given.get("chat_template"), given.get("model_name_or_path")
    known = registry.find_model(draft.model or text(named) or "")
    if not is_stated(template) and not (known is not None and known.chat):
        draft.warn(named, "the alignment handbook's scripts give a model without a chat template zephyr's; the "
                   "spec does not", "`model { chat_template = zephyr }` does the same")  # fmt: skip
