"""axolotl's data: `datasets` of many types, as sources of one shape, and its chat templates by name."""

from __future__ import annotations

import json

from xpc.compiler.data.row_shapes import ROLES as KNOWN
from xpc.compiler.data.shapes import SHAPES
from xpc.compiler.importing.axolotl import chat as axolotl_chat
from xpc.compiler.importing.axolotl import evaluation as axolotl_evaluation
from xpc.compiler.importing.axolotl import keys as axolotl_keys
from xpc.compiler.importing.axolotl import prompts as axolotl_words
from xpc.compiler.importing.axolotl import rows as axolotl_rows
from xpc.compiler.importing.axolotl import templates as axolotl_templates
from xpc.compiler.importing.draft import Draft, Source
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, text, words
from xpc.compiler.importing.trl import data as corpus
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.setting import ROLES

INSTRUCTION = (
    "alpaca", "alpaca_chat", "alpaca_w_system", "gpteacher", "reflection", "explainchoice", "jeopardy",
    "summarizetldr", "creative_acr", "context_qa", "oasst", "input_output", "stepwise_supervised",
)  # fmt: skip
COLUMNS = {
    "intel": ("question", "chosen", "rejected"),
    "icr": ("input", "chosen", "rejected"),
    "prompt_pairs": ("prompt", "chosen", "rejected"),
    "argilla": ("instruction", "chosen_response", "rejected_response"),
}
"""Columns of texts, by the last word of a type of pairs."""
CONVERSATIONS = ("argilla_chat", "ultra")
"""Types of pairs whose answers are conversations."""
SYSTEM = "axolotl puts what a column `system` holds before the question, and the spec reads no such column"


def data(draft: Draft, named: Entries, overrides: Overrides) -> None:
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
                _source(draft, one, entry is raw, named)
                _system_column(draft, one.mapping.get("path"), overrides)
        corpus.in_common(draft)
    if not draft.sources:
        draft.warn(listed, "no data is named", "`--data` names it")
    axolotl_evaluation.holdout(draft, named)
    axolotl_rows.long(draft, named)
    _mask(draft, named, axolotl_chat.template(draft, named, overrides, axolotl_chat.learned(draft, named)))
    axolotl_chat.template_arguments(draft, named)
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
    if draft.on(stream):
        draft.note(stream, "the runtime reads whole datasets: the rows are the same")
        draft.warn(stream, "the runtime reads whole datasets, and shuffles them whole")
    same, least = named.get("dataset_exact_deduplication"), named.get("min_sample_len")
    if draft.on(same):
        draft.setting("data.unique", same)
    if least is not None and draft.method == "sft":
        draft.setting("data.min_tokens", least)
    elif least is not None:
        draft.note(least, f"{draft.method} keeps short rows")
    if draft.has("seed") and not draft.has("data.seed"):
        return
    draft.default("seed", 42, "not set: axolotl's own")


