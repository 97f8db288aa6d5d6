"""Functions with which proofs measure TRL's reinforcement learning trainers: rewards, and vLLM, which is not installed
here.
"""

from __future__ import annotations

import os
from typing import Any

import tiny_models


def rewarded(run: Any) -> dict[str, Any]:
    """Build the trainer with stand-ins for the bundle's reward functions, one for each function. The bundle may have no
    reward functions.
    """
    functions = [tiny_models.reward(i) for i, _ in enumerate(run.plan["method"]["rewards"])]
    made = run.maker(model=run.model, args=run.args, train_dataset=run.rows, processing_class=run.tokenizer,
                 reward_funcs=functions)  # fmt: skip
    return {"functions": len(made.reward_funcs)}


def solved(run: Any) -> dict[str, Any]:
    """Train two steps. The reward function is the runtime's own one for correct answers."""
    import sys

    from small_run import REPOSITORY

    sys.path.append(REPOSITORY)
    from runtime.features.method.rewards import accuracy_reward

    tiny_models.reward = lambda index: accuracy_reward
    run.__dict__["rows"] = run.rows.rename_column("answer", "solution")
    run.trainer.train()
    return {"steps": run.trainer.state.global_step}


def spread(run: Any) -> dict[str, Any]:
    """Whether the completions that are sampled for the same prompt differ from each other."""
    trainer = run.trainer
    kept: list[list[int]] = []
    generate = trainer._generate_single_turn if hasattr(trainer, "_generate_single_turn") else None
    assert generate is not None

    def listening(*args: Any, **kwargs: Any) -> Any:
        found = generate(*args, **kwargs)
        kept.extend(found[1] if isinstance(found[1], list) else found[0])
        return found

    trainer._generate_single_turn = listening
    trainer.train()
    size = trainer.num_generations
    groups = [kept[i : i + size] for i in range(0, len(kept), size)]
    return {"differ": any(any(one != group[0] for one in group) for group in groups)}


def few(run: Any) -> dict[str, Any]:
    """The number of optimizer steps that a run makes over the prompts in the bundle's file."""
    from measures import rows

    run.__dict__["rows"] = rows._own(run)[0]
    run.trainer.train()
    return {"steps": run.trainer.state.global_step}


def vllm(run: Any) -> dict[str, Any]:
    """Call the checks with which TRL begins before it starts vLLM in the training process. The number of processes and
    the base are the bundle's.
    """
    from trl.generation import vllm_generation as there

    class Engine:
        def __init__(self, **_: Any) -> None:
            pass

    class Accelerator:
        num_processes = run.plan["run"]["world_size"]
        process_index = local_process_index = 0
        is_main_process = True

        def wait_for_everyone(self) -> None:
            pass

    arguments = run.plan["arguments"]
    made = there.VLLMGeneration.__new__(there.VLLMGeneration)
    made.model, made.accelerator = _base(run), Accelerator()
    made.mode, made.tensor_parallel_size = arguments["vllm_mode"], arguments["vllm_tensor_parallel_size"]
    for name in ("gpu_memory_utilization", "max_model_length", "max_num_seqs", "enable_sleep_mode", "model_impl",
                 "trust_remote_code"):  # fmt: skip
        setattr(made, name, None)
    there.is_vllm_available = lambda: True
    there.is_bitsandbytes_available = lambda: True
    there.LLM = Engine
    import bitsandbytes
    import torch

    there.bnb = bitsandbytes
    torch.distributed.new_subgroups_by_enumeration = lambda groups: (None, groups)
    made._init_vllm()
    return {"started": True}


def _base(run: Any) -> Any:
    """The tiny model, with linear layers of the class that a quantized base has."""
    import torch

    plan = run.plan["lora"]
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    if plan and plan["bits"]:
        import bitsandbytes as bnb

        kind = bnb.nn.Linear8bitLt if plan["bits"] == 8 else bnb.nn.Linear4bit
        model = torch.nn.Sequential(kind(64, 64))
    model.name_or_path = "tiny"
    return model


