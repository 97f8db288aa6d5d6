"""What the language page says is true: its examples compile, the names on it exist, and `extra` behaves as
described.
"""

import os

import pytest
from case_support import spec
from compile_support import (
    CHATML,
    HEAD,
    REPOSITORY,
    SEED,
    SENTENCE,
    checked,
    codes,
    compiled,
    edited,
    errors,
    of,
    only,
    put,
    read,
    shown,
    value,
)
from extra_arguments import NUMBER
from render_samples import EXAMPLE

from xpc.compiler.language.kinds import Amount
from xpc.compiler.render import render

# -- the examples -----------------------------------------------------------------------------------------------------


def test_seed_recipe_is_clean():
    found = checked(SEED)
    assert found.spec is not None, shown(found)
    # Only two findings are expected: a V100 needs other torch wheels (XP801), and the page leaves the sequence length
    # to its default (XP190).
    assert set(codes(found)) <= {"XP190", "XP801"}, shown(found)
    assert ["seq=1024" in one.message for one in of(found, "XP190")] == [True]
    assert [found.spec.get(f"batch.{name}") for name in ("gbs", "micro", "accum")] == [528, 11, 6]
    assert found.spec.hardware.world == 8
    assert found.spec.values["batch.accum"].origin.why == "528 / (11 x 8)"
    assert found.spec.get("strategy.allgather_bucket") == 500_000_000
    assert found.spec.get("strategy.overlap_comm") is False
    assert found.spec.get("strategy.round_robin_gradients") is True
    assert found.spec.get("optimizer.betas") == (0.9, 0.95)
    assert found.spec.get("schedule.warmup") == Amount("count", 40)
    assert found.spec.get("schedule.min_lr") == Amount("absolute", 0)
    assert found.spec.get("track.name") == "my-second-sft-exp"
    assert found.spec.data[0].config == "0625"


def test_seed_recipe_with_bf16_is_rejected():
    found = checked(SEED.replace("precision fp32", "precision bf16"))
    assert errors(found) == ["XP301"], shown(found)
    one = only(found, "XP301")
    assert one.primary is not None
    assert one.primary.source.position(one.primary.span.start)[0] == 6
    assert [label.source.position(label.span.start)[0] for label in one.related] == [5]
    assert checked(edited(SEED.replace("precision fp32", "precision bf16"), one)).spec is not None


def test_the_sentence_compiles_with_notes():
    found = checked(SENTENCE)
    assert found.spec is not None, shown(found)
    assert {one.severity for one in found.problems} == {"note"}
    assert found.spec.text("hardware") == "8 x h100-80gb"
    assert any("8 x h100-80gb" in one.message for one in of(found, "XP190"))
    assert found.spec.integer("batch.gbs") == 528
    assert 66 % found.spec.integer("batch.micro") == 0
    assert [found.spec.get(path) for path in ("strategy", "precision", "memory.liger")] == ["zero2", "bf16", True]
    assert "XP125" not in codes(found)  # XP125: a spec of one line may omit `xpc 1`


def test_the_diagnostic_of_the_page_byte_for_byte():
    text = "train qwen2.5-3b on infinity-instruct with zero2 gbs=512 micro=11 bf16 ligre\n"
    found = checked(text, name="v100.xp")
    assert sorted(errors(found)) == ["XP101", "XP201"], shown(found)  # one run reports both mistakes
    assert EXAMPLE in render(found.problems, "full")
    assert render(of(found, "XP201"), "full").startswith(EXAMPLE)
    assert only(found, "XP101").edits[0].text == "liger"


def test_every_example_file_of_the_grammar_resolves_without_an_exception(tmp_path):
    folder = os.path.join(REPOSITORY, "tests", "grammar", "examples")
    put(tmp_path, {"base.xp": "seed 1\n", "chatml.jinja": CHATML})
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as handle:
            found = checked(handle.read(), str(tmp_path), name)
        assert not [code for code in codes(found) if code < "XP100"], name


