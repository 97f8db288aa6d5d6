"""Add editors/ to sys.path, so that tests can import the script of the VS Code extension."""

from __future__ import annotations

import os
import sys

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "editors")
)
