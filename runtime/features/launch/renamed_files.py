"""Recognize local files that have another name than when the resumed run began, but the same content."""

import os
import re
from collections.abc import Mapping
from typing import Any

from ...core.feature import Bundle, Feature

SOURCES, TEMPLATE = "data.sources", "tokenizer.chat_template"
IN_BUNDLE = re.compile(r"files/.*-([0-9a-f]{8}\.\w+)")


class RenamedFiles(Feature):
    """Hooks for a run with local files of rows or with a chat template of its own."""

    def earlier_names(self, bundle: Bundle, was: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
        """For data files and a chat template that were renamed without another change, return the earlier names."""
        return renamed_back(was, now)


def renamed_back(was: Mapping[str, object], now: Mapping[str, object]) -> dict[str, object]:
    """The settings of `now` that name a renamed file, each with the file's earlier name from `was`."""
    found: dict[str, Any] = {}
    before, after = (each.get(SOURCES) for each in (was, now))
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        found[SOURCES] = [
            {**new, "path": old.get("path"), "bundled": old.get("bundled")} if same_rows(old, new) else new
            for old, new in zip(before, after)
        ]
    before, after = (each.get(TEMPLATE) for each in (was, now))
    if isinstance(before, str) and isinstance(after, str) and _digest_in(before) == _digest_in(after) != "":
        found[TEMPLATE] = before
    return found


def same_rows(one: Any, other: object) -> bool:
    """Whether two sources have the same rows in the same format, by the digests of their files. False for rows with
    images, because the images' paths are relative to the folder of the rows.
    """
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    paths, shapes = ([str(each.get(key)) for each in (one, other)] for key in ("path", "shape"))
    if len({os.path.splitext(path)[1] for path in paths}) > 1 or any("image" in shape for shape in shapes):
        return False
    digests = [_digests(each) for each in (one, other)]
    return digests[0] == digests[1] and None not in digests[0].values()


def _digests(source: Mapping[str, Any]) -> dict[str, str | None]:
    """The digest of each file of a source, by the file's path in the source's folder; None for an unknown digest."""
    files = source.get("files")
    return {one.get("path"): one.get("sha256") for one in files} if files else {"": source.get("sha256")}


def _digest_in(name: str) -> str:
    """The digest and the ending in the name of a file of a bundle, such as `4c5f6c80.jinja` in
    `files/mine-4c5f6c80.jinja`. "" for a name without a digest.
    """
    found = IN_BUNDLE.fullmatch(name)
    return found[1] if found else ""
