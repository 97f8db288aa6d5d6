"""Decide which modules of features/ and library_internals/ a run uses; its bundle contains only those.

Only the compiler uses this file; bundles do not contain it. The compiler writes two results: ``enabled.py``, and the
list `unused` in ``trainer_args.json``. This list has the unset settings that would need a module which the bundle
lacks. A bundle also contains the modules that its modules import.
"""

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from ..features.launch.packages import EIGHT_BIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .payload import Gpu, Payload, Trainer
    from .payload_data import Source

    Part = Callable[[Payload], dict[str, object]]

CHATS = ("text", "messages", "conversations", "tokens", "images")
"""Row shapes (values of a source's `shape`) without a separate prompt."""
WITH_IMAGES = ("images", "image_preference")
"""Row shapes (values of a source's `shape`) that contain images."""
DECISIVE: dict[str, tuple[str, ...]] = {
    "arguments": (
        "assistant_only_loss", "bf16", "chat_template_path", "eos_token", "eval_on_start", "eval_strategy",
        "gradient_accumulation_steps", "log_completions", "lr_scheduler_kwargs", "max_prompt_length", "num_iterations",
        "optim", "optim_target_modules", "packing", "pad_token", "push_to_hub", "report_to", "save_total_limit",
        "steps_per_generation", "sync_ref_model", "use_vllm",
    ),
    "run": (
        "context_parallel", "deepspeed_optimizer", "device", "distributed_type", "division", "fp8", "full_state", "gpu",
        "idle", "nan", "nodes", "patience", "processes_per_node", "world_size", "zero_stage",
    ),
}  # fmt: skip
"""The keys of two large sections of trainer_args.json that `uses` reads. The cache of `_unused` depends only on these
keys' values, not on the complete sections."""


def sources(plan: "Payload") -> "list[Source]":
    """Every source of the run, for training and evaluation."""
    evaluation = plan["data"].get("evaluation")
    sets = evaluation["sets"] if evaluation else []
    return [*plan["data"]["sources"], *(source for one in sets for source in one["sources"])]


def trainer(plan: "Payload") -> "Trainer":
    """The section `trainer` of trainer_args.json. Its `unused` lists unset settings whose module the bundle lacks."""
    decisive: dict[str, Any] = dict(plan)
    for section, names in DECISIVE.items():
        decisive[section] = {name: decisive[section][name] for name in names if name in decisive[section]}
    return {"unused": [*_unused(json.dumps(decisive))]}


IMPORT = re.compile(r"^ *from \.(?:features\.\w+|library_internals)\.(\w+) import (.+)$")
"""Matches a line of enabled.py that imports a feature or a trainer class."""


def enabled(source: str, plan: "Payload") -> str:
    """A run's enabled.py: the complete file without the lines of features that the run does not use. It imports the
    trainer class of the run's method."""
    used, lines, unused = uses(plan), source.split("\n"), set[str]()
    for line in lines:
        if (found := IMPORT.match(line)) and not used[found[1]]:
            unused.update((line.strip(), *(name for one in found[2].split(", ") for name in (f"{one}(),", f"{one},"))))
    text = re.sub("\n\n+(?=    class )", "\n\n", "\n".join(line for line in lines if line.strip() not in unused))
    module, _, name = plan["config"].removesuffix("Config").rpartition(".")
    text = text.replace("from trl import SFTTrainer", f"from {module} import {name}Trainer")
    return text.replace("        SFTTrainer,", f"        {name}Trainer,")


@lru_cache(64)
def _unused(text: str) -> tuple[str, ...]:
    """Paths of the unset settings that would need a module which the bundle lacks, such as `model.rope`.

    The result is cached, because it is the same for most members of a sweep.
    """
    plan, out = json.loads(text), set[str]()
    for part in PARTS:  # to save time, each function of PARTS is called again only for settings that it read
        read = list[str]()
        found = _named(part(cast("Payload", _Read(plan, "", read))))
        known: dict[object, bool] = {}  # cached, because thousands of data sources have only a few different keys
        for path in dict.fromkeys(read):
            key = _alike(plan, path)
            if key not in known:
                known[key] = not path.startswith("stack.") and bool(_with(plan, path, part) - found)
            if known[key]:
                out.add(path)
    return tuple(sorted(out))


