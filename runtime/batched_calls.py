"""Runs a function once per row of a group, but encodes the texts of all rows together (``launch.sh --prepare``).

Example: trl's function renders the conversation of a row and calls ``tokenizer(text)``. At first, this call returns an
encoding with placeholders. If trl's function returns the placeholders unread, as SFT's does, they are filled in after
the texts of all rows are encoded. If it reads a placeholder, for example with ``len(ids)``, an exception stops it.
After the encoding it runs again, and its calls return the recorded texts and ids. So trl's function itself computes
each row's result.

The offsets of tokens (which characters of the text a token covers) are computed only if a function needs them.
`token_places.py` often finds the assistant mask without offsets.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from runpy import run_path
from typing import Any

ROWS = 200
"""The texts of this many rows are encoded together. A larger number needs more memory and is not faster."""
FIRST = 10
"""The first group of rows is smaller. It shows whether the function needs offsets."""
MASK = "assistant_masks"
MASKED = ("06820c961991ed71", "b3a5577234e10210", "d93dc804cc9b0d21")
"""Digests of the source of apply_chat_template in transformers 5.23, 4.57 and 4.52. If the installed source has one of
these digests, `assistant_mask` computes masks; otherwise, apply_chat_template does.
"""
COMPARED = 5
"""This many texts are encoded both with and without offsets, to check that all other values are equal."""
SEPARATE = ("text_pair", "return_tensors", "return_overflowing_tokens")
"""Arguments of the tokenizer's call. If a call has one of them, its text is encoded alone, not together with others."""
PLACES = run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "token_places.py"))
PLAIN = (str, int, float, bool, type(None))
"""Types of values that contain no placeholders."""


class NotBatched(Exception):
    """Raised if a function cannot be called in batches. The exception's text is the reason."""


class Stopped(BaseException):
    """Raised in a function that reads a value before the value is known. It is a BaseException, because the function
    may catch every Exception.
    """


class OffsetsRead(Stopped):
    """Raised in a function that reads the offsets of a text before they are known."""

    def __init__(self, text: "Text") -> None:
        super().__init__()
        self.text = text


class Placeholder:
    """Stands for a value of an encoding, such as its token ids, until the value is known. Reading it raises Stopped."""

    place: "tuple[Text, str]"

    def __init__(self, text: "Text", name: str) -> None:
        object.__setattr__(self, "place", (text, name))

    def __getattribute__(self, name: str) -> object:
        raise Stopped

    def _read(self, *_: Any) -> Any:
        raise Stopped

    __bool__ = __len__ = __iter__ = __reversed__ = __getitem__ = __setitem__ = __delitem__ = __contains__ = _read
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _read
    __add__ = __radd__ = __iadd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __and__ = __or__ = __ror__ = _read
    __int__ = __float__ = __index__ = __array__ = __copy__ = __deepcopy__ = __reduce__ = _read
    __repr__ = __str__ = __format__ = __dir__ = __reduce_ex__ = __setattr__ = _read


class Mask(Placeholder):
    """Stands for an assistant mask until it is known. It claims to contain a 1, because trl refuses a mask of zeros."""

    def __contains__(self, value: Any) -> bool:
        if value != 1:
            raise Stopped
        text, _ = object.__getattribute__(self, "place")
        text.learned = True
        return True


class Text:
    """A text for which the tokenizer was called; ``values`` and ``encoding`` are None until they are known."""

    __slots__ = ("encoding", "learned", "options", "spans", "text", "values")

    def __init__(self, text: str, options: "Options") -> None:
        self.text, self.options = text, options
        self.values: dict[str, Any] | None = None
        self.encoding: object = None
        self.spans: Sequence[tuple[int, int]] | None = None
        """The ranges of characters of the answers, if the chat template was applied with an assistant mask."""
        self.learned = False
        """Whether the function has searched the assistant mask for a 1. `Mask` answers such a search with "found"."""

    def names(self) -> list[str]:
        """The names of the values that the tokenizer returns for this text."""
        return [*self.options.names, *([MASK] if self.spans is not None else [])]

    def answer(self, values: dict[str, Any], encoding: Any, lengths: Any) -> None:
        """Set the values of the text. If the encoding's offsets or ``lengths`` (the number of bytes of each token) show
        which tokens belong to the answers, also set its assistant mask.
        """
        self.values, self.encoding = values, encoding
        if self.spans is None:
            return
        ids, places = values["input_ids"], encoding
        if encoding is None:
            chars = [at for begin, end in self.spans for at in (begin, end - 1)]
            places = lengths and lengths.places(self.text, ids, chars)
        if places is not None:
            values[MASK] = assistant_mask(len(ids), self.spans, places)


class Options:
    """The arguments of calls of the tokenizer, and the names of the values that such a call returns."""

    def __init__(self, given: dict[str, Any], names: Sequence[str]) -> None:
        self.given, self.names = given, names
        self.offsets: bool | None = None
        """Whether offsets are computed; None until the encodings with and without offsets have been compared."""


