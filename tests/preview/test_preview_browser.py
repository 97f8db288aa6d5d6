"""The page of `xpc preview --html` in a real browser, at the width of a phone and of a desk."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from patience import HUNG
from preview_samples import ANSWER, QUESTION, TALK, WRONG, found, row, sequence

from xpc.compiler.preview.html import page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (390, 1280)
CHECK = """
<div id="frames"></div><pre id="found"></pre>
<script>
const found = {}, page = %s;
window.errors = [];
function measured(width) {
  return new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.style.cssText = `width:${width}px;height:800px;border:0`;
    frame.onload = () => {
      const inside = frame.contentDocument;
      for (const one of inside.querySelectorAll("details")) one.open = true;
      found[width] = { page: inside.documentElement.scrollWidth, width: inside.documentElement.clientWidth,
        learned: [...inside.querySelectorAll("b.learn")].map((one) => one.innerText),
        marked: inside.defaultView.getComputedStyle(inside.querySelector("b.learn")).backgroundColor,
        tokens: inside.querySelectorAll(".tokens span").length };
      done();
    };
    frame.srcdoc = page;
    document.getElementById("frames").append(frame);
  });
}
(async () => {
  for (const width of %s) await measured(width);
  document.getElementById("found").textContent = JSON.stringify(found);
})();
</script>
"""


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None and not os.environ.get("XPC_EVERY_TEST"), reason="no Chromium is installed here")
def test_in_a_browser(tmp_path: Path) -> None:
    """What bears loss is marked, every token is there, and the page is never wider than its window."""
    assert BROWSER is not None
    long = row(sequence("text", *QUESTION, ("<assistant>", 0, 1), ("word" * 300, 1, 1)), number=1, verdicts=[WRONG])
    text = page(found(TALK, long), "run.xp")
    quoted = json.dumps(text).replace("</", "<\\/").replace("<!--", "<\\!--")
    (tmp_path / "look.html").write_text(CHECK % (quoted, json.dumps(WIDTHS)), encoding="utf-8")
    shown = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,900",
            "--virtual-time-budget=20000",
            "--dump-dom", (tmp_path / "look.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=HUNG, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in shown.stderr, shown.stderr
    answer = re.search(r'<pre id="found">(.*?)</pre>', shown.stdout, re.S)
    assert answer is not None
    measured = json.loads(html.unescape(answer[1]))
    for width in map(str, WIDTHS):
        seen = measured[width]
        assert seen["page"] <= seen["width"], "the page scrolls sideways"
        assert seen["learned"][1].split() == ["An", "apple.", "<end>"]
        assert seen["marked"] not in ("rgba(0, 0, 0, 0)", "")
        assert seen["tokens"] == len(QUESTION) * 2 + len(ANSWER) + 2
