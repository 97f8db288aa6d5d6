"""Read rows of tokens: the tokens of a text, or of a question, an answer and an end token that the script joins. The
labels of the question may be -100.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.importing.python.interpreter.assignment import IGNORED, MASKED_PADDING, MASKED_START, ignored
from xpc.compiler.importing.python.interpreter.functions import ancestors, origin
from xpc.compiler.importing.python.interpreter.operators import LESS, MASKED, TOKENS, is_tokens
from xpc.compiler.importing.python.interpreter.values import Argument, Column, Object, Text, Unknown
from xpc.compiler.importing.python.rows import (
    MappedColumns,
    divided,
    is_ended,
    prompt_of,
    rendered,
    single,
    turns_of,
    unstripped,
)
from xpc.grammar.record import record

END = ("eos_token_id", "pad_token_id")
"""Attributes of a tokenizer whose token a script may append to each answer."""
CUTS = {"truncation", "max_length", "padding", "stride"}
"""Arguments by which a tokenizer truncates or pads a text."""
OWN_LABELS = "the script computes the labels itself"
PADDED = "the labels contain padding, which the script trains on"


@record
class TokenRow:
    """A question and an answer as texts. `end` is the token after the answer (`eos_token_id`, `pad_token_id` or none),
    and `length` the number of tokens to which the script truncates a row.
    """

    question: object
    answer: object
    end: str
    length: Argument | None = None


def token_row(ids: object, labels: object) -> TokenRow | None:
    """The question and the answer of a tokenized row (`ids`); None if the labels are not the tokens of the answer."""
    length, other = _cut(ids), _cut(labels)
    same = length is not None and other is not None and length.value == other.value
    if (_slice(ids) or _slice(labels)) and not same:
        return None
    pieces, learned = _pieces(ids), _pieces(labels)
    if pieces is None or learned is None or len(pieces) < 2 or len(learned) != len(pieces):
        return None
    end = next((one for one in END if _is_end(pieces[-1], one)), "")
    if len(pieces) != 2 + bool(end) or not _is_mask(learned[0], pieces[0]):
        return None
    calls = [_call(one) for one in pieces[:2]]
    if any(one is None for one in calls) or _call(learned[1]) is not calls[1]:
        return None
    if (end and not _is_end(learned[2], end)) or any(one is not None and CUTS & set(one.keywords) for one in calls):
        return None
    question, answer = (None if one is None else one.argument("text", 0) for one in calls)
    if question is None or answer is None:
        return None
    return TokenRow(question.value, _column(answer.value), end, length)


def _uncut(value: object) -> object:
    """The tokens of a row before the script truncates them, in all rows or only in long rows."""
    return next(
        (one for one in ancestors(value)
         if not isinstance(one, Unknown) and getattr(one, "path", "") != f"{TOKENS}[:]"), None
    )  # fmt: skip


def _slice(value: object) -> Object | None:
    """The slice by which the script truncates the tokens of rows, such as `tokens[:512]`. It may truncate all rows, or
    only long rows. None if it truncates no rows.
    """
    found = next((one for one in ancestors(value) if isinstance(one, Object)), None)
    return found if found is not None and found.path == f"{TOKENS}[:]" else None


def _cut(value: object) -> Argument | None:
    """The length to which the script truncates tokens: 512 for `tokens[:512]`. None for any other slice."""
    found = _slice(value)
    if found is None or found.positional[0].value is not None or not isinstance(found.positional[1].value, int):
        return None
    return found.positional[1]


def _pieces(value: object) -> list[object] | None:
    """The lists of tokens that a script joins to a row, in their order."""
    found = _uncut(value)
    if not isinstance(found, Object) or found.path != TOKENS:
        return None
    return [one.value for one in found.positional]


def _call(value: object) -> Object | None:
    """The call of the tokenizer that returned these tokens; None for any other value."""
    if not isinstance(value, Object) or not is_tokens(value):
        return None
    return value if value.last == "encode" else value.receiver if isinstance(value.receiver, Object) else None


def _is_mask(value: object, question: object) -> bool:
    """Whether the labels are -100 for every token of the question, so that the question is not trained on."""
    if not isinstance(value, Object) or value.path != MASKED or len(value.positional) != 2:
        return False
    label, tokens = (one.value for one in value.positional)
    return ignored(label) and _call(tokens) is not None and _call(tokens) is _call(question)


def _is_end(value: object, name: str) -> bool:
    return isinstance(value, Object) and value.last == name


def _column(value: object) -> object:
    """The column of an answer that is an f-string with only this column, `f"{answer}"`. Any other answer is returned
    unchanged.
    """
    parts = value.parts if isinstance(value, Text) else ()
    return parts[0] if len(parts) == 1 and isinstance(parts[0], Column) else value


MARKS = {MASKED_PADDING, MASKED_START}
TENSORS = ("tensor", "LongTensor", "as_tensor", "from_numpy", "squeeze", "flatten", "long", "view", "to", "array")
"""Functions and methods that change only the type or the shape of a row's tokens, such as `torch.tensor(ids)`."""


