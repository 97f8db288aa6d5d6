"""Write `trainer_args.json`: the trainer arguments, and sections that only the runtime reads."""

from __future__ import annotations

from xpc.compiler.data.shapes import SHAPES
from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.setting import Path
from xpc.compiler.lower.accelerate import ATTENTION, distributed_type
from xpc.compiler.lower.arguments import arguments
from xpc.compiler.lower.deepspeed import deepspeed_extension, deepspeed_optimizer
from xpc.compiler.lower.disk import disk
from xpc.compiler.lower.division import division
from xpc.compiler.lower.dtypes import DTYPES
from xpc.compiler.lower.method import freeze_section, lora_section, max_prompt, method_section
from xpc.compiler.lower.optimizer import muon
from xpc.compiler.plan.flops import flops
from xpc.compiler.plan.host import host_peak
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.stacks import Stack
from xpc.runtime.core import FORMAT
from xpc.runtime.core.conditions import trainer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.runtime.core.payload import Division, Hub, Model, Payload, Run
    from xpc.runtime.core.payload import Stack as StackSection
    from xpc.runtime.core.payload_data import Data, Evaluation, Rows, Source, Words

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
"""The RoPE parameters with which Llama 3.1 was published."""


def payload(spec: Spec) -> Payload:
    """The content of `trainer_args.json`. Its key `format` is the version of the file's layout."""
    method, stated, groups = method_section(spec), arguments(spec), muon(spec)
    extra = spec.extra.get("deepspeed", {})
    # In a run with Muon, the argument `optim` names only the AdamW for the weights that Muon does not train.
    divisible = {**stated, "optim": "muon"} if groups is not None else stated
    divided = division(method, divisible, distributed_type(spec), spec.by_fsdp1, spec.context_parallel, extra)
    plan: Payload = {
        "format": FORMAT,
        "target": spec.stack.name,
        "stack": stack_section(spec.stack),
        "config": spec.config,
        "method": method,
        "arguments": stated,
        "model": _model(spec),
        "tokenizer": {
            "chat_template": None if spec.template is None else spec.template.file,
            "eos_token": spec.get("model.eos"),
            "pad_token": spec.get("model.pad"),
            "added": list(spec.names("model.tokens")) or None,
        },
        "data": _data(spec),
        "lora": lora_section(spec),
        "freeze": freeze_section(spec),
        "hub": _hub(spec),
        "run": _run(spec, divided),
        "trainer": {"unused": []},
    }
    if groups is not None:
        plan["muon"] = groups
    plan["trainer"] = trainer(plan)
    return plan


def stack_section(stack: Stack) -> StackSection:
    """Properties of the stack. The runtime asks for such a property and never for the stack's name."""
    facts = stack.facts
    out: StackSection = {
        "epoch_forgotten": facts.epoch_forgotten,
        "dtype_keyword": stack.arguments["dtype"],
        "losses_not_divided": [*facts.losses_not_divided],
        "quantized_on_cpu": facts.quantized_on_cpu,
        "reference_given": [*facts.reference_given],
        "reward_async": facts.reward_async,
        "reward_given": [*facts.reward_given],
        "vllm_program": facts.vllm_program,
        "zero3_gathers_early": facts.zero3_gathers_early,
        "zero3_hooks_shared": facts.zero3_hooks_shared,
    }
    if facts.prompts_begin_rows:
        out["prompts_begin_rows"] = True
    if not facts.reads_newer_files:
        out["older_transformers"] = True
    return out


def _text(spec: Spec, path: Path) -> str | None:
    value = spec.get(path)
    return value if isinstance(value, str) else None


def _model(spec: Spec) -> Model:
    out: Model = {
        "id": spec.model.id,
        "path": spec.model.path,
        "revision": spec.model.revision,
        "dtype": DTYPES[spec.text("model.dtype")],
        "attn_implementation": ATTENTION[spec.text("model.attn")],
        "trust_remote_code": spec.flag("model.trust_remote_code"),
        "pickle": spec.flag("model.pickle"),
        "liger": spec.flag("memory.liger") and spec.stack.facts.liger == "runtime",
    }
    if out["liger"] and spec.model.model_type is None:  # XP331 checks known families, the run all others
        out["liger_unchecked"] = True
    renamed = spec.stack.facts.renames_saved
    if renamed and spec.model.model_type in (None, *renamed):
        out["renamed"] = True
    if spec.flag("model.compile"):
        out["compile_layers"] = True
    if spec.rope is not None:
        out["rope"] = {
            "rope_type": spec.rope.kind,
            "factor": spec.rope.factor,
            "original": spec.rope.original,
            "parameters": (LLAMA3 if spec.rope.kind == "llama3" else {}) | dict(spec.rope.parameters),
        }
    if spec.kernels:
        out["kernels"] = {**spec.kernels}
    return out


def _rows(amount: Amount | None) -> Rows | None:
    if amount is None:
        return None
    return {"fraction": amount.value} if amount.unit == "share" else {"rows": int(amount.value)}


