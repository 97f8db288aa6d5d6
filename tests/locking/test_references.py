"""Messages write a reference to the hub in words: "the dataset me/rows". The columns and the number of rows of a
dataset are read from its card.
"""

from __future__ import annotations

import pytest

from xpc.compiler.locking import hub
from xpc.compiler.locking.state import described


@pytest.mark.parametrize(("reference", "text"), [
    (("dataset", "me/rows", "", ""), "the dataset me/rows"),
    (("dataset", "me/rows", "", "part"), "the dataset me/rows:part"),
    (("model", "me/model", "v1", ""), "the model me/model@v1"),
])  # fmt: skip
def test_a_reference_is_written_in_words(reference: tuple[str, str, str, str], text: str) -> None:
    assert described(reference) == text


def test_columns_and_rows_of_a_card_are_read() -> None:
    splits = [{"name": "train", "num_examples": 7}, {"name": "test", "num_examples": -1}]
    one = {"features": [{"name": "text"}, {"name": "id"}], "splits": splits}
    other = {"config_name": "part", "features": [{"name": "chat"}], "splits": []}
    assert hub.described({"dataset_info": one}, "") == (("text", "id"), {"train": 7})
    assert hub.described({"dataset_info": [one, other]}, "part") == (("chat",), {})
    assert hub.described({"dataset_info": [other]}, "none") == ((), {})
    assert hub.described({}, "") == ((), {})
