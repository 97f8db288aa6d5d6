"""Derive the row format of a script's data from its columns: texts, prompts and completions, conversations, or
preference pairs.
"""

from __future__ import annotations

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python.data import Data
from xpc.compiler.importing.python.interpreter.values import Argument, Column, Location, Object, Unknown
from xpc.compiler.importing.python.row_shape import ENDED, ONCE, PREFERRED, Shape
from xpc.compiler.importing.python.rows import (
    Prompt,
    Turns,
    columns_of,
    divided,
    is_ended,
    prompt_of,
    rendered,
    stripped_columns,
    turns_of,
    unstripped,
)
from xpc.compiler.importing.trl import versions
from xpc.compiler.language.methods import METHODS

TEXTS = (
    "in the script, prompts are texts, and reward functions get completions as texts; in the spec, prompts and "
    "completions are turns if the tokenizer has a chat template, as in Open-R1"
)
RENDERED = (
    "the script renders the prompts, so reward functions get completions as texts; in the spec, prompts and "
    "completions are turns"
)
ANSWERS = "the script trains only on answers; a spec cannot find the answer in a text"


def write(
    draft: Draft,
    data: Data,
    location: Location,
    field: Argument | None,
    text: object,
    masked: bool,
    plain: bool = False,
) -> tuple[str, ...]:
    """Set the row format of a data source. Returns the source's columns.

    `field` is the argument `dataset_text_field`, and `text` the value of `formatting_func` for a row. `masked` is true
    if the script trains only on answers, and `plain` if it uses transformers' Trainer.
    """
    shape = Shape(draft, data, location, (), plain)
    if draft.method == "sft":
        _sft(shape, field, text, masked)
    elif METHODS[draft.method].grouped:
        _prompts(shape)
    elif draft.method in ("dpo", "orpo", "cpo", "reward"):
        _preference_columns(shape, ("chosen", "rejected"), "preference")
    elif draft.method == "kto":
        _preference_columns(shape, ("completion",), "unpaired")
    elif data.columns:
        for key in data.columns:
            shape.refuse(key)
    _stripped(shape, text)
    return shape.columns


def _stripped(shape: Shape, text: object) -> None:
    """Report a difference if the script strips white space from answers: a run of the spec trains on unstripped
    answers.
    """
    answers = shape.columns[1:] or ("completion", "chosen", "rejected")
    for key, one in (*shape.data.columns.items(), ("formatting_func", text)):
        if stripped_columns(one) & set(answers):
            why = "the script strips white space from the answers; the spec trains on the unstripped answers"
            shape.draft.differs(key, why, shape.entry(key))
            return


def _sft(shape: Shape, field: Argument | None, text: object, masked: bool) -> None:
    made, draft = shape.data.columns, shape.draft
    name = field.value if field is not None and isinstance(field.value, str) else "text"
    if isinstance(text, Unknown):
        why = f"the import cannot read how the script makes a text from a row: {text.why}"
        draft.error(text.location.entry("formatting_func"), why, ONCE)
        return
    tokenized = shape.plain and name in made  # with transformers' Trainer, the script tokenizes the text itself
    key = "messages" if "messages" in made else "conversations"
    # if the rows keep no other column, the trainer can only train on the conversation
    chat = field is None or (shape.data.removed and name not in made)
    if text is None and chat and key in made and not tokenized:
        _conversation(shape, turns_of(made[key]), key, masked)
    elif text is None and "prompt" in made and "completion" in made and name not in made:
        _completion(shape, masked)
    elif text is None and name not in made:
        if masked and not shape.data.conversations:
            shape.refuse(name, ANSWERS)
        if field is not None:
            shape.columns = (name,)
            draft.put("data.format", "text", field.location.entry("dataset_text_field", name))
            shape.end("dataset_text_field", False)
        elif shape.data.conversations:
            draft.put("data.format", "conversations")
            if masked:
                draft.put("method.assistant_only", True, None, "the script trains only on answers")
        elif shape.before(ENDED):
            draft.differs(
                "text",
                f"if the rows are texts: {shape.before(ENDED)} adds no eos token to them; a run of the spec adds one "
                "and trains on it",
            )
    else:
        _text(shape, name if text is None else "formatting_func", made[name] if text is None else text, masked)