class Encoding:
    """Has the attributes of a tokenizers.Encoding, such as offsets; reading one before it is known raises Stopped."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __getattr__(self, name: str) -> object:
        if self._text.encoding is None:
            raise OffsetsRead(self._text)
        return getattr(self._text.encoding, name)


class WithoutOffsets:
    """Wraps a fast tokenizer's tokenizers.Tokenizer. `encode_batch` computes no offsets, because it calls
    `encode_batch_fast`.
    """

    def __init__(self, core: Any) -> None:
        object.__setattr__(self, "core", core)

    def __getattr__(self, name: str) -> object:
        return getattr(self.core, "encode_batch_fast" if name == "encode_batch" else name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.core, name, value)


class Calls:
    """The calls of the tokenizer that the mapped function made for one row, in order."""

    def __init__(self) -> None:
        self.texts, self.rendered = list[Text](), list[Any]()
        self.chats = list[tuple[Text | None, int, int]]()
        """For each call of apply_chat_template: the text that it encoded (None if it did anything else), and how many
        texts and how many renderings had been recorded when it returned."""
        self.restart()

    def restart(self) -> None:
        """Start again at the first recorded call: the function runs again, and makes the same calls."""
        self.text = self.rendering = self.chat = 0


class Recorder:
    """A tokenizer that records the calls of each row's function, and encodes the texts of many rows together."""

    def __init__(self, tokenizer: Any) -> None:
        from transformers import BatchEncoding

        self.tokenizer, self.kind, self.made = tokenizer, type(tokenizer), BatchEncoding
        self.options = list[Options]()
        self.masked = _digest(getattr(self.kind, "apply_chat_template", None)) in MASKED
        self.calls = Calls()
        self.differs = False
        self.last: Any = None
        self.rows = FIRST
        recorder = self

        class Replaced(self.kind):  # type: ignore[misc, name-defined]
            """The tokenizer's class while a group of rows is prepared. It records the tokenizer's calls."""

            def __call__(self, text: object = None, *args: object, **options: object) -> object:
                return recorder.call(text, args, options)

            def apply_chat_template(self, *args: Any, **options: object) -> object:
                return recorder.chat(super().apply_chat_template, args, options)

        self.replaced = Replaced

    @cached_property
    def lengths(self) -> Any:
        """The number of bytes of each token, used instead of offsets; None unless the tokenizer is a byte-level BPE."""
        return PLACES["token_bytes"](self.tokenizer._tokenizer)

    def results(self, function: Callable[[int], dict[str, object]], places: Sequence[int]) -> list[dict[str, object]]:
        """The results of ``function`` for the rows with these numbers, in this order. All texts that it tokenizes are
        encoded together.

        Raises NotBatched if this is impossible, for example because the calls differ when the function runs again.
        """
        found, calls = dict[int, dict[str, Any]](), {place: Calls() for place in places}
        left = list(places)
        with self._recording():
            while left:
                again = []
                for place in left:
                    self.calls = calls[place]
                    self.calls.restart()
                    try:
                        found[place] = function(place)
                    except Stopped as reason:
                        if isinstance(reason, OffsetsRead):
                            reason.text.options.offsets = True
                        again.append(place)
                    else:
                        if any(one.values is None for one in self.calls.texts) and _hidden(found[place]):
                            again.append(place)
                if self.differs:
                    raise NotBatched("the function calls the tokenizer differently when it runs again")
                texts = {place: [one for one in calls[place].texts if lacking(one)] for place in left}
                if not all(texts[place] for place in again):
                    raise NotBatched("the function reads the tokenizer's results in an unknown way")
                self._encode([one for each in texts.values() for one in each])
                unmasked = [place for place in left if any(map(unlearned, texts[place]))]
                # the mask has no 1, although its placeholder claimed to have one: the function must run again for this
                # row
                left = list(dict.fromkeys(again + unmasked))
        self.rows = ROWS
        return [{name: filled(one) for name, one in found[place].items()} for place in places]

    def call(self, text: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The encoding of one text, with placeholders if it is not encoded yet. A call with padding or with a list of
        texts goes to the tokenizer and is not recorded.
        """
        if not isinstance(text, str) or args or any(options.get(one) for one in SEPARATE):
            return self.kind.__call__(self.tokenizer, text, *args, **options)
        if options.get("padding") not in (None, False):
            return self.kind.__call__(self.tokenizer, text, **options)
        calls = self.calls
        if calls.text == len(calls.texts):
            calls.texts.append(Text(text, self._options(options)))
        found = calls.texts[calls.text]
        calls.text += 1
        if found.text != text or found.options.given != options:
            self.differs = True
            raise Stopped
        self.last = self._made(found)
        return self.last

    def chat(self, real: Callable[..., object], args: tuple[object, ...], options: dict[str, object]) -> Any:
        """The result of apply_chat_template. If the same call has already returned an encoding, the chat is not
        rendered again.
        """
        calls, number = self.calls, self.calls.chat
        if number < len(calls.chats):
            text, *after = calls.chats[number]
            if text is not None:
                calls.text, calls.rendering = after
                calls.chat += 1
                return self._made(text)
        try:
            out = real(*args, **options)
        except Stopped:
            expected = self.masked and options.get("return_assistant_tokens_mask") and not self.differs
            if not expected or calls.texts[-1].values is not None:
                raise
            text = calls.texts[-1]
            text.spans = calls.rendered[-1][1][0]
            text.options.offsets = text.options.offsets if self.lengths else True
            out = self.last = self._made(text)
        calls.chat += 1
        if number == len(calls.chats):
            same = out is self.last and len(out) == len(calls.texts[calls.text - 1].names())
            calls.chats.append((calls.texts[calls.text - 1] if same else None, calls.text, calls.rendering))
        return out

    def render(self, real: Callable[..., Any], options: dict[str, object]) -> object:
        """Render a chat template. If the function runs again for a row, return the text from its first run."""
        calls = self.calls
        if calls.rendering == len(calls.rendered):
            calls.rendered.append(real(**options))
        calls.rendering += 1
        return calls.rendered[calls.rendering - 1]

    def _made(self, text: Text) -> object:
        """A new encoding, as the tokenizer returns it for this text."""
        values: dict[str, Any] = {one: (Mask if one == MASK else Placeholder)(text, one) for one in text.names()}
        if text.values is not None:
            values = {name: list(one) if type(one) is list else one for name, one in text.values.items()}
        return self.made(values, encoding=[Encoding(text)], n_sequences=1)

    def _options(self, given: dict[str, object]) -> Options:
        for one in self.options:
            if one.given == given:
                return one
        self.options.append(Options(given, list(self.kind.__call__(self.tokenizer, "a", **given))))
        return self.options[-1]

    def _encode(self, texts: list[Text]) -> None:
        for options in self.options:
            some = [one for one in texts if one.options is options]
            if options.offsets is None and some:
                ways = [self._batch(some[:COMPARED], options, offsets).data for offsets in (True, False)]
                options.offsets = ways[0] != ways[1]
            self._answer(some, options)
            without = [one for one in some if one.spans is not None and MASK not in (one.values or {})]
            if without:
                before, options.offsets = options.offsets, True
                self._answer(without, options)
                options.offsets = before if 2 * len(without) < len(some) else True

    def _answer(self, texts: list[Text], options: Options) -> None:
        """Encode these texts together, and store the result in each of them."""
        if texts:
            batch = self._batch(texts, options, options.offsets)
            for at, one in enumerate(texts):
                values = {name: column[at] for name, column in batch.items()}
                one.answer(values, batch.encodings[at] if options.offsets else None, self.lengths)

    def _batch(self, texts: list[Text], options: Options, offsets: bool | None) -> Any:
        core = self.tokenizer._tokenizer
        if not offsets:
            self.tokenizer._tokenizer = WithoutOffsets(core)
        try:
            return self.kind.__call__(self.tokenizer, [one.text for one in texts], **options.given)
        finally:
            self.tokenizer._tokenizer = core

    @contextmanager
    def _recording(self) -> Iterator[None]:
        from transformers import tokenization_utils_base as base

        render = base.render_jinja_template
        base.render_jinja_template = lambda **options: self.render(render, options)
        self.tokenizer.__class__ = self.replaced
        try:
            yield
        finally:
            self.tokenizer.__class__ = self.kind
            base.render_jinja_template = render
            self.calls, self.last = Calls(), None


def assistant_mask(length: int, spans: Sequence[tuple[int, int]], encoding: Any) -> list[int]:
    """The mask that apply_chat_template returns: 1 for the tokens of ``spans`` (each answer), else 0."""
    mask = [0] * length
    for begin, end in spans:
        first, last = encoding.char_to_token(begin), encoding.char_to_token(end - 1)
        if first is None:
            break
        after = last + 1 if last else length
        mask[first:after] = [1] * (after - first)
    return mask


def _digest(function: Any) -> str | None:
    try:
        return sha256(inspect.getsource(function).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        return None


def unlearned(text: Text) -> bool:
    """Whether a search for a 1 in the text's `Mask` was answered with "found", but the computed mask has no 1."""
    return text.learned and text.values is not None and 1 not in text.values[MASK]


def lacking(text: Text) -> bool:
    """Whether the text is not encoded yet, or is encoded without the offsets that a function needs."""
    return text.values is None or bool(text.options.offsets and text.encoding is None)


def holds_placeholders(value: Any) -> bool:
    """Whether a value may contain placeholders."""
    if type(value) is dict:
        return any(map(holds_placeholders, value.values()))
    return any(map(holds_placeholders, value)) if type(value) in (list, tuple) else type(value) not in PLAIN


def _hidden(row: Mapping[str, object]) -> bool:
    """Whether a row has placeholders inside lists or dictionaries, where ``filled`` would not find them."""
    return any(not isinstance(one, Placeholder) and holds_placeholders(one) for one in row.values())


def filled(value: object) -> object:
    """The value of a placeholder; any other value is returned unchanged."""
    if not isinstance(value, Placeholder):
        return value
    text, name = object.__getattribute__(value, "place")
    return text.values[name]
