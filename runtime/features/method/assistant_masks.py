"""Check that the chat template marks the assistant's tokens, for a run that is trained only on them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Rows, Source, Tokenizer
from ...core.rows import name as name_of

UNMARKED = "the chat template has no {% generation %} marks, which assistant_only needs, and trl cannot add them; "

MARK = "write {% generation %} and {% endgeneration %} around the assistant's content alone"
LONG = 8
"""A turn with fewer characters is not searched for in the marked text, because it may occur there by chance."""


RENDERED = 200
"""To find a row in which no token is learned, at most this many rows are rendered with empty answers."""


class AssistantMasks(Feature):
    """Hooks for a run that is trained only on the assistant's tokens."""

    tokenizer: Any = None

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Tokenizer) -> None:
        """Remember the tokenizer, which renders rows with empty answers later."""
        self.tokenizer = tokenizer

    def source_mapped(self, bundle: Bundle, source: Source, rows: Rows) -> Rows:
        """Raise RunError for a row without a token to learn. trl refuses such a row after the model is loaded, and does
        not name it."""
        alone, empty = unanswered(rows) if "messages" in rows.column_names else ([], [])
        if alone:
            others = f", as in {len(alone) - 1:,} other row(s)" if alone[1:] else ""
            roles = ", ".join(dict.fromkeys(turn["role"] for turn in rows[alone[0]]["messages"]))
            raise RunError(
                f"{name_of(source)}, row {alone[0]}: the conversation has no turn of the assistant to learn from"
                f"{others} (the roles of its turns are {roles}); remove such rows, or leave `assistant_only` out"
            )
        for number in empty[:RENDERED] if getattr(self.tokenizer, "chat_template", None) else ():
            if wrong_marks(bundle.row_format().conversations(rows[number]), self.tokenizer) is not None:
                raise RunError(
                    f"{name_of(source)}, row {number}: every answer is empty, and the chat template marks no token "
                    "after it, so nothing is learned; remove such rows, or put the end token inside the "
                    "{% generation %} marks"
                )
        return rows

    def before_rows(self, bundle: Bundle, tokenizer: Tokenizer | None) -> list[str]:
        """Check that the chat template marks the assistant's tokens."""
        return missing(tokenizer) if tokenizer is not None and tokenizer.chat_template else []

    def check_first_row(self, bundle: Bundle, name: str, row: Mapping[str, Any], tokenizer: Tokenizer) -> list[str]:
        """Check that a row is a conversation, and that the template's marks enclose its answers, but not its
        questions. If the run mixes rows of several formats, plain texts are legal."""
        turns = bundle.row_format().conversations(dict(row))
        if not turns and not any(one.get("kind") for one in bundle.data["sources"]):
            return [f"{name}: the first row has no conversation, which `assistant_only` needs; leave it out"]
        why = wrong_marks(turns, tokenizer)
        return [] if why is None else [f"{name}: {why}"]


def unanswered(rows: Rows) -> tuple[list[int], list[int]]:
    """Row numbers of two kinds: rows without a turn of the assistant, and rows with only empty answers."""
    import pyarrow.compute as compute

    column = rows.with_format(None).data.column("messages")
    parents, turns = compute.list_parent_indices(column), compute.list_flatten(column)
    answers = compute.equal(compute.struct_field(turns, "role"), "assistant")
    spoken = compute.not_equal(compute.struct_field(turns, "content"), "")
    answered, heard = (
        {*parents.filter(one).to_pylist()} for one in (answers, compute.and_(answers, spoken))
    )  # two sets of row numbers take little memory compared with the rows
    everything = range(len(rows))
    return (
        [one for one in everything if one not in answered],
        [one for one in everything if one in answered and one not in heard],
    )


def missing(tokenizer: Tokenizer) -> list[str]:
    """The finding for a chat template that does not mark the answers. trl itself raises an error only after the model
    is loaded."""
    if _has_marks(tokenizer):
        return []
    try:
        # trl 1.16 adds the marks to known templates; older versions do not have this function
        from trl.chat_template_utils import get_training_chat_template

        get_training_chat_template(tokenizer)
    except (ImportError, ValueError):
        return [UNMARKED + "name another template in `model`"]
    return []


def _has_marks(tokenizer: Tokenizer) -> bool:
    template = tokenizer.chat_template
    return bool(
        re.search(r"\{%-?\s*generation\s*-?%\}", template["default"] if isinstance(template, dict) else str(template))
    )


def wrong_marks(conversations: Sequence[Sequence[Mapping[str, Any]]], tokenizer: Tokenizer) -> str | None:
    """Describe how the template's {% generation %} marks contradict `assistant_only`: they enclose a question, or
    nothing. None if the marks are right, or if the template has no marks, because trl then adds them. A question is
    compared only if it has at least `LONG` characters and no answer repeats it.
    """
    if not tokenizer.chat_template or not _has_marks(tokenizer):
        return None
    for turns in conversations:
        try:
            made = tokenizer.apply_chat_template(list(turns), return_dict=True, return_assistant_tokens_mask=True)
        except Exception:  # a template may raise any exception, which the check of the first rows reports
            return None
        masks = made.get("assistant_masks") or ()
        learned = tokenizer.decode([one for one, mask in zip(made["input_ids"], masks, strict=False) if mask])
        spoken = " ".join(str(turn) for turn in turns if turn["role"] == "assistant")
        questions = [str(turn.get("content") or "").strip() for turn in turns if turn["role"] == "user"]
        for text in (one for one in questions if len(one) >= LONG and one in learned and one not in spoken):
            return f"the chat template marks a question as an answer to be learned ({text[:40]!r}); {MARK}"
        if spoken and not learned:
            return f"the chat template marks nothing of the assistant's turns, so nothing is learned; {MARK}"
    return None
