"""Pushing to the hub: checks before anything is loaded, pushes at each save, and a push at the end.

The arguments mean the same as in transformers (``push_to_hub``, ``hub_model_id``, ``hub_strategy``,
``hub_private_repo``, ``hub_always_push``), and the same files are pushed. The push is implemented here because in
transformers 4.52 and 5.23 (``Trainer._push_from_checkpoint``, ``PushInProgress``)

- a push that fails in the background is never reported,
- ``save_total_limit`` deletes a checkpoint while it is being uploaded,
- every save overwrites the weights in the output folder, although an upload may be reading them,
- 4.52 has no ``hub_revision``, and 5.23 does not create its branch.
"""

import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

from ...core import progress, signals
from ...core.errors import RunError, put, say
from ...core.fault_tolerance import FaultTolerant
from ...core.feature import Bundle, Feature, Tokenizer, Trainer
from .transformers_checkpoints import weights_complete

FOLDER = "_hub"
"""A folder in the output folder. It has hard links to files that wait to be pushed: their checkpoints can be deleted
before the push."""
PENDING = "_hub_pending"
"""A file in the output folder. It exists after the final model is saved, until the model is pushed."""
STATE = (
    "optimizer*", "scheduler.pt", "scaler.pt", "rng_state*", "*.pt", "*.pth", "global_step*", "latest",
    "zero_to_fp32.py", "pytorch_model_fsdp*",
)  # fmt: skip
"""Files that only training needs: Open-R1's ``*.pt`` and ``*.pth``, and the names that FSDP and DeepSpeed use."""
PRIVATE = ("_*", "checkpoint-*", "xpc_run.json", "summary.json", "measured.jsonl", ".tmp*")
"""Files that are not pushed: checkpoints, and files with paths of this machine."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def pushes(bundle: Bundle) -> bool:
    """Whether this run pushes to the hub."""
    return bool(bundle.arguments.get("push_to_hub"))


def _repository_name(bundle: Bundle) -> str:
    """The repository's name in the bundle. By default, it is the name of the output folder, as in transformers."""
    return str(bundle.arguments.get("hub_model_id") or os.path.basename(bundle.output_dir))


def _revision(bundle: Bundle) -> str | None:
    """The branch to push to; None for main."""
    stated = bundle.plan.get("hub")
    revision = (stated["revision"] if stated else None) or bundle.arguments.get("hub_revision")
    return None if revision in (None, "main") else str(revision)