def _source(draft: Draft, entry: Entry, raw: bool, named: Entries) -> None:
    """One data set."""
    table = axolotl_keys.known(draft, entry.mapping, "datasets.")
    path = table.get("path", entry if isinstance(entry.value, str) else None)
    if path is None:
        draft.error(entry, f"axolotl {axolotl_keys.VERSION} fails at a dataset without a `path`",
                    "write the file as `path`, or `path: json` beside `data_files`")  # fmt: skip
        return
    kind = table.get("type")
    word = (
        "completion" if raw and (kind is None or kind.value == "pretrain") else "" if kind is None else str(text(kind))
    )
    files = table.get("data_files")
    names = [path]
    if files is not None and path.value in ("json", "csv", "parquet", "text") and files.items:
        names = list(files.items)  # one after the other, as the reader of datasets joins them
        draft.mark(path, "mapped", "the file says what it is")
        draft.mark(files, "mapped", "data")
    elif files is not None and files.items and all(inside := [corpus.inside(path, one) for one in files.items]):
        names = [one for one in inside if one is not None]
        draft.mark(path, "mapped", "the folder of the files" if len(names) > 1 else "the folder of the file")
        draft.mark(files, "mapped", "data")
    elif files is not None and len(files.items) == 1 and isinstance(files.items[0].value, str):
        draft.note(files, "every file of the dataset is read")
        draft.warn(files, "every file of the dataset is read, and the source names one", "`--data` names a local copy")
    elif files is not None and not files.empty:
        draft.error(files, "a spec names one file or folder")
    shards = table.get("shards")
    if len(names) > 1 and shards is not None and not shards.off:
        draft.error(
            shards, "a part of several files together is no part of each", "name a file of these rows by `--data`"
        )
    each = [corpus.source(draft, name, table.get("name"), table.get("split")) for name in names]
    shape, columns = _shape(draft, table, word, kind or entry)
    if kind is not None and (kind.file, kind.key) not in draft.fates:
        draft.mark(kind, "mapped", f"data {{ format = {shape} }}")
    part = axolotl_rows.part(draft, table, named)
    for found in each:
        if found is None:
            continue
        stated = shape and (
            shape != METHODS[draft.method].shapes[0]
            or (columns and draft.method == "sft")
            or found.ref.startswith('"')  # a file that may be where the run will be
        )
        ref = axolotl_evaluation.revised(draft, found.ref, table["revision"]) if "revision" in table else found.ref
        draft.sources.append(Source(ref, columns, part or found.take, format=shape if stated else "", place=kind))
    _other_keys(draft, table)


def _system_column(draft: Draft, path: Entry | None, overrides: Overrides) -> None:
    """axolotl reads a column `system` beside messages, which rows of a file beside the source show."""
    name = None if path is None else text(path)
    data = overrides.read(name) if name is not None and name.endswith(".jsonl") else None
    try:
        first = json.loads((data or b"{}").split(b"\n", 1)[0])
    except ValueError:
        return
    if (
        path is not None
        and isinstance(first, dict)
        and "system" in first
        and {"messages", "conversations"} & set(first)
    ):
        draft.put("data.system_column", "system", path)


def _shape(draft: Draft, table: Entries, word: str, place: Entry) -> tuple[str, tuple[str, ...]]:
    """The shape of the rows and the columns that hold it."""
    messages, chosen, rejected = (table.get(key) for key in ("field_messages", "field_chosen", "field_rejected"))
    field = table.get("field", table.get("text_column"))
    for one in (messages, chosen, rejected, field):
        draft.mark(one, "mapped", "columns")
    if METHODS[draft.method].shapes[0] == "preference":
        return "preference", _pair(draft, word, place, messages, chosen, rejected)
    if draft.method == "kto":
        return "unpaired", _unpaired(draft, word, place)
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
        shape = _messages(draft, table, word.startswith("sharegpt"), place)
        return shape, (name,) if (name,) != SHAPES[shape] else ()
    if word in ("alpaca", "alpaca:instruct"):  # the style is the usual one
        draft.differs(
            "datasets.type",
            "axolotl makes tokens of the question and of the answer apart, the spec of both at once: of an answer that "
            "begins with the end of a line the first tokens may be others",
        )
        return "alpaca", ()
    prompted = axolotl_words.shaped(draft, word, place) if place.key.endswith("type") else None
    if prompted is not None:
        return "prompt_completion", prompted
    if not word or (place.key.endswith("type") and place.empty):
        draft.error(
            place,
            "no type is named, so that axolotl takes the rows as tokens already (`input_ids`, `labels`), and a bundle "
            "makes tokens itself",
            "name the rows as text by `--data`, or write their `type`",
        )
    elif word == "input_output":
        draft.error(
            place,
            "a row is a list of segments, each learned or not as its `label` says, and no shape of a spec has them",
            "where one learned segment ends each row, write it as `completion` and those before it as `prompt`, and "
            "name these by `--data`",
        )
    elif word.partition(".")[0] in INSTRUCTION or word.partition(":")[0] in INSTRUCTION:
        draft.error(
            place,
            "axolotl puts words of its own around the columns, and no shape of a spec has them",
            "write the words into the rows, as `prompt` and `completion`, and name these by `--data`",
        )
    else:
        why = f"axolotl {axolotl_keys.VERSION} has no type `{word[:40]}`, and a module of one's own is not run here"
        draft.error(place, why, "chat_template, completion and alpaca are")
    return "", ()