def _alike(plan: "Payload", path: str) -> object:
    """A key for the cache of `_unused`. Settings of two data sources have equal keys if `uses` treats both alike."""
    if ".sources." not in f".{path}" or not path.rpartition(".")[0].rpartition(".")[2].isdecimal():
        return path
    place, above = _place(plan, path), re.sub(r"\d+", "", path)
    return above, place["shape"], place["id"] is None, "tools" in (place["columns"] or ()), *map(bool, place.values())


def _place(plan: "Payload", path: str) -> Any:
    """The section that contains the setting at this path."""
    place: Any = plan
    for one in path.split(".")[:-1]:
        place = place[int(one)] if isinstance(place, list) else place[one]
    return place


def _with(plan: "Payload", path: str, part: "Part") -> set[str]:
    """The modules that ``part``, one of `PARTS`, says the run would use if the setting at this path had a value."""
    place, name = _place(plan, path), path.rpartition(".")[2]
    before = dict(place)
    place[name] = {"id": None, "sets": []}
    found = _named(part(plan))
    place.clear()
    place.update(before)
    return found


def _named(used: "Mapping[str, object]") -> set[str]:
    """The names of the modules that are used."""
    return {name for name, one in used.items() if one}


class _Read(dict[str, Any]):
    """A section of trainer_args.json. If an unset value is read, its path is recorded."""

    def __init__(self, section: dict[str, Any], path: str, read: list[str]) -> None:
        super().__init__(section)
        self.path = path
        self.read = read

    def __getitem__(self, name: str) -> object:
        return self.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value with this name, or None. If the value is a section, reads in it are recorded, too."""
        value, path = super().get(name, default), f"{self.path}{name}"
        if not value or value == "no":
            self.read.append(path)
        if isinstance(value, dict):
            return _Read(value, f"{path}.", self.read)
        if isinstance(value, list):
            parts = enumerate(value)
            return [_Read(one, f"{path}.{i}.", self.read) if isinstance(one, dict) else one for i, one in parts]
        return value


def uses(plan: "Payload") -> dict[str, bool]:
    """For each module, by name: whether a run with this trainer_args.json uses it."""
    return {name: bool(one) for part in PARTS for name, one in part(plan).items()}


def _of_rows(plan: "Payload") -> dict[str, object]:
    """The modules that read rows and turn them into tokens."""
    arguments, data, tokens = plan["arguments"], plan["data"], plan["tokenizer"]
    shapes, by_share = {one["shape"] for one in sources(plan)}, data.get("exhausted") is not None
    prompts = shapes - {*CHATS}
    several = len(data["sources"]) > 1 or any(one.get("take") or one.get("limit") for one in sources(plan))
    lengths = (data.get(name) is not None for name in ("max_prompt", "min_tokens", "max_tokens"))
    return {
        "added_tokens": tokens.get("added"),
        "assistant_masks": arguments.get("assistant_only_loss"),
        "chat": data["system"] or data.get("system_column") or shapes & {"messages", "text"},
        "chat_template": tokens["chat_template"] or arguments.get("chat_template_path") or plan["model"]["path"],
        "chunks": data.get("long") == "chunk",
        "image_pairs": "image_preference" in shapes,
        "images": "images" in shapes,
        "lengths": any(lengths) or arguments.get("max_prompt_length"),
        "local_sources": any(one["path"] is not None for one in sources(plan)),
        "loss_mask": prompts or "tokens" in shapes or arguments.get("assistant_only_loss"),
        "message_fields": any(_has_fields(one) for one in sources(plan)),
        "mixed_shapes": any(one.get("kind") for one in sources(plan)),
        "mixture": not by_share and (several or _held_out(plan) or plan["method"]["unpaired"] or data.get("unique")),
        "named_roles": data.get("roles"),
        "packing": arguments.get("packing"),
        "prompt_template": data.get("prompt_template") or data.get("system_column"),
        "prompts": prompts,
        "reading": data.get("streaming"),
        "renamed_files": tokens["chat_template"] or any(one["path"] is not None for one in plan["data"]["sources"]),
        "shares": by_share,
        "special_tokens": any(tokens[one] or arguments.get(one) for one in ("eos_token", "pad_token")),
        "template_time": shapes - {"text", "tokens"},
        "tokenizer_files": plan["model"]["id"] is None or plan["lora"],
        "tokens": "tokens" in shapes,
        "unread_columns": any(_has_fields(one) for one in sources(plan)),
        "vision": shapes & {*WITH_IMAGES},
    }


def _of_model(plan: "Payload") -> dict[str, object]:
    """The modules that load the model, its adapters and its teacher, and choose the weights that are trained."""
    arguments, model, run = plan["arguments"], plan["model"], plan["run"]
    lora: Mapping[str, Any] = plan["lora"] or {}
    sharded = run["zero_stage"] or run["distributed_type"] == "FSDP"
    # FSDP2, and ZeRO in fp32, have one dtype for all trained weights; with a quantized base, TRL casts adapters to
    # bfloat16 but leaves DoRA's magnitudes in float32
    wide = sharded and lora.get("bits") and lora.get("dora") and lora.get("adapter_dtype") == "float32"
    no_bfloat16 = not arguments.get("bf16") and model["dtype"] != "bfloat16" and not run.get("fp8")
    local_model = lora.get("continued") or None in (model["id"], (plan["method"]["teacher"] or model)["id"])
    return {
        "adapter_init": lora.get("init") not in (None, "gaussian"),
        "adapters": lora,
        "compiled_layers": model.get("compile_layers"),
        "continued_adapter": lora.get("continued"),
        "float8": run.get("fp8"),
        "frozen_weights": plan.get("freeze"),
        "hub_kernels": model.get("kernels"),
        "liger_family": model.get("liger_unchecked"),
        "liger_kernels": model["liger"],
        "local_files": any(one["path"] is not None for one in sources(plan)) or local_model,
        "merged_adapters": lora.get("merge"),
        "model_files": local_model,
        "newer_config": plan["stack"].get("older_transformers"),
        "renamed_weights": model.get("renamed") and not (sharded or lora),
        "rope": model.get("rope"),
        "tied_weights": not run["zero_stage"],
        "transformers_checkpoints": not sharded,
        "weight_dtypes": no_bfloat16 or wide,
    }


def _of_method(plan: "Payload") -> dict[str, object]:
    """The modules for the training method: its losses, its generation and its rewards."""
    arguments, method = plan["arguments"], plan["method"]
    rounds, iterations = (arguments.get(name) for name in ("steps_per_generation", "num_iterations"))
    accumulation = arguments.get("gradient_accumulation_steps")
    on_policy = plan["config"].endswith("GKDConfig")
    return {
        "answer_ends": method["name"] in ("dpo", "kto", "orpo", "cpo"),
        "checkpointing_warning": method["name"] != "sft" or plan["lora"],
        "generation_prompt": method["generates"],
        "kto": method["unpaired"],
        "log_completions": method["rewarded"] and arguments.get("log_completions"),
        "loss_division": method["name"] in plan["stack"]["losses_not_divided"],
        "on_policy": method["teacher"] and on_policy,
        "orpo_counts": plan["config"].endswith(("ORPOConfig", "CPOConfig")),
        "pair_counts": method["name"] != "sft",
        "reference": method["second_model"],
        "repeated_prompts": method["generates"] and not on_policy,
        "reward_head": method["scores"],
        "reward_progress": method["name"] != "sft",
        "rewards": method["rewarded"],
        "rollout_rounds": method["generates"] and method["rewarded"] and (rounds, iterations) != (accumulation, 1),
        "sampling": method["generates"],
        "synced_reference": arguments.get("sync_ref_model"),
        "teacher": method["teacher"],
        "tools": method.get("tools"),
        "trl_tool_calls": method.get("tools"),
    }


def _of_run(plan: "Payload") -> dict[str, object]:
    """The modules for processes and packages, for the optimizer, and for evaluation, saving and logs."""
    arguments, run = plan["arguments"], plan["run"]
    zero, nodes, on_cpu = run["zero_stage"], run["nodes"] > 1, run["device"] == "cpu"
    evaluates = _held_out(plan) or arguments.get("eval_strategy", "no") != "no" or arguments.get("eval_on_start")
    reports = arguments.get("report_to") not in (None, [], "none", ["none"])
    kernels = any(part in str(arguments.get("optim", "")) for part in EIGHT_BIT)
    kernels = kernels or str(plan["model"]["attn_implementation"]).startswith("flash")
    divided = run["division"]["step"] is None and run["division"]["processes"] is None
    return {
        "all_reduce": not nodes and not on_cpu and run["processes_per_node"] > 1,
        "cpu_processes": on_cpu,
        "decay_share": isinstance((arguments.get("lr_scheduler_kwargs") or {}).get("num_decay_steps"), float),
        "deepspeed": zero,
        "deepspeed_engine": zero == 3 or (zero and on_cpu),
        "deepspeed_shards": zero and divided,
        "during_training": evaluates,
        "early_stopping": run.get("patience"),
        "empty_groups": plan["lora"] or plan.get("freeze") or (zero and not run.get("deepspeed_optimizer")),
        "epoch_order": plan["stack"]["epoch_forgotten"],
        "fsdp": run["distributed_type"] == "FSDP",
        "hub": arguments.get("push_to_hub"),
        "idle": run.get("idle") != "allow",
        "muon": plan.get("muon"),
        "named_log": evaluates,
        "nan_loss": run.get("nan") == "allow",
        "node_all_reduce": nodes,
        "node_network": nodes,
        "node_rendezvous": nodes,
        "packages": reports or kernels or plan["method"]["rewarded"] or plan["lora"] or arguments.get("use_vllm"),
        "peer_to_peer": run["world_size"] > 1 and run["gpu"] and _may_be(run["gpu"], "RTX 40"),
        "projected_gradients": arguments.get("optim_target_modules"),
        "random_states": divided,
        "rotation": arguments.get("save_total_limit"),
        "schedule_free": "schedule_free" in str(arguments.get("optim")),
        "single_process": run["world_size"] == 1,
        "torch_exit_barrier": nodes,
        "trackers": {"mlflow", "swanlab", "clearml"} & {*(arguments.get("report_to") or ())},
        "ulysses": zero and run.get("context_parallel", 1) > 1,
        "weights_only": run.get("full_state") is False,
    }


PARTS: "tuple[Part, ...]" = (_of_rows, _of_model, _of_method, _of_run)
"""Functions that decide which modules a run uses. Each is responsible for one topic, such as the model."""


def _held_out(plan: "Payload") -> object:
    """The setting that gives the run rows for evaluation, if there is one."""
    data = plan["data"]
    return data["holdout"] or data.get("eval_split") or data.get("evaluation")


def _has_fields(source: "Source") -> bool:
    """Whether a source's messages may have keys besides a role and a text, such as `tool_calls`."""
    if source["shape"] == "conversations":  # messages of a local file may have any keys
        return source["id"] is None or "tools" in (source["columns"] or ())
    return source["shape"] not in ("text", "tokens", *WITH_IMAGES)


def _may_be(gpu: "Gpu", family: str) -> bool:
    """Whether the GPU may belong to a family, such as "H100". True if torch's names of the GPU are unknown."""
    names = gpu.get("device_names")
    return not names or any(family in one for one in names)
