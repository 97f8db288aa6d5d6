"""Find the token at a position of a text without the tokenizer's offsets, because computing offsets takes a quarter of
the time of encoding.

A byte-level BPE, as in GPT-2, Llama 3 and Qwen, keeps every byte of a text. Each of its tokens stands for a known
number of bytes, so the sums of these numbers say where each token begins. `launch.sh --prepare` uses the sums for
assistant masks. Where they may be wrong (`places`), it computes the offsets.
"""

import json
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any


class TokenPlaces:
    """The positions in bytes at which the tokens of a text end. In the function that computes a loss mask, this class
    replaces a tokenizers.Encoding, because that function calls only `char_to_token`.
    """

    def __init__(self, text: str, ends: Any) -> None:
        self.text, self.ends = text, ends

    def char_to_token(self, at: int) -> int:
        """The token that contains the first byte of this character."""
        before = at if self.text.isascii() else len(self.text[:at].encode())
        return int(self.ends.searchsorted(before, side="right"))


class TokenBytes:
    """The number of bytes for which each token of a byte-level BPE stands, such as 5 for " like"."""

    def __init__(self, core: Any) -> None:
        import numpy

        vocabulary = core.get_vocab()
        self.bytes = numpy.zeros(max(vocabulary.values()) + 1, dtype="int64")
        for token, at in vocabulary.items():
            self.bytes[at] = len(token)  # one character for each byte, for example "Ġ" for a space
        for at, added in core.get_added_tokens_decoder().items():
            self.bytes[at] = len(added.content.encode())
        self.nfc = core.normalizer is not None

    def places(self, text: str, ids: Sequence[int], chars: Sequence[int]) -> TokenPlaces | None:
        """The places of the tokens of an encoded text. None if they may differ from the tokenizer's offsets at one of
        the characters ``chars``.

        They may differ at a space, which the tokenizer may leave out of its offsets. They may also differ if the
        tokenizer changes the text; then the numbers of bytes are not equal, or the text is not in the normal form NFC.
        """
        if any(text[at : at + 1] in ("", " ") for at in chars):
            return None
        if self.nfc and not unicodedata.is_normalized("NFC", text):
            return None
        ends = self.bytes[ids].cumsum()
        whole = len(text) if text.isascii() else len(text.encode())
        return TokenPlaces(text, ends) if len(ends) and ends[-1] == whole else None


def token_bytes(core: object) -> TokenBytes | None:
    """The bytes of each token of a ``tokenizers.Tokenizer``; None if it is not a byte-level BPE."""
    import tokenizers
    from tokenizers import models, normalizers

    if not isinstance(core, tokenizers.Tokenizer) or not isinstance(core.model, models.BPE):
        return None
    if not isinstance(core.normalizer, normalizers.NFC | None) or core.pre_tokenizer is None:
        return None
    steps = list(_steps(json.loads(core.pre_tokenizer.__getstate__())))
    if not any(one["type"] == "ByteLevel" for one in steps) or any(one.get("add_prefix_space") for one in steps):
        return None
    added = core.get_added_tokens_decoder().values()
    return None if any(one.lstrip or one.rstrip for one in added) else TokenBytes(core)


def _steps(step: dict[str, Any]) -> Iterator[dict[str, object]]:
    """The steps of a pre-tokenizer. A pre-tokenizer of the type Sequence has several steps."""
    if step["type"] == "Sequence":
        for one in step["pretokenizers"]:
            yield from _steps(one)
    else:
        yield step