def _source(spec: Spec, source: DataSource, mixed: bool) -> Source:
    out: Source = {
        "id": source.id,
        "config": source.config,
        "split": source.split,
        "slice": source.slice,
        "revision": source.revision,
        "path": source.path,
        "bundled": source.bundled,
        "sha256": source.sha256,
        "files": [
            {"path": part.inside(source), "bundled": part.bundled, "sha256": part.sha256} for part in source.parts
        ]
        or None,
        "shape": source.shape,
        "columns": None if source.columns is None else list(source.columns),
        "only": source.only,
        "context": source.context,
        "wording": "chat" if source.chat else source.wording,
        "take": _rows(source.take),
        "limit": source.limit,
    }
    images = spec.images.get(source.path or "")
    if images is not None:
        out["images"], out["images_sha256"] = images.name or None, images.sha256 or None
    if source.documents not in (None, "line"):
        out["documents"] = source.documents
    if source.shape == "tokens":
        out["columns"] = list(source.columns or SHAPES["tokens"])
        out["tokens"] = _tokens(spec)
    if source.share is not None:
        out["share"] = source.share
    if mixed:
        out["kind"] = source.kind
    return out


def _tokens(spec: Spec) -> str:
    """The column that tells the trainer which tokens of a row count in the loss: "labels" or "completion_mask". "" if
    the trainer drops both columns.
    """
    if spec.stack.facts.reads_labels:
        return "labels"
    return "" if spec.drops_masks else "completion_mask"


def _data(spec: Spec) -> Data:
    mixed = spec.mixes_shapes
    return {
        "sources": [_source(spec, source, mixed) for source in spec.data],
        "seed": spec.integer("data.seed"),
        "shuffle": spec.flag("data.shuffle"),
        "holdout": _rows(spec.get("data.holdout")),
        "workers": spec.get("data.workers"),
        "system": _text(spec, "data.system"),
        **_words(spec),
        "max_prompt": max_prompt(spec),
        "unique": spec.flag("data.unique"),
        "min_tokens": spec.get("data.min_tokens"),
        "max_tokens": spec.get("data.max_tokens"),
        "eval_split": spec.get("eval.split"),
        "evaluation": _evaluation(spec),
    }


def _words(spec: Spec) -> Words:
    """The optional keys of the section `data`, each written only if the spec uses its setting. Among them are the
    prompt template, the column of system prompts, the speakers' roles, the buffer of a stream, and what happens when a
    source of a mixture runs out of rows.
    """
    out: Words = {}
    if spec.get("data.long") == "chunk":
        out["long"] = "chunk"
    if spec.flag("data.streaming"):
        out["streaming"] = {"shuffle_buffer": spec.get("data.shuffle_buffer")}
    if spec.by_share:
        out["exhausted"] = spec.text("data.exhausted")
    template, column = _text(spec, "data.prompt_template"), spec.get("data.system_column")
    if template is not None:
        out["prompt_template"] = template
    if column is not None:
        out["system_column"] = column
    named = {name: role for source in spec.data for name, role in source.roles}
    if named:
        out["roles"] = named
    if spec.get("data.max_pixels") is not None:
        out["max_pixels"] = spec.integer("data.max_pixels")
    if omitted := spec.names("data.omit"):
        out["omit"] = list(omitted)
    return out


def _evaluation(spec: Spec) -> Evaluation | None:
    """The evaluation sets that have their own data. None if the spec names no such set. If the entry `named` is true,
    the metrics of each set are reported under the set's name.
    """
    if not spec.evaluated:
        return None
    mixed = spec.mixes_shapes
    sets = [(one.name, [_source(spec, source, mixed) for source in one.sources]) for one in spec.evaluated]
    return {"named": bool(spec.sets), "sets": [{"name": name, "sources": found} for name, found in sets]}


def _hub(spec: Spec) -> Hub | None:
    """The settings of the hub that no trainer argument states: the branch, and whether each checkpoint gets its own
    branch. None if the run does not push.
    """
    if not spec.flag("save.hub"):
        return None
    return {
        "revision": spec.get("save.hub.revision"),
        "checkpoint_branches": spec.flag("save.hub.checkpoint_branches"),
    }


def _run(spec: Spec, divided: Division) -> Run:
    gpu, patience = spec.hardware.gpu, spec.get("eval.patience")
    run: Run = {
        "nodes": spec.hardware.nodes,
        "processes_per_node": spec.hardware.processes,
        "world_size": spec.hardware.world,
        "context_parallel": spec.context_parallel,
        "micro": spec.integer("batch.micro"),
        "accumulation": spec.integer("batch.accum"),
        "gbs": spec.integer("batch.gbs"),
        "seq": spec.integer("batch.seq"),
        "distributed_type": distributed_type(spec),
        "zero_stage": spec.zero_stage,
        "deepspeed_optimizer": deepspeed_optimizer(spec),
        "deepspeed_extension": deepspeed_extension(spec),
        "device": "cpu" if gpu is None else "cuda",
        "gpu": None
        if gpu is None
        else {
            "name": gpu.name,
            "memory_gib": gpu.memory_gib,
            "capability": list(gpu.capability),
            "device_names": list(gpu.device_names),
        },
        "division": divided,
        "resume": spec.text("save.resume"),
        "full_state": spec.flag("save.full_state"),
        "project": spec.get("track.project"),
        "nan": spec.text("precision.nan"),
        "idle": spec.text("precision.idle"),
        "disk": disk(spec),
        "host_memory": host_peak(spec),
        "flops": flops(spec),
    }
    if spec.text("precision") == "fp8":
        run["fp8"] = {"all_gather": spec.sharded_by_fsdp}
    return run if patience is None else {**run, "patience": patience}
