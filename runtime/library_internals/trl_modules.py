"""Replace names in trl's trainer modules while a trainer is constructed (trl 0.18 to 1.16)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def replaced(module: object, replacements: Mapping[str, object]) -> Iterator[None]:
    """A context manager that replaces objects of a module: ``replacements`` maps names to new objects. A name is
    skipped if the module lacks it.
    """
    originals = {name: getattr(module, name) for name in replacements if hasattr(module, name)}
    for name in originals:
        setattr(module, name, replacements[name])
    try:
        yield
    finally:
        for name, value in originals.items():
            setattr(module, name, value)
