"""`xpc diff`: every difference in the meaning of two specs, and nothing else."""

import json
import os
import re
import subprocess

import pytest
from case_support import ROW, spec
from compile_support import REPOSITORY, SEED, put, read, tree, xpc


def difference(done):
    assert b"Traceback" not in done.stderr, done.stderr
    assert b"broke the compiler" not in done.stderr, done.stderr
    return done.stdout.decode()


def diff(tmp_path, before, after, *options):
    root = put(tmp_path, {"a.xp": before, "b.xp": after})
    return xpc("diff", "a.xp", "b.xp", *options, cwd=root)


def table(tmp_path, before, after):
    """The JSON of a diff, and its only group."""
    found = json.loads(difference(diff(tmp_path, before, after, "--format", "json")))
    (group,) = found["groups"]
    return found, group


def named(changes):
    return {one["name"]: (one["before"], one["after"]) for one in changes}


# -- the first line and derived values ------------------------------------------------------------------------------


def test_half_the_batch_is_twice_the_steps_and_the_same_tokens(tmp_path):
    out = difference(diff(tmp_path, SEED, SEED.replace("528", "264")))
    assert out.startswith("gbs 528 -> 264: 7,500 steps instead of 3,750, same tokens\n")
    found, group = table(tmp_path, SEED, SEED.replace("528", "264"))
    assert named(group["settings"]) == {"batch.gbs": ("528", "264")}
    follows = named(group["follows"])
    assert follows["batch.accum"] == ("6", "3")
    assert follows["steps"] == ("3,750", "7,500")
    assert follows["warm-up"] == ("40 steps, 1.1% of the run", "40 steps, 0.53% of the run")
    assert {"264 / (11 x 8)", "derived: 264 / (11 x 8)"} & {one["why"] for one in group["follows"]}
    assert named(group["arguments"])["trainer_args.json arguments.gradient_accumulation_steps"] == ("6", "3")
    assert {one["name"] for one in group["files"]} == {"deepspeed.json", "launch.sh", "trainer_args.json"}
    assert not found["same"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("3 epochs", "6 epochs"), "train.epochs 3 -> 6: 7,500 steps instead of 3,750, twice the tokens"),
        (("1e-5", "2e-5"), "lr 1e-05 -> 2e-05"),
        (("infinity-instruct:0625", "someone/else"), "same"),
    ],
)
def test_the_first_line(change, line, tmp_path):
    out = difference(diff(tmp_path, SEED, SEED.replace(*change)))
    assert out.split("\n")[0] == line or (line == "same" and "tokens" not in out.split("\n")[0])


def test_steps_of_unknown_rows_are_a_ratio(tmp_path):
    text = spec(train="qwen2.5-3b on someone/data for 3 epochs")
    out = difference(diff(tmp_path, text, text.replace("gbs=128", "gbs=256")))
    assert out.startswith("gbs 128 -> 256: half the steps, same tokens\n")
    steps = spec(train="qwen2.5-3b on someone/data for 100 steps")
    assert difference(diff(tmp_path, steps, steps.replace("gbs=128", "gbs=256"))).startswith(
        "gbs 128 -> 256: twice the tokens"
    )


def test_findings_and_programs_that_come_and_go(tmp_path):
    old, new = spec(), spec(hardware="8 x v100-32gb", precision="fp32") + 'model(trust_remote_code, revision="main")\n'
    _, group = table(tmp_path, old, new)
    assert any("XP801" in one for one in group["new"])
    assert any(one.startswith("Python code of the model's repository") for one in group["runs_now"])
    _, back = table(tmp_path, new, old)
    assert (back["gone"], back["ran_before"]) == (group["new"], group["runs_now"])
    assert not back["new"]


def test_data_whose_bytes_changed(tmp_path):
    text = spec(train='qwen2.5-3b on "rows.jsonl" for 1 epochs')
    before, after = (
        put(tmp_path / "a", {"t.xp": text, "rows.jsonl": ROW * 9}),
        put(tmp_path / "b", {"t.xp": text, "rows.jsonl": ROW * 5}),
    )
    done = xpc("diff", os.path.join(before, "t.xp"), os.path.join(after, "t.xp"), "--exit-code")
    assert done.returncode == 1
    assert "rows.jsonl" in difference(done).split("\n")[0]


MIXED = """\
xpc 1

train qwen2.5-3b on mixed for 1 epochs with 8 x h100-80gb zero2 bf16 gbs=128 micro=16 seq=1024 save("out/run")

data mixed {
  me/a
  me/b { take = 50% }
  me/c
}
"""


