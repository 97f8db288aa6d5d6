"""Write TRL's defaults to the spec for keys that a TRL configuration omits, if xpc has other defaults."""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.outcomes import EXTRA, MAPPED, KeyOutcome
from xpc.compiler.importing.overrides import number
from xpc.compiler.importing.text.values import RENAMES, optimizers
from xpc.compiler.importing.trl import versions
from xpc.compiler.language import extras
from xpc.compiler.language.kinds import Amount, Weighted
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import TABLE
from xpc.compiler.language.typed import plain as typed
from xpc.compiler.resolve.derive_method import ROOM_AFTER_PROMPT
from xpc.compiler.stacks import Json, Stack

APART = ("method.rewards", "method.steps_per_generation", "method.vllm", "method.sync_reference", "method.vllm.port",
         "method.vllm.timeout", "method.log_completions")  # fmt: skip
"""Settings that a spec omits if they have their default, which has no effect or follows from another setting."""
REPORTING = (
    "include_num_input_tokens_seen",
    "logging_nan_inf_filter",
    "log_unique_prompts",
    "num_completions_to_print",
    "f_alpha_divergence_coef",
)
"""Arguments without an effect on training. Most affect only logging; `f_alpha_divergence_coef` is read only for one
kind of divergence.
"""


OF_ITS_TIME = (
    "`average_tokens_across_devices` is not set: as in trl 0.18, the loss is a mean over the tokens of each process; "
    "in trl 0.19, which has the same keys, it is a mean over the tokens of all processes"
)
"""The warning about the unclear default of `average_tokens_across_devices`. SFT files of the alignment handbook (trl
0.19.1, default True) and of Open-R1 (trl 0.18.0 with transformers 4.52.3, default False) have the same keys, so a file
does not show to which release it belongs.
"""

TRANSFORMERS: dict[str, Json] = {
    "learning_rate": 5e-5, "bf16": False, "logging_steps": 500,
    "gradient_checkpointing": False, "activation_checkpointing": False,
}  # fmt: skip
"""Defaults of transformers' TrainingArguments that differ from the defaults of TRL's configuration classes. They also
hold for a TRL trainer whose `args` are TrainingArguments, because it copies all their values to its own class.
"""


def stated(draft: Draft, native: Stack) -> dict[str, Json]:
    """The defaults of all arguments in the TRL version for which the file was written: those of the nearest stack,
    `native`, except where this version has other defaults.
    """
    out = native.base_arguments(native.config(draft.method))
    out["bf16"] = native.fields(native.config(draft.method))["bf16"].effective is True
    if draft.trl not in ("", number(native)):
        _of_version(out, draft)
    return {**out, **(TRANSFORMERS if draft.transformers else {})}


def _of_version(out: dict[str, Json], draft: Draft) -> None:
    """Replace the defaults in `out`, which are those of a stack, by the defaults of the TRL version in `draft.trl`."""
    for name in versions.table()[draft.method]:
        old = "max_seq_length" if name == "max_length" else name
        value = versions.default(draft.method, name, draft.trl)
        if value is None and draft.method == "sft" and old != name:
            value = versions.default(draft.method, old, draft.trl)
        if value is not None and not isinstance(value, dict) and not str(value).startswith("<"):
            out[name] = value  # type: ignore[assignment]
    for name in versions.MATTERS:
        value = versions.default(draft.method, name, draft.trl)
        if name not in versions.table()[draft.method] and name in out and value is not None:
            out[name] = value  # type: ignore[assignment]


def origin(draft: Draft, native: Stack) -> str:
    """The version of TRL whose defaults the spec states, as a text for reasons and messages: `trl 0.22`."""
    return f"trl {draft.trl}" if draft.trl not in ("", number(native)) else native.name


def packing(draft: Draft, trl: str) -> None:
    """Set packing to `wrapped` if the version of TRL (`trl`) is older than 0.19. Such versions join all texts into one
    stream of tokens and cut it into rows, so that documents attend to each other.
    """
    if "packing_strategy" not in draft.stack.fields("trl.SFTConfig"):
        return
    if versions.numbers().index(trl) < versions.numbers().index("0.19"):
        draft.default(
            "batch.packing.strategy", "wrapped", f"not set: trl {trl} joins all texts and cuts them into rows"
        )


