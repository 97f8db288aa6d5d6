"""Everything that xpc knows by name: models, model families, GPUs, datasets and chat templates.

The tables are written by hand in the TOML files of this folder; `python -m xpc.compiler.registry.build` compiles them
to `tables.json`. Importing this package reads no file. The first look-up loads `tables.json`, and each look-up makes
one object, such as a `Gpu`.
"""

from __future__ import annotations

import re

from xpc.compiler.registry.tables import row as _row
from xpc.compiler.registry.tables import table as _table
from xpc.compiler.registry.types import DatasetFacts, Gpu, ModelFacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def alias_key(name: str) -> str:
    """Write a name as aliases are written: in lower case, with dashes instead of underscores."""
    return name.lower().replace("_", "-")


def _named(table: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Look up a name in a table: first among the hub ids (case-sensitive), then among the aliases (in any case)."""
    return _row(table, table["ids"].get(name) or alias_key(name))


def find_model(name: str) -> ModelFacts | None:
    """Return the model with this alias (in any case) or this hub id (exact), or None."""
    row = _named(_table("models"), name)
    return None if row is None else ModelFacts(**row)


def find_dataset(name: str) -> DatasetFacts | None:
    """Return the dataset with this alias (in any case) or this hub id (exact), or None."""
    row = _named(_table("datasets"), name)
    return None if row is None else DatasetFacts(**{**row, "columns": tuple(row["columns"])})


def find_gpu(name: str) -> Gpu | None:
    """Return the GPU with this name (in any case), or the GPU that a provider calls by this name (`t4-16gb`), or
    None.
    """
    row = _row(_table("gpus"), alias_key(name))
    if row is None and any(map(str.isdigit, name)) and len(name) <= 60:
        # imported here, because only a name that is not in the tables needs it
        from xpc.compiler.registry.provider_names import certain

        row = _row(_table("gpus"), certain(name) or "")
    if row is None:
        return None
    major, minor = row["capability"]
    return Gpu(**{**row, "capability": (major, minor), "device_names": tuple(row["device_names"])})


def _words(name: str) -> list[str]:
    """The words of the last part of a hub id, in lower case."""
    return re.findall("[a-z0-9]+", name.rpartition("/")[2].lower())


def _joined(words: list[str], most: int) -> set[str]:
    """Every sequence of up to `most` neighbouring words, written as one word."""
    return {"".join(words[i : i + n]) for i in range(len(words)) for n in range(1, most + 1)}


def family_named(id: str, among: tuple[str, ...] | None = None) -> str | None:
    """Return the `model_type` that the last part of a hub id contains: falcon_h1 for `Falcon-H1-7B`. None if it
    contains no such name.

    Separators and case are ignored, so the family of `gpt-oss-20b` is gpt_oss. The longest match wins. `among` lists
    the families to look for; by default, these are the families of the registry.
    """
    spelled = _joined(_words(id), 4)
    known = families() if among is None else among
    found = [one for one in known if one.removesuffix("_text").replace("_", "") in spelled]
    found += [family for name, family in _table("families")["called"].items() if name in spelled]
    return max(found, key=len, default=None)


def encoder_decoder(name: str) -> str | None:
    """Return the family of an encoder-decoder model such as T5. `name` may be a hub id, its last part, or a
    `model_type`. None for models of another kind.
    """
    table = _table("seq2seq")
    if name in table["types"]:
        return name
    short = name.lower()
    for id, kind in table["ids"].items():
        if name == id or short == id.partition("/")[2].lower():
            return str(kind)
    return None


def multimodal(name: str) -> bool:
    """Whether the last part of a hub id is the name of a model that reads images or sound, such as Qwen2-VL-7B."""
    words, known = _words(name), _table("families")["multimodal"]
    starts = tuple(known["starts"])
    if any(one in known["words"] or one.startswith(starts) for one in words):
        return True
    return not _joined(words, 5).isdisjoint(known["called"])


def encoder(model_type: str | None, name: str) -> str | None:
    """The family of an encoder such as BERT. It is found by the `model_type` or, if that is unknown, by a word in the
    hub name. None for any other model.
    """
    known = _table("families")["encoders"]
    if model_type is not None:
        return model_type if model_type in known["causal"] or model_type in known["masked"] else None
    words = _words(name)
    decodes = not {"decoder", "gpt", "gpt2", "lm", "llama"}.isdisjoint(words)
    return None if decodes else next((one for one in words if one in known["words"]), None)


def model_names() -> tuple[str, ...]:
    """Return every model alias, sorted."""
    return tuple(_table("models")["rows"])


def gpu_names() -> tuple[str, ...]:
    """Return every GPU name, sorted."""
    return tuple(_table("gpus")["rows"])


def dataset_names() -> tuple[str, ...]:
    """Return every dataset alias, sorted."""
    return tuple(_table("datasets")["rows"])


def families() -> tuple[str, ...]:
    """Return every `model_type` of the registry, sorted."""
    return tuple(_table("families")["names"])


def newer_family(model_type: str) -> str | None:
    """The version of transformers that added this family, such as "5.24", if every stack has an older transformers;
    otherwise None.
    """
    version = _table("families")["newer"].get(model_type)
    return None if version is None else str(version)
