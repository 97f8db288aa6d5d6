"""Other errors of a file are reported even if its sentence (`train ...`) is misplaced or incomplete, or if its
parentheses do not match.
"""

from __future__ import annotations

import pytest
from compile_support import checked

from xpc.grammar.parse import parse
from xpc.grammar.source import Source

TAIL = "hardware 8 x v100-32gb\nprecision bf16\n"


def errors(text: str) -> list[tuple[str, int]]:
    """The code and the line of each error of a spec."""
    found = [one for one in checked(text).problems if one.severity == "error" and one.primary is not None]
    return sorted((one.code, one.primary.source.text.count("\n", 0, one.primary.span.start) + 1) for one in found)


def test_a_sentence_below_a_clause_is_checked_with_the_rest_of_the_file():
    assert errors(f"xpc 1\ntarget trl-1.16\ntrain qwen2.5-3b on capybara with gbs=7\n{TAIL}") == [
        ("XP032", 3), ("XP201", 3), ("XP301", 5),
    ]  # fmt: skip


def test_the_spans_of_such_a_sentence_are_those_of_the_file():
    source = Source("x.xp", "seed 1\ntrain a on b for 3 epochs  # it is late\nnodes 2\n")
    file, _ = parse(source)
    assert file.train is not None
    assert source.slice(file.train.data.span) == "b"
    assert source.slice(file.train.span) == "train a on b for 3 epochs"


def test_words_in_such_a_sentence_are_checked_as_in_the_first_line():
    _, found = parse(Source("x.xp", "seed 1\ntrain a on b for 3 epochs with lora for 4 epochs\n"))
    assert [one.code for one in found] == ["XP032", "XP031"]


def test_of_two_late_sentences_the_second_is_too_many():
    file, found = parse(Source("x.xp", "seed 1\ntrain a on b\ntrain c on d\n"))
    assert file.train is not None
    assert file.source.slice(file.train.model.span) == "a"
    assert [one.message for one in found] == ["the `train` sentence comes first", "a second `train` sentence"]


def test_a_late_sentence_without_data_is_no_sentence():
    assert parse(Source("x.xp", "seed 1\ntrain a\n"))[0].train is None


@pytest.mark.parametrize("line", ['save "out/x"(evry=10)', 'save "out/x"(evry=10, hub(name="a/(b"))  # twice an hour'])
def test_settings_in_parentheses_after_a_text_are_checked(line):
    found = checked(f"xpc 1\ntrain qwen2.5-3b on capybara\n{line}\n").problems
    helps = {one.code: one.help for one in found if one.code in ("XP025", "XP101")}
    block = line.partition("  #")[0].replace('save "out/x"(', '"out/x" { ')[:-1] + " }"
    assert helps == {"XP025": f"write `{block}`", "XP101": "write `every`"}


@pytest.mark.parametrize(
    "line", ['data(system="x"(a=1))', 'save "out/x"(a=1) keep=2', 'save "out/x"(a=1', 'f("a"(b=1))']
)
def test_parentheses_that_no_block_can_replace_have_one_error(line):
    _, found = parse(Source("x.xp", f"xpc 1\ntrain a on b\n{line}\n"))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("sentence", "help"),
    [
        ("train qwen2.5-3b using capybara for 3 epochs", "write `train qwen2.5-3b on capybara for 3 epochs`"),
        ("train qwen2.5-3b on capybara for 500", "write `for 500 epochs` or `for 500 steps`"),
        ("train qwen2.5-3b on capybara for 500  # or more", "write `for 500 epochs` or `for 500 steps`"),
        ("train qwen2.5-3b on capybara for 500 with lora", "write `for 500 epochs` or `for 500 steps`"),
        ("train qwen2.5-3b on capybara for 2epochs with lora", "write `for 2 epochs`"),
        ("train qwen2.5-3b on capybara for 2epochs", "write `for 2 epochs`"),
    ],
)
def test_an_incomplete_sentence_keeps_its_numbers_and_does_not_hide_other_errors(sentence, help):
    found = checked(f"xpc 1\n{sentence}\n{TAIL}").problems
    assert [(one.code, one.help) for one in found if one.code in ("XP020", "XP301")] == [
        ("XP020", help),
        ("XP301", "write `precision fp32`, or `precision fp16` for mixed precision"),
    ]


