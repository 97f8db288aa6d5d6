"""`Forks`: an interpreter that has imported the libraries and forks a process for each run, so that tests start fast.

It is the one that `xpc rehearse` uses.
"""

from __future__ import annotations

from xpc.compiler.preview.rehearsal.forks import Forks as Forks
