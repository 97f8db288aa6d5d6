"""A mistake in a spec gives exactly one finding. The finding is at the place of the mistake, and its help has a text
that can be typed.
"""

import pytest
from compile_support import HEAD, LOCAL_MODEL, checked, codes, errors, put, shown
from extra_arguments import NUMBER

from xpc.compiler.explain.texts import explain
from xpc.compiler.render import render

LINE = "train qwen2.5-3b on infinity-instruct"


def message_and_help(text):
    """Check a spec with one error; return the message and the help of this error."""
    found = checked(text)
    wrong = [one for one in found.problems if one.severity == "error"]
    assert len(wrong) == 1, shown(found)
    return wrong[0].message, wrong[0].help


@pytest.mark.parametrize(
    ("written", "path", "value"),
    [
        ("track wandb", "track", ("wandb",)),
        ("track wandb tensorboard", "track", ("wandb", "tensorboard")),
        ("track wandb zero2", "strategy", "zero2"),
        ("seed 7", "seed", 7),
        ("nodes 2 zero2", "nodes", 2),
        ("hardware 4 x a100-80gb zero2", "hardware", "4 x a100-80gb"),
        ("hardware a100-80gb", "hardware", "1 x a100-80gb"),
        ("strategy zero2 precision bf16", "precision", "bf16"),
        ('save "out/y" liger', "save", "out/y"),
        ("target trl-0.18", "target", "trl-0.18"),
    ],
)
def test_a_clause_takes_the_value_behind_its_name_in_with(written, path, value):
    found = checked(f"{LINE} with {written}\n")
    assert found.spec is not None, shown(found)
    assert found.spec.get(path) == value


@pytest.mark.parametrize(
    ("written", "message", "help"),
    [
        ("precision bf61", "`bf61` is not a choice of `precision`", "write `bf16`"),
        ("track liger", "`track` needs a value", "write `track wandb`"),
        ("seed gbs=64", "`seed` needs a value", "write `seed 42`"),
        ("bf16=true", "`bf16` is a choice of `precision`, and takes no value", "`precision = bf16`"),
        ("BF16", "`BF16` is not a setting of the language", "write `bf16`"),
        ("trl-0.18", "`trl-0.18` is a target", "write `target=trl-0.18`"),
        ("ddp_timeout=1800", "`ddp_timeout` is not", "write `launch(nccl_timeout=1800s)`"),
        ("eval_strategy=epoch", "`eval_strategy` is not", "write `eval(every=epoch)`"),
        ("load_in_4bit", "`load_in_4bit` is not", "write `qlora`"),
        ("max_steps=100", "choices and settings go after `with`", "for 100 steps"),
        ("resume=never", "`resume` belongs inside a clause", "write `save(resume=never)`"),
        ("8xh100-80gb", "`8xh100-80gb` is not a number", "write `8 x h100-80gb`"),
        ("lr=10%", "`10%` has no meaning for `lr`", "write `lr = 0.1`"),
        ("lr 1e-5 bf16", "`lr` takes its value after `=`", "write `lr=1e-5`"),
        ("dtype bf16", "`dtype` takes its value after `=`", "write `dtype=bf16`"),
        ("model dtype fp16", "`dtype` takes its value after `=`", "write `dtype=fp16`"),
        ("optimizer adamw lr 1e-5", "`lr` takes its value after `=`", "write `lr=1e-5`"),
        ("clip=None", "`clip` takes a number", "write `clip = 0`"),
        ("save(every=2h)", "`2h` has no meaning for `every`", "a number of steps (100), a share of the run (5%)"),
        ("save(every=no)", "`every` takes", "write `every = never`"),
        ("holdout=5 %", "unexpected `%`", "write `holdout = 5%`"),
        ("betas=(0.9, 0.95)", "expected a value after `=`", "`betas = [0.9, 0.95]`"),
        ("betas=[0.9 0.95]", "expected `,` or `]`", "write `betas = [0.9, 0.95]`"),
    ],
)
def test_a_mistake_in_the_header_has_a_help_to_type(written, message, help):
    found = message_and_help(f"{LINE} with {written}\n")
    assert found[0].startswith(message)
    assert help in found[1]


