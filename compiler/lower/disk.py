"""The disk space that a run needs: the bytes of a checkpoint and of the final model, and how many checkpoints exist at
the same time.

For example, full training of 3B parameters on ZeRO-2 in bf16 saves 16 bytes per parameter: 2 bytes in
model.safetensors, 2 bytes in DeepSpeed's own file, and 12 bytes in the optimizer's shards. This is 46 GiB per
checkpoint. Adapters take only a few MiB. If the size of a part is unknown, it counts as zero, so that the run is not
refused for space that it may not need. tests/proof/test_checkpoint_sizes.py compares these sizes with real checkpoints
of each kind.
"""

from __future__ import annotations

from xpc.compiler.data.row_counts import sampled, steps_of_rows, trained
from xpc.compiler.lower.arguments import best
from xpc.compiler.lower.dtypes import DTYPES
from xpc.compiler.lower.method import lora_section
from xpc.compiler.plan.evaluations import times
from xpc.compiler.plan.from_spec import adapters_of
from xpc.compiler.plan.optimizer_states import optimizer_states
from xpc.compiler.registry.linear_layers import lora_parameters
from xpc.compiler.registry.types import ModelFacts
from xpc.compiler.spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.runtime.core.payload import Disk

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
UNKNOWN_SAVES = 2
"""The number of checkpoints that is assumed for a run that deletes no checkpoint, if its number of saves is unknown
because its number of rows is unknown.
"""


def disk(spec: Spec) -> Disk | None:
    """The bytes of a checkpoint and of the final model. None if the model's size is unknown."""
    facts = spec.model.facts
    if facts is None:
        return None
    params = facts.params
    if spec.method.scores and not facts.tied:
        # the head of a reward model has a single output instead of one for each token of the vocabulary
        params -= facts.vocab * facts.hidden
    weight, trained = _weight(spec), _trained(spec, facts, params)
    saved = trained + adapters_of(spec, weight).shared if spec.lora and trained else trained if spec.lora else params
    sharded = spec.sharded_by_fsdp and spec.text("strategy.state_dict") != "full"
    model = saved * weight
    full = optimizer_states(spec, facts, trained, weight)
    if spec.zero_stage in (1, 2):
        # DeepSpeed's own checkpoint contains the weights, too
        full += model
        # A tied weight is saved under both of its names: in the model's file or, for adapters, in DeepSpeed's
        # checkpoint.
        if facts.tied:
            twice = facts.vocab * facts.hidden * weight
            model, full = (model, full + twice) if spec.lora else (model + twice, full)
    elif spec.sharded_by_fsdp and not sharded and not spec.lora:
        full += model
    if spec.flag("method.sync_reference"):
        full += params * weight
    resumable = spec.flag("save.full_state")
    model += _initial(spec, facts, weight)
    quantized = "quantization_config" in spec.model.config  # the checkpoint's weights are not of one size
    merged = params * BYTES[DTYPES[spec.text("model.dtype")]] if spec.flag("save.merge") else 0
    return {
        "checkpoint": model + (full if resumable else 0),
        "checkpoints": _checkpoints(spec),
        "model": model + merged,
        "download": 0 if spec.model.path or quantized else facts.params * BYTES.get(facts.dtype, 2),
    }


def _weight(spec: Spec) -> int:
    """The bytes of a saved weight. DeepSpeed casts the model to the dtype of the training, so in half precision a saved
    weight has 2 bytes.
    """
    if spec.zero_stage and spec.text("precision") in ("bf16", "fp16"):
        return 2
    lora = lora_section(spec)
    if lora is not None and lora["adapter_dtype"] is not None:
        return BYTES[lora["adapter_dtype"]]
    return BYTES[DTYPES[spec.text("model.dtype")]]


def _trained(spec: Spec, facts: ModelFacts, params: int) -> int:
    """The number of trained parameters: with adapters, theirs and those of `modules_to_save`. 0 if the number is
    unknown, as with frozen parts, rotations (OFT), or adapters other than LoRA on experts.
    """
    if spec.flag("freeze") or spec.flag("oft") or (spec.lora and facts.experts and not spec.low_rank):
        return 0
    if spec.lora:
        return round(adapters_of(spec, 4).params)
    return facts.language_params if spec.reads_images else params


def _initial(spec: Spec, facts: ModelFacts, weight: int) -> int:
    """The bytes, in float32, of the matrices with which PiSSA or OLoRA starts. A checkpoint contains these matrices."""
    if not spec.changes_base:
        return 0
    return lora_parameters(facts, spec.integer("lora.rank"), adapters_of(spec, 4).linear) * (2 * 4 - weight)


def _checkpoints(spec: Spec) -> int:
    """The largest number of checkpoints that exist at the same time: the checkpoints that the run keeps, the best
    checkpoint, and the one that is being written.
    """
    every, keep, steps = spec.amount("save.every"), spec.get("save.keep"), spec.get("train.steps")
    if every.unit == "never":
        return 0
    rows = None if spec.get("batch.packing") else trained(spec)
    if steps is None and rows is not None:
        steps = steps_of_rows(spec, sampled(spec, rows))
    saves = times(spec, "save.every", steps, last=True)
    if isinstance(keep, int):
        most = keep + (2 if best(spec) else 1)
        return most if saves is None else min(most, saves)
    return saves or UNKNOWN_SAVES
