"""Find columns that say how a row should be learned but that no trainer reads, such as `documents` next to a
conversation.

The compiler calls these functions for rows of local files; the run calls them for a sample of every source's rows.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

QUESTIONS = ("conversations", "instruction", "question", "query", "problem", "messages")
"""Published preference pairs have their prompt in a column with one of these names."""


SCORES = (("chosen_score", "score_chosen", "chosen_rating"), ("rejected_score", "score_rejected", "rejected_rating"))
"""Names of the columns with the score of the chosen answer, and of those with the score of the rejected answer."""


WORDS = {
    "history": "earlier turns in a column `history`",
    "documents": "texts in a column `documents`",
    "row_weight": "a `weight` other than 1",
    "bad_answer": "a `label` of false",
    "lower_score": "a lower score for `chosen` than for `rejected`",
    "no_prompt": "two texts without a common question, and no prompt",
    "question": "the question in a column other than `prompt`",
    "thoughts": "reasoning in a column of its own",
    "system_prompt": "a system prompt in a column that is not called `system`",
}
"""Maps each problem that `unread` finds to a phrase for messages."""
IN_PROMPTS = ("history", "documents", "system_prompt")
"""Problems with text that belongs in the prompt. If reward functions get all columns, only these are reported."""
THOUGHTS = (
    "reasoning", "reasoning_content", "thinking", "think", "thought", "thoughts", "rationale", "cot",
    "chain_of_thought", "scratchpad", "reasoning_trace", "thought_process",
)  # fmt: skip
"""Names of columns that contain the reasoning of a row. A run reads reasoning only from turns."""
PROMPTED = ("prompt_completion", "preference", "unpaired", "prompt")
"""Shapes of rows that have a prompt."""
LONG = 12
"""A prompt with fewer characters is not compared with its answers, because an answer may begin with it by chance."""
SYSTEM = re.compile(r"(system|sys)[_ -]?(prompt|message|msg|content|instruction)s?", re.IGNORECASE)
"""Matches names of columns that probably contain a row's system prompt, but that no trainer reads."""


def unread(row: Mapping[str, object], shape: str, names: Sequence[str]) -> Iterator[str]:
    """Yield the names of a row's problems. `names` are the columns that the trainer reads. In each problem, a value
    that the trainer ignores says how the row should be learned:

    - `history`: the turns before a prompt, in LLaMA-Factory's alpaca rows
    - `documents`: texts for retrieval next to a conversation or a prompt
    - `row_weight`: a weight other than 1
    - `bad_answer`: a label of false next to a prompt and its completion
    - `no_solution`: a prompt without a column `solution` of text
    - `lower_score`: the scores of a preference pair say that the rejected answer is better
    - `no_prompt`: the two texts of a preference pair without a prompt share no more than two words at their beginning
    - `thoughts`: reasoning in a column of the row, next to a conversation or a prompt and its answers
    - `repeated_prompt`: an answer begins with its complete prompt, which has at least `LONG` characters
    - `question`: the prompt of a preference pair is in a column with another name than `prompt`
    """
    if row.get("history") and shape in PROMPTED:
        yield "history"
    if row.get("documents") and "documents" not in names and shape in ("messages", "conversations", *PROMPTED):
        yield "documents"
    if shape != "prompt" and any(visible(row.get(one)) for one in THOUGHTS if one not in names):
        yield "thoughts"
    if isinstance(weight := row.get("weight"), int | float) and weight != 1:
        yield "row_weight"
    if shape == "prompt_completion" and row.get("label") is False:
        yield "bad_answer"
    if shape == "prompt" and not visible(row.get("solution")):
        yield "no_solution"
    if shape == "preference" and any(map(_reversed, *(map(row.get, each) for each in SCORES))):
        yield "lower_score"
    prompted = shape == "prompt_completion" or (shape in PROMPTED[:3] and len(names) > 2)
    if prompted and _repeats_prompt(row.get(names[0]), row, names[1:]):
        yield "repeated_prompt"
    if shape == "preference" and len(names) == 2 and row.get("prompt") is None:
        chosen, rejected = row.get(names[0]), row.get(names[1])
        if _question_elsewhere(row, names):
            yield "question"
        elif visible(chosen) and visible(rejected) and not _share_question(str(chosen), str(rejected)):
            yield "no_prompt"


def _repeats_prompt(prompt: object, row: Mapping[str, object], names: Sequence[str]) -> bool:
    text = prompt.strip() if isinstance(prompt, str) else ""
    return len(text) >= LONG and any(str(row[one]).lstrip().startswith(text) for one in names if row.get(one))


def not_read_by(method: str, shape: str) -> str:
    """The end of a message about a column that the trainer does not read: "which dpo does not read", or, for GRPO,
    "which only reward functions read".
    """
    return "which only reward functions read" if rewarded(method, shape) else f"which {method} does not read"


def rewarded(method: str, shape: str) -> bool:
    """Whether reward functions get the columns of rows of this shape. `distill` has prompts but no rewards."""
    return shape == "prompt" and method != "distill"


def _reversed(chosen: object, rejected: object) -> bool:
    """Whether the chosen answer has a lower score than the rejected answer."""
    return isinstance(chosen, int | float) and isinstance(rejected, int | float) and chosen < rejected


def _question_elsewhere(row: Mapping[str, object], names: Sequence[str]) -> bool:
    """Whether the question of a preference pair is in a column that the trainer does not read, and not in the answers.
    Only the first answer is searched.
    """
    answer = row.get(names[0])
    if isinstance(answer, list) and answer and isinstance(answer[0], dict):
        first = answer[0].get("role", answer[0].get("from"))
        if first not in ("assistant", "gpt"):
            return False
    for value in (row[one] for one in QUESTIONS if one in row and one not in names):
        if (isinstance(value, list) and value) or (visible(value) and not (
            isinstance(answer, str) and str(value).strip() in answer
        )):  # fmt: skip
            return True
    return False


def _share_question(chosen: str, rejected: str) -> bool:
    """Whether two answers begin with the same text that may be a question: three words, or a mark such as `?`."""
    most = min(len(chosen), len(rejected))
    shared = chosen[: next((at for at in range(most) if chosen[at] != rejected[at]), most)]
    return chosen == rejected or len(shared.split()) > 2 or any(one in shared for one in "\n?:.=!")


def visible(value: object) -> bool:
    """Whether a value is a text with at least one character that is not white space."""
    return isinstance(value, str) and not value.isspace() and value != ""


def other_system(row: Mapping[str, object], names: Sequence[str]) -> bool:
    """Whether a column that is not called `system` contains a system prompt, and the first turn is no system prompt."""
    first = next((row[one][0] for one in names if isinstance(row.get(one), list) and row[one]), None)  # type: ignore
    spoken = isinstance(first, dict) and "system" in (first.get("role"), first.get("from"))
    return not spoken and any(SYSTEM.fullmatch(column) and visible(value) for column, value in row.items())


def declined(mark: object) -> bool:
    """Whether the value of a key such as `weight` or `train` means that the turn is not learned. In exports to formats
    such as CSV, this value is a text such as `"false"` or `"0"`.
    """
    mark = number_of(mark)
    return mark.strip().lower() in ("", "false", "no") if isinstance(mark, str) else not mark


def number_of(mark: object) -> object:
    """The number that a text such as `"0.0"` contains; any other value is returned unchanged."""
    try:
        return float(mark) if isinstance(mark, str) else mark
    except ValueError:
        return mark
