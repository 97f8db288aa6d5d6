"""Import axolotl's precision and its activation checkpointing.

Source: axolotl 0.18.0, utils/config/__init__.py (`resolve_dtype`, `normalize_config`) and core/builders/base.py.
"""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Entries, boolean


def precision(draft: Draft, named: Entries) -> None:
    """Set the precision and the dtype of the weights.

    A file without these keys has axolotl's default `bf16: auto`, which `fp16: true` overrides. With the key `bfloat16`
    or `float16`, the weights have this dtype, and the loss is not scaled.
    """
    keys = ("bf16", "fp16", "bfloat16", "float16")
    given = {key: named[key] for key in keys if key in named}
    for one in given.values():
        if boolean(one) is None and not one.empty and not (one.key == "bf16" and one.value in ("auto", "full")):
            draft.error(one, "the value must be true, false, auto or full")
    on = [key for key, one in given.items() if boolean(one) or one.value in ("auto", "full")]
    if "fp16" in on and "bf16" in on and given["bf16"].value == "auto":
        on.remove("bf16")
    usual = not given.get("bf16") and "fp16" not in on
    decides = None if usual else next(iter(on), None)
    for key, one in given.items():
        if key not in on and one.value != "auto":
            draft.note(one, "it is off")
        elif key != decides:
            draft.note(one, f"`{decides or 'bf16'}` decides")
    if decides is not None:
        one = given[decides]
        name = "bf16" if decides in ("bf16", "bfloat16") else "fp16"
        draft.put("precision", name, one, "auto: bf16 if the GPU supports it" if one.value == "auto" else "")
        if decides != name:
            draft.differs(name, f"axolotl keeps weights in {decides} and computes in it without loss scaling; the spec "
                          f"has the usual mixed precision of {name}", one)  # fmt: skip
        if one.value == "full":
            draft.differs(
                "bf16", "axolotl computes everything in bf16; a bundle computes the loss and the norms in fp32", one
            )
    if usual:
        draft.default("precision", "bf16", "not set: axolotl's `bf16` is auto, and current GPUs have it")
    draft.default("precision", "fp32", "no key turns on bf16 or fp16")
    eight = named.get("load_in_8bit")
    if draft.settings["precision"].text != "fp32":
        draft.default(
            "model.dtype", draft.settings["precision"].text, "axolotl loads weights in the dtype in which it computes"
        )
    elif boolean(eight):
        draft.default("model.dtype", "fp16", "axolotl loads an 8-bit base in float16 if no key turns on bf16")


def tf32(draft: Draft, named: Entries, overrides: Overrides) -> None:
    """Set TensorFloat-32. axolotl's default is `auto`: TensorFloat-32 is on if the GPU supports it (compute capability
    8.0 or higher).
    """
    entry = named.get("tf32")
    gpu = registry.find_gpu((overrides.hardware or "h100-80gb").split()[-1])
    able = gpu is not None and gpu.capability >= (8, 0)
    if entry is not None and entry.value != "auto":
        draft.setting("precision.tf32", entry)
    elif entry is not None:
        draft.put("precision.tf32", able, entry, "auto: on if the GPU supports TF32")
    else:
        draft.default("precision.tf32", able, "not set: axolotl's `tf32` is auto")


def memory(draft: Draft, named: Entries) -> None:
    """Set activation checkpointing, its implementation (reentrant or not), and the offloading of activations."""
    entry, kwargs, away = (named.get(key) for key in ("gradient_checkpointing", "gradient_checkpointing_kwargs",
                                                      "activation_offloading"))  # fmt: skip
    on = entry is not None and (boolean(entry) is True or entry.value in ("offload", "offload_disk", "unsloth"))
    if entry is not None and entry.value in ("offload", "offload_disk", "unsloth"):
        draft.put("memory.checkpointing", True, entry, "a bundle keeps the saved activations on the GPU")
        draft.warn(entry, "a bundle keeps the saved activations on the GPU: this changes memory, not the loss")
    elif entry is not None:
        draft.setting("memory.checkpointing", entry)
    inside = {} if kwargs is None else kwargs.mapping
    for key, one in inside.items():
        if key == "use_reentrant" and on:
            draft.setting("memory.checkpointing.reentrant", one)
        elif not on:
            draft.note(one, "checkpointing is off")
        else:
            draft.error(one, "a spec can set only `use_reentrant` of these arguments")
    if kwargs is not None and not inside:
        draft.note(kwargs, "null: axolotl's default")
    draft.default("memory.checkpointing", on, "not set: axolotl's default")
    if on and _never_reentrant(draft):
        stated = draft.settings.get("memory.checkpointing.reentrant")
        if stated is not None and stated.text == "true" and stated.entry is not None:
            draft.settings.pop("memory.checkpointing.reentrant")
            why = "axolotl also turns reentrant checkpointing off for Gemma 4"
            draft.put("memory.checkpointing.reentrant", False, stated.entry, why)
    elif on and draft.method in ("sft", "reward") and "unfrozen_parameters" not in named:
        draft.default("memory.checkpointing.reentrant", True, "not set: axolotl's default")
    elif on and draft.method in ("sft", "reward") and "use_reentrant" not in inside:
        draft.differs(
            "use_reentrant",
            "axolotl recomputes with torch's reentrant implementation, which needs inputs with gradients. With frozen "
            "weights, inputs may have none, so the spec uses the non-reentrant one, which gives the same numbers",
            entry,
        )
    away = draft.on(away)
    if away is not None and on and draft.method == "sft":
        draft.note(away, "activations are recomputed")
        draft.warn(
            away, "a bundle recomputes activations instead of offloading them: this changes memory, not the loss"
        )
    elif away is not None:
        draft.put("memory.offload_activations", True, away)


def _never_reentrant(draft: Draft) -> bool:
    """Whether axolotl forces non-reentrant checkpointing. It does for Gemma 4, because several layers of that model
    share weights.
    """
    known = registry.find_model(draft.model)
    name = draft.model.lower() if known is None else known.model_type
    return "gemma-4" in name or name.startswith("gemma4")
