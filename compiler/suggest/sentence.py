"""Suggest what to write in the first line of a spec, or in `eval`, for settings that do not belong in a block: the
model, the data, and the length of the run.
"""

from __future__ import annotations

import re
from functools import lru_cache

from xpc.compiler import registry
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import Setting
from xpc.compiler.suggest.converted_values import FILES, LENGTH, REPOSITORY, unit_of
from xpc.compiler.suggest.likeness import words
from xpc.compiler.suggest.meaning import Meaning
from xpc.compiler.suggest.tables import words_of
from xpc.compiler.suggest.typed_form import value_of
from xpc.grammar.nearest import letters
from xpc.grammar.tree import Ref, String

MODELS = ("name", "path", "id", "base", "model", "model_name", "name_or_path", "model_id", "base_model", "checkpoint")
"""Keys of other tools for the name of the model, in a block about the model."""


OUTPUT_ROOTS = frozenset(("out", "output", "outputs", "runs", "results", "checkpoints", "ckpt", "ckpts", "saves"))
"""Names of top folders in which runs usually save checkpoints, such as `out` in `out/run1`."""


METHOD_KEYS = ("method", "stage", "rlhf_type", "rl", "trainer")
"""Keys of other tools for the training method. A line may begin with one of them."""


TIMES = ("s", "sec", "second", "m", "min", "minute", "h", "hr", "hour", "d", "day", "week")
ROWS = ("sample", "example", "row", "prompt", "sequence")


def length_help(amount: str, word: str) -> tuple[str, str | None]:
    """Return a pair for a length with an unknown unit: the help, and the unit to write instead (None if it is
    unclear).
    """
    unit = unit_of(word)
    if unit is not None:
        unit = unit.removesuffix("s") if amount == "1" else unit
        return f"write `for {amount} {unit}`", unit
    one = letters(word).removesuffix("s")
    if one in TIMES:
        return "write `for 3 epochs` or `for 1000 steps`; `launch slurm(time=12h)` ends a job after a time", None
    if one.endswith("token"):
        return "write `for 1000 steps`: a step has at most gbs x seq tokens", None
    if one in ROWS:
        return "write `for 1000 steps`: a step has gbs rows", None
    return "write `for 3 epochs` or `for 1000 steps`", None


@lru_cache(maxsize=4)
def method_of(text: str) -> str:
    """The training method that a text names, in its sentence or in a line such as `method dpo` or `stage: dpo`. "" if
    it names no method.
    """
    for line in text.splitlines():
        first, *rest = re.split(r"[\s=]+", line.strip()[:300])
        given = rest[rest.index("with") :] if first == "train" and "with" in rest else rest
        if first == "train" or first.strip("-:\"'") in METHOD_KEYS:
            named = [re.split(r"[({\"',]", one.strip("\"'"))[0] for one in given]
            found = next((one for one in named if one in METHODS), "")
            if found:
                return found
    return ""


def sentence(unknown: UnknownName, guess: Meaning, row: Setting | None) -> str:
    """The text to write for something that does not belong in a block: the model, the data or the length in the first
    line, a setting of one data source (`SOURCE(take=1000)`), or the base spec (`extends`).
    """
    length = LENGTH.fullmatch((unknown.typed or "").strip('"')) if row is not None else None
    if length is not None and length[2]:  # the unit `ba` of a length means batches, as in `max_duration = 1000ba`
        unit = unit_of(length[2])
        return "for N steps" if unit is None else f"for {length[1]} {unit}"
    if row is not None:
        return f"for {value_of(row, unknown).removesuffix('.0')} {row.name}"
    if guess.path.startswith("data."):
        name = guess.path.rpartition(".")[2]
        if name == "take" and isinstance(unknown.node, Ref | String):  # `subset = en`
            return "SOURCE:" + (unknown.typed or "").strip('"')
        value = (
            unknown.typed if name == "take" and unknown.typed else _first_share(unknown) if name == "share" else "..."
        )
        return f"SOURCE({name}={value})"
    if guess.path == "train":
        return _model_or_data(unknown, not {"dataset", "datasets", "data", "file"}.isdisjoint(words(unknown.name)))
    return {"extends": 'extends "base.xp"'}.get(guess.path, guess.path)


