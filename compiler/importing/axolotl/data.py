"""Import axolotl's data. Each entry of `datasets` becomes a data source, and the entry's `type` states the format of
the rows.
"""

from __future__ import annotations

import json

from xpc.compiler.data.shapes import SHAPES
from xpc.compiler.importing.axolotl import chat as axolotl_chat
from xpc.compiler.importing.axolotl import evaluation as axolotl_evaluation
from xpc.compiler.importing.axolotl import keys as axolotl_keys
from xpc.compiler.importing.axolotl import prompts as axolotl_words
from xpc.compiler.importing.axolotl import rows as axolotl_rows
from xpc.compiler.importing.axolotl import templates as axolotl_templates
from xpc.compiler.importing.draft import Draft, Source
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.template_arguments import put_template
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, is_on, is_stated, text, words
from xpc.compiler.importing.trl import data as corpus
from xpc.compiler.importing.trl import formats
from xpc.compiler.importing.trl.model import revised
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.setting import ROLES
from xpc.runtime.core.row_names import ROLES as KNOWN

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
"""Maps the last part of a dataset type to the columns of its preference pairs. For example, `intel`, from the type
`chatml.intel`, is mapped to `question`, `chosen` and `rejected`.
"""
CONVERSATIONS = ("argilla_chat", "ultra")
"""Last parts of a dataset type for which both answers of a preference pair are conversations, as in `chatml.ultra`."""
SYSTEM = "axolotl puts the column `system` before the question, and the spec does not read that column"


def data(draft: Draft, named: Entries, overrides: Overrides) -> None:
    """Set the data sources, the held-out rows, the chat template and the loss mask."""
    listed, raw = named.get("datasets"), named.get("pretraining_dataset")
    given = [one for one in (listed, raw) if one is not None]
    if draft.sources:
        for one in given:
            corpus.everything(draft, one, "`--data` names another")
    else:
        for entry in given:
            for one in () if entry.empty else entry.items:
                _source(draft, one, entry is raw, named)
                _system_column(draft, one.mapping.get("path"), overrides)
        formats.in_common(draft)
    if not draft.sources:
        draft.warn(listed, "no data is named", "`--data` names it")
    axolotl_evaluation.holdout(draft, named)
    axolotl_rows.long(draft, named)
    _mask(draft, named, axolotl_chat.template(draft, named, overrides, axolotl_chat.learned(draft, named)))
    axolotl_chat.arguments(draft, named)
    _order(draft, named)
    same, least = named.get("dataset_exact_deduplication"), named.get("min_sample_len")
    if draft.on(same):
        draft.setting("data.unique", same)
    if least is not None and draft.method == "sft":
        draft.setting("data.min_tokens", least)
    elif least is not None:
        draft.note(least, f"{draft.method} keeps short rows")
    if not draft.has("seed") or draft.has("data.seed"):
        draft.default("seed", 42, "not set: axolotl's default")


def _order(draft: Draft, named: Entries) -> None:
    """Set whether the rows keep their order. `shuffle_merged_datasets` decides it only for a stream: the trainer draws
    other rows at random, unless sft has `curriculum_sampling`.

    Source: axolotl 0.19.0, core/trainers/base.py (`_get_train_sampler`), utils/data/shared.py and streaming.py.
    """
    kept = axolotl_rows.in_order(draft, named)
    if kept is not None:
        draft.put("data.shuffle", False, kept)
    for key in ("shuffle_merged_datasets", "shuffle_before_merging_datasets", "curriculum_sampling"):
        one = named.get(key)
        if one is not None and one is not kept:
            draft.note(one, "it is off" if one.off else "the rows are shuffled anyway")
    merged = named.get("shuffle_merged_datasets")
    if merged is not None and merged is not kept and boolean(merged) is False:
        draft.note(merged, "axolotl's trainer shuffles the rows in each epoch")
        if draft.has("data.holdout"):
            draft.differs(merged.key, "axolotl holds out the last rows; the spec holds out rows at random", merged)


