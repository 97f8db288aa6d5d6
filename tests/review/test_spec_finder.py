"""`xpc` finds the specs of a repository. The spec.xp of a bundle counts as a spec only if it was edited. In a bundle,
files that repeat other files are compared last.
"""

from __future__ import annotations

import pytest
from compile_support import SEED, compiled

from xpc.compiler.review.spec_finder import Specs, _specs
from xpc.compiler.review.verifying.file_differences import _order

MADE = compiled(SEED, name="a.xp")
BUNDLE = {name: MADE[name] for name in ("bundle.toml", "spec.xp")}


def found_in(files: dict[str, bytes]) -> Specs:
    """Find the specs in a repository that consists of these files."""
    return _specs(dict.fromkeys(files, "100644"), files.get, lambda path: None)


@pytest.mark.parametrize("folder", ["x.bundle/", "runs/a/", "s.bundle/members/b/", ""])
def test_the_spec_of_a_bundle_is_no_spec_of_the_repository(folder: str) -> None:
    found = found_in({folder + name: data for name, data in BUNDLE.items()} | {f"{folder}other.xp": SEED.encode()})
    assert found.copies == (f"{folder}spec.xp",)
    assert found.files == (f"{folder}other.xp",)


@pytest.mark.parametrize("manifest", [
    None, b"", b"x = [", b"[files]\n", BUNDLE["bundle.toml"].replace(b'"spec.xp" = ', b'"spec.txt" = '),
    BUNDLE["bundle.toml"].replace(b"\n[files]\n", b"\n[other]\n"),
    b"# " + BUNDLE["bundle.toml"].replace(b"\n", b"\n# "),
])  # fmt: skip
@pytest.mark.parametrize("folder", ["x.bundle/", "specs/"])
def test_neither_a_manifest_nor_a_name_hides_a_spec(folder: str, manifest: bytes | None) -> None:
    files = {f"{folder}spec.xp": BUNDLE["spec.xp"]} | ({} if manifest is None else {f"{folder}bundle.toml": manifest})
    found = found_in(files)
    assert (list(found.runs), found.copies) == ([f"{folder}spec.xp"], ())


def test_an_edited_spec_of_a_bundle_is_checked() -> None:
    found = found_in({**BUNDLE, "spec.xp": BUNDLE["spec.xp"].replace(b"528", b"256")})
    assert (list(found.runs), found.copies) == (["spec.xp"], ())


def test_files_that_repeat_others_are_compared_last() -> None:
    names = ["bundle.toml", "run.sha256", "spec.xp", "sweep.toml", "trainer_args.json", "members/a/accelerate.yaml"]
    assert sorted(names, key=_order) == [
        "members/a/accelerate.yaml", "trainer_args.json", "bundle.toml", "run.sha256", "spec.xp", "sweep.toml",
    ]  # fmt: skip
