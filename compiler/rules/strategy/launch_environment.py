"""Rules about settings of `launch`: environment variables, cores, labels and mounts (XP910 to XP912, XP915 and
XP916).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from xpc.compiler.files.secrets import is_secret
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import has_value
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = has_value(
    "launch.env", "launch.cpus", "launch.extra_args", "launch.tolerations", "launch.node_selector", "launch.mounts"
)

RESERVED = (
    "PYTHON", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK",
    "GROUP_RANK", "BASH_ENV", "PATH",
)  # fmt: skip
"""Variables that `env` cannot set, because the programs that launch the run set or read them. PATH is one of these
variables: `env` would replace the machine's PATH, but a script in `setup` can extend it.
"""
RESERVED_PREFIXES = ("XPC_", "SLURM_", "PET_", "SKYPILOT_", "TORCHELASTIC_", "ACCELERATE_")
"""Prefixes of variables that `env` cannot set, because schedulers, launchers and the bundle's programs set them."""

STATED = "set by the launch itself"
OWNERS = {
    "WORLD_SIZE": "`hardware` and `nodes` decide it", "LOCAL_WORLD_SIZE": "`hardware` decides it",
    "PATH": 'a script can extend it, `setup = file("env.sh")`',
    "ACCELERATE_MIXED_PRECISION": "`precision` decides it",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "`accum` decides it", "ACCELERATE_USE_DEEPSPEED": "`strategy` decides it",
    "ACCELERATE_USE_FSDP": "`strategy` decides it", "ACCELERATE_DYNAMO_BACKEND": "`model(compile)` decides it",
}  # fmt: skip
"""Maps a variable that `env` cannot set to a phrase about the setting to use instead, such as "`precision`
decides it".
"""
STAGED = "XPC_STAGED"
"""The only variable with the reserved prefix `XPC_` that `env` may set. Its value is a folder that `launch.sh --stage`
fills; the run reads this folder instead of the hub.
"""


def variable(text: str) -> str:
    """The reason why `text` cannot be an entry NAME=VALUE of `env`, or "" if it can."""
    name, equals, value = text.partition("=")
    if not equals:
        return "no `=` after the name"
    if not name.isascii() or not name.isidentifier():
        return "a name has letters, digits and underscores"
    if not value.isprintable():
        return "the value is not one line of printable text"
    if name != STAGED and (name in RESERVED or name.startswith(RESERVED_PREFIXES)):
        return STATED
    return ""


def _instead(name: str) -> str:
    """The help for a variable that the launch sets: the setting to write instead."""
    return f"remove the variable: {OWNERS.get(name, 'the launch sets it')}"


@rule("XP910", "not-a-variable")
def variables(spec: Spec) -> Iterator[Finding]:
    """`env` must list variables as NAME=VALUE, and cannot set PATH, PYTHON, or a variable of the launcher, such as
    MASTER_ADDR. launch.sh exports the listed variables on every node. It does not expand `$` or `~` in a value.

    Why it is bad: launchers use variables such as MASTER_ADDR to connect nodes and processes. PATH and PYTHON depend on
    the machine, so with a fixed value a machine may not find its programs. A script can extend these two variables
    (`setup = file("env.sh")`).

    Without this rule: an entry without `=` sets no variable. A name that the shell refuses makes launch.sh exit. With a
    wrong MASTER_ADDR, the run hangs.

    Source: torch 2.13 `distributed/run.py`; the launch.sh that xpc writes.
    """
    seen: set[str] = set()
    for text in spec.names("launch.env"):
        name = text.partition("=")[0]
        why = variable(text) or ("stated twice" if name in seen else "")
        seen.add(name)
        if why:
            yield Finding(
                spec.location("launch.env", why),
                f"`{text[:60]}` is not a variable that a launch can set"
                if why != "stated twice"
                else f"two values of {name}",
                _instead(name) if why == STATED else 'write variables as `env = ["NCCL_DEBUG=INFO"]`',
            )


