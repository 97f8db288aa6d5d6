"""Tools, calls and reasoning in rows against the chat template, and columns that are not read (XP537 to XP539, XP546,
XP549).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.data.structure import QUESTIONS
from xpc.compiler.registry import chat_templates
from xpc.compiler.rules.core.conditions import surveyed
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.grammar.package_data import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.spec.survey import Survey, Tally

WHEN = surveyed

KINDS = {
    "developer": ("content", "turns of the role `developer`"),
    "tool": ("content", "turns of the role `tool`"),
    "text_with_call": ("content", "a text next to a tool call"),
    "tool_calls": ("tool_calls", "tool calls"),
    "several_calls": ("tool_calls", "several tool calls in a turn"),
    "tools": ("tools", "tools"),
    "reasoning": ("reasoning", "reasoning"),
    "inline_reasoning": ("reasoning", "reasoning between <think> and </think>"),
    "early_reasoning": ("reasoning", "reasoning before the last question"),
    "early_inline_reasoning": ("reasoning", "reasoning between <think> and </think> before the last question"),
}
"""Kinds of rows (`data/structure.py`): what `data.omit` calls them, and their name in messages."""
UNREAD = {
    "history": ("earlier turns in a column `history`", "write such rows as `messages`, with the earlier turns in them"),
    "row_weight": ("a `weight` other than 1", "leave rows that are not to be learned out of the data"),
    "bad_answer": ("a `label` of false", "write `method kto`, which reads it, or leave such rows out of the data"),
    "turn_weight": (
        "an answer with a weight other than 0 and 1",
        "write 0 for turns that are not to be learned, and 1 for the others",
    ),
    "question": ("the question in a column other than `prompt`", "name that column: `data(prompt=COLUMN)`"),
}
"""Columns that no trainer reads (`data/structure.py`), in words, and what to write instead."""
LEARNED_TURNS = ("messages", "conversations")


def _kinds(source: DataSource) -> tuple[Survey | None, dict[str, Tally]]:
    """The survey of a file, and the counts of those contents that a template may leave out, such as tool calls."""
    found = rows.survey(source)
    if found is None or found.wrong is not None:
        return None, {}
    tallies = {kind: found.tallies[kind] for kind in KINDS if kind in found.tallies}
    if source.only and "tools" not in (source.columns or ()):
        tallies.pop("tools", None)
    return found, tallies


def _template(spec: Spec) -> str | None:
    """The built-in template that renders the rows: the one that the spec names, or that of the model's family."""
    if spec.template is not None:
        return spec.template.name
    return chat_templates.native(spec.model.name) if spec.model.chat and spec.model.facts is not None else None


@rule("XP537", "not-in-the-template")
def not_in_the_template(spec: Spec) -> Iterator[Finding]:
    """The chat template should write what the rows of a local file have: tool calls, tools, reasoning, turns of each
    role. A committed table says what each built-in template writes; a test renders it. `data { omit }` allows the
    template to leave something out.

    Why it is bad: the model does not learn what the row says; a turn with a dropped call is learned as an empty answer.

    Without this rule: launch.sh compares rows with their rendered text before the first step, and stops.

    Source: `compiler/registry/template_forms.json`, rendered with transformers; confirmed by running it.
    """
    template = _template(spec)
    if template is None:
        return
    omit = spec.names("data.omit")
    for source in spec.files:
        found, tallies = _kinds(source)
        if not tallies:
            continue
        forms = json.loads(read_text(chat_templates.__file__, "template_forms.json"))
        refused = [kind for kind in tallies if kind in forms[template]["refused"]]
        lost = [kind for kind in tallies if kind in forms[template]["left_out"] and KINDS[kind][0] not in omit]
        if found is None or not (refused or lost):
            continue
        kinds = refused or lost
        one = tallies[kinds[0]]
        names = list(dict.fromkeys(KINDS[kind][0] for kind in kinds))
        able = [
            name
            for name, form in forms.items()
            if not any(kind in form["refused"] + form["left_out"] for kind in tallies)
        ]
        other = f"write `chat_template = {able[0]}`, which writes them" if able else "change the data"
        them = "them" if len(kinds) > 1 else "this"
        allow = "" if refused else f", or `data(omit=[{', '.join([*omit, *names])}])` to train without"
        yield Finding(
            source.label,
            f"{_count(one, found)} of `{source.name[:80]}` {'has' if one.count == 1 else 'have'} "
            f"{' and '.join(KINDS[kind][1] for kind in kinds)}, and the template {template} "
            f"{f'refuses {them}' if refused else f'leaves {them} out'}",
            other + allow,
            (spec.place("model.chat_template") if spec.written("model.chat_template") else spec.model.label,),
        )


