"""`xpc diff` shows every difference between the meanings of two specs, and nothing else."""

import json
import os
import re
from types import SimpleNamespace

import pytest
from case_support import ROW, spec
from compile_support import REPOSITORY, SEED, put, read, tree, xpc
from git_commands import git
from jsonschema import Draft202012Validator

from xpc.compiler.review.consequences import Forecast, Quantity, follows


def difference(done):
    assert b"Traceback" not in done.stderr, done.stderr
    assert b"broke the compiler" not in done.stderr, done.stderr
    return done.stdout.decode()


def diff(tmp_path, before, after, *options):
    root = put(tmp_path, {"a.xp": before, "b.xp": after})
    return xpc("diff", "a.xp", "b.xp", *options, cwd=root)


with open(os.path.join(REPOSITORY, "docs", "diff.schema.json"), encoding="utf-8") as schema:
    SCHEMA = Draft202012Validator(json.load(schema))


def table(tmp_path, before, after):
    """Run `xpc diff` with JSON output. Return the output, and its only group of changes."""
    found = json.loads(difference(diff(tmp_path, before, after, "--format", "json")))
    SCHEMA.validate(found)
    (group,) = found["groups"]
    return found, group


def named(changes):
    return {one["name"]: (one["before"], one["after"]) for one in changes}


# -- the first line and derived values ------------------------------------------------------------------------------


def test_half_the_batch_is_twice_the_steps_and_the_same_tokens(tmp_path):
    out = difference(diff(tmp_path, SEED, SEED.replace("528", "264")))
    assert out.startswith("gbs 528 -> 264: 7,500 steps instead of 3,750, same tokens\n")
    found, group = table(tmp_path, SEED, SEED.replace("528", "264"))
    assert named(group["settings"]) == {"batch.gbs": (528, 264)}
    follows = named(group["follows"])
    assert follows["batch.accum"] == (6, 3)
    assert follows["steps"] == (3750, 7500)
    assert follows["warm-up"] == ("40 steps, 1.1% of the run", "40 steps, 0.53% of the run")
    assert {"264 / (11 x 8)", "derived: 264 / (11 x 8)"} & {one["why"] for one in group["follows"]}
    assert named(group["arguments"])["trainer_args.json arguments.gradient_accumulation_steps"] == (6, 3)
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
def test_the_first_line_names_the_change(change, line, tmp_path):
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


def test_data_whose_bytes_changed_is_reported(tmp_path):
    text = spec(train='qwen2.5-3b on "rows.jsonl" for 1 epochs')
    before, after = (
        put(tmp_path / "a", {"t.xp": text, "rows.jsonl": ROW * 9}),
        put(tmp_path / "b", {"t.xp": text, "rows.jsonl": ROW * 5}),
    )
    done = xpc("diff", os.path.join(before, "t.xp"), os.path.join(after, "t.xp"), "--exit-code")
    assert done.returncode == 1
    assert "rows.jsonl" in difference(done).split("\n")[0]


def test_a_changed_column_of_contexts_changes_how_the_rows_are_read(tmp_path):
    text = spec(train="qwen2.5-3b on me/a for 3 epochs") + "data(format=alpaca, prompt=asked, context=about)\n"
    _, group = table(tmp_path, text, text.replace("about", "passage"))
    assert named(group["follows"])["data me/a[train]"] == ("context about", "context passage")


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
        ("  me/c\n", "  me/c\n  format = text\n", {"data.format": (None, "text")},
         {f"data me/{each}[train]": ("messages", "text") for each in "abc"}),
    ],
)  # fmt: skip
def test_changed_sources_are_listed_one_by_one(old, new, settings, follows, tmp_path):
    _, group = table(tmp_path, MIXED, MIXED.replace(old, new))
    assert (named(group["settings"]), named(group["follows"])) == (settings, follows)
    keys = [one["name"] for one in group["arguments"] if " data.sources" in one["name"]]
    assert keys
    assert all(len(str(one["before"])) < 40 for one in group["arguments"] if one["name"] in keys)


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


def test_json_has_a_value_of_a_type_of_its_own_as_a_spec_has_it(tmp_path):
    text = "xpc 1\ntrain qwen2.5-0.5b-instruct on infinity-instruct with gbs=8\nhardware 1 x a100-80gb\n"
    before, after = (
        f"{text}data(holdout={share})\nmodel(chat_template={template})\n"
        for share, template in (("1%", "qwen3(enable_thinking=false)"), ("2%", "chatml"))
    )
    _, group = table(tmp_path, before, after)
    found = named(group["settings"])
    assert found["data.holdout"] == ("1%", "2%")
    assert found["model.chat_template"] == ("qwen3(enable_thinking=false)", "chatml")


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


