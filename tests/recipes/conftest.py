"""Tests in this folder run offline: HF_HUB_OFFLINE is set unless the caller has set it."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