def counted(run: Any) -> dict[str, Any]:
    """Two numbers for the first step of a round: the number of tokens by which TRL divides the loss, and the number of
    tokens that the step has.
    """
    trainer = run.trainer
    trainer.model.train()
    first = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    step = trainer._buffered_inputs[: trainer.args.gradient_accumulation_steps]
    tokens = sum(int(one["completion_mask"].sum()) for one in step)
    return {"divided": int(first["num_items_in_batch"]), "tokens": tokens,
            "own": int(first["num_items_in_batch"]) == tokens}  # fmt: skip


def own(run: Any) -> dict[str, Any]:
    """Take a step with the reward function of the bundle's file."""
    reward = run.plan["method"]["rewards"][0]
    with open(os.path.join(run.folder, reward["file"]), encoding="utf-8") as handle:
        own: dict[str, Any] = {}
        exec(handle.read(), own)
    tiny_models.reward = lambda index: own[reward["function"]]
    run.trainer.train()
    return {"steps": run.trainer.state.global_step}


def called(run: Any) -> dict[str, Any]:
    """Build the trainer with the bundle's tools and environment, and render a prompt.

    The result has three numbers of tools: the tools that the prompt describes, the tools that the model can call, and
    the tools to which a limit applies.
    """
    from trl.chat_template_utils import qwen2_5_chat_template

    from xpc.runtime.features.method import tool_calls

    plan, tokenizer = run.plan["method"], run.tokenizer
    file = run.plan["tokenizer"]["chat_template"]
    tokenizer.chat_template = _text(run, file) if file else qwen2_5_chat_template
    tool_calls.add_parser(tokenizer)
    stated = plan.get("tools") or {"functions": [], "environment": None}
    tools = [_named(run, one) for one in stated["functions"]]
    environment = stated["environment"] and _named(run, stated["environment"])
    rewards = [tiny_models.reward(i) for i, _ in enumerate(plan["rewards"])]
    made = run.maker(model=run.model, args=run.args, train_dataset=run.rows, processing_class=tokenizer,
                     reward_funcs=rewards, tools=tools, environment_factory=environment)  # fmt: skip
    prompt = [{"role": "user", "content": "2 + 2?"}]
    tokenizer.apply_chat_template(prompt, tools=made.tools or None, tokenize=False)
    names = [one.__name__ for one in made.tools]
    return {"described": len(names), "callable": len({*names}), "limited": len(names)}


def _named(run: Any, one: dict[str, str]) -> Any:
    space: dict[str, Any] = {"__name__": "own"}
    exec(_text(run, one["file"]), space)
    return space[one["function"]]


def _text(run: Any, name: str) -> str:
    with open(os.path.join(run.folder, name), encoding="utf-8") as handle:
        return handle.read()


def remembered(run: Any) -> dict[str, Any]:
    """Whether a completion in a training batch equals the completion that the model generates outside of training.
    Checkpointing is on if the bundle uses it.
    """
    import torch
    from families import completed

    return {"alike": torch.equal(*completed(run.model, bool(run.args.gradient_checkpointing)))}


def praised(run: Any) -> dict[str, Any]:
    """Train on completions whose advantages are all positive. `learned` says whether there is a gradient. `whole` says
    whether the gradient stays the same if 5 replaces the upper bound of the importance ratio. If it does, the bundle's
    own bound clips nothing.
    """
    trainer = run.trainer
    trainer.current_gradient_accumulation_steps = 1
    sizes = [_gradient(trainer, trainer.epsilon_high), _gradient(trainer, 5.0)]
    return {"learned": sizes[0] > 1e-9, "whole": abs(sizes[0] - sizes[1]) <= 1e-3 * sizes[1]}


