"""Locks, answers of the hub and package indexes may be hostile. If a field does not have the expected form, the error
is one sentence.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from compile_support import CONFIG, put, xpc
from patience import HUNG

from xpc.compiler.files.inputs import UsageError, read_spec
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.locking import command
from xpc.compiler.locking import hub as hub_module
from xpc.compiler.locking.hub import Hub, HubError
from xpc.compiler.pipeline import check_text
from xpc.compiler.resolve import lockfile

pytestmark = pytest.mark.slow

REVISION = 'asked = "v1"\nrevision = '
COMMIT = "0123456789abcdef0123456789abcdef01234567"
DIGEST = "sha256:" + "0" * 64
LOCK = f"""\
# Pinned

[lock]
format = 1
xpc = "0.1"
target = "trl-1.16"

[[model]]
id = "me/model"
asked = "v1"
revision = "{COMMIT}"
template = "{DIGEST}"
chat = true
config = '{{"model_type": "qwen2"}}'

[[dataset]]
id = "me/rows"
part = "default"
revision = "{COMMIT}"
columns = ["a", "b"]
rows = {{ train = 40 }}

[files]
"t.jinja" = "{DIGEST}"

[rows]
"rows.jsonl" = 9

[environment."requirements.txt"]
asked = ["torch==2.13.0", "math-verify[antlr4_13_2]==0.8.0"]
resolved = [
  "jinja2==3.1.6",
  "math_verify==0.8.0",
  "torch==2.13.0+cpu",
]

