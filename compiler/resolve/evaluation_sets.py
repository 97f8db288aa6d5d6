"""Read the evaluation sets in `eval { data = ... }`: files, datasets, or titles of `data` blocks."""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.codes import Problems
from xpc.compiler.language.convert import convert
from xpc.compiler.language.items import EvaluationBlock, Row
from xpc.compiler.language.load import MergedSpec
from xpc.compiler.language.schema import BY_PATH, OF_A_BLOCK
from xpc.compiler.language.setting import Path
from xpc.compiler.language.values import InvalidValue
from xpc.compiler.resolve.sources import Reading, find_source, roles_of
from xpc.compiler.resolve.training_data import report_no_source
from xpc.compiler.spec.resources import DataSource, EvalSet
from xpc.compiler.spec.values import Value, text_of
from xpc.compiler.suggest.legal import answer
from xpc.grammar.diagnostic import Label
from xpc.grammar.record import entity, evolve
from xpc.grammar.tree import List, Ref, String


@entity
class Sets:
    """Reads evaluation sets. Findings are added to `problems`, copies of local files to `bundled`."""

    loaded: MergedSpec
    values: dict[Path, Value]
    workspace: Workspace
    trained: tuple[DataSource, ...]
    problems: Problems
    bundled: dict[str, bytes]

    def read(self) -> tuple[EvalSet, ...]:
        """Read the evaluation sets, and replace the value of `eval.data` by the name of the set, or by a tuple of names
        if there are several sets.
        """
        value, label = self.values["eval.data"], self.loaded.items["eval.data"].label
        node = value.value
        parts = node.items if isinstance(node, List) else (node,)
        sets = tuple(self._set(one, label) for one in parts if isinstance(one, Ref | String))
        seen: dict[str, EvalSet] = {}
        for one in sets:
            first = seen.setdefault(one.name, one)
            if first is not one:
                message = f"two evaluation sets would be called `{one.name}`"
                help = f"put one of the two sets into a block, `data {one.name}_2 {{`, and name the block here"
                self.problems.report("XP103", message, one.label, related=(first.label,), help=help)
        names = tuple(one.name for one in sets)
        self.values["eval.data"] = Value(names if isinstance(node, List) else names[0], value.origin)
        for source in (part for one in sets for whole in one.sources for part in (whole, *whole.parts)):
            if source.bundled and source.content is not None:
                self.bundled[source.bundled] = source.content
        return sets

    def _set(self, node: Ref | String, label: Label) -> EvalSet:
        location = Label(label.source, node.span)
        block = self.loaded.blocks.get(node.name) if isinstance(node, Ref) and node.is_name else None
        if block is None and isinstance(node, Ref) and self._is_trained(node):
            return EvalSet(node.name, location, tuple(evolve(one, label=location) for one in self.trained))
        if block is None:
            return EvalSet(_title(node), location, (self._source(Row(node, location), self._alone()),))
        assert isinstance(node, Ref)
        if not block.rows:
            report_no_source(block.label, self.loaded.problems, self.problems)
        written = {path: self._written(block, path) for path in OF_A_BLOCK}
        shape, prompt, context = (
            value if isinstance(value := written[path], str) else None
            for path in ("data.format", "data.prompt", "data.context")
        )
        columns = named if isinstance(named := written["data.columns"], tuple) else None
        how = evolve(
            self._alone(), shape=shape, prompt=prompt, context=context, columns=columns, several=len(block.rows) > 1
        )
        return EvalSet(node.name, location, tuple(self._source(row, how) for row in block.rows), prompt)

    def _is_trained(self, node: Ref) -> bool:
        """Whether a name is the title of the `data` block with the training data."""
        name = self.loaded.data_name
        return node.is_name and name is not None and name.typed == node.name

    def _written(self, block: EvaluationBlock, path: str) -> object:
        item = block.items.get(path)
        value = None if item is None else convert(BY_PATH[path], item)
        if isinstance(value, InvalidValue):
            self.problems.append(answer(value))
            return None
        return value

    def _alone(self) -> Reading:
        """The settings for reading a single file or dataset, as in `eval { data = "test.jsonl" }`. They are the same as
        the settings of the training data.
        """
        turns = self.values.get("data.chat")
        method, chat = text_of(self.values, "method") or "sft", turns is not None and turns.value is True
        documents = text_of(self.values, "data.documents")
        return Reading(self.workspace, method, roles=roles_of(self.values), chat=chat, documents=documents)

    def _source(self, row: Row, block: Reading) -> DataSource:
        """Find one source of an evaluation set. Its format is the first of these formats that is known: the spec's, the
        registry's, the format of the first row, and the format of the training data.
        """
        known = isinstance(row.ref, Ref) and registry.find_dataset(row.ref.name) is not None
        if block.prompt is None and not known and not row.items:
            prompt, context = (text_of(self.values, path) for path in ("data.prompt", "data.context"))
            block = evolve(block, prompt=prompt, context=block.context or context)
        source, found = find_source(row, block)
        first = self.trained[0]
        if block.shape is None and not known and source.found is None:
            like_trained = evolve(block, shape=first.wording or first.shape)
            again, other = find_source(row, like_trained)
            alike = (
                first.only and not again.only and set(first.columns or ()) <= set(again.found or first.columns or ())
            )
            if alike:
                names = list(first.columns or ())
                if first.wording is not None and first.context is not None:
                    names.insert(1, first.context)
                # the rows are read again, because a stored survey holds only for the columns with which it was made
                again, other = find_source(row, evolve(like_trained, columns=tuple(names)))
            if alike or again.found is None:
                # a missing file may be on the training machine, unless a file with a similar name is here
                misspelt = [one for one in found if one.code == "XP123" and one.edits]
                source, found = again, other if first.stated or not misspelt else misspelt
        self.problems.extend(found)
        splits = (one for one in ("test", "validation") if source.parts and source.of_split(one))
        return evolve(source, split=next(splits, source.split))


def _title(node: Ref | String) -> str:
    """The name of a set that is not a `data` block: the name of its file, or its dataset's name with configuration and
    split.
    """
    if isinstance(node, String):
        name = node.value.rstrip("/").rpartition("/")[2]
        name = name.rpartition(".")[0] or name
    else:
        name = "_".join(one for one in (node.name.rpartition("/")[2], node.config, node.split) if one)
    clean = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:60]
    return clean if clean[:1].isalpha() else f"set_{clean}"
