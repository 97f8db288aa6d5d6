"""The type of trainer_args.json: the compiler writes it, and the runtime reads it."""

from typing import Any, Literal, NotRequired, TypedDict

from .payload_data import Data
from .payload_data import Source as Source  # features import `Data` and `Source` from here


class Reward(TypedDict):
    """A reward function: a built-in one by name, or a function in a file of the bundle. `options` are its arguments."""

    name: str
    file: str | None
    function: str | None
    sha256: str | None
    options: NotRequired[dict[str, bool | int | float | str]]


class OfFile(TypedDict):
    """A function or class in a file of the bundle."""

    file: str
    function: str
    sha256: str


class Tools(TypedDict):
    """The tools that the model may call while it generates: functions, and the methods of an environment class."""

    functions: list[OfFile]
    environment: OfFile | None
    seconds: int
    """The time limit of one call of a tool, in seconds."""


class Teacher(TypedDict):
    """The teacher model: a hub id with its commit, or a local folder."""

    id: str | None
    path: str | None
    revision: str | None
    dtype: str


class Method(TypedDict):
    """The training method, and its reward functions. The weights of these functions are arguments of the trainer."""

    name: str
    generates: bool
    """Whether the model is trained on completions that it generates."""
    rewarded: bool
    """Whether the method learns from reward functions."""
    scores: bool
    """Whether the model outputs a score instead of tokens."""
    unpaired: bool
    """Whether the method learns from single answers, each labelled good or bad."""
    second_model: bool
    """Whether a reference or a teacher is loaded next to the model."""
    rewards: list[Reward]
    teacher: Teacher | None
    tools: NotRequired[Tools]


class Stack(TypedDict):
    """Facts about the library versions of the target. The supported stacks differ in these facts."""

    epoch_forgotten: bool
    """Whether accelerate, if a run resumes within an epoch, shuffles its remaining rows as it shuffled epoch 0."""
    dtype_keyword: str
    """The argument of from_pretrained for the dtype of the weights."""
    losses_not_divided: list[str]
    """Methods whose loss the run divides by `accum`, because transformers wrongly assumes that trl divides it."""
    older_transformers: NotRequired[bool]
    """Whether transformers is too old to read the positions (rope) in configurations that transformers 5 has saved."""
    prompts_begin_rows: NotRequired[bool]
    """Whether trl raises an error for a rendered conversation that does not begin with its rendered prompt."""
    quantized_on_cpu: bool
    """Whether a quantized base loads without a GPU."""
    reference_given: list[str]
    """Methods whose trainer gets a reference model from the run, because under ZeRO-3 it cannot copy the policy."""
    reward_async: bool
    """Whether trl can call an asynchronous reward function (`async def`)."""
    reward_given: list[str]
    """The arguments, besides the columns, that trl passes to a reward function (GRPOTrainer._calculate_rewards)."""
    vllm_program: Literal["trl", "vllm"]
    """The program that starts the vLLM server."""
    zero3_gathers_early: bool
    """Whether DeepSpeed may use parameters too early: if it gathers several at once, it waits only for the last one."""
    zero3_hooks_shared: bool
    """Whether DeepSpeed mistakes the hooks of a module for hooks of peft's wrapper around the module."""


class Model(TypedDict):
    """The trained model: a hub id with its commit, or a local folder, and how it is loaded.

    `liger_unchecked` is true if the run uses Liger's kernels and the compiler does not know the model's family.
    `renamed` is true if transformers saves the family's weights under other names than the model has, or if the family
    is unknown. `kernels` are the locked commits of hub kernels, by repository.
    """

    id: str | None
    path: str | None
    revision: str | None
    dtype: str
    attn_implementation: str
    trust_remote_code: bool
    pickle: bool
    liger: bool
    liger_unchecked: NotRequired[bool]
    renamed: NotRequired[bool]
    compile_layers: NotRequired[bool]
    rope: NotRequired[dict[str, object]]  # keys: rope_type, factor, original (null: as in config.json), parameters
    kernels: NotRequired[dict[str, str]]


class Tokenizer(TypedDict):
    """Changes to the tokenizer: a chat template (a file of the bundle), special tokens, and added tokens."""

    chat_template: str | None
    eos_token: str | None
    pad_token: str | None
    added: list[str] | None


class Continued(TypedDict):
    """The adapter whose training continues: its folder, and the digest of its adapter_config.json."""

    path: str
    sha256: str
    reference: NotRequired[bool]
    """Whether the method's reference model is the base with this adapter. If false, it is the base alone."""


