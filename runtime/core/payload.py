"""What trainer_args.json holds. The compiler writes this type, and the runtime reads it."""

from typing import Any, Literal, NotRequired, TypedDict


class Reward(TypedDict):
    """A reward function: one of the runtime by its name, or a function of a file of the bundle."""

    name: str
    file: str | None
    function: str | None
    sha256: str | None


class Teacher(TypedDict):
    """The model that is learned from: an id of the hub with its commit, or a local folder."""

    id: str | None
    path: str | None
    revision: str | None
    dtype: str


class Method(TypedDict):
    """The training method, with its reward functions; their weights are in the arguments."""

    name: str
    generates: bool
    """The model writes the completions that it learns from."""
    rewarded: bool
    """It learns from reward functions."""
    scores: bool
    """The model gives a score, and no tokens."""
    unpaired: bool
    """It learns from answers that are judged one by one."""
    second_model: bool
    """A reference or a teacher stands beside the model."""
    rewards: list[Reward]
    teacher: Teacher | None


class Stack(TypedDict):
    """What differs between the versions of the libraries that this runtime runs on."""

    epoch_forgotten: bool
    """Whether accelerate makes a loader for the rest of an epoch that shuffles as the first one does."""
    dtype_keyword: str
    """What from_pretrained calls the type of the weights."""
    losses_not_divided: list[str]
    """Methods whose loss transformers takes for one that is divided by the accumulation, which it is not."""
    quantized_on_cpu: bool
    """Whether a quantized base loads without a GPU."""
    reference_given: list[str]
    """Methods whose trainer copies the policy for its reference, which ZeRO-3 refuses."""
    reward_async: bool
    """Whether trl can call a reward function that is a coroutine."""
    reward_given: list[str]
    """What trl gives to a reward function beside the columns (GRPOTrainer._calculate_rewards)."""
    vllm_program: Literal["trl", "vllm"]
    """The program that is the vLLM server."""
    zero3_gathers_early: bool
    """Whether DeepSpeed waits only for the last of several parameters that it gathers at once."""
    zero3_hooks_shared: bool
    """Whether DeepSpeed takes hooks that peft's wrapper of a module only passes on for the wrapper's own."""


class Model(TypedDict):
    """What is trained: an id of the hub with its commit, or a local folder, and how it is loaded.

    `liger_unchecked`: Liger's kernels are put into a family that was not known when the spec was compiled. `kernels`
    are the commits of a lock for kernels of the hub, by repository.
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
    compile_layers: NotRequired[bool]
    kernels: NotRequired[dict[str, str]]


class Tokenizer(TypedDict):
    """What replaces the tokenizer's own: a template of the bundle, special tokens, and tokens that are new."""

    chat_template: str | None
    eos_token: str | None
    pad_token: str | None
    added: list[str] | None


class Rows(TypedDict):
    """A number of rows, or a fraction of them."""

    rows: NotRequired[int]
    fraction: NotRequired[float]


class File(TypedDict):
    """A file of a folder of data, with its copy in the bundle."""

    path: str
    bundled: str | None
    sha256: str | None


class Source(TypedDict):
    """A source of data: an id of the hub, or a local file or folder. `columns` are in the order of the shape.

    `kind` is what its rows become, where sources of the run become different things.
    """

    id: str | None
    config: str | None
    split: str
    slice: str | None
    revision: str | None
    path: str | None
    bundled: str | None
    sha256: str | None
    files: list[File] | None
    shape: str
    columns: list[str] | None
    only: bool
    context: str | None
    wording: str | None
    take: Rows | None
    limit: NotRequired[int | None]
    kind: NotRequired[str]


class EvaluationSet(TypedDict):
    """Rows that are evaluated on and not trained on."""

    name: str
    sources: list[Source]


class Evaluation(TypedDict):
    """The sets that are evaluated on; where they are `named`, each has metrics of its own."""

    named: bool
    sets: list[EvaluationSet]


class Words(TypedDict):
    """A template that makes a row's prompt of its columns, the column of its own system prompt, and the roles that
    names of speakers stand for."""

    prompt_template: NotRequired[str]
    system_column: NotRequired[str]
    roles: NotRequired[dict[str, str]]


class Data(Words):
    """What is trained on, and how its rows are read, left out, shuffled and divided."""

    sources: list[Source]
    seed: int
    shuffle: bool
    holdout: Rows | None
    workers: int | None
    system: str | None
    max_prompt: int | None
    unique: bool
    min_tokens: int | None
    max_tokens: NotRequired[int | None]
    eval_split: str | None
    evaluation: Evaluation | None


class Continued(TypedDict):
    """The folder of an adapter that training begins with, and the digest of its adapter_config.json."""

    path: str
    sha256: str


class AdapterShape(TypedDict):
    """What adapters are: low-rank matrices ("lora"), with the rates of LoRA+ where it is asked for, or rotations."""

    kind: Literal["lora", "oft"]
    rank: int | None
    alpha: NotRequired[float]
    rslora: NotRequired[bool]
    dora: NotRequired[bool]
    parameters: NotRequired[list[str] | None]
    lr_ratio: NotRequired[float | None]
    embedding_lr: NotRequired[float | None]
    block_size: NotRequired[int | None]
    merge: NotRequired[bool]
    """Whether the merged model is saved beside the adapters."""
    continued: NotRequired[Continued]
    within: NotRequired[str]
    """The module of the model in which alone targets get an adapter."""


class Adapter(AdapterShape):
    """Adapters, where they stand, and the base under them, of `bits` where it is quantized."""

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
    """Which weights are trained where the others are frozen."""

    last: int | None
    first: int | None
    layer_modules: list[str] | None
    modules: list[str] | None
    parameters: list[str] | None


class Hub(TypedDict):
    """What the arguments of a run that pushes may not say: its branch, and branches of checkpoints."""

    revision: str | None
    checkpoint_branches: bool


class Gpu(TypedDict):
    """The GPU that the run was compiled for, and the names that torch has for it."""

    name: str
    memory_gib: float
    capability: list[int]
    device_names: list[str]


class Disk(TypedDict):
    """What the run writes, in bytes: the final model, and a checkpoint, of which so many stand at once."""

    model: int
    checkpoint: int
    checkpoints: int


class Division(TypedDict):
    """Why a run that goes on may not divide its steps otherwise than it began; None where it may."""

    step: str | None
    """In no way."""
    processes: str | None
    """Among another number of processes."""
    micro: str | None
    """In other micro-batches."""


class Run(TypedDict):
    """The processes, the batch, and what a run does at its end and at its next start."""

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
    """Whether deepspeed.json names the optimizer, which DeepSpeed then makes."""
    deepspeed_extension: Literal["fused_adam", "cpu_adam"] | None
    """The extension of DeepSpeed that this optimizer is, which is compiled when the run starts."""
    device: str
    gpu: Gpu | None
    division: Division
    resume: str
    full_state: bool
    project: str | None
    nan: str
    disk: Disk | None
    patience: NotRequired[int]
    """Evaluations without a better value after which the run ends."""


class Trainer(TypedDict):
    """What trainer/ was compiled for."""

    unused: list[str]
    """Paths of settings that this run does without, each of which would use another module."""


class Payload(TypedDict):
    """The whole file."""

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
    run: Run
    trainer: Trainer
