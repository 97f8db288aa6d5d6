"""Which modules of features/ and library_internals/ a run uses: a bundle has those of its run, and no others.

The compiler asks when it writes trainer_args.json, where the answer stands; a bundle has no copy of this file. What a
module adds to a step of the run is its function of the step's name (``Bundle.step``). Among themselves they are
imported below ``if bundle.uses(NAME)``, and what a module imports at its top comes with it.
"""

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from ..features.packages import EIGHT_BIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .payload import Gpu, Payload, Source, Trainer

CHATS = ("text", "messages", "conversations")
"""Shapes of rows without a prompt of their own."""
OF_TRAINER = (
    "adapters", "distillation", "early_stopping", "frozen_weights", "hub", "reference_model", "rewards", "sampling",
    "weight_dtypes",
)  # fmt: skip
"""Features that add something to the making of trl's trainer (trainer_parts)."""
STEPS: dict[str, tuple[str, ...]] = {
    # before anything is loaded
    "messages": ("deepspeed", "adapters"),
    "environment": ("cpu_processes", "one_process", "node_network", "orpo_lengths", "packages"),
    "held": ("node_rendezvous",),
    "changed_files": ("executed_files",),
    "executed_files": ("executed_files",),
    "missing": ("packages",),
    "problems": ("hub", "continued_adapter", "packages"),
    "extensions": ("deepspeed",),
    "between_gpus": ("peer_to_peer", "all_reduce", "node_all_reduce"),
    "before_rows": ("method_checks", "liger_family", "arranged_rows"),
    "of_columns": ("method_checks",),
    "part_ways": ("paired_rows",),
    "end": ("node_all_reduce",),
    # the launch
    "before_launch": ("library_internals.torch_exit_barrier",),
    "launch": ("one_process",),
    "launch_failed": ("one_process", "node_rendezvous"),
    # arguments, the output folder
    "before_arguments": (
        "cpu_processes", "peer_to_peer", "executed_files", "compiled_layers", "sampling",
        "library_internals.deepspeed_engine", "library_internals.deepspeed_shards",
    ),
    "folder_taken": ("hub",),
    "states": ("deepspeed", "fsdp", "plain_checkpoints"),
    "without_checkpoint": ("weights_only",),
    # tokenizer, rows, model, trainer
    "deprecations": ("deepspeed", "checkpointing_warning", "library_internals.ulysses"),
    "tokenizer_loaded": ("executed_files", "added_tokens", "special_tokens"),
    "reader": ("local_data",),
    "why_unreadable": ("local_data",),
    "to_row": ("paired_rows", "chat_rows"),
    "row_maker": ("worded_rows", "named_roles"),
    "arranged": ("arranged_rows",),
    "limit": ("packed_rows",),
    "counter": ("pair_lengths", "orpo_lengths", "mixed_shapes"),
    "counted": ("packed_rows", "masked_rows", "reward_model"),
    "model_folder": ("local_files",),
    "before_model": ("library_internals.hub_kernels", "projected_gradients"),
    "model_loader": ("reward_model", "adapters"),
    "model_loaded": ("weight_dtypes", "added_tokens", "liger"),
    "TrainerMixin": (
        "nan_allowed", "weights_only", "library_internals.random_states", "optimizer_groups", "evaluation",
        "checkpoint_rotation", "hub", "adapters", "mixed_shapes",
    ),
    "bases": ("distillation", "evaluation"),
    "trainer_maker": ("trainer_parts",),
    "trainer_built": ("library_internals.epoch_order", "library_internals.ulysses", "tied_weights"),
    # training
    "missed": ("evaluation",),
    "before_first_step": ("evaluation", "deepspeed"),
    "line": ("evaluation",),
    "progress": ("reward_progress",),
    # the end
    "stopped": ("hub",),
    "before_final_save": ("fsdp",),
    "final_saved": ("merged_weights",),
    "last_told": ("evaluation",),
    "finished": ("hub",),
}  # fmt: skip
"""The steps of a run to which modules add something, each with those that do, in order.

Each has a function of the step's name; of "TrainerMixin" a class, which stands before those of earlier modules."""
DECISIVE: dict[str, tuple[str, ...]] = {
    "arguments": (
        "assistant_only_loss", "bf16", "chat_template_path", "eos_token", "eval_on_start", "eval_strategy", "optim",
        "optim_target_modules", "packing", "pad_token", "push_to_hub", "report_to", "save_total_limit", "use_vllm",
    ),
    "run": (
        "context_parallel", "deepspeed_optimizer", "device", "distributed_type", "division", "full_state", "gpu", "nan",
        "nodes", "patience", "processes_per_node", "world_size", "zero_stage",
    ),
}  # fmt: skip
"""What `uses` reads of the two sections that hold the most else."""


