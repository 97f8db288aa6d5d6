"""Optimizers that project gradients (GaLore, APOLLO): let torch.load read the classes of the objects in their
checkpoints.
"""

import warnings
from importlib import import_module
from importlib.util import find_spec

from ...core.feature import Bundle, Feature

PROJECTIONS = (
    ("galore_torch", "galore_projector", "GaLoreProjector"),
    ("apollo_torch", "random_projector", "GradientProjector"),
    ("apollo_torch", "svd_projector", "GaLoreProjector"),
)
"""Packages, modules and classes of the projectors in optimizer.pt (galore-torch 1.0, apollo-torch 1.0.3)."""


class ProjectedGradients(Feature):
    """Hooks for a run with GaLore or APOLLO, which project gradients."""

    def before_model(self, bundle: Bundle) -> None:
        """Allow the classes of GaLore's and APOLLO's projectors in optimizer.pt: transformers loads this file with
        `weights_only`, which refuses unknown classes. Hide the packages' warning that their AdamW is deprecated,
        because no spec can avoid it."""
        import torch

        warnings.filterwarnings("ignore", category=FutureWarning, message="This implementation of AdamW is deprecated")

        installed = [one for one in PROJECTIONS if find_spec(one[0])]
        classes = [getattr(import_module(f"{package}.{module}"), name) for package, module, name in installed]
        torch.serialization.add_safe_globals(classes)