def _count(one: Tally, found: Survey) -> str:
    if one.count == 1:
        return f"row {one.first:,} (counted from 0)"
    return f"{one.count:,} of the {found.rows:,} rows (the first is row {one.first:,}, from 0)"


@rule("XP538", "template-not-compared", "note")
def not_compared(spec: Spec) -> Iterator[Finding]:
    """`xpc check` knows what the built-in templates write. With another template, it does not check whether the
    template writes the tool calls, tools and reasoning of the rows; the run compares rows with their rendered text
    before its first step.

    Why it is bad: what the template leaves out is found only when the run starts.

    Without this rule: nobody would know that this was not checked.

    Source: `compiler/registry/template_forms.json` contains only the built-in templates.
    """
    if _template(spec) is not None:
        return
    for source in spec.files:
        found, tallies = _kinds(source)
        if found is not None and tallies:
            kinds = " and ".join(KINDS[kind][1] for kind in list(tallies)[:3])
            yield Finding(
                source.label,
                f"`{source.name[:80]}` has {kinds}, and whether the chat template writes them is not known here",
                "before its first step the run compares the rows with their rendered texts; `chat_template = qwen3` "
                "writes these parts",
            )


@rule("XP539", "turn-not-to-be-learned")
def not_to_be_learned(spec: Spec) -> Iterator[Finding]:
    """A turn with `weight` of 0, or with `train`, `train_turn`, `training` or `loss` of false, is not to be learned.
    `method sft(assistant_only)` reads these keys of the answers in a conversation; no other run can leave out a turn.

    Why it is bad: a wrong answer that its row excludes would be learned.

    Without this rule: launch.sh stops at the first such row.

    Source: trl 1.16, 0.24 and 0.18 read no such key of a message; confirmed by running it.
    """
    for source in spec.files:
        found = rows.survey(source)
        one = None if found is None else found.tallies.get("untrained")
        masked = spec.flag("method.assistant_only") and source.shape in LEARNED_TURNS
        if found is None or one is None or masked or spec.method.shapes[0] == "prompt":
            continue
        able = spec.text("method") == "sft" and source.shape in LEARNED_TURNS
        yield Finding(
            source.label,
            f"{_count(one, found)} of `{source.name[:80]}` {'has' if one.count == 1 else 'have'} a turn that is not to "
            "be learned (`weight` of 0, or `train` of false), and this run learns every turn",
            "write `method sft(assistant_only)`, which reads it" if able else "leave the turn out of the data",
        )


@rule("XP546", "system-column-not-read", "warning")
def system_not_read(spec: Spec) -> Iterator[Finding]:
    """A column `system` next to a conversation is its system prompt. Plain texts have no place for one.

    Why it is bad: the model would not learn what the row says.

    Without this rule: silently, the column is dropped.

    Source: the runtime's `data.py`.
    """
    for source in spec.files:
        found = rows.survey(source)
        if (
            found is None
            or source.only
            or source.shape in ("text", "tokens")
            or rows.conversational(source) is not False
        ):
            continue
        if "system" in found.columns and spec.get("data.prompt_template") is None:
            yield Finding(
                source.label,
                f"`{source.name[:80]}` has a column `system`, and no row is a conversation",
                "write `chat`, which turns a prompt and its answer into a conversation",
            )


@rule("XP549", "column-not-read", "warning")
def column_not_read(spec: Spec) -> Iterator[Finding]:
    """Some columns say how a row is to be learned, and no trainer here reads them: `history` next to a prompt and its
    completion (LLaMA-Factory's alpaca rows), a `weight` of a row, a weight of a turn such as 0.5, and a `label` of
    false for sft. If all pairs without `prompt` have their question in another column, such as `instruction`, this is
    an error.

    Why it is bad: answers that the row calls wrong are learned, every row counts the same, or an answer is learned
    without the turns that it refers to.

    Without this rule: silently, the column is dropped.

    Source: trl 1.16, 0.24 and 0.18 `sft_trainer.py`, which read no such column; read, not run.
    """
    if spec.method.shapes[0] == "prompt":  # rewards may read any column
        return
    for source in spec.files:
        found = rows.survey(source)
        for kind, (words, help) in UNREAD.items():
            one = None if found is None or (source.only and kind != "turn_weight") else found.tallies.get(kind)
            if found is not None and one is not None:
                if kind == "question":
                    help = help.replace("COLUMN", next(name for name in QUESTIONS if name in found.columns))
                yield Finding(
                    source.label,
                    f"{_count(one, found)} of `{source.name[:80]}` {'has' if one.count == 1 else 'have'} {words}, "
                    f"which {spec.method.name} does not read",
                    help,
                    severity="error" if kind == "question" and one.count == found.rows else None,
                )
