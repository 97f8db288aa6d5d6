"""`Feature`, the base class with every hook method of a run, and `Bundle`, which contains the features of its run.

``enabled.py`` lists this run's features in the order in which they are called. Both classes are in one file because a
bundle has features, and a hook gets the bundle as an argument.
"""

import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from runpy import run_path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from .errors import RunError
from .rows import FORMAT, RowFormat
from .token_counts import TokenCounts

if TYPE_CHECKING:
    # only for types: bundles do not contain these modules
    from .library_types import Arguments as Arguments
    from .library_types import Control as Control
    from .library_types import Model as Model
    from .library_types import ModelClass as ModelClass
    from .library_types import Rows as Rows
    from .library_types import State as State
    from .library_types import Tokenizer as Tokenizer
    from .library_types import Trainer as Trainer
    from .payload import Payload
    from .payload_data import Source as Source
else:
    Arguments = Control = Model = ModelClass = Rows = Source = State = Tokenizer = Trainer = object

RowSets = tuple[Rows, Rows | dict[str, Rows] | None]  # the training set, and the evaluation set or sets by name


class Feature:
    """Behaviour that only some runs have. Each method is a hook. In this base class, it does nothing.

    A feature overrides the hooks that it needs. The hooks are listed in the order of a run.
    """

    # Hooks at the start of a process and in the preflight

    def before_imports(self, bundle: "Bundle", environ: MutableMapping[str, str]) -> None:
        """Called in each process and in the launcher, before the libraries are imported: set the environment variables
        that the libraries read, and filter harmless log messages.
        """

    def check_nodes(self, bundle: "Bundle", check: Callable[[int], list[str]]) -> bool:
        """In the preflight, in one process per node: connect to the other nodes and check together.

        ``check(node_rank)`` returns the findings of this node. The hook returns True if this feature has checked the
        nodes. If any node has a finding, the hook raises RunError on all nodes.
        """
        return False

    def check_files(self, bundle: "Bundle", digests: Mapping[str, str]) -> dict[str, str]:
        """In the preflight: check that executed and rendered files of the bundle are unchanged since the compilation.

        ``digests`` has the digests in bundle.toml by file name. Returns a dict of findings by file name; the finding of
        an unchanged file is "".
        """
        return {}

    def earlier_names(self, bundle: "Bundle", was: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
        """Called before a run resumes: `was` has the settings of the earlier run, `now` those of this run. Return those
        settings of `now` whose value is the name of a file that was renamed, each with the file's name in `was`.
        """
        return {}

    def missing_packages(self, bundle: "Bundle") -> list[str]:
        """In the preflight: return findings about packages that the run uses but that are not installed."""
        return []

    def check_access(self, bundle: "Bundle") -> list[str]:
        """In the preflight, on process 0: return findings about accounts and folders, such as a read-only token."""
        return []

    def check_build_tools(self, bundle: "Bundle") -> list[str]:
        """In the preflight, once per node: return findings about C++ or CUDA compilers that are missing."""
        return []

    def check_gpu_links(self, bundle: "Bundle") -> list[str]:
        """In the preflight, in one process per node: return findings about the links between the node's GPUs."""
        return []

    def before_rows(self, bundle: "Bundle", tokenizer: Tokenizer | None) -> list[str]:
        """In the preflight, before rows are read: return findings. ``tokenizer`` is None if it could not be loaded."""
        return []

    def check_columns(self, bundle: "Bundle", columns: list[str]) -> list[str]:
        """In the preflight, once per source: return findings about the columns that the trainer gets."""
        return []

    def check_first_row(self, bundle: "Bundle", source: str, row: Mapping[str, Any], tokenizer: Tokenizer) -> list[str]:
        """In the preflight, once per source: return findings about its first row, converted for the trainer."""
        return []

    def first_rows_note(self, bundle: "Bundle", rows: list[dict[str, object]], tokenizer: Tokenizer) -> str:
        """A note for the end of the preflight's line about a source's first rows: "; their images add 64 tokens"."""
        return ""

    def preflight_failed(self, bundle: "Bundle", error: RunError) -> None:
        """Before the preflight raises ``error``: if the process cannot exit normally, print ``error`` and exit."""

    # Hooks in the launcher

    def before_launch(self, bundle: "Bundle", environ: Mapping[str, str]) -> None:
        """Called in the launcher, before it starts the processes of this node."""

    def process_starter(self, bundle: "Bundle", program: str) -> Callable[[], object] | None:
        """In the launcher: return a function that runs ``program`` to its end without accelerate or torchrun. None if
        accelerate or torchrun should run it.

        The returned function raises CalledProcessError if the program fails.
        """
        return None

    def launch_failed(self, bundle: "Bundle", error: Exception) -> list[tuple[str, int]]:
        """In the launcher, after a failure: return a (name, exit status) tuple for each failed process that is known.

        The name is "" for a process that has already printed the reason.
        """
        return []

    # Hooks for the arguments and the output folder

    def before_arguments(self, bundle: "Bundle", values: dict[str, object]) -> None:
        """Before TrainingArguments are made of ``values``: change ``values``. torch is already imported."""

    def check_checkpoint(self, path: str, world: int) -> str | None:
        """The reason why ``world`` processes cannot resume from the weights and optimizer in ``path``, or None."""
        return None

    def no_checkpoint_found(self, bundle: "Bundle", folder: str) -> None:
        """Called if there is no checkpoint to resume from. Raises RunError if a new start would overwrite a model."""

    def output_folder_locked(self, bundle: "Bundle") -> None:
        """Called on process 0, once this run has locked its output folder. Raises RunError."""

    def libraries_imported(self, bundle: "Bundle") -> None:
        """Filter harmless warnings. Called after the import of transformers and trl, because both set filters, too."""

    # Hooks for tokenizer, rows and model

    def tokenizer_loaded(self, bundle: "Bundle", tokenizer: Tokenizer) -> None:
        """After the tokenizer is loaded: change it as the bundle states. Raises RunError."""

    def source_reader(self, bundle: "Bundle", source: Source) -> Callable[..., Rows] | None:
        """The function that reads the stored rows of a source, or None for a source of the hub.

        The function gets the bundle, the source, a split name, and whether rows are streamed. It raises RunError.
        """
        return None

    def source_unreadable(self, bundle: "Bundle", reason: str, source: Source, split: str) -> str:
        """Called if a source cannot be read: return a better reason than the library's, or ``reason``."""
        return reason

    def row_format(self, bundle: "Bundle") -> RowFormat | None:
        """The functions that convert stored rows, or None. The first feature with a row format decides."""
        return None

    def row_converter(self, bundle: "Bundle", convert: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        """Return ``convert``, the ``to_row`` of the row format, unchanged or in a wrapper."""
        return convert

    def row_types(
        self, bundle: "Bundle", source: Source, stored: Rows, dropped: Sequence[str],
        make: Callable[[Any, int], dict[str, Any]],
    ) -> dict[str, object] | None:  # fmt: skip
        """Return the types of the columns of the rows that ``make`` returns; None if they should be inferred from the
        values. ``stored`` are the rows before this conversion, still with the columns ``dropped``.
        """
        return None

    def source_mapped(self, bundle: "Bundle", source: Source, rows: Rows) -> Rows:
        """After the rows of a source are converted: return these rows, or replace them by other rows."""
        return rows

    def rows_mapped(
        self, bundle: "Bundle", sets: RowSets, parts: list[Rows], load: Callable[..., Rows], tokenizer: Tokenizer
    ) -> RowSets:
        """After all sources are converted: return the training set and the evaluation set.

        ``sets`` is the pair that the previous feature returned; ``parts`` are the converted rows of each source;
        ``load(source, split)`` loads another source or split. Raises RunError.
        """
        return sets

    def truncation_limit(self, bundle: "Bundle", limit: int | None) -> int | None:
        """The length in tokens to which trl truncates a sequence, by default ``limit``; None without truncation."""
        return limit

    def token_counter(self, bundle: "Bundle", kind: type[TokenCounts]) -> type[TokenCounts]:
        """The class that counts tokens while the trainer tokenizes: a subclass of TokenCounts, or ``kind`` itself."""
        return kind

    def tokens_counted(self, bundle: "Bundle", counts: TokenCounts, prepared: Rows) -> None:
        """Correct the token counts in ``counts``. Called when the trainer has tokenized its rows into ``prepared``."""

    def local_model(self, bundle: "Bundle", model: Mapping[str, object], place: str) -> str:
        """The folder to load a local model from. By default, this is ``place``. Raises RunError if it is missing."""
        return place

    def before_model(self, bundle: "Bundle") -> None:
        """Called before the model is loaded."""

    def model_options(self, bundle: "Bundle", options: dict[str, object]) -> None:
        """Before the model is loaded: add keyword arguments of ``from_pretrained`` to ``options``."""

    def model_class(self, bundle: "Bundle", kind: ModelClass) -> ModelClass:
        """The transformers class that loads the model: ``kind``, or another class if this feature needs it."""
        return kind

    def model_loaded(self, bundle: "Bundle", model: Model, tokenizer: Tokenizer) -> None:
        """Called after a model is loaded (the trained one or a reference model), before the trainer is made."""

    # Hooks around the trainer's constructor

    def trainer_options(
        self, bundle: "Bundle", model: Model, load: Callable[[], Model], options: dict[str, Any]
    ) -> None:
        """Add arguments of the trainer's class to ``options``. ``load`` loads the model again. Raises RunError."""

    def making_trainer(
        self, bundle: "Bundle", model: Model, module: ModuleType, load: Callable[[], Model]
    ) -> AbstractContextManager[object]:
        """A context manager inside which the trainer is constructed; ``module`` is trl's module of the trainer."""
        return nullcontext()

    def trainer_made(self, bundle: "Bundle", trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Called after the trainer is constructed, to change it. Raises RunError."""

    def made(self, bundle: "Bundle", trainer: Trainer) -> Iterable[tuple[str, object, object]]:
        """Called after the trainer is constructed: return (what, the bundle's value, the trainer's value) tuples.

        If the two values of a tuple differ, the run stops.
        """
        return ()

    def before_training(self, bundle: "Bundle", trainer: Trainer) -> None:
        """Called after the rows of the trainer are counted, before it trains or loads a checkpoint. Raises RunError."""

    # Hooks during training

    def before_first_step(self, bundle: "Bundle", trainer: Trainer) -> None:
        """Called before the first step of this start, after the model is wrapped for its strategy. Raises RunError."""

    def log_line(self, bundle: "Bundle", event: Mapping[str, object]) -> str:
        """The progress line of an event other than a training step, or ""."""
        return ""

    def log_words(self, bundle: "Bundle", event: Mapping[str, object]) -> list[str]:
        """Words that follow the loss in the progress line of a training step."""
        return []

    # Hooks after training

    def before_final_save(self, bundle: "Bundle", trainer: Trainer) -> None:
        """Called before the final model is saved."""

    def final_saved(self, bundle: "Bundle", trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Called after the final model is saved."""

    def base_settings(self, bundle: "Bundle", trainer: Trainer) -> dict[str, object]:
        """Settings of the base model's configuration that changed. Code that loads the adapter must set them, too."""
        return {}

    def last_evaluation(
        self, bundle: "Bundle", metrics_path: str, state: State
    ) -> tuple[dict[str, object] | None, str] | None:
        """Return a pair for the summary: the last evaluation or None, and its lines for the terminal."""
        return None

    def finished_before(self, bundle: "Bundle") -> None:
        """Called in one process if a launch finds that an earlier launch has finished the run. Raises RunError."""

    def run_ended(self, bundle: "Bundle", trainer: Trainer, stopped: bool) -> None:
        """Called at the end, after everything is saved; ``stopped``: the run was asked to stop. Raises RunError."""


class Bundle:
    """A bundle on disk. ``folder`` is absolute; the other attributes are sections of trainer_args.json."""

    def __init__(
        self, folder: str, plan: "Payload", digest: str, pins: Mapping[str, str], features: Sequence[Feature]
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.digest = digest
        self.pins = pins
        self.features = features
        self.target = plan["target"]
        self.stack = plan["stack"]
        self.config = plan["config"]
        self.method = plan["method"]["name"]
        self.lora = plan.get("lora")
        self.conversational = False  # True once a source has rows for the chat template.
        self.repository: str | None = None  # The full name of the hub's repository, once it exists.
        self.arguments = plan["arguments"]
        self.model = plan["model"]
        self.tokenizer = plan["tokenizer"]
        self.data = plan["data"]
        self.run = plan["run"]

    @property
    def output_dir(self) -> str:
        """The absolute output folder. The bundle's path is relative to the run's working directory."""
        return os.path.abspath(str(self.arguments["output_dir"]))

    @property
    def base(self) -> str:
        """The model that training starts from, as the bundle names it: a hub id or a path."""
        return str(self.model["id"] or self.model["path"])

    @property
    def model_path(self) -> str:
        """The hub id or folder of the model that training starts from. Raises RunError for a missing folder."""
        return self.path_of(self.model)

    def path_of(self, model: Mapping[str, object]) -> str:
        """The hub id of a model, or the path of its folder. Raises RunError for a missing folder."""
        place = str(model["id"] or model["path"])
        for feature in self.features:
            place = feature.local_model(self, model, place)
        return place

    def row_format(self) -> RowFormat:
        """The functions that convert stored rows: a feature's row format, or else the default one for conversations."""
        found = (feature.row_format(self) for feature in self.features)
        return next((one for one in found if one is not None), FORMAT)

    def check_checkpoint(self, path: str, world: int) -> str | None:
        """The reason why training cannot resume from ``path``, or None. The strategy's feature decides."""
        found = (feature.check_checkpoint(path, world) for feature in self.features)
        return next((why for why in found if why is not None), None)

    def loading(self) -> dict[str, object]:
        """Arguments for loading the model, its configuration and its tokenizer: revision and trust_remote_code."""
        revision = self.model["revision"] if self.model["id"] is not None else None
        return {"revision": revision or "main", "trust_remote_code": self.model["trust_remote_code"]}

    @property
    def on_cpu(self) -> bool:
        """Whether the run stays on the CPU even on a machine with a GPU."""
        return bool(self.run["device"] == "cpu")

    def sources(self) -> "list[Source]":
        """Every source of the run, for training and evaluation."""
        sets = (self.data.get("evaluation") or {"sets": []})["sets"]
        return [*self.data["sources"], *(source for one in sets for source in one["sources"])]

    def staged_rows(self, source: Source, split: str, streaming: bool) -> Rows:
        """The rows of a hub source in $XPC_STAGED, read by the program stage.py. Raises RunError."""
        rows: Rows = self.program("stage.py").rows(source, split, streaming)
        return rows

    def program(self, name: str) -> Any:
        """The namespace of a program next to trainer/, such as result.py: `program("result.py").draw`.

        So that mypy knows the types, its callers import the program under TYPE_CHECKING.
        """
        return SimpleNamespace(**run_path(self.inside(name)))

    def inside(self, name: str) -> str:
        """The absolute path of a file of the bundle. Raises RunError for a path outside the bundle."""
        path = os.path.normpath(os.path.join(self.folder, name))
        if os.path.commonpath((path, self.folder)) != self.folder:
            raise RunError(f"{name!r} is not inside the bundle")
        return path
