"""The facts of a stack: the abilities and the bugs of its library versions. Each fact is a typed attribute of a class,
so mypy finds a misspelt fact.

The values are under [facts] in the stack's policy.toml, each with its source. tests/stacks/test_stack_facts.py checks
that every stack has exactly the facts of this class, with the right types. Code that depends on the version of a
library must read a fact, and must not compare the name of a stack.
"""

from __future__ import annotations

from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, NoReturn

Names = tuple[str, ...]


class Facts:
    """The facts of one stack. This is a plain class, because a class of attrs would take a millisecond more at every
    start.
    """

    # Versions and installation
    kernels: str
    """The version of the package `kernels`, with which transformers loads flash kernels from the hub. Empty if
    transformers does not use the package.
    """
    flash_kernels: Mapping[str, str]
    """Maps each kind of flash attention to the hub repository whose kernels replace the package flash-attn. If the
    repository has a branch for each version of the kernels, the branch follows the name.
    """
    vllm_capability: tuple[int, int]
    """The lowest compute capability that the stack's vLLM supports."""
    vllm_health: str
    """The path in the URL of the vLLM server's health check."""
    vllm_program: Literal["trl", "vllm"]
    """The program whose command starts the vLLM server."""
    reads_newer_files: bool
    """Whether transformers can load tokenizers and configurations that transformers 5 has saved."""
    volta_wheels: str
    """The CUDA version of the torch wheels that have kernels for V100. Empty if the default wheels have them."""

    # Model families (by `model_type`)
    families_convolving: Names
    """Families that keep packed documents apart only if the package causal-conv1d is installed. Without the package,
    they raise an error.
    """
    families_stateful: Names
    """Families that carry their recurrent state from one packed document into the next."""
    families_unaware: Names
    """Families whose attention mask ignores position ids, so that packed documents attend to each other."""
    family_lacks: Mapping[str, Names]
    """Maps a family to the attention implementations that fail, although the family's class declares that it supports
    them.
    """
    flash_mixes: Names
    """Families whose flash attention ignores position ids, so that packed documents attend to each other."""
    decays_norms: Names
    """Families in which the trainer applies weight decay to norms, because it recognizes these norms neither by their
    class nor by their name.
    """
    mask_mixes: Names
    """Families whose attention mask ignores position ids on this stack. `isolate_mask` is nevertheless true, because
    the masks of other families read position ids.
    """
    fused_head_fails: Names
    """Families whose models fail in the trainer's loss if the loss uses the fused head (`fused_head`)."""
    image_families: Names
    """Families that the stack's trainer is known to train on rows with images."""
    renames_saved: Names
    """Families that save weights in another form than the model's state dict: under other names, or with stacked
    experts saved one by one.
    """
    liger_models: Names
    """Families in liger_kernel's MODEL_TYPE_TO_APPLY_LIGER_FN. In other families, Liger changes nothing."""
    no_checkpointing: Names
    """Families whose class has `supports_gradient_checkpointing = False`, so that train() raises ValueError."""
    scaled_families: Names
    """Families whose code supports all kinds of scaling of rotary positions (`rope`), as tests on tiny models showed.
    """
    experts_required: Names
    """Families whose layers fail in the forward pass if config.json says that there are no experts (`num_local_experts`
    is 0).
    """
    rotations_fail: Names
    """Registered families whose layer `kv_b_proj` OFT cannot rotate, because it gets inputs of four dimensions."""
    untrained_indexers: Names
    """Families with an indexer that selects the tokens which attention reads. The indexer gets no gradient."""
    router_loss_fails: Names
    """Families for which the fused head cannot compute the balancing loss of experts."""
    router_loss_fails_if_stated: Names
    """Families that have a balancing loss only if the spec states its coefficient. The fused head cannot compute the
    balancing loss of these families.
    """
    expert_blocks: Mapping[str, str]
    """For families whose layers call only the experts that get tokens: maps the family to the class of the layer with
    the experts. ZeRO-3 must gather such a layer as one module, because the processes may call different experts.
    """
    output_heads: Mapping[str, str]
    """Maps each family whose output head is not called `lm_head` to the name of this head."""
    experts_stacked: bool
    """Whether transformers stacks the experts of a layer in one parameter. PEFT then adapts this parameter if `targets`
    names the experts' layers.
    """
    sharded_parameters: bool
    """Whether PEFT can adapt a single parameter (`lora.parameters`) that ZeRO-3 has sharded."""
    tied_by_config: bool
    """Whether transformers saves the embeddings and the head of a merged model as one weight if config.json says that
    they are tied, even if training made them different.
    """

    # Attention, packing, kernels
    attentions: Names
    """Attention implementations in transformers' ALL_ATTENTION_FUNCTIONS."""
    bfd_forces_padding_free: bool
    """Whether the trainer always flattens rows that were packed with the strategy `bfd` into one row with position ids.
    """
    isolate_mask: bool
    """Whether attention masks read position ids, so that every kind of attention keeps packed documents apart."""
    padding_free_needs_no_max_length: bool
    """Whether `padding_free` without packing needs `max_length = null`. If so, TRL raises ValueError for any other
    value.
    """
    dpo_padding_free: bool
    """Whether dpo can flatten rows (`padding_free`). If it cannot, its trainer warns and pads the rows."""
    liger: Literal["argument", "runtime"]
    """What applies Liger's kernels: transformers (through the argument `use_liger_kernel`) or the bundle's runtime."""
    liger_fused_loss: bool
    """Whether `liger` also turns on Liger's fused loss. If not, TRL's own code computes the output head and
    the loss together."""
    liger_scores: bool
    """Whether Liger's kernels for a model's layers work in a reward model."""
    compile_backends: Names
    """The values of accelerate's DynamoBackend, except "no"."""
    compile_layers: tuple[Literal["plain", "zero", "fsdp"], ...]
    """The cases in which accelerate can compile layer by layer (TorchDynamoPlugin.use_regional_compilation): "plain" is
    a single process or DDP, "zero" is ZeRO, "fsdp" is FSDP.
    """
    selective_checkpointing: bool
    """Whether SFTTrainer supports selective checkpointing, which keeps the outputs of attention."""

    # Launching
    strategies: Names
    """The strategies that the stack's accelerate and DeepSpeed support."""
    fsdp2: bool
    fsdp2_head_apart: bool
    """Whether accelerate puts the output head into an FSDP2 unit of its own, apart from the other weights."""
    fsdp_loads_once: bool
    """Whether `fsdp_cpu_ram_efficient_loading` works: only the first process on a machine loads the weights."""
    context_parallel: bool
    """Whether FSDP2 supports context parallelism, with which several ranks share one sequence."""
    sequence_parallel: Names
    """Families for which DeepSpeed can split sequences between processes (Ulysses, accelerate's `sp_backend`)."""
    parallelism_config: bool
    """Whether accelerate's configuration has a block `parallelism_config`."""
    hsdp: Literal["fsdp1", "parallelism_config"]
    """How hybrid sharding is configured: with FSDP1's HYBRID_SHARD, or in the block `parallelism_config`."""
    secondary_shards: bool
    """Whether ZeRO-3 fills its secondary copy of the weights (`zero_hpz_partition_size`) before the copy is first read.
    """
    zero2_accumulates: bool
    """Whether DeepSpeed's ZeRO-2 sums the gradients of all micro-batches of a step. If false, it keeps only the
    gradients of the last micro-batch.
    """
    zero3_reduces_early: bool
    """Whether ZeRO-3 may reduce a gradient before the gradient is complete: ZeRO-3 waits for the default CUDA stream,
    but not for the stream that computes the gradient.
    """
    zero_counts_micro_batches: bool
    """Whether DeepSpeed counts micro-batches itself. If true, the last micro-batches of an epoch make no step if they
    are fewer than the accumulation steps (`accum`).
    """
    fp16_masters_under: tuple[int, ...]
    """The ZeRO stages for which DeepSpeed supports fp16 master weights."""
    idle_precision_read: bool
    """Whether DeepSpeed reads the keys of its fp16 block even in a run of another precision."""
    kto_precomputes_in_autocast: bool
    """Whether kto with `precompute` computes the log-probabilities of its reference under autocast, in the run's
    precision.
    """
    zero3_evaluates_twice: bool
    """Whether methods that score completions twice (rloo, and grpo with several iterations) can be evaluated under
    ZeRO-3. If false, DeepSpeed raises an error.
    """
    zero3_draws_scores: bool
    """Whether weights that the checkpoint lacks, such as a new score head, are initialized under ZeRO-3. If false, they
    contain whatever the memory contained before.
    """
    wrapped_optimizer_has_defaults: bool
    """Whether DeepSpeed's wrapper around a torch optimizer has the attribute `defaults`. The polynomial schedule reads
    this attribute.
    """

    # Trainers
    assistant_only_loss: bool
    marks_templates: bool
    """Whether TRL replaces a known chat template by a version with `{% generation %}` marks, for assistant-only loss.
    """
    eos_token: bool
    reads_labels: bool
    """Whether the trainer reads the labels of tokenized rows in every run, also with packing and with Liger."""
    completion_only_conflicts: tuple[Literal["liger", "packing", "padding_free"], ...]
    """Settings with which the trainer silently ignores the completion mask, so that it also trains on prompts."""
    end_token_of_any_column: bool
    """Whether sft adds the end token to text columns of any name, not only to `text`."""
    evaluation_metrics: Mapping[str, Names]
    """Maps each method to the metrics that an evaluation has in addition to those of loss, speed and reward functions.
    The metrics of a method that is not listed are unknown.
    """
    fused_head: bool
    """Whether the trainer's loss multiplies by the weight of `lm_head` itself, so that an adapter on `lm_head` has no
    effect.
    """
    keeps_columns: Names
    """Methods whose trainer always sets `remove_unused_columns` to false. If the run sets it to true, the trainer
    warns.
    """
    label_smoothing: Literal["extra_forward", "not_divided"]
    """What is wrong with label smoothing in sft. "extra_forward": it needs a second forward pass. "not_divided": the
    loss is not divided by the number of accumulation steps.
    """
    ld_alpha_counts: Literal["answer", "row"]
    """Where DPOConfig.ld_alpha begins to count tokens with full weight: at the first token of the answer, or of the
    complete row.
    """
    loss_over_all_tokens: bool
    """Whether the divisor of the loss also counts the first token of each row, although no token predicts it. The
    divisor is the number of trained tokens in a batch.
    """
    losses_not_divided: Names
    """Methods whose loss neither transformers nor the trainer divides by the number of accumulation steps."""
    dapo_counts_a_round: bool
    """Whether grpo's loss `dapo` is divided by the number of tokens in a round of generation. If false, it is divided
    by the number of tokens in one optimizer step.
    """
    continuous_batching: str
    """The argument with which grpo and rloo turn on transformers' continuous batching. Empty if there is no such
    argument.
    """
    continuous_batching_anywhere: bool
    """Whether transformers' continuous batching of completions also works under DDP, under DeepSpeed and on a CPU."""
    ipo_averages_all: bool
    """Whether `ipo` in a list of dpo's losses changes the other losses of the list: they then wrongly use means over
    tokens instead of sums.
    """
    distill_gathers: bool
    """Whether distillation under FSDP gathers the student's weights before the student generates completions."""
    distill_liger: Literal["layers", "loss"]
    """What `liger` replaces in distillation: only the student's layers, or the loss itself."""
    distill_rounds: bool
    """Whether distillation generates all completions of an optimizer step in one round. Prompts that do not fill a step
    are then dropped.
    """
    dpo_loss_list: bool
    """Whether dpo accepts several losses with weights."""
    dpo_losses_smoothed: Names
    """dpo's losses that read `label_smoothing`."""
    dpo_losses_divergent: Names
    """dpo's losses for which `f_divergence_type` has an effect."""
    exo_pair_needs_smoothing: bool
    """Whether dpo's loss exo_pair computes log(0) if `label_smoothing` is 0. If false, the trainer replaces 0 by 0.001.
    """
    evaluates_by_labels: bool
    """Whether sft evaluates with transformers' own evaluation step, which computes a loss only if a batch has all
    `label_names`.
    """
    evaluates_last: bool
    """Whether a run that evaluates every few steps also evaluates after its last step."""
    traced_evaluation: bool
    """Whether `jit_mode_eval` can trace the model. If not, transformers warns and evaluates the model
    without tracing.
    """
    precompute_under_zero3: bool
    reference_given: Names
    """Methods whose trainer makes its reference model by copying the policy. TRL refuses to do so under ZeRO-3, so the
    bundle's runtime loads the reference model and passes it to the trainer.
    """
    prompts_begin_rows: bool
    """Whether TRL raises ValueError for a row whose rendered conversation does not begin with its rendered prompt. The
    rendered prompt ends with the start of an assistant turn, so TRL refuses an answer that begins with another turn.
    """
    reward_async: bool
    """Whether a reward function may be a coroutine (`async def`)."""
    reward_computes_metrics: bool
    """Whether the reward trainer gives transformers a function `compute_metrics`, which measures a whole evaluation."""
    reward_given: Names
    """Keyword arguments that a reward function gets from the trainer, in addition to the columns of the rows."""
    reward_runs_twice: bool
    """Whether the reward trainer runs two forward passes before the backward pass, one for each answer of a pair."""
    save_multiples_rounded: bool
    """Whether transformers accepts 30 % as a multiple of 10 %, so that a run may save every 30 % and evaluate every 10
    % of its steps. If false, transformers refuses this because of rounding errors.
    """
    trackio: bool
    """Whether transformers has a callback for trackio."""
    zero_muon: bool
    """Whether DeepSpeed's Muon works under every ZeRO stage, so that bundles can use it."""
    torch_optimizers_read_words: bool
    """Whether the optimizers sgd, adagrad and rmsprop get the values of `optim_args`."""
    apex_always_imported: bool
    """Whether the argument `half_precision_backend` makes transformers import apex even in fp32 and under ZeRO."""

    # Adapters
    adapter_references: Names
    """Methods whose reference can be an adapter named "ref", such as a frozen copy of the adapter that is trained
    further. In other methods, the reference is the base model without an adapter.
    """
    adapters_as_storage: Names
    """Methods that give adapters over sharded 4-bit weights the storage dtype of these weights, which depends on how
    the run is launched.
    """
    oft_embeddings: bool
    """Whether OFT can rotate embeddings."""
    fsdp_adapters_lost: tuple[Literal["fsdp1", "fsdp2_full", "mesh"], ...]
    """The kinds of FSDP checkpoints from which a run does not restore the adapter completely: "fsdp1" are all
    checkpoints of FSDP1, "fsdp2_full" the full ones of FSDP2, "mesh" those of FSDP2 with a device mesh.
    """
    quantized_adapters_bf16: Names
    """Methods whose trainer casts adapters over a quantized base to bfloat16."""
    quantized_widened: Names
    """Methods whose trainer casts the unquantized weights of a quantized base, such as norms, to float32."""
    fp8_bases: bool
    """Whether adapters can be trained on a base model in fp8. On hardware without fp8, the weights of the base model
    are unpacked.
    """
    float8_training: bool
    """Whether accelerate's configuration can turn on torchao's matrix products in fp8, with padding for matrices whose
    sizes need it.
    """
    mxfp4_dtype: Literal["stated", "bfloat16", "none"]
    """The dtype to which weights in MXFP4 are unpacked: "stated" is the `dtype` with which the model is loaded,
    "bfloat16" is always bfloat16. "none" means that transformers cannot read the format.
    """
    quantized_on_cpu: bool
    """Whether a quantized base can be loaded without a GPU."""
    zero_keeps_buffers: bool
    """Whether DeepSpeed casts only parameters to the run's precision. If false, it also casts buffers."""
    zero3_adapters_as_base: bool
    """Whether adapters under ZeRO-3 have the dtype of the base model. If false, they are float32."""
    precompute_in_engine: bool
    """Whether DeepSpeed casts adapters to the run's precision if the reference is computed before training."""
    zero3_frozen_reentrant: bool
    """Whether partly frozen layers under ZeRO-3 need reentrant checkpointing. If true, non-reentrant checkpointing of
    such layers raises CheckpointError.
    """
    zero3_adapters_reentrant: bool
    """Whether the trainer always uses reentrant checkpointing for adapters under ZeRO-3."""
    zero3_gathers_early: bool
    """Whether ZeRO-3 may use parameters before they are gathered: it gathers several parameters at once, and waits only
    for the last of them.
    """
    zero3_hooks_shared: bool
    """Whether DeepSpeed's ZeRO-3 adds no hooks to PEFT's wrapper around a module, because it takes the module's hooks
    for hooks of the wrapper.
    """
    epoch_forgotten: bool
    """Whether accelerate's data loader forgets the number of the epoch when a run resumes. If true, the remaining rows
    are shuffled as in the first epoch.
    """
    colocated_vllm_quantizes: bool
    """Whether vLLM in colocate mode quantizes its copy of the model in the same way as the trained model is quantized.
    """

    # Generation of completions; reading of model configurations
    distill_adapters_under_zero3: bool
    """Whether distillation under ZeRO-3 can train the student's adapters, although the student generates completions
    during training.
    """
    recomputed_generation: Names
    """Families whose code drops the KV cache if a trainer generates with checkpointing on. Generation nevertheless
    passes only the newest token, so each token of a completion attends only to itself.
    """
    never_packed: Names
    """Families whose linear layers are not of the class `nn.Linear`, so that transformers does not quantize them."""
    generation_ends_reentrant: bool
    """Whether a trainer that generates completions turns reentrant checkpointing on when generation ends, whatever the
    arguments say.
    """
    zero3_cannot_draw: Names
    """Families that cannot be loaded under ZeRO-3: transformers treats their embedding as a missing weight and
    initializes it.
    """
    reentrant_by_default: bool
    """Whether gradient checkpointing is reentrant if the arguments do not choose the kind."""

    def __init__(self, table: Mapping[str, object]) -> None:
        self.__dict__.update({name: _frozen(value) for name, value in table.items()})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"facts are read only: {name}")


def _frozen(value: object) -> object:
    if isinstance(value, list):
        return tuple(value)
    return {name: _frozen(one) for name, one in value.items()} if isinstance(value, dict) else value
