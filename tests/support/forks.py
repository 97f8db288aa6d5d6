"""The warm interpreter of `xpc rehearse`, which tests use for their launches."""

from __future__ import annotations

from xpc.compiler.preview.rehearsal.forks import Forks as Forks