[bundle]
digest = "{DIGEST}"
"""
FORGED = {
    "an option of pip": ('"jinja2==3.1.6"', '"jinja2==3.1.6\\n--index-url https://evil"'),
    "an option of pip alone": ('"jinja2==3.1.6"', '"--index-url=https://evil"'),
    "an address": ('"jinja2==3.1.6"', '"jinja2 @ https://evil/jinja2.whl"'),
    "a file": ('"jinja2==3.1.6"', '"./jinja2.whl"'),
    "another operator": ('"jinja2==3.1.6"', '"jinja2>=3.1.6"'),
    "a marker": ('"jinja2==3.1.6"', "\"jinja2==3.1.6; python_version > '3'\""),
    "a hash": ('"jinja2==3.1.6"', '"jinja2==3.1.6 --hash=sha256:00"'),
    "two versions": ('"jinja2==3.1.6"', '"jinja2==3.1.6", "Jinja2==2.0"'),
    "a joker": ('"jinja2==3.1.6"', '"jinja2==3.*"'),
    "another version than asked for": ("torch==2.13.0+cpu", "torch==2.4.0"),
    "a package that is not resolved": ('  "torch==2.13.0+cpu",\n', ""),
    "a number among the packages": ('"jinja2==3.1.6"', "3"),
    "an option that is asked for": ('"torch==2.13.0", ', '"torch==2.13.0", "-r other.txt", '),
    "a file that is no list of packages": ('"requirements.txt"', '"../x.txt"'),
    "a branch as the commit": (f'{REVISION}"{COMMIT}"', f'{REVISION}""main"'),
    "a short commit": (f'{REVISION}"{COMMIT}"', f'{REVISION}""0123456"'),
    "a path as the commit": (f'{REVISION}"{COMMIT}"', f'{REVISION}""{"../" * 13}x"'),
    "an address as the commit": (
        f'asked = "v1"\nrevision = "{COMMIT}"',
        f'asked = "v1"\nrevision = "main?x={"1" * 33}"',
    ),
    "another commit than asked for": ('asked = "v1"', f'asked = "{"1" * 40}"'),
    "a path as the branch": ('asked = "v1"', 'asked = "../v1"'),
    "a path as the repository": ('id = "me/model"', 'id = "../model"'),
    "an address as the repository": ('id = "me/model"', 'id = "https://evil/me/model"'),
    "a control character": ('part = "default"', 'part = "a\\u001b[2J"'),
    "a short digest": (f'"t.jinja" = "{DIGEST}"', '"t.jinja" = "sha256:0"'),
    "another digest": (f'"t.jinja" = "{DIGEST}"', f'"t.jinja" = "md5:{"0" * 64}"'),
    "a digest of capitals": (f'template = "{DIGEST}"', f'template = "sha256:{"A" * 64}"'),
    "a bundle's digest": (f'digest = "{DIGEST}"', 'digest = "x"'),
    "rows below zero": ('"rows.jsonl" = 9', '"rows.jsonl" = -9'),
    "rows that are a flag": ("train = 40", "train = true"),
    "too many rows": ("train = 40", "train = 99999999999999999999"),
    "rows that are a text": ("train = 40", 'train = "40"'),
    "columns that are a text": ('columns = ["a", "b"]', 'columns = "ab"'),
    "a chat that is a text": ("chat = true", 'chat = "yes"'),
    "a configuration that is a list": ('config = \'{"model_type": "qwen2"}\'', "config = '[]'"),
    "a configuration that is not JSON": ('config = \'{"model_type": "qwen2"}\'', "config = '{'"),
    "an unknown table": ("[files]", "[more]\nx = 1\n\n[files]"),
    "an unknown entry": ('xpc = "0.1"', 'xpc = "0.1"\nmore = 1'),
    "an unknown entry of a pin": ('part = "default"', 'part = "default"\nmore = 1'),
    "one repository twice": (
        "[files]",
        f'[[dataset]]\nid = "me/rows"\npart = "default"\nrevision = "{"1" * 40}"\n[files]',
    ),
    "a version of a number": ('xpc = "0.1"', "xpc = 0.1"),
}


def read(folder, text):
    put(folder, {"x.xp.lock": text})
    return lockfile.read(Workspace(str(folder), lock="x.xp.lock"))


def test_a_lock_of_every_field_is_read(tmp_path):
    lock, problems = read(tmp_path, LOCK)
    assert problems == []
    assert (lock.pins[0].revision, lock.environments["requirements.txt"].resolved[0]) == (COMMIT, "jinja2==3.1.6")


@pytest.mark.parametrize(("old", "new"), FORGED.values(), ids=FORGED)
def test_a_field_of_another_form_is_refused(old, new, tmp_path):
    assert old in LOCK
    lock, (problem,) = read(tmp_path, LOCK.replace(old, new, 1))
    assert (lock, problem.code) == (None, "XP114")


class Hostile:
    """A hub that answers every request with the same bytes, sent in parts, with a pause of `pause` seconds between two
    parts.
    """

    def __init__(self, *parts, pause=0.0):
        self.parts, self.pause = parts, pause
        self.socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection = self.socket.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with connection:
            try:
                connection.recv(65536)
                for part in self.parts:
                    connection.sendall(part)
                    time.sleep(self.pause)
            except OSError:
                pass

    @property
    def environment(self):
        return {"HF_ENDPOINT": f"http://127.0.0.1:{self.socket.getsockname()[1]}"}


def answer(body, *headers, length=None, status="200 OK"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    size = len(data) if length is None else length
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {size}", *headers, "", ""]).encode() + data


SHA = {"sha": COMMIT}
LIES = {
    "nothing": b"",
    "no protocol": b"hello\r\n\r\n",
    "a status that is a word": b"HTTP/1.1 yes OK\r\n\r\n",
    "a long line": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 1000 + b"\r\n",
    "a length that is a word": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}",
    "a chunk that is a word": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "shorter than its length": answer(SHA, length=4000),
    "an error": answer(b"", status="500 No"),
    "a redirect to a file": answer(b"", "Location: file:///etc/passwd", status="302 Found"),
    "a redirect to ftp": answer(b"", "Location: ftp://127.0.0.1/x", status="302 Found"),
    "a redirect to itself": answer(b"", "Location: /x", status="302 Found"),
    "a redirect to nowhere": answer(b"", "Location: http://[", status="302 Found"),
    "not JSON": answer(b"<html>"),
    "not a text": answer(b"\xff\xfe"),
    "deep": answer(b"[" * 200_000),
    "a long number": answer(b'{"sha": ' + b"1" * 100_000 + b"}"),
    "a list": answer([]),
    "no commit": answer({}),
    "a number as the commit": answer({"sha": 3}),
    "a path as the commit": answer({"sha": "../" * 13 + "x"}),
    "an address as the commit": answer({"sha": "main?x=1#" + "z" * 31}),
    "capitals that are no digits": answer({"sha": "Z" * 40}),
    "another commit": answer({"sha": "1" * 40}),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_an_answer_that_lies_is_a_sentence(lie, kind):
    with pytest.raises(HubError):
        Hub(Hostile(LIES[lie]).environment).pin(kind, "me/x", COMMIT if lie == "another commit" else "", "")


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("body", [b"[]", b'"x"', b"3", b"{", b"\xff", b"[" * 200_000], ids=range(6))
def test_a_configuration_that_is_no_table(name, body, monkeypatch):
    files = {"config.json": json.dumps(CONFIG).encode(), "tokenizer_config.json": b"{}", name: body}
    hub = Hub({"HF_ENDPOINT": "http://127.0.0.1:9"})
    monkeypatch.setattr(hub, "_json", lambda path, what: SHA)
    monkeypatch.setattr(hub, "_file", lambda id, revision, one: files.get(one))
    with pytest.raises(HubError, match="a configuration of me/x"):
        hub.pin("model", "me/x", "", "")


CARDS = (
    [], 3, "x", {"dataset_info": 3}, {"dataset_info": [3, None]}, {"dataset_info": {"features": 3, "splits": "x"}},
    {"dataset_info": {"features": [{"name": []}, {"name": "\x1b[2J"}, {"name": "a"}, {"name": "a"}]}},
    {"dataset_info": {"splits": [{"name": [], "num_examples": 1}, {"name": "\ud800", "num_examples": 1}]}},
    {"dataset_info": {"splits": [{"name": "a", "num_examples": -1}, {"name": "b", "num_examples": True}]}},
    {"dataset_info": {"splits": [{"name": "a", "num_examples": 10**30}, {"name": "b", "num_examples": 1.5}]}},
)  # fmt: skip


@pytest.mark.parametrize("card", CARDS, ids=range(len(CARDS)))
def test_a_card_of_other_kinds_says_nothing(card):
    pin = Hub(Hostile(answer({**SHA, "cardData": card})).environment).pin("dataset", "me/x", "", "")
    assert (pin.revision, set(pin.columns) <= {"a"}, pin.rows) == (COMMIT, True, {})


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(hub_module, "DEADLINE", 0.5)
    data = answer(SHA)
    with pytest.raises(HubError, match="no complete answer"):
        Hub(Hostile(*(data[at : at + 1] for at in range(len(data))), pause=0.2).environment).pin("model", "x", "", "")


PIP = """\
import os, sys, time
open(os.environ["STARTED"], "w").write(str(os.getpid()))
os.system("sleep 600 & echo $! > $STARTED.child")
time.sleep(600)
"""


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as handle:
            return handle.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_pip_ends_with_the_lock_that_started_it(tmp_path):
    """If `xpc lock --update` is killed with `kill -9`, the pip that it started ends, too, as do the processes that this
    pip started.
    """
    text = 'xpc 1\n\ntrain qwen2.5-3b on "rows.jsonl" for 1 epochs\n\nhardware 8 x h100-80gb\nsave "out/x"\n'
    rows = b'{"text": "a"}\n' * 9
    put(tmp_path, {"x.xp": text, "rows.jsonl": rows, "fake/pip/__init__.py": "", "fake/pip/__main__.py": PIP})
    started, fake = tmp_path / "started", f"{tmp_path / 'fake'}:{os.environ.get('PYTHONPATH', '')}"
    words = [sys.executable, "-m", "xpc.compiler.cli", "lock", "x.xp", "--update", "environment"]
    environment = {**os.environ, "PYTHONPATH": fake, "STARTED": str(started)}
    process = subprocess.Popen([*words, "--python", sys.executable], cwd=tmp_path, env=environment)
    end, paths = time.monotonic() + HUNG, (started, tmp_path / "started.child")
    while not all(path.exists() and path.read_text() for path in paths):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    pids = [int(path.read_text()) for path in paths]
    assert all(map(alive, pids))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def test_an_answer_of_pip_that_is_no_text_is_one_sentence(tmp_path):
    answers = r"""import os
