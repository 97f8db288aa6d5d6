"""`xpc fmt` rewrites a spec in one canonical form that has the same meaning. If it cannot do so, it writes nothing."""

import glob
import os
import random
import re

import generator
import pytest
from case_support import spec
from compile_support import REPOSITORY, SEED, put, tree, xpc
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import every_fourth

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.review import fmt
from xpc.compiler.review.meaning import meaning, meaning_of, plain
from xpc.grammar.format import format_file
from xpc.grammar.parse import parse
from xpc.grammar.source import Source

MESSY = SEED.replace("  gbs = 528", "\tgbs=528").replace("save ", "\n\n\n save   ")
SPECS = [path for part in ("specs/**", "tests/**", "golden/**")
         for path in glob.glob(os.path.join(REPOSITORY, part, "*.xp"), recursive=True)]  # fmt: skip


def canonical(text, location, name="t.xp"):
    """Format a text and return the result. Check that the meaning stays the same, and that formatting the result
    changes nothing.
    """
    data = text.encode() if isinstance(text, str) else text
    out, problems = fmt.formatted(data, name, location)
    assert out is not None, problems
    if out.encode() != data:
        assert meaning_of(out.encode(), name, location) == meaning_of(data, name, location)
    assert fmt.formatted(out.encode(), name, location) == (out, ())
    return out


@pytest.mark.parametrize("path", every_fourth(SPECS), ids=lambda path: os.path.relpath(path, REPOSITORY))
def test_every_spec_of_the_repository_keeps_its_meaning(path):
    with open(path, "rb") as handle:
        text = handle.read()
    out = canonical(text, os.path.dirname(path), os.path.basename(path))
    if os.path.relpath(path, REPOSITORY).startswith("specs"):
        assert out.encode() == text, "`xpc fmt specs` formats it"


def test_what_the_members_of_a_sweep_share_is_converted_once():
    """A setting that all members of a sweep share is converted only once. When it was converted for each member, this
    took 6 of the 7 seconds for a sweep of 500 runs.
    """
    swept = f"{SEED.replace('  lr = 1e-5', '')}\nsweep {{ seed = [1, 2, 3] }}\n".encode()
    checked = check_text(swept, "t.xp", Workspace(REPOSITORY))
    one, other = (plain_spec for _, plain_spec, _ in meaning(checked)[1][:2])
    assert one == plain(checked.members[0].spec)
    shared = [part for part in one if any(part is each for each in other)]
    assert plain(checked.spec.stack) in shared


def spaced(text, draw):
    """The same tokens with different spaces and indentation."""
    lines = []
    for line in text.split("\n"):
        if '"' in line:  # quoted text may contain anything
            lines.append(line)
            continue
        line = re.sub(r" *= *" if line.startswith(" ") else r" = ", lambda _: " " * draw.randrange(3) + "=  ", line)
        line = line.replace(", ", "," + " " * draw.randrange(4))
        lines.append("\t " * draw.randrange(2) + line.strip() + " " * draw.randrange(3) if line.strip() else "")
    return "\n".join(lines)


def form(text):
    """The formatted text, without the check of its meaning."""
    file, problems = parse(Source("t.xp", text))
    assert problems == ()
    return format_file(file)


@pytest.mark.slow
def test_spacing_is_not_kept():
    for seed in range(200):
        text = generator.spec(f"spaced-{seed}")
        assert form(spaced(text, random.Random(seed))) == form(text)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_generated_specs_keep_their_meaning(location, seed):
    canonical(generator.spec(f"fmt-{seed}"), location)


@pytest.mark.slow
def test_comments_of_generated_specs_stay():
    for seed in range(100):
        lines = generator.spec(f"comments-{seed}").rstrip("\n").split("\n")
        noted = [f"{line}  # note {number}" for number, line in enumerate(lines)]
        out = form("# first\n" + "\n".join(noted) + "\n# last\n")
        assert form(out) == out
        assert [int(one) for one in re.findall("# note ([0-9]+)", out)] == list(range(len(lines)))
        assert out.startswith("# first\n")
        assert out.endswith("# last\n")


def test_a_silencing_comment_stays_with_its_line(tmp_path):
    text = spec(strategy="fsdp1  # xpc: allow XP410 compared with an older run").replace("bf16", "  bf16")
    files = put(tmp_path, {"a.xp": text})
    before = xpc("check", "a.xp", cwd=files)
    assert xpc("fmt", "a.xp", cwd=files).stdout == b"formatted a.xp\n"
    assert xpc("check", "a.xp", cwd=files).stdout == before.stdout


# -- the command ----------------------------------------------------------------------------------------------------


def test_formatted_files_are_not_written_again(tmp_path):
    root = put(tmp_path, {"a.xp": MESSY, "kept.xp": spec(), "b/c.xp": MESSY, "b/x.bundle/spec.xp": MESSY, "n.txt": "x"})
    os.chmod(os.path.join(root, "a.xp"), 0o640)
    done = xpc("fmt", "a.xp", "b", cwd=root)
    assert (done.returncode, done.stdout) == (0, b"formatted a.xp\nformatted b/c.xp\n")
    assert os.stat(os.path.join(root, "a.xp")).st_mode & 0o777 == 0o640
    after = tree(root)
    assert after["b/x.bundle/spec.xp"].decode() == MESSY
    done = xpc("fmt", ".", cwd=root)
    assert (done.returncode, after["n.txt"]) == (0, b"x")
    again = tree(root)
    assert {name for name in after if after[name] != again[name]} <= {"kept.xp"}
    assert xpc("fmt", ".", cwd=root).stdout == b""


