"""Show how a changed chat template renders a sample row. Only `xpc diff` uses this module.

A template may come from a stranger, and rendering it may never end. Therefore jinja2's sandbox renders it in a fork of
this process. The fork can neither start a program nor open a file, and its time and memory are limited.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from importlib.util import find_spec

from xpc.compiler.data.reader import read
from xpc.compiler.data.rows import columns, readable
from xpc.compiler.spec import Spec
from xpc.compiler.spec.survey import Broken
from xpc.runtime.core.row_names import ROLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SECONDS = 5
"""The limit of CPU seconds for rendering a row."""
ELAPSED = 60
"""The limit of elapsed seconds for rendering a row. It is larger than SECONDS, because a process may have to wait for a
busy machine.
"""
MEMORY = 512 * 2**20
"""The memory in bytes that rendering may allocate, in addition to the memory that the process already uses."""
LARGEST = 2**20
"""Maximum size of a rendered row in bytes."""
LINES, WIDTH = 24, 200
"""At most LINES lines of the difference between two renderings are shown, and WIDTH characters of each line."""
SAMPLE = [{"role": "user", "content": "What is 1+1?"}, {"role": "assistant", "content": "It is 2."}]


def template_changes(one: Spec, other: Spec) -> Iterator[str]:
    """Lines that show how the chat templates of two runs render the same row. Empty if the two templates are equal, or
    if one of them is unknown.
    """
    before, after = one.chat_template, other.chat_template
    if before is None or after is None or before == after:
        return
    row, name = _sample(other)
    texts = [rendered(template, row, spec.model.eos) for template, spec in ((before, one), (after, other))]
    for side, (text, why) in zip(("before", "after"), texts, strict=True):
        if text is None:
            yield f"the chat template {side} does not write {name}: {why}"
    was, now = (text for text, _ in texts)
    if was is None or now is None:
        return
    if was == now:
        yield f"both chat templates write the same text for {name}"
        return
    yield f"{name} as the chat template writes it:"
    lines = list(unified_diff(was.split("\n"), now.split("\n"), lineterm="", n=1))[2:]
    shown = [line for line in lines if not line.startswith("@@")]
    yield from (f"  {line[:WIDTH]}{'...' if len(line) > WIDTH else ''}" for line in shown[:LINES])
    if len(shown) > LINES:
        yield f"  and {len(shown) - LINES:,} more lines"


def _sample(spec: Spec) -> tuple[Mapping[str, Any], str]:
    """A conversation to render, and its name in messages: the first row of the run's local data, or a made-up
    conversation if there is no local data.
    """
    for source in spec.files:
        if source.shape in ("messages", "conversations") and readable(source):
            row = next(iter(read(source.content or b"", source.path or "")), None)
            turns = None if row is None or isinstance(row, Broken) else row.get(columns(source)[0])
            if isinstance(row, dict) and isinstance(turns, list) and all(isinstance(turn, dict) for turn in turns):
                sample = {"messages": [_turn(turn) for turn in turns], "tools": row.get("tools")}
                return sample, f"row 0 of {source.path}"
    return {"messages": SAMPLE, "tools": None}, "a made-up conversation"


def _turn(turn: dict[str, Any]) -> dict[str, Any]:
    if "from" not in turn:
        return turn
    return {"role": ROLES.get(str(turn["from"]), str(turn["from"])), "content": turn.get("value")}


def rendered(template: str, row: Mapping[str, Any], eos: str | None) -> tuple[str | None, str]:
    """Render a row with a template. Returns two values: the text and "", or, if the row cannot be rendered, None and
    the reason.
    """
    if find_spec("jinja2") is None:
        return None, "jinja2 is not installed here"
    if not hasattr(os, "fork"):
        return None, "this operating system cannot limit the time and memory of a template"
    answer = _limited(lambda: _render(template, row, eos))
    if answer is None:
        return None, f"it takes more than {SECONDS} s, or too much memory"
    found = json.loads(answer)
    return found.get("text"), str(found.get("error", ""))


def _render(template: str, row: Mapping[str, Any], eos: str | None) -> str:
    """Render a row with a template, in a forked process. Returns at most `LARGEST` bytes of JSON: `{"text": ...}` or
    `{"error": ...}`.
    """
    from xpc.compiler.review.differences.template_environment import environment

    try:
        text = (
            environment()
            .from_string(template)
            .render(**row, add_generation_prompt=False, bos_token="<bos>", eos_token=eos or "<eos>", pad_token="<pad>")
        )
        answer = json.dumps({"text": text})
        return answer if len(answer) <= LARGEST else json.dumps({"error": f"it writes {len(text):,} characters"})
    except Exception as error:  # a template may raise any exception
        line = (str(error).splitlines() or [""])[0]
        return json.dumps({"error": f"{type(error).__name__}: {line[:WIDTH]}"})


def _limited(work: Callable[[], str]) -> bytes | None:
    """Call a function in a fork with limits on time, memory and files, and return its result. None if the fork exceeds
    a limit or fails.
    """
    import signal
    from select import select

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            _limit(writer)
            _write(writer, work().encode("utf-8", "backslashreplace"))
        finally:
            os._exit(0)
    os.close(writer)
    out, end = b"", time.monotonic() + ELAPSED
    try:
        while len(out) <= 2 * LARGEST:
            left = end - time.monotonic()
            if left <= 0 or not select([reader], [], [], left)[0]:
                return None
            part = os.read(reader, 2**16)
            if not part:
                return out or None
            out += part
        return None
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _limit(writer: int) -> None:
    """Limit the time, the memory and the open files of this process. All modules must already be imported, because the
    process cannot open a file under these limits.
    """
    import resource

    from xpc.compiler.review.differences.template_environment import environment

    environment().from_string("{{ [1]|tojson }}").render()
    used = int(_pages()) * resource.getpagesize()
    for kind, most in (
        (resource.RLIMIT_CPU, SECONDS), (resource.RLIMIT_AS, used + MEMORY), (resource.RLIMIT_NOFILE, writer + 1),
        (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, 0),
    ):  # fmt: skip
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _pages() -> str:
    try:
        with open("/proc/self/statm", encoding="ascii") as handle:
            return handle.read().split()[0]
    except OSError:
        # without /proc, this process is assumed to use 1 GiB (in pages of 4 KiB)
        return "262144"


def _write(writer: int, data: bytes) -> None:
    while data:
        data = data[os.writev(writer, [data]) :]
