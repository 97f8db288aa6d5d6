"""Import the reward functions and tools of a script by name. With `--rewards FILE`, also copy their source to FILE."""

from __future__ import annotations

import ast
import builtins
import textwrap
from collections.abc import Sequence

from xpc.compiler.importing import reward_file
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.python import program, reward_wrappers
from xpc.compiler.importing.python.data import Data
from xpc.compiler.importing.python.entries import Entries
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import Class, Function, Location, Name, Object, Unknown
from xpc.compiler.importing.text.entries import Entry, is_stated, number
from xpc.compiler.language.kinds import Weighted
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import path_of
from xpc.grammar.record import field, record


@record
class Rewards:
    """The reward functions of a script.

    - `functions`: the functions that the script defines at the top level
    - `made`: the functions that a call in the script returns, such as `make_reward(0.5)`, with their names
    - `weighted`: all reward functions, as they are written in the spec
    """

    functions: list[Function] = field(factory=list)
    made: list[tuple[str, object]] = field(factory=list)
    weighted: list[Weighted] = field(factory=list)


def write(
    draft: Draft, machine: Machine, trainer: Object, entries: Entries, overrides: Overrides, data: Data | None = None
) -> None:
    """Set the reward functions of a script with their weights, and its tools and environment. `data` has the columns
    that the script computes for reward functions.
    """
    if not METHODS[draft.method].grouped:
        return
    given = program.argument(trainer, "reward_funcs")
    weights = entries.values.pop("reward_weights", None)
    file = overrides.rewards or reward_file.USUAL
    called = _called(draft, trainer, overrides, file)
    if given is None:
        if called and overrides.rewards is not None:
            _copy(draft, machine, [], [], file, data, called)
        return
    values = list(given.value) if isinstance(given.value, list | tuple) else [given.value]
    found = _found(draft, machine, values, _weights(draft, weights, len(values)), given.location, overrides)
    draft.mark(weights, "mapped", "method.rewards")
    if not found.weighted:
        reward_wrappers.write(draft, data, [], {})
        return
    inside = [given.location.entry(f"reward_funcs[{n}]", one.name) for n, one in enumerate(found.weighted)]
    draft.put("method.rewards", tuple(found.weighted), given.location.entry("reward_funcs", inside))
    own = [one for one in found.functions if not _defined(overrides, one.name)]
    made = [(name, value) for name, value in found.made if not _defined(overrides, name)]
    if (own or made) and overrides.rewards is None:
        names = [*((one.name, one) for one in own), *made]
        listed = given.location.entry("reward_functions", ", ".join(name for name, _ in names))
        draft.error(listed, *reward_wrappers.IN_THE_SCRIPT)
        draft.files[file] = stub(names)
        labels = [one.label for one in own]
        reward_wrappers.write(draft, data, [], _parts(machine, labels, data), in_script=True)
        return
    if own or made or called:
        _copy(draft, machine, own, made, file, data, called)
        return
    reward_wrappers.write(draft, data, [], {})


def _weights(draft: Draft, entry: Entry | None, count: int) -> list[float | None]:
    """The weights of `count` reward functions. If the script states no weights, each of them is None."""
    numbers = [] if not is_stated(entry) else [number(one) for one in entry.items]
    if entry is not None and numbers and (len(numbers) != count or None in numbers):
        draft.error(entry, f"there are {count} reward functions but {len(numbers)} weights")
        numbers = []
    return [*numbers] or [None] * count


def _found(draft: Draft, machine: Machine, values: list[object], weights: list[float | None], location: Location,
           overrides: Overrides) -> Rewards:  # fmt: skip
    """Return the name by which the spec refers to each reward function. It is an error if a spec cannot name a reward
    function.
    """
    out, file = Rewards(), overrides.rewards or reward_file.USUAL
    for value, weight in zip(values, weights, strict=True):
        name = _name(value)
        if (of_trl := reward_wrappers.of_trl(draft, value, weight)) is not None:
            out.weighted.append(of_trl)
            continue
        if isinstance(value, Function) and name and len(value.scopes) == 1:
            out.functions.append(value)
        elif _made(machine, value, overrides):
            name = reward_wrappers.name_of(value, [one.name for one in out.weighted])
            out.made.append((name, value))
        elif not (isinstance(value, Name) and name and overrides.rewards is not None and _defined(overrides, name)):
            why = value.why if isinstance(value, Unknown) else "it is not a function at the top level of the script"
            how = "define the reward as a function in the file of the reward functions"
            draft.error(location.entry("reward_funcs", name or None), why, how)
            continue
        out.weighted.append(Weighted(name, weight, file, name))
    return out


def _factory(machine: Machine, value: object) -> ast.FunctionDef | None:
    statements = _statements(machine, value.label) if isinstance(value, Function) else []
    return reward_wrappers.factory(value, statements)


