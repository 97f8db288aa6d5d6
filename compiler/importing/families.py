"""Replace settings that the imported tool supports for a model's family, but that a bundle's libraries do not support.

The spec gets the most similar setting that works, such as sdpa if flash attention does not, and a comment describes the
difference.
"""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.local_model import model_called
from xpc.compiler.importing.outcomes import RESERVED, Message
from xpc.compiler.importing.trl import switches
from xpc.compiler.language.optimizers import CPU_OPTIMIZERS
from xpc.compiler.language.schema import ADAPTERS, BY_PATH
from xpc.compiler.registry.types import IMAGE_FAMILIES
from xpc.compiler.stacks import Family
from xpc.compiler.stacks.fused_experts import adapted

FLASH = ("flash2", "flash3")
STAY = ("paged_adamw", "paged_lion", "adagrad")
"""Optimizers that accelerate keeps if the optimizer states are offloaded; it replaces all others by DeepSpeed's
Adam.
"""


def kind_of(draft: Draft) -> str | None:
    """The family of a model (`model_type`). It comes from the registry or is guessed from the model's name; None if it
    is unknown.
    """
    known = registry.find_model(draft.model)
    if known is None:
        alias = model_called(draft.model.rpartition("/")[2])
        known = None if alias is None else registry.find_model(alias)
    return registry.family_named(draft.model) if known is None else known.model_type


def nearest(draft: Draft, tool: str) -> None:
    """Replace settings that the libraries do not support for this model or family: attention, packing, dropout of
    adapters on experts, remote code and others.
    """
    kind = kind_of(draft)
    family = draft.stack.family(kind)
    if family is not None:
        _attention(draft, family, tool)
        _dropout(draft, family, tool)
        _remote_code(draft, family, tool)
    _context(draft, tool)
    _offloaded_optimizer(draft)
    _kto_micro_batch(draft, tool)
    _packing(draft, family, tool)
    trained_dtype(draft, tool)


def own_code(draft: Draft, tool: str) -> None:
    """Turn `trust_remote_code` off if transformers itself implements the model's family."""
    family = draft.stack.family(kind_of(draft)) if draft.model else None
    if family is not None:
        _remote_code(draft, family, tool)


def refuse_images(draft: Draft) -> None:
    """Report an error for a model that reads images, unless the import has read the keys about images. Other tools may
    train its vision tower, which a run of a spec does not.
    """
    read = draft.has("data.max_pixels")  # only an importer that reads the keys about images sets `data.max_pixels`
    if draft.model and kind_of(draft) in IMAGE_FAMILIES and not read:
        why = "other tools may train the vision tower and the tokens of images; a spec trains neither"
        help = "write the spec by hand; docs/data.md has an example"
        text = f"`{draft.model[:80]}` reads images, and xpc does not import configurations with images: {why}"
        draft.messages.append(Message("error", "", text, help))


def _replace(draft: Draft, path: str, value: object, why: str, name: str, difference: str) -> None:
    """Replace the value of a setting. `why` is the reason. `difference`, how the tool differs from the spec, becomes a
    comment under the tool's key `name`.
    """
    entry = draft.take(path)
    # for a quantized base, the spec states even the default dtype, because xpc would otherwise derive another dtype
    derived = path == "model.dtype" and any(map(draft.has, ("qlora", "lora.bits")))
    if BY_PATH[path].default != value or derived:
        draft.put(path, value, entry, why)
    elif entry is not None:
        draft.outcomes.pop((entry.file, entry.key), None)
        draft.mark(entry, RESERVED, f"# {name}", why)
    draft.differs(name, difference, entry)


def _attention(draft: Draft, family: Family, tool: str) -> None:
    written = draft.value("model.attn")
    if not written and "sdpa" not in family.attention:
        why = f"{family.model_type} does not support sdpa, so transformers chooses eager"
        draft.put("model.attn", "eager", None, why)
    if written in ("", "eager", *family.attention):
        return
    better = "flash2" if "flash2" in family.attention and written in FLASH else None
    best = better or ("sdpa" if "sdpa" in family.attention else "eager")
    reason = f"{family.model_type} has no {written} on {draft.stack.name}"
    difference = (
        f"{tool} runs {family.model_type} with {written}, for which {draft.stack.name} has no kernel; the spec "
        f"computes the same by {best}"
    )
    _replace(draft, "model.attn", best, reason, "attn_implementation", difference)


