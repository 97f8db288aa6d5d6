"""A model that reads images: its processor, its class, its frozen vision part, and its batches."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...core.errors import RunError, first_line, rank, say
from ...core.feature import Bundle, Feature, Model, ModelClass, Rows, Source, Tokenizer, Trainer
from ...core.rows import name
from ..rows.images import SHAPE, parts, reopened

FOLDER = "merged"
"""The subfolder of the output folder with the merged model (`merged_adapters.py`)."""
FROZEN = "visual"
"""The module that reads images and projects them to the width of the language model (Qwen2.5-VL)."""
TALKS = ("messages", "prompt", "chosen", "rejected")
"""Columns of converted rows that contain messages."""
OUTSIDE = rf"(?:.*\.)?{FROZEN}\..*"
"""A pattern for peft's ``exclude_modules``, which matches full names: modules of the vision part get no adapters."""


class Renderer:
    """Replaces ``apply_chat_template`` of a tokenizer: each `<image>` in a text becomes a part of the type image."""

    def __init__(self, tokenizer: Tokenizer, processor: Any) -> None:
        self.tokenizer, self.processor = tokenizer, processor

    def __call__(self, conversation: Any, *given: object, **options: object) -> object:
        """Call the tokenizer's `apply_chat_template` with the converted messages."""
        batch = bool(conversation) and not isinstance(conversation[0], Mapping)
        turns = [with_parts(one) for one in conversation] if batch else with_parts(conversation)
        return type(self.tokenizer).apply_chat_template(self.tokenizer, turns, *given, **options)


def with_parts(turns: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """The messages, each with its content as a list of parts."""
    return [{**turn, "content": parts(one) if isinstance(one := turn["content"], str) else one} for turn in turns]


class Processor(Feature):
    """The processor of a model that reads images: its chat template, and the number of tokens of an image."""

    def __init__(self) -> None:
        self.processor: Any = None

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Tokenizer) -> None:
        """Load the processor, whose chat template is used unless the bundle has one. Raises RunError."""
        from transformers import AutoProcessor

        try:
            self.processor = AutoProcessor.from_pretrained(bundle.model_path, **bundle.loading())
            self.processor.image_processor  # noqa: B018  # a tokenizer is returned for a folder without a processor
        except (OSError, ValueError, ImportError, AttributeError) as error:
            raise RunError(f"cannot load the processor of {bundle.model_path}: {first_line(error)}") from error
        self.processor.tokenizer = tokenizer
        if (most := bundle.data.get("max_pixels")) is not None:
            limit_pixels(self.processor.image_processor, most)
        tokenizer.chat_template = self.processor.chat_template or tokenizer.chat_template
        tokenizer.apply_chat_template = Renderer(tokenizer, self.processor)

    def first_rows_note(self, bundle: Bundle, rows: list[dict[str, Any]], tokenizer: Tokenizer) -> str:
        """A note on the tokens that the images of the first rows add."""
        added = [sum(image_tokens(self.processor, row[SHAPE])) - len(row[SHAPE]) for row in rows]
        return f"; their images add {', '.join(f'{one:,}' for one in added)} tokens" if any(added) else ""

    def source_mapped(self, bundle: Bundle, source: Source, rows: Rows) -> Rows:
        """Count the tokens of every row. Raises RunError for a row with more than `seq` tokens, because TRL does not
        cut such rows: a cut could divide an image.
        """
        if self.processor is not None and rank() == 0:
            conversations = bundle.row_format().conversations
            say(counted(self.processor, bundle.run["seq"], name(source), rows, conversations))
        return rows


