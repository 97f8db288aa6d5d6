"""Check the first rows of the data before the model is loaded: their columns and their tokens."""

from collections.abc import Mapping
from typing import Any

from . import data_sources, row_comparison, truncation
from .data import row_maker
from .errors import RunError, say
from .feature import Bundle, Source, Tokenizer
from .rows import name as name_of

ROWS = ("id", "path", "config", "split", "slice", "revision", "shape", "columns")
"""The keys that decide a source's rows. If training and evaluation have equal values, the source is read once."""


def rows_and_tokens(bundle: Bundle) -> list[str]:
    """Findings about the columns of every source and the tokens of its first rows."""
    from .model import load_tokenizer

    found, tokenizer = [], None
    try:
        tokenizer = load_tokenizer(bundle)
    except RunError as error:
        found.append(str(error))
    found += [one for feature in bundle.features for one in feature.before_rows(bundle, tokenizer)]
    for source in {str([one.get(key) for key in ROWS]): one for one in bundle.sources()}.values():
        try:
            found += _source(bundle, source, tokenizer)
        except RunError as error:
            found.append(str(error))
    return found


def _source(bundle: Bundle, source: Source, tokenizer: Tokenizer | None) -> list[str]:
    name, row_format = name_of(source), bundle.row_format()
    first = data_sources.load(bundle, source, first=row_comparison.FIRST)
    if not first:
        return [f"{name} has no rows"]
    present = list(first[0])
    data_sources.check_columns(row_format, source, present)
    make = row_maker(bundle, source, bool(getattr(tokenizer, "chat_template", None)))
    read = [make(row, index) for index, row in enumerate(first)]
    drop = row_format.dropped(source, present, bundle.method)
    columns = [*(one for one in present if one not in drop), *read[0]]
    problems = [f"{name}: {one}" for feature in bundle.features for one in feature.check_columns(bundle, columns)]
    if tokenizer is None:
        return problems
    row = {**{one: first[0][one] for one in columns if one in first[0]}, **read[0]}
    problems += [one for feature in bundle.features for one in feature.check_first_row(bundle, name, row, tokenizer)]
    return problems + _tokens(bundle, source, read, tokenizer)


def _tokens(bundle: Bundle, source: Source, read: list[dict[str, Any]], tokenizer: Tokenizer) -> list[str]:
    name, lengths, ends, most = name_of(source), [], 0, truncation.limit(bundle)
    prompts_only, conversations = source["shape"] == "prompt", bundle.row_format().conversations
    end = "" if prompts_only else str(tokenizer.eos_token or "")  # trl appends this end to plain texts only
    for row in read:
        texts = []
        for messages in conversations(row):
            if not tokenizer.chat_template:
                return [f"{name} contains conversations, but the tokenizer has no chat template; name one in `model`"]
            if not prompts_only and not any(message["role"] == "assistant" for message in messages):
                return [f"{name}: a conversation has no assistant turn to learn from"]
            try:
                text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompts_only)
                texts.append(text)
            except Exception as error:  # a template may raise any exception
                return [f"{name}: the chat template refuses the first rows: {error}"]
        plain = [] if texts else [one.removesuffix(end) + end for one in _texts(row) if one]
        ids = [tokenizer(one, add_special_tokens=not texts)["input_ids"] for one in texts or plain]
        lengths.append(max(map(len, [*ids, row.get("input_ids", ())])))  # a row of token ids has no text to encode
        ends += any(tokenizer.eos_token_id in one for one in ids)
    if not any(lengths):
        return [f"{name}: the first rows have no tokens"]
    if tokenizer.chat_template:
        row_comparison.check(dict(enumerate(read)), tokenizer, name, conversations, bundle.data.get("omit", ()))
    trained = not prompts_only and any(map(conversations, read))
    note = "; no end token in them: the model may never stop" if trained and not ends else ""
    note += "".join(feature.first_rows_note(bundle, read, tokenizer) for feature in bundle.features)
    long = 0 if most is None or prompts_only else sum(length > most for length in lengths)
    if long:
        note += f"; {long} of them {'has' if long == 1 else 'have'} more than seq = {most:,}"
    say(f"{name}: first {'prompts' if prompts_only else 'rows'} have {', '.join(map(str, lengths))} tokens{note}")
    return []


def _texts(row: Mapping[str, Any]) -> list[str]:
    """The texts of a row that has no messages: its text, or its prompt joined with each answer."""
    prompt = row.get("text", row.get("prompt")) or ""
    answers = [row[name] for name in ("completion", "chosen", "rejected") if name in row]
    return [prompt + answer for answer in answers or [""]]