def _first_share(unknown: UnknownName) -> str:
    """The share of the first data source, if the value lists the weights of all sources: `70%` for `interleave_probs =
    [0.7, 0.3]`.
    """
    # a path such as `"data/pp7_3840"` has no weights
    weights = re.findall(r"(?<![\w/.])(?:\d*\.\d+|\d+)(?![\w/])", unknown.typed or "")[:100]
    total = sum(map(float, weights))
    return f"{100 * float(weights[0]) / total:.4g}%" if len(weights) > 1 and total > 0 else "50%"


def _named(unknown: UnknownName, nothing: str) -> str:
    """Write the name of a model or dataset as in the first line, where the name of a file has quotes. If there is no
    name, returns the argument `nothing`, such as `MODEL`.
    """
    text = re.sub(r'^\["?([^",]+)"?\]$', r"\1", (unknown.typed or "").strip('"'))  # `data_files = ["rows.jsonl"]`
    if not text or text[:1] in "[{":
        return nothing
    if FILES.fullmatch(text) or unknown.name in ("path", "dir", "folder") or text.partition("/")[0] in OUTPUT_ROOTS:
        return f'"{text}"'
    known = registry.find_model(text) is not None or registry.find_dataset(text) is not None
    return text if known or REPOSITORY.fullmatch(text) else f'"{text}"'


DATA_WORDS = words_of("rows")
MODEL_WORDS = words_of("models")
OTHER_ROLES = words_of("other_roles")
"""Words in the names of models, data and folders that do not belong in the first line, such as a teacher, evaluation
data or an output folder.
"""
EARLIER = ("from", "start", "begin", "previous", "prev", "init", "initial", "load", "resume")
"""Words in the name of a folder that an earlier run has written."""


def output_folder(unknown: UnknownName) -> str | None:
    """The setting for a name such as `checkpoint` whose value is a folder of outputs: `checkpoint "out/x"` becomes
    `save "out/x"`. None for any other name or value.
    """
    text, named = (unknown.typed or "").strip('"'), frozenset(words(unknown.name))
    root, slash, _ = text.removeprefix("./").partition("/")
    others = OTHER_ROLES - {"save", "output"}
    ours = not named.isdisjoint(("checkpoint", "checkpoints")) and named.isdisjoint((*others, *EARLIER))
    return f'save "{text}"' if ours and slash and root.lower() in OUTPUT_ROOTS else None


def named_by_value(unknown: UnknownName) -> str | None:
    """The first line to write for a name such as `policy_checkpoint`: the name contains a word for a model or for data,
    and its value may be a model or a dataset. None for other names.
    """
    text, named = (unknown.typed or "").strip('"'), frozenset(words(unknown.name))
    known = registry.find_model(text) is not None or registry.find_dataset(text) is not None
    if not named.isdisjoint(OTHER_ROLES) or not (known or REPOSITORY.fullmatch(text) or FILES.fullmatch(text)):
        return None
    if named.isdisjoint(DATA_WORDS | MODEL_WORDS):
        return None
    return _model_or_data(unknown, not named.isdisjoint(DATA_WORDS))


def _model_or_data(unknown: UnknownName, is_data: bool) -> str:
    """The first line with the value as its data, or as its model. A name of the registry decides: `model_to_train =
    qwen2.5-3b` is a model.
    """
    text = (unknown.typed or "").strip('"')
    is_data = (is_data or bool(FILES.fullmatch(text))) and registry.find_model(text) is None
    return f"train MODEL on {_named(unknown, 'DATA')}" if is_data else f"train {_named(unknown, 'MODEL')} on DATA"


def named_outside(unknown: UnknownName, clause: str) -> str | None:
    """The help if a `model` block contains the model's name, as in `model qwen2.5-3b`, or as in
    `model(name_or_path="org/name")`. None for any other unknown name.
    """
    known = registry.find_model(unknown.name) is not None and unknown.node is None
    if clause == "model" and known:  # the block begins with the model's name, as in `model qwen2.5-0.5b`
        return f"write `train {unknown.name} on DATA`: the first line names the model"
    if clause == "model" and unknown.name in MODELS and unknown.typed:
        return f"write `train {_named(unknown, 'MODEL')} on DATA`: the first line names the model"
    return None
