"""Write the JSON schemas of a SkyPilot task from the installed version into tests/engines/sky_schema.json.

Run it by hand in a separate environment (`pip install skypilot==0.14.1`), which is too large for the tests:
``python tests/engines/write_sky_schema.py``. Descriptions are left out; nothing else is changed.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sky_schema.json")


def bare(node: object) -> object:
    """A copy of the schema without its descriptions."""
    if isinstance(node, dict):
        return {
            key: bare(value) for key, value in node.items() if not (key == "description" and isinstance(value, str))
        }
    return [bare(item) for item in node] if isinstance(node, list) else node


def main() -> None:
    from sky.utils import schemas  # type: ignore[import-not-found, unused-ignore]

    parts = {
        "skypilot": version("skypilot"),
        "task": schemas.get_task_schema(),
        "resources": schemas.get_resources_schema(),
        "file_mounts": schemas.get_storage_schema(),
    }
    with open(OUT, "w", encoding="utf-8", newline="\n") as handle:
        handle.write(json.dumps(bare(parts), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
