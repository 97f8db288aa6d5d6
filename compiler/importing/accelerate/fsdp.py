"""Import FSDP: accelerate's `fsdp_config` and `parallelism_config`, and transformers' `fsdp` and `fsdp_config`."""

from __future__ import annotations

from xpc.compiler.importing.draft import NULL, Draft
from xpc.compiler.importing.keys import is_usual, load
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, integer, is_on, is_stated, text, words
from xpc.compiler.language.extras import ONLY_FSDP1
from xpc.compiler.stacks import able

KEYS = load("accelerate/keys.toml")
SHARDING = {
    "FULL_SHARD": ("fsdp1", True), "SHARD_GRAD_OP": ("fsdp1", False), "NO_SHARD": ("ddp", None),
    "HYBRID_SHARD": ("hsdp", True), "HYBRID_SHARD_ZERO2": ("hsdp", False),
}  # fmt: skip
CODES = {"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD", "4": "HYBRID_SHARD", "5": "HYBRID_SHARD_ZERO2"}


def fsdp(draft: Draft, block: Entry | None) -> None:
    """Import `fsdp_config`. Its keys may lack the prefix `fsdp_`. If the file does not state `fsdp_version`, the run
    uses FSDP1.
    """
    table: dict[str, Entry] = {}
    for key, one in ({} if block is None else block.mapping).items():
        table[key if key.startswith("fsdp_") else f"fsdp_{key}"] = one
    version, sharding = table.get("fsdp_version"), table.get("fsdp_sharding_strategy")
    reshard = table.get("fsdp_reshard_after_forward")
    second = version is not None and integer(version) == 2
    hybrid = draft.value("strategy") == "hsdp"
    if version is not None and integer(version) not in (1, 2):
        draft.error(version, "FSDP has versions 1 and 2")
    word = "" if sharding is None else str(text(sharding)).upper()
    word = CODES.get(word, word)
    if reshard is not None and boolean(reshard) is None and str(reshard.value).upper() in SHARDING:
        sharding, word, reshard = reshard, str(reshard.value).upper(), None
    name, kept = SHARDING.get(word, ("fsdp1", None))
    if is_stated(sharding) and word not in SHARDING:
        draft.error(sharding, "FSDP has the strategies FULL_SHARD, SHARD_GRAD_OP, NO_SHARD and HYBRID_SHARD")
    name = "fsdp" if second and name == "fsdp1" else name
    if name == "fsdp" and not draft.stack.facts.fsdp2 and version is not None:
        other = able(lambda one: one.facts.fsdp2)
        draft.error(version, f"{draft.stack.name} has no FSDP2", f"write `--target {other}`")
    if not hybrid:
        for entry in (sharding, version):
            if is_stated(entry):
                draft.put("strategy", name, entry)
        draft.default("strategy", name, "not set: accelerate's FSDP")
    else:
        for entry in (sharding, version):
            draft.note(entry, "the device mesh decides")
    if kept is False and sharding is not None:
        draft.put("strategy.reshard", False, sharding)
    if reshard is not None and second:
        draft.setting("strategy.reshard", reshard)
    elif reshard is not None:
        draft.note(reshard, "FSDP1 does not read it")
    _fsdp_rest(draft, table)


def _fsdp_rest(draft: Draft, table: Entries) -> None:
    state, params, again = (
        table.get(f"fsdp_{name}") for name in ("state_dict_type", "offload_params", "activation_checkpointing")
    )
    if state is not None:
        form = {"FULL_STATE_DICT": "full", "SHARDED_STATE_DICT": "sharded"}.get(str(state.value).upper())
        if form is None:
            draft.error(state, "checkpoints are full or sharded", "write `FULL_STATE_DICT` or `SHARDED_STATE_DICT`")
        else:
            draft.put("strategy.state_dict", form, state)
    if params is not None:
        if boolean(params):
            draft.put("strategy.offload", "cpu", params)
        else:
            draft.note(params, "nothing is offloaded")
    if boolean(again):
        if draft.value("memory.checkpointing") == "false":
            # transformers refuses both keys together, so a file that checkpoints by FSDP turns off the trainer's
            # `gradient_checkpointing`
            draft.note(draft.take("memory.checkpointing"), "FSDP recomputes the activations, not the trainer")
        draft.put("memory.checkpointing", True, again, "one setting turns on recomputation, by FSDP or the trainer")
    elif again is not None:
        draft.note(again, "`gradient_checkpointing` decides")
    second = draft.stack.facts.fsdp2 and draft.value("strategy") in ("fsdp", "hsdp")
    for key, one in table.items():
        if draft.handled(one):
            continue
        row = KEYS.get(f"fsdp_config.{key}")
        if one.empty:
            draft.note(one, NULL)
        elif row is not None and (row.usual is None or is_usual(row, one)):
            draft.note(one, row.irrelevant)
        elif second and key in (*ONLY_FSDP1, "fsdp_forward_prefetch"):
            draft.note(one, "FSDP2 does not read it")
        elif not draft.keep_in_extra("accelerate", key, one):
            draft.error(one, f"FSDP in {draft.stack.name} has no such key, or a bundle sets the key itself")


