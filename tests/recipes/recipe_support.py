"""Compare a published recipe with the bundle of its spec: each value that the recipe states, and the default of each
argument that the recipe leaves out.

These tables are next to this file: `recipes.toml` (which spec belongs to which file, and how it is launched),
`names.toml` (where a bundle has the value of a published key, and the reason if its name or unit differs there),
`differences.toml` (allowed differences, with reasons) and `native.json` (defaults of library versions for which there
is no target).
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from functools import cache
from typing import Any

import yaml
from compile_support import REPOSITORY, compiled
from packaging.specifiers import SpecifierSet

from xpc.compiler.stacks import STACKS, load

HERE = os.path.dirname(os.path.abspath(__file__))
SPECS = os.path.join(REPOSITORY, "specs")
NOTHING = "nothing is said"
"""Stands for a value that the bundle does not state."""

View = Mapping[str, Any]


def table(name: str) -> dict[str, Any]:
    """Read one of the tables next to this file."""
    with open(os.path.join(HERE, name), "rb") as handle:
        return tomllib.load(handle) if name.endswith(".toml") else json.load(handle)


RECIPES = table("recipes.toml")
SWEEPS = table("sweeps.toml")
NAMES = table("names.toml")
DIFFERENCES = table("differences.toml")["difference"]
NATIVE = table("native.json")
TEMPLATES = {entry["published"]: name for name, entry in table("renderings.json").items()}


@cache
def family(name: str) -> dict[str, Any]:
    """The published files of a family of recipes, as this repository stores them. The keys of the mapping are their
    paths.
    """
    with open(os.path.join(HERE, "published", name + ".json"), encoding="utf-8") as handle:
        return json.load(handle)["files"]


def published(recipe: str) -> dict[str, Any]:
    """The values that the recipe states: its own keys, `launch:` keys, and the keys of its `accelerate:` and
    `deepspeed:` files.

    The numbers of machines and processes come from the launch command, which overrides these files.
    """
    entry = RECIPES[recipe]
    files = family(entry["family"])
    out = {**files[entry["file"]], **entry.get("command", {})}
    out |= {"launch:nodes": entry["nodes"], "launch:gpus": entry["gpus"]}
    for kind in ("accelerate", "deepspeed"):
        if kind in entry:
            flat = flattened(files[entry[kind]])
            if kind == "accelerate":
                flat |= {"num_machines": entry["nodes"], "num_processes": entry["nodes"] * entry["gpus"]}
            out |= {f"{kind}:{key}": value for key, value in flat.items()}
    return {key: value for key, value in out.items() if not key.startswith(("nproc", "master_port"))}


def flattened(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a nested mapping to dotted keys."""
    out: dict[str, Any] = {}
    for key, value in nested.items():
        out |= flattened(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return out


def native_of(recipe: str) -> str:
    """The stack for which the recipe's spec is written."""
    return re.search(r"^target (\S+)$", spec_text(recipe), re.MULTILINE)[1]  # type: ignore[index]


def spec_text(recipe: str) -> str:
    """Read the spec of a recipe."""
    with open(os.path.join(SPECS, recipe + ".xp"), encoding="utf-8") as handle:
        return handle.read()


def spec_for(recipe: str, target: str) -> str:
    """The text of a recipe's spec, with this `target` in place of the recipe's own."""
    return re.sub(r"^target \S+$", f"target {target}", spec_text(recipe), flags=re.MULTILINE)


@cache
def bundle(recipe: str, target: str) -> dict[str, bytes]:
    """The bundle of the recipe's spec, compiled for a target."""
    return compiled(spec_for(recipe, target), SPECS, recipe + ".xp")


def view(recipe: str, target: str) -> View:
    """The files of the recipe's bundle as one mapping."""
    return read(bundle(recipe, target))


def view_of(text: str, name: str) -> View:
    """The files of the bundle of a spec in specs/, as one mapping."""
    return read(compiled(text, SPECS, name))


def read(files: dict[str, bytes]) -> View:
    """The bundle's trainer_args.json as a mapping. It gets three more keys: accelerate.yaml, deepspeed.json, and all
    files of the bundle.
    """
    return {
        **json.loads(files["trainer_args.json"]),
        "accelerate": yaml.safe_load(files["accelerate.yaml"]),
        "deepspeed": json.loads(files["deepspeed.json"]) if "deepspeed.json" in files else None,
        "files": files,
    }


def at(found: View, path: str) -> Any:
    """The value at a dotted path, or NOTHING if there is no value."""
    value: Any = found
    for part in path.split("."):
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return NOTHING
    return value


def _mixture(found: View) -> Any:
    parts = [
        {
            "id": one["id"], "config": one["config"] or "default", "split": one["split"],
            "columns": sorted(one["columns"]), "weight": (one["take"] or {}).get("fraction"),
        }
        for one in found["data"]["sources"]
    ]  # fmt: skip
    held = (found["data"]["holdout"] or {}).get("rows")
    return {"datasets": parts, "test_split_size": held, "seed": found["data"]["seed"]}


def _plain_mixture(value: Any) -> Any:
    parts = [{"config": "default", **one, "columns": sorted(one["columns"])} for one in value["datasets"]]
    return {"test_split_size": None, "seed": 0, **value, "datasets": parts}


def _template(found: View) -> Any:
    """The digest of a published chat template, or NOTHING. Recipes use templates of specs/templates instead of
    published templates; test_templates.py shows that both render the same. The digest is that of the published template
    which the bundle's template replaces.
    """
    inside = found["files"][found["tokenizer"]["chat_template"]]
    for digest, name in TEMPLATES.items():
        with open(os.path.join(SPECS, "templates", name + ".jinja"), "rb") as handle:
            if handle.read() == inside:
                return digest
    return NOTHING


def _rewards(found: View) -> Any:
    named = [one["function"] or one["name"] for one in found["method"]["rewards"]]
    return ["code_format" if name == "cpp_format" else name for name in named]


def _judged(found: View) -> Any:
    """How many programs judged.py tests at once, according to the bundle's copy of judged.py."""
    (text,) = (data.decode() for name, data in found["files"].items() if name.startswith("files/judged"))
    return int(re.search(r"^AT_ONCE = (\d+)$", text, re.MULTILINE)[1])  # type: ignore[index]


HOW: Mapping[str, Callable[[View], Any]] = {
    "mixture": _mixture,
    "template": _template,
    "rewards": _rewards,
    "judged": _judged,
    "always": lambda found: True,
    "evaluates": lambda found: found["arguments"]["eval_strategy"] != "no",
    "adapters": lambda found: found["lora"] is not None,
    "four bits": lambda found: (found["lora"] or {}).get("bits") == 4,
    "main": lambda found: found["model"]["revision"] or "main",
    "mixer": lambda found: {one["id"]: 1.0 for one in found["data"]["sources"]},
    "splits": lambda found: [found["data"]["sources"][0]["split"], found["data"]["eval_split"]],
    "cpp": lambda found: "cpp" if any(one["function"] == "cpp_format" for one in found["method"]["rewards"]) else "",
    "full_shard": lambda found: (
        "full_shard auto_wrap" if found["accelerate"]["fsdp_config"]["fsdp_sharding_strategy"] == "FULL_SHARD" else ""
    ),
    "flash": lambda found: found["model"]["attn_implementation"] == "flash_attention_2",
    "precision": lambda found: "bf16" if found["arguments"]["bf16"] else "fp16" if found["arguments"]["fp16"] else "no",
    "offload": lambda found: (at(found, "deepspeed.zero_optimization.offload_optimizer.device")
                              if at(found, "deepspeed.zero_optimization.offload_optimizer") != NOTHING else "none"),
    "offload_param": lambda found: (at(found, "deepspeed.zero_optimization.offload_param.device")
                                    if at(found, "deepspeed.zero_optimization.offload_param") != NOTHING else "none"),
}  # fmt: skip
"""Maps each word that `how` may have in `names.toml` to a function that computes a value from several places of a
bundle.
"""


def bundle_value(key: str, found: View, target: str) -> Any:
    """The value that a bundle has for a published key, converted to the published unit."""
    entry = NAMES.get(key, {})
    if "how" in entry:
        return HOW[entry["how"]](found)
    path = _location(entry, target, "" if ":" in key else f"arguments.{key}")
    return at(found, path) if path else NOTHING


def _location(entry: Mapping[str, Any], target: str, otherwise: str) -> str:
    """The path at which a target's bundle has the value of a published key, such as "arguments.max_length". It is
    stated by the entry for the target's version of trl (such as `at-trl>=1`); without such an entry, by the entry `at`.
    """
    for name, path in entry.items():
        if name.startswith("at-trl") and _has_trl(target, name.removeprefix("at-trl")):
            return str(path)
    return str(entry.get("at", otherwise))


def _has_trl(target: str, versions: str) -> bool:
    """Whether a target pins a version of trl that is in this range."""
    stack = load(target)
    assert stack is not None
    return SpecifierSet(versions).contains(stack.pins["trl"])


def same(key: str, wanted: Any, stated: Any) -> bool:
    """Whether two values mean the same. Numbers are compared as numbers. A text from a command line is converted to a
    value first.
    """
    if key == "dataset_mixture":
        wanted = _plain_mixture(wanted)
    if key == "torch_dtype" and wanted is None:
        wanted = "float32"
    if key == "report_to" and isinstance(stated, list) and isinstance(wanted, list):
        return sorted(wanted) == sorted(stated)
    if stated == [wanted] or (wanted == {} and stated is None):
        return True
    if isinstance(stated, bool | int | float) and isinstance(wanted, str):
        return str(stated) == wanted if isinstance(stated, bool) else _number(wanted) == stated
    if isinstance(wanted, bool) or isinstance(stated, bool):
        return wanted is stated
    return bool(wanted == stated)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def decided(keys: Mapping[str, Any], target: str) -> set[str]:
    """The names of the trainer arguments that a published configuration sets by these keys."""
    out: set[str] = set()
    for key in keys:
        entry = NAMES.get(key, {})
        path = _location(entry, target, f"arguments.{key}")
        out |= {path.removeprefix("arguments."), *entry.get("decides", ())}
    return out


def defaults(recipe: str) -> dict[str, Any]:
    """The defaults in the library versions for which the recipe was written. Arguments have the names that they have in
    these versions.
    """
    entry = RECIPES[recipe]
    name = entry["defaults"]
    later = NATIVE["absent"]["both"]
    if name in NATIVE:
        of_class = json.loads(bundle(recipe, native_of(recipe))["trainer_args.json"])["config"].rpartition(".")[2]
        return {**later, **NATIVE[name]["both"], **NATIVE[name].get(of_class, {})}
    old = load(name)
    assert old is not None
    config = json.loads(bundle(recipe, name)["trainer_args.json"])["config"]
    return later | {field.name: field.effective for field in old.fields(config).values() if not field.machine}


def unlike(
    recipe: str, target: str, found: View | None = None, keys: Mapping[str, Any] | None = None
) -> dict[str, tuple[Any, Any]]:
    """Compare a bundle with the published values. For each key whose values differ, return both values.

    `found` replaces the recipe's bundle, and `keys` replaces the published values.

    A key `unset:NAME` stands for an argument that the recipe does not set. Its published value is the argument's
    default in the recipe's library versions. If these versions do not have the argument, it is not compared.
    """
    found, keys = found or view(recipe, target), keys or published(recipe)
    out: dict[str, tuple[Any, Any]] = {}
    for key, wanted in keys.items():
        stated = bundle_value(key, found, target)
        if wanted == "auto":
            wanted = at(found, NAMES[key]["auto"])
        if not same(key, wanted, stated):
            out[key] = (wanted, stated)
    then, others = defaults(recipe), [one for one in map(load, STACKS) if one is not None]
    known = decided(keys, target)
    for name, stated in found["arguments"].items():
        names = (
            name,
            *(one.rename(name) for one in others),
            "evaluation_strategy" if name == "eval_strategy" else None,
        )
        was = next((one for one in names if one in then), None)
        if name in known or was is None:
            continue
        means = NAMES.get(f"unset:{name}", {}).get("means", {}).get(str(then[was]), NOTHING)
        if not same(name, then[was], stated) and stated != (None if means == "null" else means):
            out[f"unset:{name}"] = (then[was], stated)
    return out


def allowed(recipe: str, target: str) -> dict[str, str]:
    """The differences that differences.toml allows for a recipe on a target, with the reasons.

    An entry applies to a published key if the recipe states it, and to an `unset:` key if the recipe leaves the
    argument out.
    """
    out: dict[str, str] = {}
    keys, arguments = published(recipe), view(recipe, target)["arguments"]
    known = decided(keys, target)
    open_ = {f"unset:{name}" for name in arguments if name not in known}
    for entry in DIFFERENCES:
        here = any(fnmatch(recipe, pattern) for pattern in entry["recipes"])
        if here and _has_trl(target, entry.get("trl", "")):
            out |= {key: entry["why"] for key in entry["keys"] if key in keys or key in open_}
    return out
