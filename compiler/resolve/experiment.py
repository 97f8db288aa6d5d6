"""Resolve the syntax tree of a spec into a Spec: look up names, convert units, read the registry and extended specs,
and set defaults. All errors are collected, so one error does not hide others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from xpc.compiler import stacks
from xpc.compiler.files.workspace import Read, Unreadable, Workspace
from xpc.compiler.language import schema
from xpc.compiler.language.codes import Problems
from xpc.compiler.language.convert import convert
from xpc.compiler.language.items import DEFAULT, DERIVED, SPEC
from xpc.compiler.language.kinds import Rope, Template
from xpc.compiler.language.load import MergedSpec
from xpc.compiler.language.setting import Path
from xpc.compiler.language.values import InvalidValue
from xpc.compiler.registry import chat_templates as templates
from xpc.compiler.resolve.derive import Derivation
from xpc.compiler.resolve.extra_values import extra_values
from xpc.compiler.resolve.hardware import find_hardware
from xpc.compiler.resolve.model import find_model, vocabulary
from xpc.compiler.resolve.training_data import find_data
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import AdapterFolder, DataSource, EvalSet, Model
from xpc.compiler.spec.values import Origin, Value, text_of
from xpc.compiler.stacks import Stack
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.nearest import nearest_version
from xpc.grammar.read import hidden_characters
from xpc.grammar.record import entity, evolve, field
from xpc.grammar.source import Span
from xpc.grammar.tree import Ref, String, Train

INLINE: tuple[Path, ...] = ("data.system", "data.prompt_template")
"""Settings whose text may be in a file. The spec in the bundle contains this text instead of the name of the file."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.plan.choice import Choice


def resolve(
    loaded: MergedSpec, workspace: Workspace, error_codes: Callable[[Spec], set[str]]
) -> tuple[Spec | None, list[Diagnostic]]:
    """Resolve a loaded spec. Returns a pair: the typed experiment (None if too much is missing), and all findings.

    `error_codes` is a function that returns the error codes of a spec. The plan calls it to find out whether a rule
    refuses a strategy.
    """
    return _Resolver(loaded, workspace, error_codes).run()


