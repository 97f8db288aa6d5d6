"""axolotl's data: `datasets` of many types, as sources of one shape, and its chat templates by name."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler import registry
from xpc.compiler.data.shapes import SHAPES
from xpc.compiler.importing import corpus
from xpc.compiler.importing.draft import Draft, Source
from xpc.compiler.importing.entries import Entry, boolean, integer, text, words
from xpc.compiler.importing.overrides import Asked
from xpc.compiler.importing.templates import TEMPLATES
from xpc.compiler.methods import METHODS

Entries = Mapping[str, Entry]

READ = (
    "datasets", "pretraining_dataset", "val_set_size", "chat_template", "chat_template_jinja",
    "default_system_message", "train_on_inputs", "shuffle_merged_datasets", "shuffle_before_merging_datasets",
    "dataset_exact_deduplication", "min_sample_len", "dataset_shard_num", "dataset_shard_idx", "streaming",
    "data_seed", "curriculum_sampling", "excess_length_strategy",
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


def data(draft: Draft, named: Entries, asked: Asked) -> None:
    """The sources, the holdout, the template and the loss mask."""
    listed, raw = named.get("datasets"), named.get("pretraining_dataset")
    shapes: dict[str, Entry] = {}
    if draft.sources:
        for one in (listed, raw):
            if one is not None:
                corpus.everything(draft, one, "`--data` names another")
    else:
        for entry in (listed, raw):
            parts = [] if entry is None or entry.empty else entry.items
            for one in parts:
                _source(draft, one, entry is raw, shapes)
    if not draft.sources:
        draft.warn(listed, "no data is named", "`--data` names it")
    _holdout(draft, named)
    _template(draft, named, asked)
    _long(draft, named)
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


def _source(draft: Draft, entry: Entry, raw: bool, shapes: dict[str, Entry]) -> None:
    """One data set; `shapes` are those of the sets before it, of which a spec has one."""
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
    if shape:
        shapes.setdefault(shape, kind or entry)
    if len(shapes) > 1 and shape != next(iter(shapes)):
        draft.error(kind or entry, f"the rows of another source are {next(iter(shapes))}",
                    "a spec's sources are of one shape: write a spec for each, or bring the rows into one")  # fmt: skip
    elif shape and (shape != METHODS[draft.method].shapes[0] or (columns and draft.method == "sft")):
        draft.put("data.format", shape, kind)
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
        _worded(draft, word, place)
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
        shape = _spoken(draft, table, word.startswith("sharegpt"), place)
        return shape, (name,) if (name,) != SHAPES[shape] else ()
    if word == "alpaca":
        return "alpaca", ()
    if not isinstance(place.value, str) and place.key.endswith("type"):
        draft.error(place, "a prompt in words of one's own: no shape of a spec has any but Alpaca's",
                    "write the words into the rows, as `prompt` and `completion`")  # fmt: skip
        corpus.everything(draft, place, "the type is refused")
    elif word.partition(".")[0] in INSTRUCTION or word.partition(":")[0] in INSTRUCTION:
        draft.error(
            place,
            "axolotl puts words of its own around the columns, and no shape of a spec has them",
            "write the words into the rows, as `prompt` and `completion`, and name these by `--data`",
        )
    else:
        draft.error(place, f"the type `{word[:40]}` is not known", "chat_template, completion and alpaca are")
    return "", ()


PAIRS = {("role", "content"): "messages", ("from", "value"): "conversations"}
"""The two keys of a message, to the shape of the rows."""
SPEAKERS = {"user": {"human", "user"}, "assistant": {"gpt", "assistant"}, "system": {"system"}, "tool": {"tool"}}
"""Who speaks, and the names that axolotl and the runtime know them by."""


def _spoken(draft: Draft, table: Entries, older: bool, place: Entry) -> str:
    """Messages of role and content, or of from and value; other keys and other speakers are refused."""
    mapped = _mapped(table, "role", "message_field_role"), _mapped(table, "content", "message_field_content")
    shape = "conversations" if older and mapped == ("role", "content") else PAIRS.get(mapped, "")
    said = table.get("message_property_mappings", place)
    if not shape:
        draft.error(said, f"messages of `{mapped[0]}` and `{mapped[1]}` are none that the runtime reads",
                    "it reads `role` and `content`, or `from` and `value`")  # fmt: skip
    more = table.get("message_property_mappings")
    for key, one in ({} if more is None else more.mapping).items():
        if key not in ("role", "content") and not (key in ("tool_calls", "name") and text(one) == key):
            draft.differs(
                "message_property_mappings",
                f"axolotl hands `{key}` of a message to the template, and the runtime role and content",
                one,
            )
    speakers = table.get("roles")
    for key, one in ({} if speakers is None else speakers.mapping).items():
        names = set(words(one) or [])
        if not names <= SPEAKERS.get(key, set()):
            draft.error(one, f"the runtime knows no speaker {', '.join(sorted(names - SPEAKERS.get(key, set())))}",
                        "it reads human and user, gpt and assistant, system and tool")  # fmt: skip
    return shape or "messages"


def _worded(draft: Draft, word: str, place: Entry) -> None:
    """Types that put the words of a template around texts: the texts become turns under that template."""
    name = word.partition(".")[0]
    if name in ("chatml", "llama3"):
        draft.put("data.chat", True, place)
        file = f"{draft.stem}.chat_template.jinja"
        draft.files[file] = TEMPLATES[name].encode()
        draft.put("model.chat_template", file, place)
        draft.differs(
            "datasets.system",
            "axolotl puts what a column `system` holds before the question, and the spec reads no such column",
            place,
        )
    elif draft.method in ("dpo", "orpo", "reward"):
        draft.differs(
            "datasets.type",
            "axolotl strips the spaces that the template puts after the end of an answer, the spec keeps them",
            place,
        )


def _pair(draft: Draft, word: str, place: Entry, messages: Entry | None, chosen: Entry | None,
          rejected: Entry | None) -> tuple[str, ...]:  # fmt: skip
    last = word.rpartition(".")[2]
    _worded(draft, word, place)
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


def _rest(draft: Draft, table: Entries) -> None:
    for key, one in table.items():
        if (one.file, one.key) in draft.fates:
            continue
        if key in ("message_property_mappings", "roles"):
            for part in one.mapping.values():
                corpus.everything(draft, part, "the runtime knows the speakers of its shapes")
        elif key in ("message_field_role", "message_field_content"):
            draft.mark(one, "mapped", "data { format }")
        elif key == "roles_to_train":
            if set(words(one) or []) <= {"assistant", "gpt"} and words(one):
                corpus.everything(draft, one, "answers are trained on")
            else:
                draft.error(one, "the language trains on answers, or with `train_on_inputs: true` on everything")
        elif key in ("train_on_eos", "train_on_eot"):
            if one.empty or one.value == "turn":
                draft.note(one, "the end of an answer is in the loss")
            else:
                draft.error(one, "the end of every answer is in the loss, and no other", "write `turn`")
        elif key in ("ds_type", "trust_remote_code", "conversation", "preprocess_shards"):
            corpus.everything(draft, one, QUIET_SOURCE[key])
        elif one.off:
            draft.note(one, "it is off")
        elif key in ("field_thinking", "template_thinking_key", "drop_system_message", "field_tools", "type"):
            draft.reserve(one, f"{key}: {text(one)}", "the runtime reads role and content of a message")
        elif key != "path" and not one.mapping:
            draft.error(one, "the language has no such thing for a source")


def _holdout(draft: Draft, named: Entries) -> None:
    if "val_set_size" in named:
        corpus.holdout(draft, named["val_set_size"])
    if not draft.has("data.holdout") and not draft.has("eval.data"):
        draft.settings.pop("eval.every", None)


SAME_TEMPLATES = {"qwen_25": "qwen2.5", "phi_3": "phi3", "chatml": "chatml", "llama3": "llama3", "qwen3": "qwen3",
                  "gemma": "gemma", "gemma3": "gemma3"}  # fmt: skip
"""axolotl's templates that a bundle has by name (compiler/templates), each with its answers marked."""