@pytest.mark.parametrize(
    ("old", "new", "settings", "follows"),
    [
        ("take = 50%", "take = 25%", {"data me/b[train]": ("take 50%", "take 25%")}, {}),
        ("  me/c\n", "", {"data": ("me/c[train], messages", "none")}, {}),
        ("me/c", "me/d", {"data": ("me/c[train], messages", "me/d[train], messages")}, {}),
        ("  me/a\n  me/b { take = 50% }\n", "  me/b { take = 50% }\n  me/a\n",
         {"data": ("me/a[train], me/b[train], me/c[train]", "me/b[train], me/a[train], me/c[train]")}, {}),
        ("  me/c\n", "  me/c\n  format = text\n", {"data.format": ("unset", "text")},
         {f"data me/{each}[train]": ("messages", "text") for each in "abc"}),
    ],
)  # fmt: skip
def test_changed_sources_are_listed_one_by_one(old, new, settings, follows, tmp_path):
    _, group = table(tmp_path, MIXED, MIXED.replace(old, new))
    assert (named(group["settings"]), named(group["follows"])) == (settings, follows)
    keys = [one["name"] for one in group["arguments"] if " data.sources" in one["name"]]
    assert keys
    assert all(len(one["before"]) < 40 for one in group["arguments"] if one["name"] in keys)


def test_the_first_line_counts_sources(tmp_path):
    out = difference(diff(tmp_path, MIXED, MIXED.replace("  me/c\n", "").replace("me/a", "me/d")))
    assert out.startswith("data (2 sources change)")


# -- equal runs -----------------------------------------------------------------------------------------------------


SAME = (
    "train qwen2.5-3b on infinity-instruct for 3 epochs with 8 x h100-80gb zero2 bf16 gbs=128 micro=16 seq=1024 "
    'save("out/run")\n',
    spec("seed 42\noptimizer adamw {\n  lr = 2e-5\n  betas = [0.9, 0.999]\n}\ntarget trl-1.16\n"),
    spec(train="Qwen/Qwen2.5-3B on infinity-instruct[train] for 3 epochs", batch="micro=16 gbs=128"),
)


def test_defaults_spellings_and_forms_make_no_difference(tmp_path):
    for other in SAME:
        done = diff(tmp_path, spec(), other, "--exit-code")
        assert (done.returncode, difference(done).split("\n")[0]) == (0, "the same run"), other


def test_an_equivalent_base_makes_no_difference(tmp_path):
    child = spec().replace("xpc 1\n", 'xpc 1\n\nextends "base.xp"\n').replace("strategy zero2\n", "")
    root = put(tmp_path, {"a.xp": spec(), "base.xp": "xpc 1\n\nstrategy zero2\nprecision bf16\n", "b.xp": child})
    done = xpc("diff", "a.xp", "b.xp", "--exit-code", cwd=root)
    assert (done.returncode, difference(done)) == (0, "the same run\n")


def test_a_spec_and_its_bundle_are_the_same_run(tmp_path):
    root = put(tmp_path, {"t.xp": SEED})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    assert difference(xpc("diff", "t.xp", "t.bundle", "--exit-code", cwd=root)) == "the same run\n"
    put(tmp_path, {"t.xp": SEED.replace("528", "264")})
    assert difference(xpc("diff", "t.bundle", "t.xp", cwd=root)).startswith("gbs 528 -> 264: ")
    name = os.path.join(root, "t.bundle", "trainer_args.json")
    with open(name, encoding="utf-8") as handle:
        text = handle.read()
    put(
        tmp_path,
        {"t.bundle/trainer_args.json": text.replace('"max_grad_norm": 1.0', '"max_grad_norm": 2.0'), "t.xp": SEED},
    )
    found = difference(xpc("diff", "t.xp", "t.bundle", cwd=root))
    assert "max_grad_norm  1.0 -> 2.0" in found


# -- stacks ---------------------------------------------------------------------------------------------------------


def test_between_stacks_arguments_are_renamed_and_keep_their_values(tmp_path):
    found, group = table(tmp_path, SEED + "target trl-0.18\n", SEED + "target trl-1.16\n")
    assert named(group["settings"]) == {"target": ("trl-0.18", "trl-1.16")}
    assert ("gradient_checkpointing", "activation_checkpointing") in {
        (one["before"], one["after"]) for one in group["renamed"]
    }
    moved = named(group["arguments"])
    for name in ("learning_rate", "gradient_accumulation_steps", "seed", "adam_beta2", "max_grad_norm"):
        assert f"trainer_args.json arguments.{name}" not in moved
    assert moved["trainer_args.json arguments.optim"] == ("adamw_torch", "adamw_torch_fused")
    assert found["headline"].startswith("target trl-0.18 -> trl-1.16: ")
    out = difference(diff(tmp_path, SEED + "target trl-0.18\n", SEED + "target trl-1.16\n"))
    assert "\nOnly on trl-0.18\n" in out
    assert "\nOnly on trl-1.16\n" in out


