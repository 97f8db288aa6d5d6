"""What a run leaves behind."""

from __future__ import annotations

import os
from typing import Any


def final(scene: Any) -> dict[str, Any]:
    """The files of the final save, and whether weights are among them."""
    folder = scene.plan["arguments"]["output_dir"]
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return {"files": names, "weights": any(name.endswith((".safetensors", ".bin")) for name in names)}
