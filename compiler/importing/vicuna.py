"""The chat template of Vicuna 1.1, which FastChat's scripts have built in."""

VICUNA = r"""{#- Vicuna v1.1 as FastChat trains it: one separator after a question, the end token after an answer, and the loss on
    the answer with that token. -#}
{%- set opening = "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions." -%}
{{- bos_token + (messages[0].content if messages[0].role == "system" else opening) + " " -}}
{%- for message in messages -%}
  {%- if message.role == "user" -%}
    {{- "USER: " + message.content + " " -}}
  {%- elif message.role == "assistant" -%}
    {{- "ASSISTANT: " -}}
    {%- generation -%}
      {{- message.content + eos_token -}}
    {%- endgeneration -%}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- "ASSISTANT:" -}}
{%- endif -%}
"""
