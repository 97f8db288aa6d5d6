"""Import keys of the model, its tokenizer and its adapters: TRL's ModelConfig, and further keys of training scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from xpc.compiler import registry
from xpc.compiler.files.workspace import DATA_FORMATS
from xpc.compiler.importing.draft import NULL, Draft
from xpc.compiler.importing.template_arguments import put_template, template_arguments
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, is_on, is_stated, number, text, words
from xpc.compiler.importing.text.values import DTYPES
from xpc.compiler.language.kinds import NAMES
from xpc.compiler.language.schema import ADAPTERS, BY_PATH
from xpc.grammar.package_data import read_table
from xpc.grammar.tree import quoted

HUB = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*/[A-Za-z0-9_.\-]+")
CACHED = re.compile(
    r"(?:models|datasets)--([A-Za-z0-9_][A-Za-z0-9_.]*(?:-[A-Za-z0-9_.]+)*)--([A-Za-z0-9_.\-]+)"
    r"(?:/snapshots/([0-9a-f]{40}))?/?"
)
"""Matches a folder of the hub's cache, such as `models--org--name/snapshots/COMMIT`. The groups are the owner,
the name and the commit.
"""
PATTERN = re.compile(
    r"[\w.\\*]*layers\\?\.(?:\[\\d\]\+|\\d\+)\\?\.(?:\([\w]+\\?\.\)\?)?\([\w|]+\)\\?\.\(([\w|]+)\)(_\w+)?"
)
r"""Matches a regular expression that selects listed modules in every layer: `model.layers.\d+.mlp.(up|down)_proj`."""
SECRETS = "a spec cannot contain environment variables: write the path"
ATTENTION_TARGETS = {"phi3": ("qkv_proj",), "gpt2": ("c_attn",), "gpt_neox": ("query_key_value",),
                     "falcon": ("query_key_value",), "bloom": ("query_key_value",)}  # fmt: skip
"""Maps a model family whose attention layers are not named q_proj and v_proj to PEFT's default target modules."""
LORA = {"lora_r": "lora.rank", "lora_alpha": "lora.alpha", "lora_dropout": "lora.dropout"}
OTHER_SHAPES: Mapping[str, tuple[int, float | None, float | None]] = {
    "vera": (256, None, 0.0), "loha": (8, 8.0, None), "miss": (64, None, 0.0),
}  # fmt: skip
"""Maps the adapters of peft, except LoRA, to their default rank, alpha and dropout; None means that there is no such
argument.
"""
ADAPTER_OPTIONS = {
    "use_rslora": "lora.rslora",
    "use_dora": "lora.dora",
    "lora_modules_to_save": "lora.modules_to_save",
    "lora_target_parameters": "lora.parameters",
}
"""Maps keys about adapters of TRL's ModelConfig to the setting with the same meaning."""


REVISION = re.compile(r"[A-Za-z0-9_.\-/]+")
CACHE = {"model": "models--", "dataset": "datasets--"}
"""Prefixes of folder names in the hub's cache: `models--org--name` is the folder of the model `org/name`."""
FOLDERS = (
    "checkpoint", "checkpoints", "ckpt", "ckpts", "output", "outputs", "out", "result", "results", "run", "runs",
    "model", "models", "saved_models", "data", "dataset", "datasets", "artifacts", "adapters", "saves",
    "weight", "weights",
)  # fmt: skip
"""Folders in which training scripts store models and rows. A name that begins with one is a path: `checkpoints/sft` is
not a hub model of the owner `checkpoints`.
"""


def reference(draft: Draft, entry: Entry, what: str) -> str | None:
    """Write the name of a model, tokenizer or dataset as in a spec. A folder in the hub's cache becomes the name on the
    hub with the commit; a well-known name without its owner, such as `imdb`, gets the owner; a local path gets quotes.
    Reports an error and returns None for an empty name, or a name with a `$`.
    """
    name = text(entry)
    if not name:
        draft.error(entry, f"it names no {what}")
        return None
    if "$" in name:
        draft.error(entry, SECRETS, f"write the {what}'s own name")
        return None
    cached = CACHED.fullmatch(name, name.rfind(CACHE[what]) if CACHE[what] in name else 0)
    if cached is not None:
        if what == "model" and cached[3] and not draft.has("model.revision"):
            draft.put("model.revision", cached[3], entry)
        return f"{cached[1]}/{cached[2]}"
    local = name.startswith((".", "/", "~")) or name.count("/") > 1 or name.lower().endswith(DATA_FORMATS)
    local = local or name.partition("/")[0].lower() in FOLDERS
    if HUB.fullmatch(name) and not local:
        return name
    found = registry.find_model(name) if what == "model" else registry.find_dataset(name)
    if found is not None and not local:
        return found.id
    owner = read_table(__file__, "hub_owners.toml").get(what, {}).get(name)
    if owner is not None:
        draft.warn(entry, f"the hub redirects this old name to {owner}/{name}, which the spec names")
        return f"{owner}/{name}"
    if name.startswith("~"):
        name = name.lstrip("~/") or name
        draft.warn(entry, f"a spec cannot contain `~`: it has the path `{name}`, relative to the spec")
    # in a spec, `"models/x"` could also be the name of a hub model
    return quoted(f"./{name}" if what == "model" and HUB.fullmatch(name) else name)