@rule("XP911", "secret-in-the-environment")
def secret(spec: Spec) -> Iterator[Finding]:
    """A variable or an option whose name is that of a secret (`HF_TOKEN`, `API_KEY`) must not be written as a literal.
    The run reads tokens from the environment in which it is launched, and on Kubernetes from the Secret that the
    setting `secret` names.

    Why it is bad: everybody on the machine can read the files of a bundle, and schedulers show the options of a job.

    Without this rule: nothing is reported.

    Source: the usual names of secrets (compiler/files/secrets.py).
    """
    for path in ("launch.env", "launch.extra_args"):
        for text in spec.names(path):
            name, _, value = text.removeprefix("--").partition("=")
            if is_secret(name, value) or (value and name.upper().endswith(("_TOKEN", "_KEY", "_PASSWORD"))):
                yield Finding(
                    spec.location(path, "the bundle would contain this value in plain text"),
                    f"`{name[:60]}` has the name of a secret",
                    "remove the value; the run reads HF_TOKEN and the like from the environment of its launch",
                )


@rule("XP915", "variable-against-the-spec", "warning")
def against_the_spec(spec: Spec) -> Iterator[Finding]:
    """A variable in `env` must not contradict another setting of the spec. CUDA_VISIBLE_DEVICES must list at least as
    many GPUs as a node has processes. WANDB_MODE=disabled and the like must not switch off the tracker that `track`
    names. WANDB_PROJECT must not name another project than `project`. NVIDIA_TF32_OVERRIDE must not contradict `tf32`.
    HF_HUB_OFFLINE=1 cannot be combined with `hub` or with rows that are streamed from the hub, TORCH_COMPILE_DISABLE=1
    not with `compile`, and NCCL_SOCKET_IFNAME=lo not with several nodes. PYTORCH_ALLOC_CONF=expandable_segments:True
    cannot be combined with vLLM's sleep mode in the training processes (`vllm(sleep=true)`).

    Why it is bad: an environment variable takes precedence over the setting that it contradicts. A process without a
    GPU makes the run fail, a tracker that is off records nothing, and a run without the hub cannot push to it.

    Without this rule: with too few GPUs in CUDA_VISIBLE_DEVICES, "CUDA error: invalid device ordinal" when the run
    starts. With WANDB_MODE=disabled nothing is reported. With WANDB_DISABLED transformers 4 says that wandb is not
    installed, and transformers 5 ignores it. With HF_HUB_OFFLINE=1 huggingface_hub raises an exception when the trainer
    is built. With NCCL_SOCKET_IFNAME=lo, the nodes wait for each other until a timeout. vLLM 0.8 and 0.10 raise an
    AssertionError for expandable segments; newer versions of vLLM check only the old name of the variable,
    PYTORCH_CUDA_ALLOC_CONF.

    Source: CUDA's documentation of its environment variables; transformers issue 39878; huggingface_hub and datasets
    `constants.py`, `config.py`; torch 2.13 `_dynamo/config.py`; vLLM pull requests 14189 and 40812; read, not run.
    """
    for text in spec.names("launch.env"):
        name, _, value = text.partition("=")
        found = _contradicted(spec, name, value)
        if found is not None:
            yield Finding(
                spec.location("launch.env", found[0]),
                f"`{text[:60]}` contradicts the spec",
                f"leave `{name}` out, or {found[1]}",
            )


def _contradicted(spec: Spec, name: str, value: str) -> tuple[str, str] | None:
    """Describe how an environment variable contradicts the spec. Returns a pair: a phrase about the contradiction, and
    the setting to write if the variable has the intended value. None if the variable agrees with the spec.
    """
    return _of_the_gpus(spec, name, value) or _of_the_hub(spec, name, value) or _of_the_tracker(spec, name, value)


OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
NAMED: tuple[tuple[Path, str], ...] = (("track.name", "name"), ("track.project", "project"))
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def _is_on(value: str) -> bool:
    return value.lower() not in ("", "0", "false", "no", "off")


