"""Find the commands of a shell script that train, also inside of quotes, as in `bash -c "..."`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from xpc.compiler.importing.command import programs
from xpc.compiler.importing.llamafactory.keys import VERBS
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Unreadable
from xpc.compiler.importing.text.shell import Call, Word, calls
from xpc.compiler.importing.text.shell_files import INLINE
from xpc.grammar.record import evolve

LAUNCHED = re.compile(
    r"(?:accelerate\s+launch|torchrun|deepspeed|python3?)\s(?:[^\n\\]|\\[^\0]){0,2000}?(?:\.py|(?<=\s)-m\s+[A-Za-z_])|(?:^|\s)trl\s+\w+\s+--"
    r"|(?:^|\s)(?:llamafactory-cli|axolotl)\s+train\s"
)
"""Matches a training command inside of a string. The distance between launcher and program is limited, so that the
search takes linear time.
"""
OTHER = re.compile(r"eval|infer|generat|bench|merge|serve|test|preprocess|convert|upload|push_|download")
"""Matches words in the names of programs that do not train, such as `eval`."""
TRAINS = re.compile(r"train|sft|dpo|grpo|finetun|fine_tun", re.I)
"""Matches words in the names of programs that probably train, such as `finetune`. Such a program may call a module with
the training code.
"""
OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@-]*=.*", re.S)
"""Matches an override of a Hydra configuration, such as `trainer.lr=1e-5`."""
WRAPPERS = ("srun", "nohup", "env", "time", "uv", "poetry", "exec", "docker", "podman", "singularity", "apptainer",
            "conda", "sudo", "stdbuf", "numactl", "taskset", "timeout", "nice", "ionice", "setsid", "mpirun", "pipenv",
            "pixi")  # fmt: skip
"""Programs that start the command after them, as in `srun python train.py`."""
PRINTING = ("echo", "printf", "cat")
"""Commands, such as `echo`, that only print another command."""
PYTHON = re.compile(r"\$\{?\w*PY\w*\}?", re.I)
"""Matches variables that contain the path of the Python interpreter, such as `$PYTHON`."""
MOST_PROGRAMS = 40
"""The largest number of programs of a shell script for which the import looks in the repository."""
MOST_WRAPPED = 200
"""The largest number of words after a wrapper, such as `docker run`, that are searched for the command that it
starts.
"""


def chosen(text_: str, overrides: Overrides, loops: dict[str, tuple[str, ...]]) -> tuple[int, Call]:
    """Return the index and the training command that `--pick` selects, or the only one. Raises Unreadable if there is
    none, or if there are several and no `--pick`.
    """
    training = training_commands(text_, overrides, loops)
    # a script often trains and then evaluates, so exclude programs with names such as `eval.py`
    if overrides.pick is None and len(training) > 1:
        kept = [one for one in training if not OTHER.search(_named(one).lower())]
        kept = kept if len(kept) == 1 else [one for one in kept if _makes_trainer(one, overrides)]
        if len(kept) == 1:
            return training.index(kept[0]), kept[0]
    if not training:
        raise Unreadable(
            "it has no training command (torchrun, accelerate launch, deepspeed, trl)" + _skipped_commands(text_)
        )
    if overrides.pick is None and len(training) > 1:
        listed = "; ".join(f"{number} on line {one.words[0].line} ({_named(one)})"
                           for number, one in enumerate(training[:8], 1))  # fmt: skip
        raise Unreadable(f"it has {len(training)} training commands: {listed}. `--pick N` takes one of them, and "
                         "`--pick all` with `-o` writes all")  # fmt: skip
    location = (overrides.pick or 1) - 1
    if location >= len(training):
        raise Unreadable(f"it has {len(training)} training commands, so there is no `--pick {overrides.pick}`")
    return location, training[location]


def _skipped_commands(text_: str) -> str:
    """A sentence with the line of a training command that the script skips because of a condition, a loop or an
    argument such as `$1`; "" if there is none.
    """
    for number, one in enumerate(text_.splitlines(), 1):
        printed = one.lstrip().startswith("#") or not {*PRINTING}.isdisjoint(one.split())
        if not printed and LAUNCHED.search(one) and TRAINS.search(one):
            return (f"; the command on line {number} does not run with the values that the script sets: "
                    "`--set NAME=VALUE` sets a variable, and `--set 1=VALUE` the first argument")  # fmt: skip
    return ""


def _program(call: Call) -> str:
    """The Python file that a command starts, or the module in `-m pkg.train`; "" if there is neither."""
    texts = [one.text for one in call.words]
    program = next((one for one in texts if one.endswith(".py")), "")
    return texts[texts.index("-m") + 1] if not program and "-m" in texts[:-1] else program


def _makes_trainer(call: Call, overrides: Overrides) -> bool:
    """Whether a command starts a Python file or module of this repository that creates a trainer."""
    return re.search(r"Trainer\(", programs.found(_program(call), overrides)[1]) is not None


def _without_preparation(training: list[Call], overrides: Overrides) -> list[Call]:
    """Remove commands that only prepare data, such as `python prepare_pairs.py`. If any command starts a file of the
    repository that creates a trainer, remove the commands that start the repository's other files, except files with a
    name such as `finetune.py`.
    """
    if len(training) > MOST_PROGRAMS:
        return training
    making = [_makes_trainer(one, overrides) for one in training]
    if not any(making) or all(making):
        return training
    return [one for one, makes in zip(training, making, strict=True)
            if makes or TRAINS.search(_program(one)) or not programs.found(_program(one), overrides)[1]]  # fmt: skip


def training_commands(text_: str, overrides: Overrides, loops: dict[str, tuple[str, ...]] | None = None) -> list[Call]:
    """The training commands of a shell script or, if there are none, those inside its quoted strings (`bash -c "..."`).

    `python train.py`, without arguments, is a training command if the file creates a trainer. `loops` receives the
    values of `for` loops.
    """
    sets, written = overrides.sets, dict[str, str]()
    found = list(map(_with_interpreter, calls(text_, sets, loops, overrides.read, written)))
    making: dict[str, bool] = {}
    for one in found:
        if one.words and _is_python(one) and _program(one) not in making and len(making) < MOST_PROGRAMS:
            making[_program(one)] = _makes_trainer(one, overrides)
    training = [
        one for one in found
        if one.words and not _program(one).startswith(INLINE)
        and (is_training(one.words) or (_is_python(one) and making.get(_program(one), False)))
    ]  # fmt: skip
    # a program may get the training command as one word: `python wait_for_gpus.py "torchrun train.py --lr 1e-5"`
    training = [each for one in training for each in _inside([one], sets, assigned=False) or [one]]
    if training:
        return _without_preparation(list({(one.words, one.folder): one for one in training}.values()), overrides)
    inline = [one for one in found if _program(one).startswith(INLINE) and _program(one) in written]
    if inline:
        return inline
    # search values of variables last: `CMD="python a.py"` is incomplete before `CMD+=" --lr 1"`
    training = _inside(found, sets, assigned=False) or _inside(found, sets, assigned=True)
    return list({tuple(part.text for part in one.words): one for one in reversed(training)}.values())[::-1]


def _inside(found: Sequence[Call], sets: Mapping[str, str], assigned: bool) -> list[Call]:
    """The training commands inside strings: words of commands such as `eval "$CMD"` or, with `assigned`, the values of
    all variables and all printed texts.
    """
    training: list[Call] = []
    for one in found:
        if not assigned and (not one.words or one.words[0].text in PRINTING):
            continue
        for word in (*one.words, *one.environment) if assigned else one.words:
            inner = word.text.partition("=")[2] if word in one.environment else word.text
            if LAUNCHED.search(inner):
                nested = [each for each in calls(inner, sets) if each.words and is_training(each.words)]
                training += [evolve(each, folder=one.folder,
                                    words=tuple(evolve(part, line=word.line) for part in each.words))
                             for each in nested]  # fmt: skip
    return training


def _with_interpreter(call: Call) -> Call:
    """Replace an unset variable that names the interpreter: `$PYTHON train.py` becomes `python train.py`."""
    words = call.words
    if len(words) < 2 or not (words[0].open and PYTHON.fullmatch(words[0].text)):
        return call
    starts = words[1].text.endswith(".py") or words[1].text in ("-m", "-u")
    return evolve(call, words=(Word("python", words[0].line), *words[1:])) if starts else call


def _is_python(call: Call) -> bool:
    """Whether a command starts Python, possibly through a wrapper such as `srun`."""
    return any(os.path.basename(one.text).startswith("python") for one in call.words[:MOST_WRAPPED]) and (
        os.path.basename(call.words[0].text).startswith((*WRAPPERS, "python"))
    )


def is_wrapper(name: str) -> bool:
    """Whether a program starts the command that follows its name, as `srun` does. Clusters and repositories have their
    own wrappers: `singularity_wrapper exec`, `./with_gpu.sh python train.py`.
    """
    return name in WRAPPERS or name.removesuffix("_wrapper") in WRAPPERS or name.endswith(".sh")


def count(text_: str, overrides: Overrides) -> int:
    """The number of training commands in a shell script."""
    return len(training_commands(text_, overrides))


def _named(call: Call) -> str:
    """A short name of a command for messages: its Python and YAML files, else the module after `-m`, else the first two
    words.
    """
    names = [one.text for one in call.words if one.text.endswith((".py", ".yaml", ".yml"))]
    first = " ".join(one.text for one in call.words[:2])
    return ", ".join(os.path.basename(one)[:40] for one in names[:2]) or (_program(call) or first)[:40]


def is_training(words: Sequence[Word]) -> bool:
    """Whether the words of a command show that it starts a training: `torchrun x.py`, `trl sft`, or `python x.py --key
    value`.
    """
    name = os.path.basename(words[0].text)
    if name == "trl":
        return len(words) > 1 and words[1].text not in ("vllm-serve", "chat", "env")
    if name in ("torchrun", "deepspeed"):
        return True
    if name in ("llamafactory-cli", "axolotl"):  # other subcommands, such as `export`, do not train
        return len(words) > 1 and words[1].text in VERBS
    if name in ("accelerate", "accelerate-launch"):
        return name != "accelerate" or (len(words) > 1 and words[1].text == "launch")
    if is_wrapper(name):
        inner = (n for n in range(1, min(len(words), MOST_WRAPPED)) if not is_wrapper(os.path.basename(words[n].text)))
        return any(is_training(words[n:]) for n in inner)
    program = any(one.text.endswith(".py") or one.text == "-m" for one in words[1:4])
    given = any(one.text.startswith("--") or one.text.endswith((".yaml", ".yml")) for one in words)
    given = given or (
        bool(words[1:] and TRAINS.search(words[1].text)) and any(OVERRIDE.fullmatch(one.text) for one in words[2:])
    )
    return name.startswith("python") and program and given
