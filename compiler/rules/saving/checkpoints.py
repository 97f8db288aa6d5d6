"""Saving and reproducibility (XP70x)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from xpc.compiler import registry
from xpc.compiler.language.kinds import NEVER
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec


@rule("XP701", "remote-code-unpinned", "warning")
def remote_code_unpinned(spec: Spec) -> Iterator[Finding]:
    """Code that comes with a model runs on your machines; without a commit it can change between two runs.

    A branch and a tag can be moved, and the hub takes no shortened commit. It is an error for a model that is not in
    the registry, whose code nobody here has looked at. A model of the registry has its classes in transformers, and
    runs no code of its own unless somebody adds some: a warning. Today the newest commit of the branch is fetched at
    each start, and nothing is said. Source: huggingface_hub guide "Download files" (a commit is the whole hash),
    transformers 5.23 `dynamic_module_utils.py`.
    """
    model = spec.model
    if not spec.flag("model.trust_remote_code") or model.path is not None:
        return
    from xpc.compiler.files.secrets import pinned

    if not pinned(model.revision):
        yield Finding(
            spec.place("model.trust_remote_code", "runs with your files and your network"),
            "remote code of no fixed commit",
            f"write the model as `{model.id}@COMMIT`, all 40 digits of it, or leave `trust_remote_code` out",
            (spec.label("model.revision", "a branch or a tag"),),
            severity="warning" if registry.find_model(model.id or "") is not None else "error",
        )


@rule("XP702", "resume-without-state", "warning")
def resume_without_state(spec: Spec) -> Iterator[Finding]:
    """Without the full state a resumed run starts its optimizer, schedule and random numbers afresh, silently.

    Source: transformers 5.23 `trainer.py`; executed (Adam's step counter was 2 instead of 4).
    """
    if not spec.flag("save.full_state") and spec.get("save.resume") == "auto" and spec.amount("save.every") != NEVER:
        yield Finding(
            spec.place("save.full_state", "nothing to resume from but weights"),
            "a run resumed from weights alone is not the same run",
            "write `resume = never`",
        )


@rule("XP703", "keep-without-saving", "warning")
def keep_without_saving(spec: Spec) -> Iterator[Finding]:
    """`keep` limits checkpoints, and none is written.

    The argument is accepted and never read: nothing is said today.
    """
    if spec.written("save.keep") and spec.amount("save.every") == NEVER:
        yield Finding(
            spec.place("save.keep"),
            "`keep` without checkpoints",
            "write `every = epoch`, or leave `keep` out",
            (spec.label("save.every", "never"),),
        )


@rule("XP704", "full-determinism", "warning")
def full_determinism(spec: Spec) -> Iterator[Finding]:
    """Full determinism also makes every kernel launch wait for the one before, so that a run takes much longer.

    It chooses deterministic kernels, and an operation that has none is an error at the step that reaches it. `seed`
    alone fixes weights, dropout and the order of the rows. Source: transformers 5.23 and 4.52.3 `trainer_utils.py`
    `enable_full_determinism` (CUDA_LAUNCH_BLOCKING); executed.
    """
    if spec.extra_value("trl", "full_determinism") is True:
        yield Finding(
            spec.extra_place("trl", "full_determinism", "debugging"),
            "every kernel launch waits for the one before",
            write("full_determinism = false", "; `seed` fixes the order of the rows"),
            (spec.label("seed"),),
        )


@rule("XP705", "weights-not-safetensors", "warning")
def not_safetensors(spec: Spec) -> Iterator[Finding]:
    """A bundle goes on from checkpoints whose weights are safetensors, the one format whose length tells it is whole.

    trl-0.18 can write pickled `pytorch_model.bin` files instead; a run of ddp that is stopped then begins anew.
    transformers 5 has dropped them. Source: transformers 4.52.3 `Trainer._save`; the runtime's
    `checkpoints.missing`; executed.
    """
    if spec.extra_value("trl", "save_safetensors") is False:
        yield Finding(
            spec.extra_place("trl", "save_safetensors", "pickled weights"),
            "nothing can be resumed from pickled weights",
            "leave `save_safetensors` out",
            replace="save_safetensors = true",
        )


TEXTS: tuple[Path, ...] = ("save", "track.name", "track.project")
VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*\}?|\{\{[^{}]*\}\}")
SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "usr", "var")
"""Folders of a Linux system that hold programs, settings and devices (Filesystem Hierarchy Standard 3.0)."""
OPEN = ("/dev/shm", "/run/user", "/usr/scratch", "/var/scratch", "/var/tmp")
"""Folders in them that are there to be written to."""


def _no_place(path: str) -> str:
    """What speaks against writing a run into a folder, or nothing."""
    if path.startswith("~"):
        return "no shell reads it: the folder would be called `~`"
    place = posixpath.normpath(path)
    parts = place.strip("/").split("/")
    if place.startswith("/") and parts[0] in ("", *SYSTEM):
        return "" if place.startswith(tuple(f"{one}/" for one in OPEN)) else "a folder of the system"
    if place.startswith(("/", "../")):
        hidden = next((one for one in parts if one.startswith(".") and one != ".."), None)
        return f"`{hidden}` is hidden, and does not lie in the folder of the launch" if hidden else ""
    return ""


@rule("XP706", "save-place")
def save_place(spec: Spec) -> Iterator[Finding]:
    """A run writes gigabytes into `save`, deletes old checkpoints there, and leaves it readable for others.

    So it is no folder of the system (`/etc`, `/usr`), and no hidden one outside of the folder of the launch: a spec may
    come from somebody else, and `../../.ssh` is where keys lie. `~` is the shell's word, and no shell reads a spec.
    Today the folder is made, and what can be written is written. Source: Filesystem Hierarchy Standard 3.0;
    runtime/core/bundle.py `output_dir`.
    """
    why = _no_place(spec.text("save"))
    if why:
        yield Finding(spec.place("save", why), "`save` names a place that is not for runs", 'write `save "out/NAME"`')
    for path in TEXTS:
        variable = VARIABLE.search(str(spec.get(path) or ""))
        if variable is not None and spec.written(path):
            yield Finding(
                spec.place(path, "no shell reads it"),
                f"`{variable[0]}` stays as it is written: a spec has no variables",
                f"write what it stands for, or leave `{variable[0]}` out",
                severity="warning",
            )


@rule("XP707", "nothing-to-merge")
def nothing_to_merge(spec: Spec) -> Iterator[Finding]:
    """`merge` folds adapters into their base. Without adapters the saved model is whole already.

    Nothing reads the setting without adapters: the runtime asks the adapter's section for it.
    """
    if spec.flag("save.merge") and not spec.lora:
        yield Finding(spec.place("save.merge", "nothing to merge"), "`merge` without adapters", "leave `merge` out")


@rule("XP708", "merge-of-parts")
def merge_of_parts(spec: Spec) -> Iterator[Finding]:
    """Adapters are merged in the memory of one process, from whole weights in the type that they were loaded in.

    Under ZeRO-3 and FSDP no process has them, and a quantized base has lost them: what is merged and rounded to 4 or 8
    bits again is another model than the one that was trained. Today: RuntimeError for shapes that differ, or, in
    silence, other logits. Source: peft 0.21 and 0.17 `tuners/lora/layer.py`, `tuners/lora/bnb.py` (`merge` dequantizes,
    adds, and quantizes); executed.
    """
    if not spec.flag("save.merge") or not spec.lora:
        return
    place = spec.place("save.merge", "needs whole weights")
    if spec.bits is not None:
        yield Finding(
            place,
            f"a base of {spec.bits} bits is not merged",
            "leave `merge` out, and merge the adapters into the unquantized model where that is good enough",
            (spec.label("qlora" if spec.flag("qlora") else "lora.bits", "the base"),),
        )
    elif spec.weights_sharded:
        yield Finding(
            spec.place("strategy", "spreads the weights"),
            f"no process has the whole weights under {spec.text('strategy')}, and `merge` needs them",
            write("zero2"),
            (spec.label("save.merge", "asked for here"),),
        )
