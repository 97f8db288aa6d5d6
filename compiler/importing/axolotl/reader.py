"""Import axolotl's YAML. The spec states axolotl's defaults that differ from xpc's: loss only on answers, weights in
the dtype in which it computes, evaluations and checkpoints in each epoch.

Source: axolotl 0.19.0 and 0.18.0, utils/schemas/ and core/builders/.
"""

from __future__ import annotations

from xpc.compiler.importing import families, streams
from xpc.compiler.importing.accelerate import config as sharding
from xpc.compiler.importing.axolotl import adapter as axolotl_adapter
from xpc.compiler.importing.axolotl import data as axolotl_data
from xpc.compiler.importing.axolotl import intervals as axolotl_intervals
from xpc.compiler.importing.axolotl import keys as axolotl_keys
from xpc.compiler.importing.axolotl import mesh, trackers
from xpc.compiler.importing.axolotl import model as axolotl_model
from xpc.compiler.importing.axolotl import precision as axolotl_precision
from xpc.compiler.importing.axolotl.keys import KEYS
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.keys import has_needed
from xpc.compiler.importing.outcomes import KeyOutcome
from xpc.compiler.importing.overrides import Machines, Overrides, load
from xpc.compiler.importing.text.entries import Entries, Entry, Lookups, boolean, is_on, is_stated, number, text, words
from xpc.compiler.importing.text.values import ATTENTION
from xpc.compiler.importing.trl import model as models
from xpc.compiler.importing.trl import reader as trlyaml
from xpc.compiler.importing.trl import schedule, trainer
from xpc.compiler.importing.trl.switches import follow, router
from xpc.compiler.language import methods
from xpc.compiler.language.kinds import Amount, Weighted
from xpc.compiler.stacks import DEFAULT

SUPERVISED = (
    "neftune_noise_alpha", "noisy_embedding_alpha", "lr_quadratic_warmup", "ddp_timeout", "dataloader_drop_last",
    "auto_find_batch_size", "group_by_length", "early_stopping_patience", "load_best_model_at_end",
    "metric_for_best_model", "greater_is_better", "curriculum_sampling",
)  # fmt: skip
"""Keys that axolotl reads only for sft and reward models. Source: axolotl 0.19.0, core/builders/causal.py."""
METHODS = {"dpo": "dpo", "ipo": "dpo", "orpo": "orpo", "kto": "kto", "grpo": "grpo", "simpo": "cpo"}


def axolotl(entries: Entries, file: str, overrides: Overrides) -> Draft:
    """Convert an axolotl YAML file to a draft of the spec."""
    draft, entries = _start(entries, overrides)
    found = Machines()
    same = {key: row.renamed for key, row in KEYS.items() if row.renamed and has_needed(entries, row.needs)}
    named = Lookups({same.get(key, key): one for key, one in entries.items()}, draft.seen)
    models.model(draft, {key: one for key, one in named.items() if key in ("model_name_or_path", "model_revision")})
    _base_config(draft, named)
    _model(draft, named)
    axolotl_precision.precision(draft, named)
    axolotl_precision.tf32(draft, named, overrides)
    axolotl_precision.memory(draft, named)
    axolotl_intervals.intervals(draft, named)
    _trainer(draft, named)
    axolotl_adapter.adapter(draft, named)
    _muon(draft, named)
    _sharding(draft, named, overrides, found)
    schedule.optimizer_arguments(draft, named.get("optim_args"))
    trackers.trackers(draft, named)
    _method(draft, named)
    _packing(draft, named)
    axolotl_data.data(draft, named, overrides)
    _defaults(draft, named)
    axolotl_intervals.evaluation(draft, named)
    families.nearest(draft, "axolotl")
    families.resumed_adapters(draft, "axolotl")
    _long_texts(draft)
    follow(draft)
    if "output_router_logits" not in named.get("model_config", Entry("", {}, "", 0)).mapping:
        router(draft)
    draft.put("method", draft.method)
    raw, stream = named.get("pretraining_dataset"), named.get("streaming")
    if is_stated(raw):
        draft.note(stream, "axolotl streams a `pretraining_dataset` anyway")
        stream = raw
    buffer = named.get("streaming_multipack_buffer_size", named.get("pretrain_multipack_buffer_size"))
    streams.stream(draft, stream, buffer, 10_000, "axolotl")
    trlyaml.finish(draft, overrides, found)
    axolotl_keys.rest(draft, named)
    axolotl_model.configured(draft, named)
    axolotl_model.mxfp4(draft, named)
    draft.settle(entries, axolotl_keys.names(), KEYS.column("refused"))
    trlyaml.settle_files(draft, overrides)
    return draft


