"""Rules about columns of rows and keys of turns that no trainer reads (XP546, XP549, XP566)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.data.shapes import ALPACA, SHAPES
from xpc.compiler.data.structure import TURN_KEY, UNREAD_KEY
from xpc.compiler.rules.core.conditions import surveyed
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.data.structure import built_in, have, masks_answers
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.survey import Survey
from xpc.runtime.features.messages.stored_columns import (
    IN_PROMPTS,
    QUESTIONS,
    SYSTEM,
    WORDS,
    not_read_by,
    rewarded,
)

WHEN = surveyed
HELPS = {
    "history": "write such rows as `messages`, with the earlier turns in them",
    "documents": "write the documents into the system prompt or the question of their row",
    "row_weight": "leave rows that are not to be learned out of the data",
    "bad_answer": "write `method kto`, which reads labels, or leave such rows out of the data",
    "thoughts": "write the reasoning into the answer, between <think> and </think>, or into a key of its turn",
    "lower_score": "swap the two answers of such rows, or leave the rows out of the data",
    "no_prompt": "name the column of the questions: `data(prompt=COLUMN)`",
    "question": "name that column: `data(prompt=COLUMN)`",
}
UNREAD = {kind: (WORDS[kind], help) for kind, help in HELPS.items()} | {
    "turn_weight": (
        "an answer with a weight other than 0 and 1",
        "write 0 for turns that are not to be learned, and 1 for the others",
    )
}
"""Maps each kind of column or key that no trainer reads to a pair: its description in messages, and a help that says
what to write instead. compiler/data/structure.py finds such columns and keys.
"""
CONTENTS = ("messages", "conversations", "prompt", "completion", "text", "chosen", "rejected")
"""Columns from which a trainer can learn. If a row has such columns of several formats, such as `messages` and `text`,
its format is ambiguous.
"""
UNREADABLE = ("messages", "chosen", "rejected", "completion", "prompts", "completions", "completion_ids")
"""Columns that the runtime does not pass to reward functions. TRL would read the columns `messages`, `chosen`,
`rejected` and `completion` as the row itself. Under the names `prompts`, `completions` and `completion_ids`, TRL passes
its own values.
"""


@rule("XP566", "two-readable-columns", "note")
def two_readable(spec: Spec) -> Iterator[Finding]:
    """If a local file has the columns of several shapes, such as `messages` and `text`, only one shape is read.
    `format` or `columns` selects it. Another rule (XP154) reports token ids next to texts.

    Why it is bad: the model may learn from another column than the intended one.

    Without this rule: the first shape in the method's order is silently read: messages, then prompt and completion,
    then text.

    Source: `xpc` itself; TRL 1.16 raises an exception for some such rows, and reads one of the columns of other rows.
    """
    for source in spec.files:
        if source.stated or source.only or source.found is None:
            continue
        names: tuple[str, ...] = CONTENTS
        read = [*rows.columns(source), *([] if source.context is None else [source.context])]
        read += ["prompt"] if source.shape == "preference" else []
        if {*ALPACA} <= {*source.found}:
            names = CONTENTS + ALPACA
        if spec.method.shapes[0] == "prompt":  # online methods pass all other columns to reward functions
            names = UNREADABLE
        others = [name for name in names if name in source.found and name not in read]
        if others:
            yield Finding(
                source.label,
                f"`{source.name[:80]}` is read as {source.shape} ({_listed([*rows.columns(source)])}), and its "
                f"{_listed(others)} {'is' if len(others) == 1 else 'are'} not read",
                _instead(spec, source),
            )


def _listed(names: list[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _instead(spec: Spec, source: DataSource) -> str:
    """The help for columns that are not read. It names the setting that confirms the format in which xpc reads the
    rows, such as `data(format=preference)`. If the columns also fit another format, the help names that format, too.
    """
    shapes = (name for name in spec.method.shapes if name not in (source.shape, "images", "tokens"))
    other = next((name for name in shapes if {*SHAPES[name]} <= {*(source.found or ())}), None)
    intended = f"`data(format={source.shape})` confirms the format"
    return (
        intended if other is None else f"{intended}; `data(format={other})` reads {_listed([*SHAPES[other]])} instead"
    )


def _turn_keys(spec: Spec, found: Survey | None) -> dict[str, tuple[str, str]]:
    """The keys of turns that no trainer reads, such as `loss_weight`, each with a description and a help."""
    keys = [kind[len(TURN_KEY) :] for kind in ({} if found is None else found.tallies) if kind.startswith(TURN_KEY)]
    help = "in the data, leave out the turns that are not to be learned"
    if masks_answers(spec):
        help = "set `weight` to 0 in turns that are not to be learned, and write `method sft(assistant_only)`"
    return {TURN_KEY + key: (f"a turn with the key `{key}`", help) for key in keys}


@rule("XP546", "system-column-not-read", "warning")
def system_not_read(spec: Spec) -> Iterator[Finding]:
    """A column `system` needs conversations, because it is read as the system prompt of the row's conversation. In rows
    of plain text, the column is not read. A column of another name, such as `system_prompt`, is not read either. If a
    conversation begins with a system message, this message is kept, and the row's column `system` is not read.

    Why it is bad: the model would not learn to follow the row's system prompt.

    Without this rule: the column with the system prompts is silently dropped.

    Source: the runtime's `data.py`.
    """
    for source in spec.files:
        found = rows.survey(source)
        other = None if found is None or source.only else next(filter(SYSTEM.fullmatch, found.columns), None)
        own = None if found is None else found.tallies.get("system")
        two = None if found is None or source.only else found.tallies.get("two_systems")
        if found is not None and two is not None:
            yield Finding(
                source.label,
                f"{have(two, found, source)} a system prompt in the first turn and another in the column `system`, "
                "which is not read",
                "delete one of the two system prompts in the data",
            )
            continue
        if found is not None and other is not None and (own is None or own.count < found.rows):
            yield Finding(
                source.label,
                f"`{source.name[:80]}` has a column `{other}`, which is not read as a system prompt",
                "rename the column `system`, which is read as the system prompt of its row",
            )
            continue
        if (
            found is None
            or source.only
            or source.shape in ("text", "tokens", "prompt")  # the runtime turns a prompt into a conversation
            or rows.conversational(source) is not False
        ):
            continue
        if "system" in found.columns and spec.get("data.prompt_template") is None:
            yield Finding(
                source.label,
                f"`{source.name[:80]}` has a column `system`, which only conversations use, and its rows are not "
                "conversations",
                "write `chat`, which turns a prompt and its answer into a conversation",
            )


THOUGHT = re.compile(r"think|thought|reason|rationale|scratch|chain.?of|(^|_)cot($|_)", re.IGNORECASE)
"""Matches the names of keys that probably contain the reasoning of a turn, such as `chain_of_thought`. No run reads
such a key.
"""


def _unread_keys(source: DataSource, found: Survey | None, template: str) -> Iterator[Finding]:
    """Findings about keys of turns that the chat template does not read: one finding for reasoning, one for all other
    keys.
    """
    tallies = {} if found is None or found.wrong is not None else found.tallies
    keys = {kind[len(UNREAD_KEY) :]: one for kind, one in tallies.items() if kind.startswith(UNREAD_KEY)}
    keys = {key: one for key, one in keys.items() if not re.search(rf"\b{re.escape(key)}\b", template)}
    thoughts = [key for key in keys if THOUGHT.search(key)]
    for names in (thoughts, [key for key in keys if key not in thoughts]):
        if not names or found is None:
            continue
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        keys_of = "the key" if len(names) == 1 else "the keys"
        yield Finding(
            source.label,
            f"{have(keys[names[0]], found, source)} a turn with {keys_of} {_listed(names[:3])}{more}, which the chat "
            "template does not read",
            f"rename `{names[0]}` to `reasoning_content`, and write `chat_template = qwen3`, which writes this key"
            if names is thoughts
            else "remove such keys from the turns, or name a chat_template that reads them",
            severity=None if names is thoughts else "note",
        )


@rule("XP549", "column-not-read", "warning")
def column_not_read(spec: Spec) -> Iterator[Finding]:
    """The rows should not have a column or a key that says how a row is to be learned, but that no trainer reads.
    Examples are a row's `weight`, a turn's weight of 0.5, a turn's key `loss_weight`, a `label` of false in rows for
    sft, `documents` in a row with a conversation, and `history` in a row with a prompt (as in LLaMA-Factory's alpaca
    rows). A separate column with the reasoning is another example. In preference pairs, the rule also reports two other
    faults: scores, such as `score_chosen`, that are higher for the rejected answer; and pairs without a prompt whose
    two answers do not begin with the same question. If all preference pairs of a file lack `prompt` and have their
    question in another column, such as `instruction`, this is an error. Any other key of a turn that the chat template
    does not read is a note, or a warning if its name suggests reasoning, such as `thought`. Reward functions can read
    every column of a row, so for grpo and rloo, `history` and `documents` are only notes.

    Why it is bad: if columns such as `label`, `weight` and `history` are not read, the model learns answers that are
    marked as bad, gives every row the same weight, or learns an answer without the earlier turns to which the answer
    refers.

    Without this rule: the column or key is silently dropped.

    Source: trl 1.16, 0.24 and 0.18 `sft_trainer.py`, which read no such column; read, not run.
    """
    template = (spec.chat_template or "") if built_in(spec) is None else ""  # a built-in template reads no other keys
    for source in spec.files:
        found, name = rows.survey(source), spec.method.name
        rewards = rewarded(name, source.shape)
        if not rewards:
            yield from _unread_keys(source, found, template)
        for kind, (words, help) in (UNREAD | _turn_keys(spec, found)).items():
            if rewards and kind not in IN_PROMPTS:
                continue
            of_turn = kind == "turn_weight" or kind.startswith(TURN_KEY)
            one = None if found is None or (source.only and not of_turn) else found.tallies.get(kind)
            if found is not None and one is not None:
                if kind == "question":
                    help = help.replace("COLUMN", next(name for name in QUESTIONS if name in found.columns))
                but = f"so {name} learns no question" if kind == "no_prompt" else not_read_by(name, source.shape)
                of_file = kind == "question" and one.count == found.rows
                yield Finding(
                    source.label,
                    f"{have(one, found, source)} {words}, {but}",
                    help,
                    severity="error" if of_file else "note" if rewards else None,
                )