def sources(plan: "Payload") -> "list[Source]":
    """Every source of the run: what is trained on, and the sets that are evaluated on."""
    evaluation = plan["data"].get("evaluation")
    sets = evaluation["sets"] if evaluation else []
    return [*plan["data"]["sources"], *(source for one in sets for source in one["sources"])]


def trainer(plan: "Payload") -> "Trainer":
    """The section of trainer_args.json that says which modules the run uses, and which settings need another one."""
    decisive: dict[str, Any] = dict(plan)
    decisive.update({section: _only(decisive[section], names) for section, names in DECISIVE.items()})
    found = _trainer(json.dumps(decisive))
    steps = {step: [*places] for step, places in found["steps"].items()}
    return {"modules": [*found["modules"]], "steps": steps, "unused": [*found["unused"]]}


def _only(section: "Mapping[str, Any]", names: tuple[str, ...]) -> dict[str, Any]:
    return {name: section[name] for name in names if name in section}


@lru_cache(64)
def _trainer(text: str) -> "Trainer":
    """The section for what decides it: the runs of a sweep differ in other things."""
    plan, asked = json.loads(text), list[str]()
    found = {name for name, used in uses(cast("Payload", _Read(plan, "", asked))).items() if used}
    settings = (path for path in dict.fromkeys(asked) if not path.startswith("stack."))
    return {
        "modules": sorted(found),
        "steps": {step: places for step in STEPS if (places := _places(step, found))},
        "unused": sorted(path for path in settings if _with(plan, path) - found),
    }


def _places(step: str, used: set[str]) -> list[str]:
    """The modules of a run that add something to a step, as folder.module."""
    places = (one if "." in one else f"features.{one}" for one in STEPS[step])
    return [one for one in places if one.partition(".")[2] in used]


def _with(plan: "Payload", path: str) -> set[str]:
    """The modules of a run that has something at this path."""
    *sections, name = path.split(".")
    place: Any = plan
    for one in sections:
        place = place[int(one)] if isinstance(place, list) else place[one]
    before = dict(place)
    place[name] = {"id": None, "sets": []}
    found = {name for name, used in uses(plan).items() if used}
    place.clear()
    place.update(before)
    return found


