"""The training method of a TRL file. The method is read from the file's path within the repository, so the folder in
which the command is started does not matter. If the keys fit several preference methods, the import warns.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import HARDWARE, imported

PAIRS = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: org/pairs\nbeta: 0.05\nmax_prompt_length: 512\n"


@pytest.mark.parametrize("method", ["orpo", "kto", "dpo"])
def test_folder_of_the_repository_names_the_method(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "recipes" / "zephyr" / method
    folder.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(folder)
    found = imported(PAIRS, *HARDWARE, name="config_full.yaml", root=str(folder))
    assert found.draft.method == method
    assert not any("fit the methods" in one for one in found.messages)


def test_folders_above_the_repository_name_no_method(tmp_path: Path) -> None:
    folder = tmp_path / "kto" / "repository"
    (folder / ".git").mkdir(parents=True)
    assert imported(PAIRS, *HARDWARE, name="config_full.yaml", root=str(folder)).draft.method == "dpo"


@pytest.mark.parametrize(("more", "name", "options", "warns"), [
    ("", "config.yaml", (), True),
    ("", "dpo.yaml", (), False),
    ("", "config.yaml", ("--method", "dpo"), False),
    ("precompute_ref_log_probs: true\n", "config.yaml", (), True),
    ("rpo_alpha: 0.1\n", "config.yaml", ("--trl", "0.24"), False),
    ("reference_free: true\n", "config.yaml", ("--trl", "0.24"), False),
])  # fmt: skip
def test_keys_of_several_methods_are_a_warning(more: str, name: str, options: tuple[str, ...], warns: bool) -> None:
    found = imported(PAIRS + more, *HARDWARE, *options, name=name, root="/")
    assert found.draft.method == "dpo"
    assert any("fit the methods" in one for one in found.messages) is warns
