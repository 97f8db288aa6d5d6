"""Makes PyPI's torchvision importable next to a torch for CPUs, in every interpreter with this folder on PYTHONPATH.

The compiled part of that torchvision needs CUDA. Without it, `torchvision._meta_registrations` fails ("operator
torchvision::nms does not exist"), so the two operators that it looks up are declared first; nothing here calls them.
Next to a torch with CUDA the compiled part loads, and nothing is declared.
"""

import sys
from typing import Any


class Operators:
    """A finder of modules that finds none: it declares the operators when torchvision is about to look them up."""

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