def _made(machine: Machine, value: object, overrides: Overrides) -> bool:
    """Whether the spec can name a reward function that the script creates at run time. Without `--rewards`, it can,
    because the import writes a stub. With `--rewards`, the given file must define the reward function, or be able to
    call the function that creates it.
    """
    if reward_wrappers.called(value) is None:
        return False
    by = _factory(machine, value)
    if overrides.rewards is None or _defined(overrides, reward_wrappers.name_of(value, [])):
        return True
    return by is not None and isinstance(value, Function) and reward_wrappers.call(value, by) is not None


def _called(draft: Draft, trainer: Object, overrides: Overrides, file: str) -> list[tuple[str, str]]:
    """Set `method.tools` and `method.environment` from the arguments of a script's trainer. Returns (file, name) of
    each function and class that must be copied from the script.
    """
    out: list[tuple[str, str]] = []
    for argument, path in (("tools", "method.tools"), ("environment_factory", "method.environment")):
        given = program.argument(trainer, argument)
        if given is None or given.value is None:
            continue
        location = given.location.entry(argument)
        found: list[Weighted] = []
        for value in given.value if isinstance(given.value, list | tuple) else [given.value]:
            name = value.name if isinstance(value, Class) else _name(value)
            label = value.location.file if isinstance(value, Class) else getattr(value, "label", "")
            at_top = isinstance(value, Class) or (isinstance(value, Function) and len(value.scopes) == 1)
            if not name or not (at_top or (isinstance(value, Name) and _defined(overrides, name))):
                why = (
                    value.why
                    if isinstance(value, Unknown)
                    else "it is no function or class at the top level of the script"
                )
                draft.error(
                    location, why, "define it at the top level of the script or of the file of the reward functions"
                )
                continue
            if not _defined(overrides, name):
                out.append((label, name))
            found.append(Weighted(name, None, file, name))
        if found:
            draft.put(path_of(path), tuple(found), location)
    if out and overrides.rewards is None:
        location = trainer.location.entry("tools", ", ".join(name for _, name in out))
        draft.error(location, *reward_wrappers.IN_THE_SCRIPT)
    return out


def _name(value: object) -> str:
    name = value.name if isinstance(value, Function) else value.last if isinstance(value, Name) else ""
    return name if name.isidentifier() and name != "lambda" else ""


def _defined(overrides: Overrides, name: str) -> bool:
    """Whether the file of `--rewards` exists and defines a function of this name."""
    return any(node.name == name for node in reward_file.definitions(overrides))


def stub(functions: Sequence[tuple[str, object]]) -> bytes:
    """The source of a file that declares the script's reward functions: their names and signatures, without code."""
    rows = []
    for name, value in functions:
        one = reward_wrappers.called(value)
        assert one is not None
        place = f" as in {one.label}, line {one.node.lineno}"
        rows.append((name, ast.unparse(reward_wrappers.parameters(value)), place))
    return reward_file.stubs(rows, "the script")


def _parts(machine: Machine, labels: Sequence[str], data: Data | None) -> dict[str, str]:
    """Map each function, class or variable at the top level of a Python file to the name of this file. The files are
    those in `labels`, and those that define the functions applied to rows of the data.
    """
    by = [one.label for one in (data.functions if data is not None else {}).values()]
    return {
        name: label
        for label in dict.fromkeys([*labels, *by])
        for _, node in _statements(machine, label)
        for name in _defines(node)
    }


def _copy(draft: Draft, machine: Machine, own: list[Function], made: list[tuple[str, object]], file: str,
          data: Data | None, called: list[tuple[str, str]]) -> None:  # fmt: skip
    """Write the source of reward functions (`own`) to a file, with the imports, constants and functions that they use.
    A reward function that a call of the script returns (`made`) becomes a new function in the file. `called` has (file,
    name) of each tool and environment to copy.
    """
    wrappers = [(name, value, by) for name, value in made
                if isinstance(value, Function) and (by := _factory(machine, value)) is not None]  # fmt: skip
    wanted = [*((one.label, one.name) for one in own), *called, *((value.label, by.name) for _, value, by in wrappers)]
    wanted += [(one.label, one.name) for _, value, _ in wrappers for one in value.scopes[0].values()
               if isinstance(one, Function) and one is not value]  # fmt: skip
    parts = _parts(machine, [label for label, _ in wanted], data)
    wrapper, used = reward_wrappers.write(draft, data, own, parts)
    wanted += [(parts[name], name) for name in sorted(used)]
    labels = list(dict.fromkeys(label for label, _ in wanted))
    copies = [_needed(draft, machine, label, [name for where, name in wanted if where == label]) for label in labels]
    text = ("import functools\n" if wrapper else "") + "\n".join(copies).strip() + "\n" + wrapper
    copied = {name for node in ast.parse(text).body for name in _defines(node)}
    for label in labels:
        _changed_globals(draft, machine, label, copied)
    for name, value, by in wrappers:
        source = reward_wrappers.call(value, by)
        if source is not None:
            text += reward_wrappers.forwarding(name, value, source, bool(wrapper))
    draft.files[file] = text.encode()