class Hub(Feature):
    """Hooks for a run that pushes to the hub."""

    def check_access(self, bundle: Bundle) -> list[str]:
        """The reasons why this run could not push, each with a remedy. This asks the hub about the token, and changes
        nothing there."""
        if not pushes(bundle):
            return []
        repo = _repository_name(bundle)
        for name in OFFLINE:
            if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
                return [
                    f"this run pushes to {repo}, and {name}={os.environ[name]} disables the network; unset it, "
                    "or remove `hub` from the spec"
                ]
        from huggingface_hub import HfApi, constants, get_token

        if get_token() is None:
            return [
                f"this run pushes to {repo}, and no token was found; set HF_TOKEN, or log in with `hf auth login` (a "
                f"token that may write: {constants.ENDPOINT}/settings/tokens)"
            ]
        api = HfApi()
        try:
            who = api.whoami()
        except Exception as error:  # an error of huggingface_hub or of its network library
            return [_unanswered(repo, error)]
        full = repo if "/" in repo else f"{who['name']}/{repo}"
        refused = _may_not(who, full)
        if refused is not None:
            return [f"this run pushes to {full}, and {refused}"]
        return _no_entry(api, full)

    def output_folder_locked(self, bundle: Bundle) -> None:
        """Before anything is loaded, create the repository and the branch, on process 0. Raises RunError.

        Sets ``bundle.repository`` to the full name.
        """
        if not pushes(bundle):
            return
        from huggingface_hub import HfApi

        api, repo, revision = HfApi(), _repository_name(bundle), _revision(bundle)
        try:
            created = api.create_repo(repo, private=bundle.arguments.get("hub_private_repo"), exist_ok=True)
            bundle.repository = created.repo_id
            if revision is not None:
                branch(api, created.repo_id, revision)
        except Exception as error:  # an error of huggingface_hub or of its network library
            raise RunError(f"cannot create {repo} on the hub: {_line(error)}") from error
        say(f"pushing to {created}" + (f", branch {revision}" if revision else ""))

    def before_training(self, bundle: Bundle, trainer: Trainer) -> None:
        """Create a `Publisher` on process 0, and switch off transformers' own push."""
        trainer.args.push_to_hub = False
        if bundle.repository is not None:
            trainer.hub_model_id, trainer.publisher = bundle.repository, Publisher(bundle)

    def final_saved(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Record that the final model has to be pushed, because this process may be killed before the push
        has ended.
        """
        if trainer.publisher is not None:
            Path(bundle.output_dir, PENDING).touch()

    def finished_before(self, bundle: Bundle) -> None:
        """On node 0, push what the launch that finished this run has not pushed. Raises RunError."""
        pending = os.path.exists(os.path.join(bundle.output_dir, PENDING))
        if pushes(bundle) and pending and os.environ.get("NODE_RANK", "0") == "0":
            self.output_folder_locked(bundle)
            Publisher(bundle).finish()

    def run_ended(self, bundle: Bundle, trainer: Trainer, stopped: bool) -> None:
        """Finish the pushes on process 0. The other processes do not wait: an upload may take longer than ddp_timeout.

        After a stop request, the next start makes the remaining uploads, because they may take longer than the time
        left.
        """
        if trainer.publisher is None:
            return
        if stopped:
            trainer.publisher.leave()
        else:
            trainer.publisher.finish()


def _unanswered(repo: str, error: Exception) -> str:
    from huggingface_hub import constants

    if _status(error) == 401:
        return (
            f"this run pushes to {repo}, and {constants.ENDPOINT} does not know the token (it has expired, or is not "
            "complete); set another in HF_TOKEN, or log in again with `hf auth login`"
        )
    return (
        f"this run pushes to {repo}, and {constants.ENDPOINT} cannot be reached: {_line(error)}; a run needs the "
        "network during the whole training"
    )


def _may_not(who: dict[str, Any], full: str) -> str | None:
    """Why the token may not write to a repository, according to the hub's answer to `whoami-v2`; None if it may."""
    owner = full.partition("/")[0]
    token = (who.get("auth") or {}).get("accessToken") or {}
    if token.get("role") == "read":
        return "the token may only read; create one with write access, and set it in HF_TOKEN"
    organizations = {one.get("name"): one for one in who.get("orgs") or ()}
    if owner != who["name"] and owner not in organizations:
        known = ", ".join([who["name"], *organizations])
        return f"the token's account is not a member of {owner}; name a repository of {known}"
    if organizations.get(owner, {}).get("roleInOrg") == "read":
        return f"the token's account may only read in {owner}; ask for the role `write` or `contributor` there"
    scopes = (token.get("fineGrained") or {}).get("scoped") if token.get("role") == "fineGrained" else None
    names = {(one.get("entity") or {}).get("name"): one.get("permissions") or () for one in scopes or ()}
    if scopes is not None and not any("repo.write" in names.get(one, ()) for one in (owner, full)):
        return f"the token has no write access to repositories of {owner}; add this access, or create another token"
    return None


def _no_entry(api: Any, full: str) -> list[str]:
    """The findings about write access to a repository. Empty if there is no such repository, because the run creates
    it."""
    client = import_module("huggingface_hub.utils")
    try:
        url, headers = f"{api.endpoint}/api/models/{full}/auth-check/write", client.build_hf_headers()
        answer = client.get_session().get(url, headers=headers)
    except Exception as error:  # exceptions of the network library
        return [_unanswered(full, error)]
    if answer.status_code == 200:
        say(f"{full} is on the hub already: this run adds commits to it")
    if answer.status_code in (401, 403):
        return [f"this run pushes to {full}, which exists, and the token may not write to it; name another repository"]
    return []


def branch(api: Any, repository: str, name: str) -> None:
    """Create a branch if it is missing. It begins at the repository's first commit, so it is empty (as in Open-R1)."""
    first = api.list_repo_commits(repository)[-1]
    api.create_branch(repository, branch=name, revision=first.commit_id, exist_ok=True)


class PublishingTrainer(FaultTolerant):
    """Trainer methods for a run that pushes to the hub."""

    publisher: "Publisher | None" = None

    def init_hf_repo(self, *_: Any, **__: object) -> None:
        """Do nothing, because the run has already created the repository (``output_folder_locked``)."""
        self.hub_model_id, self.push_in_progress = self.args.hub_model_id, None

    def save_checkpoint(self, write: Callable[[], None]) -> None:
        """Pass a checkpoint to the `Publisher` (process 0 only), with transformers' commit message."""
        super().save_checkpoint(write)
        if self.publisher is None:
            return
        handler: object = self.callback_handler  # type: ignore[attr-defined]
        if hasattr(handler, "on_push_begin"):  # with transformers 5, a tracker may add to the model card
            handler.on_push_begin(self.args, self.state, self.control)
        steps = getattr(self.args.save_strategy, "value", self.args.save_strategy) == "steps"
        done = f"step {self.state.global_step}" if steps else f"epoch {int(self.state.epoch)}"
        folder = os.path.join(self.args.output_dir, f"checkpoint-{self.state.global_step}")
        self.publisher.saved(folder, f"Training in progress, {done}")


class Publisher:
    """Makes the pushes of a run, one after the other, in one thread of process 0. Every failure is reported."""

    def __init__(self, bundle: Bundle) -> None:
        from huggingface_hub import HfApi

        import_module("huggingface_hub.utils").disable_progress_bars()
        assert bundle.repository is not None
        self.api, self.repository, self.revision = HfApi(), bundle.repository, _revision(bundle)
        self.output_dir = bundle.output_dir
        self.strategy = str(bundle.arguments.get("hub_strategy") or "every_save")
        self.always = bool(bundle.arguments.get("hub_always_push"))
        stated = bundle.plan.get("hub")
        self.branches = bool(stated and stated["checkpoint_branches"])
        self.thread = ThreadPoolExecutor(1, "hub")
        self.jobs: list[Future[None]] = []
        self.failed: list[str] = []
        self.pushed: list[str] = []
        self._left_over()

    def leave(self) -> None:
        """End without the remaining pushes: the next start pushes the staged checkpoints."""
        self.thread.shutdown(wait=False, cancel_futures=True)
        if any(job.running() for job in self.jobs):  # a normal exit would wait until the running upload ends
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(signals.REQUEUE)

    def _left_over(self) -> None:
        """Push the checkpoints that an earlier start staged but did not push; delete everything else that it staged."""
        place = os.path.join(self.output_dir, FOLDER)
        for name in sorted(os.listdir(place)) if os.path.isdir(place) else []:
            folder = os.path.join(place, name)
            if self.branches and name.startswith("checkpoint-") and not name.endswith(".part"):
                self.jobs.append(self.thread.submit(self._save, folder, "", False))
            else:
                shutil.rmtree(folder, ignore_errors=True)

    def saved(self, checkpoint: str, message: str) -> None:
        """Push a complete checkpoint in the background; ``message`` is the commit message."""
        busy = any(not one.done() for one in self.jobs)
        model = self.strategy != "end" and (self.always or not busy)
        if not weights_complete(checkpoint):  # FSDP's checkpoints are shards; only its final model is complete
            say(f"{os.path.basename(checkpoint)} has no weights that can be loaded from the hub: not pushed")
        elif model or self.branches:
            folder = self._staged(checkpoint)
            self.jobs.append(self.thread.submit(self._save, folder, message, model))

    def _staged(self, checkpoint: str) -> str:
        """The folder with a checkpoint's files and the model card: hard links, or copies on disks without links."""
        folder = os.path.join(self.output_dir, FOLDER, os.path.basename(checkpoint))
        part = folder + ".part"
        for old in (folder, part):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(checkpoint, part, copy_function=_link)
        card, mine = os.path.join(self.output_dir, "README.md"), os.path.join(part, "README.md")
        if os.path.exists(card):  # this replaces peft's card: the hub refuses a card that names a local base model
            if os.path.exists(mine):
                os.remove(mine)
            shutil.copy(card, mine)
        os.rename(part, folder)
        return folder

    def _save(self, folder: str, message: str, model: bool) -> None:
        name = os.path.basename(folder)
        try:
            if model:
                state = ("trainer_state.json",)
                self._upload(name, folder, self.revision, message, ignore_patterns=[*STATE, *state])
            if model and self.strategy in ("checkpoint", "all_checkpoints"):
                below = "last-checkpoint" if self.strategy == "checkpoint" else name
                self._upload(name, folder, self.revision, message + ", checkpoint", path_in_repo=below)
            if self.branches:
                target = f"{self.revision or 'main'}-step-{int(name.rpartition('-')[2]):09d}"
                self._upload(name, folder, target, f"Add {target} checkpoint", new=True, ignore_patterns=list(STATE))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _upload(self, what: str, folder: str, to: str | None, message: str, new: bool = False, **more: Any) -> None:
        """Push one commit. If it fails, training continues, and the failure is reported at once and after training."""
        where = to or "main"
        try:
            if new:
                branch(self.api, self.repository, where)
            self.api.upload_folder(
                repo_id=self.repository, folder_path=folder, revision=to, commit_message=message, **more
            )
        except Exception as error:  # an error of huggingface_hub or of its network library
            self.failed.append(f"{what} to {self.repository}, branch {where}: {_line(error)}")
            say(f"not pushed: {self.failed[-1]}")
        else:
            self.pushed.append(where)

    def finish(self) -> None:
        """Wait for running pushes, then push the output folder. Raises RunError that lists everything not pushed."""
        progress.now(f"pushing to {self.repository}")
        for job in self.jobs:
            job.result()
        self.thread.shutdown()
        shutil.rmtree(os.path.join(self.output_dir, FOLDER), ignore_errors=True)
        before = len(self.failed)
        self._upload("the model", self.output_dir, self.revision, "End of training", ignore_patterns=list(PRIVATE))
        if len(self.failed) == before:
            Path(self.output_dir, PENDING).unlink(missing_ok=True)
        if self.failed:
            hint = ""
            if len(self.failed) > before:
                words = [f"hf upload {self.repository} {self.output_dir} .", *(f"--exclude '{one}'" for one in PRIVATE)]
                words += [f"--revision {self.revision}"] if self.revision else []
                hint = f"\npush the model with: {' '.join(words)}"
            text = "\n".join(f"  - {one}" for one in self.failed)
            raise RunError(f"training is done, and the weights are in {self.output_dir}; not pushed:\n{text}{hint}")
        put(f"pushed     {self.api.endpoint}/{self.repository}" + self._branches())

    def _branches(self) -> str:
        others = [one for one in dict.fromkeys(self.pushed) if one != "main"]
        return f" (branches {', '.join(others)})" if others else ""


def _link(source: str, target: str) -> str:
    """Make a hard link, or for a JSON file a copy, because some JSON files are later rewritten in place."""
    if not fnmatch(source, "*.json"):
        try:
            os.link(source, target)
            return target
        except OSError:
            pass
    return shutil.copy(source, target)


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _line(error: Exception) -> str:
    """The first three lines of an error's message, as one line. In the hub's errors, they contain the HTTP status and
    the reason.
    """
    lines = [one.strip() for one in str(error).splitlines() if one.strip()]
    text = " ".join(lines[:3]) or type(error).__name__
    return text if len(text) <= 300 else text[:300] + "..."
