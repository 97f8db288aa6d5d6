"""Find rows that were exported wrongly. Signs of this are control tokens of a chat template, a speaker's name before an
answer, Python literals, a `<think>` without `</think>`, placeholders that nobody filled, and answers that follow their
prompts without a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from xpc.compiler.data.damage import texts
from xpc.compiler.data.turn_order import role_of

CONTROL = "control:"
"""The prefix of a property: `control:<|im_end|>` means that a text contains the control token `<|im_end|>`."""
TOKEN = re.compile(
    r"<\|(?:im_start|im_end|im_sep|eot_id|start_header_id|end_header_id|begin_of_text|end_of_text|endoftext|user"
    r"|assistant|system|end|eom_id|start_of_role|end_of_role)\|>|\[/?INST\]|<(?:start|end)_of_turn>|<</?SYS>>"
)
"""Matches a control token of a published chat template, such as `<|im_end|>`."""
BEGIN = ("<|begin_of_text|>", "<s>", "<bos>", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<|startoftext|>")
"""Begin tokens, such as `<s>`, of models whose tokenizers add the begin token to each text themselves."""
SPEAKERS = ("assistant:", "human:", "user:", "chatgpt:", "gpt:", "bot:", "### assistant", "### response:", "### human")
"""Names of speakers with which an answer may begin, in lowercase: the answer `Assistant: Yes.` begins with
`assistant:`.
"""
MISSING = ("nan", "NaN", "NAN", "<NA>", "NaT", "[object Object]")
"""Texts that pandas, NumPy or JavaScript write for a missing value or an object."""
NOTHING = ("None", "null", "NULL", "undefined")
"""Texts that stand for a missing value in some files, but are real answers in others: `None` answers "What does
`print(None)` print?".
"""
PYTHON = re.compile(r"[\[({]\s*[\[{]?\s*u?'")
"""Matches the beginning of a list, a tuple or a dict that Python has written as text: `['Paris']`."""
PLACE = re.compile(r"\{\{?\s*([A-Za-z_]\w*)\s*\}")
"""Matches a placeholder such as `{question}` or `{{ question }}`."""
CHOICE = re.compile(r"(?:(?:response|answer|model|option|output|completion)[ _-]?)?[ab12]", re.IGNORECASE)
"""Matches the name of one of two answers, such as `A` or `response_b`."""
PROMPT_ENDS, ANSWER_BEGINS = re.compile(r"[A-Za-z0-9?.!:]\Z"), re.compile(r"[A-Za-z0-9]")
WITH_PROMPT = ("prompt_completion", "unpaired", "prompt")
ARGUMENT, SWITCH = "template_argument:", "template_switch:"
"""Prefixes of properties. `template_argument:enable_thinking` means that a row has a value for the argument
`enable_thinking` of the chat template. If the value is a text such as "false" instead of a boolean, the property is
`template_switch:enable_thinking`.
"""
SWITCHES = ("true", "false", "yes", "no", "on", "off")
PLAIN = ("text", "tokens", "images")


def export_marks(
    values: Sequence[object], row: Mapping[str, object], shape: str, names: Sequence[str], context: str
) -> set[str]:
    """The properties of a row that rules report, as a set of names. `values` are the values of the columns `names`.

    - `control:TOKEN`: a text with a control token of a chat template
    - `begin`: a text that begins with the begin token of a model
    - `speaker`: an answer that begins with the name of a speaker, such as `Assistant:`
    - `missing`: a text that stands for a missing value, such as `nan`; `nothing`: a text such as `None`, which may also
      be a real answer
    - `python_value`: an answer that is a list or dict as Python prints it; `quoted`: an answer in quotation marks
    - `open_thoughts`: an answer with more `<think>` than `</think>`; `unopened_thoughts`: one with fewer
    - `placeholder`: a text with the name of a column in braces, such as `{question}`
    - `choice`: a preference pair whose two answers are only labels, such as `A` and `B`
    - `joined`: a prompt that ends with a letter, a digit or one of `?.!:`, followed by an answer that begins without a
      space
    - `last_question`: a conversation that ends with a turn of the user
    - `template_argument:NAME`: `chat_template_kwargs` has a value for the template's argument NAME;
      `template_switch:NAME`: this value is a text such as "false" instead of a boolean
    - `negative_margin`: a preference pair whose `margin` is below 0
    """
    found: set[str] = set()
    reasoning = shape in WITH_PROMPT and isinstance(values[0], str) and values[0].rstrip().endswith("<think>")
    for role, text in _spoken(values, shape):
        # the slow pattern is tried only on a text with one of these strings, and most texts have none
        if ("<|" in text or "INST]" in text or "_of_turn>" in text or "SYS>>" in text) and (
            token := TOKEN.search(text)
        ):
            found.add(CONTROL + token[0])
        if "{" in text and any(name in row for name in PLACE.findall(text)):
            found.add("placeholder")
        if len(text) < 18 and (bare := text.strip()) in (*MISSING, *NOTHING):
            found.add("missing" if bare in MISSING else "nothing")
        if text[0] == "<" and text.startswith(BEGIN):
            found.add("begin")
        if role == "assistant":
            found.update(_of_answer(text, reasoning))
    if context and str(row.get(context)).strip() in MISSING and row.get(context) is not None:
        found.add("missing")
    if shape in ("messages", "conversations") and isinstance(values[0], list) and values[0]:
        last = values[0][-1]
        if isinstance(last, dict) and role_of(last) == "user":
            found.add("last_question")
    if shape == "preference":
        found.update(_of_pair(values[-2:], row))
    if _joined(values, shape):
        found.add("joined")
    given = row.get("chat_template_kwargs")
    for name, value in given.items() if isinstance(given, dict) else ():
        is_text = isinstance(value, str) and value.strip().lower() in SWITCHES
        found.add((SWITCH if is_text else ARGUMENT) + str(name)[:40])
    return found


def _spoken(values: Sequence[object], shape: str) -> Iterator[tuple[str, str]]:
    """Yield each text of a row, as (role of its speaker, text)."""
    for number, turn, text in texts(values):
        first = number == 0 and (shape in WITH_PROMPT or (shape == "preference" and len(values) > 2))
        of_cell = "user" if first else "" if shape in PLAIN else "assistant"
        yield of_cell if turn is None else role_of(turn), text


def _of_answer(text: str, reasoning: bool) -> Iterator[str]:
    if ":" in text[:16] or text.startswith("#"):
        begin = text[:24].lstrip().lower()
        if begin.startswith(SPEAKERS):
            yield "speaker"
    if text[0] in "[({" and text.rstrip()[-1:] in "])}" and PYTHON.match(text):
        yield "python_value"
    if text[0] == text[-1] == '"' and len(text) > 2 and '"' not in text[1:-1].replace('\\"', ""):
        yield "quoted"
    if "think>" in text:
        opened, closed = text.count("<think>") + reasoning, text.count("</think>")
        if opened != closed:
            yield "open_thoughts" if opened > closed else "unopened_thoughts"


def _of_pair(answers: Sequence[object], row: Mapping[str, object]) -> Iterator[str]:
    margin = row.get("margin")
    if isinstance(margin, int | float) and margin < 0:
        yield "negative_margin"
    if all(isinstance(one, str) and len(one) < 24 and (CHOICE.fullmatch(one.strip()) or one in row) for one in answers):
        yield "choice"


def _joined(values: Sequence[object], shape: str) -> bool:
    if shape == "prompt" or (shape not in WITH_PROMPT and (shape != "preference" or len(values) < 3)):
        return False
    cells = [one for one in values if isinstance(one, str)]
    if len(cells) < 2 or not isinstance(values[0], str):
        return False
    return bool(PROMPT_ENDS.search(values[0][-1:]) and all(ANSWER_BEGINS.match(one) for one in cells[1:]))


def token_marks(ids: Sequence[object], learned: Sequence[object], attention: object) -> set[str]:
    """The properties of a tokenized row that rules report, as a set of names.

    - `learned_padding`: the row ends with at least four equal tokens that are learned
    - `dropped_tokens`: `attention_mask` is 0 for at least two different tokens; these are not padding, which repeats
      one token
    - `unlearned_end`: the first token is learned, and several different tokens at the end are not
    """
    found: set[str] = set()
    if len(ids) > 4 and len({*ids[-4:]}) == 1 and all(learned[-4:]):
        found.add("learned_padding")
    masked = attention if isinstance(attention, list) else []
    if len({one for one, mask in zip(ids, masked, strict=False) if mask == 0}) > 1:
        found.add("dropped_tokens")
    elif learned and learned[0] and not learned[-1]:
        last = max(number for number, mine in enumerate(learned) if mine)
        if len({*ids[last + 1 :]}) > 1:
            found.add("unlearned_end")
    return found