def _start(entries: Entries, overrides: Overrides) -> tuple[Draft, Entries]:
    """Return an empty draft with the method that `rl` or `reward_model` names, and the file's keys that axolotl
    knows.
    """
    rl, reward = entries.get("rl"), entries.get("reward_model")
    word = str(text(rl)).lower() if is_stated(rl) else ""
    method = overrides.method or METHODS.get(word) or ("reward" if boolean(reward) else "sft")
    draft = Draft(load(overrides.target or DEFAULT), method, overrides.stem)
    trlyaml.given(draft, overrides)
    entries = axolotl_keys.known(draft, entries)
    if rl is not None and word and not METHODS.get(word):
        draft.error(rl, "xpc has no such method", "xpc has dpo, orpo, cpo, kto and grpo")
    for one in (rl, reward):
        if one is not None and not draft.handled(one):
            draft.mark(one, "mapped", f"method {method}")
    if draft.method not in ("sft", "reward"):
        for key in SUPERVISED:
            draft.note(entries.get(key), f"axolotl does not read it for {draft.method}")
        entries = {key: one for key, one in entries.items() if key not in SUPERVISED}
    if "val_set_size" in entries and has_needed(entries, "pretraining_dataset"):
        draft.note(entries["val_set_size"], "axolotl streams a `pretraining_dataset`, and cannot hold out rows of it")
        entries = {key: one for key, one in entries.items() if key != "val_set_size"}
    return draft, entries


def _base_config(draft: Draft, named: Entries) -> None:
    """Report an error if `base_model_config` or `tokenizer_config` names another model than the base model."""
    base = named.get("model_name_or_path")
    for key, what in (("base_model_config", "configuration"), ("tokenizer_config", "tokenizer")):
        config = named.get(key)
        if config is not None and (config.empty or (base is not None and config.value == base.value)):
            draft.note(config, f"it is the base model's own {what}, which a spec always uses")
        elif config is not None:
            draft.error(config, f"a spec uses the {what} of the model's own folder", f"save this {what} with the model")


def _trainer(draft: Draft, named: Entries) -> None:
    """Import the keys that are also arguments of the trainer, and axolotl's version of Muon."""
    own = {key for key, row in KEYS.items() if not row.renamed or not has_needed(named, row.needs)}
    if methods.METHODS[draft.method].generates and "max_length" in named:
        draft.note(named["max_length"], f"{draft.method} limits prompts and completions separately")
        own.add("max_length")
    if _has_muon(named):
        own.add("optim")
        draft.put("optimizer", "muon", named["optim"])
    trainer.arguments(draft, {key: one for key, one in named.items() if key not in own})


def _has_muon(named: Entries) -> bool:
    return "optim" in named and named["optim"].value == "muon"


def _long_texts(draft: Draft) -> None:
    """If texts are packed, split a text longer than `sequence_len` over several rows."""
    if draft.value("data.format") == "text" and draft.value("batch.packing") == "true":
        why = "axolotl continues a text longer than `sequence_len` in another row"
        draft.default("batch.packing.strategy", "bfd_split", why)


