"""Helpers for tests of importers: import a text without files on disk; return the draft, the spec and the bundle's
files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.importing import cli as edge
from xpc.compiler.importing import options
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.emit import emit
from xpc.compiler.importing.source_file import SourceFile
from xpc.compiler.importing.text.entries import Entry
from xpc.compiler.pipeline import compile_text
from xpc.grammar.diagnostic import ERROR
from xpc.grammar.format import format_file
from xpc.grammar.parse import parse
from xpc.grammar.record import entity, field
from xpc.grammar.source import Source

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PUBLISHED = os.environ.get("XPC_PUBLISHED", os.path.join(os.path.dirname(REPOSITORY), "shared", "published"))
"""The folder of the published recipes, which are not part of the repository."""
ABSENT = not os.path.isdir(PUBLISHED)
WHERE = "the published files lie elsewhere: XPC_PUBLISHED names their folder"

HEAD = "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: org/rows\n"
HARDWARE = ("--hardware", "8 x h100-80gb")
FACTORY = """\
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
do_train: true
finetuning_type: lora
dataset: alpaca_en_demo
template: qwen
output_dir: out
bf16: true
"""
"""A file of LLaMA-Factory."""


@frozen
class Imported:
    """The result of an import: the draft, the spec's text, and the bundle's files. The files are None if the spec does
    not compile.
    """

    draft: Draft
    text: str
    errors: tuple[str, ...]
    files: Mapping[str, bytes]

    @property
    def payload(self) -> dict[str, Any]:
        """The bundle's trainer_args.json as JSON. Fails the test if the spec does not compile."""
        assert not self.errors, (self.errors, self.text)
        loaded: dict[str, Any] = json.loads(self.files["trainer_args.json"])
        return loaded

    @property
    def arguments(self) -> dict[str, Any]:
        """The trainer's arguments in the bundle of the imported spec."""
        found: dict[str, Any] = self.payload["arguments"]
        return found

    @property
    def outcomes(self) -> dict[str, str]:
        """Maps each key of the source to its outcome: `mapped`, `extra`, `irrelevant` and so on."""
        return {one.key: one.outcome for one in self.draft.outcomes.values()}

    @property
    def messages(self) -> list[str]:
        """The messages of the import; each begins with its severity."""
        return [f"{one.severity}: {one.location} {one.text}" for one in self.draft.messages]


def convert(text: str, *arguments: str, name: str = "recipe.yaml", folder: str = REPOSITORY) -> tuple[Draft, str]:
    """Import a text. Return the draft and the text of the spec."""
    chosen = options.parse([*arguments] if "--command" in arguments else [name, *arguments])
    source = SourceFile(name, text, folder)
    draft = edge.convert(source, chosen, edge.overrides_of(chosen, source))
    spec = draft.text or emit(draft, "a test.")
    tree, problems = parse(Source("again.xp", spec))
    assert not problems
    assert format_file(tree) == spec, "an imported spec must be formatted"
    return draft, spec


def imported(text: str, *arguments: str, name: str = "recipe.yaml", root: str = REPOSITORY) -> Imported:
    """Import a text, and compile the spec. The files that the import would write exist only in memory."""
    draft, spec = convert(text, *arguments, name=name, folder=root)
    # a published file states no hardware, so the tests choose it, and the run may exceed its memory
    workspace = _FilesNextTo(root, allow_oom=True, extra_files=draft.files)
    files, checked = compile_text(spec.encode(), "recipe.xp", workspace)
    errors = tuple(f"{one.code} {one.message}" for one in checked.problems if one.severity == ERROR)
    return Imported(draft, spec, errors, files or {})


@entity  # type: ignore[misc]
class _FilesNextTo(Workspace):
    """A workspace with additional files, which exist only in memory."""

    extra_files: Mapping[str, bytes] = field(factory=dict)

    def read(self, written: str, base: str = "", limit: int = 2**24) -> Any:
        from hashlib import sha256

        from xpc.compiler.files.workspace import Read

        if written in self.extra_files:
            data = self.extra_files[written]
            return Read(written, data, sha256(data).hexdigest())
        return Workspace.read(self, written, base, limit)


def leaves(table: Mapping[str, Entry]) -> Iterator[Entry]:
    """Yield every innermost value of a nested configuration, with its path. An empty list or an empty mapping also
    counts as an innermost value.
    """
    for entry in table.values():
        yield from _leaves(entry)


def _leaves(entry: Entry) -> Iterator[Entry]:
    inside = [*entry.mapping.values(), *(entry.value if isinstance(entry.value, list) else [])]
    for one in inside:
        yield from _leaves(one)
    if not inside:
        yield entry


def unaccounted(draft: Draft, table: Mapping[str, Entry]) -> list[str]:
    """The keys of a configuration for which the import reports no outcome. If a mapping has an outcome, it holds for
    all keys inside the mapping.
    """
    known = {key for _, key in draft.outcomes}

    def spoken(key: str) -> bool:
        while key:
            if key in known:
                return True
            head, dot, _ = key.rpartition(".")
            bracket = key.rpartition("[")[0]
            key = bracket if key.endswith("]") else head if dot else ""
        return False

    return [one.key for one in leaves(table) if not spoken(one.key)]