def mesh(draft: Draft, block: Entry | None) -> None:
    """Import `parallelism_config` of an FSDP run. Hybrid sharding and context parallelism become settings; tensor
    parallelism is an error.
    """
    table = {
        key.removeprefix("parallelism_config_"): one for key, one in ({} if block is None else block.mapping).items()
    }
    replicate, shard, context = (table.get(name) for name in ("dp_replicate_size", "dp_shard_size", "cp_size"))
    parallel = integer(context)
    if context is not None and parallel and parallel > 1:
        draft.put("strategy.context_parallel", parallel, context)
    if replicate is not None and (integer(replicate) or 0) > 1:
        draft.put("strategy", "hsdp", replicate)
        if shard is not None and integer(shard):
            draft.put("strategy.shard", (integer(shard) or 1) * (parallel or 1), shard)
    for key, one in table.items():
        if draft.handled(one):
            continue
        if key in ("dp_replicate_size", "dp_shard_size", "cp_size", "tp_size", "sp_size") and (
            integer(one) in (0, 1, None) or key == "dp_shard_size"
        ):
            draft.note(one, "a bundle derives the size of this group from the strategy and the number of processes")
        elif key.startswith(("cp_", "sp_")) and key not in ("sp_size",):
            draft.note(one, "a bundle sets this value itself")
        else:
            draft.error(one, "xpc has no tensor parallelism, and Ulysses parallelism only under ZeRO")


def _sharding(draft: Draft, entry: Entry) -> tuple[str, bool | None] | None:
    """The row of SHARDING for the strategy in `fsdp`, such as `full_shard`. Reports an error and returns None if `fsdp`
    names two strategies or contains an unknown word.
    """
    terms = ["full_shard"] if boolean(entry) else [one.lower() for one in words(entry) or []]
    old = [one for one in terms if one.upper() in SHARDING]
    if "offload" in terms:
        draft.put("strategy.offload", "cpu", entry)
    unexpected = [one for one in terms if one not in (*old, "auto_wrap", "offload")] or old[1:]
    if unexpected:
        legal = "the value may contain one sharding strategy, `auto_wrap` and `offload`"
        draft.error(entry, f"{legal}, but not `{unexpected[0]}`")
        return None
    return SHARDING[(old or ["full_shard"])[0].upper()]


def trainer_fsdp(draft: Draft, named: Entries) -> None:
    """Import transformers' arguments `fsdp`, such as "full_shard auto_wrap", and `fsdp_config`."""
    entry, config = named.get("fsdp"), named.get("fsdp_config")
    wrap, least = named.get("fsdp_transformer_layer_cls_to_wrap"), named.get("fsdp_min_num_params")
    if not is_on(entry):
        for one in (entry, config, wrap, least):
            if one is not None:
                for part in one.mapping.values() or [one]:
                    draft.note(part, "`fsdp` is not on")
        return
    sharding = _sharding(draft, entry)
    if sharding is None:
        return
    name, kept = sharding
    inner, outer = {} if config is None else config.mapping, named.get("fsdp_version")
    version = inner.get("version", inner.get("fsdp_version")) or outer
    if name == "fsdp1" and version is not None and integer(version) == 2:
        name = "fsdp"
    if draft.value("strategy") == "hsdp":
        name = "hsdp"  # keep the hybrid sharding that `parallelism_config` states
    draft.put("strategy", name, entry)
    if outer is not None:
        draft.put("strategy", name, outer)
    if kept is False:
        draft.put("strategy.reshard", False, entry)
    draft.note(wrap, "the model's class names the layers to wrap")
    draft.note(least, "a bundle always wraps the layers by their class")
    if config is not None and inner:
        if outer is not None and not any(key.endswith("version") for key in inner):
            config = Entry(config.key, {**inner, "fsdp_version": outer}, config.file, config.line)
        fsdp(draft, config)
    elif is_stated(config):
        draft.error(config, "write the mapping itself, not the name of a file")
