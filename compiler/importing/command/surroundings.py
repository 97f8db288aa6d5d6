"""The environment variables and files that a training command gets from its shell script and from the cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Entry
from xpc.compiler.importing.text.shell import Call, Word

SLURM = re.compile(
    r"^#SBATCH\s+(?:--(nodes|gres|gpus-per-node|gpus)|-(N|G))[= ]\s*(?:gpu:)?(?:[a-z]\w*:)?(\d+)", re.M | re.I
)
"""Matches a line that states the number of nodes of a Slurm job or the GPUs of a node, such as `#SBATCH
--gres=gpu:a100:4`.
"""


def slurm(text_: str) -> dict[str, str]:
    """The variables that Slurm sets from the script's `#SBATCH` lines: the number of nodes (1 by default) and of GPUs
    on each node.
    """
    if not re.search("^#SBATCH", text_, re.M):
        return {}
    found = {(one[1] or one[2]).lower(): one[3] for one in SLURM.finditer(text_)}
    nodes = found.get("nodes") or found.get("n") or "1"
    gpus = found.get("gres") or found.get("gpus-per-node") or (nodes == "1" and (found.get("gpus") or found.get("g")))
    out = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes}
    return out | ({"SLURM_GPUS_ON_NODE": gpus, "SLURM_GPUS_PER_NODE": gpus} if gpus else {})


def cards(hardware: str | None) -> dict[str, str]:
    """Slurm's variable for the number of GPUs on a node, from `--hardware`: 4 for `4 x h100-80gb`. Empty without
    `--hardware`, or without a number in it.
    """
    found = re.match(r"\s*(\d{1,4})\s*x\s", hardware or "")
    return {} if found is None else {"SLURM_GPUS_ON_NODE": found[1]}


def variables(call: Call, commands: Sequence[Call], file: str) -> dict[str, Entry]:
    """The environment variables that a command's program gets: the variables that the script exports, and those that
    are set in front of the program (`X=1 python a.py`).
    """
    assigned: dict[str, Entry | None] = {}
    exported: set[str] = set()
    for one in commands:
        if same(one, call):
            break
        if not one.words or one.exported:
            exported.update(word.text.partition("=")[0] for word in (*one.environment, *one.words) if one.exported)
            assigned.update(_variable(word, file) for word in one.environment)
    own = dict(_variable(word, file) for word in call.environment)
    return {key: one for key, one in {**assigned, **own}.items() if one is not None and (key in exported or key in own)}


def same(one: Call, other: Call) -> bool:
    """Whether two commands have the same words, and the same assignments in front of them."""
    return one.words == other.words and one.environment == other.environment


def _variable(word: Word, file: str) -> tuple[str, Entry | None]:
    """The name and the value that a word such as `LR=1e-5` assigns; None for an unknown value."""
    name, _, value = word.text.partition("=")
    return name, None if word.open else Entry(f"${name}", value, file, word.line, value)


def reader(overrides: Overrides, written: Mapping[str, str], moved: dict[str, str]) -> Callable[[str], bytes | None]:
    """Return a function that reads a file, also one that the script itself writes (`written`).

    For a path of another machine, such as `/home/me/repo/configs/x.yaml`, it tries the last parts in this repository,
    and records a file that it finds in `moved`.
    """

    def read(name: str) -> bytes | None:
        if name in written:
            return written[name].encode()
        data = overrides.read(name)
        parts = name.split("/")
        if data is not None or name[:1] not in ("/", "~", "$") or name.endswith(".py"):
            return data
        for n in range(1, len(parts) - 1):
            end = "/".join(parts[n:])
            data = overrides.read(end)
            if data is not None:
                moved[name] = end
                return data
        return None

    return read