def _text(shape: Shape, key: str, value: object, masked: bool) -> None:
    """Set the row format for rows that are one string: a column, a rendered conversation, or a prompt that ends with an
    answer.
    """
    draft = shape.draft
    _ignored(shape, key, value)
    if masked and isinstance(value, Column):
        shape.refuse(key, ANSWERS)
        return
    if isinstance(value, Column):
        shape.columns = (value.name,)
        draft.put("data.format", "text", shape.entry(key, value.name))
        shape.end(key, False)
        return
    if rendered(value) is not None:
        turns = turns_of(value)
        if turns is not None and turns.generation:
            shape.refuse(key, "its conversations end where an answer begins (`add_generation_prompt`)")
            return
        _conversation(shape, turns, key, masked)
        _twice(shape, key, value)
        return
    found = divided(value)
    if found is None:
        why = "the import reads only texts of a prompt followed by an answer"
        shape.refuse(key, value.why if isinstance(value, Unknown) else why)
        return
    head, answer, ended = found
    if head.known is not None and head.known and not head.template:
        shape.refuse(key, "its prompt has no column")
        return
    prompt = shape.template(head, key)
    if prompt is None and masked:
        shape.refuse(key, ANSWERS)
        return
    if prompt is None:
        shape.columns = (answer,)
        draft.put("data.format", "text", shape.entry(key, answer))
        _ended(shape, key, ended)
        return
    shape.pair(prompt, answer, key)
    shape.learn(masked, "the whole text")
    _ended(shape, key, ended)


def _ended(shape: Shape, key: str, ended: bool | str) -> None:
    """Report a difference if the script's texts do not end with the tokenizer's eos token, because a run of the spec
    adds this token. `ended` is the string that the script adds, or false.
    """
    shape.end(key, is_ended(ended))
    if isinstance(ended, str) and not is_ended(ended):
        why = "the script's texts end with white space, such as a newline; the spec's do not"
        shape.draft.differs(key, why, shape.entry(key))
    elif isinstance(ended, str):
        why = f"the script ends its texts with `{ended}`; the spec trains on the tokenizer's end token"
        shape.draft.differs(key, f"{why} (`model {{ eos }}` names another end token)", shape.entry(key))


def _ignored(shape: Shape, key: str, value: object) -> None:
    """Report that TRL ignores the text that the script builds, because it trains on the rows' columns `prompt` and
    `completion`.
    """
    if shape.plain or shape.data.removed or not {"prompt", "completion"} <= columns_of(value):
        return
    order = versions.numbers()
    if order.index(shape.draft.fitting[-1] if shape.draft.fitting else "1.16") >= order.index(PREFERRED):
        shape.draft.differs(
            key,
            f"the rows keep their columns `prompt` and `completion`, and trl since {PREFERRED} trains on these instead "
            "of the text; the spec trains on the text",
            shape.entry(key),
        )


def _twice(shape: Shape, key: str, value: object) -> None:
    """Report that special tokens may occur twice: the chat template writes them, and the trainer's tokenizer adds them
    again. Unsloth removes a repeated bos token.
    """
    call = rendered(value)
    tokenizer = call.receiver if call is not None else None
    if isinstance(tokenizer, Object) and ("unsloth" in tokenizer.path or "Fast" in tokenizer.path):
        return
    last = "" if shape.plain else f", and trl since {ENDED} adds an end token to a text that does not end with it"
    shape.draft.differs(
        key,
        "the script renders the conversation and tokenizes the text: the tokenizers of Llama, Mistral and Gemma then "
        f"repeat the template's bos token{last}; the spec has each special token once",
        shape.entry(key),
    )


def _conversation(shape: Shape, turns: Turns | None, key: str, masked: bool) -> None:
    draft = shape.draft
    if turns is None:
        shape.refuse(key)
        return
    if turns.column:
        name = turns.column
        if name != "messages":
            shape.columns = (name,)
        form = "conversations" if name == "conversations" or shape.data.conversations else "messages"
        draft.put("data.format", form, shape.entry(key, name))
        if masked:
            draft.put("method.assistant_only", True, None, "the script trains only on answers")
        return
    if turns.user is None or turns.answer is None or not turns.answer.column:
        shape.refuse(key, "the answer is not a single column, or the conversation has further turns")
        return
    prompt = shape.template(turns.user, key)
    if prompt is None:
        shape.refuse(key, "its prompt has no column")
        return
    shape.turns(turns, key)
    shape.pair(prompt, turns.answer.column, key)
    draft.put("data.chat", True, shape.entry(key, True))
    shape.learn(masked, "all turns")


def _completion(shape: Shape, masked: bool) -> None:
    """Set the row format for rows with a prompt and a completion, which are either strings or lists of messages."""
    made, draft = shape.data.columns, shape.draft
    question, answered = _side(made["prompt"], "user"), _side(made["completion"], "assistant")
    if question is None or answered is None or not answered[0].column or question[1] is not answered[1]:
        shape.refuse("completion" if question is not None else "prompt")
        return
    name = shape.template(question[0], "prompt")
    if name is None:
        shape.refuse("prompt", "it has no column")
        return
    turns = turns_of(made["prompt"])
    if turns is not None and question[1]:
        shape.turns(turns, "prompt")
    shape.pair(name, answered[0].column, "completion")
    if question[1]:
        draft.put("data.chat", True, shape.entry("prompt", True))
        if shape.data.ended:
            _twice(shape, "prompt", made["prompt"])
    elif shape.data.end:
        _joined(shape)
    else:
        shape.end("completion", False)


