"""Import FastChat's scripts. The scripts have their own chat template, their own defaults for LoRA and attention, and
train only on answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from xpc.compiler.importing.command import programs
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides, load
from xpc.compiler.importing.template_arguments import put_template
from xpc.compiler.importing.text.entries import Entry, boolean
from xpc.compiler.importing.trl import reader as trlyaml
from xpc.compiler.stacks import DEFAULT
from xpc.grammar.package_data import read_text

KEYS = ("data_path", "lazy_preprocess", "q_lora", "flash_attn")
"""Arguments that only FastChat's scripts have."""


CONVERSATION = re.compile(r"get_conv|conv_template|conversation_lib|default_conversation|SeparatorStyle")
"""Matches code that formats rows with FastChat's conversation templates, such as `get_conv`. The word `conversation`
alone does not match, because other scripts use it.
"""
IMPORTED = re.compile(r"from[ \t]+fastchat[\w.]*[ \t]+import[ \t]+(?:\([^)]{0,1000}\)|[^\n]*)")
ROWS = re.compile(r"\b(?:make_supervised_data_module|preprocess|\w*SupervisedDataset)\b")
"""Matches the names of FastChat's functions and classes that make training rows, such as `preprocess`. A script that
imports none of them builds its rows itself.
"""
COMMENT = re.compile(r"#[^\n]*")


def is_fastchat(program: str, entries: Mapping[str, Entry], overrides: Overrides) -> bool:
    """Whether a program is a script of FastChat or a copy of one: its path contains `fastchat`; or the command has an
    argument that only FastChat has (except `data_path`, which many scripts have), and the program's source uses
    FastChat or cannot be read.
    """
    text = programs.found(program, overrides)[1]
    return "fastchat" in program or (
        any(key in entries for key in KEYS) and (not text or _has_conversations(COMMENT.sub("", text)))
    )


def _has_conversations(text: str) -> bool:
    """Whether a script, without its comments, uses FastChat's conversation templates or its code that makes rows."""
    taken = any(ROWS.search(one[0]) for one in IMPORTED.finditer(text))
    return taken or CONVERSATION.search(IMPORTED.sub("", text)) is not None


def fastchat(draft: Draft, entries: dict[str, Entry], program: str, overrides: Overrides) -> dict[str, Entry]:
    """Import the arguments that only FastChat's scripts have, and set what these scripts always use: their chat
    template, the loss on answers, their LoRA defaults and their attention. Returns the remaining arguments, whose names
    are TRL's.
    """
    draft.stack = load(overrides.target or DEFAULT)
    out = dict(entries)
    tuned = "train_lora" in program or "q_lora" in entries
    low = out.pop("q_lora", None)
    if tuned:
        first = low or next(iter(entries.values()))
        on = Entry("use_peft", True, first.file, first.line)
        draft.note(on, "train_lora.py trains adapters")
        out["use_peft"] = on
        if low is not None:
            out["load_in_4bit"] = low
        draft.default("lora.rank", 8, "not set: FastChat's default")
        draft.default("lora.alpha", 16.0, "not set: FastChat's default")
        if boolean(low):
            draft.default("lora.double_quant", True, "FastChat's own")
    flash = out.pop("flash_attn", None)
    if flash is not None:
        draft.put("model.attn", "flash2" if str(flash.value).lower() == "true" else "eager", flash)
    else:
        memory = "train_mem" in program
        why = "train_mem.py turns on flash attention" if memory else "the default of FastChat's version of transformers"
        draft.put("model.attn", "flash2" if memory else "eager", None, why)
    if "chat_template" not in out:
        body = read_text(trlyaml.__file__, "vicuna.jinja")
        put_template(draft, body, None, "FastChat's scripts format turns like this")
        draft.put("model.pad", "<unk>", None, "FastChat pads with the unknown token")
        draft.put("method.assistant_only", True, None, "FastChat masks the questions")
        draft.warn(None, "FastChat masks questions and pads with `<unk>`; so does the spec, with a chat template that "
                   "is written next to it")  # fmt: skip
    draft.default("batch.seq", 512, "not set: FastChat's model_max_length") if "model_max_length" not in out else None
    return out
