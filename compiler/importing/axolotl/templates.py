"""Write axolotl's chat templates with axolotl's loss mask. The text of an answer and its end-of-turn token are trained
on.

To find a turn in the rendered text, axolotl renders the conversation twice, with different texts in this turn; the turn
is where the results differ (`find_turn`). The end-of-turn token is trained on if it is the eos token or one of
`eot_tokens`. Source: axolotl 0.18.0, utils/chat_templates/templates/ and prompt_strategies/chat_template.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler.registry import chat_templates as templates
from xpc.grammar.record import record


@record
class Turns:
    """The strings of a chat template whose turns all have the same form.

    - `head`: the Jinja expression before the text of a turn
    - `text`: the Jinja expression of the text itself
    - `end`: the end-of-turn token
    - `after`: what follows the end-of-turn token, such as a newline
    - `user_end`: the text between a user's turn and the answer, which is the generation prompt
    - `first`: the Jinja expression at the beginning of the conversation, such as `bos_token`
    """

    head: str
    end: str
    after: str
    user_end: str
    first: str = ""
    text: str = "message.content"


TURNS = {
    "chatml": Turns('"<|im_start|>" + message.role + "\\n"', "<|im_end|>", "\\n", '"<|im_start|>assistant\\n"'),
    "llama3": Turns('"<|start_header_id|>" + message.role + "<|end_header_id|>\\n\\n"', "<|eot_id|>", "",
                    '"<|start_header_id|>assistant<|end_header_id|>\\n\\n"', "bos_token", "message.content | trim"),
    "gemma": Turns('"<start_of_turn>" + ("model" if message.role == "assistant" else message.role) + "\\n"',
                   "<end_of_turn>", "\\n", '"<start_of_turn>model\\n"', "bos_token", "message.content | trim"),
}  # fmt: skip
BUILT_IN = {
    "qwen_25": ("qwen2.5", "<|im_end|>"),
    "qwen3": ("qwen3", "<|im_end|>"),
    "gemma3": ("gemma3", "<end_of_turn>"),
}
"""Maps axolotl's name of a template to xpc's template of the same text and its end-of-turn token."""
ASSISTANT = ("assistant",)
BETWEEN = " if not loop.last or add_generation_prompt"
CLOSED = '{{{{- eos_token if loop.last and not add_generation_prompt and eos_token != "{}" -}}}}'
"""TRL ends the text of an answer with the eos token if it does not end with it."""


def end_of(name: str) -> str | None:
    """The end-of-turn token of axolotl's template with this name; None for an unknown name."""
    if name in TURNS:
        return TURNS[name].end
    return BUILT_IN[name][1] if name in BUILT_IN else None


def axolotl_template(
    name: str, roles: Sequence[str] = ASSISTANT, every_end: bool = False, stripped: bool = False
) -> str | None:
    """The template that axolotl calls `name`, with `{% generation %}` marks around the turns of `roles`.

    With `every_end`, the end-of-turn tokens of all other turns are marked, too. With `stripped`, only the eos token
    follows the end-of-turn token of the last answer, because axolotl strips the answers of preference pairs. Returns
    None for an unknown name, or a template that cannot be marked like this.
    """
    if name in TURNS:
        return _turns(TURNS[name], roles, every_end, stripped)
    if name not in BUILT_IN or tuple(roles) != ASSISTANT or every_end:
        return None
    built_in, end = BUILT_IN[name]
    return answers_alone(templates.text(built_in).decode(), end, stripped)


def _turns(turns: Turns, roles: Sequence[str], every_end: bool, stripped: bool) -> str:
    learned = " or ".join(f'message.role == "{one}"' for one in roles)
    text, end = "{{- " + turns.text + " -}}", '{{- "' + turns.end + '" -}}'
    other = text + (_marked(end) if every_end else end)
    begun = f"{{{{- {turns.first} if loop.first -}}}}\n  " if turns.first else ""
    after = f'\n  {{{{- "{turns.after}"{BETWEEN if stripped else ""} -}}}}' if turns.after else ""
    after += f"\n  {CLOSED.format(turns.end)}" if stripped else ""
    return f"""\
{{%- for message in messages -%}}
  {begun}{{{{- {turns.head} -}}}}
  {{%- if {learned} -%}}
    {_marked(text + end)}
  {{%- else -%}}
    {other}
  {{%- endif -%}}{after}
{{%- endfor -%}}
{{%- if add_generation_prompt -%}}
  {{{{- {turns.user_end} -}}}}
{{%- endif -%}}
"""


def _marked(text: str) -> str:
    return "{%- generation -%}" + text + "{%- endgeneration -%}"


def answers_alone(text: str, end: str, stripped: bool) -> str:
    """Move the `{% generation %}` marks in one of xpc's own templates. Afterwards, they enclose the text of each answer
    and its end-of-turn token (`end`), but not the newline after this token.

    If an answer contains thoughts, everything after the opening tag `<think>` is trained on.
    """
    text = text.replace(
        '{{- "<|im_start|>assistant" -}}\n    {%- generation -%}\n      {{- "\\n" + message.content if',
        '{{- "<|im_start|>assistant" -}}\n    {{- "\\n" if message.content or not message.tool_calls -}}\n'
        "    {%- generation -%}\n      {{- message.content if",
    )
    text = text.replace(
        '    {%- generation -%}\n      {%- if loop.index0 > asks.last and (loop.last or thoughts.lstrip("\\n")) -%}\n'
        '        {{- "<think>\\n" + thoughts.strip("\\n") + "\\n</think>\\n\\n" + content.lstrip("\\n") -}}\n',
        '    {%- set thinks = loop.index0 > asks.last and (loop.last or thoughts.lstrip("\\n")) -%}\n'
        '    {%- set thought = "\\n" + thoughts.strip("\\n") + "\\n</think>\\n\\n" -%}\n'
        '    {{- "<think>" + ("" if thoughts.strip("\\n") else thought) if thinks -}}\n'
        "    {%- generation -%}\n      {%- if thinks -%}\n"
        '        {{- (thought if thoughts.strip("\\n") else "") + content.lstrip("\\n") -}}\n',
    )
    ending = re.compile(re.escape(end) + r'(\\n)" -\}\}\s*\{%- endgeneration -%\}')
    between, closed = (BETWEEN, CLOSED.format(end)) if stripped else ("", "")
    return ending.sub(
        lambda found: f'{end}" -}}}}{{%- endgeneration -%}}{{{{- "{found[1]}"{between} -}}}}{closed}', text
    )
