"""What `launch` says of the environment of a run (XP910 to XP912)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.files.secrets import is_secret
from xpc.compiler.rules.core.conditions import given
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = given("launch.env", "launch.extra_args", "launch.tolerations", "launch.node_selector", "launch.mounts")

OURS = (
    "PYTHON", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK",
    "GROUP_RANK", "BASH_ENV", "PATH",
)  # fmt: skip
"""Variables that the launch sets or reads itself, and PATH, which `setup` can extend and a literal would replace."""
PREFIXES = ("XPC_", "SLURM_", "PET_", "SKYPILOT_", "TORCHELASTIC_", "ACCELERATE_")
"""Variables of the schedulers, the launchers and the bundle's own programs."""

STAGED = "XPC_STAGED"
"""The one of these that is the user's to set: a folder that `launch.sh --stage` has filled."""


def variable(text: str) -> str:
    """Why `text` is no NAME=VALUE for an environment, or nothing."""
    name, equals, value = text.partition("=")
    if not equals:
        return "no `=` after the name"
    if not name.isascii() or not name.isidentifier():
        return "a name has letters, digits and underscores"
    if not value.isprintable():
        return "the value is no line of text"
    if name != STAGED and (name in OURS or name.startswith(PREFIXES)):
        return "set by the launch itself"
    return ""


@rule("XP910", "not-a-variable")
def variables(spec: Spec) -> Iterator[Finding]:
    """`env` lists variables as NAME=VALUE, and launch.sh exports them on every node before anything else.

    A value is a literal: nothing in it is expanded. Variables by which nodes and processes find each other are set by
    the launch, PYTHON and PATH belong to the machine: `setup = file("env.sh")` may change those. Today: a text without
    `=` is no variable, a name that the shell does not take ends launch.sh, and another MASTER_ADDR hangs the run.
    Source: torch 2.13 `distributed/run.py`; the script that is emitted.
    """
    seen: set[str] = set()
    for text in spec.names("launch.env"):
        name = text.partition("=")[0]
        why = variable(text) or ("stated twice" if name in seen else "")
        seen.add(name)
        if why:
            yield Finding(
                spec.place("launch.env", why),
                f"`{text[:60]}` is not a variable that a launch can set"
                if why != "stated twice"
                else f"two values of {name}",
                'write variables as `env = ["NCCL_DEBUG=INFO"]`',
            )


@rule("XP911", "secret-in-the-environment")
def secret(spec: Spec) -> Iterator[Finding]:
    """A variable whose name ends as secrets do (`HF_TOKEN`, `API_KEY`), or an option of such a name, has no literal.

    A bundle is made to be shown: its files can be read by everybody on the machine, and schedulers show the options of
    a job. Tokens come from the environment of the launch, on Kubernetes from `secret`. Nothing is said today.
    """
    for path in ("launch.env", "launch.extra_args"):
        for text in spec.names(path):
            name, _, value = text.removeprefix("--").partition("=")
            if is_secret(name, value) or (value and name.upper().endswith(("_TOKEN", "_KEY", "_PASSWORD"))):
                yield Finding(
                    spec.place(path, "its value would stand in the bundle"),
                    f"`{name[:60]}` is the name of a secret",
                    "take it out; the run reads HF_TOKEN and the like from the environment of its launch",
                )


@rule("XP912", "not-of-its-shape")
def shapes(spec: Spec) -> Iterator[Finding]:
    """Taints are KEY=VALUE:EFFECT or KEY:EFFECT as kubectl writes them, labels KEY=VALUE, mounts HOST:CONTAINER.

    Effects are NoSchedule, PreferNoSchedule and NoExecute; of a mount both folders are absolute, and `:ro` makes it
    readable only. Today: the API server refuses the pod, a pod waits for a node that nobody has, or the container
    is not started. Source: Kubernetes `core/v1` Toleration ("When specified, allowed values are NoSchedule,
    PreferNoSchedule and NoExecute") and "Labels and Selectors"; `srun --help` of pyxis; `apptainer exec --bind`.
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
                    spec.place(path, why),  # type: ignore[arg-type]
                    f"`{text[:60]}` does not fit into `{path[7:]}`",
                    f"write `{example}`",
                )


def taint_fault(text: str) -> str:
    """Why `text` is no taint, or nothing."""
    taint, colon, effect = text.partition(":")
    if colon and effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        return "the effect is NoSchedule, PreferNoSchedule or NoExecute"
    key, _, value = taint.partition("=")
    return label_fault(f"{key}={value}")


def label_fault(text: str) -> str:
    """Why `text` is no label with a value, or nothing."""
    import re

    key, equals, value = text.partition("=")
    name = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
    if not equals or not re.fullmatch(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{name}", key):
        return "a key has letters, digits, dots, dashes and underscores, 63 at most, after a domain and a slash or none"
    if value and not re.fullmatch(name, value):
        return "a value has letters, digits, dots, dashes and underscores, 63 at most"
    return ""


def mount_fault(text: str) -> str:
    """Why `text` is no mount, or nothing."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(one.startswith("/") for one in parts[:2]):
        return "two absolute folders with a colon between them"
    if len(parts) == 3 and parts[2] not in ("ro", "rw"):
        return "after the second colon stands ro or rw"
    plain = all(c.isascii() and (c.isalnum() or c in "/._-+@=:") for c in text)
    return "" if plain else "letters, digits and . _ - + @ = alone"
