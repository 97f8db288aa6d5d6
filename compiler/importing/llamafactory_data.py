"""LLaMA-Factory's data: names of its dataset_info.json, files of both generations, its templates by name."""

from __future__ import annotations

import json
from collections.abc import Mapping

from xpc.compiler.importing import corpus
from xpc.compiler.importing import model as models
from xpc.compiler.importing.draft import Draft, Source
from xpc.compiler.importing.entries import Entry, boolean, integer, text, words
from xpc.compiler.importing.overrides import Asked
from xpc.compiler.importing.templates import TEMPLATES
from xpc.compiler.language.kinds import Amount
from xpc.compiler.lower.specfile import quoted

Entries = Mapping[str, Entry]


def data(draft: Draft, named: Entries, asked: Asked, stage: str) -> None:
    """The sources, the holdout and the template."""
    folder, listed, limit, template = (named.get(key) for key in ("dataset_dir", "dataset", "max_samples", "template"))
    base = (text(folder) if folder is not None else None) or "data"
    take = None
    if limit is not None and not limit.empty:
        value = integer(limit)
        if value is None or value < 1:
            draft.error(limit, "it takes a whole number above 0")
        else:
            take = Amount("count", value)
            draft.mark(limit, "mapped", f"take = {value}")
            draft.warn(limit, "`take` wants as many rows in each source; LLaMA-Factory takes what is there")
    if folder is not None:
        draft.mark(folder, "mapped", "data")
    info = _information(asked, base)
    second = named.get("train_dataset")
    if draft.sources:
        for one in (listed, second):
            if one is not None:
                draft.note(one, "`--data` names another")
        draft.sources = [Source(one.ref, one.columns, take or one.take) for one in draft.sources]
    elif second is not None and not second.empty:
        name = text(second) or ""
        path = name.removesuffix(".yaml").removesuffix(".yml") + (".jsonl" if name.endswith((".yaml", ".yml")) else "")
        ref = models.reference(draft, Entry(second.key, path, second.file, second.line), "dataset")
        if ref is not None:
            draft.sources.append(Source(ref, (), take))
            draft.mark(second, "mapped", f"data {{ {ref} }}")
            draft.warn(second, f"the rows are looked for in {ref}, as messages", "`--data` names them")
    elif listed is not None and not listed.empty:
        for name in words(listed) or []:
            _source(draft, listed, name, base, info, take)
    else:
        draft.warn(listed, "no data is named", "`--data` names it")
    if stage == "pt":
        draft.put("data.format", "text")
    if template is not None and text(template) in TEMPLATES and draft.method == "sft" and stage != "pt":
        name = f"{draft.stem}.chat_template.jinja"
        draft.files[name] = TEMPLATES[str(text(template))].encode()
        draft.put("model.chat_template", name, template)
    elif template is not None:
        draft.note(template, "the tokenizer's own chat template")
        draft.warn(template, "the tokenizer's own chat template takes the place of LLaMA-Factory's",
                   '`model(chat_template=file("x.jinja"))` names another')  # fmt: skip
    _holdout(draft, named)
    system = named.get("default_system")
    if system is not None and not system.empty:
        corpus.said(draft, system)
    order = named.get("disable_shuffling")
    if order is not None:
        draft.put("data.shuffle", not boolean(order), order)
    if "data_seed" in named:
        draft.setting("data.seed", named["data_seed"])
    stream = named.get("streaming")
    if stream is not None:
        draft.note(stream, "it is off" if stream.off else "the runtime reads whole datasets: the rows are the same")
    thinking = named.get("enable_thinking")
    if thinking is not None:
        draft.note(thinking, "the chat template's own switch, a column of the rows")
        draft.warn(thinking, "the template's switch is a column `chat_template_kwargs` of the rows")


def _holdout(draft: Draft, named: Entries) -> None:
    if "val_size" in named:
        corpus.holdout(draft, named["val_size"])
    every = draft.settings.get("eval.every")
    if every is not None and every.text != "never" and not draft.has("data.holdout"):
        draft.warn(every.entry, "no rows are held out, and nothing is evaluated", "`val_size: 0.1` holds rows out")
        del draft.settings["eval.every"]


def _information(asked: Asked, folder: str) -> Mapping[str, object]:
    """LLaMA-Factory's `dataset_info.json`, where it lies beside the source."""
    data = asked.read(f"{folder}/dataset_info.json")
    try:
        found = None if data is None else json.loads(data)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _source(
    draft: Draft, entry: Entry, name: str, folder: str, info: Mapping[str, object], take: Amount | None
) -> None:
    """One name of `dataset`: what `dataset_info.json` says, or a file of that name."""
    known = info.get(name)
    about: Mapping[str, object] = known if isinstance(known, dict) else {}
    hub, file = about.get("hf_hub_url"), about.get("file_name")
    if isinstance(hub, str):
        config, split = about.get("subset"), about.get("split")
        ref = hub + (f":{config}" if isinstance(config, str) else "") + (f"[{split}]" if isinstance(split, str) else "")
    elif "/" in name and not name.endswith((".json", ".jsonl", ".csv", ".parquet")):
        ref = name
    else:
        ref = quoted(f"{folder}/{file if isinstance(file, str) else name if '.' in name else name + '.json'}")
    draft.sources.append(Source(ref, (), take))
    draft.mark(entry, "mapped", f"data {{ {ref} }}")
    form = about.get("formatting", "alpaca")
    if form == "sharegpt" and draft.method == "sft":
        draft.put("data.format", "conversations", entry)
    elif draft.method == "sft":
        draft.warn(entry, f"{ref}: the runtime reads messages, and alpaca's instruction, input and output are none",
                   "`--data` names rows of messages")  # fmt: skip
