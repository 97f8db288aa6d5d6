"""Reads the bundle that stands around the trainer/ folder. Standard library only: it runs before anything heavy."""

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import FORMAT
from .errors import RunError

if TYPE_CHECKING:
    from .payload import Payload, Source  # types alone: a bundle has no such module

DECISIVE = ("trainer_args.json", "accelerate.yaml", "deepspeed.json")
"""The files that decide the numbers of a run; their digest tells one run from another."""
MANIFEST = "bundle.toml"
LARGEST = 16 * 2**20
"""Of a manifest that is read, bytes."""


class Bundle:
    """A bundle on disk: ``folder`` is absolute, the sections are those of trainer_args.json."""

    def __init__(self, folder: str, plan: "Payload", digest: str, pins: Mapping[str, str]) -> None:
        self.folder = folder
        self.plan = plan
        self.digest = digest
        self.pins = pins
        self.target = plan["target"]
        self.stack = plan["stack"]
        self.config = plan["config"]
        self.method = plan["method"]["name"]
        self.lora = plan.get("lora")
        self.repository: str | None = None  # its full name on the hub, once the run has made it (hub.folder_taken)
        self.arguments = plan["arguments"]
        self.model = plan["model"]
        self.tokenizer = plan["tokenizer"]
        self.data = plan["data"]
        self.run = plan["run"]

    @property
    def output_dir(self) -> str:
        """Where the run writes: relative to the folder that the run was started in."""
        return os.path.abspath(str(self.arguments["output_dir"]))

    @property
    def base(self) -> str:
        """The model that training begins from, as the bundle names it: an id of the hub, or a path."""
        return str(self.model["id"] or self.model["path"])

    @property
    def model_place(self) -> str:
        """The model that training begins from, as the libraries load it. Raises RunError where a folder is missing."""
        return str(self.changed("model_folder", self.base))

    def loading(self) -> dict[str, Any]:
        """What every loader of the model, its configuration and its tokenizer is told: which commit, and whose code."""
        revision = self.model["revision"] if self.model["id"] is not None else None
        return {"revision": revision or "main", "trust_remote_code": self.model["trust_remote_code"]}

    @property
    def on_cpu(self) -> bool:
        """True for a run that stays on the CPU even where there is a GPU."""
        return bool(self.run["device"] == "cpu")

    def uses(self, name: str) -> bool:
        """Whether this run uses a module of features/ or library_internals/, by its name."""
        return name in self.plan["trainer"]["modules"]

    def parts(self, step: str) -> list[Any]:
        """The modules beside core/ that add something to a step of this run: each has a function of that name."""
        return [import_module(f"..{one}", __package__) for one in self.plan["trainer"]["steps"].get(step, ())]

    def step(self, name: str, *given: Any) -> list[Any]:
        """Does what they add to a step, in order; what each of them gives."""
        return [getattr(part, name)(self, *given) for part in self.parts(name)]

    def found(self, name: str, *given: Any) -> list[Any]:
        """What all of them found at a step, in one list."""
        return [one for found in self.step(name, *given) for one in found]

    def changed(self, name: str, value: Any, *given: Any) -> Any:
        """The value after each of them had it."""
        for part in self.parts(name):
            value = getattr(part, name)(self, value, *given)
        return value

    def sources(self) -> "list[Source]":
        """Every source of the run: what is trained on, and the sets that are evaluated on."""
        sets = (self.data.get("evaluation") or {"sets": []})["sets"]
        return [*self.data["sources"], *(source for one in sets for source in one["sources"])]

    def inside(self, name: str) -> str:
        """The absolute path of a file of the bundle. Raises RunError for a name that leads out of it."""
        path = os.path.normpath(os.path.join(self.folder, name))
        if os.path.commonpath((path, self.folder)) != self.folder:
            raise RunError(f"{name!r} is not inside the bundle")
        return path


def stated(folder: str) -> dict[str, str]:
    """The digests of the bundle's files by name; none where there is no bundle.toml, or none that can be read."""
    import tomllib

    try:
        with open(os.path.join(folder, MANIFEST), "rb") as handle:
            table = tomllib.loads(handle.read(LARGEST).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    files = table.get("files")
    return {str(name): str(digest) for name, digest in files.items()} if isinstance(files, dict) else {}


def read(folder: str) -> Bundle:
    """The bundle in ``folder``. Raises RunError for a missing or unreadable file, or a format of another time."""
    folder = os.path.abspath(folder)
    path = os.path.join(folder, "trainer_args.json")
    try:
        with open(path, encoding="utf-8") as handle:
            plan = json.load(handle)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RunError(f"{path} is not JSON: {error}") from error
    found = plan.get("format") if isinstance(plan, dict) else None
    if found != FORMAT:
        raise RunError(f"trainer_args.json has format {found!r}; this runtime reads format {FORMAT}")
    for name in plan["trainer"]["unused"]:
        value = _at(plan, name)
        if value and value not in ("no", "none", ["none"]):
            raise RunError(f"trainer_args.json was given {name}, which trainer/ has no module for: compile it again")
    return Bundle(folder, plan, _digest(folder), _pins(os.path.join(folder, "requirements.txt")))


def _at(plan: Any, path: str) -> Any:
    """The value at a dotted path; None where there is none."""
    for name in path.split("."):
        try:
            plan = plan[int(name)] if isinstance(plan, list) else plan[name]
        except (LookupError, TypeError):
            return None
    return plan


def check_world(run: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """The launcher's number of processes against the bundle's; another changes the global batch. Raises RunError."""
    try:
        world = int(environment.get("WORLD_SIZE", "1"))
    except ValueError as error:
        raise RunError(f"WORLD_SIZE is {environment['WORLD_SIZE']!r}, and should be a number of processes") from error
    micro, accumulation, gbs, share = run["micro"], run["accumulation"], run["gbs"], run.get("context_parallel", 1)
    if world != run["world_size"]:
        groups = f"{world} / {share}" if share > 1 else str(world)
        raise RunError(
            f"the launcher started {world} process(es), and {groups} x {micro} sequences x {accumulation} accumulation "
            f"is {world * micro * accumulation / share:g}, not the global batch of {gbs}: this bundle needs "
            f"{run['world_size']} processes"
        )


def _digest(folder: str) -> str:
    total = sha256()
    for name in DECISIVE:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, "rb") as handle:
                total.update(name.encode() + b"\0" + sha256(handle.read()).digest())
    return "sha256:" + total.hexdigest()


def _pins(path: str) -> dict[str, str]:
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as handle:
        lines = [line.split("#")[0].partition("==") for line in handle]
    return {name.strip(): version.split(";")[0].strip() for name, equals, version in lines if equals}