@pytest.mark.slow
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


@pytest.mark.slow
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
        ("none.xp", "none.xp cannot be read"),
        ("HEAD", "HEAD is a commit, and not a spec: `HEAD:FILE` names a spec of this commit"),
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
    assert named(group["settings"]) == {"batch.gbs": (128, 256)}
    assert "in 2 of 4 runs; 2 runs new; 2 runs removed" in found["headline"]
    assert difference(diff(tmp_path, SWEEP, SWEEP.replace("lr =", "lr  ="), "--exit-code")) == "the same 4 runs\n"


def test_run_against_a_sweep(tmp_path):
    found, group = table(tmp_path, spec(), SWEEP.replace("gbs=128", "gbs=256"))
    assert {one["name"]: one["after"] for one in found["swept"]} == {"optimizer.lr": [1e-06, 2e-06], "seed": [1, 2]}
    assert named(group["settings"]) == {"batch.gbs": (128, 256), "save": ('"out/run"', '"out/run/MEMBER"')}
    assert found["headline"] == "1 run -> 4 runs: optimizer.lr, seed swept"


def test_the_folder_of_a_sweep_is_compared_with_its_spec(tmp_path):
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
    assert follows["memory"][0] < follows["memory"][1]
    assert follows["hours"][0] > follows["hours"][1]
    assert follows["GPU-hours"][0] == pytest.approx(8 * follows["hours"][0], rel=0.01)


def test_another_gpu_changes_the_verdict_and_a_seed_does_not(tmp_path):
    before = spec("memory(liger)", hardware="8 x a100-80gb")
    assert "memory" not in difference(diff(tmp_path, before, before + "seed 7\n"))
    assert "hours" not in difference(diff(tmp_path, before, before + "seed 7\n"))
    out = difference(diff(tmp_path, before, before.replace("a100-80gb", "h100-80gb")))
    assert re.search(r"^  hours ", out, re.M)
    assert "memory" not in out.split("\n", 1)[0]


# -- consequences ---------------------------------------------------------------------------------------------------

PROMPTS = "".join(f'{{"prompt": "what is {number}?"}}\n' for number in range(2000))
GRPO = """\
xpc 1

train qwen2.5-0.5b-instruct on "p.jsonl" for 1 epochs

hardware 8 x h100-80gb
strategy zero2
precision bf16
batch(gbs=256, micro=4)
method METHOD { generations = 8, max_completion = 256, rewards = ["r.py:f"] }
save "out/g"
"""


def consequences(tmp_path, before, after, *options):
    root = put(tmp_path, {"a.xp": before, "b.xp": after, "p.jsonl": PROMPTS, "r.py": "def f(**_): return [1.0]\n"})
    done = xpc("diff", "a.xp", "b.xp", "--format", "json", *options, cwd=root)
    found = json.loads(difference(done))
    return found, named(found["groups"][0]["follows"]), found["groups"][0]


@pytest.mark.parametrize("method", ["grpo", "rloo"])
@pytest.mark.parametrize(
    ("old", "new", "line", "follows"),
    [
        ("generations = 8", "generations = 16", "125 steps instead of 62, 16 prompts a step instead of 32",
         {"steps": (62, 125), "prompts a step": (32, 16)}),
        ("gbs=256", "gbs=512", "31 steps instead of 62, 64 prompts a step instead of 32",
         {"steps": (62, 31), "prompts a step": (32, 64)}),
        ("generations = 8", "generations = 8, iterations = 2", "124 steps instead of 62",
         {"steps": (62, 124), "updates with one generation": (1, 2)}),
        ("micro=4)", "micro=8)", "micro 4 -> 8", {}),
    ],
)  # fmt: skip
def test_a_change_of_an_online_method_has_consequences(method, old, new, line, follows, tmp_path):
    text = GRPO.replace("METHOD", method)
    found, moved, _ = consequences(tmp_path, text, text.replace(old, new))
    assert line in found["headline"]
    assert {name: moved[name] for name in follows} == follows
    assert ("updates with one generation" in moved) == ("iterations" in new)
    if "iterations" in new:
        printed = difference(xpc("diff", "a.xp", "b.xp", cwd=str(tmp_path)))
        why = "1 epoch of 124 steps: 2,000 rows x 8 completions x 2 iterations / 256, without an incomplete last batch"
        assert f"({why})" in printed


