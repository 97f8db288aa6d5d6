"""For a broken text, the diagnostic has the right code, the exact location and the name of the clause, and says what to
type instead.
"""

import pytest

from xpc.grammar.codes import CODES
from xpc.grammar.diagnostic import applied
from xpc.grammar.format import format_file
from xpc.grammar.parse import parse
from xpc.grammar.source import Source


def findings(text):
    source = Source("test.xp", text)
    found = []
    for diagnostic in parse(source)[1]:
        line, column = source.position(diagnostic.primary.span.start)
        found.append((diagnostic.code, line, column, diagnostic.message, diagnostic.help))
        assert CODES[diagnostic.code].slug == diagnostic.slug
    return found


def fixed(text):
    """Apply the edits that a text's diagnostics suggest to the text; return the result."""
    return applied(text, [edit for found in parse(Source("test.xp", text))[1] for edit in found.edits])


# This table has one case per line, so its lines may be longer than elsewhere.
# ruff: noqa: E501
CASES = [
    ("lr =\n", ("XP021", 1, 4, "expected a value after `=`", "write a value after it, or leave the setting out")),
    (
        "a {\n  b = = 1\n}\n",
        ("XP021", 2, 5, "expected a value after `=`", "write one `=` between a name and its value"),
    ),
    ("a = {\n}\n", ("XP021", 1, 3, "expected a value after `=`", "a block follows its name without `=`")),
    ("train\n", ("XP020", 1, 1, "expected a model after `train`", "write `train MODEL on DATA`")),
    ("train on d", ("XP020", 1, 7, "expected a model after `train`", "write `train MODEL on DATA`")),
    ("train m", ("XP020", 1, 7, "expected `on` and a dataset, found the end of the line", "write `train m on DATA`")),
    ("train m with z", ("XP020", 1, 9, "expected `on` and a dataset, found `with`", "write `train m on DATA`")),
    ("train m on", ("XP020", 1, 9, "expected a dataset after `on`", "write `train MODEL on DATA`")),
    ("train m on d for", ("XP020", 1, 14, "expected a number after `for`", "write `for 3 epochs`")),
    (
        "train m on d for 4",
        ("XP020", 1, 18, "expected `epochs` or `steps` after `for 4`", "write `for 4 epochs` or `for 4 steps`"),
    ),
    (
        "train m on d zero2",
        ("XP020", 1, 14, "expected `for`, `with` or the end of the line, found `zero2`", "choices go after `with`"),
    ),
    (
        "train m on d with",
        ("XP020", 1, 14, "expected a choice or a setting after `with`", "write `with zero2 gbs=528`"),
    ),
    ("train m on d {\n}\n", ("XP020", 1, 14, "the sentence takes no block", "write clauses on the lines below")),
    ("train m on d with a, b", ("XP020", 1, 20, "unexpected `,`", "choices and settings are separated by spaces")),
    (
        "a = 1 b = 2",
        ("XP023", 1, 7, "expected the end of the line after this setting, found `b`", "put it on its own line"),
    ),
    ("a {\n} b", ("XP023", 2, 3, "expected the end of the line after this block, found `b`", "put it on its own line")),
    ("xpc 1 2", ("XP023", 1, 7, "expected the end of the line after `1`, found `2`", "put it on its own line")),
    ("a {\n  b = 1 }\n", ("XP022", 2, 9, "`}` goes on a line of its own", "this block has one setting on each line")),
    ("a = [1,,2]", ("XP024", 1, 8, "expected a value before `,`", "one comma between two values")),
    ("a = [b=1]", ("XP024", 1, 7, "unexpected `=`", "a list contains values only")),
    ("f(a b)", ("XP024", 1, 5, "expected `,` or `)`, found `b`", "write `a, b`")),
    (
        'f(["a.py:b"(c=1)])',
        ("XP024", 1, 12, "text in quotes takes no arguments", 'write `file("a.py:b", ...)`'),
    ),
    ("betas [0.9]", ("XP025", 1, 7, "a list can only be the value of a setting", "write `name = [...]`")),
    ('a "b"(c=1)', ("XP025", 1, 6, "only a plain name takes arguments", 'write `"b" { c=1 }`')),
    (
        "train a on me/b(take=5%)",
        (
            "XP020",
            1,
            16,
            "settings of one source go into a `data` block",
            "write `on rows`, and add a block `data rows { ... }` below that contains `me/b { ... }`",
        ),
    ),
    (
        'data m {\n  "a" = 10%\n}\n',
        ("XP025", 2, 7, "`=` follows a plain name", "settings after a text go into a block: `{ name = value }`"),
    ),
    ("a = 1 {\n}\n", ("XP025", 1, 7, "a setting takes no block", "a block follows its name without `=`")),
    ("{\n}\n", ("XP025", 1, 1, "a block needs a name before its `{`", "write `batch {`")),
    ("a/b = 1", ("XP025", 1, 5, "`=` follows a plain name", "write `name = value`")),
    ("3 = 4", ("XP025", 1, 1, "a statement begins with a name, not with `3`", None)),
    ("gbs: 528", ("XP014", 1, 4, "unexpected `:`", "a setting is written `gbs = value`")),
    ("a = 1;", ("XP014", 1, 6, "unexpected `;`", "leave the `;` out: a setting ends with its line")),
    ("// no", ("XP014", 1, 1, "unexpected `//`", "comments begin with `#`")),
    (
        "größe = 1",
        (
            "XP014",
            1,
            3,
            "unexpected `ö` (U+00F6)",
            "names are ASCII letters, digits, `_`, `-` and `.`; put other text in double quotes",
        ),
    ),
    ("a = 1\nxpc 1", ("XP034", 2, 1, "`xpc` is not on the first line", "move it to the first line, or delete it")),
    ("xpc 2", ("XP035", 1, 5, "this compiler does not know edition 2", "write `xpc 1`")),
    ("xpc", ("XP035", 1, 1, "expected the number of the edition after `xpc`", "write `xpc 1`")),
    ('seed 1\nextends "b"', ("XP033", 2, 1, "`extends` comes before `train` and the clauses", "move it up")),
    ("extends base", ("XP033", 1, 9, "expected a path in double quotes after `extends`", 'write `extends "base"`')),
    (
        "train a on b\ntrain(steps=4)",
        (
            "XP032",
            2,
            1,
            "`train` has no block",
            "write `for 4 steps` in the first line: `train` is a sentence, without a block",
        ),
    ),
    (
        'train a on streaming "b"',
        (
            "XP020",
            1,
            22,
            'expected `for`, `with` or the end of the line, found `"b"`',
            'write `on "b"`: data is one name, and its settings go below, as in `data(streaming)`',
        ),
    ),
    ("train a on b\ntrain c on d", ("XP032", 2, 1, "a second `train` sentence", "a specification describes one run")),
    (
        "seed 1\ntrain a on b",
        ("XP032", 2, 1, "the `train` sentence comes first", "move it above the clauses, outside of every block"),
    ),
    (
        "a with b=1",
        (
            "XP030",
            1,
            3,
            "`with` is a word of the language and names nothing else",
            "`with` belongs to the sentence; here settings go into a block or a call",
        ),
    ),
    (
        "with zero2",
        ("XP030", 1, 1, "a statement cannot begin with `with`", "the sentence is one line: write it after `train`"),
    ),
    (
        "train a on b with c with d",
        ("XP030", 1, 21, "a second `with`", "one `with` introduces all choices and settings"),
    ),
    ("train a on b for 1 epochs with c for 2 epochs", ("XP031", 1, 34, "a second budget", "the sentence has one")),
    (
        "finetune a on b with c",
        ("XP020", 1, 1, "the sentence begins with `train`, not with `finetune`", "write `train a on b with c`"),
    ),
    (
        "dpo a on b with c",
        (
            "XP020",
            1,
            1,
            "the sentence begins with `train`, not with `dpo`",
            "write `train a on b with c`; if `dpo` is a choice, write it after `with`",
        ),
    ),
    ('"./a" on "b.jsonl"', ("XP020", 1, 1, "the sentence begins with `train`", 'write `train "./a" on "b.jsonl"`')),
    ("train a on b with c on 8 x d", ("XP030", 1, 21, "hardware has no `on`", "write `8 x d`")),
    (
        "train a on b and c with d",
        (
            "XP020",
            1,
            14,
            "several datasets go into a `data` block",
            "write `on rows`, and add a block `data rows { ... }` below that names `b` and the others, each on its own line",
        ),
    ),
    (
        "a = 7b-x",
        ("XP040", 1, 5, "`7b-x` is not a number", "a name begins with a letter; put other text in double quotes"),
    ),
    ("a = 1.2.3", ("XP040", 1, 5, "`1.2.3` is not a number", "numbers are written `528`, `1_000`, `0.95` or `1e-5`")),
    ("a = 1e999", ("XP041", 1, 5, "`1e999` is too large for a number", "write a finite number")),
    ("a = " + "9" * 400, ("XP042", 1, 5, "a number of 400 characters", "a number has at most 64 characters")),
    ("hardware 8x v100-32gb", ("XP043", 1, 10, "`8x` is not a number", "write `8 x v100-32gb`")),
    ("gpus = 8x v100-32gb", ("XP043", 1, 8, "`8x` is not a number", "write `8 x v100-32gb`")),
    ("hardware 8xv100-32gb", ("XP043", 1, 10, "`8xv100-32gb` is not a number", "write `8 x v100-32gb`")),
    ('a = "b\\q"', ("XP011", 1, 7, "`\\q` is not an escape", "write `\\\\q` for a backslash and `q`")),
    ("a = b)", ("XP013", 1, 6, "this `)` closes nothing", "delete it")),
    ("a\u00a0b", ("XP014", 1, 2, "U+00A0 is not a space here", "use a plain space")),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[repr(text[:30]) for text, _ in CASES])
