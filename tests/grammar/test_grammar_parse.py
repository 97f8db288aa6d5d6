"""Every example of the language parses, and the tree contains what the text says."""

import os

import pytest

from xpc.grammar.parse import parse
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Budget, Call, Clause, Count, List, Name, Number, Ref, Setting, String, Train

EXAMPLES = os.path.join(os.path.dirname(__file__), "examples")


def tree(text):
    file, diagnostics = parse(Source("test.xp", text))
    assert diagnostics == ()
    return file


def statement(text):
    (only,) = tree(text).statements
    return only


@pytest.mark.parametrize("name", sorted(os.listdir(EXAMPLES)))
def test_examples_parse(name):
    with open(os.path.join(EXAMPLES, name), encoding="utf-8") as file:
        parsed = tree(file.read())
    assert parsed.train is not None or parsed.statements


def test_the_sentence_has_this_tree():
    text = "train qwen2.5-3b on infinity-instruct:0625 for 3 epochs with zero2 gbs=528 bf16"
    file = tree(text)
    assert file.edition is None
    assert file.train == Train(
        Span(0, len(text)),
        Ref(Span(6, 16), "qwen2.5-3b"),
        Ref(Span(20, 42), "infinity-instruct", config="0625"),
        Budget(Span(43, 55), Number(Span(47, 48), "3", 3), Name(Span(49, 55), "epochs")),
        (
            Ref(Span(61, 66), "zero2"),
            Setting(Span(67, 74), Name(Span(67, 70), "gbs"), Number(Span(71, 74), "528", 528)),
            Ref(Span(75, 79), "bf16"),
        ),
    )


def test_lines_of_the_header_are_in_the_tree():
    file = tree('# why\nxpc 1\n\nextends "base.xp"  # the base\ntrain "models/tiny" on "data.jsonl"\nseed 1\n')
    assert file.edition.value == 1
    assert file.extends.value == "base.xp"
    assert file.train.model == String(Span(49, 62), "models/tiny")
    assert [comment.text for comment in file.comments] == ["# why", "# the base"]
    assert len(file.statements) == 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("zero2", ("zero2", None, None, None, None)),
        ("a100-80gb", ("a100-80gb", None, None, None, None)),
        ("org/name", ("org/name", None, None, None, None)),
        ("01-ai/Yi-6B", ("01-ai/Yi-6B", None, None, None, None)),
        ("infinity-instruct:0625", ("infinity-instruct", "0625", None, None, None)),
        ("data[train]", ("data", None, "train", None, None)),
        ("a/b:Mid[OpenThoughts3_1.2M:20%]@main", ("a/b", "Mid", "OpenThoughts3_1.2M", "20%", "main")),
        ("a@refs/pr/1", ("a", None, None, None, "refs/pr/1")),
    ],
)
def test_references_have_their_parts(text, parts):
    ref = statement(f"take = {text}").value
    assert (ref.name, ref.config, ref.split, ref.slice, ref.revision) == parts
    assert ref.is_name == (parts[1:] == (None,) * 4 and "/" not in text)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("528", 528, None),
        ("1_000", 1000, None),
        ("1e-5", 1e-5, None),
        ("2E+5", 2e5, None),
        ("0.95", 0.95, None),
        ("-1", -1, None),
        ("10%", 10, "%"),
        ("500M", 500, "M"),
        ("1.5k", 1.5, "k"),
        ("32Ki", 32, "Ki"),
        ("14400s", 14400, "s"),
        ("80GiB", 80, "GiB"),
        ("3parsec", 3, "parsec"),
    ],
)
def test_numbers_have_value_and_unit(text, value, unit):
    number = statement(f"a = {text}").value
    assert (number.text, number.value, number.unit) == (text, value, unit)
    assert type(number.value) is type(value)


def test_count_in_every_position():
    count = Count(Span(9, 22), Number(Span(9, 10), "8", 8), Ref(Span(13, 22), "v100-32gb"))
    assert statement("hardware 8 x v100-32gb").operands == (count,)
    assert isinstance(statement("a = 8 x b").value, Count)
    assert isinstance(statement("a = [8 x b]").value.items[0], Count)
    assert isinstance(statement("f(8 x b)").head.args[0], Count)


def test_string_escapes():
    assert statement(r'a = "q\" b\\ n\n t\t #"').value.value == 'q" b\\ n\n t\t #'


def test_calls_and_lists_may_span_lines():
    clause = statement('f(\n  a=1,  # one\n\n  b=[\n    c, "d"\n  ],\n)\n')
    assert isinstance(clause.head, Call)
    assert [argument.name.text for argument in clause.head.args] == ["a", "b"]
    assert isinstance(clause.head.args[1].value, List)


def test_blocks_have_their_statements():
    clause = statement("a b c=1 {\n\n  flag\n  x1 = 2\n  inner {\n  }\n}")
    assert isinstance(clause.head, Ref)
    assert [type(operand) for operand in clause.operands] == [Ref, Setting]
    assert [type(each) for each in clause.block.statements] == [Clause, Setting, Clause]
    assert clause.block.statements[2].block.statements == ()
    assert statement("vllm { }").block.statements == ()


def test_a_row_is_a_clause_headed_by_its_reference():
    data = statement('data d {\n  a/b[c] { \n  columns = [m]\n }\n  "x.jsonl"\n}\n')
    first, second = data.block.statements
    assert (first.head.name, first.head.split) == ("a/b", "c")
    assert second.head.value == "x.jsonl"


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "   \t\n"])
def test_nothing_is_a_file(text):
    file = tree(text)
    assert (file.train, file.statements) == (None, ())


def test_words_are_free_as_values():
    assert statement("split = train").value.name == "train"
    assert statement("a = [on, for]").value.items[0].name == "on"


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0c"])
def test_only_newlines_count_lines(separator):
    _, diagnostics = parse(Source("t.xp", f"# a{separator}b\nc = = 1\n"))
    assert [d.primary.source.position(d.primary.span.start) for d in diagnostics] == [(1, 4), (2, 3)]
