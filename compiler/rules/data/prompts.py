"""Prompts that a template makes of a row's columns, and system prompts in a column (XP770 to XP774)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xpc.compiler.data import rows
from xpc.compiler.data.shapes import SHAPES
from xpc.compiler.rules.core.conditions import written
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.grammar.diagnostic import Label

WHEN = written("data.prompt_template", "data.system_column")
COLUMN = re.compile(r"\{\{-?\s*([A-Za-z_][A-Za-z0-9_]*)")
"""What a template writes of a row: the name at the beginning of an expression."""


def _asked(source: DataSource) -> str | None:
    """Why the prompt of a source's rows is not the template's, or None."""
    if source.wording is not None:
        return "`format = alpaca` has words of its own around a prompt"
    if source.context is not None:
        return f"`context` says what follows the prompt, and the template says it, too: `{{{{ {source.context} }}}}`"
    names = rows.columns(source)
    need = SHAPES.get(source.shape, ())
    prompted = "prompt" in need or (source.shape == "preference" and len(names) > len(need))
    if not prompted or len(names) < len(need):
        return f"rows of {source.shape} have no prompt column"
    return None


def _lacking(sources: Sequence[DataSource], names: Sequence[str]) -> tuple[DataSource, str] | None:
    """The first file that was read and has no such column, with the column."""
    for source in sources:
        found = rows.survey(source)
        if found is None or source.found is None or not found.rows:
            continue
        for name in names:
            if name not in (*source.found, *found.columns):
                return source, name
    return None


def _not_there(source: DataSource, name: str, place: Label) -> Finding:
    return Finding(
        place,
        f"`{source.name[:80]}` has no column `{name[:40]}`",
        f"its columns are {', '.join((source.found or ())[:8])}",
        (source.label,),
    )


@rule("XP770", "prompt-template-without-a-prompt")
def template_without_prompt(spec: Spec) -> Iterator[Finding]:
    """`prompt_template` makes the prompt of a row: its rows have a prompt column of their own, and no other words.

    Rows of messages are rendered by a chat template. Today each script puts the words together by hand. Source: the
    runtime's `prompt_template.py`.
    """
    if spec.get("data.prompt_template") is None:
        return
    apart = any(_asked(source) is None for source in spec.data) and spec.mixes_shapes
    for source in spec.data:
        why = _asked(source)
        if why is not None and not (apart and "prompt" not in SHAPES.get(source.shape, ())):
            yield Finding(
                spec.place("data.prompt_template", "makes no prompt"), why, "leave `prompt_template` out, or train on "
                "rows that have a prompt and a completion", (source.label,),
            )  # fmt: skip
            return


@rule("XP771", "prompt-template-of-no-column")
def template_of_no_column(spec: Spec) -> Iterator[Finding]:
    """A template that writes no column asks the same of every row.

    Columns stand in two braces. Today, silently: a text with `{question}` for `{{ question }}` is trained on as it
    stands. Source: jinja2.
    """
    template = spec.get("data.prompt_template")
    if isinstance(template, str) and not COLUMN.search(template):
        yield Finding(
            spec.place("data.prompt_template", "the same for every row"),
            "the template writes no column of a row",
            "write a column in two braces, such as `{{ question }}`",
        )


@rule("XP772", "prompt-template-column-not-there")
def template_column(spec: Spec) -> Iterator[Finding]:
    """A column that the template writes must be in the file.

    Of a data set of the hub the first rows are looked at when the run starts. Today: Jinja writes nothing for a name
    that it does not know. Source: jinja2 (`Undefined`); the runtime's `prompt_template.py`.
    """
    template = spec.get("data.prompt_template")
    text = template if isinstance(template, str) else ""
    names = [
        name
        for name in dict.fromkeys(COLUMN.findall(text))
        if f"set {name} =" not in text and f"{name} is defined" not in text
    ]
    lacking = _lacking([source for source in spec.files if _asked(source) is None], names)
    if lacking is not None:
        source, name = lacking
        yield _not_there(source, name, spec.place("data.prompt_template", name))


@rule("XP773", "system-column-not-there")
def system_column(spec: Spec) -> Iterator[Finding]:
    """The column of the system prompts must be in the file.

    Today, silently: `row.get("system")` is None for every row, and no conversation has a system prompt. Source: the
    runtime's `prompt_template.py`.
    """
    name = spec.get("data.system_column")
    each = [_lacking([source], (name,) if isinstance(name, str) else ()) for source in spec.files]
    lacking = next((one for one in each if one is not None), None)
    if lacking is not None and (None not in each or not spec.mixes_shapes):  # of a mixture one may be without
        yield _not_there(*lacking, spec.place("data.system_column", "not there"))


@rule("XP774", "system-column-without-conversations")
def system_column_of_texts(spec: Spec) -> Iterator[Finding]:
    """A system prompt is the first message of a conversation, and plain text has no place for it.

    The runtime leaves texts as they are, so that the column would be in no row. Source: the runtime's `rows.py`.
    """
    if spec.get("data.system_column") is None or spec.flag("data.chat"):
        return
    if rows.all_texts(spec.data):
        yield Finding(
            spec.place("data.system_column", "never used"),
            "system prompts, and no conversation that they could stand in",
            "write `chat`, which makes turns of a prompt and its answer, or leave `system_column` out",
            (spec.data[0].label,),
        )
