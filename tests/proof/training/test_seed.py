"""The project began with one published run. The bundle for this run has the same arguments as the published command."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from emitted import compiled
from stacks import REPOSITORY

SPEC = "qwen2.5-3b-infinity-8xv100"
COMMAND: dict[str, str | None] = {
    "--nproc_per_node": "8", "--model_name_or_path": "Qwen/Qwen2.5-3B", "--dataset_name": "BAAI/Infinity-Instruct",
    "--dataset_config": "0625", "--do_train": None, "--learning_rate": "1e-5",
    "--lr_scheduler_type": "cosine_with_min_lr", "--lr_scheduler_kwargs": '{"min_lr": 0}', "--warmup_steps": "40",
    "--weight_decay": "0.0", "--max_grad_norm": "1.0", "--adam_beta1": "0.9", "--adam_beta2": "0.95",
    "--per_device_train_batch_size": "11", "--gradient_accumulation_steps": "6", "--gradient_checkpointing": None,
    "--gradient_checkpointing_kwargs": '{"use_reentrant": false}', "--num_train_epochs": "3", "--use_liger": None,
    "--deepspeed": "./ds-config.json", "--output_dir": "/tmp/Qwen2.5-3B-Infinity-Instruct-0625",
    "--report_to": "wandb", "--run_name": "my-second-sft-exp",
}  # fmt: skip
"""Maps each flag of the published command line to its value. A flag without a value has None."""
DEEPSPEED: dict[str, Any] = {
    "fp16": {"enabled": False},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "zero_optimization": {
        "stage": 2, "overlap_comm": False, "allgather_bucket_size": 5e8, "reduce_bucket_size": "auto",
        "allgather_partitions": True, "reduce_scatter": True, "contiguous_gradients": True,
        "round_robin_gradients": True,
    },
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": False,
}  # fmt: skip
"""The content of the published ds-config.json."""
HIDDEN = 2048
"""Hidden size of Qwen2.5-3B (its config.json)."""

Bundle = dict[str, Any]


def published(name: str) -> Any:
    """A published file as JSON, or None if the folder with the published files does not exist."""
    for root in (os.environ.get("XPC_PUBLISHED"), os.path.join(REPOSITORY, "..", "shared", "published")):
        path = os.path.join(root, "seed", name) if root else ""
        if os.path.exists(path):
            with open(path, encoding="utf-8") as handle:
                return json.load(handle)
    return None


def flags(words: list[str]) -> dict[str, str | None]:
    """The command-line options of a command with their values (None for an option without a value). Other words of the
    command are ignored.
    """
    out: dict[str, str | None] = {}
    for index, word in enumerate(words):
        if word.startswith("--"):
            following = words[index + 1] if index + 1 < len(words) else "--"
            out[word] = None if following.startswith("--") or following.endswith(".py") else following
    return out


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Compile the spec of the published run. Return pieces of its bundle by name: `payload`, `deepspeed`, `launch`,
    `pins`.
    """
    folder = os.path.join(REPOSITORY, "specs")
    with open(os.path.join(folder, f"{SPEC}.xp"), encoding="utf-8") as handle:
        out = compiled(handle.read(), folder, str(tmp_path_factory.mktemp("seed") / "seed.bundle"), f"{SPEC}.xp")

    def text(name: str) -> str:
        with open(os.path.join(out, name), encoding="utf-8") as file:
            return file.read()

    return {"payload": json.loads(text("trainer_args.json")), "deepspeed": json.loads(text("deepspeed.json")),
            "launch": text("launch.sh"), "pins": text("requirements.txt")}  # fmt: skip


def argument(bundle: Bundle, name: str) -> Any:
    return bundle["payload"]["arguments"][name]


