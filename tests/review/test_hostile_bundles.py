"""Bundles may come from strangers. Damage and forgery are reported in one sentence, and no file outside of the bundle
is read.
"""

import os
import random
import shutil

import pytest
from case_support import MARKED, ROW, spec
from compile_support import put, tree, xpc

from xpc.compiler.files.bundle import sealed

pytestmark = pytest.mark.slow

DAMAGES = 15
FORGED = {
    "a file above the bundle": ('"files/chat-', '"files/../../secret/chat-'),
    "an absolute file": ('"files/chat-', '"/etc/chat-'),
    "a number for a digest": ('"launch.sh" = "sha256:', '"launch.sh" = 7 # "'),
    "no spec": ('spec = "t.xp"', 'spek = "t.xp"'),
    "a list of files": ("[files]", "[filez]"),
}


@pytest.fixture
def bundle(tmp_path):
    text = spec('model {\n  chat_template = file("chat.jinja")\n}\n', train='qwen2.5-3b on "rows.jsonl" for 1 epochs')
    root = put(tmp_path, {"t.xp": text, "chat.jinja": MARKED, "rows.jsonl": ROW * 40})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    return os.path.join(root, "t.bundle")


def commands_on(bundle):
    """Run every command that reads a bundle. Each must succeed, or fail with a message of one sentence."""
    lines = (["check", "t.bundle/spec.xp"], ["diff", "t.bundle", "t.xp"], ["diff", "t.xp", "t.bundle"],
             ["verify", "t.bundle"], ["explain", "t.bundle/spec.xp:lr"])  # fmt: skip
    out = []
    for line in lines:
        done = xpc(*line, cwd=os.path.dirname(bundle))
        printed = done.stdout + done.stderr
        assert b"broke the compiler" not in printed, (line, printed[-500:])
        assert b"Traceback" not in printed, (line, printed[-500:])
        out.append((line[0], done.returncode, printed))
    return out


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_manifest_is_refused(what, bundle):
    secret = put(os.path.join(os.path.dirname(os.path.dirname(bundle)), "secret"), {"chat-1.jinja": "the secret"})
    path = os.path.join(bundle, "bundle.toml")
    with open(path, encoding="utf-8") as handle:
        text = handle.read()
    assert FORGED[what][0] in text
    forged = text[: text.rstrip("\n").rfind("\n") + 1].replace(*FORGED[what])
    with open(path, "wb") as handle:
        handle.write(sealed(forged.encode()))
    found = commands_on(bundle)
    assert not [one for one in found if b"the secret" in one[2]]
    assert [status for name, status, _ in found if name in ("diff", "verify")] == [2, 2, 2]
    assert tree(secret)


def test_damaged_bundle_is_one_sentence(bundle):
    draw = random.Random(7)
    kept = bundle + ".kept"
    shutil.copytree(bundle, kept)
    names = ("bundle.toml", "spec.xp", "trainer_args.json", "accelerate.yaml", "deepspeed.json")
    for _ in range(DAMAGES):
        shutil.rmtree(bundle)
        shutil.copytree(kept, bundle)
        path = os.path.join(bundle, draw.choice(names))
        with open(path, "rb") as handle:
            data = bytearray(handle.read())
        way = draw.randrange(4)
        at = draw.randrange(len(data))
        if way == 0:
            data[at] = draw.randrange(256)
        elif way == 1:
            del data[at : at + draw.randrange(1, 60)]
        elif way == 2:
            data[at:at] = bytes(draw.randrange(256) for _ in range(8))
        else:
            data = data[:at]
        with open(path, "wb") as handle:
            handle.write(data)
        commands_on(bundle)


def test_a_sweep_that_names_no_member(tmp_path):
    root = put(tmp_path, {"t.xp": spec("sweep {\n  lr = [1e-6, 2e-6]\n}")})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    for text in ("../../x\n", "", "none\n"):
        put(tmp_path, {"t.bundle/members.txt": text})
        done = xpc("diff", "t.bundle", "t.xp", cwd=root)
        assert (done.returncode, b"broke" in done.stderr) == (2, False), done.stderr
