"""Import LLaMA-Factory's YAML of both layouts. The spec states LLaMA-Factory's defaults: loss on answers only, a LoRA
alpha of twice the rank, activation checkpointing, sequences of 2048 tokens.

The older layout has the keys `stage` and `finetuning_type`; the newer layout (v1) has `train_dataset`. Source:
LLaMA-Factory 0.9.6.dev0, hparams/ and model/.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.importing import families, streams
from xpc.compiler.importing.accelerate import config as sharding
from xpc.compiler.importing.accelerate import float8
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.keys import has_needed
from xpc.compiler.importing.llamafactory import data as llamafactory_data
from xpc.compiler.importing.llamafactory import images, optimizer
from xpc.compiler.importing.llamafactory.keys import ADDED, KEYS, PADDED, SPLIT, STAGES
from xpc.compiler.importing.llamafactory.refusals import refusals
from xpc.compiler.importing.llamafactory.switches import (
    layout,
    packed,
    recomputing,
    saved_by_epochs,
    swanlab,
    switches,
    trainers,
)
from xpc.compiler.importing.llamafactory.tuning import quantized, tuning
from xpc.compiler.importing.overrides import Machines, Overrides, load
from xpc.compiler.importing.rope import by_length
from xpc.compiler.importing.text.entries import Entries, Entry, Lookups, boolean, integer, is_stated, number, text
from xpc.compiler.importing.text.values import ATTENTION
from xpc.compiler.importing.trl import model as models
from xpc.compiler.importing.trl import reader as trlyaml
from xpc.compiler.importing.trl import trainer
from xpc.compiler.importing.trl.switches import follow, patience, router
from xpc.compiler.language.kinds import NEVER, Amount, Weighted
from xpc.compiler.language.schema import ADAPTERS
from xpc.compiler.stacks import DEFAULT

FIRST: Mapping[str, object] = {
    "batch.seq": 2048, "batch.micro": 8, "optimizer.lr": 5e-5, "eval.micro": 8, "save.every": Amount("count", 500),
    "track.every": Amount("count", 500),
}  # fmt: skip
"""Maps settings to the defaults of LLaMA-Factory's older layout that differ from xpc's. Most are transformers'
defaults; that of `cutoff_len` is LLaMA-Factory's own.
"""
SECOND: Mapping[str, object] = {
    "batch.seq": 2048, "batch.micro": 1, "optimizer.lr": 1e-4, "optimizer.weight_decay": 0.01, "schedule": "constant",
    "save.every": NEVER, "track.every": Amount("count", 1), "model.attn": "sdpa",
}  # fmt: skip
"""Maps settings to the defaults of LLaMA-Factory's newer layout, which trains with torch's AdamW and a constant
learning rate (v1/core/base_trainer.py).
"""

SEPARATE = {"orpo": "orpo", "simpo": "cpo"}
"""Maps a `pref_loss` that is no loss of dpo to the spec's method: simpo is a loss of the method cpo."""


