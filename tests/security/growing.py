"""For every parser of untrusted files, inputs of any size. `INPUTS[name](n)` makes an input of size n, and returns a
function that parses it.

What the size n counts depends on the input: rows, keys, lines or brackets. Only the returned function is timed, not the
making of the input.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from case_support import spec
from compile_support import checked, put

from xpc.compiler.data import parquet, reader
from xpc.compiler.files import bundled
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.importing.python.interpreter import script as scripts
from xpc.compiler.importing.python.interpreter.source import parts
from xpc.compiler.importing.text import json as jsontext
from xpc.compiler.importing.text import shell, yaml
from xpc.compiler.importing.text.entries import Unreadable
from xpc.compiler.render import render
from xpc.compiler.render.line_difference import line_difference
from xpc.compiler.render.visible import visible
from xpc.compiler.review.differences.packages import package_changes
from xpc.compiler.review.pull_request.comment import comment, plain
from xpc.compiler.review.pull_request.entries import Entry
from xpc.compiler.review.tables import tables
from xpc.compiler.review.verifying import run_files
from xpc.grammar.format import format_file
from xpc.grammar.parse import parse
from xpc.grammar.source import Source

Work = Callable[[], object]
TURN = '{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}'
HEAD = "xpc 1\n\ntrain qwen2.5-3b on infinity-instruct for 3 epochs\n\n"


def data(make: Callable[[int], str], name: str) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: reading the rows of
    the file `make(n)`.
    """

    def sized(n: int) -> Work:
        text = make(n).encode()
        return lambda: sum(1 for _ in reader.read(text, name))

    return sized


def surveyed(make: Callable[[int], str], name: str) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: checking a spec
    with a data file.
    """

    def sized(n: int) -> Work:
        folder = tempfile.mkdtemp(dir=os.environ.get("PYTEST_TMP"))
        put(folder, {name: make(n)})
        text = spec(train=f'qwen2.5-3b on "{name}" for 3 epochs')
        return lambda: checked(text, folder)

    return sized


def footer(make: Callable[[int], bytes]) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: reading the footer
    of a Parquet file.
    """

    def sized(n: int) -> Work:
        found = make(n)
        whole = found + len(found).to_bytes(4, "little") + b"PAR1"
        return lambda: parquet.footer(lambda count: whole[-count:])

    return sized


def specs(make: Callable[[int], str]) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: checking a spec and
    rendering the findings.
    """

    def sized(n: int) -> Work:
        text = make(n)
        return lambda: render(checked(text).problems, "full")

    return sized


def formatted(make: Callable[[int], str]) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: parsing a spec and
    formatting it as `xpc fmt` does.
    """

    def sized(n: int) -> Work:
        text = make(n)
        return lambda: format_file(parse(Source("t.xp", text))[0])

    return sized


def read(function: Callable[..., object], make: Callable[[int], str], name: str = "x") -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: reading a file of
    another tool with ``function``.
    """

    def sized(n: int) -> Work:
        text = make(n)

        def work() -> None:
            with suppress(Unreadable, UsageError):
                function(text, name)

        return work

    return sized


def shell_calls(text: str, _: str) -> object:
    return shell.calls(text)


def script(text: str, name: str) -> object:
    return scripts.followed(parts(text, f"{name}.py")[0], lambda _: None)


def locked(make: Callable[[int], str]) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: checking a spec
    with a lock.
    """

    def sized(n: int) -> Work:
        folder = Path(tempfile.mkdtemp())
        put(folder, {"t.xp.lock": make(n)})
        return lambda: checked(spec(), str(folder))

    return sized


def lock(pins: Iterable[str] = (), packages: Iterable[str] = ()) -> str:
    listed = ", ".join(f'"{one}"' for one in packages)
    head = '[lock]\nformat = 1\nxpc = "1"\ntarget = "trl-1.16"\n'
    return f'{head}{"".join(pins)}\n[environment."requirements.txt"]\nasked = []\nresolved = [{listed}]\n'


