"""Import trainer settings that depend on several keys: saving, evaluation, packing, activation checkpointing, hub."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler import registry
from xpc.compiler.importing.draft import NULL, Draft
from xpc.compiler.importing.outcomes import MAPPED, KeyOutcome
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, is_on, is_stated, number, text, words
from xpc.compiler.importing.text.values import ATTENTION, DTYPES, OTHER_TRACKERS, TRACKERS
from xpc.compiler.importing.trl import versions
from xpc.compiler.language import extras
from xpc.compiler.language.kinds import EPOCH, NEVER, Amount
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import BY_PATH


def every(entry: Entry | None, steps: Entry | None, usual: Amount, draft: Draft, path: str) -> None:
    """Set an interval such as `save.every` from `*_strategy` and `*_steps`. `usual` is the default number of steps."""
    name = "steps" if not is_stated(entry) else "no" if boolean(entry) is False else str(entry.value)
    if entry is not None and name in ("no", "epoch"):
        why = "YAML 1.1 reads a bare `no` as false" if entry.value is False else ""
        draft.put(path, NEVER if name == "no" else EPOCH, entry, why)
    elif name == "steps":
        value = _amount(steps) if is_stated(steps) else usual
        if value is None:
            draft.error(steps, "the value must be a number of steps, or a share below 1")
            return
        for one in filter(is_stated, (entry, steps)):
            draft.put(path, value, one)
    else:
        draft.error(entry, "xpc supports intervals of steps or epochs, and `never`", "write `steps`, `epoch` or `no`")
    if steps is not None and (name in ("no", "epoch") or steps.empty):
        draft.note(steps, "the strategy decides" if not steps.empty else NULL)


def _amount(entry: Entry) -> Amount | None:
    value = number(entry)
    if value is not None and value <= 0 and entry.key == "save_steps":
        return NEVER  # transformers saves only every `save_steps` > 0 steps
    if value is None or value <= 0:
        return None
    if value < 1:
        return Amount("share", value)
    return Amount("count", int(value)) if value == int(value) else None


def _default(draft: Draft, name: str) -> object:
    return versions.default(draft.method, name, draft.trl) if draft.trl and not draft.transformers else None


def intervals(draft: Draft, named: Entries) -> None:
    """Set how often the run saves, logs and evaluates."""
    saving, saved = named.get("save_strategy"), named.get("save_steps")
    often, steps = named.get("eval_strategy"), named.get("eval_steps")
    if saving is not None and saving.value == "best" and is_on(often) and often.value != "no":
        every(often, steps, Amount("count", 500), draft, "save.every")
        draft.mark(saving, MAPPED, "save.every")
        draft.note(saved, "the evaluations decide")
        draft.differs(
            "save_strategy", "the source saves only after an improvement; the spec after each evaluation", saving
        )
    elif saving is not None or saved is not None:
        every(saving, saved, Amount("count", 500), draft, "save.every")
    logging, logged = named.get("logging_strategy"), named.get("logging_steps")
    usual = Amount("count", int(str(_default(draft, "logging_steps") or 500)))
    if logging is not None or logged is not None:
        every(logging, logged, usual, draft, "track.every")
    evaluates = named.get("do_eval")
    if is_stated(often):
        shared = _amount(logged) if is_stated(logged) else None
        every(often, steps, shared or usual, draft, "eval.every")  # without `eval_steps`, `logging_steps` counts
    elif steps is not None:
        draft.note(steps, "nothing is evaluated: `eval_strategy` is not set")
    if boolean(evaluates) and draft.value("eval.every") in ("", "never"):
        draft.note(evaluates, "this key evaluates only after the run; nothing is evaluated during the run")
        draft.warn(evaluates, "the evaluation after the run is dropped: a bundle evaluates only during training")
    else:
        draft.note(evaluates, "`eval_strategy` decides whether anything is evaluated")


def patience(draft: Draft, entry: Entry | None) -> None:
    """Set the patience of early stopping: the run stops after this many evaluations without an improvement. An error if
    the run does not evaluate.
    """
    if draft.on(entry) is None:
        return
    if draft.value("eval.every") in ("", "never"):
        draft.error(entry, "nothing is evaluated, so early stopping has no effect")
    else:
        draft.setting("eval.patience", entry)


def trackers(draft: Draft, named: Entries) -> None:
    """Set the trackers that `report_to` names."""
    entry = named.get("report_to")
    if entry is None:
        return
    names = words(entry) or []
    if entry.value is None:
        why = "transformers 4 reports to every installed tracker, transformers 5 to none"
        draft.put("track", ("none",), entry, f"null: {why}")
        draft.warn(entry, f"{why}; the spec has none", "name the tracker, or `none`")
    elif entry.empty or names == ["none"]:
        draft.put("track", ("none",), entry)
    elif names == ["all"]:
        draft.put("track", ("none",), entry, "`all` depends on the installed trackers")
        draft.warn(entry, "`all` depends on what is installed, but a bundle names its trackers: the spec has none")
    elif set(names) <= set(TRACKERS):
        draft.put("track", tuple(names), entry)
    elif set(names) <= {*TRACKERS, *OTHER_TRACKERS}:
        known = tuple(one for one in names if one in TRACKERS)
        draft.put("track", known or ("none",), entry)
        why = f"the source reports to {', '.join(names)}, and xpc supports the trackers {', '.join(TRACKERS)}: the "
        draft.differs("report_to", f"{why}metrics file of a run has all its metrics anyway", entry)
    else:
        draft.error(entry, "xpc supports the trackers " + ", ".join(TRACKERS), "name one of them, or `none`")


TRACKER_NAMES = {
    "wandb_project": ("wandb", "track.project"), "mlflow_experiment_name": ("mlflow", "track.project"),
    "swanlab_project": ("swanlab", "track.project"), "clearml_project": ("clearml", "track.project"),
    "clearml_task": ("clearml", "track.name"),
}  # fmt: skip
"""Maps a key that states the project or the run name of a tracker to the tracker and the setting; also for environment
variables of these names.
"""


def tracker_names(draft: Draft, named: Entries) -> None:
    """Set the project and the run name of the trackers that `report_to` names."""
    entry = named.get("report_to")
    reported = words(entry) or []
    for key, (tracker, path) in TRACKER_NAMES.items():
        one = named.get(key)
        if one is not None and tracker != "wandb" and tracker not in reported:
            draft.note(one, f"the run does not report to {tracker}")
        else:
            draft.setting(path, one, weak=tracker != "wandb")


def checkpointing(draft: Draft, named: Entries) -> None:
    """Set activation checkpointing from `gradient_checkpointing` and `gradient_checkpointing_kwargs`."""
    entry, kwargs = named.get("activation_checkpointing"), named.get("activation_checkpointing_kwargs")
    draft.setting("memory.checkpointing", entry)
    stated = draft.value("memory.checkpointing")
    off = stated == "false" if stated else bool(draft.trl) and not _default(draft, "gradient_checkpointing")
    if kwargs is None:
        return
    inside = kwargs.mapping.get("use_reentrant")
    for name, one in kwargs.mapping.items():
        if name != "use_reentrant":
            draft.error(one, "a spec can set only `use_reentrant` of these arguments")
    if kwargs.empty or off:
        for key in (kwargs, inside):
            draft.note(key, "checkpointing is off" if off else NULL)
    elif inside is not None:
        draft.setting("memory.checkpointing.reentrant", inside)
        draft.default("memory.checkpointing", True, "it has settings")
    elif not kwargs.mapping:
        draft.error(kwargs, "the value must be a mapping such as {use_reentrant: false}")


ACCELERATOR: Mapping[str, tuple[object, ...]] = {
    "split_batches": (False,), "dispatch_batches": (None, False), "even_batches": (True,),
    "use_seedable_sampler": (True,), "gradient_accumulation_kwargs": (None,), "use_configured_state": (None, False),
    "non_blocking": (None, False, True),
}  # fmt: skip
"""Maps each key of `accelerator_config` to its irrelevant values: accelerate's default, which every bundle uses; for
`non_blocking`, which only affects how batches are copied to the GPU, all values. Source: transformers'
AcceleratorConfig.
"""


def accelerator(draft: Draft, named: Entries) -> None:
    """Import `accelerator_config`. A value that every bundle uses is irrelevant; any other value is an error."""
    entry = named.get("accelerator_config")
    if not is_stated(entry):
        return
    for name, one in entry.mapping.items():
        if name in ACCELERATOR and one.value in ACCELERATOR[name]:
            draft.note(one, "a bundle does the same")
        else:
            draft.error(one, "a bundle does not change how accelerate forms batches", "leave it out")
    if entry.mapping:
        draft.note(entry, "each of its keys is imported separately")
    else:
        draft.error(entry, "the value must be a mapping such as {split_batches: false}")


def packing(draft: Draft, named: Entries) -> None:
    """Set the packing of training rows and evaluation rows, and the packing strategy."""
    entry, strategy, again = named.get("packing"), named.get("packing_strategy"), named.get("eval_packing")
    on = boolean(entry) is True
    if draft.method == "sft":
        draft.setting("batch.packing", entry)
    elif on:
        draft.error(entry, "only sft packs rows")
    else:
        draft.note(entry, f"it is off, and {draft.method} has no such setting")
    if strategy is not None:
        name = {"bfd-requeue": "bfd_split", "fixed": "wrapped", "bfd_requeue": "bfd_split"}.get(
            str(strategy.value), str(strategy.value)
        )
        if not on:
            draft.note(strategy, "nothing is packed")
        elif name not in BY_PATH["batch.packing.strategy"].choices:
            why = "no version of TRL that xpc supports has this packing strategy"
            draft.error(strategy, why, "write `bfd`, `bfd_split` or `wrapped`")
        elif name == "ffd" and name not in draft.stack.packing:
            draft.put("batch.packing.strategy", "bfd", strategy, "no version of TRL packs by `ffd`; bfd is the default")
            why = "no version of TRL packs by `ffd` (its trainer fails): the spec has bfd, the default"
            draft.warn(strategy, why)
        else:
            draft.put("batch.packing.strategy", name, strategy)
    if on:
        draft.setting("batch.packing.eval", again)
    else:
        draft.note(again, "nothing is packed")


def switches(draft: Draft, named: Entries) -> None:
    """Import two kinds of keys: flags that mean the opposite of a setting, such as `save_only_model` (`full_state =
    false`), and keys whose values have other names in xpc, such as `attn_implementation`.
    """
    only, resume = named.get("save_only_model"), named.get("resume_from_checkpoint")
    if boolean(only) is not None:
        draft.put("save.full_state", not boolean(only), only)
    elif is_stated(only):
        draft.error(only, "the value must be true or false")
    if resume is not None:
        _resume(draft, resume)
    mean = named.get("average_tokens_across_devices")
    if boolean(mean) is not None:
        draft.put("batch.mean", "global_tokens" if boolean(mean) else "local_tokens", mean)
    order = named.get("shuffle_dataset")
    if is_stated(order) and METHODS[draft.method].grouped:
        draft.setting("data.shuffle", order)
    else:
        draft.note(order, "`data.shuffle` shuffles the rows before training")
    if "group_by_length" in named:
        _grouped(draft, named["group_by_length"])
    older, attention = draft.on(named.get("use_flash_attention_2")), named.get("attn_implementation")
    if older is not None and is_stated(attention):
        draft.note(older, "`attn_implementation` decides")
    elif older is not None:  # `use_flash_attention_2` is a key of older files of the alignment handbook
        draft.put("model.attn", "flash2", older)
    for entry, read in ((attention, _attention), (named.get("dtype"), _dtype)):
        if entry is not None:
            read(draft, entry)


def _resume(draft: Draft, entry: Entry) -> None:
    """Import `resume_from_checkpoint`. A spec cannot name a checkpoint in another folder."""
    if boolean(entry):
        why = "the run resumes from the newest checkpoint of the output folder"
        draft.put("save.resume", "auto", entry, why)
    elif entry.empty or boolean(entry) is False:
        draft.note(entry, "no checkpoint is named; a bundle resumes from its own checkpoints")
    else:
        why = "the source resumes from this checkpoint; a run of the spec starts over, unless its own folder "
        draft.drop("resume_from_checkpoint", f"{why}has a checkpoint", entry)


def _grouped(draft: Draft, entry: Entry) -> None:
    """Import `group_by_length`, or `train_sampling_strategy`, which is its name in newer versions of transformers."""
    if entry.off:
        draft.note(entry, "it is off")
    elif draft.keep_in_extra("trl", "group_by_length", entry):
        pass
    elif "train_sampling_strategy" in draft.stack.fields(draft.stack.config(draft.method)):
        draft.extra.setdefault("trl", {})["train_sampling_strategy"] = '"group_by_length"'
        draft.mark(entry, "extra", 'extra trl { train_sampling_strategy = "group_by_length" }')


def _attention(draft: Draft, entry: Entry) -> None:
    name = ATTENTION.get(str(entry.value))
    if entry.empty:
        draft.note(entry, NULL)
    elif name is None:
        known = "write flash_attention_2, sdpa, eager or flex_attention"
        draft.error(entry, "xpc has no such attention", known)
    else:
        kernel = "" if "/" not in str(entry.value) else "a kernel of the hub is another build of the same algorithm"
        draft.put("model.attn", name, entry, kernel)


def _dtype(draft: Draft, entry: Entry) -> None:
    value = text(entry)
    if value is None:
        draft.put("model.dtype", "fp32", entry, "transformers 4 loads in fp32 by default")
    elif value == "auto":
        draft.mark(entry, MAPPED, "model.dtype", "the dtype of the checkpoint")
        draft.put("model.dtype", "bf16", entry, "`auto` is the dtype of the checkpoint, nearly always bf16")
        draft.warn(entry, "`auto` is the dtype of the checkpoint, which is unknown here: the spec has bf16")
    elif value.removeprefix("torch.") in DTYPES:
        draft.put("model.dtype", DTYPES[value.removeprefix("torch.")], entry)
    else:
        draft.error(entry, "xpc loads weights in fp32, bf16 or fp16")


def hub(draft: Draft, named: Entries) -> None:
    """Set what the run pushes to the hub, and the repository, whose default name is that of the output folder."""
    push = named.get("push_to_hub")
    inside = {
        "hub_model_id": "save.hub.name", "hub_strategy": "save.hub.strategy", "hub_private_repo": "save.hub.private",
        "hub_revision": "save.hub.revision",
    }  # fmt: skip
    if not is_on(push):
        for one in (push, *map(named.get, (*inside, "hub_always_push", "push_to_hub_organization"))):
            draft.note(one, "nothing is pushed: `push_to_hub` is not on")
        return
    draft.put("save.hub", True, push)
    owner, name = named.get("push_to_hub_organization"), named.get("hub_model_id", named.get("output_dir"))
    if owner is not None and name is not None and not owner.empty:
        draft.put("save.hub.name", f"{text(owner)}/{(text(name) or '').rstrip('/').rpartition('/')[2]}", owner)
        draft.note(named.get("hub_model_id"), "the organization in `push_to_hub_organization` precedes this name")
    for key, path in inside.items():
        one = named.get(key)
        if owner and path.endswith("name"):
            continue
        if path == "save.hub.strategy" and is_stated(one) and one.value not in BY_PATH[path].choices:
            draft.error(one, "the value must be " + ", ".join(BY_PATH[path].choices))
        else:
            draft.setting(path, one)


def precision(draft: Draft, why: str) -> None:
    """Set the precision if the file states neither bf16 nor fp16. It follows from the dtype of the weights:
    transformers computes with bf16 or fp16 weights in this dtype, even without mixed precision.
    """
    dtype = draft.value("model.dtype")
    if dtype in ("", "fp32") or draft.value("precision") not in ("", "fp32"):
        draft.default("precision", "fp32", why)
        return
    stated = draft.take("precision")
    if stated is not None:
        draft.warn(stated, f"weights in {dtype} compute in {dtype} anyway, also in the spec")
        draft.mark(stated, MAPPED, f"precision = {dtype}")
    draft.put("precision", dtype, None, "the computation has the dtype of the weights")


def follow(draft: Draft) -> None:
    """With packing and without flash attention, set `packing.isolate` to `mask`, so that an attention mask separates
    the documents.
    """
    apart = stream(draft) or draft.value("model.attn") in ("flash2", "flash3") or draft.has("batch.packing.isolate")
    if draft.value("batch.packing") != "true" or apart:
        return
    draft.put("batch.packing.isolate", "mask", None, "without flash attention, a mask separates packed documents")
    why = "packed documents attend to each other in a run of the imported file, but not in a run of the spec"
    draft.warn(draft.settings["batch.packing"].entry, f"without flash attention, {why}")


def stream(draft: Draft) -> bool:
    """Whether the packing strategy is `wrapped`, which joins all texts and cuts them into rows, so that documents
    attend to each other.
    """
    return draft.value("batch.packing.strategy") == "wrapped"


def router(draft: Draft) -> None:
    """Turn off the router's load-balancing loss, which the target stack's TRL adds by default and the imported tool
    does not.
    """
    facts = registry.find_model(draft.model)
    if (
        facts is not None
        and facts.experts
        and "router_aux_loss_coef" in extras.legal_names(draft.stack, "trl", draft.method)
    ):
        draft.extra.setdefault("trl", {}).setdefault("router_aux_loss_coef", "0")
        draft.defaults.append(KeyOutcome("", "", "", 0, MAPPED, "extra trl { router_aux_loss_coef = 0 }", "not set"))