def bare(value: object) -> object:
    """The tokens of a row without the calls that convert them to a tensor or a list. `tokens.input_ids[0]`, the only
    row of a tensor, becomes `tokens["input_ids"]`.
    """
    while isinstance(value, Object) and not value.path.endswith("()"):
        inner = value.receiver if isinstance(value.receiver, Object) else None
        key = value.positional[0].value if value.path.endswith("[]") and value.positional else None
        if value.path.endswith("().input_ids") and inner is not None:
            ids = Object(f"{inner.path}[]", [Argument("input_ids", value.location)], {}, value.location, inner)
            ids.attributes = {key: one for key, one in value.attributes.items() if key in MARKS}
            return ids
        if value.last not in TENSORS and not (key == 0 and type(key) is int):
            break
        below = origin(value)
        if isinstance(below, Object):
            for name in MARKS & set(value.attributes):
                below.attributes.setdefault(name, value.attributes[name])
        value = below
    return value


def tokenizer_call(value: object) -> Object | None:
    """The call of a tokenizer that returned these tokens or, for `len(tokens)`, the counted tokens; None if there is
    none.
    """
    calls = (one for one in ancestors(value) if isinstance(one, Object))
    found = next((one for one in calls if one.path.endswith("()") or one.path == LESS), None)
    return None if found is None or found.path == LESS else found


def _answered(ids: Object, labels: Object) -> MappedColumns:
    """The prompt and the answer of a tokenized row whose labels are -100 for the prompt and the tokens for the
    answer.
    """
    call, masked = tokenizer_call(ids), tokenizer_call(labels.attributes[MASKED_START])
    text = None if call is None else call.argument("text", 0)
    question = None if masked is None else masked.argument("text", 0)
    if text is not None and question is not None and rendered(text.value) is not None and call is not None:
        return _answered_turns(call, text.value, question.value, labels)
    found = None if text is None else _prompted(text.value, masked)
    if call is None or found is None or not _copied(labels, call):
        return MappedColumns(why=OWN_LABELS)
    made = _of_call(call, False, labels if _is_padded(call) else None)
    return MappedColumns(found[0], made.why, made.length, ended=made.ended or found[1])


def _prompted(text: object, question_call: Object | None) -> tuple[dict[str, object], bool] | None:
    """The columns of prompt and answer, and whether an end token follows the answer, for a text that begins with the
    text in `question_call`. None for any other text.
    """
    question = None if question_call is None else question_call.argument("text", 0)
    found = divided(text)
    if question is None or found is None or prompt_of(question.value) != found[0]:
        return None
    answer: object = Column(found[1])
    parts = text.parts if isinstance(text, Text) else ()
    # the answer's expression in the script, such as `row["answer"].strip()`
    answer = next((one for one in reversed(parts) if unstripped(one) == answer), answer)
    return {"prompt": question.value, "completion": answer}, is_ended(found[2])


def _masked_question(labels: object, call: Object) -> Object | None:
    """The call that tokenizes the question, if the labels are `[-100] * n + labels[n:]` and `n` is the number of the
    question's tokens. None for other labels.
    """
    mask, rest = labels.parts if isinstance(labels, Text) and len(labels.parts) == 2 else (None, None)
    if not (isinstance(mask, Object) and mask.path == MASKED and ignored(mask)):
        return None
    if not (isinstance(rest, Object) and rest.path.endswith("[:]") and rest.positional[1].value is None):
        return None
    question_call = tokenizer_call(mask.positional[1].value)
    same = question_call is not None and tokenizer_call(rest.positional[0].value) is question_call
    return question_call if same and _copied(rest.receiver, call) else None


def _answered_turns(call: Object, text: object, question: object, labels: Object) -> MappedColumns:
    """The prompt and the answer of a rendered conversation in which the labels of all tokens before the last turn are
    -100.
    """
    turns, before = turns_of(text), turns_of(question)
    given = text.argument("conversation", 0) if isinstance(text, Object) else None
    messages = given.value if given is not None else None
    same = turns is not None and before is not None and turns.user == before.user and before.generation
    if not same or not isinstance(messages, list) or turns is None or turns.generation or not _copied(labels, call):
        return MappedColumns(why=OWN_LABELS)
    made = _of_call(call, False, labels if _is_padded(call) else None)
    return MappedColumns({"prompt": question, "completion": messages[-1:]}, made.why, made.length, ended=True)