def llamafactory(entries: Entries, file: str, overrides: Overrides) -> Draft:
    """Convert a LLaMA-Factory file of either layout to a draft of the spec."""
    word, entries = _stage(entries)
    loss = entries.get("pref_loss")
    apart = SEPARATE.get(str(loss.value)) if word == "dpo" and loss is not None else None
    method = overrides.method or apart or STAGES.get(word, "sft")
    draft = Draft(load(overrides.target or DEFAULT), method, overrides.stem)
    trlyaml.given(draft, overrides)
    _report_stage(draft, entries.get("stage"), word)
    found = Machines()
    chosen = overrides.method is not None
    same = {key: row.renamed for key, row in KEYS.items() if row.renamed and (chosen or has_needed(entries, row.needs))}
    unread = {**KEYS.column("irrelevant"), **KEYS.column("comment")}
    named = Lookups({same.get(key, key): one for key, one in entries.items() if key not in unread}, draft.seen)
    _model(draft, named)
    others = {key for key, row in KEYS.items() if row.read or row.refused}
    rest = {key: one for key, one in named.items() if key not in others and not (key == "fp16" and one.off)}
    trainer.arguments(draft, trainers(draft, rest, named))
    swanlab(draft, named)
    _precision(draft, named, overrides.method)
    tuning(draft, named)
    models.continued(draft, named.get("adapter_name_or_path"))
    optimizer.older(draft, named)
    trlyaml.shard(draft, named, overrides, found)
    _second(draft, named, overrides)
    _megatron(draft, named)
    if "ray_num_workers" in named:
        sharding.count(draft, named["ray_num_workers"], "total", found)
    _kernels(draft, named)
    _loss(draft, named, word, apart)
    images.keys(draft, named, word, overrides)
    llamafactory_data.data(draft, named, overrides, word)
    patience(draft, named.get("early_stopping_steps"))
    _reference(draft, named)
    _defaults(draft, named, word)
    packs = draft.value("batch.packing") == "true"
    switches(draft, named, word)
    families.nearest(draft, "LLaMA-Factory")
    if word == "pt":
        llamafactory_data.streamed(draft, packs)
    packed(draft, named, word)
    follow(draft)
    kept = named.get("overwrite_output_dir")
    families.resumed_adapters(draft, "LLaMA-Factory", resumes=kept is None or not boolean(kept))
    router(draft)
    draft.put("method", method)
    streams.stream(draft, named.get("streaming"), named.get("buffer_size"), 16384, "LLaMA-Factory")
    trlyaml.finish(draft, overrides, found)
    float8.switch(draft, named, "fp8_backend", "fp8_enable_fsdp_float8_all_gather")
    _without_setting(draft, entries, named, word)
    trlyaml.settle_files(draft, overrides)
    return draft


def _stage(entries: Entries) -> tuple[str, Entries]:
    """Return the stage of the training and the entries. Up to LLaMA-Factory 0.7.1, orpo was a stage with keys such as
    `orpo_beta`; such a file is imported as the stage dpo with the loss orpo and keys such as `pref_beta`.
    """
    stage = entries.get("stage")
    word = str(text(stage)).lower() if stage is not None else "sft"
    if stage is None or word != "orpo":
        return word, entries
    own = {key.replace("orpo_", "pref_"): one for key, one in entries.items()}
    return "dpo", {**own, "pref_loss": Entry("stage", "orpo", stage.file, stage.line)}


def _report_stage(draft: Draft, stage: Entry | None, word: str) -> None:
    """Report how the key `stage` was imported."""
    if stage is not None and word not in STAGES:
        draft.error(stage, "xpc has no such stage", "xpc has pt, sft, rm, dpo and kto")
        return
    draft.mark(stage, "mapped", f"method {draft.method}")
    if stage is not None and word == "rm":
        why = "LLaMA-Factory's reward head (TRL's value head) has a bias and a dropout of 0.1; the spec's has neither"
        draft.differs("stage", why, stage)


def _model(draft: Draft, named: Entries) -> None:
    """Set the model, its RoPE scaling, and the tokens that are added to its vocabulary."""
    models.model(draft, {key: one for key, one in named.items() if key not in ("chat_template", "tokenizer_name")})
    if "rope_scaling" in named:
        by_length(draft, named["rope_scaling"], named.get("max_length"))
    models.new_tokens(draft, [named[key] for key in ADDED if key in named])
    draft.note(named.get("resize_vocab"), "a run that adds tokens always resizes the embeddings")


def _without_setting(draft: Draft, entries: Entries, named: Entries, word: str) -> None:
    """Handle the keys that do not become settings: they are kept as comments, have no effect, or are errors."""
    why = "LLaMA-Factory reads tokenized rows from this folder; a bundle tokenizes its data itself"
    draft.keep(named, {"tokenized_path": why})
    draft.keep(entries, KEYS.column("comment"))
    layout(draft, entries)
    refusals(draft, named, word)
    KEYS.note_irrelevant(draft, entries)
    draft.settle(entries, trlyaml.known(draft, KEYS), KEYS.column("refused"))