def revised(draft: Draft, ref: str, entry: Entry) -> str:
    """Add a revision (a commit, branch or tag) to a reference to a dataset: `org/name` becomes `org/name@v1`."""
    name = text(entry) or ""
    if entry.empty:
        draft.note(entry, "null: the newest")
    elif ref.startswith('"'):
        draft.note(entry, "a file has no revision")
    elif REVISION.fullmatch(name):
        draft.mark(entry, "mapped", f"data {{ {ref}@{name} }}")
        return f"{ref}@{name}"
    else:
        draft.error(entry, "a spec cannot name this revision")
    return ref


def model(draft: Draft, named: Entries) -> None:
    """Set the model, and import the keys about its tokenizer and chat template."""
    entry = named.get("model_name_or_path")
    if draft.model:
        draft.note(entry, "`--model` names another")
    elif not is_stated(entry):
        draft.warn(entry, "no model is named", "`--model` names it")
    else:
        found = reference(draft, entry, "model")
        if found is not None:
            draft.model = found
            draft.mark(entry, "mapped", f"train {found}")
    revision = named.get("model_revision")
    if revision is not None and text(revision) == "main":
        draft.note(revision, "the default branch")
    _template(draft, named.get("chat_template"))
    template_arguments(draft, named.get("chat_template_kwargs"), "chat_template")
    for name in ("tokenizer_name", "tokenizer_name_or_path", "config_name"):
        one = named.get(name)
        if one is not None and (one.empty or (entry is not None and one.value == entry.value)):
            draft.note(one, "the model's own")
        elif one is not None:
            draft.error(one, "a spec uses the model's own tokenizer", "save the tokenizer with the model")


def _template(draft: Draft, entry: Entry | None) -> None:
    body = text(entry)
    if body:
        put_template(draft, body, entry)
    else:
        draft.note(entry, NULL)


def adapter(draft: Draft, named: Entries, native: tuple[int, float, float] = (16, 32.0, 0.05)) -> None:
    """Set the adapter and the quantization of its base model. `native` are the default rank, alpha and dropout."""
    use = named.get("use_peft")
    four, eight = named.get("load_in_4bit"), named.get("load_in_8bit")
    # `adapter.kind` and `lora.init_lora_weights` come from the importer of Python scripts, not from TRL's keys
    kind = named.get("adapter.kind")
    if not is_on(use):
        _without_adapter(draft, named)
        return
    bits = 4 if boolean(four) else 8 if boolean(eight) else None
    other = None if kind is None else str(kind.value)
    draft.put(other or ("qlora" if bits == 4 else "lora"), True, kind or use)
    if kind is not None:
        draft.note(use, f"the adapters are {other}")
    if bits == 4 and not other:
        draft.put("qlora", True, four)
    elif bits:
        draft.put("lora.bits", bits, four if bits == 4 else eight)
    for one in (four, eight):
        draft.on(one)
    for (name, path), usual in zip(LORA.items(), OTHER_SHAPES[other] if other else native):
        draft.setting(path, named.get(name))
        if usual is not None and not draft.has("lora.from"):  # a continued adapter keeps its saved rank and alpha
            draft.default(path, usual, "not set: peft's default" if other else "not set: TRL's ModelConfig")
    if not draft.has("lora.from"):
        modules = named.get("lora_target_modules")
        if other and not is_stated(modules):
            draft.error(kind, f"peft's default modules for {other} depend on the model's family",
                        "write `target_modules`, such as \"all-linear\"")  # fmt: skip
        else:
            targets(draft, modules)
    adapter_options(draft, named, ADAPTER_OPTIONS)
    initial(draft, named.get("lora.init_lora_weights"))
    task = named.get("lora_task_type")
    if not is_stated(task) or task.value == ("SEQ_CLS" if draft.method == "reward" else "CAUSAL_LM"):
        draft.note(task, "it follows the method")
    else:
        draft.error(task, f"{draft.method} needs another task type")
    _quantization(draft, named, bits)


