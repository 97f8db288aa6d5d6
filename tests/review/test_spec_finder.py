"""Which `.xp` files of a repository are checked as specs, and the order in which files of a bundle are compared."""

from __future__ import annotations

import pytest

from xpc.compiler.review.spec_finder import _in_bundle
from xpc.compiler.review.verifying.file_differences import _order


@pytest.mark.parametrize(("path", "inside"), [
    ("runs/a/spec.xp", True),  # the folder has a bundle.toml
    ("a.bundle/members/b/spec.xp", True),
    ("runs/b/spec.xp", False),
    ("runs/a/other.xp", False),
    ("spec.xp", False),
])  # fmt: skip
def test_the_spec_of_a_bundle_is_not_checked(path: str, inside: bool) -> None:
    assert _in_bundle(path, {"runs/a"}) is inside


def test_files_that_repeat_others_are_compared_last() -> None:
    names = ["bundle.toml", "run.sha256", "spec.xp", "sweep.toml", "trainer_args.json", "members/a/accelerate.yaml"]
    assert sorted(names, key=_order) == [
        "members/a/accelerate.yaml", "trainer_args.json", "bundle.toml", "run.sha256", "spec.xp", "sweep.toml",
    ]  # fmt: skip