def native_defaults(draft: Draft, native: Stack) -> None:
    """Add TRL's defaults to the spec, for settings that no key of the file sets and for which the file's version of TRL
    and xpc have different defaults. `native` is the stack nearest to this version.
    """
    table = stated(draft, native)
    why = f"not set: the default of {origin(draft, native)}"

    def usual(name: str) -> Json:
        return table.get(RENAMES.get(name, name), table.get(name))

    def reason(name: str) -> str:
        own = draft.transformers and name in TRANSFORMERS
        return "not set: the default of TrainingArguments" if own else why

    if not draft.has("train.steps"):
        draft.default("train.epochs", 3.0, why)
    for path, name in (("batch.micro", "per_device_train_batch_size"), ("batch.accum", "gradient_accumulation_steps"),
                       ("optimizer.lr", "learning_rate"), ("batch.seq", "max_length")):  # fmt: skip
        value = usual(name)
        if isinstance(value, int | float):
            draft.default(path, value, reason(name))
    for path, name in (("save.every", "save_steps"), ("track.every", "logging_steps")):
        value = usual(name)
        if isinstance(value, int | float):
            draft.default(path, Amount("count", int(value)), reason(name))
    if not METHODS[draft.method].grouped:
        draft.default("eval.micro", 8, why)
    draft.default("memory.checkpointing", usual("gradient_checkpointing") is True, reason("gradient_checkpointing"))
    if native.facts.reentrant_by_default and draft.value("memory.checkpointing") == "true":
        draft.default("memory.checkpointing.reentrant", True, "not set: transformers 4 uses reentrant checkpointing")
    if not draft.has("track"):
        reports = "not set: transformers 4 reports to every installed tracker, transformers 5 to none"
        draft.defaults.append(KeyOutcome("", "", "", 0, MAPPED, "track = none", reports))
    optimizer = optimizers().get(str(usual("optim")))
    if optimizer is not None:
        draft.default("optimizer", optimizer, why)
    undated = draft.method == "sft" and len(draft.fitting) != 1
    if undated and not usual("average_tokens_across_devices") and not draft.has("batch.mean"):
        draft.warn(None, OF_ITS_TIME, "`average_tokens_across_devices: true` is trl 0.19's default")
    draft.default("batch.mean", "global_tokens" if usual("average_tokens_across_devices") else "local_tokens", why)
    prompt, seq = usual("max_prompt_length"), draft.value("batch.seq")
    most = int(seq) if draft.method in ROOM_AFTER_PROMPT and seq.isdecimal() else None
    if most is not None and isinstance(prompt, int) and prompt >= most and not draft.has("method.max_prompt"):
        draft.differs("max_prompt_length", f"not set: the default of {prompt} tokens leaves no room for an answer in "
                      "a row that is too long; the spec's prompts have at most half of `max_length`")  # fmt: skip
    if native.name != draft.stack.name or draft.trl not in ("", number(native)):
        _method(draft, native, table, why)
        _others(draft, native, table, why)


def _method(draft: Draft, native: Stack, stated: dict[str, Json], why: str) -> None:
    """For each method setting whose default differs between the file's version of TRL and the target stack, write the
    default of the file's version to the spec.
    """
    here = draft.stack.base_arguments(draft.stack.config(draft.method))
    for row in TABLE:
        block = row.path.rpartition(".")[0]
        if draft.method not in row.methods or not row.path.startswith("method.") or row.path in APART:
            continue
        if not row.args:
            continue  # the bundle's runtime reads this setting, and TRL has no default for it
        name = row.args[0]
        if row.path == "method.level" and name not in draft.stack.fields(draft.stack.config(draft.method)):
            # `level` decides whether the importance ratio is per token or per sequence; a stack without this choice
            # always uses a ratio per token, which is the default of the other stacks
            continue
        if name not in stated or stated[name] == here.get(name) or (block != "method" and not draft.has(block)):
            continue
        value = _value(draft, native, row.path, stated[name])
        if value is not None and value != _value(draft, draft.stack, row.path, here.get(name)):
            draft.default(row.path, value, why)


def _others(draft: Draft, native: Stack, stated: dict[str, Json], why: str) -> None:
    """For each argument without a setting whose default differs between the file's version of TRL and the target stack,
    write the default of the file's version to `extra`.
    """
    here = draft.stack.base_arguments(draft.stack.config(draft.method))
    known = native.fields(native.config(draft.method))
    facts = registry.find_model(draft.model)
    dense = facts is not None and not facts.experts
    for name in sorted(extras.legal_names(draft.stack, "trl", draft.method) & set(stated)):
        value = stated[name]
        plain = isinstance(value, bool | int | float | str) and not (name in known and known[name].machine)
        if name in REPORTING or not plain or value == here.get(name) or name in draft.extra.get("trl", {}):
            continue
        if dense and versions.NEEDS.get(name) == "experts":
            continue
        if extras.wrong_value(draft.stack, "trl", name, value, draft.method) is None:
            draft.extra.setdefault("trl", {})[name] = typed(value)
            draft.defaults.append(KeyOutcome("", "", "", 0, EXTRA, f"extra trl {{ {name} = {typed(value)} }}", why))


def _value(draft: Draft, stack: Stack, path: str, value: Json) -> object:
    if path == "method.loss":
        losses = {theirs: ours for ours, theirs in stack.losses(draft.method).items()}
        names = [str(one) for one in (value if isinstance(value, list) else [value])]
        known = [losses.get(name) for name in names]
        return None if None in known or not known else tuple(Weighted(str(name)) for name in known)
    if path == "method.scale_rewards" and isinstance(value, bool):
        return "group" if value else "none"
    if path == "method.vllm.gpu_memory" and isinstance(value, float):
        return Amount("share", value)
    return value if isinstance(value, bool | int | float | str) else None
