"""`xpc upgrade` lists what changes for a spec on another stack. It pins the current values in the spec where a spec can
state them.
"""

import glob
import json
import os
import re

import pytest
from case_support import spec
from compile_support import REPOSITORY, SEED, compiled, put, tree, xpc

from xpc.compiler import stacks
from xpc.compiler.files.inputs import read_spec
from xpc.compiler.pipeline import check_text, compile_text

pytestmark = pytest.mark.slow

OLDER = [name for name in stacks.names() if name != stacks.DEFAULT]
OLD = SEED + "target trl-0.18\n"
RECIPES = [
    path
    for path in sorted(glob.glob(os.path.join(REPOSITORY, "specs", "*.xp")))
    if any(f"target {name}\n" in open(path, encoding="utf-8").read() for name in OLDER)  # noqa: SIM115
    and "quickstart" not in path
]


def upgraded(text, tmp_path, *options, target=stacks.DEFAULT):
    root = put(tmp_path, {"t.xp": text})
    done = xpc("upgrade", "t.xp", "--target", target, *options, cwd=root)
    assert b"broke the compiler" not in done.stderr, done.stderr
    return done.returncode, done.stdout.decode(), tree(root)["t.xp"].decode()


def arguments(text, root="."):
    return json.loads(compiled(text, root)["trainer_args.json"])["arguments"]


def section(out, title):
    return out.partition(f"\n\n{title}\n")[2].partition("\n\n")[0].split("\n")


def test_the_example_moves_with_its_values(tmp_path):
    status, out, text = upgraded(OLD, tmp_path, "--write")
    assert status == 0
    assert out.startswith("trl-0.18 -> trl-1.16: ")
    assert section(out, "Pinned because the default changed") == ["  batch.mean = local_tokens  (would be true)"]
    assert "  mean = local_tokens\n}\n" in text
    assert "target trl-1.16\n" in text
    assert "# 528 = 11 x 6 accumulation x 8 GPUs\n" in text
    before, after = arguments(OLD), arguments(text)
    assert before["average_tokens_across_devices"] is after["average_tokens_across_devices"] is False
    for name in ("learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps", "warmup_steps", "seed"):
        assert before[name] == after[name]
    assert any("gradient_checkpointing -> activation_checkpointing" in line for line in section(out, "Renamed"))
    assert any("use_liger_kernel" in line for line in section(out, "Removed on trl-1.16"))


def test_without_write_nothing_is_written(tmp_path):
    assert upgraded(OLD, tmp_path)[2] == OLD
    status, out, text = upgraded(OLD, tmp_path, target="trl-0.18")
    assert (status, out, text) == (0, "t.xp is already for trl-0.18\n", OLD)


def test_a_missing_target_is_added(tmp_path):
    _, _, text = upgraded(SEED, tmp_path, "--write", target="trl-0.18")
    assert "target trl-0.18\n" in text
    assert arguments(text)["average_tokens_across_devices"] is True


def test_a_target_in_the_header_is_replaced(tmp_path):
    _, _, text = upgraded(
        "train qwen2.5-3b on infinity-instruct with zero2 bf16 target trl-0.18\n", tmp_path, "--write"
    )
    assert "with zero2 bf16 target trl-1.16\n" in text


def test_an_unsupported_setting_is_an_error_and_nothing_is_written(tmp_path):
    text = spec("batch {\n  packing(strategy=bfd, isolate=flash)\n}\nmodel(attn=flash2)")
    status, out, after = upgraded(text, tmp_path, "--write", target="trl-0.18")
    assert status == 1
    assert "error" in out or "XP" in out
    assert "does not compile for trl-0.18: nothing was written" in out
    assert after == text


def test_a_pin_that_changes_more_is_not_written(tmp_path):
    """Under ZeRO, the optimizer `adamw` is DeepSpeed's own on every stack. A name that pins the default of the old
    stack would select torch's optimizer instead, so it is not written.
    """
    _, _, text = upgraded(OLD, tmp_path, "--write")
    assert "optimizer adamw {" in text
    free = spec("target trl-0.18", strategy="ddp", batch="gbs=16 micro=2")
    _, out, text = upgraded(free, tmp_path, "--write")
    assert arguments(free)["optim"] == arguments(text)["optim"] == "adamw_torch", out


@pytest.mark.parametrize("path", RECIPES, ids=os.path.basename)
def test_recipes_move_to_the_default_stack_and_differ_only_as_reported(path, tmp_path):
    # Relative paths of bases and templates start at the spec's folder, so the copy is written into the folder of the
    # recipe.
    copy = os.path.join(os.path.dirname(path), f".upgraded-{os.getpid()}.xp")
    data, name, workspace = read_spec(path)
    assert check_text(data, name, workspace).spec is not None
    try:
        with open(copy, "wb") as handle:
            handle.write(data)
        done = xpc("upgrade", copy, "--write")
        with open(copy, "rb") as handle:
            after = handle.read()
    finally:
        os.remove(copy)
    assert done.returncode == 0, done.stdout
    out = done.stdout.decode()
    sides = []
    for text in (data, after):
        files, checked = compile_text(text, name, workspace)
        assert files is not None
        prefix = (
            ""
            if "trainer_args.json" in files
            else next(one for one in files if one.endswith("trainer_args.json"))[:-17]
        )
        sides.append(json.loads(files[f"{prefix}trainer_args.json"])["arguments"])
    assert checked.spec.stack.name == stacks.DEFAULT
    for key in {*sides[0], *sides[1]}:
        one, other = (side.get(key, "absent") for side in sides)
        alike = one == other or (one in (None, {}) and other in (None, {})) or other == [one] or one == [other]
        assert alike or f"arguments.{key}" in out or f"  {key}" in out or f"-> {key}" in out, (key, one, other)


def test_most_recipes_were_native_to_an_older_stack():
    assert len(RECIPES) >= 15


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("batch { gbs = 528, micro = 11, }", "batch {\n  gbs = 528\n  micro = 11\n  mean = local_tokens\n}\n"),
        ("batch(gbs=528, micro=11)", "batch(gbs=528, micro=11, mean=local_tokens)\n"),
    ],
)
def test_a_pinned_value_goes_into_the_existing_clause(tmp_path, before, after):
    text = upgraded(re.sub(r"batch \{[^}]*\}", before, OLD), tmp_path, "--write")[2]
    assert (text.count("batch"), after in text) == (1, True), text


def test_a_spec_that_does_not_fit_is_upgraded_and_explained(tmp_path):
    large = spec(hardware="1 x a100-40gb", strategy="ddp", batch="gbs=128 micro=64 seq=4096") + "target trl-0.18\n"
    status, out, _ = upgraded(large, tmp_path)
    assert status == 0, out
    assert "trl-0.18 -> " in out
    done = xpc("explain", "t.xp:accum", cwd=tmp_path)
    assert b"batch.accum = 2" in done.stdout
