"""`xpc diff` compares lists of packages as pip reads them."""

import shutil
from pathlib import Path

import pytest
from case_support import spec
from compile_support import put, xpc

from xpc.compiler.review import diff
from xpc.compiler.review.compare import CODE
from xpc.compiler.review.differences.packages import package_changes
from xpc.compiler.review.installed import pins_of

PIP = "requirements.txt"


def test_a_pin_may_have_extras_a_marker_and_a_comment():
    lines = b'trl[vllm]==1.16.0; python_version >= "3.10"\ntorch == 2.13.0  # for CUDA 12\nnumpy>=2\n'
    assert pins_of(lines) == {"trl": "1.16.0", "torch": "2.13.0"}


def test_comments_that_pip_reads_in_another_encoding_are_lines():
    """If the first comment of a requirements file names an encoding, pip decodes the file with this encoding. In UTF-7,
    `+AAo-` is a line break, so pip would read one more line.
    """
    plain = b"# a comment\ntorch==2.13.0\n"
    coded = b"# -*- coding: utf-7 -*-\n# a comment +AAo-evil==1\ntorch==2.13.0\n"
    assert package_changes({"requirements.txt": plain}, {"requirements.txt": coded})
    assert not package_changes({"requirements.txt": plain}, {"requirements.txt": b"# another\n" + plain})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"--index-url https://a\n--index-url https://b\n", b"--index-url https://b\n--index-url https://a\n"),
        (b"torch \\\n==2.13.0\ntrl \\\n==1.16.0\n", b"torch \\\n==1.16.0\ntrl \\\n==2.13.0\n"),
        (b"-r a.txt\n", b"-r a.txt\n-r a.txt\n"),
        # U+230A has the bytes of a line end and `#`, and U+2028 is a line end
        ("\ufeff#\u230a".encode("utf-16-le"), "\ufeff#\u230a\u2028evil==1".encode("utf-16-le")),
    ],
    ids=["the last index applies", "joined lines", "repeated", "UTF-16"],
)
def test_lines_with_another_meaning_for_pip_are_changes(before: bytes, after: bytes) -> None:
    assert package_changes({PIP: before}, {PIP: after})


def test_an_added_or_removed_list_without_packages_is_other_code(tmp_path: Path) -> None:
    """A script of the bundle may install packages from every list that it finds. So an added list is other code even if
    it is still empty.
    """
    root = put(tmp_path, {"t.xp": spec(train="qwen2.5-3b on alpaca for 2 epochs")})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    before, after = tmp_path / "t.bundle", tmp_path / "copy"
    shutil.copytree(before, after)
    put(after, {"requirements-x.txt": "# nothing\n"})
    for one, other, kind in ((before, after, "added"), (after, before, "removed")):
        text, status = diff.run(diff.parse([str(one), str(other), "--exit-code"]))
        assert status == 4
        assert text.startswith(f"{CODE}: requirements-x.txt {kind}\n")