@pytest.mark.parametrize(
    ("gbs", "length", "steps", "why"),
    [
        (8, "3 epochs", "15", "40 rows x 3 epochs / 8"),
        (32, "3 epochs", "6", "3 epochs of 2 steps: 40 rows / 32, rounded up"),
        (64, "1 epoch", "1", "1 epoch of 1 step: 40 rows / 64, rounded up"),
        (8, "1.5 epochs", "8", "1.5 epochs of 5 steps, rounded up: 40 rows / 8"),
    ],
)
def test_the_formula_of_the_steps_gives_their_number(gbs, length, steps, why, tmp_path):
    train = 'qwen2.5-0.5b on "p.jsonl" for 4 epochs'
    text = spec(train=train, hardware="1 x h100-80gb", strategy="ddp", batch="gbs=16 micro=8")
    changed = text.replace("gbs=16", f"gbs={gbs}").replace("4 epochs", length)
    rows = "".join(json.dumps({"text": f"row {number}"}) + "\n" for number in range(40))
    root = put(tmp_path, {"a.xp": text, "b.xp": changed, "p.jsonl": rows})
    printed = difference(xpc("diff", "a.xp", "b.xp", cwd=root))
    assert re.search(rf"^  steps +12 -> {steps}  \({re.escape(why)}\)$", printed, re.MULTILINE), printed


def test_adapters_have_a_scale_and_trained_parameters(tmp_path):
    before = spec("lora(rank=16, alpha=32)")
    _, moved, group = consequences(tmp_path, before, before.replace("rank=16", "rank=64"))
    assert moved["alpha over rank"] == (2.0, 0.5)
    assert moved["trained parameters"][1] == 4 * moved["trained parameters"][0]
    assert moved["one checkpoint"][0] < moved["one checkpoint"][1]
    assert "cannot be resumed" in group["checkpoints"]
    assert "lora" in group["checkpoints"]


def test_checkpoints_can_be_resumed_if_no_number_changes(tmp_path):
    _, _, group = consequences(tmp_path, spec(), spec("track wandb"))
    assert group["checkpoints"] == "can be resumed"
    _, _, group = consequences(tmp_path, spec(), spec(save='save "out/run" hub(name=me/x, private, strategy=end)'))
    assert group["checkpoints"] == "can be resumed"
    _, _, group = consequences(tmp_path, spec(), spec(save='save "out/other"'))
    assert group["checkpoints"] == "can be resumed if they are moved from out/run to out/other"
    _, _, group = consequences(tmp_path, spec(), spec("seed 7"))
    assert group["checkpoints"].startswith("cannot be resumed: arguments.")


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("every=50", "resume=never", "cannot be resumed: the new run has `resume = never`"),
        ("resume=never", "every=50", "can be resumed"),
        (
            "every=never", "every=50",
            "can be resumed; a run with `every = never` writes a checkpoint only when it is stopped",
        ),
        (
            "full_state=false", "every=50",
            "can be resumed, but only from the checkpoint that a run writes when it is stopped: with `full_state = "
            "false`, other checkpoints have only weights",
        ),
    ],
)  # fmt: skip
def test_settings_of_save_decide_whether_there_are_checkpoints_to_resume(tmp_path, before, after, sentence):
    """A run with `resume = never` refuses a folder that is not empty (begin in runtime/core/output_folder.py)."""
    one, other = (spec(save=f'save "out/run" {more}') for more in (before, after))
    assert consequences(tmp_path, one, other)[2]["checkpoints"] == sentence


def test_more_evaluations_and_rows_are_counted(tmp_path):
    before = spec("eval(every=100)", train='qwen2.5-0.5b-instruct on "rows.jsonl" for 9000 steps')
    before = before.replace("\n\nhardware", "\n\ndata { holdout = 20 }\nhardware")
    put(tmp_path, {"rows.jsonl": ROW * 400})
    _, moved, _ = consequences(tmp_path, before, before.replace("every=100", "every=50").replace("= 20", "= 40"))
    assert (moved["evaluations"], moved["rows of an evaluation"]) == ((90, 180), (20, 40))


