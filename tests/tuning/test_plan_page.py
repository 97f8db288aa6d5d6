"""The page of `xpc plan --html` has the plan's values, loads nothing from elsewhere, and works in a browser."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser

import pytest
from browser import WIDTHS, in_browser, in_frames

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.tuning import command

pytestmark = pytest.mark.slow

SPEC = """xpc 1
train {model} on infinity-instruct:0625 for 1 epochs
hardware 8 x h100-80gb
zero3
precision bf16
memory(checkpointing)
batch gbs=128 micro={micro} seq=2048
save "out"
"""
SWEEP = SPEC.format(model="qwen2.5-7b-instruct", micro=2) + "sweep { lr = [1e-6, 2e-6, 5e-6], micro = [2, 8] }\n"
NAMED = SWEEP.replace(
    "micro = [2, 8] }", "micro = [2, 8], warmup = [10%], betas = [[0.9, 0.95]], weight_decay = [0.1] }"
)
"""A sweep with members whose names are wider than a phone."""
SCRIPT = """
function numbers(table, column) {
  return [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.value).filter((one) => one);
}
function look(inside) {
  const table = [...inside.querySelectorAll("table")].pop(), heads = [...table.tHead.rows[0].cells];
  const column = heads.findIndex((one) => one.textContent === "GiB of a GPU");
  const button = heads[column].querySelector("button");
  const seen = { rows: table.tBodies[0].rows.length, before: numbers(table, column) };
  button.click(); seen.up = numbers(table, column); seen.sort = heads[column].getAttribute("aria-sort");
  button.click(); seen.down = numbers(table, column);
  seen.first = Math.max(...[...inside.querySelectorAll("td:first-child")].map((one) => one.clientWidth));
  seen.bars = inside.querySelectorAll(".bar i").length;
  seen.text = inside.body.innerText.length;
  return seen;
}
"""


@pytest.fixture
def page(tmp_path):
    """Return a function that runs `xpc plan --html`. It returns the page, and the JSON output of the same command."""

    def go(text: str, *arguments: str):
        (tmp_path / "run.xp").write_text(text)
        out = tmp_path / "plan.html"
        reported, status = command.run(
            command.parse([str(tmp_path / "run.xp"), "--html", str(out), "--format", "json", *arguments])
        )
        assert status == 0
        return out.read_text(encoding="utf-8"), json.loads(reported)

    return go


class Tags(HTMLParser):
    """Collects the tags of a page (each must be closed), and the texts of its table cells."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in ("meta", "link"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def read(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    return tags


def test_the_page_says_what_the_plan_says(page):
    text, reported = page(SPEC.format(model="qwen2.5-7b-instruct", micro=2), "--tokens", "900")
    tags = read(text)
    peak = reported["per_gpu"]["peak_allocated_bytes"]["value"] / 2**30
    assert f"fits: {peak:.1f} GiB of 79.1" in text
    for name, size in reported["per_gpu"]["phases"].items():
        assert f'aria-label="{name}: {size / 2**30:.1f} GiB"' in text
    assert f"{reported['steps']:,} steps" in text
    for change in reported["changes"]:
        assert all(f"<code>{html.escape(one)}</code>" in text for one in change["settings"])
    (now,) = [row for row in tags.rows if row[:4] == ["h100-80gb", "zero3", "2", "yes"]]
    assert now[4:6] == [f"{peak:.1f}", "fits"]
    assert [read(one).rows for one in re.findall("<tr class=now>.*?</tr>", text)] == [[now]]
    assert len({tuple(row[:4]) for row in tags.rows}) == len(tags.rows) > 30
    assert {row[5] for row in tags.rows[1:]} == {"fits", "tight"}
    assert {"a100-40gb", "a100-80gb"} <= {row[0] for row in tags.rows}
    assert now[7] == f"{reported['hours']['value']:,.1f}"


def test_an_alternative_is_the_plan_of_the_spec_that_says_so(page, tmp_path):
    text, _ = page(SPEC.format(model="qwen2.5-7b-instruct", micro=2))
    other = (
        SPEC.format(model="qwen2.5-7b-instruct", micro=4).replace("h100-80gb", "a100-80gb").replace("zero3", "zero2")
    )
    (tmp_path / "other.xp").write_text(other)
    reported = json.loads(command.run(command.parse([str(tmp_path / "other.xp"), "--format", "json"]))[0])
    (row,) = [row for row in read(text).rows if row[:4] == ["a100-80gb", "zero2", "4", "yes"]]
    assert row[4] == f"{reported['per_gpu']['peak_allocated_bytes']['value'] / 2**30:.1f}"
    assert row[8] == f"{reported['gpu_hours']['value']:,.1f}"


def test_a_sweep_has_its_totals(page):
    text, reported = page(SWEEP)
    assert "6 fits" in text
    together = sum(one["gpu_hours"]["value"] for one in reported)
    assert f"{together:,.1f} GPU-hours together" in text
    rows = read(text).rows
    assert len({one["spec"] for one in reported}) == 6
    assert {one["spec"] for one in reported} <= {row[0] for row in rows}


def test_nothing_is_loaded_from_elsewhere_and_no_name_is_markup(page, tmp_path):
    text, _ = page(SPEC.format(model="qwen2.5-7b-instruct", micro=2))
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text)
    for tag, name, value in read(text).attributes:
        assert name not in ("src", "srcset", "action", "onload", "onerror"), (tag, name)
        assert name != "href" or value == "data:,"
    (tmp_path / "a<b>&.xp").write_text(SPEC.format(model="qwen2.5-0.5b-instruct", micro=2))
    where = tmp_path / "b.html"
    command.run(command.parse([str(tmp_path / "a<b>&.xp"), "--html", str(where)]))
    assert "<b>&." not in where.read_text()


def test_unknown_numbers_are_reported(page):
    text, reported = page(SPEC.format(model="qwen2.5-7b-instruct", micro=2).replace("8 x h100-80gb", "8 x cpu")
                      .replace("precision bf16", "precision fp32"))  # fmt: skip
    assert reported["verdict"] == "unknown"
    assert "Memory is unknown: the memory of a CPU process is not planned" in text
    read(text)


def test_unwritable_page_is_reported(tmp_path):
    (tmp_path / "run.xp").write_text(SPEC.format(model="qwen2.5-7b-instruct", micro=2))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        command.run(command.parse([str(tmp_path / "run.xp"), "--html", str(tmp_path / "file" / "a.html")]))


@pytest.mark.nightly
@in_browser
@pytest.mark.parametrize(
    "text", [SPEC.format(model="qwen2.5-7b-instruct", micro=2), SWEEP, NAMED], ids=["one", "sweep", "named"]
)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_sorts_and_fits_in_a_browser(page, tmp_path, text, dark):
    """The page opens as wide as a phone and as a desktop screen. A click sorts a table, the page is never wider than
    its window, and there is no JavaScript error.
    """
    found = in_frames(SCRIPT, page(text)[0], tmp_path, dark)
    assert found["errors"] == []
    for width in map(str, WIDTHS):
        seen = found[width]
        assert seen["width"] >= int(width) - 20
        assert seen["page"] <= seen["width"], "the page scrolls sideways"
        assert seen["rows"] > 30
        assert seen["first"] <= 0.7 * int(width), "the names leave no space for the values"
        assert seen["bars"] > 10
        assert seen["text"] > 500
        sizes = sorted(seen["before"], key=float)
        assert seen["up"] == sizes != seen["before"]
        assert list(map(float, seen["down"])) == list(map(float, reversed(sizes)))
        assert seen["sort"] == "ascending"
