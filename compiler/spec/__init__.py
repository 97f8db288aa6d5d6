"""The class `Spec`, a resolved experiment: all settings with their values, and where each value comes from.

A `Spec` has a `Value` for each setting that the user states, that has a default, or that xpc derives. After `resolve`,
settings are read with typed getters such as `spec.integer("batch.micro")`. A getter raises TypeError for a setting of
another type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xpc.compiler.language.kinds import Rope, Template
from xpc.compiler.language.methods import METHODS, Method
from xpc.compiler.language.methods.definition import generates_itself
from xpc.compiler.language.methods.micro_batch import means_over_micro_batch
from xpc.compiler.language.setting import FlagPath, Path, WeightedPath
from xpc.compiler.language.strategies import FSDP
from xpc.compiler.registry.tables import table
from xpc.compiler.registry.types import IMAGE_FAMILIES
from xpc.compiler.spec.getters import Getters
from xpc.compiler.spec.resources import AdapterFolder, DataSource, EvalSet, Hardware, ImageList, Model, kinds
from xpc.compiler.spec.values import Value
from xpc.compiler.stacks import Field, Stack
from xpc.grammar.diagnostic import Label
from xpc.grammar.record import evolve, field, record
from xpc.grammar.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

EVALUATED: Final = ("data.holdout", "eval.split", "eval.data")
"""Settings that select evaluation rows. A run evaluates if at least one of them has a value."""
CALLED: tuple[WeightedPath, ...] = ("method.tools", "method.environment")
"""Settings whose value names functions or classes that the model may call while it generates."""


@record
class Spec(Getters):
    """A resolved experiment.

    - `error_codes`: a function that returns the codes of the errors in a spec, except those about memory
      (`rules/core/legality.py`). The plan calls it for specs with changed settings, to suggest only legal changes
    - `bundled`: the bytes of the files that the bundle copies, by their path in the bundle
    - `inputs`: the SHA-256 of every file that was read
    - `evaluated`: the evaluation sets of `eval { data = ... }`
    - `teacher`: the model from which `method distill` learns
    - `continued`: the adapter of `lora(from = ...)`, whose training continues
    - `wrong`: the settings with an illegal value in the spec; for these, `values` has the default. `data` is one of
      them if a source is unknown, and `train` if the spec has no `train` line
    - `folder`: where the bundle of a sweep's run is written; other bundles are named after their spec
    - `allow_oom`: whether a run that does not fit its GPUs compiles (`--allow-oom`)
    - `kernels`: the locked commits of the hub's kernel repositories
    - `weights`: the SHA-256 of the files of local models; computed only when compiling
    - `images`: maps the path of a source to the list of the image files in its rows; computed only when compiling
    """

    source: Source
    name: str
    values: Mapping[Path, Value]
    model: Model
    data: tuple[DataSource, ...]
    hardware: Hardware
    stack: Stack
    extra: Mapping[str, Mapping[str, Value]]
    error_codes: Callable[[Spec], set[str]] = field(repr=False)
    bundled: Mapping[str, bytes] = field(factory=dict, repr=False)
    inputs: Mapping[str, str] = field(factory=dict, repr=False)
    edition: int = 1
    wrong: frozenset[str] = frozenset()
    folder: str = ""
    evaluated: tuple[EvalSet, ...] = ()
    teacher: Model | None = None
    continued: AdapterFolder | None = None
    allow_oom: bool = False
    kernels: Mapping[str, str] = field(factory=dict)
    weights: Mapping[str, str] = field(factory=dict)
    images: Mapping[str, ImageList] = field(factory=dict)

    def extra_value(self, library: str, name: str) -> object:
        """The value of a name in an `extra` block (`trl`, `accelerate`, `deepspeed`), or None."""
        found = self.extra.get(library, {}).get(name)
        return None if found is None else found.value

    def extra_location(self, library: str, name: str, text: str = "") -> Label:
        """The location of a name in an `extra` block, as a label with the given text. Raises KeyError if the block
        lacks the name.
        """
        label = self.extra[library][name].origin.label
        assert label is not None  # every argument in `extra` was written in a spec, so it has a location
        return evolve(label, text=text)

    @property
    def reads_images(self) -> bool:
        """Whether the model reads images, and is trained on rows with images."""
        return self.model.model_type in IMAGE_FAMILIES

    @property
    def chat_template(self) -> str | None:
        """The text of the chat template: the one that the spec states, or else the local model's own. None if the text
        is unknown.
        """
        found = self.template
        return self.model.template if found is None else self.bundled.get(found.file, b"").decode("utf-8", "replace")

    @property
    def template(self) -> Template | None:
        """The chat template that the spec states, or None. Without one, the model's own template renders the rows."""
        value = self.get("model.chat_template")
        return value if isinstance(value, Template) else None

    @property
    def rope(self) -> Rope | None:
        """The scaling of rotary positions that the spec states (`rope`), or None."""
        value = self.get("model.rope")
        return value if isinstance(value, Rope) else None

    @property
    def sources(self) -> tuple[DataSource, ...]:
        """Every source of data: first those for training, then those for evaluation."""
        return (*self.data, *(source for one in self.evaluated for source in one.sources))

    @property
    def files(self) -> tuple[DataSource, ...]:
        """Every source of data, with a folder replaced by its files. Only files of the splits that the run reads are
        included.
        """
        split = self.get("eval.split")
        found: list[DataSource] = []
        for source in self.sources:
            also = (split,) if source.parts and isinstance(split, str) and source in self.data else ()
            for one in dict.fromkeys((source.split, *also)):
                found += source.of_split(one)
        return tuple(found)

    @property
    def mixes_shapes(self) -> bool:
        """Whether the data has rows of several kinds (conversations, texts, ...). The run must then prepare each row
        according to its kind.

        This is true if the training data, or one evaluation set, contains rows of several kinds. It is also true if the
        loss is masked and the rows of an evaluation set are of another kind than the training rows.
        """
        masked = self.flag("method.assistant_only") or self.flag("method.completion_only")
        sets = (self.sources,) if masked else (self.data, *(one.sources for one in self.evaluated))
        return any(len(kinds(mixture)) > 1 for mixture in sets)

    @property
    def by_share(self) -> bool:
        """Whether the sources of the training data are mixed by their shares (`share`)."""
        return any(source.share is not None for source in self.data)

    @property
    def evaluates(self) -> bool:
        """Whether there are rows to evaluate on: a holdout, a split, or separate sets."""
        return any(self.get(path) is not None for path in EVALUATED)

    @property
    def sets(self) -> tuple[str, ...]:
        """The names of the evaluation sets, if there are several. The names of metrics then contain the name of the set
        (`eval_NAME_loss`). Empty if there is only one set.
        """
        return tuple(one.name for one in self.evaluated) if isinstance(self.get("eval.data"), tuple) else ()

    @property
    def config(self) -> str:
        """The dotted name of the class of the trainer's arguments, such as `trl.SFTConfig` for sft."""
        return self.stack.config(self.text("method"))

    def fields(self) -> Mapping[str, Field]:
        """All arguments of the method's configuration class on the target, by name."""
        return self.stack.fields(self.config)

    @property
    def low_rank(self) -> bool:
        """Whether the adapters are pairs of matrices as in LoRA (`lora`, `qlora`). Also true for a run that has no
        adapters.
        """
        return self.adapter in ("lora", "qlora")

    @property
    def changes_base(self) -> bool:
        """Whether the initial adapter is subtracted from the base's weights, as by PiSSA and OLoRA (`lora.init`)."""
        return self.get("lora.init") in ("pissa", "olora")

    @property
    def starts_apart(self) -> bool:
        """Whether training starts from other weights than those of the base. PiSSA and OLoRA subtract the initial
        adapter from the base, and LoftQ's initial adapter corrects the rounding of a 4-bit base.
        """
        return self.changes_base or self.get("lora.init") == "loftq"

    @property
    def owns_optimizer(self) -> bool:
        """Whether DeepSpeed creates the optimizer. The optimizer is then DeepSpeed's AdamW, with one group of
        parameters and one learning rate.
        """
        return self.zero_stage > 0 and self.text("optimizer") == "adamw" and self.get("lora.lr_ratio") is None

    @property
    def bits(self) -> int | None:
        """The number of bits of a quantized base, 4 or 8. None if the base is not quantized, or if the run has no
        adapter.
        """
        return self.get("lora.bits") if self.lora else None

    @property
    def in_mxfp4(self) -> bool:
        """Whether the model's weights are published in MXFP4. This is known from its config.json or, if xpc has no
        config.json of the model, from its id on the hub.
        """
        found = self.model.config.get("quantization_config")
        if self.model.config:
            return isinstance(found, Mapping) and found.get("quant_method") == "mxfp4"
        return self.model.id in table("families")["mxfp4"]

    @property
    def method(self) -> Method:
        """The training method, with all its properties."""
        return METHODS[self.text("method")]

    @property
    def online(self) -> bool:
        """Whether the model learns from completions that it generates itself."""
        return self.method.generates

    @property
    def reentrant_after_generation(self) -> bool:
        """Whether a bug of the stack leaves reentrant checkpointing on after the trainer has generated completions."""
        return self.stack.facts.generation_ends_reentrant and generates_itself(self.method, self.get)

    @property
    def compares(self) -> bool:
        """Whether the loss needs log-probabilities of a reference model. The run either loads the reference next to the
        model, or computes these log-probabilities before training.
        """
        return self.method.references(lambda path: None if path == "method.precompute" else self.get(path)) > 0

    @property
    def asks_server(self) -> bool:
        """Whether completions come from a separate vLLM server."""
        return self.online and self.flag("method.vllm") and self.get("method.vllm.mode") == "server"

    @property
    def calls_tools(self) -> bool:
        """Whether the model may call tools, or methods of an environment, while it generates."""
        return any(self.get(path) for path in CALLED)

    @property
    def drops_masks(self) -> tuple[FlagPath, ...]:
        """The settings of this run that make the stack's trainer drop the completion mask, and so train on all tokens.
        In trl 0.18, these are `packing`, `padding_free` and `liger`.
        """
        paths: tuple[FlagPath, ...] = ("batch.packing", "batch.padding_free", "memory.liger")
        conflicts = self.stack.facts.completion_only_conflicts
        return tuple(path for path in paths if path.rpartition(".")[2] in conflicts and self.flag(path))

    @property
    def models(self) -> tuple[Model, ...]:
        """The trained model and, for distillation, its teacher."""
        return (self.model,) if self.teacher is None else (self.model, self.teacher)

    @property
    def losses(self) -> tuple[str, ...]:
        """The names of the losses in `method { loss = ... }`."""
        return tuple(one.name for one in self.weighted("method.loss"))

    @property
    def learns_from_micro(self) -> bool:
        """Whether the size of the micro-batch changes what is learned, even if the global batch stays the same.

        True for losses with a part that is a mean over each micro-batch, and for all losses if DeepSpeed splits
        sequences between processes. True for kto, whose KL term is estimated from the micro-batch. True for
        distillation that generates completions row by row, because it draws random numbers for each micro-batch.
        """
        name = self.text("method")
        if self.ulysses:
            return True
        drawn = self.teacher is not None and generates_itself(self.method, self.get)
        if (name == "kto" and self.losses == ("kto",)) or (drawn and not self.stack.facts.distill_rounds):
            return True
        router = self.extra_value("trl", "router_aux_loss_coef")
        likelihood = self.get("method.rpo") or self.get("method.likelihood")
        return means_over_micro_batch(name, self.losses, likelihood, router)

    @property
    def on_cpu(self) -> bool:
        """Whether the run has no GPU."""
        return self.hardware.gpu is None

    @property
    def zero_stage(self) -> int:
        """The ZeRO stage; 0 without DeepSpeed."""
        strategy = self.text("strategy")
        return int(strategy[-1]) if strategy.startswith("zero") else 0

    @property
    def context_parallel(self) -> int:
        """The number of processes that share one sequence; 1 without context parallelism."""
        return self.get("strategy.context_parallel") or 1

    @property
    def ulysses(self) -> bool:
        """Whether DeepSpeed splits each sequence between processes (Ulysses). Each process then computes attention over
        all tokens, but only for some of the heads.
        """
        return self.context_parallel > 1 and self.zero_stage > 0

    @property
    def shared_multiple(self) -> int:
        """A sequence that several processes share must have a multiple of this number of tokens. torch splits the
        sequence into two pieces per process, and DeepSpeed into one. On CPUs, the sequences must also have equal
        lengths, because gloo cannot gather pieces of different lengths.
        """
        size = self.context_parallel
        if not self.ulysses:
            return 2 * size
        return size * -(-self.integer("batch.seq") // size) if self.on_cpu else size

    @property
    def replicas(self) -> int:
        """The number of replicas that train in parallel on different rows: global batch = micro-batch x accumulation x
        replicas.

        Without context parallelism, this is the number of processes. With it, this is the number of groups of
        processes, because a group reads one micro-batch together.
        """
        return max(1, self.hardware.world // self.context_parallel)

    @property
    def sharded_by_fsdp(self) -> bool:
        """Whether FSDP shards the model: the strategy is fsdp, fsdp1 or hsdp."""
        return self.text("strategy") in FSDP

    @property
    def by_fsdp1(self) -> bool:
        """Whether PyTorch's older FSDP (version 1) shards the model: under the strategy fsdp1 and, on some stacks,
        under hsdp.
        """
        strategy = self.text("strategy")
        return strategy == "fsdp1" or (strategy == "hsdp" and self.stack.facts.hsdp == "fsdp1")

    @property
    def weights_sharded(self) -> bool:
        """Whether the weights are divided between the processes, as under FSDP and ZeRO-3."""
        return self.sharded_by_fsdp or self.zero_stage == 3
