"""The frame of all HTML pages that xpc writes: a single file that loads nothing, with a common style for light and dark
screens.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from xpc.compiler.render.visible import visible
from xpc.grammar.package_data import read_text

POLICY = "default-src 'none'; style-src 'unsafe-inline'; {}img-src data:"
SCRIPTED = "script-src 'unsafe-inline'; "


def page(title: str, body: Sequence[str], style: str, script: str = "") -> str:
    """A complete HTML page. `title` is plain text, and `body` consists of lines of HTML. `style` is added to the style
    that all pages share.
    """
    policy = POLICY.format(SCRIPTED if script else "")
    more = f"<script>{script}</script>\n" if script else ""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<link rel="icon" href="data:,">\n<title>{text(title)}</title>\n'
        f"<style>{read_text(__file__, 'page.css')}{style}</style>\n"
        "</head>\n<body>\n" + "\n".join(body) + f"\n{more}</body>\n</html>\n"
    )


def text(words: str) -> str:
    """Escape any text for an HTML page."""
    return escape(visible(words))
