"""Import the names of axolotl's chat templates, and which turns of a conversation are trained on."""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.importing.axolotl import templates as axolotl_templates
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.families import kind_of
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.template_arguments import put_template, template_arguments
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, is_stated, text, words
from xpc.compiler.importing.trl import data as corpus
from xpc.compiler.importing.trl import formats
from xpc.compiler.registry import chat_templates as templates
from xpc.compiler.registry.types import ModelFacts
from xpc.compiler.rules.core.replaced_templates import trainable_model
from xpc.grammar.record import record

ROLES = {"human": "user", "gpt": "assistant"}
EVERYONE = ("system", "user", "assistant", "tool")


@record
class TrainedTurns:
    """The turns that are trained on: their roles, and the imported key that states them. `every_end` is true if the
    end-of-turn tokens of all turns, also of the user's, are trained on.
    """

    roles: tuple[str, ...] = axolotl_templates.ASSISTANT
    every_end: bool = False
    entry: Entry | None = None


def learned(draft: Draft, named: Entries) -> TrainedTurns:
    """Find the turns that are trained on, from `roles_to_train`, `train_on_eos` and `train_on_inputs`. It is an error
    if two datasets train on different turns.
    """
    found: list[TrainedTurns] = []
    listed = named.get("datasets")
    for one in [] if listed is None else listed.items:
        roles, ends = one.mapping.get("roles_to_train"), one.mapping.get("train_on_eos")
        ends = one.mapping.get("train_on_eot", ends)
        given = tuple(dict.fromkeys(ROLES.get(name, name) for name in words(roles) or [])) if roles is not None else ()
        if roles is not None and not given:
            draft.error(roles, "the run would train on no turn", "name the roles whose turns are trained on")
        elif roles is not None:
            corpus.everything(draft, roles, "answers are trained on")
        for key in ("train_on_eos", "train_on_eot"):
            if key in one.mapping and (one.mapping[key].empty or one.mapping[key].value in ("turn", "all")):
                draft.note(one.mapping[key], "a run trains on the end-of-turn token of every turn on which it trains")
            elif key in one.mapping:
                draft.error(one.mapping[key], "a run always trains on the end of every answer", "write `turn` or `all`")
        every = ends is not None and ends.value == "all"
        found.append(TrainedTurns(given or axolotl_templates.ASSISTANT, every, roles or ends))
    everyone = named.get("train_on_inputs")
    if boolean(everyone):
        return TrainedTurns(EVERYONE, any(one.every_end for one in found), everyone)
    for other in found[1:]:
        if (other.roles, other.every_end) != (found[0].roles, found[0].every_end):
            draft.error(other.entry or found[0].entry or named["datasets"], "the datasets train on different turns",
                        "a spec trains on the same roles in all datasets")  # fmt: skip
    return found[0] if found else TrainedTurns()


def template(draft: Draft, named: Entries, overrides: Overrides, marks: TrainedTurns) -> bool:
    """Set the chat template. `marks` are the turns that axolotl trains on. Returns True if they include other turns
    than the assistant's and the template marks all of them.
    """
    entry, body = _template_entry(draft, named, "chat_template"), _template_entry(draft, named, "chat_template_jinja")
    word = str(text(entry)) if is_stated(entry) else ""
    own = is_stated(body)
    shapes = formats.of_rows(draft)
    renders = _renders(draft)
    fallback = word.startswith("tokenizer_default_fallback_")
    known = registry.find_model(draft.model)
    more = not {"messages", "conversations"}.isdisjoint(shapes) and marks != TrainedTurns(entry=marks.entry)
    if body is not None and own:
        _jinja(draft, body, overrides)
    else:
        draft.note(body, "null: no template")
    if fallback and known is not None and known.chat:
        word = "tokenizer_default"
    usual = word.removeprefix("tokenizer_default_fallback_")
    body_of = None if fallback and known is None else axolotl_templates.axolotl_template(
        usual, marks.roles if more else axolotl_templates.ASSISTANT, more and marks.every_end,
        stripped=draft.method in ("dpo", "cpo", "kto"),
    )  # fmt: skip
    _system(draft, named.get("default_system_message"))
    given = not word or word in ("tokenizer_default", "jinja") or own
    if given:
        _tokenizers_own(draft, named, own, renders, known)
    if entry is None:
        pass
    elif given:
        draft.note(entry, "the tokenizer's chat template" if not own else "the source has its own template")
    elif not renders:
        draft.note(entry, f"no template renders rows of {shapes[0]}")
    elif fallback and known is None:
        draft.note(entry, "the tokenizer's own chat template")
        draft.differs(
            "chat_template", f"axolotl uses `{usual}` if the tokenizer has no template, and the spec fails", entry
        )
    elif body_of is not None:
        put_template(draft, body_of, entry)
        _end(draft, named, usual, known)
        _repeated_tokens(draft, named, usual, body_of)
        return more
    elif more and axolotl_templates.end_of(usual) is not None and marks.entry is not named.get("train_on_inputs"):
        pass  # no message here: `_report_turns` reports below that this template cannot mark the turns
    else:
        draft.note(entry, "the tokenizer's own chat template")
        draft.differs(
            "chat_template",
            f"axolotl renders with its own `{word}`; the spec uses the tokenizer's template "
            '(`model(chat_template=file("x.jinja"))` replaces it)',
            entry,
        )
    if more and marks.entry is not None:
        _report_turns(draft, marks, marks.entry)
    return False


