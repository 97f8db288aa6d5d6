"""`python -m xpc.compiler.explain.stack_pages`: write a documentation page for each stack, from its tables, the rules
and the advisories.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections.abc import Callable
from itertools import pairwise

from xpc.compiler import stacks
from xpc.compiler.explain.reference import first_sentence
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import TABLE
from xpc.compiler.rules import every
from xpc.compiler.rules.core import advisory_table as advisories
from xpc.compiler.stacks import Stack, facts
from xpc.grammar.package_data import read_json


def page(name: str) -> str:
    """The page of a stack, as Markdown."""
    stack = next(one for one in stacks.every() if one.name == name)
    parts = (_head(stack), _pins(stack), _methods(stack), _differences(stack), _refused(stack), _advised(stack))
    return "\n\n".join(parts) + "\n"


def file_name(name: str) -> str:
    """The file name of a stack's page in docs/."""
    return f"stack-{name}.md"


def _table(*rows: tuple[str, ...]) -> str:
    head, *rest = [tuple(cell.replace("|", "\\|") for cell in row) for row in rows]
    lines = [head, tuple("---" for _ in head), *rest]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _head(stack: Stack) -> str:
    others = ", ".join(f"[{one}]({file_name(one)})" for one in stacks.names() if one != stack.name)
    default = ", which is the default" if stack.name == stacks.DEFAULT else ""
    return (
        f"# {stack.name}\n\n{stack.title}. Written by `make docs` from `compiler/stacks/{stack.name}/`.\n\n"
        f"`target {stack.name}` chooses this stack{default}. The others are {others}; [stacks.md](stacks.md) "
        "compares them and helps you choose."
    )


def _pins(stack: Stack) -> str:
    always = stack.requirements()
    extras = {one: [extra for extra, packages in stack.extras.items() if one in packages] for one in stack.pins}
    rows = [
        (f"`{one}`", version, f"for bundles with {' or '.join(extras[one])}" if extras[one] else "for every bundle")
        for one, version in stack.pins.items()
    ]
    with_vllm = stack.requirements(vllm=True)
    rows += [
        (f"`{one}`", version, "for bundles with `method(vllm)`")
        for one, version in with_vllm.items()
        if always.get(one) != version
    ]
    return "## Packages\n\nA bundle's `requirements.txt` pins these versions.\n\n" + _table(
        ("package", "version", "when"), *rows
    )


def _methods(stack: Stack) -> str:
    rows = []
    for method in METHODS:
        why = stack.refused(method)
        losses = ", ".join(f"`{one}`" for one in stack.losses(method)) or "its loss cannot be chosen"
        rows.append(
            (f"`{method}`", f"refused: {why}", "") if why else (f"`{method}`", f"`{stack.config(method)}`", losses)
        )
    lacks = [(f"`{one}`", why) for what in ("optimizers", "schedules") for one, why in stack.lacking(what).items()]
    adapters = (
        "`lora`, `qlora`, `oft`, `vera`, `loha`, `miss` and `freeze` work with every method, unless a rule below "
        "refuses the combination."
    )
    text = "## Methods and adapters\n\n" + _table(("method", "arguments of", "losses"), *rows) + "\n\n" + adapters
    values = "values of `packing(strategy=...)` are" if len(stack.packing) > 1 else "only `packing(strategy=...)` is"
    text += f"\n\nThe {values} " + ", ".join(f"`{one}`" for one in stack.packing) + "."
    return text + ("\n\nNot in this stack:\n\n" + _table(("name", "why"), *lacks) if lacks else "")


def _differences(stack: Stack) -> str:
    """A table of the facts in which this stack differs from another stack. Each row has the description of the fact,
    its value in this stack, and the names of the stacks with another value.
    """
    described = _documented()
    others = [one for one in stacks.every() if one is not stack]
    rows = []
    for name, doc in described.items():
        here = getattr(stack.facts, name)
        apart = [one.name for one in others if getattr(one.facts, name) != here]
        if apart and isinstance(here, bool | str):
            value = {True: "yes", False: "no", "": "none"}.get(here, f"`{here}`")
            rows.append((f"{doc.rstrip('.')} (`{name}`)", value, f"differs on {', '.join(apart)}"))
    return "## What differs from the other stacks\n\n" + _table(("what", "here", "other stacks"), *rows)