def test_a_price_shows_the_cost_and_nothing_without_it(tmp_path):
    before, after = spec(), spec(hardware="8 x a100-80gb")
    _, moved, _ = consequences(tmp_path, before, after, "--price", "h100-80gb=2.5,a100-80gb=1.4")
    hours = moved["GPU-hours"]
    assert moved["cost"] == (pytest.approx(hours[0] * 2.5, abs=0.01), pytest.approx(hours[1] * 1.4, abs=0.01))
    assert "cost" not in consequences(tmp_path, before, after)[1]
    assert consequences(tmp_path, before, after, "--price", "2")[1]["cost"][0] == pytest.approx(hours[0] * 2, abs=0.01)
    for wrong in ("", "x", "h100=2", "h100-80gb=", "-1", "1e9", "2.5;", "2,5", "h100-80gb=1,h100-80gb=2", "\u0662"):
        assert xpc("diff", "a.xp", "b.xp", f"--price={wrong}", cwd=str(tmp_path)).returncode == 2


@pytest.mark.parametrize(
    ("name", "before", "after", "texts"),
    [
        ("hours", Quantity("0.18", 0.183), Quantity("0.18", 0.182), ("0.183", "0.182")),
        ("disk, at most", Quantity("1.0 GiB", 2**30), Quantity("1.0 GiB", 2**30 + 8),
         ("1,073,741,824 bytes", "1,073,741,832 bytes")),
        ("hours", Quantity("0.18", 0.183), Quantity("unknown", None), ("0.18", "unknown")),
    ],
)  # fmt: skip
def test_two_rounded_numbers_are_not_shown_with_the_same_text(name, before, after, texts):
    plan = SimpleNamespace(verdict="fits", peak=None)
    one, other = (Forecast(plan, None, {name: each}) for each in (before, after))
    (found,) = follows(one, other)
    assert (found.before, found.after) == texts


def test_the_cost_on_a_gpu_without_a_price_is_unknown(tmp_path):
    before, after = spec(), spec(hardware="8 x a100-80gb")
    _, moved, _ = consequences(tmp_path, before, after, "--price", "a100-80gb=1.4")
    assert moved["cost"] == (None, pytest.approx(moved["GPU-hours"][1] * 1.4, abs=0.01))
    out = difference(xpc("diff", "a.xp", "b.xp", "--price", "a100-80gb=1.4", cwd=str(tmp_path)))
    assert re.search(r"  cost +unknown -> [\d.]+  \(GPU-hours x price\)\n", out)


def test_the_first_line_shows_the_part_that_differs(tmp_path):
    one = spec('save "' + "deep/" * 30 + 'a"', save="")
    found, _, _ = consequences(tmp_path, one, one.replace('a"', 'b"'))
    before, _, after = found["headline"].partition(" -> ")
    assert (before[-2:], after.split(";")[0][-2:], len(found["headline"]) < 100) == ('a"', 'b"', True)


def test_a_warning_with_other_numbers_is_not_new(tmp_path):
    rows = [json.dumps({"prompt": f"{number}?", "completion": "yes"}) + "\n" for number in range(12)]
    put(tmp_path, {"a.jsonl": "".join(rows), "b.jsonl": "".join(rows[:8])})
    before, after = (spec(train=f'qwen2.5-0.5b on "{name}.jsonl" for 9 epochs', batch="gbs=8 micro=1") for name in "ab")
    found, _, group = consequences(tmp_path, before, after)
    assert any(one.startswith("warning XP182 ") for one in group["new"])
    assert "XP182" not in found["headline"]


def test_the_first_line_names_new_warnings(tmp_path):
    before, after = (
        spec(),
        spec(hardware="8 x v100-32gb", precision="fp32") + 'model(trust_remote_code, revision="main")\n',
    )
    assert "new warning" in consequences(tmp_path, before, after)[0]["headline"]


def test_long_lists_of_removed_keys_are_folded(tmp_path):
    out = difference(diff(tmp_path, spec(), spec(strategy="fsdp")))
    assert re.search(r"  deepspeed.json  \d\d keys removed\n", out)
    assert out.count("-> absent") <= 6


@pytest.mark.slow
def test_a_move_to_another_stack_names_what_it_fixes(tmp_path):
    root = put(tmp_path, {"a.xp": SEED + "target trl-0.18\n", "b.xp": SEED + "target trl-1.16\n"})
    shown = xpc("upgrade", "a.xp", "--target", "trl-1.16", cwd=root).stdout.decode()
    fixed = "Wrong on trl-0.18 for this" in shown
    assert ("fixed on trl-1.16" in difference(xpc("diff", "a.xp", "b.xp", cwd=root))) == fixed
