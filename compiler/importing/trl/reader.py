"""Import TRL's YAML as its scripts, Open-R1's and the handbook's scripts read it: trainer, model and data in
one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from xpc.compiler import registry, stacks
from xpc.compiler.importing import families, local_model
from xpc.compiler.importing.accelerate import config as sharding
from xpc.compiler.importing.accelerate import deepspeed as zeros
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Machines, Overrides, load, machines, native, number
from xpc.compiler.importing.text.entries import Entries, Entry, Lookups, as_json, boolean, text, words
from xpc.compiler.importing.text.values import KEYS, RENAMES
from xpc.compiler.importing.trl import data as corpus
from xpc.compiler.importing.trl import defaults, methods, switches, trainer, versions
from xpc.compiler.importing.trl import model as models
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import TABLE
from xpc.compiler.stacks import Stack

TELLING = (
    ("distill", ("teacher_model_name_or_path", "lmbda", "seq_kd")),
    ("grpo", ("reward_funcs", "num_generations", "max_completion_length", "use_vllm")),
    ("kto", ("desirable_weight", "undesirable_weight")),
    ("reward", ("center_rewards_coefficient",)),
    ("dpo", ("beta", "loss_type", "rpo_alpha", "precompute_ref_log_probs", "max_prompt_length", "reference_free")),
)
"""Names that only one method has, the most specific first."""


def method_of(overrides: Overrides, file: str, names: Iterable[str], entries: Entries) -> str:
    """The method: from `--method`, otherwise from a word of the path (`recipes/x/dpo/config.yaml`), otherwise from
    names that only one method has.

    Many models and recipes have "distill" in their name without distilling, so that word counts only if there is a
    teacher.
    """
    if overrides.method is not None:
        return overrides.method
    seen = set(names)
    for part in reversed(re.split(r"[^a-z0-9]+", file.lower())):
        if part in METHODS and (part != "distill" or seen & set(TELLING[0][1])):
            return part
    if "sft" not in (entries["loss_type"].value if "loss_type" in entries else "",):
        for method, telling in TELLING:
            if seen & set(telling):
                sft_only = seen & {"packing", "assistant_only_loss", "completion_only_loss", "dataset_text_field"}
                if not (method == "dpo" and sft_only):
                    return method
    return "sft"


def start(overrides: Overrides, entries: Entries, file: str) -> tuple[Draft, Stack]:
    """An empty draft with its method and target, and the stack whose defaults the source relies on."""
    method = method_of(overrides, file, entries, entries)
    entry, reports = entries.get("model_name_or_path"), entries.get("report_to")
    model = overrides.model or (text(entry) if entry is not None else None)
    fitting = (overrides.trl,) if overrides.trl else versions.possible(method, entries)
    trackio = "trackio" in ((words(reports) if reports else None) or [])
    source, stack = native(set(entries), method, model, trackio, fitting, overrides.trl is not None)
    draft = Draft(load(overrides.target) if overrides.target else stack, method, overrides.stem)
    draft.trl = number(source) if number(source) in fitting else fitting[-1]
    draft.fitting = fitting
    given(draft, overrides)
    return draft, source


def given(draft: Draft, overrides: Overrides) -> None:
    """Write the model and the data from the command line."""
    draft.model = overrides.model or ""
    if overrides.data is not None:
        from xpc.compiler.importing.draft import Source

        draft.sources.append(Source(overrides.data))


def trl(entries: Entries, file: str, overrides: Overrides, launch: Entries | None = None, zero: Entries | None = None,
        found: Machines | None = None) -> Draft:  # fmt: skip
    """Convert a configuration to a draft, with the files of accelerate (`launch`) and DeepSpeed (`zero`)."""
    draft, source = start(overrides, entries, file)
    arguments(draft, entries, overrides, source, launch, zero, found or Machines())
    return draft


def arguments(draft: Draft, entries: Entries, overrides: Overrides, source: Stack, launch: Entries | None,
              zero: Entries | None, found: Machines) -> None:  # fmt: skip
    """Write all settings of a draft from the entries of its source."""
    named = Lookups(trainer.canonical(entries), draft.seen)
    draft.keep(named, KEYS.column("comment"))
    _callbacks(draft, named.get("callbacks"))
    project = named.get("wandb_project")
    draft.setting("track.project", project)
    for key in ("use_cpu", "no_cuda"):
        if key in named and boolean(named[key]):
            found.cpu = True
    models.model(draft, named)
    others = KEYS.column("read")
    trainer.arguments(draft, {key: one for key, one in entries.items() if RENAMES.get(key, key) not in others})
    many = named.get("preprocessing_num_workers")
    if many is not None and "dataset_num_proc" not in named:
        trainer.one(draft, "dataset_num_proc", many)
    models.adapter(draft, named)
    if defaults.stated(draft, source)["bf16"] is True:
        draft.default("precision", "bf16", f"not set: the default of {defaults.origin(draft, source)}")
    shard(draft, named, overrides, launch, zero, found)
    switches.precision(draft, f"not set: the default of {source.name}")
    corpus.corpus(draft, named)
    draft.put("method", draft.method)
    if draft.trl and "packing" in named and boolean(named["packing"]) and draft.stack.name != "trl-0.18":
        defaults.packing(draft)
    defaults.native_defaults(draft, source)
    on = {name for name, one in named.items() if boolean(one)}
    facts = registry.find_model(draft.model)
    on |= {"experts"} if facts is not None and facts.experts else set()
    versions.report(draft, {*named, *(["loss_type"] if draft.has("method.loss") else [])}, on)
    switches.follow(draft)
    models.loaded_as(draft)
    families.trained_dtype(draft, "TRL")
    mode = draft.settings.get("method.vllm.mode")
    found.generates = draft.has("method.vllm") and (mode is None or mode.text == "server")
    finish(draft, overrides, found)
    methods.generation_batch(draft, named)
    draft.settle(entries, known(draft), KEYS.column("refused"))
    for table in (launch, zero, *draft.read):
        draft.settle(table or {})


def _callbacks(draft: Draft, entry: Entry | None) -> None:
    """Import Open-R1's callback, which pushes each checkpoint to a separate branch."""
    names = [] if entry is None or entry.empty else words(entry) or []
    if entry is None:
        return
    if names == ["push_to_hub_revision"]:
        draft.put("save.hub", True, entry)
        draft.put("save.hub.checkpoint_branches", True, entry)
    elif names:
        draft.reserve(entry, f"callbacks: {as_json(entry)}", "a bundle has only the callbacks of its runtime")
    else:
        draft.note(entry, "it is empty")


