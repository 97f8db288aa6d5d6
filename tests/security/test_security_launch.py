"""Schedulers' files contain names from the spec. Each such name is a single word there, or is refused."""

from __future__ import annotations

import re

import pytest
from case_support import spec
from compile_support import checked, compiled
from test_hostile import PAYLOADS, quoted

pytestmark = pytest.mark.slow

ENGINES = {
    "slurm": {"partition": "gpu", "account": "mine"},
    "k8s": {"image": "img", "volume": "runs", "secret": "hf"},
    "sky": {"image": "img", "volume": "runs"},
}
SLOTS = [(engine, name) for engine, names in ENGINES.items() for name in names]
MORE = (
    "a\\n#SBATCH --wrap=evil",
    "a\\nb: c",
    "a: b",
    "- a",
    "a #b",
    "{a: b}",
    "[a]",
    "!!str a",
    "@a",
    "%a",
    "? a",
    "on",
)


@pytest.mark.parametrize(("engine", "slot"), SLOTS)
def test_payloads_stay_single_words_in_the_files_of_engines(engine: str, slot: str) -> None:
    yaml = pytest.importorskip("yaml")
    names = ENGINES[engine]

    def text(value: str) -> str:
        output = ", ".join(f"{name}={quoted(value if name == slot else usual)}" for name, usual in names.items())
        return spec("nodes 2", f"launch {engine}({output})", batch="gbs=256 micro=16")

    def shape(value: object) -> object:
        if isinstance(value, dict):
            return {key: shape(one) for key, one in value.items()}
        return [shape(one) for one in value] if isinstance(value, list) else type(value).__name__

    usual = compiled(text(names[slot]))
    accepted = 0
    for payload in (*PAYLOADS, *MORE):
        if checked(text(payload)).spec is None:
            continue
        accepted += 1
        files = compiled(text(payload))
        assert re.fullmatch(r"[\w.,:/@+-]+", payload), payload
        for name in set(files) - {"spec.xp", "README.md", "bundle.toml"}:
            if name.endswith((".sbatch", ".sh")):
                old, new = (one[name].decode().splitlines() for one in (usual, files))
                other = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
                assert all(b == a.replace(names[slot], payload) and b.startswith("#SBATCH ") for a, b in other), other
            if name.endswith(".yaml") and name != "accelerate.yaml":
                old, new = (list(yaml.safe_load_all(one[name])) for one in (usual, files))
                assert shape(old) == shape(new), (name, payload)
    assert accepted


def test_launch_sh_has_nothing_of_them() -> None:
    for engine, names in ENGINES.items():
        output = ", ".join(f'{name}="zq7mark"' for name in names)
        files = compiled(spec("nodes 2", f"launch {engine}({output})", batch="gbs=256 micro=16"))
        assert b"zq7mark" not in files["launch.sh"]
