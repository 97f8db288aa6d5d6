"""Lower the optimizer and the schedule of a spec to trainer arguments: the names and the keyword arguments of both."""

from __future__ import annotations

from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.optimizers import LOW_RANK, MADE_BY_RUNTIME, METRIC_SCHEDULES, WARM_UP
from xpc.compiler.language.setting import AmountPath
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.runtime.core.payload import Muon


def optimizer(spec: Spec) -> dict[str, Json]:
    """The arguments for the optimizer's name and its hyperparameters. Hyperparameters without a trainer argument of
    their own are joined in the text `optim_args`.
    """
    beta1, beta2 = spec.reals("optimizer.betas")
    name = spec.text("optimizer")
    out: dict[str, Json] = {
        "optim": spec.stack.optimizers["adamw" if name in MADE_BY_RUNTIME else name],
        "learning_rate": spec.real("optimizer.lr"),
        "adam_beta1": beta1,
        "adam_beta2": beta2,
        "adam_epsilon": spec.real("optimizer.eps"),
        "weight_decay": spec.real("optimizer.weight_decay"),
        "max_grad_norm": spec.real("optimizer.clip"),
    }
    targets = spec.get("optimizer.targets")
    if name in LOW_RANK and targets is not None:
        out["optim_target_modules"] = list(targets) if isinstance(targets, tuple) else "all-linear"
    words = [f"{name}={_number(value)}" for name, value in _keywords(spec).items()]
    more = spec.extra_value("trl", "optim_args")
    if words or isinstance(more, str):
        out["optim_args"] = ",".join([*words, *([more] if isinstance(more, str) else [])])
    return out


def muon(spec: Spec) -> Muon | None:
    """For a run with Muon, the hyperparameters of its two groups of weights: the weights that Muon trains, and the
    weights that AdamW trains. The runtime passes them to the optimizer. None for other optimizers.
    """
    if spec.text("optimizer") != "muon":
        return None
    beta1, beta2 = spec.reals("optimizer.betas")
    return {
        "matrices": {
            "lr": spec.real("optimizer.lr"),
            "weight_decay": spec.real("optimizer.weight_decay"),
            "momentum": spec.real("optimizer.momentum"),
            "adjust_lr": spec.text("optimizer.adjust_lr"),
        },
        "others": {
            "lr": spec.real("optimizer.adamw_lr"),
            "weight_decay": spec.real("optimizer.weight_decay"),
            "betas": [beta1, beta2],
            "eps": spec.real("optimizer.eps"),
            "fused": spec.stack.optimizers["adamw"].endswith("fused"),
        },
    }


def _keywords(spec: Spec) -> dict[str, float]:
    if spec.text("optimizer") in MADE_BY_RUNTIME:
        return {}
    found = {"momentum": spec.get("optimizer.momentum")}
    if spec.text("optimizer") in LOW_RANK:
        found = {
            "rank": spec.get("optimizer.rank"),
            "scale": spec.get("optimizer.scale"),
            "update_proj_gap": spec.get("optimizer.update_proj_gap"),
        }
    return {name: value for name, value in found.items() if value is not None}


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def schedule(spec: Spec) -> dict[str, Json]:
    """The arguments for the schedule: its name, its keyword arguments and its warm-up. The target has two arguments for
    the warm-up: one for a number of steps, and one for a share of the run.
    """
    name, kwargs = _shape(spec)
    fallback = spec.stack.base_argument("lr_scheduler_kwargs", spec.config)
    out: dict[str, Json] = {"lr_scheduler_type": name, "lr_scheduler_kwargs": dict(kwargs) if kwargs else fallback}
    warmup = warmup_of(spec)
    steps, ratio = spec.stack.arguments["warmup_steps"], spec.stack.arguments["warmup_ratio"]
    out[steps] = 0
    if ratio != steps:
        out[ratio] = 0.0
    name = ratio if warmup.unit == "share" and warmup.value else steps
    whole = warmup.unit == "share" and warmup.value == 1 and name == steps
    # transformers 5 would read `warmup_steps = 1.0` as one step, so write a share just below 1
    out[name] = 1 - 1e-9 if whole else warmup.value
    return out