def _source(draft: Draft, entry: Entry, raw: bool, named: Entries) -> None:
    """Add one entry of `datasets` as a data source. `raw` is true for entries of `pretraining_dataset`."""
    table = axolotl_keys.known(draft, entry.mapping, "datasets.")
    path = table.get("path", entry if isinstance(entry.value, str) else None)
    if path is None:
        draft.error(entry, f"axolotl {axolotl_keys.VERSION} fails for a dataset without a `path`",
                    "write `path: FILE`, or `path: json` with `data_files: FILE`")  # fmt: skip
        return
    kind = table.get("type")
    word = (
        "completion" if raw and (kind is None or kind.value == "pretrain") else "" if kind is None else str(text(kind))
    )
    files = table.get("data_files")
    names = [path]
    if files is not None and path.value in ("json", "csv", "parquet", "text") and files.items:
        names = list(files.items)  # several files are one dataset, as in the datasets library
        draft.mark(path, "mapped", "the ending of the file name states the format")
        draft.mark(files, "mapped", "data")
    elif files is not None and files.items and all(inside := [corpus.inside(path, one) for one in files.items]):
        names = [one for one in inside if one is not None]
        draft.mark(path, "mapped", "the folder of the files" if len(names) > 1 else "the folder of the file")
        draft.mark(files, "mapped", "data")
    elif is_stated(files):
        why = "axolotl reads only these files of the dataset; the spec reads all (`--data` names a local copy of them)"
        draft.drop("data_files", why, files)
    shards = table.get("shards")
    if len(names) > 1 and is_on(shards):
        reason = "a spec can take a part of one file, not of several files together"
        draft.error(shards, reason, "write these rows to a file, and name it by `--data`")
    each = [corpus.source(draft, name, table.get("name"), table.get("split")) for name in names]
    shape, columns = _shape(draft, table, word, kind or entry)
    if kind is not None and not draft.handled(kind):
        draft.mark(kind, "mapped", f"data {{ format = {shape} }}")
    part = axolotl_rows.part(draft, table, named)
    for found in each:
        if found is None:
            continue
        stated = shape and (
            shape != METHODS[draft.method].shapes[0]
            or (columns and draft.method == "sft")
            # state the format of a local file, because xpc cannot read it from a file that is missing here
            or found.ref.startswith('"')
        )
        ref = revised(draft, found.ref, table["revision"]) if "revision" in table else found.ref
        draft.sources.append(Source(ref, columns, part or found.take, format=shape if stated else "", location=kind))
    _other_keys(draft, table)


def _system_column(draft: Draft, path: Entry | None, overrides: Overrides) -> None:
    """Set `data.system_column` if a local file of conversations has a column `system`, which axolotl reads too."""
    name = text(path)
    data = overrides.read(name) if name is not None and name.endswith(".jsonl") else None
    try:
        first = json.loads((data or b"{}").split(b"\n", 1)[0])
    except ValueError:
        return
    talks = isinstance(first, dict) and {"messages", "conversations"} & set(first)
    if path is not None and talks and "system" in first:
        draft.put("data.system_column", "system", path)


def _shape(draft: Draft, table: Entries, word: str, location: Entry) -> tuple[str, tuple[str, ...]]:
    """Find the format of the rows for the dataset type `word`. Returns the format, such as `messages`, and the columns
    if their names differ from the format's.
    """
    messages, chosen, rejected = (table.get(key) for key in ("field_messages", "field_chosen", "field_rejected"))
    field = table.get("field", table.get("text_column"))
    for one in (messages, chosen, rejected, field):
        draft.mark(one, "mapped", "columns")
    if METHODS[draft.method].shapes[0] == "preference":
        return "preference", _pair(draft, word, location, messages, chosen, rejected)
    if draft.method == "kto":
        return "unpaired", _unpaired(draft, word, location)
    if METHODS[draft.method].generates:
        why = "the rows are read unchanged: the column `prompt` is the prompt"
        draft.warn(location, why, "`data(prompt=COLUMN)` names another")
        return "prompt", ()
    if word in ("completion", "pretrain") or word.startswith("completion"):
        name = text(field) or "text"
        return "text", (name,) if name != "text" else ()
    if word.startswith(("chat_template", "sharegpt")) or word == "messages":
        name = text(messages) or ("conversations" if word.startswith("sharegpt") else "messages")
        shape = _messages(draft, table, word.startswith("sharegpt"), location)
        return shape, (name,) if (name,) != SHAPES[shape] else ()
    if word in ("alpaca", "alpaca:instruct"):  # these are the prompts of the spec's format `alpaca`
        axolotl_words.tokenized_apart(draft)
        return "alpaca", ()
    prompted = axolotl_words.shaped(draft, word, location) if location.key.endswith("type") else None
    if prompted is not None:
        return "prompt_completion", prompted
    if not word or (location.key.endswith("type") and location.empty):
        why = "without a `type`, axolotl expects tokenized rows: `input_ids`, `attention_mask` and `labels`"
        draft.warn(location, why, "if the rows are text, write their `type`, or name a local file by `--data`")
        return "tokens", ()
    _unknown_type(draft, word, location)
    return "", ()