def test_the_page_shows_what_the_tool_prints(tmp_path):
    shown = read("docs", "review.md").partition("$ xpc diff")[2].partition("\n")[2].partition("```")[0]
    assert shown.count("\n") > 8
    assert difference(diff(tmp_path, SEED, SEED.replace("528", "264"))).startswith(shown)


# -- commits --------------------------------------------------------------------------------------------------------


def git(root, *words):
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, env={**os.environ, **identity})


@pytest.fixture
def repository(tmp_path):
    text = spec('model(chat_template=file("../templates/chat.jinja"))', train='qwen2.5-3b on "rows.jsonl" for 1 epochs')
    root = put(tmp_path, {
        "specs/t.xp": text.replace("strategy zero2\n", "").replace("xpc 1\n", 'xpc 1\n\nextends "../base.xp"\n'),
        "base.xp": "xpc 1\n\nstrategy zero2\n", "templates/chat.jinja": "{{ messages }}",
        "specs/.gitignore": "rows.jsonl\n",
        "specs/rows.jsonl": ROW * 3,
    })  # fmt: skip
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return root


def test_a_revision_uses_bases_and_templates_of_its_commit_and_untracked_data(repository):
    done = xpc("diff", "HEAD:specs/t.xp", "specs/t.xp", "--exit-code", cwd=repository)
    assert (done.returncode, difference(done)) == (0, "the same run\n")
    put(repository, {"base.xp": "xpc 1\n\nstrategy zero3\n", "templates/chat.jinja": "{{ messages }}!"})
    done = xpc("diff", "HEAD:t.xp", "t.xp", "--exit-code", cwd=os.path.join(repository, "specs"))
    assert done.returncode == 1
    out = difference(done)
    assert "strategy             zero2 -> zero3" in out
    assert "model.chat_template" in out
    assert set(tree(repository)) >= {"base.xp"}
    git(repository, "commit", "-qam", "two")
    out = difference(xpc("diff", "HEAD~1:specs/t.xp", "HEAD:specs/t.xp", cwd=repository))
    assert "zero2 -> zero3" in out.split("\n")[0]


def test_members_of_a_sweep_use_the_files_of_the_commit(repository):
    with open(os.path.join(repository, "specs", "t.xp"), encoding="utf-8") as handle:
        put(repository, {"specs/s.xp": handle.read() + "sweep { seed = [1, 2] }\n"})
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "a sweep")
    done = xpc("diff", "HEAD:specs/s.xp", "specs/s.xp", "--exit-code", cwd=repository)
    assert (done.returncode, difference(done)) == (0, "the same 2 runs\n")
    put(repository, {"templates/chat.jinja": "{{ messages }}!"})
    assert "model.chat_template" in difference(xpc("diff", "HEAD:specs/s.xp", "specs/s.xp", cwd=repository))


@pytest.mark.parametrize(
    ("operand", "message"),
    [
        ("nobranch:specs/t.xp", "`nobranch` is not a revision"),
        ("HEAD:specs/none.xp", "is not in HEAD"),
        ("--upload-pack=x:specs/t.xp", "revision"),
        ("none.xp", "cannot be read"),
        (".", "not a bundle"),
    ],
)
def test_invalid_operands_are_refused(operand, message, repository):
    done = xpc("diff", "--", operand, "specs/t.xp", cwd=repository)
    assert done.returncode == 2
    assert message in done.stderr.decode()


def test_an_operand_that_does_not_compile(tmp_path):
    done = diff(tmp_path, SEED, SEED.replace("gbs = 528", "gbs = 512"))
    assert done.returncode == 1
    assert "b.xp does not compile" in difference(done)
    assert b"XP201" in done.stderr
    assert b"b.xp" in done.stderr


# -- sweeps ---------------------------------------------------------------------------------------------------------


SWEEP = spec("sweep {\n  lr = [1e-6, 2e-6]\n  seed = [1, 2]\n}")


