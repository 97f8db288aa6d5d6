"""Find the sources of data: registered datasets, local files, and datasets of the hub that are not registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from xpc.compiler import registry
from xpc.compiler.data.contents import contents
from xpc.compiler.data.rows import column_shape, first_columns
from xpc.compiler.data.shapes import (
    ALPACA,
    INPUT,
    SHAPES,
    WITH_IMAGES,
    as_chat,
    columns_of,
    in_words,
    of_count,
    of_text,
    prompt_first,
)
from xpc.compiler.files.lfs import pointer
from xpc.compiler.files.workspace import DATA_FORMATS, Unreadable, Workspace
from xpc.compiler.language.codes import Problems, report
from xpc.compiler.language.convert import convert
from xpc.compiler.language.items import Row
from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.methods import DEFAULT, METHODS
from xpc.compiler.language.schema import SOURCE_SETTINGS, path_of
from xpc.compiler.language.setting import ROLES, Path
from xpc.compiler.language.values import InvalidValue, plain_text
from xpc.compiler.resolve.names import is_hub_id, unquoted
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.values import Value
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, Label
from xpc.grammar.record import evolve, record
from xpc.grammar.tree import Ref, String, quoted


@record
class Reading:
    """The settings of a `data` block that say how its rows are read. `shape` is the setting `format`. If the
    spec does not state a setting, its field has the default.

    A setting at a single source replaces the block's setting. `roles` are the names of speakers. `several` is true if
    the block has more than one source. `documents` says which part of a .txt file makes a row.
    """

    workspace: Workspace
    method: str
    shape: str | None = None
    prompt: str | None = None
    context: str | None = None
    columns: tuple[str, ...] | None = None
    roles: tuple[tuple[str, str], ...] = ()
    chat: bool = False
    several: bool = False
    documents: str | None = None


def find_source(row: Row, block: Reading) -> tuple[DataSource, list[Diagnostic]]:
    """Return a pair: a data source with everything that is known about it, and the findings."""
    finder = _Finder(row, block)
    return finder.find(), finder.problems


class _Finder:
    """Finds one source of data. `settings` are the source's own settings. `shape` and `named` are the format and the
    columns that the spec states.
    """

    def __init__(self, row: Row, block: Reading) -> None:
        self.row, self.block, self.label, self.problems = row, block, row.label, Problems()
        self.workspace, self.method = block.workspace, block.method
        self.settings = self._read_settings()
        stated, columns = self.settings.get("format", block.shape), self.settings.get("columns")
        self.shape = stated if isinstance(stated, str) else None
        # Online methods read only the prompt of a row, so a prompt column is enough to know the format of the rows.
        if self.shape is None and block.prompt is not None and METHODS[self.method].shapes[0] == "prompt":
            self.shape = "prompt"
        self.read_as = "prompt_completion" if self.shape == "alpaca" else self.shape
        self.named = columns if isinstance(columns, tuple) else block.columns

    def find(self) -> DataSource:
        """Return the source with everything that is known about it."""
        ref = self.row.ref
        source = self._local(ref.value) if isinstance(ref, String) else self._remote(ref)
        source = self._with_amounts(self._with_columns(source))
        source = self._with_reading(source)
        if self.settings.get("chat", self.block.chat) is True:
            source = as_chat(source)
        if self.settings.get("chat") is True and not source.chat:
            wrong = f"rows of {source.shape} have no texts that `chat` could turn into a conversation"
            self.problems.report("XP124", wrong, self._location("chat"), help="leave `chat` out")
        source, found = contents(source, self.workspace)
        self.problems += found
        return source

    def _location(self, name: str) -> Label:
        """The location of one of the source's settings."""
        return next(item.label for item in self.row.items if item.path == name)

    def _with_columns(self, source: DataSource) -> DataSource:
        """The source with the columns that are read from it."""
        named, prompt, own = self.named, self.block.prompt, self.settings.get("context")
        unknown = any(one.code == "XP124" for one in self.problems)
        if named is not None and prompt is not None and (named is self.block.columns or prompt in (source.found or ())):
            named, wrong = prompt_first(source, named, prompt)
            self.problems += wrong
        context = own if isinstance(own, str) else self.block.context
        source, wrong = columns_of(source, self.shape, named, prompt, context)
        # an unknown shape is reported once, not for every source
        self.problems += [] if unknown else wrong
        return source

    def _with_reading(self, source: DataSource) -> DataSource:
        """The source with its block's settings for reading rows. In a folder, these settings hold for all files."""
        text_file = ((source.parts or (source,))[0].path or "").lower().endswith(".txt")
        source = evolve(
            source,
            stated=source.stated or self.shape is not None or self.block.prompt is not None,
            roles=self.block.roles or source.roles,
            documents=self.block.documents or "line" if text_file else source.documents,
        )
        names = ("shape", "columns", "only", "context", "wording", "roles", "documents")
        read = {name: getattr(source, name) for name in names}
        return evolve(source, parts=tuple(evolve(part, **read) for part in source.parts))

    def _with_amounts(self, source: DataSource) -> DataSource:
        """The source with the settings that say how many of its rows are read: `take`, `share` and `limit`."""
        take, share, most = (self.settings.get(name) for name in ("take", "share", "limit"))
        if isinstance(take, Amount):
            source = evolve(source, take=take)
        if isinstance(share, Amount):
            source = evolve(source, share=float(share.value), share_label=self._location("share"))
        if isinstance(most, int):
            source = evolve(source, limit=most, rows=None if source.rows is None else min(source.rows, most))
        return source

    def _read_settings(self) -> dict[str, object]:
        """The values of a source's settings, such as `take = 50%`. Wrong and repeated settings are reported."""
        settings: dict[str, object] = {}
        for item in self.row.items:
            value = convert(SOURCE_SETTINGS[item.path], item)
            if isinstance(value, InvalidValue):
                from xpc.compiler.suggest.legal import answer  # imported only here, because only a wrong spec needs it

                self.problems.append(answer(value))
            elif item.path in settings:
                first = self._location(item.path)
                twice = f"`{item.path}` is written twice"
                self.problems.report("XP103", twice, item.label, related=(first,), help="keep one of the two")
            elif isinstance(value, Amount) and value.value == 0:
                nothing = f"`{item.path}` keeps no rows"
                self.problems.report(
                    "XP107", nothing, item.label, help=f"write `{item.path} = 50%`, or leave the source out"
                )
            else:
                settings[item.path] = value
        return settings

    def _remote(self, node: Ref) -> DataSource:
        source = self._of_the_hub(node)
        if node.slice is None and not source.split.isdecimal():
            return source
        from xpc.compiler.language.slices import part

        cut, wrong = part(node, self.label)
        self.problems += wrong
        return evolve(source, slice=cut)

    def _of_the_hub(self, node: Ref) -> DataSource:
        workspace, label, shape = self.workspace, self.label, self.read_as
        entry = registry.find_dataset(node.name)
        id, part = (node.name, node.config) if entry is None else (entry.id, node.config or entry.config)
        pin = None if workspace.pins is None else workspace.pins.find("dataset", id, node.revision, part)
        revision = node.revision if pin is None else pin.revision
        usual, *others = of_text(METHODS[self.method].shapes)
        split, assumed = (node.split or "train", usual) if entry is None else (node.split or entry.split, entry.shape)
        source = DataSource(id, None, label, part, split, node.slice, revision, shape or assumed)
        if entry is not None:
            counted = entry.rows if (part, split) == (entry.config, entry.split) else None
            if pin is not None:  # the lock states the number of rows at the pinned commit
                counted = pin.rows.get(split, counted)
            if shape in (None, entry.shape):
                source = evolve(source, columns=entry.columns, context=entry.context)
            return evolve(source, rows=None if node.slice else counted)
        if pin is not None and pin.columns and not node.is_name:
            known = self._shaped(source, pin.columns)
            return evolve(known, rows=None if node.slice else pin.rows.get(known.split))
        if not node.name:  # the `train` line names no data, which is already reported
            return source
        if node.is_name or "/" not in node.name:
            # imported only here, because only an unregistered dataset needs it
            from xpc.compiler.suggest.registry_names import unknown_dataset

            self.problems.append(unknown_dataset(node, label))
        elif (path := unquoted(node.name, label, "XP110", "XP111", workspace)) is not None:
            self.problems.append(path)
        elif shape is None:
            from xpc.compiler.suggest.registry_names import misspelt_dataset

            message = f"`{node.name[:80]}` is not in the registry: its rows are assumed to be {in_words(usual)}"
            other = others[-1] if others and self.method == "kto" else "conversations"
            help = f"if the rows have another shape, write it, such as `data(format={other})`"
            help = help if others else f"`data(format={usual})` states this choice"
            found = report("XP111", message, label, help=help)
            self.problems.append(misspelt_dataset(found, label, node.name))
        return source

    def _local(self, path: str) -> DataSource:
        """A file or folder of rows on this machine."""
        source = DataSource(None, path, self.label, shape=self.read_as or METHODS[self.method].shapes[0])
        wrong, kind = plain_text(path), self.workspace.kind(path)
        if wrong:
            self.problems.report("XP110", f"the data's path cannot be used: {wrong}", self.label)
        elif kind == "file" and not path.lower().endswith(DATA_FORMATS):
            help = "data is " + ", ".join(DATA_FORMATS) + ", or a folder of them"
            self.problems.report("XP110", f"`{path[:80]}` has no format that can be read", self.label, help=help)
        elif not kind:
            self.problems.append(_not_here(path, self.label, self.read_as, self.workspace))
        else:
            return self._folder(source, path) if kind == "folder" else self._file(source, path)
        return source

    def _file(self, source: DataSource, path: str) -> DataSource:
        """The source with the columns of a file's first row."""
        workspace, columnar, broken = self.workspace, path.lower().endswith(".parquet"), None
        columns: Sequence[str] | None = None
        try:
            head = workspace.head(path)
            if pointer(head) is not None:  # unreadable contents are reported later, when they are needed
                return source
            if not columnar:
                columns = first_columns(path, head)
            else:
                from xpc.compiler.data import parquet  # imported only here, because most data is in another format

                tail = partial(workspace.tail, path)
                broken = parquet.problem(head, tail)
                if broken is None and (seen := parquet.footer(tail)) is not None:
                    columns, source = seen[0], evolve(source, rows=seen[1], keys=seen[2])
        except OSError as error:
            wrong = f"`{path[:80]}` cannot be read ({error.strerror or error})"
            self.problems.report("XP114", wrong, self.label, help="make the file readable")
            return source
        if broken is not None:
            self.problems.append(_not_complete(path, broken, self.label))
            return source
        return self._shaped(source, columns, self.named, b"" if columnar else head)

    def _shaped(
        self,
        source: DataSource,
        columns: Sequence[str] | None,
        named: tuple[str, ...] | None = None,
        head: bytes = b"",
    ) -> DataSource:
        """The source with its format and its columns. If the spec does not state the format, the columns decide it.

        `columns` are the columns of the first row, and `named` those that the spec states. `head` is the beginning of a
        local file of JSON or CSV, with its first row.
        """
        method = self.method
        if self.read_as is None and columns is not None:
            order = tuple(SHAPES) if method == DEFAULT else (*METHODS[method].shapes, *SHAPES)
            # rows with images have all columns of rows of text, so the spec may state a format for text
            pictured = [one for one in WITH_IMAGES if method == DEFAULT or one in METHODS[method].shapes]
            few = [one for one in WITH_IMAGES if named is not None and len(named) < len(SHAPES[one])]
            order = tuple(one for one in (*pictured, *order) if one not in few)
            found = next((name for name in order if set(SHAPES[name]) <= set(columns)), None)
            shapes = METHODS[method].shapes
            if found not in shapes and named is not None and set(named) <= set(columns):
                other = of_count(shapes, len(named)) or _of_one_column(source, named, head)
                found = other if other in shapes else found
            if found is None and set(ALPACA) <= set(columns):
                source = evolve(source, shape="prompt_completion", columns=ALPACA, context=INPUT)
            elif found is None:
                # imported only here, because only a wrong spec needs it
                from xpc.compiler.suggest.likely_columns import unknown_columns

                self.problems.report(
                    "XP124",
                    f"the columns of `{source.name[:80]}` match no known shape of rows",
                    source.label,
                    help=unknown_columns(source, columns, method, self.block.several, head),
                )
                columns = None
            else:
                source = evolve(source, shape=found)
        return evolve(source, found=None if columns is None else tuple(columns))

    def _folder(self, source: DataSource, folder: str) -> DataSource:
        """The data source for a folder, with a part for each file. All files have the format of the first row in the
        first training file.
        """
        from xpc.compiler.data import parquet
        from xpc.compiler.spec import folders
        from xpc.runtime.features.rows.split_files import IGNORED

        path, report = folder.rstrip("/") or "/", self.problems.report
        try:
            names = self.workspace.walk(path)
        except Unreadable as error:
            report("XP114", str(error), self.label, help="name a folder that contains only files of rows")
            return source
        names = [one for one in names if one.lower().endswith(DATA_FORMATS) and one.rpartition("/")[2] not in IGNORED]
        if not names:
            help = "a data folder contains files of rows: " + ", ".join(DATA_FORMATS)
            report("XP110", f"`{path[:80]}` contains no data", self.label, help=help)
            return source
        for name in names:
            if wrong := plain_text(name):
                report("XP110", f"the name `{name[:80]}` in `{path[:80]}` cannot be used: {wrong}", self.label)
                return source
        first = (folders.of_split(tuple(names), source.split) or names)[0]
        found = self._local(f"{path}/{first}")
        parts = []
        for number, one in enumerate(names):
            keys, broken = parquet.of_part(f"{path}/{one}", number, self.workspace)
            parts.append(evolve(found, path=f"{path}/{one}", found=None, rows=None, keys=keys))
            if broken is not None and one != first:
                self.problems.append(_not_complete(f"{path}/{one}", broken, self.label))
        return evolve(found, path=folder, parts=tuple(parts), rows=None, keys=None)


