"""`xpc explain FILE` and `xpc explain FILE:SETTING` show where a value comes from, and which keys of the bundle's files
follow from the value.
"""

import pytest
from case_support import spec
from compile_support import SEED, checked, put, read, xpc
from test_diff_generated import changed_settings

from xpc.compiler.review.compare import compare
from xpc.compiler.review.operands import Run
from xpc.compiler.review.trace import Trace

pytestmark = pytest.mark.slow


def explained(text, what, tmp_path):
    done = xpc("explain", f"t.xp{what}", cwd=put(tmp_path, {"t.xp": text}))
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_one_setting_becomes_other_keys_on_another_stack(tmp_path):
    shown = read("docs", "review.md").partition("$ xpc explain specs/qwen2.5-3b.xp:accum\n")[2].partition("```")[0]
    assert explained(SEED, ":accum", tmp_path) == shown
    assert explained(SEED, ":memory.checkpointing", tmp_path).split("\n")[2:4] == [
        "  trainer_args.json arguments.activation_checkpointing = true",
        "  trainer_args.json arguments.activation_checkpointing_kwargs.use_reentrant = false",
    ]
    old = explained(SEED + "target trl-0.18\n", ":memory.checkpointing", tmp_path)
    assert "  trainer_args.json arguments.gradient_checkpointing = true\n" in old
    assert "activation_checkpointing" not in old


@pytest.mark.parametrize(
    ("setting", "lines"),
    [
        ("clip", ["deepspeed.json gradient_clipping = 1.0", "trainer_args.json arguments.max_grad_norm = 1.0"]),
        ("nodes", ["accelerate.yaml num_machines = 1", "trainer_args.json run.world_size = 8", "launch.sh"]),
        ("track.name", ['trainer_args.json arguments.run_name = "my-second-sft-exp"']),
        ("overlap_comm", ["deepspeed.json zero_optimization.overlap_comm = false"]),
        ("liger", ["trainer_args.json model.liger = true", "requirements.txt"]),
    ],
)  # fmt: skip
def test_a_setting_shows_its_keys_in_the_bundle(setting, lines, tmp_path):
    reported = explained(SEED, f":{setting}", tmp_path).split("\n")
    assert not [line for line in lines if f"  {line}" not in reported], reported


def test_the_model_the_sources_and_what_is_passed_on(tmp_path):
    text = SEED + "eval(data=capybara, every=epoch)\nextra trl {\n  logging_nan_inf_filter = false\n}\n"
    assert explained(text, ":model", tmp_path).startswith(
        'model = Qwen/Qwen2.5-3B\n  from t.xp:3\n  trainer_args.json model.id = "Qwen/Qwen2.5-3B"\nmodel.attn = sdpa\n'
    )
    reported = explained(text, ":data", tmp_path)
    assert reported.startswith("data = BAAI/Infinity-Instruct:0625[train], conversations\n  from t.xp:3\n")
    assert "eval.data capybara = trl-lib/Capybara[train], messages\n" in reported
    assert "no value" not in reported
    assert explained(text, ":extra", tmp_path) == (
        "extra trl.logging_nan_inf_filter = false\n  from t.xp:40\n"
        "  trainer_args.json arguments.logging_nan_inf_filter = false\n"
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("t.xp:warmupp", "`warmupp` is not a setting: did you mean `schedule.warmup`?"),
        ("t.xp:zxqv", "`xpc list settings`"),
        ("leraning_rate", "did you mean `xpc explain optimizer.lr`?"), ("XP9999", "there is no code `XP9999`"),
        ("h100", "did you mean `xpc explain h100-80gb`?"), ("none.xp:lr", "none.xp cannot be read"),
    ],
)  # fmt: skip
def test_a_name_that_is_unknown_gets_a_suggestion(name, says, tmp_path):
    done = xpc("explain", name, cwd=put(tmp_path, {"t.xp": SEED}))
    assert (done.returncode, says in done.stderr.decode()) == (2, True), done.stderr


def test_the_name_that_another_tool_has_is_understood(tmp_path):
    assert explained(SEED, ":gradient_accumulation_steps", tmp_path) == explained(SEED, ":accum", tmp_path)


def test_every_setting_of_a_spec_is_shown_with_its_origin(tmp_path):
    reported = explained(SEED, "", tmp_path).split("\n\n")
    found = checked(SEED, name="t.xp").spec
    assert [one.partition(" = ")[0] for one in reported] == ["model", "data", *found.values]
    for one in reported[2:]:
        path, (_, origin, *_) = one.partition(" = ")[0], one.split("\n")
        assert origin == f"  from {found.values[path].origin.describe()}"


def test_a_swept_setting_has_its_values(tmp_path):
    text = spec("sweep {\n  lr = [1e-6, 2e-6]\n}")
    assert "optimizer.lr is swept in t.xp: 1e-06, 2e-06\n" in explained(text, "", tmp_path)


def test_targets_are_shown_with_their_modules(tmp_path):
    shown = explained(spec("lora(targets=[q_proj, down_proj])"), ":lora.targets", tmp_path)
    assert "  adapts model.layers.N.mlp.down_proj\n  adapts model.layers.N.self_attn.q_proj\n" in shown
    assert "o_proj" not in shown


@pytest.mark.parametrize("written", ["targets=[layers.20.self_attn.q_proj]", "targets=[q_proj], within=layers.20"])
def test_targets_in_one_layer_are_shown_with_its_number(written, tmp_path):
    shown = explained(spec(f"lora({written})"), ":lora.targets", tmp_path)
    assert shown.endswith("\n  adapts model.layers.20.self_attn.q_proj\n")


def test_a_spec_with_errors_says_so(tmp_path):
    done = xpc("explain", "t.xp", cwd=put(tmp_path, {"t.xp": spec(batch="gbs=512 micro=11")}))
    assert done.returncode == 1
    assert b"has errors" in done.stderr


def test_what_changes_with_a_setting_is_what_it_became(location):
    """Two specs differ in one setting. The keys in which their bundles differ are among the keys that `xpc explain`
    lists for this setting and for the values derived from it.
    """
    seen = 0
    for path, (one, other) in changed_settings(location):
        found = compare(Run("", one), Run("", other))
        trace = Trace(one)
        paths = [path, *(each.name for each in found.follows if each.name in one.values)]
        became = {line.partition(" = ")[0] for each in paths if each in one.values for line in trace.keys_of(each)}
        moved = {each.name for each in found.arguments if each.before != "absent"}
        # `train.steps` is skipped: it replaces `train.epochs`, so the two specs differ in more than one setting
        if path != "train.steps":
            assert moved <= became, (path, moved - became)
            seen += 1
    assert seen > 20