def _changed_globals(draft: Draft, machine: Machine, label: str, copied: set[str]) -> None:
    """Report a global variable that the reward functions read and that another function of the script sets (`global
    categories`). In the file of the reward functions, the variable would keep its first value, unless this function is
    copied, too.
    """
    called = {one.node.name for one in machine.functions if one.called and isinstance(one.node, ast.FunctionDef)}
    for where, node in _statements(machine, label):
        if not isinstance(node, ast.FunctionDef) or node.name not in called - copied:
            continue
        names = {name for one in ast.walk(node) if isinstance(one, ast.Global) for name in one.names}
        for name in sorted(names & copied):
            draft.error(
                Entry(f"reward_functions.{name}", None, where, node.lineno),
                f"`{node.name}` sets this global variable of the reward functions before the training, but their file "
                "has the variable's first value",
                "write the value that the variable has during training into the file of the reward functions",
            )


def _statements(machine: Machine, label: str) -> list[tuple[str, ast.stmt]]:
    """The top-level statements of a file, or of all cells of a notebook, each with the label of its file or cell."""
    first = label.partition(" cell ")[0]
    return [
        (name, node)
        for name, text in machine.texts.items()
        if name == label or name.partition(" cell ")[0] == first
        for node in ast.parse(text).body
    ]


def _of_main(machine: Machine, label: str) -> list[tuple[str, ast.stmt]]:
    """The assignments below `if __name__ == "__main__":`. Functions of the file may use the names that they set."""
    return [
        (name, inner)
        for name, node in _statements(machine, label)
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        for inner in node.body
        if isinstance(inner, ast.Assign | ast.AnnAssign)
    ]


def _free(node: ast.stmt) -> set[str]:
    """The names that a statement uses without setting them."""
    parts = list(ast.walk(node))
    names = [one for one in parts if isinstance(one, ast.Name)]
    bound = {one.id for one in names if not isinstance(one.ctx, ast.Load)}
    bound |= {one.arg for one in parts if isinstance(one, ast.arg)}
    bound |= {one.asname or one.name.partition(".")[0] for one in parts if isinstance(one, ast.alias)}
    bound |= {str(one.name) for one in parts
              if isinstance(one, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs)}  # fmt: skip
    return {one.id for one in names} - bound


def _needed(draft: Draft, machine: Machine, label: str, names: list[str]) -> str:
    statements = _statements(machine, label)
    defines: dict[str, list[int]] = {}
    for n, (_, node) in enumerate(statements):
        for name in _defines(node):
            defines.setdefault(name, []).append(n)
    wanted, chosen = list(names), set()
    while wanted:
        name = wanted.pop()
        for n in defines.get(name, []):
            if n in chosen:
                continue
            chosen.add(n)
            wanted += [one.id for one in ast.walk(statements[n][1]) if isinstance(one, ast.Name)]
    missing = {name for n in chosen for name in _free(statements[n][1])} - set(defines) - set(dir(builtins))
    for where, node in _of_main(machine, label):
        found = missing & set(_defines(node))
        if found:
            chosen.add(len(statements))
            statements.append((where, node))
            chosen.update(one for name in _free(node) for one in defines.get(name, []))
            missing -= found
    if missing:
        why = f"the rewards use {', '.join(f'`{one}`' for one in sorted(missing)[:6])}, which are not in their file"
        draft.warn(Entry("reward_funcs", None, label, 0), why, "define them in this file")
    out: list[str] = []
    for n in sorted(chosen):
        where, node = statements[n]
        _heavy(draft, where, node, set(names))
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if module.replace(".", "/") in machine.modules or (isinstance(node, ast.ImportFrom) and node.level):
            why = f"the rewards import `{'.' * getattr(node, 'level', 0)}{module}`, a module of the script's repository"
            help = "copy the imported code that they use into the file of the reward functions"
            draft.warn(Entry("reward_funcs", module, where, node.lineno), why, help)
        start = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        lines = machine.texts[where].split("\n")[start - 1 : node.end_lineno]
        out.append(textwrap.dedent("\n".join(lines)))
    imports = [one for one in out if one.startswith(("import ", "from "))]
    others = [f"\n\n{one}" if one.startswith(("def ", "class ", "@")) else one for one in out if one not in imports]
    return "\n".join([*imports, *others]) + "\n"


def _defines(node: ast.stmt) -> list[str]:
    """The names that a statement at the top level of a script defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [one.asname or one.name.partition(".")[0] for one in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def _heavy(draft: Draft, label: str, node: ast.stmt, names: set[str]) -> None:
    """Report a top-level statement that loads a model, a tokenizer or data in the file of the reward functions: it
    would be executed each time that the file is imported.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return
    loads = [one for one in ast.walk(node) if isinstance(one, ast.Attribute) and one.attr == "from_pretrained"]
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Name) and one.id in ("load_dataset", "open")]
    if loads or calls:
        why = "the reward functions use a value that is loaded whenever their file is imported"
        draft.warn(Entry("reward_funcs", None, label, node.lineno), why)
