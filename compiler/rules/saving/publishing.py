"""Pushing to the hub (XP755 to XP759)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.kinds import NEVER
from xpc.compiler.language.repository_names import fault, nearest_name
from xpc.compiler.rules.core.conditions import on
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = on("save.hub")


@rule("XP755", "folder-names-no-repository")
def folder_no_repository(spec: Spec) -> Iterator[Finding]:
    """A repository that is not named is called like the output folder, and not every folder's name is one of the hub's.

    Today: HFValidationError in the trainer's constructor, after the model is loaded and the data tokenized. Source:
    transformers 5.23 and 4.52 `Trainer.init_hf_repo`, huggingface_hub `validate_repo_id`; executed.
    """
    name = spec.text("save.hub.name")
    why = "" if spec.written("save.hub.name") else fault(name)
    if why:
        place = spec.place("save.hub", f"it would be {name!r}")
        near = f'hub = "{nearest_name(name)}"'
        yield Finding(
            place,
            f"the output folder names no repository: {why}" if name else "the output folder has no name",
            f"write `{near}`",
            (spec.label("save", "the folder"),),
            near if place.typed == "hub" else None,
        )


@rule("XP756", "repository-named-by-the-folder", "note")
def repository_by_folder(spec: Spec) -> Iterator[Finding]:
    """`hub` without a name pushes to a repository of the token's account that is called like the output folder.

    So do transformers 5.23 and 4.52 where `hub_model_id` is unset (`Trainer.init_hf_repo`), without a word.
    """
    name = spec.text("save.hub.name")
    if not spec.written("save.hub.name") and not fault(name):
        yield Finding(
            spec.place("save.hub", "whose account it is, the token decides"),
            f"no repository is named: the run pushes to `{name}`",
            f'`hub = "{name}"` states it; `hub = "me/{name}"` says whose it is',
            (spec.label("save", "the folder's name"),),
        )


@rule("XP757", "pushed-in-public", "note")
def pushed_in_public(spec: Spec) -> Iterator[Finding]:
    """A new repository is public unless it is asked to be private, or the organization makes them private.

    Everybody can load the weights from the first save on. Source: transformers 5.23 and 4.52 `hub_private_repo`,
    huggingface_hub `create_repo`. A repository that is there stays as it is.
    """
    if not spec.written("save.hub.private"):
        yield Finding(
            spec.place("save.hub"),
            "a new repository is public",
            "write `hub(private)`, or `hub(private=false)` if it may be",
        )


@rule("XP758", "only-the-end-is-pushed", "warning")
def only_the_end(spec: Spec) -> Iterator[Finding]:
    """What is pushed at each save, or of each checkpoint, is pushed never where no checkpoint is saved.

    Today, silently: `Trainer._push_from_checkpoint` is called by a save, and the end alone is pushed. Source:
    transformers 5.23 and 4.52 `Trainer._save_checkpoint`; axolotl warns of it.
    """
    if spec.amount("save.every") != NEVER:
        return
    for path in ("save.hub.strategy", "save.hub.checkpoint_branches"):
        if spec.written(path) and spec.get(path) not in ("end", False):
            yield Finding(
                spec.place(path, "never done"),
                "no checkpoint is saved: the model at the end is all that is pushed",
                "write `every = epoch`, or leave it out",
                (spec.label("save.every", "no checkpoints"),),
            )


@rule("XP759", "branches-without-weights")
def branches_without_weights(spec: Spec) -> Iterator[Finding]:
    """FSDP's sharded checkpoints hold no weights that a model can be loaded from, so their branches would have none.

    Today, silently: the branch has a configuration and a tokenizer. Source: transformers 5.23 and 4.52
    `Trainer.save_model` (nothing is written with SHARDED_STATE_DICT).
    """
    sharded = spec.sharded_by_fsdp and spec.get("strategy.state_dict") == "sharded"
    if sharded and spec.flag("save.hub.checkpoint_branches"):
        yield Finding(
            spec.place("strategy.state_dict", "shards, and no model.safetensors"),
            "checkpoints of shards leave their branches without weights",
            write("state_dict = full"),
            (spec.label("save.hub.checkpoint_branches", "a branch of each"),),
        )
