"""The keys of a trainer that several decide together: when it saves and evaluates, packing, checkpointing, the hub."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.importing.entries import Entry, boolean, number, plain, text, words
from xpc.compiler.importing.outcome import MAPPED, NULL, Draft
from xpc.compiler.importing.values import ATTENTION, DTYPES, RENAMES, TRACKERS
from xpc.compiler.kinds import EPOCH, NEVER, Amount
from xpc.compiler.schema import BY_PATH

Entries = Mapping[str, Entry]


def every(entry: Entry | None, steps: Entry | None, usual: Amount, draft: Draft, path: str) -> None:
    """`*_strategy` and `*_steps` as one interval; `usual` is what counts where the strategy says steps."""
    name = "steps" if entry is None or entry.empty else "no" if boolean(entry) is False else str(entry.value)
    if name == "no":
        assert entry is not None
        draft.put(path, NEVER, entry, "YAML 1.1 reads a bare `no` as false" if entry.value is False else "")
    elif name == "epoch":
        assert entry is not None
        draft.put(path, EPOCH, entry)
    elif name == "steps":
        value = usual if steps is None or steps.empty else _amount(steps)
        if value is None:
            assert steps is not None
            draft.error(steps, "it takes a number of steps, or a share below 1")
            return
        for one in (entry, steps):
            if one is not None and not one.empty:
                draft.put(path, value, one)
    else:
        assert entry is not None
        draft.error(entry, "the language has steps, epochs and never", "write `steps`, `epoch` or `no`")
    if steps is not None and (name in ("no", "epoch") or steps.empty):
        draft.note(steps, "the strategy decides" if not steps.empty else NULL)


def _amount(entry: Entry) -> Amount | None:
    value = number(entry)
    if value is None or value <= 0:
        return None
    if value < 1:
        return Amount("share", value)
    return Amount("count", int(value)) if value == int(value) else None


def intervals(draft: Draft, named: Entries) -> None:
    """How often the run saves, logs and evaluates."""
    saving, saved = named.get("save_strategy"), named.get("save_steps")
    if saving is not None or saved is not None:
        every(saving, saved, Amount("count", 500), draft, "save.every")
    logging, logged = named.get("logging_strategy"), named.get("logging_steps")
    if logging is not None or logged is not None:
        every(logging, logged, Amount("count", 500), draft, "track.every")
    entry, steps = named.get("eval_strategy"), named.get("eval_steps")
    asked = named.get("do_eval")
    if entry is not None and not entry.empty:
        shared = _amount(logged) if logged is not None and not logged.empty else None
        usual = shared or Amount("count", 500)  # transformers evaluates as often as it logs
        every(entry, steps, usual, draft, "eval.every")
    elif steps is not None:
        draft.note(steps, "nothing is evaluated: `eval_strategy` is not set")
    if asked is not None:
        if boolean(asked) and (not draft.has("eval.every") or draft.settings["eval.every"].text == "never"):
            draft.note(asked, "it asks for an evaluation after the run, and nothing is evaluated during it")
            draft.warn(asked, "the evaluation after the run is left out: a bundle evaluates during training only")
        else:
            draft.note(asked, "whether anything is evaluated is said by `eval_strategy`")


def trackers(draft: Draft, named: Entries) -> None:
    """`report_to`."""
    entry = named.get("report_to")
    if entry is None:
        return
    names = words(entry) or []
    if entry.empty or names == ["none"]:
        draft.put("track", ("none",), entry)
    elif names == ["all"]:
        draft.put("track", ("none",), entry, "`all` is whatever happens to be installed")
        draft.warn(entry, "`all` is whatever happens to be installed, and a bundle says which: none is written")
    elif set(names) <= set(TRACKERS):
        draft.put("track", tuple(names), entry)
    else:
        draft.error(entry, "the language has the trackers " + ", ".join(TRACKERS), "name one of them, or `none`")


def checkpointing(draft: Draft, named: Entries) -> None:
    """`gradient_checkpointing` and its keyword arguments."""
    entry, kwargs = named.get("activation_checkpointing"), named.get("activation_checkpointing_kwargs")
    if entry is not None:
        draft.setting("memory.checkpointing", entry)
    off = draft.has("memory.checkpointing") and draft.settings["memory.checkpointing"].text == "false"
    if kwargs is None:
        return
    inside = kwargs.mapping.get("use_reentrant")
    for name, one in kwargs.mapping.items():
        if name != "use_reentrant":
            draft.error(one, "the language has `reentrant` only")
    if kwargs.empty or off:
        draft.note(kwargs, "it is off" if off else NULL)
        if inside is not None and off:
            draft.note(inside, "checkpointing is off")
    elif inside is not None:
        draft.setting("memory.checkpointing.reentrant", inside)
        draft.default("memory.checkpointing", True, "it has settings")
    elif not kwargs.mapping:
        draft.error(kwargs, "it takes a mapping such as {use_reentrant: false}")


def packing(draft: Draft, named: Entries) -> None:
    """`packing` with its strategy."""
    entry, strategy, again = named.get("packing"), named.get("packing_strategy"), named.get("eval_packing")
    on = entry is not None and boolean(entry) is True
    if entry is not None and draft.method == "sft":
        draft.setting("batch.packing", entry)
    elif entry is not None and not on:
        draft.note(entry, f"it is off, and {draft.method} has no such setting")
    elif entry is not None:
        draft.error(entry, "only sft packs rows")
    if strategy is not None:
        name = {"bfd-requeue": "bfd_split", "fixed": "wrapped", "bfd_requeue": "bfd_split"}.get(
            str(strategy.value), str(strategy.value)
        )
        if not on:
            draft.note(strategy, "nothing is packed")
        elif name not in BY_PATH["batch.packing.strategy"].choices:
            draft.error(strategy, "no target packs in this way", "write `bfd`, `bfd_split` or `wrapped`")
        elif name == "ffd" and name not in draft.target.packing:
            draft.put(
                "batch.packing.strategy", "bfd", strategy, "`ffd` never was a strategy of TRL; bfd is its default"
            )
            draft.warn(
                strategy, "no version of TRL packs by `ffd` (the trainer fails on it): bfd, the default, is written"
            )
        else:
            draft.put("batch.packing.strategy", name, strategy)
    if again is not None and not again.empty:
        if on:
            draft.setting("batch.packing.eval", again)
        else:
            draft.note(again, "nothing is packed")


def switches(draft: Draft, named: Entries) -> None:
    """Switches that say the opposite here, or choose between names."""
    only, resume = named.get("save_only_model"), named.get("resume_from_checkpoint")
    if only is not None and not only.empty:
        value = boolean(only)
        if value is None:
            draft.error(only, "it takes true or false")
        else:
            draft.put("save.full_state", not value, only)
    if resume is not None:
        if resume.empty or boolean(resume) is not None:
            draft.put(
                "save.resume", "auto", resume, "the newest checkpoint of the output folder is taken up"
            ) if boolean(resume) else draft.note(resume, "no checkpoint is named; a bundle takes up its own")
        else:
            draft.error(
                resume, "a bundle resumes from its own folder only", "put the checkpoint into the output folder"
            )
    mean = named.get("average_tokens_across_devices")
    if mean is not None and boolean(mean) is not None:
        draft.put("batch.mean", "global_tokens" if boolean(mean) else "local_tokens", mean)
    grouped = named.get("group_by_length")
    if grouped is not None:
        if grouped.off:
            draft.note(grouped, "it is off")
        elif draft.escape("trl", "group_by_length", grouped):
            pass
        elif "train_sampling_strategy" in draft.target.fields(draft.target.config(draft.method)):
            draft.extra.setdefault("trl", {})["train_sampling_strategy"] = '"group_by_length"'
            draft.mark(grouped, "extra", 'extra trl { train_sampling_strategy = "group_by_length" }')
    for name in ("attn_implementation", "dtype"):
        entry = named.get(name)
        if entry is not None:
            (_attention if name == "attn_implementation" else _dtype)(draft, entry)


def _attention(draft: Draft, entry: Entry) -> None:
    name = ATTENTION.get(str(entry.value))
    if entry.empty:
        draft.note(entry, NULL)
    elif name is None:
        draft.error(
            entry, "the language has no such attention", "write flash_attention_2, sdpa, eager or flex_attention"
        )
    else:
        kernel = "" if "/" not in str(entry.value) else "a kernel of the Hub: the same algorithm, another build"
        draft.put("model.attn", name, entry, kernel)


def _dtype(draft: Draft, entry: Entry) -> None:
    value = text(entry)
    if value is None:
        draft.put("model.dtype", "fp32", entry, "without a dtype transformers 4 loads in fp32")
    elif value == "auto":
        draft.mark(entry, MAPPED, "model.dtype", "the dtype of the checkpoint")
        draft.put("model.dtype", "bf16", entry, "`auto` is the dtype of the checkpoint, nearly always bf16")
        draft.warn(entry, "`auto` is the dtype of the checkpoint, which is not known here: bf16 is written")
    elif value.removeprefix("torch.") in DTYPES:
        draft.put("model.dtype", DTYPES[value.removeprefix("torch.")], entry)
    else:
        draft.error(entry, "the language loads weights in fp32, bf16 or fp16")


def hub(draft: Draft, named: Entries) -> None:
    """What is pushed to the hub."""
    push, name, folder = (named.get(one) for one in ("push_to_hub", "hub_model_id", "output_dir"))
    ways = ("hub_strategy", "hub_revision", "hub_private_repo", "hub_always_push")
    rest = [named[one] for one in ways if one in named]
    if push is None or push.off:
        for one in (push, name, *rest):
            if one is not None:
                draft.note(one, "nothing is pushed: `push_to_hub` is not on")
        return
    path = text(folder) if folder is not None else None
    repo = text(name) if name is not None else path.rstrip("/").rpartition("/")[2] if path else None
    if repo is None:
        draft.error(push, "no repository is named", "write `hub_model_id`")
        return
    for one in (push, name):
        if one is not None:
            draft.put("save.hub", repo, one)
    for one in rest:
        if plain(one) is None:
            draft.note(one, NULL)
        elif BY_PATH["save.hub"].pending:
            known = RENAMES.get(one.key, one.key)
            draft.reserve(one, f"{known} = {plain(one)}", "nothing is pushed by this version")
        elif not draft.escape("trl", RENAMES.get(one.key, one.key), one):
            draft.error(one, f"{draft.target.name} has no such argument")


def follow(draft: Draft) -> None:
    """What follows other settings: packed rows that no kernel keeps apart, and a step's mean on one process."""
    attention, packed = draft.settings.get("model.attn"), draft.settings.get("batch.packing")
    apart = attention is not None and attention.text in ("flash2", "flash3")
    if packed is None or packed.text != "true" or apart or draft.has("batch.packing.isolate"):
        return
    draft.put("batch.packing.isolate", "mask", None, "packed rows are kept apart without flash attention, too")
    draft.warn(packed.entry, "without flash attention packed documents see each other in the source's run; the spec keeps "
               "them apart")  # fmt: skip
