"""Rows with a prompt: prompts with completions, preferences, labelled answers, and prompts only."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...core import rows
from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Rows, Source, Tokenizer
from ...core.row_comparison import sampled_rows
from ...core.rows import KEPT, RowFormat, from_value, name, with_system
from . import chat as chat_rows
from .chat import messages, string

SHAPES = {
    "prompt_completion": ("prompt", "completion"), "preference": ("chosen", "rejected"),
    "unpaired": ("prompt", "completion", "label"), "prompt": ("prompt",),
}  # fmt: skip
"""Maps each format to its columns. A source in the spec names its dataset's columns in the same order."""
RESERVED = ("messages", "chosen", "rejected", "completion", "prompts", "completions", "completion_ids")
"""Columns from which trl infers the format of a row, and columns that are named like arguments which trl itself passes
to reward functions."""
ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:\n"
)
ALPACA_WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
    "response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
)
"""The prompts of Alpaca's rows, as in the column ``text`` of tatsu-lab/alpaca."""


def columns(source: Source, present: Sequence[str]) -> dict[str, str]:
    """For each part of the format, the dataset's column: `{"prompt": "question"}`; ``present`` are all its columns.

    A preference has a prompt if the source names three columns (the first is the prompt) or, without names, has a
    column ``prompt``. For the format unpaired, two named columns are the conversation (its last turn is the answer) and
    the label. For the format prompt, the first named column is the prompt, and all others are for the reward functions.
    Raises RunError if the number of names does not fit the format.
    """
    shape = source["shape"]
    if shape not in SHAPES:
        return rows.columns(source, present)
    parts = SHAPES[shape]
    given = [one for one in source["columns"] or () if one not in KEPT]
    if not given:
        prompt = ("prompt",) if shape == "preference" and "prompt" in present else ()
        return {one: one for one in (*prompt, *parts)}
    if shape == "preference" and len(given) == 3:
        parts = ("prompt", *parts)
    if shape == "unpaired" and len(given) == 2:
        parts = parts[1:]
    if shape == "prompt":
        given = given[:1]
    if len(given) != len(parts):
        raise RunError(f"{name(source)} names {len(given)} column(s), and the shape {shape} needs {len(parts)}")
    return dict(zip(parts, given, strict=True))


def dropped(source: Source, present: Sequence[str], method: str) -> list[str]:
    """The stored columns that the trainer does not get.

    Reward functions get every column of their source, or only those that the source names. trl decides by one of the
    first four `RESERVED` columns whether a row is a conversation, and two processes may use different ones
    (data_utils.is_conversational iterates over a set). So these four are dropped from rows with a prompt. A reward
    model's trainer also reads ``margin``.
    """
    if source["shape"] != "prompt":
        margin = method == "reward" and (not source.get("only") or "margin" in (source["columns"] or ()))
        return [one for one in rows.dropped(source, present, method) if one != "margin" or not margin]
    used = (source["columns"] or ())[1:] or present  # the first named column is the prompt
    prompt = columns(source, present)["prompt"]
    return [one for one in present if one not in used or one == prompt or one in ("prompt", *RESERVED)]


