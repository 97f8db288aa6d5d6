"""Import TRL's YAML, which has the arguments of the trainer, the model and the data in one file. The training scripts
of TRL, Open-R1 and the alignment handbook read such files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence

from xpc.compiler import registry, stacks
from xpc.compiler.importing import families, local_model, reward_file, streams
from xpc.compiler.importing.accelerate import config as sharding
from xpc.compiler.importing.accelerate import deepspeed as zeros
from xpc.compiler.importing.accelerate.fsdp import trainer_fsdp
from xpc.compiler.importing.draft import Draft, Source
from xpc.compiler.importing.overrides import Machines, Overrides, load, machines, native, number
from xpc.compiler.importing.text.entries import Entries, Entry, Lookups, as_json, boolean, shown, text, words
from xpc.compiler.importing.text.values import KEYS, RENAMES
from xpc.compiler.importing.trl import data as corpus
from xpc.compiler.importing.trl import defaults, handbook, methods, own_names, pins, switches, trainer, versions
from xpc.compiler.importing.trl import model as models
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import ADAPTERS, TABLE
from xpc.compiler.stacks import Stack
from xpc.grammar.record import evolve

TELLING = (
    ("distill", ("teacher_model_name_or_path", "lmbda", "seq_kd")),
    ("grpo", ("reward_funcs", "num_generations", "max_completion_length", "use_vllm")),
    ("kto", ("desirable_weight", "undesirable_weight")),
    ("reward", ("center_rewards_coefficient",)),
    ("dpo", ("beta", "loss_type", "rpo_alpha", "precompute_ref_log_probs", "max_prompt_length", "reference_free")),
)
"""Training methods with arguments that only they have. If a file has arguments of several methods, the first one is
chosen.
"""


def method_of(overrides: Overrides, file: str, names: Iterable[str], entries: Entries) -> str:
    """The training method: of `--method`, else of a word of the file's path (`recipes/x/dpo/config.yaml`), else of an
    argument that only one method has, else sft.

    "distill" in a path counts only if the file names a teacher, because many models have "distill" in their name.
    """
    if overrides.method is not None:
        return overrides.method
    seen = set(names)
    for part in _words(file, overrides):
        online = bool(seen & {"num_generations", "reward_funcs"})
        if part in METHODS and (part != "distill" or seen & set(TELLING[0][1])) and METHODS[part].grouped >= online:
            return part
    if "sft" not in (entries["loss_type"].value if "loss_type" in entries else "",):
        for method, telling in TELLING:
            if seen & set(telling):
                sft_only = seen & {"packing", "assistant_only_loss", "completion_only_loss", "dataset_text_field"}
                if not (method == "dpo" and sft_only):
                    return method
    return "sft"


def _words(file: str, overrides: Overrides) -> list[str]:
    """The words of the file's path, from the last to the first: first of the path in the command, then of the folders
    above it in the repository.
    """
    return WORDS.split(f"{overrides.place}/{file}".lower())[::-1]


def _unclear(draft: Draft, entries: Entries, file: str, overrides: Overrides) -> None:
    """Warn if the keys fit several methods for preference pairs, and neither `--method` nor the path decides."""
    if draft.method != "dpo" or overrides.method is not None or "dpo" in _words(file, overrides):
        return
    fields = {method: set(versions.table()[method]) for method in ("dpo", "orpo", "cpo", "kto")}
    stated = set(entries) & set().union(*fields.values())
    fitting = [method for method, names in fields.items() if stated <= names]
    if len(fitting) > 1:
        draft.warn(None, f"the keys fit the methods {', '.join(fitting)}; the spec has dpo", "`--method` names another")


def start(
    overrides: Overrides, entries: Entries, file: str, dating: Entries | None = None, source_text: str = "",
    among: Sequence[str] = (),
) -> tuple[Draft, Stack]:  # fmt: skip
    """Return an empty draft with its method and target stack, and the stack whose defaults the file relies on.

    The file's version of TRL follows from the names of the keys in `dating` (by default all entries), from requirements
    in `source_text` or the repository, and from `among`, the versions that fit the script which reads the file.
    """
    dating = entries if dating is None else dating
    method = method_of(overrides, file, entries, entries)
    entry, reports = entries.get("model_name_or_path"), entries.get("report_to")
    model = overrides.model or text(entry)
    fitting, pinned = (overrides.trl,) if overrides.trl else versions.possible(method, dating), ""
    if not overrides.trl:
        allowed, pinned = pins.stated(source_text, file, overrides)
        narrowed = tuple(one for one in fitting if one in allowed)
        fitting, pinned = (narrowed, pinned) if 0 < len(narrowed) < len(fitting) else (fitting, "")
        fitting = tuple(one for one in fitting if one in among) or fitting
    trackio = "trackio" in ((words(reports) if reports else None) or [])
    source, stack = native(set(dating), method, model, trackio, fitting, overrides.trl is not None)
    packs, attention = entries.get("packing"), entries.get("attn_implementation")
    flash = attention is not None and "flash" in str(attention.value)
    if boolean(packs) and not flash and not stack.facts.isolate_mask:
        stack = load(stacks.DEFAULT)  # in the default stack, packed documents do not attend to each other
    draft = Draft(load(overrides.target) if overrides.target else stack, method, overrides.stem)
    draft.trl = number(source) if number(source) in fitting else fitting[-1]
    draft.fitting, draft.pinned = fitting, pinned
    if pinned:
        where, _, line = pinned.rpartition(":")
        draft.mark(Entry("trl", draft.trl, where, int(line)), "mapped", f"defaults of trl {draft.trl}")
    given(draft, overrides)
    return draft, source


def given(draft: Draft, overrides: Overrides) -> None:
    """Set the model, the data, the prompt column and the file of the reward functions from the command line."""
    draft.model = overrides.model or ""
    reward_file.given(draft, overrides)
    if overrides.prompt is not None:
        draft.put("data.prompt", overrides.prompt, None, "`--prompt` names it")
    if overrides.data is not None:
        draft.sources.append(Source(overrides.data))


UNLIKE = ("simpo", "ppo", "ipo", "slic", "xpo", "bco", "prm")
"""Names of methods that xpc does not have. A file with such a word in its name is not imported as sft."""
WORDS = re.compile("[^a-z0-9]+")


def trl(entries: Entries, file: str, overrides: Overrides) -> Draft:
    """Convert a TRL configuration to a draft of the spec."""
    spread = own_names.spread(entries, overrides.method) if overrides.partial else None
    if spread is not None:
        entries, overrides = spread.entries, evolve(overrides, method=spread.method)
    keys, entries = entries, handbook.with_packing(entries, method_of(overrides, file, entries, entries), overrides)
    draft, source = start(overrides, entries, file)
    _unclear(draft, entries, file, overrides)
    handbook.report(draft, entries, keys, overrides)
    arguments(draft, entries, overrides, source, Machines(), spread)
    named = [one for one in WORDS.split(posixpath.basename(file).lower()) if one in UNLIKE]
    if named and draft.method == "sft" and overrides.method is None:
        draft.error(Entry("method", named[0], file, 1), "the file's name contains a method, but no key states it; the "
                    "spec has sft", "`--method NAME` sets the method of the spec")  # fmt: skip
    return draft


def arguments(
    draft: Draft, entries: Entries, overrides: Overrides, source: Stack, found: Machines,
    spread: own_names.Spread | None = None,
) -> None:  # fmt: skip
    """Import all entries of a TRL configuration into the draft. `spread` has the keys that a custom script names
    differently.
    """
    if overrides.partial:
        entries = own_names.guessed(draft, entries, spread)
    entries = loading(draft, _with_variables(draft, entries, overrides.sets))
    named = Lookups(trainer.canonical(entries), draft.seen)
    draft.keep(named, KEYS.column("comment"))
    _callbacks(draft, named.get("callbacks"))
    switches.tracker_names(draft, named)
    for key in ("use_cpu", "no_cuda"):
        if boolean(named.get(key)):
            found.cpu = True
    models.model(draft, named)
    others = KEYS.column("read")
    trainer.arguments(draft, {key: one for key, one in entries.items() if RENAMES.get(key, key) not in others})
    many = named.get("preprocessing_num_workers")
    if many is not None and "dataset_num_proc" not in named:
        trainer.one(draft, "dataset_num_proc", many)
    else:
        draft.note(many, "`dataset_num_proc` is there, too")
    models.adapter(draft, named)
    if defaults.stated(draft, source)["bf16"] is True:
        draft.default("precision", "bf16", f"not set: the default of {defaults.origin(draft, source)}")
    shard(draft, named, overrides, found)
    switches.precision(draft, f"not set: the default of {source.name}")
    corpus.corpus(draft, named)
    corpus.completions(draft, named.get("completion_only_loss"))
    draft.put("method", draft.method)
    if draft.trl and "packing" in named and boolean(named["packing"]):
        defaults.packing(draft, draft.trl)
    defaults.native_defaults(draft, source)
    on = {name for name, one in named.items() if boolean(one)}
    facts = registry.find_model(draft.model)
    on |= {"experts"} if facts is not None and facts.experts else set()
    fixed = {
        *(["loss_type"] if draft.has("method.loss") else []),
        *(defaults.TRANSFORMERS if draft.transformers else []),
    }
    versions.report(draft, {*named, *fixed}, on)
    switches.follow(draft)
    models.loaded_as(draft)
    families.trained_dtype(draft, "TRL")
    families.resumed_adapters(draft, "TRL")
    _stream(draft, named)
    found.generates = draft.has("method.vllm") and draft.value("method.vllm.mode") in ("", "server")
    finish(draft, overrides, found)
    methods.generation_batch(draft, named)
    draft.settle(entries, known(draft), KEYS.column("refused"))
    models.unused_adapter(draft, named)
    settle_files(draft, overrides)


def settle_files(draft: Draft, overrides: Overrides) -> None:
    """Handle the remaining keys of accelerate's file, of DeepSpeed's file and of other files that the source names."""
    for table in (overrides.accelerate, overrides.deepspeed, *draft.read):
        draft.settle(table or {})


def _stream(draft: Draft, named: Entries) -> None:
    """Import streaming. TRL shuffles a stream only if `shuffle_dataset` is true, with the default buffer size of the
    library datasets.
    """
    order = named.get("shuffle_dataset")
    for key in ("dataset_streaming", "streaming"):
        shuffles = boolean(order)
        streams.stream(draft, named.get(key), None, streams.LIBRARY if shuffles else None, "TRL")


LOADING = {
    "torch_dtype": "torch_dtype",
    "dtype": "torch_dtype",
    "attn_implementation": "attn_implementation",
    "trust_remote_code": "trust_remote_code",
    "revision": "model_revision",
    "use_cache": "use_cache",
}
"""Maps each argument in `model_init_kwargs`, which TRL passes to `from_pretrained`, to TRL's own key for it."""