@pytest.mark.parametrize(
    ("body", "message", "help"),
    [
        ("hardware 8x h100-80gb", "`8x` is not a number", "write `hardware 8 x h100-80gb`"),
        ("strategy zero 2", "`zero 2` is one word", "write `strategy zero2`"),
        ("model dtype fp16", "`dtype` takes its value after `=`", "write `dtype=fp16`"),
        ("model {\n  attn sdpa\n}", "`attn` takes its value after `=`", "write `attn=sdpa`"),
        ("memory {\n  liger checkpointing\n}", "`checkpointing` is not", "outside of `memory.liger`"),
        ("batch {\n  lr = 1e-6\n}", "`lr` is not a setting of `batch`", "write `lr=1e-6` outside of `batch`"),
        ("optimizer {\n  beta = [0.9, 0.95]\n}", "`beta` is not", "write `betas`"),
        ("optimizer {\n  sharpness = true\n}", "`sharpness` is not", "`optimizer` has lr, betas"),
        ("data {\n  take = 5\n}", "`take` belongs to a source", "write `SOURCE(take=5)`"),
        (f"extra {{\n  {NUMBER} = 5\n}}", "`extra` goes to", "write `extra trl {`"),
        ("warmup 3%", "`warmup` takes its value after `=`", "write `warmup=3%`"),
        ('"gbs": 4', "in a spec, lines of JSON become settings with `=`", "write `gbs=4`"),
    ],
)
def test_a_mistake_in_the_body_has_a_help_to_type(body, message, help):
    found = message_and_help(f"xpc 1\n{LINE}\n{body}\n")
    assert found[0].startswith(message)
    assert help in found[1]


@pytest.mark.parametrize(("budget", "help"), [("2h", "for 2 epochs"), ("1.5 steps", "for 2 steps")])
def test_a_length_is_answered_with_a_length(budget, help):
    assert message_and_help(f"{LINE} for {budget}\n")[1] == f"write `{help}`"


@pytest.mark.parametrize(
    "fix",
    [
        "holdout = 5%\neval(every=epoch)\n",
        "memory(checkpointing)\n",
        "attn = flash2\npacking = true\n",
        "data(format=conversations)\n",
        "schedule wsd\ndecay = 100\n",
    ],
)
def test_the_forms_that_helps_name_are_legal(fix):
    assert errors(checked(HEAD.replace("3 epochs", "1000 steps") + fix)) == []


def test_extra_is_accepted_as_a_call():
    found = checked(f"{LINE} with extra(trl)\n")
    assert found.spec is not None, shown(found)
    found = checked(f"xpc 1\n{LINE}\nextra trl({NUMBER}=5)\n")
    assert found.spec is not None, shown(found)
    assert found.spec.extra["trl"][NUMBER].value == 5


def test_a_block_that_a_syntax_error_took_is_no_second_mistake():
    text = "xpc 1\ntrain qwen2.5-3b on mix\ndata mix {\n  smoltalk { take = 50% columns = [messages] }\n}\n"
    assert codes(checked(text)) == ["XP022"]
    unknown = "xpc 1\ntrain qwen2.5-3b on infinty-instruct\ngbs: 4\n"
    assert sorted(codes(checked(unknown))) == ["XP014", "XP110"]  # a number after a colon is a finding, too


def test_a_data_block_under_another_name_or_without_a_source_is_one_mistake():
    assert errors(checked("xpc 1\ntrain qwen2.5-3b on mix\ndata mixx {\n  smoltalk\n}\n")) == ["XP119"]
    message, _ = message_and_help("xpc 1\ntrain qwen2.5-3b on mix\ndata mix {\n  workers = 4\n}\n")
    assert message == "the data block `mix` names no source"
    for evaluated in ("", 'eval(data=test)\ndata test {\n  path = "test.jsonl"\n}\n'):
        text = f'xpc 1\ntrain qwen2.5-3b on mix\ndata mix {{\n  path = "rows.jsonl"\n}}\n{evaluated}'
        assert errors(checked(text)) == ["XP101"] * text.count("path")


def test_settings_of_data_and_its_sources_may_stand_apart():
    found = checked("xpc 1\ntrain qwen2.5-3b on mix with data(workers=3)\ndata mix {\n  smoltalk\n}\n")
    assert found.spec is not None, shown(found)
    assert found.spec.get("data.workers") == 3
    assert [one.id for one in found.spec.data] == ["HuggingFaceTB/smoltalk"]


def test_a_base_that_is_not_there_is_one_mistake(tmp_path):
    assert errors(checked('xpc 1\nextends "base.xp"\n', str(tmp_path))) == ["XP114"]


def test_a_child_may_name_other_data_than_its_base(tmp_path):
    put(tmp_path, {"base.xp": "xpc 1\ntrain qwen2.5-3b on mix\ndata mix {\n  smoltalk\n  workers = 3\n}\n"})
    found = checked('xpc 1\nextends "base.xp"\ntrain qwen2.5-3b on infinity-instruct\n', str(tmp_path))
    assert found.spec is not None, shown(found)
    assert [one.id for one in found.spec.data] == ["BAAI/Infinity-Instruct"]
    assert found.spec.get("data.workers") == 3


