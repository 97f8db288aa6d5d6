"""The exit of a test program that runs in several processes."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import torch.distributed as dist


def leave() -> NoReturn:
    """Wait for the other processes, and exit with status 0.

    Python is not finalized. After a barrier, a thread of gloo frees tensors, and it aborts the process if Python has
    begun to finalize (ProcessGroupGloo::runLoop, torch 2.13). ``destroy_process_group`` does not end this thread while
    a device mesh uses the group.
    """
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