PAIRS = {("role", "content"): "messages", ("from", "value"): "conversations"}
"""The two keys of a message, to the shape of the rows."""


def _messages(draft: Draft, table: Entries, older: bool, place: Entry) -> str:
    """Messages of role and content, or of from and value; other keys and other speakers are refused."""
    mapped = _mapped(table, "role", "message_field_role"), _mapped(table, "content", "message_field_content")
    shape = "conversations" if older and mapped == ("role", "content") else PAIRS.get(mapped, "")
    mapping = table.get("message_property_mappings", place)
    if not shape:
        draft.error(mapping, f"messages of `{mapped[0]}` and `{mapped[1]}` are none that the runtime reads",
                    "it reads `role` and `content`, or `from` and `value`")  # fmt: skip
    more = table.get("message_property_mappings")
    for key, one in ({} if more is None else more.mapping).items():
        if key not in ("role", "content") and not (key in ("tool_calls", "name") and text(one) == key):
            draft.differs(
                "message_property_mappings",
                f"axolotl hands `{key}` of a message to the template, and the runtime role and content",
                one,
            )
    speakers(draft, table.get("roles"), shape or "messages")
    return shape or "messages"


def speakers(draft: Draft, entry: Entry | None, shape: str) -> None:
    """`roles`: the names that a role has in the rows, where the runtime does not read them so by itself."""
    for role, one in ({} if entry is None else entry.mapping).items():
        names = words(one)
        if role not in ROLES or names is None:
            draft.error(one, f"the spec names the speakers {', '.join(ROLES)}, each by a list of names")
            continue
        usual = {} if shape == "messages" else KNOWN
        own = [name for name in dict.fromkeys(names) if usual.get(name, name) != role]
        if own:
            draft.put(f"data.{role}_roles", tuple(own), one)


def _chat_template(draft: Draft, word: str, place: Entry, texts: bool) -> None:
    """Types that put the words of a template around texts: the texts become turns under that template."""
    name = word.partition(".")[0]
    body = axolotl_templates.axolotl_template(name, stripped=draft.method != "reward")
    if body is not None:
        if texts:
            draft.put("data.chat", True, place)
        file = f"{draft.stem}.chat_template.jinja"
        draft.files[file] = body.encode()
        draft.put("model.chat_template", file, place)
        draft.differs("datasets.system", SYSTEM, place)


def _unpaired(draft: Draft, word: str, place: Entry) -> tuple[str, ...]:
    last = word.rpartition(".")[2]
    if not isinstance(place.value, str) or last == "argilla_chat":
        draft.error(place, "no shape of a spec holds such judged answers",
                    "write the rows as `prompt`, `completion` and `label`")  # fmt: skip
        corpus.everything(draft, place, "the type is refused")
        return ()
    _chat_template(draft, word, place, texts=True)
    columns = {"argilla": "instruction", "intel": "question"}.get(last, "prompt")
    return (columns, "completion", "label") if columns != "prompt" else ()