def test_mid_training_example(tmp_path):
    """The page's example of mid-training compiles for Slurm and pushes to the hub."""
    text = read("tests", "grammar", "examples", "mid-training.xp")
    root = put(tmp_path, {"chatml.jinja": CHATML})
    found = checked(text, root)
    assert found.spec is not None, shown(found)
    assert found.spec.get("launch") == "slurm"
    assert found.spec.hardware.world == 64
    assert [found.spec.get(f"batch.{name}") for name in ("gbs", "micro", "accum")] == [128, 1, 2]
    assert found.spec.get("batch.seq") == 32768
    assert found.spec.get("save.every") == Amount("share", 0.05)
    assert (found.spec.get("save.hub"), found.spec.get("save.hub.name")) == (True, "SmolLM3-Mid")
    assert [source.split for source in found.spec.data] == [
        "Llama_Nemotron_Post_Training_Dataset_reasoning_r1",
        "OpenThoughts3_1.2M",
    ]
    assert all(source.columns == ("messages",) for source in found.spec.data)
    assert found.spec.get("launch.nccl_timeout") == 14400


def test_a_sweep_is_as_many_runs_as_its_lists_say():
    text = HEAD + "sweep {\n  lr = [1e-6, 2e-6, 5e-6]\n  zip {\n    gbs = [128, 256]\n    micro = [16, 16]\n  }\n}\n"
    found = checked(text)
    assert len(found.members) == 6, shown(found)


# -- names and targets ------------------------------------------------------------------------------------------------


def test_bare_gpu_and_count():
    assert value(SENTENCE.replace("bf16", "4 x a100-80gb bf16 micro=11"), "hardware") == "4 x a100-80gb"
    assert value(SENTENCE.replace("bf16", "a100-80gb bf16 micro=11"), "hardware") == "1 x a100-80gb"
    assert value("train gpt2 on alpaca with cpu\n", "hardware") == "1 x cpu"
    assert value("train gpt2 on alpaca with 2 x cpu\n", "hardware") == "2 x cpu"


def test_offload_alone_means_cpu():
    assert value(spec(strategy="zero3 offload"), "strategy.offload") == "cpu"
    assert value(spec(strategy="zero3(offload=optimizer)"), "strategy.offload") == "optimizer"


@pytest.mark.parametrize(
    ("old", "name", "reshard"),
    [
        ("full_shard", "fsdp", True),
        ("shard_grad_op", "fsdp", False),
        ("no_shard", "ddp", None),
        ("hybrid_shard", "hsdp", True),
        ("hybrid_shard_zero2", "hsdp", False),
    ],
)
def test_old_strategy_names(old, name, reshard):
    found = checked(spec("nodes 2", strategy=old, batch="gbs=128 micro=8"))
    assert found.spec is not None, shown(found)
    assert found.spec.get("strategy") == name
    assert found.spec.get("strategy.reshard") is reshard
    assert found.spec.written("strategy")


def test_older_target():
    found = checked(spec("target trl-0.18"))
    assert found.spec is not None, shown(found)
    assert found.spec.stack.name == "trl-0.18"
    assert b"trl==0.18.0" in compiled(spec("target trl-0.18"))["requirements.txt"]


# -- extra ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "line", "code"),
    [
        ("trl", "learning_rate = 1e-5", "XP120"),
        ("trl", "gradient_accumulation_steps = 2", "XP120"),
        ("accelerate", "mixed_precision = bf16", "XP120"),
        ("deepspeed", "train_batch_size = 8", "XP120"),
        ("trl", "neftune_noise_alfa = 5", "XP121"),
        ("accelerate", "num_prcesses = 5", "XP121"),
        ("deepspeed", "nonsense = 5", "XP121"),
    ],
)
def test_extra_refuses(library, line, code):
    found = checked(spec(f"extra {library} {{\n  {line}\n}}"))
    assert errors(found) == [code], shown(found)
    one = only(found, code)
    assert one.help
    if line.startswith("neftune"):
        assert "neftune_noise_alpha" in one.help


