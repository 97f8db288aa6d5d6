"""Make PyPI's torchvision importable next to a CPU build of torch, in interpreters with this folder on PYTHONPATH.

The compiled extension of PyPI's torchvision needs CUDA. Without the extension, the import of
`torchvision._meta_registrations` fails ("operator torchvision::nms does not exist"). So this file declares the two
operators that the import looks up; the tests never call them. If torch has CUDA, nothing is declared.
"""

import sys
from typing import Any


class Operators:
    """An import hook that finds no module itself. Before torchvision looks up its operators `nms` and `qnms` in torch,
    the hook declares them.
    """

    library: Any = None

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Always None, so that the next finder imports the module."""
        if name != "torchvision._meta_registrations" or sys.modules["torchvision.extension"]._has_ops():
            return
        import torch

        self.library = torch.library.Library("torchvision", "DEF")
        for one in ("nms", "qnms"):
            self.library.define(f"{one}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


sys.meta_path.insert(0, Operators())  # type: ignore[arg-type]
