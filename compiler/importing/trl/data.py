"""Import data keys: the alignment handbook's mixtures, TRL's `datasets` and `dataset_name`, FastChat's `data_path`."""

from __future__ import annotations

import posixpath
import re

from xpc.compiler import registry
from xpc.compiler.data.shapes import KEPT, SHAPES
from xpc.compiler.importing.draft import NULL, Draft, Source
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, is_stated, number, text, words
from xpc.compiler.importing.trl.model import reference
from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.methods import METHODS
from xpc.grammar.tree import quoted

PART = re.compile(r"[A-Za-z0-9_.\-]+")
SPLIT = re.compile(r"([A-Za-z0-9_.\-]+)(?:\[(?:0%?)?:([A-Za-z0-9_.%\-]+)\])?")
LONG = 200
"""The largest number of characters of a system prompt in the spec; a longer prompt is written to a file."""


def corpus(draft: Draft, named: Entries) -> None:
    """Set the data sources, the held-out rows, and how the rows are read."""
    mixture, mixer, several, one = (
        named.get(key) for key in ("dataset_mixture", "dataset_mixer", "datasets", "dataset_name")
    )
    if draft.sources:
        for entry in (
            mixture,
            mixer,
            several,
            one,
            *map(named.get, ("data_path", "dataset_config", "dataset_train_split")),
        ):
            if entry is not None:
                everything(draft, entry, "`--data` names another")
    elif is_stated(mixture):
        _mixture(draft, mixture)
        if is_stated(one):
            draft.note(one, "the mixture decides")
            draft.warn(one, "the mixture is used instead of this dataset, as in the alignment handbook")
    elif is_stated(mixer):
        _mixer(draft, mixer, named)
    elif is_stated(several):
        _several(draft, several, named)
    elif is_stated(one):
        _single(draft, one, named)
    elif "data_path" in named:
        _file(draft, named["data_path"])
    else:
        draft.warn(None, "no data is named", "`--data` names it")
    _evaluation(draft, named, plain=is_stated(one) and mixture is None)
    _rows(draft, named)


def completions(draft: Draft, entry: Entry | None) -> None:
    """Set the row format to prompts with completions if the key `entry` limits the loss to completions and no key
    states the row format. In rows of another format, TRL would silently train on all tokens.
    """
    if entry is None or boolean(entry) is not True or draft.method != "sft" or draft.has("data.format"):
        return
    names = [one.ref.strip('"').partition(":")[0].partition("[")[0] for one in draft.sources]
    if any(one.format for one in draft.sources) or any(registry.find_dataset(name) is not None for name in names):
        return
    why = "the loss includes only completions, so rows with a prompt and a completion are assumed"
    draft.put("data.format", "prompt_completion", None, why)
    draft.warn(entry, why, "`data { format = ... }` states another format")


def everything(draft: Draft, entry: Entry, why: str) -> None:
    """Record a key and all keys inside it as irrelevant, with the reason `why`."""
    inside = [*entry.mapping.values(), *(entry.value if isinstance(entry.value, list) else [])]
    for one in inside:
        everything(draft, one, why)
    if not inside:
        draft.note(entry, why)


def source(draft: Draft, entry: Entry, config: Entry | None, split: Entry | None, columns: Entry | None = None,
           weight: Entry | None = None, named: Entry | None = None) -> Source | None:  # fmt: skip
    """Build a data source such as `org/name:config[split]` from the values of its keys. Reports an error and returns
    None if a spec cannot state the source.

    `weight` is the share of the rows to use. `named` is the mapping that names the file, such as `data_files: {train:
    rows.jsonl}`, or None.
    """
    ref = reference(draft, entry, "dataset")
    if ref is None:
        return None
    limit: int | None = None
    draft.mark(entry, "mapped", f"data {{ {ref} }}")
    known = registry.find_dataset(entry.value) if isinstance(entry.value, str) else None
    for one, form, what in ((config, PART, "configuration"), (split, SPLIT, "split")):
        if not is_stated(one):
            draft.note(one, NULL)
            continue
        found = form.fullmatch(text(one) or "")
        if found is None:
            draft.error(one, f"a spec cannot name this {what}", "write one name, with `[:N]` or `[:N%]` after a split")
        elif ref.startswith('"'):
            if what == "split" and found[2] is not None and found[2].isdecimal():
                limit = int(found[2])
                draft.mark(one, "mapped", f"limit = {limit}")
            elif what == "split" and found[2] is None and (named is not None or one.value == "train"):
                draft.note(one, "a file has one split")
            else:
                draft.error(one, f"a file has no {what}")
        elif what == "configuration" and one.value == "default":
            draft.note(one, "the default configuration")
        elif what == "configuration":
            ref += f":{found[0]}"
            draft.mark(one, "mapped", f"data {{ {ref} }}")
        else:
            usual = "train" if known is None else known.split
            cut = "" if found[2] is None else f":{found[2]}"
            ref += f"[{found[1]}{cut}]" if cut or found[1] != usual else ""
            draft.mark(one, "mapped", f"data {{ {ref} }}")
    if split is None and known is not None and known.split != "train":
        ref += "[train]"
    return Source(ref, _columns(draft, columns, "" if known is None else known.shape), _share(draft, weight), limit)