def _model(draft: Draft, named: Entries) -> None:
    """Set the attention, and new tokens and special tokens."""
    attention = named.get("attn_implementation")
    if is_stated(attention):
        name = ATTENTION.get(str(attention.value))
        if attention.value == "xformers":
            _xformers(draft, attention)
        elif name is None:
            draft.error(attention, "xpc has no such attention")
        else:
            draft.put("model.attn", name, attention)
    else:
        draft.note(attention, "transformers chooses")
    first: Entry | None = None
    for key, name in (("xformers_attention", ""), ("flex_attention", "flex"), ("flash_attention", "flash2"),
                      ("sdp_attention", "sdpa"), ("eager_attention", "eager")):  # fmt: skip
        one = named.get(key)
        if boolean(one) and first is not None:
            draft.note(one, f"`{first.key}` decides")
        elif boolean(one):
            first = one
            _xformers(draft, one) if not name else draft.put("model.attn", name, one)
        elif one is not None:
            draft.note(one, "it is off")
    tokens = named.get("special_tokens")
    special = {} if tokens is None else dict(tokens.mapping)
    added = (named.get("tokens"), special.pop("additional_special_tokens", None))
    models.new_tokens(draft, [one for one in added if one is not None])
    if tokens is not None and tokens.empty:
        draft.note(tokens, "null: the tokenizer's token is used")
    for key, one in special.items():
        path = {"pad_token": "model.pad", "eos_token": "model.eos"}.get(key)
        if one.empty:
            draft.note(one, "null: the tokenizer's token is used")
        elif path is not None:
            draft.setting(path, one)
        else:
            why = f"special_tokens.{key}: {text(one)}"
            draft.reserve(one, why, "of a tokenizer's special tokens, a spec sets only eos and pad")


def _xformers(draft: Draft, entry: Entry | None) -> None:
    draft.put("model.attn", "sdpa", entry)
    why = "axolotl computes attention with xformers; the spec uses sdpa, with the same result"
    draft.differs("attn_implementation", why, entry)


def _sharding(draft: Draft, named: Entries, overrides: Overrides, found: Machines) -> None:
    config = named.get("fsdp_config")
    inside = {} if config is None else config.mapping
    workers = named.get("ray_num_workers")
    if workers is not None:
        sharding.count(draft, workers, "total", found)
    listed = named.get("fsdp")
    mesh.mesh(draft, named, overrides, found, bool(inside or is_on(listed)))
    table = dict(named.items())
    if not is_on(listed) and config is not None and config.mapping:
        table["fsdp"] = Entry("fsdp", "full_shard", config.file, config.line)
        implied = KeyOutcome("fsdp_config", "", config.file, config.line, "mapped", "strategy fsdp")
        draft.outcomes.setdefault((config.file, "fsdp"), implied)
    trlyaml.shard(draft, table, overrides, found)
    if draft.has("strategy.context_parallel") and draft.value("strategy") in ("ddp", "fsdp1"):
        draft.put("strategy", "fsdp", draft.take("strategy"))
        draft.differs("context_parallel_size", "axolotl splits a sequence with its own kernels; the spec splits it "
                      "under FSDP2, with the same result", named["context_parallel_size"])  # fmt: skip


def _muon(draft: Draft, named: Entries) -> None:
    """If the optimizer is axolotl's Muon, write its defaults to the spec. axolotl's Muon scales its updates like
    torch's Muon with `match_rms_adamw`.

    Source: axolotl-contribs-mit 0.0.6, muon/muon.py.
    """
    if not _has_muon(named):
        return
    draft.default("optimizer.betas", (0.95, 0.95), "not set: the defaults of axolotl's Muon")
    if not any(draft.has(name) for name in ("lora", "qlora")):
        draft.differs("optimizer", "axolotl's Muon does not train norms and biases; the spec trains them with AdamW")


