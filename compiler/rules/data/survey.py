"""Rules about what xpc finds when it reads every row of a local file: encoding, damage, roles, empty rows and repeated
rows (XP178, XP519, XP530 to XP536).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.data.shapes import WITH_IMAGES
from xpc.compiler.rules.core.conditions import surveyed
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.survey import Survey, Tally

WHEN = surveyed

ROLES = ("system", "user", "assistant", "tool", "developer")
"""Roles that chat templates usually render."""
STANDARD_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant"}
"""Maps the names of speakers in from/value conversations to the roles in `messages`: `human` is `user`."""


def _shaped(spec: Spec) -> Iterator[tuple[DataSource, Survey]]:
    """Yield each source whose rows were read, with its survey. A source with wrong columns or rows of a wrong shape is
    left out, because the rules XP553 and XP554 report it.
    """
    for source in spec.files:
        found = rows.survey(source)
        there = found is not None and found.rows and found.wrong is None
        if found is not None and there and not rows.lacks_columns(source):
            yield source, found


def _every(one: Tally, found: Survey) -> bool:
    return one.count == found.rows and found.broken is None


def _in_words(one: Tally, found: Survey, source: DataSource, has: str, have: str, what: str) -> str:
    """A message that counts the rows with a property and names the first of these rows: "3 of the 90 rows of `a.jsonl`
    have no answer; the first is row 7, counted from 0".
    """
    name = f"`{source.name[:80]}`"
    if one.count == 1:
        return f"row {one.first:,} (counted from 0) of {name} {has} {what}"
    if _every(one, found):
        return f"every row of {name} {has} {what}"
    many = f"{one.count:,} of the {found.rows:,} rows of {name} {have} {what}"
    return f"{many}; the first is row {one.first:,}, counted from 0"


@rule("XP530", "row-not-read")
def row_not_read(spec: Spec) -> Iterator[Finding]:
    """Every row of a local file must be one that the datasets library can read: a JSON object, or a row of CSV. The
    complete file is read, up to 64 MiB.

    Why it is bad: one unreadable row makes the run fail.

    Without this rule: DatasetGenerationError at the launch, with a long traceback that does not name the row.

    Source: datasets 5.2 and 5.0 `packaged_modules/json` and `csv`; confirmed by running it.
    """
    for source in spec.files:
        found = rows.survey(source)
        broken = None if found is None else found.broken
        if broken is not None and not broken.encoding:
            yield Finding(
                source.label,
                f"row {broken.row:,} of `{source.name[:80]}` (line {broken.line:,}) cannot be read: {broken.why}",
                "fix the row in the file (rows are counted from 0, lines from 1)",
            )
        elif found is not None and broken is None and not found.rows:
            yield Finding(source.label, f"`{source.name[:80]}` has no rows", "add rows, or name other data")


@rule("XP531", "data-not-utf-8")
def not_utf_8(spec: Spec) -> Iterator[Finding]:
    """Data files must be UTF-8, with or without a byte order mark.

    Why it is bad: a single byte of another encoding stops the reading.

    Without this rule: UnicodeDecodeError at the launch; its message does not name the row.

    Source: datasets 5.2 and 5.0 `packaged_modules/json`, `csv` and `text`; confirmed by running it.
    """
    for source in spec.files:
        found = rows.survey(source)
        broken = None if found is None else found.broken
        if broken is not None and broken.encoding:
            encoding = "utf-16" if broken.why.endswith("UTF-16") else "latin1"
            yield Finding(
                source.label,
                f"row {broken.row:,} of `{source.name[:80]}` cannot be read: {broken.why}",
                f"save the file as UTF-8, for example with iconv -f {encoding} -t utf-8",
            )


@rule("XP532", "role-of-another-format", "warning")
def role_of_another_format(spec: Spec) -> Iterator[Finding]:
    """The roles of `messages` should be those that chat templates know: system, user, assistant, tool, developer, and
    any role that the template in use names. `human` and `gpt` are roles of from/value conversations, and are errors in
    `messages`, as are roles in capital letters, such as `Assistant`.

    Why it is bad: the template drops turns of an unknown role, or the model learns a role name that no program uses
    later.

    Without this rule: a template that tests for known roles silently drops all turns of unknown roles. A template that
    writes the role into the text shows the model a name that it has never seen. With `assistant_only`, an answer of an
    unknown role is not trained on.

    Source: chat templates of the registered models; confirmed by running it.
    """
    text = spec.chat_template
    for source, found in _shaped(spec):
        unexpected = {
            role: one
            for role, one in found.roles.items()
            if role not in ROLES and not (text and (f"'{role}'" in text or f'"{role}"' in text))
        }
        for role, one in unexpected.items():
            standard = _standard_role(role)
            yield Finding(
                source.label,
                _in_words(one, found, source, "has", "have", f"a turn of the role `{role}`"),
                f"rename the role to {standard} in the data"
                if standard is not None
                else "chat templates know " + ", ".join(ROLES) + "; rename the role in the data",
                severity="error" if standard is not None else None,
            )
            break


def _standard_role(role: str) -> str | None:
    """The standard role that a name of a role means: `user` for `human` and for `User`. None if the name means no
    standard role.
    """
    plain = role.strip().lower()
    return STANDARD_ROLES.get(plain, plain if plain in ROLES else None)


@rule("XP533", "nothing-to-learn", "warning")
def nothing_to_learn(spec: Spec) -> Iterator[Finding]:
    """Each row should have an answer or a text to learn from, and no turn of the assistant should be empty. If all rows
    of a file lack an answer, this is an error.

    Why it is bad: a row without an answer teaches the model to write nothing, or does not count in the loss.

    Without this rule: the run silently trains on only the end token of an empty answer, and on the user's words in a
    conversation without an assistant.

    Source: trl 1.16 and 0.18 `sft_trainer.py`, `dpo_trainer.py`, `kto_trainer.py`; confirmed by running it.
    """
    for source, found in _shaped(spec):
        if source.shape == "prompt" or source.shape not in spec.method.shapes:
            continue
        what = {"text": "an empty text", "tokens": "no token to learn"}.get(source.shape, "an empty answer")
        kinds = {"empty_answer": what}
        # the rule XP532 reports answers of the role `gpt`; with `assistant_only`, the rule XP602 reports a conversation
        # without an answer
        misnamed = any(role != "assistant" and _standard_role(role) == "assistant" for role in found.roles)
        if source.shape in ("messages", "conversations") and not (misnamed or spec.flag("method.assistant_only")):
            kinds["unanswered"] = "no turn of the assistant"
        for kind, words in kinds.items():
            one = found.tallies.get(kind)
            if one is not None:
                lines = source.documents == "line" and source.shape == "text"
                yield Finding(
                    source.label,
                    _in_words(one, found, source, "has", "have", words),
                    "remove the empty lines, or write `data(documents=paragraph)`: an empty line then ends a paragraph"
                    if lines
                    else "remove such rows from the data, or give them an answer",
                    severity="error" if _every(one, found) and "partly_empty" not in found.tallies else None,
                )


@rule("XP534", "empty-prompt", "warning")
def empty_prompt(spec: Spec) -> Iterator[Finding]:
    """A prompt, or a turn of the user, should contain at least one letter. A turn whose content is null is empty.

    Why it is bad: the model learns to give the row's answer without a question.

    Without this rule: the run silently trains on rows with an empty prompt.

    Source: the runtime's `rows.py`.
    """
    for source, found in _shaped(spec):
        one = found.tallies.get("empty_prompt")
        if one is not None:
            yield Finding(
                source.label,
                _in_words(one, found, source, "has", "have", "an empty prompt or turn of the user"),
                "remove such rows from the data, or give them a prompt",
            )


@rule("XP535", "repeated-rows", "note")
def repeated_rows(spec: Spec) -> Iterator[Finding]:
    """Rows should not repeat the prompt and the answer of an earlier row. Two rows count as equal if their prompts and
    their answers are equal, even if other columns differ. (`data { unique }` drops only rows that are equal in every
    kept column, and no rows of an evaluation set.) If the spec has a `holdout`, the note becomes a warning, and rows
    with the same prompt but different answers are reported, too. The rule does not see prompts that `prompt_template`
    makes of several columns.

    Why it is bad: a repeated row is trained on once more in each epoch. If one copy is held out, the evaluation uses a
    row that is also trained on.

    Without this rule: nothing is reported, and the loss on the held-out rows is too low.

    Source: xpc compares the rows of the file; confirmed by running it (`tests/proof/violations/data.py`).
    """
    if spec.get("data.prompt_template") is not None:
        return
    held = spec.get("data.holdout") is not None
    for source, found in _shaped(spec):
        again = found.tallies.get("prompt_again") if held and source in spec.data else None
        if again is not None and again.count - found.count("repeated") > FEW_DAMAGED * found.rows:
            yield Finding(
                source.label,
                _in_words(again, found, source, "has", "have", "the prompt of an earlier row, which may be held out"),
                "move all rows of some prompts to another file, and write `eval(data=FILE)` instead of `holdout`",
                severity="warning",
            )
    for source, found in _shaped(spec):
        one, trained = found.tallies.get("repeated"), source in spec.data
        if one is not None and not (trained and spec.flag("data.unique")):
            held_out = held and trained
            same = "text" if source.shape == "text" else "prompt and answer"
            what = f"the {same} of an earlier row" + ", so held-out rows may also be trained on" * held_out
            yield Finding(
                source.label,
                _in_words(one, found, source, "repeats", "repeat", what),
                "write `data(unique)` to drop repeated rows"
                if trained and source.shape not in WITH_IMAGES
                else "leave the repeated rows out of the file",
                severity="warning" if held_out else None,
            )


@rule("XP519", "prompt-in-the-answer", "warning")
def prompt_in_the_answer(spec: Spec) -> Iterator[Finding]:
    """An answer should not begin with its complete prompt. The trainer puts the answer after the prompt, so such rows
    contain the prompt twice. Only prompts and answers that are plain texts are compared. The rule reports a file if at
    least half of its answers begin with their prompts.

    Why it is bad: the model learns to repeat each question before it answers.

    Without this rule: nothing is reported.

    Source: trl 1.16, 0.24 and 0.18 join prompt and answer as they are; confirmed by running it.
    """
    for source, found in _shaped(spec):
        one = found.tallies.get("repeated_prompt")
        if one is not None and 2 * one.count >= found.rows:
            yield Finding(
                source.label,
                _in_words(one, found, source, "has", "have", "an answer that begins with its complete prompt"),
                "remove the prompts, or train on the answers as texts: `data(format=text, columns=[COLUMN])`",
            )


DAMAGED = {
    "mojibake": (
        "a text that was decoded by another encoding, such as `Ã©` for `é`",
        "repair the texts, for example with ftfy's `fix_text`, or make the file again as UTF-8",
    ),
    "entities": (
        "a text with HTML entities, such as `&amp;`",
        "decode the texts, for example with Python's `html.unescape`",
    ),
    "escaped_lines": (
        "a text with a backslash and an n in place of each newline",
        "replace these two characters by a newline, for example with Python's `text.replace(r'\\n', '\\n')`",
    ),
    "lost": (
        "a text with U+FFFD, or a text that is cut off within a character",
        "make the file again from its source: these characters are lost",
    ),
    "zero": (
        "a text with the character U+0000, which UTF-16 or binary data has when it is read as UTF-8",
        "make the file again as UTF-8, or remove the character, for example with Python's `text.replace('\\0', '')`",
    ),
}
"""Maps each kind of damage in a text, such as mojibake, to a pair: the words for messages, and the help."""
FEW_DAMAGED = 0.01
"""If a smaller share of the rows than this seems damaged, the finding is only a note, because correct texts about
encodings quote damaged texts.
"""


@rule("XP178", "damaged-text", "warning")
def damaged_text(spec: Spec) -> Iterator[Finding]:
    """The texts of rows should not be damaged, for example by a wrong encoding. xpc looks for five kinds of damage:
    UTF-8 that was decoded by another encoding (`Ã©` for `é`), HTML entities in a text without tags, a backslash and an
    n in place of newlines, U+FFFD (lost characters), and U+0000. If less than 1 % of rows are damaged, this is a note.

    Why it is bad: the model learns to write damaged texts.

    Without this rule: nothing is reported.

    Source: no library checks the texts of rows; confirmed by running it.
    """
    for source, found in _shaped(spec):
        for kind, (what, help) in DAMAGED.items():
            one = found.tallies.get(kind)
            if one is not None:
                few = one.count < FEW_DAMAGED * found.rows
                words = _in_words(one, found, source, "has", "have", what)
                yield Finding(source.label, words, help, severity="note" if few else None)


@rule("XP536", "nothing-to-prefer", "warning")
def nothing_to_prefer(spec: Spec) -> Iterator[Finding]:
    """The two answers of a preference pair should differ; if they are equal in all pairs, this is an error.

    Why it is bad: two equal answers leave nothing to prefer.

    Without this rule: nothing is reported; a pair of equal answers has a margin of 0 and no gradient.

    Source: the losses of `dpo_trainer.py` and `reward_trainer.py`; confirmed by running it.
    """
    for source, found in _shaped(spec):
        one = found.tallies.get("same") if source.shape == "preference" else None
        if one is not None and spec.text("method") != "kto":
            yield Finding(
                source.label,
                _in_words(one, found, source, "has", "have", "the same answer twice"),
                "remove such pairs from the data",
                severity="error" if _every(one, found) else None,
            )
