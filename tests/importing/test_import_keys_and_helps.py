"""A key that the import translates to a setting is also recognized by the help for an unknown name: both name the same
setting.
"""

from __future__ import annotations

import pytest
from compile_support import checked

from xpc.compiler.importing import keys
from xpc.compiler.language.extras import owner
from xpc.compiler.language.methods import METHODS
from xpc.compiler.suggest.meaning import meaning

TABLES = ("axolotl", "llamafactory", "torchtune", "trl", "accelerate", "python", "command")
ANOTHER_FORM = {"pref_ftx"}
"""Keys for which the import and the help write the same loss in two forms."""


def settings_of(row: keys.Key) -> set[str]:
    """The settings that the import writes for a key."""
    owned = {owner("trl", row.renamed, method) for method in METHODS} if row.renamed else set()
    return {row.setting} if row.setting else {path for path in owned if path is not None}


@pytest.mark.slow  # the test checks hundreds of specs
@pytest.mark.parametrize("table", TABLES)
def test_help_for_a_key_names_the_setting_that_the_import_writes(table: str) -> None:
    wrong = {}
    for name, row in keys.load(f"{table}/keys.toml").items():
        paths = settings_of(row)
        found = checked(f"xpc 1\ntrain qwen2.5-3b on alpaca\n{name} = 8\n").problems if paths else ()
        help = next((one.help or "" for one in found if one.code[:3] in ("XP0", "XP1") and one.severity == "error"), "")
        guess = meaning(name)
        known = guess is not None and guess.path in paths
        if help and not known and not any(path.rpartition(".")[2] in help for path in paths):
            wrong[name] = (paths, help)
    assert wrong.keys() <= ANOTHER_FORM, wrong
