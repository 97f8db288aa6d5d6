"""`xpc verify` accepts an unchanged bundle of every form of spec: without an edition, with silenced warnings, with
bases, with sweeps, and with each kind of data.
"""

import os
import shutil

import pytest
from case_support import ROW
from compile_support import REPOSITORY, put
from tiers import every_fourth

from xpc.compiler.files.bundle import write
from xpc.compiler.files.inputs import read_spec
from xpc.compiler.pipeline import compile_text
from xpc.compiler.review import verify
from xpc.grammar.record import evolve

HEAD = 'train qwen2.5-3b on "rows.jsonl" for 1 epochs\nhardware 8 x h100-80gb\nsave "out/x"\n'
BATCH = "batch gbs=16 micro=1\n"
HUB = HEAD.replace('save "out/x"', 'save "out/x" { hub }')
SWEEP = "sweep { lr = [1e-5, 2e-5], seed = [1, 2] }\n"
FORMS = {
    "no edition": HEAD + BATCH,
    "no edition, silenced": "# xpc: allow XP125 old\n" + HEAD + BATCH,
    "a sentence and a line": "train qwen2.5-3b on infinity-instruct with zero2 gbs=528 bf16 liger\nseed = 3\n",
    "a silence": "xpc 1\n" + HEAD + "# xpc: allow XP208 few rows\n" + BATCH,
    "an unused silence": "xpc 1\n# xpc: allow XP410 no reason\n" + HEAD + BATCH,
    "a malformed silence": "xpc 1\n# xpc: allow\n" + HEAD + BATCH,
    "a silence of a block": "xpc 1\n" + HEAD + "# xpc: allow XP208 few rows\nbatch {\n gbs=16\n micro=1\n}\n",
    "a silence in a base": 'extends "silent.xp"\nseed = 3\n',
    "a sweep": "xpc 1\n" + HEAD + BATCH + SWEEP,
    "a sweep without an edition": HEAD + BATCH + SWEEP,
    "a sweep that pushes": "xpc 1\n" + HUB + BATCH + SWEEP,
    "a sweep that pushes by a base": 'extends "pushed.xp"\n' + SWEEP,
    "a sweep over a base": 'xpc 1\nextends "base.xp"\n' + SWEEP,
    "a sweep of models": "xpc 1\n" + HEAD + BATCH + "sweep { model = [qwen2.5-0.5b, qwen2.5-1.5b] }\n",
    "a zip": HEAD + "micro = 1\nsweep {\n  zip {\n    gbs = [16, 32]\n    seed = [1, 2]\n  }\n}\n",
    "one member": "xpc 1\n" + HEAD + BATCH + "sweep { lr = [1e-5] }\n",
    "silenced in a sweep": "xpc 1\n" + HEAD + "# xpc: allow XP208 few rows\n" + BATCH + SWEEP,
    "another engine's setting": 'xpc 1\nextends "slurm.xp"\n' + HEAD + BATCH + "launch local\n",
    "a hidden folder": "xpc 1\n" + HEAD.replace("rows.jsonl", "../.hidden/rows.jsonl") + BATCH,
    "a folder of rows": "xpc 1\n" + HEAD.replace("rows.jsonl", "folder") + BATCH,
    "a text": "xpc 1\n" + HEAD.replace("rows.jsonl", "t.txt") + BATCH,
}
FILES = {
    "s/rows.jsonl": ROW * 40, ".hidden/rows.jsonl": ROW * 40, "s/folder/a.jsonl": ROW * 3, "s/folder/b.jsonl": ROW * 4,
    "s/t.txt": "hello\nworld\n" * 40, "s/slurm.xp": "xpc 1\nlaunch slurm {\n  requeue\n  partition = a\n}\n",
    "s/base.xp": HEAD + BATCH, "s/silent.xp": HEAD + "# xpc: allow XP208 few rows\n" + BATCH,
    "s/pushed.xp": HUB + BATCH,
}  # fmt: skip


def compiled_to(path, out):
    """Compile a spec and write its bundle to a folder."""
    data, name, workspace = read_spec(path)
    files, checked = compile_text(data, name, evolve(workspace, allow_oom=True))
    assert files is not None, checked.problems
    write(files, out)


@pytest.mark.parametrize("form", every_fourth(tuple(FORMS)))
def test_a_bundle_of_each_form_of_spec_is_verified(form, tmp_path):
    root = put(tmp_path, {**FILES, "s/t.xp": FORMS[form]})
    out = os.path.join(root, "s", "t.bundle")
    compiled_to(os.path.join(root, "s", "t.xp"), out)
    text, status = verify.run(verify.parse([out]))
    assert (status, "is what its spec compiles to" in text) == (0, True), text


@pytest.mark.parametrize("name", every_fourth(sorted(os.listdir(os.path.join(REPOSITORY, "golden", "specs")))))
def test_bundles_of_golden_specs_are_verified(name, tmp_path):
    if not name.endswith(".xp"):
        return
    location = shutil.copytree(os.path.join(REPOSITORY, "golden", "specs"), tmp_path / "specs")
    compiled_to(os.path.join(location, name), os.path.join(location, "t.bundle"))
    text, status = verify.run(verify.parse([os.path.join(location, "t.bundle")]))
    assert (status, "is what its spec compiles to" in text) == (0, True), text
