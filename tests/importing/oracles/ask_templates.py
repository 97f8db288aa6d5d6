"""Record two things about each chat template of LLaMA-Factory: the texts that it puts around the turns of a
conversation, and a complete rendered conversation.

python ask_templates.py TABLE.jsonl OUT.jsonl

Run it with the interpreter that has LLaMA-Factory (`make oracles` installs it). A line of TABLE.jsonl has the pieces of
a template (compiler/importing/llamafactory/templates.py explains them) and the names of the templates with these
pieces. A line of OUT.jsonl has a conversation as the tool renders it. The parts between {+ and +} are trained on.
"""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="", DISABLE_VERSION_CHECK="1")
from answers import write

TALK = [("user", "One?"), ("assistant", "It's 1."), ("user", "Two?"), ("assistant", "{0}I see.{1}2.")]
"""The conversation that is rendered. `{0}` is replaced by the words that the template writes before reasoning, `{1}` by
the words after it.
"""
USUAL = {"first": "", "before": "", "after": "", "user": "", "user_end": "", "lead": "", "end": "", "system": "",
         "inside": False, "thought": [], "closes": False}  # fmt: skip


class Letters:
    """A tokenizer with one token for each letter and each control token."""

    bos_token, eos_token = "{bos}", "{eos}"

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def convert_tokens_to_ids(self, token: str) -> int:
        """The id of a control token. A token that has no id yet gets the next free id."""
        return self.known.setdefault(token, 0xE000 + len(self.known))

    @property
    def bos_token_id(self) -> int:
        """The id of the begin token."""
        return self.convert_tokens_to_ids(self.bos_token)

    @property
    def eos_token_id(self) -> int:
        """The id of the end token."""
        return self.convert_tokens_to_ids(self.eos_token)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """The ids of the tokens of a text. Each letter is a token."""
        return [ord(one) for one in text]

    def text(self, ids: list[int], labels: list[int]) -> str:
        """The text of token ids. Tokens that are trained on are enclosed in {+ and +}."""
        words = {number: token for token, number in self.known.items()}
        out, on = "", False
        for one, label in zip(ids, labels, strict=True):
            if (label == one) != on:
                out, on = out + ("+}" if on else "{+"), not on
            out += words.get(one) or chr(one)
        return out + "+}" * on


def pieces(template: Any) -> dict[str, Any] | None:
    """The texts that a template writes before and after a system prompt, a question and an answer. None if the template
    does not consist of such texts.
    """
    kind = type(template).__name__
    if kind not in ("Template", "Llama2Template", "ReasoningTemplate", "Glm47ReasoningTemplate"):
        return None
    found = [_written(getattr(template, f"format_{one}")) for one in ("system", "user", "assistant")]
    if any(one is None or one.count("{{content}}") != 1 or "{{" in one.replace("{{content}}", "") for one in found):
        return None
    (before, after), (user, requested), (lead, end) = (str(one).split("{{content}}") for one in found)
    words = list(template.thought_words) if "Reasoning" in kind else []
    made = {
        "first": _written(template.format_prefix),
        "before": before,
        "after": after,
        "user": user,
        "user_end": requested,
        "lead": lead,
        "end": end,
        "system": template.default_system,
        "inside": kind == "Llama2Template",
        "thought": [*words, words[1] if kind.startswith("Glm47") else "".join(words)] if words else [],
        "closes": template.efficient_eos,
    }
    return {key: one for key, one in made.items() if one != USUAL[key]}


def _written(form: Any) -> str | None:
    if type(form).__name__ not in ("StringFormatter", "EmptyFormatter"):
        return None
    return "".join(_slot(one) for one in form.slots)


def _slot(slot: Any) -> str:
    if isinstance(slot, dict):
        return str(slot["token"])
    if isinstance(slot, set):
        # LLaMA-Factory ignores all names in such a set except `bos_token` and `eos_token`
        return "".join(f"{{{one[:3]}}}" for one in ("bos_token", "eos_token") if one in slot)
    return str(slot)


def rendered(template: Any, reasoning: bool, last: bool) -> str:
    """A conversation with a system prompt, rendered by a template."""
    from llamafactory.data.mm_plugin import get_mm_plugin
    from llamafactory.data.processor.supervised import SupervisedDatasetProcessor

    letters, arguments = Letters(), SimpleNamespace(cutoff_len=10**6, mask_history=last, train_on_prompt=False)
    template.enable_thinking, template.mm_plugin = reasoning, get_mm_plugin("base")  # the rows have no images
    made = SupervisedDatasetProcessor(template, letters, None, arguments)
    words = template.thought_words
    talk = [{"role": who, "content": what.replace("{0}", words[0]).replace("{1}", words[1])} for who, what in TALK]
    return letters.text(*made._encode_data_example(talk[:-1], talk[-1:], "Be brief.", "", [], [], []))


def main() -> None:
    """Record every template. Templates with equal pieces are recorded only once."""
    from importlib.metadata import version

    from llamafactory.data.template import TEMPLATES

    table: dict[str, list[str]] = {}
    for name, one in TEMPLATES.items():
        found = pieces(one)
        if found is not None:
            table.setdefault(json.dumps(found, sort_keys=True), []).append(name)
    lines: list[dict[str, Any]] = []
    for found, names in list(table.items()):
        one = TEMPLATES[names[0]]
        ways = [(True, False), (True, True), *([(False, False)] if "thought" in json.loads(found) else [])]
        lines += [{"template": names[0], "thinks": reasoning, "last": last, "text": rendered(one, reasoning, last)}
                  for reasoning, last in ways]  # fmt: skip
    head = {"tool": "llamafactory", "version": version("llamafactory")}
    write(sys.argv[1], head, [{"names": names, **json.loads(found)} for found, names in table.items()])
    write(sys.argv[2], head, lines)


if __name__ == "__main__":
    main()
