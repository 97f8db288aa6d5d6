"""Import LLaMA-Factory's data: the datasets of dataset_info.json, the dataset files of the newer layout (v1), and
held-out rows.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping

from xpc.compiler.importing import mixture
from xpc.compiler.importing.draft import Draft, Source
from xpc.compiler.importing.llamafactory import images
from xpc.compiler.importing.llamafactory.earlier_turns import converted
from xpc.compiler.importing.llamafactory.sets import About, rows
from xpc.compiler.importing.llamafactory.templates import template
from xpc.compiler.importing.overrides import Overrides, named_table
from xpc.compiler.importing.text import yaml as yamltext
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, integer, is_stated, text, words
from xpc.compiler.importing.trl import data as corpus
from xpc.compiler.importing.trl import formats, switches
from xpc.compiler.importing.trl import model as models
from xpc.compiler.language.methods import METHODS
from xpc.grammar.nearest import nearest
from xpc.grammar.package_data import read_table
from xpc.grammar.record import evolve
from xpc.grammar.tree import quoted


def data(draft: Draft, named: Entries, overrides: Overrides, stage: str) -> None:
    """Set the data sources, the held-out rows, the loss mask and the chat template."""
    folder, listed, limit = (named.get(key) for key in ("dataset_dir", "dataset", "max_samples"))
    base = text(folder) or "data"
    most = None
    if is_stated(limit):
        most = integer(limit)
        if most is None or most < 1:
            draft.error(limit, "the value must be a whole number above 0")
        else:
            draft.mark(limit, "mapped", f"limit = {most}")
    draft.mark(folder, "mapped", "data")
    second = named.get("train_dataset")
    if draft.sources:
        for one in (listed, second):
            draft.note(one, "`--data` names another")
        draft.sources = [evolve(one, limit=most) for one in draft.sources]
        if stage == "pt":
            draft.put("data.format", "text")
    elif is_stated(second):
        _second(draft, second, overrides)
    elif is_stated(listed):
        info = _information(overrides, base)
        beside = _information(overrides, ".") if folder is None else {}
        if not set(words(listed) or []) <= set(info) and set(words(listed) or []) <= set(beside):
            draft.warn(listed, "`data/dataset_info.json` does not list it, but the one next to the imported file does")
            info, base = beside, "."
        complete = overrides.read(f"{base}/dataset_info.json") is not None
        for name in words(listed) or []:
            if complete and name not in info:
                near = nearest(name, info)
                draft.error(listed, f"`{base}/dataset_info.json` has no dataset `{name}`, so LLaMA-Factory refuses the "
                            "file, too", f"did you mean `{near}`?" if near else f"add `{name}` to it")  # fmt: skip
                continue
            _source(draft, listed, name, base, info, most, stage, overrides)
        formats.in_common(draft)
    else:
        draft.warn(listed, "no data is named", "`--data` names it")
    _mixture(draft, named.get("mix_strategy"), named.get("interleave_probs"))
    _masks(draft, named, stage)
    images.place(draft, named.get("media_dir"), base)
    if images.reads_images(draft):
        images.template(draft, named.get("template"))
    else:
        template(draft, named, stage)
    _holdout(draft, named, overrides, base, stage, most)
    _order(draft, named, stage)


NUMBER = re.compile(r"[0-9]{0,20}\.?[0-9]{0,20}(?<=[0-9])")
ENDS = {"interleave_under": "stop", "interleave_over": "repeat"}
"""Maps `mix_strategy` to when a mixture ends: `stop` when the first dataset is used up, `repeat` when every dataset was
used up at least once, with shorter datasets repeated until then. Source: data/data_utils.py (`merge_dataset`).
"""


def _mixture(draft: Draft, mixed: Entry | None, stated: Entry | None) -> None:
    """Import `interleave_probs` as the shares of a mixture. If the file interleaves datasets without this key, the
    shares are equal.
    """
    if not is_stated(mixed) or mixed.value == "concat":
        draft.note(mixed, "a bundle concatenates its sources")
        # no message about `interleave_probs`: LLaMA-Factory refuses it for datasets that are not interleaved
        return
    end = ENDS.get(str(text(mixed)))
    if end is None:
        draft.error(
            mixed, "xpc has no such strategy of mixing", "write `concat`, `interleave_under` or `interleave_over`"
        )
        return
    if len(draft.sources) < 2:
        for one in (mixed, stated):
            draft.note(one, "there is only one dataset")
        return
    shares: list[float | None] | None = None
    if is_stated(stated):
        shares = [float(one) if NUMBER.fullmatch(one) else None for one in words(stated) or []]
    if not mixture.share_out(draft, mixed, stated, shares, end):
        return
    draft.differs("mix_strategy", "LLaMA-Factory draws the dataset of each row at random; the spec's shares are exact")


def _order(draft: Draft, named: Entries, stage: str) -> None:
    system = named.get("default_system")
    if is_stated(system):
        corpus.system_prompt(draft, system)
    order = named.get("disable_shuffling")
    if order is not None:
        draft.put("data.shuffle", not boolean(order), order)
    draft.setting("data.seed", named.get("data_seed"))
    if stage != "pt":
        spec = "a run of the spec stops" if images.reads_images(draft) else "the spec cuts its end"
        draft.differs("cutoff_len", f"LLaMA-Factory truncates the question and the answer of a longer row; {spec}")


def streamed(draft: Draft, packs: bool) -> None:
    """Report how LLaMA-Factory's packing of pretraining texts differs from the spec's: it joins all texts into one
    stream of tokens, and cuts this stream into rows.
    """
    if switches.stream(draft):
        draft.differs(
            "packing",
            "LLaMA-Factory drops the incomplete sequence at the end of each thousand texts, and replaces the first "
            "token of each sequence by the tokenizer's bos token; the spec keeps a shorter sequence, and has this "
            "token before each text",
        )
        return
    why = "LLaMA-Factory writes no bos token (such as <s>) before a text; the spec does if the tokenizer has one"
    draft.differs("tokenizer", why)
    # drop the difference in packing that `families.nearest` may have reported: pretraining packs texts as one stream
    dropped = draft.differences.pop("sample_packing", None)
    draft.messages = [one for one in draft.messages if dropped is None or dropped not in one.text]
    if not packs:
        return
    here = (
        "packs pieces of texts that do not attend to each other"
        if draft.value("batch.packing") == "true"
        else "does not pack and truncates each text, because packed texts of this model would attend to each other"
    )
    draft.differs(
        "packing",
        "LLaMA-Factory joins all texts, cuts them into sequences of equal length, and drops the incomplete last one; "
        f"texts in one sequence attend to each other. The spec {here}. `attn = flash2` with "
        "`packing(strategy=wrapped)` does the same as the tool",
    )


def _masks(draft: Draft, named: Entries, stage: str) -> None:
    """Set the loss mask, so that the loss includes only answers. The format of the rows decides the setting:
    `assistant_only` or `completion_only`.
    """
    if draft.method != "sft" or stage == "pt":
        return
    stated = draft.settings.pop("method.assistant_only", None)
    prompts_too = stated is not None and stated.text == "false"
    entry, why = None if stated is None else stated.entry, "" if prompts_too else "LLaMA-Factory trains on answers"
    for path in formats.masks(draft):
        draft.put(path, not prompts_too, entry, why)


def _second(draft: Draft, entry: Entry, overrides: Overrides) -> None:
    """Import `train_dataset` of the newer layout (v1), which names a YAML file of datasets or a single dataset."""
    name = text(entry) or ""
    if not name.endswith((".yaml", ".yml")):
        ref = models.reference(draft, entry, "dataset")
        if ref is not None:
            draft.sources.append(Source(ref))
            draft.mark(entry, "mapped", f"data {{ {ref} }}")
        return
    data = overrides.read(name)
    if data is None:
        ref = quoted(name.rpartition(".")[0] + ".jsonl")
        draft.sources.append(Source(ref))
        draft.mark(entry, "mapped", f"data {{ {ref} }}")
        draft.differs(
            "train_dataset",
            f"the file `{name}` lists the training data and does not exist: the spec reads messages from {ref}; name "
            "other data with `--data`",
            entry,
        )
        return
    table = named_table(draft, entry, yamltext.read, data, name)
    if table is None:
        return
    draft.mark(entry, "mapped", "data")
    for one in table.values():
        _of_the_file(draft, one)
    formats.in_common(draft)


def _of_the_file(draft: Draft, entry: Entry) -> None:
    """Import one entry of a YAML file of datasets (newer layout): its `path`, `size` and row format (`converter`)."""
    inside = entry.mapping
    path, kind, how = (inside.get(key) for key in ("path", "source", "converter"))
    if path is None:
        draft.error(entry, "a dataset needs a `path`")
        return
    found = corpus.source(draft, path, None, inside.get("split"))
    size = inside.get("size")
    most = integer(size)
    if size is not None and size.empty:
        draft.note(size, "all rows")
    elif size is not None and (most is None or most < 1):
        draft.error(size, "the value must be a number of rows")
    elif size is not None and found is not None:
        found = evolve(found, limit=most)
        draft.mark(size, "mapped", f"limit = {most}")
    draft.mark(kind, "mapped", "data")
    word = str(text(how)) if is_stated(how) else "messages"
    shape = {"messages": "messages", "alpaca": "alpaca", "sharegpt": "conversations", "pair": "preference"}.get(
        word, ""
    )
    if not shape:
        draft.error(how or entry, "a spec cannot read rows of this format", "write the rows as messages")
    if found is not None:
        draft.sources.append(
            evolve(found, format=shape if how is not None else "", chat=shape == "alpaca", location=how)
        )


def _holdout(draft: Draft, named: Entries, overrides: Overrides, base: str, stage: str, most: int | None) -> None:
    """Import `val_size`, the held-out rows, or `eval_dataset`, the test sets."""
    if "val_size" in named:
        corpus.holdout(draft, named["val_size"])
    sets = named.get("eval_dataset")
    every = draft.settings.get("eval.every")
    evaluates = draft.value("eval.every") not in ("", "never")
    if sets is not None and (sets.empty or not evaluates):
        draft.note(sets, "it is empty" if sets.empty else "nothing is evaluated")
    elif sets is not None:
        _evaluated(draft, sets, base, _information(overrides, base), overrides)
        limit = named.get("max_samples")
        if most and limit is not None:
            draft.differs(
                "max_samples", f"LLaMA-Factory evaluates on the first {most} rows of each set; the spec uses all", limit
            )
    if every is not None and evaluates and not (draft.has("data.holdout") or draft.has("eval.data")):
        draft.warn(every.entry, "no rows are held out, so nothing is evaluated", "`val_size: 0.1` holds out rows")
        del draft.settings["eval.every"]


def _information(overrides: Overrides, folder: str) -> Mapping[str, About]:
    """The entries of the `dataset_info.json` in `folder`. The folder `data` also has LLaMA-Factory's own entries,
    because its repository keeps them in `data`.
    """
    data = overrides.read(f"{folder}/dataset_info.json")
    own = read_table(__file__, "dataset_info.toml") if folder.rstrip("/").rpartition("/")[2] == "data" else {}
    try:
        found = None if data is None else json.loads(data)
    except ValueError:
        found = None
    listed = {key: one for key, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}
    return {**own, **listed}


def _evaluated(draft: Draft, entry: Entry, base: str, info: Mapping[str, About], overrides: Overrides) -> None:
    """Set `eval.data` from the names in `eval_dataset`. The test rows have the format of the training rows."""
    refs = []
    for name in words(entry) or []:
        about, place = converted(draft, entry, base, info.get(name, {}), overrides)
        refs.append(_reference(name, place, about))
    draft.raw("eval.data", f"[{', '.join(refs)}]" if len(refs) > 1 else refs[0], entry)
    if len(refs) > 1 and not draft.has("eval.every"):
        draft.note(entry, "nothing is evaluated")


QUESTION = {"prompt": "instruction", "query": "input"}
PAIRS: tuple[About, str] = (
    {"ranking": True, "columns": {**QUESTION, "chosen": "chosen", "rejected": "rejected"}},
    ", with the answers `chosen` and `rejected`",
)
UNKNOWN: Mapping[str, tuple[About, str]] = {
    "pt": ({"columns": {"prompt": "text"}}, ""),
    "rm": PAIRS,
    "dpo": PAIRS,
    "kto": ({"columns": {**QUESTION, "response": "output", "kto_tag": "kto_tag"}}, ", rated by `kto_tag`"),
}
"""Maps each stage of training to the entry that the import assumes if there is no dataset_info.json, and to words for
the warning about the assumed rows.
"""
WITH_IMAGES = {"sft": "mllm_demo", "dpo": "rlhf_v"}
"""Maps a stage of training to the published dataset whose entry the import assumes for a model that reads images."""


def _source(draft: Draft, entry: Entry, name: str, folder: str, info: Mapping[str, About], most: int | None,
            stage: str, overrides: Overrides) -> None:  # fmt: skip
    """Add a data source for one name in `dataset`, which names an entry of `dataset_info.json` or a file."""
    about = info.get(name)
    read, place = (about or {}, folder) if stage == "pt" else converted(draft, entry, folder, about or {}, overrides)
    ref = _reference(name, place, read)
    draft.mark(entry, "mapped", f"data {{ {ref} }}")
    assumed, phrase = UNKNOWN.get(stage, ({}, ""))
    whose = f"rows of Alpaca's format{phrase}"
    if images.reads_images(draft) and stage in WITH_IMAGES:
        assumed = read_table(__file__, "dataset_info.toml")[WITH_IMAGES[stage]]
        whose = f"rows with images, as in `{WITH_IMAGES[stage]}`"
    if about is None and stage != "pt":
        why = f"`{folder}/dataset_info.json`, which describes `{name}`, does not exist: the import assumes "
        draft.warn(entry, why + whose)
    found = rows(draft, entry, name, read or assumed, stage)
    if found is None:
        draft.sources.append(Source(ref, (), None, most))
        return
    stated = found.shape != METHODS[draft.method].shapes[0] or found.columns or ref.startswith('"')
    shape = found.shape if stated else ""
    draft.sources.append(Source(ref, found.columns, None, most, shape, found.context, found.chat, entry))


def _reference(name: str, folder: str, about: About) -> str:
    hub, file = about.get("hf_hub_url"), about.get("file_name")
    if isinstance(hub, str):
        config, split = about.get("subset"), about.get("split")
        return (
            hub + (f":{config}" if isinstance(config, str) else "") + (f"[{split}]" if isinstance(split, str) else "")
        )
    if "/" in name and not name.endswith((".json", ".jsonl", ".csv", ".parquet")):
        return name
    file = file if isinstance(file, str) else name if "." in name else name + ".json"
    return quoted(posixpath.join(folder, file))
