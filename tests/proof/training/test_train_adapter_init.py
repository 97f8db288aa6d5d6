"""Compiled bundles train adapters with each kind of initialization (`lora(init = ...)`).

The tests check four things: the adapters' weights before the first step, the saved files, whether these files load on
the published base, and whether a resumed run is bit-identical.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve, frozen
from interpreters import OTHERS
from method_runs import Trained, Warm, each_once, small, tensors
from tiers import named

from xpc.compiler.stacks import DEFAULT
from xpc.runtime.core.errors import RunError
from xpc.runtime.features.model.adapter_init import initialize_from_weights

pytestmark = pytest.mark.slow

SHAPE = "rank=4, alpha=8, dropout=0, targets=[q_proj, v_proj, down_proj]"
RANK, SCALE = 4, 2


@frozen
class Kind:
    """One kind of run: how its adapters are initialized, its stack, and its strategy."""

    init: str
    target: str = DEFAULT
    strategy: str = "one"
    more: str = ""
    resumes = True

    @property
    def name(self) -> str:
        parts = (self.target, self.init, self.strategy, self.more)
        return "-".join(one for one in parts if one != DEFAULT and one).replace("=", "")

    @property
    def nightly(self) -> bool:
        """Whether only `make slow` trains this kind. This is so for three groups: all kinds on the stacks between the
        oldest and the default; `pissa` with ZeRO-2; and `olora` with ZeRO-3 or on the oldest stack, where it gathers
        and changes weights as `pissa` does.
        """
        as_pissa = self.init == "olora" and (self.strategy == "zero3" or self.target != DEFAULT)
        return self.target in OTHERS[1:] or as_pissa or (self.init, self.strategy) == ("pissa", "zero2")

    @property
    def text(self) -> str:
        begins = f", init={self.init}" if self.init else ""
        more = f", {self.more}" if self.more else ""
        return small(f"lora({SHAPE}{begins}{more})", method="sft", target=self.target, strategy=self.strategy,
                     save='save "out" every=2' + (" merge" if self.merges else ""))  # fmt: skip

    @property
    def world(self) -> int:
        return 1 if self.strategy == "one" else 2

    @property
    def merges(self) -> bool:
        """Whether the run merges its adapters into the base at the end. This needs all weights in one process, and
        weights that are not quantized.
        """
        return self.strategy != "zero3" and "bits" not in self.more


RUNS = (
    Kind("pissa"),
    Kind("pissa", more="init_iterations=8"),
    Kind("pissa", more="rslora, dora"),
    Kind("pissa", strategy="zero2"),
    Kind("pissa", strategy="zero3"),
    Kind("olora", strategy="zero3"),
    Kind("olora"),
    Kind("eva"),
    Kind("eva", strategy="ddp"),
    Kind("eva", more="bits=4"),
    Kind("gaussian"),
    *(Kind(init, other) for other in OTHERS for init in ("pissa", "olora", "eva")),
)
every = pytest.mark.parametrize("kind", named(RUNS))
Runs = Callable[[Kind], list[Trained]]


@pytest.fixture(scope="module")
def runs(ground: str, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A fixture: a function that returns the run of a kind, and the same run resumed from its first checkpoint."""
    return each_once(warm, tmp_path_factory)


BEGINNING = """
import json, os, sys, torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
out, base, rank, scale = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
tokenizer = AutoTokenizer.from_pretrained(out)
ids = torch.tensor([tokenizer("one two three four", add_special_tokens=False)["input_ids"]])
adapter = load_file(out + "/adapter_model.safetensors")
weights = load_file(base + "/model.safetensors")
top, orthonormal = 0.0, 0.0
for name, down in adapter.items():
    if ".lora_A." not in name:
        continue
    up = adapter[name.replace("lora_A", "lora_B")]
    weight = weights[name.removeprefix("base_model.model.").replace(".lora_A.", ".")]
    # What the initial adapter leaves of the weight, against what the best one of the rank leaves.
    u, s, v = torch.linalg.svd(weight.float(), full_matrices=False)
    part = -scale * up[:, rank:] @ down[rank:]
    top = max(top, (weight - part).norm().item() / s[rank:].norm().item() - 1)
    own = down[:rank]
    orthonormal = max(orthonormal, (own @ own.T - torch.eye(len(own))).abs().max().item())
with torch.no_grad():
    adapted = AutoPeftModelForCausalLM.from_pretrained(out).eval()
    one = two = adapted(ids).logits
    if os.path.isdir(out + "/merged"):
        two = AutoModelForCausalLM.from_pretrained(out + "/merged").eval()(ids).logits
    with adapted.disable_adapter():
        bare = adapted(ids).logits
    published = AutoModelForCausalLM.from_pretrained(base).eval()(ids).logits
print(json.dumps({"apart": (one - two).abs().max().item(), "moved": (one - bare).abs().max().item(),
                  "base": (bare - published).abs().max().item(), "top": top, "orthonormal": orthonormal}))
"""


