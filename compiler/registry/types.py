"""The registry's types: what is known of a model, a model family, a GPU and a dataset."""

from xpc.grammar.record import record


@record
class ModelFacts:
    """One causal language model, as its published `config.json` describes it.

    Parameter counts are exact for the model that transformers builds (tied weights counted once). `intermediate` is the
    width of one MLP (of one expert, for a mixture of experts); `layer_params` is one decoder layer, the largest where
    layers differ. `context` is in tokens and includes what a published rope scaling adds. `windowed` says that some
    layer sees a window, a chunk or a state of the past only; `window_layers` slide over `window` tokens.
    """

    alias: str
    id: str
    model_type: str
    params: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    tied: bool
    dtype: str
    chat: bool
    gated: bool
    experts: int = 0
    active_params: int | None = None
    experts_per_token: int = 0
    gated_mlp: bool = True
    layer_params: int = 0
    windowed: bool = False
    window: int = 0
    window_layers: int = 0


@record
class Gpu:
    """One accelerator: memory in GiB as the driver reports it, dense vendor peaks in TFLOP/s, bandwidth in GB/s.

    `bf16_tflops` is None where the hardware has no bfloat16 (capability below 8.0). `device_names` are substrings of
    `torch.cuda.get_device_name()`, every one of them enough to recognise the card's kind (variants share names).
    """

    name: str
    memory_gib: float
    capability: tuple[int, int]
    bf16_tflops: float | None
    fp16_tflops: float
    fp32_tflops: float
    bandwidth_gbs: float
    device_names: tuple[str, ...]


@record
class DatasetFacts:
    """One dataset of the Hub: the configuration and split that a bare alias means, and the columns of its shape.

    `columns` are the dataset's own names in the shape's order: messages (the list), conversations (the list),
    prompt_completion (prompt, completion), text (the text), preference ([prompt,] chosen, rejected), prompt (the prompt
    alone, for reinforcement). `context` is a second prompt column that may be empty and belongs after the prompt
    (alpaca's `input`). `rows` counts the default split of the default configuration, None where it is not known for
    certain. `gated`: the Hub asks for an accepted licence. `note` says why the defaults are what they are.
    """

    alias: str
    id: str
    config: str | None
    split: str
    shape: str
    columns: tuple[str, ...]
    rows: int | None
    context: str | None = None
    gated: bool = False
    note: str = ""
