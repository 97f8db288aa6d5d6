"""Rules about optimizers: which targets, settings, strategies and batches each optimizer needs (XP220 to
XP228, XP914).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.kinds import NEVER
from xpc.compiler.language.optimizers import FUSED, LAYERWISE, LOW_RANK, PACKAGES, RESTARTED, WARM_UP
from xpc.compiler.language.setting import Path
from xpc.compiler.registry.family_modules import family_modules
from xpc.compiler.rules.core.conditions import any_of, not_chosen, written
from xpc.compiler.rules.core.modules import heads
from xpc.compiler.rules.core.rule import Finding, rule, unsupported_choice, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = any_of(
    not_chosen("optimizer", "adamw"),
    written(
        "optimizer.targets",
        "optimizer.rank",
        "optimizer.scale",
        "optimizer.update_proj_gap",
        "optimizer.momentum",
        "optimizer.adamw_lr",
        "optimizer.adjust_lr",
    ),
)

PROJECTED: tuple[Path, ...] = ("optimizer.targets", "optimizer.rank", "optimizer.scale", "optimizer.update_proj_gap")
OF_MUON: tuple[Path, ...] = ("optimizer.adamw_lr", "optimizer.adjust_lr")
MOMENTUM = ("sgd", "rmsprop", "muon")
EMBEDDINGS = ("embed", "word_embeddings", "wte", "wpe")
CONVOLUTIONS = ("gpt2",)
"""Families whose layers are of transformers' class Conv1D. Low-rank optimizers do not treat these layers as linear
layers.
"""


@rule("XP220", "optimizer-not-in-the-target")
def optimizer_of_the_target(spec: Spec) -> Iterator[Finding]:
    """The transformers of the chosen stack (`target`) must know the optimizer, and must be able to train with it.

    Why it is bad: a run cannot start with an optimizer that its transformers does not know.

    Without this rule: for example, transformers 4.52 does not know StableAdamW. With transformers 4.52, the layerwise
    variants of GaLore and APOLLO raise ValueError under torch 2.13.

    Source: `OptimizerNames` of transformers 5.23 and 4.52; confirmed by running it.
    """
    yield from unsupported_choice(spec, "optimizer", "{}", "write `target {}`, or `optimizer adamw`")


@rule("XP221", "setting-of-another-optimizer")
def setting_of_another_optimizer(spec: Spec) -> Iterator[Finding]:
    """A setting such as `rank` or `momentum` needs an optimizer that reads this setting. `targets`, `rank`, `scale` and
    `update_proj_gap` are for GaLore and APOLLO. `momentum` is for sgd, rmsprop and Muon. `adamw_lr` and `adjust_lr` are
    for Muon.

    Why it is bad: a setting of another optimizer has no effect.

    Without this rule: transformers silently ignores `optim_target_modules` if the optimizer is neither GaLore nor
    APOLLO. transformers 4.52 ignores `optim_args` (the momentum) with sgd and rmsprop; bitsandbytes' RMSprop raises an
    error for `optim_args`.

    Source: transformers 5.23 `trainer_optimizer.py`, 4.52 `Trainer.get_optimizer_cls_and_kwargs`; confirmed by running
    it.
    """
    name, related = spec.text("optimizer"), (spec.label("optimizer", "the optimizer"),)
    for path in (*PROJECTED, *OF_MUON):
        if spec.written(path) and (name != "muon" if path in OF_MUON else name not in LOW_RANK):
            setting = path.rpartition(".")[2]
            yield Finding(
                spec.location(path, f"only {'muon has' if path in OF_MUON else 'galore and apollo have'} this setting"),
                f"`optimizer {name}` has no `{setting}`",
                f"leave `{setting}` out",
                related,
            )
    if not spec.written("optimizer.momentum"):
        return
    if name not in MOMENTUM:
        yield Finding(
            spec.location("optimizer.momentum", "only sgd, rmsprop and muon have this setting"),
            f"`optimizer {name}` has no `momentum`",
            "leave `momentum` out",
            related,
        )
    elif name != "muon" and not spec.stack.facts.torch_optimizers_read_words:
        yield Finding(
            spec.location("optimizer.momentum", "transformers 4.52 passes `momentum` to no optimizer"),
            f"`momentum` does not reach {name} on {spec.stack.name}",
            f"leave `momentum` out, or write `target {able(lambda one: one.facts.torch_optimizers_read_words)}`",
            (spec.label("target", "the target"),),
        )


@rule("XP222", "nothing-to-project")
def nothing_to_project(spec: Spec) -> Iterator[Finding]:
    """GaLore and APOLLO need `targets` that name linear modules of the model. A target may be any part of a module's
    path, such as `q_proj` or `mlp`. Embeddings are not linear modules. The layers of GPT-2 are not linear modules
    either, because their class is `Conv1D`.

    Why it is bad: GaLore and APOLLO project the gradients of the named linear modules. Without such a module, they have
    nothing to project.

    Without this rule: ValueError in train(), after the data is tokenized.

    Source: transformers 5.23 `trainer_optimizer.py`, 4.52 `Trainer.get_optimizer_cls_and_kwargs`; confirmed by running
    it.
    """
    name, targets = spec.text("optimizer"), spec.get("optimizer.targets")
    if name not in LOW_RANK:
        return
    if targets is None:
        yield Finding(
            spec.location("optimizer", "no `targets` are written"),
            f"`optimizer {name}` needs the modules that it projects",
            "write `targets = all-linear`",
        )
        return
    linear = _linear(spec)
    if not isinstance(targets, tuple) or linear is None or any(_finds(str(one), linear) for one in targets):
        return
    better = "all-linear" if spec.model.model_type in CONVOLUTIONS else f"[{linear[0]}]"
    yield Finding(
        spec.location("optimizer.targets"),
        f"{spec.model.model_type} has no linear module of {'this name' if len(targets) == 1 else 'these names'}",
        write(f"targets = {better}"),
        (spec.model.label,),
    )


def _linear(spec: Spec) -> tuple[str, ...] | None:
    """The last parts of the paths of the family's linear modules, such as `q_proj`. None if the modules are unknown."""
    family, facts = spec.model.model_type, spec.model.facts
    if family not in family_modules() or facts is None or facts.experts:
        return None
    own = () if family in CONVOLUTIONS else family_modules()[family].names
    return (*(one for one in own if not one.startswith(EMBEDDINGS)), *heads(spec, family))


