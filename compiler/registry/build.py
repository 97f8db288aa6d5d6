"""`python -m xpc.compiler.registry.build`: compile the TOML files of the registry into `tables.json`.

Parsing the TOML files at every start of `xpc` would take tens of milliseconds; loading `tables.json` takes one
millisecond. A test compares the committed tables.json with the output of this module.
"""

import json
import os
import tomllib
from collections.abc import Iterable
from typing import Any

import attrs

from xpc.compiler.registry import alias_key
from xpc.compiler.registry.architecture import facts_from_config
from xpc.compiler.registry.config_json import ConfigError
from xpc.compiler.registry.types import DatasetFacts, Gpu, ModelFacts

HERE = os.path.dirname(__file__)


def read(name: str) -> dict[str, dict[str, Any]]:
    """Read one TOML file of the registry. Returns its entries by alias."""
    with open(os.path.join(HERE, name), "rb") as file:
        return tomllib.load(file)


def model_config(models: dict[str, dict[str, Any]], alias: str) -> dict[str, Any]:
    """Return the `config.json` keys of a registered model. An entry with `like` inherits the keys of the model that
    `like` names; the entry's own keys override the inherited keys.
    """
    entry = models[alias]
    base = model_config(models, entry["like"]) if "like" in entry else {}
    return {**base, **entry.get("config", {})}


def models() -> list[ModelFacts]:
    """Compute the facts of every model. Raises ValueError for an entry with an incomplete configuration."""
    entries = read("models.toml")
    facts = []
    for alias, entry in entries.items():
        config, chat, gated = model_config(entries, alias), entry.get("chat", False), entry.get("gated", False)
        try:
            facts.append(facts_from_config(config, alias, entry["id"], chat=chat, gated=gated))
        except ConfigError as error:
            raise ValueError(f"models.toml, {alias}: {error}") from None
    return facts


def modules() -> dict[str, dict[str, Any]]:
    """The names of the modules of every family in modules.toml. Where a family lacks a key, it has Llama's names."""
    entries = read("modules.toml")
    return {
        family: {key: value for key, value in {**entries["llama"], **entry}.items() if key != "alike"}
        for name, entry in entries.items()
        for family in (name, *entry.get("alike", ()))
    }


def _compact(kind: type, key: str, entries: Iterable[Any]) -> dict[str, Any]:
    """Return a table in a compact form: the names of the columns once, a list of values for each alias, and an index
    from hub ids to aliases.
    """
    columns = [field.name for field in attrs.fields(kind)]
    rows = sorted(map(attrs.asdict, entries), key=lambda row: str(row[key]))
    table: dict[str, Any] = {"columns": columns, "rows": {row[key]: [row[c] for c in columns] for row in rows}}
    if "id" in columns:
        table["ids"] = {row["id"]: row[key] for row in rows}
    if any(str(name) != alias_key(str(name)) for name in table["rows"]):
        raise ValueError(f"an alias of {kind.__name__} must be lower case with dashes")
    if len(table["rows"]) != len(rows) or len(table.get("ids", rows)) != len(rows):
        raise ValueError(f"two entries of {kind.__name__} share a name")
    return table


def tables() -> str:
    """Return the text of `tables.json`."""
    gpus = [Gpu(name=name, **{"bf16_tflops": None, **entry}) for name, entry in read("gpus.toml").items()]
    datasets = [
        DatasetFacts(alias=alias, **{"config": None, "rows": None, **entry})
        for alias, entry in read("datasets.toml").items()
    ]
    parts = {
        "chat_templates": read("chat_templates.toml"),
        "datasets": _compact(DatasetFacts, "alias", datasets),
        "families": read("families.toml"),
        "gpus": _compact(Gpu, "name", gpus),
        "modules": modules(),
        "models": _compact(ModelFacts, "alias", models()),
    }
    seq2seq = read("seq2seq.toml")
    parts["seq2seq"] = {"types": sorted(seq2seq), "ids": {id: kind for kind, ids in seq2seq.items() for id in ids}}
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).replace('],"', '],\n"') + "\n"


if __name__ == "__main__":
    text = tables()
    with open(os.path.join(HERE, "tables.json"), "w", encoding="utf-8", newline="\n") as output:
        output.write(text)