@entity
class _Resolver:
    loaded: MergedSpec
    workspace: Workspace
    error_codes: Callable[[Spec], set[str]]
    values: dict[Path, Value] = field(factory=dict)
    problems: Problems = field(factory=Problems)
    bundled: dict[str, bytes] = field(factory=dict)

    def run(self) -> tuple[Spec | None, list[Diagnostic]]:
        self._convert()
        stack = self._target()
        missing = self.loaded.train is None or self.loaded.train_source is None
        if missing:
            self._add_train()
            if not self.loaded.items:
                return None, self.problems
        draft = self._draft(stack)
        if missing:
            draft = evolve(draft, wrong=draft.wrong | {"train"})
        derivation = Derivation(
            self.values, draft.model, draft.hardware, stack, draft.name[:80], self.problems, draft.data, draft.teacher
        )
        derivation.run(partial(self._choose, draft))
        if self.loaded.member:
            from xpc.compiler.resolve.sweep_member import keep_apart  # imported only here, for members of a sweep

            keep_apart(self.values, self.loaded.member)
        spec = self._with_values(draft, self.values)
        if not missing:
            self._edition()
        return spec, self.problems

    def _draft(self, stack: Stack) -> Spec:
        """The spec before its values are derived: its model, hardware and data, and the files that it names."""
        self._files()
        self._check_method(stack)
        self._find_tasks()
        teacher, continued = self._find_teacher(stack), self._read_adapter()
        model = self._model(stack)
        hardware = find_hardware(self.loaded, self.values, model, self.problems)
        data = find_data(self.loaded, self.values, self.workspace, self.problems)
        self._bundle_copies(data)
        evaluated = self._find_evaluation_sets(data)
        method = text_of(self.values, "method") or "sft"
        extra = extra_values(self.loaded.extra, stack, method, self.problems, hardware.gpu)
        return Spec(
            self.loaded.file.source, self._stem(), {}, model, data, hardware, stack, extra, self.error_codes,
            self.bundled, self.workspace.reads, wrong=self._wrong(data), evaluated=evaluated, teacher=teacher,
            continued=continued, allow_oom=self.workspace.allow_oom,
        )  # fmt: skip

    def _with_values(self, draft: Spec, values: Mapping[Path, Value]) -> Spec:
        ordered = {row.path: values[row.path] for row in schema.TABLE if row.path in values}
        lock = self.workspace.pins
        if lock is None:
            return evolve(draft, values=ordered)
        from xpc.compiler.resolve.locked import kernels  # imported only here, because few specs have a lock

        return evolve(draft, values=ordered, kernels=kernels(lock, text_of(values, "model.attn") or "", draft.stack))

    def _choose(self, draft: Spec, values: Mapping[Path, Value], unset: Sequence[Path]) -> Choice | None:
        """Let the plan choose the settings `unset`. None if there is nothing to choose, or if the spec has a wrong
        value.
        """
        if draft.wrong or not unset:
            return None
        # imported only here, because most specs leave no choice to the plan
        from xpc.compiler.plan.choice import chosen

        return chosen(self._with_values(draft, values), unset)

    def _add_train(self) -> None:
        """Report that the spec has no `train` line, and add one without model and data, so that the rules can check the
        other settings of the spec.
        """
        if not self.loaded.broken:
            help, why = "write `train MODEL on DATA` above the other lines", "the spec does not say what is trained"
            self.problems.report("XP117", why, self._top(), help=help)
        top = self._top().span
        self.loaded.train, self.loaded.train_source = Train(top, Ref(top, ""), Ref(top, "")), self.loaded.file.source

    def _check_method(self, stack: Stack) -> None:
        """Check the settings of the method and of the adapter."""
        if any(path.startswith(("method", *schema.ADAPTERS)) for path in self.values):
            # imported only here, because plain sft does not need it
            from xpc.compiler.resolve.method_settings import MethodCheck

            read, help_for = self.workspace.read_relative, self.workspace.help_for
            MethodCheck(self.loaded, self.values, stack, read, help_for, self._bundle, self.problems).run()

    def _find_tasks(self) -> None:
        """Find the tasks of lm-eval that `eval.tasks` names."""
        if "eval.tasks" in self.values:
            # imported only here, because the table of tasks is large, and few specs name a task
            from xpc.compiler.resolve.tasks import resolve_tasks

            item, kind = self.loaded.items["eval.tasks"], self.loaded.kinds["eval.tasks"]
            resolve_tasks(item, kind, self.values, self.workspace, self.bundled, self.problems)

    def _find_teacher(self, stack: Stack) -> Model | None:
        if "method.teacher" not in self.values:
            return None
        # imported only here, because only distillation has a teacher
        from xpc.compiler.resolve.teacher import find_teacher

        return find_teacher(self.values, stack, self.workspace, self.problems)

    def _read_adapter(self) -> AdapterFolder | None:
        """Read the adapter that `lora.from` names."""
        if "lora.from" not in self.values:
            return None
        # imported only here, because few runs continue an adapter
        from xpc.compiler.resolve.adapter_folder import read_adapter

        return read_adapter(self.values, self.workspace, self.problems)

    def _bundle_copies(self, data: tuple[DataSource, ...]) -> None:
        """Add files to the bundle: the local files of rows, the copy of the lock file, and the lock's list of
        packages.
        """
        for one in (each for source in data for each in (source, *source.parts)):
            if one.bundled and one.content is not None:
                self.bundled[one.bundled] = one.content
        if self.workspace.pins is not None:
            from xpc.compiler.resolve.locked import copies  # imported only here, because few specs have a lock

            self.bundled.update(copies(self.workspace.pins, self.workspace.reads))

    def _find_evaluation_sets(self, data: tuple[DataSource, ...]) -> tuple[EvalSet, ...]:
        if "eval.data" not in self.values:
            return ()
        # imported only here, because few specs have separate evaluation sets
        from xpc.compiler.resolve.evaluation_sets import Sets

        return Sets(self.loaded, self.values, self.workspace, data, self.problems, self.bundled).read()

    def _wrong(self, data: tuple[DataSource, ...]) -> frozenset[str]:
        """The settings with wrong values. `data` is one of them if a source has no name, or if a source or its columns
        are unknown.
        """
        wrong = frozenset(path for path in {*self.loaded.items, *self.loaded.intended} if path not in self.values)
        unknown = any(one.code in ("XP110", "XP124") for one in self.problems) or any(one.id == "" for one in data)
        return wrong | {"data"} if unknown else wrong

    def _stem(self) -> str:
        """The name of the run: the spec's file name without `.xp`, with `-` for spaces and signs."""
        stem = (self.workspace.named or self.loaded.file.source.name).rpartition("/")[2].removesuffix(".xp")
        return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in stem).strip(".-") or "run"

    def _top(self) -> Label:
        return Label(self.loaded.file.source, evolve(self.loaded.file.span, end=self.loaded.file.span.start))

    def _convert(self) -> None:
        for path, item in self.loaded.items.items():
            row = schema.BY_PATH[path]
            value = convert(row, item)
            if isinstance(value, InvalidValue):
                from xpc.compiler.suggest.legal import answer  # imported only here, because only a wrong spec needs it

                found = answer(value)
                if path == "model.config" and found.code == "XP104":
                    from xpc.compiler.suggest.blocks import rewrite_config

                    found = rewrite_config(found)
                self.problems.append(found)
            else:
                self.values[row.path] = Value(value, Origin(self.loaded.kinds[path], item.label))

    def _edition(self) -> None:
        loaded = self.loaded
        if loaded.file.edition is None and (loaded.file.statements or loaded.file.extends is not None):
            edit = Edit(self._top().span, "xpc 1\n\n")
            message = "the spec does not say its edition"
            self.problems.report("XP125", message, self._top(), help="write `xpc 1` on the first line", edits=(edit,))

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
        """Read the files that settings name by `file("x")`. Templates and prompts are copied into the bundle; the names
        of the copies have no folders.
        """
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
                    # the spec states this setting, so no rule may report it as missing, although its file is wrong
                    self.values[path] = Value("", value.origin)
                continue
            text = self._decoded(read, value)
            if text is None:
                continue
            # In the spec of the bundle, a setting in INLINE has the text of the file as its value, and not `file("x")`.
            if path in INLINE:
                text = text.replace("\r\n", "\n").replace("\r", "\n")
                for span in hidden_characters(text)[:1]:
                    wrong = f"`{read.name}` contains the invisible character U+{ord(text[span.start]):04X}"
                    self.problems.report("XP114", wrong, value.origin.label, help="delete the character")
                self.values[path] = Value(text, value.origin)
                continue
            self.values[path] = Value(self._bundle(read), value.origin)

    def _template(self, value: Value, template: Template) -> None:
        """Copy a chat template into the bundle. The template's arguments in the spec become Jinja lines at the top of
        the copy.
        """
        if template.name is not None:
            data = templates.text(template.name)
        else:
            read = self._read("model.chat_template", String(Span(0, 0), template.file))
            text = None if read is None else self._decoded(read, value)
            if read is None or text is None:
                self.values["model.chat_template"] = Value(evolve(template, file=""), value.origin)
                return
            data, template = read.data, evolve(template, file=read.copy)
        self.bundled[template.file] = templates.with_arguments(data, template.arguments)
        self.values["model.chat_template"] = Value(template, value.origin)

    def _decoded(self, read: Read, value: Value) -> str | None:
        """The text of a file. If the file is not UTF-8, an error is reported, and the result is None."""
        try:
            return read.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            self.problems.report("XP114", f"`{read.name}` is not UTF-8 text", value.origin.label)
            return None

    def _bundle(self, read: Read) -> str:
        """Add a copy of a file to the bundle, and return its name in the bundle."""
        self.bundled[read.copy] = read.data
        return read.copy

    def _read(self, path: str, node: String) -> Read | None:
        label = self.loaded.items[path].label
        base = label.source.name if self.loaded.kinds[path] != SPEC else ""
        try:
            return self.workspace.read_relative(node.value, base)
        except Unreadable as error:
            self.problems.report("XP114", str(error), label, help=self.workspace.help_for(node.value, base))
            return None

    def _model(self, stack: Stack) -> Model:
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
        self.problems.extend(problems)
        if isinstance(node, Ref) and node.revision is not None and revision is None:
            revision = Value(node.revision, Origin(SPEC, label))
        if revision is not None or (model.revision is not None and model.path is None):
            origin = Origin(DERIVED, None, "the lock") if revision is None else revision.origin
            self.values["model.revision"] = Value(model.revision, origin)
        names_tokens = any(path in self.values for path in ("model.eos", "model.pad", "model.chat_template"))
        if names_tokens or not stack.facts.reads_newer_files:
            model = evolve(model, vocabulary=vocabulary(model, self.workspace))
        rope = self.values.get("model.rope")
        if rope is not None and isinstance(rope.value, Rope) and model.facts is not None:
            facts = model.facts
            model = evolve(model, facts=evolve(facts, context=rope.value.context(facts.context)))
        return model
