"""Rules for pushing to the hub (XP755 to XP759)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.kinds import NEVER
from xpc.compiler.language.repository_names import fault, nearest_name
from xpc.compiler.language.schema import children
from xpc.compiler.language.typed import show
from xpc.compiler.rules.core.conditions import enabled
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = enabled("save.hub")
HUB = tuple(children("save.hub"))
"""The settings of `hub`."""


@rule("XP755", "folder-names-no-repository")
def folder_no_repository(spec: Spec) -> Iterator[Finding]:
    """If `hub` does not name a repository, the name of the output folder must be a legal name of a repository.

    Why it is bad: without a name in `hub`, the repository gets the name of the output folder.

    Without this rule: HFValidationError in the trainer's constructor, after the model is loaded and the data tokenized.

    Source: transformers 5.23 and 4.52 `Trainer.init_hf_repo`, huggingface_hub `validate_repo_id`; confirmed by running
    it.
    """
    name = spec.text("save.hub.name")
    why = "" if spec.written("save.hub.name") else fault(name)
    if why:
        location = spec.location("save.hub", f"the repository would be {name!r}")
        near = f'hub = "{nearest_name(name)}"'
        yield Finding(
            location,
            f"the output folder's name is not a repository name: {why}" if name else "the output folder has no name",
            f"write `{near}`",
            (spec.label("save", "the folder"),),
            near if location.typed == "hub" else None,
        )


@rule("XP756", "repository-named-by-the-folder", "note")
def repository_by_folder(spec: Spec) -> Iterator[Finding]:
    """`hub` should name the repository to which the run pushes.

    Why it is bad: if `hub` names no repository, the run pushes to the account of the token, into a repository with the
    name of the output folder.

    Without this rule: nothing is reported.

    Source: transformers 5.23 and 4.52 `Trainer.init_hf_repo`, which uses the folder's name if `hub_model_id` is unset.
    """
    name = spec.text("save.hub.name")
    if not spec.written("save.hub.name") and not fault(name):
        yield Finding(
            spec.location("save.hub", "the token decides the account"),
            f"no repository is named: the run pushes to `{name}`",
            f'write `hub = "{name}"`, or `hub = "me/{name}"` to name the account as well',
            (spec.label("save", "the folder's name"),),
        )


@rule("XP757", "pushed-in-public", "note", reads=tuple(one.path for one in HUB))
def pushed_in_public(spec: Spec) -> Iterator[Finding]:
    """`hub` should state whether a new repository is private. A repository that exists keeps its visibility.

    Why it is bad: everybody can load the weights of a public repository from the first save on.

    Without this rule: a new repository is public, unless the organization makes its repositories private.

    Source: transformers 5.23 and 4.52 `hub_private_repo`, huggingface_hub `create_repo`.
    """
    if not spec.written("save.hub.private"):
        rows = [one for one in HUB if one.name != "name" and spec.written(one.path)]
        stated = "".join(f", {one.name}={show(one, spec.get(one.path))}".removesuffix("=true") for one in rows)
        form = f'hub(name="{nearest_name(spec.text("save.hub.name"))}"{stated}, private'
        yield Finding(
            spec.location("save.hub"),
            "a new repository is public",
            f"write `{form})`, or `private=false` if it may be public",
        )


@rule("XP758", "only-the-end-is-pushed", "warning")
def only_the_end(spec: Spec) -> Iterator[Finding]:
    """A run that pushes at each save, or that pushes each checkpoint to its own branch, must save checkpoints.

    Why it is bad: without checkpoints, only the final model is pushed.

    Without this rule: nothing is reported; `Trainer._push_from_checkpoint` is called only when a checkpoint is saved.

    Source: transformers 5.23 and 4.52 `Trainer._save_checkpoint`; axolotl warns about such runs.
    """
    if spec.amount("save.every") != NEVER:
        return
    for path in ("save.hub.strategy", "save.hub.checkpoint_branches"):
        if spec.written(path) and spec.get(path) not in ("end", False):
            yield Finding(
                spec.location(path, "has no effect"),
                "no checkpoints are saved, so only the model at the end is pushed",
                f"write `every = epoch`, or leave `{path.rpartition('.')[2]}` out",
                (spec.label("save.every", "no checkpoints"),),
            )


@rule("XP759", "branches-without-weights")
def branches_without_weights(spec: Spec) -> Iterator[Finding]:
    """`checkpoint_branches` cannot be used with FSDP's sharded checkpoints.

    Why it is bad: a sharded checkpoint has no model.safetensors, so no model can be loaded from its branch.

    Without this rule: nothing is reported; a branch contains a configuration and a tokenizer, but no weights.

    Source: transformers 5.23 and 4.52 `Trainer.save_model`, which writes no model with SHARDED_STATE_DICT.
    """
    sharded = spec.sharded_by_fsdp and spec.get("strategy.state_dict") == "sharded"
    if sharded and spec.flag("save.hub.checkpoint_branches"):
        yield Finding(
            spec.location("strategy.state_dict", "writes shards and no model.safetensors"),
            "the branch of a sharded checkpoint contains no weights",
            write("state_dict = full"),
            (spec.label("save.hub.checkpoint_branches", "a branch for each checkpoint"),),
        )
