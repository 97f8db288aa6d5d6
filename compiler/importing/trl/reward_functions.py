"""TRL's own reward functions (`trl.rewards`), such as `think_format_reward`. A spec uses xpc's equivalent built-in
function or, if there is none, a file next to the spec that imports TRL's function.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.importing.draft import Draft
from xpc.compiler.language.kinds import Weighted

FILE = "trl_rewards.py"
"""The name of a file next to the spec that imports reward functions from TRL."""
HEAD = '"""Reward functions of TRL."""\n\n'
PUNISHMENT = "get_soft_overlong_punishment"
USUAL: Mapping[str, object] = {"max_completion_len": 1280, "soft_punish_cache": 256}
"""The arguments that `trl grpo` passes to `get_soft_overlong_punishment` (trl/scripts/grpo.py)."""
NAMES = ("accuracy_reward", "think_format_reward", "reasoning_accuracy_reward", PUNISHMENT)
"""The names that `--reward_funcs` of `trl grpo` and `trl rloo` accepts."""
MAKING = {
    PUNISHMENT: ("max_completion_len", "soft_punish_cache"),
    "get_repetition_penalty_reward": ("ngram_size", "max_penalty"),
    "get_cosine_scaled_reward": (),
}
"""Maps TRL's functions that return a reward function to the names of their positional arguments."""


def weighted(draft: Draft, name: str, weight: float | None, arguments: Mapping[str, object] | None = None) -> Weighted:
    """TRL's reward function `name`, as a spec refers to it. `arguments` are the arguments of a call that makes the
    function, as in `get_soft_overlong_punishment(max_completion_len=512, soft_punish_cache=64)`.
    """
    if name == "accuracy_reward":
        return Weighted("accuracy", weight)
    if name == PUNISHMENT:
        given = USUAL if arguments is None else arguments
        stated = tuple((key, one) for key, one in given.items() if isinstance(one, bool | int | float | str))
        return Weighted("soft_overlong_punishment", weight, arguments=stated)
    made = name.removeprefix("get_") if name in MAKING else name
    lines = draft.files.get(FILE, HEAD.encode()).decode()
    imported = f"from trl.rewards import {name}\n"
    lines = lines if imported in lines else lines.replace(HEAD, HEAD + imported)
    if made != name:
        call = ", ".join(f"{key}={one!r}" for key, one in (arguments or {}).items())
        lines += f"\n{made} = {name}({call})\n"
    draft.files[FILE] = lines.encode()
    return Weighted(made, weight, FILE, made)
