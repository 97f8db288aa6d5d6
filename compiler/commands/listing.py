"""`xpc list KIND [WORD...]`: print the names that a spec can use, such as models and GPUs."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence

from xpc.compiler import registry, stacks
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.language.kinds import BLOCK
from xpc.compiler.language.model_choices import TEMPLATES
from xpc.compiler.language.rewards import REWARDS
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.registry import chat_templates as templates
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.grammar.nearest import nearest

Row = dict[str, object]
EPILOG = (
    "Words narrow the list: `xpc list models llama 8b`. Exit status: 2 for wrong usage, and if no row has all words "
    "(with --format json, an empty list and exit status 1); otherwise 0."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser("xpc list", description="List the names that a spec can use.", epilog=EPILOG)
    parser.add_argument("kind", nargs="?", type=_kind, metavar="KIND", help=f"{', '.join(KINDS)} (default: these)")
    parser.add_argument("words", nargs="*", metavar="WORD", help="show only rows that contain every word")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format (default: text)")
    return parser.parse_args(list(arguments))


def _kind(typed: str) -> str:
    """The name of a list. The singular is also accepted (`xpc list model`). Raises UsageError for an unknown name."""
    known = {**{name: name for name in KINDS}, **{name.removesuffix("s"): name for name in KINDS}}
    if typed in known:
        return known[typed]

    near = nearest(typed, KINDS)
    intended = f": did you mean `xpc list {near}`?" if near else ";"
    raise UsageError(f"there is no list of `{typed[:40]}`{intended} there are {', '.join(KINDS)}")


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the printed text and the exit status. Raises UsageError if nothing matches the words."""
    if options.kind is None:
        kinds: list[Row] = [{"kind": name, "what": what} for name, (_, what) in KINDS.items()]
        return (json.dumps(kinds, indent=2) + "\n" if options.format == "json" else _table(kinds)), 0
    rows = KINDS[options.kind][0]()
    wanted = [word.lower() for word in options.words]
    found = [row for row in rows if all(word in _text(row).lower() for word in wanted)]
    if options.format == "json":
        return json.dumps(found, indent=2) + "\n", int(not found)
    if not found:
        near = nearest(" ".join(wanted), [str(row["name"]) for row in rows])
        raise UsageError(
            f"no {options.kind} match `{' '.join(options.words)}`" + (f": did you mean {near}?" if near else "")
        )
    return _table(found), 0


def _text(row: Row) -> str:
    return " ".join(map(str, row.values()))


def _table(rows: Sequence[Row]) -> str:
    """Write rows as lines with aligned columns. The last column gets no trailing spaces."""
    cells = [[_cell(value) for value in row.values()] for row in rows]
    heads = [name.replace("_", " ") for name in rows[0]]
    widths = [max(len(line[column]) for line in (heads, *cells)) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in (heads, *cells)]
    return "".join(line.rstrip() + "\n" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _models() -> list[Row]:
    found = (registry.find_model(name) for name in registry.model_names())
    return [
        {
            "name": one.alias,
            "parameters": one.params,
            "context": one.context,
            "chat": one.chat,
            "gated": one.gated,
            "id": one.id,
        }
        for one in found
        if one is not None
    ]


def _gpus() -> list[Row]:
    found = (registry.find_gpu(name) for name in registry.gpu_names())
    return [
        {
            "name": one.name,
            "memory_gib": one.memory_gib,
            "capability": one.compute_capability,
            "bf16": one.bf16_tflops is not None,
        }
        for one in found
        if one is not None
    ]


def _datasets() -> list[Row]:
    found = (registry.find_dataset(name) for name in registry.dataset_names())
    return [
        {"name": one.alias, "rows": one.rows, "shape": one.shape, "gated": one.gated, "id": one.id}
        for one in found
        if one is not None
    ]


def _templates() -> list[Row]:
    return [{"name": name, "for": _comment(templates.text(name).decode())} for name in TEMPLATES]


def _comment(template: str) -> str:
    """The comment at the beginning of a chat template, on one line."""
    comment, _, _ = template.removeprefix("{#").partition("#}")
    return " ".join(comment.strip("- \n").split()) if template.startswith("{#") else ""


def _rewards() -> list[Row]:
    return [
        {"name": name, "rewards": what, "write": f"method grpo(rewards=[{name}])"} for name, what in REWARDS.items()
    ]


def _codes() -> list[Row]:
    from xpc.compiler.language.codes import first_sentence
    from xpc.compiler.rules.core.all_codes import all_codes

    return [
        {
            "name": code,
            "slug": slug,
            "severity": severity,
            "what": first_sentence(text).rstrip("."),
        }
        for code, (slug, severity, text) in all_codes().items()
    ]


def _settings() -> list[Row]:
    return [
        {"name": row.path, "takes": ", ".join(row.choices) or row.kind.phrase, "what": row.doc}
        for row in BY_PATH.values()
        if row.kind is not BLOCK
    ]


def _stacks() -> list[Row]:
    return [{"name": one.name, "default": one.name == stacks.DEFAULT, "packages": one.title} for one in stacks.every()]


def _advisories() -> list[Row]:
    """The rows of `xpc list advisories`. A row describes a known bug of a library that makes results wrong: the
    versions with the bug, and the stacks that have one of these versions.
    """
    from xpc.compiler.rules.core.advisory_table import table

    return [
        {
            "name": one.name,
            "versions": " ".join(
                [one.package, *(f"{word} {at}" for word, at in (("from", one.first), ("before", one.fixed_in)) if at)]
            ),
            "stacks": ", ".join(stack.name for stack in stacks.every() if one.of(stack)) or "none",
            "told": one.rule or one.runtime or "XP940",
            "threads": ", ".join(one.threads),
            "effect": one.effect,
        }
        for one in table()
    ]


def _recipes() -> list[Row]:
    from xpc.compiler.commands.starter import recipes

    return [{"name": name, "file": os.path.basename(path)} for name, path in recipes().items()]


KINDS: dict[str, tuple[Callable[[], list[Row]], str]] = {
    "models": (_models, "short names of models; a spec writes any other model as org/name, or as a folder in quotes"),
    "gpus": (_gpus, "GPUs for `hardware 8 x h100-80gb`"),
    "datasets": (
        _datasets,
        "short names of datasets of the hub; a spec writes any other dataset as org/name, or as a file in quotes",
    ),
    "templates": (_templates, "built-in chat templates for `model(chat_template=...)`"),
    "rewards": (_rewards, "built-in rewards for `method grpo(rewards=[...])`"),
    "settings": (_settings, "every setting, its values and its meaning"),
    "stacks": (_stacks, "versions of the libraries for `target`"),
    "recipes": (_recipes, "published recipes for `xpc new FILE --from RECIPE`"),
    "codes": (_codes, "codes of messages, for `xpc explain CODE`"),
    "advisories": (_advisories, "known bugs of the libraries that make results wrong"),
}
"""Maps the name of each list to a pair: a function that returns the rows of the list, and a description of the rows."""