def warmup_of(spec: Spec) -> Amount:
    """The warm-up as a number of steps or as a share of the run. Schedule-free optimizers read only steps, so for them
    a share is converted to steps.
    """
    warmup, steps = spec.amount("schedule.warmup"), spec.get("train.steps")
    if has_own_warmup(spec) and warmup.unit == "share" and isinstance(steps, int):
        return Amount("count", -int(-(warmup.value * steps) // 1))
    return warmup


def has_own_warmup(spec: Spec) -> bool:
    """Whether the optimizer itself warms up the learning rate (schedule-free AdamW and SGD). The schedule must then
    have no warm-up.
    """
    return spec.text("optimizer") in WARM_UP


def _shape(spec: Spec) -> tuple[str, dict[str, Json]]:
    name, floor = spec.text("schedule"), spec.get("schedule.min_lr")
    match name:
        case "cosine" if isinstance(floor, Amount):
            kwargs: dict[str, Json] = {"min_lr": floor.value}
            if floor.unit == "share" or peak_unknown(spec):
                kwargs = {"min_lr_rate": _share(spec, "schedule.min_lr")}
            if spec.get("schedule.warmup_lr") is None:
                return "cosine_with_min_lr", kwargs
            return "cosine_warmup_with_min_lr", {**kwargs, "warmup_lr_rate": _share(spec, "schedule.warmup_lr")}
        case "cosine_with_restarts":
            return name, {"num_cycles": spec.get("schedule.cycles") or 1}
        case "wsd":
            shape = str(spec.get("schedule.decay_type") or "cosine")
            kwargs = {"num_decay_steps": decay_steps(spec), "decay_type": "1-sqrt" if shape == "sqrt" else shape}
            if isinstance(floor, Amount):
                kwargs["min_lr_ratio"] = _share(spec, "schedule.min_lr")
            return "warmup_stable_decay", kwargs
        case "polynomial":
            # transformers' default for the final learning rate is 1e-7. transformers refuses a final rate that is not
            # below the peak, so for a peak of at most 1e-7 the final rate is 0.0
            power = spec.get("schedule.power")
            end = 1e-7 if spec.real("optimizer.lr") > 1e-7 else 0.0
            if isinstance(floor, Amount):
                end = rate(spec, "schedule.min_lr")
            return name, {"lr_end": end, "power": 1.0 if power is None else spec.real("schedule.power")}
        case "inverse_sqrt" if spec.get("schedule.timescale") is not None:
            return name, {"timescale": spec.integer("schedule.timescale")}
        case "constant" if spec.amount("schedule.warmup").value and not has_own_warmup(spec):
            return "constant_with_warmup", {}
    return name, _metric(spec) if name in METRIC_SCHEDULES else {}


def _metric(spec: Spec) -> dict[str, Json]:
    """The keyword arguments of a schedule that changes the learning rate when a metric stops improving. Every bound of
    the learning rate is stated, because the library's bounds (1e-3 to 1.0 for greedy) are too high for fine-tuning.
    """
    out: dict[str, Json] = {
        "mode": "max" if maximized(spec) else "min",
        "factor": spec.real("schedule.factor"),
        "patience": spec.integer("schedule.patience"),
        "min_lr": 0.0 if spec.get("schedule.min_lr") is None else rate(spec, "schedule.min_lr"),
    }
    if spec.text("schedule") == "greedy":
        out["max_lr"] = rate(spec, "schedule.max_lr")
    return out


def maximized(spec: Spec) -> bool:
    """Whether a higher value of the metric is better, both for checkpoints and for schedules. As in transformers,
    `greater_is_better` states this. If the spec does not set it, the name of the metric decides.
    """
    higher, metric = spec.extra_value("trl", "greater_is_better"), spec.extra_value("trl", "metric_for_best_model")
    return higher if isinstance(higher, bool) else isinstance(metric, str) and not metric.endswith("loss")


def peak_unknown(spec: Spec) -> bool:
    """Whether the schedule cannot read its peak learning rate. This is so if DeepSpeed wraps the optimizer in an object
    without the attribute `defaults`.

    The wrapper of deepspeed 0.19.8 lacks this attribute, and the wrapper of 0.16.8 has it; checked by running them.
    """
    return spec.zero_stage > 0 and not spec.owns_optimizer and not spec.stack.facts.wrapped_optimizer_has_defaults


def rate(spec: Spec, path: AmountPath) -> float:
    """The learning rate of the setting `path`, whose value is a number or a share of the peak."""
    value = spec.amount(path)
    return value.value * spec.real("optimizer.lr") if value.unit == "share" else float(value.value)


def _share(spec: Spec, path: AmountPath) -> float:
    value = spec.amount(path)
    return float(value.value) if value.unit == "share" else value.value / spec.real("optimizer.lr")


def decay_steps(spec: Spec) -> int | float:
    """The length of the final decay: a number of steps or, if the run is counted in epochs, a share of the run. The
    runtime multiplies the share by the number of steps, which it knows once the rows are read.
    """
    decay, steps = spec.amount("schedule.decay"), spec.get("train.steps")
    if decay.unit != "share":
        return int(decay.value)
    return int(decay.value * steps) if isinstance(steps, int) else float(decay.value)
