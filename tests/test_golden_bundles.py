"""The bundles of golden/ are what the compiler writes today, byte for byte."""

from __future__ import annotations

import os

import pytest

from tests.golden_bundles import GOLDEN, SPECS, compiled, kept


@pytest.mark.parametrize("name", SPECS)
def test_bundle_is_as_kept(name):
    files, golden = compiled(name), kept(name)
    assert sorted(files) == sorted(golden)
    for one, data in files.items():
        assert data == golden[one], f"{one} differs; `make golden` writes it anew"


@pytest.mark.parametrize("name", SPECS)
def test_only_the_launcher_is_executable(name):
    base = os.path.join(GOLDEN, f"{name}.bundle")
    executable = [one for one in kept(name) if os.access(os.path.join(base, one), os.X_OK)]
    assert executable == ["launch.sh"]


def test_no_orphans():
    assert sorted(os.listdir(GOLDEN)) == sorted(f"{name}.bundle" for name in SPECS)
