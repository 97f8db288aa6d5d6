"""Import fp8 training: `fp8: true` of axolotl and LLaMA-Factory, and `fp8_config` of accelerate's YAML.

A bundle trains in fp8 with torchao and accelerate's default recipe. Source: accelerate 1.15 `utils/dataclasses.py`
(`AORecipeKwargs`), axolotl `loaders/patch_manager.py` (`_apply_fp8_patches`), LLaMA-Factory `train/fp8_utils.py`.
"""

from __future__ import annotations

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, text
from xpc.compiler.language.schema import ADAPTERS

TORCHAO = ("ao", "torchao", "auto", "no")
"""Values of `backend` for which a run uses torchao. Without a backend, accelerate and LLaMA-Factory also try torchao
first.
"""
OTHERS = {"te": "Transformer Engine", "transformer_engine": "Transformer Engine", "msamp": "MS-AMP"}
GATHERED = "a bundle gathers weights in fp8 under fsdp, and under no other strategy"
STRATEGIES = ("ddp", "fsdp")


def switch(draft: Draft, named: Entries, *more: str) -> None:
    """Set `precision fp8` if the key `fp8` is on. `more` lists further keys that are about fp8.

    If the spec cannot train in fp8, for example because it has an adapter, its precision is bf16, and all keys about
    fp8 are kept in comments.
    """
    on = named.get("fp8")
    others = [named[key] for key in more if key in named]
    if on is None or not boolean(on):
        for one in [*others] if on is None else [on, *others]:
            draft.note(one, "fp8 is off")
        return
    why = _obstacle(draft)
    if why:
        for one in (on, *others):
            draft.reserve(one, f"{one.key}: {text(one)}", f"{why}, so the spec computes in bf16")
        return
    draft.settings.pop("precision", None)
    draft.put("precision", "fp8", on)
    for one in others:
        _belonging(draft, one, one.key.removeprefix("fp8_"))


def block(draft: Draft, found: Entry, mixed: Entry | None) -> None:
    """Import `fp8_config` of accelerate's YAML, which has an effect only with `mixed_precision: fp8`."""
    on = mixed is not None and str(text(mixed)).lower() == "fp8"
    for key, one in found.mapping.items():
        if on:
            _belonging(draft, one, key.removeprefix("fp8_"))
        else:
            draft.note(one, "only `mixed_precision: fp8` reads it")


def _belonging(draft: Draft, one: Entry, name: str) -> None:
    word = str(text(one)).lower()
    if name == "backend" and word in TORCHAO:
        draft.mark(one, "mapped", "precision = fp8", "by torchao")
    elif name == "backend":
        draft.error(one, f"a bundle has no {OTHERS.get(word, word)}", "write `torchao`, which needs no further package")
    elif name == "enable_fsdp_float8_all_gather":
        draft.note(one, GATHERED)
    elif name == "pad_inner_dim":
        draft.note(one, "a bundle always turns it on, because fp8 needs it for batches of any length")
    elif one.off:
        draft.note(one, "it is off")
    else:
        draft.error(one, "accelerate has no such key for torchao", "leave it out")


def _obstacle(draft: Draft) -> str:
    """The reason why the spec cannot train in fp8, such as an adapter; "" if it can."""
    strategy = draft.value("strategy")
    if not draft.stack.facts.float8_training:
        return f"{draft.stack.name} cannot train in fp8"
    if any(map(draft.has, ADAPTERS)):
        return "adapters cannot be combined with fp8"
    if strategy not in ("", *STRATEGIES):
        return f"{strategy} cannot be combined with fp8"
    return ""