def _without_adapter(draft: Draft, named: Entries) -> None:
    """Import the keys about adapters and quantization for a run without an adapter: keys about adapters have no effect,
    and a quantized model is an error.
    """
    inside = [*LORA, "lora_target_modules", "lora_task_type", "bnb_4bit_quant_type", "bnb_4bit_quant_storage",
              "use_bnb_nested_quant", "bnb_4bit_compute_dtype", *ADAPTER_OPTIONS]  # fmt: skip
    for name in ("use_peft", *inside, "lora.init_lora_weights"):
        draft.note(named.get(name), "`use_peft` is not on")
    for name in ("load_in_4bit", "load_in_8bit"):
        one = draft.on(named.get(name))
        draft.error(one, "quantized weights cannot be trained without an adapter", "write `use_peft: true`")


def unused_adapter(draft: Draft, named: Entries) -> None:
    """Warn about keys of an adapter, such as `lora_r`, in a file without `use_peft`, because TRL then trains all
    weights. It is an error if the file also has keys of the repository's own script, which may train adapters.
    """
    found = [named[one] for one in (*LORA, "lora_target_modules") if one in named and not named[one].off]
    if not found or "use_peft" in named:
        return
    if draft.decisions or any(one.own or one.similar for one in draft.messages):
        why = "without `use_peft: true`, TRL trains no adapter, but the repository's own script may train one"
        help = "write `use_peft: true` if the script trains an adapter, otherwise `use_peft: false`"
        draft.error(found[0], why, help, own=True)
    else:
        why = "without `use_peft: true`, TRL trains all weights and no adapter, and so does the spec"
        draft.warn(found[0], why, "write `use_peft: true` to train the adapter")


def adapter_options(draft: Draft, named: Entries, paths: Mapping[str, str]) -> None:
    """Set flags and lists of modules that configure adapters or frozen weights. `paths` maps each key to its setting. A
    key that is off only gets a note.
    """
    for key, path in paths.items():
        entry = named.get(key)
        names = words(entry)
        if not is_on(entry):
            draft.note(entry, "it is off")
        elif path == "lora.embedding_lr" and not draft.has("lora.lr_ratio"):
            draft.note(entry, "LoRA+ is not on")
        elif BY_PATH[path].kind is not NAMES:
            draft.setting(path, entry)
        elif not names:
            draft.error(entry, "the value must be a list of names")
        elif any(re.search(r"[\\^$*+?()|]|\[", one) for one in names):
            draft.error(entry, "a spec lists names of modules, and cannot match them by a pattern")
        else:
            draft.put(path, tuple(names), entry)


def initial(draft: Draft, entry: Entry | None) -> None:
    """Set the initialization of adapters from PEFT's `init_lora_weights`."""
    if entry is None:
        return
    word = str(text(entry) or "").lower()
    iterations = re.fullmatch(r"pissa_niter_(\d+)", word)
    if entry.empty or boolean(entry) or word == "default":
        draft.note(entry, "PEFT's own initialization")
    elif iterations:
        draft.put("lora.init", "pissa", entry)
        draft.put("lora.init_iterations", int(iterations[1]), entry)
    elif word in ("pissa", "olora", "gaussian"):
        draft.put("lora.init", word, entry)
    elif word == "eva":
        why = "PEFT computes EVA's weights only in a program that calls `initialize_lora_eva_weights`"
        draft.error(entry, why, "write `lora(init = eva)`, or leave it out: without this call, adapters start as usual")
    elif word in ("loftq", "corda"):
        draft.error(
            entry,
            "PEFT's LoftQ trains over a rounded copy of the base in 16 bits, and a bundle over the base in 4 bits"
            if word == "loftq"
            else "CorDA needs a pass over its own data before the run, which a spec cannot express",
            "write `qlora(init = loftq)`, or leave it out for PEFT's default"
            if word == "loftq"
            else "write `lora(init = eva)`, or leave it out for PEFT's default",
        )
    else:
        draft.error(entry, "xpc initializes adapters as PEFT does, or by pissa, olora, loftq, eva or gaussian")


SHAPE = ("rank", "block_size", "alpha", "dropout", "targets", "rslora", "dora", "parameters", "modules_to_save")
"""Settings that a run reads from the folder of a continued adapter, so that the spec must not state them."""


