"""Read the test cases of the rules from tests/**/cases_TOPIC.toml.

Each `[[case]]` has two specs for one diagnostic code. The check reports the code for the first spec; the second spec is
similar, and the check does not report the code for it. A spec is written as lines that are added to the spec of
`case_support.spec`. `tests/README.md` explains the keys.
"""

from __future__ import annotations

import base64
import os
import tomllib
from collections.abc import Mapping
from typing import Any

from case_support import Case, spec

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PREVIEWED = (
    "XP161", "XP199", "XP166", "XP175", "XP177", "XP587", "XP588", "XP589",
    *(f"XP{number}" for number in range(591, 600)),
)  # fmt: skip
"""Codes without a case in these files: they are reported only by `xpc preview`, or by rules that read its results. They
are tested in tests/preview/test_preview_{defects,counts,unread}.py.
"""
TOPICS = (
    "language/cases_names",
    "rules/optimizer/cases_run",
    "rules/saving/cases_secrecy",
    "rules/saving/cases_saving",
    "rules/optimizer/cases_optimizer",
    "rules/optimizer/cases_best",
    "engines/cases_clusters",
    "engines/cases_slurm",
    "rules/data/cases_evaluation",
    "rules/numerics/cases_numerics",
    "rules/numerics/cases_float8",
    "rules/numerics/cases_attention",
    "rules/strategy/cases_strategy",
    "rules/strategy/cases_context_parallel",
    "rules/extra/cases_deepspeed",
    "rules/data/cases_data",
    "rules/data/cases_data_loading",
    "rules/data/cases_export_marks",
    "rules/data/cases_images",
    "rules/method/cases_method",
    "rules/method/cases_cpo",
    "rules/method/cases_online",
    "rules/method/cases_tools",
    "rules/adapters/cases_continued",
    "rules/method/cases_distill",
    "rules/adapters/cases_adapted",
    "resolve/cases_sweep",
    "rules/adapters/cases_tuned",
    "rules/adapters/cases_initial",
    "rules/adapters/cases_other_kinds",
    "rules/extra/cases_extras",
)
"""Paths of the files with cases, relative to tests/ and without `.toml`. If a code has several cases, its documentation
shows the first case in this order as the example.
"""
CPU = {"hardware": "2 x cpu", "precision": "fp32", "batch": "gbs=8 micro=4"}
KEYS = {"code", "variant", "base", "with", "files", "shared_files"}
KEYS |= {f"{side}{part}" for side in ("rejected", "accepted") for part in ("", "_with", "_text")}


def read(topic: str) -> tuple[Case, ...]:
    """The cases of one file. Raises ValueError for an unknown key."""
    with open(os.path.join(TESTS, f"{topic}.toml"), "rb") as handle:
        table = tomllib.load(handle)
    return tuple(_case(one, table.get("shared_files", {}), topic) for one in table["case"])


def _case(one: Mapping[str, Any], shared: Mapping[str, Any], topic: str) -> Case:
    if unknown := one.keys() - KEYS:
        raise ValueError(f"{topic}: the case of {one['code']} has unknown keys: {', '.join(sorted(unknown))}")
    files = {**shared[one["shared_files"]]} if "shared_files" in one else {}
    files |= one.get("files", {})
    if one["code"] != "XP935":  # the folders of models have weights and a tokenizer
        folders = [path.removesuffix("/config.json") for path in files if path.endswith("/config.json")]
        files |= {f"{folder}/model.safetensors": "" for folder in folders if not any(
            path.startswith((f"{folder}/model", f"{folder}/pytorch_model")) for path in files)}  # fmt: skip
        files |= {f"{folder}/vocab.json": "" for folder in folders}
    return Case(
        one["code"],
        _spec(one, "rejected"),
        _spec(one, "accepted"),
        {path: _content(value) for path, value in files.items()},
        one.get("variant", ""),
    )


def _spec(one: Mapping[str, Any], side: str) -> str:
    """The spec of a ``side`` ("rejected" or "accepted"). The case states either the complete text of the spec, or lines
    that are added to the base spec.
    """
    if f"{side}_text" in one:
        return str(_content(one[f"{side}_text"]))
    base = CPU if one.get("base") == "cpu" else {}
    more = one.get(side, "")
    lines = "\n".join(map(_line, more)) if isinstance(more, list) else more.removesuffix("\n")
    return spec(*([lines] if lines else []), **{**base, **one.get("with", {}), **one.get(f"{side}_with", {})})


def _content(value: str | list[Any] | Mapping[str, Any]) -> str | bytes:
    """The content of a file, made from an entry of the TOML file. The entry is a text, a list of lines (`_line`), or a
    table.

    The table `{ base64 = "..." }` gives any bytes, and `{ lines = [...], encoding = "utf-16" }` encodes lines.
    """
    match value:
        case str():
            return value
        case list():
            return "".join(f"{_line(one)}\n" for one in value)
        case {"base64": data}:
            return base64.b64decode(data)
        case {"lines": lines, "encoding": encoding}:
            return str(_content(lines)).encode(encoding)
    raise ValueError(f"not the content of a file: {value}")


def _line(value: str | list[Any] | Mapping[str, Any]) -> str:
    """One or more lines of a file, made from an entry of the TOML file. The entry is a text, a list of parts (`_part`),
    or a table.

    `{ line = "a", times = 3 }` repeats a line, `{ lines = ["a", "b"], times = 3 }` repeats lines, and `{ numbered =
    "row #", times = 3 }` writes "row 1", "row 2", "row 3".
    """
    match value:
        case str():
            return value
        case list():
            return "".join(map(_part, value))
        case {"line": line, "times": times}:
            return "\n".join([_line(line)] * times)
        case {"numbered": line, "times": times}:
            return "\n".join(line.replace("#", str(number)) for number in range(1, times + 1))
        case {"lines": lines, "times": times}:
            return "\n".join([_line(one) for one in lines] * times)
    raise ValueError(f"no line: {value}")


def _part(value: str | Mapping[str, Any]) -> str:
    """Return a part of a line, made from an entry of the TOML file. The entry is a text, or `{ text = "ab", times = 2
    }` for "abab", or `{ count_to = 3 }` for "1, 2, 3".
    """
    match value:
        case str():
            return value
        case {"text": text, "times": times}:
            return str(text) * times
        case {"count_to": last}:
            return ", ".join(map(str, range(1, last + 1)))
    raise ValueError(f"not a part of a line: {value}")


CASES = tuple(case for topic in TOPICS for case in read(topic))
SYNTAX = read("language/cases_syntax")
"""For each syntax error, a case with a text that does not parse. The messages are in the golden files. These cases have
no `accepted` spec.
"""