def _finds(target: str, linear: tuple[str, ...]) -> bool:
    """Whether `target`, a part of a module's path, may match a linear module. If no family that xpc knows has a module
    of this name, xpc cannot check the target, and the result is true.
    """
    last = target.rpartition(".")[2]
    known = {one for of in family_modules().values() for one in of.names}
    return last not in known or any(last in one for one in linear)


@rule("XP223", "steps-before-the-batch-is-whole")
def steps_too_early(spec: Spec) -> Iterator[Finding]:
    """Layerwise optimizers and LOMO need a single process and no accumulation. LOMO can also run on several processes
    if FSDP shards the weights.

    Why it is bad: layerwise optimizers and LOMO update a weight during the backward pass. At that time, only the
    gradient of one micro-batch on one process is known, not the sum over all micro-batches and processes.

    Without this rule: with accumulation, layerwise optimizers raise ValueError in train(), and LOMO silently steps
    after every micro-batch. With several processes, layerwise optimizers raise NotImplementedError, and LOMO under ddp
    updates each copy of the model with the gradient of its own rows, so the copies diverge.

    Source: transformers 5.23 `trainer_optimizer.py`; lomo-optim 0.1.1; confirmed by running it.
    """
    name, world = spec.text("optimizer"), spec.hardware.world
    layerwise = name in LAYERWISE
    if not layerwise and name not in FUSED:
        return
    alone = not layerwise and (spec.text("strategy") != "ddp" or world == 1)
    if not alone and (world > 1 or spec.zero_stage):
        yield Finding(
            spec.location("optimizer", "steps with one process's gradient"),
            f"`optimizer {name}` cannot run " + (f"on {world} processes" if world > 1 else "under DeepSpeed"),
            _instead(spec) if layerwise else "write `optimizer adamw`" + ", or `strategy fsdp`" * (not spec.on_cpu),
            (spec.label("hardware", "the processes"), spec.label("strategy", "the strategy")),
        )
    elif spec.integer("batch.accum") > 1:
        micro, accum = spec.integer("batch.micro"), spec.integer("batch.accum")
        yield Finding(
            spec.location("optimizer", "steps after every micro-batch"),
            f"`optimizer {name}` cannot accumulate {accum} micro-batches",
            f"write `gbs={micro * spec.replicas}`, or `optimizer adamw`",
            (spec.label("batch.gbs", f"{accum} x {micro * spec.replicas}"), spec.label("batch.accum")),
        )


def _instead(spec: Spec) -> str:
    """The optimizer to suggest instead of a layerwise optimizer. Under ddp, this is `galore_adamw` instead of
    `galore_adamw_layerwise`, for example. Under any other strategy, it is AdamW.
    """
    if spec.text("strategy") == "ddp":
        return f"write `optimizer {spec.text('optimizer').removesuffix('_layerwise')}`"
    return "write `optimizer adamw`" + ",".join(
        f" without `{path.rpartition('.')[2]}`" for path in PROJECTED if spec.written(path)
    )


