"""`xpc verify` detects changed files and file modes in a bundle or a sweep, even if someone has updated the digests.

docs/review.md lists the changes that it does not detect.
"""

import os
import random
import re
import shutil

import pytest
from case_support import MARKED, ROW, spec
from compile_support import put, xpc

from xpc.compiler.files.bundle import sealed
from xpc.compiler.files.digest import digest
from xpc.compiler.review import verify

EDITS = 40
"""This many random edits of bytes are made in the bundle, and as many in the sweep."""
UNSEEN = (rb'^spec_digest = "', rb'^"?base\.xp"? = "')
"""Patterns for lines of bundle.toml that only `--spec` can compare: those with the digests of the spec and its bases.
"""


pytestmark = pytest.mark.slow


def verified(folder):
    try:
        return verify.run(verify.parse([str(folder)]))
    except verify.UsageError as error:
        return str(error), 2


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    location = tmp_path_factory.mktemp("bundle")
    text = spec(
        'model {\n  chat_template = file("chat.jinja")\n}\n', train='qwen2.5-3b on "rows.jsonl" for 1 epochs'
    ).replace("xpc 1\n", 'xpc 1\n\nextends "base.xp"\n')  # fmt: skip
    put(location, {"t.xp": text, "base.xp": "seed = 7\n", "chat.jinja": MARKED, "rows.jsonl": ROW * 40})
    assert xpc("compile", "t.xp", cwd=str(location)).returncode == 0
    return location / "t.bundle"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    location = tmp_path_factory.mktemp("sweep")
    put(location, {"t.xp": spec("sweep {\n  lr = [1e-6, 2e-6]\n}"), "rows.jsonl": ROW * 40})
    assert xpc("compile", "t.xp", cwd=str(location)).returncode == 0
    return location / "t.bundle"


@pytest.fixture
def copy(request, tmp_path, bundle, sweep):
    return shutil.copytree(sweep if request.param == "sweep" else bundle, tmp_path / request.param)


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def resealed(folder):
    """Write all digests in run.sha256, bundle.toml and sweep.toml anew, as the compiler would do for the changed
    files.
    """
    for manifest in [*folder.rglob("bundle.toml"), *folder.glob("sweep.toml")]:
        where = manifest.parent
        above = manifest.read_bytes().rpartition(b"# The lines above")[0]

        def renewed(line, where=where):
            path = where / line[1].decode()
            return b'"%s" = "%s"' % (line[1], digest(path.read_bytes()).encode()) if path.is_file() else line[0]

        head, mark, rest = above.partition(b"[files]\n")
        body, end, tail = rest.partition(b"\n[")
        body = re.sub(rb'"?([^"\s]+)"? = "sha256:[0-9a-f]{64}"', renewed, body)
        for member in where.glob("members/*/bundle.toml"):
            pattern = rb'(name = "%s"\n.*\nbundle = )"[^"]*"' % re.escape(member.parent.name.encode())
            new = f'"{digest(member.read_bytes())}"'.encode()
            tail = re.sub(pattern, lambda one, new=new: one[1] + new, tail)
        manifest.write_bytes(sealed(head + mark + body + end + tail))


