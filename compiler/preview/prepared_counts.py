"""Read the counts of the rows that `launch.sh --prepare` stored in $XPC_PREPARED, for `xpc plan` and `xpc preview`."""

from __future__ import annotations

import json
import os
import tomllib

from xpc.compiler.data.preview_counts import is_valid
from xpc.compiler.lower import lower
from xpc.compiler.spec.checked import CheckedSpec
from xpc.runtime.prepare_rows import INDEX, key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from xpc.compiler.spec import Spec

LARGEST = 2**22
"""At most this many characters of an index file are read. An index file lists a folder of prepared rows."""


def prepared_counts(spec: Spec, root: str) -> Mapping[str, Any] | None:
    """Return the counts, such as the numbers of rows and tokens, that were stored when the rows of a spec were
    prepared. None if they were never prepared. `root` is the folder of the spec.
    """
    folder = os.environ.get("XPC_PREPARED")
    if not folder or not isinstance(spec, CheckedSpec):
        return None
    files = lower(spec)
    plan, manifest = json.loads(files["trainer_args.json"]), tomllib.loads(files["bundle.toml"].decode())
    model = None if spec.model.path is None else os.path.join(root, spec.model.path)
    try:
        with open(os.path.join(folder, key(plan, manifest, model), INDEX), encoding="utf-8") as handle:
            counts = json.loads(handle.read(LARGEST))["counts"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return counts if isinstance(counts, dict) and is_valid(counts) else None
