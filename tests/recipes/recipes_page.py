"""`python tests/recipes/recipes_page.py docs/recipes.md`: write the page of published recipes, their specs and
differences.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))

from copy_published import SOURCES
from recipe_support import NOTHING, RECIPES, allowed, bundle, native_of, published, unlike

from xpc.compiler.stacks import DEFAULT, STACKS

HEAD = """\
# Published recipes

Written by `make docs` from `specs/` and `tests/recipes/`; do not edit.

Each recipe here is a spec in `specs/` that trains with the values of its publisher's own files. A test reads the
published file, compiles the spec, and compares every value that the file states. For values that it leaves open, the
test compares the default of the publisher's library versions. To check and compile a recipe:

```
xpc check specs/zephyr-7b-sft-ultrafeedback-dpo-8xh100.xp
xpc compile specs/zephyr-7b-sft-ultrafeedback-dpo-8xh100.xp
```

Each recipe is compared on two stacks: the one that its spec names, which is nearest to the publisher's versions, and
the newest, `{default}`. `xpc upgrade SPEC --target {default}` shows every name and default that changes between them.

`xpc rehearse` runs a small copy of a recipe on a CPU, from reading the rows to pushing the model
([rehearse.md](rehearse.md)). A line *Rehearsed* says when this was done on a stack, and lists the steps; a stack
without such a line was not tried. `make rehearse` repeats all rehearsals.
"""
COMMON = """\
## What differs in most recipes

The differences in the following table occur in most recipes; the tables of the single recipes omit them.

| Published key | What the bundle does instead |
|---|---|
"""
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "rehearsals.json"), encoding="utf-8") as _results:
    REHEARSED: dict[str, Any] = json.load(_results)
"""The results of `make rehearse`, by recipe and stack."""
FAMILIES = {"open-r1": "Open-R1", "alignment-handbook": "The alignment handbook", "fastchat": "FastChat"}
LONGEST = 60
"""A table shows at most this many characters of a value. The end of a longer value is cut off."""


def value(found: Any) -> str:
    """Format a published or stated value as a cell of a table."""
    if found == NOTHING:
        return "not stated"
    text = found if isinstance(found, str) and found else json.dumps(found, sort_keys=True)
    cut = text if len(text) <= LONGEST else text[: LONGEST - 4] + " ..."
    return "`" + cut.replace("|", "\\|") + "`"


def name(key: str) -> str:
    """Format a published key as a cell of a table. A key that the recipe does not state is marked."""
    left_open = key.removeprefix("unset:")
    return f"`{key}`" if left_open == key else f"`{left_open}` (not in the recipe)"


def common() -> dict[str, str]:
    """The differences that occur in more than half of the recipes, as a mapping from key to reason. All these recipes
    must state the same reason.
    """
    seen = Counter((key, why) for recipe in RECIPES for key, why in reasons(recipe, DEFAULT).items())
    return {key: why for (key, why), times in sorted(seen.items()) if times > len(RECIPES) // 2}


def reasons(recipe: str, target: str) -> dict[str, str]:
    """The differences between a recipe and its bundle on a stack, as a mapping from key to reason."""
    listed = allowed(recipe, target)
    return {key: listed[key] for key in unlike(recipe, target)}


def targets(recipe: str) -> list[str]:
    """The stacks on which the page compares a recipe: the recipe's own stack and the default stack. A stack that
    refuses the recipe is left out.
    """
    wanted = dict.fromkeys((native_of(recipe), DEFAULT))
    return [one for one in wanted if one not in RECIPES[recipe].get("refused", ())]


def differences(recipe: str, apart: dict[str, str]) -> Iterator[str]:
    """The table of one recipe: each value that differs between the bundle and the published file, and the stacks on
    which it differs.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for target in targets(recipe):
        unlikes = unlike(recipe, target)
        for key, why in reasons(recipe, target).items():
            if apart.get(key) != why:
                rows.setdefault((key, why), {})[target] = unlikes[key]
    if not rows:
        yield "Nothing else differs.\n"
        return
    yield "| Published key | Value | In the bundle | On | Why |\n|---|---|---|---|---|\n"
    for (key, why), found in rows.items():
        stacks = "both stacks" if len(found) == len(targets(recipe)) > 1 else ", ".join(f"`{one}`" for one in found)
        wanted, stated = next(iter(found.values()))
        yield f"| {name(key)} | {value(wanted)} | {value(stated)} | {stacks} | {why} |\n"


def recipe_text(recipe: str, apart: dict[str, str]) -> Iterator[str]:
    """The section about one recipe, with its source, machines, stacks and differences."""
    entry = RECIPES[recipe]
    repository, commit, _ = SOURCES[entry["family"]]
    in_file = "/" in entry["file"]
    source = f"[{entry['file']}]({repository}/blob/{commit}/{entry['file']})" if in_file else (
        f"`{entry['file']}`, a command of [{repository.rpartition('/')[2]}]({repository}/tree/{commit})"
    )  # fmt: skip
    arguments = json.loads(bundle(recipe, native_of(recipe))["trainer_args.json"])
    of = f"{entry['nodes']} x {entry['gpus']} GPUs" if entry["nodes"] > 1 else (
        f"{entry['gpus']} GPU{'s' if entry['gpus'] > 1 else ''}"
    )  # fmt: skip
    yield f"\n### {recipe}\n\n"
    yield f"- Spec: [specs/{recipe}.xp](../specs/{recipe}.xp), `target {native_of(recipe)}`\n"
    yield f"- Published: {source} at `{commit}`, {len(published(recipe))} values\n"
    yield f"- Trains {arguments['model']['id']} with {arguments['method']['name']} on {of}\n"
    for target in STACKS:
        if target in entry.get("refused", ()):
            codes = " and ".join(f"`xpc explain {code}`" for code in entry["refused"][target])
            yield f"- Refused on `{target}`: {codes} explains why\n"
    for target, found in REHEARSED.get(recipe, {}).items():
        wrong = f". Found: {'; '.join(found['found'])}" if found["found"] else ""
        yield f"- Rehearsed on `{target}` ({found['date']}) in these steps: {'; '.join(found['done'])}{wrong}\n"
    yield "\n"
    yield from differences(recipe, apart)


def page() -> str:
    """The text of docs/recipes.md."""
    apart = common()
    parts = [HEAD.format(default=DEFAULT), "\n", COMMON]
    parts += [f"| {name(key)} | {why} |\n" for key, why in apart.items()]
    for family, title in FAMILIES.items():
        parts.append(f"\n## {title}\n")
        for recipe in RECIPES:
            if RECIPES[recipe]["family"] == family:
                parts.extend(recipe_text(recipe, apart))
    return "".join(parts)


if __name__ == "__main__":
    with open(os.path.abspath(sys.argv[1]), "w", encoding="utf-8") as handle:
        handle.write(page())