@rule("XP224", "optimizer-that-cannot-be-sharded")
def cannot_be_sharded(spec: Spec) -> Iterator[Finding]:
    """Under ZeRO or FSDP, the optimizer must be able to update sharded parameters.

    Why it is bad: ZeRO and FSDP turn the parameters into flat pieces, or into tensors that are spread over processes,
    and some optimizers cannot update such parameters. For example, GaLore and APOLLO project matrices, but under ZeRO
    and FSDP1 they get flat pieces.

    Without this rule: most runs with an unsuitable optimizer fail at the first step. With ZeRO, they raise IndexError
    (GaLore, APOLLO, Adagrad), TypeError (LOMO) or RuntimeError (StableAdamW, only zero3); with FSDP1, IndexError
    (GaLore, APOLLO); with FSDP2, KeyError (APOLLO), RuntimeError (Adafactor), or KeyError at the first checkpoint
    (GaLore, Adagrad).

    Source: confirmed by running each optimizer on trl-1.16 and trl-0.18, in two processes.
    """
    name, strategy = spec.text("optimizer"), spec.text("strategy")
    if (spec.zero_stage or spec.sharded_by_fsdp) and name not in LAYERWISE and _fails(spec, name):
        yield Finding(
            spec.location("optimizer"),
            f"{strategy} cannot shard {name}",
            "write `strategy ddp`, or `optimizer adamw`"
            if name in LOW_RANK
            else "write `optimizer adamw`, or `strategy ddp`",
            (spec.label("strategy", "the strategy"),),
        )


def _fails(spec: Spec, name: str) -> bool:
    """Whether the optimizer `name` fails under the spec's ZeRO stage or kind of FSDP."""
    if spec.zero_stage:
        if name == "stable_adamw":
            return spec.zero_stage == 3
        # If Adagrad is offloaded, DeepSpeed uses another optimizer instead, and the rule XP406 reports this.
        adagrad = name == "adagrad" and not _one_group(spec) and spec.text("strategy.offload") == "none"
        return adagrad or name in LOW_RANK or name in FUSED
    if spec.text("strategy") == "fsdp1" or not spec.stack.facts.fsdp2:
        return name in LOW_RANK
    states = spec.flag("save.full_state") and spec.get("save.every") != NEVER
    return name in ("adafactor", "galore_adafactor", *PACKAGES["apollo"]) or (
        name in ("adagrad", "galore_adamw") and states
    )


def _one_group(spec: Spec) -> bool:
    """Whether all trained weights have the same learning rate and weight decay, because DeepSpeed builds Adagrad again
    with a single group. This holds for adapters without `lr_ratio`, unless norms are trained, too, which transformers
    does not decay. Source: transformers `get_decay_parameter_names`; DeepSpeed `initialize_optimizer_states`.
    """
    norms = any("norm" in name for name in spec.names("lora.modules_to_save"))
    return spec.lora and spec.get("lora.lr_ratio") is None and not norms


@rule("XP225", "projection-of-adapters", "warning")
def projection_of_adapters(spec: Spec) -> Iterator[Finding]:
    """The rank of GaLore's or APOLLO's projection should be below the rank of the adapters.

    Why it is bad: GaLore and APOLLO save memory by projecting the gradients of large matrices to a low rank. The
    matrices of an adapter already have a low rank, so a projection to the same or a higher rank saves no memory.

    Without this rule: nothing is reported, and no memory is saved.

    Source: galore-torch 1.0 `galore_projector.py`; confirmed by running it.
    """
    name = spec.text("optimizer")
    if spec.lora and spec.low_rank and name in LOW_RANK and spec.integer("optimizer.rank") >= spec.integer("lora.rank"):
        ranks = f"{spec.integer('optimizer.rank')} >= {spec.integer('lora.rank')}"
        yield Finding(
            spec.location("optimizer", ranks),
            f"{name} saves no memory on adapters of rank {spec.integer('lora.rank')}",
            f"write `rank = {max(1, spec.integer('lora.rank') // 2)}`, or another optimizer",
            (spec.label("lora.rank", "the adapters") or spec.label("lora", "the adapters"),),
        )