@every
def test_it_begins_there_and_is_saved_for_the_published_base(runs: Runs, warm: Warm, ground: str, kind: Kind) -> None:
    changes = kind.init in ("pissa", "olora")
    done, again = runs(kind)
    usual = runs(Kind("", kind.target, more="bits=4" if "bits" in kind.more else ""))[0]
    # before training, the adapter changes no output
    assert done.values("loss")[0] == pytest.approx(usual.values("loss")[0], abs=2e-4)
    same = runs(evolve(kind, strategy="one"))[0]
    # sharding does not change the initial weights
    assert done.values("loss") == pytest.approx(same.values("loss"), abs=2e-4)
    if kind.init != "gaussian":
        assert f"adapters of 6 layers are initialized by {kind.init}" in done.output
    with open(os.path.join(done.out, "adapter_config.json"), encoding="utf-8") as handle:
        settings = json.load(handle)
    assert settings["r"] == (2 * RANK if changes else RANK)
    assert settings["init_lora_weights"] in (True, kind.init)
    scale = SCALE * 2 if "rslora" in kind.more else SCALE
    seen = warm.program(kind.target, BEGINNING, done.out, os.path.join(ground, "tiny"), str(RANK), str(scale))[0]
    assert seen["apart"] < 1e-4 < seen["moved"]
    assert seen["base"] == 0
    if kind.init == "pissa":
        assert seen["top"] < (0.02 if "iterations" in kind.more else 1e-4)
    if kind.init == "eva":
        assert seen["orthonormal"] < 0.1
    assert "resuming from checkpoint-2" in again.output
    assert "initialized" not in again.output
    was, now = (tensors(os.path.join(one.out, "adapter_model.safetensors")) for one in (done, again))
    assert was == now


def test_layers_begin_with_random_numbers_of_the_seed_and_are_as_wide_as_the_rank() -> None:
    import torch

    called: list[tuple[str, float]] = []

    class Layer:
        weight = torch.zeros(16, 8)

        def __init__(self) -> None:
            self.lora_A = {"default": torch.nn.Linear(8, 8)}

        def get_base_layer(self) -> Layer:
            return self

        def pissa_init(self, _: str, kind: str) -> None:
            called.append((kind, torch.rand(1).item()))

    torch.manual_seed(7)
    expected = torch.rand(1).item()
    plan = {"init": "pissa", "init_iterations": 4, "rank": 8}
    for seed in (7, 7, 8):
        initialize_from_weights(plan, {"q_proj": Layer()}, seed)
    assert called[:2] == [("pissa_niter_4", expected)] * 2
    assert called[2] != called[0]
    with pytest.raises(RunError, match="pissa finds only 8 directions in q_proj, fewer than the rank 9"):
        initialize_from_weights({**plan, "rank": 9}, {"q_proj": Layer()}, 7)


