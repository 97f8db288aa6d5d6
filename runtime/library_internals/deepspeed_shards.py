"""Resume from ZeRO's checkpoints with another number of processes, although deepspeed 0.16 to 0.19 refuses this.

A checkpoint has one shard for each process: its part of the weights and of each optimizer state, in flat groups. Each
new process builds its shard from the old ones, and DeepSpeed loads it as if DeepSpeed had saved it.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

from ..core.feature import Bundle, Feature

SHARD = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_00_optim_states\.pt$")
STATES = "optimizer_state_dict"
UP_TO_TWO = ("single_partition_of_fp32_groups", "base_optimizer_state", "single_partition_of_fp32_groups")
THREE = ("fp32_flat_groups", STATES, "fp32_partitioned_groups_flat")
"""For ZeRO 1/2, and for ZeRO 3: a shard's keys for weights and for states, the optimizer's attribute with weights."""
Part = tuple[int, int, int, int, int]
"""A slice of a weight: process, group, the start of the slice in the shard and in the weight, and its length."""


class DeepSpeedShards(Feature):
    """Hooks with which a run can read ZeRO's checkpoints that another number of processes wrote."""

    def before_arguments(self, bundle: Bundle, values: dict[str, Any]) -> None:
        """Replace the method of DeepSpeed's engine that loads checkpoints."""
        from deepspeed.runtime.engine import DeepSpeedEngine

        original = DeepSpeedEngine.load_checkpoint

        def load_checkpoint(engine: object, load_dir: str, *args: Any, **kwargs: object) -> object:
            with open(os.path.join(load_dir, "latest"), encoding="utf-8") as handle:
                place = os.path.join(load_dir, handle.read().strip())
            found = {int(match[1]): match[0] for match in map(SHARD.match, os.listdir(place)) if match}
            if len(found) == bundle.run["world_size"]:
                return original(engine, load_dir, *args, **kwargs)
            model = min(name for name in os.listdir(place) if name.endswith("_model_states.pt"))
            load(engine, *(_read(place, name) for name in (model, *(found[rank] for rank in sorted(found)))))
            return place, {}

        DeepSpeedEngine.load_checkpoint = load_checkpoint


def load(engine: Any, model: dict[str, Any], *files: Any) -> None:
    """Load a checkpoint as DeepSpeed's method does (runtime/engine.py), but from a new shard that is made of the old
    shards."""
    optimizer, flat_groups = engine.optimizer, engine.zero_optimization_stage() < 3
    weights, states, flat = UP_TO_TWO if flat_groups else THREE
    empty, shards, rank = getattr(optimizer, flat), [one[STATES] for one in files], engine.global_rank
    old_parts: dict[str, list[Part]] = {}
    for name, part in _layout(flat_groups, model["param_shapes"], shards[0][weights], len(shards)):
        old_parts.setdefault(name, []).append(part)
    new_parts = list(_layout(flat_groups, engine._get_zero_param_shapes(), empty, engine.dp_world_size))

    def cut(old: list[Any]) -> list[object]:
        new = [old[0][0].new_zeros(one.numel()) for one in empty]
        for name, (owner, group, start, first, size) in new_parts:
            for source, its, begin, low, count in old_parts[name] if owner == rank else ():
                at, end = max(first, low), min(first + size, low + count)
                if at < end:
                    taken = old[source][its].flatten()[begin + at - low :]
                    new[group][start + at - first :][: end - at] = taken[: end - at]
        return new

    made: list[dict[str, Any]] = [{} for _ in empty]
    for key, value in shards[0][states]["state"].get(0, {}).items():
        of_all = [[group[key] for _, group in sorted(one[states]["state"].items())] for one in shards]
        for state, one in zip(made, cut(of_all) if getattr(value, "ndim", 0) else [value] * len(empty), strict=True):
            state[key] = one.clone() if hasattr(one, "clone") else one  # each group gets its own copy of the step count
    owners = getattr(optimizer, "sub_group_to_group_id", None) or range(len(empty))
    kinds = [
        {**kind, "params": [group for group in range(len(empty)) if owners[group] == number]}
        for number, kind in enumerate(shards[0][states]["param_groups"])
    ]
    merged = {"state": {group: one for group, one in enumerate(made) if one}, "param_groups": kinds}
    if hasattr(optimizer, "checkpoint_event_prologue"):
        optimizer.checkpoint_event_prologue()
    # under ZeRO-3, `model` has only one process's part of the frozen weights, so frozen weights keep the base's values
    engine.load_module_state_dict(checkpoint={**model, "frozen_param_fragments": None}, strict=False)
    if engine.lr_scheduler is not None:
        engine.lr_scheduler.load_state_dict(model["lr_scheduler"])
    for name in ("global_steps", "global_samples", "skipped_steps"):
        setattr(engine, name, model[name])
    mine = {**shards[0], weights: cut([one[weights] for one in shards]), states: merged}
    optimizer.load_state_dict({rank: mine}, load_optimizer_states=True, load_from_fp32_weights=True)
    if hasattr(optimizer, "checkpoint_event_epilogue"):
        optimizer.checkpoint_event_epilogue()


def _layout(flat_groups: bool, groups: Any, flats: Any, world: int) -> Iterator[tuple[str, Part]]:
    """Yield each weight's name with each process's slice of it. Up to ZeRO-2, a group's weights are joined and divided
    evenly: `flats` has one process's part of each group. Under ZeRO-3, each weight is divided evenly."""
    for group, shapes in enumerate(groups):
        start, shard = 0, flats[group].numel()
        for name, shape in shapes.items():
            count = shape.numel()
            share = -(-count // world)
            for rank in range(world):
                low, high = max(start, rank * shard), min(start + count, (rank + 1) * shard)
                if flat_groups and low < high:
                    yield name, (rank, group, low - rank * shard, low - start, high - low)
                elif not flat_groups:
                    yield name, (rank, group, start, rank * share, share)
            start += count if flat_groups else share


def _read(place: str, name: str) -> Any:
    import torch

    return torch.load(os.path.join(place, name), map_location="cpu", mmap=True, weights_only=False)
