"""The output folder of a run may come from a stranger. No text in the folder can become markup or a command, a pipe in
the folder does not block the report, and a symbolic link in the folder is not followed.
"""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from compile_support import put
from report_support import lines, run
from tiers import every_fourth

from xpc.compiler.cli import main
from xpc.compiler.report.command import parse
from xpc.compiler.report.command import run as report

EVIL = "</td><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e##[stop-commands]x\n::error::y |`*_"


class Tags(HTMLParser):
    """Collects the tags of a page and their attributes. Each tag must be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def evil(out: Path) -> None:
    """Write a hostile text into every file of a run's folder, and into every field of these files that can contain a
    text.
    """
    logged = [{"step": one, "loss": 1.0, f"eval_{EVIL}_loss": 2.0, EVIL: EVIL, "lr": EVIL} for one in (1, 2)]
    start = {
        "step": 0, "started": EVIL, "bundle": EVIL, "device": EVIL, "world": EVIL,
        "versions": {EVIL: EVIL, "trl": EVIL}, "data": {"rows": EVIL, EVIL: 1},
    }  # fmt: skip
    now = {"step": 2, "memory": {EVIL: {EVIL: 1}}, "seconds": {EVIL: 1.0, "train": EVIL}, "waits": EVIL}
    summary = json.loads((out / "summary.json").read_text())
    summary |= {"versions": {EVIL: EVIL, "trl": EVIL}, "steps": EVIL, "seconds": EVIL, "world": [EVIL], "data": EVIL}
    summary["arguments"] = {**summary["arguments"], "learning_rate": EVIL, "seed": {EVIL: [EVIL]}, EVIL: EVIL}
    put(
        out,
        {
            "metrics.jsonl": lines(logged),
            "measured.jsonl": lines([start, now, start]),
            "summary.json": json.dumps(summary),
        },
    )


@pytest.mark.parametrize("with_bundle", [True, False])
def test_no_text_is_markup_or_a_command(location: Path, with_bundle: bool, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(location)
    evil(out)
    if not with_bundle:
        (location / "x.bundle").rename(location / "x.kept")
    out.rename(location / "out" / "<b>&x ##[z")
    assert main(["report", "out/<b>&x ##[z", "--html", "r.html", "--format", "markdown"]) == 0
    page, text = (location / "r.html").read_text(), capsys.readouterr().out
    assert main(["report", "out/<b>&x ##[z"]) == 0
    plain = capsys.readouterr().out
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert not tags.names & {"script", "img", "b", "iframe", "object"}
    assert not {name for name in tags.attributes if name.startswith("on") or name in ("src", "action")}
    assert "alert(1)" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    for shown in (page, text, plain):
        assert not [one for one in shown if not one.isprintable() and one not in "\n"]
        assert "##[" not in shown
        assert not [line for line in shown.splitlines() if line.lstrip().startswith("::")]
    assert "<script" not in text
    assert len({line.count("|") - line.count("\\|") for line in text.splitlines() if line.startswith("| ")}) == 1
    assert main(["report", "out/<b>&x ##[z", "--json"]) == 0
    reported = capsys.readouterr().out
    assert "##[" not in reported
    json.loads(reported)


def other_forms() -> list[Any]:
    """Values that no run would write: of another type, too large, or too deeply nested."""
    deep: Any = 1
    for _ in range(300):
        deep = {"a": [deep]}
    return [
        None,
        True,
        -1,
        10**400,
        1e308,
        "x" * 10**6,
        [],
        [[]],
        {},
        deep,
        {"a": {"b": 1}},
        {str(one): one for one in range(999)},
    ]


@pytest.mark.parametrize("value", every_fourth(other_forms()))
def test_values_of_another_form_count_as_missing(location: Path, value: Any) -> None:
    out = run(location, starts=(0, 4))
    summary = json.loads((out / "summary.json").read_text())
    for name in summary:
        put(out, {"summary.json": json.dumps({**summary, name: value})})
        assert report(parse(["out/x", "--html", "r.html"]))[1] == 0
    put(out, {"summary.json": json.dumps(dict.fromkeys(summary, value))})
    start, now = (json.loads(line) for line in (out / "measured.jsonl").read_text().splitlines()[:2])
    changed = [{**line, name: value} for line in (start, now) for name in line]
    put(out, {"measured.jsonl": lines([start, *changed, now])})
    event = {"step": 1, "loss": 1.0, "tokens": 1.0, "seconds": 1.0, "lr": 1.0}
    put(out, {"metrics.jsonl": lines([{**event, name: value} for name in event] + [dict.fromkeys(event, value)])})
    put(out, {"xpc_run.json": json.dumps({"bundle": value, "settings": value}) + "\n"})
    for form in ("text", "markdown", "json"):
        assert report(parse(["out/x", "--html", "r.html", "--format", form]))[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["metrics.jsonl", "measured.jsonl", "summary.json", "xpc_run.json"])
@pytest.mark.parametrize("kind", ["link", "pipe", "sparse", "folder", "nul", "deep", "digits", "latin"])
def test_a_file_of_another_kind_is_named_and_not_read(location: Path, name: str, kind: str) -> None:
    out = run(location)
    path = out / name
    path.unlink()
    secret = location / "secret.jsonl"
    secret.write_text('{"step": 1, "loss": 777.5, "bundle": "sha256:777.5", "settings": {"arguments.x": 777.5}}\n')
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "sparse":
        with open(path, "wb") as handle:
            handle.truncate(2**40)
    elif kind == "folder":
        path.mkdir()
    else:
        texts = {
            "nul": b"\0" * 999,
            "deep": b"[" * 10**6,
            "digits": b'{"step": ' + b"9" * 10**5 + b"}\n",
            "latin": b"\xe9\n",
        }
        path.write_bytes(texts[kind] + b"\n")
    text, status = report(parse(["out/x", "--html", "r.html", "--json"]))
    assert status == 0
    assert "777.5" not in text + (location / "r.html").read_text()
    if kind in ("link", "pipe", "sparse", "folder"):
        assert any(note.startswith(f"{name} is not read: ") for note in json.loads(text)["runs"][0]["notes"])


def test_a_run_names_no_bundle_of_this_machine_without_its_digest(location: Path) -> None:
    """A stranger's run may contain the path of a bundle on this machine. The report reads this bundle only if the run
    has also recorded the bundle's digest.
    """
    out = run(location)
    other = location / "private"
    other.mkdir()
    (location / "x.bundle").rename(other / "mine")
    start = json.loads((out / "measured.jsonl").read_text().splitlines()[0]) | {"bundle": str(other / "mine")}
    put(out, {"measured.jsonl": lines([start])})
    assert json.loads(report(parse(["out/x", "--json"]))[0])["runs"][0]["bundle"] == str(other / "mine")
    summary = json.loads((out / "summary.json").read_text()) | {"bundle": "sha256:" + "0" * 64}
    put(out, {"summary.json": json.dumps(summary)})
    text = report(parse(["out/x", "--json"]))[0]
    assert json.loads(text)["runs"][0]["bundle"] is None


@pytest.mark.slow
def test_many_events_are_thinned(location: Path) -> None:
    out = run(location)
    put(out, {"metrics.jsonl": lines([{"step": one, "loss": float(one % 7)} for one in range(50_000)])})
    report(parse(["out/x", "--html", "r.html"]))
    page = (location / "r.html").read_text()
    assert len(page) < 200_000
    assert len(re.findall(r"[ML][\d.]+ [\d.]+", page)) <= 700