def test_check_and_diff_write_nothing(tmp_path):
    root = put(tmp_path, {"a.xp": MESSY, "b.xp": SEED.replace("        #", "  #")})
    before = tree(root)
    done = xpc("fmt", "--check", "a.xp", "b.xp", cwd=root)
    assert (done.returncode, done.stdout) == (1, b"would format a.xp\n")
    done = xpc("fmt", "--diff", "a.xp", "b.xp", cwd=root)
    assert done.returncode == 1
    assert b"\n-\\tgbs=528\n" in done.stdout
    assert b"\n+  gbs = 528\n" in done.stdout
    assert xpc("fmt", "--check", "b.xp", cwd=root).returncode == 0
    assert tree(root) == before


def test_standard_input_goes_to_standard_output(tmp_path):
    done = xpc("fmt", "-", stdin=b"train a on b with zero2   gbs=8", cwd=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, b"train a on b with zero2 gbs=8\n")
    assert xpc("fmt", "-", "--check", stdin=done.stdout, cwd=str(tmp_path)).returncode == 0


def test_line_ends_and_a_byte_order_mark_are_normalized(tmp_path):
    root = put(tmp_path, {"a.xp": b"\xef\xbb\xbf" + spec().replace("\n", "\r\n").encode()})
    assert xpc("fmt", "--check", "a.xp", cwd=root).returncode == 1
    assert b"\n-" in xpc("fmt", "--diff", "a.xp", cwd=root).stdout
    xpc("fmt", "a.xp", cwd=root)
    assert tree(root)["a.xp"] == canonical(spec(), root).encode()


def test_hidden_character_is_reported_and_the_file_stays(tmp_path):
    text = f"{MESSY}# \u202e".encode()
    root = put(tmp_path, {"a.xp": text})
    done = xpc("fmt", "a.xp", cwd=root)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"XP003" in done.stderr
    assert tree(root)["a.xp"] == text


def test_syntax_error_is_reported_and_the_file_stays(tmp_path):
    root = put(tmp_path, {"wrong.xp": "train a on\nbatch {\n", "a.xp": MESSY})
    done = xpc("fmt", "wrong.xp", "a.xp", cwd=root)
    assert (done.returncode, done.stdout) == (1, b"formatted a.xp\n")
    assert b"wrong.xp:2" in done.stderr
    assert tree(root)["wrong.xp"] == b"train a on\nbatch {\n"


def test_a_file_with_unknown_names_is_formatted(tmp_path):
    root = put(tmp_path, {"a.xp": spec(batch="gbs=512   micro=11 ligre"), "base.xp": "xpc 1\nstrategy   zero2\n"})
    assert xpc("fmt", "a.xp", "base.xp", cwd=root).returncode == 0
    assert tree(root)["base.xp"] == b"xpc 1\n\nstrategy zero2\n"
    assert b"  gbs = 512\n" in tree(root)["a.xp"]


@pytest.mark.parametrize(
    "breaks",
    [
        lambda text: text.replace("lr = 1e-5\n", ""),
        lambda text: text.replace("1e-5", "1e-4"),
        lambda text: text.replace("reentrant=false", "reentrant=true"),
        lambda text: text + "# again\n",
        lambda text: text.replace("{", "{ {"),
    ],
)
def test_a_bug_of_the_formatter_writes_nothing(breaks, tmp_path, monkeypatch):
    root = put(tmp_path, {"a.xp": MESSY})
    right = fmt.format_file
    monkeypatch.setattr(fmt, "format_file", lambda file: breaks(right(file)))
    done = xpc("fmt", "a.xp", cwd=root)
    assert done.returncode == 2
    assert b"bug of xpc" in done.stderr
    assert tree(root) == {"a.xp": MESSY.encode()}


def test_a_file_that_cannot_be_read_or_written(tmp_path):
    root = put(tmp_path, {"a.xp": MESSY})
    done = xpc("fmt", "none.xp", "a.xp", cwd=root)
    assert (done.returncode, done.stdout) == (2, b"formatted a.xp\n")
    assert b"none.xp cannot be read" in done.stderr


def test_links_in_a_folder_are_not_formatted(tmp_path):
    """A stranger's folder may contain a link to a spec of the user, or to nothing."""
    write = tmp_path / "mine.xp"
    write.write_text("xpc 1\n\n\n\nseed   7\n")
    os.makedirs(tmp_path / "specs")
    os.symlink("../mine.xp", tmp_path / "specs" / "a.xp")
    os.symlink("../nothing.xp", tmp_path / "specs" / "b.xp")
    assert fmt.run(fmt.parse([str(tmp_path / "specs")])) == ("", 0)
    assert write.read_text() == "xpc 1\n\n\n\nseed   7\n"
    assert not os.path.exists(tmp_path / "nothing.xp")
    assert fmt.run(fmt.parse([str(tmp_path / "specs" / "a.xp")]))[1] == 0  # the user names this link
    assert write.read_text() == "xpc 1\n\nseed 7\n"
