"""What a rule is: a code, a slug, a severity, and a small function whose docstring is its explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xpc.compiler.language.setting import Path, TextPath
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.record import record

Check = Callable[[Spec], Iterator["Finding"]]


class write(str):  # noqa: N801
    """A help that says what to write, which an edit can put in the place: `write("seq = 512", ", or leave it out")`."""

    typed: str
    more: str

    def __new__(cls, typed: str, more: str = "") -> write:
        """The text of the help."""
        self = super().__new__(cls, f"write `{typed}`{more}")
        self.typed, self.more = typed, more
        return self


@record
class Finding:
    """A violation: the place, one clause, the fact or arithmetic beside it, and what to write instead.

    `replace` takes the place's text where the help does not say what to `write`.
    """

    primary: Label
    message: str
    help: str
    related: tuple[Label | None, ...] = ()
    replace: str | None = None
    severity: str | None = None


@record
class Rule:
    """A legality rule. `explanation` is the docstring: what it checks, what happens today without it, the source.

    `reads` are settings that it reads and that cannot be read off its source (xpc.compiler.rules.core.build).
    """

    code: str
    slug: str
    severity: str
    explanation: str
    check: Check
    reads: tuple[Path, ...] = ()

    def run(self, spec: Spec) -> Iterator[Diagnostic]:
        """The diagnostics of a spec under this rule."""
        for found in self.check(spec):
            help, text = found.help, found.replace
            if isinstance(help, write):
                text = _inside_its_block(help.typed, found.primary)
                help = write(text, help.more)
            elif text is not None:
                text = _inside_its_block(text, found.primary)
            edits = () if text is None else (Edit(found.primary.span, text),)
            related = tuple(label for label in found.related if label is not None)
            yield Diagnostic(
                self.code,
                self.slug,
                found.severity or self.severity,
                found.message,
                found.primary,
                related,
                help,
                edits,
            )


def lacking(spec: Spec, setting: TextPath, named: str, help: str) -> Iterator[Finding]:
    """The finding of a choice that the target lacks; its policy says why (`optimizers_lacking`). The help's `{}` is the
    name of a target that has it."""
    name = spec.text(setting)
    reason = spec.stack.lacking(f"{setting}s").get(name)
    if reason is not None:
        other = able(lambda one: name not in one.lacking(f"{setting}s"))
        yield Finding(
            spec.place(setting, reason),
            f"{spec.stack.name} has no {named.format(name)}",
            help.format(other),
            (spec.label("target", "the target"),),
        )


def _inside_its_block(text: str, label: Label) -> str:
    """`a.b = 1` as it is typed where the key stands in blocks that say its first parts: `b = 1`."""
    name, equals, value = text.partition(" = ")
    there = label.typed.partition("=")[0].strip()
    return f"{there} = {value}" if equals and there and name.endswith(f".{there}") else text


def with_number(word: str, value: int) -> str:
    """`micro=16` or `micro = 16` with another number."""
    return f"{word.partition('=')[0]}{'= ' if '= ' in word else '='}{value}"


def rule(code: str, slug: str, severity: str = "error", reads: tuple[Path, ...] = ()) -> Callable[[Check], Rule]:
    """Make a rule of a check; the check must have a docstring."""

    def wrap(check: Check) -> Rule:
        return Rule(code, slug, severity, check.__doc__ or "", check, reads)

    return wrap
