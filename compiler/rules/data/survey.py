"""What every row of a local file says: reading, roles, empty and repeated rows (XP530 to XP536)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.rules.core.conditions import surveyed
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.spec.survey import Survey, Tally

WHEN = surveyed

ROLES = ("system", "user", "assistant", "tool", "developer")
"""Roles that chat templates know."""
MEANT = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant"}
"""Speakers of from/value conversations, and the roles that they are in `messages`."""


def _shaped(spec: Spec) -> Iterator[tuple[DataSource, Survey]]:
    """The sources whose rows were read, and have the columns and the shape (XP553 and XP554 speak of the others)."""
    for source in spec.files:
        found = rows.survey(source)
        there = found is not None and found.rows and found.wrong is None
        if found is not None and there and set(rows.columns(source)) <= set(found.columns):
            yield source, found


def _every(one: Tally, found: Survey) -> bool:
    return one.count == found.rows and found.broken is None


def _told(one: Tally, found: Survey, source: DataSource, has: str, have: str, what: str) -> str:
    """How many rows have something, and where the first of them is."""
    name = f"`{source.name[:80]}`"
    if one.count == 1:
        return f"row {one.first:,} of {name} {has} {what} (rows are counted from 0)"
    if _every(one, found):
        return f"every row of {name} {has} {what}"
    return f"{one.count:,} of the {found.rows:,} rows of {name} {have} {what}; the first is row {one.first:,}, from 0"


@rule("XP530", "row-not-read")
def row_not_read(spec: Spec) -> Iterator[Finding]:
    """Every row of a local file must be one that the datasets library reads: an object of JSON, a line of CSV.

    All of the file is read, up to 64 MiB. Today: DatasetGenerationError at the launch, fifty lines that do not name the
    row. Source: datasets 5.2 and 5.0 `packaged_modules/json` and `csv`; executed.
    """
    for source in spec.files:
        found = rows.survey(source)
        broken = None if found is None else found.broken
        if broken is not None and not broken.encoding:
            yield Finding(
                source.label,
                f"row {broken.row:,} of `{source.name[:80]}` (line {broken.line:,}) cannot be read: {broken.why}",
                "mend the row in the file (rows are counted from 0, lines from 1)",
            )
        elif found is not None and broken is None and not found.rows:
            yield Finding(source.label, f"`{source.name[:80]}` has no rows", "give it rows, or name other data")


@rule("XP531", "data-not-utf-8")
def not_utf_8(spec: Spec) -> Iterator[Finding]:
    """Files of data are UTF-8, with or without a byte order mark. One letter of another encoding ends the reading.

    Today: UnicodeDecodeError at the launch, without the place in the file. Source: datasets 5.2 and 5.0
    `packaged_modules/json`, `csv` and `text`; executed.
    """
    for source in spec.files:
        found = rows.survey(source)
        broken = None if found is None else found.broken
        if broken is not None and broken.encoding:
            yield Finding(
                source.label,
                f"row {broken.row:,} of `{source.name[:80]}` cannot be read: {broken.why}",
                "save the file as UTF-8, for example with iconv -f latin1 -t utf-8",
            )


@rule("XP532", "role-of-another-format", "warning")
def role_of_another_format(spec: Spec) -> Iterator[Finding]:
    """The roles of `messages` are those that chat templates know: system, user, assistant, tool, developer.

    `human` and `gpt` belong to from/value conversations, and are errors here. Today, silently: a template that asks
    for known roles leaves out every other turn, and one that writes the role into the text gives the model a name that
    it has never seen; with `assistant_only` nothing of such an answer is learned. A role that the template at hand
    names is taken. Source: chat templates of the registered models; executed.
    """
    text = spec.chat_template
    for source, found in _shaped(spec):
        odd = {
            role: one
            for role, one in found.roles.items()
            if role not in ROLES and not (text and (f"'{role}'" in text or f'"{role}"' in text))
        }
        for role, one in odd.items():
            meant = MEANT.get(role)
            yield Finding(
                source.label,
                _told(one, found, source, "has", "have", f"a turn of the role `{role}`"),
                f"rename the role to {meant} in the data"
                if meant is not None
                else "chat templates know " + ", ".join(ROLES) + "; rename the role in the data",
                severity="error" if meant is not None else None,
            )
            break


@rule("XP533", "nothing-to-learn", "warning")
def nothing_to_learn(spec: Spec) -> Iterator[Finding]:
    """A row teaches by its answer, or its text. One without teaches to say nothing, or takes part in no loss.

    It is an error where no row has any. Today, silently: an answer of no letter is trained on as one end token, a
    conversation without the assistant as if the user's words were the model's. Source: trl 1.16 and 0.18
    `sft_trainer.py`, `dpo_trainer.py`, `kto_trainer.py`; executed.
    """
    for source, found in _shaped(spec):
        if source.shape == "prompt":
            continue
        what = "an empty text" if source.shape == "text" else "an empty answer"
        kinds = {"empty_answer": what}
        if source.shape in ("messages", "conversations") and not spec.flag("method.assistant_only"):  # XP602 else
            kinds["unanswered"] = "no turn of the assistant"
        for kind, words in kinds.items():
            one = found.tallies.get(kind)
            if one is not None:
                yield Finding(
                    source.label,
                    _told(one, found, source, "has", "have", words),
                    "leave such rows out of the data, or give them an answer",
                    severity="error" if _every(one, found) else None,
                )


@rule("XP534", "empty-prompt", "warning")
def empty_prompt(spec: Spec) -> Iterator[Finding]:
    """A prompt, or a turn of the user, without a letter asks for nothing: the answer to it is learned for any question.

    Today, silently. A turn whose content is null is such a turn. Source: the runtime's `rows.py`.
    """
    for source, found in _shaped(spec):
        one = found.tallies.get("empty_prompt")
        if one is not None:
            yield Finding(
                source.label,
                _told(one, found, source, "has", "have", "an empty prompt or turn of the user"),
                "leave such rows out of the data, or give them a prompt",
            )


@rule("XP535", "repeated-rows", "note")
def repeated_rows(spec: Spec) -> Iterator[Finding]:
    """Rows with the prompt and the answer of an earlier one are trained on once more in each epoch.

    A holdout may hold what is trained on, too. `data { unique }` leaves out rows that are the same in every column that
    is kept; what differs in other columns is counted here all the same.
    """
    if spec.flag("data.unique"):
        return
    for source, found in _shaped(spec):
        one = found.tallies.get("repeated")
        if one is not None:
            yield Finding(
                source.label,
                _told(one, found, source, "repeats", "repeat", "an earlier prompt and answer"),
                "`data(unique)` leaves repetitions out",
            )


@rule("XP536", "nothing-to-prefer", "warning")
def nothing_to_prefer(spec: Spec) -> Iterator[Finding]:
    """The two answers of a pair differ, or there is nothing to prefer. It is an error where no pair does.

    Today, silently: such a pair has a margin of 0 whatever the model says, and its gradient is none. Source: the
    losses of `dpo_trainer.py` and `reward_trainer.py`; executed.
    """
    for source, found in _shaped(spec):
        one = found.tallies.get("same") if source.shape == "preference" else None
        if one is not None and spec.text("method") != "kto":
            yield Finding(
                source.label,
                _told(one, found, source, "has", "have", "the same answer twice"),
                "leave such pairs out of the data",
                severity="error" if _every(one, found) else None,
            )