def _columns(draft: Draft, entry: Entry | None, usual: str) -> tuple[str, ...]:
    """The columns, in a spec's order. Also sets the row format that has these columns."""
    if not is_stated(entry):
        draft.note(entry, NULL)
        return ()
    names = words(entry) or []
    for shape in METHODS[draft.method].shapes:
        need = SHAPES[shape]
        if set(need) <= set(names):
            first = ("prompt",) if shape == "preference" and "prompt" in names else ()
            kept = tuple(one for one in KEPT if one in names)
            others = tuple(one for one in names if one not in (*first, *need, *kept)) if shape == "prompt" else ()
            left = [one for one in names if one not in (*first, *need, *kept, *others)]
            if shape != (usual or METHODS[draft.method].shapes[0]) and not draft.has("data.format"):
                draft.put("data.format", shape)
            draft.mark(entry, "mapped", "columns", f"no trainer reads the columns {', '.join(left)}" if left else "")
            return (*first, *need, *kept, *others)
    draft.put("data.format", "text") if len(names) == 1 and draft.method == "sft" else None
    draft.mark(entry, "mapped", "columns")
    return tuple(names)


def _share(draft: Draft, entry: Entry | None) -> Amount | None:
    value = number(entry)
    if not is_stated(entry):
        draft.note(entry, NULL)
    elif value is None or not 0 < value <= 1:
        draft.error(entry, "the value must be a share above 0 and at most 1", "leave out a dataset of weight 0")
    else:
        draft.mark(entry, "mapped", f"take = {value:.10g}")
        return Amount("share", value)
    return None


def _mixture(draft: Draft, mixture: Entry) -> None:
    """Import `dataset_mixture` of the alignment handbook and Open-R1. Each dataset is shuffled and cut, then all rows
    are shuffled together, and then test rows are held out, always with the same seed.
    """
    table = mixture.mapping
    for one in table["datasets"].items if "datasets" in table else []:
        inside = one.mapping
        if "id" not in inside:
            draft.error(one, "a dataset of the mixture needs an `id`")
            continue
        found = source(draft, inside["id"], *(inside.get(name) for name in ("config", "split", "columns", "weight")))
        if found is not None:
            draft.sources.append(found)
    if "datasets" not in table:
        draft.error(mixture, "the value must have `datasets`, a list of datasets with an `id`")
    draft.setting("data.seed", table.get("seed"))
    draft.default("data.seed", 0, "not set: the seed of the alignment handbook's mixtures")
    if "test_split_size" in table:
        holdout(draft, table["test_split_size"])


def holdout(draft: Draft, entry: Entry) -> None:
    """Set the held-out rows. A value below 1 is a share of the rows, and a larger value is their number. For 0 and
    null, no rows are held out.
    """
    value = number(entry)
    if entry.empty or value == 0:
        draft.note(entry, "nothing is held out")
    elif value is None or value < 0 or (value >= 1 and value != int(value)):
        draft.error(entry, "the value must be a number of rows, or a share below 1")
    else:
        draft.put("data.holdout", Amount("share", value) if value < 1 else Amount("count", int(value)), entry)


