"""Collect the quantities that decide the memory of a checked spec's run, as a `Load` (load.py)."""

from __future__ import annotations

from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.methods.definition import none as no_reference
from xpc.compiler.language.optimizers import FUSED, LAYERWISE
from xpc.compiler.language.strategies import SPREADS
from xpc.compiler.plan import packed_bytes
from xpc.compiler.plan.adapters import rotations
from xpc.compiler.plan.load import Adapters, Load, UnknownMemory
from xpc.compiler.plan.optimizer_states import state_bytes
from xpc.compiler.registry.linear_layers import (
    ATTENTION,
    HEADS,
    layer_parameters,
    linear_layers,
    lora_parameters,
    numbers,
    selected,
    shared_parameters,
    tables,
)
from xpc.compiler.registry.types import ModelFacts
from xpc.compiler.spec import Spec
from xpc.compiler.spec.adapter_dtype import adapter_dtype, norms_widened, tables_dtype
from xpc.compiler.stacks.fused_experts import adapter_layers, expert_parameters, stacked
from xpc.compiler.stacks.modules import LORA, numbered, paths, possible
from xpc.grammar.record import evolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.plan.time import Speed

UNCOUNTED = ("use_logits_to_keep", "model_init_kwargs", "optim_args")
"""Arguments of `extra trl` that change the memory of a run by an amount that the plan does not count."""
WEIGHTLESS = ("optimizer.", "schedule.", "seed", "data.seed", "save", "track", "method.beta", "train.")
"""Prefixes of the paths of settings that do not affect memory."""


def load_of(spec: Spec) -> Load:
    """The quantities that decide the memory of one process. Raises UnknownMemory."""
    facts, gpu = spec.model.facts, spec.hardware.gpu
    if facts is None:
        name = spec.model.name
        raise UnknownMemory(
            f"the sizes of `{name}` are not known: name its config.json with `model {{ config = ... }}`"
        )
    if gpu is None:
        raise UnknownMemory("the memory of a CPU process is not planned")
    if "quantization_config" in spec.model.config and not (spec.in_mxfp4 or spec.bits):
        raise UnknownMemory("the checkpoint is quantized, and its weights are not of one size")
    if facts.experts and not spec.low_rank:
        raise UnknownMemory(f"`{spec.adapter}` on a mixture of experts was not measured")
    if spec.method.scores:
        # the head of a reward model has one output, so there is one table, the embedding
        facts = evolve(facts, params=facts.params - (0 if facts.tied else facts.vocab * facts.hidden), tied=True)
    half, strategy = spec.text("precision") != "fp32", spec.text("strategy")
    stage, deepspeed = SPREADS.get(strategy, 0), strategy.startswith("zero")
    engine = "deepspeed" if deepspeed else "fsdp" if stage else "none"
    world = spec.hardware.world
    shard = spec.integer("strategy.shard") if strategy == "hsdp" and spec.get("strategy.shard") else world
    stored, tuned = _weights(spec, facts, engine)
    trained, layers, exact = 0.0 if spec.lora else float(facts.language_params), facts.layers, True
    if spec.flag("freeze") and not spec.lora:
        from xpc.compiler.plan.frozen import trained_part  # imported here, because few specs have `freeze`

        part = trained_part(spec, facts)
        trained, layers, exact = part.trained, part.layers, part.exact and spec.text("optimizer") != "muon"
    name = spec.text("optimizer")
    own = 4.0 if deepspeed else stored if tuned is None else float(tuned.element)
    micro, length = _batch(spec)
    rounds = spec.get("method.steps_per_generation") or spec.integer("batch.accum")
    flattened = spec.flag("batch.packing") or spec.flag("batch.padding_free")
    attention = _attention(spec, micro, flattened)
    return Load(
        facts=facts, family=facts.model_type, engine=engine, stage=stage, world=world, shard=shard,
        offload=_offload(spec, stage),
        element=2 if half else 4, weight=stored,
        amp=half and not deepspeed and (stored == 4.0 and engine == "none" if tuned is None else tuned.element == 4),
        moments=_moments(spec, facts, trained if tuned is None else tuned.params, own),
        temporary=own if spec.stack.optimizers.get(name) == "adamw_torch" and not deepspeed else 0.0,
        micro=1 if flattened else micro, length=length * (micro if flattened else 1),
        accumulates=spec.integer("batch.accum") > 1, checkpointing=spec.flag("memory.checkpointing"),
        attention=attention, loss=_loss(spec), trained=trained, adapters=tuned,
        frozen=_other_models(spec, facts.params * stored) / (shard if stage == 3 else 1),
        evaluated=_evaluated(spec),
        generates=micro * length * rounds if _writes(spec) else 0,
        **{"wakes" if spec.flag("method.vllm.sleep") else "reserved": _vllm(spec, gpu.memory_gib * 2**30)},
        layerwise=name in (*FUSED, *LAYERWISE),
        scored=(spec.get("method.max_completion") or 0) if spec.online else 0,
        selective=spec.flag("memory.checkpointing.selective"), layers=layers, stack=spec.stack.name,
        widened=half and spec.bits is not None and tables_dtype(spec) == "fp32", at_most=not exact or _is_most(spec),
        reentrant=spec.flag("memory.checkpointing.reentrant"),
        looped=facts.experts > 0 and not stacked(spec.stack, facts), norms_widened=norms_widened(spec),
        fsdp1=strategy == "fsdp1" or (strategy == "hsdp" and spec.stack.facts.hsdp == "fsdp1"),
        bucket=spec.get("strategy.reduce_bucket") or 0, reshards=spec.get("strategy.reshard") is not False,
    )  # fmt: skip


