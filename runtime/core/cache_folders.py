"""The cache folders of the user and of the hub. Standard library only."""

import os


def user_caches() -> str:
    """The folder of the user's caches, XDG_CACHE_HOME or `~/.cache`."""
    return os.environ.get("XDG_CACHE_HOME") or "~/.cache"


def private_folder(kind: str) -> str | None:
    """The folder `~/.cache/xpc/KIND`, such as `~/.cache/xpc/data`. None with XPC_CACHE=off or without a home folder."""
    base = os.path.expanduser(user_caches())
    return os.path.join(base, "xpc", kind) if os.environ.get("XPC_CACHE") != "off" and os.path.isabs(base) else None


def hub_home() -> str:
    """The folder in which huggingface_hub keeps its downloads and the user's login. It may begin with `~`."""
    return os.environ.get("HF_HOME") or os.path.join(user_caches(), "huggingface")