# For each option of the published command, a function that checks its value in the bundle. If the bundle states the
# value elsewhere, a comment says why.
OUTPUT: dict[str, Callable[[Bundle, str | None], bool]] = {
    "--nproc_per_node": lambda b, v: b["payload"]["run"]["processes_per_node"] == int(v or 0),
    # The runtime, and not TRL, loads the model.
    "--model_name_or_path": lambda b, v: b["payload"]["model"]["id"] == v,
    "--dataset_name": lambda b, v: b["payload"]["data"]["sources"][0]["id"] == v,
    "--dataset_config": lambda b, v: b["payload"]["data"]["sources"][0]["config"] == v,
    # A bundle always trains, so it has no value for `--do_train`. The test checks that the evaluation is off.
    "--do_train": lambda b, v: b["payload"]["data"]["eval_split"] is None,
    "--learning_rate": lambda b, v: argument(b, "learning_rate") == float(v or 0),
    "--lr_scheduler_type": lambda b, v: argument(b, "lr_scheduler_type") == v,
    "--lr_scheduler_kwargs": lambda b, v: argument(b, "lr_scheduler_kwargs") == json.loads(v or ""),
    "--warmup_steps": lambda b, v: argument(b, "warmup_steps") == int(v or 0),
    "--weight_decay": lambda b, v: argument(b, "weight_decay") == float(v or 1),
    "--max_grad_norm": lambda b, v: argument(b, "max_grad_norm") == float(v or 0),
    "--adam_beta1": lambda b, v: argument(b, "adam_beta1") == float(v or 0),
    "--adam_beta2": lambda b, v: argument(b, "adam_beta2") == float(v or 0),
    "--per_device_train_batch_size": lambda b, v: argument(b, "per_device_train_batch_size") == int(v or 0),
    "--gradient_accumulation_steps": lambda b, v: argument(b, "gradient_accumulation_steps") == int(v or 0),
    # transformers 5.23 has renamed gradient_checkpointing; the old name causes a warning
    "--gradient_checkpointing": lambda b, v: argument(b, "activation_checkpointing") is True,
    "--gradient_checkpointing_kwargs": lambda b, v: (
        argument(b, "activation_checkpointing_kwargs") == json.loads(v or "")
    ),
    "--num_train_epochs": lambda b, v: argument(b, "num_train_epochs") == float(v or 0),
    # the runtime itself applies Liger's kernels to the model, because `use_liger_kernel` is deprecated in trl 1.16
    "--use_liger": lambda b, v: b["payload"]["model"]["liger"] is True and "liger-kernel==" in b["pins"],
    # the bundle has its own DeepSpeed file, whose keys are compared below
    "--deepspeed": lambda b, v: argument(b, "deepspeed") == "deepspeed.json",
    # The published run writes to /tmp, which a reboot empties (it trains 133 hours). The spec writes below the working
    # folder instead.
    "--output_dir": lambda b, v: argument(b, "output_dir") == "out/" + (v or "").removeprefix("/tmp/").lower(),
    "--report_to": lambda b, v: argument(b, "report_to") == [v],
    "--run_name": lambda b, v: argument(b, "run_name") == v,
}


def test_the_copy_is_what_was_published() -> None:
    command, config = published("commands.json"), published("ds-config.json")
    if command is None or config is None:
        pytest.skip("the published files are not on this machine; the other tests compare with copies")
    assert flags(command["sft2"]) == COMMAND
    assert config == DEEPSPEED


def test_no_published_flag_is_left_out() -> None:
    assert set(OUTPUT) == set(COMMAND)


@pytest.mark.parametrize("flag", COMMAND)
def test_a_published_flag_is_in_the_bundle(seed: Bundle, flag: str) -> None:
    assert OUTPUT[flag](seed, COMMAND[flag])


def test_a_flag_that_the_bundle_does_not_say_is_noticed(seed: Bundle) -> None:
    other = {"--learning_rate": "2e-5", "--warmup_steps": "4", "--adam_beta2": "0.999", "--report_to": "tensorboard",
             "--run_name": "another", "--lr_scheduler_kwargs": '{"min_lr": 1e-6}',
             "--num_train_epochs": "2"}  # fmt: skip
    assert not [flag for flag, value in other.items() if OUTPUT[flag](seed, value)]


def literal(bundle: Bundle) -> dict[str, Any]:
    """The published DeepSpeed file as a nested mapping. Each value "auto" is replaced by the value that transformers
    would fill in (HfTrainerDeepSpeedConfig).
    """
    a = bundle["payload"]["arguments"]
    world = bundle["payload"]["run"]["world_size"]
    micro, accumulation = a["per_device_train_batch_size"], a["gradient_accumulation_steps"]
    params = {"lr": a["learning_rate"], "betas": [a["adam_beta1"], a["adam_beta2"]], "eps": a["adam_epsilon"],
              "weight_decay": a["weight_decay"]}  # fmt: skip
    return {
        "optimizer": {"params": params},
        "zero_optimization": {"reduce_bucket_size": HIDDEN**2},
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": a["max_grad_norm"],
        "train_batch_size": micro * accumulation * world,
        "train_micro_batch_size_per_gpu": micro,
    }


def paths(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in table.items():
        out.update(paths(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return out


@pytest.mark.parametrize("path", paths(DEEPSPEED))
def test_a_published_deepspeed_key_is_in_the_bundle(seed: Bundle, path: str) -> None:
    wanted = paths(DEEPSPEED)[path]
    if wanted == "auto":
        wanted = paths(literal(seed))[path]
    assert paths(seed["deepspeed"])[path] == wanted


def test_the_batch_is_micro_times_accumulation_times_processes(seed: Bundle) -> None:
    run = seed["payload"]["run"]
    assert (run["micro"], run["accumulation"], run["world_size"], run["gbs"]) == (11, 6, 8, 528)
    assert "528 = 11 sequences x 6 accumulation x 8 processes" in seed["launch"]


def test_it_computes_in_fp32(seed: Bundle) -> None:
    assert (argument(seed, "bf16"), argument(seed, "fp16"), argument(seed, "tf32")) == (False, False, False)
    assert seed["payload"]["model"]["dtype"] == "float32"
    assert seed["deepspeed"]["bf16"] == {"enabled": False}
    assert seed["payload"]["model"]["attn_implementation"] == "sdpa"


def test_the_data_is_mapped_from_its_own_form(seed: Bundle) -> None:
    (source,) = seed["payload"]["data"]["sources"]
    assert (source["shape"], source["columns"], source["split"]) == ("conversations", ["conversations"], "train")