def _of_the_gpus(spec: Spec, name: str, value: str) -> tuple[str, str] | None:
    """Describe how a variable about GPUs, their kernels or their network contradicts the spec; see `_contradicted`."""
    if name == "CUDA_VISIBLE_DEVICES" and spec.hardware.gpu is not None:
        visible = len([one for one in value.split(",") if one.strip() and one.strip() != "-1"])
        if visible < spec.hardware.processes:
            return (
                f"{visible} GPU{'' if visible == 1 else 's'} for {spec.hardware.processes} processes",
                f"write `hardware {max(1, visible)} x {spec.hardware.gpu.name}`",
            )
    tf32 = spec.flag("precision.tf32")
    ampere = spec.hardware.gpu is not None and spec.hardware.gpu.capability >= (8, 0)
    if name == "NVIDIA_TF32_OVERRIDE" and ampere and spec.text("precision") == "fp32" and (value == "1") is not tf32:
        return f"the spec has `tf32 = {str(tf32).lower()}`", f"write `tf32 = {str(not tf32).lower()}`"
    if name == "TORCH_COMPILE_DISABLE" and value == "1" and spec.flag("model.compile"):
        return "`compile` compiles the model", "write `compile = false`"
    if name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") and value in ("lo", "=lo") and spec.hardware.nodes > 1:
        return "a node cannot reach another node through `lo`", "name the nodes' network interface, such as `eth0`"
    if name in ALLOCATOR and "expandable_segments:true" in value.replace(" ", "").lower() and _asleep(spec):
        version = tuple(map(int, spec.stack.requirements(vllm=True)["vllm"].split(".")[:2]))
        if name == ALLOCATOR[0] or version < TOGGLES:
            return "vLLM's sleep mode cannot free expandable segments", "write `vllm(sleep=false)`"
    return None


TOGGLES = (0, 22)
"""From this version on, vLLM itself switches off expandable segments for the memory that its sleep mode frees."""


def _asleep(spec: Spec) -> bool:
    """Whether vLLM runs in the training processes and sleeps between the rounds of generation (`sleep`), so that its
    GPU memory is free.
    """
    return (
        spec.online
        and spec.flag("method.vllm")
        and spec.get("method.vllm.mode") != "server"
        and spec.flag("method.vllm.sleep")
    )


def _of_the_hub(spec: Spec, name: str, value: str) -> tuple[str, str] | None:
    """Describe how a variable about the hub, such as HF_HUB_OFFLINE, contradicts the spec; see `_contradicted`."""
    if name in OFFLINE and _is_on(value) and spec.flag("save.hub"):
        return "the run pushes to the hub", "leave `hub` out"
    read = any(source.path is None for source in spec.sources)
    if name in (*OFFLINE, "HF_DATASETS_OFFLINE") and _is_on(value) and spec.flag("data.streaming") and read:
        return "the rows are streamed from the hub", "leave `streaming` out"
    return None


def _of_the_tracker(spec: Spec, name: str, value: str) -> tuple[str, str] | None:
    """Describe how a variable of a tracker, such as WANDB_MODE, contradicts the spec; see `_contradicted`."""
    off = {
        "wandb": (name == "WANDB_DISABLED" and _is_on(value)) or (name == "WANDB_MODE" and value == "disabled"),
        "mlflow": name == "DISABLE_MLFLOW_INTEGRATION" and value.upper() == "TRUE",
        "swanlab": name == "SWANLAB_MODE" and value == "disabled",
    }
    trackers = spec.names("track")
    for tracker in off:
        if off[tracker] and tracker in trackers:
            named = [name for path, name in NAMED if spec.written(path)]
            return f"`track` names {tracker}", "write `track none`" + "".join(f" without `{one}`" for one in named)
    project = spec.get("track.project")
    if name == "WANDB_PROJECT" and "wandb" in trackers and project is not None and project != value:
        return f"the spec has `project = {project!r}`".replace("'", '"'), f'write `project = "{value[:60]}"`'
    return None


