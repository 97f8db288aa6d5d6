"""Spec and files to `bundle.toml` and `requirements.txt`: what the bundle is made of, and what it was assumed to be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

from attrs import field

from xpc.compiler import __version__
from xpc.compiler.lower.specfile import show
from xpc.compiler.schema import BY_PATH
from xpc.compiler.spec import BASE, SPEC, DataSource, Spec
from xpc.grammar.record import record

if TYPE_CHECKING:
    from cattrs import Converter

FORMAT = 1


@record
class Identity:
    """What the bundle is: `spec` is the name of the spec, never its place on a machine."""

    format: int
    xpc: str
    name: str
    edition: int
    target: str
    spec: str
    spec_digest: str


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
    """One source of data as resolved."""

    id: str | None = None
    path: str | None = None
    config: str | None = None
    split: str | None = None
    slice: str | None = None
    revision: str | None = None
    shape: str | None = None
    digest: str | None = None


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
    optimizer, trackers = spec.text("optimizer"), spec.get("track")
    assert isinstance(trackers, tuple)
    used = {
        "zero": spec.zero_stage > 0,
        "liger": spec.flag("memory.liger"),
        "flash2": spec.text("model.attn") == "flash2",
        "bitsandbytes": "8bit" in optimizer or optimizer.startswith("paged") or optimizer == "lion",
        **{name: True for name in trackers if name != "none"},
    }
    extras = [name for name, wanted in used.items() if wanted]
    lines = [f"{package}=={version}" for package, version in spec.target.requirements(*extras).items()]
    return "\n".join(sorted(lines)) + "\n"


def manifest(spec: Spec, files: Mapping[str, bytes]) -> str:
    """`bundle.toml`. `files` is every other file of the bundle."""
    import toml

    facts = spec.model.facts
    table = Manifest(
        bundle=Identity(
            FORMAT, __version__, spec.name, spec.edition, spec.target.name, spec.source.name,
            digest(spec.source.text.encode("utf-8", "surrogatepass")),
        ),
        model=ModelEntry(
            spec.model.id, spec.model.path, spec.model.revision, spec.model.known_from or None,
            None if facts is None else facts.params,
        ),
        data=[_data(source) for source in spec.data],
        pins=dict(line.split("==", 1) for line in requirements(spec).splitlines()),
        inputs={name: "sha256:" + one for name, one in sorted(spec.inputs.items())},
        files={name: digest(data) for name, data in sorted(files.items())},
        assumed={
            path: f"{show(BY_PATH[path], value.value)} ({value.origin.describe()})"
            for path, value in spec.values.items()
            if value.origin.kind not in (SPEC, BASE)
        },
    )  # fmt: skip

    class Encoder(toml.TomlEncoder):  # type: ignore[type-arg]
        """The package's own quoting writes a backslash before an `x` in a way that nothing reads back."""

        def dump_sections(self, o, sup):  # type: ignore[no-untyped-def]
            if any(not isinstance(value, str | int) for value in o.values()):
                return super().dump_sections(o, sup)
            return "".join(f"{_key(key)} = {_plain(value)}\n" for key, value in o.items()), {}

    return str(toml.dumps(_converter().unstructure(table), Encoder()))


def _plain(value: str | int) -> str:
    """A number, or a basic string: JSON's escapes are TOML's, but for DEL."""
    text: str = json.dumps(value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("-", "a").replace("_", "a").isalnum() else _plain(name)


def _data(source: DataSource) -> DataEntry:
    return DataEntry(
        source.id, source.path, source.config, source.split, source.slice, source.revision, source.shape,
        None if source.sha256 is None else "sha256:" + source.sha256,
    )  # fmt: skip


@cache
def _converter() -> Converter:
    from cattrs import Converter

    return Converter(omit_if_default=True)  # TOML has no null: what is not known is left out


def digest(data: bytes) -> str:
    """`sha256:` and the hex digest."""
    return "sha256:" + sha256(data).hexdigest()
