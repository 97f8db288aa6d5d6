"""Lists of datasets in YAML become the sources of a `data` block."""

from __future__ import annotations

import pytest
from compile_support import checked, edited

LINE = "xpc 1\ntrain qwen2.5-3b on {}\n"
TWO = """\
  - path: tatsu-lab/alpaca
    type: alpaca
  - path: trl-lib/Capybara
    type: chat_template
    split: train"""
BLOCK = """\
data mix {
  tatsu-lab/alpaca { format = alpaca }
  trl-lib/Capybara[train] { format = messages }
}"""


@pytest.mark.parametrize(
    ("data", "typed", "right"),
    [
        ("mix", f"datasets:\n{TWO}", BLOCK),
        ("alpaca", "datasets:\n  - path: tatsu-lab/alpaca\n    type: alpaca", "data(format=alpaca)"),
        (
            "mix",
            'sources:\n- dataset: "a.jsonl"\n  columns: [a, b]\n  max_samples: 1000\n- dataset: me/b\n  config: en',
            'data mix {\n  "a.jsonl" { columns = [a, b], take = 1000 }\n  me/b:en\n}',
        ),
        (
            "mix",
            "data:\n  - name: me/a\n    weight: 3\n  - name: me/b\n    weight: 1",
            "data mix {\n  me/a { share = 75% }\n  me/b { share = 25% }\n}",
        ),
    ],
)
def test_list_of_datasets_becomes_a_data_block(data: str, typed: str, right: str) -> None:
    line = LINE.format(data)
    found = checked(f"{line}{typed}\n").problems[0]
    assert edited(f"{line}{typed}\n", found) == f"{line}{right}\n"


def test_first_line_names_the_mixture_if_its_data_is_one_of_the_datasets() -> None:
    text = f"{LINE.format('alpaca')}datasets:\n{TWO}\n"
    assert edited(text, checked(text).problems[0]) == f"{LINE.format('mix')}{BLOCK}\n"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("datasets:\n  - path: me/other", "write `train MODEL on me/other`"),
        ("datasets:\n  - path: tatsu-lab/alpaca\n    roles_to_train: [assistant]", "`roles_to_train`"),
        ("datasets:\n  - path: tatsu-lab/alpaca\n    type: my_own.kind", "`my_own.kind`"),
        (f"datasets:\n{TWO.replace('split: train', 'weight: 0.5')}", "`data mix {`"),
    ],
)
def test_unclear_list_of_datasets_has_no_edit(typed: str, says: str) -> None:
    found = checked(f"{LINE.format('alpaca')}{typed}\n").problems[0]
    assert says in (found.help or "")
    assert not found.edits
