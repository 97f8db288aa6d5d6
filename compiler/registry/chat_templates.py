"""The built-in chat templates. They are written for xpc and render the same text as the published templates. In
addition, they mark the assistant's answers with `{% generation %}`.

`TEMPLATES` in `model_choices.py` lists the names of the built-in templates. The first line of a template's file says
which published template it follows.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from functools import cache

from xpc.grammar.package_data import read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
NATIVE = {
    "qwen2.5": ("qwen2",),
    "qwen3": ("qwen3",),
    "llama3.1": ("llama-3.1", "llama-3.2", "llama-3.3"),
    "llama3": ("llama-3-", "nous-llama-3"),
    "gemma3": ("gemma-3",),
    "gemma": ("gemma-",),
    "mistral": ("mistral-7b", "mixtral-8x7b"),
    "phi3": ("phi-3",),
    "smollm2": ("smollm2",),
    "smollm3": ("smollm3",),
}
"""Maps each built-in template to beginnings of aliases. The registered models whose alias begins with one of these have
the template. If several beginnings match an alias, the first one counts.
"""
CHATML = ("<|im_start|>", "<|im_end|>")
LLAMA = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
GEMMA = ("<start_of_turn>", "<end_of_turn>")
OTHERS = (
    "llama-7b", "llama-2", "nous-llama-2", "vicuna", "tinyllama", "mistral", "mixtral", "zephyr-7b-sft",
    "zephyr-7b-beta", "starcoder2", "pythia", "gpt2", "opt-", "falcon",
)  # fmt: skip
"""If the alias of a registered model begins with one of these, the model's vocabulary contains none of the tokens in
`LACK`.
"""
LACK = (
    (CHATML, (*OTHERS, "llama-3", "nous-llama-3", "gemma-", "phi-3")),
    (LLAMA, (*OTHERS, "qwen", "gemma-", "phi-", "smollm2", "olmo", "yi-")),
    (GEMMA, (*OTHERS, "qwen", "llama-3", "nous-llama-3", "phi-", "smollm", "olmo", "yi-")),
    (("<|end|>",), (*OTHERS, "qwen", "llama-3", "nous-llama-3", "gemma-", "smollm", "olmo", "yi-")),
)
"""Pairs of control tokens and beginnings of aliases. If the alias of a registered model begins with one of these, the
model's vocabulary contains none of the tokens.
"""
BASE_ENDS = (
    ("<|endoftext|>", (
        "qwen1.5-", "qwen2-", "qwen2.5-", "qwen3-", "smollm2-", "olmo-2-", "yi-", "starcoder2-", "pythia-", "gpt2",
        "falcon-",
    )),
    ("<|end_of_text|>", ("llama-3", "nous-llama-3", "smollm3-")),
    ("<eos>", ("gemma-",)),
    ("</s>", ("llama-7b", "llama-2-", "nous-llama-2-", "tinyllama-", "mistral-", "mixtral-", "opt-")),
)  # fmt: skip
"""Pairs of an end token (`eos_token` in tokenizer_config.json) and beginnings of aliases. If the alias of a registered
base model begins with one of these, the model has this end token.
"""
TUNED = re.compile(r"-(instruct|it|chat|sft|thinking|qlora|checkpoints|rope|constitutional)\b")
"""Matches the aliases of models that were tuned on chats. Such a model has learned to end its turns."""
NO_SYSTEM = ("gemma", "mistral")
"""Built-in templates that raise an exception for a system prompt, as the published templates do."""


@cache
def text(name: str) -> bytes:
    """The Jinja text of a built-in template."""
    with open(os.path.join(FOLDER, name + ".jinja"), "rb") as handle:
        return handle.read()


def forms() -> dict[str, dict[str, Any]]:
    """For each built-in template: with which kinds of rows it fails (`refused`, such as "system"), which parts of a row
    it does not write (`left_out`, such as "tool_calls"), and whether a run can train on its tool calls.
    """
    return read_json(__file__, "template_forms.json")


def callable_templates() -> tuple[str, ...]:
    """The built-in templates whose tool calls trl can parse in a completion. The template that most models use comes
    first.
    """
    return tuple(sorted((name for name, form in forms().items() if form["calls_trained"]), reverse=True))


def writes_calls(name: str) -> bool:
    """Whether a built-in template writes tool calls and their results."""
    return not {"tool", "tool_calls"} & {*forms()[name]["left_out"], *forms()[name]["refused"]}


def argument_lines(arguments: Sequence[tuple[str, bool | int | float | str]]) -> str:
    """Return Jinja lines that set default values for a template's arguments. A row's `chat_template_kwargs`, or a
    request to a server, may replace a default. The lines add no newlines to the rendered text, because transformers
    drops the newline after each `{% set ... %}`.
    """
    return "".join(
        f"{{% set {name} = {name} if {name} is defined else {json.dumps(value, ensure_ascii=False)} %}}\n"
        for name, value in arguments
    )


def with_arguments(data: bytes, arguments: Sequence[tuple[str, bool | int | float | str]]) -> bytes:
    """Put the `argument_lines` before the text of a template, unless the text already begins with these lines."""
    lines, body = argument_lines(arguments).encode(), data.removeprefix(b"\xef\xbb\xbf")
    return data if body.startswith(lines) else lines + body


def base_end(model: str) -> str | None:
    """The end token of the registered base model with this alias. None for any other alias."""
    if TUNED.search(model) or (model.startswith(("qwen3-", "smollm3-")) and not model.endswith("-base")):
        return None
    return next((token for token, begins in BASE_ENDS if model.startswith(begins)), None)


def native(model: str) -> str | None:
    """The name of the built-in template for the registered model with this alias: "llama3" for `llama-3-8b-instruct`.
    None if the model has no built-in template.
    """
    return next((name for name, begins in NATIVE.items() if model.startswith(begins)), None)


def alike(template: str) -> str | None:
    """The name of a built-in template with the same control tokens around turns as the given template. None if no
    built-in template has these tokens.
    """
    known = (("chatml", CHATML), ("llama3.1", LLAMA), ("gemma", GEMMA))
    return next((name for name, tokens in known if all(token in template for token in tokens)), None)


def new_tokens(template: str, model: str) -> tuple[str, ...]:
    """The control tokens of a template that are not in the vocabulary of a registered model. Empty if xpc does not know
    that one is missing.
    """
    return tuple(token for tokens, lack in LACK if model.startswith(lack) for token in tokens if token in template)
