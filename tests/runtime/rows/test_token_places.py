"""The runtime finds the token at a character position of a text. It computes this from the bytes of the tokens, with
the same result as from the tokenizer's own offsets.
"""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from xpc.runtime.batched_calls import Recorder, assistant_mask
from xpc.runtime.token_places import token_bytes

WORDS = (
    "the",
    " ",
    "  ",
    "\n",
    "\t",
    "Ġ",
    "über",
    "u\u0308ber",
    "河",
    "🙂",
    "e\u0301",
    "\u00a0",
    "<|end|>",
    "don't",
    "1234",
    "ﬁ",
    "K",
)


def byte_level(normalizer: Any = None, trim: bool = True, prefix: bool = False) -> Any:
    """A byte-level BPE with two added tokens."""
    core = Tokenizer(models.BPE())
    core.normalizer = normalizer
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(WORDS * 20, trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet))  # type: ignore[arg-type]
    core.add_special_tokens(["<|end|>", "<|begin|>"])
    core.post_processor = processors.ByteLevel(trim_offsets=trim)
    return core


@pytest.mark.parametrize(("normalizer", "trim"), list(product((None, normalizers.NFC()), (True, False))))
def test_places_are_those_of_the_offsets(normalizer: Any, trim: bool, chance: random.Random) -> None:
    core = byte_level(normalizer, trim)
    lengths = token_bytes(core)
    assert lengths is not None
    known = 0
    for _ in range(400):
        text = "".join(chance.choices(WORDS, k=8))
        encoding = core.encode(text)
        begin, end = sorted(chance.sample(range(len(text) + 1), 2))
        places = lengths.places(text, encoding.ids, (begin, end - 1))
        if places is not None:
            known += 1
            ids = len(encoding.ids)
            assert assistant_mask(ids, [(begin, end)], places) == assistant_mask(ids, [(begin, end)], encoding), text
    assert known > 100


def test_a_text_that_the_tokenizer_changes_needs_offsets() -> None:
    lengths = token_bytes(byte_level(normalizers.NFC()))
    assert lengths is not None
    core = byte_level(normalizers.NFC())
    for text, at, found in [
        ("u\u0308ber", 2, False),
        ("über", 2, True),
        ("a b", 1, False),
        ("a b", 2, True),
        ("ab", 2, False),
    ]:
        assert (lengths.places(text, core.encode(text).ids, (at,)) is not None) is found, text
    assert lengths.places("ab", core.encode("abc").ids, (0,)) is None


def stripping() -> Any:
    core = byte_level()
    core.add_tokens([AddedToken("<|strip|>", lstrip=True)])
    return core


def metaspace() -> Any:
    core = byte_level()
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    return core


OTHERS = {
    "a space is put before the text": lambda: byte_level(prefix=True),
    "another normal form": lambda: byte_level(normalizers.Lowercase()),
    "an added token takes spaces": stripping,
    "no bytes": metaspace,
    "no BPE": lambda: Tokenizer(models.WordLevel()),
    "no pre-tokenizer": lambda: Tokenizer(models.BPE()),
    "no tokenizer of the library": object,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_tokenizers_need_offsets(name: str) -> None:
    assert token_bytes(OTHERS[name]()) is None


TEMPLATE = (
    "{% for turn in messages %}{% if turn.role == 'user' %}Q{{ turn.content }}<|end|>"
    "{% else %}A{% generation %}{{ turn.content }}<|end|>{% endgeneration %}{% endif %}{% endfor %}"
)


def test_masks_of_conversations_need_no_offsets() -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level(), chat_template=TEMPLATE, eos_token="<|end|>")
    chats = [
        [{"role": "user", "content": f"{word} the"}, {"role": "assistant", "content": answer}]
        for word, answer in product(WORDS, ("the", "über 🙂", " a space first"))
    ]

    def masked(at: int) -> dict[str, Any]:
        made = tokenizer.apply_chat_template(chats[at], return_dict=True, return_assistant_tokens_mask=True)
        return {name: made[name] for name in ("input_ids", "assistant_masks")}

    recorder = Recorder(tokenizer)
    assert recorder.results(masked, range(len(chats))) == [masked(at) for at in range(len(chats))]
    assert [one.offsets for one in recorder.options] == [False]
