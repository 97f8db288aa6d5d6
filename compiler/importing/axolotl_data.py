"""axolotl's data: `datasets` of many types, as sources of one shape, and its chat templates by name."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.data.shapes import SHAPES
from xpc.compiler.importing import corpus
from xpc.compiler.importing.draft import Draft, Source
from xpc.compiler.importing.entries import Entry, boolean, text
from xpc.compiler.importing.templates import TEMPLATES
from xpc.compiler.methods import METHODS

Entries = Mapping[str, Entry]

READ = (
    "datasets", "pretraining_dataset", "val_set_size", "chat_template", "chat_template_jinja",
    "default_system_message", "train_on_inputs", "shuffle_merged_datasets", "shuffle_before_merging_datasets",
    "dataset_exact_deduplication", "min_sample_len", "dataset_shard_num", "dataset_shard_idx", "streaming",
    "data_seed", "curriculum_sampling",
)  # fmt: skip
"""The keys that this module reads."""
INSTRUCTION = (
    "alpaca", "alpaca_chat", "alpaca_w_system", "gpteacher", "reflection", "explainchoice", "jeopardy",
    "summarizetldr", "creative_acr", "context_qa", "oasst", "input_output", "stepwise_supervised",
)  # fmt: skip
COLUMNS = {
    "intel": ("question", "chosen", "rejected"),
    "argilla": ("instruction", "chosen_response", "rejected_response"),
}
QUIET_SOURCE = {
    "ds_type": "the file says what it is",
    "roles": "the runtime knows the speakers",
    "train_on_eos": "the end of an answer is in the loss",
    "roles_to_train": "",
    "preprocess_shards": "how rows are read",
    "trust_remote_code": "no code of a dataset is run",
    "conversation": "the chat template decides",
    "message_property_mappings": "",
    "train_on_eot": "the end of an answer is in the loss",
    "chat_template": "",
    "shards": "",
    "field_system": "",
    "strategy": "",
}


def data(draft: Draft, named: Entries) -> None:
    """The sources, the holdout, the template and the loss mask."""
    listed, raw = named.get("datasets"), named.get("pretraining_dataset")
    if draft.sources:
        for one in (listed, raw):
            if one is not None:
                corpus.everything(draft, one, "`--data` names another")
    else:
        for entry in (listed, raw):
            parts = [] if entry is None or entry.empty else entry.items
            for one in parts:
                _source(draft, one, entry is raw)
    if not draft.sources:
        draft.warn(listed, "no data is named", "`--data` names it")
    _holdout(draft, named)
    _template(draft, named)
    _mask(draft, named)
    for key in ("shuffle_merged_datasets", "shuffle_before_merging_datasets"):
        one = named.get(key)
        if one is not None and key == "shuffle_merged_datasets" and not one.empty:
            draft.put("data.shuffle", boolean(one), one)
        elif one is not None:
            draft.note(one, "each part is read whole")
    order = named.get("curriculum_sampling")
    if order is not None and not order.empty:
        draft.put("data.shuffle", not boolean(order), order)
    stream = named.get("streaming")
    if stream is not None and stream.off:
        draft.note(stream, "it is off")
    elif stream is not None:
        draft.note(stream, "the runtime reads whole datasets: the rows are the same")
        draft.warn(stream, "the runtime reads whole datasets, and shuffles them whole")
    same, least = named.get("dataset_exact_deduplication"), named.get("min_sample_len")
    if same is not None and same.off:
        draft.note(same, "it is off")
    elif same is not None:
        draft.setting("data.unique", same)
    if least is not None and draft.method == "sft":
        draft.setting("data.min_tokens", least)
    elif least is not None:
        draft.note(least, f"{draft.method} keeps short rows")
    if "data_seed" in named:
        draft.setting("data.seed", named["data_seed"])
    if draft.has("seed") and not draft.has("data.seed"):
        return
    draft.default("seed", 42, "not set: axolotl's own")


def _source(draft: Draft, entry: Entry, raw: bool) -> None:
    table = entry.mapping
    path = table.get("path", entry if isinstance(entry.value, str) else None)
    if path is None:
        draft.error(entry, "a dataset needs a `path`")
        return
    kind = table.get("type")
    word = (
        "completion" if raw and (kind is None or kind.value == "pretrain") else "" if kind is None else str(text(kind))
    )
    files = table.get("data_files")
    name = path
    if files is not None and path.value in ("json", "csv", "parquet", "text") and len(files.items) == 1:
        name = files.items[0]
        draft.mark(path, "mapped", "the file says what it is")
        draft.mark(files, "mapped", "data")
    elif files is not None and len(files.items) == 1 and isinstance(files.items[0].value, str):
        draft.note(files, "every file of the dataset is read")
        draft.warn(files, "every file of the dataset is read, and the source names one", "`--data` names a local copy")
    elif files is not None and not files.empty:
        draft.error(files, "a spec names one file or folder")
    found = corpus.source(draft, name, table.get("name"), table.get("split"))
    shape, columns = _shape(draft, table, word, kind or entry)
    if kind is not None and kind.mapping:
        corpus.everything(draft, kind, "a type of its own: the columns are named")
        shape, columns = _custom(draft, kind)
    if shape and shape != METHODS[draft.method].shapes[0]:
        draft.put("data.format", shape, kind)
    elif shape and draft.has("data.format") and draft.settings["data.format"].text != shape:
        draft.error(kind or entry, f"the rows of another source are {draft.settings['data.format'].text}",
                    "a spec's sources are of one shape")  # fmt: skip
    if kind is not None and (kind.file, kind.key) not in draft.fates:
        draft.mark(kind, "mapped", f"data {{ format = {shape} }}")
    if found is not None:
        draft.sources.append(Source(found.ref, columns, found.take))
    _rest(draft, table)


def _shape(draft: Draft, table: Entries, word: str, place: Entry) -> tuple[str, tuple[str, ...]]:
    """The shape of the rows and the columns that hold it."""
    messages, chosen, rejected, field = (table.get(key) for key in ("field_messages", "field_chosen", "field_rejected",
                                                                    "field"))  # fmt: skip
    for one in (messages, chosen, rejected, field):
        if one is not None:
            draft.mark(one, "mapped", "columns")
    if METHODS[draft.method].shapes[0] == "preference":
        return "preference", _pair(draft, word, place, messages, chosen, rejected)
    if draft.method == "kto":
        return "unpaired", ()
    if METHODS[draft.method].generates:
        draft.warn(
            place, "the rows are read as they are: `prompt` is the prompt", "`data(prompt=COLUMN)` names another"
        )
        return "prompt", ()
    if word in ("completion", "pretrain") or word.startswith("completion"):
        name = (text(field) if field is not None else None) or "text"
        return "text", (name,) if name != "text" else ()
    if word.startswith(("chat_template", "sharegpt")) or word == "messages":
        name = (text(messages) if messages is not None else None) or (
            "conversations" if word.startswith("sharegpt") else "messages"
        )
        role = _mapped(table, "role", "message_field_role")
        turns = role in ("from", "speaker") or word.startswith("sharegpt")
        shape = "conversations" if turns else "messages"
        return shape, (name,) if (name,) != SHAPES[shape] else ()
    if word == "alpaca":
        return "alpaca", ()
    if word.partition(".")[0] in INSTRUCTION or word.partition(":")[0] in INSTRUCTION:
        draft.warn(place, "the rows have instruction, input and output: the spec reads instruction and output, without "
                   "axolotl's words around them and without `input`", "`--data` names rows of messages")  # fmt: skip
        return "prompt_completion", ("instruction", "output")
    draft.error(place, f"the type `{word[:40]}` is not known", "chat_template, completion and alpaca are")
    return "", ()


def _pair(draft: Draft, word: str, place: Entry, messages: Entry | None, chosen: Entry | None,
          rejected: Entry | None) -> tuple[str, ...]:  # fmt: skip
    last = word.rpartition(".")[2]
    if last in COLUMNS:
        return COLUMNS[last]
    one, two = (text(entry) if entry is not None else None for entry in (chosen, rejected))
    if word.startswith("chat_template") or messages is not None:
        return ((text(messages) if messages is not None else None) or "messages", one or "chosen", two or "rejected")
    if last not in ("ultra", "argilla_chat", "chat_template", "default", "prompt_pairs", ""):
        draft.warn(place, f"the type `{word[:40]}` is read as pairs in `chosen` and `rejected`")
    return (one or "chosen", two or "rejected") if (one or two) else ()


def _mapped(table: Entries, key: str, older: str) -> str:
    new = table.get("message_property_mappings")
    for one in (new.mapping.get(key) if new is not None else None, table.get(older)):
        if one is not None:
            return text(one) or ""
    return key


def _custom(draft: Draft, kind: Entry) -> tuple[str, tuple[str, ...]]:
    """A type of the user's own: `field_instruction` and `field_output`."""
    asked, answer = (kind.mapping.get(key) for key in ("field_instruction", "field_output"))
    names = tuple(
        (text(one) if one is not None else None) or usual for one, usual in ((asked, "instruction"), (answer, "output"))
    )
    draft.warn(kind, "the words around the columns are left out: the spec reads the two columns alone")
    return "prompt_completion", names