def test_one_error_says_one_thing(text, expected):
    assert findings(text) == [expected]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("train m on d with zero2 for 3 epochs bf16", "train m on d for 3 epochs with zero2 bf16"),
        ("train m on d with for 3 epochs", "train m on d for 3 epochs"),
        ("train m on d for 3epochs", "train m on d for 3 epochs"),
        ("fine-tune m on d with c", "train m on d with c"),
        ("m on d", "train m on d"),
        ("train m on d with c on 8 x g", "train m on d with c 8 x g"),
        ("batch { gbs = 1 micro=[2, 3] }\n", "batch { gbs = 1, micro=[2, 3] }\n"),
        ("hardware 8x v100-32gb", "hardware 8 x v100-32gb"),
        ("hardware 8xv100-32gb", "hardware 8 x v100-32gb"),
        ("a = [1 2]", "a = [1, 2]"),
        ("a = .5", "a = 0.5"),
        ("a = 5.", "a = 5"),
        ("a = 'b'", 'a = "b"'),
        ('a = "b', 'a = "b"'),
        ("a = b]", "a = b"),
        ('a = "\\d"', 'a = "\\\\d"'),
        ('a "b"(c=1, d=2)', 'a "b" { c=1, d=2 }'),
    ],
)
def test_edits_make_the_text_right(text, right):
    assert fixed(text) == right
    assert parse(Source("fixed.xp", right))[1] == ()


