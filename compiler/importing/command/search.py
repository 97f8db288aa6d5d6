"""Find the training commands of a script, also those in quoted texts, such as `bash -c "..."`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from xpc.compiler.importing.llamafactory import command as llamafactory_command
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Unreadable
from xpc.compiler.importing.text.shell import Call, Word, calls
from xpc.grammar.record import evolve

LAUNCHED = re.compile(r"(?:accelerate\s+launch|torchrun|deepspeed|python3?)\s[^\n]*?\.py|(?:^|\s)trl\s+\w+\s+--")
"""A training command within a text."""
OTHER = re.compile(r"eval|infer|generat|bench|merge|serve|test|preprocess|convert|upload|push_to|download")
"""Words in the names of programs that train nothing."""
WRAPPERS = ("srun", "nohup", "env", "time", "uv", "poetry", "exec")
"""Programs that start the command after them."""


def chosen(text_: str, overrides: Overrides, loops: dict[str, tuple[str, ...]]) -> tuple[int, Call]:
    """The training command that `--pick` names, or the only training command, with its index."""
    training = training_commands(text_, overrides.sets, loops)
    if overrides.pick is None and len(training) > 1:  # a script may also evaluate what it trains
        kept = [one for one in training if not OTHER.search(_named(one).lower()) and _trains(one, overrides)]
        if len(kept) == 1:
            return training.index(kept[0]), kept[0]
    if not training:
        raise Unreadable("it has no training command (torchrun, accelerate launch, deepspeed, trl)")
    if overrides.pick is None and len(training) > 1:
        listed = "; ".join(f"{number} on line {one.words[0].line} ({_named(one)})"
                           for number, one in enumerate(training[:8], 1))  # fmt: skip
        raise Unreadable(f"it has {len(training)} training commands: {listed}. `--pick N` takes one of them, and "
                         "`--pick all` with `-o` writes all")  # fmt: skip
    place = (overrides.pick or 1) - 1
    if place >= len(training):
        raise Unreadable(f"it has {len(training)} training commands, so there is no `--pick {overrides.pick}`")
    return place, training[place]


def _trains(call: Call, overrides: Overrides) -> bool:
    """Whether the program of a command can train: False for a file that names no trainer."""
    program = next((one.text for one in call.words if one.text.endswith(".py")), "")
    data = overrides.read(program) if program else None
    return data is None or re.search(rb"Trainer|train", data) is not None


def training_commands(
    text_: str, sets: Mapping[str, str], loops: dict[str, tuple[str, ...]] | None = None
) -> list[Call]:
    """The training commands of a script; if it has none, those in its quoted texts (`bash -c "..."`)."""
    found = calls(text_, sets, loops)
    training = [one for one in found if one.words and is_training(one.words)]
    if training:
        return training
    for one in found:
        for word in (*one.words, *one.environment):
            inner = word.text.partition("=")[2] if word in one.environment else word.text
            if LAUNCHED.search(inner):
                nested = [each for each in calls(inner, sets) if each.words and is_training(each.words)]
                training += [evolve(each, words=tuple(evolve(part, line=word.line) for part in each.words))
                             for each in nested]  # fmt: skip
    return list({one.words: one for one in training}.values())


def count(text_: str, overrides: Overrides) -> int:
    """How many training commands a script has."""
    return len(training_commands(text_, overrides.sets))


def _named(call: Call) -> str:
    """The program of a command, or its configuration file."""
    names = [one.text for one in call.words if one.text.endswith((".py", ".yaml", ".yml"))]
    return ", ".join(os.path.basename(one)[:40] for one in names[:2]) or call.words[0].text[:40]


def is_training(words: Sequence[Word]) -> bool:
    """Whether a command starts a training."""
    name = os.path.basename(words[0].text)
    if name == "trl":
        return len(words) > 1 and words[1].text not in ("vllm-serve", "chat", "env")
    if name in ("torchrun", "deepspeed"):
        return True
    if name in ("llamafactory-cli", "axolotl"):  # only `train` is a run; other subcommands export, serve and evaluate
        return len(words) > 1 and words[1].text in llamafactory_command.VERBS
    if name in ("accelerate", "accelerate-launch"):
        return name != "accelerate" or (len(words) > 1 and words[1].text == "launch")
    if name in WRAPPERS:
        return len(words) > 1 and any(is_training(words[n:]) for n in range(1, min(len(words), 12)))
    program = any(one.text.endswith(".py") or one.text == "-m" for one in words[1:4])
    given = any(one.text.startswith("--") or one.text.endswith((".yaml", ".yml")) for one in words)
    return name.startswith("python") and program and given
