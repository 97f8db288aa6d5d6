"""`precision fp8` with torchao on a CPU: bundles train, save and resume. The tests look at the converted layers and at
the files.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import tiny
from float8 import MISSING, answers, on_a_cpu, run
from method_runs import tensors, types

from xpc.compiler.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

SPEC = """\
xpc 1
train "tiny" on "messages.jsonl" for 4 steps
hardware 1 x h100-80gb
strategy ddp
precision {precision}
batch gbs=8 micro=2 seq=64
optimizer adamw(lr=1e-3)
memory(checkpointing=false)
track none(every=1)
save "out" every=2
"""
MODEL = """\
import json, os
os.environ.update(ACCELERATE_FP8_BACKEND="AO", ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER="false")
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM
from torchao.float8.float8_linear import Float8Linear
def tiny(**sizes):
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**{**dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=256, tie_word_embeddings=False), **sizes}))
def made(model):
    return sorted(name for name, one in model.named_modules() if isinstance(one, Float8Linear))
"""
CONVERTED = """
model = tiny()
accelerator = Accelerator(mixed_precision="fp8", cpu=True)
import sys
sys.path.insert(0, sys.argv[1])
from trainer.features.model import float8
expected = sorted(float8.replaceable(model))
reference = accelerator.prepare_model(tiny(), evaluation_mode=True)
prepared = accelerator.prepare(model)
print(json.dumps({"expected": expected, "made": made(prepared), "reference": made(reference)}))
from types import SimpleNamespace
from trainer.core.errors import RunError
feature = float8.Float8()
def stops(layers, dtype):
    feature.layers = set(layers)
    bundle = SimpleNamespace(run={"distributed_type": "NO"}, model={"dtype": dtype})
    try:
        feature.before_first_step(bundle, SimpleNamespace(model=prepared))
    except RunError as error:
        return str(error)
    return ""
print(json.dumps({"same": stops(expected, "float32"), "fewer": stops(expected[1:], "float32"),
                  "wider": stops(expected, "bfloat16")}))
"""
ADAPTED = """
from peft import LoraConfig, get_peft_model
for rank in (8, 16):
    model = get_peft_model(tiny(), LoraConfig(r=rank, target_modules="all-linear"))
    names = made(Accelerator(mixed_precision="fp8", cpu=True).prepare(model))
    print(json.dumps({"rank": rank, "adapters": sum(".lora_" in name for name in names)}))