def _template(draft: Draft, named: Entries, asked: Asked) -> None:
    entry, body, system = (named.get(key) for key in ("chat_template", "chat_template_jinja", "default_system_message"))
    word = "" if entry is None or entry.empty else str(text(entry))
    own = body is not None and not body.empty
    shape = draft.settings["data.format"].text if draft.has("data.format") else METHODS[draft.method].shapes[0]
    renders = shape in ("messages", "conversations", "preference", "unpaired", "prompt")
    fallback = word.startswith("tokenizer_default_fallback_")
    known = registry.find_model(draft.model)
    if body is not None and own:
        _jinja(draft, body, asked)
    elif body is not None:
        draft.note(body, "null: none of its own")
    if fallback and known is not None and known.chat:
        word = "tokenizer_default"
    usual = word.removeprefix("tokenizer_default_fallback_")
    if entry is None:
        pass
    elif not word or word in ("tokenizer_default", "jinja") or own:
        draft.note(entry, "the tokenizer's own" if not own else "the source's own")
    elif not renders:
        draft.note(entry, f"rows of {shape} are rendered by no template")
    elif fallback and known is None:
        draft.note(entry, "the tokenizer's own chat template")
        draft.differs(
            "chat_template", f"axolotl takes `{usual}` where the tokenizer has no template, the spec fails there", entry
        )
    elif usual in TEMPLATES:
        name = f"{draft.stem}.chat_template.jinja"
        draft.files[name] = TEMPLATES[usual].encode()
        draft.put("model.chat_template", name, entry)
    elif usual in SAME_TEMPLATES:
        draft.put("model.chat_template", SAME_TEMPLATES[usual], entry)
    else:
        draft.note(entry, "the tokenizer's own chat template")
        draft.differs(
            "chat_template",
            f"axolotl renders by its own `{word}`, the spec by the template of the tokenizer "
            '(`model(chat_template=file("x.jinja"))` names another)',
            entry,
        )
    if system is not None and not system.empty:
        corpus.said(draft, system)


