"""Compile a spec for a training method, and return its trainer_args.json (the payload)."""

from __future__ import annotations

import json
from typing import Any

from case_support import spec, trained
from compile_support import compiled

from xpc.compiler import stacks
from xpc.compiler.language.methods import METHODS

PAIRS = trained("qwen2.5-3b on ultrafeedback-binarized")
PROMPTS = trained("qwen2.5-3b on deepmath-103k")
CHATS = trained("qwen2.5-3b on infinity-instruct")
ON = {name: {"messages": CHATS, "prompt": PROMPTS}.get(one.shapes[0], PAIRS) for name, one in METHODS.items()}
"""Maps each method to a `train` line with rows that it can train on."""
NEW = stacks.DEFAULT
REWARDS = "def tag_count(completions, **columns):\n    return [0.0] * len(completions)\n"


def plan(*lines: str, target: str = NEW, root: str = "/no-such-folder", **around: str) -> dict[str, Any]:
    """The content of trainer_args.json for a spec with these lines. Fails if the spec has errors."""
    files = compiled(spec(*lines, f"target {target}", **around), root)
    return dict(json.loads(files["trainer_args.json"]))


def arguments(*lines: str, target: str = NEW, root: str = "/no-such-folder", **around: str) -> dict[str, Any]:
    return dict(plan(*lines, target=target, root=root, **around)["arguments"])


def of(method: str) -> str:
    """The `method` line for a method, with the settings that it requires: `method grpo(rewards=format)`."""
    if METHODS[method].grouped:
        return f"method {method}(rewards=format)"
    return "method distill(teacher=qwen2.5-3b)" if method == "distill" else f"method {method}"


def some(table: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: table[name] for name in names}