def pin(number: int) -> str:
    commit = f"{number:040x}"
    return f'\n[[dataset]]\nid = "org/x{number}"\nasked = "main"\nrevision = "{commit}"\n'


def lines(n: int, different: int, seed: int) -> list[str]:
    return [str(random.Random(seed * n + at).randrange(different)) for at in range(n)]


def difference(different: int) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: comparing two
    previews of n lines. Each preview has at most `different` different lines.
    """

    def sized(n: int) -> Work:
        old, new = lines(n, different, 1), lines(n, different, 2)
        return lambda: line_difference(old, new, "a", "b")

    return sized


def comments(make: Callable[[int], list[Entry]]) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: writing the comment
    on a pull request.
    """

    def sized(n: int) -> Work:
        found = make(n)
        return lambda: comment(found)

    return sized


def settings(n: int) -> str:
    return spec("extra trl {\n" + "".join(f"  a{number} = {number}\n" for number in range(n)) + "}")


DIGEST = "sha256:" + "1" * 64
HEAD_OF_MANIFEST = '[bundle]\nspec = "a.xp"\nname = "a"\nxpc = "0"\n'


def manifest(n: int) -> bytes:
    """A manifest of n inputs and n copies of files, all with the same digest."""
    inputs = "".join(f'"r{one}" = "{DIGEST}"\n' for one in range(n))
    files = "".join(f'"files/x{one}.py" = "{DIGEST}"\n' for one in range(n))
    return f"{HEAD_OF_MANIFEST}[inputs]\n{inputs}[files]\n{files}".encode()


def manifests(make: Callable[[int], str]) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: reading the
    manifest of a bundle.
    """

    def sized(n: int) -> Work:
        data = make(n).encode()
        return lambda: bundled.parsed(data)

    return sized


def bundle_of_copies(n: int) -> Work:
    table = bundled.parsed(manifest(n))
    assert table is not None
    return lambda: bundled.workspace("/nowhere", table)


def spec_of_copies(n: int) -> Work:
    copies = {f"r{one}": f"files/x{one}.py" for one in range(n)}
    text = b'a = "files/x1.py:f"\n' * n
    return lambda: bundled.as_written(text, copies)


def packages(make: Callable[[int], str]) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: comparing a
    requirements file, `make(n)`, with an empty one.
    """

    def sized(n: int) -> Work:
        data = {"requirements.txt": make(n).encode()}
        return lambda: package_changes(data, {"requirements.txt": b""})

    return sized


def table_of(name: str, make: Callable[[int], str]) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: reading a file of
    keys and values of a bundle.
    """

    def sized(n: int) -> Work:
        data = make(n).encode()

        def work() -> None:
            with suppress(UsageError):
                tables({name: data})

        return work

    return sized


def run_of_files(make: Callable[[int], dict[str, object]]) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: comparing the files
    of a finished run.
    """

    def sized(n: int) -> Work:
        folder = tempfile.mkdtemp(dir=os.environ.get("PYTEST_TMP"))
        put(folder, {"summary.json": "{}", "metrics.jsonl": '{"loss": 1.0}\n' * n})
        summary = {"files": {"metrics.jsonl": [0, ""], **make(n)}}
        return lambda: list(run_files.differences(folder, summary))

    return sized


