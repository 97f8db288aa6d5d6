"""Which settings a word stands for."""

from __future__ import annotations

from xpc.compiler.language.schema import BY_PATH, SOURCE_SETTINGS, TABLE, Setting, bare_choices, children


def setting_rows(name: str) -> list[Setting]:
    """The settings that a path, a name, a choice (`zero2`) or a clause (`memory`) stands for; of a source's, too."""
    named = [row for row in TABLE if name in (row.path, row.name)]
    choice = bare_choices().get(name)
    own = [SOURCE_SETTINGS[name]] if name in SOURCE_SETTINGS else []
    return named or own or ([BY_PATH[choice]] if choice else []) or list(children(name))
