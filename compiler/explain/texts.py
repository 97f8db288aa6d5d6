"""`xpc explain`: what a code means, what a setting does, or where the values of a spec come from."""

from __future__ import annotations

import os
from textwrap import fill, indent

from xpc.compiler.explain.lookup import setting_rows, source_setting
from xpc.compiler.language.codes import CODES, explanation
from xpc.compiler.language.launch_settings import readers
from xpc.compiler.language.schema import Setting
from xpc.compiler.pipeline.silence import REVIEWED
from xpc.compiler.registry import gpu_names
from xpc.compiler.rules import codes, every, rules
from xpc.compiler.rules.core.rule import SOURCE
from xpc.grammar.codes import CODES as SYNTAX
from xpc.grammar.diagnostic import ERROR
from xpc.grammar.package_data import read_json


def explain(what: str) -> str | None:
    """The text for a code, the name or path of a setting, a spec, or FILE:SETTING. None for any other word."""
    if what.upper().startswith("XP") and what[2:].isdecimal():
        return _code(what.upper())
    path, _, name = what.rpartition(":")
    if os.path.isfile(what) or what == "-":
        path, name = what, ""
    if (os.path.exists(path) and not os.path.isdir(path)) or path == "-" or path.endswith(".xp"):
        from xpc.compiler.explain.spec_values import spec_values

        return spec_values(path, name)
    rows, of_source = setting_rows(what), source_setting(what)
    if not rows and of_source is None:
        # imported only here, because most calls explain a setting
        from xpc.compiler.explain.names import explain_name

        return explain_name(what) or _slug(what)
    from xpc.compiler.explain.names import also

    source = [] if of_source is None else [_of_source(of_source)]
    return "\n".join([*filter(None, [also(what, rows)]), *map(_setting, rows), *source])


def _slug(name: str) -> str | None:
    """The explanation of the code whose slug is `slug`, such as `batch-does-not-divide`; a finding prints its slug next
    to its code. None for any other word.
    """
    slugs = {one.slug: code for code, one in SYNTAX.items()} | {one[0]: code for code, one in CODES.items()}
    slugs |= {one.slug: one.code for one in every()}
    return _code(slugs[name]) if name in slugs else None


def _code(code: str) -> str | None:
    known = codes()
    if code in known:
        rule = next(one for one in rules(known[code][0]) if one.code == code)
        return f"{code} {rule.slug} ({rule.severity})\n\n{_with_example(rule.text, code, rule.severity)}"
    if code in CODES:
        slug, severity = CODES[code]
        return f"{code} {slug} ({severity})\n\n{_with_example(fill(explanation(code), 100), code, severity)}"
    if code in SYNTAX:
        return f"{code} {SYNTAX[code].slug} (error)\n\n{fill(explanation(code), 100)}\n"
    return None


def _with_example(text: str, code: str, severity: str) -> str:
    """Add an example to the text of a code, before the paragraph `Source:`. Add to the end of the text the stacks on
    which the rule applies, the settings that it reads, and the comment that silences it.
    """
    found = read_json(__file__, "evidence.json").get(code, {})
    text, lead, source = text.partition(f"\n\n{SOURCE}")
    out = text + "\n"
    for name, title in (("rejected", "Example, rejected"), ("accepted", "Accepted")):
        if name in found:
            out += f"\n{title}:\n{indent(chr(10).join(found[name]) or '(the spec without what follows)', '    ')}\n"
    out += f"{lead[1:]}{source}\n" if lead else ""
    last = [f"Applies on {', '.join(found['holds'])}."] if "holds" in found else []
    if reads := codes().get(code, ("", ()))[1]:
        last.append(fill(f"Reads the settings {', '.join(reads)} (`xpc explain SETTING`).", 100))
    if severity != ERROR and code in codes() and code not in REVIEWED:
        last.append(f"A comment at the end of the line silences it: `# xpc: allow {code} REASON`.")
    return out + "\n" * bool(last) + "".join(f"{line}\n" for line in last)


def _of_source(row: Setting) -> str:
    """The text for a setting of a data source, such as `take`. A spec writes such a setting at the source, inside of a
    `data` block.
    """
    from xpc.compiler.suggest.typed_form import typed

    # `context` and `chat` are settings of a data source with separate columns for prompt and completion
    ref = "alpaca" if row.name in ("context", "chat") else "smoltalk"
    # a mixture in which one source has a share is legal only if every source has one
    rest = ", capybara(share=30%)" if row.name == "share" else ""
    return (
        f"{row.name} of a source: {row.doc}\n  takes    {row.kind.phrase}\n"
        f"  example  data talk {{ {ref}({typed(row, None)}){rest} }}\n"
    )


def _setting(row: Setting) -> str:
    from xpc.compiler.explain.examples import example

    lines = [f"{row.path}: {row.doc}"]
    if row.kind.name == "hardware":
        lines.append(fill("GPUs     " + ", ".join(gpu_names()), 100, initial_indent="  ", subsequent_indent=" " * 11))
    if row.choices:
        or_file = " or file(...)" if row.kind.name == "template" else ""
        lines.append("  one of   " + ", ".join(row.choices) + or_file)
    elif row.kind.phrase:
        lines.append(f"  takes    {row.kind.phrase}")
    if row.default is not None:
        from xpc.compiler.language.typed import show

        lines.append(f"  default  {show(row, row.default)}")
    if row.clause == "launch" and not row.head:
        lines.append("  read by  " + ", ".join(readers(row)))
    shown = example(row).splitlines()
    lines += [f"  {'example' if not at else '       '}  {line}" for at, line in enumerate(shown)]
    if row.args:
        lines.append("  decides  " + ", ".join(row.args))
    read_by = sorted(code for code, (_, reads) in codes().items() if row.path in reads)
    if read_by:
        lines.append(fill("rules    " + ", ".join(read_by), 100, initial_indent="  ", subsequent_indent=" " * 11))
    return "\n".join(lines) + "\n"