def loading(draft: Draft, entries: Entries) -> Entries:
    """Replace the arguments in `model_init_kwargs` by TRL's own keys, and return the entries: `{dtype: bfloat16}`
    becomes `torch_dtype`.
    """
    inside = entries.get("model_init_kwargs")
    if inside is None or not inside.mapping or not set(inside.mapping) <= {*LOADING, "device_map"}:
        return entries
    out = {key: one for key, one in entries.items() if key != "model_init_kwargs"}
    for name, one in inside.mapping.items():
        if name == "device_map":
            draft.note(one, "the setting `hardware` decides the device")
            continue
        stated = out.setdefault(LOADING[name], one)
        if stated.value == one.value and stated is not one:
            draft.note(one, f"`{LOADING[name]}` says the same")
        elif stated is not one:
            draft.error(one, f"{stated.location} sets {shown(stated)}", "keep one of the two")
    return out


NAMES = ("output_dir", "run_name", "logging_dir", "hub_model_id", "cache_dir", "vllm_server_host",
         *switches.TRACKER_NAMES)  # fmt: skip
"""Keys that name a run, a folder or a machine, and do not change the training."""
NAMING = re.compile(r"(?:wandb|run|exp|experiment)_?(?:run_?)?(?:name|id|group|tags?)?")
"""Matches keys by which custom scripts name a run, such as `wandb_run` and `exp_name`."""
OPEN = re.compile(r"\?\?\?|[<{][\w .-]+[>}]")
"""Matches a placeholder for a value: OmegaConf's `???`, `<model_name>` or `{model_path}`."""
NOT_GIVEN = "the file has only a placeholder for this value", "write the value into the file"
"""The reason and the help of the error for a placeholder."""
VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