def _unknown_type(draft: Draft, word: str, location: Entry) -> None:
    """Report a dataset type whose rows a spec cannot read."""
    if word == "input_output":
        draft.error(
            location,
            "a row is a list of segments, whose `label` says whether it is trained on; a spec has no such row format",
            "if only the last segment of each row is trained on, write it as `completion` and the segments "
            "before it as `prompt`, and name the new rows by `--data`",
        )
    elif word.partition(".")[0] in INSTRUCTION or word.partition(":")[0] in INSTRUCTION:
        help = "write that text into rows with `prompt` and `completion`, and pass the file of these rows with `--data`"
        draft.error(location, "axolotl adds its own text around the columns, which a spec cannot do", help)
    else:
        why = f"axolotl {axolotl_keys.VERSION} has no type `{word[:40]}`, and an import runs no custom module"
        draft.error(location, why, "known types are chat_template, completion and alpaca")


PAIRS = {("role", "content"): "messages", ("from", "value"): "conversations"}
"""Maps the two keys of a message to its row format: ("from", "value") to `conversations`."""


def _messages(draft: Draft, table: Entries, older: bool, location: Entry) -> str:
    """The row format of conversations: `messages` for the keys role and content, `conversations` for the keys from and
    value. Other keys of a message are an error.
    """
    mapped = _mapped(table, "role", "message_field_role"), _mapped(table, "content", "message_field_content")
    shape = "conversations" if older and mapped == ("role", "content") else PAIRS.get(mapped, "")
    mapping = table.get("message_property_mappings", location)
    if not shape:
        draft.error(mapping, f"the runtime does not read the keys `{mapped[0]}` and `{mapped[1]}` of messages",
                    "it reads `role` and `content`, or `from` and `value`")  # fmt: skip
    more = table.get("message_property_mappings")
    for key, one in ({} if more is None else more.mapping).items():
        if key not in ("role", "content") and not (key in ("tool_calls", "name") and text(one) == key):
            why = f"axolotl passes a message's `{key}` to the chat template; a run of the spec does not"
            draft.differs("message_property_mappings", why, one)
    speakers(draft, table.get("roles"), shape or "messages")
    return shape or "messages"


def speakers(draft: Draft, entry: Entry | None, shape: str) -> None:
    """Set the names of roles from `roles`, such as `assistant: [bot]`. Names that the runtime knows anyway are left
    out.
    """
    for role, one in ({} if entry is None else entry.mapping).items():
        names = words(one)
        if role not in ROLES or names is None:
            draft.error(one, f"a spec has a list of names for each of the roles {', '.join(ROLES)}")
            continue
        usual = {} if shape == "messages" else KNOWN
        own = [name for name in dict.fromkeys(names) if usual.get(name, name) != role]
        if own:
            draft.put(f"data.{role}_roles", tuple(own), one)


def _chat_template(draft: Draft, word: str, location: Entry, texts: bool) -> None:
    """Set axolotl's chat template for dataset types such as `chatml.intel`, whose columns axolotl renders as turns. If
    the columns contain texts instead of messages (`texts`), the spec must make turns of them.
    """
    name = word.partition(".")[0]
    body = axolotl_templates.axolotl_template(name, stripped=draft.method != "reward")
    if body is not None:
        if texts:
            draft.put("data.chat", True, location)
        put_template(draft, body, location)
        axolotl_chat.bos_token(draft, body, location)
        draft.differs("datasets.system", SYSTEM, location)


