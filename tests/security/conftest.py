"""Tests in this folder run offline: HF_HUB_OFFLINE is set to 1 unless it has a value already."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