def _packing(draft: Draft, family: Family | None, tool: str) -> None:
    """Turn packing off if the documents of a packed row could attend to each other, which depends on the stack, the
    attention and the family. Under context parallelism, they always do.
    """
    if draft.value("batch.packing") != "true":
        return
    facts = draft.stack.facts
    parallel = draft.has("strategy.context_parallel")
    flash = draft.value("model.attn") in FLASH
    if switches.stream(draft):
        if flash:
            return
        del draft.settings["batch.packing.strategy"]
    if flash:
        apart = family is None or (
            family.model_type not in facts.flash_mixes and family.packing not in ("stateful", "kernel")
        )
    else:
        exact = family is not None and family.packing == "exact" and family.model_type not in facts.mask_mixes
        apart = facts.isolate_mask and exact and registry.find_model(draft.model) is not None
    if apart and not parallel:
        return
    why = "among ranks that share a sequence" if parallel else "in models of this family"
    for path in [one for one in draft.settings if one.startswith("batch.packing.")]:
        del draft.settings[path]
    reason = f"packed documents would attend to each other {why}"
    difference = (
        f"{tool} packs several rows into a sequence, and its own kernels keep them apart; the libraries of a bundle "
        f"do not {why}, and the spec has one row per sequence: raise `micro` to train on as many tokens in a step"
    )
    _replace(draft, "batch.packing", False, reason, "sample_packing", difference)


def _context(draft: Draft, tool: str) -> None:
    """Set the attention to sdpa under context parallelism, which works only with sdpa."""
    attn = draft.value("model.attn")
    if draft.has("strategy.context_parallel") and attn not in ("", "sdpa"):
        difference = f"{tool} computes context parallelism by {attn}; the spec computes the same by sdpa"
        _replace(draft, "model.attn", "sdpa", "context parallelism needs sdpa", "attn_implementation", difference)


