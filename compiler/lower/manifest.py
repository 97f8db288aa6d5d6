"""Write two files: `bundle.toml`, which lists the inputs and the files of a bundle, and `requirements.txt`."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler import __version__
from xpc.compiler.files.digest import sha256, shared_digest
from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.optimizers import package
from xpc.compiler.language.rewards import MATH
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.typed import show
from xpc.compiler.lower import toml_text
from xpc.compiler.plan import DOES_NOT_FIT
from xpc.compiler.spec import Spec
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.spec.resources import DataSource
from xpc.grammar.record import field, record, stated

FORMAT = 1
FLASH = "flash-attn"


@record
class Identity:
    """The identity of a bundle: its name, the version of xpc, the stack, and its spec. `spec` is the name of the spec's
    file, without its folder.

    `spec_digest` is the digest of the spec's text. In a sweep, only sweep.toml has this digest. So if a comment of the
    spec changes, one line of one file changes, and not a line of every member. `allow_oom` is true if the run was
    compiled although the plan predicts that it does not fit in its GPUs.
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
    """The resolved model. `architecture` is the source of its sizes, such as the registry."""

    id: str | None = None
    path: str | None = None
    revision: str | None = None
    architecture: str | None = None
    params: int | None = None


@record
class DataEntry:
    """One resolved data source. For a folder, `sha256` is the digest of the lines that sha256sum prints for the
    folder's files.

    If the rows contain paths of images, `image_files` lists these files, and `images` is the digest of the list. If the
    source is for evaluation, `evaluated` is the name of its evaluation set.
    """

    id: str | None = None
    path: str | None = None
    config: str | None = None
    split: str | None = None
    slice: str | None = None
    revision: str | None = None
    shape: str | None = None
    digest: str | None = None
    images: str | None = None
    image_files: int | None = None
    evaluated: str | None = None


@record
class Manifest:
    """The tables of `bundle.toml`.

    `inputs` has the digest of every file that the compiler read in addition to the spec. `files` has the digest of
    every other file of the bundle. `weights` has the digests of the files of local models.
    """

    bundle: Identity
    model: ModelEntry
    data: list[DataEntry]
    pins: dict[str, str]
    inputs: dict[str, str]
    files: dict[str, str]
    weights: dict[str, str] | None = None
    assumed: dict[str, str] = field(factory=dict)


def requirements(spec: Spec) -> str:
    """The text of `requirements.txt`: the packages that this run needs, in the exact versions that the target pins."""
    used = {
        "zero": spec.zero_stage > 0,
        "liger": spec.flag("memory.liger") or spec.extra_value("trl", "use_liger_loss") is True,
        "bitsandbytes": bool(spec.bits) or any(one.stored_bits for one in spec.models),
        "images": spec.reads_images,
        "torchao": spec.text("precision") == "fp8",
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
    """The requirement of flash-attn in `requirements-flash.txt`. None if the run uses another attention.

    flash-attn must be installed by a command of its own, after torch. It has no wheel, and its setup.py imports torch.
    Before torch is installed, pip can therefore neither build flash-attn nor find out what it requires.
    """
    if spec.text("model.attn") != "flash2":
        return None
    return f"{FLASH}=={spec.stack.pins[FLASH]}"


def manifest(spec: CheckedSpec, files: Mapping[str, bytes]) -> str:
    """The text of `bundle.toml`; `files` are all other files of the bundle, by name."""
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
                *(_data(spec, source) for source in spec.data),
                *(_data(spec, source, one.name) for one in spec.evaluated for source in one.sources),
            ],
            pins=dict(line.split("==", 1) for line in requirements(spec).splitlines()),
            inputs={name: "sha256:" + one for name, one in sorted(spec.inputs.items())},
            weights={name: "sha256:" + one for name, one in sorted(spec.weights.items())} or None,
            files={name: shared_digest(data) for name, data in sorted(files.items())},
            assumed={
                path: f"{show(BY_PATH[path], value.value)} ({value.origin.name})"
                for path, value in spec.values.items()
                if value.origin.kind not in (SPEC, BASE)
            },
        )
    )


def written(table: Manifest) -> str:
    """The text of a manifest as TOML."""
    import toml

    class Encoder(toml.TomlEncoder):  # type: ignore[type-arg]
        """A TOML encoder that quotes strings itself. toml 0.10 escapes some strings with a backslash and an `x` such
        that no parser can read them.
        """

        def dump_sections(self, o, sup):  # type: ignore[no-untyped-def]
            if any(not isinstance(value, str | int) for value in o.values()):
                return super().dump_sections(o, sup)
            return "".join(f"{toml_text.key(key)} = {toml_text.value(value)}\n" for key, value in o.items()), {}

    # TOML has no null, so unknown values are omitted
    plain = {**stated(table), "bundle": stated(table.bundle), "model": stated(table.model)}
    plain["data"] = [stated(one) for one in table.data]
    return str(toml.dumps(plain, Encoder()))


def _data(spec: Spec, source: DataSource, evaluated: str | None = None) -> DataEntry:
    digest, images = source.sha256, spec.images.get(source.path or "")
    images = images if images is not None and images.name else None
    if source.parts and all(part.sha256 for part in source.parts):
        lines = "".join(f"{part.sha256}  {part.inside(source)}\n" for part in source.parts)
        digest = sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()
    return DataEntry(
        id=source.id,
        path=source.path,
        config=source.config,
        split=source.split,
        slice=source.slice,
        revision=source.revision,
        shape=source.shape,
        digest=None if digest is None else "sha256:" + digest,
        images=None if images is None else "sha256:" + images.sha256,
        image_files=None if images is None else images.files,
        evaluated=evaluated,
    )
