"""Lists of datasets in YAML become the sources of a `data` block."""

from __future__ import annotations

import pytest
from compile_support import checked, edited, shown

from xpc.grammar.diagnostic import applied

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


MIX = "data mix {\n  capybara { share = 70% }\n  ultrachat-200k { share = 30% }\n}"


@pytest.mark.parametrize(
    "typed",
    [
        "mix { capybara = 0.7, ultrachat-200k = 0.3 }",
        "data mix {\n  capybara: 70%\n  ultrachat-200k: 30%\n}",
        "mixture(70% capybara, 30% of ultrachat-200k)",
        "blend = 7 * capybara + 3 * ultrachat-200k",
        "data { capybara(weight=0.7), ultrachat-200k(weight=0.3) }",
    ],
)
def test_mixture_in_another_notation_becomes_a_data_block(typed: str) -> None:
    text = f"{LINE.format('capybara')}{typed}\n"
    assert edited(text, checked(text).problems[0]) == f"{LINE.format('mix')}{MIX}\n"


@pytest.mark.parametrize("typed", ["mix { lr = 0.7, seed = 3 }", "data { capybara(take=5, weight=1), workers(p=0.1) }"])
def test_other_settings_in_braces_are_no_mixture(typed: str) -> None:
    assert "data mix" not in shown(checked(f"{LINE.format('capybara')}{typed}\n"))


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("datasets:\n  - path: me/other", "write `train MODEL on me/other`"),
        ("datasets:\n  - path: tatsu-lab/alpaca\n    roles_to_train: [assistant]", "`roles_to_train`"),
        ("datasets:\n  - path: tatsu-lab/alpaca\n    type: my_own.kind", "`my_own.kind`"),
        (f"datasets:\n{TWO.replace('split: train', 'weight: 0.5')}", "`data mix {`"),
        ('report_to = [wandb(name=a), "tensorboard"]', "`track` decides it"),
    ],
)
def test_unclear_list_has_no_edit(typed: str, says: str) -> None:
    found = checked(f"{LINE.format('alpaca')}{typed}\n").problems[0]
    assert says in (found.help or "")
    assert not found.edits


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("lora:\n  - r: 8\n    alpha: 16", "lora(rank=8, alpha=16)"),
        ("eval_datasets:\n  - path: me/held", "eval(data=me/held)"),
        (
            "rewards:\n  - name: accuracy\n    weight: 1.0\n  - name: format",
            "rewards = [accuracy(weight=1.0), format]",
        ),
        ("compute:\n  nodes: 2\n  gpus_per_node: 8\n  gpu_type: h100-80gb", "nodes 2\nhardware 8 x h100-80gb"),
        ("optimizer:\n  _target_: torch.optim.SGD\n  lr: 1e-3", "optimizer sgd {\n  lr=1e-3\n}"),
    ],
)
def test_other_lists_and_blocks_become_settings(typed: str, right: str) -> None:
    text = f"{LINE.format('alpaca')}{typed}\n"
    edits = [edit for one in checked(text).problems if one.code[:3] in ("XP0", "XP1") for edit in one.edits]
    assert sorted(applied(text, edits).splitlines()) == sorted(f"{LINE.format('alpaca')}{right}\n".splitlines())


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("hooks:\n  - type: CheckpointHook\n    interval: 100", "no equivalent"),
        ("lr_scheduler:\n  - type: LinearLR\n    end: 100\n  - type: Cosine", "one by one"),
    ],
)
def test_list_of_mappings_is_one_finding_without_an_edit(typed: str, says: str) -> None:
    found = [one for one in checked(f"{LINE.format('alpaca')}{typed}\n").problems if one.severity == "error"]
    assert len(found) == 1
    assert says in (found[0].help or "")
    assert not found[0].edits


def test_list_of_datasets_may_stand_on_one_line() -> None:
    text = f"{LINE.format('mix')}datasets: [tatsu-lab/alpaca, me/b]\n"
    right = "data mix {\n  tatsu-lab/alpaca\n  me/b\n}"
    assert edited(text, checked(text).problems[0]) == f"{LINE.format('mix')}{right}\n"


@pytest.mark.parametrize(("spaces", "rewritten"), [(50, True), (5000, False)])
def test_a_file_with_a_very_long_line_is_not_rewritten(spaces: int, rewritten: bool) -> None:
    """Some patterns need a time that grows with the square of a line's length."""
    found = checked(f"{LINE.format('mix')}datasets:\n  - path: me/a{' ' * spaces}\n  - path: me/b\n").problems
    assert any("sources of a `data` block" in one.message for one in found) is rewritten


@pytest.mark.parametrize(
    ("setting", "help"),
    [
        ("weight = 30%", "write `share = 30%`: the shares of all sources add up to 100%"),
        ("p = 0.3", "write `share = 30%`: the shares of all sources add up to 100%"),
        ("head = 50", "write `limit`"),
        ("split = test", "write `SOURCE[test]` on the source's line"),
        ("shards = 4", "leave it out: it has no equivalent"),
        ('system = "Be brief."', "`system` belongs to the block: write it below the sources"),
        ("epochs = 3", "a source has `chat`, `columns`"),
    ],
)
def test_name_of_another_tool_in_a_source(setting: str, help: str) -> None:
    found = checked(f"{LINE.format('mix')}data mix {{\n  alpaca {{ {setting} }}\n}}\n").problems[0]
    assert (found.help or "").startswith(help)
