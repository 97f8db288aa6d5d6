"""LLaMA-Factory's chat templates written as Jinja, with its loss mask.

Source: LLaMA-Factory 0.9.5, data/template.py.
"""

from __future__ import annotations

import re

from xpc.grammar.record import evolve, record


@record
class Pieces:
    """What a template writes; `{bos}` and `{eos}` are the tokenizer's own.

    Before everything, around a system prompt, before a question and behind it, before an answer's text and behind it
    (both learned); the usual system prompt; whether that stands inside the first question (`inside`); and whether an
    answer without thoughts is given empty ones.
    """

    first: str = ""
    before: str = ""
    after: str = ""
    user: str = ""
    asked: str = ""
    lead: str = ""
    end: str = "{eos}"
    system: str = ""
    inside: bool = False
    reasons: bool = False


IM = Pieces(
    before="<|im_start|>system\n", after="<|im_end|>\n", user="<|im_start|>user\n",
    asked="<|im_end|>\n<|im_start|>assistant\n", end="<|im_end|>\n",
)  # fmt: skip
HEADED = Pieces(
    "{bos}", "<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>",
    "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    end="<|eot_id|>",
)  # fmt: skip
GEMMA = Pieces(
    "{bos}", "", "\n\n", "<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n", end="<end_of_turn>\n",
    inside=True,
)  # fmt: skip
PHI = Pieces("", "<|system|>\n", "<|end|>\n", "<|user|>\n", "<|end|>\n<|assistant|>\n", end="<|end|>\n")
QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
TEMPLATES = {
    "llama3": HEADED,
    "qwen": evolve(IM, system=QWEN),
    "qwen3": evolve(IM, reasons=True),
    "qwen3_nothink": IM,
    "qwen3_5": evolve(IM, reasons=True),
    "qwen3_5_nothink": IM,
    "chatml": IM,
    "yi": IM,
    "smollm": IM,
    "smollm2": evolve(IM, system="You are a helpful AI assistant named SmolLM, trained by Hugging Face."),
    "deepseek": Pieces("{bos}", "", "\n\n", "User: ", "\n\nAssistant:"),
    "deepseek3": Pieces("{bos}", "", "", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"),
    "default": Pieces("", "System: ", "{eos}\n", "Human: ", "{eos}\nAssistant:", end="{eos}\n"),
    "alpaca": Pieces(
        "", "", "", "### Instruction:\n", "\n\n### Response:\n", end="{eos}\n\n",
        system="Below is an instruction that describes a task. Write a response that appropriately completes the "
               "request.\n\n",
    ),
    "vicuna": Pieces(
        "", "", "", "USER: ", " ASSISTANT:",
        system="A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
               "detailed, and polite answers to the user's questions.",
    ),
    "zephyr": Pieces("", "<|system|>\n", "{eos}", "<|user|>\n", "{eos}<|assistant|>\n",
                     system="You are Zephyr, a helpful assistant."),
    "mistral": Pieces("{bos}", "", "\n\n", "[INST] ", "[/INST]", " ", inside=True),
    "ministral": Pieces("{bos}", "", "\n\n", "[INST]", "[/INST]", inside=True),
    "mistral_small": Pieces("{bos}", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]"),
    "llama2": Pieces("", "<<SYS>>\n", "\n<</SYS>>\n\n", "{bos}[INST] ", " [/INST]", inside=True),
    "gemma": GEMMA,
    "gemma3": GEMMA,
    "phi": PHI,
    "phi4": Pieces("", "<|im_start|>system<|im_sep|>", "<|im_end|>", "<|im_start|>user<|im_sep|>",
                   "<|im_end|><|im_start|>assistant<|im_sep|>", end="<|im_end|>"),
    "starchat": evolve(PHI, asked="<|end|>\n<|assistant|>"),
    "empty": Pieces(end=""),
}  # fmt: skip
"""By LLaMA-Factory's name."""
THOUGHT = "<think>\n\n</think>\n\n"


def llamafactory_template(name: str, thinks: bool, last: bool = False) -> str | None:
    """LLaMA-Factory's template of this name with its answers marked, or None. What follows an answer is learned, too.

    `thinks` is `enable_thinking`: with it the empty thoughts of an answer that has none are learned; without it an
    answer loses its thoughts. `last` is `mask_history`: the last answer alone is marked, and the others lose theirs.
    """
    if name not in TEMPLATES:
        return None
    one = TEMPLATES[name]
    said, given, learned = "message.content", "", ""
    without_thoughts = f"(message.content.split('{_inside('</think>')}') | last).lstrip('{_inside(chr(10))}')"
    if one.reasons and not thinks:
        said = without_thoughts
        given = f"{{{{- {_typed(THOUGHT)} -}}}}\n      "
    elif one.reasons:
        without = "'<think>' not in message.content and '</think>' not in message.content"
        learned = f"({_typed(THOUGHT)} if {without} else '') + "
    told = f"{_typed(one.before)} + told + {_typed(one.after)}"
    head = "" if one.inside else f"{{%- if told -%}}\n  {{{{- {told} -}}}}\n{{%- endif -%}}\n"
    inside = (
        f" + ({told} if told and loop.index0 == (1 if messages[0].role == 'system' else 0) else '')"
        if one.inside
        else ""
    )
    earlier = ""
    if last:
        kept = without_thoughts if one.reasons else "message.content"
        earlier = f"""  {{%- elif message.role == 'assistant' and not loop.last -%}}
      {{{{- {_typed(one.lead)} + {kept} + {_typed(one.end)} -}}}}
"""
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
      {{{{- {_typed(one.asked)} -}}}}
    {{%- endif -%}}
{earlier}  {{%- elif message.role == 'assistant' -%}}
      {given}{{%- generation -%}}
      {{{{- {learned}{_typed(one.lead)} + {said} + {_typed(one.end)} -}}}}
    {{%- endgeneration -%}}
  {{%- endif -%}}
{{%- endfor -%}}
"""


def _inside(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")


def _typed(text: str) -> str:
    """A text of a template as it is typed there."""
    parts = [one for one in re.split(r"(\{bos\}|\{eos\})", text) if one]
    return " + ".join(
        f"({one[1:-1]}_token or '')" if one in ("{bos}", "{eos}") else f"'{_inside(one)}'" for one in parts
    ) or "''"  # fmt: skip