def only_names(key: str) -> bool:
    """Whether a key only names a run, a folder or a machine, and does not change the training."""
    return key in NAMES or NAMING.fullmatch(key) is not None


def _with_variables(draft: Draft, entries: Entries, sets: Mapping[str, str]) -> Entries:
    """Replace `$NAME` in the entries by the values of `--set NAME=VALUE`. A run name with any other variable is
    removed.
    """
    out: dict[str, Entry] = {}
    for key, one in entries.items():
        if any(isinstance(each.value, str) and OPEN.fullmatch(each.value) for each in one.items):
            draft.error(one, *NOT_GIVEN)
            continue
        if not isinstance(one.value, str) or "$" not in one.value or key == "chat_template":
            out[key] = one
            continue
        value = VARIABLE.sub(lambda found: sets.get(found[1] or found[3], found[2] or found[0]), one.value)
        if "$" in value and only_names(key):
            draft.note(one, "the name contains a variable that is not set")
            draft.warn(one, "the name contains a variable that is not set, so the spec uses the default name",
                       "`--set NAME=VALUE` sets it")  # fmt: skip
        else:
            out[key] = Entry(one.key, value, one.file, one.line, value)
    return out


def _callbacks(draft: Draft, entry: Entry | None) -> None:
    """Import `callbacks`. Open-R1's `push_to_hub_revision`, which pushes each checkpoint to its own branch, becomes a
    setting; other callbacks are kept in a comment.
    """
    names = words(entry) or []
    if entry is None:
        return
    if names == ["push_to_hub_revision"]:
        draft.put("save.hub", True, entry)
        draft.put("save.hub.checkpoint_branches", True, entry)
    elif names:
        draft.reserve(entry, f"callbacks: {as_json(entry)}", "a bundle has only the callbacks of its runtime")
    else:
        draft.note(entry, "it is empty")


