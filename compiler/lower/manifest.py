"""Spec and files to `bundle.toml` and `requirements.txt`: what the bundle is made of, and what it was assumed to be."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler import __version__
from xpc.compiler.files.digest import sha256, shared_digest
from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.optimizers import package
from xpc.compiler.language.schema import BY_PATH, MATH
from xpc.compiler.language.typed import show
from xpc.compiler.lower import toml_text
from xpc.compiler.plan import DOES_NOT_FIT
from xpc.compiler.spec import CheckedSpec, Spec
from xpc.compiler.spec.resources import DataSource
from xpc.grammar.record import field, record, stated

FORMAT = 1
FLASH = "flash-attn"


@record
class Identity:
    """What the bundle is: `spec` is the name of the spec, never its place on a machine.

    `spec_digest` is that of the source; of a sweep's source it is in sweep.toml alone, so that a comment changes one
    line. `allow_oom` says that the run does not fit its GPUs as planned, and was compiled all the same.
    """

    format: int
    xpc: str
    name: str
    edition: int
    target: str
    spec: str
    spec_digest: str | None = None
    allow_oom: bool = False


@record
class ModelEntry:
    """The model as resolved; `architecture` says where its facts come from."""

    id: str | None = None
    path: str | None = None
    revision: str | None = None
    architecture: str | None = None
    params: int | None = None


@record
class DataEntry:
    """One source of data as resolved; the digest of a folder is that of a list of its files as sha256sum prints it.

    `evaluated` is the name of the set, where it is not trained on."""

    id: str | None = None
    path: str | None = None
    config: str | None = None
    split: str | None = None
    slice: str | None = None
    revision: str | None = None
    shape: str | None = None
    digest: str | None = None
    evaluated: str | None = None


@record
class Manifest:
    """`bundle.toml`, table by table.

    `inputs` has the digest of every file that the compiler read beside the spec, `files` of every other file of the
    bundle.
    """

    bundle: Identity
    model: ModelEntry
    data: list[DataEntry]
    pins: dict[str, str]
    inputs: dict[str, str]
    files: dict[str, str]
    assumed: dict[str, str] = field(factory=dict)


def requirements(spec: Spec) -> str:
    """`requirements.txt`: the exact pins of the target that this run needs."""
    used = {
        "zero": spec.zero_stage > 0,
        "liger": spec.flag("memory.liger") or spec.extra_value("trl", "use_liger_loss") is True,
        "bitsandbytes": bool(spec.bits),
        "lora": spec.lora,
        "math": any(one.name in MATH for one in spec.weighted("method.rewards")),
        **{name: True for name in spec.names("track") if name != "none"},
    }
    extras = [name for name, wanted in used.items() if wanted]
    own = package(spec.text("optimizer"))
    pins = spec.stack.requirements(*extras, *([own] if own else []), vllm=spec.flag("method.vllm"))
    lines = [f"{name}=={version}" for name, version in pins.items()]
    return "\n".join(sorted(lines)) + "\n"


def flash_requirement(spec: Spec) -> str | None:
    """flash-attn's pin, for `requirements-flash.txt`; None for another attention.

    It has no wheel, and its setup.py imports torch: pip can neither build it nor ask what it needs before torch is
    installed, so it is installed by a command of its own.
    """
    if spec.text("model.attn") != "flash2":
        return None
    return f"{FLASH}=={spec.stack.pins[FLASH]}"


def manifest(spec: CheckedSpec, files: Mapping[str, bytes]) -> str:
    """`bundle.toml`. `files` is every other file of the bundle."""
    facts = spec.model.facts
    return written(
        Manifest(
            bundle=Identity(
                format=FORMAT,
                xpc=__version__,
                name=spec.name,
                edition=spec.edition,
                target=spec.stack.name,
                spec=spec.source.name,
                spec_digest=None if spec.folder else shared_digest(spec.source.text.encode("utf-8", "surrogatepass")),
                allow_oom=any(one.code in DOES_NOT_FIT for one in spec.problems),
            ),
            model=ModelEntry(
                id=spec.model.id,
                path=spec.model.path,
                revision=spec.model.revision,
                architecture=spec.model.known_from or None,
                params=None if facts is None else facts.params,
            ),
            data=[
                *(_data(source) for source in spec.data),
                *(_data(source, one.name) for one in spec.evaluated for source in one.sources),
            ],
            pins=dict(line.split("==", 1) for line in requirements(spec).splitlines()),
            inputs={name: "sha256:" + one for name, one in sorted(spec.inputs.items())},
            files={name: shared_digest(data) for name, data in sorted(files.items())},
            assumed={
                path: f"{show(BY_PATH[path], value.value)} ({value.origin.name})"
                for path, value in spec.values.items()
                if value.origin.kind not in (SPEC, BASE)
            },
        )
    )


def written(table: Manifest) -> str:
    """A manifest as TOML."""
    import toml

    class Encoder(toml.TomlEncoder):  # type: ignore[type-arg]
        """Quotes texts itself: toml 0.10 writes a backslash before an `x` in a way that nothing reads back."""

        def dump_sections(self, o, sup):  # type: ignore[no-untyped-def]
            if any(not isinstance(value, str | int) for value in o.values()):
                return super().dump_sections(o, sup)
            return "".join(f"{toml_text.key(key)} = {toml_text.value(value)}\n" for key, value in o.items()), {}

    plain = {  # TOML has no null: what is not known is left out
        name: [stated(one) for one in held]
        if isinstance(held, list)
        else held
        if isinstance(held, dict)
        else stated(held)
        for name, held in stated(table).items()
    }
    return str(toml.dumps(plain, Encoder()))


def _data(source: DataSource, evaluated: str | None = None) -> DataEntry:
    whole = source.sha256
    if source.parts and all(part.sha256 for part in source.parts):
        lines = "".join(f"{part.sha256}  {part.inside(source)}\n" for part in source.parts)
        whole = sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()
    return DataEntry(
        id=source.id,
        path=source.path,
        config=source.config,
        split=source.split,
        slice=source.slice,
        revision=source.revision,
        shape=source.shape,
        digest=None if whole is None else "sha256:" + whole,
        evaluated=evaluated,
    )
