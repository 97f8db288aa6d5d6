"""No modules import each other in a cycle. Modules whose import takes long are imported only by the commands that need
them.
"""

import ast
import os
import subprocess
import sys
from functools import cache

import pytest
from case_support import spec
from compile_support import REPOSITORY, SEED, SENTENCE, put
from syntax import imports as imports_in
from syntax import nodes

pytestmark = pytest.mark.slow

HEAVY = (
    "torch",
    "yaml",
    "pydantic",
    "click",
    "rich",
    "numpy",
    "transformers",
    "trl",
    "accelerate",
    "datasets",
    "hypothesis",
    "pytest",
    "importlib.resources",
)

SLOW = ("attrs", "typing", "inspect", "dataclasses", "hashlib")
"""Standard modules that `xpc check FILE` must not import. Together they would double its start-up time."""


@cache
def modules(folder):
    """Pairs of the path of a module and its imports. An import is a pair of the imported name and its level: 0 for an
    absolute import, 1 for `from . import`, and so on.
    """
    out = []
    for where, _, names in os.walk(os.path.join(REPOSITORY, folder)):
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(where, name)
                imports = [
                    (node.module or "", node.level) if isinstance(node, ast.ImportFrom) else (alias.name, 0)
                    for node in imports_in(path)
                    for alias in node.names
                ]
                out.append((os.path.relpath(path, REPOSITORY), imports))
    return out


def test_the_runtime_never_imports_xpc():
    seen = modules("runtime")
    assert any(imports for _, imports in seen)
    for path, imports in seen:
        assert not [name for name, _ in imports if name.split(".")[0] in ("xpc", "attrs", "attr")], path


def test_the_compiler_knows_of_the_runtime_what_a_bundle_holds():
    shared = {f"xpc.runtime.core{name}" for name in ("", ".payload", ".payload_data", ".conditions")}
    # `shares` computes how many rows of each source a mixture has.
    shared |= {"xpc.runtime.core.errors", "xpc.runtime.features.rows.shares"}
    # `prepare_rows` computes the name of the folder with prepared rows, from which the plan reads counts.
    shared |= {"xpc.runtime.prepare_rows"}
    # `newer_config` compares the old and the new form of the rotary settings in config.json, as a launch does.
    shared |= {"xpc.runtime.features.model.newer_config"}
    # `stored_columns` finds columns that no trainer reads. `call_forms` reads the tools and tool calls of rows.
    shared |= {f"xpc.runtime.features.messages{name}" for name in ("", ".stored_columns", ".call_forms")}
    # `row_names` and `turn_names` have the speakers and keys of turns.
    shared |= {"xpc.runtime.core.row_names", "xpc.runtime.features.messages.turn_names"}
    # `split_files` finds the files of a split in a folder.
    shared |= {f"xpc.runtime.features.rows{name}" for name in ("", ".split_files")}
    # `model_folder` lists the files of a local model in the same way as a launch, and `private_entries` caches their
    # digests. `tokenizer_files` knows whether a folder has a tokenizer.
    shared |= {f"xpc.runtime.features.launch{name}" for name in ("", ".model_folder", ".tokenizer_files")}
    # `cache_folders` finds the folders of caches.
    shared |= {"xpc.runtime.core.cache_folders"}
    # `csv_texts` knows which cells of a CSV file are null.
    shared |= {"xpc.runtime.features.launch.csv_texts"}
    # `picture` and `result` read curves and totals as the run does.
    shared |= {"xpc.runtime.picture", "xpc.runtime.result"}
    for path, imports in modules("compiler"):
        assert {name for name, _ in imports if name.startswith("xpc.runtime")} <= shared, path


@cache
def paths():
    """Maps every module of the repository to its file."""
    found = {}
    for folder in ("grammar", "compiler", "runtime"):
        for path, _ in modules(folder):
            name = "xpc." + path.removesuffix(".py").replace(os.sep, ".")
            found[name.removesuffix(".__init__")] = os.path.join(REPOSITORY, path)
    return found


@cache
def graph():
    """Every module of the repository with the modules that it imports: at its top, in functions, and only for types.

    All three kinds of imports count as edges of the graph: two modules that import each other cannot be understood
    separately, even if one of the imports is inside a function.
    """
    return {name: targets(name, imports_in(path)) for name, path in paths().items()}