def conversations(row: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """The conversations of a converted row that the chat template renders. Empty if the row has only plain texts."""
    prompt = row.get("prompt") or []
    if isinstance(row.get("messages"), list) or isinstance(prompt, str):
        return rows.conversations(row)
    answers = [row[one] for one in ("completion", "chosen", "rejected") if isinstance(row.get(one), list)]
    return [[*prompt, *answer] for answer in answers or [[]] if prompt or answer]


def to_row(
    source: Source,
    row: Mapping[str, Any],
    index: int,
    system: str | None = None,
    text: str = "text",
    method: str = "sft",
    chat: bool = True,
) -> dict[str, Any]:
    """Convert one stored row to trl's form, by the source's shape:

    - prompt_completion: ``prompt`` and ``completion``; in Alpaca's prompt format if ``wording`` is "alpaca";
    - preference: ``prompt``, ``chosen`` and ``rejected``; for a reward model, both answers include the prompt;
    - unpaired: ``prompt``, ``completion`` and ``label``;
    - prompt: ``prompt``; if the tokenizer has a chat template (``chat``), a text becomes a user turn, as in Open-R1's
      grpo.py, because instruct models need it.

    If the source's ``wording`` is "chat", texts become turns: the prompt a user's turn, an answer an assistant's turn.
    The text of the column ``context``, if there is one, is appended to a text prompt. chat.py converts other shapes.
    """
    shape, where = source["shape"], f"{name(source)}, row {index}"
    if shape not in SHAPES:
        return chat_rows.to_row(source, row, index, system, text)
    values = {role: row[column] for role, column in columns(source, list(row)).items()}
    if source.get("context") or (source.get("wording") and "prompt" in values):
        values["prompt"] = _with_context(source, values.get("prompt"), row.get(source.get("context") or ""), where)
    if source.get("wording") == "chat":
        values = {role: _turn(value, role) for role, value in values.items()}
    if shape == "prompt_completion":
        return _pair(values, where, system)
    if shape == "preference":
        return _preference(values, where, system, full=method == "reward")
    if shape == "unpaired":
        return _unpaired(values, where, system)
    return {"prompt": _prompt_only(values["prompt"], where, system, chat)}


def _turn(value: object, role: str) -> object:
    """A text as a conversation of one turn, with the role of its column. Any other value is returned unchanged."""
    speaker = {"prompt": "user", "completion": "assistant", "chosen": "assistant", "rejected": "assistant"}.get(role)
    return [{"role": speaker, "content": value}] if isinstance(value, str) and speaker is not None else value


def _with_context(source: Source, prompt: object, context: object, where: str) -> object:
    """The prompt followed by the text of the context column: in Alpaca's format, or joined by line breaks."""
    if context is not None and not isinstance(context, str):
        raise RunError(f"{where}: the {source['context']} is {type(context).__name__}; it must be text")
    if source.get("wording") == "alpaca":
        query = string(prompt, where, "instruction")
        return (
            ALPACA_WITH_INPUT.format(instruction=query, input=context) if context else ALPACA.format(instruction=query)
        )
    if source.get("wording") == "chat" and isinstance(prompt, str | None):
        return "\n".join(one for one in (prompt, context) if one)  # as LLaMA-Factory joins question and input
    if context and not isinstance(prompt, str):
        raise RunError(f"{where}: the prompt must be a text, because the row has a context")
    return f"{prompt}\n\n{context}" if context else prompt


def _pair(values: Mapping[str, object], where: str, system: str | None) -> dict[str, object]:
    prompt, completion = values["prompt"], values["completion"]
    if isinstance(prompt, str):
        return {"prompt": prompt, "completion": string(completion, where, "completion")}
    return {"prompt": with_system(messages(prompt, where), system), "completion": messages(completion, where)}


def _preference(values: Mapping[str, Any], where: str, system: str | None, full: bool) -> dict[str, object]:
    """The prompt and both answers of a row. With ``full`` (for a reward model), only both answers, each with its
    prompt.

    If the answers already begin with the prompt (ultrafeedback_binarized has a text prompt next to complete
    conversations), the prompt is taken from the answers, as in trl (data_utils.maybe_extract_prompt).
    """
    prompt, answers = values.get("prompt"), (values["chosen"], values["rejected"])
    if isinstance(prompt, str | None) and all(isinstance(one, str) for one in answers):
        query, chosen, rejected = (prompt, *answers) if prompt is not None else split_prompt(*answers)
        if full:
            return {"chosen": query + chosen, "rejected": query + rejected}
        return {"prompt": query, "chosen": chosen, "rejected": rejected}
    best, worst = (answer(one, where) for one in answers)
    turns = question(prompt, where) if prompt is not None else []
    if _begins(best, turns, prompt) and _begins(worst, turns, prompt):
        turns, best, worst = split_prompt(best, worst)
    if not turns:
        raise RunError(f"{where}: the chosen and the rejected answer share no prompt")
    turns = with_system(turns, system)
    if full:
        return {"chosen": turns + best, "rejected": turns + worst}
    return {"prompt": turns, "chosen": best, "rejected": worst}


def _begins(answer: list[dict[str, object]], prompt: list[dict[str, object]], given: object) -> bool:
    """Whether an answer is the complete conversation, that is, whether it begins with the prompt."""
    if isinstance(given, str):
        return str(answer[0]["role"]) != "assistant"
    return answer[: len(prompt)] == prompt


def split_prompt(chosen: Any, rejected: Any) -> tuple[Any, Any, Any]:
    """Three values: the common beginning of two answers (in turns, or in characters of texts), and the rest of each.

    Each rest has at least one turn or character. A space at a rest's beginning belongs to the rest (trl,
    extract_prompt).
    """
    most = min(len(chosen), len(rejected)) - 1
    shared = next((i for i in range(most + 1) if chosen[i] != rejected[i]), most)
    shared = max(shared, 0)
    if isinstance(chosen, str) and shared and chosen[shared - 1] == " ":
        shared -= 1
    return chosen[:shared], chosen[shared:], rejected[shared:]


def _unpaired(values: Mapping[str, object], where: str, system: str | None) -> dict[str, object]:
    label = values["label"]
    if label not in (True, False) or isinstance(label, float):
        raise RunError(f"{where}: the label is {label!r}; it must be true or false")
    completion = values["completion"]
    if "prompt" not in values:
        *query, last = _turns(completion, where)
        if not query or last["role"] != "assistant":
            raise RunError(f"{where}: the conversation does not end with an answer to a question")
        return {"prompt": with_system(query, system), "completion": [last], "label": bool(label)}
    prompt = values["prompt"]
    if isinstance(prompt, str) and isinstance(completion, str):
        return {"prompt": prompt, "completion": completion, "label": bool(label)}
    turns = with_system(question(prompt, where), system)
    return {"prompt": turns, "completion": answer(completion, where), "label": bool(label)}


def _prompt_only(prompt: object, where: str, system: str | None, chat: bool) -> object:
    if isinstance(prompt, str) and not chat and system is None:
        return prompt
    return with_system(question(prompt, where), system)


def question(prompt: Any, where: str) -> list[dict[str, object]]:
    """A prompt as a list of messages: a text becomes one turn of the user."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else _turns(prompt, where)


def answer(value: Any, where: str) -> list[dict[str, Any]]:
    """An answer as a list of messages: a text or a single message becomes one turn of the assistant."""
    if isinstance(value, str):
        return [{"role": "assistant", "content": value}]
    return _turns(value, where)


def _turns(turns: object, where: str) -> list[dict[str, object]]:
    """The messages of a conversation, or a single message, with a role and a content or with `from` and `value`."""
    turns = [turns] if isinstance(turns, dict) else turns
    if isinstance(turns, list) and turns and isinstance(turns[0], dict) and "from" in turns[0]:
        return from_value(turns, where)
    return messages(turns, where)


def _boundary_moves(row: dict[str, Any], tokenizer: Tokenizer) -> bool:
    """Whether the tokens of a prompt change if its completion follows. If so, trl warns and cuts tokens."""
    prompt, answer = row.get("prompt"), row.get("completion", row.get("chosen"))
    if prompt is None or answer is None:
        return False
    prompt_text, full = prompt, prompt + answer
    if not isinstance(prompt, str):
        prompt_text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        full = tokenizer.apply_chat_template(full, tokenize=False)
    first, both = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt_text, full))
    return bool(both[: len(first)] != first)


def _without_prompt(row: Mapping[str, Any], tokenizer: Tokenizer) -> str | None:
    """The column of the first answer that the template does not render right after its prompt; trl 0.18 refuses such a
    row. None if there is no such answer.
    """
    prompt = row.get("prompt")
    if not isinstance(prompt, list):
        return None
    last = prompt[-1]["role"]
    begin = {"add_generation_prompt": last != "assistant", "continue_final_message": last == "assistant"}
    first = tokenizer.apply_chat_template(prompt, tokenize=False, **begin)
    answers = (one for one in ("completion", "chosen", "rejected") if isinstance(row.get(one), list))
    texts = {one: tokenizer.apply_chat_template([*prompt, *row[one]], tokenize=False) for one in answers}
    return next((one for one, text in texts.items() if not text.startswith(first)), None)


FORMAT = RowFormat(columns, dropped, conversations, to_row)


class PromptRows(Feature):
    """Hooks for a run on rows that have a prompt."""

    tokenizer: Any = None

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Tokenizer) -> None:
        """Remember the tokenizer, which renders some rows of each source later."""
        self.tokenizer = tokenizer

    def source_mapped(self, bundle: Bundle, source: Source, rows: Rows) -> Rows:
        """Raise RunError for a row that trl would refuse because the text of the row does not begin with its prompt."""
        if bundle.stack.get("prompts_begin_rows") and getattr(self.tokenizer, "chat_template", None):
            for number in sampled_rows(rows):
                if (column := _without_prompt(rows[number], self.tokenizer)) is not None:
                    raise RunError(
                        f"{name(source)}, row {number}: `{column}` begins with a turn of the role "
                        f"{rows[number][column][0]['role']!r}, which the chat template does not write right after the "
                        "prompt, and this version of trl refuses such rows: move the turns before the last answer into "
                        "the prompt"
                    )
        return rows

    def row_format(self, bundle: Bundle) -> RowFormat:
        """The row format. It converts all rows, with or without a prompt."""
        return FORMAT

    def first_rows_note(self, bundle: Bundle, rows: list[dict[str, object]], tokenizer: Tokenizer) -> str:
        """A note if these rows are plain text although there is a chat template, or if a prompt's tokens change when
        its answer follows.
        """
        plain = all(isinstance(row.get("completion", row.get("chosen")), str) for row in rows)
        note = "; plain text, which the chat template does not wrap" if plain and tokenizer.chat_template else ""
        if any(_boundary_moves(row, tokenizer) for row in rows):
            note += "; the last tokens of a prompt change when its answer follows, and count as part of the answer"
        return note
