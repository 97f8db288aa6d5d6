"""Proofs of rules about `extra`: numbers outside of their legal range, and arguments that contradict another
setting.
"""

from __future__ import annotations

from prove import Proof
from spec_parts import extra, zero

from xpc.compiler.stacks import DEFAULT, STACKS

OLD = "target trl-0.18"
EVERY_STEP = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 2}


def small(*more: str, method: str = "", on: str = "infinity-instruct", hardware: str = "cpu", strategy: str = "ddp",
          batch: str = "gbs=4 micro=2") -> str:  # fmt: skip
    """A spec for the CPU with two steps."""
    head = f"xpc 1\ntrain qwen2.5-3b on {on} for 2 steps\nhardware {hardware}\nstrategy {strategy}\nprecision fp32\n"
    lines = [f"batch {batch}", *([f"method {method}"] if method else []), *more, 'save "out/run" every=never']
    return head + "\n".join(lines) + "\n"


PAIRS = {"on": "ultrafeedback-binarized"}
ONLINE = {"on": "deepmath-103k", "batch": "gbs=4 micro=2"}
GRPO = "grpo(rewards=[accuracy], generations=2, max_completion=8{})"
STATIC = extra("ddp_static_graph = true")
FUSED = extra("use_liger_loss = true")
HPZ = zero("zero_hpz_partition_size = 2")


def number(name: str, value: object, *more: str, old: bool = False, legal: str = "", common: dict[str, object] | None = None,
           steps: bool = False, variant: str = "", **output: object) -> Proof:  # fmt: skip
    """A proof about an argument whose value is a number. The illegal spec has the argument under `extra trl`, and the
    legal spec does not have it.
    """
    lines = (*more, OLD) if old else more
    base = legal or small(*lines)
    at = "load" if steps or "expect" in output else output.pop("at", "train")
    measure = "numbers.step" if steps or "expect" in output else ""
    return Proof(
        "A24",
        "XP104",
        at=str(at),
        text=base + extra(f"{name} = {value}") + "\n",
        legal=base,
        onto="legal",
        arguments={name: value},
        common=common or {},
        measure=measure,
        variant="-".join(part for part in (name, variant, "0.18" if old else "") if part),
        **output,
    )  # type: ignore[arg-type]


BOTH = tuple(
    proof
    for old in (False, True)
    for proof in (
        number("torch_empty_cache_steps", 0, old=old, at="config", raises="ValueError", match="bigger than 0"),
        number("pad_to_multiple_of", 0, old=old, raises="ZeroDivisionError", match="modulo by zero"),
        number("pad_to_multiple_of", -8, old=old, raises="RuntimeError", match="must match the existing size",
               variant="below"),
        number("eval_accumulation_steps", 0, old=old, common=EVERY_STEP, steps=True, raises="ZeroDivisionError",
               match="modulo by zero"),
        number("discopop_tau", 0.0, legal=small(*([OLD] if old else []), method="dpo(loss=discopop)", **PAIRS), old=old,
               expect=lambda seen: seen["weights"] > 0),
        number("label_smoothing_factor", 1e30, old=old, expect={"moved": False}),
    )
)  # fmt: skip

RANGES: tuple[Proof, ...] = (
    *BOTH,
    number("data_seed", 2**64, raises="ValueError", match="Overflow", at="train"),
    number("past_index", 7, old=True, raises="IndexError", match="out of range"),
    number(
        "label_pad_token_id",
        -1,
        legal=small(OLD, method="orpo", **PAIRS),
        old=True,
        steps=True,
        raises="IndexError",
        match="out of bounds",
    ),
    number(
        "f_alpha_divergence_coef",
        0.0,
        legal=small(OLD, extra('f_divergence_type = "alpha_divergence"'), method="dpo", **PAIRS),
        old=True,
        expect=lambda seen: seen["weights"] > 0,
    ),
    number(
        "max_completion_length",
        0,
        legal=small(OLD, method="dpo", **PAIRS),
        old=True,
        raises="RuntimeError",
        match="scalar types",
    ),
    number(
        "precompute_ref_batch_size",
        -1,
        legal=small(method="dpo(precompute)", **PAIRS),
        raises="ValueError",
        match="batch_size should be a positive",
        at="init",
    ),
    number(
        "top_entropy_quantile",
        -0.5,
        legal=small(method=GRPO.format(""), **ONLINE),
        raises="RuntimeError",
        match="quantile",
    ),
    number(
        "sapo_temperature_neg",
        0.0,
        legal=small(method=GRPO.format(", loss=sapo"), **ONLINE),
        raises="RuntimeError",
        match="probability tensor contains",
    ),
    number(
        "num_generations_eval",
        -1,
        legal=small(method=GRPO.format(""), **ONLINE),
        common=EVERY_STEP,
        steps=True,
        raises="ValueError",
        match="should return >= 0",
    ),
    Proof(
        "A24",
        "XP104",
        case="XP104-generation-cache",
        at="init",
        onto="legal",
        legal=small(OLD, method=GRPO.format(""), **ONLINE),
        arguments={"cache_implementation": "nope"},
        raises="ValueError",
        match="cache_implementation",
        variant="cache",
    ),
)

