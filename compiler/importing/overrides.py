"""The options of `xpc import` that override the imported file, and the hardware and stack of the spec."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from xpc.compiler import registry, stacks
from xpc.compiler.importing.draft import Draft, SettingText
from xpc.compiler.importing.text.entries import Entries, Entry, Unreadable
from xpc.compiler.importing.text.values import RENAMES
from xpc.compiler.stacks import Stack
from xpc.grammar.package_data import read_json
from xpc.grammar.record import evolve, field, mutable, record

DEFAULT_GPU = "h100-80gb"
DEFAULT_GPUS = 8


def nothing(name: str) -> bytes | None:
    """The reader of files for an import without files: it finds none."""
    return None


def no_scripts() -> Iterator[tuple[str, str]]:
    """No scripts: an import of a command line (`--command`) has no scripts near it."""
    return iter(())


def nowhere(name: str) -> list[str]:
    """No paths: a source that is not a file has no repository."""
    return []


@record
class Launch:
    """A command that starts a Python script.

    - `arguments`: the command's arguments; `used` receives the names of the arguments that the script reads
    - `options`: a function that imports the launcher's options and returns the keys of accelerate's YAML
    - `declared`: receives the defaults that the script's own classes give to arguments of TRL
    """

    arguments: Entries
    used: set[str]
    options: Callable[[Draft, Machines], Entries | None] = field(repr=False)
    declared: dict[str, Entry] = field(factory=dict)


@record
class Overrides:
    """The options of `xpc import` that override the source, and functions that read the files near it.

    - `rewards`: the file of the reward functions; `prompt`: the column of the prompts
    - `trl`: the version of TRL for which the source was written, such as `0.22`
    - `sets`: the variables of a script by name; `pick`: the number of the training command, from 1
    - `partial`: whether the importer may guess; the user then confirms each guess
    - `place`: the path of the source in its repository, such as `recipes/x/dpo/config.yaml`
    - `read`: returns the bytes of a file that a source names, relative to the source
    - `scripts`: yields the Python files near the source, each with its name and text; `launches`: the shell scripts;
      `configs`: the YAML files; `requirements`: the files such as requirements-gpu.txt
    - `find`: returns the paths of the repository's Python files with a given name
    - `launch`: the command that starts a Python script; `environment`: the environment variables of the script
    - `module`: the module that creates the trainer, if the script that calls this module is imported instead
    - `accelerate`, `deepspeed`: the keys of accelerate's file and of DeepSpeed's file
    """

    stem: str = "import"
    target: str | None = None
    method: str | None = None
    hardware: str | None = None
    nodes: int | None = None
    model: str | None = None
    data: str | None = None
    rewards: str | None = None
    prompt: str | None = None
    trl: str | None = None
    sets: Mapping[str, str] = field(factory=dict)
    pick: int | None = None
    partial: bool = False
    place: str = ""
    read: Callable[[str], bytes | None] = field(default=nothing, repr=False)
    scripts: Callable[[], Iterator[tuple[str, str]]] = field(default=no_scripts, repr=False)
    launches: Callable[[], Iterator[tuple[str, str]]] = field(default=no_scripts, repr=False)
    configs: Callable[[], Iterator[tuple[str, str]]] = field(default=no_scripts, repr=False)
    requirements: Callable[[], Iterator[tuple[str, str]]] = field(default=no_scripts, repr=False)
    find: Callable[[str], list[str]] = field(default=nowhere, repr=False)
    launch: Launch | None = field(default=None, repr=False)
    environment: Mapping[str, Entry] = field(factory=dict)
    module: str = ""
    accelerate: Entries | None = field(default=None, repr=False)
    deepspeed: Entries | None = field(default=None, repr=False)

    def below(self, folder: str) -> Overrides:
        """These options for a script in the subfolder `folder`, in which files are then searched first."""
        if not folder:
            return self

        def read(name: str) -> bytes | None:
            found = self.read(posixpath.join(folder, name))
            return self.read(name) if found is None else found

        return evolve(self, read=read)


def named_table(
    draft: Draft, entry: Entry, read: Callable[[str, str], Mapping[str, Entry]], data: bytes, name: str
) -> Mapping[str, Entry] | None:
    """The keys of a file that the imported file names. Reports an error and returns None if the file cannot be read."""
    try:
        table = read(data.decode("utf-8-sig"), name)
    except (Unreadable, UnicodeDecodeError) as error:
        draft.error(entry, f"the file cannot be read: {error}")
        return None
    draft.read.append(table)
    return table


@mutable
class Machines:
    """The machines that the imported files name.

    - `total`: the number of all processes; `each`: the number of processes of a node; `nodes`: the number of nodes
    - `cpu`: whether the run is on a CPU
    - `generates`: whether one GPU is only for a vLLM server, and runs no training process
    - `entries`: the keys that state these numbers
    """

    total: int | None = None
    each: int | None = None
    nodes: int | None = None
    cpu: bool = False
    generates: bool = False
    entries: list[Entry] = field(factory=list)


def machines(draft: Draft, found: Machines, overrides: Overrides) -> None:
    """Set `hardware` and `nodes`. The command line takes precedence, then the imported files, then the defaults."""
    nodes = overrides.nodes or found.nodes or 1
    each = found.each
    if each is None and found.total is not None:
        each = max(1, found.total // (found.nodes or 1))
        if found.total % (found.nodes or 1):
            location = found.entries[0] if found.entries else None
            draft.warn(location, f"{found.total} processes cannot be divided evenly among {found.nodes} nodes")
    if overrides.hardware is not None:
        text = counted(overrides.hardware, each)
        gpus, x, gpu = overrides.hardware.partition(" x ")
        if x and found.generates and nodes == 1 and each is not None and int(gpus) == each + 1:
            text = f"{each} x {gpu}"
            location = found.entries[0] if found.entries else None
            draft.warn(location, f"{each} of the {gpus} GPUs train, and the vLLM server uses the last GPU")
    elif found.cpu:
        text = f"{each or 1} x cpu"
    else:
        text = f"{each or DEFAULT_GPUS} x {DEFAULT_GPU}"
        draft.warn(
            None, f"the imported files do not state the GPUs: `hardware {text}` is assumed", "`--hardware` names it"
        )
    draft.settings |= {"hardware": SettingText(text), "nodes": SettingText(str(nodes))}


def counted(hardware: str, count: int | None) -> str:
    """The value of `--hardware`. A GPU without a count gets the number of a node's processes in the imported files as
    its count.
    """
    return hardware if count is None or " x " in hardware or hardware == "cpu" else f"{count} x {hardware}"


def machine(text: str) -> str:
    """Check the value of `--hardware`, and return it as a spec states it: `8x h100-80gb` becomes `8 x h100-80gb`.
    Raises ValueError with a message that suggests a legal value.
    """
    found = re.fullmatch(r"\s*(?:(\d{1,4})\s*x\s*)?([\w.-]+)\s*", text)
    if found is None or not 0 < int(found[1] or 1) <= 1024:
        raise ValueError("the value must be a count and a GPU, such as `8 x h100-80gb`, or `cpu`")
    count, gpu = found.groups()
    if gpu != "cpu" and registry.find_gpu(gpu) is None:
        # imported only for an unknown GPU
        from xpc.compiler.suggest import registry_names

        guess, why = registry_names.gpu(gpu)
        intended = f"; did you mean {registry_names.either(guess.names)}?" if guess.names else f"; {why}"
        raise ValueError(f"`{gpu[:40]}` is not a GPU of the registry{intended}")
    return f"{count} x {gpu}" if count else gpu


def native(names: set[str], method: str, model: str | None, trackio: bool = False,
           versions: Sequence[str] = (), named: bool = False) -> tuple[Stack, Stack]:  # fmt: skip
    """Return two stacks: the stack whose defaults a TRL configuration relies on, and the stack that runs it.

    - The first stack is guessed from the names of the file's keys (`_dated`). `versions` are the TRL versions that fit
      the file. If the guessed version is not among them, or if the user named the version (`named`), it is the newest
      stack of these versions, or else the stack with the nearest defaults. If only the default stack supports the
      model's family, it is the default stack.
    - The second stack is the first, or the default stack if the first lacks something that the file needs: the name of
      a key, the method, the model's family, or trackio (`trackio`).
    """
    source = _dated(names, method)
    if versions and (named or number(source) not in versions):
        ours = [one for one in map(load, stacks.names()) if number(one) in versions]
        source = max(ours, key=lambda one: _order(number(one))) if ours else _nearest(versions[-1])
    known = registry.find_model(model) if model else None
    family = known.model_type if known is not None else registry.family_named(model) if model else None
    default = load(stacks.DEFAULT)
    older = [one for one in map(load, stacks.names()) if one.name != stacks.DEFAULT]
    if family is not None and not named and number(default) in versions:
        source = default if all(one.lacks_family(family) for one in older) else source
    if source.name == stacks.DEFAULT:
        return source, source
    removed = family is not None and source.lacks_family(family)
    later = names & (_arguments(default, method) - _arguments(source, method))
    removed = removed or (trackio and not source.facts.trackio)
    return source, default if removed or later or source.refused(method) else source


def number(stack: Stack) -> str:
    """The TRL version of a stack, such as `0.18` for `trl-0.18`."""
    return stack.name.rpartition("-")[2]


def _order(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def _nearest(version: str) -> Stack:
    """The stack whose defaults are most similar to those of a TRL version. transformers changed its defaults around TRL
    0.21 and 1.0.
    """
    before: Mapping[str, str] = read_json(__file__, "trl/stacks.json")
    found = (name for name, end in before.items() if _order(version) < _order(end))
    return load(next(found, stacks.DEFAULT))


def _dated(names: set[str], method: str) -> Stack:
    """Guess the stack for which a file with the keys `names` was written. It is the default stack if this has all keys;
    otherwise, the stack with most of the keys that the default stack lacks, such as `evaluation_strategy`.
    """
    default, others = load(stacks.DEFAULT), [load(name) for name in stacks.names() if name != stacks.DEFAULT]
    today = _arguments(default, method)
    dated = names & (
        {"evaluation_strategy", *(old for old, new in RENAMES.items() if old != new)}.union(
            *(_arguments(one, method) for one in others)
        )
        - today
    )
    if not dated or not others:
        return default
    return max(others, key=lambda one: len(dated & _arguments(one, method)))


def _arguments(stack: Stack, method: str) -> set[str]:
    return {*stack.fields(stack.config(method)), stack.arguments["dtype"]}


def load(name: str) -> Stack:
    """Load a stack, such as `trl-0.18`. Raises KeyError for an unknown name."""
    found = stacks.load(name)
    if found is None:
        raise KeyError(name)
    return found