def _precision(draft: Draft, named: Entries, stated_method: str | None) -> None:
    pure, half, other = named.get("pure_bf16"), named.get("bf16"), named.get("fp16")
    draft.on(other)
    for one in (half, pure):
        if boolean(one):
            draft.put("precision", "bf16", one)
        elif one is not None:
            draft.note(one, "it is off")
    if boolean(pure):
        draft.put("model.dtype", "bf16", pure)
    second = "train_dataset" in named
    usual = "bf16" if second and half is None else "fp32"
    draft.default("precision", usual, "not set: LLaMA-Factory's default")
    if second and stated_method is None:
        why = "in the newer layout, the command states the method, not the file: sft is assumed"
        draft.warn(None, why, "`--method` names another")


def _second(draft: Draft, named: Entries, overrides: Overrides) -> None:
    """Import keys that only the newer layout (v1) has, such as `dist_config`, `optim_config` and
    `batching_strategy`.
    """
    dist, optim, batching = (named.get(key) for key in ("dist_config", "optim_config", "batching_strategy"))
    for key, one in ({} if dist is None else dist.mapping).items():
        _distributed(draft, key, one, overrides)
    if optim is not None:
        for one in optimizer.newer(draft, optim):
            draft.error(one, "in this block, the import reads only muon, and not all of muon's keys")
    word = None if batching is None else str(batching.value)
    if word == "normal":
        draft.note(batching, "padded micro-batches")
    elif word == "padding_free":
        draft.note(batching, PADDED)
        draft.warn(batching, PADDED)
    elif word is not None:
        draft.error(batching, "xpc has no micro-batches of varying size", "write `padding_free`")
    saved_by_epochs(draft, named.get("save_epochs"), named.get("num_train_epochs"))
    draft.setting("batch.gbs", named.get("global_batch_size"))
    kernels = named.get("kernel_config")
    if is_stated(kernels):
        _liger(draft, kernels)
    rate = named.get("lr_scheduler_config")
    if is_stated(rate):
        draft.error(rate, "xpc does not import `lr_scheduler_config`", "leave it out for a constant learning rate")
    elif rate is not None:
        draft.note(rate, "the rate is constant")
    quantized(draft, named.get("quant_config"))


def _distributed(draft: Draft, key: str, one: Entry, overrides: Overrides) -> None:
    """Import a key of the block `dist_config`."""
    if key == "name" and one.value in ("fsdp2", "ddp"):
        draft.settings.pop("strategy", None)
        draft.put("strategy", "fsdp" if one.value == "fsdp2" else "ddp", one)
    elif key == "name" and one.value == "deepspeed":
        draft.mark(one, "mapped", "strategy")
    elif key == "config_file":
        draft.settings.pop("strategy", None)
        sharding.named_file(draft, one, overrides)
    elif one.off:
        draft.note(one, "it is off")
    elif key == "cp_size" and integer(one):
        draft.put("strategy.context_parallel", integer(one), one)
    elif key == "cp_mode":
        draft.note(one, "it decides how ranks split a sequence, and does not change the result")
    else:
        draft.error(one, "xpc has no such option")


def _liger(draft: Draft, kernels: Entry) -> None:
    """Import `kernel_config`. It becomes the setting `liger` if it names Liger and sets `include_kernels`. Other
    kernels do not change results, so the key then has no effect.
    """
    name, inside = kernels.mapping.get("name"), kernels.mapping.get("include_kernels")
    on = name is not None and name.value == "liger_kernel" and inside is not None and not inside.off
    for one in kernels.mapping.values():
        if on:
            draft.put("memory.liger", True, one)
        else:
            draft.note(one, "it does not change results: it names no kernel, or a kernel that computes the same")
    if on and inside is not None and inside.value not in ("auto", True):
        draft.differs(
            "kernel_config", "LLaMA-Factory applies the listed kernels of Liger; a bundle applies all of them", inside
        )


