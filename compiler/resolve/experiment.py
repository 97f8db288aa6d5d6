"""Resolve a tree into a Spec: names, units, registry, bases, defaults. Errors are collected."""

from __future__ import annotations

from xpc.compiler import registry, stacks
from xpc.compiler.files.bundled import bundle_name
from xpc.compiler.files.workspace import Read, Workspace
from xpc.compiler.language import schema
from xpc.compiler.language.codes import Problems
from xpc.compiler.language.convert import convert
from xpc.compiler.language.items import DEFAULT, DERIVED, SPEC, Row
from xpc.compiler.language.kinds import Template
from xpc.compiler.language.load import Loaded
from xpc.compiler.language.setting import Path
from xpc.compiler.language.values import Wrong
from xpc.compiler.resolve.derive import Derivation
from xpc.compiler.resolve.extra_values import extra_values
from xpc.compiler.resolve.model import find_model, vocabulary
from xpc.compiler.resolve.sources import Reading, find_source, roles_of
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource, EvalSet, Hardware, Model
from xpc.compiler.spec.values import Origin, Value, text_of
from xpc.compiler.stacks import Stack
from xpc.grammar.checks import WORDS
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.nearest import nearest_version
from xpc.grammar.read import hidden_characters
from xpc.grammar.record import evolve, field, mutable
from xpc.grammar.source import Span
from xpc.grammar.tree import Count, Number, Ref, String

