"""Functions that colour text by ANSI codes, if colours are on."""

from __future__ import annotations

from xpc.grammar.diagnostic import ERROR, WARNING
from xpc.grammar.record import record

_RED, _YELLOW, _CYAN, _BLUE, _BOLD = "1;31", "1;33", "1;36", "1;34", "1"


@record
class Paint:
    """Wraps texts in ANSI colour codes. If `on` is false, texts are returned unchanged."""

    on: bool

    def severity(self, severity: str, text: str) -> str:
        """Colour a severity: red for errors, yellow for warnings, cyan for others."""
        return self._wrap(_RED if severity == ERROR else _YELLOW if severity == WARNING else _CYAN, text)

    def gutter(self, text: str) -> str:
        """Colour the frame of a snippet: arrows, line numbers and the vertical bar."""
        return self._wrap(_BLUE, text)

    def help(self, text: str) -> str:
        """Colour a text in cyan. This is for the word `help:`, and for text that should stand out."""
        return self._wrap(_CYAN, text)

    def bold(self, text: str) -> str:
        """Make text bold."""
        return self._wrap(_BOLD, text)

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on else text
