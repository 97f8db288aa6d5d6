"""Import the chat template that a file of LLaMA-Factory names, as Jinja with LLaMA-Factory's loss mask.

`make oracles` writes the strings of all templates to templates.jsonl.
"""

from __future__ import annotations

import json
import re
from functools import cache

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.template_arguments import jinja_text, put_template
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, is_stated, text
from xpc.grammar.package_data import read_text
from xpc.grammar.record import record


@record
class Pieces:
    """The strings of a chat template. `{bos}` and `{eos}` stand for the tokenizer's tokens.

    - `first`: the beginning of the conversation
    - `before`, `after`: the strings around the system prompt
    - `user`, `user_end`: the strings around a question
    - `lead`, `end`: the strings around an answer, which are trained on like the answer
    - `system`: the default system prompt; with `inside`, it is put into the first question
    - `thought`: the strings before and after a thought, and the string for an empty thought
    - `closes`: whether the eos token ends a conversation
    """

    first: str = ""
    before: str = ""
    after: str = ""
    user: str = ""
    user_end: str = ""
    lead: str = ""
    end: str = ""
    system: str = ""
    inside: bool = False
    thought: tuple[str, ...] = ()
    closes: bool = False


@cache
def templates() -> dict[str, Pieces]:
    """Maps the name of each chat template of LLaMA-Factory to the template's strings."""
    found: dict[str, Pieces] = {}
    _, *lines = map(json.loads, read_text(__file__, "templates.jsonl").splitlines())
    for one in lines:
        names = one.pop("names")
        found |= dict.fromkeys(names, Pieces(**{**one, "thought": tuple(one.get("thought", ()))}))
    return found


def llamafactory_template(name: str, thinking: bool, last: bool) -> str | None:
    """LLaMA-Factory's chat template with this name, as Jinja. `{% generation %}` marks enclose each answer and the
    string after it, because LLaMA-Factory trains on both. None for an unknown name.

    `thinking` is the value of `enable_thinking`. If true, an answer without a thought gets an empty thought, which is
    trained on; if false, thoughts are removed. With `last`, only the last answer is marked, and earlier answers have no
    thoughts, as with `mask_history` and in preference pairs.
    """
    one = templates().get(name)
    if one is None:
        return None
    answer, given, learned, without_thoughts = "message.content", "", "", "message.content"
    if one.thought:
        begins, ends, none = one.thought
        without_thoughts = f"(message.content.split({_typed(ends.strip())}) | last).lstrip({jinja_text(chr(10))})"
    if one.thought and not thinking:
        answer = without_thoughts
        given = f"{{{{- {_typed(none)} -}}}}\n      "
    elif one.thought:
        without = " and ".join(f"{_typed(word.strip())} not in message.content" for word in (begins, ends))
        learned = f"({_typed(none)} if {without} else '') + "
    reported = f"{_typed(one.before)} + told + {_typed(one.after)}"
    head = "" if one.inside else f"{{%- if told -%}}\n  {{{{- {reported} -}}}}\n{{%- endif -%}}\n"
    inside = (
        f" + ({reported} if told and loop.index0 == (1 if messages[0].role == 'system' else 0) else '')"
        if one.inside
        else ""
    )
    earlier = ""
    if last:
        earlier = f"""  {{%- elif message.role == 'assistant' and not loop.last -%}}
      {{{{- {_typed(one.lead)} + {without_thoughts} + {_typed(one.end)} -}}}}
"""
    closed = (
        f"{{%- if loop.last -%}}\n      {{{{- {_typed('{eos}')} -}}}}\n    {{%- endif -%}}\n    " if one.closes else ""
    )
    return f"""{{%- if messages[0].role == 'system' -%}}
  {{%- set told = messages[0].content -%}}
{{%- else -%}}
  {{%- set told = {_typed(one.system)} -%}}
{{%- endif -%}}
{{{{- {_typed(one.first)} -}}}}
{head}{{%- for message in messages -%}}
  {{%- if message.role == 'user' -%}}
    {{{{- {_typed(one.user)}{inside} + message.content -}}}}
    {{%- if not loop.last or add_generation_prompt -%}}
      {{{{- {_typed(one.user_end)} -}}}}
    {{%- endif -%}}
{earlier}  {{%- elif message.role == 'assistant' -%}}
      {given}{{%- generation -%}}
      {{{{- {learned}{_typed(one.lead)} + {answer} + {_typed(one.end)} -}}}}
    {closed}{{%- endgeneration -%}}
  {{%- endif -%}}
{{%- endfor -%}}
"""