def continued(draft: Draft, entry: Entry | None) -> None:
    """Continue the training of the adapter in a folder. peft reads settings such as rank and targets from it, so their
    keys are irrelevant.
    """
    if not is_on(entry):
        draft.note(entry, "it is off")
        return
    names = words(entry) or []
    if len(names) != 1 or not any(map(draft.has, ADAPTERS)):
        draft.error(entry, "a spec can continue one adapter, and only if it trains adapters", "merge all "
                    "other adapters into the model first")  # fmt: skip
        return
    for name in SHAPE:
        draft.overrule(f"lora.{name}", f"the saved adapter in `{names[0]}` decides it")
    draft.put("lora.from", names[0], entry)


def new_tokens(draft: Draft, entries: list[Entry]) -> None:
    """Set `model.tokens`, the tokens to add to the vocabulary, from several keys, without repetitions."""
    lists = [(entry, [] if entry.off else words(entry)) for entry in entries]
    every = tuple(dict.fromkeys(one for _, names in lists for one in names or ()))
    for entry, names in lists:
        if names is None:
            draft.error(entry, "the value must be a list of tokens")
        elif not names:
            draft.note(entry, "no token is added")
        else:
            draft.put("model.tokens", every, entry)


def targets(draft: Draft, entry: Entry | None, linear: tuple[str, ...] = ("all-linear", "all")) -> None:
    """Set the modules that get an adapter. By default, PEFT adapts the query and value projections."""
    if is_stated(entry):
        names = words(entry)
        if names is None:
            draft.error(entry, "the value must be a list of module names")
        elif [one.lower() for one in names] in [[one] for one in linear]:
            draft.put("lora.targets", "all-linear", entry)
        elif len(names) == 1 and PATTERN.fullmatch(names[0]):
            draft.put("lora.targets", _expanded(names[0]), entry, "the pattern matches these modules in every layer")
            if "language_model" in names[0]:
                draft.put(
                    "lora.within", "language_model", entry, "the pattern matches only modules of the language model"
                )
        elif any(re.search(r"[\\^$*+?()|]|\[", one) for one in names):
            why = "a spec lists names of modules, and cannot match them by a pattern"
            draft.error(entry, why, "write `lora_target_modules: all-linear`")
        else:
            draft.put("lora.targets", tuple(names), entry)
        return
    draft.note(entry, NULL)
    known = registry.find_model(draft.model)
    family = "" if known is None else known.model_type
    draft.default("lora.targets", ATTENTION_TARGETS.get(family, ("q_proj", "v_proj")), "not set: PEFT's default")


def _expanded(pattern: str) -> tuple[str, ...]:
    r"""The names of modules that a regular expression matches: `up_proj` and `down_proj` for
    `layers.[\d]+.(mlp|self_attn).(up|down)_proj`.
    """
    found = PATTERN.fullmatch(pattern)
    assert found is not None
    return tuple(f"{name}{found[2]}" for name in found[1].split("|"))


def _quantization(draft: Draft, named: Entries, bits: int | None) -> None:
    kind, nested = named.get("bnb_4bit_quant_type"), named.get("use_bnb_nested_quant")
    for name in ("bnb_4bit_quant_storage", "bnb_4bit_compute_dtype"):
        one = named.get(name)
        if one is not None and (one.empty or bits != 4):
            draft.note(one, NULL if one.empty else "the base is not quantized to 4 bits")
        elif one is not None:
            wanted = draft.value("precision" if name.endswith("compute_dtype") else "model.dtype")
            same = DTYPES.get(str(text(one)).removeprefix("torch.")) == wanted
            if same or text(one) == "uint8":
                draft.note(one, "a bundle does the same")
            else:
                draft.error(one, "in a bundle, it follows from `precision` and the strategy", "leave it out")
    if kind is not None and (kind.empty or kind.value == "nf4" or bits != 4):
        draft.note(kind, "a bundle does the same")
    elif kind is not None:
        draft.error(kind, "4 bits are nf4", "write `bnb_4bit_quant_type: nf4`")
    if bits == 4:
        draft.setting("lora.double_quant", nested)
        draft.default("lora.double_quant", False, "not set: TRL's default")
    elif nested is not None:
        draft.note(nested, "the base is not quantized to 4 bits")


def loaded_as(draft: Draft) -> None:
    """Set the dtype of the weights to fp32, TRL's default, if no key states it; a quantized base keeps xpc's
    default.
    """
    if not draft.has("model.dtype") and (draft.has("qlora") or draft.has("lora.bits")) and draft.has("precision"):
        # for a quantized base, xpc and TRL have the same default dtype
        return
    draft.default("model.dtype", "fp32", "not set: transformers 4 and TRL load in fp32")


def share(entry: Entry) -> float | None:
    """The value as a number between 0 and 1; None for any other value."""
    value = number(entry)
    return value if value is not None and 0 <= value <= 1 else None
