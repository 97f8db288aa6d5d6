"""The fast reader of manifests gives the same result as a TOML parser: it reads everything that the compiler writes,
and accepts no text that is not valid TOML.
"""

from __future__ import annotations

import random
import tomllib
from pathlib import Path

import pytest
from compile_support import REPOSITORY

from xpc.compiler.files.manifest_text import tables

MANIFESTS = sorted(Path(REPOSITORY, "golden", "bundles").glob("*/bundle.toml"))
PIECES = (
    b"\r", b"\n", b'"', b"'", b"[files]\n", b"[[files]]\n", b"[[data]]\n", b"[data]\n", b"\x00", b"\x7f", b"\xff",
    b"\xef\xbb\xbf", b" ", b"#", b"=", b"x", b"x = 1\n", b"\\", b'"""\n', b"a.b = 1\n", b"0", b"[weights]\n", b"\t",
    b"[bundle.x]\n", b"format = 1\n", b'"format" = 1\n', b"\xe2\x80\xa8", b"x = 9999999999999999999\n", b"x = 007\n",
    b"x = tru\n", b'x = "\\u12"\n', b'x = "\\q"\n', b'x = "\\n"\n',
)  # fmt: skip


def toml(data: bytes) -> dict[str, dict[str, object]] | None:
    try:
        return tomllib.loads(data.decode())
    except ValueError:
        return None


def agrees(data: bytes) -> bool:
    """Whether the fast reader accepts this manifest. If the reader accepts it, the result must equal the result of a
    TOML parser.
    """
    found = tables(data)
    assert found is None or found == toml(data), data
    return found is not None


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.parent.name)
def test_a_golden_manifest_is_read(path: Path) -> None:
    assert agrees(path.read_bytes())


@pytest.mark.slow
def test_damaged_manifests() -> None:
    draw = random.Random(32)
    texts = [path.read_bytes() for path in MANIFESTS]
    read = 0
    for _ in range(1000):
        data = draw.choice(texts)
        at = draw.randrange(len(data) + 1)
        way = draw.randrange(4)
        if way == 0:
            lines = data.split(b"\n")
            lines.insert(draw.randrange(len(lines)), draw.choice(lines))
            data = b"\n".join(lines)
        else:
            data = data[:at] + draw.choice(PIECES) * (way != 3) + data[at + (way != 1) * draw.randrange(4) :]
        read += agrees(data)
    assert 30 < read < 900
