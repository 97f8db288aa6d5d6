"""Store the counts of `xpc preview --rows`, so that later commands can report them. The counts do not affect bundles.

The key of an entry covers everything that affects the counts: the digests of the rows, of the tokenizer and of the
template, and the settings by which rows are selected, converted, truncated and batched. A dataset of the hub has a
digest only if its commit is pinned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from xpc.compiler import __version__
from xpc.compiler.files.digest import sha256
from xpc.compiler.files.file_digests import VERSION, file_digest
from xpc.compiler.files.private_folder import private_folder, read, write
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.codes import report
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.grammar.diagnostic import Diagnostic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


KIND = "previews"
"""The name of the folder in the cache folder that contains the counts of previews."""
DECISIVE = ("train", "model", "data", "method", "batch", "seed", "target")
"""Clauses whose settings affect rows, tokens or steps."""


def keep(spec: Spec, workspace: Workspace, counts: Mapping[str, Any]) -> None:
    """Store counts, unless the cache already has counts of more rows. Never raises."""
    folder, key = private_folder(KIND), _key(spec, workspace)
    if folder is None or key is None:
        return
    _keep_digests(spec, workspace)
    before = recall(spec, workspace)
    if before is None or before["rows"] <= counts["rows"]:
        write(folder, key, json.dumps(counts))


def recall(spec: Spec, workspace: Workspace) -> Mapping[str, Any] | None:
    """The counts that a preview of the spec's rows has stored. None if no preview had the same rows and settings."""
    folder = private_folder(KIND)
    key = None if folder is None else _key(spec, workspace)
    found = None if folder is None or key is None else read(folder, key)
    return found if found is not None and is_valid(found) else None


def note(spec: Spec, workspace: Workspace) -> list[Diagnostic]:
    """A list with one note about the stored counts, or an empty list if none are stored."""
    found = recall(spec, workspace)
    return [] if found is None else [report("XP161", sentence(found), spec.data[0].label)]


def mean(counts: Mapping[str, Any]) -> int | None:
    """The average number of tokens in a row, rounded up. None if it is unknown, because the trainer tokenizes only
    during training.
    """
    return -(-counts["tokens"] // counts["rows"]) or None


def sentence(counts: Mapping[str, Any], origin: str = "from a preview of") -> str:
    """The counts as a sentence: `rows have 12 to 900 tokens (median 230); 3.1 % are longer than 512, from a preview of
    600 rows`.

    `origin` is the text before the number of rows, here `from a preview of`.
    """
    rows, lengths, out = counts["rows"], counts["quantiles"], []
    if lengths:
        least, middle, most = (lengths[one] for one in ("0.0", "0.5", "1.0"))
        out.append(f"rows have {least:,} to {most:,} tokens (median {middle:,})")
    if lengths and counts["limit"] is not None:
        out.append(f"{100 * counts['cut'] / rows:.1f} % are longer than {counts['limit']:,}")
    if counts["dropped"]:
        out.append(f"{100 * counts['dropped'] / rows:.1f} % are dropped")
    if counts["kept_tokens"] and counts["learned_tokens"] is not None:
        out.append(f"{100 * counts['learned_tokens'] / counts['kept_tokens']:.1f} % of the kept tokens bear loss")
    return f"{'; '.join(out) or 'the trainer accepts the rows'}, {origin} {rows:,} rows"


def _keep_digests(spec: Spec, workspace: Workspace) -> None:
    """Compute and store the digests of files that are too large to copy. A later `xpc check` does not compute the
    digests of such files, but needs the stored digests to find the counts in the cache.
    """
    from xpc.compiler.files.file_memory import user_memory

    for part in (part for source in spec.data for part in source.of_split(source.split)):
        if part.path is not None and part.bundled is None:
            file_digest(workspace.locate(part.path)[1], user_memory())


def is_valid(found: Mapping[str, Any]) -> bool:
    """Whether an entry of the cache has the form of counts. This is checked because the file may have been written by
    another program.
    """
    lengths = found.get("quantiles")
    numbers = [found.get(name) for name in ("rows", "tokens", "cut", "dropped")]
    optional = [found.get(name) for name in ("limit", "kept_tokens", "learned_tokens", "sequences")]
    return (
        isinstance(lengths, dict)
        and (not lengths or {"0.0", "0.5", "1.0"} <= lengths.keys())
        and all(_is_count(one) for one in (*numbers, *lengths.values()))
        and all(one is None or _is_count(one) for one in optional)
        and found["rows"] > 0
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**60


def _key(spec: Spec, workspace: Workspace) -> str | None:
    """The name of the cache entry for a spec. None if a source has no digest, as a hub dataset without a commit."""
    rows = [_digest(source, workspace) for source in spec.data]
    if None in rows:
        return None
    model = spec.model
    settings = [(path, repr(one.value)) for path, one in spec.values.items() if path.partition(".")[0] in DECISIVE]
    extra = [(name, repr(one.value)) for name, one in spec.extra.get("trl", {}).items()]
    sources = [
        (one.shape, one.columns, one.only, repr(one.take), one.share, one.context, one.wording, one.chat, one.limit,
         one.roles, one.documents)
        for one in spec.data
    ]  # fmt: skip
    tokenizer = (model.id, model.path, model.revision, sha256(model.vocabulary or b"").hexdigest(), model.eos)
    decisive = (
        __version__, spec.stack.name, rows, sources, tokenizer, spec.chat_template, sorted(settings), sorted(extra),
        spec.hardware.world,
    )  # fmt: skip
    return sha256(repr(decisive).encode("utf-8", "surrogatepass")).hexdigest()


def _digest(source: DataSource, workspace: Workspace) -> object:
    """A value that changes if the rows of a source change: the SHA-256 of a file, the digests of the files in a folder,
    or the commit of a hub dataset.
    """
    if source.parts:
        parts = [(part.path, _digest(part, workspace)) for part in source.of_split(source.split)]
        return None if any(digest is None for _, digest in parts) else parts
    if source.id is not None:
        pinned = source.revision is not None and len(source.revision) == 40
        return (source.id, source.config, source.split, source.slice, source.revision) if pinned else None
    if source.sha256 is not None or source.path is None:
        return source.sha256
    from xpc.compiler.files.file_memory import user_memory

    # `check` does not read a file that is too large to be copied, so take the digest that a preview stored
    memory = user_memory()
    found = None if memory is None else memory.recall(workspace.locate(source.path)[1], VERSION, VERSION)
    return None if found is None else found[0]
