"""Protocols of the libraries' objects, with the attributes that the runtime uses. mypy reads no library itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol


class Tokenizer(Protocol):
    """A tokenizer of transformers, or the processor of a model that reads images."""

    chat_template: str | dict[str, str] | None
    response_template: Any
    eos_token: str | None
    eos_token_id: Any
    pad_token: str | None
    pad_token_id: Any
    bos_token_id: int | None
    model_max_length: int
    truncation_side: str
    added_tokens_decoder: Mapping[int, Any]
    model_input_names: Sequence[str]
    image_token_id: int
    apply_chat_template: Callable[..., Any]

    def __call__(self, text: Any, **options: Any) -> Any: ...

    def parse_response(self, response: str, schema: Any = None, **options: Any) -> Any: ...

    def decode(self, token_ids: Any, **options: Any) -> str: ...

    def convert_ids_to_tokens(self, ids: Any) -> Any: ...

    def get_vocab(self) -> dict[str, int]: ...

    def add_tokens(self, new_tokens: Sequence[str]) -> int: ...

    def save_pretrained(self, save_directory: str) -> Any: ...

    def __len__(self) -> int: ...


class Model(Protocol):
    """A model of transformers, or one with adapters of PEFT. Its submodules differ by family."""

    config: Any
    training: bool

    def __call__(self, **inputs: Any) -> Any: ...

    forward: Callable[..., Any]

    def named_parameters(self, *, remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]: ...

    def parameters(self) -> Iterator[Any]: ...

    def named_modules(self) -> Iterator[tuple[str, Any]]: ...

    def modules(self) -> Iterator[Any]: ...

    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...


class ModelClass(Protocol):
    """A class of transformers that loads a model, such as `AutoModelForCausalLM`."""

    def from_pretrained(
        self, name: str, *, output_loading_info: Literal[True], **options: Any
    ) -> tuple[Model, dict[str, Any]]: ...


class State(Protocol):
    """The progress of a run, `TrainerState` of transformers."""

    global_step: int
    max_steps: int
    epoch: float
    eval_steps: int
    compute_steps: Callable[..., None]
    log_history: list[dict[str, Any]]
    best_metric: float | None
    best_global_step: int | None
    best_model_checkpoint: str | None
    is_world_process_zero: bool
    stateful_callbacks: dict[str, Any]

    def save_to_json(self, json_path: str) -> None: ...


class Arguments(Protocol):
    """The arguments of a run, `TrainingArguments` of transformers. Its other attributes differ by method."""

    output_dir: str
    seed: int
    device: Any
    world_size: int
    process_index: int
    learning_rate: float
    save_strategy: Any
    save_only_model: bool
    eval_strategy: Any
    eval_delay: float | None

    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...


class Control(Protocol):
    """What the trainer does after a step, `TrainerControl` of transformers."""

    should_save: bool
    should_log: bool
    should_evaluate: bool
    should_training_stop: bool


class Trainer(Protocol):
    """A trainer of TRL. Its other attributes differ by method."""

    args: Arguments
    model: Model
    model_wrapped: Any
    state: State
    accelerator: Any
    train_dataset: Any
    processing_class: Any

    def is_world_process_zero(self) -> bool: ...

    def train(self, resume_from_checkpoint: str | None = None) -> Any: ...

    def save_model(self, output_dir: str | None = None) -> None: ...

    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...


class Rows(Protocol):
    """A set of rows of the datasets library, `Dataset` or `IterableDataset`."""

    column_names: list[str]
    features: Any

    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __iter__(self) -> Iterator[dict[str, Any]]: ...

    def map(self, function: Callable[..., Any], **options: Any) -> "Rows": ...

    def filter(self, function: Callable[..., Any], **options: Any) -> "Rows": ...

    def select_columns(self, column_names: Sequence[str]) -> "Rows": ...

    def select(self, indices: Any) -> "Rows": ...

    def shuffle(self, *, seed: int) -> "Rows": ...

    def rename_columns(self, column_mapping: dict[str, str]) -> "Rows": ...

    def add_column(self, name: str, column: Any) -> "Rows": ...

    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...