def _documented() -> dict[str, str]:
    """Map each fact to the first paragraph of its docstring in facts.py, on one line."""
    body = next(one for one in ast.parse(inspect.getsource(facts)).body if isinstance(one, ast.ClassDef)).body
    found = {}
    for node, doc in pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(doc, ast.Expr):
            found[node.target.id] = " ".join(str(ast.literal_eval(doc.value)).partition("\n\n")[0].split())
    return found


def _refused(stack: Stack) -> str:
    holds = {code: one["holds"] for code, one in read_json(__file__, "evidence.json").items() if "holds" in one}
    rows = [
        (
            f"[{one.code}](rules.md#{one.code.lower()})",
            first_sentence(one.explanation),
            f"does not apply on {', '.join(sorted({*stacks.names()} - {*holds[one.code]}))}",
        )
        for one in every()
        if stack.name in holds.get(one.code, ()) and len(holds[one.code]) < len(stacks.names())
    ]
    text = "## Rules of this stack that do not apply on every stack\n\n" + _table(
        ("rule", "what it checks", "other stacks"), *rows
    )
    missing = [
        (f"`{name}`", "not in this version, and nothing replaces it" if why == "no equivalent" else why)
        for name, why in stack.removed.items()
    ]
    missing = [row for row in missing if row[0].strip("`") not in {arg for one in TABLE for arg in one.args}]
    return text + (
        "\n\nArguments of other versions that this version does not have:\n\n" + _table(("argument", "why"), *missing)
        if missing
        else ""
    )


def _advised(stack: Stack) -> str:
    rows = []
    for one in advisories.table():
        if one.of(stack):
            answer = f"refused by {one.rule}" if one.rule else "avoided by the bundle" if one.runtime else one.help
            threads = ", ".join(f"[{thread}]({link})" for thread, link in zip(one.threads, one.links, strict=True))
            rows.append((one.package, one.effect, answer, threads))
    intro = "Known defects of the pinned versions, and what xpc does about each. `xpc list advisories` prints them."
    return "## Advisories\n\n" + (
        intro + "\n\n" + _table(("package", "effect", "what xpc does", "threads"), *rows) if rows else "None."
    )


def with_links(text: str) -> str:
    """Update the text of docs/stacks.md: its line `Pages:` gets a link to the page of each stack."""
    links = ", ".join(f"[{name}]({file_name(name)})" for name in stacks.names())
    return re.sub(r"^Pages: .*$", f"Pages: {links}.", text, flags=re.MULTILINE)


def with_menu(text: str) -> str:
    """Update the text of mkdocs.yml: its menu gets the page of each stack, the newest stack first."""
    first, *others = re.findall(r"^ +- stack-.*\n", text, flags=re.MULTILINE)
    for one in others:
        text = text.replace(one, "")
    indent = first[: first.index("-")]
    return text.replace(first, "".join(f"{indent}- {file_name(name)}\n" for name in reversed(stacks.names())))


def rewrite(path: str, change: Callable[[str], str]) -> None:
    """Apply a function to the text of a file, and write the result back to the file."""
    with open(path, "r+", encoding="utf-8") as handle:
        changed = change(handle.read())
        handle.seek(0)
        handle.write(changed)
        handle.truncate()


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "docs"
    for each in stacks.names():
        with open(os.path.join(folder, file_name(each)), "w", encoding="utf-8") as handle:
            handle.write(page(each))
    rewrite(os.path.join(folder, "stacks.md"), with_links)
    rewrite(os.path.join(folder, os.pardir, "mkdocs.yml"), with_menu)
    print(f"wrote {folder}/{file_name('*')}")
