"""Values in a spec get the right units, counts, references and defaults. Each value knows whether it was written,
derived or a default.
"""

import json

import pytest
from case_support import spec
from compile_support import (
    CONFIG,
    HEAD,
    checked,
    checked_once,
    codes,
    errors,
    only,
    placed,
    put,
    shown,
    value,
)
from rule_cases import CASES
from tiers import every_fourth

from xpc.compiler.language import schema
from xpc.compiler.language.items import DEFAULT, DERIVED, SPEC
from xpc.compiler.language.kinds import EPOCH, NEVER, Amount


@pytest.mark.parametrize(
    ("clause", "path", "meaning"),
    [
        ("schedule cosine(warmup=40)", "schedule.warmup", Amount("count", 40)),
        ("schedule cosine(warmup=3%)", "schedule.warmup", Amount("share", 0.03)),
        ("schedule cosine(min_lr=0)", "schedule.min_lr", Amount("absolute", 0)),
        ("schedule cosine(min_lr=1e-6)", "schedule.min_lr", Amount("absolute", 1e-6)),
        ("schedule cosine(min_lr=10%)", "schedule.min_lr", Amount("share", 0.1)),
        ("save(every=100)", "save.every", Amount("count", 100)),
        ("save(every=5%)", "save.every", Amount("share", 0.05)),
        ("save(every=epoch)", "save.every", EPOCH),
        ("save(every=never)", "save.every", NEVER),
        ("data(holdout=2000)", "data.holdout", Amount("count", 2000)),
        ("data(holdout=5%)", "data.holdout", Amount("share", 0.05)),
        ("strategy zero2(allgather_bucket=500M)", "strategy.allgather_bucket", 500_000_000),
        ("strategy zero2(allgather_bucket=1.005k)", "strategy.allgather_bucket", 1005),
        ("batch(seq=2Ki)", "batch.seq", 2048),
        ("batch(seq=2_000)", "batch.seq", 2000),
        ("launch(nccl_timeout=2h)", "launch.nccl_timeout", 7200),
        ("launch(nccl_timeout=1.5h)", "launch.nccl_timeout", 5400),
        ("optimizer adamw(lr=2e-5)", "optimizer.lr", 2e-5),
        ("optimizer adamw(lr=1)", "optimizer.lr", 1.0),
    ],
)
def test_the_unit_chooses_the_meaning(clause, path, meaning):
    assert value(HEAD + clause + "\n", path) == meaning


@pytest.mark.parametrize(("written", "rows"), [("1000", Amount("count", 1000)), ("50%", Amount("share", 0.5))])
def test_take(written, rows):
    text = spec(
        f"data mix {{\n  infinity-instruct {{\n    take = {written}\n  }}\n}}", train="qwen2.5-3b on mix for 3 epochs"
    )
    found = checked(text)
    assert found.spec is not None, shown(found)
    assert found.spec.data[0].take == rows


@pytest.mark.parametrize(
    ("clause", "code"),
    [
        ("batch(seq=2k)", "XP105"),
        ("batch(gbs=10%)", "XP105"),
        ("batch(gbs=8s)", "XP105"),
        ("optimizer adamw(lr=3%)", "XP105"),
        ("launch(nccl_timeout=1800)", "XP105"),
        ("schedule cosine(warmup=0.03)", "XP105"),
        ("data(holdout=0.1)", "XP105"),
        ("save(every=5s)", "XP105"),
        ("batch(gbs=1.5)", "XP104"),
        ("batch(gbs=0)", "XP107"),
        ("save(every=0)", "XP107"),
        ("schedule cosine(warmup=101%)", "XP107"),
        ("seed 4294967296", "XP107"),
        ("optimizer adamw(betas=[0.9])", "XP107"),
        ("optimizer adamw(betas=[0.9, 1])", "XP107"),
        ("batch(gbs=yes)", "XP104"),
        ("batch(packing=1)", "XP104"),
        ("batch(seq=1GiB)", "XP105"),
        ("batch(gbs=8e18k)", "XP107"),
        ("launch(nccl_timeout=1e18d)", "XP107"),
    ],
)
def test_a_wrong_unit_or_number_is_an_error(clause, code):
    found = checked(HEAD + clause + "\n")
    assert errors(found) == [code], shown(found)
    assert next(one for one in found.problems if one.code == code).help


@pytest.mark.parametrize(
    ("clause", "code", "help"),
    [
        ("launch(nccl_timeout=30)", "XP105", "write `nccl_timeout = 30s`"),
        ("launch slurm(time=30)", "XP105", "30s, 30m or 30h (Slurm reads 30 as minutes)"),
        ("method grpo(rewards=[cosine(max_len=[1])])", "XP104", "write `cosine(max_len=1000)`"),
        ("model(chat_template=qwen3(enable_thinking=[1]))", "XP104", "write `qwen3(enable_thinking=false)`"),
    ],
)
def test_the_help_for_a_wrong_value_is_that_of_the_setting(clause, code, help):
    assert help in (only(checked(HEAD + clause + "\n"), code).help or "")


@pytest.mark.parametrize(("init", "why"), [("corda", "passes over the data")])
def test_a_refused_start_of_adapters_says_why_and_names_another(init, why):
    found = checked(f"train qwen2.5-0.5b on infinity-instruct for 1 epochs\nlora(init={init})\n")
    problem = only(found, "XP106")
    assert why in problem.help
    assert problem.help.startswith("write eva")


