"""Every kind of bundle that the compiler writes is accepted by the libraries that read it in a run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
from emitted import FILES, SPECS, compiled, put
from extra_arguments import FLAG, NUMBER
from interpreters import stack_of
from patience import HUNG
from stacks import looked_at, payload

from xpc.compiler.stacks import STACKS

NAMES = [one.name for one in SPECS]
TARGET = {one.name: one.target for one in SPECS}


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Maps the name of each spec in emitted.py to the folder of its bundle. A bundle is compiled when it is first
    needed.
    """
    folder = put(str(tmp_path_factory.mktemp("emitted")), FILES)
    texts = {one.name: one.text for one in SPECS}

    class Bundles(dict[str, str]):
        def __missing__(self, name: str) -> str:
            return self.setdefault(name, compiled(texts[name], folder, os.path.join(folder, f"{name}.bundle")))

    return Bundles()


@pytest.fixture(scope="session")
def answers(bundles: Mapping[str, str]) -> Mapping[str, Mapping[str, Any]]:
    """Map the name of each spec to the objects that the libraries of its target have built from its bundle. If the
    target's interpreter is missing, the value is the reason why the target's tests are skipped.
    """
    out: dict[str, Mapping[str, Any]] = {}
    for target in STACKS:
        try:
            seen = looked_at(target, [bundles[name] for name in NAMES if TARGET[name] == target])
        except pytest.skip.Exception as reason:
            seen = {bundles[name]: {"skip": str(reason)} for name in NAMES if TARGET[name] == target}
        out.update({name: seen[bundles[name]] for name in NAMES if bundles[name] in seen})
    return out


