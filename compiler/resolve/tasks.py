"""Read `eval { tasks = [...] }`. An entry is the name of a task of lm-evaluation-harness, or a task file, which is
copied into the bundle.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, MutableMapping
from hashlib import sha256
from typing import Final

from xpc.compiler.files.workspace import MAX_DATA, TASK_ROWS, Read, Unreadable, Workspace, bundle_name
from xpc.compiler.language.codes import Problems, report
from xpc.compiler.language.items import SPEC, Item
from xpc.compiler.language.setting import Path
from xpc.compiler.spec.values import Value
from xpc.compiler.stacks import harness
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.record import evolve
from xpc.grammar.tree import List
from xpc.grammar.tree import Value as Node

PATH: Final = "eval.tasks"
READERS = ("json", "csv", "parquet", "text", "arrow")
"""If a task file has one of these values as `dataset_path`, the task reads the user's own data files."""
NAME = re.compile(r"^task\s*:\s*[\"']?([^\s\"'#\[{]+)", re.MULTILINE)
UNSAFE = re.compile(r"^[ \t]*[\"']?unsafe_code[\"']?\s*:\s*[\"']?(true|yes|on)\b", re.MULTILINE | re.IGNORECASE)
READER = re.compile(r"\bdataset_path[\"']?\s*:\s*[\"']?([\w./-]+)")
FUNCTION = re.compile(r"!function\s+[\"']?(\w+)\.\w+")
KEY = re.compile(r"\b(data_files|include)[\"']?\s*:")
TOKEN = re.compile(r"\"([^\"]*)\"|'([^']*)'|([^\s\"'\[\]{},]+)")


class TaskError(Exception):
    """Raised for an error in a task, and caught within this module: the code, the position and the help of the
    finding.
    """


GUESSES = 8
"""The largest number of unknown tasks that get a suggestion. Each suggestion takes time, because it compares the task
with the harness's 14,000 names.
"""


def resolve_tasks(
    item: Item,
    kind: str,
    values: MutableMapping[Path, Value],
    workspace: Workspace,
    bundled: MutableMapping[str, bytes],
    problems: Problems,
) -> None:
    """Check every task in `eval { tasks = [...] }`. If a task is a file, the file's name is replaced by the name of its
    copy in the bundle. `kind` says where the tasks are stated: in the spec itself, or in a spec that it extends.
    """
    value = values[PATH]
    nodes = item.node.items if isinstance(item.node, List) else ()
    assert isinstance(value.value, tuple)
    base = item.label.source.name if kind != SPEC else ""
    out: list[str] = []
    guesses = 0
    for name, node in zip(value.value, nodes, strict=True):
        label = Label(item.label.source, node.span)
        try:
            out.append(_own(name, base, workspace, bundled) if harness.is_file(name) else _known(name))
        except TaskError as wrong:
            code, message, help = wrong.args
            guesses += code == "XP106"
            near = harness.nearest_task(name) if code == "XP106" and guesses <= GUESSES else None
            problems.append(_unknown(code, message, help, near, label, node))
    values[PATH] = Value(tuple(dict.fromkeys(out)), value.origin)
    if not out:
        del values[PATH]


def _unknown(code: str, message: str, help: str, near: str | None, label: Label, node: Node) -> Diagnostic:
    if near is None:
        return report(code, message, label, help=help)
    typed = near if near.replace("_", "a").isalnum() and near[0].isalpha() else f'"{near}"'
    return report(
        code, message, evolve(label, text=f"did you mean `{near}`?"), help=f"write `{typed}`",
        edits=() if {*"|:@"} & {*label.typed} else (Edit(node.span, typed),),  # `"mmlu|5"` also states the shots
    )  # fmt: skip


def _known(name: str) -> str:
    if name in harness.names():
        return name
    help = 'write `leaderboard`, another task of the harness, or a file such as `"tasks/mine.yaml"`'
    raise TaskError("XP106", f"`{name[:60]}` is not a task of lm-evaluation-harness {harness.version()}", help)