def _weights(spec: Spec, facts: ModelFacts, engine: str) -> tuple[float, Adapters | None]:
    """Return a pair: the average bytes of a weight of the model, and the adapters that are trained (None without
    adapters).
    """
    half = spec.text("precision") != "fp32"
    # DeepSpeed casts the model to fp16 or bf16 (engine.py, _configure_distributed_model)
    stored = 4.0 if spec.get("model.dtype") == "fp32" and not (half and engine == "deepspeed") else 2.0
    if not spec.lora:
        # accelerate upcasts trained weights under mixed precision (accelerator.py, fsdp_utils.py)
        return 4.0 if half and engine == "fsdp" else stored, None
    kind = adapter_dtype(spec) or spec.text("model.dtype")
    adapters = adapters_of(spec, stored if engine == "deepspeed" else 4.0 if kind == "fp32" else 2.0)
    if spec.bits:
        stored = _quantized(spec, facts, spec.bits, 4 if tables_dtype(spec) == "fp32" else 2)
    return stored, adapters


def _quantized(spec: Spec, facts: ModelFacts, bits: int, wide: int) -> float:
    """The average bytes of a parameter in a model whose linear layers are quantized to `bits` bits. Every other
    parameter has `wide` bytes.
    """
    embeds = facts.vocab * facts.hidden * (1 if facts.tied else 2)
    whole = expert_parameters(facts) if stacked(spec.stack, facts) else 0.0  # stacked experts are never quantized
    packed, size = facts.params - embeds - whole, packed_bytes(bits, spec.flag("lora.double_quant"))
    return ((embeds + whole) * wide + packed * size) / facts.params


def _other_models(spec: Spec, size: float) -> float:
    """The bytes of all models that are not trained: frozen copies of the trained model, which has `size` bytes, and the
    teacher.
    """
    total = spec.method.references(spec.get) * (0 if spec.lora else 1) * size
    if spec.teacher is not None and spec.teacher.facts is not None:
        total += spec.teacher.facts.params * (4 if spec.get("method.teacher_dtype") == "fp32" else 2)
    return total


def _moments(spec: Spec, facts: ModelFacts, trained: float, own: float) -> float:
    """The bytes of optimizer states per trained parameter, which itself has `own` bytes.

    Paged states count as 0, because CUDA moves them to the host, and GrokAdamW's, because they are on the host from the
    beginning. With Muon, DeepSpeed's ZeRO-1 and ZeRO-2 also keep the momentum of an unfinished step
    (zero/stage_1_and_2.py). With Muon and `freeze`, every weight is assumed to have two states.
    """
    name = spec.text("optimizer")
    if name.startswith("paged_") or name == "grokadamw":
        return 0.0
    if name == "muon" and (spec.zero_stage in (1, 2) or (spec.flag("freeze") and not spec.lora)):
        return 2 * own
    return state_bytes(spec, facts, trained, own) / max(1.0, trained)


