"""Chromium opens the page of `xpc report --html`, once as wide as a phone, and once as wide as a desktop screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import WIDTHS, in_browser, in_frames
from compile_support import put
from report_support import SPEC, compiled, events, lines, run

from xpc.compiler.report.command import parse
from xpc.compiler.report.command import run as report

SCRIPT = """
function box(one) { const at = one.getBoundingClientRect(); return [at.left, at.right, at.height]; }
function look(inside) {
  const all = (words) => [...inside.querySelectorAll(words)];
  for (const one of all("details")) one.open = true;
  const steps = all("table.three tr").find((row) => row.cells[0].textContent === "steps");
  return { hidden: all(".scroll").map((one) => one.scrollWidth - one.clientWidth),
    panels: all("div.curves > svg").map(box), text: inside.body.innerText, lines: all("div.curves path").length,
    lengths: all("div.curves path").map((one) => one.getTotalLength()),
    steps: [...steps.cells].map((one) => one.innerText), block: getComputedStyle(steps).display,
    heads: all("table.three tbody td").filter((one) => one.innerText)
      .map((one) => inside.defaultView.getComputedStyle(one, "::before").content),
    cells: all("table.three td").filter((one) => one.innerText).map(box), font: parseFloat(
      inside.defaultView.getComputedStyle(all("div.curves text")[0]).fontSize) * all("div.curves > svg")[0]
      .getBoundingClientRect().width / 400 };
}
"""


def page(location: Path, runs: int) -> str:
    """The page of one, two or three runs with an evaluation and a long name."""
    for name, rate in (("x", "1e-5"), ("y", "3e-5"), ("z", "5e-5")):
        compiled(location, name, SPEC.replace("1e-5", rate))
        out = run(location, name, starts=(0, 4), finished=name != "y")
        logged = events() + [{"step": one, f"eval_{'long' * 20}_loss": 2.0 / one} for one in (5, 10)]
        put(out, {"metrics.jsonl": lines(logged)})
    folders = [str(location / "out" / name) for name in ("x", "y", "z")]
    report(parse([*folders[:runs], "--html", str(location / "r.html")]))
    return (location / "r.html").read_text(encoding="utf-8")


@pytest.mark.slow
@in_browser
@pytest.mark.parametrize("runs", [1, 2, 3])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_fits_phones_and_desktops_in_a_browser(tmp_path: Path, runs: int, dark: bool) -> None:
    """The browser reports no error, the page is never wider than its window, the curves are large enough on a phone,
    and every value is shown. On a phone, the table of two runs fits, too; the table of three runs scrolls in its frame.
    """
    found = in_frames(SCRIPT, page(tmp_path, runs), tmp_path, dark)
    assert found["errors"] == []
    for width in WIDTHS:
        seen = found[str(width)]
        assert seen["page"] <= seen["width"], "the page scrolls sideways"
        assert len(seen["panels"]) == 3
        assert all(left >= 0 and right <= seen["width"] for left, right, _ in seen["panels"])
        assert all(height > 100 for _, _, height in seen["panels"])
        assert all(length > 10 for length in seen["lengths"])
        assert seen["font"] >= 8
        assert seen["steps"][2:4] == ["10", "10"]
        assert all(left >= 0 and right <= seen["width"] for left, right, _ in seen["cells"])
        assert "batch.accum" in seen["text"]
        assert "derived: 8 / (2 x 2)" in seen["text"]
        assert runs == 1 or seen["lines"] == 4 * runs
        assert ("Spec of y, compared with x" in seen["text"]) == (runs > 1)
        assert len(seen["hidden"]) == (runs > 1)
        assert runs > 2 or not any(seen["hidden"])
    assert found["390"]["panels"][0][0] == found["390"]["panels"][1][0], "a phone shows one plot per row"
    assert found["1280"]["panels"][0][1] <= found["1280"]["panels"][1][0]
    assert found["390"]["heads"][0] != "none"
    assert found["1280"]["heads"][0] == "none"
