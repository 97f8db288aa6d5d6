"""Import keys of the training methods: losses, rewards, and generation with vLLM."""

from __future__ import annotations

import re
from collections.abc import Mapping

from xpc.compiler.importing import reward_file
from xpc.compiler.importing.draft import NULL, Draft
from xpc.compiler.importing.outcomes import MAPPED
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, integer, is_stated, number, plain, text, words
from xpc.compiler.importing.text.values import KEYS
from xpc.compiler.importing.trl import reward_functions
from xpc.compiler.language.kinds import Weighted
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.rewards import REWARD_ARGUMENTS, REWARDS
from xpc.compiler.language.schema import BY_PATH, TABLE
from xpc.compiler.stacks import Field

PART = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
EXECUTED = ("code_eval_test_batch_size", "code_eval_scoring_mode", "parallel_code_exec_per_proc",
            "code_provider", "e2b_router_url", "morph_router_url", "piston_endpoints", "ioi_provider",
            "dataset_prompt_template")  # fmt: skip
"""Arguments of Open-R1's reward functions that execute generated code, which the runtime does not have."""
SCALED = {"true": "group", "false": "none", "group": "group", "batch": "batch", "none": "none"}


def online(draft: Draft, named: Entries) -> None:
    """Import the method's keys that are neither numbers nor switches: losses, vLLM, reward functions and their
    scaling.
    """
    _loss(draft, named)
    _blocks(draft, named)
    scaled = named.get("scale_rewards")
    if scaled is not None and draft.method == "grpo" and not scaled.empty:
        word = SCALED.get(str(text(scaled)).lower())
        if word is None:
            draft.error(scaled, "the value must be true, false, group, batch or none")
        else:
            draft.put("method.scale_rewards", word, scaled)
    level = named.get("importance_sampling_level")
    if level is not None and draft.method == "grpo" and not level.empty:
        if text(level) in BY_PATH["method.level"].choices:
            draft.put("method.level", text(level), level)
        else:
            draft.error(level, "the value must be " + " or ".join(BY_PATH["method.level"].choices))
    if METHODS[draft.method].grouped:
        _rewards(draft, named)
        _generation_arguments(draft, named.get("generation_kwargs"))
        batch = named.get("generation_batch_size")
        if is_stated(batch):  # `generation_batch` sets this later, from the number of processes
            draft.mark(batch, MAPPED, "method.steps_per_generation")
        else:
            draft.note(batch, NULL)


SAMPLING = ("top_p", "top_k", "min_p", "temperature", "repetition_penalty", "max_new_tokens")


def _generation_arguments(draft: Draft, entry: Entry | None) -> None:
    """Import `generation_kwargs`: sampling arguments such as `temperature` become settings and override the file's own
    keys; other arguments are errors.
    """
    if entry is None or not isinstance(entry.value, dict):
        return
    draft.note(entry, "each of its keys is imported separately")
    for name, one in entry.mapping.items():
        theirs = "max_completion_length" if name == "max_new_tokens" else name
        path = next((row.path for row in TABLE if draft.method in row.methods and theirs in row.args), None)
        if path is not None and name in SAMPLING:
            draft.settings.pop(path, None)
            draft.setting(path, one)
        elif name == "max_length" and "max_new_tokens" in entry.mapping:
            draft.note(one, "`max_new_tokens` decides the length of a completion")
        else:
            draft.error(one, "a spec has no such argument of generation")