@rule("XP226", "share-of-an-unknown-run")
def schedule_free_share(spec: Spec) -> Iterator[Finding]:
    """With schedule-free AdamW or SGD, a warm-up such as `warmup = 3%` needs a run that is counted in steps (`for 1000
    steps`).

    Why it is bad: schedule-free optimizers warm up themselves, over a number of steps. xpc cannot convert a share of
    the run into steps if the run's length in steps is not known.

    Without this rule: transformers 5.23 passes 3 % to the optimizer as 0.03 steps. The optimizer divides the learning
    rate of the first step by 0.03, which gives 33 times the peak. transformers 4.52 passes 0, so there is no warm-up.

    Source: transformers `trainer_optimizer.py`; schedulefree 1.4.1 `adamw_schedulefree.py`; confirmed by running it.
    """
    warmup, steps = spec.amount("schedule.warmup"), spec.get("train.steps")
    if spec.text("optimizer") in WARM_UP and warmup.unit == "share" and warmup.value and steps is None:
        yield Finding(
            spec.location("schedule.warmup", "a share of an unknown number of steps"),
            f"`optimizer {spec.text('optimizer')}` needs its warm-up as a number of steps",
            write("warmup = 100", ", or `for 1000 steps`"),
            (spec.label("optimizer", "the optimizer"),),
        )


@rule("XP227", "warm-up-twice", "warning")
def warm_up_twice(spec: Spec) -> Iterator[Finding]:
    """Schedule-free AdamW and SGD need `schedule constant` if they have a warm-up. `constant` is their default
    schedule.

    Why it is bad: schedule-free optimizers warm up the learning rate themselves, and a schedule would do so again.

    Without this rule: the warm-ups of the optimizer and of the schedule both apply to the learning rate.

    Source: schedulefree 1.4.1 `adamw_schedulefree.py`; transformers 5.23 and 4.52 `optimization.py`.
    """
    own = spec.text("optimizer") in WARM_UP and spec.amount("schedule.warmup").value
    if own and spec.text("schedule") != "constant":
        yield Finding(
            spec.location("schedule.warmup", "the optimizer and the schedule both apply this warm-up"),
            f"{spec.text('optimizer')} and `schedule {spec.text('schedule')}` both warm up",
            "write `schedule constant`",
            (spec.label("optimizer", "the optimizer"), spec.label("schedule", "the schedule")),
        )


@rule("XP228", "average-lost-by-zero")
def average_lost(spec: Spec) -> Iterator[Finding]:
    """Schedule-free optimizers cannot be used under ZeRO.

    Why it is bad: schedule-free optimizers train weights whose average over the steps is the result of the training.
    Before an evaluation or a save, such an optimizer puts the average into the parameters that it trains. Under ZeRO,
    these parameters are ZeRO's fp32 copies, so the model itself never gets the average.

    Without this rule: nothing is reported; evaluations and saved models use the weights without averaging. For a tiny
    model after six steps, the weights saved under ZeRO and under ddp differ by 0.0047; with AdamW, they differ by only
    0.000004.

    Source: schedulefree 1.4.1 `adamw_schedulefree.py` (`eval`); accelerate issue 4159; confirmed by running it.
    """
    name = spec.text("optimizer")
    if name in PACKAGES["schedulefree"] and spec.zero_stage:
        yield Finding(
            spec.location("optimizer", "averages the weights"),
            f"{spec.text('strategy')} saves the training weights of {name}, not their average",
            "write `optimizer adamw`, or `strategy ddp` or `fsdp`",
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP914", "moments-anew", "warning")
def moments_anew(spec: Spec) -> Iterator[Finding]:
    """Layerwise optimizers, AdaLomo and GrokAdamW cannot resume from checkpoints.

    Why it is bad: a resumed run starts without the optimizer's moments. For a layerwise optimizer, transformers saves
    only the placeholder `LayerWiseDummyOptimizer`, whose state is empty. AdaLomo leaves its states out of its
    `state_dict`. GrokAdamW looks up its states by the tensor objects of the earlier process, so it does not find them.

    Without this rule: nothing is reported.

    Source: transformers 5.23 `trainer_pt_utils.py`, lomo-optim 0.1.1 `adalomo.py`, grokadamw 0.1.2 `grokadamw.py`;
    confirmed by running it.
    """
    name = spec.text("optimizer")
    saves = spec.amount("save.every") != NEVER and spec.flag("save.full_state")
    if name in RESTARTED and saves and spec.get("save.resume") == "auto":
        yield Finding(
            spec.location("optimizer", "its moments are not restored"),
            f"a resumed run starts without the moments of {name}",
            "write `save every=never`, or another optimizer"
            if name not in LAYERWISE
            else f"write `optimizer {name.removesuffix('_layerwise')}`, or `save every=never`",
            (spec.label("save.every", "the checkpoints"),),
        )
