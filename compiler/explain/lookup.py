"""Which settings a word stands for."""

from __future__ import annotations

from xpc.compiler.language.schema import BY_PATH, SOURCE_SETTINGS, TABLE, Setting, bare_choices, children


def setting_rows(name: str) -> list[Setting]:
    """The settings that a path, a name, a choice (`zero2`) or a clause (`memory`) stands for; of a source's, too."""
    named = [row for row in TABLE if name in (row.path, row.name)]
    inside = [] if any(row.path == name for row in named) else list(children(name))  # `eval` is a clause and a setting
    choice = bare_choices().get(name)
    return [*inside, *(row for row in named if row not in inside)] or ([BY_PATH[choice]] if choice else [])


def source_setting(name: str) -> Setting | None:
    """The setting of a row of a `data` block that a name (`take`, `data.take`) stands for."""
    return SOURCE_SETTINGS.get(name.removeprefix("data."))