def targets(name, imports):
    """The modules of the repository that these import statements of a module import."""
    known, package = set(paths()), name if paths()[name].endswith("__init__.py") else name.rpartition(".")[0]
    out = set()
    for node in imports:
        for alias in node.names:
            base = ""
            if isinstance(node, ast.ImportFrom):
                parts = package.split(".")
                parts = parts[: len(parts) - node.level + 1] if node.level else []
                base = ".".join([*parts, *([node.module] if node.module else [])])
            whole = f"{base}.{alias.name}".lstrip(".")
            out.add(whole if whole in known else base)
    return (out & known) - {name}


def test_an_import_inside_a_function_loads_a_module_that_is_not_loaded_yet():
    """A module that the imports at the top of a file load anyway is imported at the top."""
    kinds = (ast.Import, ast.ImportFrom)
    top = {
        name: targets(name, [one for one in nodes(path)[0].body if isinstance(one, kinds)])
        for name, path in paths().items()
    }
    needless = []
    for name, path in paths().items():
        loaded, waiting = set(), [name]
        while waiting:
            new = top[waiting.pop()] - loaded
            loaded |= new
            waiting += new
        functions = [one for one in nodes(path) if isinstance(one, ast.FunctionDef)]
        for late in {one for function in functions for one in ast.walk(function) if isinstance(one, kinds)}:
            found = targets(name, [late])
            if found and found <= loaded and not name.startswith("xpc.runtime"):
                needless.append(f"{path}:{late.lineno} {found}")
    assert not needless


def test_imports_have_no_circles():
    left = {name: set(found) for name, found in graph().items()}
    assert len(left) > 250
    assert sum(map(len, left.values())) > 1000
    while True:
        done = {name for name, found in left.items() if not found & set(left)}
        if not done:
            break
        left = {name: found for name, found in left.items() if name not in done}
    assert not {name: sorted(found & set(left)) for name, found in left.items()}


def imported(*arguments, cwd):
    """Run a command line in a new process and return the modules that it imported."""
    script = (
        "import sys; from xpc.compiler.cli import main; status = main(sys.argv[1:]); "
        "sys.stderr.write('\\n'.join(['MODULES', str(status), *sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XPC_CACHE": "off"},
    )
    _, _, tail = done.stderr.partition("MODULES\n")
    status, *names = tail.split("\n")
    return int(status), set(names)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_a_check_of_rows_imports_no_typing(name, tmp_path):
    row = '{"text": "One."}\n' if name == "rows.jsonl" else "text\nOne.\n"
    root = put(tmp_path, {"local.xp": f'xpc 1\ntrain qwen2.5-3b on "{name}" for 1 epochs\n', name: row})
    status, names = imported("check", "local.xp", cwd=root)
    assert status == 0
    assert not {"typing", "dataclasses", "inspect"} & names


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("check", "seed.xp"), 0),
        (("check", "sentence.xp"), 0),
        (("check", "adapters.xp"), 0),
        (("check", "wrong.xp"), 1),
        (("check", "seed.xp", "--format", "json"), 0),
        (("compile", "seed.xp", "-o", "b"), 0),
        (("explain", "XP301"), 0),
        (("explain", "seed.xp:gbs"), 0),
        (("plan", "x"), 2),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_no_command_imports_what_is_heavy(arguments, status, tmp_path):
    wrong = spec(batch="gbs=512 micro=11 ligre", strategy="zer2")
    texts = {"seed.xp": SEED, "sentence.xp": SENTENCE, "adapters.xp": spec("lora", strategy="zero3"), "wrong.xp": wrong}
    root = put(tmp_path, texts)
    got, names = imported(*arguments, cwd=root)
    assert got == status
    assert not [name for name in HEAVY if name in names]
    if arguments[0] == "check" and status == 0:
        assert not [name for name in names if name.startswith("xpc.compiler.suggest")]
    if arguments[0] == "check":
        tables = {"tomllib", "typing"} if status else set()  # a suggestion needs its tables of names
        assert not [name for name in (*SLOW, "tomllib") if name in names and name not in tables]
        assert "argparse" not in names or "--format" in arguments
        later = ("xpc.compiler.lower", "xpc.compiler.files.bundle.", "xpc.compiler.review")
        assert not [name for name in names if (name + ".").startswith(later)]
        assert not [name for name in ("shutil.rmtree", "xpc.compiler.explain.texts") if name in names]
