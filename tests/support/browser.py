"""A real browser, headless: Debian's chromium or another Chromium that is installed."""

from __future__ import annotations

import html
import json
import os
import queue
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
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

CHECK = """\
<!doctype html><title>check</title><script>
const until = async (ready) => { for (;;) { const seen = ready(); if (seen) return seen; await sleep(50); } };
const sleep = (time) => new Promise((done) => setTimeout(done, time));
const frame = async (address, width) => {
  const one = document.createElement("iframe");
  one.style.cssText = `width: ${width}px; height: 900px; border: 0`;
  one.src = address;
  await new Promise((loaded) => { one.onload = loaded; document.body.append(one); });
  return one;
};
addEventListener("load", async () => {
  let answer;
  try { answer = { found: await (async () => { SCRIPT })() }; } catch (error) { answer = { error: String(error) }; }
  await fetch("/_found", { method: "POST", body: JSON.stringify(answer) });
});
</script><body></body>
"""
"""A page that sends what its script finds."""


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


def found_on(site: Path, script: str, folder: Path) -> Any:
    """What a script finds on a site that is served to a browser from this machine.

    `script` is JavaScript, the body of an asynchronous function that returns what JSON can say. It runs on a page of
    the site itself, so it can read the frames that it opens.
    """
    assert BROWSER is not None
    found: queue.Queue[Any] = queue.Queue()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/_check.html":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(CHECK.replace("SCRIPT", script).encode())
            return None

        def do_POST(self) -> None:
            found.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = subprocess.Popen(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,900",
            f"--user-data-dir={folder / 'profile'}", "--no-first-run", "--remote-debugging-port=0",
            f"http://127.0.0.1:{server.server_port}/_check.html",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        answer = found.get(timeout=HUNG)
    finally:
        browser.kill()
        browser.wait()
        server.shutdown()
        server.server_close()
    assert "error" not in answer, answer
    return answer["found"]