def _mixer(draft: Draft, mixer: Entry, named: Entries) -> None:
    """Import `dataset_mixer`, the handbook's older form of a mixture. It has a share for each dataset, and one list of
    splits for all datasets.
    """
    splits = named.get("dataset_splits")
    names = words(splits) or []
    train = [one for one in names if "train" in one] or ["train"]
    test = [one for one in names if "test" in one]
    unexpected = [one for one in names if one not in (*train, *test)]
    if splits is not None and unexpected:
        draft.error(splits, f"the name of the split `{unexpected[0]}` contains neither `train` nor `test`")
    elif splits is not None:
        draft.mark(splits, "mapped", "data, eval.split")
    configs, parts = named.get("dataset_configs"), list(mixer.mapping.values())
    each: list[Entry | None] = [None] * len(parts)
    if configs is not None and configs.empty:
        draft.note(configs, NULL)
    elif configs is not None and len(configs.items) != len(parts):
        draft.error(configs, f"it names {len(configs.items)} configurations, but the mixer has {len(parts)} datasets",
                    "name one configuration for each dataset, in the same order")  # fmt: skip
    elif configs is not None:
        each = list(configs.items)
    for entry, config in zip(parts, each, strict=True):
        name = Entry(entry.key, entry.key.partition(".")[2], entry.file, entry.line)
        share = _share(draft, entry)
        for split in train:
            found = source(draft, name, config, Entry(entry.key, split, entry.file, entry.line))
            if found is not None:
                draft.sources.append(Source(found.ref, (), None if share == Amount("share", 1.0) else share))
    if test:
        draft.put("eval.split", test[0], splits)
        if len(test) > 1:
            draft.error(splits or mixer, "a spec evaluates on a single split")
    draft.default("data.seed", 42, "not set: the alignment-handbook shuffles the mixture with seed 42")


def _several(draft: Draft, several: Entry, named: Entries) -> None:
    """Import TRL's `datasets`, a list of entries with a `path`. An entry's `fraction`, a share of the mixture, is an
    error.
    """
    for one in several.items:
        inside = one.mapping
        if "path" not in inside:
            draft.error(one, "a dataset of the mixture needs a `path`")
            continue
        files = inside.get("data_files")
        only = _only_file(files, inside.get("split"))
        if only is not None and inside["path"].value in ("json", "csv", "parquet", "text"):
            draft.mark(inside["path"], "mapped", "the file name tells the format")
        elif is_stated(files):
            draft.error(
                files, "a spec names one file or folder", "name a local file in `data_files` and its kind in `path`"
            )
        mapped = files if only is not None and files is not None and files.mapping else None
        found = source(draft, only or inside["path"], inside.get("name"), inside.get("split"), inside.get("columns"),
                       named=mapped)  # fmt: skip
        fraction = inside.get("fraction")
        if is_stated(fraction):
            draft.error(fraction, "TRL takes the first rows of each dataset, up to its `fraction` of the mixture; a "
                        "spec cannot do this",
                        "write `data { SOURCE(take=N) }` with the number of rows")  # fmt: skip
        if found is not None:
            draft.sources.append(found)
    if "test_split_size" in named:
        holdout(draft, named["test_split_size"])


def _only_file(files: Entry | None, split: Entry | None) -> Entry | None:
    """The only file that `data_files` names for a split: `rows.jsonl` for `train` in `{train: rows.jsonl}`; None if
    there is none, or several.
    """
    if not is_stated(files):
        return None
    if files.mapping:
        files = files.mapping.get((text(split) or "train" if split is not None else "train").partition("[")[0])
    if files is not None and len(files.items) == 1:
        files = files.items[0]
    return files if files is not None and isinstance(files.value, str) else None


def _single(draft: Draft, entry: Entry, named: Entries) -> None:
    found = source(draft, entry, named.get("dataset_config"), named.get("dataset_train_split"))
    if found is not None:
        draft.sources.append(found)
    several = named.get("dataset_configs")
    if several is not None:
        why = "TRL's scripts read this key only with a `dataset_mixer`"
        draft.note(several, why)
        draft.warn(several, why, "`dataset_config` names the configuration")


def _file(draft: Draft, entry: Entry) -> None:
    """Import FastChat's `data_path`, a JSON file with conversations whose turns have the keys from and value."""
    found = source(draft, entry, None, None)
    if found is not None:
        draft.sources.append(found)
        draft.put("data.format", "conversations", entry, "FastChat reads conversations")


