"""Read the YAML of a repository's own script by TRL's names. Such a file often has sections (`lora: {r: 16}`) and its
own names for the model, the data and common arguments (`lr`). `xpc import --partial` guesses the TRL key that each name
means, and lets the user confirm each guess.
"""

from __future__ import annotations

import re

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.outcomes import Decision
from xpc.compiler.importing.python.interpreter.parsed_classes import ADAPTER, argument_names
from xpc.compiler.importing.text.entries import Entries, Entry
from xpc.compiler.importing.text.values import KEYS
from xpc.grammar.record import record

OWN_NAMES = {
    "use_lora": "use_peft", "max_seq_len": "max_seq_length", "target_modules": "lora_target_modules",
    "lora_rank": "lora_r", "lr": "learning_rate", "num_epochs": "num_train_epochs",
    "epochs": "num_train_epochs", "grad_accum": "gradient_accumulation_steps",
    "gradient_accumulation": "gradient_accumulation_steps", "grad_accum_steps": "gradient_accumulation_steps",
}  # fmt: skip
"""Maps names of common arguments in custom scripts to TRL's names: `lr` to `learning_rate`."""
AMBIGUOUS = {"batch_size": "per_device_train_batch_size", "train_batch_size": "per_device_train_batch_size"}
"""Maps names that may also mean something else, such as the batch of all GPUs, to TRL's names."""
GUESSES = {
    "model_name_or_path": (
        "model_id", "model_path", "model", "model_name", "base_model", "pretrained_model_name_or_path",
        "base_model_name_or_path", "model_id_or_path", "original_model_name_or_path", "policy_model",
        "model.name", "model.name_or_path", "model.path", "model.id", "model.base_model", "model.model_name",
        "model.model_id", "model.base", "sft_model_path",
    ),
    "dataset_name": (
        "dataset_id_or_path", "dataset_path", "dataset_id", "dataset", "train_dataset", "train_data_path", "train_data",
        "train_file", "train_file_path", "data_name", "data_file", "data_paths", "dataset_name_or_path",
        "train_dataset_name", "dataset_file", "train_path", "train_data_file", "training_data", "train_dataset_path",
        "train_file_dir", "train_jsonl", "train_files", "train_data_dir", "data_files", "train_data_files",
        *(f"{section}.{name}" for section in ("data", "dataset")
          for name in ("train_file", "train_path", "train_data", "train", "dataset_name", "name", "path")),
    ),
    "eval_data_path": tuple(
        f"{section}{name}{ending}"
        for section in ("", "data.", "dataset.")
        for name in ("val", "valid", "validation", "eval")
        for ending in ("_file", "_path", "_data", "_dataset", "_data_file", "_dataset_path")
    ),
}  # fmt: skip
"""Maps TRL's keys for the model and the data, and FastChat's for evaluation rows, to names in custom scripts, which are
tried if the key is missing; `model.name` is the key `name` in the section `model`.
"""
WHAT = {"model_name_or_path": "the model", "dataset_name": "the data", "eval_data_path": "the evaluation rows"}
OPTIONS = {"model_name_or_path": "`--model NAME`", "dataset_name": "`--data NAME`"}
DATA = ("dataset_name", "dataset_mixture", "dataset_mixer", "datasets", "data_path")
STAGES = ("sft", "dpo", "orpo", "cpo", "kto", "grpo", "rloo")
"""Methods that are names of sections. Of several such sections in a file, `--method` decides which is read."""
ARGUMENTS = re.compile(
    f"(?:(?:(?:{'|'.join(STAGES)})_)?train(?:ing|er)?|hyper_?param(?:eter)?s|hparams|optim(?:izer|ization)?|schedul(?:e|er)|checkpoint(?:ing)?|saving"
    f"|logging|model|quant(?:ization)?|bnb|{'|'.join(STAGES)})(?:_args|_arguments|_config)?$"
)
"""Matches the sections whose keys may be arguments of TRL's configuration classes."""
LORA = re.compile("(?:q?lora|peft|adapter)(?:_args|_config)?$")
SHORT = {**ADAPTER, "rank": "lora_r", "alpha": "lora_alpha", "dropout": "lora_dropout", "using_lora": "use_peft"}
"""Maps the keys of a section about LoRA to TRL's keys."""
ROWS = re.compile("data(?:set)?$")
OF_ROWS = ("max_length", "max_seq_length", "max_prompt_length", "max_completion_length", "packing",
           "dataset_text_field", "dataset_num_proc")  # fmt: skip
"""Arguments of TRL that custom scripts have in the section of the data. Other names may mean something else there:
`seed` is not the seed of the run.
"""
SWITCHES = ("enabled", "enable", "use")


@record
class Spread:
    """The keys of a custom script's file under TRL's names, and the method that the name of a section states. `read`
    are the keys that have another name in the file, and `rest` the keys of the sections that have no name in TRL.
    """

    entries: Entries
    method: str | None
    read: list[Entry]
    rest: list[Entry]


