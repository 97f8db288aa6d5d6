"""Import LLaMA-Factory's Muon, which scales updates as torch's `match_rms_adamw` does. AdamW trains the weights that
are no hidden matrices, with the same learning rate.

Source: LLaMA-Factory 0.9.6.dev0, third_party/muon/muon.py, train/trainer_utils.py (`_create_muon_optimizer`) and
v1/plugins/trainer_plugins/optimizers/muon_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.text.entries import Entry, number
from xpc.compiler.language.setting import Path

NUMBERS: Mapping[str, Path] = {
    "wd": "optimizer.weight_decay", "momentum": "optimizer.momentum", "adamw_eps": "optimizer.eps",
}  # fmt: skip
FIXED = {"nesterov": True, "ns_steps": 5}
"""Options of LLaMA-Factory's Muon, with the values that torch's Muon always has."""
OWN = "not set: that of LLaMA-Factory's Muon"


def first(draft: Draft, switch: Entry | None) -> None:
    """Import `use_muon` of the older layout, which overrides `optim`."""
    if switch is None:
        return
    if switch.off:
        draft.note(switch, "it is off")
        return
    _chosen(draft, switch)
    _decay_of_norms(draft, "use_muon")


def second(draft: Draft, optim: Entry) -> list[Entry]:
    """Import `optim_config` of the newer layout (v1), if it names muon. Returns the keys that no setting expresses."""
    name = optim.mapping.get("name")
    if name is None or name.value != "muon":
        return [*optim.mapping.values()]
    unknown = []
    draft.settings.pop("optimizer.weight_decay", None)  # the layout's default weight decay is for AdamW, not for Muon
    for key, one in optim.mapping.items():
        betas = [number(each) for each in one.items] if key == "adamw_betas" else []
        if key == "name":
            _chosen(draft, one)
        elif key in NUMBERS and number(one) is not None:
            draft.put(NUMBERS[key], number(one), one)
        elif len(betas) == 2 and None not in betas:
            draft.put("optimizer.betas", tuple(betas), one)
        elif key in FIXED and one.value == FIXED[key]:
            draft.note(one, "torch's Muon does the same")
        else:
            unknown.append(one)
    draft.default("optimizer.weight_decay", 0.1, OWN)
    draft.default("optimizer.betas", (0.9, 0.95), OWN)
    _decay_of_norms(draft, "optim_config")
    return unknown


def _chosen(draft: Draft, entry: Entry) -> None:
    old = draft.settings.pop("optimizer", None)
    if old is not None and old.entry is not None:
        draft.mark(old.entry, "mapped", "optimizer = muon")
    draft.put("optimizer", "muon", entry)


def _decay_of_norms(draft: Draft, key: str) -> None:
    """Report that LLaMA-Factory's Muon also applies weight decay to norms and biases, and the spec does not."""
    decay = draft.settings.get("optimizer.weight_decay")
    if decay is not None and float(decay.text):
        draft.differs(key, "LLaMA-Factory's Muon applies weight decay to norms and biases, too; the spec does not")
