"""Parse a training command: the launcher, its options, the program, and its arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from xpc.compiler.importing import keys
from xpc.compiler.importing.command.search import MOST_WRAPPED, is_training, is_wrapper
from xpc.compiler.importing.overrides import load
from xpc.compiler.importing.text import json as jsontext
from xpc.compiler.importing.text.entries import Entry
from xpc.compiler.importing.text.shell import Call, Word
from xpc.compiler.stacks import names
from xpc.grammar.record import evolve, record

KEYS = keys.load("command/keys.toml")
HYDRA = ("config_name", "config_path")
"""Options of Hydra that take exactly one value; the words after it are overrides such as `lr=1e-5`."""
PROGRAMS = ("trl", "llamafactory-cli", "axolotl")
"""Programs whose first argument is a verb, such as `trl sft`."""
PYTHON_SWITCH = re.compile(r"-[uBOsSEIb]+")
"""Matches options of the Python interpreter that do not change the training, such as `-u`."""


CUT = ("text follows the backslash at the end of this line, so the command ends here, without the arguments on the "
       "next lines", "delete the text after the backslash")  # fmt: skip
"""The error and its help for a line such as `--lr 1e-5 \\ # tuned`."""


@record
class Line:
    """A parsed command: the launcher and its options, the program and its arguments, and the positional words (`rest`).

    If an argument occurs twice, `again` has its first value, which argparse ignores. `dropped` has the words that the
    shell would remove, such as `$EXTRA_ARGS` if the variable is not set. The command is at line `at` of the shell
    script `file`, whose assignments such as `X=1` are in `environment`.
    """

    launcher: str
    options: dict[str, Entry]
    program: str
    arguments: dict[str, Entry]
    rest: tuple[Word, ...] = ()
    again: tuple[Entry, ...] = ()
    dropped: tuple[Word, ...] = ()
    file: str = ""
    environment: tuple[Word, ...] = ()
    at: int = 0

    @property
    def cut(self) -> Word | None:
        """The comment that ends the command early, because it follows the backslash at the end of a line: ` # tuned` in
        `--lr 1e-5 \\ # tuned`. None if there is no such comment.
        """
        return next((one for one in self.rest if one.text.startswith(" ")), None)

    def entry(self, word: Word) -> Entry:
        """Return an entry whose key is a word of the command, without a value."""
        return Entry(word.text, None, self.file, word.line)

    def variables(self) -> list[tuple[str, Entry]]:
        """The environment variables that the command sets, with their values."""
        parts = [(word.text.partition("="), word.line) for word in self.environment]
        return [(name, Entry(f"${name}", value, self.file, line, value)) for (name, _, value), line in parts]


def parsed(call: Call, file: str, environment: tuple[Word, ...], short: Mapping[str, str] | None = None) -> Line:
    """Parse a command of the script `file` into launcher, options, program and arguments. `short` maps the program's
    short options to their long names, such as `-c` to `--config`.
    """
    words = list(call.words)
    while is_wrapper(os.path.basename(words[0].text)):
        words = _wrapped(words[1:])
    launcher = os.path.basename(words.pop(0).text)
    if launcher == "accelerate":
        words.pop(0)
    if launcher.startswith("python"):
        launcher = "python"
        if [one.text for one in words[:2]] in (["-m", "torch.distributed.run"], ["-m", "torch.distributed.launch"]):
            launcher, words = "torchrun", words[2:]
        elif [one.text for one in words[:2]] == ["-m", "accelerate.commands.launch"]:
            launcher, words = "accelerate", words[2:]
    if launcher in PROGRAMS:
        program = f"{launcher} {words.pop(0).text}" if words else launcher
        options: dict[str, Entry] = {}
        unset: list[Word] = []
    else:
        script = next((n for n, one in enumerate(words) if one.text.endswith(".py")), 0)
        unset = [words[n] for n in range(script) if _is_left_out(words, n)]
        options, program, words = _options([one for one in words if one not in unset], file)
        options |= _slots(options)
        if os.path.basename(program) in PROGRAMS and words:  # as in `torchrun $(which llamafactory-cli) train a.yaml`
            program = f"{os.path.basename(program)} {words.pop(0).text}"
    # `--` alone ends the launcher's options
    words = [evolve(one, text=(short or {}).get(one.text, one.text)) for one in words if one.text != "--"]
    again: list[Entry] = []
    left_out = [_is_left_out(words, n) for n in range(len(words))]
    dropped = unset + [one for one, out in zip(words, left_out, strict=True) if out]
    arguments, rest = _arguments([one for one, out in zip(words, left_out, strict=True) if not out], file, again)
    return Line(launcher, options, program, arguments, tuple(rest), tuple(again), tuple(dropped), file, environment,
                call.words[0].line)  # fmt: skip


COUNTS = ("nproc_per_node", "num_gpus", "nnodes", "num_nodes", "num_processes", "num_machines")
"""Options of launchers that state a number of processes or nodes."""


def _launchers(key: str) -> str:
    """The launcher's option that a word stands for. As in argparse, a word may be the beginning of an option's name:
    `nnode` for `nnodes`.
    """
    found = [one for one in COUNTS if one.startswith(key)] if len(key) > 3 and key not in KEYS else []
    return found[0] if len(found) == 1 else key


def _slots(options: dict[str, Entry]) -> dict[str, Entry]:
    """Count the GPUs that deepspeed's option `--include` names: for `localhost:0,1`, `num_gpus` is 2."""
    one = options.get("include")
    found = re.fullmatch(r"[\w.-]+:(\d+(?:,\d+)*)", str(one.value)) if one is not None else None
    if one is None or found is None or "num_gpus" in options:
        return {}
    return {"num_gpus": Entry("num_gpus", found[1].count(",") + 1, one.file, one.line)}


