"""Rules about properties of rows that suggest that the file was made wrongly: control tokens, speakers' names, values
that are not texts, unfinished reasoning, unfinished conversations, and one answer for all rows (XP179 to XP183, XP185,
XP187, XP189).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.data.export_marks import CONTROL
from xpc.compiler.data.file_counts import CONSTANT, LAST_TURN
from xpc.compiler.rules.core.conditions import surveyed
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.data.plain_text import chats
from xpc.compiler.rules.data.structure import have, template_text
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.survey import Survey, Tally

WHEN = surveyed

FEW = 0.01
"""If a smaller share of the rows than this has control tokens, unfinished reasoning or the like, the finding is only a
note, because some rows quote such texts on purpose.
"""
HALF, NEARLY_ALL = 0.5, 0.9
SEVERAL = 8
"""In a file with fewer different rows than this, all rows may share a property (such as the same answer) by chance."""


def _read(spec: Spec) -> Iterator[tuple[DataSource, Survey]]:
    """Yield each source whose rows were read and have the right shape, with counts of what its rows contain."""
    for source in spec.files:
        found = rows.valid_survey(source)
        if found is not None and found.rows:
            yield source, found


def _share(found: Survey, kind: str) -> float:
    return found.count(kind) / found.rows


def _different(found: Survey) -> int:
    """The number of distinct rows in a file."""
    return found.rows - found.count("repeated")


def _few(one: Tally, found: Survey) -> str | None:
    return "note" if one.count < FEW * found.rows else None


@rule("XP179", "control-tokens-in-texts", "warning")
def control_tokens(spec: Spec) -> Iterator[Finding]:
    """The texts of a conversation should not contain control tokens of a chat template, such as `<|im_end|>` or
    `[INST]`, because the template writes them. Plain text may contain control tokens of the trained model, but not
    those of other models, and not a begin token such as `<|begin_of_text|>`, which the tokenizer adds. If less than 1 %
    of the rows have such tokens, this is a note.

    Why it is bad: the template is applied twice, so the model learns to end its turn within an answer, or to write the
    beginning of a turn. Tokens of another model's template are split into pieces, and learned as text.

    Without this rule: nothing is reported; `xpc preview` (XP587) finds control tokens in the rows that it shows.

    Source: transformers 5.23 `tokenization_utils_base.py` tokenizes the rendered text, in which a control token of a
    row is the same as one of the template; confirmed by running it.
    """
    for source, found in _read(spec):
        marks = {kind[len(CONTROL) :]: one for kind, one in found.tallies.items() if kind.startswith(CONTROL)}
        talks = source.shape == "prompt" or rows.conversational(source) is not False
        if not talks:
            marks = {token: one for token, one in marks.items() if _foreign(spec, token)}
        if not marks:
            continue
        token, one = max(marks.items(), key=lambda item: item[1].count)
        yield Finding(
            source.label,
            f"{have(one, found, source)} the control token `{token}` in a text"
            + (", to which the chat template adds its own" if talks else f", and {spec.model.name} has no such token"),
            "remove the markup from the texts, and write the turns as `messages`"
            if talks
            else "write the rows as `messages`, which the model's own chat template renders",
            (spec.model.label,),
            severity=_few(one, found),
        )
    yield from _begin_tokens(spec)


def _begin_tokens(spec: Spec) -> Iterator[Finding]:
    """Report plain texts that start with a begin token. The tokenizer would add a second begin token."""
    for source, found in _read(spec):
        one = found.tallies.get("begin")
        if one is not None and _share(found, "begin") >= HALF and rows.conversational(source) is False:
            yield Finding(
                source.label,
                f"{have(one, found, source)} a text that begins with a begin token, and the tokenizer adds another",
                "remove the token from the texts",
            )


def _foreign(spec: Spec, token: str) -> bool:
    """Whether xpc knows that `token` is not a control token of the model."""
    # `[INST]` and `<<SYS>>` are not in Llama 2's vocabulary, so look for them in the template
    if "INST" in token or "SYS" in token:
        template = spec.chat_template or ""
        return bool(template) and token not in template
    from xpc.compiler.rules.core.chat_tokens import unknown_tokens

    return token in unknown_tokens(spec, token)


@rule("XP180", "speaker-in-the-answer", "warning")
def speaker(spec: Spec) -> Iterator[Finding]:
    """The assistant's turns of a conversation should not begin with the name of a speaker, such as `Assistant:` or
    `Human:`, because the chat template already writes the role of each turn. This rule reports a file if at least half
    of its rows have such a turn.

    Why it is bad: the model learns to begin each answer with a speaker's name, or to write the user's turns as well.

    Without this rule: nothing is reported.

    Source: no library reads the texts of turns; confirmed by running it.
    """
    for source, found in _read(spec):
        one = found.tallies.get("speaker")
        if one is None or _share(found, "speaker") < HALF or not rows.conversational(source):
            continue
        yield Finding(
            source.label,
            f"{have(one, found, source)} an answer that begins with the name of a speaker, such as `Assistant:`",
            "remove the names from the texts; split a transcript into the turns of `messages`",
        )


@rule("XP181", "reasoning-not-closed", "warning")
def not_closed(spec: Spec) -> Iterator[Finding]:
    """An answer with reasoning should have as many `<think>` as `</think>`. An answer that only closes its reasoning is
    accepted if the chat template splits answers at `</think>`, or if the prompt ends with `<think>`. If less than 1 %
    of the rows have such an answer, this is a note.

    Why it is bad: if `</think>` is missing, the model learns to reason without an end, and programs that remove the
    reasoning from a completion find no answer after it. If `<think>` is missing, the model learns to close a block that
    it did not open.

    Without this rule: nothing is reported.

    Source: the chat templates of Qwen3 and DeepSeek-R1, which split an answer at `</think>`; confirmed by rendering
    such rows.
    """
    template = template_text(spec)
    for source, found in _read(spec):
        kinds = {"open_thoughts": "more `<think>` than `</think>`"}
        if "</think>" not in template or not rows.conversational(source):
            kinds["unopened_thoughts"] = "more `</think>` than `<think>`"
        for kind, words in kinds.items():
            one = found.tallies.get(kind)
            if one is not None:
                yield Finding(
                    source.label,
                    f"{have(one, found, source)} an answer with {words}",
                    "write the reasoning between <think> and </think>, and leave out answers that were cut off",
                    severity=_few(one, found),
                )


@rule("XP182", "one-answer-for-all-rows", "warning")
def one_answer(spec: Spec) -> Iterator[Finding]:
    """The rows of a file should not all have the same answer, or the same rejected answer. Files with fewer than eight
    different rows are not checked.

    Why it is bad: if all rows have one answer, the model learns to give it to every prompt. If all rejected answers are
    equal, the model learns only to avoid one text.

    Without this rule: nothing is reported, and the loss falls to almost 0.

    Source: no library compares the rows of a file; confirmed by running it.
    """
    for source, found in _read(spec):
        if _different(found) < SEVERAL or source.shape in ("text", "tokens", "prompt"):
            continue
        names, count = rows.columns(source), 1 if source.shape != "preference" else 2
        answers = names[-count:] if source.shape != "unpaired" else names[-2:-1]
        turns = source.shape in ("messages", "conversations")
        answers = (LAST_TURN,) if turns else answers
        same = next((name for name in answers if CONSTANT + name in found.tallies), None)
        if same is not None and found.count("empty_answer") < found.rows:
            what = "last turn" if turns else f"column `{same}`"
            yield Finding(
                source.label,
                f"the {what} is the same in all {found.rows:,} rows of `{source.name[:80]}`",
                "give each row its own answer, or name the column with the answers: `columns`",
            )


@rule("XP183", "last-turn-not-answered", "warning")
def not_answered(spec: Spec) -> Iterator[Finding]:
    """A conversation should end with the assistant's turn. This rule reports a file if at least half of its
    conversations end with a turn of the user. If the conversations also begin with the assistant's turn, the two roles
    are probably swapped.

    Why it is bad: the last question is trained on as text, or not at all, and its answer is missing. With swapped
    roles, the model learns to ask.

    Without this rule: nothing is reported.

    Source: trl 1.16 `sft_trainer.py` trains on conversations that end with any role; confirmed by running it.
    """
    for source, found in _read(spec):
        one = found.tallies.get("last_question")
        # rows without any answer are reported by the rules XP533 and XP602
        if one is None or _share(found, "last_question") < HALF or found.count("unanswered"):
            continue
        swapped = _share(found, "answer_first") >= HALF
        yield Finding(
            source.label,
            f"{have(one, found, source)} a conversation that ends with a turn of the user"
            + (" and begins with the assistant's" if swapped else ""),
            "swap the roles: the user asks, and the assistant answers"
            if swapped
            else "add the last answer to the rows, or leave the last question out",
        )


@rule("XP185", "answer-joined-to-its-prompt", "warning")
def joined(spec: Spec) -> Iterator[Finding]:
    """If prompts and answers are plain text, there should be a space or a line break between them: the prompt `Answer:`
    and the answer ` Paris`. This rule reports a file with at least eight different rows if 90 % of its rows or more
    lack such a space or line break. For a chat model, the rule XP186 warns instead.

    Why it is bad: the prompt and the answer are joined as they are, `Answer:Paris`. In use, a prompt is usually
    followed by a space. The model has never seen this space in training, and with it, the first token of the answer is
    a different one (` Paris` instead of `Paris`).

    Without this rule: nothing is reported.

    Source: trl 1.16 `sft_trainer.py` and `dpo_trainer.py` (`prompt + completion`); confirmed by running it.
    """
    if chats(spec.model) or spec.get("data.prompt_template") is not None:
        return
    for source, found in _read(spec):
        one = found.tallies.get("joined")
        if one is None or _share(found, "joined") < NEARLY_ALL or _different(found) < SEVERAL:
            continue
        if source.wording or rows.conversational(source):
            continue
        yield Finding(
            source.label,
            f"{have(one, found, source)} a prompt and an answer that are joined without a space, as in `Answer:Paris`",
            "begin the answers with a space, or end the prompts with a line break",
        )


VALUES = {
    "missing": ("a text such as `nan`, which stands for a missing value", FEW, "leave such rows or cells out"),
    "nothing": ("the text `None`, `null` or `undefined`, which may stand for a missing value", 0.0, "look at the rows"),
    "python_value": (
        "an answer that is a list or dict of Python, such as `['Paris']`",
        NEARLY_ALL,
        "replace the value by the text in it, for example with Python's `ast.literal_eval`",
    ),
    "quoted": (
        "an answer in quotation marks",
        NEARLY_ALL,
        "remove the marks, for example with Python's `json.loads`, if the texts were encoded twice",
    ),
    "placeholder": (
        "a column of the row as a placeholder, such as `{question}`, in a text",
        HALF,
        "fill the placeholders in the file, or write `data(prompt_template=...)`",
    ),
    "choice": (
        "names of answers, such as `A` and `B`, in place of the two answers",
        NEARLY_ALL,
        "write the texts of the two answers into the columns that are read",
    ),
}
"""Maps each kind of value that may stand in place of a text to a triple: its name in messages, the share of rows from
which it is reported, and the help.
"""


@rule("XP187", "value-in-place-of-a-text", "warning")
def values_for_texts(spec: Spec) -> Iterator[Finding]:
    """Texts should not be values that a program has written: `nan` for a missing value, a list or dict of Python such
    as `['Paris']`, a text in quotation marks that was encoded twice, a placeholder such as `{question}`, or `A` and `B`
    in place of two answers. Missing values in less than 1 % of the rows are only a note, and so is the text `None`.
    Lists, dicts and quoted texts are reported if at least 90 % of the rows have them, and placeholders if at least half
    of the rows do.

    Why it is bad: the model learns to write values such as `nan` or `['Paris']`.

    Without this rule: nothing is reported.

    Source: pandas 2 `to_json` and Python's `str`, which write such texts; no library looks for them.
    """
    for source, found in _read(spec):
        for kind, (words, least, help) in VALUES.items():
            one = found.tallies.get(kind)
            if one is None or (least > FEW and (_share(found, kind) < least or found.rows < SEVERAL)):
                continue
            few = kind == "nothing" or (least == FEW and one.count < FEW * found.rows)
            yield Finding(source.label, f"{have(one, found, source)} {words}", help, severity="note" if few else None)


CALLS = {
    "unknown_tool": ("a call of a function that is not among the row's tools", "describe the function in `tools`"),
    "call_in_text": ("a tool call both in the text and in `tool_calls` of a turn", "delete the call in the text"),
    "result_without_call": (
        "a tool's result right after a question, without a call",
        "add the assistant's turn with the call, or leave the result out",
    ),
    "repeated_call_id": (
        "two calls with the same `id` in one turn",
        "give each call its own id, and each result the id of its call",
    ),
    "unknown_call_id": (
        "a tool's result whose `tool_call_id` is not the id of a call before it",
        "write the id of the call that the result answers",
    ),
}


@rule("XP189", "calls-and-tools-differ", "warning")
def calls_and_tools(spec: Spec) -> Iterator[Finding]:
    """A turn should not contain the same tool call twice, and a call should come before its result. If calls have ids,
    the calls of a turn should have different ids, and a result should name the id of an earlier call. In rows with a
    column `tools`, a call should name one of these tools. With `data(omit=[tool_calls])`, calls are not checked.

    Why it is bad: the model learns to call functions that it was not given, to write each call twice, or to get results
    of calls that it has not made. If a result has a wrong id, it seems to be the result of another call.

    Without this rule: nothing is reported.

    Source: the chat templates of Qwen2.5 and Qwen3, which write text and calls of a turn; confirmed by rendering such
    rows.
    """
    omit = spec.names("data.omit")
    for source, found in _read(spec):
        for kind, (words, help) in CALLS.items():
            one = found.tallies.get(kind)
            if one is not None and "tool_calls" not in omit and "tools" not in omit:
                yield Finding(
                    source.label,
                    f"{have(one, found, source)} {words}",
                    f"{help} in the data",
                    severity=_few(one, found),
                )
