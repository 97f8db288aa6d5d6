"""Compiled bundles train four kinds of runs: adapters next to fully trained modules, adapters with two learning rates,
OFT's rotations, and a model with frozen layers.

Each kind of run resumes from a checkpoint. Runs have one process or two, on all stacks.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from attrs import frozen
from interpreters import OTHERS, sharded
from method_runs import STEPS, Trained, Warm, each_once, finite, small, tensors
from tiers import FIRST_AND_LAST, named, nightly_but

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

KINDS = {
    "tokens": 'model(tokens=["<|think|>", "<|/think|>"], eos="<|/think|>")',
    "saved": "lora(rank=4, alpha=8, dropout=0, lr_ratio=16, modules_to_save=[embed_tokens, lm_head])",
    "tied": "lora(rank=4, dropout=0, targets=[q_proj, embed_tokens])",
    "tied_saved": "lora(rank=4, dropout=0, targets=[q_proj], modules_to_save=[lm_head])",
    "dora": "lora(rank=4, dropout=0, rslora, dora)",
    "parameters": "lora(dropout=0, targets=[q_proj], parameters=[experts.gate_up_proj, experts.down_proj])",
    # `Kind.text` uses adamw_torch for this kind, because the parameter group without weight decay is empty
    "other": "lora(rank=4, alpha=8, dropout=0)",
    "oft": "oft(block_size=8)",
    "vera": "vera(rank=16)",
    "loha": "loha(rank=4, alpha=32)",
    # the layers' numbers of inputs are not multiples of this rank, so MiSS must pad
    "miss": "miss(rank=6)",
    "freeze": 'freeze(except_last=1, except_modules=[norm], except_parameters=["^lm_head.weight$"])',
}


@frozen
class Kind:
    """One kind of run: the trained weights (`what`), the stack and the strategy."""

    what: str
    target: str = DEFAULT
    strategy: str = "one"

    @property
    def name(self) -> str:
        return "-".join(["" if self.target == DEFAULT else self.target, self.what, self.strategy]).lstrip("-")

    @property
    def world(self) -> int:
        return 1 if self.strategy == "one" else 2

    @property
    def nightly(self) -> bool:
        """Whether only `make slow` trains this kind.

        On the default stack, this is so for adapters in two processes if the kinds `saved` and `tokens` test the same
        sharding. On OTHERS[0], it is so for kinds whose training does not depend on the stack, for all variants of LoRA
        (test_train_methods.py trains LoRA there), and for all other adapters except VeRA. On the remaining stacks, it
        is so for every kind.
        """
        if self.target == DEFAULT:
            return self.world == 2 and self.what in ("vera", "miss", "loha", "oft", "tied")
        return not (self.target == OTHERS[0] and self.what in ("tokens", "vera"))

    @property
    def resumes(self) -> bool:
        """Whether the run is also resumed from its first checkpoint. Of the runs in `make test` with the same trained
        weights and stack, only the most sharded run is resumed. The runs that only `make slow` trains are chosen in the
        same way.
        """
        same = [one for one in RUNS if (one.what, one.target, one.nightly) == (self.what, self.target, self.nightly)]
        return self.strategy == max(one.strategy for one in same)

    @property
    def merges(self) -> bool:
        """Whether the run merges adapters into the base at the end: it has adapters, and each process has all weights
        of the base.
        """
        return self.what not in ("tokens", "freeze") and self.strategy != "zero3"

    @property
    def text(self) -> str:
        made = small(KINDS[self.what], method="sft", target=self.target, strategy=self.strategy,
                     save='save "out" every=2' + (" merge" if self.merges else ""))  # fmt: skip
        if self.what == "other":
            made = made.replace("optimizer adamw", "optimizer adamw_torch")
        if self.what in ("tied", "tied_saved"):
            return made
        return made.replace('"tiny"', '"experts"' if self.what == "parameters" else '"untied"')


PREFIXES = {"vera": ".vera_", "loha": ".hada_", "miss": ".miss_block"}
"""Maps kinds of adapters to a text that the names of their weights contain."""
RUNS = (
    *(Kind(what, target) for what in PREFIXES for target in (DEFAULT, *OTHERS)),
    *(Kind(what, DEFAULT, "zero3") for what in ("vera", "miss")),
    Kind("vera", DEFAULT, "zero1"),
    Kind("loha", DEFAULT, "zero2"),
    *(Kind(what, DEFAULT, strategy) for what in ("saved", "oft", "freeze") for strategy in ("one", "zero2")),
    Kind("dora"),
    *(Kind(what, target) for what in ("tied", "tied_saved") for target in (DEFAULT, *OTHERS)),
    Kind("tied", DEFAULT, "zero2"),
    Kind("tokens"),
    Kind("tokens", DEFAULT, "zero3"),
    Kind("parameters"),
    Kind("saved", DEFAULT, "zero3"),
    Kind("freeze", DEFAULT, "zero3"),
    *(Kind(what, other, sharded(other, "zero2")) for other in OTHERS for what in ("saved", "oft", "freeze", "other")),
    *(Kind(what, other, "zero3") for other in OTHERS for what in ("saved", "tokens")),
    *(Kind("dora", other) for other in OTHERS),
)
EXPERTS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tiny_models
print(json.dumps({"folder": tiny_models.model("qwen3_moe")}))
"""