class Vision(Feature):
    """Hooks for a run whose model reads images: it trains the language model, and freezes the vision part."""

    reported = False
    """Whether the frozen part was reported. dpo also loads a reference model, but the report appears only once."""

    def model_class(self, bundle: Bundle, kind: ModelClass) -> ModelClass:
        """The class of models that read images and write text."""
        from transformers import AutoModelForImageTextToText

        loader: ModelClass = AutoModelForImageTextToText
        return loader

    def model_loaded(self, bundle: Bundle, model: Model, tokenizer: Tokenizer) -> None:
        """Freeze the part that reads images, and switch the cache of keys and values off for training."""
        model.config.get_text_config().use_cache = False
        frozen = [weight for path, weight in model.named_parameters() if within(path)]
        for weight in frozen:
            weight.requires_grad_(False)
        total = sum(int(getattr(weight, "ds_numel", weight.numel())) for weight in frozen)
        if not self.reported:
            say(f"the vision tower is frozen: {total:,} weights ({FROZEN})")
        self.reported = True

    def trainer_options(self, bundle: Bundle, model: Model, load: Callable[[], Model], options: dict[str, Any]) -> None:
        """Pass the processor to the trainer in place of its tokenizer. The frozen vision part gets no adapters."""
        tokenizer = options["processing_class"]
        processor = tokenizer.apply_chat_template.processor
        processor.chat_template = tokenizer.chat_template
        options["processing_class"] = processor
        if options.get("peft_config") is not None:
            options["peft_config"].exclude_modules = OUTSIDE

    def trainer_made(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Let the trainer open the images of a batch, and exclude their tokens from the loss."""
        trainer.data_collator = ImageCollator(trainer.data_collator, tokenizer.image_token_id)

    def made(self, bundle: Bundle, trainer: Trainer) -> Iterator[tuple[str, object, object]]:
        """Compare the number of trained weights in the vision part with 0."""
        trained = [path for path, weight in trainer.model.named_parameters() if within(path) and weight.requires_grad]
        yield "the number of trained weights in the vision tower", 0, len(trained)

    def final_saved(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Save the processor next to the merged model. The trainer has already saved it next to the adapters."""
        if bundle.lora is not None and bundle.lora.get("merge") and trainer.is_world_process_zero():
            trainer.processing_class.save_pretrained(os.path.join(trainer.args.output_dir, FOLDER))


def limit_pixels(reader: Any, most: int) -> None:
    """Make an image processor scale down images with more than ``most`` pixels. The saved processor keeps this
    limit."""
    reader.size["longest_edge"] = most
    reader.size["shortest_edge"] = min(most, reader.size["shortest_edge"])


def within(path: str) -> bool:
    """Whether the weight with this full name belongs to the vision part of the model."""
    return FROZEN in path.split(".")


def image_tokens(processor: Any, images: Sequence[Mapping[str, object]]) -> list[int]:
    """The number of tokens of each image; it depends on the image's size."""
    reader = processor.image_processor
    patches = [reader.get_number_of_image_patches(one["height"], one["width"], {}) for one in images]
    return [one // reader.merge_size**2 for one in patches]


def row_tokens(processor: Any, images: Sequence[int], conversation: object) -> int:
    """The number of tokens of a conversation; ``images`` has the number of tokens of each of its images.

    In the rendered text, one placeholder token stands for an image. The processor replaces it by the image's tokens.
    """
    text = processor.tokenizer.apply_chat_template(conversation, tokenize=False)
    return len(processor.tokenizer(text, add_special_tokens=False)["input_ids"]) + sum(images) - len(images)


def counted(processor: Any, most: int, label: str, rows: Rows, conversations: Callable[[Any], list[Any]]) -> str:
    """A sentence with the numbers of images and tokens in these rows. In a pair, the prompt counts with each answer.

    Raises RunError if a conversation has more than ``most`` tokens.
    """
    images = total = of_images = 0
    long: list[tuple[int, int, int]] = []
    for number, row in enumerate(rows.remove_columns([one for one in rows.column_names if one not in (*TALKS, SHAPE)])):
        of_each = image_tokens(processor, row[SHAPE])
        lengths = [row_tokens(processor, of_each, one) for one in conversations(row)]
        many, some = max(lengths), sum(of_each)
        images, total, of_images = images + len(of_each), total + sum(lengths), of_images + some * len(lengths)
        if many > most:
            long.append((many, number, some))
    if long:
        many, number, some = max(long, key=lambda one: one[0])
        raise RunError(
            f"{label}: {len(long):,} of {len(rows):,} rows have more than seq = {most:,} tokens, such as row {number} "
            f"with {many:,} tokens ({some:,} of them for images); an image cannot be cut: write `seq = {many}`, or "
            "make the images smaller"
        )
    return f"{label}: {len(rows):,} rows with {images:,} images, {total:,} tokens, {of_images:,} of them for images"


class ImageCollator:
    """Makes a batch of rows: opens their images, and keeps the images' tokens out of the loss.

    TRL's collator would also train on the tokens of images: one special token, repeated, that no model should write.
    """

    def __init__(self, collator: Callable[[list[dict[str, Any]]], Any], token: int) -> None:
        self.collator, self.token = collator, token

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> object:
        """TRL's batch of these rows, with labels of -100 for the tokens of images. (A pair's images are in its prompt,
        which has no loss anyway.) Raises RunError for an image that can no longer be read."""
        batch = self.collator(
            [
                {**{one: with_parts(row[one]) for one in TALKS if one in row}, SHAPE: [*map(reopened, row[SHAPE])]}
                for row in rows
            ]
        )
        if "labels" in batch:
            batch["labels"][batch["input_ids"] == self.token] = -100
        return batch