def test_members_of_two_sweeps_are_compared_by_name(tmp_path):
    after = SWEEP.replace("[1e-6, 2e-6]", "[2e-6, 3e-6]").replace("gbs=128", "gbs=256")
    found, group = table(tmp_path, SWEEP, after)
    assert found["members"]["new"] == ["lr=3e-06,seed=1", "lr=3e-06,seed=2"]
    assert found["members"]["gone"] == ["lr=1e-06,seed=1", "lr=1e-06,seed=2"]
    assert group["members"] == ["lr=2e-06,seed=1", "lr=2e-06,seed=2"]
    assert named(group["settings"]) == {"batch.gbs": ("128", "256")}
    assert "in 2 of 4 runs; 2 new; 2 removed" in found["headline"]
    assert difference(diff(tmp_path, SWEEP, SWEEP.replace("lr =", "lr  ="), "--exit-code")) == "the same 4 runs\n"


def test_run_against_a_sweep(tmp_path):
    found, group = table(tmp_path, spec(), SWEEP.replace("gbs=128", "gbs=256"))
    assert {one["name"]: one["after"] for one in found["swept"]} == {"optimizer.lr": "1e-06, 2e-06", "seed": "1, 2"}
    assert named(group["settings"]) == {"batch.gbs": ("128", "256"), "save": ('"out/run"', '"out/run/MEMBER"')}
    assert found["headline"] == "1 run -> 4 runs: optimizer.lr, seed swept"


def test_the_folder_of_a_sweep(tmp_path):
    root = put(tmp_path, {"t.xp": SWEEP})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    done = xpc("diff", "t.xp", "t.bundle", "--exit-code", cwd=root)
    assert (done.returncode, difference(done)) == (0, "the same 4 runs\n")
    put(tmp_path, {"t.xp": SWEEP.replace("gbs=128", "gbs=256")})
    assert difference(xpc("diff", "t.bundle", "t.xp", cwd=root)).startswith("gbs 128 -> 256: ")


# -- forms ----------------------------------------------------------------------------------------------------------


def test_markdown_escapes_markup_of_the_spec(tmp_path):
    after = SEED.replace("my-second-sft-exp", "<img src=x> | **bold** ![](x)")
    out = difference(diff(tmp_path, SEED, after, "--format", "markdown"))
    assert "<img" not in out
    assert "**bold**" not in out
    assert "### Settings" in out


def test_terminal_gets_no_escapes(tmp_path):
    out = diff(tmp_path, SEED, SEED.replace("my-second", "my\\u001bsecond"))
    assert b"\x1b" not in out.stdout + out.stderr


def test_the_recipes_of_the_repository_differ_from_each_other(tmp_path):
    one, other = (
        os.path.join(REPOSITORY, "specs", f"mistral-7b-ultrachat-{way}.xp") for way in ("8xh100", "qlora-1xa100")
    )
    out = difference(xpc("diff", one, other))
    assert "qlora" in out
    assert "hardware" in out


@pytest.mark.parametrize(
    ("before", "after", "line"), [("a.xp", "b.xp", "gbs 528 -> 264"), ("b.xp", "a.xp", "gbs 264 -> 528")]
)
def test_a_spec_is_compared_with_its_base(before, after, line, tmp_path):
    root = put(tmp_path, {"a.xp": SEED, "b.xp": 'xpc 1\n\nextends "a.xp"\n\nbatch gbs=264\n'})
    assert line in difference(xpc("diff", before, after, cwd=root))


# -- plans ----------------------------------------------------------------------------------------------------------

KEPT = "memory(checkpointing=false)"


def test_changed_memory_hours_and_verdict_are_shown(tmp_path):
    before, after = (spec(KEPT, batch=f"gbs=128 micro={micro} seq=1536") for micro in (4, 8))
    out = difference(diff(tmp_path, before, after))
    assert re.match(r"micro 4 -> 8; memory [\d.]+ -> [\d.]+ GiB: tight, was fits\n", out)
    _, group = table(tmp_path, before, after)
    follows = named(group["follows"])
    assert float(follows["memory"][0]) < float(follows["memory"][1].removesuffix(" GiB"))
    assert float(follows["hours"][0]) > float(follows["hours"][1])
    assert float(follows["GPU-hours"][0]) == pytest.approx(8 * float(follows["hours"][0]), rel=0.01)


def test_another_gpu_changes_the_verdict_and_a_seed_does_not(tmp_path):
    before = spec("memory(liger)", hardware="8 x a100-80gb")
    assert "memory" not in difference(diff(tmp_path, before, before + "seed 7\n"))
    assert "hours" not in difference(diff(tmp_path, before, before + "seed 7\n"))
    out = difference(diff(tmp_path, before, before.replace("a100-80gb", "h100-80gb")))
    assert re.search(r"^  hours ", out, re.M)
    assert "memory" not in out.split("\n", 1)[0]