def _method(draft: Draft, named: Entries) -> None:
    """Import three groups of keys: keys about the method, such as `rl_beta`; keys about the hub; and GRPO's block
    `trl`.
    """
    block = named.get("trl")
    inside = {} if block is None else block.mapping
    grouped = methods.METHODS[draft.method].grouped
    for one in ({} if grouped else inside).get("beta"), *map(named.get, ("rl_beta", "dpo_beta", "orpo_alpha")):
        if draft.has("method.beta") or draft.method not in METHODS.values():
            draft.note(one, "another key decides" if draft.has("method.beta") else f"{draft.method} does not read it")
        else:
            draft.setting("method.beta", one)
    kind = named.get("rl")
    if kind is not None and kind.value == "ipo" and not draft.has("method.loss"):
        draft.put("method.loss", (Weighted("ipo"),), kind)
    _simpo(draft, named, kind)
    _hub(draft, named, named.get("hub_model_id"))
    longest = named.get("max_prompt_len")
    draft.note(longest, f"axolotl {axolotl_keys.VERSION} does not read it")
    if longest is not None and "method.max_prompt" in methods.METHODS[draft.method].paths:
        why = f"axolotl {axolotl_keys.VERSION} does not read it; older versions cut longer prompts"
        draft.warn(longest, why, "`method(max_prompt=...)` leaves out rows with longer prompts")
    if inside and grouped:
        trainer.arguments(draft, _generation(draft, inside))
        if not draft.has("method.max_completion"):
            why = "not set: axolotl does not limit the length of completions; the spec limits it to 256 tokens"
            draft.differs("max_completion_length", why)
    for one in inside.values():
        if not draft.handled(one) and not grouped:
            draft.note(one, f"{draft.method} does not read it")


def _hub(draft: Draft, named: Entries, hub: Entry | None) -> None:
    """Set the repository on the hub to which the run pushes. axolotl pushes if `hub_model_id` names a repository."""
    if is_stated(hub) and "push_to_hub" not in named:
        draft.put("save.hub", True, hub, "axolotl pushes if `hub_model_id` names a repository")
        draft.setting("save.hub.name", hub)
        draft.put("save.hub.private", True, None, "axolotl makes every repository private")
        for key, path in (("hub_strategy", "save.hub.strategy"), ("hub_revision", "save.hub.revision")):
            draft.setting(path, named.get(key))
    elif "push_to_hub" not in named:
        for key in ("hub_strategy", "hub_revision"):
            draft.note(named.get(key), "no repository is named, so nothing is pushed")


def _simpo(draft: Draft, named: Entries, kind: Entry | None) -> None:
    """Import SimPO as the method cpo with `loss = simpo`, its margin, and the weight of the likelihood term."""
    if kind is not None and kind.value == "simpo":
        draft.put("method.loss", (Weighted("simpo"),), kind)
        draft.default("method.likelihood", 1.0, "not set: TRL's default")
    for key, path in (("simpo_gamma", "method.margin"), ("cpo_alpha", "method.likelihood")):
        one = named.get(key)
        if is_stated(one) and draft.method == "cpo":
            draft.setting(path, one)
        else:
            draft.note(one, f"{draft.method} does not read it")


def _generation(draft: Draft, block: Entries) -> Entries:
    """Return the keys of GRPO's block `trl`. The host and the port of the block `vllm` are added as `vllm_server_host`
    and `vllm_server_port`, unless the block `trl` states them.
    """
    inside = block.get("vllm")
    if inside is None:
        return block
    read = {f"vllm_server_{key}": one for key, one in inside.mapping.items() if key in ("host", "port")}
    for key, one in inside.mapping.items():
        if key not in ("host", "port"):
            draft.note(one, "axolotl reads only the host and the port of this block")
        elif f"vllm_server_{key}" in block:
            draft.note(one, f"`vllm_server_{key}` decides")
    if not inside.mapping:
        draft.note(inside, "it names no server")
    return {**read, **{key: one for key, one in block.items() if key != "vllm"}}