def _wrapped(words: list[Word]) -> list[Word]:
    """The words of the command that a wrapper, such as `srun` or `docker run`, starts."""
    at = next((n for n in range(min(len(words), MOST_WRAPPED)) if is_training(words[n:])), None)
    if at is None:
        at = next((n for n, one in enumerate(words) if os.path.basename(one.text).startswith("python")), 0)
    return words[at:]


def _is_left_out(words: list[Word], n: int) -> bool:
    """Whether the shell would remove word `n`, because it is only an unset variable such as `$EXTRA_ARGS`. False for an
    option's value, as in `--lr $LR`.
    """
    one = words[n]
    if re.fullmatch(r"\$\{\w+\}", one.open) or " (" in one.open:
        return False  # branches of the script set this variable to different values: it is set, and its value unknown
    alone = one.open and re.fullmatch(r"\$\{?[A-Za-z_]\w*(?:\[[@*]\](?::\d+)?)?\}?", one.text)
    before = words[n - 1].text if n else ""
    return bool(alone) and not (before.startswith("--") and "=" not in before)


def _options(words: list[Word], file: str) -> tuple[dict[str, Entry], str, list[Word]]:
    """Split the words after the launcher's name into the launcher's options, the program (or the module after `-m`),
    and the remaining words.
    """
    out: dict[str, Entry] = {}
    flags = KEYS.column("flag")
    while words:
        word = words.pop(0)
        if word.text == "--" or PYTHON_SWITCH.fullmatch(word.text):
            continue
        if not word.text.startswith("-"):
            return out, word.text, words
        name, equals, value = word.text.lstrip("-").partition("=")
        key = _launchers(name.replace("-", "_"))
        if key in ("m", "module"):
            return out, words.pop(0).text if words else "", words
        if equals:
            out[key] = Entry(key, value, file, word.line, value, unset=word.open)
        elif key in flags or not words or words[0].text.startswith("-") or words[0].text.endswith(".py"):
            out[key] = Entry(key, True, file, word.line)
        else:
            one = words.pop(0)
            out[key] = Entry(key, one.text, file, word.line, one.text, unset=one.open)
    return out, "", words


def _arguments(words: list[Word], file: str, again: list[Entry]) -> tuple[dict[str, Entry], list[Word]]:
    """Parse `--key value`, `--key=value`, `--key` and `--key a b c`. Returns the values by key, and the positional
    words. If a key occurs twice, its first value is added to `again`.
    """
    out: dict[str, Entry] = {}
    rest: list[Word] = []
    while words and not words[0].text.startswith("--"):
        rest.append(words.pop(0))
    while words:
        word = words.pop(0)
        name, equals, value = word.text[2:].partition("=")
        key = name.replace("-", "_")
        values = [Word(value, word.line, word.open)] if equals else []
        while words and not words[0].text.startswith("--"):
            # after `--key=value`, the next word is positional: `lr=1e-5` in `--config-name=x lr=1e-5`
            if equals or (values and key in HYDRA):
                rest.append(words.pop(0))
            else:
                values.append(words.pop(0))
        off = not values and key.startswith("no_") and _switched_off(key[3:])
        key = key[3:] if off else key
        if key in out:
            again.append(out[key])
        out[key] = Entry(key, False, file, word.line) if off else _entry(key, values, file, word.line)
    return out, rest


def _switched_off(key: str) -> bool:
    """Whether `--no_KEY` turns off the flag KEY. transformers' HfArgumentParser has such an option for each flag that
    is on by default.
    """
    stacks = [load(name) for name in names()]
    return any(
        key in fields and fields[key].declared is True
        for stack in stacks
        for config in stack.configs
        for fields in [stack.fields(config)]
    )


def _entry(key: str, values: list[Word], file: str, line: int) -> Entry:
    if not values:
        return Entry(key, True, file, line)
    if len(values) > 1:
        parts: list[Entry] = [Entry(f"{key}[{n}]", one.text, file, one.line, one.text) for n, one in enumerate(values)]
        return Entry(key, parts, file, line)
    if values[0].open:
        return Entry(key, values[0].text, file, line, values[0].text, unset=values[0].open)
    return jsontext.unfolded(Entry(key, values[0].text, file, line, values[0].text))