def _jinja(draft: Draft, body: Entry, asked: Asked) -> None:
    """A template as text, or the name of its file, as axolotl tells them apart: by whether there is such a file."""
    said = text(body) or ""
    data: bytes | None = said.encode()
    if "{" not in said or "\n" not in said:
        data = asked.read(said) or (data if "{" in said else None)
    if data is None:
        draft.error(body, "the file of the template is not there", "lay it beside the source")
        return
    name = f"{draft.stem}.chat_template.jinja"
    draft.files[name] = data
    draft.put("model.chat_template", name, body)


def _long(draft: Draft, named: Entries) -> None:
    """Rows longer than `sequence_len` are left out, unless `excess_length_strategy` cuts them; plain text goes on in
    further rows."""
    way, length = named.get("excess_length_strategy"), named.get("max_length")
    word = "drop" if way is None or way.empty else str(way.value).lower()
    most = (integer(length) if length is not None else None) or 512
    shape = draft.settings["data.format"].text if draft.has("data.format") else METHODS[draft.method].shapes[0]
    if shape == "text":
        if draft.settings.get("batch.packing") is None or draft.settings["batch.packing"].text != "true":
            draft.differs(
                "sequence_len",
                "axolotl goes on in a further row with what is left of a longer text, the spec keeps its beginning",
            )
        if way is not None:
            draft.note(way, "plain text goes on in further rows")
    elif METHODS[draft.method].generates:
        if way is not None:
            draft.note(way, f"{draft.method} reads prompts alone")
    elif word == "truncate":
        if way is not None:
            draft.mark(way, "mapped", "batch.seq")
    elif word in ("drop", "raise"):
        draft.put("data.max_tokens", most, way, "" if way else "not set: axolotl leaves out longer rows")
        if way is not None and word == "raise":
            draft.differs("excess_length_strategy", "axolotl stops at a longer row, the spec leaves it out", way)
    elif way is not None:
        draft.error(way, "it takes drop, truncate or raise")


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