def _packing(draft: Draft, named: Entries) -> None:
    """Set the packing of training rows and of evaluation rows, and how the loss is normalized."""
    packed, again = named.get("sample_packing"), named.get("eval_sample_packing")
    on = boolean(packed) is True
    if packed is not None and draft.method == "sft":
        draft.put("batch.packing", on, packed)
    elif packed is not None:
        draft.note(packed, f"{draft.method} packs nothing")
    if again is not None and on and draft.method == "sft" and not again.empty:
        draft.setting("batch.packing.eval", again)
        if again.off:
            draft.extra.setdefault("trl", {}).setdefault("dataloader_drop_last", "true")
            draft.mark(again, "mapped", "extra trl { dataloader_drop_last = true }")
    elif again is not None:
        draft.note(again, "nothing is packed")
    elif on and draft.method == "sft":
        draft.default("batch.packing.eval", True, "not set: axolotl packs evaluation rows like training rows")
    if not on and draft.method == "sft":
        draft.default("batch.packing", False, "not set: axolotl's default")
    apart = named.get("pretrain_multipack_attn")
    if apart is not None and (named.get("pretraining_dataset") is None or not on):
        draft.note(apart, "axolotl reads it only for packed rows of a `pretraining_dataset`")
    elif apart is not None:
        draft.note(apart, "packed documents do not attend to each other")
        if apart.off:
            why = "axolotl lets packed documents attend to each other; the spec does not"
            draft.differs("pretrain_multipack_attn", why, apart)
    draft.default("batch.mean", "local_tokens", "axolotl averages the loss over the tokens of each process")


def _defaults(draft: Draft, named: Entries) -> None:
    why = "not set: axolotl's default"
    if not draft.has("train.steps"):
        draft.default("train.epochs", 1.0, why)
    for path, value in (("batch.seq", 512), ("batch.micro", 1), ("optimizer", "adamw_fused"), ("schedule", "cosine"),
                        ("save.keep", 4), ("optimizer.lr", 5e-5)):  # fmt: skip
        draft.default(path, value, why)
    draft.default("batch.accum", 1, why)
    if not draft.has("track.every"):
        draft.default("track.every", Amount("share", 0.005), why)
        draft.differs(
            "logging_steps",
            "without a number axolotl logs every half percent of the run and at least every 10 steps; the spec logs "
            "every half percent",
        )
    draft.default("eval.micro", int(draft.settings["batch.micro"].text), "not set: as in training")
    axolotl_intervals.warmup(draft, named)
    floor = named.get("cosine_min_lr_ratio")
    if number(floor) is not None and 0 <= (number(floor) or 0) < 1:
        draft.put("schedule.min_lr", Amount("share", number(floor) or 0), floor)
    elif floor is not None and floor.empty:
        draft.note(floor, "null: none")
    elif floor is not None and number(floor) == 1:
        draft.settings.pop("schedule", None)
        draft.put("schedule", "constant", floor, "a cosine that never falls")
    elif floor is not None:
        draft.error(floor, "the value must be from 0 to 1: the lowest learning rate as a share of the peak")
    square = named.get("lr_quadratic_warmup")
    if is_on(square) and draft.value("schedule") == "cosine":
        why = "during warm-up, axolotl's learning rate rises quadratically; the spec's rises linearly"
        draft.drop("lr_quadratic_warmup", why, square)
    elif square is not None:
        draft.note(
            square, "it is off" if square.off else "axolotl reads `lr_quadratic_warmup` only for a cosine schedule"
        )
    auto = named.get("auto_resume_from_checkpoints")
    if auto is not None:
        draft.put("save.resume", "auto" if boolean(auto) else "never", auto)
    names = words(named["plugins"]) if "plugins" in named else None
    if names is not None:
        axolotl_keys.plugins(draft, named["plugins"], names)
