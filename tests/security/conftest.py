"""The compiler's and the runtime's own helpers import by name; nothing here reaches the network."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("", "../compiler", "../runtime", "../support"):
    sys.path.insert(0, os.path.normpath(os.path.join(HERE, folder)))