INPUTS: dict[str, Callable[[int], Work]] = {
    "jsonl: rows": data(lambda n: f'{{"messages": [{TURN}]}}\n' * n, "x.jsonl"),
    "jsonl: keys": data(lambda n: json.dumps({f"k{one}": one for one in range(n)}), "x.jsonl"),
    "jsonl: keys, the last twice": data(
        lambda n: json.dumps({f"k{one}": one for one in range(n)})[:-1] + f', "k{n - 1}": 0}}', "x.jsonl"
    ),
    "jsonl: turns": data(lambda n: f'{{"messages": [{", ".join([TURN] * n)}]}}', "x.jsonl"),
    "jsonl: brackets": data(lambda n: "[" * n, "x.jsonl"),
    "jsonl: a text": data(lambda n: json.dumps({"text": "\u00e9\n" * n}), "x.jsonl"),
    "json: rows": data(lambda n: json.dumps([{"text": "a"}] * n), "x.json"),
    "json: a list that is not closed": data(lambda n: "[" + '{"text": "a"},' * n, "x.json"),
    "csv: rows": data(lambda n: "text\n" + "a\n" * n, "x.csv"),
    "csv: columns": data(lambda n: ",".join(f"c{one}" for one in range(n)) + "\n" + "," * (n - 1) + "\n", "x.csv"),
    "csv: quotes": data(lambda n: "text\n" + '"' * n, "x.csv"),
    "csv: doubled quotes": data(lambda n: 'text\n"' + '""' * n + '"\n', "x.csv"),
    "txt: empty lines": data(lambda n: "\n" * n, "x.txt"),
    "txt: a line": data(lambda n: "a" * n, "x.txt"),
    "check: rows": surveyed(lambda n: f'{{"messages": [{TURN}]}}\n' * n, "x.jsonl"),
    "check: turns": surveyed(lambda n: f'{{"messages": [{", ".join([TURN] * n)}]}}\n', "x.jsonl"),
    "check: columns": surveyed(lambda n: json.dumps({f"k{one}": one for one in range(n)}) + "\n", "x.jsonl"),
    "check: other columns in each row": surveyed(
        lambda n: "".join(f'{{"k{one}": 1, "messages": [{TURN}]}}\n' for one in range(n)), "x.jsonl"
    ),
    "check: roles": surveyed(
        lambda n: "".join(f'{{"messages": [{{"role": "r{one}", "content": "a"}}]}}\n' for one in range(n)), "x.jsonl"
    ),
    "parquet: structs": footer(
        lambda n: bytes([0x29, 0xFC, *(0x80 | n >> 7 * at & 127 for at in range(4)), 0]) + bytes(n)
    ),
    "parquet: nested": footer(lambda n: bytes([0x2C]) * n),
    "parquet: lists": footer(lambda n: bytes([0x29, 0x19]) * n),
    "spec: settings": specs(settings),
    "spec: unknown settings": specs(lambda n: spec("".join(f"sed{one} {one}\n" for one in range(n)))),
    "spec: blocks of another tool": specs(
        lambda n: spec("".join(f"optimizr{one} {{ lrr = 1e-5 }}\n" for one in range(n)))
    ),
    "spec: machines": specs(lambda n: spec("".join(f"hardware 2 nodes x {one} h100-80gb\n" for one in range(n)))),
    "spec: names of several words": specs(lambda n: spec("".join(f"aa{one} bb = 1\n" for one in range(n)))),
    "spec: known names of several words": specs(lambda n: spec("learning rate = 1e-5\n" * n)),
    "spec: calls that set": specs(lambda n: spec("".join(f"set(lr{one}, 1)\n" for one in range(n)))),
    "spec: train blocks": specs(lambda n: spec("train { lr = 1e-5 }\n" * n)),
    "spec: GPUs on lines": specs(lambda n: spec("n_gpus = 8\n" + "gpu_type = h100-80gb\n" * n)),
    "spec: calls of Python": specs(lambda n: spec("o = SGD(p, lr=1, b=(1, 2), c='a')\n" * n)),
    "spec: brackets of Python": specs(lambda n: spec("o = SGD(" + "a=(1," * n + ")")),
    "spec: keys of keys": specs(lambda n: spec("a" + '["b"]' * n + " = 1")),
    "spec: an error that a correction shows": specs(
        lambda n: spec("".join(f"optimzer(lrr{one}=a)\nlora(rnk={one})\n" for one in range(n)))
    ),
    "spec: a list of YAML": specs(lambda n: spec(f"datasets:\n  - path: x{' ' * n}{{\n")),
    "spec: words on a line": specs(lambda n: spec("from scratch " * n)),
    "spec: a setting again and again": specs(lambda n: spec("seed 1\n" * n)),
    "spec: a block again and again": specs(lambda n: spec("memory {\n  liger = true\n}\n" * n)),
    "spec: sources": specs(lambda n: spec("data mix {\n" + "".join(f"  org/x{one}\n" for one in range(n)) + "}",
                                          train="qwen2.5-3b on mix for 3 epochs")),
    "spec: the same source": specs(
        lambda n: spec("data mix {\n" + "  capybara\n" * n + "}", train="qwen2.5-3b on mix for 3 epochs")
    ),
    "spec: a list": specs(lambda n: spec(f"lora(targets=[{', '.join(f'a{one}' for one in range(n))}])")),
    "spec: an unknown name": specs(lambda n: spec(f"sed{'d' * n} 1")),
    "spec: an unknown model": specs(lambda n: spec(train=f"qwen{'n' * n} on alpaca for 3 epochs")),
    "spec: a text": specs(lambda n: spec(f'track wandb(name="{"a" * n}")')),
    "spec: silences": specs(lambda n: spec("".join(f"# xpc: allow XP111 {one}\n" for one in range(n)))),
    "spec: brackets": specs(lambda n: spec("seed " + "[(" * n)),
    "spec: closing brackets": specs(lambda n: spec("seed " + ")]}" * n)),
    "spec: quotes": specs(lambda n: spec('"' * n)),
    "spec: quotes on lines": specs(lambda n: spec('a = "\n' * n)),
    "spec: equals signs": specs(lambda n: spec("= " * n)),
    "spec: escapes": specs(lambda n: spec("\x1b\u202e" * n)),
    "spec: blocks that are not closed": specs(lambda n: spec("memory {\n" * min(n, 60) + "a = 1\n" * n)),
    "fmt: settings": formatted(settings),
    "fmt: comments": formatted(lambda n: HEAD + "# a\n" * n),
    "fmt: comments on lines": formatted(lambda n: HEAD + "seed 1  # a\n" * n),
    "fmt: empty lines": formatted(lambda n: HEAD + "\n" * n + "seed 1\n"),
    "fmt: a list": formatted(lambda n: HEAD + f"lora(targets=[{', '.join('a' * n)}])\n"),
    "fmt: nested lists of a text": formatted(lambda n: HEAD + f"seed {'[' * 30}\"{'a' * n}\"{']' * 30}\n"),
    "lock: packages": locked(lambda n: lock(packages=(f"p{one}==1" for one in range(n)))),
    "lock: one package again": locked(lambda n: lock(packages=("p==1" for _ in range(n)))),
    "lock: pins": locked(lambda n: lock(pins=(pin(one) for one in range(n)))),
    "yaml: keys": read(yaml.read, lambda n: "".join(f"k{one}: 1\n" for one in range(n))),
    "yaml: one key": read(yaml.read, lambda n: "k: 1\n" * n),
    "yaml: items": read(yaml.read, lambda n: "a:\n" + "- 1\n" * n),
    "yaml: brackets": read(yaml.read, lambda n: "a: " + "[" * n),
    "yaml: aliases": read(yaml.read, lambda n: "a: &a 1\nb:\n" + "- *a\n" * n),
    "yaml: spaces": read(yaml.read, lambda n: "a:" + " " * n + "1\n"),
    "yaml: a text": read(yaml.read, lambda n: 'a: "' + "\\u00e9" * n + '"\n'),
    "yaml: comments": read(yaml.read, lambda n: "# a\n" * n + "a: 1\n"),
    "json: keys": read(jsontext.read, lambda n: json.dumps({f"k{one}": one for one in range(n)})),
    "json: brackets": read(jsontext.read, lambda n: '{"a": ' + "[" * n),
    "shell: commands": read(shell_calls, lambda n: "a b\n" * n),
    "shell: variables": read(shell_calls, lambda n: "".join(f"A{one}=$A{one - 1}x\n" for one in range(n))),
    "shell: words": read(shell_calls, lambda n: "a " * n),
    "shell: quotes": read(shell_calls, lambda n: "a '" * n),
    "shell: continued lines": read(shell_calls, lambda n: "a \\\n" * n),
    "shell: brackets in quotes": read(shell_calls, lambda n: 'a "' + "$(" * n + '"'),
    "shell: quotes with a bracket": read(shell_calls, lambda n: "a " + '"${" ' * n),
    "shell: nested conditions": read(shell_calls, lambda n: "if [ $Q ]; then x=1\n" * n + "fi\n" * n),
    "shell: tables": read(
        shell_calls,
        lambda n: f"declare -A T=({' '.join(f'[k{one}]=v' for one in range(n))})\n" + "if [ $Q ]; then x=1; fi\n" * n,
    ),
    "shell: defaults": read(shell_calls, lambda n: "a " + "${a:-" * n),
    "python: statements": read(script, lambda n: "x = 1\n" * n),
    "python: branches": read(script, lambda n: "import os\n" + "if os.environ['A']:\n    x = 1\n" * n),
    "python: appends": read(script, lambda n: "x = []\n" + "x.append(1)\n" * n),
    "python: classes": read(script, lambda n: "class A: pass\n" + "class A(A): pass\n" * n),
    "python: calls": read(script, lambda n: "from trl import SFTTrainer\nt = SFTTrainer()\n" + "t.train()\n" * n),
    "manifest: files": manifests(lambda n: manifest(n).decode()),
    "manifest: a key of many parts": manifests(lambda n: f"{HEAD_OF_MANIFEST}a{'.a' * n} = 1\n"),
    "manifest: a table of many parts": manifests(lambda n: f"{HEAD_OF_MANIFEST}[a{'.a' * n}]\n"),
    "manifest: keys of many parts": manifests(lambda n: HEAD_OF_MANIFEST + f"a{'.a' * 150} = 1\n" * n),
    "manifest: keys of two parts": manifests(lambda n: "".join(f"a.b{one} = 1\n" for one in range(n))),
    "manifest: a list": manifests(lambda n: f"a = [{'1, ' * n}]"),
    "manifest: a text": manifests(lambda n: 'a = "' + "\\u0041" * n + '"'),
    "bundle: copies": bundle_of_copies,
    "bundle: copies in a spec": spec_of_copies,
    "packages: names": packages(lambda n: "".join(f"a{one}==1\n" for one in range(n))),
    "packages: one name": packages(lambda n: "".join(f"a=={one}\n" for one in range(n))),
    "packages: dots": packages(lambda n: f"a{'-' * n}b==1\n"),
    "table: keys": table_of("trainer_args.json", lambda n: json.dumps({f"a{one}": 1 for one in range(n)})),
    "table: a long name of a table": table_of(
        "trainer_args.json", lambda n: json.dumps({"k" * n: {f"a{one}": 1 for one in range(n)}})
    ),
    "table: lines of YAML": table_of("accelerate.yaml", lambda n: "a: no\n" * n),
    "table: quotes of YAML": table_of("accelerate.yaml", lambda n: 'a: "' + '\\"' * n + "\n"),
    "run: files that are not there": run_of_files(lambda n: {f"f{one}": [1, ""] for one in range(n)}),
    "run: a path of many folders": run_of_files(lambda n: {"a/" * n + "b": [1, ""]}),
    "notebook: cells": read(script, lambda n: json.dumps(
        {"cells": [{"cell_type": "code", "source": ["x = 1\n"]}] * n, "nbformat": 4, "metadata": {}}
    ), "x.ipynb"),
    "markdown: a text": lambda n: lambda text="*_<@`[" * n: plain(text),
    "markdown: fences": comments(lambda n: [Entry("a.xp", "x", "`" * n)]),
    "markdown: entries": comments(lambda n: [Entry(f"{one}.xp", "x" * 50, "y" * 300) for one in range(n)]),
    "markdown: one cause": comments(lambda n: [Entry(f"{one}.xp", "x", "y", cause=("a",)) for one in range(n)]),
    "terminal: commands of a runner": lambda n: lambda text="##[a]\n::b\n" * n: visible(text),
    "terminal: escapes": lambda n: lambda text="\x1b[2J\u202e" * n: visible(text),
    **{f"preview: {count} different lines": difference(count) for count in (1, 2, 100, 10**9)},
}  # fmt: skip
