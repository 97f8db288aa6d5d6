"""A bundle that is opened for a preview: its features, its tokenizer, and trainers for chosen rows.

Rows are read, converted, rendered, tokenized, truncated and packed by the bundle's own code and by TRL. Three things
differ from a run, because a preview has no GPU, no weights and no other processes: the model is tiny, there is a single
process, and the trainer calls no reward functions.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from runpy import run_path
from typing import Any

GENERATED = 2
"""Number of tokens that the tiny model generates for a prompt."""


class Session:
    """A bundle that is opened for a preview. `trust_code` allows the tokenizer's own code to run."""

    def __init__(self, folder: str, scratch: str, trust_code: bool) -> None:
        sys.path.insert(0, folder)
        importlib.import_module("trainer")
        del sys.path[0]  # otherwise, libraries could import a file of the bundle in place of a package
        self.core: Callable[[str], Any] = lambda name: importlib.import_module(f"trainer.core.{name}")
        enabled = importlib.import_module("trainer.enabled")
        self.trainer_class = enabled.trainer_class
        self.preparing = run_path(os.path.join(folder, "prepare_rows.py"))
        """The variables of the bundle's prepare_rows.py. This program replaces models, arguments and features that need
        a GPU.
        """
        base = self.core("feature").Feature
        self.chosen = _chosen_rows(base)
        kept = [one for one in enabled.FEATURES if self.preparing["concerns_rows"](one)]
        self.bundle = self.core("bundle").read(folder, [self.chosen, *kept, self.preparing["stub_feature"]()])
        self.chosen.others = kept
        self.scratch = scratch
        self.plan = self.bundle.plan
        self._neutral(trust_code)
        self.errors = self.core("errors").RunError
        self.core("arguments").prepare_environment(self.bundle)
        self.tokenizer: Any = None

    def optional(self, name: str) -> Any:
        """Import a module of the bundle's trainer by its dotted name. None if this bundle does not have the module."""
        try:
            return importlib.import_module(f"trainer.{name}")
        except ModuleNotFoundError:
            return None

    def _neutral(self, trust_code: bool) -> None:
        run, arguments = self.bundle.run, dict(self.bundle.arguments)
        self.stated = self.bundle.arguments
        self.world = run["world_size"] // run.get("context_parallel", 1)
        off = self.preparing["OFF"]
        arguments |= {name: off[name] for name in off if name in arguments}
        for name in self.preparing["DROPPED"]:
            arguments.pop(name, None)
        arguments |= {"output_dir": self.scratch, "use_cpu": True, "report_to": [], "disable_tqdm": True}
        # The preview has one process. Its micro-batch is as large as the micro-batches of all the run's processes
        # together, so that steps and rounds of generation have the same rows as in the run.
        arguments["per_device_train_batch_size"] = run["micro"] * self.world
        for name in ("dataset_num_proc", "dataloader_num_workers"):
            if arguments.get(name):
                arguments[name] = None if name == "dataset_num_proc" else 0
        if arguments.get("dataloader_prefetch_factor"):
            arguments["dataloader_prefetch_factor"] = None
        if arguments.get("dataloader_persistent_workers"):
            arguments["dataloader_persistent_workers"] = False
        if "max_completion_length" in arguments and self.bundle.plan["method"]["generates"]:
            arguments["max_completion_length"] = GENERATED
        self.bundle.arguments = arguments
        self.bundle.data["workers"] = None
        if not trust_code:
            self.bundle.model["trust_remote_code"] = False

    def load(self) -> None:
        """Import the libraries and load the tokenizer. Raises RunError."""
        import transformers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        import datasets

        datasets.disable_caching()
        self.tokenizer = self.core("model").load_tokenizer(self.bundle)

    @property
    def method(self) -> str:
        """The name of the training method."""
        return str(self.bundle.method)

    @property
    def bears_loss(self) -> bool:
        """Whether the loss is computed for single tokens of the rows. False for reward models, and for online methods
        whose answers are all generated.
        """
        generates = self.plan["method"]["generates"] and self.generated_share == 1
        return not self.plan["method"]["scores"] and not generates

    @property
    def generated_share(self) -> float:
        """The share of the batches for which the model generates the answers. It is 1 for every online method except
        distillation, where it may be lower.
        """
        return float(self.stated.get("lmbda", 1)) if self.plan["method"]["generates"] else 0.0

    @property
    def processor(self) -> Any:
        """The processor of a model that reads images; None for other models."""
        return getattr(getattr(self.tokenizer, "apply_chat_template", None), "processor", None)

    def uncut(self, text: str, kept: Sequence[int]) -> list[int]:
        """The tokens of a prompt before truncation. `kept` are the tokens after truncation: trainers before trl 1.0 cut
        off the beginning of a long prompt.
        """
        if self.stated.get("max_prompt_length"):
            full = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
            if len(full) > len(kept) and full[len(full) - len(kept) :] == list(kept):
                return full
        return list(kept)

    def tiny_model(self) -> Any:
        """A tiny model with the vocabulary of the tokenizer. The constructors of TRL's trainers need a model."""
        return self.preparing["tiny_model"](self.bundle, self.tokenizer)

    def rows(self) -> tuple[Any, Any]:
        """The training rows and evaluation rows in trl's format, read by the bundle's own code. Raises RunError."""
        return self.core("data").build(self.bundle, self.tokenizer)  # type: ignore[no-any-return]

    def trainer(self, rows: Any) -> Any:
        """Construct trl's trainer for these rows. Its constructor tokenizes the rows. Raises RunError and
        trl's errors.
        """
        from transformers import set_seed

        arguments, trainers = self.core("arguments"), self.core("trainer")
        args = arguments.build_arguments(self.bundle)
        set_seed(args.seed)
        with _without_warnings(), self.core("truncation").watching(self.bundle):
            return trainers.build(
                self.bundle, self.trainer_class, self.tiny_model(), self.tiny_model, args=args, train_dataset=rows,
                eval_dataset=None, processing_class=self.tokenizer, callbacks=[],
            )[0]  # fmt: skip

    @contextmanager
    def only(self, source: Mapping[str, Any], numbers: Sequence[int], stored: Any) -> Any:
        """A context in which the data consists of chosen rows of one source. These rows are not mixed with others, not
        held out and not shuffled.

        `stored` are the rows as a dataset, and `numbers` their indices in the source.
        """
        data = self.bundle.data
        kept = dict(data)
        data.update(sources=[{**source, "take": None, "limit": None, "slice": None}], holdout=None, shuffle=False)
        data.update({name: None for name in ("eval_split", "evaluation") if name in data})
        if "unique" in data:
            data["unique"] = False
        self.chosen.stored, self.chosen.numbers = stored, list(numbers)
        # A mixture with shares uses the tokenizer to leave out the rows that the trainer drops. The preview hides the
        # tokenizer, so that the mixture keeps these rows and the preview can report each of them as dropped.
        drawing = [one for one in self.chosen.others if type(one).__name__ == "Shares"]
        for one in drawing:
            one.tokenizer = None
        try:
            yield
        finally:
            for one in drawing:
                one.tokenizer = self.tokenizer
            data.clear()
            data.update(kept)
            self.chosen.stored = self.chosen.numbers = None


