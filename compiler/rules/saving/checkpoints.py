"""Rules about `save` and `resume`, and about reproducible runs (XP70x)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from xpc.compiler import registry
from xpc.compiler.files.secrets import pinned
from xpc.compiler.language.kinds import NEVER
from xpc.compiler.language.launch_settings import ENGINES
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec


@rule("XP701", "remote-code-unpinned", "warning")
def remote_code_unpinned(spec: Spec) -> Iterator[Finding]:
    """A model with `trust_remote_code` must be pinned to the full hash of a commit, because a branch or a tag can be
    moved to other code. For a model in the registry, this rule only warns: transformers has classes for these models,
    and does not run the code in their repositories.

    Why it is bad: the repository's code runs on your machines, and without a commit it can change between two runs.

    Without this rule: nothing is reported; the newest commit of the branch is fetched at each start.

    Source: huggingface_hub guide "Download files" (a commit is the complete hash), transformers 5.23
    `dynamic_module_utils.py`.
    """
    model = spec.model
    if not spec.flag("model.trust_remote_code") or model.path is not None:
        return

    if not pinned(model.revision):
        yield Finding(
            spec.location("model.trust_remote_code", "the code can read your files and use your network"),
            "remote code is not pinned to a commit",
            f"write the model as `{model.id}@COMMIT` with all 40 digits, let `xpc lock --update` pin it, or leave "
            "`trust_remote_code` out",
            (spec.label("model.revision", "a branch or a tag"),),
            severity="warning" if registry.find_model(model.id or "") is not None else "error",
        )


@rule("XP702", "resume-without-state", "warning")
def resume_without_state(spec: Spec) -> Iterator[Finding]:
    """A run that can resume should save its full state (`full_state`).

    Why it is bad: a run that resumes with only the weights restarts its optimizer, schedule and random numbers.

    Without this rule: nothing is reported. In one resumed run, Adam's step counter showed 2 steps instead of 4, because
    it had started again from 0.

    Source: transformers 5.23 `trainer.py`; confirmed by running it.
    """
    if not spec.flag("save.full_state") and spec.get("save.resume") == "auto" and spec.amount("save.every") != NEVER:
        yield Finding(
            spec.location("save.full_state", "only weights are saved"),
            "a run that resumes from weights alone restarts its optimizer and schedule",
            "write `resume = never`",
        )


@rule("XP687", "rows-seen-again", "warning")
def rows_seen_again(spec: Spec) -> Iterator[Finding]:
    """A run that can resume should not set `ignore_data_skip`.

    Why it is bad: a resumed run starts again with the first rows of its epoch.

    Without this rule: nothing is reported; the first rows of the epoch are learned twice, and its last rows never.

    Source: transformers 5.23 `trainer.py` (`ignore_data_skip`); transformers issue 31044; confirmed by running it.
    """
    resumes = spec.get("save.resume") == "auto" and spec.amount("save.every") != NEVER
    if spec.extra_value("trl", "ignore_data_skip") is True and resumes:
        yield Finding(
            spec.extra_location("trl", "ignore_data_skip", "a resumed run begins its epoch again"),
            "a resumed run learns rows twice",
            "leave `ignore_data_skip` out, or write `save(resume=never)`",
        )


@rule("XP703", "keep-without-saving", "warning")
def keep_without_saving(spec: Spec) -> Iterator[Finding]:
    """`keep` needs checkpoints.

    Why it is bad: `keep` limits the number of checkpoints, so it has no effect in a run that writes none.

    Without this rule: nothing is reported; `keep` is accepted and never read.

    Source: transformers 5.23 `trainer.py` (`save_total_limit` is read where a checkpoint is saved).
    """
    if spec.written("save.keep") and spec.amount("save.every") == NEVER:
        yield Finding(
            spec.location("save.keep"),
            "`keep` does nothing: no checkpoints are saved",
            "write `every = epoch`, or leave `keep` out",
            (spec.label("save.every", "never"),),
        )


@rule("XP704", "full-determinism", "warning")
def full_determinism(spec: Spec) -> Iterator[Finding]:
    """`full_determinism` should be off. `seed` alone fixes the initial weights, dropout and the order of the rows.

    Why it is bad: with full determinism, each CUDA kernel waits until the previous one has ended, which is slow.

    Without this rule: a run takes much longer, and an operation that has no deterministic kernel raises an error at the
    step that reaches it.

    Source: transformers 5.23 and 4.52.3 `trainer_utils.py` `enable_full_determinism` (CUDA_LAUNCH_BLOCKING); confirmed
    by running it.
    """
    if spec.extra_value("trl", "full_determinism") is True:
        yield Finding(
            spec.extra_location("trl", "full_determinism", "made for debugging"),
            "`full_determinism` makes every kernel launch wait for the launch before it",
            write("full_determinism = false", "; `seed` fixes the order of the rows"),
            (spec.label("seed"),),
        )


@rule("XP705", "weights-not-safetensors", "warning")
def not_safetensors(spec: Spec) -> Iterator[Finding]:
    """Weights should be saved as safetensors. A bundle resumes only from safetensors files, because the length of such
    a file shows whether it is complete. On trl-0.18, a run can write pickled `pytorch_model.bin` files instead;
    transformers 5 no longer writes them.

    Why it is bad: a stopped run cannot resume from pickled weights.

    Without this rule: a run that is stopped has to start again from the beginning.

    Source: transformers 4.52.3 `Trainer._save`; the runtime's `checkpoints.missing`; confirmed by running it.
    """
    if spec.extra_value("trl", "save_safetensors") is False:
        yield Finding(
            spec.extra_location("trl", "save_safetensors", "pickled weights"),
            "a run cannot resume from pickled weights",
            "leave `save_safetensors` out",
            replace="save_safetensors = true",
        )


TEXTS: tuple[Path, ...] = ("save", "track.name", "track.project")
VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*\}?|\{\{[^{}]*\}\}")
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,15}:(?=/)|[A-Za-z]:(?=[/\\])")
"""Matches the beginning of an address such as `s3://bucket/run`, or of a Windows path such as `C:/run`."""
SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "usr", "var")
"""Folders of a Linux system for programs, settings and devices (Filesystem Hierarchy Standard 3.0). A run must not
write there.
"""
OPEN = ("/dev/shm", "/run/user", "/usr/scratch", "/var/scratch", "/var/tmp")
"""Folders inside system folders into which users may write."""


def _unsuitable(path: str) -> str:
    """The reason why a run must not write into the folder `path`, or ""."""
    if path.startswith("~"):
        return "a spec is not read by a shell, so the folder would be called `~`"
    location = posixpath.normpath(path)
    parts = location.strip("/").split("/")
    if location.startswith("/") and parts[0] in ("", *SYSTEM):
        return "" if location.startswith(tuple(f"{one}/" for one in OPEN)) else "a system folder"
    if f"{location}/".startswith(("/", "../")):
        hidden = next((one for one in parts if one.startswith(".") and one != ".."), None)
        return f"`{hidden}` is a hidden folder outside of the folder in which the run starts" if hidden else ""
    return ""


@rule("XP659", "save-over-a-file")
def save_over_a_file(spec: Spec) -> Iterator[Finding]:
    """The folder that `save` names must not be or contain the trained model, the teacher or the adapter that the run
    continues. It must not have the path of a data file. If it contains a data file, this rule warns, because the bundle
    has a copy of the data and may be launched elsewhere.

    Why it is bad: a run starts only in an empty folder or in its own. A folder cannot be created where a file is, and a
    run would overwrite the model that it reads.

    Without this rule: the run stops when it creates its output folder, after the bundle is submitted: FileExistsError,
    or "is not empty and contains no run of a bundle".

    Source: the runtime's `output_folder.py`.
    """
    location = posixpath.normpath(spec.text("save"))
    read = {one.path: "the trained model" if one is spec.model else "the teacher" for one in spec.models}
    read |= {spec.get("lora.from"): "the adapter that the run continues"}
    copied = {source.path: "a file of the data" for source in spec.sources}
    read |= copied
    for path, kind in read.items():
        place = posixpath.normpath(path) if isinstance(path, str) else None
        if place is None or not _contains(location, place):
            continue
        verb = "is" if place == location else "contains"
        severity = "warning" if verb == "contains" and path in copied else None
        yield Finding(
            spec.location("save", "a run starts only in an empty folder, or in its own"),
            f"`{location[:60]}` {verb} {kind}",
            'write `save "out/NAME"`',
            severity=severity,
        )
        return


def _contains(folder: str, path: str) -> bool:
    """Whether a path is the folder itself or inside of it. Both are normalized; `.` is the folder of the launch."""
    return f"{path}/".startswith(f"{folder}/") or (folder == "." and not path.startswith(("/", "../")))


@rule("XP706", "save-place")
def save_place(spec: Spec) -> Iterator[Finding]:
    """`save` must not be a system folder (`/etc`, `/usr`), a hidden folder, a path with `~` or variables, or an
    address such as `s3://bucket/run`. A hidden folder is accepted inside of the folder in which the run starts. A
    relative path begins in that folder; `../run`, which is next to it, is accepted with a note. `~` and variables are
    refused because only a shell expands them. To keep checkpoints in a bucket, mount it: `launch
    sky(volume="s3://bucket")`.

    Why it is bad: a run writes gigabytes into `save`, deletes old checkpoints there and leaves it readable for others.
    A spec may come from somebody else, and `../../.ssh` contains keys.

    Without this rule: the run creates the folder that `save` names and writes into it, wherever its permissions allow.
    With `s3://bucket/run` it creates the folders `s3:` and `bucket`, and nothing reaches the bucket.

    Source: Filesystem Hierarchy Standard 3.0; runtime/core/bundle.py `output_dir`.
    """
    address = ADDRESS.match(spec.text("save"))
    why = _unsuitable(spec.text("save"))
    if address is not None:
        name = re.split(r"[/\\]", spec.text("save").rstrip("/\\"))[-1] or "run"
        yield Finding(
            spec.location("save", f"the folder would be called `{address[0]}`"),
            "`save` names no folder of the training machine",
            f'write `save "out/{name}"`',
            replace=f'"out/{name}"',
            # a path such as `C:\runs` only gets a warning, because Linux allows a folder of this name
            severity=None if address.string[address.end()] == "/" else "warning",
        )
    elif why:
        yield Finding(
            spec.location("save", why),
            "`save` names a folder into which a run must not write",
            'write `save "out/NAME"`',
        )
    elif f"{(location := posixpath.normpath(spec.text('save')))}/".startswith("../"):
        yield Finding(
            spec.location("save", "relative to the folder in which the run starts"),
            f"the run writes outside of the folder in which it starts, into `{location}`",
            'write `save "out/NAME"` for a folder inside of it, or the complete path',
            severity="note",
        )
    for path in TEXTS:
        variable = VARIABLE.search(str(spec.get(path) or ""))
        if variable is not None and spec.written(path):
            yield Finding(
                spec.location(path, "a spec is not read by a shell"),
                f"`{variable[0]}` is not replaced: a spec has no variables",
                f"write its value, or leave `{variable[0]}` out",
                severity="warning",
            )


OWN = ("/tmp", "/var/tmp", "/dev/shm")
"""Folders that are local to a machine. A scheduler often deletes their contents after a job."""


@rule("XP712", "folder-of-one-machine", "warning")
def folder_of_one_machine(spec: Spec) -> Iterator[Finding]:
    """A run on several nodes, or on a cluster, should save in a folder that all its machines share. `/tmp`, `/var/tmp`
    and `/dev/shm` exist on each machine separately.

    Why it is bad: process 0 writes the model to a folder of its own machine, and the scheduler may delete this folder
    at the end of the job. A restarted job may get other machines and then finds no checkpoint.

    Without this rule: nothing is reported. The run starts anew after a restart, or its model is lost.

    Source: Filesystem Hierarchy Standard 3.0 (`/tmp`); Slurm's plugin job_container/tmpfs; read, not run.
    """
    folder = posixpath.normpath(spec.text("save"))
    inside = next((folder[len(one) :].strip("/") for one in OWN if f"{folder}/".startswith(f"{one}/")), None)
    several = spec.hardware.nodes > 1
    if inside is not None and (several or spec.get("launch") != ENGINES[0]):
        yield Finding(
            spec.location("save", "each machine has its own folder of this name"),
            "the machines of the run share no output folder",
            f'write `save "out/{inside or "run"}"`, or another folder that all machines share',
            (spec.label("nodes") if several else spec.label("launch"),),
            f'"out/{inside or "run"}"',
        )


@rule("XP707", "nothing-to-merge")
def nothing_to_merge(spec: Spec) -> Iterator[Finding]:
    """`merge` needs adapters.

    Why it is bad: `merge` adds the adapters to the base's weights, so without adapters it does nothing.

    Without this rule: nothing is reported, and nothing reads `merge`.

    Source: the runtime, which reads the setting only for adapters.
    """
    if spec.flag("save.merge") and not spec.lora:
        yield Finding(spec.location("save.merge"), "`merge` does nothing without adapters", "leave `merge` out")


@rule("XP708", "merge-of-parts")
def merge_of_parts(spec: Spec) -> Iterator[Finding]:
    """`merge` cannot be used under ZeRO-3 or FSDP, nor with a quantized base.

    Why it is bad: under ZeRO-3 and FSDP no process has all weights, so none can merge. A base of 4 or 8 bits has to be
    quantized again after merging, and the result is not the trained model.

    Without this rule: under ZeRO-3 and FSDP, RuntimeError about the shapes of weights; with a quantized base, nothing
    is reported, and the merged model computes other logits than the trained one.

    Source: peft 0.21 and 0.17 `tuners/lora/layer.py`, `tuners/lora/bnb.py` (`merge` dequantizes, adds, and quantizes);
    confirmed by running it.
    """
    if not spec.flag("save.merge") or not spec.lora:
        return
    location = spec.location("save.merge", "needs unquantized weights")
    if spec.bits is not None:
        yield Finding(
            location,
            f"adapters cannot be merged into a base of {spec.bits} bits",
            "leave `merge` out"
            # LoftQ's adapter belongs to the quantized base, whose rounding errors it corrects
            if spec.get("lora.init") == "loftq"
            else "leave `merge` out, and merge the adapters into the unquantized model later if that is good enough",
            (spec.label("qlora" if spec.flag("qlora") else "lora.bits", "the base"),),
        )
    elif spec.weights_sharded:
        yield Finding(
            spec.location("strategy", "shards the weights"),
            f"`merge` needs all weights in one process, and {spec.text('strategy')} shards them",
            write("zero2"),
            (spec.label("save.merge", "set here"),),
        )
