"""The class of rules. A rule has a code, a slug, a severity, and a function whose docstring explains it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xpc.compiler.language.setting import Path, TextPath
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.record import record

Check = Callable[[Spec], Iterator["Finding"]]

SOURCE = "Source: "
PARTS = ("Why it is bad: ", "Without this rule: ", SOURCE)
"""The words that begin the second, third and fourth paragraph of a rule's docstring."""


class write(str):  # noqa: N801
    """The help of a finding, together with the text that an editor inserts. The help of `write("seq = 512", ", or leave
    it out")` is "write `seq = 512`, or leave it out", and an editor inserts `seq = 512`.
    """

    typed: str
    more: str

    def __new__(cls, typed: str, more: str = "") -> write:
        """Make the help text from two parts: `typed`, the text to write, and `more`, the rest of the sentence."""
        self = super().__new__(cls, f"write `{typed}`{more}")
        self.typed, self.more = typed, more
        return self


def with_more(label: Label, more: str) -> str:
    """The source text at a label, followed by another setting (`more`). What stands between the two depends on the
    place of the label. In a block on one line it is a comma: `rank=8, alpha=16`. In a clause without a block it is a
    space: `lora rank=8 alpha=16`. In any other place it is a line break.
    """
    text = label.source.text
    if text[label.span.end :].lstrip(" \t")[:1] in (",", ")", "}"):
        return f"{label.typed}, {more}"
    inline = text[: label.span.start].rpartition("\n")[2].strip()
    return f"{label.typed} {more.replace(' = ', '=')}" if inline else f"{label.typed}\n  {more}"


@record
class Finding:
    """A violation of a rule. It has a label `primary` (a location with a fact or a calculation), a message of one
    clause, and a help that says what to write instead.

    `replace` is the text that an editor inserts at the label. It is needed only if the help was not made with `write`.
    """

    primary: Label
    message: str
    help: str
    related: tuple[Label | None, ...] = ()
    replace: str | None = None
    severity: str | None = None


@record
class Rule:
    """A legality rule. `explanation` is the docstring, in four paragraphs: what the rule checks, `Why it is bad:`,
    `Without this rule:` (what would happen) and `Source:`.

    `reads` lists those settings that the rule reads, but that xpc.compiler.rules.core.build cannot find in the rule's
    source.
    """

    code: str
    slug: str
    severity: str
    explanation: str
    check: Check
    reads: tuple[Path, ...] = ()

    @property
    def text(self) -> str:
        """The rule's docstring without its indentation."""
        from textwrap import dedent

        return dedent("    " + self.explanation).strip()

    def run(self, spec: Spec) -> Iterator[Diagnostic]:
        """Check a spec, and yield a diagnostic for each violation."""
        for found in self.check(spec):
            help, text = found.help, found.replace
            if isinstance(help, write):
                text = _relative_to_block(help.typed, found.primary)
                help = write(text, help.more)
            elif text is not None:
                text = _relative_to_block(text, found.primary)
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


def unsupported_choice(spec: Spec, setting: TextPath, named: str, help: str) -> Iterator[Finding]:
    """Report a choice, such as an optimizer, that the target does not support. The reason comes from the target's
    table, such as `optimizers_lacking`. `named` is the phrase for the choice in the message: `{} schedule` becomes
    `greedy schedule`. In `help`, `{}` is replaced by the name of a target that supports the choice.
    """
    name = spec.text(setting)
    reason = spec.stack.lacking(f"{setting}s").get(name)
    if reason is not None:
        other = able(lambda one: name not in one.lacking(f"{setting}s"))
        yield Finding(
            spec.location(setting, reason),
            f"{spec.stack.name} has no {named.format(name)}",
            help.format(other),
            (spec.label("target", "the target"),),
        )


def _relative_to_block(text: str, label: Label) -> str:
    """Shorten a setting for use inside its block: `a.b = 1` becomes `b = 1` inside the block `a`."""
    name, equals, value = text.partition(" = ")
    key = label.typed.partition("=")[0].strip()
    return f"{key} = {value}" if equals and key and name.endswith(f".{key}") else text


def with_number(word: str, value: int) -> str:
    """Replace the number in a setting, and keep the spaces: with 8, `micro=16` becomes `micro=8`, and `micro = 16`
    becomes `micro = 8`.
    """
    return f"{word.partition('=')[0]}{'= ' if '= ' in word else '='}{value}"


def rule(code: str, slug: str, severity: str = "error", reads: tuple[Path, ...] = ()) -> Callable[[Check], Rule]:
    """Decorator that makes a `Rule` from a function. The function yields findings, and its docstring is the
    explanation.
    """

    def wrap(check: Check) -> Rule:
        return Rule(code, slug, severity, check.__doc__ or "", check, reads)

    return wrap
