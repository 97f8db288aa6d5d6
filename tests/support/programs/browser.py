"""Run pages and scripts in a headless browser: Debian's chromium or another installed Chromium."""

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
"""The widths in pixels of a phone's window and of a desktop's window."""
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
"""A page that runs SCRIPT and posts its result to `/_found` as JSON."""


FRAMES = """
<div id="frames"></div><pre id="found"></pre>
<script>
const found = {}, page = %s;
window.errors = [];
const early = "<script>window.onerror = (m) => { parent.errors.push(String(m)); };"
  + "window.addEventListener('securitypolicyviolation', (e) => parent.errors.push(e.violatedDirective));<\\/script>";
SCRIPT
function framed(width) {
  return new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.style.cssText = `width:${width}px;height:800px;border:0`;
    frame.onload = () => {
      const inside = frame.contentDocument, seen = look(inside), { scrollWidth, clientWidth } = inside.documentElement;
      found[width] = { page: scrollWidth, width: clientWidth, ...seen };
      done();
    };
    frame.srcdoc = page.replace("<head>", "<head>" + early);
    document.getElementById("frames").append(frame);
  });
}
(async () => {
  for (const width of %s) await framed(width);
  found.errors = window.errors;
  document.getElementById("found").textContent = JSON.stringify(found);
})();
</script>
"""
"""A page that loads the tested page into several frames, one for each width, and calls `look` for each frame. It writes
the results of `look` and the JavaScript errors of the frames as JSON into the element `#found`.
"""
DARK = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")


def in_frames(script: str, page: str, folder: Path, dark: bool) -> Any:
    """Load the HTML text ``page`` in several frames, one for each of `WIDTHS`. For each width, return the object that
    ``script`` returns for this frame.

    ``script`` is JavaScript that defines `look(inside)`: it gets the frame's document and returns an object. Two
    numbers are added to this object: `page` is the width that the content needs, and `width` is the width of the frame.
    If `page > width`, the content is too wide. The returned mapping also has the key `errors` with the JavaScript
    errors of all frames.
    """
    assert BROWSER is not None
    quoted = json.dumps(page).replace("</", "<\\/").replace("<!--", "<\\!--")
    check = FRAMES.replace("SCRIPT", script.strip()) % (quoted, json.dumps(WIDTHS))
    (folder / "look.html").write_text(check, encoding="utf-8")
    shown = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--window-size=1400,900",
            "--virtual-time-budget=20000", *(DARK if dark else ()), "--dump-dom", (folder / "look.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=HUNG, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in shown.stderr, shown.stderr
    answer = re.search(r'<pre id="found">(.*?)</pre>', shown.stdout, re.S)
    assert answer is not None
    assert answer[1], shown.stderr[-2000:]
    return json.loads(html.unescape(answer[1]))


def found_on(site: Path, script: str, folder: Path) -> Any:
    """Serve the folder ``site`` to a browser, run a script there, and return the script's result.

    ``script`` is the body of an asynchronous JavaScript function that returns a value for JSON. It runs on a page of
    the same server, so it can read the documents of the frames that it opens.
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
            """Do not print the server's requests. Otherwise they would appear in the output of the tests."""

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
