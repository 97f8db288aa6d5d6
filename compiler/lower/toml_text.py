"""Write keys, strings and numbers as TOML."""

from __future__ import annotations

from functools import lru_cache
from json.encoder import encode_basestring


@lru_cache(4096)
def key(name: str) -> str:
    """Write a key of TOML, in quotes if it needs them."""
    return name if name.isascii() and name.replace("-", "a").replace("_", "a").isalnum() else value(name)


def value(plain: str | int) -> str:
    """Write a number, or a string in quotes. A string is escaped as in JSON, and DEL is escaped, too."""
    return encode_basestring(plain).replace("\x7f", "\\u007f") if isinstance(plain, str) else str(plain).lower()
