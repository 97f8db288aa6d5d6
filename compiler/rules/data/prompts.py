"""Rules about prompts that a template makes from columns, and about system prompts in a column (XP770 to XP774)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xpc.compiler.data import rows
from xpc.compiler.data.file_counts import CONSTANT
from xpc.compiler.data.shapes import SHAPES
from xpc.compiler.rules.core.conditions import written
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.grammar.diagnostic import Label

WHEN = written("data.prompt_template", "data.system_column")
COLUMN = re.compile(r"\{\{-?\s*([A-Za-z_][A-Za-z0-9_]*)")
"""Matches the beginning of an expression in a template, such as `{{ question` in `{{ question | trim }}`. The first
group of the match is the name of the column.
"""

SEVERAL = 8
"""If a file has fewer rows than this, two of its columns may be equal by chance."""


def _no_prompt(source: DataSource) -> str | None:
    """The reason why `prompt_template` cannot build the prompts of a source, or None if it can."""
    if source.wording is not None:
        return "`format = alpaca` already puts its own words around a prompt"
    if source.context is not None:
        return f"`context` adds a column to the prompt, and so does the template: `{{{{ {source.context} }}}}`"
    names = rows.columns(source)
    need = SHAPES.get(source.shape, ())
    prompted = "prompt" in need or (source.shape == "preference" and len(names) > len(need))
    if not prompted or len(names) < len(need):
        return f"rows of {source.shape} have no prompt column"
    return None


def _missing_column(sources: Sequence[DataSource], names: Sequence[str]) -> tuple[DataSource, str] | None:
    """Find a local file that lacks one of the columns. Return the file and the missing column, or None."""
    for source in sources:
        found = rows.survey(source)
        if found is None or source.found is None or not found.rows:
            continue
        for name in names:
            if name not in (*source.found, *found.columns):
                return source, name
    return None


def _not_there(source: DataSource, name: str, location: Label) -> Finding:
    return Finding(
        location,
        f"`{source.name[:80]}` has no column `{name[:40]}`",
        f"its columns are {', '.join((source.found or ())[:8])}",
        (source.label,),
    )


@rule("XP770", "prompt-template-without-a-prompt")
def template_without_prompt(spec: Spec) -> Iterator[Finding]:
    """`prompt_template` needs rows with a prompt column. It cannot be combined with `format = alpaca`, which already
    puts words around the prompt, or with `context`, which already adds a column to the prompt. Rows of messages cannot
    have a `prompt_template`, because a chat template renders them.

    Why it is bad: the template could not build a prompt for rows without a prompt column.

    Without this rule: the bundle's runtime has no prompt to which it could apply the template.

    Source: the runtime's `prompt_template.py`.
    """
    if spec.get("data.prompt_template") is None:
        return
    separate = any(_no_prompt(source) is None for source in spec.data) and spec.mixes_shapes
    for source in spec.data:
        why = _no_prompt(source)
        if why is not None and not (separate and "prompt" not in SHAPES.get(source.shape, ())):
            yield Finding(
                spec.location("data.prompt_template", "makes no prompt"),
                why,
                "leave `prompt_template` out, or train on rows that have a prompt and a completion",
                (source.label,),
            )
            return


@rule("XP771", "prompt-template-of-no-column")
def template_of_no_column(spec: Spec) -> Iterator[Finding]:
    """A prompt template must use at least one column of the row: `{{ question }}`. It should use a column that differs
    from row to row, and not the column of the answers.

    Why it is bad: a template that uses no column of the row, or only columns that are the same in all rows, gives every
    row the same prompt. If the prompt contains the answer, the model learns to copy.

    Without this rule: the run silently trains on the literal text of a template with `{question}` instead of `{{
    question }}`.

    Source: jinja2.
    """
    template = spec.get("data.prompt_template")
    if isinstance(template, str) and not COLUMN.search(template):
        yield Finding(
            spec.location("data.prompt_template", "the same for every row"),
            "the template uses no column of the row",
            "write a column in two braces, such as `{{ question }}`",
        )
        return
    used = COLUMN.findall(template) if isinstance(template, str) else []
    for source in spec.files if used else ():
        found, names = rows.survey(source), rows.columns(source)
        if found is None or _no_prompt(source) is not None:
            continue
        there = [name for name in used if name in found.columns]
        answer = next((name for name in there if name in names[1:]), None)
        same = bool(there) and found.rows >= SEVERAL and all(CONSTANT + name in found.tallies for name in there)
        if answer is not None or same:
            yield Finding(
                spec.location("data.prompt_template", "contains the answer" if answer else "the same for every row"),
                f"the prompts contain the column `{answer}`, which is learned as the answer"
                if answer
                else f"all rows of `{source.name[:80]}` have the same `{there[0]}`, so all prompts are equal",
                "use a column with the question, such as `{{ question }}`",
                (source.label,),
                severity="warning",
            )
            return


@rule("XP772", "prompt-template-column-not-there")
def template_column(spec: Spec) -> Iterator[Finding]:
    """Each column that the prompt template uses must be in the file. For a dataset of the hub, the first rows are
    checked when the run starts.

    Why it is bad: the prompts would lack the text of a missing column.

    Without this rule: Jinja silently writes nothing for an unknown name.

    Source: jinja2 (`Undefined`); the runtime's `prompt_template.py`.
    """
    template = spec.get("data.prompt_template")
    text = template if isinstance(template, str) else ""
    names = [
        name
        for name in dict.fromkeys(COLUMN.findall(text))
        if f"set {name} =" not in text and f"{name} is defined" not in text
    ]
    missing = _missing_column([source for source in spec.files if _no_prompt(source) is None], names)
    if missing is not None:
        source, name = missing
        yield _not_there(source, name, spec.location("data.prompt_template", name))


@rule("XP773", "system-column-not-there")
def system_column(spec: Spec) -> Iterator[Finding]:
    """The column that `system_column` names must be in each data file.

    Why it is bad: no conversation would have a system prompt.

    Without this rule: the system prompt is silently None for every row.

    Source: the runtime's `prompt_template.py`.
    """
    name = spec.get("data.system_column")
    each = [_missing_column([source], (name,) if isinstance(name, str) else ()) for source in spec.files]
    missing = next((one for one in each if one is not None), None)
    # one source of a mixture may lack the column of system prompts
    if missing is not None and (None not in each or not spec.mixes_shapes):
        yield _not_there(*missing, spec.location("data.system_column", "not there"))


@rule("XP774", "system-column-without-conversations")
def system_column_of_texts(spec: Spec) -> Iterator[Finding]:
    """`system_column` needs conversations: a system prompt is the first message of a conversation, and plain text has
    no place for it.

    Why it is bad: the system prompts would not be trained on.

    Without this rule: the runtime does not change plain text, so no row would contain the system prompt.

    Source: the runtime's `rows.py`.
    """
    if spec.get("data.system_column") is None or spec.flag("data.chat") or spec.method.shapes[0] == "prompt":
        return
    if rows.all_texts(spec.data):
        yield Finding(
            spec.location("data.system_column", "never used"),
            "there are system prompts, but no row is a conversation",
            "write `chat`, which turns a prompt and its answer into a conversation, or leave `system_column` out",
            (spec.data[0].label,),
        )