def shard(draft: Draft, named: Entries, overrides: Overrides, launch: Entries | None, zero: Entries | None,
          found: Machines) -> None:  # fmt: skip
    """Write how states are sharded, from a DeepSpeed file, from the trainer's keys, or from accelerate's file."""
    own = named.get("deepspeed")
    if zero is not None:
        zeros.zero(draft, zero)
        draft.mark(own, "mapped", "strategy", "the file that `--deepspeed` names")
    elif own is not None and not own.off:
        sharding.named_file(draft, own, overrides)
    elif own is not None:
        draft.note(own, "it is off")
    sharding.trainer_fsdp(draft, named)
    if launch is not None:
        sharding.accelerate(draft, launch, overrides, found)
    if "num_processes" in named:  # accelerate's key, which some training scripts of early 2025 also read
        sharding.count(draft, named["num_processes"], "total", found)
    draft.default("strategy", "ddp", "no source shards states")


def finish(draft: Draft, overrides: Overrides, found: Machines) -> None:
    """Write the machines, the architecture of a model in a missing folder, and a target other than the default; drop
    the default of `eval.micro` if nothing is evaluated."""
    machines(draft, found, overrides)
    each, micro = draft.settings.get("eval.every"), draft.settings.get("eval.micro")
    if micro is not None and micro.entry is None and (each is None or each.text == "never"):
        del draft.settings["eval.micro"]
        draft.defaults = [one for one in draft.defaults if not one.to.startswith("eval.micro = ")]
    local_model.architecture(draft, overrides)
    local_model.adapter(draft, overrides)
    if draft.stack.name != stacks.DEFAULT or overrides.target is not None:
        draft.put("target", draft.stack.name)


def known(draft: Draft, *more: Iterable[str]) -> list[str]:
    """The names that a key may be a misspelling of: TRL's names, those that were looked up, and `more`."""
    ours = {argument for row in TABLE for argument in row.args}
    return sorted({*draft.stack.fields(draft.stack.config(draft.method)), *ours, *KEYS, *draft.seen}.union(*more))
