"""Load hub kernels at the commits that a bundle pins.

When transformers loads a model with attention from the hub, or imports the code of certain model families, it requests
a version of a kernel. A version is a branch of the kernel's repository, so its code may change between two runs.
"""

from collections.abc import Mapping

from ..core.feature import Bundle, Feature


class HubKernels(Feature):
    """Hooks for a run that loads hub kernels at pinned commits."""

    def before_model(self, bundle: Bundle) -> None:
        """Make transformers load the kernels at the commits in the bundle."""
        load_at(bundle.model["kernels"])


def load_at(commits: Mapping[str, str]) -> None:
    """Make `get_kernel` load the repositories in ``commits`` at these commits. Other repositories load as before."""
    try:
        import kernels
    except ImportError:
        return  # without `kernels`, transformers needs flash-attn; the preflight reports if both are missing
    from transformers.integrations import hub_kernels

    load = kernels.get_kernel

    def get_kernel(repo_id: str, *args: object, **options: object) -> object:
        if repo_id not in commits:
            return load(repo_id, *args, **options)
        options.pop("version", None)
        return load(repo_id, **{**options, "revision": commits[repo_id]})

    kernels.get_kernel = get_kernel
    for name, value in list(vars(hub_kernels).items()):
        if value is load:
            setattr(hub_kernels, name, get_kernel)
