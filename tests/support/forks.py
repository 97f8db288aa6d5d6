"""`Forks`: an interpreter that has imported the libraries. It forks a process for each run, so runs start fast.

`xpc rehearse` uses the same class.
"""

from __future__ import annotations

from xpc.compiler.preview.rehearsal.forks import Forks as Forks
