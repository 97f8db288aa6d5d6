"""Some very large inputs once took minutes or unlimited memory. Now the time is proportional to the size of the input.

Times are CPU seconds of this process. Each limit is ten times what an idle machine needs.
"""

import json
import time
import tomllib

import pytest
from case_support import ROW, spec
from compile_support import checked, put
from growing import INPUTS

from xpc.compiler.data import parquet, reader
from xpc.compiler.files import bounded_toml
from xpc.compiler.review.pull_request.affected import affected
from xpc.compiler.review.repository import find
from xpc.compiler.review.spec_finder import Specs
from xpc.compiler.spec.survey import Broken
from xpc.grammar.format import format_file
from xpc.grammar.parse import parse
from xpc.grammar.source import Source

pytestmark = pytest.mark.slow


@pytest.fixture
def seconds():
    """The CPU seconds of this process since the test began."""
    start = time.process_time()
    return lambda: time.process_time() - start


def test_a_row_of_many_keys_with_one_twice_is_read_quickly(seconds):
    pairs = ", ".join(f'"k{number}": 1' for number in range(60_000))
    (found,) = reader.read(f'{{{pairs}, "k59999": 2}}\n'.encode(), "x.jsonl")
    assert isinstance(found, Broken)
    assert "`k59999` twice" in str(found)
    assert seconds() < 10


@pytest.mark.parametrize("brackets", ["[]", "f()", "f(a=)"])
def test_nested_brackets_around_a_long_text_are_read_quickly(brackets, seconds):
    opened, closed = (brackets[:-1], brackets[-1]) if brackets != "[]" else ("[", "]")
    value = opened * 30 + '"' + "x" * 200 + '"' + closed * 30
    text = f"xpc 1\n\ntrain qwen2.5-3b on infinity-instruct\n\nmodel {{\n  tokens = {value}\n}}\n"
    file, problems = parse(Source("t.xp", text))
    if not problems:
        once = format_file(file)
        assert format_file(parse(Source("t.xp", once))[0]) == once
    assert seconds() < 10


LARGE = {
    "manifest: a key of many parts": 1_000_000, "manifest: a table of many parts": 1_000_000,
    "bundle: copies": 16_000, "bundle: copies in a spec": 40_000,
    "table: a long name of a table": 200_000, "run: a path of many folders": 100_000,
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_files_of_bundles_and_runs_that_took_minutes(name, seconds):
    INPUTS[name](LARGE[name])()
    assert seconds() < 30


def test_a_change_of_many_files_next_to_many_specs(seconds, tmp_path):
    """The time is proportional to the sum of the numbers of specs and changed files, and not to their product."""
    put(tmp_path, {".git/HEAD": "", ".git/objects/x": "", ".git/refs/x": "", "rows/a.jsonl": ROW * 40})
    put(tmp_path, {f"{one}.xp": spec(train='qwen2.5-3b on "rows/a.jsonl" for 3 epochs') for one in range(60)})
    repository = find(str(tmp_path))
    runs = Specs({f"{one}.xp": () for one in range(60)}, (), ())
    changed = {f"d/{one % 1000}/{one}.py" for one in range(400_000)}
    assert affected(repository, runs, runs, changed) == []
    assert len(affected(repository, runs, runs, {*changed, "rows/a.jsonl"})) == 60
    assert seconds() < 30


def test_toml_with_long_keys_is_refused_quickly():
    for text in ("a" + ".a" * 300 + " = 1", "[a" + ".a" * 300 + "]", "x = {a" + ".a" * 300 + " = 1}",
                 'a = """\n""", b' + ".b" * 300):  # fmt: skip
        with pytest.raises(ValueError, match="it has a "):
            bounded_toml.loads(text)
    dots = "." * 300
    text = f'# {dots}\na.b = "{dots}"  # {dots}\nc = \'{dots}"{dots}\'\nd = [\n  1.5,\n]\n'
    assert bounded_toml.loads(text) == tomllib.loads(text)


def test_a_text_of_empty_lines_is_limited(monkeypatch, tmp_path):
    monkeypatch.setattr(reader, "MOST_ROWS", 1000)
    found = list(reader.read(b"\n" * 5000, "x.txt"))
    assert len(found) == 1001
    assert isinstance(found[-1], Broken)
    assert list(reader.read(b"a\r\n\nb", "x.txt")) == [{"text": "a"}, {"text": ""}, {"text": "b"}]
    assert len(list(reader.read(b"\n" * 1000, "x.txt"))) == 1000
    put(tmp_path, {"rows.txt": b"\n" * 5000})
    problems = checked('xpc 1\ntrain qwen2.5-3b on "rows.txt"\nhardware 8 x h100-80gb\n', str(tmp_path)).problems
    assert any("more than 1,000 rows" in one.message for one in problems)


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv"])
def test_more_rows_than_a_file_may_have(ending, monkeypatch):
    monkeypatch.setattr(reader, "MOST_ROWS", 100)
    rows = {"jsonl": "{}\n" * 200, "json": json.dumps([{}] * 200), "csv": "a\n" + "1\n" * 200}[ending]
    found = list(reader.read(rows.encode(), f"x.{ending}"))
    assert (len(found), isinstance(found[-1], Broken)) == (101, True)


def test_a_footer_of_parquet_as_large_as_it_may_be(seconds):
    """A Parquet file has a footer with a list of sixteen million structs without fields."""
    head = bytes([0x29, 0xFC]) + bytes([0x80, 0x80, 0x80, 0x07])
    data = head + bytes(parquet.MOST - len(head))
    assert parquet.footer(lambda count: (data + len(data).to_bytes(4, "little") + b"PAR1")[-count:]) is None
    assert seconds() < 10
