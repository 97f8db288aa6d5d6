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
