"""The cache folders of the user and of the hub. Standard library only."""

import os


def user_caches() -> str:
    """The folder of the user's caches, XDG_CACHE_HOME or `~/.cache`."""
    return os.environ.get("XDG_CACHE_HOME") or "~/.cache"


def hub_home() -> str:
    """The folder in which huggingface_hub keeps its downloads and the user's login. It may begin with `~`."""
    return os.environ.get("HF_HOME") or os.path.join(user_caches(), "huggingface")