def generation_batch(draft: Draft, named: Entries) -> None:
    """Set `steps_per_generation`. It is `generation_batch_size`, the number of completions in a generation round,
    divided by the micro-batch and by the number of processes.
    """
    entry = named.get("generation_batch_size")
    if not is_stated(entry) or not METHODS[draft.method].grouped:
        return
    devices = draft.value("hardware").rpartition(" x ")[0]
    world = int(devices or 1) * int(draft.value("nodes")) * int(draft.value("batch.micro") or 8)
    value = integer(entry)
    if value is None or value < 1 or value % world:
        draft.error(entry, f"it is not a multiple of {world}, the rows in a micro-batch on all processes",
                    "`--hardware` and `--nodes` name the machines of the run")  # fmt: skip
    else:
        draft.put("method.steps_per_generation", value // world, entry)


def _loss(draft: Draft, named: Entries) -> None:
    entry, weights, rpo = named.get("loss_type"), named.get("loss_weights"), named.get("rpo_alpha")
    losses = draft.stack.losses(draft.method) if draft.method in BY_PATH["method.loss"].methods else {}
    theirs = {here: ours for ours, here in losses.items()} | {ours: ours for ours in losses}
    if entry is not None and losses and not entry.empty:
        names = words(entry) or []
        given = [number(one) for one in weights.items] if is_stated(weights) else None
        unknown = [name for name in names if name not in theirs]
        if unknown:
            draft.error(entry, f"{draft.stack.name} has no loss `{unknown[0][:40]}` for {draft.method}",
                        "it has " + ", ".join(losses))  # fmt: skip
        elif given is not None and (len(given) != len(names) or None in given):
            draft.error(weights or entry, "the value must be a list with a number for each loss")
        else:
            found = [Weighted(theirs[name], weight) for name, weight in zip(names, given or [None] * len(names))]
            if rpo is not None and number(rpo) and "rpo_alpha" not in _fields(draft) and "sft" in losses:
                found = [Weighted(one.name, one.weight or 1.0) for one in found] + [Weighted("sft", number(rpo))]
                why = "this key is the weight of the likelihood of the chosen answer, the loss `sft` of a spec"
                draft.mark(rpo, "mapped", "method.loss", why)
            draft.put("method.loss", tuple(found), entry)
            draft.mark(weights, "mapped", "method.loss")
    elif entry is not None and entry.empty:
        draft.note(entry, NULL)
    elif entry is not None and draft.method == "sft" and entry.value == "nll":
        draft.note(entry, f"{draft.stack.name} has only this loss")
    if weights is not None and not draft.handled(weights) and weights.empty:
        draft.note(weights, NULL)
    missing = rpo is not None and not draft.handled(rpo) and "sft" in losses
    if missing and rpo is not None and number(rpo) and "rpo_alpha" not in _fields(draft):
        draft.put("method.loss", (Weighted("sigmoid", 1.0), Weighted("sft", number(rpo))), rpo)


def _fields(draft: Draft) -> Mapping[str, Field]:
    return draft.stack.fields(draft.stack.config(draft.method))


def _blocks(draft: Draft, named: Entries) -> None:
    """Import the keys that configure `use_vllm` and `sync_ref_model`. If the flag is off, its keys have no effect."""
    for path, switch in (("method.vllm", "use_vllm"), ("method.sync_reference", "sync_ref_model")):
        entry = named.get(switch)
        on = boolean(entry) is True and draft.method in BY_PATH[path].methods
        inside = {row.args[0]: row for row in TABLE if row.path.startswith(path + ".")}
        for name, row in inside.items():
            one = named.get(name)
            if one is None:
                continue
            if not on:
                draft.note(one, f"`{switch}` is not on")
            elif row.path == "method.vllm.mode" and not one.empty:
                if one.value in row.choices:
                    draft.put(row.path, one.value, one)
                else:
                    draft.error(one, "the value must be server or colocate")
    _of_vllm(draft, named)


def _of_vllm(draft: Draft, named: Entries) -> None:
    """Import the keys about vLLM that do not become settings of `vllm`."""
    for name in ("vllm_server_host", "vllm_server_base_url", "vllm_device", "vllm_dtype", "vllm_max_model_len",
                 "vllm_enforce_eager", "vllm_enable_prefix_caching"):  # fmt: skip
        one = named.get(name)
        if one is None or draft.handled(one) or not METHODS[draft.method].grouped:
            continue
        if one.off or named.get("use_vllm") is None or named["use_vllm"].off:
            draft.note(one, "`use_vllm` is not on")
        elif name == "vllm_max_model_len" and "vllm_max_model_length" in _fields(draft):
            draft.setting("method.vllm.max_length", one)
        elif name in ("vllm_server_host", "vllm_max_model_len"):
            host = "a spec never contains a host name: XPC_VLLM_HOST names it at the launch"
            why = host if name == "vllm_server_host" else f"on {draft.stack.name}, vLLM decides its context length"
            draft.note(one, why)
            draft.warn(one, why)
        elif name in ("vllm_enforce_eager", "vllm_enable_prefix_caching"):
            draft.note(one, "it changes how vLLM computes, and not the completions")
        elif name == "vllm_device":
            draft.put("method.vllm.mode", "server", one, "one GPU of the imported run is only for vLLM")
            draft.warn(one, "one GPU of the imported run is only for vLLM; the spec generates with a vLLM server, "
                       "whose GPU `hardware` does not count")  # fmt: skip


ARGUMENTS: Mapping[str, tuple[str, str]] = {
    **{f"cosine_{name}": ("cosine", name) for name in REWARD_ARGUMENTS["cosine"]},
    "repetition_n_grams": ("repetition_penalty", "ngram_size"),
    "repetition_max_penalty": ("repetition_penalty", "max_penalty"),
    "max_completion_len": ("soft_overlong_punishment", "max_completion_len"),
    "soft_punish_cache": ("soft_overlong_punishment", "soft_punish_cache"),
    "code_language": ("code_format", "language"),
}
"""Maps an argument of Open-R1's scripts (`configs.py`) to a reward function and its argument with the same meaning:
`repetition_n_grams` to `ngram_size` of `repetition_penalty`.
"""
LENGTHS = {"max_completion_len": 16384, "soft_punish_cache": 4096}
"""Open-R1's defaults of `soft_overlong_punishment`. A bundle's defaults follow from `max_completion`."""


def _reward_arguments(draft: Draft, named: Entries, reward: str) -> tuple[tuple[str, int | float | str], ...]:
    """The arguments of a built-in reward function: those that the file states, such as `cosine_max_len` for `cosine`,
    and Open-R1's defaults where a bundle has others.
    """
    found: dict[str, int | float | str] = dict(LENGTHS) if reward == "soft_overlong_punishment" else {}
    for key, (owner, argument) in ARGUMENTS.items():
        one = named.get(key)
        if owner != reward or not is_stated(one):
            continue
        kind = REWARD_ARGUMENTS[reward][argument]
        value = text(one) if kind is str else integer(one) if kind is int else number(one)
        if value is None:
            word = "text" if kind is str else "whole number" if kind is int else "number"
            draft.error(one, f"the reward function takes a single {word} for this key")
        else:
            found[argument] = value
            draft.mark(one, MAPPED, f"method.rewards: {reward}({argument}={plain(one)})")
    return tuple(found.items())


def _rewards(draft: Draft, named: Entries) -> None:
    """Import the reward functions with their weights, and the keys that only functions of Open-R1's scripts read."""
    entry, weights = named.get("reward_funcs"), named.get("reward_weights")
    own = False
    if entry is not None and words(entry) is None:
        draft.error(entry, "the value must be a list of names", "write `method { rewards = [NAME(weight=1)] }`")
    elif is_stated(entry):
        own = _named_rewards(draft, named, entry, weights)
    elif draft.reward_names:
        _rewards_of_the_option(draft, weights)
    for key, (reward, _) in ARGUMENTS.items():
        one = named.get(key)
        if one is not None and not draft.handled(one):
            draft.note(one, f"only the reward `{reward}` reads it, and the run does not use this reward")
    KEYS.apply_usual(draft, named)
    for name in EXECUTED:
        one = named.get(name)
        if one is not None and one.empty:
            draft.note(one, NULL)
        elif one is not None and own:
            draft.reserve(one, f"{name}: {plain(one)}", f"a function in `{reward_file.USUAL}` takes it as an argument")
        elif one is not None and name != "dataset_prompt_template":
            draft.note(one, "no reward function of the recipe executes code")


def _named_rewards(draft: Draft, named: Entries, entry: Entry, weights: Entry | None) -> bool:
    """Set the rewards that `reward_funcs` names. Returns whether one of them is a function of a file."""
    names = words(entry) or []
    given = [number(one) for one in weights.items] if is_stated(weights) else None
    if given is not None and (len(given) != len(names) or None in given):
        draft.error(weights or entry, f"there are {len(names)} reward functions but {len(given)} weights")
        given = None
    found: list[Weighted] = []
    own: list[Weighted] = []
    for name, weight in zip(names, given or [None] * len(names)):
        if name in REWARDS:
            found.append(Weighted(name, weight, arguments=_reward_arguments(draft, named, name)))
        elif name in reward_functions.NAMES and draft.trl_rewards:
            found.append(reward_functions.weighted(draft, name, weight))
        else:
            module, _, function = name.rpartition(".")
            file = f"{module.replace('.', '/')}.py" if PART.fullmatch(module) else reward_file.USUAL
            own.append(Weighted(function, weight, draft.rewards or file, function))
            found.append(own[-1])
    draft.put("method.rewards", tuple(found), entry)
    draft.mark(weights, "mapped" if given is not None else "irrelevant", "method.rewards")
    if not {one.name for one in own} <= {*draft.reward_names}:
        listed = ", ".join(f"`{one.name}`" for one in own)
        locations = " and ".join(sorted({f"`{one.file}`" for one in own}))
        draft.warn(entry, f"xpc has no built-in reward {listed}, so the spec calls the functions in {locations}",
                   "put the file next to the spec, or name another file with `--rewards`")  # fmt: skip
    return bool(own)


def _rewards_of_the_option(draft: Draft, weights: Entry | None) -> None:
    """Set the rewards to the functions in the file of `--rewards`."""
    given = [number(one) for one in weights.items] if is_stated(weights) else []
    if given and (len(given) != len(draft.reward_names) or None in given):
        listed = ", ".join(draft.reward_names)
        draft.error(weights, f"there are {len(given)} weights, but `{draft.rewards}` has the functions {listed}")
    each = zip(draft.reward_names, given or [None] * len(draft.reward_names))
    found = [Weighted(name, weight, draft.rewards, name) for name, weight in each]
    why = f"the functions in `{draft.rewards}` that have an argument `completions`"
    draft.put("method.rewards", tuple(found), None, why)
    draft.mark(weights, MAPPED, "method.rewards")
