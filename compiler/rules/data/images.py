"""Rules about models that read images, and rows with images (XP212 to XP219)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data.shapes import IMAGE_PAIRS, IMAGES, WITH_IMAGES, in_words
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import any_of, pictured, written
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = any_of(pictured, written("data.max_pixels"))

COLUMNS = {
    IMAGES: "a column `images` with each row's list of image paths (`[]` if it has none)",
    IMAGE_PAIRS: "the columns `prompt` and `images` to each pair; `images` is a list of paths (`[]` for none)",
}
"""Maps each format of rows with images to a phrase for messages. The phrase names the columns that a user must add to
rows of text.
"""
METHODS = {"sft": IMAGES, "dpo": IMAGE_PAIRS}
"""Maps each method that can be trained on rows with images to the format of these rows."""


@rule("XP212", "images-not-in-the-target")
def images_of_the_target(spec: Spec) -> Iterator[Finding]:
    """A model that reads images can be trained only on trl-1.16.

    Why it is bad: trl 0.24 and 0.18 prepare images in other ways, which xpc does not test.

    Without this rule: the result is not known, because trl 0.24 and 0.18 were not run with images.

    Source: trl 1.16 `sft_trainer.py` (`DataCollatorForVisionLanguageModeling`); confirmed by running it.
    """
    if spec.reads_images and spec.model.model_type not in spec.stack.facts.image_families:
        yield Finding(
            spec.model.label,
            f"`{spec.model.name[:80]}` reads images, but xpc trains only text models on {spec.stack.name}",
            f"write `target {able(lambda one: spec.model.model_type in one.facts.image_families)}`, or train a text "
            "model, such as `qwen2.5-3b`",
            (spec.label("target", "the target"),),
        )


@rule("XP213", "images-with-the-method")
def images_of_the_method(spec: Spec) -> Iterator[Finding]:
    """A model that reads images can be trained only with sft and dpo.

    Why it is bad: xpc tests only sft and dpo with images.

    Without this rule: grpo of TRL 1.16 generates with images, and the other trainers refuse a column of images.

    Source: trl 1.16 `sft_trainer.py`, `dpo_trainer.py`.
    """
    method = spec.text("method")
    if spec.reads_images and method not in METHODS:
        yield Finding(
            spec.location("method", f"{method} of a model that reads images"),
            f"`{spec.model.name[:80]}` reads images, but xpc trains only text models with {method}",
            "write `method sft` or `method dpo`, or train a text model, such as `qwen2.5-3b`",
            (spec.model.label,),
        )


@rule("XP214", "images-and-model-differ")
def images_and_model(spec: Spec) -> Iterator[Finding]:
    """A model that reads images must be trained on local rows with images (`format = images`, and for dpo `format =
    image_preference`). A model that reads only text cannot be trained on such rows. A single row may have no image: its
    list of images is then empty.

    Why it is bad: without a column of images TRL prepares the rows in another way, which xpc does not test. A text
    model cannot read images.

    Without this rule: a text model ends with ValueError ("The dataset appears to be vision-related") after the model is
    loaded.

    Source: trl 1.16 `sft_trainer.py`; confirmed by running it.
    """
    if spec.reads_images and spec.text("method") not in METHODS:
        return  # the rule XP213 already reports a method that cannot train on images
    for source in spec.sources:
        if not spec.reads_images and source.shape in WITH_IMAGES:
            if source.only or "images" not in (source.found or ()):  # the rule XP556 already reports a column `images`
                yield Finding(
                    source.label,
                    f"`{source.name[:80]}` has images, and `{spec.model.name[:80]}` reads only text",
                    f"write `format = {'messages' if source.shape == IMAGES else 'preference'}`, or train "
                    "`qwen2.5-vl-3b-instruct`",
                    (spec.model.label,),
                )
        elif spec.reads_images and source.id is not None:
            yield Finding(
                source.label,
                f"`{source.name[:80]}` is on the hub, and images are read from local rows only",
                'write the rows to a file, such as "rows.jsonl", next to a folder with their images',
                (spec.model.label,),
            )
        elif spec.reads_images and source.shape not in WITH_IMAGES:
            yield Finding(
                source.label,
                f"`{spec.model.name[:80]}` reads images, and the rows of `{source.name[:80]}` are "
                f"{in_words(source.shape)}",
                f"add {COLUMNS[METHODS[spec.text('method')]]}, or train a text model, such as `qwen2.5-3b`",
                (spec.model.label,),
            )


@rule("XP215", "images-in-joined-rows")
def images_in_joined_rows(spec: Spec) -> Iterator[Finding]:
    """Rows with images cannot be packed or flattened (`packing`, `padding_free`).

    Why it is bad: TRL joins rows that are already tokenized, but it tokenizes rows with images only when it builds a
    batch.

    Without this rule: ValueError ("Packing is not supported for vision datasets") after the model is loaded.

    Source: trl 1.16 `sft_trainer.py`; confirmed by running it.
    """
    for path in ("batch.packing", "batch.padding_free"):
        if spec.reads_images and spec.flag(path):
            yield Finding(
                spec.location(path, "rows would be joined"),
                f"rows with images cannot use `{path[6:]}`: TRL tokenizes such rows only when it builds a batch",
                f"leave `{path[6:]}` out",
                (spec.model.label,),
            )


@rule("XP216", "images-with-sharded-weights")
def images_of_shards(spec: Spec) -> Iterator[Finding]:
    """A model that reads images needs ddp, zero1 or zero2, where each process has all weights.

    Why it is bad: with zero3 and fsdp, all processes gather the weights of a layer together. A process whose batch has
    no image does not call the layers that read images, so the other processes wait forever.

    Without this rule: the run hangs at the first step in which one process has no image.

    Source: deepspeed 0.19.8 `partitioned_param_coordinator.py`, torch 2.13 `fully_shard`; transformers 5.23
    `modeling_qwen2_5_vl.py` calls the part that reads images only with `pixel_values`; read, not run.
    """
    if spec.reads_images and spec.weights_sharded:
        name = spec.text("strategy")
        yield Finding(
            spec.location("strategy", "layers are gathered by all processes"),
            f"{name} cannot train a model that reads images: a process without an image would keep the others waiting",
            write("zero2") if spec.written("strategy") else "write `strategy zero2`",
            (spec.model.label,),
        )
    if spec.reads_images and spec.context_parallel > 1:
        yield Finding(
            spec.location("strategy.context_parallel", "a row is divided between processes"),
            "rows with images cannot use `context_parallel`: an image would be divided",
            "leave `context_parallel` out",
            (spec.model.label,),
        )


LIGER = "liger-kernel 0.8.5 cannot be imported for Qwen2.5-VL"
UNREAD: dict[Path, str] = {
    "memory.liger": LIGER,
    "memory.offload_activations": "offloading was not tested with the vision tower",
    "lora.init": "`init` was not tested with image encoders, which get no adapters",
    "lora.from": "the saved adapter may be on the vision tower",
    "oft": "OFT was not tested with image encoders, which get no adapters",
    "lora.bits": "a quantized base was not tested with the vision tower",
    "freeze": "the vision tower is always frozen, and the other weights are trained",
    "model.compile": "the number of patches differs from batch to batch",
    "model.rope": "positions of Qwen2.5-VL have three axes",
    "model.tokens": "new tokens were not tested with a processor",
    "data.unique": "equal texts may have different images",
    "method.max_prompt": "the lengths of prompts are known only with their images",
    "method.precompute": "TRL computes the reference's log-probabilities in advance for texts only",
    "method.sync_reference": "updating the reference during training was not tested with images",
    "data.min_tokens": "the lengths of rows are known only with their images",
    "data.max_tokens": "the lengths of rows are known only with their images",
    "data.long": "an image cannot be cut",
    "data.prompt_template": "rows with images are conversations",
    "data.system_column": "rows with images are conversations",
    "data.omit": "the chat template of a processor writes every text and image",
    "eval.tasks": "lm-evaluation-harness would load the model as a text model",
    "optimizer.targets": "projected gradients were not tested with a frozen image encoder",
}
"""Maps each setting that cannot be used with rows with images to the reason."""


@rule("XP217", "setting-without-images", reads=tuple(UNREAD))
def setting_without_images(spec: Spec) -> Iterator[Finding]:
    """Some settings do not work with rows with images: `liger`, `freeze`, quantized bases, `unique`, and limits on the
    number of tokens, among others.

    Why it is bad: the vision part of the model, or its processor, does not support a setting such as `liger` or
    `unique`, or xpc does not test the setting with images.

    Without this rule: `liger` ends with ImportError (`LigerQwen2_5_VLCausalLMOutputWithPast`); `unique` drops rows that
    differ only in their images.

    Source: liger-kernel 0.8.5 `monkey_patch.py`, `model/qwen2_5_vl.py`; confirmed by running it.
    """
    if not spec.reads_images:
        return
    for path, why in UNREAD.items():
        value = spec.get(path)
        if value in (None, False, ()) or not spec.written(path) or (path == "data.long" and value == "cut"):
            continue
        name = path.rpartition(".")[2]
        yield Finding(
            spec.location(path, "with rows of images"),
            f"`{name}` cannot be used with rows of images: {why}",
            f"leave `{name}` out",
            (spec.model.label,),
        )


@rule("XP218", "shortest-image", "warning")
def shortest_image(spec: Spec) -> Iterator[Finding]:
    """`seq` should leave room for the tokens of an image. A photograph has hundreds of tokens, so `seq` should be at
    least 1,024. If the spec sets `max_pixels`, `seq` should instead be larger than the number of tokens of an image
    with `max_pixels` pixels.

    Why it is bad: a row with more than `seq` tokens makes the run fail, because an image cannot be cut. In Qwen2.5-VL,
    28 x 28 pixels are one token, so an image of 1,000 x 1,000 pixels has 1,296 tokens.

    Without this rule: the run counts the tokens of every row before it loads the model, and stops at a row that is too
    long.

    Source: transformers 5.23 `image_processing_qwen2_vl.py`; trl 1.16 would end a cut row with ValueError ("Mismatch in
    `image` token count between text and `input_ids`"); confirmed by running it.
    """
    seq, pixels = spec.get("batch.seq"), spec.get("data.max_pixels")
    if not spec.reads_images or not isinstance(seq, int):
        return
    if not isinstance(pixels, int) and seq < SHORT:
        side = PIXELS * int(seq**0.5)
        yield Finding(
            spec.location("batch.seq", f"{seq:,} tokens"),
            f"seq = {seq:,} leaves no room for images of more than {side:,} x {side:,} pixels",
            write(f"seq = {SHORT}"),
            (spec.model.label,),
        )
    elif isinstance(pixels, int) and pixels // PIXELS**2 >= seq:
        yield Finding(
            spec.location("data.max_pixels", f"{pixels // PIXELS**2:,} tokens"),
            f"an image of {pixels:,} pixels has as many tokens as a row may have: seq = {seq:,}",
            write(f"max_pixels = {max(4, seq // 2) * PIXELS**2}"),
            (spec.label("batch.seq", "the longest row"),),
        )


SHORT = 1024
PIXELS = 28
"""The width and the height, in pixels, of the part of an image that becomes one token (Qwen2.5-VL)."""


@rule("XP219", "pixels-of-text")
def pixels_of_text(spec: Spec) -> Iterator[Finding]:
    """`max_pixels` needs a model that reads images.

    Why it is bad: `max_pixels` scales images down, and a text model reads no images.

    Without this rule: nothing is reported, and nothing reads `max_pixels`.

    Source: the runtime's `vision.py`, which reads the setting and is part of a bundle only if the rows have images.
    """
    if spec.get("data.max_pixels") is not None and not spec.reads_images:
        yield Finding(
            spec.location("data.max_pixels", "no image is read"),
            f"`{spec.model.name[:80]}` reads only text",
            "leave `max_pixels` out, or train `qwen2.5-vl-3b-instruct` on rows with images",
            (spec.model.label,),
        )
