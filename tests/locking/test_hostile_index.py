"""A package index may be hostile: `xpc lock --update` limits pip's memory, pip's files and pip's answers."""

import contextlib
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from compile_support import put

from xpc.compiler.locking import environments

pytestmark = pytest.mark.slow

WHEEL = "<a href='/x-1-py3-none-any.whl'>x-1-py3-none-any.whl</a>"
LINKS = "".join(f"<a href='/x-0.{at}-py3-none-any.whl'>x-0.{at}-py3-none-any.whl</a>\n" for at in range(5000))
INDEXES: dict[str, tuple[str, str, str]] = {
    "a page without an end": (LINKS, "", "MemoryError"),
    "a file without an end": (WHEEL, "\0" * 2**16, "File too large"),
    "a link to itself": ("", "", "Exceeded 30 redirects"),
    "a link to a file": ("file:///etc/passwd", "", ""),
    "a page of controls": ("<a href='/\x1b[31m::error::x-1.tar.gz'>\x1b]0;x\x07x-1.tar.gz</a>", "", "No matching"),
    "a name of 60,000 letters": (WHEEL.replace("whl<", f"whl#sha256={'a' * 60_000}<"), "x" * 9, ""),
}
"""Maps the answer of a hostile index to its page, to a text that the index sends again and again as a file, and to a
part of pip's last message.
"""


class Index(BaseHTTPRequestHandler):
    what = ""

    def log_message(self, *_):
        pass

    def do_GET(self):
        page, part, _ = INDEXES[self.what]
        redirected = {"a link to itself": self.path, "a link to a file": page}.get(self.what)
        self.send_response(302 if redirected else 200)
        if redirected:
            self.send_header("Location", redirected)
        self.send_header("Content-Type", "application/zip" if part and "simple" not in self.path else "text/html")
        self.end_headers()
        endless = self.what == ("a page without an end" if "simple" in self.path else "a file without an end")
        body = (page if "simple" in self.path else part).encode()
        with contextlib.suppress(OSError):
            self.wfile.write(body)
            while endless:
                self.wfile.write(body)


@pytest.mark.parametrize("what", INDEXES)
def test_a_hostile_index_is_one_sentence(what, monkeypatch):
    monkeypatch.setattr(environments, "MEMORY", 2**28)
    monkeypatch.setattr(environments, "FILE", 2**24)
    monkeypatch.setattr(Index, "what", what)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in (
        ("INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple"), ("CONFIG_FILE", os.devnull),
        ("NO_CACHE_DIR", "1"), ("RETRIES", "0"),
    ):  # fmt: skip
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    try:
        with pytest.raises(environments.ResolveError, match=f"pip cannot resolve .*{INDEXES[what][2]}") as error:
            environments.resolve({environments.BASE: ("x==1",)}, sys.executable)
    finally:
        server.shutdown()
    assert len(str(error.value)) < environments.MESSAGE + 100


REPORT = "import sys\nopen(sys.argv[-1], 'w').write({!r})\n"
"""A program in place of pip that writes this report."""


def as_pip(monkeypatch, folder, program):
    put(folder, {"pip/__init__.py": "", "pip/__main__.py": program})
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{os.environ.get('PYTHONPATH', '')}")
    # a second program of the same size, written in the same second, would be run from the bytecode of the first
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


def refused(*more):
    """The message of a resolution that fails."""
    with pytest.raises(environments.ResolveError) as error:
        environments.resolve({environments.BASE: ("x==1",), **dict.fromkeys(more, ("y==1",))}, sys.executable)
    return str(error.value)


def test_a_report_of_pip_is_read_up_to_a_limit(tmp_path, monkeypatch):
    """A report of pip with megabytes of packages is read only up to a limit, and a long message of pip is cut."""
    as_pip(monkeypatch, tmp_path, REPORT.format('{"install": []}' + " " * 10**6))
    assert environments.resolve({environments.BASE: ("x==1",)}, sys.executable)[environments.BASE].resolved == ()
    as_pip(monkeypatch, tmp_path, REPORT.format('{"install": [' + " " * 10**6 + "]}"))
    monkeypatch.setattr(environments, "ANSWER", 10**5)
    assert "no report" in refused()
    as_pip(monkeypatch, tmp_path, "import sys\nsys.exit('ERROR: ' + 'x' * 10**6)\n")
    assert len(refused()) < environments.MESSAGE + 100


CHAIN = """\
import time
for at in range({}):
    print('  ' * (at > 0) + f'Collecting {}', flush=True)
open(__file__ + ".printed", "w").close()
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (CHAIN.format("9**9", "x{at}"), "pip reads more than 50 packages, so it was stopped; the last one is x"),
        (CHAIN.format(3, "x{at}"), "within 60 minutes, so it was stopped, with 3 packages read; the last one is x2"),
        (CHAIN.format("9**9", "x"), "so it was stopped"),
        (CHAIN.format(0, ""), "pip did not end within 60 minutes, so it was stopped, with no package read"),
    ],
    ids=["packages", "time", "lines", "silence"],
)  # fmt: skip
def test_pip_is_stopped_if_it_does_not_end(program, message, tmp_path, monkeypatch):
    """A hostile index can describe an endless chain of packages, each of which requires the next one. Or it answers so
    slowly that pip never ends. The clock of this test stands still until the program has printed its lines and these
    have been read.
    """
    as_pip(monkeypatch, tmp_path, program)
    printed: list[bool] = []

    def monotonic() -> float:
        printed.append((tmp_path / "pip/__main__.py.printed").exists())
        return environments.SECONDS + 1 if printed.count(True) > 1 else 0

    monkeypatch.setattr(environments, "PACKAGES", 50)
    monkeypatch.setattr(environments, "ANSWER", 10**5)
    monkeypatch.setattr(environments, "monotonic", monotonic)
    assert message in refused()


def test_all_requirements_of_a_bundle_have_one_time_limit(tmp_path, monkeypatch):
    """All requirements files of a bundle share one time limit: the time that the first file has used is not available
    for the second file.
    """
    as_pip(monkeypatch, tmp_path, "import sys, time\n" + REPORT.format('{"install": []}') + "time.sleep(1)\n")
    times = iter([0, *[environments.SECONDS + 1] * 9])
    monkeypatch.setattr(environments, "monotonic", lambda: next(times))
    assert "pip did not end within 60 minutes" in refused("requirements-vllm.txt")