def restored(path, kept):
    """Put a file back that a test has changed."""
    os.rmdir(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    path.with_name(f"{path.name}.kept").unlink(missing_ok=True)
    shutil.copy2(kept, path)


@pytest.mark.parametrize("copy", ["bundle", "sweep"], indirect=True)
def test_a_copy_is_content(copy):
    assert verified(copy)[1] == 0
    resealed(copy)
    assert verified(copy)[1] == 0, verified(copy)


@pytest.mark.parametrize("reseal", [False, True])
@pytest.mark.parametrize("copy", ["bundle", "sweep"], indirect=True)
def test_drawn_edits_of_a_byte_are_reported(copy, reseal):
    draw = random.Random(f"tampered-{reseal}")
    kept = copy.parent / "kept"
    shutil.copytree(copy, kept)
    names = files(copy)
    manifests = [one for one in names if one.rpartition("/")[2] in ("bundle.toml", "sweep.toml")]
    tops = [one for one in names if one.rpartition("/")[2] in ("bundle.toml", "sweep.toml", "README.md", "launch.sh")]
    for number in range(EDITS):
        path = copy / draw.choice(tops if number % 3 == 0 else names)
        before = path.read_bytes()
        at = draw.randrange(len(before))
        line = before[before.rfind(b"\n", 0, at) + 1 :].partition(b"\n")[0]
        flipped = bytes([before[at] ^ (1 << draw.randrange(7))])
        middle = draw.choice((flipped, b"", b"x" + before[at : at + 1]))
        after = before[:at] + middle + before[at + 1 :]
        os.remove(path)
        path.write_bytes(after)
        if reseal:
            resealed(copy)
        # If the edit changed only a digest, `resealed` has written the right digest again, so nothing is changed.
        changed = path.read_bytes() != before
        if changed and not any(re.match(one, line) for one in UNSEEN):
            text, status = verified(copy)
            assert status in (1, 2), (path, at, line, after[max(0, at - 20) : at + 20], text)
        for name in {path.relative_to(copy).as_posix(), *(manifests if reseal else ())}:
            restored(copy / name, kept / name)


WAYS = {
    "removed": lambda path: os.remove(path),
    "emptied": lambda path: path.write_bytes(b""),
    "appended": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "a link": lambda path: (os.rename(path, f"{path}.kept"), os.symlink(f"{path}.kept", path)),
    "executable": lambda path: os.chmod(path, path.stat().st_mode ^ 0o100),
    "writable by all": lambda path: os.chmod(path, path.stat().st_mode | 0o002),
    "a folder": lambda path: (os.remove(path), os.mkdir(path)),
    "a pipe": lambda path: (os.remove(path), os.mkfifo(path)),
    "sparse": lambda path: os.truncate(path, 2**40),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("copy", ["bundle", "sweep"], indirect=True)
def test_each_way_to_change_a_file_is_reported(copy, way):
    names = files(copy)
    chosen = [one for one in names if "/trainer/" not in f"/{one}"] + [one for one in names if "core/run.py" in one]
    kept = copy.parent / "kept"
    shutil.copytree(copy, kept)
    for name in chosen[:: 1 if way == "removed" else 3]:
        os.chmod(copy / name, (copy / name).stat().st_mode)
        WAYS[way](copy / name)
        text, status = verified(copy)
        assert status in (1, 2), (way, name, text)
        restored(copy / name, kept / name)


ADDED = ("trainer/sitecustomize.py", "trainer/core/json.py", "x.pth", ".hidden", "data/more.jsonl", "files/x.jinja",
         "requirements-more.txt", "launch.sh.orig", "empty/", ".git/config", "trainer/core/run.pyc")  # fmt: skip


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("copy", ["bundle", "sweep"], indirect=True)
def test_added_files_are_reported(copy, name):
    if name.endswith("/"):
        os.mkdir(copy / name)
    else:
        put(copy, {name: "x"})
    assert verified(copy)[1] == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[sweep]", "[sweep]\n"), ('settings = { "optimizer.lr" = "1e-06"', 'settings = { "optimizer.lr" = "3e-06"'),
        ("index = 1", "index = 2"), ("members = 2", "members = 1"), ('name = "t"', 'name = "u"'), ("# The", "#  The"),
    ],
    ids=range(6),
)  # fmt: skip
def test_edits_of_the_list_of_members(sweep, tmp_path, old, new):
    copy = shutil.copytree(sweep, tmp_path / "s")
    text = (copy / "sweep.toml").read_text()
    assert old in text
    above = text.replace(old, new, 1).rpartition("# The lines above")[0] if old != "# The" else None
    (copy / "sweep.toml").write_bytes(sealed(above.encode()) if above else text.replace(old, new, 1).encode())
    assert verified(copy)[1] == 1


def test_two_members_that_change_places(sweep, tmp_path):
    copy = shutil.copytree(sweep, tmp_path / "s")
    one, other = sorted(copy.glob("members/*"))[:2]
    os.rename(one, copy / "x")
    os.rename(other, one)
    os.rename(copy / "x", other)
    assert verified(copy)[1] == 1
    resealed(copy)
    assert verified(copy)[1] == 1