def test_extra_is_passed_on():
    text = spec(
        f"extra trl {{\n  {NUMBER} = 5\n}}",
        "extra deepspeed {\n  wall_clock_breakdown\n  zero_optimization {\n    sub_group_size = 1M\n  }\n}",
    )
    files = compiled(text)
    assert f'"{NUMBER}": 5'.encode() in files["trainer_args.json"]
    assert b'"wall_clock_breakdown": true' in files["deepspeed.json"]
    assert b'"sub_group_size": 1000000' in files["deepspeed.json"]


def test_nested_extra_says_the_same_in_every_form():
    forms = ("zero_optimization {\n    sub_group_size = 1M\n  }", "zero_optimization(sub_group_size=1M)",
             "zero_optimization { sub_group_size = 1M }", "zero_optimization.sub_group_size = 1M")  # fmt: skip
    made = [compiled(spec(f"extra deepspeed {{\n  {form}\n}}"))["deepspeed.json"] for form in forms]
    assert b'"sub_group_size": 1000000' in made[0]
    assert made == made[:1] * 4


def test_owned_name_of_a_nested_call_gets_its_setting():
    found = only(checked(spec("extra deepspeed {\n  tensorboard(enabled=true)\n}")), "XP121")
    assert "`track=tensorboard`" in found.help


def test_extra_of_nothing_known():
    assert errors(checked(spec("extra axolotl {\n  a = 1\n}"))) == ["XP106"]


def test_nested_extra_of_an_owned_name():
    found = checked(spec("extra deepspeed {\n  zero_optimization {\n    stage = 3\n  }\n}"))
    assert errors(found) == ["XP120"], shown(found)


# -- suggestions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "intended"),
    [
        ("max_seq_length=2048", "seq"),
        ("learning_rate=1e-5", "lr"),
        ("per_device_train_batch_size=1", "micro"),
        ("gradient_accumulation_steps=2", "accum"),
        ("ligre", "liger"),
        ("zero_2", "zero2"),
        ("bfloat16", "bf16"),
        ("pakcing", "packing"),
    ],
)
def test_names_of_other_tools_are_understood(written, intended):
    found = checked(f"train qwen2.5-3b on infinity-instruct with {written}\n")
    one = only(found, "XP101")
    assert f"`{intended}`" in (one.help or ""), shown(found)


@pytest.mark.parametrize(
    ("method", "batch", "words"),
    [
        ("sft", "", "xpc takes seq=1024; longer rows are cut, and the run counts them"),
        ("sft", " packing", "xpc takes seq=1024; longer rows are cut, and the run counts them"),
        ("sft", " packing(strategy=bfd_split)", "xpc takes seq=1024; longer rows are split"),
        ("sft", " padding_free", "with `padding_free` the run cuts no row"),
        ("sft", " padding_free\ndata(max_tokens=1024)", None),
        ("reward", "", "xpc takes seq=1024; longer rows are dropped, and the run counts them"),
        ("orpo", "", "xpc takes seq=1024; longer rows are cut"),
        ("grpo(rewards=[accuracy])", "", None),
    ],
)
def test_assumed_length_is_reported(method, batch, words):
    """If a spec states no sequence length, a note says which length is assumed, and what happens to longer rows. There
    is no such note if no rows are longer, or if the method has no sequence length.
    """
    text = spec(f"method {method}", batch=f"gbs=128 micro=16{batch}").replace(" seq=1024", "")
    notes = [one for one in of(checked(text), "XP190") if "longest sequence" in one.message]
    assert [one.message for one in notes] == ([f"the spec states no longest sequence: {words}"] if words else []), (
        shown(checked(text))
    )
    stated = checked(text.replace("gbs=128", "seq=1024 gbs=128"))
    assert not [one for one in of(stated, "XP190") if "longest sequence" in one.message]