def roles_of(values: Mapping[Path, Value]) -> tuple[tuple[str, str], ...]:
    """The names of speakers that the spec states, each with its role: `("bot", "assistant")`."""
    found = [(role, values.get(path_of(f"data.{role}_roles"))) for role in ROLES]
    return tuple((name, role) for role, one in found if one is not None for name in names_of(one.value))


def names_of(value: object) -> tuple[str, ...]:
    """The names in a value that is a list of names. Empty for any other value."""
    return tuple(str(name) for name in value) if isinstance(value, tuple) else ()


def _of_one_column(source: DataSource, named: Sequence[str], head: bytes) -> str | None:
    """The format of a file with one named column: turns of a chat, or text. None for any other file."""
    if len(named) != 1 or not head:
        return None

    return column_shape(source.path or "", head, named[0])


def _not_complete(path: str, why: str, label: Label) -> Diagnostic:
    """Report a Parquet file that is damaged."""
    what = f"`{path[:80]}` is not a complete Parquet file: {why}"
    return report("XP114", what, label, help="write the file again, or name another one")


def _not_here(path: str, label: Label, shape: str | None, workspace: Workspace) -> Diagnostic:
    """Report a path of data that does not exist here. If the data may be on the training machine, this is only a
    warning. It may be there if the spec states `format`, or if the parent folder does not exist here either.
    """
    elsewhere = shape is not None or workspace.kind(path.rpartition("/")[0] or ("/" if path[:1] == "/" else ".")) == ""
    if other := workspace.other_kind(path):
        help = "name a file of rows, or a folder of such files"
        return report("XP123", f"`{path[:80]}` {other}", label, help=help)
    if "://" in path or path[:2] == "~/":
        hub = path.partition("://huggingface.co/datasets/")[2].rstrip("/")
        help = f"write `{hub}` without quotes" if is_hub_id(hub) else "write the path of a file, relative to the spec"
        why = (
            "begins with `~`, which is not expanded" if path[0] == "~" else "is an address, which a run does not fetch"
        )
        return report("XP123", f"`{path[:80]}` {why}", label, help=help)
    message = f"`{path[:80]}` is not here" + (": the run will look for it, unchecked" if elsewhere else "")
    near = workspace.nearest_name(path)
    edits: tuple[Edit, ...] = ()
    if set(path) & set("*?"):
        help = "patterns are not supported: name the folder, whose files are read together"
    elif near is not None and near.lower().endswith(DATA_FORMATS) == path.lower().endswith(DATA_FORMATS):
        help = f'name `"{near}"`, which is here'
        edits = (Edit(label.span, quoted(near)),) if label.typed == quoted(path) else ()
    elif from_base := workspace.help_for_base(path, label.source.name):
        help = from_base
    elif is_hub_id(path):
        help = f"write `{path}` without quotes for a dataset of the hub"
    elif elsewhere:
        help = "the path is relative to the spec; when the run starts, XPC_DATA_ROOT can name another folder"
    else:
        help = "the path is relative to the spec; for data on another machine write `data(format=...)`"
    found = report("XP123", message, label, help=help, edits=edits)
    return evolve(found, severity="warning" if elsewhere else ERROR)