class _Read(dict[str, Any]):
    """A section that notes the path of each value that was asked for and is none."""

    def __init__(self, section: dict[str, Any], path: str, asked: list[str]) -> None:
        super().__init__(section)
        self.path = path
        self.asked = asked

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value, which notes in turn where it is a section."""
        value, path = super().get(name, default), f"{self.path}{name}"
        if not value or value == "no":
            self.asked.append(path)
        if isinstance(value, dict):
            return _Read(value, f"{path}.", self.asked)
        if isinstance(value, list):
            parts = enumerate(value)
            return [_Read(one, f"{path}.{i}.", self.asked) if isinstance(one, dict) else one for i, one in parts]
        return value


def uses(plan: "Payload") -> dict[str, bool]:
    """By the name of each module, whether a run with this trainer_args.json uses it."""
    arguments, data, model, run, method = plan["arguments"], plan["data"], plan["model"], plan["run"], plan["method"]
    tokens = plan["tokenizer"]
    zero, nodes, on_cpu = run["zero_stage"], run["nodes"] > 1, run["device"] == "cpu"
    held_out = data["holdout"] or data.get("eval_split") or data.get("evaluation")
    prompts = any(one["shape"] not in CHATS for one in sources(plan))
    systems = data["system"] or data.get("system_column")
    local = any(one["path"] is not None for one in sources(plan))
    shares = len(data["sources"]) > 1 or any(one.get("take") or one.get("limit") for one in sources(plan))
    lengths = (data.get(name) is not None for name in ("max_prompt", "min_tokens", "max_tokens"))
    filtered = data.get("unique") or any(lengths)
    # TRL rounds adapters over a quantized base to bfloat16, but for DoRA's magnitudes, and FSDP2 takes one type.
    tuned: Mapping[str, Any] = plan["lora"] or {}
    wide = run["distributed_type"] == "FSDP" and tuned.get("bits") and tuned.get("dora")
    no_bfloat16 = not arguments.get("bf16") and model["dtype"] != "bfloat16"
    reports = arguments.get("report_to") not in (None, [], "none", ["none"])
    kernels = any(part in str(arguments.get("optim", "")) for part in EIGHT_BIT)
    kernels = kernels or str(model["attn_implementation"]).startswith("flash")
    divided = run["division"]["step"] is None and run["division"]["processes"] is None
    continued = plan["lora"] and plan["lora"].get("continued")
    asked: dict[str, object] = {
        "adapters": plan["lora"],
        "added_tokens": tokens.get("added"),
        "all_reduce": not nodes and not on_cpu and run["processes_per_node"] > 1,
        "arranged_rows": shares or held_out or method["unpaired"] or filtered,
        "assistant_marks": arguments.get("assistant_only_loss"),
        "chat_rows": systems or any(one["shape"] in ("messages", "text") for one in sources(plan)),
        "checkpoint_rotation": arguments.get("save_total_limit"),
        "checkpointing_warning": method["name"] != "sft" or plan["lora"],
        "compiled_layers": model.get("compile_layers"),
        "continued_adapter": continued,
        "cpu_processes": on_cpu,
        "deepspeed": zero,
        "deepspeed_engine": zero == 3 or (zero and on_cpu),
        "deepspeed_shards": zero and divided,
        "distillation": method["teacher"],
        "early_stopping": run.get("patience"),
        "epoch_order": plan["stack"]["epoch_forgotten"],
        "evaluation": held_out or arguments.get("eval_strategy", "no") != "no" or arguments.get("eval_on_start"),
        "executed_files": tokens["chat_template"] or arguments.get("chat_template_path"),
        "frozen_weights": plan.get("freeze"),
        "fsdp": run["distributed_type"] == "FSDP",
        "hub": arguments.get("push_to_hub"),
        "hub_kernels": model.get("kernels"),
        "kto_rows": method["unpaired"],
        "liger": model["liger"],
        "liger_family": model.get("liger_unchecked"),
        "local_data": local,
        "local_files": local or continued or None in (model["id"], (method["teacher"] or model)["id"]),
        "masked_rows": prompts or arguments.get("assistant_only_loss"),
        "merged_weights": plan["lora"] and plan["lora"].get("merge"),
        "method_checks": arguments.get("assistant_only_loss") or method["rewarded"] or method["teacher"],
        "mixed_shapes": any(one.get("kind") for one in sources(plan)),
        "mixture": shares or held_out,
        "named_roles": data.get("roles"),
        "nan_allowed": run.get("nan") == "allow",
        "node_all_reduce": nodes,
        "node_network": nodes,
        "node_rendezvous": nodes,
        "one_process": run["world_size"] == 1,
        "optimizer_groups": plan["lora"] or plan.get("freeze") or (zero and not run.get("deepspeed_optimizer")),
        "orpo_lengths": plan["config"].endswith("ORPOConfig"),
        "packed_rows": arguments.get("packing"),
        "packages": reports or kernels or method["rewarded"] or plan["lora"] or arguments.get("use_vllm"),
        "pair_lengths": method["name"] != "sft",
        "peer_to_peer": run["world_size"] > 1 and run["gpu"] and _may_be(run["gpu"], "RTX 40"),
        "paired_rows": prompts,
        "plain_checkpoints": not zero,
        "projected_gradients": arguments.get("optim_target_modules"),
        "random_states": divided,
        "reference_model": method["second_model"],
        "reward_model": method["scores"],
        "rewards": method["rewarded"],
        "reward_progress": method["name"] != "sft",
        "row_filters": filtered,
        "sampling": method["generates"],
        "special_tokens": any(tokens[one] or arguments.get(one) for one in ("eos_token", "pad_token")),
        "tied_weights": not zero,
        "torch_exit_barrier": nodes,
        "ulysses": zero and run.get("context_parallel", 1) > 1,
        "weight_dtypes": no_bfloat16 or wide,
        "weights_only": run.get("full_state") is False,
        "worded_rows": data.get("prompt_template") or data.get("system_column"),
    }
    asked["trainer_parts"] = method["name"] in plan["stack"]["losses_not_divided"] or any(map(asked.get, OF_TRAINER))
    return {name: bool(one) for name, one in asked.items()}


def _may_be(gpu: "Gpu", family: str) -> bool:
    """Whether a GPU may be of a family, by the names that torch has for it; one without names may be any."""
    names = gpu.get("device_names")
    return not names or any(family in one for one in names)
