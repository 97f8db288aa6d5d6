"""Chat templates that other tools have built in, written anew with the answers marked for the loss."""

from __future__ import annotations

CHATML = """\
{%- for message in messages -%}
  {{- "<|im_start|>" + message.role + "\\n" -}}
  {%- if message.role == "assistant" -%}
    {%- generation -%}
      {{- message.content + "<|im_end|>" -}}
    {%- endgeneration -%}
    {{- "\\n" -}}
  {%- else -%}
    {{- message.content + "<|im_end|>\\n" -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- "<|im_start|>assistant\\n" -}}
{%- endif -%}
"""
LLAMA3 = """\
{{- bos_token -}}
{%- for message in messages -%}
  {{- "<|start_header_id|>" + message.role + "<|end_header_id|>\\n\\n" -}}
  {%- if message.role == "assistant" -%}
    {%- generation -%}
      {{- message.content | trim + "<|eot_id|>" -}}
    {%- endgeneration -%}
  {%- else -%}
    {{- message.content | trim + "<|eot_id|>" -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- "<|start_header_id|>assistant<|end_header_id|>\\n\\n" -}}
{%- endif -%}
"""
TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3}
"""By the name that axolotl and LLaMA-Factory have for them."""

IM = (
    "",
    "<|im_start|>system\n",
    "<|im_end|>\n",
    "<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
    "<|im_end|>\n",
)
HEADED = ("{bos}", "<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>",
          "<|start_header_id|>user<|end_header_id|>\n\n",
          "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>")  # fmt: skip
QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
LLAMAFACTORY: dict[str, tuple[tuple[str, ...], str, bool]] = {
    "llama3": (HEADED, "", False),
    "qwen": (IM, QWEN, False),
    "qwen3": (IM, "", True),
    "qwen3_nothink": (IM, "", False),
    "qwen3_5": (IM, "", True),
    "qwen3_5_nothink": (IM, "", False),
    "chatml": (IM, "", False),
    "deepseek": (("{bos}", "", "\n\n", "User: ", "\n\nAssistant:", "{eos}"), "", False),
    "deepseek3": (("{bos}", "", "", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "{eos}"), "", False),
}
"""Of LLaMA-Factory's templates (data/template.py): what stands before everything, around a system prompt, around a
question and after an answer; the usual system prompt; and whether an answer without thoughts is given empty ones."""
THOUGHT = "<think>\n\n</think>\n\n"


def llamafactory_template(name: str, thinks: bool) -> str | None:
    """LLaMA-Factory's template of this name with its answers marked, or None. What follows an answer is learned, too.

    `thinks` is `enable_thinking`: with it the empty thoughts of an answer that has none are learned.
    """
    if name not in LLAMAFACTORY:
        return None
    (first, before, after, user, asked, end), system, reasons = LLAMAFACTORY[name]
    thought = (
        f"('{_inside(THOUGHT)}' if '<think>' not in message.content and '</think>' not in message.content else '')"
    )
    learned = f"{thought} + message.content" if reasons and thinks else "message.content"
    given = f"{{{{- {thought} -}}}}\n      " if reasons and not thinks else ""
    usual = f"""{{%- else -%}}
  {{%- set told = '{_inside(system)}' -%}}
"""
    return f"""{{%- if messages[0].role == 'system' -%}}
  {{%- set told = messages[0].content -%}}
{usual}{{%- endif -%}}
{{{{- {_typed(first)} -}}}}
{{%- if told -%}}
  {{{{- {_typed(before)} + told + {_typed(after)} -}}}}
{{%- endif -%}}
{{%- for message in messages -%}}
  {{%- if message.role == 'user' -%}}
    {{{{- {_typed(user)} + message.content -}}}}
    {{%- if not loop.last or add_generation_prompt -%}}
      {{{{- {_typed(asked)} -}}}}
    {{%- endif -%}}
  {{%- elif message.role == 'assistant' -%}}
      {given}{{%- generation -%}}
      {{{{- {learned} + {_typed(end)} -}}}}
    {{%- endgeneration -%}}
  {{%- endif -%}}
{{%- endfor -%}}
"""


def _inside(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")


def _typed(text: str) -> str:
    """A text of a template; `{bos}` and `{eos}` are the tokenizer's own."""
    if text in ("{bos}", "{eos}"):
        return f"({text[1:-1]}_token or '')"
    return f"'{_inside(text)}'"
