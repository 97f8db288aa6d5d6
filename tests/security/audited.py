"""Run command lines of xpc under an audit hook, in a separate process, and print every forbidden event.

    python audited.py ALLOWED COMMANDS.json

ALLOWED is the folder that the commands may read and write; COMMANDS.json is a list of lists of words. Files of the
interpreter, this repository and the installed packages may also be read and executed. Everything else is a finding: a
started process, a socket, foreign code (from another folder, or with the marker of the tests' hostile texts), a pickle,
or a file that is read or written outside of ALLOWED. It prints JSON: `findings`, and `seen`, the number of events by
name.
"""

from __future__ import annotations

import io
import json
import os
import site
import sys
import sysconfig
from collections import Counter
from types import CodeType

MARK = "zq7pwned"
"""A text in every hostile payload. If code that is compiled or executed contains this text, the code came from the
payload.
"""
NEVER = (
    "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.startfile", "pty.", "socket.",
    "urllib.", "http.", "ftplib.", "smtplib.", "telnetlib.", "ctypes.", "pickle.", "webbrowser.", "code.__new__",
    "cpython.run_", "os.kill", "signal.", "mmap.", "sqlite3.", "os.putenv", "os.unsetenv",
)  # fmt: skip
PATHS = {
    "open": (0,), "os.remove": (0,), "os.rename": (0, 1), "os.rmdir": (0,), "os.mkdir": (0,), "os.chmod": (0,),
    "os.chown": (0,), "os.link": (0, 1), "os.symlink": (0, 1), "os.truncate": (0,), "os.utime": (0,),
    "shutil.rmtree": (0,), "shutil.move": (0, 1), "shutil.copyfile": (0, 1), "tempfile.mkdtemp": (0,),
    "tempfile.mkstemp": (0,), "os.listdir": (0,), "os.scandir": (0,), "os.setxattr": (0,),
}  # fmt: skip
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def inside(path: str, roots: list[str]) -> bool:
    return any(path == root or path.startswith(root + os.sep) for root in roots)


class Watch:
    """The audit hook: it counts events and records the events that are not allowed."""

    def __init__(self, allowed: str) -> None:
        self.on = False
        self.allowed = [os.path.realpath(allowed)]
        python = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        # a virtual environment may add the packages of another environment to sys.path
        shared = [one for one in sys.path if one.endswith("site-packages")]
        roots = [REPOSITORY, sys.prefix, sys.base_prefix, *python, *site.getsitepackages(), *shared]
        self.own = [os.path.realpath(one) for one in roots]
        self.findings: list[str] = []
        self.seen: Counter[str] = Counter()

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        if not self.on:
            return
        self.seen[event] += 1
        if event.startswith(NEVER):
            self.findings.append(f"{event} {args!r}"[:300])
        elif event in ("exec", "compile"):
            self.code(event, args)
        elif event in PATHS:
            for at in PATHS[event]:
                self.path(event, args, args[at])

    def code(self, event: str, args: tuple[object, ...]) -> None:
        source = args[0]
        name = source.co_filename if isinstance(source, CodeType) else args[1] if event == "compile" else "<exec>"
        name = os.fsdecode(name) if isinstance(name, str | bytes) else str(name)
        if not name.startswith("<") and not inside(os.path.realpath(name), self.own):
            self.findings.append(f"{event} of {name}")
        if event == "compile" and name == "<unknown>":
            return  # ast.parse makes a syntax tree, which is not executed
        if MARK in (texts(source) if isinstance(source, CodeType) else str(source)):
            self.findings.append(f"{event} of a text with the mark, as {name}")

    def path(self, event: str, args: tuple[object, ...], named: object) -> None:
        if named is None or isinstance(named, int):
            return  # an already open file is given as a descriptor, not as a path
        path = os.path.realpath(os.fsdecode(named))  # type: ignore[arg-type]
        if inside(path, self.allowed):
            return
        mode, flags = (args[1], args[2]) if event == "open" else (None, 0)
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        reads = event in ("open", "os.listdir", "os.scandir") and not writes
        if not (reads and inside(path, self.own)):
            self.findings.append(f"{event} of {path} ({mode})")


def texts(code: CodeType) -> str:
    """All names and constants in a code object, in which the marker is then searched."""
    parts = [*code.co_names, *code.co_varnames]
    for one in code.co_consts:
        parts.append(texts(one) if isinstance(one, CodeType) else str(one))
    return "\0".join(parts)


def main() -> None:
    allowed = sys.argv[1]
    with open(sys.argv[2], encoding="utf-8") as handle:
        commands = json.load(handle)
    sys.dont_write_bytecode = True
    os.environ["XPC_CACHE"] = "off"
    os.environ["XPC_DEBUG"] = "1"  # a command must answer: if it raises an exception, this is a finding
    os.chdir(allowed)
    from xpc.compiler.cli import main as xpc

    watch, statuses = Watch(allowed), []
    sys.addaudithook(watch)
    for words in commands:
        kept = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        before = len(watch.findings)
        try:
            watch.on = True
            statuses.append(xpc(words))
        except SystemExit as left:
            statuses.append(int(left.code or 0))
        except BaseException as error:
            # a command must not raise any exception
            watch.findings.append(f"{type(error).__name__}: {error}")
            statuses.append(-1)
        finally:
            watch.on = False
            sys.stdout, sys.stderr = kept
        watch.findings[before:] = [f"{' '.join(words)}: {one}" for one in watch.findings[before:]]
    print(json.dumps({"findings": watch.findings, "seen": watch.seen, "statuses": statuses}))


if __name__ == "__main__":
    main()