def of(runs: Iterable[Kind]) -> pytest.MarkDecorator:
    """Return a pytest decorator. The decorated test runs once for each of the given kinds."""
    return pytest.mark.parametrize("kind", named(runs))


every = of(RUNS)
Runs = Callable[[Kind], list[Trained]]


@pytest.fixture(scope="module")
def runs(ground: str, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Like the fixture `each_once`, with two more base models: a model with an untied head and a mixture of experts."""
    from safetensors.numpy import load_file, save_file

    experts = os.path.join(ground, "experts")
    (made,) = warm.program(DEFAULT, EXPERTS, str(Path(__file__).parents[1]))
    shutil.copytree(made["folder"], experts)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if os.path.exists(os.path.join(ground, "tiny", name)):
            shutil.copy2(os.path.join(ground, "tiny", name), experts)

    untied = os.path.join(ground, "untied")
    shutil.copytree(os.path.join(ground, "tiny"), untied)
    weights = load_file(os.path.join(untied, "model.safetensors"))
    tokenizer = os.path.join(untied, "tokenizer.json")
    with open(tokenizer, encoding="utf-8") as handle:
        size = len(json.load(handle)["model"]["vocab"])
    # the saved embeddings have one row per token of the tokenizer; the model's unused rows are gone
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"][:size].copy()
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
    save_file(weights, os.path.join(untied, "model.safetensors"), {"format": "pt"})
    path = os.path.join(untied, "config.json")
    with open(path, encoding="utf-8") as handle:
        settings = json.load(handle)
    with open(path, "w", encoding="utf-8") as handle:
        json.dump({**settings, "tie_word_embeddings": False, "vocab_size": size}, handle)
    return each_once(warm, tmp_path_factory)


def weights_of(run: Trained) -> dict[str, bytes]:
    """The weights that a run has saved: the complete model, or its adapters."""
    names = ("model.safetensors", "adapter_model.safetensors")
    return tensors(next(path for name in names if os.path.exists(path := os.path.join(run.out, name))))


@every
def test_it_trains_and_goes_on_to_the_same_end(runs: Runs, kind: Kind) -> None:
    done, *resumed = runs(kind)
    losses = done.values("loss")
    assert [event["step"] for event in done.events] == list(range(1, STEPS + 1))
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0]
    assert min(done.values("grad_norm")) > 0
    for again in resumed:
        assert "resuming from checkpoint-2" in again.output
        assert again.values("loss") == losses
        assert weights_of(again) == weights_of(done)
    for one in (done, *resumed):
        assert [line for line in one.complained.splitlines() if "real_accelerator" not in line] == []


@of(run for run in RUNS if run.world == 2 and run.target == DEFAULT)
def test_processes_and_shards_do_not_show(runs: Runs, kind: Kind) -> None:
    one, two = runs(Kind(kind.what))[0], runs(kind)[0]
    assert two.values("loss") == pytest.approx(one.values("loss"), abs=1e-4)


@every
def test_what_is_saved(runs: Runs, ground: str, kind: Kind) -> None:
    base = tensors(os.path.join(ground, "untied", "model.safetensors"))
    for done in runs(kind):
        if kind.what == "tokens":
            after = tensors(os.path.join(done.out, "model.safetensors"))
            for name in ("model.embed_tokens.weight", "lm_head.weight"):
                # each of the two added tokens has a row of 64 float32 values
                assert len(after[name]) == len(base[name]) + 2 * 64 * 4
            with open(os.path.join(done.out, "config.json"), encoding="utf-8") as handle:
                settings = json.load(handle)
            assert settings["vocab_size"] * 64 * 4 == len(after["lm_head.weight"])
            assert settings["eos_token_id"] == settings["vocab_size"] - 1
            continue
        if kind.what == "freeze":
            after = tensors(os.path.join(done.out, "model.safetensors"))
            assert set(after) == set(base)
            moved = {name for name, weight in after.items() if weight != base[name]}
            assert moved == {name for name in base if ".layers.1." in name} | {"model.norm.weight", "lm_head.weight"}
            continue
        after = tensors(os.path.join(done.out, "adapter_model.safetensors"))
        assert finite(after)
        with open(os.path.join(done.out, "adapter_config.json"), encoding="utf-8") as handle:
            settings = json.load(handle)
        if kind.what == "oft":
            assert (settings["peft_type"], settings["oft_block_size"], settings["r"]) == ("OFT", 8, 0)
            assert all(".oft_R." in name and any(weight) for name, weight in after.items())
            continue
        if kind.what in PREFIXES:
            sizes = {"vera": 16, "loha": 4, "miss": 6}
            assert (settings["peft_type"], settings["r"]) == (kind.what.upper(), sizes[kind.what])
            assert all(PREFIXES[kind.what] in f".{name}" and any(weight) for name, weight in after.items())
            shared = [name for name in after if ".vera_A" in name or ".vera_B" in name]
            assert len(after) - len(shared) == {"vera": 28, "loha": 56, "miss": 14}[kind.what]
            assert len(shared) == (2 if kind.what == "vera" else 0)
            continue
        if kind.what == "saved":
            assert sorted(settings["modules_to_save"]) == ["embed_tokens", "lm_head"]
            for name in ("model.embed_tokens.weight", "lm_head.weight"):
                assert after.pop(f"base_model.model.{name}") != base[name]
        elif kind.what == "dora":
            assert (settings["use_dora"], settings["use_rslora"]) == (True, True)
            assert sum(name.endswith("lora_magnitude_vector") for name in after) == 14
        elif kind.what == "parameters":
            stacks = {name.rpartition(".lora_")[0] for name in after if ".experts." in name}
            assert len(stacks) == 2 * 2  # each of two layers has two parameters with stacked experts
        assert all(any(weight) for name, weight in after.items() if ".lora_B." in name)


MERGED = """
import json, sys, torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer
out = sys.argv[1]
tokenizer = AutoTokenizer.from_pretrained(out + "/merged")
ids = torch.tensor([tokenizer("one two three four", add_special_tokens=False)["input_ids"]])
with torch.no_grad():
    adapted = AutoPeftModelForCausalLM.from_pretrained(out).eval()
    plain, found = AutoModelForCausalLM.from_pretrained(out + "/merged", output_loading_info=True)
    one, two = adapted(ids).logits, plain.eval()(ids).logits
    with adapted.disable_adapter():
        bare = adapted(ids).logits
lost = sorted(name for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for name in found[kind])
ends = plain.generation_config.eos_token_id
ends = tokenizer.eos_token_id in (ends if isinstance(ends, list) else [ends])
print(json.dumps({"apart": (one - two).abs().max().item(), "moved": (one - bare).abs().max().item(), "lost": lost,
                  "cache": plain.config.use_cache, "end": ends}))
"""


USED = """
import json, sys, torch
from transformers import AutoModelForCausalLM
out = sys.argv[1]
text = open(out + "/README.md").read().partition("## Use")[2].partition("```python\\n")[2].partition("```")[0]
exec(text.replace('"out"', json.dumps(out)))
ids = ask.tokenizer("one two <|think|>", return_tensors="pt", add_special_tokens=False)["input_ids"]
with torch.no_grad():
    one, two = (each.eval()(ids).logits for each in (ask.model, AutoModelForCausalLM.from_pretrained(out + "/merged")))
print(json.dumps({"apart": (one - two).abs().max().item(), "ids": ids[0].tolist(), "size": two.shape[-1]}))
"""


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_the_lines_of_the_card_add_the_new_tokens_to_the_base(
    runs: Runs, warm: Warm, tmp_path: Path, target: str
) -> None:
    runs(Kind("freeze"))  # writes "untied", a model with exactly one embedding per token
    whole = "lora(rank=4, modules_to_save=[embed_tokens, lm_head])"
    text = small(
        'model(tokens=["<|think|>"])', whole, method="sft", target=target, save='save "out" { every = 2, merge }'
    )
    done, again = warm.twice(text.replace('"tiny"', '"untied"'), f"grown-{target}", target, str(tmp_path))
    (seen,) = warm.program(target, USED, done.out)
    assert seen["apart"] < 1e-4
    assert seen["ids"][-1] == seen["size"] - 1
    assert weights_of(again) == weights_of(done)


@of(run for run in RUNS if run.merges)
def test_the_merged_model_is_the_adapted_one(runs: Runs, warm: Warm, kind: Kind) -> None:
    for done in runs(kind):
        (seen,) = warm.program(kind.target, MERGED, done.out)
        assert seen["apart"] < 1e-4 < seen["moved"]
        assert (seen["lost"], seen["cache"], seen["end"]) == ([], True, True)
        for folder, library in ((done.out, "peft"), (os.path.join(done.out, "merged"), "transformers")):
            with open(os.path.join(folder, "README.md"), encoding="utf-8") as handle:
                assert f'library_name: "{library}"' in handle.read()


LOST = Kind("saved")
"""The kind of adapter with which the test also deletes the adapter's weights. The preflight, which looks only for the
file, must then refuse to continue. It is enough to test this with one kind.
"""
CONTINUED = (LOST, Kind("saved", DEFAULT, "zero3"), *map(Kind, PREFIXES))


@pytest.mark.parametrize(
    "kind",
    # PEFT loads the weights of LoHa and MiSS in the same way as the weights of VeRA
    nightly_but(CONTINUED, lambda one: one.what in ("saved", "vera")),
    ids=lambda one: one.name,
)
def test_an_adapter_is_continued(runs: Runs, warm: Warm, ground: str, tmp_path: Path, kind: Kind) -> None:
    """The second run continues training the adapter of the first run. Its learning rate is almost 0, so it must end
    with the adapter's old weights.
    """
    done, before = runs(kind)[0], os.path.join(ground, f"before-{kind.name}")
    os.makedirs(before)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy2(os.path.join(done.out, name), before)
    clause = kind.what if kind.what in PREFIXES else "lora"
    text = small(f'{clause}(from="before-{kind.name}")', method="sft", target=kind.target, strategy=kind.strategy)
    text = text.replace('"tiny"', '"untied"').replace("lr=1e-3", "lr=1e-12") + "precision(idle=allow)\n"
    assert "1e-12" in text
    again = warm.train(text, f"continued-{kind.name}", kind.target, str(tmp_path), kind.world)
    assert f"training continues the adapter in {before}" in again.output
    assert again.values("loss")[0] < done.values("loss")[0]
    was, now = (tensors(os.path.join(folder, "adapter_model.safetensors")) for folder in (done.out, again.out))
    assert set(was) == set(now)
    for name, weight in was.items():
        old, new = (array("f", one) for one in (weight, now[name]))
        assert new == pytest.approx(old, abs=1e-9)
    if kind != LOST:
        return
    os.remove(os.path.join(before, "adapter_model.safetensors"))
    shutil.rmtree(again.out)
    lost = warm.launch(again.folder, str(tmp_path), "--preflight")
    assert "has no adapter_model.safetensors: training cannot continue the adapter" in lost.output


GROUPS = """
import glob, json, os, sys, torch
(path,) = glob.glob(os.path.join(sys.argv[1], "optimizer.pt")) or glob.glob(
    os.path.join(sys.argv[1], "global_step*", "*rank_0_*optim*"))
state = torch.load(path, weights_only=path.endswith("optimizer.pt"), map_location="cpu")
state = state.get("optimizer_state_dict", state)
state = state.get("base_optimizer_state", state.get("optimizer_state_dict", state))
groups = state if isinstance(state, list) else state["param_groups"]
print(json.dumps({"rates": [one["lr"] for one in groups], "sizes": [len(one.get("params", ())) for one in groups]}))
"""


@of(run for run in RUNS if run.what == "saved")
def test_the_b_matrices_have_a_rate_of_their_own(runs: Runs, warm: Warm, kind: Kind) -> None:
    (seen,) = warm.program(kind.target, GROUPS, os.path.join(runs(kind)[0].out, "checkpoint-2"))
    if kind.strategy == "one":
        assert seen["sizes"] == [14 + 2, 14]  # two layers with seven matrices each, the embeddings and the head
    rates = seen["rates"]
    assert len(rates) == 2
    assert rates[1] == pytest.approx(16 * rates[0])