@contextmanager
def _without_warnings() -> Any:
    """A context in which the libraries print no warnings. Their warnings would be about the tiny model and the missing
    GPU.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _chosen_rows(base: Any) -> Any:
    """Make a feature of the runtime that returns chosen rows, with their indices, instead of reading the source."""

    class ChosenRows(base):  # type: ignore[misc]  # a class of the bundle
        """A feature that replaces the reader of a source in the context of `Session.only`."""

        stored: Any = None
        numbers: list[int] | None = None
        by_source: Mapping[int, Any] | None = None
        others: Sequence[Any] = ()

        def source_reader(self, bundle: Any, source: Mapping[str, Any]) -> Callable[..., Any] | None:
            """A function that the trainer calls instead of reading the source. It returns the chosen rows."""
            found = self.stored if self.by_source is None else self.by_source.get(id(source))
            return None if found is None else lambda *_: found

        def row_converter(self, bundle: Any, convert: Callable[..., Any]) -> Callable[..., Any]:
            """Give the converter the index of each row in its source, because the converter's error messages contain
            this index.
            """
            numbers = self.numbers
            if numbers is None:
                return convert
            return lambda source, row, index, **how: convert(source, row, numbers[index], **how)

    return ChosenRows()


def isolate() -> None:
    """Remove the environment variables of an outer launch, such as RANK, and hide the GPUs."""
    for name in list(os.environ):
        if name.startswith(("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MASTER_", "TORCHELASTIC_")) or name in (
            "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK",
        ):  # fmt: skip
            del os.environ[name]
    os.environ.update(
        CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu", TOKENIZERS_PARALLELISM="false", TRL_EXPERIMENTAL_SILENCE="1",
        WANDB_MODE="disabled",
    )  # fmt: skip
