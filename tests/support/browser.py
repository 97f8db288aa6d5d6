"""A real browser, headless: Debian's chromium or another Chromium that is installed."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from patience import HUNG

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (390, 1280)
"""Pixels of a phone and of a desk."""
in_browser = pytest.mark.skipif(
    BROWSER is None and not os.environ.get("XPC_EVERY_TEST"), reason="no Chromium is installed here"
)


def measured(check: str, page: str, folder: Path, *options: str) -> Any:
    """What a browser finds of a page. `check` is a page with a script that loads it (the first `%s`) at `WIDTHS` (the
    second) and writes its findings as JSON into `<pre id="found">`.
    """
    assert BROWSER is not None
    quoted = json.dumps(page).replace("</", "<\\/").replace("<!--", "<\\!--")
    (folder / "look.html").write_text(check % (quoted, json.dumps(WIDTHS)), encoding="utf-8")
    shown = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--window-size=1400,900",
            "--virtual-time-budget=20000", *options, "--dump-dom", (folder / "look.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=HUNG, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in shown.stderr, shown.stderr
    answer = re.search(r'<pre id="found">(.*?)</pre>', shown.stdout, re.S)
    assert answer is not None
    assert answer[1], shown.stderr[-2000:]
    return json.loads(html.unescape(answer[1]))