def _system(draft: Draft, system: Entry | None) -> None:
    stated = is_stated(system)
    why = "axolotl writes this system prompt only into the saved chat template, not into the rows"
    draft.note(system, why if stated else "null: none")


def _report_turns(draft: Draft, marks: TrainedTurns, entry: Entry) -> None:
    """Report that the spec's chat template does not mark all turns on which the file trains."""
    if marks.roles != EVERYONE:
        draft.error(entry, "a bundle can train on these turns only with the templates chatml, llama3 and gemma")
    else:
        why = "axolotl trains on the text and the end of every turn; the spec also on the template's text around them"
        draft.differs("train_on_inputs", why, entry)


def _renders(draft: Draft) -> bool:
    """Whether the rows of this file are formatted with a chat template: true for conversations, false for plain
    texts.
    """
    rendered = {"messages", "conversations", "preference", "unpaired", "prompt"}
    return not rendered.isdisjoint(formats.of_rows(draft))


def arguments(draft: Draft, named: Entries) -> None:
    """Set the template arguments from `chat_template_kwargs`, if the rows are formatted with a chat template."""
    entry = named.get("chat_template_kwargs")
    if is_stated(entry) and not _renders(draft):
        draft.note(entry, "no template renders these rows")
    else:
        template_arguments(draft, entry, "chat_template_jinja")


def _template_entry(draft: Draft, named: Entries, key: str) -> Entry | None:
    """The entry of a key about templates, such as `chat_template`. Each dataset and the top level of the file can state
    the key. The datasets take precedence; different values in two datasets are an error.
    """
    listed, shared = named.get("datasets"), named.get(key)
    parts = [] if listed is None else [one.mapping.get(key) for one in listed.items]
    if listed is not None and key == "chat_template":
        parts = [part or _conversation(draft, one) for part, one in zip(parts, listed.items)]
    given = [one for one in parts if is_stated(one)]
    if not given:
        return shared
    values = {str(one.value) for one in given} | ({"" if shared is None else str(shared.value)} - {str(given[0].value)}
                                                if len(given) < len(parts) else set())  # fmt: skip
    for one in given:
        if len(values) > 1:
            draft.error(one, "a spec renders all datasets with one template")
        else:
            draft.mark(one, "mapped", "model.chat_template")
    if shared is not None and shared is not given[0]:
        draft.note(shared, "each dataset names a template")
    return given[0]


CONVERSATIONS = {"chatml": "chatml", "llama-3": "llama3", "llama3": "llama3", "gemma": "gemma"}
"""Maps a FastChat conversation template, which an older sharegpt dataset names (`conversation: llama-3`), to axolotl's
chat template.
"""


def _conversation(draft: Draft, entry: Entry) -> Entry | None:
    """The chat template for the key `conversation` of a sharegpt dataset (axolotl before 0.5); None if the dataset does
    not have the key.
    """
    kind, named = entry.mapping.get("type"), entry.mapping.get("conversation")
    if not is_stated(named) or kind is None or not str(kind.value).startswith("sharegpt"):
        return None
    word = str(text(named)).lower()
    if word not in CONVERSATIONS:
        draft.error(named, "axolotl has no chat template that equals FastChat's template of this name",
                    "write `chat_template` with the template of the rows")  # fmt: skip
        return None
    return Entry(named.key, CONVERSATIONS[word], named.file, named.line, word)