def adapters_of(spec: Spec, element: float) -> Adapters:
    """The adapters of a run, whose parameters have `element` bytes each."""
    facts = spec.model.facts
    assert facts is not None  # the caller has checked that the model's sizes are known
    rank, kind = spec.get("lora.rank"), "dora" if spec.flag("lora.dora") else "lora" if spec.low_rank else spec.adapter
    within = str(spec.get("lora.within") or "")
    linear, merged = adapter_layers(spec.stack, facts, spec.get("lora.targets"), spec.names("lora.parameters"), within)
    sites = {one.site for one in linear}
    standing = "all" if not sites <= set(ATTENTION) else "qv" if sites <= {"q", "v", "qkv"} else "qkvo"
    blocks, shared = 0.0, 0
    if kind == "oft":
        each, blocks = rotations(linear, rank, spec.get("lora.block_size") or 0)
        params = round(facts.layers * each)
    elif not spec.low_rank:
        params = round(facts.layers * layer_parameters(kind, rank or 0, linear))
        shared = shared_parameters(rank or 0, linear) if kind == "vera" else 0
    else:
        params = lora_parameters(facts, rank or 0, linear, spec.flag("lora.dora"))
    saved, table = spec.names("lora.modules_to_save"), facts.vocab * facts.hidden
    params += tables(saved) * table + _weights_within(spec, facts, saved)
    return Adapters(
        standing, rank or 0, params, 4 if element == 4 else 2, linear, spec.get("lora.dropout") or 0.0, merged,
        kind, blocks, spec.bits or 0, spec.flag("lora.double_quant"), shared,
        table if {*HEADS} & {name.rpartition(".")[2] for name in saved} else 0,
    )  # fmt: skip


def _weights_within(spec: Spec, facts: ModelFacts, modules: tuple[str, ...]) -> int:
    """The number of weights of the linear layers in these modules, such as `mlp` or `layers.20.self_attn`. 0 for a
    mixture of experts and for an unknown family. Norms and biases count as 0.
    """
    if not modules or facts.experts:
        return 0
    known, count = paths(possible(spec.stack.name, spec.model.model_type, spec.model.config), LORA), 0.0
    for one in linear_layers(facts):
        inside = [path.split(".") for path in known if path.endswith(f".{one.name}")]
        parts = [".".join(words[:end]) for words in inside for end in range(1, len(words) + 1)]
        found = [numbered(part, name) for part in parts for name in modules]
        trained = selected(facts, one, [f"{path}.{one.name}" for path in found if path])
        count += trained.count * one.inputs * one.outputs
    return round(facts.layers * count)


def _offload(spec: Spec, stage: int) -> int:
    """The level of offloading to host memory that lower/deepspeed.py configures: 0 nothing, 1 the optimizer's states, 2
    also the weights, which are sharded.
    """
    where = {"optimizer": 1, "cpu": 2}.get(str(spec.get("strategy.offload")), 0)
    return min(where, 2 if stage == 3 else 1)


def _is_most(spec: Spec) -> bool:
    """Whether the plan is only an upper bound, because a batch may need less memory. True for VeRA, LoHa and MiSS, for
    adapters in some of the layers (the plan counts the activations of all), for fp8, for offloaded activations, for
    padding-free batches (whose rows may be short), and for some arguments of `extra`.
    """
    if spec.text("precision") == "fp8":
        # In fp8, layers save the same inputs as in bf16, but no bf16 copies of float32 weights (measured on a CPU). The
        # plan nevertheless counts these copies.
        return True
    named = (str(spec.get("lora.within") or ""), *spec.names("lora.targets"), *spec.names("lora.parameters"))
    if any(map(any, map(numbers, named))):
        return True
    if spec.adapter in ("vera", "loha", "miss"):
        # VeRA, LoHa and MiSS are planned as if they were LoRA, but they save fewer activations
        return True
    if spec.flag("memory.offload_activations") or (spec.flag("batch.padding_free") and not spec.flag("batch.packing")):
        return True
    extra = spec.extra
    return any(map(extra.get, ("accelerate", "deepspeed"))) or any(map(extra.get("trl", {}).get, UNCOUNTED))


