"""Names, texts and numbers as TOML writes them."""

from __future__ import annotations

from functools import lru_cache
from json.encoder import encode_basestring


@lru_cache(4096)
def key(name: str) -> str:
    """A name, in quotes where it needs them."""
    return name if name.isascii() and name.replace("-", "a").replace("_", "a").isalnum() else value(name)


def value(held: str | int) -> str:
    """A number, or a basic string: JSON's escapes are TOML's, but for DEL."""
    return encode_basestring(held).replace("\x7f", "\\u007f") if isinstance(held, str) else str(held).lower()
