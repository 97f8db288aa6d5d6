"""Find the sources of the training data. The `train` line has either the name of a dataset, or the title of a `data`
block that lists the sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xpc.compiler import registry
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.codes import Problems
from xpc.compiler.language.items import Row
from xpc.compiler.language.load import MergedSpec
from xpc.compiler.language.setting import Path
from xpc.compiler.resolve.sources import Reading, find_source, roles_of
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.values import Value, text_of
from xpc.grammar.checks import WORDS
from xpc.grammar.diagnostic import Diagnostic, Label
from xpc.grammar.record import evolve
from xpc.grammar.tree import Ref, String


def find_data(
    loaded: MergedSpec, values: Mapping[Path, Value], workspace: Workspace, problems: Problems
) -> tuple[DataSource, ...]:
    """Find every source of the training data. Unknown sources are reported."""
    assert loaded.train is not None
    assert loaded.train_source is not None
    node = loaded.train.data
    rows, explained = _rows(loaded, node, Label(loaded.train_source, node.span), problems)
    context = text_of(values, "data.context")
    reading = _reading(values, workspace, len(rows) > 1)
    sources: list[DataSource] = []
    for row in rows:
        source, found = find_source(row, reading)
        if "data.prompt_template" in values and context is None and source.wording is None:
            source = evolve(source, context=None)  # the prompt template contains `context`, so do not append it
        sources.append(source)
        if rows is not loaded.rows and explained:
            found = [one for one in found if one.code != "XP110"]
        reported = any(one.code == "XP111" for one in problems)  # report XP111 once, and not for each source
        problems += [one for one in found if not (reported and one.code == "XP111")]
    prompt = values.get("data.system")
    if prompt is not None and isinstance(prompt.value, str) and not prompt.value.strip():
        problems.report("XP107", "the system prompt is empty", prompt.origin.label, help="leave `system` out")
    return tuple(sources)


def _rows(loaded: MergedSpec, data: Ref | String, label: Label, problems: Problems) -> tuple[list[Row], bool]:
    """Return a pair. The first item is the list of sources. If the `train` line names a `data` block, the list has the
    sources of this block; otherwise, it has only the dataset in the `train` line. The second item is true if the name
    in the `train` line is unknown, and another finding already explains why.
    """
    rows, explained = [Row(data, label)], False
    block, header = loaded.data_name, label.source
    if block is not None:
        title = block.typed
        named = isinstance(data, Ref) and data.name in (title, "")
        replaced = header is loaded.file.source and block.source is not header
        if title != "data" and not named and replaced:
            pass  # no error: an extended spec has the block, and this spec's `train` line names other data
        elif title != "data" and not named:
            written = header.slice(data.span)
            help = f"name the block `{written[:60]}`, or write `on {title[:60]}`"
            problems.report("XP119", f"nothing reads the data block `{title[:60]}`", block, related=(label,), help=help)
            explained = True
        elif loaded.rows:
            rows = loaded.rows
        elif _is_unknown(data) and not loaded.broken:
            explained = True
            report_no_source(block, loaded.problems, problems)
    return rows, explained or (loaded.broken and _begins_block(data, loaded))


def report_no_source(block: Label, known: Sequence[Diagnostic], problems: Problems) -> None:
    """Report a `data` block without a source. A block with an unknown setting, such as `path = "rows.jsonl"`, is not
    reported: the setting is one of the `known` findings, and is probably the source.
    """
    end = block.source.text.find("}", block.span.end)
    settings = [one.primary for one in known if one.code == "XP101" and one.primary is not None]
    if any(one.source is block.source and block.span.end <= one.span.start < end for one in settings):
        return
    help = "write a source on a line of the block: a registered name, `org/name` or a quoted file"
    problems.report("XP110", f"the data block `{block.typed[:60]}` names no source", block, help=help)


def _reading(values: Mapping[Path, Value], workspace: Workspace, several: bool) -> Reading:
    """The settings that decide how the rows of the sources are read."""
    shape, column, method, context = (
        text_of(values, path) for path in ("data.format", "data.prompt", "method", "data.context")
    )
    listed, chat = values.get("data.columns"), values.get("data.chat")
    columns = None if listed is None or not isinstance(listed.value, tuple) else listed.value
    return Reading(
        workspace, method or "sft", shape, column, context, columns, roles_of(values),
        chat is not None and chat.value is True, several, text_of(values, "data.documents"),
    )  # fmt: skip


def _is_unknown(data: Ref | String) -> bool:
    return isinstance(data, Ref) and data.is_name and registry.find_dataset(data.name) is None


def _begins_block(data: Ref | String, loaded: MergedSpec) -> bool:
    """Whether a syntax error explains why the data in the `train` line is unknown. There are two such errors: the name
    is a keyword (`on for 3 epochs`), or the parser could not read the `data` block with this title.
    """
    if not isinstance(data, Ref):
        return False
    lines = loaded.file.source.text.split("\n")
    return data.name in WORDS or any(line.replace("{", " ").split()[:2] == ["data", data.name] for line in lines)
