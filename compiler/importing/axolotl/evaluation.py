"""Import axolotl's evaluation data: held-out rows (`val_set_size`) or separate datasets (`test_datasets`)."""

from __future__ import annotations

from xpc.compiler.importing.axolotl.keys import names
from xpc.compiler.importing.draft import Draft, Source
from xpc.compiler.importing.text.entries import Entries, Entry, is_stated, plain
from xpc.compiler.importing.trl import data as corpus
from xpc.compiler.importing.trl.model import revised

PLACES = {"path", "name", "split", "ds_type", "data_files", "revision", "trust_remote_code"}
"""Keys that state where a dataset is stored. All other keys of a dataset state how its rows are read."""


def _test_sets(draft: Draft, entry: Entry | None, listed: Entry | None) -> None:
    """Set `eval.data` from `test_datasets`. A test set whose rows have another format than the training rows is an
    error.
    """
    if not is_stated(entry):
        draft.note(entry, "null: none")
        return
    trained = listed.items[0].mapping if listed is not None and listed.items else {}
    refs: list[str] = []
    for one in entry.items:
        table = one.mapping
        keys = (names("datasets.") & {*trained, *table}) - PLACES
        unexpected = [key for key in sorted(keys) if _shown(table, key) != _shown(trained, key)]
        if unexpected:
            draft.error(table.get(unexpected[0], one), "a spec reads evaluation rows like training rows",
                        "give the test set the keys of the training set")  # fmt: skip
            continue
        split = table.get("split")
        found = corpus.source(draft, table.get("path", one), table.get("name"), split)
        if found is not None and not found.ref.startswith('"') and not is_stated(split):
            # axolotl evaluates on the split `test` unless the file names another one
            found = Source(f"{found.ref.removesuffix('[train]')}[test]")
        if found is not None and "revision" in table:
            found = Source(revised(draft, found.ref, table["revision"]))
        for key in table:
            if (one.file, table[key].key) not in draft.outcomes:
                corpus.everything(draft, table[key], "the training data has the same value")
        refs += [] if found is None else [found.ref]
    if refs:
        draft.raw("eval.data", f"[{', '.join(refs)}]" if len(refs) > 1 else refs[0], entry)
    if len(refs) > 1:
        why = "axolotl evaluates on all test sets together; the spec evaluates on each one separately"
        draft.differs("test_datasets", why, entry)


def _shown(table: Entries, key: str) -> object:
    return plain(table[key]) if key in table else None


def holdout(draft: Draft, named: Entries) -> None:
    """Set the held-out rows or the test sets. A file with neither does not evaluate."""
    _test_sets(draft, named.get("test_datasets"), named.get("datasets"))
    if "val_set_size" in named:
        corpus.holdout(draft, named["val_set_size"])
    if not draft.has("data.holdout") and not draft.has("eval.data"):
        draft.settings.pop("eval.every", None)
    if not draft.has("eval.every"):
        draft.settings.pop("eval.data", None)