def _lifted(entries: Entries) -> dict[str, Entry]:
    """Move nested sections to the top level: `training: {lora: {r: 16}}` becomes the sections `training` and `lora`."""
    out, left = dict(entries), list(entries)
    while left:
        section = left.pop()
        one = out[section]
        inner = {key: each for key, each in one.mapping.items() if each.mapping and _is_section(key)}
        if inner and _is_section(section) and inner.keys().isdisjoint(out):
            kept = {key: each for key, each in one.mapping.items() if key not in inner}
            out |= {**inner, section: Entry(one.key, kept, one.file, one.line)}
            left += inner
    return out


def _is_section(key: str) -> bool:
    return bool(ARGUMENTS.match(key) or LORA.match(key))


def spread(entries: Entries, method: str | None) -> Spread:
    """Replace sections such as `training: {lr: 1e-5}` and `lora: {r: 16}`, and names such as `lr`, by TRL's keys."""
    lifted = _lifted(entries)
    changed = {key for key, one in lifted.items() if entries.get(key) is not one}
    entries = lifted
    names = argument_names() - AMBIGUOUS.keys()
    stages = [one for one in STAGES if one in entries and entries[one].mapping]
    method = stages[0] if len(stages) == 1 and method is None else method
    guesses = {key for keys in GUESSES.values() for key in keys}
    out = {key: one for key, one in entries.items() if key in names or key in KEYS}
    read: list[Entry] = []
    rest: list[Entry] = []
    for section, one in entries.items():
        if section in out:
            continue
        inside = one.mapping if section not in stages or section == method else {}
        found = {key: _name(section, key, names) for key in inside} if inside else {"": _own(section)}
        guess = any({key, f"{section}.{key}"} & guesses for key in inside)
        if section not in changed and not guess and not any(found.values()):
            out[section] = one
            continue
        for key, name in found.items():
            entry = inside.get(key, one)
            if name and name not in out and name not in entries:
                out[name] = entry
                read.append(entry)
            elif entry.key in guesses or entry is one:
                out[entry.key] = entry
            elif (
                key in guesses
                and key not in out
                and key not in entries
                and (ARGUMENTS.match(section) or ROWS.match(section))
            ):
                out[key] = (
                    entry  # the key names the model or the data, as in `hyperparameters: {model_name: org/model}`
                )
            else:
                rest.append(entry)
    rank = out.get("lora_r")
    if rank is not None and rank in read and "use_peft" not in out:
        out["use_peft"] = Entry(rank.key, True, rank.file, rank.line)
    return Spread(out, method, read, rest)


def _own(key: str) -> str:
    return OWN_NAMES.get(key, AMBIGUOUS.get(key, ""))


def _name(section: str, key: str, names: frozenset[str]) -> str:
    """TRL's name for a key in a section; "" if the key has none: `lora_r` for `r` in the section `lora`."""
    if key == "model_name_or_path" and _is_section(section):
        return key
    if LORA.match(section):
        return "use_peft" if key in SWITCHES else SHORT.get(key, key if key in names else "")
    if section == "vllm":
        return "use_vllm" if key in SWITCHES else f"vllm_{key}" * (f"vllm_{key}" in names)
    if ROWS.match(section):
        return key if key in OF_ROWS else ""
    if not ARGUMENTS.match(section) or any(f"{section}.{key}" in one for one in GUESSES.values()):
        return ""
    return key if key in names else _own(key)


def guessed(draft: Draft, entries: Entries, found: Spread | None) -> Entries:
    """If the file lacks TRL's key for the model or the data, rename a key such as `base_model`, and return the entries.
    The user must confirm these guesses in one decision, and the keys that `spread` has renamed in another.
    """
    out = dict(entries)
    guesses: dict[str, Entry] = {}
    for name, keys in GUESSES.items():
        stated = any(key in entries for key in (DATA if name == "dataset_name" else (name,)))
        given = draft.sources if name == "dataset_name" else name in OPTIONS and draft.model
        key = next((one for one in keys if one in entries and isinstance(entries[one].value, str)), None)
        if stated or given or key is None or entries[key].empty:
            continue
        out[name] = out.pop(key)
        guesses[name] = entries[key]
    if guesses:
        several = len(guesses) > 1
        names = " and ".join(f"`{one.key}`" for one in guesses.values())
        what = " and ".join(WHAT[name] for name in guesses)
        of_the_script = (
            "keys of the source's own script, name" if several else "a key of the source's own script, names"
        )
        options = [OPTIONS[name] for name in guesses if name in OPTIONS] or ["`eval`"]
        help_ = f"if not, {' and '.join(options)} {'do' if len(options) > 1 else 'does'}"
        locations = tuple(one.location for one in guesses.values())
        draft.decisions.append(Decision(f"whether {names}, {of_the_script} {what}", locations, help_))
    for one in found.rest if found else ():
        if one.value is None:
            draft.note(one, "null: no value")
        else:
            draft.error(one, "only the source's own script reads this section", own=True)
    read = found.read if found else []
    if read:
        names = ", ".join(f"`{one.key}`" for one in read[:6]) + f" and {len(read) - 6} more" * (len(read) > 6)
        text = f"whether {names} have the same meaning in the source's own script as in TRL"
        draft.decisions.append(Decision(text, tuple(one.location for one in read), "the script shows it"))
    return out
