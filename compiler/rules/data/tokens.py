"""Rules that chat templates, system prompts and special tokens fit the data and the model's vocabulary (XP196, XP513,
XP557 to XP560, XP567, XP627), and that every token has an embedding (XP176).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.language.setting import FlagPath, NamesPath
from xpc.compiler.registry import chat_templates as templates
from xpc.compiler.registry import find_dataset
from xpc.compiler.registry.chat_templates import argument_lines, native
from xpc.compiler.rules.core.conditions import any_of, base_model, gemma, local_tokenizer, written
from xpc.compiler.rules.core.rule import Finding, rule, with_more
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource

WHEN = any_of(
    gemma, local_tokenizer, base_model, written("model.eos", "model.pad", "model.chat_template", "data.system")
)

PASSED = (
    "messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "pad_token", "unk_token",
    "raise_exception", "strftime_now",
)  # fmt: skip
"""Variables that transformers passes to every chat template."""
ENDS = re.compile(r"end|eo[mst]|</s>|<turn\|>")
"""Matches tokens that end a turn: `<|im_end|>`, `<|eot_id|>`, and `<turn|>` of Gemma 4."""

BEGINS = re.compile(r"start|begin")
"""Matches tokens that begin a turn, such as `<|im_start|>`."""


@rule("XP513", "end-token-never-seen", "warning")
def end_token(spec: Spec) -> Iterator[Finding]:
    """The chat template should end a turn with the tokenizer's end token; otherwise, no conversation has this token at
    the end of a turn. For a local model, this rule reads the end token from tokenizer_config.json. For a registered
    base model, xpc knows the end token, and the rule applies if a local file has conversations. xpc does not read the
    rows of a dataset of the hub. If only such a dataset has conversations, the finding is a note, and the rule checks
    only a template that the spec states.

    Why it is bad: the model never learns to write the token at which a server ends the answer.

    Without this rule: the loss looks healthy, but the trained model does not stop writing. The preflight warns if the
    first rows have no end token.

    Source: transformers 5.23 `generation/utils.py` (`eos_token_id` ends a sequence); confirmed by running it.
    """
    stated = spec.get("model.eos")
    eos = stated if isinstance(stated, str) else spec.model.eos or templates.base_end(spec.model.name)
    if eos is None or spec.method.shapes[0] == "prompt" or spec.method.scores:
        return
    text = spec.chat_template
    if text is None and spec.model.chat and spec.model.path is None:
        own = templates.native(spec.model.name) or ("chatml" if spec.model.name.startswith("qwen1.5-") else None)
        text = None if own is None else templates.text(own).decode()
    if not text or "eos_token" in text or (eos in text and not BEGINS.search(eos)):
        return
    if rows.all_texts(spec.data):
        return
    severity = None
    if (stated is not None or spec.model.eos is None) and not any(map(_talks, spec.files)):
        if not spec.written("model.chat_template") or not any(map(_registered_talk, spec.data)):
            return
        severity = "note"
    tokens = list(dict.fromkeys(re.findall(r"<\|[^|<>{}'\"\s]+\|>|<end_of_turn>|<turn\|>|</s>", text)))
    # `<|end_header_id|>` ends the name of a role, not a turn
    token = next((one for one in reversed(tokens) if ENDS.search(one) and "header" not in one), None)
    location = spec.location("model.chat_template")
    more = f'eos = "{token}"'
    if stated is not None:
        yield Finding(
            spec.location("model.eos", "ends no turn" if eos in text else "in no row"),
            f"the chat template {'begins a turn with' if eos in text else 'never writes'} `{eos[:40]}`, the end token "
            "that the spec states",
            f'write `eos = "{token}"`, if turns end with it' if token else "name the token that ends a turn",
            (location if spec.written("model.chat_template") else spec.model.label,),
            replace=more if token else None,
            severity=severity,
        )
        return
    yield Finding(
        location if spec.written("model.chat_template") else spec.model.label,
        f"the chat template never writes `{eos[:40]}`, the end token of {spec.model.name}",
        f'write `model(eos="{token}")`, if turns end with it' if token else "name the token that ends a turn: `eos`",
        replace=with_more(location, more) if token and spec.written("model.chat_template") else None,
        severity=severity,
    )


def _talks(source: DataSource) -> bool:
    """Whether the source is a local file that is known to contain conversations."""
    found = rows.survey(source)
    if found is None:
        return (source.path or "").endswith(".parquet") and rows.conversational(source) is True
    return found.wrong is None and rows.conversational(source) is True


def _registered_talk(source: DataSource) -> bool:
    """Whether the source is a dataset of the hub that contains conversations, according to the registry, or to the
    format or prompt column that the spec states.
    """
    known = source.id is not None and (source.stated or find_dataset(source.id) is not None)
    return known and rows.conversational(source) is True


UNTRAINED = re.compile(r"(nous-)?llama-3(\.1)?-\d+b$")
"""Matches the names of the base models of Llama 3 and 3.1. The embeddings of their control tokens are hardly trained.
"""


@rule("XP627", "control-tokens-stay-untrained", "warning")
def untrained_tokens(spec: Spec) -> Iterator[Finding]:
    """A run that trains a base model of Llama 3 or 3.1 with the template of its instruct model should also train the
    embeddings and the output head. The base model has hardly trained the control tokens of this template, such as
    `<|start_header_id|>` and `<|eot_id|>`, and adapters alone do not change their vectors.

    Why it is bad: the model writes `<|eot_id|>` rarely, or a reserved token instead, so its answers do not end.

    Without this rule: nothing is reported; the loss of all other tokens falls as usual.

    Source: meta-llama/llama3 issue 77, unsloth issue 915, torchtune issue 2429. The trainable weights were measured.
    """
    text = spec.chat_template
    if not text or "<|eot_id|>" not in text or not UNTRAINED.match(spec.model.name) or rows.all_texts(spec.data):
        return
    path: NamesPath = "lora.modules_to_save" if spec.lora else "freeze.except_modules"
    trained = {one.rpartition(".")[2] for one in (*spec.names(path), *spec.names("lora.targets"))}
    frozen = spec.lora or (spec.flag("freeze") and not spec.names("freeze.except_parameters"))
    if not frozen or trained >= {"embed_tokens", "lm_head"}:
        return
    clause: FlagPath = spec.adapter if spec.lora else "freeze"
    every = ", ".join(dict.fromkeys(["embed_tokens", "lm_head", *spec.names(path)]))
    yield Finding(
        spec.location("model.chat_template", "writes `<|eot_id|>`"),
        f"{spec.model.name} has hardly trained the control tokens of this template, and `{clause}` does not train them",
        f"write `{path.rpartition('.')[2]} = [{every}]` in `{clause}`, or train {spec.model.name}-instruct",
        (spec.label(clause), spec.model.label),
    )


@rule("XP557", "system-prompt-never-used", "warning")
def system_never_used(spec: Spec) -> Iterator[Finding]:
    """A system prompt needs conversations: it is the first message of a conversation, and plain text has no place for
    it.

    Why it is bad: a system prompt has no effect on plain text.

    Without this rule: nothing is reported. The runtime adds the system prompt only to conversations, so no row would
    contain it.

    Source: the runtime's `sources.py`.
    """
    if spec.method.shapes[0] == "prompt":  # the runtime turns prompts into conversations, so they get the system prompt
        return
    if spec.get("data.system") is not None and rows.all_texts(spec.data):
        answers = all(one.shape in ("prompt_completion", "unpaired") for one in spec.data)
        turns = "write `data(chat)`, which turns prompts and answers into conversations, or " * answers
        yield Finding(
            spec.location("data.system", "never used"),
            "there is a system prompt, but no row is a conversation",
            f"{turns}leave `system` out",
            (spec.data[0].label,),
        )


OPEN = re.compile(r"(?<![\\^_}\w])\{\{?\s*[A-Za-z_]\w{2,}\s*\}")
"""Matches a placeholder such as `{persona}` or `{{ date }}`, but not the arguments of LaTeX commands."""


@rule("XP196", "placeholder-in-the-system-prompt", "warning")
def placeholder(spec: Spec) -> Iterator[Finding]:
    """The system prompt of the spec should have no placeholders, such as `{persona}` or `{{ date }}`, because nothing
    fills them.

    Why it is bad: each row gets the same system prompt, with the placeholder as it is written.

    Without this rule: nothing is reported.

    Source: the runtime's `message_fields.py` uses the text as it is.
    """
    text = spec.get("data.system")
    found = OPEN.search(text) if isinstance(text, str) else None
    if found is not None:
        yield Finding(
            spec.location("data.system", found[0]),
            f"the system prompt contains the placeholder `{found[0][:40]}`, which nothing fills",
            "write the value into the text, or name a column with each row's system prompt: `system_column`",
        )


@rule("XP558", "template-never-used", "warning")
def template_never_used(spec: Spec) -> Iterator[Finding]:
    """A chat template needs conversations to render; plain text is tokenized as it is.

    Why it is bad: the model would be saved with a template whose format it did not learn.

    Without this rule: the template is silently saved with the tokenizer, although no row was rendered with it.

    Source: the runtime, which reads chat templates only for conversations.
    """
    if spec.method.shapes[0] == "prompt":  # the runtime turns prompts into conversations, which need the template
        return
    written = spec.written("model.chat_template")
    if written and rows.all_texts(spec.data):
        yield Finding(
            spec.location("model.chat_template", "the template is only saved with the tokenizer"),
            "there is a chat template, but no row is a conversation",
            "leave `chat_template` out"
            if all(one.shape == "text" for one in spec.data)
            else "write `data(chat)`, which makes turns of the texts, or leave `chat_template` out",
            (spec.data[0].label,),
        )


@rule("XP559", "token-not-in-vocabulary")
def token_not_in_vocabulary(spec: Spec) -> Iterator[Finding]:
    """The end and padding tokens must be tokens of the model. A local model's tokenizer.json is read; for other models
    the preflight checks the vocabulary.

    Why it is bad: rows would be padded, or ended, with the wrong token.

    Without this rule: trl 1.16 raises ValueError after the model is loaded. trl 0.18 raises ValueError only if the
    tokenizer has no token for unknown words; otherwise it silently uses the unknown token for padding or at the end of
    rows.

    Source: trl 1.16 and 0.18 `sft_trainer.py`; confirmed by running it.
    """
    added = spec.names("model.tokens")
    for path in ("model.eos", "model.pad"):
        token = spec.get(path)
        known = spec.model.vocabulary
        if isinstance(token, str) and known is not None and token not in added and not _has(known, token):
            yield Finding(
                spec.location(path, "no such token"),
                f"`{token[:60]}` is not in the vocabulary of {spec.model.name}",
                f"name a token of its tokenizer.json, or leave `{path[6:]}` out",
                (spec.model.label,),
            )


def _has(vocabulary: bytes, token: str) -> bool:
    return any(json.dumps(token, ensure_ascii=ascii).encode() in vocabulary for ascii in (True, False))


@rule("XP560", "template-token-not-in-vocabulary", "warning")
def template_token(spec: Spec) -> Iterator[Finding]:
    """The tokenizer should know the control tokens that the chat template writes. For a local model, xpc reads
    tokenizer.json. For a registered model, xpc knows whether its tokenizer has the control tokens of ChatML, Llama 3,
    Gemma or Phi 3.

    Why it is bad: an unknown control token is split into pieces like ordinary text, and generation does not stop at it.

    Without this rule: the model silently learns several tokens instead of one control token.

    Source: trl 1.16 `sft_config.py` (`chat_template_path`); confirmed by running it.
    """
    if spec.template is None:
        return
    from xpc.compiler.rules.core.chat_tokens import tokens_setting, unknown_tokens

    new = unknown_tokens(spec, spec.chat_template or "")
    if new:
        listed = ", ".join(f"`{token[:40]}`" for token in new[:4])
        own = native(spec.model.name)
        other = f", or write `chat_template = {own}`, the template of its family" if own else ""
        yield Finding(
            spec.location("model.chat_template", listed.replace("`", "")),
            f"the chat template writes {listed}, and {spec.model.name} has no such token",
            f"add the tokens to the vocabulary: {tokens_setting(new[:8])}{other}",
            (spec.model.label,),
        )


@rule("XP176", "token-without-embedding", "warning")
def without_embedding(spec: Spec) -> Iterator[Finding]:
    """A local model should have an embedding for every token of its tokenizer: the ids in tokenizer_config.json
    (`added_tokens_decoder`) should be less than `vocab_size` in config.json. `xpc check` reads only these two files.
    `xpc preview` and the launch read the complete vocabulary, and report an error for a row with a token that has no
    embedding.

    Why it is bad: the model cannot read a row with a token that has no embedding.

    Without this rule: IndexError in the embedding on a CPU, and a device-side assertion on a GPU, at the first row with
    a token that has no embedding.

    Source: torch 2.13 `nn/functional.py` (`embedding`); confirmed by running it.
    """
    model, facts = spec.model, spec.model.facts
    size = model.config.get("vocab_size") if facts is None else facts.vocab
    if model.largest_token is None or not isinstance(size, int) or spec.names("model.tokens"):
        return
    if model.largest_token >= size:
        yield Finding(
            model.label,
            f"the tokenizer of {model.name} has a token with the id {model.largest_token:,}, but the "
            f"model has only {size:,} embeddings",
            "list the new tokens in `model(tokens=[...])`, which adds embeddings, or name a folder whose files fit",
        )


@rule("XP131", "template-argument-not-read")
def template_argument(spec: Spec) -> Iterator[Finding]:
    """An argument of the chat template must be a name that the template reads: `qwen3(enable_thinking=false)`. A name
    that transformers passes itself, such as `messages`, cannot be an argument.

    Why it is bad: an argument that the template does not read has no effect on the rendered rows.

    Without this rule: nothing is reported; a name that the template does not read has no effect.

    Source: transformers 5.23 `tokenization_utils_base.py` (`apply_chat_template`); confirmed by running it.
    """
    if spec.template is None or not spec.template.arguments:
        return
    from xpc.compiler.rules.core.template_blocks import code_of

    arguments = spec.template.arguments
    text = code_of((spec.chat_template or "").replace(argument_lines(arguments), "", 1))
    given = [name for name, _ in arguments]
    known = [name for name in re.findall(r"\b(\w+) is (?:not )?defined", text) if name not in {*PASSED, *given}]
    for name in given:
        if name in PASSED:
            what = f"the chat template cannot have an argument `{name}`: transformers passes it for each conversation"
        elif re.search(rf"(?<![\w.]){name}\b", text) is None:
            what = f"the chat template does not read `{name[:40]}`"
        else:
            continue
        other = f", or write `{known[0]}`, which the template reads" if known else ""
        yield Finding(spec.location("model.chat_template"), what, f"leave `{name[:40]}` out{other}")


@rule("XP567", "no-place-for-a-system-prompt")
def no_system(spec: Spec) -> Iterator[Finding]:
    """Gemma, Gemma 2 and Mistral cannot have a system prompt, because their templates refuse one. The rows of local
    files are checked: their turns, and a column `system`.

    Why it is bad: the data cannot be rendered.

    Without this rule: jinja2's TemplateError ("System role not supported") while the data is tokenized.

    Source: the published templates (trl 1.16 `chat_templates/gemma.jinja`); confirmed by running it.
    """
    if spec.template is None:
        own = templates.native(spec.model.name) if spec.model.chat and spec.model.facts is not None else None
        used, location = own if own == "gemma" else None, spec.model.label
    else:
        used, location = spec.template.name, spec.location("model.chat_template")
    if used not in templates.NO_SYSTEM:
        return
    from xpc.compiler.rules.core.chat_tokens import template_advice

    talks = [source for source in spec.files if source.shape == "prompt" or rows.conversational(source)]
    if talks and spec.get("data.system") is not None:
        yield Finding(
            spec.location("data.system", "not in this template"),
            f"the template {used} refuses a system prompt",
            f"leave `system` out, or {template_advice(spec, ('chatml',))}",
            (location,),
        )
        return
    for source in talks:
        found = rows.survey(source)
        tallies = {} if found is None else found.tallies
        column = tallies.get("system_column") if not source.only or "system" in (source.columns or ()) else None
        first = tallies.get("system", column)
        if first is not None:
            yield Finding(
                source.label,
                f"row {first.first} (counted from 0) of `{source.name[:80]}` has a system prompt, which the template "
                f"{used} refuses",
                f"move the system prompt into the first question, or {template_advice(spec, ('chatml',))}",
                (location,),
            )
            return