def answer(answers: Mapping[str, Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    if "skip" in answers[name]:
        pytest.skip(str(answers[name]["skip"]))
    return answers[name]


def text(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="utf-8") as handle:
        return handle.read()


def test_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.slow  # the fixture `bundles` writes 137 bundles
@pytest.mark.parametrize("name", NAMES)
def test_the_batch_is_the_product(bundles: Mapping[str, str], name: str) -> None:
    plan = payload(bundles[name])
    run, arguments = plan["run"], plan["arguments"]
    assert run["micro"] * run["accumulation"] * run["world_size"] == run["gbs"]
    assert run["nodes"] * run["processes_per_node"] == run["world_size"]
    stated = (arguments["per_device_train_batch_size"], arguments["gradient_accumulation_steps"])
    assert stated == (run["micro"], run["accumulation"])


@pytest.mark.slow  # the fixture `bundles` writes 137 bundles
@pytest.mark.parametrize("name", NAMES)
def test_requirements_are_the_pins_of_the_target(bundles: Mapping[str, str], name: str) -> None:
    stack = stack_of(TARGET[name])
    pins = dict(line.split("==") for line in text(bundles[name], "requirements.txt").splitlines())
    plan = payload(bundles[name])
    resolved = stack.requirements(vllm=True) if plan["arguments"].get("use_vllm") else stack.pins
    assert pins == {package: resolved.get(package, stack.pins.get(package)) for package in pins}
    assert ("deepspeed" in pins) is (plan["run"]["zero_stage"] > 0)
    liger = plan["model"]["liger"] or plan["arguments"].get("use_liger_kernel", False)
    assert ("liger-kernel" in pins) is liger
    flash = os.path.join(bundles[name], "requirements-flash.txt")
    assert os.path.exists(flash) is plan["model"]["attn_implementation"].startswith("flash")
    assert set(stack.requirements()) <= set(pins)


LAUNCHES = (
    "ddp-one-gpu",
    "zero3",
    "hsdp-two-nodes",
    "torchrun",
    "torchrun-nodes",
    "cpu",
    "cpu-zero2",
    "cpu-ddp",
    "trl-0.18-ddp",
)
NODE = {"NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def launch(folder: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHON": "/no/python", **variables}
    return subprocess.run([os.path.join(folder, "launch.sh"), *words], env=environment, capture_output=True, text=True,
                          check=False, timeout=HUNG)  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_dry_run_prints_the_command_and_starts_nothing(bundles: Mapping[str, str], name: str) -> None:
    nodes = NODE if payload(bundles[name])["run"]["nodes"] > 1 else {}
    done = launch(bundles[name], "--dry-run", **nodes)
    assert (done.returncode, done.stderr) == (0, "")
    folder = os.path.realpath(bundles[name])
    assert done.stdout.startswith(f"/no/python {folder}/trainer/launcher.py ")
    assert f"{folder}/trainer/main.py" in done.stdout
    if "torchrun" in name:
        assert "torch.distributed.run --nproc_per_node 8" in done.stdout
        assert ("--standalone" in done.stdout) is (not nodes)
    else:
        assert f"accelerate.commands.launch --config_file {folder}/accelerate.yaml" in done.stdout
    if nodes:
        assert "10.0.0.1" in done.stdout
        assert "29500" in done.stdout


@pytest.mark.parametrize(
    "words", [["--lr", "1"], ["--halp"], ["x y"], ["--dry-run", "--dry-run"], [""], ["$(touch x)"]]
)
def test_other_arguments_are_refused(bundles: Mapping[str, str], words: list[str]) -> None:
    done = launch(bundles["ddp"], *words)
    if words == [""]:  # no bundle was inspected: the interpreter is missing
        assert "no program /no/python" in done.stderr
        return
    assert done.returncode == 2
    assert done.stderr.startswith("launch.sh: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("variables", [{"MASTER_PORT": "1; touch x"}, {"MASTER_PORT": ""}, {"MASTER_PORT": "-1"}])
def test_a_port_that_is_no_number_is_refused(bundles: Mapping[str, str], variables: dict[str, str]) -> None:
    if variables["MASTER_PORT"] == "":  # an empty variable counts as a variable that is not set
        assert launch(bundles["ddp"], "--dry-run", **variables).returncode == 0
        return
    done = launch(bundles["ddp"], "--dry-run", **variables)
    assert done.returncode == 2
    assert "MASTER_PORT must be a number" in done.stderr


@pytest.mark.parametrize("missing", sorted(NODE))
def test_several_nodes_ask_for_what_tells_them_apart(bundles: Mapping[str, str], missing: str) -> None:
    given = {key: value for key, value in NODE.items() if key != missing}
    done = launch(bundles["hsdp-two-nodes"], "--dry-run", **given)
    assert done.returncode != 0
    assert missing in done.stderr
    assert done.stdout == ""


def test_a_hostile_address_is_refused(bundles: Mapping[str, str]) -> None:
    for address in ("-x", "a b", "$(id)", "a;b"):
        done = launch(bundles["hsdp-two-nodes"], "--dry-run", **{**NODE, "MASTER_ADDR": address})
        assert done.returncode == 2, address
        assert "MASTER_ADDR must be a host" in done.stderr


# Pairs: lines of a spec, and the values that arguments must have because of these lines.
MEANINGS: dict[str, dict[str, object]] = {
    "linear": {"lr_scheduler_type": "linear", "warmup_steps": 0.03, "learning_rate": 1e-5, "adam_beta1": 0.8,
               "adam_beta2": 0.95, "adam_epsilon": 1e-7, "weight_decay": 0.1, "optim": "adamw_torch_fused"},
    "trl-0.18-ddp": {"warmup_steps": 0, "warmup_ratio": 0.03, "optim": "adamw_torch", "gradient_checkpointing": True,
                "gradient_checkpointing_kwargs": {"use_reentrant": False}},
    "cosine-floor": {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-6},
                     "warmup_steps": 40, "max_grad_norm": 0.0},
    "cosine-zero": {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.0}},
    "trl-0.18-zero2": {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
                  "warmup_steps": 40, "warmup_ratio": 0.0, "use_liger_kernel": True, "deepspeed": "deepspeed.json"},
    "constant-warmup": {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 10, "max_steps": 1000},
    "wsd-steps": {"lr_scheduler_type": "warmup_stable_decay",
                  "lr_scheduler_kwargs": {"num_decay_steps": 100, "decay_type": "cosine", "min_lr_ratio": 0.05}},
    "fp32-tf32": {"bf16": False, "fp16": False, "tf32": True},
    "fp16-v100": {"bf16": False, "fp16": True, "tf32": False, "activation_checkpointing": False,
                  "activation_checkpointing_kwargs": None},
    "cpu-ddp": {"bf16": False, "fp16": False, "tf32": None, "use_cpu": True, "ddp_backend": "gloo"},
    "cpu-zero1": {"use_cpu": False, "dataloader_pin_memory": False, "deepspeed": "deepspeed.json"},
    "flash-packing": {"packing": True, "packing_strategy": "bfd", "max_length": 8192, "activation_offloading": True,
                      "average_tokens_across_devices": True,
                      "activation_checkpointing_kwargs": {"use_reentrant": True}},
    "packing-mask": {"packing": True, "packing_strategy": "bfd_split", "eval_packing": False,
                     "average_tokens_across_devices": False},
    "packing-eval": {"eval_packing": True, "eval_strategy": "steps", "eval_steps": 100},
    "padding-free": {"padding_free": True, "max_length": None, "packing": False},
    "trl-0.18-fsdp1": {"packing": True, "max_length": 1024},
    "every-share": {"eval_strategy": "steps", "eval_steps": 0.05, "save_strategy": "steps", "save_steps": 0.1,
                    "save_total_limit": 2, "logging_steps": 5, "report_to": ["wandb"], "per_device_eval_batch_size": 2},
    "every-epoch": {"eval_strategy": "epoch", "save_strategy": "no", "logging_strategy": "epoch",
                    "report_to": ["wandb", "trackio", "tensorboard"], "run_name": 'a $(b) "c"', "project": "p"},
    "weights-only": {"save_only_model": True, "save_steps": 50, "logging_strategy": "no", "seed": 7, "report_to": []},
    "trl-0.18-every": {
        "eval_steps": 20, "save_steps": 0.05, "save_total_limit": 1, "average_tokens_across_devices": True},
    "extras": {NUMBER: 5, FLAG: True},
    "mixture": {"dataset_num_proc": 4, "assistant_only_loss": True, "num_train_epochs": 1.0},
    "pairs": {"completion_only_loss": True, "num_train_epochs": 2.0},
    "text": {"completion_only_loss": False, "num_train_epochs": 0.5, "train_sampling_strategy": "sequential"},
    "shared": {"eos_token": "<|im_end|>"},
    "zero3-four-nodes": {"ddp_timeout": 14400},
    "torchrun": {"ddp_timeout": 600},
}  # fmt: skip


@pytest.mark.parametrize("name", MEANINGS)
def test_what_the_spec_states_is_what_the_arguments_say(bundles: Mapping[str, str], name: str) -> None:
    arguments = payload(bundles[name])["arguments"]
    assert {key: arguments[key] for key in MEANINGS[name]} == MEANINGS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_libraries_read_what_was_stated(answers: Mapping[str, Mapping[str, Any]], name: str) -> None:
    assert answer(answers, name)["problems"] == []


LAUNCHER = {
    "NO": "simple",
    "MULTI_GPU": "multi_gpu",
    "MULTI_CPU": "multi_gpu",
    "DEEPSPEED": "deepspeed",
    "FSDP": "multi_gpu",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_launcher_is_that_of_the_strategy(
    answers: Mapping[str, Mapping[str, Any]], bundles: Mapping[str, str], name: str
) -> None:
    seen, run = answer(answers, name)["launch"], payload(bundles[name])["run"]
    assert seen["launcher"] == LAUNCHER[run["distributed_type"]]
    variables = seen["environment"]
    assert ("ACCELERATE_USE_FSDP" in variables) is (run["distributed_type"] == "FSDP")
    assert ("ACCELERATE_USE_DEEPSPEED" in variables) is (run["zero_stage"] > 0)
    if run["zero_stage"]:
        assert variables["ACCELERATE_DEEPSPEED_ZERO3_INIT"] == str(run["zero_stage"] == 3).lower()


# Names of golden specs with FSDP, and the settings that accelerate's plugin must get for them.
SHARDED: dict[str, tuple[int | None, object, str]] = {
    "fsdp": (2, True, "FULL_STATE_DICT"),
    "full-shard": (2, True, "FULL_STATE_DICT"),
    "shard-grad-op": (2, False, "FULL_STATE_DICT"),
    "fsdp-no-reshard-sharded": (2, False, "SHARDED_STATE_DICT"),
    "hsdp-two-nodes": (2, True, "FULL_STATE_DICT"),
    "hsdp-mesh": (2, False, "FULL_STATE_DICT"),
    "hybrid-shard-zero2": (2, False, "FULL_STATE_DICT"),
    "fsdp1": (1, "FULL_SHARD", "FULL_STATE_DICT"),
    "trl-0.18-fsdp1": (None, "FULL_SHARD", "FULL_STATE_DICT"),
    "trl-0.18-hsdp": (None, "HYBRID_SHARD", "FULL_STATE_DICT"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARDED)
def test_fsdp_arguments_follow_the_strategy(answers: Mapping[str, Mapping[str, Any]], name: str) -> None:
    fsdp = answer(answers, name)["fsdp"]
    version, how, state_dict = SHARDED[name]
    assert fsdp["fsdp_version"] == version
    assert fsdp["reshard_after_forward" if version == 2 else "sharding_strategy"] == how
    assert fsdp["state_dict_type"] == state_dict
    assert fsdp["activation_checkpointing"] is False
    variables = answers[name]["launch"]["environment"]
    assert variables["FSDP_AUTO_WRAP_POLICY"] == "TRANSFORMER_BASED_WRAP"


@pytest.mark.slow
def test_hybrid_strategies_get_their_mesh(answers: Mapping[str, Mapping[str, Any]]) -> None:
    for name, mesh in (("hsdp-two-nodes", ("2", "8")), ("hsdp-mesh", ("4", "4")), ("hybrid-shard-zero2", ("2", "8"))):
        variables = answer(answers, name)["launch"]["environment"]
        prefix = "PARALLELISM_CONFIG_DP_"
        assert (variables[f"{prefix}REPLICATE_SIZE"], variables[f"{prefix}SHARD_SIZE"]) == mesh, name


@pytest.mark.slow
def test_offload_of_optimizer_and_parameters_is_distinguished(answers: Mapping[str, Mapping[str, Any]]) -> None:
    assert "CPUOffloadPolicy" in answer(answers, "fsdp-offload")["fsdp"]["cpu_offload"]
    assert "CPUOffloadPolicy" not in answers["fsdp"]["fsdp"]["cpu_offload"]


# Peak and last learning rate of a run of 1,000 steps, and the step of the peak.
RATES: dict[str, tuple[float, float, int]] = {
    "linear": (1e-5, 0.0, 30), "trl-0.18-ddp": (2e-5, 0.0, 30), "cosine-floor": (2e-5, 1e-6, 40),
    "cosine-share": (2e-5, 2e-6, 0), "cosine-zero": (2e-5, 0.0, 0), "trl-0.18-zero2": (2e-5, 2e-6, 40),
    "constant": (2e-5, 2e-5, 0), "constant-warmup": (2e-5, 2e-5, 10), "trl-0.18-pairs": (2e-5, 2e-5, 50),
    "wsd": (2e-5, 1e-6, 100), "wsd-steps": (2e-5, 1e-6, 0), "polynomial": (2e-5, 1e-7, 0),
    "inverse-sqrt": (2e-5, 2e-5 * (50 / 1000) ** 0.5, 50),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", RATES)
def test_the_learning_rate_runs_as_stated(answers: Mapping[str, Mapping[str, Any]], name: str) -> None:
    rates = answer(answers, name)["rates"]
    peak, last, warmup = RATES[name]
    assert max(rates) == pytest.approx(peak)
    assert rates[-1] == pytest.approx(last, abs=1e-9)
    assert rates.index(max(rates)) == warmup


@pytest.mark.slow
def test_the_optimizer_is_the_one_that_was_named(answers: Mapping[str, Mapping[str, Any]]) -> None:
    for name, optimizer in (
        ("ddp", "AdamW"),
        ("cosine-share", "Adafactor"),
        ("cosine-zero", "SGD"),
        ("constant", "Adagrad"),
    ):
        assert answer(answers, name)["optimizer"] == optimizer