def _own(name: str, base: str, workspace: Workspace, bundled: MutableMapping[str, bytes]) -> str:
    """Read a task file and the files that it includes, and add copies of them to the bundle. Returns the name of the
    task file's copy.
    """
    main = _read(name, base, workspace, "the path is relative to the spec")
    files = {posixpath.basename(main.name): main}
    texts = {posixpath.basename(main.name): _text(main)}
    for read in _included(main, texts, workspace):
        files[posixpath.basename(read.name)] = read
    everything = "\n".join(texts.values())
    if NAME.search(texts[posixpath.basename(main.name)]) is None:
        raise TaskError("XP129", f"`{name[:60]}` names no task", "write `task: NAME` on a line of the file")
    reader = READER.search(everything)
    wanted = [f"{module}.py" for module in FUNCTION.findall(everything)]
    if reader is not None and reader.group(1) in READERS:
        wanted += [one for text in texts.values() for one in _listed(text, "data_files") if one.endswith(TASK_ROWS)]
    for one in dict.fromkeys(wanted):
        inside = _inside(one, name)
        files[inside] = _read(
            one, main.name, workspace, f"`{name[:60]}` names this file by its path in the folder of `{name[:60]}`"
        )
    total = sha256("".join(f"{one} {files[one].digest}\n" for one in sorted(files)).encode()).hexdigest()
    folder = "files/" + bundle_name(main.name, total).rpartition(".")[0]
    for one, read in files.items():
        bundled[f"{folder}/{one}"] = read.data
    return f"{folder}/{posixpath.basename(main.name)}"


def _included(main: Read, texts: dict[str, str], workspace: Workspace) -> list[Read]:
    """The files that a task file includes, directly or through another included file."""
    out: list[Read] = []
    waiting = [posixpath.basename(main.name)]
    while waiting:
        for one in _listed(texts[waiting.pop()], "include"):
            if one in texts:
                continue
            if "/" in one:
                message = f"`{main.name[:60]}` includes `{one[:60]}`, a file of another folder"
                raise TaskError("XP129", message, "put the included file next to the task file")
            read = _read(one, main.name, workspace, f"`{main.name[:60]}` includes it")
            texts[one] = _text(read)
            out.append(read)
            waiting.append(one)
    return out


def _inside(name: str, task: str) -> str:
    clean = posixpath.normpath(name)
    if clean.startswith(("..", "/")) or any(ord(c) < 32 or c == "*" for c in clean):
        help = "name single files in the folder of the task file or below it"
        raise TaskError("XP129", f"`{task[:60]}` names `{name[:60]}`, which cannot be copied into the bundle", help)
    return clean


def _read(name: str, base: str, workspace: Workspace, help: str) -> Read:
    if posixpath.isabs(name):
        raise TaskError(
            "XP114", f"`{name[:60]}` is an absolute path", "the path is relative to the file that contains it"
        )
    try:
        return workspace.read_relative(name, base, limit=MAX_DATA)
    except Unreadable as error:
        raise TaskError("XP114", str(error), help) from None


def _text(read: Read) -> str:
    try:
        return read.data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TaskError("XP114", f"`{read.name}` is not UTF-8 text", "save it as UTF-8") from None


def _listed(text: str, key: str) -> list[str]:
    """The words that a YAML text lists under a key: on the line of the key, and on the indented lines below this
    line.
    """
    out: list[str] = []
    depth: int | None = None
    for line in text.splitlines():
        plain = line.strip()
        if not plain or plain.startswith("#"):
            continue
        at = len(line) - len(line.lstrip())
        found = next((one for one in KEY.finditer(line) if one.group(1) == key), None)
        if found is not None:
            depth, rest = at, line[found.end() :]
        elif depth is not None and (at > depth or (at == depth and plain.startswith("- "))):
            rest = plain
        else:
            depth = None
            continue
        words = ("".join(one) for one in TOKEN.findall(rest.split(" #")[0]))
        out += [one for one in words if one not in ("-", "") and not one.endswith(":") and "://" not in one]
    return out


def executes(task: str, bundled: Mapping[str, bytes]) -> bool:
    """Whether a task executes code that the model writes, such as HumanEval."""
    if not harness.is_file(task):
        return task in harness.unsafe()
    folder = task.rpartition("/")[0] + "/"
    texts = (data for name, data in bundled.items() if name.startswith(folder) and harness.is_file(name))
    return any(UNSAFE.search(data.decode("utf-8", "replace")) for data in texts)