INLINE: tuple[Path, ...] = ("data.system", "data.prompt_template")
"""Texts that a spec may keep in a file; the bundle's own spec contains them."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xpc.compiler.plan.changed import Judge
    from xpc.compiler.plan.choice import Choice

DEFAULT_GPUS, DEFAULT_GPU = 8, "h100-80gb"


def resolve(loaded: Loaded, workspace: Workspace, judge: Judge) -> tuple[Spec | None, list[Diagnostic]]:
    """The typed experiment, or None if too much is missing; and all problems and notes.

    `judge` returns the codes of the errors in a spec. The plan calls it before it chooses a strategy that the spec
    leaves open.
    """
    return _Resolver(loaded, workspace, judge).run()


@mutable
class _Resolver:
    loaded: Loaded
    workspace: Workspace
    judge: Judge
    values: dict[Path, Value] = field(factory=dict)
    problems: Problems = field(factory=Problems)
    bundled: dict[str, bytes] = field(factory=dict)

    def run(self) -> tuple[Spec | None, list[Diagnostic]]:
        loaded = self.loaded
        self._convert()
        stack = self._target()
        if loaded.train is None or loaded.train_source is None:
            if not loaded.broken:
                help, why = "write `train MODEL on DATA` above the body", "the spec does not say what is trained"
                self.problems.report("XP117", why, self._top(), help=help)
            return None, self.problems
        self._files()
        if any(path.startswith(("method", *schema.ADAPTERS)) for path in self.values):
            from xpc.compiler.resolve.method_settings import MethodCheck  # not loaded for plain sft

            read, help_for = self.workspace.read_relative, self.workspace.help_for
            MethodCheck(loaded, self.values, stack, read, help_for, self._bundle, self.problems).run()
        if "eval.tasks" in self.values:
            from xpc.compiler.resolve.tasks import resolve_tasks  # the table of tasks is large, and few specs name any

            item, kind = loaded.items["eval.tasks"], loaded.kinds["eval.tasks"]
            resolve_tasks(item, kind, self.values, self.workspace, self.bundled, self.problems)
        teacher = None
        if "method.teacher" in self.values:
            from xpc.compiler.resolve.teacher import find_teacher  # only distillation has one

            teacher = find_teacher(self.values, self.workspace, self.problems)
        continued = None
        if "lora.from" in self.values:
            from xpc.compiler.resolve.adapter_folder import read_adapter  # few runs continue an adapter

            continued = read_adapter(self.values, self.workspace, self.problems)
        model = self._model()
        hardware = self._hardware(model)
        data = self._data()
        lock = self.workspace.pins
        if lock is not None:
            from xpc.compiler.resolve.locked import copies  # few specs are compiled with a lock

            self.bundled.update(copies(lock, self.workspace.reads))
        evaluated: tuple[EvalSet, ...] = ()
        if "eval.data" in self.values:
            from xpc.compiler.resolve.evaluation_sets import Sets  # few specs have separate evaluation sets

            evaluated = Sets(loaded, self.values, self.workspace, data, self.problems, self.bundled).read()
        method = text_of(self.values, "method") or "sft"
        extra = extra_values(self.loaded.extra, stack, method, self.problems, hardware.gpu)
        wrong = frozenset(path for path in {*loaded.items, *loaded.intended} if path not in self.values)
        if any(one.code == "XP110" for one in self.problems):
            wrong |= {"data"}
        stem = (self.workspace.named or loaded.file.source.name).rpartition("/")[2].removesuffix(".xp")
        stem = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in stem).strip(".-") or "run"

        derivation = Derivation(self.values, model, hardware, stack, stem[:80], self.problems, teacher)
        derivation.data = data

        def complete(values: Mapping[Path, Value]) -> Spec:
            commits: dict[str, str] = {}
            if lock is not None:
                from xpc.compiler.resolve.locked import kernels

                commits = kernels(lock, text_of(self.values, "model.attn") or "", stack)
            return Spec(
                loaded.file.source, stem, {row.path: values[row.path] for row in schema.TABLE if row.path in values},
                model, data, hardware, stack, extra, self.bundled, self.workspace.reads, wrong=wrong,
                evaluated=evaluated, teacher=teacher, continued=continued, allow_oom=self.workspace.allow_oom,
                kernels=commits,
            )  # fmt: skip

        def choose(values: Mapping[Path, Value], silent: Sequence[Path]) -> Choice | None:
            if wrong or hardware.gpu is None or not silent:
                return None
            from xpc.compiler.plan.choice import chosen  # needed only if a spec leaves a setting open

            return chosen(complete(values), silent, self.judge)

        derivation.run(choose)
        if loaded.member:
            from xpc.compiler.resolve.sweep_member import keep_apart  # one run of a sweep

            keep_apart(self.values, loaded.member)
        spec = complete(self.values)
        self._edition()
        return spec, self.problems

    def _top(self) -> Label:
        return Label(self.loaded.file.source, evolve(self.loaded.file.span, end=self.loaded.file.span.start))

    def _convert(self) -> None:
        for path, item in self.loaded.items.items():
            row = schema.BY_PATH[path]
            if row.pending and self._head_is_pending(row):
                continue  # the clause's head has already been refused with a reason
            if row.pending:
                if not any(
                    path != other and path.startswith(other + ".")
                    for other in self.loaded.items
                    if schema.BY_PATH[other].pending
                ):
                    later = f"`{row.name}` is not compiled yet"
                    self.problems.report("XP116", later, item.label, help=row.pending)
                continue
            value = convert(row, item)
            if isinstance(value, Wrong):
                from xpc.compiler.suggest.legal import answer  # needed only for a wrong spec

                self.problems.append(answer(value))
                if isinstance(item.node, Ref) and (path, item.node.name) in schema.CHOICE_PENDING:
                    # The wrong value is kept: rules must not report the default, which is not in the spec.
                    self.values[row.path] = Value(item.node.name, Origin(self.loaded.kinds[path], item.label))
            else:
                self.values[row.path] = Value(value, Origin(self.loaded.kinds[path], item.label))

    def _head_is_pending(self, row: schema.Setting) -> bool:
        head = self.loaded.items.get(row.clause)
        name = head.node.name if head is not None and isinstance(head.node, Ref) else ""
        return not row.head and (row.clause, name) in schema.CHOICE_PENDING

    def _edition(self) -> None:
        loaded = self.loaded
        if loaded.file.edition is None and (loaded.file.statements or loaded.file.extends is not None):
            edit = Edit(self._top().span, "xpc 1\n\n")
            self.problems.report(
                "XP125",
                "the spec does not say its edition",
                self._top(),
                help="write `xpc 1` on the first line",
                edits=(edit,),
            )

    def _target(self) -> Stack:
        written = self.values.get("target")
        name = stacks.DEFAULT if written is None else str(written.value)
        stack = stacks.load(name)
        if stack is None:
            assert written is not None
            near = nearest_version(name, stacks.names())
            label = written.origin.label
            self.problems.report(
                "XP113",
                f"`{name[:60]}` is not a target of this version",
                label,
                help="write "
                + (f"`target {near}`" if near else " or ".join(f"`target {one}`" for one in stacks.names())),
            )
            stack = stacks.default()
        if written is None or stack.name != name:
            self.values["target"] = Value(stack.name, Origin(DEFAULT))
        return stack

    def _files(self) -> None:
        """Read the files of `file("x")`. Templates and prompts are copied into the bundle under a plain name."""
        paths: tuple[Path, ...] = ("model.chat_template", *INLINE, "launch.setup")
        for path in paths:
            value = self.values.get(path)
            if value is not None and isinstance(value.value, Template):
                self._template(value, value.value)
                continue
            if value is None or not isinstance(value.value, String):
                continue
            read = self._read(path, value.value)
            if read is None:
                if path in INLINE:
                    del self.values[path]
                else:
                    self.values[path] = Value("", value.origin)  # the spec states it: no rule may report it as missing
                continue
            text = self._decoded(read, value)
            if text is None:
                continue
            if path in INLINE:  # the bundle's spec.xp contains it like a setting that the spec states
                text = text.replace("\r\n", "\n").replace("\r", "\n")
                for span in hidden_characters(text)[:1]:
                    wrong = f"`{read.name}` holds U+{ord(text[span.start]):04X}, which cannot be seen"
                    self.problems.report("XP114", wrong, value.origin.label, help="delete the character")
                self.values[path] = Value(text, value.origin)
                continue
            self.values[path] = Value(self._bundle(read), value.origin)

    def _template(self, value: Value, template: Template) -> None:
        """Copy a chat template into the bundle, with its arguments as lines at its top."""
        from xpc.compiler.registry import chat_templates as templates

        if template.name is not None:
            data = templates.text(template.name)
        else:
            read = self._read("model.chat_template", String(Span(0, 0), template.file))
            text = None if read is None else self._decoded(read, value)
            if read is None or text is None:
                self.values["model.chat_template"] = Value(evolve(template, file=""), value.origin)
                return
            data, template = read.data, evolve(template, file="files/" + bundle_name(read.name, read.digest))
        self.bundled[template.file] = templates.with_arguments(data, template.arguments)
        self.values["model.chat_template"] = Value(template, value.origin)

    def _decoded(self, read: Read, value: Value) -> str | None:
        """The text of a file, or None after a report."""
        try:
            return read.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            self.problems.report("XP114", f"`{read.name}` is not UTF-8 text", value.origin.label)
            return None

    def _bundle(self, read: Read) -> str:
        """Keep a copy of a file for the bundle, and return its name in the bundle."""
        self.bundled[inside := "files/" + bundle_name(read.name, read.digest)] = read.data
        return inside

    def _read(self, path: str, node: String) -> Read | None:
        label = self.loaded.items[path].label
        base = label.source.name if self.loaded.kinds[path] != SPEC else ""
        read = self.workspace.read_relative(node.value, base)
        if isinstance(read, str):
            self.problems.report("XP114", read, label, help=self.workspace.help_for(node.value, base))
            return None
        return read

    def _model(self) -> Model:
        assert self.loaded.train is not None
        assert self.loaded.train_source is not None
        node = self.loaded.train.model
        label = Label(self.loaded.model_source or self.loaded.train_source, node.span)
        config = None
        value = self.values.pop("model.config", None)
        if value is not None and isinstance(value.value, String):
            config = self._read("model.config", value.value)
            if config is not None:
                self.values["model.config"] = Value(self._bundle(config), value.origin)
        revision = self.values.get("model.revision")
        model, problems = find_model(
            node, label, config, None if revision is None else str(revision.value), self.workspace
        )
        self.problems += problems
        if isinstance(node, Ref) and node.revision is not None and revision is None:
            revision = Value(node.revision, Origin(SPEC, label))
        if revision is not None or (model.revision is not None and model.path is None):
            origin = Origin(DERIVED, None, "the lock") if revision is None else revision.origin
            self.values["model.revision"] = Value(model.revision, origin)
        if any(path in self.values for path in ("model.eos", "model.pad", "model.chat_template")):
            model = evolve(model, vocabulary=vocabulary(model, self.workspace))
        return model

    def _hardware(self, model: Model) -> Hardware:
        nodes_value = self.values.get("nodes")
        nodes = nodes_value.value if nodes_value is not None and isinstance(nodes_value.value, int) else 1
        value = self.values.pop("hardware", None)
        if value is None:
            if "hardware" not in self.loaded.items:
                self.problems.report(
                    "XP190",
                    f"no hardware is written: {DEFAULT_GPUS} x {DEFAULT_GPU}",
                    model.label,
                    help=f"`hardware {DEFAULT_GPUS} x {DEFAULT_GPU}` states it",
                )
            self.values["hardware"] = Value(f"{DEFAULT_GPUS} x {DEFAULT_GPU}", Origin(DEFAULT))
            return Hardware(registry.find_gpu(DEFAULT_GPU), DEFAULT_GPUS, nodes)
        node, label = value.value, value.origin.label
        count, name = 1, node
        if isinstance(node, Count):
            count, name = self._count(node.n, label), node.what
        if not (isinstance(name, Ref) and name.is_name):
            help = "write `8 x h100-80gb` or `2 x cpu`"
            self.problems.report("XP104", "`hardware` takes a count and a GPU, or cpu", label, help=help)
            return Hardware(None, 1, nodes)
        if name.name == "cpu":
            self.values["hardware"] = Value(f"{count} x cpu", value.origin)
            return Hardware(None, count, nodes)
        gpu = registry.find_gpu(name.name)
        if gpu is None:
            from xpc.compiler.suggest.registry_names import unknown_gpu  # needed only for a wrong spec

            self.problems.append(unknown_gpu(name, label))
            gpu = registry.find_gpu(DEFAULT_GPU)
        assert gpu is not None
        self.values["hardware"] = Value(f"{count} x {gpu.name}", value.origin)
        return Hardware(gpu, count, nodes)

    def _count(self, node: Number, label: Label | None) -> int:
        if node.unit or not isinstance(node.value, int) or not 1 <= node.value <= schema.MAX_PROCESSES:
            place = None if label is None else Label(label.source, node.span)
            self.problems.report(
                "XP107",
                "the number of processes is out of range",
                place,
                help=f"write a whole number from 1 to {schema.MAX_PROCESSES}",
            )
            return 1
        return node.value

    def _data(self) -> tuple[DataSource, ...]:
        loaded = self.loaded
        assert loaded.train is not None
        assert loaded.train_source is not None
        node = loaded.train.data
        label = Label(loaded.train_source, node.span)
        rows = [Row(node, label)]
        explained = False  # whether another finding explains why the header's data is unknown
        if loaded.data_name is not None:
            title = loaded.data_name.typed
            named = isinstance(node, Ref) and node.name == title
            replaced = loaded.train_source is loaded.file.source and loaded.data_name.source is not loaded.train_source
            if title != "data" and not named and replaced:
                pass  # a spec that extends another may name other data in its header
            elif title != "data" and not named:
                written = loaded.train_source.slice(node.span)
                self.problems.report(
                    "XP119",
                    f"nothing reads the data block `{title[:60]}`",
                    loaded.data_name,
                    related=(label,),
                    help=f"name it `{written[:60]}`, or write `on {title[:60]}`",
                )
                explained = True
            elif loaded.rows:
                rows = loaded.rows
            elif self._is_unknown(node) and not loaded.broken:
                explained = True
                self.problems.report(
                    "XP110",
                    f"the data block `{title[:60]}` names no source",
                    loaded.data_name,
                    help="write a source on a line of the block: a registered name, `org/name` or a quoted file",
                )
        explained = explained or (loaded.broken and self._begins_block(node))
        shape, column, method, context = (
            text_of(self.values, path) for path in ("data.format", "data.prompt", "method", "data.context")
        )
        listed = self.values.get("data.columns")
        columns = None if listed is None or not isinstance(listed.value, tuple) else listed.value
        block = Reading(
            self.workspace, method or "sft", shape, column, context, columns, roles_of(self.values),
            self._flag("data.chat"), len(rows) > 1, text_of(self.values, "data.documents"),
        )  # fmt: skip
        sources: list[DataSource] = []
        for row in rows:
            source, problems = find_source(row, block)
            if "data.prompt_template" in self.values and context is None and source.wording is None:
                source = evolve(source, context=None)  # the prompt template already places the context
            sources.append(source)
            if rows is not loaded.rows and explained:
                problems = [one for one in problems if one.code != "XP110"]
            reported = any(one.code == "XP111" for one in self.problems)  # once is enough
            self.problems += [one for one in problems if not (reported and one.code == "XP111")]
            for one in (source, *source.parts):
                if one.bundled and one.content is not None:
                    self.bundled[one.bundled] = one.content
        prompt = self.values.get("data.system")
        if prompt is not None and isinstance(prompt.value, str) and not prompt.value.strip():
            empty = "the system prompt is empty"
            self.problems.report("XP107", empty, prompt.origin.label, help="leave `system` out")
        return tuple(sources)

    def _flag(self, path: Path) -> bool:
        value = self.values.get(path)
        return value is not None and value.value is True

    def _is_unknown(self, data: Ref | String) -> bool:
        return isinstance(data, Ref) and data.is_name and registry.find_dataset(data.name) is None

    def _begins_block(self, data: Ref | String) -> bool:
        """Whether a syntax error concerns the header's data: its name, its block or its rows."""
        if not isinstance(data, Ref):
            return False
        lines = self.loaded.file.source.text.split("\n")
        return data.name in WORDS or any(line.replace("{", " ").split()[:2] == ["data", data.name] for line in lines)
