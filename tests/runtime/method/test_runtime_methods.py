"""The runtime finds the reward functions, adapters and packages that a method needs. These tests need no training
libraries.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from run_features import read
from runtime_bundles import LORA, plan, source, write

from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.optimizers import PACKAGES
from xpc.compiler.language.rewards import REWARDS
from xpc.compiler.lower.method import method_facts
from xpc.compiler.stacks import STACKS, load
from xpc.runtime.core import arguments
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.feature import Bundle
from xpc.runtime.features.launch import packages
from xpc.runtime.features.method import rewards
from xpc.runtime.features.model import adapters

CODE = """\
def even(completions, row, **_):
    return [float(one % 2 == 0) for one in row]

def needs_more(completions, level):
    return [0.0 for _ in completions]

async def asked(completions, **_):
    return [0.0 for _ in completions]

LIMIT = 3
"""


def made(
    tmp_path: Path,
    method: str = "grpo",
    code: str = CODE,
    functions: tuple[str, ...] = (),
    names: tuple[str | Mapping[str, Any], ...] = (),
    **changes: Any,
) -> Bundle:
    """A bundle of the method with two kinds of rewards: ``functions`` are from the bundle's reward file, ``names`` are
    registered rewards.
    """
    facts = plan("tiny", [source("d.jsonl", "prompt")])
    facts["config"] = {"grpo": "trl.GRPOConfig", "dpo": "trl.DPOConfig", "reward": "trl.RewardConfig"}[method]
    digest = sha256(code.encode()).hexdigest()
    own = [{"name": f"r.py:{one}", "file": "files/r.py", "function": one, "sha256": digest} for one in functions]
    known = [{"name": one, "file": None, "function": None, "sha256": None} for one in names]
    facts["method"] = {**method_facts(METHODS[method]), "rewards": [*own, *known]}
    facts["arguments"].update(max_completion_length=64, **changes)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "r.py").write_text(code)
    return read(write(str(tmp_path), facts))


# -- reward functions of a Python file --------------------------------------------------------------------------------


def test_functions_of_one_file_come_in_the_order_of_the_bundle(tmp_path: Path) -> None:
    bundle = made(tmp_path, functions=("needs_more", "even"), names=("format",))
    found = rewards.functions(bundle)
    assert [one.__name__ for one in found] == ["needs_more", "even", "format_reward"]
    assert found[1](completions=["a", "b"], row=[1, 2]) == [0.0, 1.0]
    assert found[0].__globals__ is found[1].__globals__  # the file was executed only once


@pytest.mark.parametrize(
    ("code", "function", "words"),
    [
        (CODE, "odd", "defines no function 'odd'"),
        (CODE, "LIMIT", "defines no function 'LIMIT'"),
        ("import no_such_module\n", "even", "cannot be executed: ModuleNotFoundError"),
        ("def even(:\n", "even", "cannot be executed: SyntaxError"),
    ],
)
def test_a_file_without_the_function_is_one_sentence(tmp_path: Path, code: str, function: str, words: str) -> None:
    with pytest.raises(RunError, match=words):
        rewards.functions(made(tmp_path, code=code, functions=(function,)))


def test_a_missing_file_or_reward_stops_the_run(tmp_path: Path) -> None:
    bundle = made(tmp_path, functions=("even",))
    (tmp_path / "files" / "r.py").unlink()
    with pytest.raises(RunError, match="cannot read the reward functions"):
        rewards.functions(bundle)
    bundle.plan["method"]["rewards"] = []
    with pytest.raises(RunError, match="grpo needs a reward function"):
        rewards.functions(bundle)


def test_a_call_that_cannot_be_made_is_found_before_the_model_is_loaded(tmp_path: Path) -> None:
    bundle = made(tmp_path, functions=("even", "needs_more", "asked"))
    even, more, requested = rewards.functions(bundle)
    assert rewards.problem(bundle, even, ["prompt", "row"]) is None
    assert "missing a required argument: 'row'" in str(rewards.problem(bundle, even, ["prompt"]))
    reported = str(rewards.problem(bundle, more, ["prompt", "level"]))
    assert "the reward needs_more cannot be called" in reported  # it has no parameter **columns
    assert reported.endswith(", ".join([*bundle.stack["reward_given"], "level"]))
    assert rewards.problem(bundle, requested, ["prompt"]) is None
    bundle.stack["reward_async"] = False
    assert "asynchronous" in str(rewards.problem(bundle, requested, ["prompt"]))


# -- rewards with a name ----------------------------------------------------------------------------------------------

GOOD = "<think>\nFirst, add.\n</think>\n<answer>\n4\n</answer>"


def completions(*texts: str) -> list[list[dict[str, str]]]:
    return [[{"role": "assistant", "content": one}] for one in texts]


def test_every_reward_of_the_language_is_there() -> None:
    assert {*rewards.PLAIN, *rewards.CONFIGURABLE} == set(REWARDS)


def test_what_the_plain_rewards_count() -> None:
    assert rewards.format_reward(completions(GOOD, "4", GOOD + "!")) == [1.0, 0.0, 0.0]
    assert rewards.tag_count_reward(completions(GOOD, "4", "<think>\n<think>\n</answer>")) == [1.0, 0.0, 0.25]
    # plain text prompts give plain text completions, and not lists of turns
    assert rewards.tag_count_reward([GOOD]) == [1.0]
    steps = rewards.reasoning_steps_reward(completions("none", "First, a. Next, b.", "Step 1: a\n- b\n- c\n- d"))
    assert steps == pytest.approx([0, 2 / 3, 1])
    assert rewards.repetition_penalty(2, -1.0)(completions("a b c", "a b a b", "a")) == pytest.approx([0, -1 / 3, 0])
    code = "<think>\nx\n</think>\n<answer>\n```python\n1\n```\n</answer>"
    assert rewards.code_format()(completions(code, GOOD)) == [1.0, 0.0]
    assert rewards.code_format()(completions(code), language=["rust"]) == [0.0]


def test_a_long_answer_is_punished_softly() -> None:
    punish = rewards.soft_overlong_punishment(max_completion_len=64, soft_punish_cache=16)
    ids = [[1] * count for count in (10, 48, 56, 64, 65)]
    assert punish(completions=[], completion_ids=ids) == [0.0, 0.0, -0.5, -1.0, -1.0]


def test_lengths_count_with_what_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewards, "verified", lambda answers, _: [one.count("4") * 1.0 for one in answers])
    assert rewards.len_reward(completions("4", "four", "4444444"), ["4"] * 3) == pytest.approx([0.5, 0.0, -0.5])
    assert rewards.len_reward(completions("4", "5"), ["4"] * 2) == [0.0, 0.0]
    shaped = rewards.cosine(max_len=8)
    short, long, wrong, worse = shaped(completions("4", "4       ", "5", "5       "), ["4"] * 4)
    assert 0.5 <= long < short <= 1
    assert shaped(completions(f"4{' ' * 15}"), ["4"]) == [0.5]
    # These are the defaults of Open-R1's script, with which a wrong answer gets a lower reward the longer it is.
    assert -0.5 <= worse < wrong <= 0
    monkeypatch.setattr(rewards, "verified", lambda answers, _: [None])
    assert shaped(completions("4"), ["?"]) == [None]


def test_what_is_no_reward_is_reported(tmp_path: Path) -> None:
    bundle = made(tmp_path, names=("format", "cosine", "soft_overlong_punishment"))
    punish = rewards.functions(bundle)[2]
    # The limit is the run's `max_completion` of 64 tokens. A completion is punished only within the last quarter before
    # the limit: 48 tokens get 0, and 64 tokens get -1.
    assert punish(completions=[], completion_ids=[[1] * 48, [1] * 64]) == [0.0, -1.0]
    # A stated limit also decides the length of the last quarter.
    bundle.plan["method"]["rewards"][2]["options"] = {"max_completion_len": 32}
    assert rewards.functions(bundle)[2](completions=[], completion_ids=[[1] * 24, [1] * 32]) == [0.0, -1.0]
    for name, words in (("formatt", "is not known; known are accuracy,"), ("ioi_code", "in a sandbox")):
        bundle.plan["method"]["rewards"][0]["name"] = name
        with pytest.raises(RunError, match=words):
            rewards.functions(bundle)
    bundle.plan["method"]["rewards"][0].update(name="format", options={"strict": True})
    with pytest.raises(RunError, match="has no settings"):
        rewards.functions(bundle)
    bundle.plan["method"]["rewards"][0].update(name="cosine", options={"strict": True})
    with pytest.raises(RunError, match="does not take these settings"):
        rewards.functions(bundle)


# -- adapters ---------------------------------------------------------------------------------------------------------


class Kept(SimpleNamespace):
    """Replaces a class of a library, and records the arguments with which it is called."""


def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", SimpleNamespace(LoraConfig=Kept, OFTConfig=Kept))
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(BitsAndBytesConfig=Kept))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(bfloat16="bf16", float32="fp32", uint8="u8"))


def test_an_adapter_is_what_the_bundle_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries(monkeypatch)
    bundle = made(tmp_path, "dpo")
    assert adapters.adapter(bundle) is None
    bundle.lora = {**LORA, "alpha": 16.0, "dropout": 0.05, "targets": ["q_proj", "v_proj"]}
    assert vars(adapters.adapter(bundle)) == {
        "r": 8, "lora_alpha": 16, "lora_dropout": 0.05, "target_modules": ["q_proj", "v_proj"],
        "task_type": "CAUSAL_LM", "revision": None, "modules_to_save": None, "target_parameters": None,
        "use_rslora": False, "use_dora": False, "init_lora_weights": True,
    }  # fmt: skip
    assert isinstance(adapters.adapter(bundle).lora_alpha, int)
    bundle.lora["alpha"] = 0.5
    bundle.model.update(id="a/b", revision="abc")
    assert (adapters.adapter(bundle).lora_alpha, adapters.adapter(bundle).revision) == (0.5, "abc")
    bundle.plan["method"]["scores"] = True
    assert adapters.adapter(bundle).task_type == "SEQ_CLS"


@pytest.mark.parametrize(("rank", "block"), [(None, 16), (4, None)])
def test_rotations_are_what_the_bundle_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int | None, block: int | None
) -> None:
    libraries(monkeypatch)
    bundle = made(tmp_path, "dpo")
    bundle.lora = {**LORA, "kind": "oft", "rank": rank, "block_size": block, "modules_to_save": ["lm_head"]}
    assert vars(adapters.adapter(bundle)) == {
        "r": rank or 0, "oft_block_size": block or 0, "module_dropout": LORA["dropout"], "revision": None,
        "target_modules": LORA["targets"], "task_type": "CAUSAL_LM", "modules_to_save": ["lm_head"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "own"),
    [
        ("vera", "VeraConfig", {"vera_dropout": LORA["dropout"]}),
        ("miss", "MissConfig", {"miss_dropout": LORA["dropout"]}),
        ("loha", "LoHaConfig", {"alpha": LORA["alpha"]}),
    ],
)
def test_other_kinds_of_adapters_get_their_own_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, own: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, "peft", SimpleNamespace(**{name: Kept}))
    bundle = made(tmp_path, "dpo")
    bundle.lora = {**LORA, "kind": kind}
    assert vars(adapters.adapter(bundle)) == {
        "r": LORA["rank"], **own, "revision": None, "target_modules": LORA["targets"], "task_type": "CAUSAL_LM",
        "modules_to_save": None,
    }  # fmt: skip


def test_two_rates_split_the_groups_and_keep_their_decay() -> None:
    names = ("a.lora_A.default.weight", "a.lora_B.default.weight", "a.lora_magnitude_vector.default.weight",
             "e.lora_embedding_A.default", "lm_head.modules_to_save.default.weight")  # fmt: skip
    weights = {name: SimpleNamespace(name=name) for name in names}
    model = SimpleNamespace(named_parameters=lambda: weights.items())
    groups = [
        {"params": [weights[name] for name in names if "embedding" not in name], "weight_decay": 0.1, "lr": 1e-3},
        {"params": [weights[names[3]]], "weight_decay": 0.0, "lr": 1e-3},
    ]
    optimizer = SimpleNamespace(param_groups=groups)
    adapters.rates(optimizer, model, {"rate": 1e-3, "lr_ratio": 4.0, "embedding_lr": 1e-6})
    assert [([one.name for one in group["params"]], group["weight_decay"], group["lr"]) for group in groups] == [
        ([names[0], names[4]], 0.1, 1e-3), ([names[1], names[2]], 0.1, 4e-3), ([names[3]], 0.0, 1e-6),
    ]  # fmt: skip


def test_a_quantized_base_is_what_the_bundle_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries(monkeypatch)
    bundle = made(tmp_path, "dpo")
    assert adapters.quantization(bundle) is None
    bundle.lora = dict(LORA)
    assert adapters.quantization(bundle) is None
    bundle.lora.update(bits=8)
    assert vars(adapters.quantization(bundle)) == {"load_in_8bit": True}
    bundle.lora.update(bits=4, storage_dtype="uint8")
    assert vars(adapters.quantization(bundle)) == {
        "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": "bf16", "bnb_4bit_quant_storage": "u8",
    }  # fmt: skip


# -- needs ------------------------------------------------------------------------------------------------------------


def test_what_is_not_installed_is_reported_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda _: None)
    bundle = made(tmp_path, names=("format", "accuracy"), use_vllm=True, optim="paged_adamw_8bit", report_to=["wandb"])
    bundle.lora = {**LORA, "bits": 4}
    reported = packages.Packages().missing_packages(bundle)
    assert [one.split(" is not")[0] for one in reported] == ["peft", "bitsandbytes", "wandb", "vllm", "math-verify"]
    assert "a base of 4 bits needs it" in reported[1]
    assert reported[3].endswith("(pip install vllm)")
    assert "the reward 'accuracy' needs it" in reported[4]
    bundle.stack["quantized_on_cpu"] = False
    assert packages.Packages().missing_packages(bundle) == [
        "a quantized base needs a GPU: this version of transformers cannot load it on a CPU",
        *reported,
    ]
    bundle.pins = {"peft": "1", "bitsandbytes": "1", "wandb": "1", "vllm": "1", "math-verify": "1"}
    # packages that the bundle pins are reported by another check, so only the message about the GPU remains
    assert len(packages.Packages().missing_packages(bundle)) == 1


@pytest.mark.parametrize(
    ("attention", "package", "module"),
    [("flash_attention_2", "flash-attn", "flash_attn"), ("flash_attention_3", "flash-attn-3", "flash_attn_3")],
)
def test_flash_attention_is_asked_for_where_nothing_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attention: str, package: str, module: str
) -> None:
    bundle = made(tmp_path)
    bundle.model["attn_implementation"] = attention
    for there in (module, "kernels"):
        monkeypatch.setattr(packages, "find_spec", lambda name, there=there: name if name == there else None)
        assert packages.Packages().missing_packages(bundle) == []
    monkeypatch.setattr(packages, "find_spec", lambda _: None)
    (reported,) = packages.Packages().missing_packages(bundle)
    assert reported.startswith(f"{package} is not installed, and the attention {attention} needs it")
    bundle.model["attn_implementation"] = "sdpa"
    assert packages.Packages().missing_packages(bundle) == []


@pytest.mark.parametrize("target", STACKS)
def test_bitsandbytes_is_asked_for_by_its_own_optimizers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda _: None)
    bundle = made(tmp_path, "dpo")
    for name, argument in load(target).optimizers.items():
        bundle.arguments["optim"] = argument  # torchao has 8-bit optimizers, too
        own = name in PACKAGES["bitsandbytes"] or name.startswith("galore_adamw8bit")
        assert ["bitsandbytes" in one for one in packages.Packages().missing_packages(bundle)] == [True] * own, name


@pytest.mark.parametrize(
    ("mode", "key", "found", "reported"),
    [
        (None, None, False, True),
        (None, None, True, False),
        (None, "k" * 40, False, False),
        ("offline", None, False, False),
        ("disabled", None, False, False),
    ],
)
def test_wandb_without_a_key_is_reported_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str | None, key: str | None, found: bool, reported: bool
) -> None:
    stub = ModuleType("wandb")
    stub.__spec__ = ModuleSpec("wandb", None)
    monkeypatch.setattr(stub, "setup", lambda: SimpleNamespace(settings=SimpleNamespace(mode="online")), raising=False)
    monkeypatch.setattr(stub, "login", lambda prompt, verify: found, raising=False)
    monkeypatch.setitem(sys.modules, "wandb", stub)
    for name, value in (("WANDB_MODE", mode), ("WANDB_API_KEY", key), ("WANDB_IDENTITY_TOKEN_FILE", None)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert [
        one[:29] for one in packages.Packages().check_access(made(tmp_path, report_to=["tensorboard", "wandb"]))
    ] == (["this run reports to wandb, an"] if reported else [])


@pytest.mark.parametrize(("method", "vllm", "host"), [("grpo", True, "10.0.0.7"), ("grpo", False, None)])
def test_the_host_of_the_server_is_the_launchs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, vllm: bool, host: str | None
) -> None:
    monkeypatch.setattr(arguments, "load_class", lambda _: Kept)
    monkeypatch.setenv("XPC_VLLM_HOST", "10.0.0.7")
    made_of = arguments.build_arguments(made(tmp_path, method, use_vllm=vllm))
    assert getattr(made_of, "vllm_server_host", None) == host
    monkeypatch.delenv("XPC_VLLM_HOST")
    assert not hasattr(arguments.build_arguments(read(str(tmp_path))), "vllm_server_host")


def test_a_class_that_the_stack_lacks_is_one_sentence() -> None:
    with pytest.raises(RunError, match=r"the installed libraries have no json\.NoConfig"):
        arguments.load_class("json.NoConfig")
