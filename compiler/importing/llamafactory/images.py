"""Import LLaMA-Factory's files that train on images: Qwen2.5-VL with conversations or preference pairs.

LLaMA-Factory freezes the vision tower and its projection by default; a run of a spec always freezes them. Source:
LLaMA-Factory 0.9.5, hparams/finetuning_args.py, hparams/model_args.py (`ProcessorArguments`), data/converter.py
(`_find_medias`), data/mm_plugin.py (`_preprocess_image`).
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.data.shapes import IMAGE_PAIRS, IMAGES, SHAPES
from xpc.compiler.importing import families, local_model
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.llamafactory.keys import MEDIA
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, integer, is_on, is_stated, text
from xpc.compiler.registry.types import IMAGE_FAMILIES
from xpc.runtime.core.row_names import ROLES

MOST, LEAST = 768 * 768, 4 * 28 * 28
"""Pixels of an image: LLaMA-Factory scales larger images down to MOST by default, and Qwen2.5-VL's processor scales
smaller images up to LEAST.
"""
TEMPLATE = "qwen2_vl"
"""The template of LLaMA-Factory that renders conversations like Qwen2.5-VL's own template."""
FROZEN = ("freeze_vision_tower", "freeze_multi_modal_projector")
TAGS = {"user_tag": ("human", "user"), "assistant_tag": ("gpt", "assistant"), "system_tag": ("system", "system")}
"""Maps the key that names a speaker to its default and the speaker's role: `user_tag` to ("human", "user")."""
BY_HAND = "write the rows as docs/data.md shows them"


def reads_images(draft: Draft) -> bool:
    """Whether the model reads images."""
    return bool(draft.model) and families.kind_of(draft) in IMAGE_FAMILIES


def keys(draft: Draft, named: Entries, stage: str, overrides: Overrides) -> None:
    """Import the keys about images. For a model that reads only text, they have no effect."""
    for key in ("freeze_language_model", "train_mm_proj_only"):
        if key in named and not named[key].off:
            draft.error(named[key], "a run of a spec always trains the language model", "leave it out")
        else:
            draft.note(named.get(key), "it is off")
    if not reads_images(draft):
        known = local_model.registered(draft.model, overrides) is not None
        for key in (*MEDIA, *FROZEN, "media_dir"):
            entry = named.get(key)
            if not is_on(entry) or known or key in (*FROZEN, "media_dir"):
                draft.note(entry, "the model reads only text")
            else:
                draft.error(entry, "of the models that read images, xpc imports only Qwen2.5-VL", "leave it out")
        return
    if stage not in ("sft", "dpo"):
        draft.error(named.get("stage") or next(iter(named.values())), f"xpc does not import `stage: {stage}` of models "
                    "that read images: a spec trains them by sft or dpo", "write the spec by hand")  # fmt: skip
    for key in FROZEN:
        if key in named and boolean(named[key]) is False:
            draft.error(named[key], "a bundle never trains the vision tower and its projection", f"write `{key}: true`")
        else:
            draft.note(named.get(key), "a bundle always freezes the vision tower and its projection")
    _pixels(draft, named)
    for key in MEDIA[2:]:
        draft.note(named.get(key), "only videos, sound, or other models need it")


def _pixels(draft: Draft, named: Entries) -> None:
    entry, least = named.get("image_max_pixels"), named.get("image_min_pixels")
    most = integer(entry) if is_stated(entry) else MOST
    if most is None or most < 1:
        draft.error(entry or least, "the value must be a number of pixels")
        return
    draft.put("data.max_pixels", most, entry, "LLaMA-Factory's default" if entry is None else "")
    draft.differs(
        "image_max_pixels",
        "LLaMA-Factory scales an image down before the processor rounds its sides to multiples of 28; in the spec, "
        "the processor does both, which may differ by one row or column of patches",
    )
    enlarged = f"the processor enlarges every image below {LEAST:,} pixels to this size"
    if is_stated(least) and (integer(least) or 0) > LEAST:
        draft.error(least, f"{enlarged}, and a spec cannot set another minimum", "leave it out")
    else:
        draft.note(least, enlarged)


def template(draft: Draft, entry: Entry | None) -> None:
    """Import the chat template. For rows with images, it must be TEMPLATE, which renders conversations like the model's
    own template.
    """
    if is_stated(entry) and text(entry) != TEMPLATE:
        draft.error(
            entry, "a spec renders conversations with images with the model's own template", f"write `{TEMPLATE}`"
        )
    else:
        draft.note(entry, "it renders conversations like the model's own template")


def shape(draft: Draft, entry: Entry, name: str, named: Mapping[str, str], tags: Mapping[str, str], form: str,
          ranking: bool) -> tuple[str, tuple[str, ...]] | None:  # fmt: skip
    """The row format of a dataset with images, and its columns. Reports an error and returns None if a spec cannot read
    the rows.
    """
    why = ""
    by_role = tags.get("role_tag", "from") == "role"
    if "images" not in named:
        why = f"`{name}` has no column of images, which every row for a model that reads images needs"
    elif form == "alpaca" and (not ranking or "query" in named):
        why = f"`{name}` has instructions with images; with images, a spec reads only conversations or preference pairs"
    elif form != "alpaca" and any(
        (tag if by_role else ROLES.get(tag, tag)) != role
        for tag, role in ((tags.get(key, usual), role) for key, (usual, role) in TAGS.items())
    ):
        why = f"`{name}` has names of speakers that a run does not know in rows with images"
    if why:
        draft.error(entry, why, BY_HAND)
        return None
    columns: tuple[str, ...] = (named.get("messages", "conversations"), named["images"])
    if ranking:
        question = named.get("prompt", "instruction") if form == "alpaca" else named.get("messages", "conversations")
        columns = (question, named.get("chosen", "chosen"), named.get("rejected", "rejected"), named["images"])
    kind = IMAGE_PAIRS if ranking else IMAGES
    return kind, () if columns == SHAPES[kind] else columns


def place(draft: Draft, media: Entry | None, folder: str) -> None:
    """Import `media_dir`, the folder of the images. Any other folder than that of the file with the rows is an error,
    because in a spec, the paths of images are relative to that file.
    """
    if not reads_images(draft):
        return
    stated = (text(media) or "").rstrip("/") if is_stated(media) else None
    if stated is not None and stated != folder.rstrip("/"):
        draft.error(media, "in a spec, the paths of images are relative to the file with the rows",
                    f"move the images to `{folder}`, and write this folder here")  # fmt: skip
    else:
        draft.note(media, "paths of images are relative to the file with the rows")