EVALUATED = ("data(holdout=50%)", "eval(every=1)")
GATHERED = (*EVALUATED, extra("eval_use_gather_object = true"))


def metered(method: str, metric: str) -> str:
    """A spec whose method generates completions, and whose best checkpoint is chosen by a metric."""
    clause = f"{method}(rewards=[accuracy], generations=2, max_completion=8)"
    return small(*EVALUATED, extra(f'metric_for_best_model = "{metric}"'), method=clause, **ONLINE)


MEETING: tuple[Proof, ...] = (
    Proof(
        "C25",
        "XP274",
        at="load",
        measure="numbers.step",
        common=EVERY_STEP,
        raises="AttributeError",
        match="logits",
        text=small(OLD, "data(holdout=5%)", "eval(every=1)", extra("jit_mode_eval = true")),
        legal=small(OLD, "data(holdout=5%)", "eval(every=1)"),
    ),
    Proof(
        "C44",
        "XP280",
        at="init",
        raises="ValueError",
        match="compute_result",
        text=small(OLD, extra("batch_eval_metrics = true"), method="reward", **PAIRS),
        legal=small(OLD, method="reward", **PAIRS),
    ),
    Proof(
        "C33",
        "XP278",
        at="train",
        raises="ValueError",
        match="could not broadcast input array",
        text=small(
            OLD,
            "data(holdout=50%)",
            "eval(every=1)",
            extra("use_legacy_prediction_loop = true"),
            method=GRPO.format(""),
            **ONLINE,
        ),
        legal=small(OLD, "data(holdout=50%)", "eval(every=1)", method=GRPO.format(""), **ONLINE),
    ),
    *(
        Proof(
            "C34",
            "XP279",
            at="train",
            raises="ValueError",
            match="zero-dimensional arrays",
            target=target,
            variant="" if target == DEFAULT else target.partition("-")[2],
            text=small(f"target {target}", *GATHERED, hardware="2 x cpu", strategy="ddp"),
            legal=small(f"target {target}", *GATHERED),
        )
        for target in STACKS
    ),
    *(
        Proof(
            "C34",
            "XP279",
            at="init",
            measure="evaluation.averaged",
            expect={"alike": False},
            variant=f"averaged-{target.partition('-')[2]}",
            text=small(f"target {target}", *GATHERED, hardware="2 x cpu", strategy="ddp"),
            legal=small(f"target {target}", *GATHERED[:-1], hardware="2 x cpu", strategy="ddp"),
        )
        for target in STACKS
    ),
    *(
        Proof(
            "C38",
            "XP276",
            at="load",
            measure="numbers.step",
            common=EVERY_STEP,
            expect={"evaluated": 0},
            variant=f"{'none' if not labels else labels[0]}-{target.partition('-')[2]}",
            text=small(
                f"target {target}", "data(holdout=5%)", "eval(every=1)", extra(f"label_names = [{', '.join(labels)}]")
            ),
            legal=small(f"target {target}", "data(holdout=5%)", "eval(every=1)"),
        )
        for target in STACKS
        if target != DEFAULT
        for labels in ([], ["nope"])
    ),
    Proof(
        "C27",
        "XP277",
        at="load",
        measure="numbers.step",
        raises="IndexError",
        match="index out of range",
        text=small(OLD, extra("padding_value = 151936"), method="dpo", **PAIRS),
        legal=small(OLD, method="dpo", **PAIRS),
    ),
    Proof(
        "A32",
        "XP319",
        case="XP319-no-positions",
        at="load",
        measure="attention.one_more",
        raises="IndexError",
        match="out of range",
        variant="no-positions",
    ),
    Proof(
        "D89",
        "XP476",
        at="load",
        raises="AssertionError",
        match="not divisible",
        text=small(HPZ, hardware="3 x cpu", strategy="zero3", batch="gbs=6 micro=2"),
        legal=small(HPZ, hardware="2 x cpu", strategy="zero3", batch="gbs=4 micro=2"),
    ),
    Proof(
        "D90",
        "XP478",
        at="load",
        measure="numbers.filled_step",
        expect=lambda seen: seen["weights"] > 0,
        text=small(HPZ, OLD, hardware="2 x cpu", strategy="zero3", batch="gbs=4 micro=2"),
        legal=small(OLD, hardware="2 x cpu", strategy="zero3", batch="gbs=4 micro=2"),
    ),
    Proof(
        "C26",
        "XP275",
        at="train",
        raises="AssertionError",
        match="CUDA",
        text=small(extra('cache_implementation = "offloaded"'), method=GRPO.format(""), **ONLINE),
        legal=small(method=GRPO.format(""), **ONLINE),
    ),
    Proof(
        "D86",
        "XP477",
        at="train",
        raises="RuntimeError",
        match="expect_autograd_hooks_",
        text=small(STATIC, hardware="2 x cpu", batch="gbs=8 micro=2"),
        legal=small(STATIC, hardware="2 x cpu", batch="gbs=4 micro=2"),
    ),
    *(
        Proof(
            "C35",
            "XP695",
            at="init",
            warns="should set `remove_unused_columns=False`",
            target=target,
            variant=f"{method}-{target.partition('-')[2]}",
            text=small(f"target {target}", extra("remove_unused_columns = true"), method=method, **PAIRS),
            legal=small(f"target {target}", method=method, **PAIRS),
        )
        for target in STACKS
        for method in ("kto", "orpo")
        if (method, target) != ("kto", DEFAULT)
    ),
    *(
        Proof(
            "R22",
            "XP642",
            at="train",
            raises="ValueError",
            match="automatically infer lengths",
            target=target,
            variant=f"evaluated-{target.partition('-')[2]}",
            text=small(f"target {target}", *EVALUATED, extra("group_by_length = true"), method="kto", **PAIRS),
            legal=small(f"target {target}", extra("group_by_length = true"), method="kto", **PAIRS),
        )
        for target in STACKS
        if target != DEFAULT
    ),
    *(
        Proof(
            "E04",
            "XP512",
            at="train",
            raises="KeyError",
            match="not found in the evaluation metrics",
            shape="prompt",
            variant=f"{method}-{metric}",
            text=metered(method, metric),
            legal=metered(method, "reward"),
        )
        for method in ("grpo", "rloo")
        for metric in ("accuracy", "rewards/accuracy/mean")
    ),
    Proof(
        "C28",
        "XP690",
        at="load",
        measure="online.solved",
        raises="TypeError",
        match="solution",
        text=small(extra("remove_unused_columns = true"), method=GRPO.format(""), **ONLINE),
        legal=small(method=GRPO.format(""), **ONLINE),
    ),
    Proof(
        "C28",
        "XP690",
        at="load",
        measure="online.solved",
        raises="TypeError",
        match="solution",
        variant="0.18",
        text=small(OLD, extra("remove_unused_columns = true"), method=GRPO.format(""), **ONLINE),
        legal=small(OLD, method=GRPO.format(""), **ONLINE),
    ),
    Proof(
        "R26",
        "XP691",
        at="init",
        measure="losses.gradient",
        expect={"moves": False},
        text=small(method="dpo(loss=[sigmoid(weight=0), sft(weight=0)])", **PAIRS),
        legal=small(method="dpo(loss=[sigmoid(weight=1), sft(weight=0)])", **PAIRS),
    ),
    Proof(
        "K20",
        "XP692",
        at="load",
        measure="kernels.liger_scores",
        raises="AttributeError",
        match="lm_head",
        legal=small(OLD, method="reward", **PAIRS),
        text=small(OLD, "memory(liger)", method="reward", **PAIRS),
    ),
    Proof(
        "C29",
        "XP693",
        at="train",
        eager=True,
        raises="AttributeError",
        match="DistributedDataParallel",
        text=small(OLD, FUSED, method="kto", hardware="2 x cpu", **PAIRS),
        legal=small(OLD, FUSED, method="kto", **PAIRS),
    ),
    Proof(
        "C29",
        "XP693",
        at="init",
        raises="ValueError",
        match="Peft",
        variant="adapters",
        text=small(OLD, FUSED, "lora", method="kto", **PAIRS),
        legal=small(OLD, FUSED, method="kto", **PAIRS),
    ),
    Proof(
        "C29",
        "XP693",
        at="train",
        eager=True,
        raises="RuntimeError",
        match="",
        variant="zero3",
        text=small(OLD, FUSED, method="kto", strategy="zero3", **PAIRS),
        legal=small(OLD, FUSED, method="kto", strategy="zero2", **PAIRS),
    ),
    Proof(
        "C30",
        "XP694",
        at="load",
        measure="numbers.step",
        expect={"moved": False},
        text=small(OLD, extra("ld_alpha = 0.5"), method="dpo", **PAIRS),
        legal=small(OLD, method="dpo", **PAIRS),
    ),
)

PROOFS: tuple[Proof, ...] = (*RANGES, *MEETING)