def _rest(draft: Draft, table: Entries) -> None:
    for key, one in table.items():
        if (one.file, one.key) in draft.fates:
            continue
        if key in ("message_property_mappings", "roles"):
            for part in one.mapping.values():
                corpus.everything(draft, part, "the runtime knows the speakers of its shapes")
        elif key in ("message_field_role", "message_field_content"):
            draft.mark(one, "mapped", "data { format }")
        elif key in ("roles_to_train", "train_on_eos", "train_on_eot", "ds_type", "trust_remote_code", "conversation",
                     "preprocess_shards"):  # fmt: skip
            corpus.everything(draft, one, QUIET_SOURCE[key] or "answers are trained on")
        elif one.off:
            draft.note(one, "it is off")
        elif key in ("field_thinking", "template_thinking_key", "drop_system_message", "field_tools", "type"):
            draft.reserve(one, f"{key}: {text(one)}", "the runtime reads role and content of a message")
        elif key != "path" and not one.mapping:
            draft.error(one, "the language has no such thing for a source")


def _holdout(draft: Draft, named: Entries) -> None:
    if "val_set_size" in named:
        corpus.holdout(draft, named["val_set_size"])
    if not draft.has("data.holdout"):
        draft.settings.pop("eval.every", None)


def _template(draft: Draft, named: Entries) -> None:
    entry, body, system = (named.get(key) for key in ("chat_template", "chat_template_jinja", "default_system_message"))
    word = "" if entry is None or entry.empty else str(text(entry))
    own = body is not None and not body.empty
    name = f"{draft.stem}.chat_template.jinja"
    if body is not None and own:
        draft.files[name] = (text(body) or "").encode()
        draft.put("model.chat_template", name, body)
    elif body is not None:
        draft.note(body, "null: none of its own")
    if entry is not None and (not word or word in ("tokenizer_default", "jinja") or own):
        draft.note(entry, "the tokenizer's own" if not own else "the source's own")
    elif (
        entry is not None and word.removeprefix("tokenizer_default_fallback_") in TEMPLATES and draft.method != "reward"
    ):
        draft.files[name] = TEMPLATES[word.removeprefix("tokenizer_default_fallback_")].encode()
        draft.put("model.chat_template", name, entry)
    elif entry is not None:
        draft.note(entry, "the tokenizer's own chat template")
        draft.warn(entry, f"the tokenizer's own chat template takes the place of axolotl's `{word}`",
                   '`model(chat_template=file("x.jinja"))` names another')  # fmt: skip
    if system is not None and not system.empty:
        corpus.said(draft, system)


def _mask(draft: Draft, named: Entries) -> None:
    """The loss is on answers unless `train_on_inputs` says otherwise."""
    entry = named.get("train_on_inputs")
    whole = entry is not None and boolean(entry) is True
    shape = draft.settings["data.format"].text if draft.has("data.format") else METHODS[draft.method].shapes[0]
    path = {
        "prompt_completion": "method.completion_only",
        "alpaca": "method.completion_only",
        "text": "",
    }.get(shape, "method.assistant_only")
    if draft.method != "sft" or not path:
        if entry is not None:
            draft.note(entry, "there are no answers apart" if not path else f"{draft.method} does not read it")
    elif entry is not None and not entry.empty:
        draft.put(path, not whole, entry)
    else:
        draft.put(path, True, None, "not set: axolotl trains on answers")