def row_tokens(spec: Spec) -> int:
    """The largest number of tokens in one sequence: `seq` or, if the method generates, the largest prompt plus the
    largest completion.
    """
    if not spec.method.generates:
        return int(spec.get("batch.seq") or 1024)
    prompt = spec.get("method.max_prompt")
    return (512 if prompt is None else int(prompt)) + int(spec.get("method.max_completion") or 256)


def speed_of(spec: Spec, load: Load, tokens: int | None = None, row: int | None = None) -> Speed | None:
    """The speed of one GPU in tokens per second. The tokens of both sequences of a preference pair count. None if the
    speed is unknown.

    `tokens` are the tokens of an optimizer step, and `row` the average tokens of a row before packing. By default,
    every row has the maximum length.
    """
    from xpc.compiler.plan.flops import peak  # imported here, because few specs need a speed
    from xpc.compiler.plan.time import Work, speed

    gpu, facts = spec.hardware.gpu, load.facts
    assert gpu is not None  # `load_of` makes a `Load` only for a spec with a GPU
    if unmeasured(spec):
        return None
    precision = spec.text("precision")
    sequences = spec.integer("batch.gbs") * spec.method.sequences
    length = row_tokens(spec) if tokens is None else max(1, tokens // sequences)
    # flash attention keeps the rows of a packed sequence apart, so the cost of attention depends on the length of a row
    attended = (
        min(length, row) if row is not None and spec.flag("batch.packing") and load.attention == "flash" else length
    )
    done = Work(
        params=facts.active_params or facts.params, layers=facts.layers,
        hidden=(facts.heads * facts.head_dim + facts.values) // 2,
        length=attended, tokens=load.micro * length if load.micro > 1 else load.tokens,
        checkpointing=load.checkpointing, trained=load.trained_share, peak=peak(gpu, precision),
        shared=spec.context_parallel > 1, loops=facts.experts if load.looped else 0,
        through=load.through, hooked=len(linear_layers(facts)) + 2 if spec.zero_stage == 3 else 0,  # 2 norms
        compared=_compared(spec, facts),
        link=gpu.link_gbs * 1e9, network=gpu.network_gbs * 1e9, machines=-(-load.shard // spec.hardware.processes),
        bandwidth=gpu.bandwidth_gbs * 1e9, **moved(load, spec.integer("batch.accum")),
    )  # fmt: skip
    kind = "full" if load.adapters is None else "qlora" if spec.bits else "lora"
    kinds = ["deepspeed"] * (load.engine == "deepspeed") + ["quantized"] * bool(spec.bits)
    kinds += ["experts"] * bool(facts.experts)
    if row is not None and row < row_tokens(spec) and not spec.flag("batch.packing"):
        kinds.append("lengths")  # In each step, all GPUs wait for the GPU with the longest rows.
    # PEFT may convert norms or embeddings of a quantized base to float32. Such a conversion costs more time than fused
    # kernels save.
    casts = load.widened or (load.norms_widened and load.amp)
    kind += " casts" if casts else " fused" if spec.flag("memory.liger") else ""
    return speed(done, gpu.capability[0], precision, kind, kinds)


def _compared(spec: Spec, facts: ModelFacts) -> float:
    """The work of frozen models for a row, divided by a forward pass of the trained model: a forward pass of the
    reference (with `precompute` only once, before the first epoch) and of the teacher.
    """
    epochs = 1.0 if spec.get("train.steps") is not None else max(1.0, spec.real("train.epochs"))
    reference = 1 / epochs if spec.get("method.precompute") else float(spec.method.references(spec.get))
    teacher = None if spec.teacher is None else spec.teacher.facts
    return reference + (0.0 if teacher is None else (teacher.active_params or teacher.params) / facts.params)


def unmeasured(spec: Spec) -> str:
    """The reason why the speed of a run is unknown; "" if it may be known."""
    if spec.hardware.gpu is None:
        return "xpc does not predict the speed of a CPU"
    if spec.method.generates:
        return "the time to generate completions was not measured"
    if spec.text("precision") == "fp8":
        return "the speed of fp8 was not measured"
    if spec.text("strategy.offload") != "none" or spec.flag("memory.offload_activations"):
        return "the time of copies to host memory was not measured"
    return ""


def moved(load: Load, accumulation: int) -> dict[str, float]:
    """Return two numbers of bytes for one process and one micro-batch, by name. `sent` is what the process sends to
    other processes. `touched` is what the process reads and writes of weights and gradients.
    """
    from xpc.compiler.plan.time import sent, touched

    adapters, element = load.adapters, float(load.element if load.stage else load.weight)
    own = 0.0 if adapters is None else adapters.params * adapters.element
    base = load.facts.params * (element if adapters is None else min(float(load.element), load.weight))
    gradients = load.trained * element + own
    gathered = base + own if load.stage == 3 or adapters is None else own
    return {
        "sent": sent(load.stage, load.shard, gathered, gradients, max(1, accumulation)),
        "touched": touched(base + own, gradients, load.checkpointing),
    }


def _batch(spec: Spec) -> tuple[int, int]:
    """The number of sequences in a micro-batch, and the tokens of one sequence on this process."""
    return spec.integer("batch.micro") * spec.method.sequences, -(-row_tokens(spec) // spec.context_parallel)


def _evaluated(spec: Spec) -> float:
    """The number of tokens in an evaluation's micro-batch, divided by the number in a training micro-batch. With
    context parallelism, this ratio is not 1, because DeepSpeed splits sequences between processes only in training
    (accelerate's `disable_in_eval`).
    """
    whole = spec.context_parallel if spec.ulysses else 1
    return whole * (spec.get("eval.micro") or 0) / spec.integer("batch.micro") if spec.evaluates else 0.0


def _attention(spec: Spec, micro: int, flattened: bool) -> str:
    """The name that coefficients.json has for the kind of attention in the layers. If the batch is padded, torch's
    kernel gets a mask; this is a separate kind of attention.
    """
    named = str(spec.get("model.attn"))
    if named == "eager":
        return "eager"
    if named != "sdpa":
        return "flash"
    return "mask" if flattened or micro > 1 else "sdpa"


def _loss(spec: Spec) -> str:
    """The key of `heads.HEADS` for the code that computes logits and loss: TRL's head (in chunks), Liger's fused loss,
    or the model itself.

    Methods that compare log-probabilities compute these row by row from the logits, without an fp32 copy of the logits
    (`selective_log_softmax`, trl/trainer/utils.py; all stacks). Liger's kernels replace a model's own loss only if the
    model gets labels, as in plain training. For the other methods, Liger has separate losses.
    """
    facts, method, kind = spec.stack.facts, spec.method, spec.model.model_type or ""
    if method.scores:
        return "score"
    if spec.extra_value("trl", "use_liger_loss") is True:
        return "fused"
    if method.head in ("fused", "weight") and not facts.liger_fused_loss and kind not in facts.fused_head_fails:
        return "trl_fused"
    if spec.teacher is not None:
        return "divergence" if spec.real("method.beta") in (0, 1) else "mixture"
    if method.generates or method.references is not no_reference or method.head == "model":
        return "half"
    fuses = facts.liger_fused_loss and spec.flag("memory.liger") and kind in facts.liger_models
    return "fused" if fuses else "kept"


def _writes(spec: Spec) -> bool:
    """Whether the training process generates completions itself, with a key-value cache."""
    return spec.online and not spec.flag("method.vllm")


def _vllm(spec: Spec, capacity: float) -> float:
    """The bytes that vLLM takes in the training process. With `sleep`, it has them only while it generates."""
    if not (spec.online and spec.flag("method.vllm") and spec.get("method.vllm.mode") == "colocate"):
        return 0.0
    share = spec.get("method.vllm.gpu_memory")
    return (share.value if isinstance(share, Amount) else float(share or 0.3)) * capacity