def test_budget_message_has_the_complete_sentence():
    ((code, line, column, message, remedy),) = findings("train m on d with zero2 for 3 epochs bf16")
    assert (code, line, column, message) == ("XP031", 1, 25, "the length goes before `with`")
    assert remedy == "write `train m on d for 3 epochs with zero2 bf16`"
    assert parse(Source("t.xp", "train m on d with zero2 for 3 epochs bf16"))[0].train.budget.amount.value == 3


ONE_LINE = [
    ("batch { gbs = 1 micro = 2 }", "XP022", "expected `,` or `}`, found `micro`", "batch { gbs = 1, micro = 2 }"),
    ("batch { gbs = 1; micro = 2 }", "XP014", "unexpected `;`", "batch { gbs = 1, micro = 2 }"),
    ("batch { gbs = 1,, micro = 2 }", "XP022", "expected a setting before `,`", "batch { gbs = 1, micro = 2 }"),
    ("a { b { c = 1 } d = 2 }", "XP022", "expected `,` or `}`, found `d`", "a { b { c = 1 }, d = 2 }"),
    ("batch {\n gbs = 1,\n micro = 2, # x\n}", "XP025", "unexpected `,`", "batch {\n gbs = 1\n micro = 2 # x\n}"),
    ("batch {\n gbs = 1, micro = 2\n}", "XP025", "unexpected `,`", "batch {\n gbs = 1\n micro = 2\n}"),
    ("batch {\n  gbs = 1 }\n", "XP022", "`}` goes on a line of its own", "batch {\n  gbs = 1\n}\n"),
]
STAYS = "a block with settings on the line of its `{` must end on that line"
WRITTEN_OUT = [
    ("batch { gbs = 1,\n micro = 2 }", "batch {\n gbs = 1\n micro = 2\n}"),
    ("batch { gbs = 1\n micro = 2\n}", "batch {\n gbs = 1\n micro = 2\n}"),
    ("batch { gbs = 1, # why, {\n micro = 2 }", "batch {\n gbs = 1\n # why, {\n micro = 2\n}"),
    ("s { lr = [1,\n 2], zip { a = [1] } }", "s {\n lr = [1, 2]\n zip {\n a = [1]\n }\n}"),
    ("s { zip { a = [1,\n 2] } }", "s {\n zip {\n a = [1, 2]\n }\n}"),
    ('m { f("a,}",\n b=1), c = "},{" }', 'm {\n f("a,}", b=1)\n c = "},{"\n}'),
]


@pytest.mark.parametrize(("text", "code", "message", "right"), ONE_LINE)
def test_what_goes_wrong_in_a_block_on_one_line(text, code, message, right):
    found = findings(text)
    assert {(each[0], each[3]) for each in found} == {(code, message)}
    assert as_formatted(fixed(text)) == as_formatted(right)


@pytest.mark.parametrize(("text", "right"), WRITTEN_OUT)
def test_a_newline_in_a_block_on_one_line_writes_it_out(text, right):
    ((code, _, _, message, remedy),) = findings(text)
    assert (code, message) == ("XP022", STAYS)
    assert "one setting a line" in remedy
    assert as_formatted(fixed(text)) == as_formatted(right)


