"""If an edit of a spec keeps the spec's meaning, the files of the bundle stay the same. The spec.xp inside a bundle can
be checked without moving it.
"""

import os
import random
from collections import Counter
from functools import cache

import generator
import pytest
from case_support import MARKED, ROW, spec
from compile_support import REPOSITORY, SEED, SENTENCE, compiled, put, tree, xpc

from xpc.compiler.files.bundle import write
from xpc.compiler.files.inputs import read_spec
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text, compile_text
from xpc.compiler.review.meaning import plain
from xpc.grammar.record import evolve

pytestmark = pytest.mark.slow

RECIPES = ("mistral-7b-constitutional-dpo-8xh100", "mistral-7b-ultrachat-qlora-1xa100", "smollm3-3b-sft-64xh100",
           "qwen2.5-1.5b-ioi-grpo-7xh100", "qwen2.5-3b-infinity-8xv100")  # fmt: skip


@cache
def accepted(location, count):
    """Generated specs that compile, with their bundles."""
    out = []
    for seed in range(10 * count):
        text = generator.spec(f"reviewed-{seed}")
        files, checked = compile_text(text.encode(), "t.xp", Workspace(location))
        if files is not None:
            out.append((text, files, checked))
        if len(out) == count:
            break
    return out


def blocks(text):
    """The top-level statements of a spec. Each is one text, including its block."""
    out, depth = [], 0
    for line in text.split("\n"):
        if depth:
            out[-1] += "\n" + line
        else:
            out.append(line)
        depth += line.count("{") - line.count("}")
    return [one for one in out if one.strip()]


def reordered(text, draw):
    """Put the settings into another order, and add comments and empty lines. The order of data sources and of lists
    stays, because it has a meaning.
    """
    head = [one for one in blocks(text) if one.startswith(("xpc", "extends", "train"))]
    rest = [one for one in blocks(text) if one not in head]
    draw.shuffle(rest)
    for at, one in enumerate(rest):
        first, *inner, last = one.split("\n") if "\n" in one else (one, "")
        if inner and not first.startswith(("data", "sweep")) and one.count("{") == 1:
            draw.shuffle(inner)
        rest[at] = "\n\n".join([f"# note {draw.randrange(99)}", "\n".join([first, *inner, *([last] if last else [])])])
    return "\n".join([*head, *rest]) + "\n"


def differences(one, other):
    """The lines that differ between two bundles with the same files, as triples: the file's name, the line in `one`,
    and the line in `other`.
    """
    assert one.keys() == other.keys()
    out = []
    for name in one:
        before, after = (files[name].split(b"\n") for files in (one, other))
        assert len(before) == len(after), name
        out += [(name, a, b) for a, b in zip(before, after, strict=True) if a != b]
    return out


def only_the_digest(one, other):
    return all(
        name == "bundle.toml" and a.startswith((b"spec_digest = ", b"# The lines above"))
        for name, a, _ in differences(one, other)
    )


def test_comments_spaces_and_order_change_nothing_but_the_digest_of_the_source(location):
    for seed, (text, files, _) in enumerate(accepted(location, 12)):
        other = reordered(text, random.Random(seed))
        assert other != text
        assert only_the_digest(files, compiled(other, location)), other


def test_a_comment_in_a_sweep_changes_one_line_of_one_file(tmp_path):
    text = spec("sweep {\n  lr = [1e-6, 2e-6]\n}")
    found = []
    for name, output in (("a", text), ("b", text.replace("sweep {", "# both\nsweep {"))):
        root = put(tmp_path / name, {"t.xp": output})
        assert xpc("compile", "t.xp", cwd=root).returncode == 0
        found.append(tree(os.path.join(root, "t.bundle")))
    assert {(name, a.split(b" = ")[0]) for name, a, _ in differences(*found) if not a.startswith(b"# The")} == {
        ("sweep.toml", b"spec_digest")
    }


def test_a_change_of_meaning_changes_more_files():
    assert not only_the_digest(compiled(SEED), compiled(SEED.replace("1e-5", "2e-5")))
    two = spec("track wandb tensorboard")
    assert not only_the_digest(compiled(two), compiled(two.replace("wandb tensorboard", "tensorboard wandb")))


def test_a_comment_in_a_base_changes_only_its_digest(tmp_path):
    files = {"base.xp": "xpc 1\n\nstrategy zero2\n", "t.xp": 'xpc 1\n\nextends "base.xp"\n' + spec()[6:]}
    one = compiled(files["t.xp"], put(tmp_path / "a", files))
    files["base.xp"] = "xpc 1\n\n# which stage\n\nstrategy   zero2\n"
    found = differences(one, compiled(files["t.xp"], put(tmp_path / "b", files)))
    assert {(name, a.split(b" = ")[0]) for name, a, _ in found if not a.startswith(b"# The")} == {
        ("bundle.toml", b'"base.xp"')
    }


