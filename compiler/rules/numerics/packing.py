"""Packed and flattened rows: what keeps documents apart, and what it costs (XP31x, XP32x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import on
from xpc.compiler.rules.core.families import (
    FLASH,
    OWN_STATE,
    by_name,
    carrying,
    family,
    flash_is_exact,
    mask_is_exact,
    mixes,
    rows_have_bounds,
    runs_flash,
    supposed,
)
from xpc.compiler.rules.core.rule import Finding, rule, with_number, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Family

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

WHEN = on("batch.packing", "batch.packing.eval", "batch.padding_free")

ISOLATE: Final = "batch.packing.isolate"
UNMARKED = "cuts one stream, and does not record where documents end"
DENSE_ROW = 8192
"""Tokens of a flattened row from which a mask over the whole of it is told: 8192 x 8192 scores a head."""


@rule("XP310", "packing-without-flash")
def packing_without_flash(spec: Spec) -> Iterator[Finding]:
    """Packing puts several documents into one row; a flash kernel keeps them apart by their lengths.

    Other implementations build a mask over the whole row: exact for most families on trl-1.16, at a cost that grows
    with the square of the row, and silently wrong elsewhere (on trl-0.18 everywhere). The spec has to say that it wants
    that: `packing(isolate=mask)`. Source: transformers 5.23 and 4.52.3 `masking_utils.py`; executed on 60 families.
    """
    attn = spec.text("model.attn")
    if not spec.flag("batch.packing") or attn in FLASH or spec.get("batch.packing.isolate") == "mask":
        return
    ways, cut = [], not rows_have_bounds(spec)
    mask = "packing(isolate=mask)" if not cut else f"packing(isolate=mask, strategy={bounded(spec)})"
    if mask_is_exact(spec) and (not cut or bounded(spec)):
        ways.append(f"`{mask}`, which is exact here and costs attention over the whole row")
    if runs_flash(spec) and flash_is_exact(spec) and not cut:
        ways.append("`attn = flash2`")
    place = spec.place("batch.packing", f"attention is {attn}, which does not see where documents end")
    yield Finding(
        place,
        "packing without flash attention",
        "write " + ", or ".join(ways) if ways else "leave `packing` out",
        (spec.label("model.attn", "the attention"),),
        mask if mask_is_exact(spec) and not cut and place.typed == "packing" else None,
    )


def bounded(spec: Spec) -> str | None:
    """A packing of the target that keeps the ends of documents, or None where it only cuts a stream."""
    return next((name for name in spec.stack.packing if name != "wrapped"), None)


@rule("XP311", "mask-not-exact")
def mask_not_exact(spec: Spec) -> Iterator[Finding]:
    """`packing(isolate=mask)` is legal where the target's mask is known to be exact for the model's family.

    Families that ignore position ids or carry a state leak from one document into the next without a message: logits
    of the later documents were off by as much as the logits are large (gpt_oss, opt, falcon, bloom, mpt, afmoe, mamba,
    jamba). Hybrids with short convolutions raise ValueError at the first forward pass without causal-conv1d, which no
    bundle installs. `wrapped` cuts a stream into rows and forgets where documents end, so there is nothing to build a
    mask of. Source: transformers 5.23 `masking_utils.py`, trl 1.16 `data_utils.py`; executed on every family of the
    registry.
    """
    if spec.get("batch.packing.isolate") != "mask" or not spec.flag("batch.packing"):
        return
    place = spec.place("batch.packing.isolate")
    if spec.text("model.attn") in FLASH:
        yield Finding(
            place,
            "`isolate = mask` with flash attention has no mask to build",
            "leave `isolate` out",
            (spec.label("model.attn", "the attention"),),
        )
    elif mask_is_exact(spec) and not rows_have_bounds(spec):
        best = bounded(spec)
        assert best is not None  # a target with an exact mask has one
        yield Finding(
            spec.place("batch.packing.strategy", UNMARKED),
            "`isolate = mask` has nothing to tell documents apart by",
            write(f"strategy = {best}"),
            (place,),
        )
    elif not mask_is_exact(spec):
        known = family(spec)
        if spec.stack.facts.isolate_mask is not True:
            why = f"{spec.stack.name} does not read position ids into its mask"
        elif known is None:
            why = "the model's family is not known"
        elif known.packing == "unaware":
            why = f"{known.model_type} builds it without position ids"
        else:
            why = _own_state(spec, known)
        flash = runs_flash(spec) and flash_is_exact(spec) and rows_have_bounds(spec)
        yield Finding(
            place,
            f"the mask does not keep documents apart: {why}",
            "leave `packing` out" + (", or write `attn = flash2` without `isolate`" if flash else ""),
            (spec.label("target", "the target") if spec.stack.facts.isolate_mask is not True else spec.model.label,),
        )


def _own_state(spec: Spec, known: Family) -> str:
    if known.packing == "kernel" and spec.stack.facts.isolate_mask is True:
        return f"{known.model_type} has short convolutions, which need causal-conv1d for it"
    return f"{known.model_type} carries a state from one document into the next"


@rule("XP312", "wrapped-packing", "warning")
def wrapped_packing(spec: Spec) -> Iterator[Finding]:
    """`wrapped` cuts documents where a row ends and lets them attend to each other, whatever the attention.

    `padding_free` beside it flattens rows that have no boundaries of their own; TRL warns of that only in its log.
    Source: trl 1.16 and 0.18 `data_utils.py` (no sequence lengths are produced), `sft_trainer.py`; executed.
    """
    if spec.flag("batch.packing") and spec.get("batch.packing.strategy") == "wrapped":
        best = bounded(spec)
        flash, isolate = spec.text("model.attn") in FLASH, spec.get("batch.packing.isolate")
        if (isolate == "mask" and mask_is_exact(spec) and not flash) or (
            isolate == "flash" and flash and spec.written(ISOLATE)
        ):
            return  # an error already
        written = spec.written("batch.packing.strategy")
        flat = spec.flag("batch.padding_free")
        yield Finding(
            spec.place("batch.packing.strategy" if written else "batch.packing"),
            "`wrapped` lets documents attend to each other" + (", and `padding_free` does not mend it" if flat else ""),
            f"write `strategy = {best}`" if best else f"{spec.stack.name} packs no other way: leave `packing` out",
            (
                spec.label("target", "the target") if best is None else None,
                spec.label("batch.padding_free", "keeps rows apart, not documents") if flat else None,
            ),
            f"strategy = {best}" if best and written else None,
        )


@rule("XP370", "flash-without-ends")
def flash_without_ends(spec: Spec) -> Iterator[Finding]:
    """`packing(isolate=flash)` needs rows that know where their documents end; `wrapped` cuts a stream and forgets it.

    The kernel is then called for the whole row: every document attends to those before it, which is not what is
    written. On trl-0.18 all packing is of this kind. Today nothing says so; `wrapped` alone, without `isolate`, is
    legal with a warning (XP312). Source: trl 1.16 `data_utils.py` and 0.18 (`pack_dataset` gives no lengths); executed.
    """
    if spec.get(ISOLATE) != "flash" or not spec.written(ISOLATE) or not spec.flag("batch.packing"):
        return
    if spec.text("model.attn") not in FLASH or rows_have_bounds(spec):
        return  # XP310 speaks of the first
    best = bounded(spec)
    yield Finding(
        spec.place("batch.packing.strategy" if best else ISOLATE, UNMARKED),
        "`isolate = flash` has nothing to tell documents apart by",
        f"write `strategy = {best}`" if best else f"{spec.stack.name} packs no other way: leave `packing` out",
        (spec.label(ISOLATE, "what is asked for") if best else spec.label("target", "the target"),),
        f"strategy = {best}" if best else None,
    )


@rule("XP313", "packing-strategy-of-another-target")
def packing_strategy(spec: Spec) -> Iterator[Finding]:
    """Each target packs in its own ways; an unknown name is accepted by the arguments and fails after tokenizing.

    Source: trl 1.16 and 0.18 `data_utils.pack_dataset`.
    """
    name = spec.get("batch.packing.strategy")
    legal = tuple(spec.stack.packing)
    if spec.flag("batch.packing") and isinstance(name, str) and name not in legal:
        yield Finding(
            spec.place("batch.packing.strategy", f"{spec.stack.name} has " + ", ".join(legal)),
            f"{spec.stack.name} does not pack by `{name}`",
            write(f"strategy = {legal[0]}"),
            (spec.label("target", "the target"),),
        )


@rule("XP324", "evaluation-rows-packed-alone")
def evaluation_packed_alone(spec: Spec) -> Iterator[Finding]:
    """`packing.eval` without `packing` packs the evaluation's rows and says nowhere where their documents end.

    Documents attend to each other with every attention, flash as well: positions are handed on by the collator of
    packed training, which is not there. The loss of an evaluation was 6.9352 instead of 6.9291, without a message.
    Beside `padding_free` the collator is there. Source: trl 1.16 `sft_trainer.py` (`self.padding_free` follows
    `packing` alone), 0.18 the same; executed.
    """
    if not spec.flag("batch.packing.eval") or spec.flag("batch.packing"):
        return
    keeps = spec.flag("batch.padding_free") and spec.stack.facts.bfd_forces_padding_free is True
    if not keeps:
        yield Finding(
            spec.place("batch.packing.eval", "documents of the evaluation see each other"),
            "`packing.eval` without `packing` does not keep documents apart",
            "leave `packing.eval` out, or pack the rows of the training as well",
            (spec.label("batch.packing", "training rows are not packed"),),
        )


@rule("XP317", "padding-free-with-a-length")
def padding_free_with_length(spec: Spec) -> Iterator[Finding]:
    """trl-1.16 does not cut rows when `padding_free` is on without packing, so a written `seq` would not hold.

    Today: ValueError after the model is loaded. Source: trl 1.16 `sft_trainer.py`; executed.
    """
    if not spec.flag("batch.padding_free") or spec.flag("batch.packing") or spec.get("method") != "sft":
        return
    if spec.stack.facts.padding_free_needs_no_max_length and spec.written("batch.seq"):
        yield Finding(
            spec.place("batch.seq", "not enforced"),
            "`padding_free` does not cut rows at `seq`",
            "leave `seq` out, or pack",
            (spec.label("batch.padding_free", "padding_free"),),
        )


@rule("XP318", "padding-free-without-flash")
def padding_free_without_flash(spec: Spec) -> Iterator[Finding]:
    """`padding_free` flattens a micro-batch into one row, so the same isolation is needed as for packing.

    Source: trl 0.18 `sft_trainer.py` (a warning), transformers 5.23 `masking_utils.py`; executed on 60 families.
    """
    attn = spec.text("model.attn")
    if spec.get("method") == "dpo" and not spec.stack.facts.dpo_padding_free:
        return  # pads all the same
    if spec.flag("batch.padding_free") and attn not in FLASH and not mask_is_exact(spec):
        yield Finding(
            spec.place("batch.padding_free", f"attention is {attn}"),
            "`padding_free` without flash attention lets rows attend to each other",
            "leave `padding_free` out",
            (spec.label("model.attn", "the attention"),),
        )


@rule("XP320", "flash-does-not-isolate")
def flash_does_not_isolate(spec: Spec) -> Iterator[Finding]:
    """Flash attention keeps documents apart only where the family hands it their positions and has no state beside it.

    Some families call the plain kernel (gpt_neo and gptj; on trl-0.18 also cohere2, gpt_bigcode, granitemoe and olmoe),
    recurrent layers run on into the next document (jamba, recurrent_gemma), both silently. Hybrids with short
    convolutions (bamba, falcon_h1, lfm2, qwen3_next and others) raise ValueError at the first forward pass on trl-1.16,
    because no bundle installs causal-conv1d. Of a model that is not in the registry the family is read off its name
    (`tiiuae/Falcon-H1-1.5B`, `ai21labs/Jamba-v0.1`), and of a family that is not there either (zamba2, lfm2_moe,
    minimax) it is refused where its source in transformers has such layers. Source: transformers 5.23, 4.57.6 and
    4.52.3; executed with the arithmetic of the kernel written in torch.
    """
    attn = spec.text("model.attn")
    if attn not in FLASH or not rows_have_bounds(spec) or flash_is_exact(spec):
        return
    name: Path = "batch.packing" if spec.flag("batch.packing") else "batch.padding_free"
    known, other = supposed(spec), carrying(spec)
    if known is None:
        yield Finding(
            spec.place(name, f"the family is {other}"),
            f"{attn} does not keep documents apart: {other} has a state that runs from token to token",
            f"leave `{name.rpartition('.')[2]}` out" + by_name(spec),
            (spec.model.label, spec.label("model.attn", "the attention")),
        )
        return
    plain = mixes(spec, known) and known.packing not in OWN_STATE
    why = f"{known.model_type} does not tell it where they end" if plain else _own_state(spec, known)
    ways = ["`attn = eager` with `packing(isolate=mask)`"] if mask_is_exact(spec) and name == "batch.packing" else []
    yield Finding(
        spec.place(name, f"the family is {known.model_type}"),
        f"{attn} does not keep documents apart: {why}",
        " or ".join([*(f"write {way}" for way in ways), f"leave `{name.rpartition('.')[2]}` out"]) + by_name(spec),
        (spec.model.label, spec.label("model.attn", "the attention")),
    )


@rule("XP321", "padding-free-of-one", "warning")
def padding_free_of_one(spec: Spec) -> Iterator[Finding]:
    """A micro-batch of one has no padding that `padding_free` could leave out; packing would fill the row.

    Source: trl 1.16 and 0.18 `sft_trainer.py` (a warning in the log); executed.
    """
    if spec.flag("batch.packing") or spec.get("method") != "sft":
        return  # a preference is two sequences
    if spec.flag("batch.padding_free") and spec.integer("batch.micro") == 1:
        yield Finding(
            spec.place("batch.padding_free"),
            "`padding_free` with one sequence at a time saves nothing",
            "leave `padding_free` out, or write a larger `micro`",
            (spec.label("batch.micro", "the micro-batch"),),
        )


@rule("XP322", "mask-over-a-long-row", "warning")
def mask_over_long_row(spec: Spec) -> Iterator[Finding]:
    """Packed rows of a micro-batch are laid end to end, and without flash attention every token attends over all of it.

    The work and the mask grow with the square of micro x seq, most of it masked out. flex skips masked blocks.
    Source: trl 1.16 `sft_trainer.py` (bfd forces padding_free), transformers 5.23 `masking_utils.py`.
    """
    micro, seq, attn = spec.integer("batch.micro"), spec.integer("batch.seq"), spec.text("model.attn")
    flat = spec.flag("batch.packing") and rows_have_bounds(spec) and spec.stack.facts.bfd_forces_padding_free is True
    if not flat or spec.get("batch.packing.isolate") != "mask" or not mask_is_exact(spec):
        return
    if attn not in ("sdpa", "eager") or micro * seq <= DENSE_ROW:
        return
    share = spec.integer("batch.gbs") // spec.hardware.world
    from xpc.compiler.plan.divisors import largest

    most = min(micro - 1, DENSE_ROW // seq)
    smaller = largest(most, share) if share and most else None
    written = spec.written("batch.micro") and spec.written("batch.gbs") and not spec.written("batch.accum")
    ways = [f"write `micro = {smaller}`"] if smaller else []
    ways += ["write `attn = flash2` without `isolate`"] if runs_flash(spec) and flash_is_exact(spec) else []
    place = spec.place(
        "batch.micro" if spec.written("batch.micro") else "batch.packing", f"{micro} x {seq} = {micro * seq}"
    )
    yield Finding(
        place,
        f"attention over rows of {micro * seq} tokens, of which each sees its own document",
        " or ".join(ways) or "leave `packing` out",
        (spec.label("batch.packing", "packed rows are laid end to end"), spec.label("model.attn", "no flash kernel")),
        with_number(place.typed, smaller) if smaller and written else None,
    )
