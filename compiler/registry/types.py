"""The classes of the registry's entries: models, GPUs and datasets."""

from xpc.grammar.record import evolve, field, record

IMAGE_FAMILIES = ("qwen2_5_vl",)
"""The families (`model_type`) that xpc trains on rows with images."""


@record
class Decoder:
    """The dimensions of a decoder. `layer_params` is the number of parameters of one layer, or of the largest layer if
    layers differ.

    `intermediate` is the width of one MLP; in a mixture of experts, the width of one expert. `context` is the length of
    the context in tokens, as extended by the rope scaling in the published config.json.

    Models with latent attention (MLA), such as DeepSeek's, have `latent`, the rank of keys and values. `query_rank` is
    the rank of the queries (0: one projection without a rank), `rotated` the width of the part of each head that has
    positions, `head_dim` the width of a query or key head, and `value_dim` that of a value head. In other models, only
    `head_dim` is not 0.

    Mixtures with latent attention have `shared_width`, the width of the MLP that every token passes next to its
    experts. The first `dense_layers` layers have no experts, but an MLP of `dense_width`.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    tied: bool
    gated_mlp: bool = field(default=True, kw_only=True)
    experts: int = field(default=0, kw_only=True)
    experts_per_token: int = field(default=0, kw_only=True)
    layer_params: int = field(default=0, kw_only=True)
    latent: int = field(default=0, kw_only=True)
    query_rank: int = field(default=0, kw_only=True)
    rotated: int = field(default=0, kw_only=True)
    value_dim: int = field(default=0, kw_only=True)
    shared_width: int = field(default=0, kw_only=True)
    dense_layers: int = field(default=0, kw_only=True)
    dense_width: int = field(default=0, kw_only=True)

    @property
    def values(self) -> int:
        """The width of attention's output: the widths of all value heads together. Each query head has its own value
        head.
        """
        return self.heads * (self.value_dim or self.head_dim)

    @property
    def uneven(self) -> bool:
        """Whether the model has MLPs next to the experts, and layers without experts, as DeepSeek V3 has."""
        return self.experts > 0 and self.latent > 0


@record
class ModelFacts(Decoder):
    """One causal language model, as its published `config.json` describes it.

    Parameter counts are exact for the model that transformers builds; a weight that two modules share is counted once.
    `windowed` is true if some layer does not attend to all earlier tokens. `window_layers` is the number of layers with
    a sliding window of `window` tokens.
    """

    alias: str
    id: str
    model_type: str
    params: int
    dtype: str
    chat: bool
    gated: bool
    active_params: int | None = None
    windowed: bool = False
    window: int = 0
    window_layers: int = 0

    @property
    def language_params(self) -> int:
        """The number of parameters without the vision tower, which is never trained."""
        if self.model_type not in IMAGE_FAMILIES:
            return self.params
        return self.layers * self.layer_params + self.vocab * self.hidden * (2 - self.tied) + self.hidden


def layer_kinds(facts: ModelFacts) -> tuple[tuple[int, ModelFacts], ...]:
    """The kinds of decoder layers of a model, each as a pair: the number of its layers, and the facts of a model that
    has only such layers. Mixtures whose first layers have no experts have two kinds, other models have one.
    """
    sparse = facts.layers - facts.dense_layers
    if not facts.uneven or not facts.dense_layers:
        return ((facts.layers, facts),)
    wide, experts = facts.dense_width, evolve(facts, dense_layers=0)
    dense = evolve(facts, dense_layers=0, experts=0, experts_per_token=0, intermediate=wide, shared_width=wide)
    return ((facts.dense_layers, dense), *(((sparse, experts),) if sparse else ()))


@record
class Gpu:
    """One GPU: its memory in GiB as the driver reports it, the vendor's peak rates in TFLOP/s (without sparsity), and
    the bandwidth of its memory in GB/s.

    `link_gbs` is the bandwidth between this GPU and the other GPUs of its machine, and `network_gbs` is this GPU's
    share of the network between machines. `bf16_tflops` is None if the hardware has no bfloat16 (compute capability
    below 8.0). A card is recognized if `torch.cuda.get_device_name()` contains one of the texts in `device_names`.
    Variants of a card may share these texts.
    """

    name: str
    memory_gib: float
    capability: tuple[int, int]
    bf16_tflops: float | None
    fp16_tflops: float
    fp32_tflops: float
    bandwidth_gbs: float
    link_gbs: float
    network_gbs: float
    device_names: tuple[str, ...]

    @property
    def compute_capability(self) -> str:
        """The compute capability as text, such as `8.0`."""
        return ".".join(map(str, self.capability))


@record
class DatasetFacts:
    """One dataset of the hub: its default configuration and split, the shape of its rows, and the columns of that
    shape.

    `columns` are the names of the dataset's columns in the order of the shape: prompt, completion for the shape
    prompt_completion; [prompt,] chosen, rejected for preference; a single column for messages, conversations, text and
    prompt (prompts for reinforcement learning). `context` is a column whose text, which may be empty, is appended to
    the prompt (alpaca's `input`). `talks` means that prompts or answers in these columns are lists of messages, and not
    texts (the shapes messages and conversations always have messages). `rows` is the number of rows in the
    default split of the default configuration, or None if the number is not certain. `gated` means that the hub asks
    users to accept a licence. `note` explains the defaults.
    """

    alias: str
    id: str
    config: str | None
    split: str
    shape: str
    columns: tuple[str, ...]
    rows: int | None
    context: str | None = None
    talks: bool = False
    gated: bool = False
    note: str = ""
