"""A file that is another than the bundle was compiled with."""

from ..core.errors import RunError


def changed(path: str) -> RunError:
    """The error of a file whose digest is another."""
    return RunError(f"{path} is not the file that this bundle was compiled with (its sha256 differs)")
