"""The facts of a stack as one typed record, so that a misspelt fact is a type error.

The values are under [facts] in the stack's policy.toml, each with its source; tests/stacks/test_stack_facts.py compares
names and types of every stack with this class. No code asks for a stack by its name: code that behaves differently on
two stacks reads a fact.
"""

from __future__ import annotations

from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, NoReturn

Names = tuple[str, ...]


class Facts:
    """The facts of one stack. A plain class: attrs would take a millisecond of every start to define it."""

    # Versions and installing
    kernels: str
    """The version of the `kernels` package with which transformers loads flash kernels from the hub; else empty."""
    flash_kernels: Mapping[str, str]
    """The hub repository that replaces flash-attn, by attention, with its branch. A repository with a branch is one of
    the hub's kernel repositories, which have versions; one without is an ordinary model repository."""
    vllm_capability: tuple[int, int]
    """The lowest compute capability that this vLLM supports."""
    vllm_health: str
    """The path of the server's health check."""
    vllm_program: Literal["trl", "vllm"]
    """The program of the server."""
    volta_wheels: str
    """The CUDA version of torch's wheels that still support V100."""

    # Model families (by `model_type`)
    families_convolving: Names
    """Families that isolate packed documents with the causal-conv1d package, and are refused without it."""
    families_stateful: Names
    """Families whose recurrent state leaks from one packed document into the next."""
    families_unaware: Names
    """Families whose mask ignores position ids."""
    family_lacks: Mapping[str, Names]
    """Attention implementations that fail although the family's class declares them."""
    flash_mixes: Names
    """Families whose flash attention ignores position ids, so that packed documents attend to each other."""
    mask_mixes: Names
    """Families whose mask ignores position ids, unlike that of the others."""
    fused_head_fails: Names
    """Families that the trainer's own fused head cannot train."""
    liger_models: Names
    """Families in liger_kernel's MODEL_TYPE_TO_APPLY_LIGER_FN: it does nothing for others."""
    no_checkpointing: Names
    """Families whose class has `supports_gradient_checkpointing = False`: a ValueError inside train()."""
    router_loss_fails: Names
    """Families whose balancing loss the fused head cannot compute."""
    expert_blocks: Mapping[str, str]
    """The layer's class in families with separate experts that call only experts with tokens. ZeRO-3 must gather such a
    layer as one module, because processes call different experts."""
    output_heads: Mapping[str, str]
    """Families whose output head is not called `lm_head`."""
    experts_stacked: bool
    """Whether the experts of a layer are one parameter, which PEFT can adapt by the layers' names."""
    tied_by_config: bool
    """Whether saving a merged model ties weights again that the configuration ties, although they differ now."""

    # Attention, packing, kernels
    attentions: Names
    """Attention implementations in transformers' ALL_ATTENTION_FUNCTIONS."""
    bfd_forces_padding_free: bool
    """Whether packed rows are always flattened."""
    isolate_attention: Names
    """The implementations that isolate flattened documents."""
    isolate_mask: bool
    """Whether masks read position ids, so that any attention isolates packed documents."""
    padding_free_needs_no_max_length: bool
    """Without packing, TRL raises unless max_length is null."""
    dpo_padding_free: bool
    """Whether dpo flattens rows; else it warns and pads."""
    liger: Literal["argument", "runtime"]
    """What applies Liger's kernels: transformers by `use_liger_kernel`, or the runtime."""
    liger_fused_loss: bool
    """Whether the trainer uses Liger's fused loss; else it uses TRL's own fused head."""
    liger_scores: bool
    """Whether a reward model can have the layers' kernels."""
    compile_backends: Names
    """accelerate's DynamoBackend, without "no"."""
    compile_layers: tuple[Literal["plain", "zero", "fsdp"], ...]
    """The strategies that accelerate compiles layer by layer (TorchDynamoPlugin.use_regional_compilation): one process
    or DDP, ZeRO, FSDP."""
    selective_checkpointing: bool
    """Whether SFTTrainer's recomputation can keep the output of attention."""

    # Launching
    strategies: Names
    """The strategies of the language that can be launched."""
    fsdp2: bool
    context_parallel: bool
    """Whether ranks of FSDP2 can share a sequence."""
    sequence_parallel: Names
    """Families that can share a sequence between DeepSpeed processes (Ulysses, accelerate's `sp_backend`)."""
    parallelism_config: bool
    """Whether accelerate's configuration has a block of that name."""
    hsdp: Literal["fsdp1", "parallelism_config"]
    """Where a hybrid mesh is configured: FSDP1's HYBRID_SHARD, or a block of its own."""
    secondary_shards: bool
    """Whether ZeRO-3's second copy of the weights is written before it is read."""
    zero2_accumulates: bool
    """Whether DeepSpeed's ZeRO-2 sums the gradients of an accumulation instead of keeping only the last ones."""
    zero_counts_micro_batches: bool
    """Whether DeepSpeed counts micro-batches, so that an incomplete accumulation at an epoch's end is no step."""
    fp16_masters_under: tuple[int, ...]
    """The ZeRO stages with fp16 master weights in DeepSpeed."""
    idle_precision_read: bool
    """Whether DeepSpeed reads the keys of its fp16 block in another precision, too."""
    kto_precomputes_in_autocast: bool
    """Whether kto's precomputed reference is computed in the run's precision."""
    zero3_evaluates_twice: bool
    """Whether an evaluation under ZeRO-3 may run the model twice on its completions."""
    zero3_draws_scores: bool
    """Whether a weight that is missing in the checkpoint is initialised under ZeRO-3."""
    wrapped_optimizer_has_defaults: bool
    """Whether DeepSpeed's wrapper of a torch optimizer still has its `defaults`."""

    # Trainers
    assistant_only_loss: bool
    eos_token: bool
    completion_only_conflicts: tuple[Literal["liger", "packing", "padding_free"], ...]
    """The settings that silently lose the mask of prompts."""
    end_token_of_any_column: bool
    """Whether sft adds the end token to a text column of any name."""
    evaluation_metrics: Mapping[str, Names]
    """The metrics of a method's evaluation other than loss, speed and its reward functions. Methods without an entry:
    not known."""
    fused_head: bool
    """Whether the loss multiplies by the weight of `lm_head` directly, ignoring an adapter on it."""
    keeps_columns: Names
    """Methods whose trainer turns remove_unused_columns off, and warns unless it is off already."""
    label_smoothing: Literal["extra_forward", "not_divided"]
    """The price of sft's smoothed loss: a second forward pass, or the division by the accumulation."""
    ld_alpha_counts: Literal["answer", "row"]
    """Where the tokens begin that DPOConfig.ld_alpha counts fully."""
    loss_over_all_tokens: bool
    """Whether the summed loss is divided by all trained tokens of a batch, or only by those with a predecessor."""
    losses_not_divided: Names
    """Methods whose loss transformers wrongly takes for already divided by the accumulation."""
    dapo_counts_a_round: bool
    """Whether grpo's dapo divides by the tokens of a round of generation instead of those of a step."""
    continuous_batching: str
    """The argument of grpo and rloo for transformers' continuous batching; empty if there is none."""
    continuous_batching_anywhere: bool
    """Whether continuous batching works under DDP, under DeepSpeed and on a CPU, too."""
    ipo_averages_all: bool
    """Whether ipo in a list of dpo's losses makes the other losses use means instead of sums."""
    distill_gathers: bool
    """Whether distillation gathers the student's weights under FSDP to generate."""
    distill_liger: Literal["layers", "loss"]
    """What Liger replaces in distillation: the student's layers, or the loss itself."""
    distill_rounds: bool
    """Whether distillation drops prompts that do not fill an optimizer step."""
    dpo_loss_list: bool
    """Whether dpo's loss is a list, with weights."""
    dpo_losses_smoothed: Names
    """dpo's losses that read `label_smoothing`."""
    dpo_losses_divergent: Names
    """dpo's losses that depend on an f-divergence."""
    exo_pair_needs_smoothing: bool
    """Whether exo_pair takes the logarithm of a smoothing of 0; else the trainer uses 0.001 instead."""
    traced_evaluation: bool
    """Whether `jit_mode_eval` traces the model; else tracing fails with a warning, and the plain model is evaluated."""
    precompute_of_sets: bool
    """Whether the reference can be precomputed for several evaluation sets."""
    precompute_under_zero3: bool
    reference_given: Names
    """Methods that copy the policy for their reference, which ZeRO-3 refuses: the runtime gives them one."""
    reward_async: bool
    """Whether a reward function may be a coroutine."""
    reward_given: Names
    """The keyword arguments of a reward function in addition to the columns."""
    reward_runs_twice: bool
    """Whether the reward trainer runs the model forward once for each answer before backward."""
    save_multiples_rounded: bool
    """Whether intervals of saving and evaluation given as shares are compared as integers, not in floating point."""
    trackio: bool
    """Whether transformers has a callback for trackio."""
    torch_optimizers_read_words: bool
    """Whether `optim_args` reaches sgd, adagrad and rmsprop."""
    apex_always_imported: bool
    """Whether `half_precision_backend` imports apex in fp32 and under ZeRO, too."""

    # Adapters
    adapters_as_storage: Names
    """Methods whose adapters get the storage dtype of sharded 4-bit weights, which is decided at the launch."""
    oft_embeddings: bool
    """Whether OFT rotates embeddings."""
    quantized_adapters_bf16: Names
    """Methods whose trainer casts trained weights of a quantized base to bfloat16."""
    quantized_widened: Names
    """Methods whose trainer casts the unquantized weights of a quantized base to float32."""
    quantized_on_cpu: bool
    """Whether a quantized base loads without a GPU."""
    zero3_adapters_as_base: bool
    """Whether adapters under ZeRO-3 have the dtype of their base."""
    zero3_frozen_reentrant: bool
    """Whether partly frozen layers need reentrant checkpointing under ZeRO-3."""
    zero3_adapters_reentrant: bool
    """Whether adapters under ZeRO-3 always use reentrant checkpointing."""
    zero3_gathers_early: bool
    """Whether DeepSpeed waits only for the last of several parameters gathered at once."""
    zero3_hooks_shared: bool
    """Whether DeepSpeed mistakes the hooks of a module for those of PEFT's wrapper around it."""
    epoch_forgotten: bool
    """Whether accelerate's loader for the rest of an epoch shuffles as in the first epoch."""
    colocated_vllm_quantizes: bool
    """Whether a colocated vLLM quantizes its model like the trained model."""

    # Importing configurations written for it
    distill_adapters_under_zero3: bool
    """Whether a student's adapters can be trained under ZeRO-3 after the student has generated."""
    recomputed_generation: Names
    """Families that get no key-value cache when a trainer generates with checkpointing on: each token of a completion
    sees only itself."""
    never_packed: Names
    """Families whose layers are not plain `nn.Linear`, so that transformers quantizes nothing in them."""
    generation_ends_reentrant: bool
    """Whether checkpointing is always reentrant after a trainer has generated."""
    zero3_cannot_draw: Names
    """Families that cannot be loaded under ZeRO-3: their embedding is taken for a missing weight."""
    reentrant_by_default: bool
    """Whether checkpointing is reentrant by default."""

    def __init__(self, table: Mapping[str, object]) -> None:
        self.__dict__.update({name: _frozen(value) for name, value in table.items()})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"facts are read only: {name}")


def _frozen(value: object) -> object:
    if isinstance(value, list):
        return tuple(value)
    return {name: _frozen(one) for name, one in value.items()} if isinstance(value, dict) else value