def _gradient(trainer: Any, bound: float) -> float:
    """The largest gradient in a round of completions that all have positive advantages."""
    import torch

    if not hasattr(trainer, "praised"):
        trainer.model.train()
        torch.manual_seed(0)
        trainer.praised = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
        trainer.praised["advantages"] = torch.ones_like(trainer.praised["advantages"])
    trainer.epsilon_high = bound
    trainer.model.zero_grad()
    torch.manual_seed(0)
    trainer.compute_loss(trainer.model, dict(trainer.praised)).backward()
    return max(part.grad.abs().max().item() for part in trainer.model.parameters() if part.grad is not None)


def clipped(run: Any) -> dict[str, Any]:
    """Whether importance ratios are clipped when every token has become one percent more probable."""
    trainer = run.trainer
    trainer.compute_loss(trainer.model, dict(_more_probable(trainer, 0.01)))
    regions = [value for name, value in trainer._metrics["train"].items() if name == "clip_ratio/region_mean"]
    return {"clips": regions[0][-1] > 0}


def bounded(run: Any) -> dict[str, Any]:
    """Whether `delta` changes the loss of bad completions whose tokens have become e times more probable."""
    trainer = run.trainer
    batch = _more_probable(trainer, 1.0)
    batch["advantages"] = -batch["advantages"]
    loss = trainer.compute_loss(trainer.model, dict(batch)).item()
    trainer.args.delta = None
    return {"read": abs(trainer.compute_loss(trainer.model, dict(batch)).item() - loss) > 1e-6}


def _more_probable(trainer: Any, by: float) -> dict[str, Any]:
    """A batch of good completions whose log-probabilities were lower by ``by`` when they were generated."""
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    batch = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    old = trainer._get_per_token_logps_and_entropies(
        trainer.model,
        *(_joined(batch, kind) for kind in ("ids", "mask")),
        batch["completion_ids"].size(1),
    )[0].detach()
    batch["advantages"] = batch["advantages"].fill_(1.0)
    batch["old_per_token_logps"] = old - by
    return dict(batch)


def reproduced(run: Any) -> dict[str, Any]:
    """Whether the old probabilities of a round's tokens equal the tokens' probabilities in the first step. Both are
    computed with the same weights. The second matrices of the adapters are not 0, so that the adapters have an effect.
    """
    import torch

    trainer = run.trainer
    trainer.model.train()
    for name, weight in trainer.model.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(weight, std=0.1)
    batch = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    size = batch["completion_ids"].size(1)
    probabilities = getattr(trainer, "_get_per_token_logps_and_entropies", None) or trainer._get_per_token_logps
    new = probabilities(trainer.model, *(_joined(batch, kind) for kind in ("ids", "mask")), size)
    new = new["logps"] if isinstance(new, dict) else new[0] if isinstance(new, tuple) else new
    return {"same": bool(((new - batch["old_per_token_logps"]) * batch["completion_mask"]).abs().max() < 1e-4)}


def _joined(batch: Any, kind: str) -> Any:
    import torch

    return torch.cat([batch[f"prompt_{kind}"], batch[f"completion_{kind}"]], dim=1)


def scaled(run: Any) -> dict[str, Any]:
    """Whether `scale_rewards` changes the advantages, if every reward is 0 or 100."""
    trainer, found = run.trainer, []
    rewards = [lambda completions, **given: [100.0 * (at % 2) for at in range(len(completions))]]
    trainer.reward_funcs = rewards * len(trainer.reward_funcs)
    trainer.model.train()
    for scale in ("none", "group"):
        trainer.scale_rewards, trainer._buffered_inputs = scale, None
        batch = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
        found.append(batch["advantages"].abs().max().item())
    return {"read": abs(found[0] - found[1]) > 1e-3}


def advantages(run: Any) -> dict[str, Any]:
    """Whether advantages grow with the rewards. The rewards are 0 and 100, so their standard deviation is about 50.
    Advantages that are divided by this standard deviation stay near 1.
    """
    trainer = run.trainer
    trainer.reward_funcs = [lambda completions, **given: [100.0 * (at % 2) for at in range(len(completions))]]
    trainer.model.train()
    batch = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    return {"grow": batch["advantages"].abs().max().item() > 5, "largest": batch["advantages"].abs().max().item()}
