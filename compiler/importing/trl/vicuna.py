"""The chat template of Vicuna 1.1, which FastChat's scripts have built in."""

VICUNA = (
    "{#- Vicuna v1.1 as FastChat trains it: one separator after a question, the end token after an "
    "answer, and the loss on\n"
    "    the answer with that token. -#}\n"
    '{%- set opening = "A chat between a curious user and an artificial intelligence assistant. The '
    "assistant gives helpful, detailed, and polite answers to the user's questions.\" -%}\n"
    '{{- bos_token + (messages[0].content if messages[0].role == "system" else opening) + " " -}}\n'
    "{%- for message in messages -%}\n"
    '  {%- if message.role == "user" -%}\n'
    '    {{- "USER: " + message.content + " " -}}\n'
    '  {%- elif message.role == "assistant" -%}\n'
    '    {{- "ASSISTANT: " -}}\n'
    "    {%- generation -%}\n"
    "      {{- message.content + eos_token -}}\n"
    "    {%- endgeneration -%}\n"
    "  {%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    '  {{- "ASSISTANT:" -}}\n'
    "{%- endif -%}\n"
)
