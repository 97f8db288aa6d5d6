"""Rules about texts that a chat template writes in addition to the rows: the beginning of an answer, and values that
change, such as the date (XP528, XP529).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import any_of, local_tokenizer, written
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.core.template_blocks import code_of, parts, without_comments
from xpc.compiler.rules.data.structure import built_in
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Label

WHEN = any_of(written("model.chat_template"), local_tokenizer)

COMPARED = re.compile(r"""(?:==|!=)\s*(["'])assistant\1|(["'])assistant\2\s*(?:==|!=)""")
ROLE = re.compile(r"\brole\b")
CLOCK = re.compile(r"(?<![\w.])(?:strftime_now|now|utcnow|today)\s*\(|\bdatetime\s*\.\s*\w*(?:now|today)\s*\(")
CHANCE = re.compile(r"\|\s*random\b|(?<![\w.])lipsum\s*\(")
DATED = re.compile("date|day|time|now", re.IGNORECASE)


def _place(spec: Spec) -> Label:
    return spec.location("model.chat_template") if spec.written("model.chat_template") else spec.model.label


def _owner(spec: Spec) -> str:
    return "the chat template" if spec.written("model.chat_template") else f"the chat template of {spec.model.name}"


@rule("XP528", "no-generation-prompt", "warning")
def no_generation_prompt(spec: Spec) -> Iterator[Finding]:
    """For grpo, rloo and distill, the chat template should end a prompt with the header of the assistant's turn (the
    generation prompt), such as `<|im_start|>assistant`, if `add_generation_prompt` is true. xpc searches for
    `add_generation_prompt` in a template that is a file or belongs to a local model. A template that has no header
    before an answer needs no generation prompt.

    Why it is bad: the prompt ends with the user's turn, and the model continues this turn instead of answering. So the
    rewards score continuations of the user's turn, and not the answers that the trained model will later write.

    Without this rule: launch.sh renders a prompt, and the same prompt with an answer. It stops if the rendered prompt
    does not end with the header that precedes the answer.

    Source: transformers 5.23 `tokenization_utils_base.py` (`apply_chat_template`); confirmed by running it.
    """
    if not spec.online or not spec.chat_template:
        return
    text = without_comments(spec.chat_template)
    if not text or "add_generation_prompt" in text:
        return
    writes_role = any(begin == "{{" and ROLE.search(part) for begin, part, _ in parts(spec.chat_template))
    if writes_role or "assistant" in COMPARED.sub("", text):
        yield Finding(
            _place(spec),
            f"{_owner(spec)} never reads `add_generation_prompt`, so a prompt ends within the user's turn",
            "end the template with `{% if add_generation_prompt %}`, the beginning of an answer and `{% endif %}`, or "
            "write `chat_template = chatml`",
        )


@rule("XP529", "template-changes", "warning")
def template_changes(spec: Spec) -> Iterator[Finding]:
    """A chat template should write the same text each time. A date (`strftime_now`) changes from day to day, and a
    random value (`| random`, `lipsum()`) changes at each rendering. xpc searches the template of the spec, or of a
    local model, for such calls. An argument with the date, as in `smollm3(date_string="8 July 2025")`, replaces the
    call.

    Why it is bad: two runs of one spec train on different texts if they run on different days. A run that is resumed on
    another day trains on two different texts of each row. A preview that is stored with `--golden` no longer matches on
    the next day.

    Without this rule: nothing is reported.

    Source: transformers 5.23 `utils/chat_template_utils.py` (`strftime_now`) and jinja2 3.1 `filters.py` (`do_random`);
    confirmed by running them.
    """
    template = spec.template
    code = code_of(spec.chat_template or "")
    names = () if template is None else tuple(name for name, _ in template.arguments)
    given = any(DATED.search(name) and re.search(rf"\b{re.escape(name)}\b", code) for name in names)
    known = template is not None and built_in(spec) is not None
    if found := None if given else CLOCK.search(code):
        yield Finding(
            _place(spec),
            f"{_owner(spec)} writes today's date (`{found[0].rstrip('( ')}`), so tomorrow each row has other tokens",
            f'state the date: `chat_template = {template.name}(date_string="8 July 2025")`'
            if known and template is not None
            else "write a date into the template in place of the call",
            severity="note" if known else None,
        )
    if found := CHANCE.search(code):
        yield Finding(
            _place(spec),
            f"{_owner(spec)} writes a random value (`{found[0].rstrip('( ')}`), so each rendering of a row differs",
            "write one of the values into the template",
        )
