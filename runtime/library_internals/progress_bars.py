"""The progress bars of datasets, transformers and huggingface_hub. All three use tqdm."""

import os
import sys
from typing import Any
from weakref import WeakSet

from tqdm import std  # type: ignore[import-untyped, unused-ignore]  # a requirement of datasets and transformers

from ..core import progress

_bars: WeakSet[Any] = WeakSet()


def capture(shown: bool) -> None:
    """Record new progress bars, so that the line about a long phase can show their counts. With ``shown``, running bars
    also appear on a terminal; without it, they write nothing. Only the first call has an effect."""
    if progress.Phase.bar is current:
        return
    made = std.tqdm.__init__
    seen = shown and sys.stderr.isatty()
    nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the process ends

    def init(bar: object, *args: object, **options: object) -> None:
        options["leave"] = False
        if not seen:
            options["file"] = nowhere
        made(bar, *args, **options)
        _bars.add(bar)

    std.tqdm.__init__ = init
    progress.Phase.bar = current


def current() -> tuple[str, int, int, float] | None:
    """The description, count, total and seconds of the first running bar that has a total."""
    for bar in list(_bars):
        if getattr(bar, "total", None) and not bar.disable:
            return bar.desc or "", int(bar.n), int(bar.total), float(bar.format_dict["elapsed"])
    return None