def _kto_micro_batch(draft: Draft, tool: str) -> None:
    """Set the micro-batch of KTO to at least two rows. The KL term of KTO needs two, because it combines a prompt with
    the answer of another row.
    """
    if draft.method != "kto":
        return
    if tool == "LLaMA-Factory":
        draft.differs(
            "stage",
            "for KTO's KL term, LLaMA-Factory combines a prompt with the answer of the row before it in the data, and "
            "the spec with the answer of another row in the micro-batch; LLaMA-Factory shuffles the rows for each "
            "epoch, and the spec shuffles them once",
        )
    accum = int(draft.value("batch.accum") or 1)
    if draft.value("batch.micro") != "1" or accum % 2:
        return
    why = "KTO needs at least two rows in a micro-batch"
    for path, one in (("batch.micro", 2), ("batch.accum", accum // 2)):
        _replace(draft, path, one, why, "micro_batch_size", f"{tool} would put one row into a micro-batch, and the "
                 "spec puts two; a step has the same number of rows in both")  # fmt: skip


def _offloaded_optimizer(draft: Draft) -> None:
    """If ZeRO offloads the optimizer, set it to `adamw`. In the imported tool and in a bundle, accelerate then replaces
    most optimizers by DeepSpeed's Adam.
    """
    written, offloads = draft.value("optimizer"), draft.value("strategy.offload") not in ("", "none")
    if offloads and draft.value("strategy").startswith("zero") and written not in ("", *CPU_OPTIMIZERS, *STAY):
        why = "accelerate replaces an offloaded optimizer by AdamW"
        difference = (
            f"accelerate replaces {written} by DeepSpeed's CPU Adam, which adds weight decay to the gradient; "
            "the spec has adamw, which applies weight decay to the weights"
        )
        _replace(draft, "optimizer", "adamw", why, "optimizer", difference)


def _dropout(draft: Draft, family: Family, tool: str) -> None:
    """Set the dropout of adapters to 0 if they adapt experts whose weights are one stacked tensor: peft refuses dropout
    on such experts, and axolotl uses none for them.
    """
    written, targets = draft.value("lora.dropout"), draft.value("lora.targets")
    if float(written or 0) == 0 or not targets:
        return
    names = targets if targets == "all-linear" else tuple(
        one.strip().strip('"') for one in targets.strip("[]").split(",")
    )  # fmt: skip
    if adapted(draft.stack, family.model_type, names) or draft.has("lora.parameters"):
        difference = f"{tool} has a dropout of {written} in every adapter except those of experts; the spec has none"
        _replace(draft, "lora.dropout", 0.0, "adapters of experts have no dropout", "lora_dropout", difference)


def _remote_code(draft: Draft, family: Family, tool: str) -> None:
    """Turn `trust_remote_code` off if transformers itself implements the model's family, and the spec does not fix the
    revision of the model.
    """
    known = draft.has("model.revision") or registry.find_model(draft.model) is not None
    if draft.value("model.trust_remote_code") != "true" or known:
        return
    why = f"transformers has {family.model_type}"
    difference = (
        f"{tool} runs code that comes with the model, at no fixed commit; the spec runs the {family.model_type} of "
        "transformers (`model(trust_remote_code)` with a `revision` of 40 digits runs the model's own code)"
    )
    _replace(draft, "model.trust_remote_code", False, why, "trust_remote_code", difference)


def resumed_adapters(draft: Draft, tool: str, resumes: bool = False) -> None:
    """Turn off resuming if this stack cannot restore adapters from FSDP checkpoints (rule XP582). If the imported tool
    resumes by default (`resumes`), report the difference.
    """
    kind, full = draft.value("strategy"), draft.value("strategy.state_dict") == "full"
    kind = "fsdp2_full" if kind in ("fsdp", "hsdp") and full else kind
    lost = kind in draft.stack.facts.fsdp_adapters_lost and any(map(draft.has, ADAPTERS))
    if not lost or draft.has("save.resume"):
        return
    name, other = (
        ("a checkpoint of FSDP1", "strategy fsdp") if kind == "fsdp1" else ("a full checkpoint", "state_dict = sharded")
    )
    loses = f"{draft.stack.name} cannot restore an adapter from {name}"
    draft.default("save.resume", "never", loses if resumes else f"{tool} does not resume by itself, and {loses}")
    if resumes:
        resumed = f"{tool} resumes from the newest checkpoint in `output_dir`; the spec starts anew, because {loses}"
        draft.differs("resume_from_checkpoint", f"{resumed} (with `{other}` it would resume)")


def trained_dtype(draft: Draft, tool: str) -> None:
    """Set the dtype of trained weights to fp32 in two cases: if the weights are in bf16 and the learning rate is so low
    that updates would be rounded to 0, and if the weights are in fp16 under ddp, because the gradient scaler refuses
    gradients in fp16.
    """
    dtype, lr, strategy = map(draft.value, ("model.dtype", "optimizer.lr", "strategy"))
    complete = draft.has("lora.modules_to_save") or not any(map(draft.has, ADAPTERS))
    computed = draft.value("precision").partition(" ")[0] or "fp16"
    if dtype == "fp16" and complete and strategy in ("", "ddp"):
        why = "fp16 weights cannot be trained without a copy in fp32"
        difference = (
            f"{tool} trains fp16 weights, whose gradients no scaler accepts; the spec keeps the weights in fp32 and "
            f"computes in {computed}"
        )
        _replace(draft, "model.dtype", "fp32", why, "torch_dtype", difference)
        return
    if dtype == "bf16" and lr and float(lr) <= 1e-5 and strategy == "ddp" and not any(map(draft.has, ADAPTERS)):
        why = "at this learning rate, bf16 weights lose most updates"
        difference = (
            f"{tool} trains bf16 weights, which lose most updates at this learning rate; the spec keeps them "
            "in fp32 and computes in bf16"
        )
        _replace(draft, "model.dtype", "fp32", why, "torch_dtype", difference)
