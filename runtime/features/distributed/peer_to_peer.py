"""What several RTX 40 cards cannot do: reach each other directly, under drivers before 550.40.07.

`accelerate launch` switches it off by itself; under torchrun accelerate raises instead (accelerate 1.15 `state.py`).
"""

import os
from typing import Any

from ...core.feature import Bundle, Feature


class PeerToPeer(Feature):
    """RTX 40 cards, which cannot reach each other directly under older drivers."""

    def check_gpu_links(self, bundle: Bundle) -> list[str]:
        """Before the GPUs of a node are tried. Finds nothing wrong."""
        self.before_arguments(bundle, {})
        return []

    def before_arguments(self, bundle: Bundle, values: dict[str, Any]) -> None:
        """Before the process group of the run."""
        from accelerate.utils import check_cuda_p2p_ib_support

        if not check_cuda_p2p_ib_support():
            for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"):
                os.environ.setdefault(name, "1")
