"""The size and the digest of a file. A pointer of Git LFS has those of the file that it stands for."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from xpc.compiler.files.file_digests import size_and_digest

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 123456\n" % (b"ab" * 32)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"cat", (3, sha256(b"cat").hexdigest())),
        (b"c" * 5000, (5000, sha256(b"c" * 5000).hexdigest())),
        (POINTER, (123456, "ab" * 32)),
        (b"c" * 5001, None),
    ],
    ids=["small", "large", "pointer", "too large"],
)
def test_size_and_digest_of_a_file(tmp_path: Path, data: bytes, found: tuple[int, str] | None) -> None:
    (tmp_path / "cat.jpg").write_bytes(data)
    assert size_and_digest(str(tmp_path / "cat.jpg"), 5000) == found


def test_what_is_no_file_has_no_digest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in (".", "pipe", "missing", "a\0b"):
        assert size_and_digest(os.path.join(tmp_path, name), 5000) is None
