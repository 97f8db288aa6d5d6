"""Write keys, strings and numbers as TOML."""

from __future__ import annotations

from functools import lru_cache
from json.encoder import encode_basestring


@lru_cache(4096)
def key(name: str) -> str:
    """A key, quoted if necessary."""
    return name if name.isascii() and name.replace("-", "a").replace("_", "a").isalnum() else value(name)


def value(plain: str | int) -> str:
    """A number, or a quoted string. TOML has the same escapes as JSON, except for DEL."""
    return encode_basestring(plain).replace("\x7f", "\\u007f") if isinstance(plain, str) else str(plain).lower()