def _tokenizers_own(draft: Draft, named: Entries, own: bool, renders: bool, known: ModelFacts | None) -> None:
    """Use the tokenizer's own template. If it equals one of the templates in BUILT_IN, write it with axolotl's loss
    mask. If TRL cannot mark the answers in it, write xpc's built-in template, which marks them.

    If xpc does not know the template, report a difference: TRL may train on the newline after an answer, and axolotl
    does not.
    """
    if own or not renders or draft.method != "sft":
        return
    native = None if known is None or not known.chat else templates.native(known.alias)
    name = next((key for key, one in axolotl_templates.BUILT_IN.items() if one[0] == native), native or "")
    body = axolotl_templates.axolotl_template(name)
    if body is not None and name != "llama3":
        put_template(draft, body, None, "the model's own template, with axolotl's loss on answers")
        _end(draft, named, name, known)
    elif (
        native is not None and known is not None and not trainable_model(known.alias, draft.stack.facts.marks_templates)
    ):
        draft.put("model.chat_template", native, None, "the model's own template, with marks around answers")
        if known.alias.startswith("llama-3.2"):
            draft.differs("chat_template", "the tokenizer's template writes the day of the run; the spec, 26 Jul 2024")
    elif native is None and not draft.model.startswith((".", "/")):
        draft.differs(
            "chat_template",
            "axolotl trains on the text and the end token of an answer; the spec trains on what TRL marks in the "
            "tokenizer's template, which may include the newline after it",
        )


def _repeated_tokens(draft: Draft, named: Entries, name: str, body: str) -> None:
    """Report that axolotl writes another bos token before the question of a preference pair, or, in ORPO, two end
    tokens after an answer, and does not train on `<think>`. `body` is the chat template called `name`.
    """
    kinds = [part.mapping.get("type") for part in named["datasets"].items] if "datasets" in named else []
    written = [kind for kind in kinds if kind is not None and str(kind.value).startswith("chat_template")]
    if written:
        bos_token(draft, body, written[0], rendered=True)
    if written and draft.method == "orpo" and name != "llama3":
        why = "axolotl trains on two end tokens after each answer, with a newline between them; the spec trains on one"
        draft.differs("datasets.type", why, written[0])
    if written and draft.method == "orpo" and name == "qwen3":
        why = "axolotl counts `<think>` at the beginning of an answer as part of the prompt; the spec trains on it"
        draft.differs("datasets.type", why, written[0])


def bos_token(draft: Draft, body: str, location: Entry, rendered: bool = False) -> None:
    """Report a difference in the bos token before a question. In DPO and KTO, axolotl's trainers tokenize the question
    as a text, and most tokenizers, except Qwen's, put a bos token before it. With `rendered`, the question already
    begins with the bos token of the chat template `body`.
    """
    if draft.method not in ("dpo", "kto"):
        return
    if "bos_token" in body and rendered:
        why = "axolotl writes the tokenizer's bos token twice before a question; a run of the spec writes it once"
        draft.differs("datasets.type", why, location)
    elif "bos_token" not in body and not str(kind_of(draft)).startswith("qwen"):
        why = "if the tokenizer adds a bos token to texts, axolotl writes it before a question; the spec writes none"
        draft.differs("datasets.type", why, location)


def _end(draft: Draft, named: Entries, name: str, known: ModelFacts | None) -> None:
    """Report a difference in the end-of-turn token of an answer. axolotl trains on this token only if it is the eos
    token or is listed in `eot_tokens`; a run of the spec always trains on it.
    """
    end, ends, special = axolotl_templates.end_of(name), named.get("eot_tokens"), named.get("special_tokens")
    eos = special.mapping.get("eos_token") if special is not None else None
    tokens = [*(words(ends) or [] if ends is not None else []), text(eos)]
    alias = "" if known is None else known.alias
    chats = "instruct" in alias or (alias.startswith("qwen3") and "base" not in alias)
    if end not in tokens and not (chats and ends is None and eos is None) and draft.method == "sft":
        draft.differs(
            "eot_tokens",
            f"axolotl trains on {end} at the end of an answer only if it is the tokenizer's eos_token; the spec always "
            "trains on it",
            ends,
        )


def _jinja(draft: Draft, body: Entry, overrides: Overrides) -> None:
    """Set the template from `chat_template_jinja`: the value is the name of a file if this file exists, and otherwise
    the Jinja text itself, as in axolotl.
    """
    written = text(body) or ""
    data: bytes | None = written.encode()
    if "{" not in written or "\n" not in written:
        data = overrides.read(written) or (data if "{" in written else None)
    if data is None:
        draft.error(body, "the template's file does not exist", "put the template's file next to the imported file")
        return
    put_template(draft, data, body)