def tokens(value: Mapping[str, object] | Mapping[object, object], batched: bool) -> MappedColumns:
    """The columns of a row with `input_ids` that the script returns: usually `text`, the tokenized text; `prompt` and
    `completion` if the script joins the tokens of a question and an answer. If the labels are no copies of the tokens,
    or if the text is unknown, `why` is the reason.
    """
    if batched and isinstance(value["input_ids"], list):  # a loop over the batch: the only item represents all rows
        value, batched = {key: single(one, True) for key, one in value.items()}, False
    ids, labels = bare(value["input_ids"]), bare(value.get("labels"))
    row = None if batched else token_row(ids, labels)
    if row is not None:
        columns = {"prompt": row.question, "completion": row.answer}
        return MappedColumns(
            {key: single(one, False) for key, one in columns.items()}, "", row.length, row.end or "nothing"
        )
    if isinstance(ids, Object) and isinstance(labels, Object) and MASKED_START in labels.attributes:
        return _answered(ids, labels)
    call = ids.receiver if isinstance(ids, Object) and is_tokens(ids) and ids.path.endswith("()[]") else None
    if not isinstance(call, Object):
        return MappedColumns(why="the script computes the tokens itself")
    if labels is not None and not _copied(labels, call):
        return MappedColumns(why=OWN_LABELS)
    made = tokenized(call, batched)
    padding = call.keywords.get("padding")
    padded = padding is not None and padding.value not in (False, None)
    learned = padded and labels is not None and not _masks_padding(labels)
    return MappedColumns(made.columns, made.why or (PADDED if learned else ""), made.length, ended=made.ended)


def tokenized(call: Object, batched: bool) -> MappedColumns:
    """The text that a tokenizer's call tokenizes. The row's labels, if any, must be the tokens of this text; if the
    first labels are -100, the text of these tokens becomes the prompt.
    """
    labels = bare(call.attributes.get("['labels']"))
    if isinstance(labels, Object) and MASKED_START in labels.attributes:
        return MappedColumns(why=OWN_LABELS) if batched else _answered(call, labels)
    return _of_call(call, batched, labels)


def _of_call(call: Object, batched: bool, labels: object) -> MappedColumns:
    """The text that a tokenizer's call tokenizes, for rows in which `labels` are the tokens of this text."""
    text = call.argument("text", 0)
    padding, cut, length = (call.keywords.get(one) for one in ("padding", "truncation", "max_length"))
    if text is None:
        return MappedColumns(why="the text that is tokenized is not known")
    own = labels is not None and not _copied(labels, call)
    found = _prompted(text.value, _masked_question(labels, call)) if own and not batched else None
    if own and found is None:
        return MappedColumns(why=OWN_LABELS)
    padded = padding is not None and padding.value not in (False, None)
    if cut is not None and cut.value not in (True, "longest_first", "only_first", False):
        return MappedColumns(why="how the script truncates the text is not known")
    why = PADDED if padded and labels is not None and not _masks_padding(labels) else ""
    cut_at = length if cut is not None and cut.value else None
    columns, ended = ({"text": single(text.value, batched)}, False) if found is None else found
    return MappedColumns(columns, why, cut_at, ended=ended or _appended(call))


def _appended(call: Object) -> bool:
    """Whether the script appends the end token to the tokens of a text, as in
    `row["input_ids"].append(tokenizer.eos_token_id)`. alpaca-lora does this for texts that were not truncated.
    """
    ids = call.attributes.get("['input_ids']")
    added = [one.positional[0].value for one in getattr(ids, "calls", ()) if one.last == "append" and one.positional]
    return any(isinstance(one, Object) and one.last == "eos_token_id" for one in added)


def _is_padded(call: Object) -> bool:
    """Whether a call of a tokenizer pads every text to a fixed length (`padding="max_length"`). Any other value of
    `padding` pads the texts of a batch to the longest text, so that a single text is not padded.
    """
    given = call.keywords.get("padding")
    return given is not None and given.value == "max_length"


def _copied(labels: object, call: Object) -> bool:
    """Whether labels are the `input_ids` that a call of the tokenizer returned, or a copy of them."""
    if isinstance(labels, list) and len(labels) == 1:
        labels = labels[0]
    keys = False
    for at in ancestors(labels):
        if at is call or not isinstance(at, Object) or _has_other_items(at):
            return at is call and keys
        keys = keys or any(one.value == "input_ids" for one in at.positional) or at.last == "input_ids"
    return False


def _masks_padding(labels: object) -> bool:
    """Whether the script sets the labels of the padding to -100, as in `labels[labels == pad] = -100`."""
    return isinstance(labels, Object) and labels.attributes.get(MASKED_PADDING) == IGNORED


def _has_other_items(labels: Object) -> bool:
    """Whether the script sets items of a row's labels, as in `labels[i] = -100`. An item that the script only reads, as
    in `print(labels[i])`, does not count; its `receiver` is `labels`.
    """
    return any(
        name.startswith("[") and not name.startswith("['") and getattr(one, "receiver", None) is not labels
        for name, one in labels.attributes.items()
    )
