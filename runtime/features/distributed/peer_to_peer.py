"""Switch off peer-to-peer access between RTX 40 cards, because drivers before 550.40.07 do not support it.

`accelerate launch` itself switches it off. Under torchrun, accelerate raises an error (accelerate 1.15 `state.py`).
"""

import os

from ...core.feature import Bundle, Feature


class PeerToPeer(Feature):
    """Hooks for a run on RTX 40 cards, which have no peer-to-peer access under older drivers."""

    def check_gpu_links(self, bundle: Bundle) -> list[str]:
        """Switch peer-to-peer access off before the GPUs' connection is tested. Returns no findings."""
        self.before_arguments(bundle, {})
        return []

    def before_arguments(self, bundle: Bundle, values: dict[str, object]) -> None:
        """Switch peer-to-peer access off before the run's process group is created."""
        from accelerate.utils import check_cuda_p2p_ib_support

        if not check_cuda_p2p_ib_support():
            for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"):
                os.environ.setdefault(name, "1")
