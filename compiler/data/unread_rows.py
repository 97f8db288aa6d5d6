"""A note about the rows that `xpc check` does not read. `xpc preview` can check these rows."""

from __future__ import annotations

import os

from xpc.compiler.data.rows import unread
from xpc.compiler.language.codes import report
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.grammar.diagnostic import Diagnostic
from xpc.runtime.core.cache_folders import hub_home


def note(spec: Spec) -> list[Diagnostic]:
    """A list with one note about the rows on this machine that `xpc check` does not read: rows of Parquet files, of
    large files, and of hub datasets in the local cache. The list is empty if there are no such rows.
    """
    here = [spec.data[at] for at in unread(spec) if spec.data[at].id is None or _is_cached(spec.data[at])]
    if not here:
        return []
    names = f"`{here[0].name[:80]}`" + (f" and {len(here) - 1} more" if here[1:] else "")
    help = "`xpc preview SPEC --rows 1000` checks them, with the packages that train"
    return [report("XP199", f"`xpc check` does not read the rows of {names}", here[0].label, help=help)]


def _is_cached(source: DataSource) -> bool:
    """Whether the cache of the hub has a folder for the dataset."""
    folder = os.environ.get("HF_HUB_CACHE") or os.path.join(hub_home(), "hub")
    return os.path.isdir(os.path.expanduser(f"{folder}/datasets--{(source.id or '').replace('/', '--')}"))