class AdapterShape(TypedDict):
    """The kind of the adapters (such as LoRA's matrices, or the rotations of "oft"), their shape, and LoRA+ rates."""

    kind: Literal["lora", "oft", "vera", "loha", "miss"]
    rank: int | None
    alpha: NotRequired[float]
    rslora: NotRequired[bool]
    dora: NotRequired[bool]
    parameters: NotRequired[list[str] | None]
    lr_ratio: NotRequired[float | None]
    embedding_lr: NotRequired[float | None]
    init: NotRequired[str]
    """How adapter weights are initialized: "pissa", "olora", "loftq", "eva" or "gaussian". Absent for peft's default.
    """
    init_iterations: NotRequired[int]
    init_rows: NotRequired[int]
    reference: NotRequired[bool]
    """Whether the reference model has a frozen adapter with the initial weights. PiSSA, OLoRA and LoftQ change the base
    weights, so the base alone is not the initial model."""
    block_size: NotRequired[int | None]
    merge: NotRequired[bool]
    """Whether the merged model is saved next to the adapters."""
    continued: NotRequired[Continued]
    within: NotRequired[str]
    """The module that contains all adapted modules. Targets outside of it get no adapter."""


class Adapter(AdapterShape):
    """The adapters, their target modules, and whether their base model is quantized (`bits`)."""

    dropout: float
    targets: list[str] | str
    modules_to_save: list[str] | None
    adapter_dtype: str | None
    bits: int | None
    compute_dtype: str
    storage_dtype: str
    double_quant: bool
    quant_type: str


class Freeze(TypedDict):
    """The weights that are trained. All other weights are frozen."""

    last: int | None
    first: int | None
    layer_modules: list[str] | None
    modules: list[str] | None
    parameters: list[str] | None


class Hub(TypedDict):
    """Hub settings that no training argument states: the branch, and whether checkpoints get branches."""

    revision: str | None
    checkpoint_branches: bool


class Gpu(TypedDict):
    """The GPU that the run was compiled for, and torch's names for it."""

    name: str
    memory_gib: float
    capability: list[int]
    device_names: list[str]


class Disk(TypedDict):
    """The size in bytes of the final model and of a checkpoint, how many checkpoints exist at the same time, and the
    bytes of the model's weights on the hub (0 for a local model).
    """

    model: int
    checkpoint: int
    checkpoints: int
    download: int


class Flops(TypedDict):
    """Floating-point operations, from which the run's utilisation is computed. A token in a sequence of n tokens needs
    `token + n * length`; the second part is attention. `peak` is the maximum per second of one process's GPU.
    """

    token: float
    length: float
    peak: float | None


class Division(TypedDict):
    """How a step's rows are divided among processes and micro-batches. Each key is a part of this division; its value
    says why a resumed run may not change this part, or is None."""

    step: str | None
    """Why a resumed run must keep its number of processes and its micro-batch, or None."""
    processes: str | None
    """Why a resumed run must keep its number of processes, or None."""
    micro: str | None
    """Why a resumed run must keep its micro-batch, or None."""


class Run(TypedDict):
    """The processes, the batch, and how the run ends and resumes."""

    nodes: int
    processes_per_node: int
    world_size: int
    context_parallel: int
    micro: int
    accumulation: int
    gbs: int
    seq: int
    distributed_type: str
    zero_stage: int
    deepspeed_optimizer: bool
    """Whether deepspeed.json names the optimizer. If so, DeepSpeed creates the optimizer."""
    deepspeed_extension: Literal["fused_adam", "cpu_adam"] | None
    """The DeepSpeed extension that contains this run's optimizer. It is compiled when the run starts."""
    device: str
    gpu: Gpu | None
    division: Division
    resume: str
    full_state: bool
    project: str | None
    nan: str
    idle: str
    disk: Disk | None
    host_memory: int
    """Bytes of RAM that the processes of one machine need to load, train or save the model."""
    flops: Flops | None
    fp8: NotRequired[dict[str, bool]]
    """For a run that computes in fp8. The key "all_gather" says whether FSDP gathers weights in fp8."""
    patience: NotRequired[int]
    """The run ends after this many successive evaluations without a better value."""


class MuonMatrices(TypedDict):
    """The settings with which Muon trains hidden matrices."""

    lr: float
    weight_decay: float
    momentum: float
    adjust_lr: str
    """torch's `adjust_lr_fn`: "match_rms_adamw" or "original"."""


class MuonOthers(TypedDict):
    """The settings with which AdamW trains embeddings, head, norms and biases in a run with Muon."""

    lr: float
    weight_decay: float
    betas: list[float]
    eps: float
    fused: bool


class Muon(TypedDict):
    """The settings of the two groups of weights in a run with Muon: hidden matrices, and all other weights."""

    matrices: MuonMatrices
    others: MuonOthers


class Trainer(TypedDict):
    """Facts about the folder trainer/ of the bundle."""

    unused: list[str]
    """Paths of unset settings that would need a module which this bundle lacks."""


class Payload(TypedDict):
    """The complete content of trainer_args.json."""

    format: int
    target: str
    stack: Stack
    config: str
    method: Method
    arguments: dict[str, Any]
    model: Model
    tokenizer: Tokenizer
    data: Data
    lora: Adapter | None
    freeze: Freeze | None
    hub: Hub | None
    muon: NotRequired[Muon]
    run: Run
    trainer: Trainer