def _typed(text: str) -> str:
    """Convert a string with `{bos}` and `{eos}` to a Jinja expression: `{bos}Hi` becomes `(bos_token or '') + 'Hi'`."""
    parts = [one for one in re.split(r"(\{bos\}|\{eos\})", text) if one]
    return " + ".join(
        f"({one[1:-1]}_token or '')" if one in ("{bos}", "{eos}") else jinja_text(one) for one in parts
    ) or "''"  # fmt: skip


def template(draft: Draft, named: Entries, stage: str) -> None:
    """Write LLaMA-Factory's chat template as Jinja. A file without a template uses the tokenizer's."""
    entry, thinking = named.get("template"), named.get("enable_thinking")
    word = str(text(entry)) if is_stated(entry) else ""
    think = thinking is None or boolean(thinking) is not False
    only = named.get("mask_history")
    last = boolean(only) is True and draft.method == "sft" and stage != "pt"
    drops = (last or draft.method != "sft") and word in templates() and bool(templates()[word].thought)
    body = llamafactory_template(word, think, last or drops)
    if only is not None:
        _report_last_answer(draft, only, last, word, body)
    if stage == "pt":
        draft.note(entry, "no template renders plain text")
        if word == "llama3":
            draft.differs(
                "template",
                "with the template `llama3`, LLaMA-Factory ends each text with <|end_of_text|>; the spec ends it with "
                "the tokenizer's eos token",
                entry,
            )
    elif body is not None and entry is not None:
        put_template(draft, body, entry)
        if not think or drops:
            draft.put("data.omit", ("reasoning",), thinking if not think else only if last else entry)
        if templates()[word].closes:
            draft.differs(
                "template",
                "LLaMA-Factory trains the model to write the eos token after each answer; a run of the spec trains it "
                "to do so only at the end of the conversation",
                entry,
            )
    elif entry is not None and word:
        why = "LLaMA-Factory 0.9.5 has no such template, and refuses the file"
        draft.error(entry, why, "name one that it has, such as `qwen`, `llama3` or `chatml`")
    elif entry is not None:
        draft.note(entry, "the tokenizer's own chat template")
    _report_template(draft, thinking, word, body, stage)


def _report_last_answer(draft: Draft, only: Entry, last: bool, word: str, body: str | None) -> None:
    """Report how `mask_history` was imported. With `last`, the loss includes only the last answer."""
    if not last:
        draft.note(only, "it is off" if only.off else "the rows have no separate answers")
    elif body is None:
        why = f"a loss only on the last answer needs a chat template that xpc can write, and xpc cannot write `{word}`"
        draft.error(only, why, "name a template that xpc can write, such as qwen")
    else:
        draft.mark(only, "mapped", "model.chat_template", "the template marks only the last answer")


def _report_template(draft: Draft, thinking: Entry | None, word: str, body: str | None, stage: str) -> None:
    """Report how tokenization and loss mask differ from LLaMA-Factory's, and how `enable_thinking` was imported. `word`
    is the name of LLaMA-Factory's template, and `body` the template in Jinja that the importer writes.
    """
    if stage != "pt" and body is not None:
        draft.differs(
            "tokenizer",
            "LLaMA-Factory tokenizes each piece of a conversation separately; the spec tokenizes the complete text: "
            "the first tokens of a piece that begins with a newline may differ",
        )
    elif stage != "pt" and not word:
        draft.differs(
            "template",
            "LLaMA-Factory derives its template from the tokenizer's and also trains on what follows answers; the spec "
            "trains on what the tokenizer's template marks",
        )
    if thinking is not None and (body is None or "<think>" not in body):
        draft.note(thinking, "the template has no thoughts")
    elif thinking is not None:
        draft.mark(thinking, "mapped", "model.chat_template")