def _evaluation(draft: Draft, named: Entries, plain: bool) -> None:
    every = draft.settings.get("eval.every")
    evaluates = draft.value("eval.every") not in ("", "never")
    split = named.get("dataset_test_split")
    other = named.get("eval_data_path")
    if split is not None and (not evaluates or not plain):
        draft.note(split, "nothing is evaluated" if not evaluates else "the mixture decides")
    elif is_stated(split):
        draft.setting("eval.split", split)
    elif evaluates and plain and not (draft.has("data.holdout") or draft.has("eval.data")):
        draft.put("eval.split", "test", None, "not set: TRL's `dataset_test_split`")
    if other is not None and (other.empty or not evaluates):
        draft.note(other, "nothing is evaluated")
    elif other is not None:
        draft.settings.pop("eval.split", None)
        draft.raw("eval.data", quoted(text(other) or ""), other)
    if evaluates and not any(map(draft.has, ("eval.split", "eval.data", "data.holdout"))):
        draft.warn(every.entry if every else None, "there is no evaluation data and no rows are held out, so "
                   "nothing is evaluated", "`data(holdout=5%)` holds rows out")  # fmt: skip
        del draft.settings["eval.every"]


def _rows(draft: Draft, named: Entries) -> None:
    prompt, system, field = (named.get(key) for key in ("dataset_prompt_column", "system_prompt", "dataset_text_field"))
    draft.setting("data.prompt", prompt)
    if not (draft.has("data.prompt") or draft.has("data.format")) and _other_rows(draft):
        draft.put("data.format", "prompt", None, f"{draft.method} reads the column `prompt` of these rows")
    if is_stated(system):
        system_prompt(draft, system)
    else:
        draft.note(system, NULL)
    if field is not None and draft.method == "sft":
        name = text(field) or ""
        if field.empty or name == "text":
            draft.note(field, "this is the default column of plain texts")
        elif draft.has("data.format") and any(one.columns for one in draft.sources):
            draft.note(field, "the spec names the columns from which the script makes this column")
        else:
            draft.sources = [Source(one.ref, one.columns or (name,), one.take) for one in draft.sources]
            draft.put("data.format", name if name in SHAPES else "text", field)
    _kwargs(draft, named.get("dataset_kwargs"))
    for key, why in (("lazy_preprocess", "it decides when rows are tokenized, not how"),
                     ("ignore_bias_buffers", "a workaround for one model's buffers"),
                     ("test_split_size", "there is no mixture")):  # fmt: skip
        one = named.get(key)
        if one is not None and not draft.handled(one):
            draft.note(one, why)
    made = named.get("preprocessed_path")
    if is_stated(made):
        draft.error(made, "a bundle tokenizes its data itself")


def _other_rows(draft: Draft) -> bool:
    """Whether the run generates answers to prompts of a registered dataset that also has answers, such as
    trl-lib/tldr.
    """
    found = [registry.find_dataset(one.ref.partition(":")[0].partition("[")[0]) for one in draft.sources]
    shapes = METHODS[draft.method].shapes
    return METHODS[draft.method].grouped and any(
        one is not None and one.shape not in shapes and "prompt" in (one.columns or ()) for one in found
    )


def system_prompt(draft: Draft, entry: Entry) -> None:
    """Set the system prompt; a long one is written to a separate file."""
    body = text(entry)
    if body is None:
        draft.error(entry, "the value must be a text")
    elif len(body) <= LONG:
        draft.put("data.system", body, entry)
    else:
        name = f"{draft.stem}.system.txt"
        draft.files[name] = body.encode()
        draft.raw("data.system", f'file("{name}")', entry)


def _kwargs(draft: Draft, entry: Entry | None) -> None:
    if not is_stated(entry):
        draft.note(entry, NULL)
        return
    for name, one in entry.mapping.items():
        if name == "skip_prepare_dataset" and boolean(one):
            draft.error(one, "a bundle always prepares its data")
        else:
            draft.note(one, "no version of TRL that xpc supports reads it")


def inside(folder: Entry, file: Entry) -> Entry | None:
    """Join a folder and the name of a file in it: `./data` and `a.jsonl` give `./data/a.jsonl`. None if the folder may
    be a dataset of the hub.
    """
    outer, inner = folder.value, file.value
    if not isinstance(outer, str) or not isinstance(inner, str) or not outer.startswith((".", "/")):
        return None
    location = posixpath.normpath(posixpath.join(outer, inner))
    return Entry(file.key, location if location.startswith((".", "/")) else f"./{location}", file.file, file.line)
