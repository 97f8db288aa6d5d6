"""Compare the loaded tokenizer of a model with the model's other files, and with the first rows.

Four things may be wrong. transformers loads another class than tokenizer_config.json names, and this class replaces
parts of tokenizer.json. The chat template writes control tokens that the tokenizer lacks. The tokenizer has more tokens
than the model has embeddings. generation_config.json names other end tokens than the rows.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from ...core.errors import RunError, rank, say
from ...core.feature import Bundle, Feature, Tokenizer, Trainer

CONTROL = re.compile(r"<\|[^|<>{}'\"\s]+\|>|<(?:start|end)_of_turn>")
"""Matches a control token in a chat template, such as `<|im_end|>`."""
EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight", "tok_embeddings.weight")
"""Endings of the names of embedding weights in a checkpoint."""
COMPARED = 2**18
"""Of a text, at most this many characters are tokenized for the comparison with tokenizer.json."""
TEXTS = ("text", "prompt", "completion", "chosen", "rejected")


def files_of(bundle: Bundle) -> str:
    """The folder with the model's files: a local folder, or the model's files in the cache of the hub. "" if they are
    not in the cache.
    """
    place = bundle.model_path
    if bundle.model["id"] is None or os.path.isdir(place):
        return place
    return _in_cache(place, bundle.loading()["revision"])


@cache
def _in_cache(model: str, revision: str) -> str:
    from huggingface_hub import try_to_load_from_cache
    from transformers.utils import cached_file

    if rank() == 0:
        # `ends` reads this file, which may not be in the cache yet, because the model is loaded after the rows
        cached_file(model, "generation_config.json", revision=revision, _raise_exceptions_for_missing_entries=False,
                    _raise_exceptions_for_connection_errors=False, _raise_exceptions_for_gated_repo=False)  # fmt: skip
    names = ("tokenizer.json", "tokenizer_config.json", "config.json")
    found = (try_to_load_from_cache(model, name, revision=revision) for name in names)
    return next((os.path.dirname(one) for one in found if isinstance(one, str)), "")


def differs(folder: str, tokenizer: Tokenizer, texts: Sequence[str]) -> str:
    """A sentence about the parts of the loaded tokenizer that split texts differently from tokenizer.json. "" if there
    is no such part.
    """
    loaded, path = getattr(tokenizer, "backend_tokenizer", None), os.path.join(folder, "tokenizer.json")
    if loaded is None or not os.path.isfile(path):
        return ""
    stated = _tokenizer(path)
    known = stated.get_vocab()
    added = sorted(tokenizer.added_tokens_decoder.items())
    stated.add_tokens([one for _, one in added if one.content not in known])
    for text in (one[:COMPARED] for one in texts):
        ours, theirs = (one.encode(text, add_special_tokens=False).ids for one in (loaded, stated))
        parts = [*_parts(loaded, stated, text)] if ours != theirs else []
        ends = [one.encode(text).ids for one in (loaded, stated)]
        if ours == theirs and ends[0] != ends[1] and not _chooses_ends(folder):
            parts, ours, theirs = ["post_processor"], *ends
        if ours != theirs:
            return (
                f"transformers loads the tokenizer as {type(tokenizer).__name__}, whose {' and '.join(parts)} "
                f"{'differs' if len(parts) == 1 else 'differ'} from tokenizer.json: {_changed(loaded, ours, theirs)}"
            )
    return ""


@cache
def _tokenizer(path: str) -> Any:
    """The tokenizer of a tokenizer.json, as the tokenizers library reads it."""
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(path)
    found.no_truncation()
    found.no_padding()
    return found


def _changed(tokenizer: Tokenizer, ours: Sequence[int], theirs: Sequence[int]) -> str:
    """The first tokens in which two tokenizers differ, as in `'1', '9' instead of '19'`."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    start = next((at for at, (one, other) in pairs if one != other), min(len(ours), len(theirs)))
    shown = [[tokenizer.decode([one], skip_special_tokens=False) for one in ids[start : start + 3]]
             for ids in (ours, theirs)]  # fmt: skip
    first, second = (", ".join(map(repr, one)) or "nothing" for one in shown)
    return f"the tokens of a row differ, such as {first} instead of {second}"


def _parts(loaded: Any, stated: Any, text: str) -> Iterator[str]:
    """The parts in which two tokenizers differ: normalizer, pre_tokenizer, or, if these two are equal, the model."""
    normal, pieces = [], []
    for one in (loaded, stated):
        normal.append(text if one.normalizer is None else one.normalizer.normalize_str(text))
        split = () if one.pre_tokenizer is None else one.pre_tokenizer.pre_tokenize_str(text)
        pieces.append([piece for piece, _ in split])
    if normal[0] != normal[1]:
        yield "normalizer"
    if pieces[0] != pieces[1]:
        yield "pre_tokenizer"
    if normal[0] == normal[1] and pieces[0] == pieces[1]:
        yield "model"


