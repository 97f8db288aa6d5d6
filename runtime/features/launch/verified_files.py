"""Read files that are rendered or executed, and check that they were not changed after the compilation."""

from collections.abc import Mapping
from hashlib import sha256

from ...core.bundle import manifest_digests
from ...core.errors import RunError
from ...core.feature import Bundle


def changed(path: str) -> RunError:
    """The error for a file whose digest differs from the one in bundle.toml."""
    return RunError(f"{path} is not the file that this bundle was compiled with (its sha256 differs)")


def verified(bundle: Bundle, name: str, digests: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a file of the bundle that is rendered or executed. Raises RunError if the file was changed.

    ``digests`` is the result of ``manifest_digests``; a caller that already has it passes it on.
    """
    path = bundle.inside(name)
    try:
        with open(path, "rb") as handle:
            data = handle.read()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    expected = (manifest_digests(bundle.folder) if digests is None else digests).get(name)
    if expected is not None and "sha256:" + sha256(data).hexdigest() != expected:
        raise changed(path)
    return data
