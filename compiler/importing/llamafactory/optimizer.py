"""Import LLaMA-Factory's optimizers GaLore, APOLLO and Muon, which have keys of their own. LLaMA-Factory's Muon scales
updates like torch's Muon with `match_rms_adamw`. AdamW trains the weights that are not hidden matrices, with the
learning rate of Muon.

Source: LLaMA-Factory 0.9.6.dev0, third_party/muon/muon.py, train/trainer_utils.py (`_create_muon_optimizer`) and
v1/plugins/trainer_plugins/optimizers/muon_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.llamafactory.keys import PROJECTED
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, is_on, number, words
from xpc.compiler.language.setting import Path

NUMBERS: Mapping[str, Path] = {
    "wd": "optimizer.weight_decay", "momentum": "optimizer.momentum", "adamw_eps": "optimizer.eps",
}  # fmt: skip
FIXED = {"nesterov": True, "ns_steps": 5}
"""Options that LLaMA-Factory's Muon has and torch's does not, with the value for which both compute the same."""
OWN = "not set: the default of LLaMA-Factory's Muon"
GALORE = {"adafactor": "galore_adafactor", "adamw8bit": "galore_adamw8bit", "paged_adamw8bit": "galore_adamw8bit"}
"""Maps each optimizer to its GaLore version: `adafactor` to `galore_adafactor`."""


def older(draft: Draft, named: Entries) -> None:
    """Import the older layout's keys of GaLore, APOLLO and Muon. These optimizers replace the optimizer that `optim`
    names.
    """
    for kind, scale in (("galore", 2.0), ("apollo", 32.0)):
        use, layer, target = (named.get(key) for key in (f"use_{kind}", f"{kind}_layerwise", f"{kind}_target"))
        scaled = named.get("apollo_scale_type") if kind == "apollo" else None
        if scaled is not None and scaled.value == "channel":
            draft.note(scaled, "a bundle does the same")
        elif scaled is not None:
            draft.error(scaled, "a spec's APOLLO scales gradients by channel")
        inside = [named[key] for key in PROJECTED if key.startswith(kind) and key in named]
        if not is_on(use):
            for one in (use, *inside):
                draft.note(one, f"`use_{kind}` is not on")
            continue
        base = GALORE.get(draft.value("optimizer"), "galore_adamw") if kind == "galore" else "apollo_adamw"
        name = base + ("_layerwise" if boolean(layer) else "")
        draft.mark(draft.take("optimizer"), "mapped", f"optimizer = {name}")
        for entry in (use, layer):
            if entry is not None:
                draft.put("optimizer", name, entry)
        names = words(target) or []
        if target is not None:
            draft.put("optimizer.targets", "all-linear" if names == ["all"] else tuple(names), target)
        for key, path in (("rank", "rank"), ("scale", "scale"), ("update_interval", "update_proj_gap")):
            draft.setting(f"optimizer.{path}", named.get(f"{kind}_{key}"))
        for path, value in (("targets", "all-linear"), ("rank", 16), ("scale", scale)):
            draft.default(f"optimizer.{path}", value, "not set: LLaMA-Factory's default")
    _older_muon(draft, named.get("use_muon"))


def _older_muon(draft: Draft, switch: Entry | None) -> None:
    """Import `use_muon` of the older layout, which overrides `optim`."""
    if not is_on(switch):
        draft.note(switch, "it is off")
        return
    _chosen(draft, switch)
    _decay_of_norms(draft, "use_muon")


def newer(draft: Draft, optim: Entry) -> list[Entry]:
    """Import `optim_config` of the newer layout (v1) if it selects Muon. Returns the keys that have no setting, which
    are all keys for any other optimizer.
    """
    name = optim.mapping.get("name")
    if name is None or name.value != "muon":
        return [*optim.mapping.values()]
    unknown = []
    # remove AdamW's default weight decay, which was set before
    draft.settings.pop("optimizer.weight_decay", None)
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
    draft.mark(draft.take("optimizer"), "mapped", "optimizer = muon")
    draft.put("optimizer", "muon", entry)


def _decay_of_norms(draft: Draft, key: str) -> None:
    """Report that LLaMA-Factory's Muon applies weight decay to norms and biases, and a run of the spec does not."""
    if float(draft.value("optimizer.weight_decay") or 0):
        draft.differs(key, "LLaMA-Factory's Muon applies weight decay to norms and biases, too; the spec does not")