os.write(1, b'\xff{')
os.write(2, b'ERROR: \xff\x1b[31m from versions: none\n')
raise SystemExit(int(os.environ["STATUS"]))
"""
    put(tmp_path, {"x.xp": SPEC, "fake/pip/__init__.py": "", "fake/pip/__main__.py": answers})
    fake = f"{tmp_path / 'fake'}:{os.environ.get('PYTHONPATH', '')}"
    for status, sentence in (("1", b"cannot resolve the requirements: "), ("0", b"gives no report")):
        words = ("lock", "x.xp", "--update", "environment", "--python", sys.executable)
        done = xpc(*words, cwd=str(tmp_path), env={"PYTHONPATH": fake, "STATUS": status})
        assert done.returncode not in (0, 70)
        assert sentence in done.stderr
        assert b"\x1b" not in done.stderr


SPEC = "xpc 1\ntrain qwen2.5-3b on alpaca for 10 steps\nhardware 1 x h100-80gb\n"


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to nothing", "link to itself"])
def test_a_lock_that_is_no_file_is_an_error(kind, tmp_path):
    """If a lock is a folder or a pipe, the compiler reports an error. Once it ignored such a lock, and compiled a run
    without pins.
    """
    put(tmp_path, {"t.xp": SPEC})
    path = tmp_path / "t.xp.lock"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("nothing" if kind == "link to nothing" else path)
    data, name, workspace = read_spec(str(tmp_path / "t.xp"))
    assert "XP114" in [one.code for one in check_text(data, name, workspace).problems]


def test_a_lock_that_is_a_link_is_not_written(tmp_path):
    """xpc does not write through a lock that is a symbolic link. Otherwise a pull request could contain `t.xp.lock ->
    ../../.ssh/authorized_keys`.
    """
    put(tmp_path, {"t.xp": SPEC, "mine": "my keys"})
    (tmp_path / "t.xp.lock").symlink_to("mine")
    with pytest.raises(UsageError, match="is a link, and is not followed"):
        command.run(command.parse([str(tmp_path / "t.xp")]))
    assert (tmp_path / "mine").read_text() == "my keys"