def problems(checked):
    return Counter((one.code, one.message) for one in checked.problems)


def held(spec):
    """Each value of a spec, and whether the spec states it. The shape of a source always counts as stated, because a
    bundle's spec.xp states it.
    """
    values = {path: (value.value, value.origin.kind in ("spec", "base")) for path, value in spec.values.items()}
    data = [evolve(one, stated=True) for one in spec.data]
    evaluated = [
        (one.name, one.prompt, [evolve(source, stated=True) for source in one.sources]) for one in spec.evaluated
    ]
    return values, plain(data), plain(evaluated), plain(spec.extra), plain(spec.model), plain(spec.hardware)


def test_the_spec_of_a_bundle_keeps_the_authors_lines_and_checks_clean(location):
    for text, files, checked in accepted(location, 25):
        out = os.path.join(location, "t.bundle")
        write(files, out)
        data, _, workspace = read_spec(os.path.join(out, "spec.xp"))
        again = check_text(data, "t.xp", workspace)
        assert again.spec is not None, (text, problems(again))
        assert held(again.spec) == held(checked.spec), text
        assert not problems(again) - problems(checked), text


@pytest.mark.parametrize("name", RECIPES)
def test_bundles_of_recipes_check_clean_in_place(name, tmp_path):
    path = os.path.join(REPOSITORY, "specs", f"{name}.xp")
    out = str(tmp_path / "x.bundle")
    assert xpc("compile", path, "-o", out).returncode == 0
    before, after = (xpc("check", "--format", "concise", one) for one in (path, os.path.join(out, "spec.xp")))
    assert after.returncode == 0, after.stdout
    reported = [
        Counter(line.partition(": ")[2] for line in one.stdout.decode().splitlines()) for one in (before, after)
    ]
    assert not reported[1] - reported[0]


def test_a_bundle_that_was_moved_has_its_files_with_it(tmp_path):
    text = spec(
        'model {\n  chat_template = file("templates/chat.jinja")\n}\nmethod sft {\n  assistant_only\n}\n',
        train='qwen2.5-3b on both for 1 epochs\n\ndata both {\n  "rows.jsonl"\n  "more"\n}',
    )
    files = {"t.xp": text, "templates/chat.jinja": MARKED, "rows.jsonl": ROW, "more/train.jsonl": ROW * 9}
    root = put(tmp_path / "first", files)
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    os.makedirs(tmp_path / "second")
    os.rename(tmp_path / "first" / "t.bundle", tmp_path / "second" / "t.bundle")
    done = xpc("check", "t.bundle/spec.xp", cwd=str(tmp_path / "second"))
    assert done.returncode == 0, done.stdout
    assert b"error" not in done.stdout
    assert b"not here" not in done.stdout
    os.remove(next((tmp_path / "second" / "t.bundle" / "files").iterdir()))
    assert xpc("check", "t.bundle/spec.xp", cwd=str(tmp_path / "second")).returncode == 1


def test_what_is_assumed_from_the_name_of_the_spec_is_assumed_in_its_bundle(tmp_path):
    root = put(tmp_path, {"mine.xp": SENTENCE})
    assert xpc("compile", "mine.xp", cwd=root).returncode == 0
    reported = [xpc("explain", f"{one}:save", cwd=root).stdout for one in ("mine.xp", "mine.bundle/spec.xp")]
    assert reported[0] == reported[1]
    assert b"out/mine" in reported[0]


def test_silencing_comments_are_kept(tmp_path):
    text = spec(hardware="8 x v100-32gb  # xpc: allow XP801 the wheels are ours", precision="fp32")
    text += "optimizer sgd(lr=1e-2, betas=[0.9, 0.95])  # xpc: allow XP206 moved over from adamw\n"
    root = put(tmp_path, {"t.xp": text})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    assert xpc("check", "t.xp", cwd=root).stdout == xpc("check", "t.bundle/spec.xp", cwd=root).stdout == b""
    assert "the wheels are ours" in tree(root)["t.bundle/spec.xp"].decode()


def test_a_hash_in_a_string_is_not_a_comment(tmp_path):
    text = spec('track wandb {\n  name = "a  # default"\n}').replace('"out/run"', '"out/{  # derived: x"')
    files = compiled(text)
    write(files, str(tmp_path / "t.bundle"))
    data, _, workspace = read_spec(str(tmp_path / "t.bundle" / "spec.xp"))
    found = check_text(data, "t.xp", workspace).spec
    assert (found.get("track.name"), found.get("save")) == ("a  # default", "out/{  # derived: x")