def test_2k_is_refused_with_its_three_readings():
    one = only(checked(spec(batch="gbs=128 micro=16 seq=2k")), "XP105")
    assert one.help == "write 2048, 2Ki or 2000"


def test_batch_agrees_or_is_an_error():
    assert checked(spec(batch="gbs=528 micro=11 accum=6")).spec is not None
    assert errors(checked(spec(batch="gbs=512 micro=11 accum=6"))) == ["XP201"]
    assert value(spec(batch="gbs=528 micro=11"), "batch.accum") == 6
    assert value(spec(batch="gbs=528 accum=6"), "batch.micro") == 11
    assert value(spec(batch="micro=11 accum=6"), "batch.gbs") == 528
    assert errors(checked(spec(batch="gbs=512 accum=6"))) == ["XP201"]
    assert errors(checked(spec(batch="gbs=4"))) == ["XP201"]


# -- references -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("infinity-instruct", ("BAAI/Infinity-Instruct", "0625", "train", None, None)),
        ("infinity-instruct:7M", ("BAAI/Infinity-Instruct", "7M", "train", None, None)),
        ("BAAI/Infinity-Instruct:0625[train:20%]@main", ("BAAI/Infinity-Instruct", "0625", "train", "20%", "main")),
        ("org/name", ("org/name", None, "train", None, None)),
        ("org/name[train]", ("org/name", None, "train", None, None)),
        ("org/name:c@refs/pr/3", ("org/name", "c", "train", None, "refs/pr/3")),
    ],
)
def test_data_references(written, expected):
    found = checked(spec(train=f"qwen2.5-3b on {written} for 3 epochs"))
    assert found.spec is not None, shown(found)
    one = found.spec.data[0]
    assert (one.id, one.config, one.split, one.slice, one.revision) == expected


@pytest.mark.parametrize(
    ("written", "id", "revision"),
    [
        ("qwen2.5-3b", "Qwen/Qwen2.5-3B", None),
        ("QWEN2.5-3B", "Qwen/Qwen2.5-3B", None),
        ("Qwen/Qwen2.5-3B", "Qwen/Qwen2.5-3B", None),
        ("Qwen/Qwen2.5-3B@3aab1f1", "Qwen/Qwen2.5-3B", "3aab1f1"),
        ("org/name@v1", "org/name", "v1"),
    ],
)
def test_model_references(written, id, revision):
    found = checked(spec(train=f"{written} on infinity-instruct for 3 epochs"))
    assert found.spec is not None, shown(found)
    assert (found.spec.model.id, found.spec.model.revision) == (id, revision)


def test_a_revision_makes_no_hub_id_of_a_name():
    found = checked(spec(train="qwen2.5-3@main on infinity-instruct for 3 epochs"))
    assert errors(found) == ["XP108"], shown(found)
    assert "qwen2.5-3b" in (only(found, "XP108").help or "")


def test_a_model_has_no_split():
    assert "XP108" in errors(checked(spec(train="qwen2.5-3b[train] on infinity-instruct for 3 epochs")))


LARGE = {"XP883", "XP888"}
"""Codes whose case has a sweep of a thousand members. The test skips these cases, because it would look only at the
first member.
"""


@pytest.mark.parametrize("case", every_fourth([case for case in CASES if case.title not in LARGE]))
def test_every_value_has_an_origin(case, tmp_path_factory):
    found = checked_once(case.accepted, placed(case.files, lambda: tmp_path_factory.mktemp("case")))
    assert found.spec is not None
    lines = case.accepted.split("\n")
    for path, one in found.spec.values.items():
        assert one.origin.describe(), path
        if one.origin.kind == SPEC:
            assert one.origin.label is not None, path
            line = one.origin.label.source.position(one.origin.label.span.start)[0]
            assert one.origin.describe() == f"t.xp:{line}"
            written = lines[line - 1]
            row = schema.BY_PATH[path]
            assert (
                row.name in written
                or str(one.value) in written
                or any(part in written for part in row.clause.split("."))
                or row.clause == "train"
            ), (path, written)
        elif one.origin.kind in (DEFAULT, DERIVED):
            assert one.origin.label is None


def test_every_setting_with_a_default_is_in_the_spec():
    found = checked(spec())
    assert found.spec is not None
    missing = [
        row.path
        for row in schema.TABLE
        if row.default is not None and row.path not in found.spec.values
        # rows for other methods have defaults that an sft run does not get
        if not row.methods or "sft" in row.methods
    ]
    assert not missing


def test_the_default_length_is_cut_to_a_short_context(tmp_path):
    folder = put(tmp_path, {"models/tiny/config.json": json.dumps(CONFIG)})
    text = spec("memory(checkpointing)", train='"models/tiny" on infinity-instruct for 3 epochs')
    found = checked(text.replace(" seq=1024", ""), folder)
    assert found.spec is not None
    assert only(found, "XP190").help == f"`seq={CONFIG['max_position_embeddings']}` states this choice"
    assert found.spec.get("batch.seq") == CONFIG["max_position_embeddings"] < 1024
    assert found.spec.values["batch.seq"].origin.describe() == "default: the model's context"
    assert "XP319" not in codes(found)


@pytest.mark.parametrize("written", ["memory 8", 'memory "fast"'])
def test_value_without_a_setting_is_reported(written):
    one = only(checked(spec(written)), "XP104")
    assert "is a value without a setting" in one.message
    assert one.help == "write `name=value`"