def test_a_block_on_one_line_that_never_closes_is_one_error():
    for text in ("batch { gbs = 1, micro = 2\nseed = 1\n", "batch { gbs = 1, micro = 2", "a { b, c {\n d\n}\ne = 1"):
        ((code, _, _, message, remedy),) = findings(text)
        assert (code, message) == ("XP012", "this `{` is never closed")
        assert remedy == "close it with `}`"


SPLITS = [
    ("train q on c[:20%]", "train q on c[train:20%]"),
    ("train q on c train[:20%] for 2 epochs", "train q on c[train:20%] for 2 epochs"),
    ("train q on c[train[:20%]] with zero2", "train q on c[train:20%] with zero2"),
    ('train q on c["train[:20%]"]', "train q on c[train:20%]"),
    ("train q on c test:20%", "train q on c[test:20%]"),
    ("train q on c:test[:1000]", "train q on c[test:1000]"),
    ("train q on c:main[:1000]", "train q on c:main[train:1000]"),
    ("train q on a/b [ test:20% ]", "train q on a/b[test:20%]"),
    ("train q on a/b[test:]", "train q on a/b[test]"),
    ("train q on a/b[20%]", "train q on a/b[train:20%]"),
    ("data m { a/b[:20%], c }", "data m { a/b[train:20%], c }"),
    ("data m {\n a/b train[:10] { take = 2 }\n}", "data m {\n a/b[train:10] { take = 2 }\n}"),
]


@pytest.mark.parametrize(("text", "right"), SPLITS)
def test_a_split_as_other_tools_write_it(text, right):
    ((code, *_),) = findings(text)
    assert code == "XP044"
    assert fixed(text) == right
    assert parse(Source("t.xp", right))[1] == ()


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("train q on c[train:10%:20%]", "the first rows of a split"),
        ("train q on c[train+test]", "the first rows of a split"),
        ('train q on "f.jsonl"[:20%]', "a local file is one split"),
        ("eval(split=test[:20%])", "a setting names a whole split"),
        ("train q on c with zero2 [a]", "write `name=[...]`"),
        ("batch [1]", "write `name = [...]`"),
    ],
)
def test_what_no_split_can_say(text, remedy):
    ((_, _, _, _, output),) = findings(text)
    assert remedy in output
    assert fixed(text) == text


def as_formatted(text):
    file, found = parse(Source("t.xp", text))
    assert found == (), text
    return format_file(file)


def test_unclosed_brackets_show_both_places():
    source = Source("t.xp", "batch {\n  gbs = 1\n\nlr = [1, 2\nf(a {\n")
    diagnostics = parse(source)[1]
    assert [(d.code, source.position(d.primary.span.start)) for d in diagnostics[:2]] == [
        ("XP012", (1, 7)),
        ("XP012", (4, 6)),
    ]
    assert diagnostics[0].message == "this `{` is never closed"
    assert diagnostics[0].related[0].text == "the file ends without its `}`"


def test_a_closing_brace_shows_the_list_left_open():
    source = Source("t.xp", "a {\n  b = [1, 2\n}\nc = 1\n")
    file, (only,) = parse(source)
    assert (only.message, source.position(only.primary.span.start)) == ("this `[` is never closed", (2, 7))
    assert source.position(only.related[0].span.start) == (3, 1)
    assert [type(each).__name__ for each in file.statements] == ["Clause", "Setting"]


def test_every_error_in_one_run_and_the_rest_of_the_tree():
    text = 'xpc 1\nbatch {\n  gbs = = 1\n  micro = 2\n}\nbad: {\n  inner = = 3\n  kept = 4\n}\ns = "open\nlr = 1e-5\nhardware 8x a\n'
    file, _ = parse(Source("t.xp", text))
    assert [(code, line, column) for code, line, column, _, _ in findings(text)] == [
        ("XP021", 3, 7),
        ("XP014", 6, 4),
        ("XP021", 7, 9),
        ("XP010", 10, 5),
        ("XP043", 12, 10),
    ]
    batch, lr, _ = file.statements
    assert [each.name.text for each in batch.block.statements] == ["micro"]
    assert lr.name.text == "lr"


def test_errors_are_bounded():
    found = findings("a = = 1\n" * 400)
    assert len(found) == 21
    assert found[-1][0] == "XP006"


def test_messages_never_name_tokens():
    names = {"_NL", "LBRACE", "RBRACE", "LSQB", "EQUAL", "NUMBER", "STRING", "$END", "COMMA", "LPAR", "REF"}
    for text, _ in CASES:
        for _, _, _, message, remedy in findings(text):
            assert not any(name in f"{message} {remedy}" for name in names)