def shard(draft: Draft, named: Entries, overrides: Overrides, found: Machines) -> None:
    """Set the sharding strategy from a DeepSpeed file, from the trainer's `fsdp` keys, or from accelerate's file."""
    own = named.get("deepspeed")
    if overrides.deepspeed is not None:
        zeros.zero(draft, overrides.deepspeed)
        draft.mark(own, "mapped", "strategy", "the file that `--deepspeed` names")
    elif (file := draft.on(own)) is not None:
        sharding.named_file(draft, file, overrides)
    trainer_fsdp(draft, named)
    if overrides.accelerate is not None:
        sharding.accelerate(draft, overrides.accelerate, overrides, found)
    if "num_processes" in named:  # a key of accelerate, which some training scripts of early 2025 also read
        sharding.count(draft, named["num_processes"], "total", found)
    draft.default("strategy", "ddp", "the imported files configure no sharding")


def finish(draft: Draft, overrides: Overrides, found: Machines) -> None:
    """Complete the draft: set the hardware, the nodes, the architecture of a model whose folder is missing, and a
    target other than the default; remove `eval.micro` from a run without evaluation.
    """
    machines(draft, found, overrides)
    if draft.has("eval.micro") and draft.value("eval.every") in ("", "never"):
        draft.note(draft.settings.pop("eval.micro").entry, "nothing is evaluated")
        draft.defaults = [one for one in draft.defaults if not one.to.startswith("eval.micro = ")]
    local_model.architecture(draft, overrides)
    local_model.adapter(draft, overrides)
    if draft.has("model.rope") and any(map(draft.has, ADAPTERS)) and not draft.has("save.merge"):
        draft.put("save.merge", True, None, "the saved adapter lacks the RoPE scaling")
    if draft.stack.name != stacks.DEFAULT or overrides.target is not None:
        draft.put("target", draft.stack.name, None, versions.dated(draft, overrides))


def known(draft: Draft, *more: Iterable[str]) -> list[str]:
    """All key names that can be suggested for a misspelt key: TRL's names, names that the importer has looked up, and
    `more`.
    """
    ours = {argument for row in TABLE for argument in row.args}
    return sorted({*draft.stack.fields(draft.stack.config(draft.method)), *ours, *KEYS, *draft.seen}.union(*more))