def _reference(draft: Draft, named: Entries) -> None:
    """Report an error if `ref_model` is not the initial model of the training."""
    other, model = named.get("ref_model"), named.get("model_name_or_path")
    if other is None or other.off:
        draft.note(other, "the model itself")
    elif model is not None and other.value == model.value and "adapter_name_or_path" not in named:
        draft.note(other, "it is the model with which the training begins")
    else:
        draft.error(other, "a run's reference model is the model with which the training begins")


def _megatron(draft: Draft, named: Entries) -> None:
    """Import the keys of Megatron's parallelism. A size of 0 or 1 means no parallelism and has no effect; any other
    size is an error.
    """
    for key in SPLIT:
        one = named.get(key)
        if one is not None and integer(one) in (None, 0, 1):
            draft.note(one, "nothing is split")
        elif one is not None:
            draft.error(one, "the target stack has no Megatron",
                        "name a DeepSpeed file by `--deepspeed`, or accelerate's YAML by `--accelerate`")  # fmt: skip


def _kernels(draft: Draft, named: Entries) -> None:
    flash = named.get("flash_attn")
    word = None if flash is None else str(text(flash)).lower()
    if flash is not None and word == "true":
        draft.put("model.attn", "flash2", flash, "older versions of LLaMA-Factory have a switch for FlashAttention 2")
    elif flash is not None and word in ("auto", "none", "false"):
        draft.note(flash, "sdpa, as transformers chooses")
    elif flash is not None and word is not None and word in ATTENTION:
        draft.put("model.attn", ATTENTION[word], flash)
    elif flash is not None:
        draft.error(flash, "xpc has no such attention", "write auto, disabled, sdpa, fa2 or fa3")
    recomputing(draft, named)
    norms = named.get("upcast_layernorm")
    if draft.on(norms):
        why = "LLaMA-Factory keeps the weights of norms in fp32; the spec keeps them in the dtype of all weights"
        draft.drop("upcast_layernorm", why, norms)
    each, host, fast = (draft.on(named.get(key)) for key in ("eval_on_each_dataset", "use_unsloth_gc", "use_unsloth"))
    draft.error(each, "xpc has no such setting")
    if host is not None:
        why = "LLaMA-Factory keeps each layer's input in host memory; the spec keeps it on the GPU, with equal results"
        draft.drop("use_unsloth_gc", why, host)
    if fast is not None:
        why = "LLaMA-Factory runs the model with Unsloth's kernels; the spec uses those of transformers"
        draft.drop("use_unsloth", why, fast)


def _loss(draft: Draft, named: Entries, stage: str, apart: str | None) -> None:
    """Set the loss of the method, and whether prompts are in the loss."""
    _prompts(draft, named.get("train_on_prompt"), stage)
    dft, loss, share = (named.get(key) for key in ("use_dft_loss", "pref_loss", "rpo_alpha"))
    if dft is not None and (stage != "sft" or not boolean(dft)):
        draft.note(dft, "it is off" if stage == "sft" else f"the stage {stage} does not read it")
    elif dft is not None and "dft" in draft.stack.losses("sft"):
        draft.put("method.loss", (Weighted("dft"),), dft)
    elif dft is not None:
        draft.error(dft, f"{draft.stack.name} has no such loss")
    if loss is not None and apart == "cpo":
        _simpo(draft, named, loss)
    elif loss is not None and apart is not None:
        draft.mark(loss, "mapped", f"method {apart}")
    elif draft.method == "dpo":
        _dpo(draft, named)
    elif loss is not None:
        draft.note(loss, f"{draft.method} does not read it")
    if share is not None and not number(share) and draft.method != "cpo":
        draft.note(share, "it is off")
    draft.default("method.beta", 0.1, "not set: LLaMA-Factory's default")


