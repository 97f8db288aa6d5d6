"""Spec and files to `bundle.toml` and `requirements.txt`: what the bundle is made of, and what it was assumed to be."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from xpc.compiler import __version__
from xpc.compiler.lower.specfile import show
from xpc.compiler.schema import BY_PATH
from xpc.compiler.spec import BASE, SPEC, Spec

FORMAT = 1
EXTRA_PINS = {"flash2": "flash-attn==2.8.3"}
"""Packages that are needed beside the target's own pins, by attention."""


def requirements(spec: Spec) -> str:
    """`requirements.txt`: the exact pins of the target that this run needs."""
    extras = [name for name, used in (("zero", spec.zero_stage > 0), ("liger", spec.flag("memory.liger"))) if used]
    lines = [f"{package}=={version}" for package, version in spec.target.requirements(*extras).items()]
    if spec.text("model.attn") in EXTRA_PINS:
        lines.append(EXTRA_PINS[spec.text("model.attn")])
    return "\n".join(sorted(lines)) + "\n"


def manifest(spec: Spec, files: Mapping[str, bytes]) -> str:
    """`bundle.toml`. `files` is every other file of the bundle."""
    import toml

    assumed = {
        path: f"{show(BY_PATH[path], value.value)} ({value.origin.describe()})"
        for path, value in spec.values.items()
        if value.origin.kind not in (SPEC, BASE)
    }
    facts = spec.model.facts
    table = {
        "bundle": {
            "format": FORMAT,
            "xpc": __version__,
            "name": spec.name,
            "edition": spec.edition,
            "target": spec.target.name,
            "spec": spec.source.name,
            "spec_digest": digest(spec.source.text.encode("utf-8", "surrogatepass")),
        },
        "model": {
            key: value
            for key, value in {
                "id": spec.model.id,
                "path": spec.model.path,
                "revision": spec.model.revision,
                "architecture": spec.model.known_from,
                "params": None if facts is None else facts.params,
            }.items()
            if value is not None
        },
        "data": [
            {
                key: value
                for key, value in {
                    "id": source.id,
                    "path": source.path,
                    "config": source.config,
                    "split": source.split,
                    "slice": source.slice,
                    "revision": source.revision,
                    "shape": source.shape,
                    "digest": None if source.sha256 is None else "sha256:" + source.sha256,
                }.items()
                if value is not None
            }
            for source in spec.data
        ],
        "pins": dict(line.split("==", 1) for line in requirements(spec).splitlines()),
        "assumed": assumed,
        "files": {name: digest(data) for name, data in sorted(files.items())},
    }
    return str(toml.dumps(table))


def digest(data: bytes) -> str:
    """`sha256:` and the hex digest."""
    return "sha256:" + sha256(data).hexdigest()
