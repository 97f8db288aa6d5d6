"""Adapters and the settings of single methods: which settings, arguments under `extra` and row shapes are accepted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from case_support import data, spec, trained
from compile_support import CONFIG, REPOSITORY, checked, codes, compiled, errors, only, put, shown, value
from extra_arguments import DPO_NUMBER, GRPO_NUMBER, SFT_TEXT
from method_support import ON, PAIRS, PROMPTS, arguments, of, plan, some

from xpc.compiler.data.shapes import SHAPES
from xpc.compiler.language.kinds import Amount, Weighted
from xpc.compiler.language.methods import METHODS
from xpc.compiler.lower.manifest import requirements
from xpc.compiler.plan.experiment import plan as planned
from xpc.compiler.stacks import load, names

# -- adapters ---------------------------------------------------------------------------------------------------------


def test_requirements_name_peft_where_a_run_has_an_adapter() -> None:
    assert "peft==0.21.2" in compiled(spec("lora"))["requirements.txt"].decode().splitlines()
    assert "peft" not in compiled(spec())["requirements.txt"].decode()


@pytest.mark.parametrize(
    ("adapter", "precision", "strategy", "target", "stated"),
    [
        ("qlora", "fp32", "ddp", "trl-1.16", "float32"),
        ("qlora", "fp16", "ddp", "trl-1.16", "float32"),
        ("lora(bits=8)", "fp16", "zero2", "trl-1.16", "float32"),
        ("qlora", "bf16", "ddp", "trl-1.16", "bfloat16"),
        ("qlora\nmodel(dtype=bf16)", "fp32", "ddp", "trl-1.16", "bfloat16"),
        ("qlora\nmodel(dtype=bf16)", "fp32", "ddp", "trl-0.24", "float32"),
        ("qlora", "bf16", "ddp", "trl-0.18", "float32"),
        # FSDP2 needs the same dtype for all trained weights, but trl 1.16 keeps DoRA's magnitudes in float32
        ("qlora(dora)", "bf16", "fsdp", "trl-1.16", "float32"),
        ("qlora", "bf16", "fsdp", "trl-1.16", "bfloat16"),
        ("qlora(dora)", "bf16", "zero2", "trl-1.16", "bfloat16"),
        ("lora", "bf16", "zero2", "trl-1.16", "float32"),
        # under ZeRO-3, DeepSpeed loads the base in the dtype of `precision`, and trl 1.16 takes this dtype for the
        # adapters, too
        ("lora", "bf16", "zero3", "trl-1.16", "bfloat16"),
        ("lora\nmodel(dtype=bf16)", "bf16", "zero3", "trl-1.16", "bfloat16"),
        ("lora\nmodel(dtype=bf16)", "bf16", "zero3", "trl-0.18", "float32"),
    ],
)
def test_the_type_of_adapters_is_stated(adapter: str, precision: str, strategy: str, target: str, stated: str) -> None:
    found = plan(adapter, target=target, precision=precision, strategy=strategy)
    assert found["lora"]["adapter_dtype"] == stated


def test_qlora_is_four_bits_and_loads_what_it_computes_in() -> None:
    found = plan("qlora(rank=128)", strategy="ddp")
    assert some(found["lora"], "rank", "bits", "storage_dtype") == {"rank": 128, "bits": 4, "storage_dtype": "uint8"}
    assert found["model"]["dtype"] == "bfloat16"
    assert plan("qlora", strategy="zero3")["lora"]["storage_dtype"] == "bfloat16"
    assert plan("qlora", strategy="fsdp")["lora"]["storage_dtype"] == "bfloat16"
    assert plan("lora(bits=8)")["lora"]["bits"] == 8
    requirements = compiled(spec("qlora"))["requirements.txt"].decode()
    assert "bitsandbytes==" in requirements


@pytest.mark.parametrize("method", METHODS)
def test_every_method_accepts_an_adapter(method: str) -> None:
    found = plan(of(method), "lora(rank=4)", train=ON[method])
    assert (found["method"]["name"], found["lora"]["rank"]) == (method, 4)


@pytest.mark.parametrize(("method", "dropout"), [("sft", 0.05), ("dpo", 0.05), ("grpo", 0.0), ("rloo", 0.0)])
def test_importance_ratios_have_no_dropout_by_default(method: str, dropout: float) -> None:
    for adapter, expected in (("lora", dropout), ("qlora", dropout), ("lora(dropout=0.1)", 0.1)):
        found = plan(of(method), adapter, strategy="ddp", train=ON[method])
        assert found["lora"]["dropout"] == expected


def test_a_second_adapter_is_refused(tmp_path: Path) -> None:
    assert errors(checked(spec("lora", "qlora"))) == ["XP103"]
    assert errors(checked(spec("lora(bits=5)"))) == ["XP107"]
    root = put(tmp_path, {"base.xp": "lora(rank=8)\n"})
    child = spec("qlora(alpha=16)").replace("xpc 1\n", 'xpc 1\nextends "base.xp"\n')
    got = json.loads(compiled(child, root)["trainer_args.json"])["lora"]
    assert some(got, "rank", "alpha", "bits") == {"rank": 8, "alpha": 16, "bits": 4}
    off = spec("lora false").replace("xpc 1\n", 'xpc 1\nextends "base.xp"\n')
    assert json.loads(compiled(off, root)["trainer_args.json"])["lora"] is None
    # settings of adapters that are switched off have no effect
    assert json.loads(compiled(spec("lora false { init = pissa }"))["trainer_args.json"])["lora"] is None


def test_an_adapter_leaves_room_for_a_larger_micro_batch() -> None:
    def micro(*lines: str) -> int:
        text = "xpc 1\ntrain qwen2.5-3b on infinity-instruct for 1 epochs\nhardware 1 x h100-80gb\nbatch gbs=128\n"
        text += "memory(checkpointing)\n"
        found = value(text + "".join(f"{line}\n" for line in lines), "batch.micro")
        assert isinstance(found, int)
        return found

    assert micro() <= micro("lora") <= micro("qlora")
    assert micro() < micro("qlora")


# -- settings of other methods, and the escape ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "lines"),
    [
        ("sft", "method(generations=8)"),
        ("sft", "method(beta=0.1)"),
        ("dpo", "batch(packing)"),
        ("dpo", "method(temperature=1)"),
        ("orpo", "method(loss=sigmoid)"),
        ("orpo", "memory(offload_activations)"),
        ("kto", "method(label_smoothing=0.1)"),
        ("reward", "method(beta=0.1)"),
        ("grpo", "method(assistant_only)"),
        ("rloo", "method(scale_rewards=group)"),
    ],
)
def test_a_setting_of_another_method_is_refused(method: str, lines: str) -> None:
    found = checked(spec(of(method), lines, train=ON[method]))
    assert errors(found) == ["XP126"], shown(found)
    off = lines.replace("packing", "packing=false").replace("assistant_only", "assistant_only=false")
    if off != lines:
        assert not errors(checked(spec(of(method), off, train=ON[method])))


def test_the_escape_has_the_names_of_the_methods_class() -> None:
    def extra(method: str, line: str) -> list[str]:
        return errors(checked(spec(of(method), "extra trl {", f"  {line}", "}", train=ON[method])))

    assert extra("dpo", f"{DPO_NUMBER} = 4") == []
    assert extra("sft", f"{DPO_NUMBER} = 4") == ["XP121"]
    assert extra("dpo", f"{SFT_TEXT} = text") == ["XP121"]
    assert extra("dpo", "beta = 0.1") == ["XP120"]
    assert extra("sft", "beta = 0.1") == ["XP121"]
    assert extra("grpo", f"{GRPO_NUMBER} = 4") == []
    assert extra("grpo", "num_generations = 4") == ["XP120"]
    assert arguments("method dpo", "extra trl {", f"  {DPO_NUMBER} = 4", "}", train=PAIRS)[DPO_NUMBER] == 4


# -- data -------------------------------------------------------------------------------------------------------------

PREFERENCE = '{"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}\n'
JUDGED = '{"prompt": "2 + 2?", "completion": "4", "label": true}\n'


@pytest.mark.parametrize(
    ("method", "row", "shape"),
    [
        ("dpo", PREFERENCE, "preference"),
        ("orpo", '{"chosen": "2 + 2? 4", "rejected": "2 + 2? 5"}\n', "preference"),
        ("kto", JUDGED, "unpaired"),
        ("kto", PREFERENCE, "preference"),
        ("reward", PREFERENCE, "preference"),
        ("grpo", '{"prompt": "2 + 2?", "solution": "4"}\n', "prompt"),
        ("rloo", '{"prompt": "2 + 2?", "completion": "4"}\n', "prompt"),
        ("sft", JUDGED, "prompt_completion"),
    ],
)
def test_the_shape_of_a_file_is_the_one_that_the_method_reads(
    method: str, row: str, shape: str, tmp_path: Path
) -> None:
    root = put(tmp_path, {"rows.jsonl": row * 100})
    found = plan(of(method), root=root, train=trained('qwen2.5-3b on "rows.jsonl"'))
    assert [source["shape"] for source in found["data"]["sources"]] == [shape]


def test_a_hub_dataset_has_the_usual_shape_of_the_method() -> None:
    for method, shapes in ((name, one.shapes) for name, one in METHODS.items()):
        found = checked(spec(of(method), train=trained("qwen2.5-3b on org/rows")))
        assert "XP111" in codes(found), shown(found)
        assert found.spec is not None, shown(found)
        assert found.spec.data[0].shape == shapes[0]


def test_a_prompt_column_is_named_or_found() -> None:
    def source(*lines: str, **around: str) -> dict[str, Any]:
        return dict(plan(*lines, **around)["data"]["sources"][0])

    requested = source("method grpo(rewards=format)", "data(prompt=question)", train=trained("qwen2.5-3b on gsm8k"))
    assert some(requested, "shape", "columns") == {"shape": "prompt", "columns": ["question"]}
    pairs = source("method dpo", "data(prompt=instruction)", train=PAIRS)
    assert pairs["columns"] == ["instruction", "chosen", "rejected"]
    both = source("method dpo", "data(prompt=ask, columns=[good, bad])", train=trained("qwen2.5-3b on org/rows"))
    assert both["columns"] == ["ask", "good", "bad"]
    named = data("org/rows {", "  columns = [good, bad]", "}", "prompt = ask", name="mix")
    assert source("method dpo", named, train=trained("qwen2.5-3b on mix"))["columns"] == ["good", "bad"]
    without = "data(format=prompt_completion, prompt=ask, columns=[x, y])"
    assert "XP124" in errors(checked(spec(without, train=trained("qwen2.5-3b on org/rows"))))
    kept = source("method sft", "data(prompt=question)", train=trained("qwen2.5-3b on alpaca"))
    assert kept["columns"][0] == "question"
    assert errors(checked(spec("data(prompt=question)"))) == ["XP124"]
    named = data("org/rows {", "  columns = [problem, solution]", "}", "format = prompt", name="mix")
    mix = source("method grpo(rewards=format)", named, train=trained("qwen2.5-3b on mix"))
    assert mix["columns"] == ["problem", "solution"]


def test_data_of_another_method_is_refused() -> None:
    for method, train in (("dpo", ON["sft"]), ("grpo", PAIRS), ("sft", PROMPTS), ("reward", PROMPTS)):
        found = checked(spec(of(method), train=train))
        assert errors(found) == ["XP503"], shown(found)
    help = only(checked(spec("method grpo(rewards=format)", train=trained("qwen2.5-3b on gsm8k"))), "XP503").help
    assert help is not None
    assert "data(prompt=question)" in help
    assert {shape for one in METHODS.values() for shape in one.shapes} == set(SHAPES)


def test_values_of_the_spec_have_their_types() -> None:
    found = checked(spec("method dpo(loss=[sigmoid(weight=0.5), sft])", "qlora(bits=8)", train=PAIRS))
    one = found.spec
    assert one is not None, shown(found)
    assert (one.config, one.lora, one.bits, one.online) == ("trl.DPOConfig", True, 8, False)
    assert one.weighted("method.loss") == (Weighted("sigmoid", 0.5), Weighted("sft"))
    assert "f_divergence_type" in one.fields()
    assert value(
        spec("method grpo(rewards=format, vllm(gpu_memory=70%))", train=PROMPTS), "method.vllm.gpu_memory"
    ) == Amount("share", 0.7)


@pytest.mark.slow
def test_plain_sft_loads_nothing_of_the_methods() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests/support'); from compile_support import checked, SEED; checked(SEED); "
        "print([m for m in sys.modules if m in ('xpc.compiler.resolve.method_settings', "
        "'xpc.compiler.resolve.derive_method', "
        "'xpc.compiler.rules.method.support', 'xpc.compiler.language.convert_methods')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("teacher", "help"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "for a model of the hub, write `Qwen/Qwen2.5-7B-Instruct` without quotes"),
        ("no-such-folder", "name an existing folder"),
        ("adapter", "a teacher is a complete model"),
    ],
)
def test_a_teacher_that_is_not_there_is_named_otherwise(tmp_path, teacher, help):
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    found = checked(spec(f'method distill(teacher="{teacher}")', train=ON["distill"]), str(tmp_path))
    reported = [one.help for one in found.problems if one.code == "XP118"]
    assert [one.startswith(help) and "config =" not in one for one in reported] == [True]


@pytest.mark.parametrize(
    ("method", "target", "seq", "limit"),
    [
        ("orpo", "trl-0.18", 1024, 512),
        ("orpo", "trl-0.18", 512, 256),
        ("orpo", "trl-0.24", 28, 14),
        ("kto", "trl-0.24", 28, 14),
        ("dpo", "trl-0.24", 28, 512),
        ("orpo", "trl-1.16", 28, None),
    ],
)
def test_a_default_of_the_longest_prompt_leaves_room_for_answers(
    method: str, target: str, seq: int, limit: int | None
) -> None:
    batch = f"gbs=128 micro=4 seq={seq}"
    found = checked(spec(f"method {method}", f"target {target}", train=PAIRS, batch=batch, strategy="zero1"))
    assert found.spec is not None
    assert found.spec.get("method.max_prompt") == limit


@pytest.mark.parametrize("target", names())
@pytest.mark.parametrize(
    ("model", "attn"),
    [("bigscience/bloom-560m", "eager"), ("mosaicml/mpt-7b", "eager"), ("state-spaces/mamba-130m-hf", "eager"),
     ("openai/gpt-oss-safeguard-20b", "eager"), ("someone/my-bloom-7b", "eager"), ("someone/model", "sdpa"),
     ("Qwen/Qwen2-0.5B", "sdpa")],
)  # fmt: skip
def test_attention_that_is_not_written_is_what_the_family_has(model: str, attn: str, target: str) -> None:
    dtype = ["model(dtype=bf16)"] if "gpt-oss" in model else []  # XP168
    text = spec(f"target {target}", *dtype, train=trained(f"{model} on alpaca"), batch="gbs=128 micro=8 seq=512",
                strategy="zero1")  # fmt: skip
    found = checked(text)
    assert "XP315" not in codes(found)
    stack = load(target)
    assert stack is not None
    older = "gpt-oss" in model and stack.lacks_family("gpt_oss")  # transformers 4.52
    if older:
        assert "XP342" in codes(found)
        return
    assert found.spec is not None
    assert found.spec.get("model.attn") == attn
    # a student and its teacher have the same attention
    taught = spec(f"method distill(teacher={model}, max_completion=64)", f"target {target}", *dtype, strategy="zero1",
                  train="someone/student on someone/questions for 9 steps", batch="gbs=128 micro=8")  # fmt: skip
    found = checked(taught)
    assert found.spec is not None
    assert found.spec.get("model.attn") == attn


@pytest.mark.parametrize("adapter", ["lora", "oft"])
@pytest.mark.parametrize(("stored", "bits"), [({}, 4), ({"load_in_4bit": True}, 4), ({"load_in_8bit": True}, 8)])
def test_a_checkpoint_of_bitsandbytes_has_its_stored_bits(
    stored: dict[str, bool], bits: int, adapter: str, tmp_path: Path
) -> None:
    """The bundle then requires bitsandbytes, and the plan and the adapters' dtype are those of a quantized base."""
    put(tmp_path, {"config.json": json.dumps({**CONFIG, "quantization_config": stored})})
    more = 'model(config=file("config.json"))' if stored else ""
    model = "unsloth/Llama-3.2-1B-Instruct" + ("" if stored else "-bnb-4bit")
    text = spec(adapter, more, train=f"{model} on someone/questions for 9 steps", batch="gbs=128 micro=8")
    found = checked(text, str(tmp_path)).spec
    assert found is not None
    assert (found.bits, "bitsandbytes==" in requirements(found)) == (bits, True)
    assert planned(found).verdict == ("fits" if stored else "unknown")  # without config.json, the size is unknown
    # the bundle also requires bitsandbytes to load a teacher that is stored quantized
    put(tmp_path, {"teacher/config.json": json.dumps({**CONFIG, "vocab_size": 151936, "quantization_config": stored})})
    teacher = '"teacher"' if stored else model
    method = f"method distill(teacher={teacher}, max_completion=64, max_prompt=64)"
    found = checked(spec(method, train=ON["distill"]), str(tmp_path)).spec
    assert found is not None
    assert (found.bits, "bitsandbytes==" in requirements(found)) == (None, True)


@pytest.mark.parametrize(
    ("more", "noted"),
    [
        ("lora", True),
        ("lora strategy=fsdp", True),
        ("oft", True),
        ("lora model(dtype=bf16)", False),
        ("lora model(dtype=fp32)", False),
        ("lora fp32", False),
        # no note about an assumed dtype: under ZeRO-3, DeepSpeed loads the base in the dtype of `precision`
        ("lora strategy=zero3", False),
        ("qlora", False),
        ("lora(bits=8)", False),
        ("bf16", False),
        ("lora hardware=cpu", False),
    ],
)
def test_a_frozen_base_without_a_dtype_is_noted_with_its_proposal(more, noted):
    text = f"train qwen2.5-3b on deita-10k with gbs=64 micro=1 {more}\n"
    found = [one for one in checked(text).problems if "frozen base" in one.message]
    assert bool(found) is noted
    assert all("`model(dtype=bf16)`" in (one.help or "") for one in found)
