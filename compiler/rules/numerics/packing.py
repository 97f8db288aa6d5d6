"""Rules about packed and flattened rows: whether attention separates documents, and what the separation costs (XP31x,
XP32x, XP370).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import Path, TextPath
from xpc.compiler.plan.divisors import largest
from xpc.compiler.rules.core.conditions import enabled
from xpc.compiler.rules.core.families import (
    FLASH,
    OWN_STATE,
    can_run_flash,
    family,
    flash_is_exact,
    flash_mixes_documents,
    mask_is_exact,
    presumed_family,
    presumed_hint,
    rows_have_bounds,
    stateful_family,
)
from xpc.compiler.rules.core.rule import Finding, rule, with_number, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Family

WHEN = enabled("batch.packing", "batch.packing.eval", "batch.padding_free")

ISOLATE: TextPath = "batch.packing.isolate"
UNMARKED = "this packing cuts one stream of tokens and does not record where documents end"
DENSE_ROW = 8192
"""If attention uses a mask, flattened rows with more tokens than this are reported, because the mask then has more than
8192 x 8192 scores per head.
"""


@rule("XP310", "packing-without-flash")
def packing_without_flash(spec: Spec) -> Iterator[Finding]:
    """Packing needs flash attention, or `packing(isolate=mask)`. `packing(strategy=wrapped)` is the exception: the rule
    XP312 only warns about it.

    Why it is bad: packing puts several documents into one row. A flash kernel keeps the documents apart by their
    lengths. Other implementations build a mask over the complete row, at a cost that grows with the square of the row's
    length.

    Without this rule: without flash attention, documents are kept apart for most families on trl-1.16. In the other
    families, and on trl-0.18 in all families, they silently attend to each other.

    Source: transformers 5.23 and 4.52.3 `masking_utils.py`; confirmed by running it on 60 families.
    """
    attn = spec.text("model.attn")
    if not spec.flag("batch.packing") or attn in FLASH or spec.get("batch.packing.isolate") == "mask":
        return
    if spec.get("batch.packing.strategy") == "wrapped" and spec.written("batch.packing.strategy"):
        return  # the rule XP312 already warns about `wrapped`, because no attention separates its documents
    ways, cut = [], not rows_have_bounds(spec)
    mask = "packing(isolate=mask)" if not cut else f"packing(isolate=mask, strategy={bounded(spec)})"
    if mask_is_exact(spec) and (not cut or bounded(spec)):
        ways.append(f"`{mask}` (this mask is exact for the model, but attention then covers the complete row)")
    if can_run_flash(spec) and flash_is_exact(spec) and not cut:
        ways.append("`attn = flash2`")
    location = spec.location("batch.packing", f"{attn} attention does not see where documents end")
    alone = location.typed == "packing" and location.source.text[location.span.end :].lstrip(" ")[:1] not in ("(", "{")
    yield Finding(
        location,
        "packing needs flash attention, or a mask that keeps documents apart",
        "write " + ", or ".join(ways) if ways else "leave `packing` out",
        (spec.label("model.attn", "the attention"),),
        mask if mask_is_exact(spec) and not cut and alone else None,
    )


def bounded(spec: Spec) -> str | None:
    """A packing strategy of the target that records where documents end. None if `wrapped` is the target's only
    strategy: it joins all documents to one long sequence, and cuts this sequence into rows.
    """
    return next((name for name in spec.stack.packing if name != "wrapped"), None)


@rule("XP311", "mask-not-exact")
def mask_not_exact(spec: Spec) -> Iterator[Finding]:
    """`packing(isolate=mask)` needs a model family and a stack (`target`) whose attention mask is known to keep packed
    documents apart.

    Why it is bad: packed documents influence each other. In families that ignore position ids or carry a state from
    token to token, a mask does not separate them. With `packing(strategy=wrapped)`, a mask cannot be built, because
    this strategy does not record where documents end.

    Without this rule: nothing is reported, and the logits of all documents after the first are completely wrong
    (gpt_oss, opt, falcon, bloom, mpt, afmoe, mamba, jamba). Hybrids with short convolutions raise ValueError at the
    first forward pass without causal-conv1d, which no bundle installs.

    Source: transformers 5.23 `masking_utils.py`, trl 1.16 `data_utils.py`; confirmed by running it on every family of
    the registry.
    """
    if spec.get("batch.packing.isolate") != "mask" or not spec.flag("batch.packing"):
        return
    location = spec.location("batch.packing.isolate")
    if spec.text("model.attn") in FLASH:
        yield Finding(
            location,
            "`isolate = mask` builds no mask with flash attention",
            "leave `isolate` out",
            (spec.label("model.attn", "the attention"),),
        )
    elif mask_is_exact(spec) and not rows_have_bounds(spec):
        best = bounded(spec)
        # `bounded` finds a strategy, because each target with an exact mask has a strategy in addition to `wrapped`
        assert best is not None
        yield Finding(
            spec.location("batch.packing.strategy", UNMARKED),
            "`isolate = mask` does not know where documents end",
            write(f"strategy = {best}"),
            (location,),
        )
    elif not mask_is_exact(spec):
        known = family(spec)
        if spec.stack.facts.isolate_mask is not True:
            why = f"{spec.stack.name} builds its mask without position ids"
        elif known is None:
            why = "the model's family is not known"
        elif known.packing == "unaware":
            why = f"{known.model_type} builds its mask without position ids"
        else:
            why = _why_state_leaks(spec, known)
        flash = can_run_flash(spec) and flash_is_exact(spec) and rows_have_bounds(spec)
        yield Finding(
            location,
            f"the mask does not keep documents apart: {why}",
            "leave `packing` out" + (", or write `attn = flash2` without `isolate`" if flash else ""),
            (spec.label("target", "the target") if spec.stack.facts.isolate_mask is not True else spec.model.label,),
        )


def _why_state_leaks(spec: Spec, known: Family) -> str:
    """A text for a message. It says why packed documents are not separated in a family whose layers carry a state."""
    if known.packing == "kernel" and spec.stack.facts.isolate_mask is True:
        return f"{known.model_type} has short convolutions, which need causal-conv1d to keep documents apart"
    return f"{known.model_type} carries a state from one document into the next"


@rule("XP312", "wrapped-packing", "warning")
def wrapped_packing(spec: Spec) -> Iterator[Finding]:
    """Packing should use a strategy other than `wrapped`.

    Why it is bad: `wrapped` cuts documents at the ends of rows, and the documents in a row attend to each other with
    every kind of attention. `padding_free` does not help: it separates rows, but not the documents within a row, whose
    ends are not known.

    Without this rule: nothing is reported, except that TRL logs a warning if `padding_free` is set.

    Source: trl 1.16 and 0.18 `data_utils.py` (no sequence lengths are produced), `sft_trainer.py`; confirmed by running
    it.
    """
    if spec.flag("batch.packing") and spec.get("batch.packing.strategy") == "wrapped":
        best = bounded(spec)
        masked = spec.get(ISOLATE) == "mask" and mask_is_exact(spec) and spec.text("model.attn") not in FLASH
        if masked or _flash_lacks_ends(spec):
            return  # the rule about `isolate` already reports an error (XP311 or XP370)
        written = spec.written("batch.packing.strategy")
        flat = spec.flag("batch.padding_free")
        yield Finding(
            spec.location("batch.packing.strategy" if written else "batch.packing"),
            "`wrapped` lets documents attend to each other"
            + (", and `padding_free` does not prevent it" if flat else ""),
            f"write `strategy = {best}`" if best else f"leave `packing` out: {spec.stack.name} has no other strategy",
            (
                spec.label("target", "the target") if best is None else None,
                spec.label("batch.padding_free", "keeps rows apart, not documents") if flat else None,
            ),
            f"strategy = {best}" if best and written else None,
        )


def _flash_lacks_ends(spec: Spec) -> bool:
    """Whether a written `isolate = flash` does not know where documents end. False if XP310 reports the attention."""
    stated = spec.get(ISOLATE) == "flash" and spec.written(ISOLATE) and spec.flag("batch.packing")
    flash = spec.text("model.attn") in FLASH or spec.written("batch.packing.strategy")
    return stated and flash and not rows_have_bounds(spec)


@rule("XP370", "flash-without-ends")
def flash_without_ends(spec: Spec) -> Iterator[Finding]:
    """`packing(isolate=flash)` needs a packing strategy that records where documents end. `wrapped` does not record
    these ends, and neither does any strategy of trl-0.18. For `wrapped` without `isolate`, the rule XP312 only warns.

    Why it is bad: without the documents' ends, the kernel treats the row as one document, so every document attends to
    the documents before it.

    Without this rule: nothing is reported.

    Source: trl 1.16 `data_utils.py` and 0.18 (`pack_dataset` gives no lengths); confirmed by running it.
    """
    if not _flash_lacks_ends(spec):
        return
    best, flash = bounded(spec), spec.text("model.attn") in FLASH
    yield Finding(
        spec.location("batch.packing.strategy" if best else ISOLATE, UNMARKED),
        "`isolate = flash` does not know where documents end",
        f"write `strategy = {best}`" + ", with `attn = flash2` in `model`" * (not flash)
        if best
        else f"leave `packing` out: {spec.stack.name} has no other strategy",
        (spec.label(ISOLATE, "set here") if best else spec.label("target", "the target"),),
        f"strategy = {best}" if best and flash else None,
    )


@rule("XP313", "packing-strategy-of-another-target")
def packing_strategy(spec: Spec) -> Iterator[Finding]:
    """The packing strategy must be one that the target has.

    Why it is bad: trl's arguments accept any text, so a wrong name is found only when the rows are packed.

    Without this rule: the run fails after the data is tokenized.

    Source: trl 1.16 and 0.18 `data_utils.pack_dataset`.
    """
    name = spec.get("batch.packing.strategy")
    legal = tuple(spec.stack.packing)
    if spec.flag("batch.packing") and isinstance(name, str) and name not in legal:
        yield Finding(
            spec.location("batch.packing.strategy", f"{spec.stack.name} has " + ", ".join(legal)),
            f"{spec.stack.name} has no packing strategy `{name}`",
            write(f"strategy = {legal[0]}"),
            (spec.label("target", "the target"),),
        )


@rule("XP324", "evaluation-rows-packed-alone")
def evaluation_packed_alone(spec: Spec) -> Iterator[Finding]:
    """`packing.eval`, which packs evaluation rows, needs `packing` of the training rows, too. Since trl 0.24,
    `padding_free` for the training rows is enough.

    Why it is bad: trl's collator passes position ids to the model only if training rows are packed (since trl 0.24,
    also if they are flattened). Without positions, the packed documents of the evaluation attend to each other with
    every kind of attention, including flash.

    Without this rule: nothing is reported, and the evaluation loss is wrong. For the same model and the same rows, it
    was 6.9352 with packing and 6.9291 without.

    Source: trl 1.16 and 0.18 `sft_trainer.py` (only `packing` and `padding_free`, not `eval_packing`, decide about
    `self.padding_free`); confirmed by running it.
    """
    if not spec.flag("batch.packing.eval") or spec.flag("batch.packing"):
        return
    keeps = spec.flag("batch.padding_free") and spec.stack.facts.bfd_forces_padding_free is True
    if not keeps:
        yield Finding(
            spec.location("batch.packing.eval", "documents of the evaluation attend to each other"),
            "`packing.eval` without `packing` does not keep documents apart",
            "leave `packing.eval` out, or also pack the training rows",
            (spec.label("batch.packing", "training rows are not packed"),),
        )


@rule("XP317", "padding-free-with-a-length")
def padding_free_with_length(spec: Spec) -> Iterator[Finding]:
    """On trl-1.16, a spec with `padding_free` and without packing cannot state `seq`.

    Why it is bad: a run that flattens rows does not cut them, so `seq` has no effect.

    Without this rule: ValueError after the model is loaded.

    Source: trl 1.16 `sft_trainer.py`; confirmed by running it.
    """
    if not spec.flag("batch.padding_free") or spec.flag("batch.packing") or spec.get("method") != "sft":
        return
    if spec.stack.facts.padding_free_needs_no_max_length and spec.written("batch.seq"):
        yield Finding(
            spec.location("batch.seq", "not enforced"),
            "`padding_free` does not cut rows at `seq`",
            "leave `seq` out, or pack the rows",
            (spec.label("batch.padding_free", "padding_free"),),
        )


@rule("XP318", "padding-free-without-flash")
def padding_free_without_flash(spec: Spec) -> Iterator[Finding]:
    """`padding_free` needs flash attention, or a mask that is known to keep the joined rows apart.

    Why it is bad: `padding_free` joins the rows of a micro-batch to one row, in which attention must keep them apart.

    Without this rule: trl 0.18 logs a warning, and rows attend to each other.

    Source: trl 0.18 `sft_trainer.py` (the warning), transformers 5.23 `masking_utils.py`; confirmed by running it on 60
    families.
    """
    attn = spec.text("model.attn")
    if spec.get("method") == "dpo" and not spec.stack.facts.dpo_padding_free:
        return  # on this stack, dpo pads its rows even with `padding_free`, so no rows are joined
    if spec.flag("batch.padding_free") and attn not in FLASH and not mask_is_exact(spec):
        yield Finding(
            spec.location("batch.padding_free", f"attention is {attn}"),
            "`padding_free` without flash attention lets rows attend to each other",
            "leave `padding_free` out",
            (spec.label("model.attn", "the attention"),),
        )


@rule("XP320", "flash-does-not-isolate")
def flash_does_not_isolate(spec: Spec) -> Iterator[Finding]:
    """With packed or flattened rows, flash attention needs a family that tells the kernel where documents begin, and
    whose layers carry no state from token to token. For a model outside of the registry, the family is guessed from the
    model's name, such as `ai21labs/Jamba-v0.1`. Some families outside of the registry are known to carry a state and
    are refused, too (zamba2, lfm2_moe, minimax).

    Why it is bad: documents in one row influence each other. Some families call the plain kernel, without the
    documents' positions (gpt_neo and gptj; on trl-0.18 also cohere2, gpt_bigcode, granitemoe and olmoe). In others
    (jamba, recurrent_gemma), recurrent layers carry their state into the next document.

    Without this rule: nothing is reported for families that do not separate documents. Hybrids with short convolutions
    (bamba, falcon_h1, lfm2, qwen3_next and others) raise ValueError at the first forward pass on trl-1.16, because no
    bundle installs causal-conv1d.

    Source: transformers 5.23, 4.57.6 and 4.52.3; confirmed by running it with a torch version of the flash kernel.
    """
    attn = spec.text("model.attn")
    if attn not in FLASH or not rows_have_bounds(spec) or flash_is_exact(spec):
        return
    name: Path = "batch.packing" if spec.flag("batch.packing") else "batch.padding_free"
    known, other = presumed_family(spec), stateful_family(spec)
    if known is None:
        yield Finding(
            spec.location(name, f"the family is {other}"),
            f"{attn} does not keep documents apart: layers of {other} carry a state from token to token",
            f"leave `{name.rpartition('.')[2]}` out" + presumed_hint(spec),
            (spec.model.label, spec.label("model.attn", "the attention")),
        )
        return
    plain = flash_mixes_documents(spec, known) and known.packing not in OWN_STATE
    why = f"{known.model_type} does not tell the kernel where documents end" if plain else _why_state_leaks(spec, known)
    ways = ["`attn = eager` with `packing(isolate=mask)`"] if mask_is_exact(spec) and name == "batch.packing" else []
    yield Finding(
        spec.location(name, f"the family is {known.model_type}"),
        f"{attn} does not keep documents apart: {why}",
        " or ".join([*(f"write {way}" for way in ways), f"leave `{name.rpartition('.')[2]}` out"])
        + presumed_hint(spec),
        (spec.model.label, spec.label("model.attn", "the attention")),
    )


@rule("XP321", "padding-free-of-one", "warning")
def padding_free_of_one(spec: Spec) -> Iterator[Finding]:
    """`padding_free` needs a micro-batch of more than one sequence.

    Why it is bad: a micro-batch of one sequence has no padding, so nothing is saved.

    Without this rule: trl only writes a warning to the log.

    Source: trl 1.16 and 0.18 `sft_trainer.py`; confirmed by running it.
    """
    if spec.flag("batch.packing") or spec.get("method") != "sft":
        return  # the micro-batch counts preference pairs, and a single pair already has two sequences
    if spec.flag("batch.padding_free") and spec.integer("batch.micro") == 1:
        yield Finding(
            spec.location("batch.padding_free"),
            "`padding_free` saves nothing with a micro-batch of one sequence",
            "leave `padding_free` out, or write a larger `micro`",
            (spec.label("batch.micro", "the micro-batch"),),
        )


@rule("XP322", "mask-over-a-long-row", "warning")
def mask_over_long_row(spec: Spec) -> Iterator[Finding]:
    """Without flash attention, the packed rows of a micro-batch should not have more than 8192 tokens together, because
    trl joins them to one long row.

    Why it is bad: the joined row has up to micro x seq tokens. The time of attention and the size of its mask grow with
    the square of this number, although most scores are masked out (flex attention skips them).

    Without this rule: nothing is reported; attention is computed over the complete joined row.

    Source: trl 1.16 `sft_trainer.py` (bfd forces padding_free), transformers 5.23 `masking_utils.py`.
    """
    micro, seq, attn = spec.integer("batch.micro"), spec.integer("batch.seq"), spec.text("model.attn")
    flat = spec.flag("batch.packing") and rows_have_bounds(spec) and spec.stack.facts.bfd_forces_padding_free is True
    if not flat or spec.get("batch.packing.isolate") != "mask" or not mask_is_exact(spec):
        return
    if attn not in ("sdpa", "eager") or micro * seq <= DENSE_ROW:
        return
    share = spec.integer("batch.gbs") // spec.hardware.world

    most = min(micro - 1, DENSE_ROW // seq)
    smaller = largest(most, share) if share and most else None
    written = spec.written("batch.micro") and spec.written("batch.gbs") and not spec.written("batch.accum")
    ways = [f"write `micro = {smaller}`"] if smaller else []
    ways += ["write `attn = flash2` without `isolate`"] if can_run_flash(spec) and flash_is_exact(spec) else []
    location = spec.location(
        "batch.micro" if spec.written("batch.micro") else "batch.packing", f"{micro} x {seq} = {micro * seq}"
    )
    yield Finding(
        location,
        f"attention is computed over rows of {micro * seq} tokens, though each token sees only its own document",
        " or ".join(ways) or "leave `packing` out",
        (spec.label("batch.packing", "packed rows are joined end to end"), spec.label("model.attn", "no flash kernel")),
        with_number(location.typed, smaller) if smaller and written else None,
    )