def test_assumptions_of_a_misspelt_spec_are_not_reported():
    assert "XP190" in codes(checked(LINE + "\n"))
    assert codes(checked(LINE + " with ligre\n")) == ["XP101"]
    # here the assumption is reported, because XP201 computes with the assumed hardware
    assert "XP190" in codes(checked(LINE + " with gbs=3\n"))


def test_a_misspelt_folder_is_corrected_to_one_with_a_model(tmp_path):
    text = 'train "lama" on alpaca\n'
    helps = []
    for name in ("llama/notes.txt", "llama/config.json"):
        put(tmp_path, {name: "{}"})
        helps += [one.help for one in checked(text, str(tmp_path)).problems if one.code == "XP118"]
    assert helps[0].startswith("name an existing folder")
    assert helps[1:] == ['name `"llama"`, which is here']


@pytest.mark.parametrize("clause", ["", "lora\n", 'lora(from="both")\n'])
def test_a_model_with_an_adapter_in_its_folder_is_refused(tmp_path, clause):
    """transformers 5.23 adds the adapter to the model. 4.57 and 4.52 load the model that adapter_config.json names, and
    not the weights in the folder.
    """
    put(tmp_path, {f"both/{name}": data for name, data in LOCAL_MODEL.items()})
    text = f'train "both" on alpaca for 1 epochs with 1 x h100-80gb bf16 gbs=8 micro=1 seq=1024\n{clause}'
    assert "XP118" not in codes(checked(text, str(tmp_path)))
    put(tmp_path, {"both/adapter_config.json": "{}"})
    found = [one for one in checked(text, str(tmp_path)).problems if one.code == "XP118"]
    assert ["an adapter next to a model" in one.message for one in found] == [True]


def test_quoted_hub_ids_are_reported_from_paths():
    found = checked('train "Qwen/Qwen2.5-3B" on "BAAI/Infinity-Instruct"\n')
    helps = [one.help for one in found.problems if one.code in ("XP118", "XP123")]
    assert helps == [
        "for a model of the hub, write `Qwen/Qwen2.5-3B` without quotes; for a folder that a later run writes, "
        'give its architecture: `model(config=file("config.json"))`',
        "write `BAAI/Infinity-Instruct` without quotes for a dataset of the hub",
    ]


@pytest.mark.parametrize(
    ("path", "severity"),
    [
        ("/models/of-others/qwen", "warning"),
        ("../of-others/qwen", "warning"),
        ("qwen", "error"),
        ("./qwen", "error"),
        ("~/models/qwen", "error"),
        ("s3://models/qwen", "error"),
    ],
)
def test_a_model_of_another_machine_is_looked_for_by_the_run(tmp_path, path, severity):
    (tmp_path / "here").mkdir()
    text = f'train "{path}" on infinity-instruct for 1 epochs with 1 x h100-80gb bf16 gbs=8 micro=1 seq=1024\n'
    found = checked(text, str(tmp_path / "here"))
    assert [one.severity for one in found.problems if one.code == "XP118"] == [severity]


def test_explain_knows_clauses_choices_and_settings_of_sources():
    reported = {name: explain(name) for name in ("memory", "zero2", "columns")}
    assert "memory.checkpointing:" in (reported["memory"] or "")
    assert (reported["zero2"] or "").startswith(
        "zero2: a choice of `strategy`, spread over the processes: optimizer states, "
    )
    assert "\nstrategy:" in (reported["zero2"] or "")
    assert (reported["columns"] or "").startswith("data.columns:")
    assert explain("nonsense") is None


def test_a_source_without_rows_is_refused():
    assert (
        message_and_help("xpc 1\ntrain qwen2.5-3b on mix\ndata mix {\n  smoltalk(take=0)\n}\n")[0]
        == "`take` keeps no rows"
    )


def test_notes_of_one_place_draw_it_once():
    text = render(checked(LINE + "\n").problems, "full")
    assert text.count("^^^^^^^^^^") == 1
    assert text.count("note XP190") == 10


def test_a_wrong_sentence_does_not_hide_the_errors_of_its_base(tmp_path):
    (tmp_path / "base.xp").write_text("xpc 1\n# a base with a setting that nothing has\nsed 1\n")
    text = 'xpc 1\nextends "base.xp"\ntrain qwen2.5-3b on smoltalk on 4 h100s\n'
    found = checked(text, str(tmp_path)).problems
    assert {one.primary.source.name for one in found if one.severity == "error"} == {"base.xp", "t.xp"}