def _pair(draft: Draft, word: str, place: Entry, messages: Entry | None, chosen: Entry | None,
          rejected: Entry | None) -> tuple[str, ...]:  # fmt: skip
    head, _, last = word.rpartition(".")
    if not isinstance(place.value, str) and place.key.endswith("type"):
        draft.error(place, "a prompt in words of one's own: no shape of a spec has any but Alpaca's",
                    "write the words into the rows, as `prompt`, `chosen` and `rejected`")  # fmt: skip
        corpus.everything(draft, place, "the type is refused")
        return ()
    if draft.method == "orpo" or last in CONVERSATIONS:
        _chat_template(draft, word, place, texts=False)
        if last == "argilla_chat" and not head.startswith("chat_template"):
            draft.differs("datasets.type", "axolotl reads the first question and its answers, the spec the whole "
                          "conversation", place)  # fmt: skip
        return ()
    if word.startswith("bradley_terry.chat_template"):
        draft.put("data.chat", True, place)
        draft.differs("datasets.system", "axolotl writes a system turn of what the column `system` holds, be it "
                      "nothing, and the spec none", place)  # fmt: skip
        return ("input", "chosen", "rejected")
    if word == "passthrough" and draft.method == "dpo":  # axolotl leaves the rows to TRL, as the spec does
        return ()
    _chat_template(draft, word.removeprefix("bradley_terry."), place, texts=True)
    if last in COLUMNS:
        return COLUMNS[last]
    one, two = (text(entry) if entry is not None else None for entry in (chosen, rejected))
    if word.startswith("chat_template") or messages is not None:
        return ((text(messages) if messages is not None else None) or "messages", one or "chosen", two or "rejected")
    if last not in ("default", "chatml", "llama3", ""):
        draft.error(place, f"the type `{word[:40]}` of pairs is not known", "write the rows as `prompt`, `chosen` and "
                    "`rejected`")  # fmt: skip
    if head or last in ("chatml", "llama3"):
        draft.warn(place, "the question is taken to stand in `prompt`")
    return (one or "chosen", two or "rejected") if (one or two) else ()


def _mapped(table: Entries, key: str, older: str) -> str:
    new = table.get("message_property_mappings")
    for one in (new.mapping.get(key) if new is not None else None, table.get(older)):
        if one is not None:
            return text(one) or ""
    return key


def _other_keys(draft: Draft, table: Entries) -> None:
    irrelevant = axolotl_keys.KEYS.block("datasets").column("irrelevant")
    for key, one in table.items():
        if (one.file, one.key) in draft.fates:
            continue
        if key in ("message_property_mappings", "roles"):
            for part in one.mapping.values():
                corpus.everything(draft, part, "the runtime knows the speakers of its shapes")
        elif key in ("message_field_role", "message_field_content"):
            draft.mark(one, "mapped", "data { format }")
        elif key in ("roles_to_train", "train_on_eos", "train_on_eot", "chat_template", "chat_template_jinja"):
            continue  # see axolotl_chat
        elif key in irrelevant:
            corpus.everything(draft, one, irrelevant[key])
        elif one.off:
            draft.note(one, "it is off")
        elif key == "drop_system_message" and not one.off:
            draft.mark(one, "reserved", f"# {key}")
            draft.differs(key, "axolotl leaves the system prompts of the rows out, the spec keeps them", one)
        elif key in ("field_thinking", "template_thinking_key", "field_tools", "type"):
            draft.reserve(one, f"{key}: {text(one)}", "the runtime reads role and content of a message")
        elif key != "path" and not one.mapping:
            draft.error(one, "the language has no such thing for a source")


def _mask(draft: Draft, named: Entries, marked: bool) -> None:
    """The loss is on answers unless `train_on_inputs` says otherwise; `marked` turns are those of the template."""
    entry = named.get("train_on_inputs")
    whole = entry is not None and boolean(entry) is True
    paths = corpus.masks(draft)
    if entry is not None and (draft.method != "sft" or not paths):
        draft.note(entry, f"{draft.method} does not read it" if paths else "there are no answers apart")
    for path in paths if draft.method == "sft" else ():
        if entry is not None and not entry.empty:
            draft.put(path, (marked and path == "method.assistant_only") or not whole, entry)
        else:
            draft.put(path, True, None, "not set: axolotl trains on answers")