@pytest.mark.parametrize("words", ["finetune", "fit", ""])
def test_a_sentence_with_another_verb_is_repeated_in_full_and_does_not_hide_other_errors(words):
    text = f"xpc 1\n{words} qwen2.5-3b on capybara for 3 epochs with zero2\n{TAIL}".replace("\n ", "\n")
    found = [one for one in checked(text).problems if one.code in ("XP020", "XP301")]
    assert [one.code for one in found] == ["XP020", "XP301"]
    assert found[0].help == "write `train qwen2.5-3b on capybara for 3 epochs with zero2`"


def test_a_verb_that_may_be_a_method_is_not_read_as_sft():
    assert errors(f"xpc 1\ndpo qwen2.5-3b on capybara\n{TAIL}eval(every=epoch)\n") == [("XP020", 2), ("XP301", 4)]


@pytest.mark.parametrize(
    "sentence",
    [
        "train", "train on capybara", "train qwen2.5-3b", "train qwen2.5-3b on", "train qwen2.5-3b for 3 epochs",
        "train qwen2.5-3b on for 3 epochs", "train qwen2.5-3b on with lora", "train with lora", 'train "m n" on # none',
        "train qwen2.5-3b capybara for 3 epochs with zero2",
    ],
)  # fmt: skip
def test_a_sentence_without_model_or_data_does_not_hide_other_errors(sentence):
    assert {("XP020", 2), ("XP301", 4), ("XP201", 5)} <= {*errors(f"xpc 1\n{sentence}\n{TAIL}batch(gbs=7)\n")}


def test_what_an_incomplete_sentence_names_and_chooses_is_checked():
    assert errors(f"xpc 1\ntrain qwen2.5-3bb on for 3 epochs with gbs=7 ligger\n{TAIL}") == [
        ("XP020", 2), ("XP101", 2), ("XP108", 2), ("XP201", 2), ("XP301", 4),
    ]  # fmt: skip


def test_a_missing_name_is_reported_once_and_the_others_have_their_place():
    source = Source("x.xp", "xpc 1\ntrain on b for 3 epochs with lora\nnodes 2\n")
    file, found = parse(source)
    assert [one.code for one in found] == ["XP020"]
    assert file.train is not None
    assert (file.train.model.name, source.slice(file.train.data.span)) == ("", "b")
    assert file.train.budget is not None
    assert source.slice(file.train.budget.span) == "for 3 epochs"
    assert [source.slice(one.span) for one in file.train.options] == ["lora"]


@pytest.mark.parametrize("line", ["train a b c d", "train a, b", "train a = b", "train for for 3 epochs"])
def test_a_sentence_with_another_error_is_no_sentence(line):
    assert parse(Source("x.xp", f"xpc 1\n{line}\n"))[0].train is None


def test_a_sentence_with_for_in_the_place_of_its_data_says_that_the_data_is_missing():
    _, found = parse(Source("x.xp", "xpc 1\ntrain a on for 3 epochs\n"))
    expected = ("expected a dataset after `on`, found `for`", "train MODEL on DATA")
    assert [(one.message, one.help) for one in found] == [expected]


def test_the_data_block_is_read_if_the_sentence_names_no_data():
    found = errors("xpc 1\ntrain qwen2.5-3b on\ndata mine {\n  capybaraaaa\n}\n")
    assert found == [("XP020", 2), ("XP110", 4)]


@pytest.mark.parametrize(("extra", "codes"), [("", ["XP117"]), ("for 3 epochs\n", ["XP030"])])
def test_a_spec_without_a_sentence_does_not_hide_what_its_own_settings_contradict(extra, codes):
    found = [code for code, _ in errors(f"xpc 1\n{extra}{TAIL}batch(gbs=7)\n")]
    assert found == [*codes, "XP201", "XP301"]


def test_a_spec_without_a_sentence_may_leave_settings_to_those_that_extend_it():
    """A spec without the line `train MODEL on DATA` is a base of other specs. These specs may state `gbs` and the
    held-out rows, so no rule checks the defaults of such settings in the base.
    """
    assert errors("xpc 1\nbatch(micro=11)\neval(every=epoch)\n") == [("XP117", 1)]
