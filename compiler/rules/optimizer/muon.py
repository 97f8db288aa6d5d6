"""Rules about Muon: the strategies, weights and versions of torch that it can be used with (XP135 to XP139, XP141)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able
from xpc.compiler.stacks.fused_experts import adapted, stacked

WHEN = chosen("optimizer", "muon")

FIRST_TORCH = (2, 9)
"""The first version of torch that has torch.optim.Muon."""


@rule("XP135", "muon-of-shards")
def muon_of_shards(spec: Spec) -> Iterator[Finding]:
    """Muon needs a strategy with which it gets complete matrices: ddp, or ZeRO with DeepSpeed 0.19, whose Muon gathers
    them. Other strategies and versions cannot use Muon.

    Why it is bad: Muon orthogonalizes the momentum of a complete matrix; orthogonalizing the rows of each process
    separately gives another result.

    Without this rule: under FSDP2, Muon's first update differs by 15 % between one process and two. FSDP1 gives Muon
    flat weights instead of matrices. DeepSpeed 0.16 has no Muon (ModuleNotFoundError). The Muon of DeepSpeed 0.18
    raises TypeError, because it cannot train the remaining weights with AdamW; under zero3, it does not orthogonalize.

    Source: torch 2.13 `optim/_muon.py`; deepspeed 0.19.8 and 0.18.2 `runtime/zero/muon`; confirmed by running it in
    two processes.
    """
    strategy, sharded = spec.text("strategy"), spec.sharded_by_fsdp
    if not sharded and (not spec.zero_stage or spec.stack.facts.zero_muon):
        return
    where = (
        "FSDP divides each matrix" if sharded else f"DeepSpeed on {spec.stack.name} has no Muon for sharded matrices"
    )
    other = "" if sharded else f", or `target {able(lambda one: one.facts.zero_muon)}`"
    yield Finding(
        spec.location("strategy", where),
        f"{strategy} cannot shard muon",
        f"write `strategy ddp`{other}, or {_adamw(spec)}",
        (spec.label("optimizer", "needs complete matrices"),),
    )


@rule("XP136", "scale-of-another-muon")
def scale_of_another_muon(spec: Spec) -> Iterator[Finding]:
    """Under ZeRO, Muon needs `adjust_lr = original`: DeepSpeed's Muon can scale its updates in no other way.

    Why it is bad: `match_rms_adamw` lets Muon use a learning rate that is tuned for AdamW. It multiplies each update by
    0.2 x sqrt(the matrix's longer side), which is 9 for a matrix of 2,048 x 2,048. With `original`, a learning rate for
    AdamW is too low.

    Without this rule: DeepSpeed silently scales the updates as with `adjust_lr = original`.

    Source: deepspeed 0.19.8 `runtime/zero/muon/original_muon.py` (`_aspect_ratio_scale`), torch 2.13 `optim/_muon.py`
    (`_adjust_lr`); confirmed by running it.
    """
    if not _stage_with_muon(spec) or spec.text("optimizer.adjust_lr") == "original":
        return
    written, more = spec.written("optimizer.adjust_lr"), " with about ten times the `lr`, or `strategy ddp`"
    yield Finding(
        spec.location("optimizer.adjust_lr", "DeepSpeed has no such scale")
        if written
        else spec.location("optimizer", "adjust_lr = match_rms_adamw by default"),
        f"Muon under {spec.text('strategy')} always scales its updates as with `adjust_lr = original`",
        write("adjust_lr = original", more) if written else f"write `optimizer muon(adjust_lr=original)`{more}",
        (spec.label("strategy", "the strategy"),),
    )


@rule("XP137", "clipped-after-muon")
def clipped_after_muon(spec: Spec) -> Iterator[Finding]:
    """Under ZeRO, Muon needs `clip = 0`.

    Why it is bad: clipping is meant for gradients, but DeepSpeed clips Muon's orthogonalized updates. The norm of an
    orthogonal update does not depend on the gradient: it is sqrt(the matrix's shorter side). For 200 matrices of 2,048
    x 2,048, the norm of all updates together is about 640, so `clip = 1` divides every update by 640.

    Without this rule: the updates are silently too small, and the log shows the norm of the updates as the gradient
    norm.

    Source: deepspeed 0.19.8 `runtime/zero/stage_1_and_2.py` (`get_flat_partition`), `stage3.py`
    (`_apply_muon_to_accumulated_grads`); confirmed by running it.
    """
    if not _stage_with_muon(spec) or not spec.real("optimizer.clip"):
        return
    written = spec.written("optimizer.clip")
    yield Finding(
        spec.location("optimizer.clip", "divides Muon's updates")
        if written
        else spec.location("optimizer", f"clip = {spec.real('optimizer.clip'):g} by default"),
        f"under {spec.text('strategy')}, `clip` applies to Muon's updates",
        write("clip = 0") if written else "write `optimizer muon(clip=0)`",
        (spec.label("strategy", "the strategy"),),
    )


@rule("XP138", "muon-with-reduce-scatter")
def muon_with_reduce_scatter(spec: Spec) -> Iterator[Finding]:
    """Under zero3, Muon needs `reduce_scatter = false`.

    Why it is bad: with reduce-scatter, no process has the complete gradient that Muon orthogonalizes.

    Without this rule: ValueError when training starts, after the data is prepared.

    Source: deepspeed 0.19.8 `runtime/zero/stage3.py`; confirmed by running it.
    """
    if _stage_with_muon(spec) == 3 and spec.get("strategy.reduce_scatter") is not False:
        yield Finding(
            spec.location("strategy", "scatters the gradients"),
            "Muon under zero3 needs complete gradients",
            "write `strategy zero3(reduce_scatter=false)`",
            (spec.label("optimizer", "the optimizer"),),
        )


@rule("XP139", "not-a-matrix-for-muon")
def not_a_matrix(spec: Spec) -> Iterator[Finding]:
    """Muon can train only weights that are a single matrix: the weights of linear layers, or the matrices of LoRA, LoHa
    and MiSS. Stacked experts and the rotations of OFT contain several matrices in one weight. VeRA trains vectors.

    Why it is bad: Muon makes the rows of an update orthogonal to each other, but rows of different experts, or of
    different blocks of a rotation, belong to different matrices.

    Without this rule: torch's Muon raises ValueError for a stack of experts and for a vector, and mixes the blocks of a
    rotation.

    Source: torch 2.13 `optim/_muon.py`; peft 0.21 `tuners/oft/layer.py`; confirmed by running it.
    """
    if spec.flag("oft"):
        yield Finding(
            spec.location("optimizer", "one matrix at a time"),
            "Muon cannot train OFT, whose rotations are many blocks in one weight",
            f"write {_adamw(spec)}, or `lora` instead of `oft`",
            (spec.label("oft", "the adapters"),),
        )
    elif spec.flag("vera"):
        yield Finding(
            spec.location("optimizer", "one matrix at a time"),
            "Muon cannot train VeRA, whose weights are vectors",
            f"write {_adamw(spec)}, or `lora` instead of `vera`",
            (spec.label("vera", "the adapters"),),
        )
    elif _trains_stacked_experts(spec):
        yield Finding(
            spec.location("optimizer", "one matrix at a time"),
            f"Muon cannot train the experts of {spec.model.model_type}, which are stacked in one weight",
            f"write {_adamw(spec)}",
            (spec.model.label,),
        )


def _stage_with_muon(spec: Spec) -> int:
    """The stage of ZeRO. 0 if the stack's DeepSpeed has no Muon; XP135 refuses such a spec."""
    return spec.zero_stage if spec.stack.facts.zero_muon else 0


def _adamw(spec: Spec) -> str:
    """The help that suggests AdamW instead of Muon. It also names the settings to leave out, which AdamW does
    not have.
    """
    own: tuple[Path, ...] = ("optimizer.adamw_lr", "optimizer.adjust_lr", "optimizer.momentum")
    return "`optimizer adamw`" + ",".join(f" without `{one.rpartition('.')[2]}`" for one in own if spec.written(one))


def _trains_stacked_experts(spec: Spec) -> bool:
    """Whether the run trains stacked experts, or adapters on them."""
    facts = spec.model.facts
    if facts is None or not stacked(spec.stack, facts):
        return False
    if not spec.lora:
        return True
    return bool(spec.names("lora.parameters") or adapted(spec.stack, facts.model_type, spec.get("lora.targets")))


@rule("XP141", "muon-of-a-newer-torch")
def muon_of_newer_torch(spec: Spec) -> Iterator[Finding]:
    """Muon needs torch 2.9 or later. On an older stack with `vllm`, the bundle pins an older torch, because the stack's
    vLLM requires it.

    Why it is bad: the torch of the bundle's requirements has no Muon.

    Without this rule: AttributeError when training starts, after the data is prepared.

    Source: `torch.optim` of torch 2.8 and 2.9.
    """
    version = spec.stack.requirements(vllm=spec.flag("method.vllm"))["torch"]
    if tuple(map(int, version.split(".")[:2])) < FIRST_TORCH:
        other = able(lambda one: tuple(map(int, one.requirements(vllm=True)["torch"].split(".")[:2])) >= FIRST_TORCH)
        yield Finding(
            spec.location("optimizer", f"torch {version}"),
            f"{spec.stack.name} with vLLM pins a torch without Muon",
            f"write `target {other}`, or {_adamw(spec)}",
            (spec.label("method.vllm", "vLLM's torch"), spec.label("target", "the target")),
        )
