"""`xpc diff` also compares the contents of files: it shows which rows differ, and how a changed chat template renders a
row. It is the only command that renders templates.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest
from compile_support import put, xpc
from patience import HUNG
from tiny_runs import lines

from xpc.compiler.review.diff import parse, run
from xpc.compiler.review.differences import templates

SPEC = """\
xpc 1
train qwen2.5-0.5b-instruct on "rows.jsonl" for 1 epochs
hardware 1 x h100-80gb
batch gbs=8 micro=4 seq=512
save "out"
"""
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>\n{% endfor %}"
)
NESTED = "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}"


def row(number: int) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": f"Q{number}?"}, {"role": "assistant", "content": f"A{number}."}]}


def diff(folder: Path, before: dict[str, str], after: dict[str, str], *words: str) -> str:
    plain = {"run.xp": SPEC, "rows.jsonl": lines([row(at) for at in range(40)])}
    for name, files in (("before", before), ("after", after)):
        put(folder / name, {**plain, **files})
    return run(parse([str(folder / "before" / "run.xp"), str(folder / "after" / "run.xp"), *words]))[0]


ROWS = [row(at) for at in range(40)]
CASES = {
    "added": ([*ROWS, row(40)], "1 row added, 0 removed (40 -> 41 rows); row 40 is new: {"),
    "removed": (ROWS[:-2], "0 rows added, 2 removed (40 -> 38 rows); row 38 is gone: {"),
    "edited": ([*ROWS[:17], row(99), *ROWS[18:]], "1 row added, 1 removed; row 17 is the first that differs: "),
    "another order": ([*ROWS[:5], *ROWS[:4:-1]], "the same rows in another order, from row 5 on"),
}


@pytest.mark.parametrize("case", CASES)
def test_changed_rows_are_described(case: str, tmp_path: Path) -> None:
    rows, sentence = CASES[case]
    text = diff(tmp_path, {}, {"rows.jsonl": lines(rows)})
    assert f"Contents\n  rows.jsonl: {sentence}" in text
    if case == "edited":
        assert "Q17?" in text
        assert "Q99?" in text
    found = json.loads(diff(tmp_path, {}, {"rows.jsonl": lines(rows)}, "--format", "json"))
    assert found["groups"][0]["contents"][0].startswith(f"rows.jsonl: {sentence}")


def test_the_files_of_a_folder_are_compared_each_by_itself(tmp_path: Path) -> None:
    folder = {"run.xp": SPEC.replace("rows.jsonl", "d"), **{f"d/train-{at}.jsonl": lines(ROWS) for at in range(6)}}
    text = diff(tmp_path, folder, {**folder, "d/train-5.jsonl": lines([*ROWS[:-1], row(99)])})
    assert re.match(r'data "d" content \w{8} -> content \w{8}; d/train-5.jsonl: 1 row added, 1 removed\n', text), text
    assert "cannot be resumed: data.sources[0].files[5].bundled was " in text
    assert "train-4" not in text
    text = diff(tmp_path, folder, {**folder, "d/train-6.jsonl": lines(ROWS[:1])})
    assert text.startswith('data "d" content '), text
    assert ": 31 steps instead of 30, 1.00417 times the tokens; " in text
    assert "\n  d/train-6.jsonl is new: 1 row\n" in text
    slash = {**folder, "run.xp": SPEC.replace("rows.jsonl", "d/")}
    assert "\n  d/train-6.jsonl is new: 1 row\n" in diff(tmp_path, slash, {**slash, "d/train-6.jsonl": lines(ROWS[:1])})
    assert 'cannot be resumed: data.sources[0].files was "6 entries" and is "7 entries"\n' in text


@pytest.mark.slow
def test_rows_that_xpc_does_not_read_are_counted(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    spec = {"run.xp": SPEC.replace("rows.jsonl", "rows.parquet")}
    for name, number in (("before", 40), ("after", 41)):
        put(tmp_path / name, spec)
        pq.write_table(pa.table({"text": [f"t{at}" for at in range(number)]}), tmp_path / name / "rows.parquet")
    text = diff(tmp_path, spec, spec)
    assert "Contents\n  rows.parquet: 40 -> 41 rows; xpc does not compare rows of this kind of file\n" in text


RENAMED = {
    "rows": ({"b.jsonl": lines(ROWS)}, '"rows.jsonl"', '"b.jsonl"', "rows.jsonl -> b.jsonl: "),
    "a folder": ({"d/a.jsonl": lines(ROWS), "e/a.jsonl": lines(ROWS)}, '"d"', '"e"', "d -> e: "),
    "a template": (
        {"t.jinja": TEMPLATE, "u.jinja": TEMPLATE}, 'file("t.jinja")', 'file("u.jinja")',
        "files/t-63b38022.jinja -> files/u-63b38022.jinja: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", RENAMED)
def test_a_renamed_file_with_the_same_content_is_the_same_run(what: str, tmp_path: Path) -> None:
    files, old, new, names = RENAMED[what]
    spec = {"rows": SPEC, "a folder": SPEC.replace("rows.jsonl", "d")}.get(what, f"{SPEC}chat_template = {old}\n")
    edited = spec.replace(old, new)
    text = diff(tmp_path, {**files, "run.xp": spec}, {**files, "run.xp": edited})
    assert text == f"the same run\n\nContents\n  {names}renamed, with the same content\n"
    text = diff(tmp_path, {**files, "run.xp": spec}, {**files, "run.xp": edited.replace("512", "256")})
    assert "can be resumed" not in text
    assert text.startswith("seq 512 -> 256; ")
    for name in ("before", "after"):
        put(tmp_path / name, {"run.xp": spec if name == "before" else edited})
        assert xpc("compile", "run.xp", cwd=str(tmp_path / name)).returncode == 0
    bundles = [str(tmp_path / name / "run.bundle") for name in ("before", "after")]
    assert run(parse([*bundles, "--exit-code"]))[1] == 0
    copy = sorted((tmp_path / "after" / "run.bundle").glob("[df]*/*"))[-1]
    copy.write_bytes(copy.read_bytes() + b"\n")  # its name still has the digest of the old content
    assert run(parse([*bundles, "--exit-code"]))[1] == 1


def test_renamed_rows_of_another_format_differ(tmp_path: Path) -> None:
    """The ending of a name decides how the bytes are read."""
    renamed = {"rows.json": lines(ROWS), "run.xp": SPEC.replace("rows.jsonl", "rows.json")}
    assert diff(tmp_path, {}, renamed).startswith('data "rows.jsonl"')


def test_equal_rows_have_no_contents(tmp_path: Path) -> None:
    assert "Contents" not in diff(tmp_path, {}, {"run.xp": SPEC.replace("gbs=8", "gbs=16")})


def with_template(text: str) -> dict[str, str]:
    return {"run.xp": SPEC + 'model(chat_template=file("t.jinja"))\n', "t.jinja": text}


def test_a_row_is_written_by_both_templates(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    changed = TEMPLATE.replace("<|im_end|>", "{{ eos_token }}")
    text = diff(tmp_path, with_template(TEMPLATE), with_template(changed))
    assert "row 0 of rows.jsonl as the chat template writes it:" in text
    assert "    -Q0?<|im_end|>" in text
    assert "    +Q0?<eos>" in text


STRANGE = {
    "endless": (NESTED, "it takes more than"),
    "large": ("{{ 'x' * 3000000 }}", "it writes 3,000,000 characters"),
    "huge": ("{{ 'x' * 10**10 }}", "MemoryError"),
    "a power": ("{{ 9**(9**9) }}", "it takes more than"),
    "an escape": ("{{ cycler.__init__.__globals__.os.popen('touch pwned').read() }}", "SecurityError"),
    "a refusal": ("{{ raise_exception('no\x1b[31m') }}", "TemplateError: no"),
    "an error": ("{% for %}", "TemplateSyntaxError"),
    "a file": ("{% include '/etc/passwd' %}", "TypeError"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", STRANGE)
def test_a_template_of_others_is_bounded(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jinja2")
    monkeypatch.setattr(templates, "SECONDS", 1)
    monkeypatch.chdir(tmp_path)
    template, reason = STRANGE[case]
    start = time.monotonic()
    text = diff(tmp_path, with_template(TEMPLATE), with_template(template))
    assert time.monotonic() - start < HUNG
    assert f"the chat template after does not write row 0 of rows.jsonl: {reason}" in text
    assert "\x1b" not in text
    assert not (tmp_path / "pwned").exists()


def test_a_long_difference_is_cut(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    text = diff(
        tmp_path, with_template(TEMPLATE), with_template("{% for i in range(500) %}{{ 'y' * 999 }}\n{% endfor %}")
    )
    assert "more lines" in text
    assert max(map(len, text.splitlines())) < 400


@pytest.mark.slow
def test_this_process_does_not_import_jinja(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == "jinja2"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "xpc.compiler.review.differences.template_environment", raising=False)
    diff(tmp_path, with_template(TEMPLATE), with_template(TEMPLATE + "x"))
    assert "jinja2" not in sys.modules


def test_the_comment_renders_no_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xpc.compiler.review.changes import compare_operands
    from xpc.compiler.review.operands import open_operand

    monkeypatch.setattr(templates, "rendered", lambda *_: pytest.fail("a template was rendered"))
    for name, text in (("before", TEMPLATE), ("after", TEMPLATE + "x")):
        put(tmp_path / name, {"rows.jsonl": lines(ROWS), **with_template(text)})
    paths = [str(tmp_path / name / "run.xp") for name in ("before", "after")]
    with open_operand(paths[0]) as one, open_operand(paths[1]) as other:
        assert not compare_operands(one.check("run.xp"), other.check("run.xp")).equal
