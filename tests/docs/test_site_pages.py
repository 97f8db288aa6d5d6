"""Every page of the site in Chromium, at the widths of a desktop and of a phone. All tests share one browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from browser import WIDTHS, found_on, in_browser
from compile_support import read

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.render import render

pytestmark = [pytest.mark.nightly, in_browser]

PHONE, DESKTOP = WIDTHS
TALLEST = 30_000
"""On a desktop, a page may be at most this many pixels high."""
MISSING = {"XP114", "XP123"}
"""Codes for missing files. They are allowed, because a spec on a page may name a file that another block of the page
shows.
"""
LOOK = """
const found = {}, one = await frame("/404.html", DESKTOP);
for (const page of PAGES) {
  const loaded = new Promise((done) => { one.onload = done; });
  one.style.width = "DESKTOPpx";
  one.src = "/" + page;
  await loaded;
  const inside = one.contentDocument, root = inside.documentElement, look = inside.defaultView.getComputedStyle;
  const codes = [...inside.querySelectorAll("div.highlight code")];
  found[page] = {
    height: root.scrollHeight,
    ids: [...inside.querySelectorAll("[id]")].map((each) => each.id),
    codes: codes.map((code) => ({
      text: code.textContent,
      colours: new Set([...code.querySelectorAll("span[class]")].map((each) => look(each).color)).size,
    })),
  };
  one.style.width = "PHONEpx";
  await sleep(30);
  found[page].phone = root.scrollWidth;
}
return found;
"""
"""A script that opens each page of PAGES. It returns the page's height, the ids of its elements, the text and the
number of colours of each block of code, and the width that the content needs on a phone.
"""


@pytest.fixture(scope="module")
def looked(site, tmp_path_factory) -> dict[str, dict[str, Any]]:
    """The result of the script LOOK (heights, ids, colours of code) for each page, by the page's path."""
    pages = sorted(str(one.relative_to(site)) for one in Path(site).rglob("*.html"))
    script = LOOK.replace("PAGES", json.dumps(pages)).replace("DESKTOP", str(DESKTOP)).replace("PHONE", str(PHONE))
    found = found_on(site, script, tmp_path_factory.mktemp("browser"))
    assert len(found) == len(pages) > 60
    return found


def specs(looked: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Pairs: a page, and a block of the page. All blocks that are complete specs are included."""
    blocks = [(page, code) for page, one in looked.items() for code in one["codes"]]
    return [(page, code) for page, code in blocks if re.match(r"(?:#.*\n)*xpc 1\n", code["text"])]


def test_no_page_is_endless(looked):
    assert {page: one["height"] for page, one in looked.items() if not 100 < one["height"] <= TALLEST} == {}


def test_a_phone_need_not_scroll_sideways(looked):
    assert {page: one["phone"] for page, one in looked.items() if one["phone"] > PHONE} == {}


def test_specs_are_shown_in_several_colours(looked):
    shown = specs(looked)
    assert len(shown) > 10
    assert [(page, code) for page, code in shown if code["colours"] < 3] == []


def test_a_spec_that_is_copied_from_a_page_is_legal(looked, tmp_path):
    """Every spec on a page passes the check. A spec that reads files which do not exist here may have errors, but none
    about syntax, names and values.
    """
    files, complete = Workspace(str(tmp_path)), 0
    for page, code in specs(looked):
        found = check_text(code["text"].encode(), "copied.xp", files)
        refused = [one for one in found.problems if one.severity == "error"]
        if any(one.code in MISSING for one in refused):
            refused = [one for one in refused if one.code < "XP114"]
        else:
            complete += 1
        assert not refused, (page, render(refused, "full"))
    assert complete > 2


def test_anchors_that_explain_and_links_use_exist(looked):
    """Each setting has an anchor on its page of the reference, and each code has one on its page of rules and one in
    the list of rules.
    """
    settings = re.findall(r"\]\((reference/\w+)\.md#([\w.]+)\)", read("docs/reference.md"))
    codes = re.findall(r"\]\((rules)\.md#(xp\d+)\)", read("docs/stack-trl-1.16.md"))
    codes += re.findall(r"\]\((rules/[\w-]+)\.md#(xp\d+)\)", read("docs/rules.md"))
    assert len(settings) > 150
    assert len(codes) > 500
    assert [one for one in settings + codes if one[1] not in looked[f"{one[0]}.html"]["ids"]] == []