@pytest.mark.parametrize("init", ["pissa", "olora"])
def test_adapters_of_a_narrow_dtype_keep_it_and_the_model_begins_as_its_base(init: str) -> None:
    """Under ZeRO-3 in bf16, adapters are bf16 before they are initialized."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(32, 48)), LoraConfig(r=4, target_modules=["0"]))
    layer = model.base_model.model[0]
    whole = layer.get_base_layer().weight.data.clone()
    for matrix in (layer.lora_A, layer.lora_B):
        matrix.to(torch.bfloat16)
    initialize_from_weights({"init": init, "rank": 4}, {"0": layer}, 1)
    down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    assert (down.dtype, up.dtype) == (torch.bfloat16, torch.bfloat16)
    product = layer.scaling["default"] * up.float() @ down.float()
    assert product.abs().max() > 0.01
    assert torch.allclose(layer.get_base_layer().weight + product, whole, atol=1e-6)


def test_eva_needs_as_many_tokens_as_the_rank(warm: Warm, ground: str, tmp_path: Path) -> None:
    text = Kind("eva", more="init_rows=1").text.replace("rank=4", "rank=64").replace("down_proj", "o_proj")
    folder = warm.compiled(text, "few")
    answer = warm.of(DEFAULT).run(folder, str(tmp_path), world=1)
    assert answer["status"] != [0]
    assert (
        "the first 1 rows have fewer than 64 trained tokens, the rank of the adapters" in answer["out"] + answer["err"]
    )


def test_eva_reads_packed_rows(warm: Warm, tmp_path: Path) -> None:
    packed = Kind("eva").text.replace("seq=64", "seq=64 packing(isolate=mask, strategy=bfd)")
    done, again = warm.twice(packed, "packed", DEFAULT, str(tmp_path))
    assert "adapters of 6 layers are initialized by eva" in done.output
    assert done.values("loss") == again.values("loss")


ROUNDING = """
import json, sys, torch
from bitsandbytes.functional import dequantize_4bit
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
out, base, rank, scale = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, quantization_config=four), out)
weights, worst, gain, longer = load_file(base + "/model.safetensors"), 0.0, 1.0, 0.0
for name, layer in model.named_modules():
    if "default" not in (getattr(layer, "lora_A", None) or ()):
        continue
    rounded = dequantize_4bit(layer.weight.data, layer.weight.quant_state).float()
    lost = weights[name.removeprefix("base_model.model.") + ".weight"].float() - rounded
    part = scale * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    best = torch.linalg.svdvals(lost)[rank:].norm()
    worst = max(worst, ((lost - part).norm() / best - 1).item())
    gain = min(gain, 1 - (best / lost.norm()).item())
    for one in layer.lora_magnitude_vector.values():
        longer = max(longer, (one.weight / (rounded + part).norm(dim=1) - 1).abs().max().item())
print(json.dumps({"worst": worst, "gain": gain, "longer": longer}))
"""


def still(*more: str, **around: str) -> str:
    """A spec of a small run. Its learning rate is so low that the weights after four steps are still equal to the
    initial ones.
    """
    return small(*more, **around).replace("adamw(lr=1e-3)", "adamw(lr=1e-9)")


@pytest.mark.parametrize("more", ["", "dora", "ddp"])
def test_loftq_begins_with_what_the_rounding_took_away(warm: Warm, ground: str, tmp_path: Path, more: str) -> None:
    world = 2 if more == "ddp" else 1
    shape = f"{SHAPE}, init=loftq" + (", dora" if more == "dora" else "")
    text = still(f"qlora({shape})", method="sft", strategy="ddp" if world == 2 else "one",
                 save='save "out" every=2')  # fmt: skip
    done, again = warm.twice(text, f"loftq-{more}", DEFAULT, str(tmp_path), world)
    assert "adapters of 6 layers are initialized by loftq" in done.output
    assert "'load_in_4bit': True" in done.output.partition("\nuse ")[2]  # the adapter is wrong for a base of 16 bits
    seen = warm.program(DEFAULT, ROUNDING, done.out, os.path.join(ground, "tiny"), str(RANK), str(SCALE))[0]
    assert seen["worst"] < 1e-3 < seen["gain"]
    assert seen["longer"] < 1e-3
    assert "initialized" not in again.output
    was, now = (tensors(os.path.join(one.out, "adapter_model.safetensors")) for one in (done, again))
    assert was == now


def test_the_reference_of_dpo_begins_as_loftq_does(warm: Warm, tmp_path: Path) -> None:
    """In the first step, dpo's loss is ln 2, because the policy equals the frozen reference. This also holds for the
    first step of a resumed run. The reference is not saved.
    """
    text = still("method dpo", f"qlora({SHAPE}, init=loftq)", method="dpo", save='save "out" every=2')
    done, again = warm.twice(text, "loftq-dpo", DEFAULT, str(tmp_path), 1)
    assert done.values("loss") == pytest.approx([math.log(2)] * 4, abs=1e-4)
    assert again.values("loss") == pytest.approx([math.log(2)] * 4, abs=1e-4)
    assert not os.path.exists(os.path.join(done.out, "ref"))