def _prompts(draft: Draft, prompt: Entry | None, stage: str) -> None:
    """Set whether sft's loss includes the prompts."""
    if draft.method == "sft" and stage != "pt":
        if prompt is not None:
            draft.put("method.assistant_only", boolean(prompt) is not True, prompt)
        draft.default("method.assistant_only", True, "not set: LLaMA-Factory trains on answers")
    elif prompt is not None:
        draft.note(prompt, "the rows have no separate answers" if stage == "pt" else f"{draft.method} does not read it")


def _simpo(draft: Draft, named: Entries, loss: Entry) -> None:
    """Set SimPO as a loss of cpo, with its margin and the weight of the likelihood term (`pref_ftx`)."""
    why, share = "not set: LLaMA-Factory's default", named.get("rpo_alpha")
    draft.put("method.loss", (Weighted("simpo"),), loss)
    draft.setting("method.margin", named.get("simpo_gamma"))
    draft.default("method.margin", 0.5, why)
    draft.setting("method.likelihood", share)
    draft.default("method.likelihood", 0.0, why)
    if share is not None and number(share):
        reason = "LLaMA-Factory averages the likelihood term over answers; the spec averages it over tokens"
        draft.differs("pref_ftx", reason, share)


def _dpo(draft: Draft, named: Entries) -> None:
    """Set the loss of dpo. If the file has a likelihood term (`weight`), add the loss `sft`."""
    loss, share, losses = named.get("pref_loss"), named.get("rpo_alpha"), draft.stack.losses("dpo")
    word, weight = "sigmoid" if loss is None else str(loss.value), number(share)
    if word not in losses:
        draft.error(loss or next(iter(named.values())), f"{draft.stack.name} has no such loss", ", ".join(losses))
    elif weight and "sft" in losses:
        draft.put("method.loss", (Weighted(word, 1.0), Weighted("sft", weight)), loss or share)
        draft.mark(share, "mapped", "method.loss")
    elif loss is not None:
        draft.put("method.loss", (Weighted(word),), loss)


def _defaults(draft: Draft, named: Entries, stage: str) -> None:
    why = "not set: LLaMA-Factory's default"
    if not draft.has("train.steps"):
        draft.default("train.epochs", 3.0, why)
    packing, neat = named.get("packing"), named.get("neat_packing")
    on = stage == "pt" if not is_stated(packing) else boolean(packing) is True
    on = on or boolean(neat) is True
    for one in (packing, neat):
        if one is not None and draft.method == "sft" and not one.empty:
            draft.put("batch.packing", on, one)
        elif one is not None:
            draft.note(one, "it is empty" if one.empty else f"{draft.method} packs nothing")
    if draft.method == "sft":
        draft.default("batch.packing", on, "not set: LLaMA-Factory packs in pretraining")
    if stage == "pt" and on:
        if draft.value("model.attn") in families.FLASH:
            draft.put(
                "batch.packing.strategy", "wrapped", None, "LLaMA-Factory joins the texts into one stream of tokens"
            )
        else:  # `wrapped` without flash attention would let documents attend to each other, which XP310 refuses
            draft.put(
                "batch.packing.strategy", "bfd_split", None,
                "LLaMA-Factory continues a text longer than `cutoff_len` in another row",
            )  # fmt: skip
    second = "train_dataset" in named
    usual = SECOND if second else FIRST
    for path, value in usual.items():
        draft.default(path, value, why)
    if not draft.has("batch.gbs"):
        draft.default("batch.accum", 1, why)
    draft.default("optimizer", "adamw_torch" if second else "adamw_fused", why)
    draft.default("batch.mean", "global_tokens", why)
    sharded = draft.value("strategy") in ("zero3", "fsdp", "fsdp1", "hsdp")
    tuned = any(map(draft.has, ADAPTERS))
    if (tuned or sharded) and draft.value("precision") != "fp32":
        draft.default("model.dtype", draft.value("precision"), "LLaMA-Factory loads weights in the compute dtype")
