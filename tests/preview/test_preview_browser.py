"""Chromium opens the page of `xpc preview --html`, once as wide as a phone, and once as wide as a desktop screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import WIDTHS, in_browser, in_frames
from preview_samples import ANSWER, QUESTION, TALK, WRONG, found, row, sequence

from xpc.compiler.preview.html import page

SCRIPT = """
function look(inside) {
  for (const one of inside.querySelectorAll("details")) one.open = true;
  return { learned: [...inside.querySelectorAll("b.learn")].map((one) => one.innerText),
    marked: inside.defaultView.getComputedStyle(inside.querySelector("b.learn")).backgroundColor,
    tokens: inside.querySelectorAll(".tokens span").length };
}
"""


@pytest.mark.nightly
@in_browser
def test_the_page_shows_every_token_in_a_browser(tmp_path: Path) -> None:
    """The page shows every token, marks the tokens that have a loss, and is never wider than the window."""
    long = row(sequence("text", *QUESTION, ("<assistant>", 0, 1), ("word" * 300, 1, 1)), number=1, verdicts=[WRONG])
    text = page(found(TALK, long), "run.xp")
    seen_at = in_frames(SCRIPT, text, tmp_path, dark=False)
    assert seen_at["errors"] == []
    for width in map(str, WIDTHS):
        seen = seen_at[width]
        assert seen["page"] <= seen["width"], "the page scrolls sideways"
        assert seen["learned"][1] == "An apple.  <end>", "every space is shown"
        assert seen["marked"] not in ("rgba(0, 0, 0, 0)", "")
        assert seen["tokens"] == len(QUESTION) * 2 + len(ANSWER) + 2
