"""Find the settings for a word of `xpc explain`."""

from __future__ import annotations

from xpc.compiler.language.schema import BY_PATH, SOURCE_SETTINGS, TABLE, Setting, bare_choices, children


def setting_rows(name: str) -> list[Setting]:
    """The settings that the word `name` stands for: the word is the path or the name of a setting, a choice (`zero2`),
    or a clause (`memory`). Settings of a data source are included.
    """
    named = [row for row in TABLE if name in (row.path, row.name)]
    # if a setting and a clause have the same name, such as `eval`, the setting comes first
    inside = [] if any(row.path == name for row in named) else list(children(name))
    choice = bare_choices().get(name)
    return [*inside, *(row for row in named if row not in inside)] or ([BY_PATH[choice]] if choice else [])


def source_setting(name: str) -> Setting | None:
    """The setting of a data source that has the word as its name (`take`) or its path (`data.take`), or None."""
    return SOURCE_SETTINGS.get(name.removeprefix("data."))