ENDS = {"pad_token_id": "the padding token", "nothing": "no token"}


def _joined(shape: Shape) -> None:
    """Report how the tokens that the script joins differ from the tokens of a run of the spec."""
    shape.draft.differs(
        "prompt",
        "the script tokenizes the question and the answer separately; the spec tokenizes the joined text, with the "
        "tokenizer's bos token if it has one",
        shape.entry("prompt"),
    )
    end = ENDS.get(shape.data.end)
    if end is not None:
        why = f"the script ends an answer with {end}; the spec trains on the tokenizer's end token"
        shape.draft.differs("completion", why, shape.entry("completion"))


def _side(value: object, role: str) -> tuple[Prompt, bool] | None:
    """Interpret the prompt or the answer of a row. Returns the text, and whether it is in messages (true) or a string
    (false); None if the value is neither.
    """
    if rendered(value) is not None:
        turns = turns_of(value)
        if turns is None or turns.user is None or turns.answer is not None or not turns.generation:
            return None
        return turns.user, True
    if isinstance(value, list):
        turns = turns_of(value)
        if turns is None:
            return None
        found = turns.user if role == "user" else turns.answer
        other = turns.answer if role == "user" else turns.user
        return None if found is None or other is not None else (found, True)
    found = prompt_of(unstripped(value) if role == "assistant" else value)
    return None if found is None or found.known is not None else (found, False)


def _prompts(shape: Shape) -> None:
    """Set the row format for prompts. All other columns are passed to reward functions unchanged."""
    made, draft = dict(shape.data.columns), shape.draft
    value = made.pop("prompt", None)
    draft.put("data.format", "prompt", None, "the trainer reads prompts")
    if value is not None:
        side = _side(value, "user")
        if side is None:
            shape.refuse("prompt")
        else:
            prompt, chat = side
            name = shape.template(prompt, "prompt")
            if name is None:
                shape.refuse("prompt", "it has no column")
            else:
                draft.put("data.prompt", name, shape.entry("prompt", name))
                turns = turns_of(value) if chat else None
                if turns is not None:
                    shape.turns(turns, "prompt")
                if not chat or rendered(value) is not None:
                    draft.differs("prompt", RENDERED if chat else TEXTS, shape.entry("prompt", name))
    else:
        draft.differs("prompt", f"if the prompts are texts: {TEXTS}")
    for key, one in made.items():
        if not (isinstance(one, Column) and one.name == key):
            shape.data.for_rewards[key] = (one, shape.data.made.get(key, shape.location))


def _preference_columns(shape: Shape, answers: tuple[str, ...], form: str) -> None:
    """Set the row format for answers, which are strings or messages: preference pairs or, if `form` is unpaired,
    answers with a label.
    """
    made, draft = shape.data.columns, shape.draft
    wanted = ("prompt", *answers, *(("label",) if form == "unpaired" else ()))
    if not any(key in made for key in wanted):
        return
    names: list[str] = []
    chats: set[bool] = set()
    for key in wanted:
        value = made.get(key, Column(key))
        if key == "prompt" and form == "preference" and key not in made and _all_text(made, answers):
            continue
        side = _side(value, "user" if key == "prompt" else "assistant")
        name = None
        if side is not None:
            name = shape.template(side[0], key) if key == "prompt" else side[0].column or None
            chats |= {side[1]} if key in made else set()
        if name is None:
            shape.refuse(key)
            return
        names.append(name)
    if len(chats) > 1:
        shape.refuse(wanted[0], "some columns are turns and others are texts")
        return
    if tuple(names) != wanted[: len(names)] or len(names) < len(wanted):
        shape.columns = tuple(names)
    draft.put("data.format", form, shape.entry(answers[0], form))
    if True in chats:
        draft.put("data.chat", True, shape.entry("prompt", True))
        turns = turns_of(made.get("prompt"))
        if turns is not None:
            shape.turns(turns, "prompt")


def _all_text(made: dict[str, object], answers: tuple[str, ...]) -> bool:
    """Whether the script leaves the columns of the answers unchanged, so that each contains a complete conversation
    with the prompt.
    """
    return all(isinstance(made.get(key, Column(key)), Column) for key in answers)
