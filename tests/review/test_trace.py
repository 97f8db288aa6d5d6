"""`xpc explain SPEC:SETTING` lists the keys of a bundle that a setting decides."""

from __future__ import annotations

from case_support import spec
from compile_support import checked

from xpc.compiler.review.trace import Trace


def test_keys_of_tables_and_other_files_by_name() -> None:
    found = checked(spec()).spec
    assert found is not None
    keys = Trace(found).keys_of("seed")
    assert "trainer_args.json arguments.seed = 42" in keys
    assert not [key for key in keys if " " not in key], (
        "files whose keys are listed, and Markdown files, must not be listed again"
    )