"""
UNFIT = """
for sizes in ({"hidden_size": 60, "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 120}, {}):
    print(json.dumps({"made": made(Accelerator(mixed_precision="fp8", cpu=True).prepare(tiny(**sizes)))}))
"""
SAVED = """
for gathers in ("true", "false"):
    os.environ["ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER"] = gathers
    model = Accelerator(mixed_precision="fp8", cpu=True).prepare(tiny())
    try:
        model.save_pretrained("saved")
        print(json.dumps({"saved": True}))
    except RuntimeError as error:
        print(json.dumps({"saved": False, "error": str(error)}))
"""
LOADED_ONCE = """
from accelerate import PartialState
from accelerate.utils import DistributedType
PartialState(cpu=True)
PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
from accelerate import FullyShardedDataParallelPlugin
import sys
plugin = FullyShardedDataParallelPlugin(fsdp_version=2, cpu_ram_efficient_loading=sys.argv[1] == "once")
try:
    Accelerator(mixed_precision="fp8", fsdp_plugin=plugin)
    print(json.dumps({"error": ""}))
except ValueError as error:
    print(json.dumps({"error": str(error)}))
"""
ZERO = """\
import json, os
os.environ.update(ACCELERATE_MIXED_PRECISION="fp8", ACCELERATE_FP8_BACKEND="AO", RANK="0", WORLD_SIZE="1",
                  LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
from transformers import TrainingArguments
for on in (True, False):
    stated = {"train_batch_size": 4, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1,
              "bf16": {"enabled": on}, "fp16": {"enabled": False}, "zero_optimization": {"stage": 2}}
    args = TrainingArguments(output_dir="out", deepspeed=stated, bf16=False, per_device_train_batch_size=4)
    print(json.dumps({"on": on, "wrong": args.hf_deepspeed_config.mismatches}))
"""
SHARDED = """
import sys
from accelerate import FullyShardedDataParallelPlugin, PartialState
from accelerate.utils import DistributedType
PartialState(cpu=True, backend="gloo")  # for a group of CPUs, accelerate drops FSDP
PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
os.environ["ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER"] = sys.argv[1]
os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = "Qwen2DecoderLayer"
plugin = FullyShardedDataParallelPlugin(fsdp_version=2, cpu_ram_efficient_loading=False,
                                        auto_wrap_policy="transformer_based_wrap")
accelerator = Accelerator(mixed_precision="fp8", fsdp_plugin=plugin)
model = tiny()
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
ids = torch.arange(64).reshape(2, 32) + 64 * accelerator.process_index
losses = []
for _ in range(4):
    loss = model(input_ids=ids, labels=ids).loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
if accelerator.is_main_process:
    print(json.dumps({"losses": losses, "layers": len(made(model)),
                      "kinds": sorted({type(one).__name__ for one in model.parameters()})}), flush=True)
accelerator.wait_for_everyone()
os._exit(0)  # see tests/faults/process_exit.py
"""
STEPS = re.compile(r"^step (\d+)/4 +loss ([\d.]+)", re.MULTILINE)


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fp8")
    tiny.build(str(folder / "tiny"))
    tiny.write_messages(str(folder / "messages.jsonl"), 64)
    return folder


def bundle(location: Path, name: str, precision: str) -> str:
    (location / f"{name}.xp").write_text(
        SPEC.format(precision=precision).replace('"out"', f'"{name}"'), encoding="utf-8"
    )
    out = str(location / f"{name}.bundle")
    assert main(["compile", str(location / f"{name}.xp"), "-o", out]) == 0
    on_a_cpu(out, {})
    return out


def losses(printed: str) -> list[float]:
    return [float(loss) for _, loss in STEPS.findall(printed)]


def test_a_bundle_trains_in_fp8_and_saves_plain_weights(location: Path) -> None:
    found = {}
    for precision in ("fp8", "bf16"):
        made = bundle(location, precision, precision)
        done = run(os.path.join(made, "trainer", "main.py"), cwd=str(location), XPC_PREFLIGHT="passed")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        found[precision] = losses(done.stdout)
        assert types(str(location / precision / "model.safetensors")) == {"F32"}
    assert len(found["fp8"]) == 4
    assert found["fp8"] != found["bf16"]
    assert found["fp8"] == pytest.approx(found["bf16"], rel=0.05)
    names = {kind: tensors(str(location / kind / "model.safetensors")).keys() for kind in found}
    assert names["fp8"] == names["bf16"]


@pytest.mark.nightly
def test_a_run_in_fp8_goes_on_as_it_would_have(location: Path) -> None:
    made = bundle(location, "again", "fp8")
    first = run(os.path.join(made, "trainer", "main.py"), cwd=str(location), XPC_PREFLIGHT="passed")
    assert first.returncode == 0, first.stdout[-2000:] + first.stderr[-3000:]
    whole = tensors(str(location / "again" / "model.safetensors"))
    shutil.rmtree(location / "again" / "checkpoint-4")
    for name in os.listdir(location / "again"):
        if name not in ("metrics.jsonl", "xpc_run.json", "checkpoint-2"):
            path = location / "again" / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = run(os.path.join(made, "trainer", "main.py"), cwd=str(location), XPC_PREFLIGHT="passed")
    assert again.returncode == 0, again.stdout[-2000:] + again.stderr[-3000:]
    assert tensors(str(location / "again" / "model.safetensors")) == whole


@pytest.mark.nightly
def test_a_run_stops_if_the_libraries_convert_nothing(location: Path) -> None:
    made = bundle(location, "idle", "fp8")
    module = os.path.join(made, "trainer", "features", "model", "float8.py")
    with open(module, encoding="utf-8") as handle:
        text = handle.read()
    stated = 'environ["ACCELERATE_MIXED_PRECISION"] = '
    changed = text.replace(f'{stated}"fp8"', f'{stated}"no"')
    assert changed != text
    with open(module, "w", encoding="utf-8") as handle:
        handle.write(changed)
    done = run(os.path.join(made, "trainer", "main.py"), cwd=str(location), XPC_PREFLIGHT="passed")
    assert done.returncode != 0
    assert "the mixed precision of accelerate is no, and the bundle states fp8" in done.stdout + done.stderr


def test_accelerate_converts_what_the_runtime_expects_and_no_reference(location: Path) -> None:
    made = bundle(location, "expected", "fp8")
    found, stopped = answers(MODEL + CONVERTED, str(location), made)
    assert found["made"] == found["expected"]
    # The model has 15 linear layers: seven in each of its two decoder layers, and the head. accelerate does not convert
    # the first of these layers and the head.
    assert len(found["made"]) == 13
    assert not [name for name in found["made"] if name.endswith(("lm_head", "layers.0.self_attn.q_proj"))]
    assert found["reference"] == []
    assert stopped["same"] == ""
    assert "13 layers compute in fp8, and the bundle states 12" in stopped["fewer"]
    assert "are float32, and the bundle states bfloat16" in stopped["wider"]


@pytest.mark.nightly
def test_matrices_of_adapters_are_converted_by_their_rank(location: Path) -> None:
    low, high = answers(MODEL + ADAPTED, str(location))
    assert low["adapters"] == 0
    assert high["adapters"] > 0


@pytest.mark.nightly
def test_layers_of_other_sizes_are_not_converted(location: Path) -> None:
    unfit, fit = answers(MODEL + UNFIT, str(location))
    assert unfit["made"] == []
    assert fit["made"]


@pytest.mark.nightly
def test_weights_that_are_gathered_in_fp8_are_saved_only_under_fsdp(location: Path) -> None:
    gathered, plain = answers(MODEL + SAVED, str(location))
    assert (gathered["saved"], plain["saved"]) == (False, True)
    assert "storage" in gathered["error"]


@pytest.mark.nightly
def test_two_processes_train_as_one(location: Path) -> None:
    found = []
    for processes in (1, 2):
        text = SPEC.format(precision="fp8").replace("1 x h100", f"{processes} x h100")
        name = f"processes-{processes}"
        (location / f"{name}.xp").write_text(text.replace('"out"', f'"{name}"'), encoding="utf-8")
        made = str(location / f"{name}.bundle")
        assert main(["compile", str(location / f"{name}.xp"), "-o", made]) == 0
        on_a_cpu(made, {"ddp_backend": "gloo"} if processes > 1 else {}, processes)
        done = run(os.path.join(made, "trainer", "main.py"), cwd=str(location), processes=processes,
                   XPC_PREFLIGHT="passed")  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        found.append(losses(done.stdout))
    assert len(found[0]) == 4
    assert found[1] == pytest.approx(found[0], rel=0.02)


@pytest.mark.nightly
@pytest.mark.parametrize("gathered", ["true", "false"])
def test_two_processes_train_shards_in_fp8(location: Path, gathered: str) -> None:
    (done,) = answers(MODEL + SHARDED, str(location), gathered, processes=2)
    assert (done["layers"], done["kinds"]) == (13, ["DTensor"])
    assert done["losses"] == sorted(done["losses"], reverse=True)
    assert done["losses"][3] < done["losses"][0]


@pytest.mark.nightly
def test_fsdp_does_not_load_in_one_process(location: Path) -> None:
    (once,) = answers(MODEL + LOADED_ONCE, str(location), "once")
    assert "cpu_ram_efficient_loading is not supported" in once["error"]
    (everywhere,) = answers(MODEL + LOADED_ONCE, str(location), "everywhere")
    assert everywhere["error"] == ""


@pytest.mark.nightly
def test_transformers_wants_no_bf16_of_deepspeed(location: Path) -> None:
    on, off = answers(ZERO, str(location))
    assert "bf16.enabled=True" in on["wrong"][0]
    assert off["wrong"] == []
