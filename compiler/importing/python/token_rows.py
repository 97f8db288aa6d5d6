"""Read rows of tokens that a script puts together itself: the tokens of a question, the tokens of an answer, and the
end token. The labels of the question's tokens are -100.
"""

from __future__ import annotations

from xpc.compiler.importing.python.interpreter.assignment import MASKED_PADDING, MASKED_START, ignored
from xpc.compiler.importing.python.interpreter.functions import origin
from xpc.compiler.importing.python.interpreter.operators import LESS, MASKED, TOKENS, is_tokens
from xpc.compiler.importing.python.interpreter.values import Argument, Column, Object, Text, Unknown
from xpc.grammar.record import record

END = ("eos_token_id", "pad_token_id")
"""Attributes of a tokenizer. A script may put the token of one of them after each answer."""
CUTS = {"truncation", "max_length", "padding", "stride"}
"""Arguments with which a tokenizer cuts or pads a single text."""


@record
class TokenRow:
    """A question and an answer as texts, the tokenizer's token after the answer (`eos_token_id`, `pad_token_id` or
    none), and the length to which the script cuts the tokens.
    """

    question: object
    answer: object
    end: str
    length: Argument | None = None


def token_row(ids: object, labels: object) -> TokenRow | None:
    """The question and the answer in a tokenized row (`ids`); None if its labels are not the tokens of the answer."""
    cut, length, other = _is_cut(ids), _cut(ids), _cut(labels)
    same = length is not None and other is not None and length.value == other.value
    if (cut or _is_cut(labels)) and not same:
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
    """The tokens of a row before the script cuts them. It makes no difference whether the script cuts every row, or
    only rows that are too long.
    """
    for _ in range(8):
        if isinstance(value, Unknown) and value.hidden is not None:
            value = value.hidden
        elif isinstance(value, Object) and value.path == f"{TOKENS}[:]":
            value = value.receiver
        else:
            break
    return value


def _slice(value: object) -> Object | None:
    """The slice (`tokens[:512]`) to which the script cuts the tokens of every row, or only of rows that are too long.
    None if the script cuts no tokens.
    """
    for _ in range(8):
        if isinstance(value, Object):
            return value if value.path == f"{TOKENS}[:]" else None
        value = value.hidden if isinstance(value, Unknown) else None
    return None


def _is_cut(value: object) -> bool:
    return _slice(value) is not None


def _cut(value: object) -> Argument | None:
    """The length to which the script cuts tokens, as in `tokens[:512]`; None for any other slice."""
    found = _slice(value)
    if found is None or found.positional[0].value is not None or not isinstance(found.positional[1].value, int):
        return None
    return found.positional[1]


def _pieces(value: object) -> list[object] | None:
    """The parts that a script joins to the tokens of a row, in their order in the row."""
    found = _uncut(value)
    if not isinstance(found, Object) or found.path != TOKENS:
        return None
    return [one.value for one in found.positional]


def _call(value: object) -> Object | None:
    """The tokenizer call that returned these tokens; None for other values."""
    if not isinstance(value, Object) or not is_tokens(value):
        return None
    return value if value.last == "encode" else value.receiver if isinstance(value.receiver, Object) else None


def _is_mask(value: object, question: object) -> bool:
    """Whether labels are -100 for each token of the question, so that the question is not learned."""
    if not isinstance(value, Object) or value.path != MASKED or len(value.positional) != 2:
        return False
    label, tokens = (one.value for one in value.positional)
    return ignored(label) and _call(tokens) is not None and _call(tokens) is _call(question)


def _is_end(value: object, name: str) -> bool:
    return isinstance(value, Object) and value.last == name


def _column(value: object) -> object:
    """If the answer is an f-string that contains only one column, as in `f"{answer}"`, return this column. Any other
    answer is returned unchanged.
    """
    parts = value.parts if isinstance(value, Text) else ()
    return parts[0] if len(parts) == 1 and isinstance(parts[0], Column) else value


MARKS = {MASKED_PADDING, MASKED_START}
TENSORS = ("tensor", "LongTensor", "as_tensor", "from_numpy", "squeeze", "flatten", "long", "view", "to", "array")
"""Functions and methods that only give the tokens of a row another form, as in `torch.tensor(ids)`."""


def bare(value: object) -> object:
    """The tokens of a row without the calls that make a tensor or a list of them. `tokens.input_ids[0]`, the only row
    of a tensor, becomes `tokens["input_ids"]`.
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
    """The call of a tokenizer from which tokens or their number come; None if there is none."""
    for _ in range(20):
        if isinstance(value, Object):
            if value.path.endswith("()"):
                return value
            if value.path == LESS:
                return None
            value = origin(value)
        else:
            value = value.hidden if isinstance(value, Unknown) else None
    return None