def _unpaired(draft: Draft, word: str, location: Entry) -> tuple[str, ...]:
    last = word.rpartition(".")[2]
    if not isinstance(location.value, str) or last == "argilla_chat":
        draft.error(location, "a spec cannot read rows of this type",
                    "write the rows as `prompt`, `completion` and `label`")  # fmt: skip
        corpus.everything(draft, location, "the type is refused")
        return ()
    _chat_template(draft, word, location, texts=True)
    columns = {"argilla": "instruction", "intel": "question"}.get(last, "prompt")
    return (columns, "completion", "label") if columns != "prompt" else ()


def _pair(draft: Draft, word: str, location: Entry, messages: Entry | None, chosen: Entry | None,
          rejected: Entry | None) -> tuple[str, ...]:  # fmt: skip
    head, _, last = word.rpartition(".")
    if not isinstance(location.value, str) and location.key.endswith("type"):
        draft.error(location, "a spec cannot add a custom prompt to preference pairs",
                    "write the text into the prompts of rows with `prompt`, `chosen` and `rejected`")  # fmt: skip
        corpus.everything(draft, location, "the type is refused")
        return ()
    if draft.method == "orpo" or last in CONVERSATIONS:
        _chat_template(draft, word, location, texts=False)
        if last == "argilla_chat" and not head.startswith("chat_template"):
            draft.differs("datasets.type", "axolotl reads only the first question and its answers; the spec reads the "
                          "complete conversation", location)  # fmt: skip
        return ()
    if word.startswith("bradley_terry.chat_template"):
        draft.put("data.chat", True, location)
        draft.differs("datasets.system", "axolotl writes the column `system` as a system turn, even if it is empty, "
                      "and the spec writes none", location)  # fmt: skip
        return ("input", "chosen", "rejected")
    # axolotl and xpc both pass these rows to TRL unchanged, so there is nothing to write
    if word == "passthrough" and draft.method == "dpo":
        return ()
    _chat_template(draft, word.removeprefix("bradley_terry."), location, texts=True)
    if last in COLUMNS:
        return COLUMNS[last]
    one, two = (text(entry) for entry in (chosen, rejected))
    if word.startswith("chat_template") or messages is not None:
        return (text(messages) or "messages", one or "chosen", two or "rejected")
    if last not in ("default", "chatml", "llama3", ""):
        why = f"xpc does not know the type `{word[:40]}` of preference pairs"
        draft.error(location, why, "write the rows as `prompt`, `chosen` and `rejected`")
    if head or last in ("chatml", "llama3"):
        draft.warn(location, "the question is taken from the column `prompt`")
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
        if draft.handled(one):
            continue
        if key in ("message_property_mappings", "roles"):
            for part in one.mapping.values():
                corpus.everything(draft, part, "a run knows the usual names of roles without this key")
        elif key in ("message_field_role", "message_field_content"):
            draft.mark(one, "mapped", "data { format }")
        elif key in ("roles_to_train", "train_on_eos", "train_on_eot", "chat_template", "chat_template_jinja"):
            continue  # these keys are read in chat.py
        elif key in irrelevant:
            corpus.everything(draft, one, irrelevant[key])
        elif one.off:
            draft.note(one, "it is off")
        elif key == "drop_system_message" and not one.off:
            draft.drop(key, "axolotl drops the system prompts of the rows; the spec keeps them", one)
        elif key in ("field_thinking", "template_thinking_key", "field_tools", "type"):
            draft.reserve(one, f"{key}: {text(one)}", "the runtime reads only role and content of a message")
        elif key != "path" and not one.mapping:
            draft.error(one, "a spec has no such option for a dataset")


def _mask(draft: Draft, named: Entries, marked: bool) -> None:
    """Set the loss mask: the loss includes only answers, or everything if `train_on_inputs` is on. `marked` is true if
    the chat template marks the turns to train on.
    """
    entry = named.get("train_on_inputs")
    prompts_too = boolean(entry) is True
    paths = formats.masks(draft)
    if entry is not None and (draft.method != "sft" or not paths):
        draft.note(entry, f"{draft.method} does not read it" if paths else "the rows have no separate answers")
    for path in paths if draft.method == "sft" else ():
        if is_stated(entry):
            draft.put(path, (marked and path == "method.assistant_only") or not prompts_too, entry)
        else:
            draft.put(path, True, None, "not set: axolotl trains on answers")