@rule("XP916", "fewer-cores-than-processes", "warning")
def few_cores(spec: Spec) -> Iterator[Finding]:
    """`cpus`, the cores of a node, must not be smaller than the number of processes on the node.

    Why it is bad: each process needs a core to start the kernels of its GPU and to read its rows.

    Without this rule: nothing is reported; the processes share the cores, and the GPUs wait.

    Source: `sbatch --cpus-per-task`; the limits of a pod.
    """
    cpus = spec.get("launch.cpus")
    if isinstance(cpus, int) and spec.written("launch.cpus") and cpus < spec.hardware.processes:
        yield Finding(
            spec.location("launch.cpus", f"{spec.hardware.processes} processes on a node"),
            f"{spec.hardware.processes} processes share {cpus} core{'' if cpus == 1 else 's'}",
            write(f"cpus = {8 * spec.hardware.processes}"),
        )


@rule("XP912", "not-of-its-shape")
def shapes(spec: Spec) -> Iterator[Finding]:
    """`tolerations`, `node_selector` and `mounts` must have the form that the scheduler reads. A toleration is
    KEY=VALUE:EFFECT or KEY:EFFECT as in kubectl, where EFFECT is NoSchedule, PreferNoSchedule or NoExecute. A node
    selector is KEY=VALUE. A mount is HOST:CONTAINER, two absolute folders, with `:ro` at the end for a read-only mount.

    Why it is bad: a scheduler cannot read a toleration, a node selector or a mount of another form.

    Without this rule: the API server refuses the pod, a pod waits for a node that does not exist, or the container is
    not started.

    Source: Kubernetes `core/v1` Toleration ("When specified, allowed values are NoSchedule, PreferNoSchedule and
    NoExecute") and "Labels and Selectors"; `srun --help` of pyxis; `apptainer exec --bind`.
    """
    for path, fault, example in (
        ("launch.tolerations", taint_fault, 'tolerations = ["nvidia.com/gpu=present:NoSchedule"]'),
        ("launch.node_selector", label_fault, 'node_selector = ["pool=a100"]'),
        ("launch.mounts", mount_fault, 'mounts = ["/data:/data:ro"]'),
    ):
        for text in spec.names(path):  # type: ignore[arg-type]
            why = fault(text)
            if why:
                yield Finding(
                    spec.location(path, why),  # type: ignore[arg-type]
                    f"`{text[:60]}` is not a legal value of `{path[7:]}`",
                    f"write `{example}`",
                )


def taint_fault(text: str) -> str:
    """The reason why `text` is not a legal taint. "" for a legal taint, such as `gpu=true:NoSchedule`."""
    taint, colon, effect = text.partition(":")
    if colon and effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        return "the effect is NoSchedule, PreferNoSchedule or NoExecute"
    key, _, value = taint.partition("=")
    return label_fault(f"{key}={value}")


def label_fault(text: str) -> str:
    """The reason why `text` is not a legal label. "" for a legal label, such as `disk=ssd`."""
    key, equals, value = text.partition("=")
    name = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
    if not equals or not re.fullmatch(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{name}", key):
        return "a key is an optional domain and slash, then at most 63 letters, digits, dots, dashes and underscores"
    if value and not re.fullmatch(name, value):
        return "a value is at most 63 letters, digits, dots, dashes and underscores"
    return ""


def mount_fault(text: str) -> str:
    """The reason why `text` is not a legal mount. "" for a legal mount, such as `/data:/data:ro`."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(one.startswith("/") for one in parts[:2]):
        return "a mount is two absolute folders with a colon between them"
    if len(parts) == 3 and parts[2] not in ("ro", "rw"):
        return "the part after the second colon is ro or rw"
    plain = all(c.isascii() and (c.isalnum() or c in "/._-+@=:") for c in text)
    return "" if plain else "a folder has only letters, digits and . _ - + @ ="
