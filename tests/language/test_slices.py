"""If a setting expects a count or a percentage, a value such as `0.5` is an error whose help suggests both. A slice of
a split must have a form that `datasets` can read.
"""

from __future__ import annotations

import pytest
from case_support import data, spec
from compile_support import checked, codes, errors, only, shown

from xpc.compiler.language.kinds import Amount

SHARES = [
    ("schedule cosine(warmup={})", "schedule.warmup"),
    ("schedule wsd(decay={})", "schedule.decay"),
    ("eval(split=test, every={})", "eval.every"),
    ("data(holdout={})", "data.holdout"),
    ("save(every={})", "save.every"),
    ("track(every={})", "track.every"),
]


def amount(form: str, value: str):
    text = spec(form.format(value), train="qwen2.5-3b on infinity-instruct for 400 steps", save="")
    return checked(text)


@pytest.mark.parametrize(("form", "path"), SHARES)
@pytest.mark.parametrize("value", ["1.0", "1e0", "0.001", "0.5", "2.5", "150.5"])
def test_a_fraction_says_both_readings(form, path, value):
    found = amount(form, value)
    assert errors(found) == ["XP105"], shown(found)
    one = only(found, "XP105")
    name = path.rpartition(".")[2]
    number = float(value)
    assert f"`{name} = {max(1, round(number))}`" in one.help
    if number < 100 and not (number == 1 and name in ("every", "holdout")):
        share = number * 100 if number <= 1 else number
        assert f"`{name} = {share:g}%`" in one.help
    # Only a number below 1 is surely meant as a percentage, so only then an automatic edit is offered.
    assert bool(one.edits) == (number < 1)


@pytest.mark.parametrize(("form", "path"), SHARES)
@pytest.mark.parametrize(
    ("value", "intended"),
    [
        ("1", Amount("count", 1)),
        ("40.0", Amount("count", 40)),
        ("1e2", Amount("count", 100)),
        ("50%", Amount("share", 0.5)),
    ],
)
def test_a_count_and_a_share_stay_what_they_are(form, path, value, intended):
    found = amount(form, value)
    assert "XP105" not in codes(found)
    assert found.spec is not None
    assert found.spec.get(path) == intended


@pytest.mark.parametrize(
    ("value", "readings"),
    [
        ("1.0", ("`take = 1`", "`take = 100%` for a share of the rows")),
        ("0.001", ("`take = 0.1%` for a share", "`take = 1`")),
    ],
)
def test_take_says_both_readings(value, readings):
    found = checked(spec(data(f"infinity-instruct(take={value})", name="mix"), train="qwen2.5-3b on mix for 3 epochs"))
    one = only(found, "XP105")
    assert all(reading in one.help for reading in readings)


@pytest.mark.parametrize(("floor", "right"), [("0.5", "50%"), ("0.1", "10%"), ("0.02", "2%")])
def test_a_floor_above_the_peak_is_a_share_of_it(floor, right):
    one = only(checked(spec(f"schedule cosine(min_lr={floor})")), "XP204")
    assert f"`min_lr = {right}`" in one.help
    assert [edit.text for edit in one.edits] == [f"min_lr = {right}"]


LEGAL = {"20%": "20%", "100%": "100%", "1000": "1000", "1_000": "1000", "1k": "1000", "2Ki": "2048", "1": "1"}
ILLEGAL = {
    "0.2": "[train:20%]`",
    "1.0": "`[train:1]` for one row, or `[train]`",
    "20.5%": "[train:20%]`",
    "abc": "`[train:20%]`",
    "120%": "`[train]`",
    "0": "`[train:20%]`",
    "0%": "`[train:20%]`",
    "-5": "`[train:20%]`",
    "1e3": "[train:1000]`",
    "9" * 40: "`[train:20%]`",
    "2.5": "[train:2]`",
    "1e999": "`[train:20%]`",
}


def part(text: str):
    return checked(spec(train=f"qwen2.5-3b on infinity-instruct[train:{text}] for 3 epochs"))


@pytest.mark.parametrize("text", LEGAL)
def test_a_part_of_a_split(text):
    found = part(text)
    assert found.spec is not None
    assert errors(found) == []
    assert found.spec.data[0].slice == LEGAL[text]


@pytest.mark.parametrize("text", ILLEGAL)
def test_no_part_of_a_split(text):
    found = part(text)
    assert errors(found) == ["XP140"], shown(found)
    assert ILLEGAL[text] in only(found, "XP140").help


def test_a_number_names_no_split():
    found = checked(spec(train="qwen2.5-3b on infinity-instruct[1000] for 3 epochs"))
    assert "`infinity-instruct[train:1000]`" in only(found, "XP140").help


@pytest.mark.slow
def test_datasets_reads_the_same_parts():
    instruction = pytest.importorskip("datasets.arrow_reader").ReadInstruction
    for written in LEGAL.values():
        assert instruction.from_spec(f"train[:{written}]")
    for text in ("0.2", "1.0", "20.5%", "abc", "1e3", "2.5"):
        with pytest.raises(ValueError, match="Unrecognized"):
            instruction.from_spec(f"train[:{text}]")
