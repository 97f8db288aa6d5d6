"""What a stack can and cannot do, as one typed record: a fact that is misspelt is a type error.

The values stand under [facts] in the stack's policy.toml, each with its source; tests/stacks/test_stack_facts.py holds
names and types of every stack against this class. Nothing else may ask which stack it has: code that behaves
differently on two stacks reads a fact that says why.
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
    """The `kernels` package with which transformers takes built flash kernels from the hub, by version; else empty."""
    flash_kernels: Mapping[str, str]
    """The repository of the hub that stands in for flash-attn, by attention, with its branch. One with a branch is of
    the hub's own kind for kernels, which a version names; one without is a model repository, as before versions."""
    vllm_capability: tuple[int, int]
    """The least compute capability of a GPU that this vLLM runs on."""
    vllm_health: str
    """Where the server answers once it is ready."""
    vllm_program: Literal["trl", "vllm"]
    """The program that is the server."""
    volta_wheels: str
    """The CUDA of the wheels of torch that still carry code for V100."""

    # Model families (by `model_type`)
    families_convolving: Names
    """Families that keep packed documents apart with the causal-conv1d package, and are refused without it."""
    families_stateful: Names
    """Families whose recurrent state leaks from one packed document into the next."""
    families_unaware: Names
    """Families whose mask ignores position ids."""
    family_lacks: Mapping[str, Names]
    """Attentions that fail although the family's class declares them."""
    flash_mixes: Names
    """Families whose flash attention does not look at position ids: packed documents attend to each other."""
    mask_mixes: Names
    """Families whose class does not read position ids into the mask, where those of the others do."""
    fused_head_fails: Names
    """Families that the trainer's own fused head cannot train."""
    liger_models: Names
    """liger_kernel's MODEL_TYPE_TO_APPLY_LIGER_FN: it does nothing for any other."""
    no_checkpointing: Names
    """Families whose class has `supports_gradient_checkpointing = False`: a ValueError inside train()."""
    router_loss_fails: Names
    """Families whose balancing loss the fused head cannot compute."""
    expert_blocks: Mapping[str, str]
    """The layer's class in families that call, of experts with modules of their own, only those that some token is sent
    to. ZeRO-3 must gather such a layer as one: processes whose tokens go to other experts ask each other for them."""
    output_heads: Mapping[str, str]
    """Families whose output head has another name than `lm_head`."""
    experts_stacked: bool
    """Whether the experts of a layer are one parameter, which PEFT can put adapters on by the layers' names."""
    tied_by_config: bool
    """Whether a merged model is saved as its configuration says, so that weights that have parted are tied again."""

    # Attention, packing, kernels
    attentions: Names
    """Implementations of attention that transformers has under a name of its own (ALL_ATTENTION_FUNCTIONS)."""
    bfd_forces_padding_free: bool
    """Whether packed rows are always flattened."""
    isolate_attention: Names
    """The implementations that keep flattened documents apart."""
    isolate_mask: bool
    """Whether masks read position ids, so that any attention keeps packed documents apart."""
    padding_free_needs_no_max_length: bool
    """Without packing, TRL raises unless max_length is null."""
    dpo_padding_free: bool
    """Whether dpo flattens; else it warns and pads."""
    liger: Literal["argument", "runtime"]
    """Who applies Liger's kernels: transformers by `use_liger_kernel`, or the runtime."""
    liger_fused_loss: bool
    """Whether Liger's fused loss is the trainer's; else TRL's own fused head is."""
    liger_scores: bool
    """Whether a reward model can have the layers' kernels."""
    compile_backends: Names
    """accelerate's DynamoBackend, without "no"."""
    compile_layers: tuple[Literal["plain", "zero", "fsdp"], ...]
    """What accelerate compiles layer by layer (TorchDynamoPlugin.use_regional_compilation): one process or DDP, ZeRO,
    FSDP."""
    selective_checkpointing: bool
    """Whether SFTTrainer's recomputation can keep the output of attention."""

    # Launching
    strategies: Names
    """The strategies of the language that can be launched."""
    fsdp2: bool
    context_parallel: bool
    """Whether ranks of FSDP2 can share a sequence."""
    sequence_parallel: Names
    """Families of which processes of DeepSpeed can share a sequence (Ulysses, accelerate's `sp_backend`)."""
    parallelism_config: bool
    """Whether accelerate's configuration has a block of that name."""
    hsdp: Literal["fsdp1", "parallelism_config"]
    """Where a hybrid mesh is written: FSDP1's HYBRID_SHARD, or a block of its own."""
    secondary_shards: bool
    """Whether ZeRO-3's second copy of the weights is written before it is read."""
    zero2_accumulates: bool
    """Whether DeepSpeed's ZeRO-2 adds up the gradients of an accumulation, and does not keep the last ones alone."""
    zero_counts_micro_batches: bool
    """Whether DeepSpeed itself counts to the accumulation, so that a part of one at the end of an epoch is no step."""
    fp16_masters_under: tuple[int, ...]
    """The ZeRO stages that DeepSpeed has fp16 master weights under."""
    idle_precision_read: bool
    """Whether DeepSpeed reads the keys of its fp16 block where the run is in another precision."""
    kto_precomputes_in_autocast: bool
    """Whether kto's reference is computed in the run's precision when that happens before the first step."""
    zero3_evaluates_twice: bool
    """Whether an evaluation under ZeRO-3 may run the model twice on what it wrote."""
    zero3_draws_scores: bool
    """Whether a weight that the checkpoint has not is drawn under ZeRO-3."""
    wrapped_optimizer_has_defaults: bool
    """Whether DeepSpeed's wrapper of a torch optimizer still tells its `defaults`."""

    # Trainers
    assistant_only_loss: bool
    eos_token: bool
    completion_only_conflicts: tuple[Literal["liger", "packing", "padding_free"], ...]
    """What loses the mask of prompts in silence."""
    end_token_of_any_column: bool
    """Whether sft adds the end token to a text column of any name."""
    evaluation_metrics: Mapping[str, Names]
    """The metrics that an evaluation of a method may return beside loss, speed and those of its reward functions. Of a
    method that is not named they are not known."""
    fused_head: bool
    """Whether the loss multiplies by the weight of `lm_head` itself, past an adapter on it."""
    keeps_columns: Names
    """Methods whose trainer turns remove_unused_columns off, and warns unless it is off already."""
    label_smoothing: Literal["extra_forward", "not_divided"]
    """What sft's smoothed loss costs: a second forward pass, or the division by the accumulation."""
    ld_alpha_counts: Literal["answer", "row"]
    """Where the words that DPOConfig.ld_alpha keeps begin."""
    loss_over_all_tokens: bool
    """Whether the summed loss is divided by all trained tokens of a batch, or by those that a token before predicts."""
    losses_not_divided: Names
    """Methods whose loss transformers takes for one that is divided by the accumulation, which it is not."""
    dapo_counts_a_round: bool
    """Whether grpo's dapo divides by the tokens of a round of generation, and not by those of a step."""
    continuous_batching: str
    """The argument by which grpo and rloo generate with transformers' continuous batching; empty where none does."""
    continuous_batching_anywhere: bool
    """Whether it generates under DDP, under DeepSpeed and on a CPU, too."""
    ipo_averages_all: bool
    """Whether an ipo in a list of dpo's losses makes means of what the others sum."""
    distill_gathers: bool
    """Whether distillation gathers the student's weights, which FSDP spreads, to generate."""
    distill_liger: Literal["layers", "loss"]
    """What Liger changes in distillation: the student's layers, or the loss itself."""
    distill_rounds: bool
    """Whether distillation leaves out prompts that do not fill an optimizer step."""
    dpo_loss_list: bool
    """Whether dpo's loss is a list, with weights."""
    dpo_losses_smoothed: Names
    """dpo's losses that read `label_smoothing`."""
    dpo_losses_divergent: Names
    """dpo's losses that are made of the difference that an f-divergence changes."""
    exo_pair_needs_smoothing: bool
    """Whether exo_pair takes the logarithm of a smoothing of 0; else the trainer puts 0.001 in its place."""
    traced_evaluation: bool
    """Whether `jit_mode_eval` traces the model; else transformers fails to, warns, and evaluates the model as it is."""
    precompute_of_sets: bool
    """Whether the reference can be computed beforehand for several sets of evaluation."""
    precompute_under_zero3: bool
    reference_given: Names
    """Methods that copy the policy for their reference, which ZeRO-3 refuses: the runtime gives them one."""
    reward_async: bool
    """Whether a reward function may be a coroutine."""
    reward_given: Names
    """What a reward function is called with, beside the columns."""
    reward_runs_twice: bool
    """Whether the reward trainer runs the model once for each answer before it goes back."""
    save_multiples_rounded: bool
    """Whether shares of the run that save and evaluate are compared as whole numbers, and not in floating point."""
    trackio: bool
    """Whether transformers has a callback for it."""
    torch_optimizers_read_words: bool
    """Whether `optim_args` reaches sgd, adagrad and rmsprop."""
    apex_always_imported: bool
    """Whether the arguments import apex wherever `half_precision_backend` names it, in fp32 and under ZeRO as well."""

    # Adapters
    adapters_as_storage: Names
    """Methods whose adapters get the type of storage of 4 bits that are sharded, which is decided at the launch."""
    oft_embeddings: bool
    """Whether OFT rotates embeddings."""
    quantized_adapters_bf16: Names
    """Methods whose trainer makes trained weights over a quantized base bfloat16."""
    quantized_widened: Names
    """Methods whose trainer makes what is not packed of a quantized base float32."""
    quantized_on_cpu: bool
    """Whether a quantized base loads without a GPU."""
    zero3_adapters_as_base: bool
    """Whether adapters under ZeRO-3 have the dtype of their base."""
    zero3_frozen_reentrant: bool
    """Whether layers of which some modules are frozen must be recomputed in the reentrant way under ZeRO-3."""
    zero3_adapters_reentrant: bool
    """Whether adapters under ZeRO-3 recompute the reentrant way, whatever is written."""
    zero3_gathers_early: bool
    """Whether DeepSpeed waits only for the last of several parameters that it gathers at once."""
    zero3_hooks_shared: bool
    """Whether DeepSpeed takes the hooks that PEFT's wrapper of a module only passes on for the wrapper's own."""
    epoch_forgotten: bool
    """Whether accelerate makes a loader for the rest of an epoch that shuffles as the first one does."""
    colocated_vllm_quantizes: bool
    """Whether a colocated vLLM quantizes its model like the one that is trained."""

    # Importing configurations written for it
    distill_adapters_under_zero3: bool
    """Whether a student's adapters can be trained under ZeRO-3 once the student has generated."""
    recomputed_generation: Names
    """Families that are handed no cache where a trainer generates while layers are recomputed: each token of a
    completion sees itself alone."""
    never_packed: Names
    """Families whose layers are no plain linear layers, so that transformers packs nothing of them in 4 or 8 bits."""
    generation_ends_reentrant: bool
    """Whether recomputation is the reentrant way once a trainer has generated, whatever was stated."""
    zero3_cannot_draw: Names
    """Families that cannot be loaded under ZeRO-3: their embedding is taken for one that the checkpoint has not."""
    reentrant_by_default: bool
    """Whether activations are recomputed the reentrant way where nothing is said."""

    def __init__(self, table: Mapping[str, object]) -> None:
        self.__dict__.update({name: _frozen(value) for name, value in table.items()})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"facts are read only: {name}")


def _frozen(value: object) -> object:
    if isinstance(value, list):
        return tuple(value)
    return {name: _frozen(one) for name, one in value.items()} if isinstance(value, dict) else value
