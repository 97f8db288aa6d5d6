"""What the sentence or `eval` says and was written elsewhere: the model, the data, the run's length."""

from __future__ import annotations

import re

from xpc.compiler import registry
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.language.schema import Setting
from xpc.compiler.suggest.meaning import Meaning, words
from xpc.compiler.suggest.typed_form import value_of
from xpc.grammar.tree import String

MODELS = ("name", "path", "id", "base", "model", "model_name", "name_or_path", "model_id", "base_model", "checkpoint")
"""What others write before the name of the model, in a block of the model."""
EVALUATED = (
    "validation", "valid", "val", "test", "eval", "dev", "validation_file", "test_file", "eval_file", "eval_path",
    "validation_path", "val_path", "val_file",
)  # fmt: skip
"""What others write before the rows to evaluate on, in a block of the data."""
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*[\w]")
FILES = re.compile(r".*\.(?:jsonl?|csv|parquet|arrow|txt|gz|py|ya?ml)")


def sentence(said: UnknownName, meant: Meaning, row: Setting | None) -> str:
    """What is no setting of a block: the header's words, a source's settings, the base."""
    if row is not None:
        return f"for {value_of(row, said)} {row.name}"
    if meant.path.startswith("data."):
        name = meant.path.rpartition(".")[2]
        return f"SOURCE({name}={said.typed if name == 'take' and said.typed else '...'})"
    if meant.path == "train":
        of_data = not {"dataset", "datasets", "data", "file"}.isdisjoint(words(said.name))
        return f"train MODEL on {_named(said, 'DATA')}" if of_data else f"train {_named(said, 'MODEL')} on DATA"
    return {"extends": 'extends "base.xp"'}.get(meant.path, meant.path)


def _named(said: UnknownName, nothing: str) -> str:
    """A model or data as the sentence names it: `org/name` and registered names without quotes, files with them."""
    text = (said.typed or "").strip('"')
    if not text or text[:1] in "[{":
        return nothing
    if FILES.fullmatch(text) or said.name in ("path", "dir", "folder"):
        return f'"{text}"'
    known = registry.find_model(text) is not None or registry.find_dataset(text) is not None
    return text if known or REPOSITORY.fullmatch(text) else f'"{text}"'


PARTS = re.compile(r"\d+(?:\.\d+)?(?:\s*,\s*\d+(?:\.\d+)?){1,2}")
DATA_WORDS = frozenset(("data", "dataset", "datasets", "corpus", "mixer", "mixture", "prompts", "rows", "train"))
MODEL_WORDS = frozenset(
    ("model", "pretrain", "pretrained", "base", "checkpoint", "llm", "backbone", "policy", "student")
)
OF_OTHERS = frozenset(
    ("eval", "reward", "critic", "reference", "teacher", "tokenizer", "processor", "hub", "draft", "judge", "adapter",
     "template", "save", "output", "resume", "log")
)  # fmt: skip
"""Words of models, data and folders that are not what the sentence names."""


def held_out(said: UnknownName) -> str | None:
    """The share to evaluate on, where a split is given by its parts: `split = "98,2"` holds out 2 %."""
    text = (said.typed or "").strip('"')
    if "split" not in words(said.name) or not PARTS.fullmatch(text):
        return None
    parts = [float(part) for part in text.split(",")]
    share = 100 * parts[1] / sum(parts) if sum(parts) else 0.0
    return f"holdout={share:.4g}%" if 0 < share < 100 else None


def named_by_value(said: UnknownName) -> str | None:
    """The sentence that names a model or data, where a name has a word for one and its value is one; else None."""
    text, named = (said.typed or "").strip('"'), frozenset(words(said.name))
    known = registry.find_model(text) is not None or registry.find_dataset(text) is not None
    if not named.isdisjoint(OF_OTHERS) or not (known or REPOSITORY.fullmatch(text) or FILES.fullmatch(text)):
        return None
    if not named.isdisjoint(DATA_WORDS):
        return f"train MODEL on {_named(said, 'DATA')}"
    return None if named.isdisjoint(MODEL_WORDS) else f"train {_named(said, 'MODEL')} on DATA"


def named_outside(said: UnknownName, clause: str) -> str | None:
    """What to write for the model in a block of the model, or rows to evaluate on in one of the data; else None."""
    if clause == "data" and said.name in EVALUATED and isinstance(said.node, String):
        return f"write `eval(data={said.typed})` outside of `data`"
    if clause == "model" and said.name in MODELS and said.typed:
        return f"write `train {_named(said, 'MODEL')} on DATA`: the sentence names the model"
    return None