def _chooses_ends(folder: str) -> bool:
    """Whether tokenizer_config.json states whether begin and end tokens are added to texts. Such a statement overrides
    tokenizer.json.
    """
    return any(_json(folder, "tokenizer_config.json").get(f"add_{one}_token") is not None for one in ("bos", "eos"))


def lacking(tokenizer: Tokenizer, texts: Sequence[str]) -> str:
    """A sentence about control tokens of the chat template that the tokenizer splits; "" if it splits none."""
    found = CONTROL.findall(str(tokenizer.chat_template)) if tokenizer.chat_template else []
    vocabulary = tokenizer.get_vocab()
    new = [one for one in dict.fromkeys(found) if one not in vocabulary and any(one in text for text in texts)]
    if not new:
        return ""
    pieces = len(tokenizer(new[0], add_special_tokens=False)["input_ids"])
    more = f" and {len(new) - 1} more control token{'s' * (len(new) > 2)}" if len(new) > 1 else ""
    return (
        f"the chat template writes {new[0]}{more}, and the tokenizer has no such token: {new[0]} is read as {pieces} "
        "pieces of text"
    )


def ends(bundle: Bundle, folder: str, tokenizer: Tokenizer, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Sentences about end tokens in generation_config.json that end answers too early, or that no row teaches."""
    if bundle.model["id"] is not None and not os.path.isfile(os.path.join(folder, "generation_config.json")):
        return  # the cache may lack a file that the hub has
    eos, vocabulary = tokenizer.eos_token_id, set(tokenizer.get_vocab().values())
    stated = _end_tokens(folder)
    if missing := [one for one in stated if one not in vocabulary]:
        yield f"generation_config.json names the end token {missing[0]}, which the tokenizer does not have"
    answers = [text for row in rows for text in _answers(row)]
    for one in (token for token in stated if token != eos and token in vocabulary):
        if any(one in tokenizer(text, add_special_tokens=False)["input_ids"] for text in answers):
            yield (
                f"generation_config.json names {tokenizer.decode([one])!r} (token {one}) as an end token, and answers "
                "contain it: the trained model would stop there"
            )
    lora: Mapping[str, Any] = bundle.lora or {}
    if lora and not lora.get("merge") and stated and eos not in stated:
        names = ", ".join(repr(tokenizer.decode([one])) for one in stated)
        yield (
            f"the rows end with {tokenizer.eos_token}, but generation_config.json of the base ends answers at {names}: "
            "the adapter is saved without this file, so generation would use the base's, and not stop"
        )


def _end_tokens(folder: str) -> list[int]:
    """The ids of the end tokens in generation_config.json or, if there is no such file, in config.json."""
    there = os.path.isfile(os.path.join(folder, "generation_config.json"))
    found = _json(folder, "generation_config.json" if there else "config.json").get("eos_token_id")
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, int)]


def _answers(row: Mapping[str, object]) -> list[str]:
    """The texts of a row's answers."""
    parts = [row.get(one) for one in ("messages", "completion", "chosen", "rejected")]
    turns = [turn for part in parts if isinstance(part, list) for turn in part if turn.get("role") == "assistant"]
    texts = [*(turn.get("content") for turn in turns), *parts]
    return [one for one in texts if isinstance(one, str)]


def rendered(bundle: Bundle, rows: Sequence[Mapping[str, object]], tokenizer: Tokenizer) -> list[str]:
    """The texts of rows as the trainer tokenizes them. A conversation that the template refuses is left out."""
    texts = []
    for row in rows:
        texts += [one for name in TEXTS if isinstance(one := row.get(name), str)]
        for messages in bundle.row_format().conversations(row) if tokenizer.chat_template else ():
            try:
                texts.append(str(tokenizer.apply_chat_template(messages, tokenize=False)))
            except Exception:  # when the rows are converted, any exception of the template is reported
                continue
    return texts


def notes(bundle: Bundle, rows: Sequence[Mapping[str, object]], tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    """A pair for each finding about these rows: its kind (parts, lacking or ends), and its text."""
    if hasattr(getattr(tokenizer, "apply_chat_template", None), "processor"):  # images change the texts
        return
    folder, texts = files_of(bundle), rendered(bundle, rows, tokenizer)
    if not folder:
        return
    found = [("parts", differs(folder, tokenizer, texts)), ("lacking", lacking(tokenizer, texts))]
    found += [("ends", one) for one in ends(bundle, folder, tokenizer, rows)]
    yield from (one for one in found if one[1])


def embeddings(folder: str) -> int | None:
    """The number of embeddings that config.json states; None if config.json states no number."""
    config = _json(folder, "config.json")
    text = config.get("text_config")
    number = config.get("vocab_size", text.get("vocab_size") if isinstance(text, dict) else None)
    return number if isinstance(number, int) else None


def stored_embeddings(folder: str) -> tuple[str, int] | None:
    """The name and the number of rows of the embeddings in the safetensors files; None if they are not found."""
    from safetensors import SafetensorError, safe_open

    index = _json(folder, "model.safetensors.index.json").get("weight_map")
    names = index if isinstance(index, dict) else {"": "model.safetensors"}
    files = {str(file) for name, file in names.items() if not name or name.endswith(EMBEDDINGS)}
    for file in sorted(files):
        try:
            with safe_open(os.path.join(folder, os.path.basename(file)), framework="np") as weights:
                found = [one for one in weights.keys() if one.endswith(EMBEDDINGS)]  # noqa: SIM118 - not a dict
                shapes = {one: weights.get_slice(one).get_shape() for one in found}
        except (OSError, SafetensorError):  # an unreadable file is reported when the model is loaded
            continue
        for name, shape in shapes.items():
            if len(shape) == 2:
                return name, int(shape[0])
    return None


def _json(folder: str, name: str) -> dict[str, object]:
    """The JSON object in a file of the model. Empty if the file does not exist or has no JSON object."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as handle:
            found = json.load(handle)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def beyond(bundle: Bundle, tokenizer: Tokenizer) -> int | None:
    """The number of the model's embeddings, if the tokenizer has more tokens than that and the run adds no embeddings;
    otherwise None.
    """
    folder = "" if bundle.tokenizer.get("added") else files_of(bundle)
    many = embeddings(folder) if folder else None
    return many if many is not None and max(tokenizer.get_vocab().values(), default=0) >= many else None


def without(bundle: Bundle, tokenizer: Tokenizer, ids: Sequence[int], most: int) -> str:
    """A phrase for error messages: the row's token that has no embedding. ``ids`` are the row's token ids."""
    name = tokenizer.convert_ids_to_tokens(max(ids))
    return f"the token {name!r} ({max(ids)}), which has no embedding: {bundle.base} has {most} embeddings"


VOCABULARIES = ("vocab", "merges", "spiece", "sentencepiece", "spm", "tekken")
"""Prefixes of the names of vocabulary files, such as `vocab` in vocab.json."""


class TokenizerFiles(Feature):
    """Hooks that compare the files of the model with its tokenizer and the rows."""

    reported: Collection[str] = ()

    def before_rows(self, bundle: Bundle, tokenizer: Tokenizer | None) -> list[str]:
        """Return findings about missing files and embeddings. Print a sentence about tokens without an embedding."""
        try:
            folder = files_of(bundle)
        except RunError:  # a missing folder is reported when the tokenizer is loaded
            return []
        if not folder:
            return []
        many, stored = embeddings(folder), stored_embeddings(folder)
        found = _missing(bundle.base, folder) if bundle.model["id"] is None else []
        if many is not None and stored is not None and many != stored[1]:
            found.append(
                f"config.json of {bundle.base} has vocab_size = {many}, and its weights have {stored[1]} embeddings "
                f"({stored[0]}): write vocab_size = {stored[1]}, or use the weights that belong to this config.json"
            )
        if tokenizer is not None and (most := beyond(bundle, tokenizer)) is not None:
            names = sorted(tokenizer.get_vocab().items(), key=lambda one: one[1])
            extra = [name for name, number in names if number >= most]
            what = f"the tokenizer has {len(extra)} token{'s' * (len(extra) > 1)} without an embedding, such as "
            say(f"{what}{extra[0]!r}: {bundle.base} has {most} embeddings, and a row with such a token stops the run")
            special = [(one, getattr(tokenizer, f"{one}_token")) for one in ("eos", "pad", "bos")]
            found += [f"the {one} token {name!r} has no embedding: {bundle.base} has {most} embeddings"
                      for one, name in special if name in extra]  # fmt: skip
        return found

    def first_rows_note(self, bundle: Bundle, rows: list[dict[str, object]], tokenizer: Tokenizer) -> str:
        """Print each finding about the first rows of a source that was not printed for an earlier source."""
        for kind, what in notes(bundle, rows, tokenizer) if rank() == 0 else ():
            key = kind if kind == "parts" else what  # the sentence about parts has the tokens of a row
            if key not in self.reported:
                say(what)
            self.reported = {*self.reported, key}
        return ""

    def before_training(self, bundle: Bundle, trainer: Trainer) -> None:
        """Raise RunError if a tokenized row has a token without an embedding."""
        tokenizer, rows = trainer.processing_class, trainer.train_dataset
        if not hasattr(tokenizer, "get_vocab") or (most := beyond(bundle, tokenizer)) is None:
            return
        for name in getattr(rows, "column_names", None) or ():
            if name.endswith("input_ids") and hasattr(rows, "__len__"):
                for number, row in enumerate(rows[name]):
                    if row and max(row) >= most:
                        raise RunError(f"row {number} of the prepared rows has {without(bundle, tokenizer, row, most)}")


def _missing(base: str, folder: str) -> list[str]:
    """A finding if a folder with a model has no tokenizer file."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    if has_tokenizer(names) or "config.json" not in names:
        return []
    return [f"{base} has no tokenizer: copy tokenizer.json and tokenizer_config.json of the model into {folder}"]


def has_tokenizer(names: Iterable[str]) -> bool:
    """Whether one of a folder's files belongs to a tokenizer. Else transformers 5 makes one without tokens."""
    return any("token" in name or name.startswith(VOCABULARIES) for name in names)
