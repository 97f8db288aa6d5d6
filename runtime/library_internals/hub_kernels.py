"""Kernels of the hub at the commits that a bundle pins.

transformers asks the ``kernels`` package for a version, which is a branch and moves. It does so when it loads a model
whose attention it takes from the hub, and some families when their module is imported.
"""

from collections.abc import Mapping
from typing import Any

from ..core.feature import Bundle, Feature


class HubKernels(Feature):
    """Kernels of the hub at pinned commits."""

    def before_model(self, bundle: Bundle) -> None:
        """The commits of the bundle's lock."""
        load_at(bundle.model["kernels"])


def load_at(commits: Mapping[str, str]) -> None:
    """From here on `get_kernel` loads a repository that is named here at its commit; others as before."""
    try:
        import kernels
    except ImportError:
        return  # then flash-attn itself is installed, or the preflight has said that it is not
    from transformers.integrations import hub_kernels

    load = kernels.get_kernel

    def get_kernel(repo_id: str, *args: Any, **options: Any) -> Any:
        if repo_id not in commits:
            return load(repo_id, *args, **options)
        options.pop("version", None)
        return load(repo_id, **{**options, "revision": commits[repo_id]})

    kernels.get_kernel = get_kernel
    for name, value in list(vars(hub_kernels).items()):
        if value is load:
            setattr(hub_kernels, name, get_kernel)
