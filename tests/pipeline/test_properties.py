"""Properties that hold for all generated inputs: batch sizes are divisible, texts and numbers appear unchanged in the
bundle's files, and no exception is raised.
"""

import json

import fuzz
import pytest
from case_support import spec
from compile_support import NOWHERE, checked, compiled, errors, value
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xpc.compiler import registry

pytestmark = pytest.mark.slow

SMALL = "qwen2.5-0.5b on infinity-instruct for 1 epochs"
QUICK = settings(max_examples=60)


@QUICK
@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
def test_gbs_is_micro_times_accumulation_times_world(micro, accum, world):
    batch = f"gbs={micro * accum * world} micro={micro} seq=128"
    text = spec(train=SMALL, hardware=f"{world} x h100-80gb", strategy="ddp", batch=batch)
    assert value(text, "batch.accum") == accum
    arguments = json.loads(compiled(text)["trainer_args.json"])
    run = arguments["run"]
    assert run["gbs"] == run["micro"] * run["accumulation"] * run["world_size"]
    assert arguments["arguments"]["gradient_accumulation_steps"] == accum


@QUICK
@given(st.integers(1, 4096), st.integers(1, 512), st.integers(1, 16))
def test_a_batch_that_does_not_divide_is_always_found(gbs, micro, world):
    found = checked(spec(hardware=f"{world} x h100-80gb", strategy="ddp", batch=f"gbs={gbs} micro={micro}"))
    assert ("XP201" in errors(found)) is (gbs % (micro * world) != 0)


@QUICK
@given(st.integers(1, 4096), st.integers(1, 16))
def test_a_chosen_micro_batch_always_divides(gbs, world):
    found = checked(spec(hardware=f"{world} x a100-80gb", batch=f"gbs={gbs}"))
    if gbs % world:
        assert errors(found) == ["XP201"]
    else:
        assert found.spec is not None
        micro, accum = found.spec.integer("batch.micro"), found.spec.integer("batch.accum")
        assert micro * accum * world == gbs


@QUICK
@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=60).filter(str.strip))
@example("~")
def test_any_text_comes_back_from_every_file(text):
    written = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    found = checked(spec(f"track tensorboard(name={written})", save=f"save {written}"))
    if found.spec is None:
        # Some texts are refused by rules: bidirectional control characters, line separators, a leading `~`, and hidden
        # folders.
        assert set(errors(found)) <= {"XP001", "XP002", "XP003", "XP706"}
        return
    files = compiled(spec(f"track tensorboard(name={written})", save=f"save {written}"))
    arguments = json.loads(files["trainer_args.json"])["arguments"]
    assert (arguments["run_name"], arguments["output_dir"]) == (text, text)
    assert compiled(files["spec.xp"])["trainer_args.json"] == files["trainer_args.json"]


@QUICK
@example(1.0, 1.0)
@example(1 - 2**-53, 1.0)
@given(st.floats(0, 1, exclude_min=True), st.floats(1e-12, 1))
def test_numbers_come_back_as_they_were_written(share, rate):
    text = spec(f"optimizer adamw(lr={rate!r})", f"schedule cosine(warmup={share * 100!r}%)")
    files = compiled(text)
    arguments = json.loads(files["trainer_args.json"])["arguments"]
    assert arguments["learning_rate"] == rate
    # transformers reads 1 as one step, so a warm-up of 100% is written as 1 - 1e-9
    assert arguments["warmup_steps"] < 1
    assert arguments["warmup_steps"] == pytest.approx(share, abs=2e-9)
    assert json.loads(compiled(files["spec.xp"])["trainer_args.json"])["arguments"]["learning_rate"] == rate


@QUICK
@given(st.binary(max_size=300))
def test_bytes_are_never_an_exception(data):
    fuzz.examine(data)


@QUICK
@given(st.randoms(use_true_random=False))
def test_generated_specs_keep_every_promise(random):
    fuzz.examine(fuzz.one_input(random, fuzz.corpus(), registry.model_names(), registry.dataset_names()))


def test_the_same_input_gives_the_same_bytes():
    for text in (spec(), spec(strategy="fsdp"), spec("target trl-0.18")):
        assert compiled(text, NOWHERE) == compiled(text, NOWHERE + "/elsewhere")
