"""The formatter keeps the meaning of a spec and all comments. Formatting a formatted text changes nothing."""

import os

import pytest
from grammar_trees import HERE, files, meaning, one_line, statements
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xpc.grammar.format import format_file
from xpc.grammar.parse import parse
from xpc.grammar.source import Source
from xpc.grammar.tree import Block, Clause, Ref

EXAMPLES = os.path.join(os.path.dirname(__file__), "examples")


def read(text):
    file, diagnostics = parse(Source("test.xp", text))
    assert diagnostics == (), text
    return file


def formatted(text):
    """Format a text. Check that the result has the same meaning and comments, and that formatting the result changes
    nothing.
    """
    file = read(text)
    once = format_file(file)
    again = read(once)
    assert meaning(again) == meaning(file)
    assert format_file(again) == once
    assert [comment.text.rstrip() for comment in again.comments] == [comment.text.rstrip() for comment in file.comments]
    assert not any(line != line.rstrip() for line in once.split("\n"))
    return once


@pytest.mark.parametrize("name", sorted(os.listdir(EXAMPLES)))
def test_formatted_examples_keep_their_meaning(name):
    with open(os.path.join(EXAMPLES, name), encoding="utf-8") as file:
        formatted(file.read())


@pytest.mark.parametrize("name", ["sentence.xp", "methods-and-sweep.xp"])
def test_canonical_examples_stay_as_they_are(name):
    with open(os.path.join(EXAMPLES, name), encoding="utf-8") as file:
        text = file.read()
    assert formatted(text) == text


def test_comments_are_not_aligned():
    assert (
        formatted("batch {\n  gbs   =  528\n  micro = 11        # why\n}\n")
        == "batch {\n  gbs = 528\n  micro = 11  # why\n}\n"
    )


def test_two_inline_settings_expand_and_one_stays():
    assert (
        formatted("optimizer lr=1e-5 adamw clip=1 # why\n") == "optimizer adamw {  # why\n  lr = 1e-5\n  clip = 1\n}\n"
    )
    assert formatted('save "out"   keep = 1\n') == 'save "out" keep=1\n'
    assert formatted('save "out" keep=1 {\nhub\n}\n') == 'save "out" {\n  keep = 1\n  hub\n}\n'


def test_a_block_on_one_line_is_written_over_several():
    assert formatted("batch { gbs = 528, micro = 11, } # why\n") == "batch {\n  gbs = 528\n  micro = 11\n}  # why\n"
    assert formatted("a b=1 { c { d, e = [1, 2] }, f }") == (
        "a {\n  b = 1\n  c {\n    d\n    e = [1, 2]\n  }\n  f\n}\n"
    )
    assert formatted("a {\n b { c, d }\n}\n") == "a {\n  b {\n    c\n    d\n  }\n}\n"


@pytest.mark.slow
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(statements, min_size=1, max_size=4).map(tuple))
def test_any_block_on_one_line_means_what_it_means_over_several(inside):
    block = f"a {{ {', '.join(one_line(each) for each in inside)} }}\n"
    assert "\n" not in block[:-1]
    (clause,) = read(block).statements
    assert meaning(clause) == meaning(Clause(HERE, Ref(HERE, "a"), (), Block(HERE, inside)))
    formatted(block)


def test_header_and_calls_stay_inline():
    text = "train m on d for 3 epochs with zero2 gbs=528 micro=11\n\ntrack wandb(name=\"a\", project='b')\n".replace(
        "'", '"'
    )
    assert formatted(text.replace("=", " = ")) == text


def test_blank_lines_separate_clauses_and_blocks():
    text = "xpc 1\ntrain a on b\nseed 1\nnodes 2\n\n\n\nhardware cpu\na {\n}\nb {\n c {\n d\n }\n e = 1\n}\nf\n"
    expected = (
        "xpc 1\n\ntrain a on b\n\nseed 1\nnodes 2\n\nhardware cpu\n\na { }\n\n"
        "b {\n  c {\n    d\n  }\n  e = 1\n}\n\nf\n"
    )  # fmt: skip
    assert formatted(text) == expected


def test_comments_stay_with_their_statement():
    text = (
        "# the file\n\nxpc 1 # edition\n# the run\ntrain a on b # sentence\n"
        "b { # open\n # own\n   a = 1 # inner\n\n # last\n} # close\nc {\n#only\n}\n"
        "l = [ # first\n 1, # one\n # two\n 2 # deux\n # end\n] # after\n# eof"
    )
    assert formatted(text) == (
        "# the file\n\nxpc 1  # edition\n\n# the run\ntrain a on b  # sentence\n\n"
        "b {  # open\n  # own\n  a = 1  # inner\n\n  # last\n}  # close\n\nc {\n  #only\n}\n\n"
        "l = [  # first\n  1,  # one\n  # two\n  2,  # deux\n  # end\n]  # after\n# eof\n"
    )


def test_long_lists_break_and_short_ones_join():
    items = [f"leaderboard_task_{number}" for number in range(8)]
    broken = "tasks = [\n" + "".join(f"  {item},\n" for item in items) + "]\n"
    assert formatted(f"tasks = [{', '.join(items)}]") == broken
    assert formatted("a = [\n 1,\n 2,\n]\n") == "a = [1, 2]\n"


def test_an_empty_file_stays_empty():
    assert format_file(read("")) == ""
    assert format_file(read("\n# only\n\n")) == "# only\n"


@pytest.mark.slow
@given(files)
def test_any_formatted_tree_keeps_its_meaning(file):
    text = format_file(file)
    again = read(text)
    assert meaning(again) == meaning(file)
    assert format_file(again) == text
