"""Find out which kinds of rows each built-in chat template can render, by rendering a row of each kind. `python
template_forms.py` writes the result as a table.

The kinds are those that `xpc check` counts in local files (`compiler/data/structure.py`). A template renders a row of a
kind completely, omits something of the row, or raises an exception for it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from xpc.compiler.registry import chat_templates

PLACE = os.path.join(os.path.dirname(chat_templates.FOLDER), "template_forms.json")
TOOL = {"type": "function", "function": {"name": "weather", "description": "Says it.", "parameters": {}}}


def turn(role: str, content: str, **keys: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **keys}


def call(number: int = 0) -> dict[str, Any]:
    function = {"name": f"weather{number}", "arguments": {"city": "Paris"}}
    return {"id": f"abcdefgh{number}", "type": "function", "function": function}


QUESTION, ANSWER = turn("user", "And now?"), turn("assistant", "Sunny.")
CALL = turn("assistant", "", tool_calls=[call()])
THOUGHT = turn("assistant", "Sunny.", reasoning_content="it shines")
INLINE = turn("assistant", "<think>\nit shines\n</think>\n\nSunny.")
RESULT = turn("tool", "sun", tool_call_id="abcdefgh0")
KINDS: dict[str, list[dict[str, Any]]] = {
    "system": [turn("system", "Be short."), QUESTION, ANSWER],
    "developer": [turn("developer", "Be short."), QUESTION, ANSWER],
    "late_system": [QUESTION, ANSWER, turn("system", "Be short."), QUESTION, ANSWER],
    "two_questions": [QUESTION, QUESTION, ANSWER],
    "two_answers": [QUESTION, ANSWER, ANSWER],
    "answer_first": [ANSWER, QUESTION, ANSWER],
    "tools": [QUESTION, ANSWER],
    "tool_calls": [QUESTION, CALL],
    "several_calls": [QUESTION, turn("assistant", "", tool_calls=[call(), call(1)])],
    "text_with_call": [QUESTION, turn("assistant", "I look.", tool_calls=[call()])],
    "tool": [QUESTION, CALL, RESULT, ANSWER],
    "reasoning": [QUESTION, THOUGHT],
    "listed_reasoning": [QUESTION, turn("assistant", "Sunny.", reasoning_content=[{"text": "it shines"}])],
    "early_reasoning": [QUESTION, THOUGHT, QUESTION, ANSWER],
    "reasoning_twice": [QUESTION, turn("assistant", INLINE["content"], reasoning_content="it shines")],
    "inline_reasoning": [QUESTION, INLINE],
    "early_inline_reasoning": [QUESTION, INLINE, QUESTION, ANSWER],
    "empty_answer": [QUESTION, turn("assistant", "")],
}


def forms() -> dict[str, dict[str, Any]]:
    """Map each template to three facts: which kinds of rows it refuses or omits, which form it needs for the arguments
    of a tool call, and whether a run can train on tool calls with it.
    """
    names = sorted(name[:-6] for name in os.listdir(chat_templates.FOLDER) if name.endswith(".jinja"))
    return {name: _forms(chat_templates.text(name).decode()) for name in names}


def _forms(template: str) -> dict[str, Any]:
    from xpc.runtime.features.messages import call_forms
    from xpc.runtime.features.method.tools import template_problem

    tokenizer = _tokenizer(template)
    found = {kind: _written(tokenizer, turns, kind) for kind, turns in KINDS.items()}
    read = call_forms.forms_of(lambda turns: tokenizer.apply_chat_template.real()(turns, tokenize=False))
    arguments = {(True, True): "object or text", (True, False): "object", (False, True): "text"}
    return {
        "refused": [kind for kind, state in found.items() if state == "refused"],
        "left_out": [kind for kind, state in found.items() if state == "left out"],
        "doubled": ["reasoning_twice"] if read.doubles else [],
        "parts": "a list" if read.parts else "joined",
        "arguments": arguments.get((read.objects, read.texts)),
        "calls_trained": template_problem(_of_bytes(template)) is None,
    }


def _tokenizer(template: str) -> Any:
    from xpc.runtime.features.rows.message_fields import Renderer

    out = _of_bytes(template)
    out.apply_chat_template = Renderer(out)
    return out


def _of_bytes(template: str) -> Any:
    """A tokenizer with a token for each byte."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    out: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call, unused-ignore]
        tokenizer_object=core, bos_token="<s>", eos_token="</s>"
    )
    out.chat_template = template
    return out


def _written(tokenizer: Any, turns: list[dict[str, Any]], kind: str) -> str:
    from xpc.runtime.core import row_comparison
    from xpc.runtime.features.rows import message_fields, prompts

    row: dict[str, Any] = {"messages": [message_fields.packed(one, kind) for one in turns]}
    if kind == "tools":
        row = message_fields.carried_by_first(row, {"tools": [TOOL]})
    try:
        tokenizer.apply_chat_template(row["messages"], tokenize=False)
    except Exception:  # a template may raise any exception
        return "refused"
    lost = {one.kind for one in row_comparison.losses(row, tokenizer, prompts.conversations)}
    about = {"tool_calls", "several_calls"} if "call" in kind else set()
    concerned = {"tool_call", "argument"} if kind in about else {"tool"} if kind == "tools" else lost
    concerned = concerned - {"content"} if kind == "reasoning_twice" else concerned
    concerned = {"content"} if kind in ("system", "late_system", "developer", "tool", "text_with_call") else concerned
    return "left out" if lost & concerned else "written"


def table() -> str:
    """The text of the committed table: the result of `forms` as JSON."""
    return json.dumps(forms(), indent=1) + "\n"


if __name__ == "__main__":
    with open(PLACE, "w", encoding="utf-8") as file:
        file.write(table())
    sys.stdout.write(f"wrote {PLACE}\n")
