"""The facts of a stack as one typed record, so that a misspelt fact is a type error.

The values are under [facts] in the stack's policy.toml, each with its source; tests/stacks/test_stack_facts.py compares
names and types of every stack with this class. No code compares a stack's name: code that behaves differently on two
stacks reads a fact.
"""

from __future__ import annotations

from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, NoReturn

Names = tuple[str, ...]


class Facts:
    """The facts of one stack. This is a plain class, because attrs would need a millisecond at every start."""

    # Versions and installation
    kernels: str
    """The version of the `kernels` package that loads flash kernels from the hub; "" if transformers needs none."""
    flash_kernels: Mapping[str, str]
    """The hub repository (and branch) that replaces flash-attn, by attention. Kernel repositories of the hub have
    versions, as branches; a repository without a branch is an ordinary model repository.
    """
    vllm_capability: tuple[int, int]
    """The lowest compute capability that this vLLM supports."""
    vllm_health: str
    """The path of the vLLM server's health check."""
    vllm_program: Literal["trl", "vllm"]
    """The program that starts the vLLM server."""
    reads_newer_files: bool
    """Whether transformers reads the files of a tokenizer and a configuration that transformers 5 has saved."""
    volta_wheels: str
    """The CUDA version of torch's wheels that still support V100."""

    # Model families (by `model_type`)
    families_convolving: Names
    """Families that isolate packed documents only with the causal-conv1d package, and are refused without the
    package.
    """
    families_stateful: Names
    """Families whose recurrent state leaks from one packed document into the next."""
    families_unaware: Names
    """Families whose attention mask ignores position ids."""
    family_lacks: Mapping[str, Names]
    """Attention implementations that fail although the family's class declares them."""
    flash_mixes: Names
    """Families whose flash attention ignores position ids, so that packed documents attend to each other."""
    decays_norms: Names
    """Families with norms to which the trainer applies weight decay, because it recognizes norms by some classes and
    names only.
    """
    mask_mixes: Names
    """Families whose attention mask ignores position ids, although other families' masks read them."""
    fused_head_fails: Names
    """Families that the trainer's own fused head cannot train."""
    image_families: Names
    """Families that the stack's trainer is known to train on rows with images."""
    renames_saved: Names
    """Families whose weights transformers saves under other names than the model has, or in other pieces (experts that
    the model stacks are saved one by one), so that a checkpoint is not simply a state dict of the model.
    """
    liger_models: Names
    """Families in liger_kernel's MODEL_TYPE_TO_APPLY_LIGER_FN. Liger does nothing for other families."""
    no_checkpointing: Names
    """Families whose class has `supports_gradient_checkpointing = False`, so that train() raises ValueError."""
    scaled_families: Names
    """Families whose code reads each scaling of rotary positions (`rope`), as tested on tiny models."""
    experts_required: Names
    """Families whose layers cannot be computed if config.json states no experts (`num_local_experts` of 0)."""
    router_loss_fails: Names
    """Families whose balancing loss the fused head cannot compute."""
    router_loss_fails_if_stated: Names
    """Families with a balancing loss only if its coefficient is stated; the fused head cannot compute that loss."""
    expert_blocks: Mapping[str, str]
    """The class of the expert layer, in families that call only the experts that get tokens. Because processes then
    call different experts, ZeRO-3 must gather the layer as one module.
    """
    output_heads: Mapping[str, str]
    """Families whose output head is not called `lm_head`."""
    experts_stacked: bool
    """Whether all experts of a layer are one stacked parameter, which PEFT can adapt by the layers' names."""
    sharded_parameters: bool
    """Whether PEFT can adapt a single parameter (`lora.parameters`) that ZeRO-3 has sharded."""
    tied_by_config: bool
    """Whether saving a merged model ties the weights that the configuration ties, even if training made them
    different.
    """

    # Attention, packing, kernels
    attentions: Names
    """Attention implementations in transformers' ALL_ATTENTION_FUNCTIONS."""
    bfd_forces_padding_free: bool
    """Whether packed rows are always flattened into one row with position ids."""
    isolate_attention: Names
    """The implementations that isolate flattened documents."""
    isolate_mask: bool
    """Whether attention masks read position ids, so that any attention isolates packed documents."""
    padding_free_needs_no_max_length: bool
    """Whether `padding_free` without packing needs `max_length = null`; otherwise TRL raises ValueError."""
    dpo_padding_free: bool
    """Whether dpo can flatten rows (`padding_free`); otherwise it warns and pads."""
    liger: Literal["argument", "runtime"]
    """What applies Liger's kernels: transformers by `use_liger_kernel`, or the runtime."""
    liger_fused_loss: bool
    """Whether the trainer uses Liger's fused loss; otherwise it uses TRL's own fused head."""
    liger_scores: bool
    """Whether Liger's kernels can replace the layers of a reward model."""
    compile_backends: Names
    """The values of accelerate's DynamoBackend, without "no"."""
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
    """Whether accelerate's configuration has a block `parallelism_config`."""
    hsdp: Literal["fsdp1", "parallelism_config"]
    """How hybrid sharding is configured: with FSDP1's HYBRID_SHARD, or in the block `parallelism_config`."""
    secondary_shards: bool
    """Whether ZeRO-3 fills its second copy of the weights before it reads that copy."""
    zero2_accumulates: bool
    """Whether DeepSpeed's ZeRO-2 sums the gradients of an accumulation instead of keeping only the last ones."""
    zero3_reduces_early: bool
    """Whether ZeRO-3 waits for the default stream before it reduces a gradient, not for the stream that computes it."""
    zero_counts_micro_batches: bool
    """Whether DeepSpeed counts micro-batches, so that an incomplete accumulation at an epoch's end makes no step."""
    fp16_masters_under: tuple[int, ...]
    """The ZeRO stages with fp16 master weights in DeepSpeed."""
    idle_precision_read: bool
    """Whether DeepSpeed reads the keys of its fp16 block even if the run uses another precision."""
    kto_precomputes_in_autocast: bool
    """Whether kto's precomputed reference is computed in the run's precision."""
    zero3_evaluates_twice: bool
    """Whether an evaluation under ZeRO-3 may run the model twice over its completions."""
    zero3_draws_scores: bool
    """Whether a weight that the checkpoint lacks (a new score head) is initialised under ZeRO-3."""
    wrapped_optimizer_has_defaults: bool
    """Whether DeepSpeed's wrapper of a torch optimizer still has its `defaults`."""

    # Trainers
    assistant_only_loss: bool
    eos_token: bool
    reads_labels: bool
    """Whether the trainer reads the labels of tokenized rows in every run, also with packing and with Liger."""
    completion_only_conflicts: tuple[Literal["liger", "packing", "padding_free"], ...]
    """The settings with which the trainer silently drops the mask of prompts."""
    end_token_of_any_column: bool
    """Whether sft adds the end token to text columns of any name, not only to `text`."""
    evaluation_metrics: Mapping[str, Names]
    """A method's evaluation metrics other than loss, speed and its reward functions. Without an entry, they are not
    known.
    """
    fused_head: bool
    """Whether the loss multiplies by the weight of `lm_head` directly and so ignores an adapter on `lm_head`."""
    keeps_columns: Names
    """Methods whose trainer sets remove_unused_columns to false, and warns if it was true."""
    label_smoothing: Literal["extra_forward", "not_divided"]
    """The cost of label smoothing in sft: a second forward pass, or a loss that is not divided by the accumulation."""
    ld_alpha_counts: Literal["answer", "row"]
    """The place from which DPOConfig.ld_alpha counts tokens fully: the answer, or the beginning of the row."""
    loss_over_all_tokens: bool
    """Whether the summed loss is divided by all trained tokens of a batch, or only by those that are predicted."""
    losses_not_divided: Names
    """Methods whose loss transformers does not divide by the accumulation, although the trainer does not divide it
    either.
    """
    dapo_counts_a_round: bool
    """Whether grpo's loss `dapo` divides by the tokens of a generation round instead of those of a step."""
    continuous_batching: str
    """The argument of grpo and rloo for transformers' continuous batching; empty if there is none."""
    continuous_batching_anywhere: bool
    """Whether continuous batching also works under DDP, under DeepSpeed and on a CPU."""
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
    """Whether exo_pair takes log(0) if `label_smoothing` is 0; otherwise the trainer uses 0.001 instead."""
    traced_evaluation: bool
    """Whether `jit_mode_eval` traces the model; otherwise tracing fails with a warning, and the plain model is
    evaluated.
    """
    precompute_of_sets: bool
    """Whether the reference can be precomputed for several evaluation sets."""
    precompute_under_zero3: bool
    reference_given: Names
    """Methods that copy the policy as their reference, which ZeRO-3 refuses, so the runtime gives them a reference."""
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
    zero_muon: bool
    """Whether DeepSpeed has the Muon that a bundle uses under ZeRO, for every stage."""
    torch_optimizers_read_words: bool
    """Whether `optim_args` reaches sgd, adagrad and rmsprop."""
    apex_always_imported: bool
    """Whether `half_precision_backend` imports apex even in fp32 and under ZeRO."""

    # Adapters
    adapter_references: Names
    """Methods whose trainer compares with a frozen copy of the adapter that training begins with, and not with the
    base."""
    adapters_as_storage: Names
    """Methods whose adapters get the storage dtype of sharded 4-bit weights, which depends on the launch."""
    oft_embeddings: bool
    """Whether OFT can rotate embeddings."""
    fsdp_adapters_lost: tuple[Literal["fsdp1", "fsdp2_full"], ...]
    """The FSDP checkpoints that do not restore a complete adapter: all of FSDP1, or the full ones of FSDP2."""
    quantized_adapters_bf16: Names
    """Methods whose trainer casts trained weights of a quantized base to bfloat16."""
    quantized_widened: Names
    """Methods whose trainer casts the unquantized weights of a quantized base to float32."""
    fp8_bases: bool
    """Whether a model that is stored in fp8 is unpacked on hardware without fp8, and adapters over it are trained."""
    float8_training: bool
    """Whether accelerate's configuration can let torchao multiply in fp8, with padded matrices."""
    mxfp4_dtype: Literal["stated", "bfloat16", "none"]
    """The dtype to which weights in MXFP4 are unpacked: that in which the model is loaded, or always bfloat16; "none"
    if transformers does not know the format."""
    quantized_on_cpu: bool
    """Whether a quantized base loads without a GPU."""
    zero_keeps_buffers: bool
    """Whether DeepSpeed casts only parameters to the precision, and leaves buffers in their type."""
    zero3_adapters_as_base: bool
    """Whether adapters under ZeRO-3 have the dtype of their base."""
    zero3_frozen_reentrant: bool
    """Whether partly frozen layers need reentrant checkpointing under ZeRO-3."""
    zero3_adapters_reentrant: bool
    """Whether adapters under ZeRO-3 always use reentrant checkpointing."""
    zero3_gathers_early: bool
    """Whether DeepSpeed gathers several parameters at once and waits only for the last one."""
    zero3_hooks_shared: bool
    """Whether DeepSpeed mistakes the hooks of a module for those of PEFT's wrapper around it."""
    epoch_forgotten: bool
    """Whether accelerate's loader shuffles the rest of a resumed epoch as in the first epoch."""
    colocated_vllm_quantizes: bool
    """Whether a colocated vLLM quantizes its model like the trained model."""

    # Generation, and importing configurations
    distill_adapters_under_zero3: bool
    """Whether a student's adapters can be trained under ZeRO-3 after the student has generated."""
    recomputed_generation: Names
    """Families that get no key-value cache when a trainer generates with checkpointing on, so that each token of a
    completion sees only itself.
    """
    never_packed: Names
    """Families whose layers are not plain `nn.Linear`, so that transformers quantizes nothing in them."""
    generation_ends_reentrant: bool
    """Whether checkpointing is always reentrant after a trainer has generated."""
    zero3_cannot_draw: Names
    """Families that cannot be loaded under ZeRO-3, because transformers treats their embedding as a missing weight."""
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
