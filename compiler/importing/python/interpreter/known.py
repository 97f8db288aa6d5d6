"""Compute the calls of known functions of Python and of libraries, such as `os.path.join` and `OmegaConf.load`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from xpc.compiler.importing.python.interpreter import row_lists
from xpc.compiler.importing.python.interpreter.assignment import set_attribute
from xpc.compiler.importing.python.interpreter.attributes import Members, attribute
from xpc.compiler.importing.python.interpreter.builtin_functions import BUILTIN_FUNCTIONS, copied, dict_of
from xpc.compiler.importing.python.interpreter.command_line import hydra
from xpc.compiler.importing.python.interpreter.command_line.typer_functions import fields, given
from xpc.compiler.importing.python.interpreter.files import OS_FUNCTIONS, contents, first_argument, namespace
from xpc.compiler.importing.python.interpreter.functions import EXIT, first, is_data, is_settings, lineage, opened
from xpc.compiler.importing.python.interpreter.machine import Arguments, Keywords, Machine
from xpc.compiler.importing.python.interpreter.parameter_loops import change_parameters
from xpc.compiler.importing.python.interpreter.parsed_classes import adapter, lacks, parameters, quantization, settings
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Bound,
    Class,
    Function,
    Instance,
    Name,
    Object,
    Row,
    Scalar,
    Splits,
    Super,
    Table,
    Unknown,
    Unset,
)

STEMS = {
    "qwen": "Qwen", "gpt2": "GPT2", "pythia": "GPTNeoX", "gemma": "Gemma", "opt": ("OPT", "GPT2"), "bloom": "Bloom",
    "falcon": "Falcon", "smollm": ("Llama", "GPT2"), "olmo": ("Olmo", "GPTNeoX"), "deepseek": ("Qwen", "Llama"),
    "phi": ("Phi", "Llama", "GPT2", "CodeGen"), "llama": "Llama", "mistral": ("Mistral", "Llama"),
}  # fmt: skip
"""Maps a word in a model's name to possible beginnings of its class names in transformers: `qwen` to `Qwen`."""
PLAIN_TYPES = {"str", "int", "float", "bool", "list", "dict", "tuple"}
ATTRIBUTES = "it depends on the attributes of a value that is not known"
DUMPED = ("json.dumps", "yaml.dump", "yaml.safe_dump")


def _getattr(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    if len(positional) >= 2 and isinstance(positional[1].value, str):
        owner, name = positional[0].value, positional[1].value
        if len(positional) > 2 and isinstance(owner, Object) and lacks(owner, name):
            return positional[2].value
        found = attribute(machine, positional[0].value, positional[1].value, node)
        missing = isinstance(found, Unknown) and isinstance(positional[0].value, Instance | Class)
        return positional[2].value if missing and len(positional) > 2 else found
    return machine.unknown(node, "it depends on an attribute that is not known")


def _setattr(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    if len(positional) == 3 and isinstance(positional[1].value, str):
        set_attribute(machine, positional[0].value, positional[1].value, positional[2].value, positional[2].location)
    return None


def _typed(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    return Unset("a person types the value", machine.location(node))


def _class_fields(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords)
    return Name(f"{value.path}.__dataclass_fields__") if isinstance(value, Name) else fields(machine, value, node)


def _hasattr(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    owner, name = (one.value for one in positional[:2]) if len(positional) > 1 else (None, None)
    if isinstance(owner, Instance) and owner.made is None and isinstance(name, str):
        return name in owner.attributes or owner.kind.find(name) is not None
    if isinstance(owner, Object) and name == "peft_config":
        return any("peft" in one.path.lower() for one in lineage(owner))
    if isinstance(owner, Name):
        return True  # assume that the library has the name, as its newest version does
    return machine.unknown(node, "it depends on the version of the library")


def _super(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    method = next((one for one in reversed(machine.following) if isinstance(one.owner, Class)), None)
    names = method.node.args.args if method is not None else []
    made = machine.scopes[0].get(names[0].arg) if names else None
    if method is None or not isinstance(made, Instance) or not isinstance(method.owner, Class):
        return NotImplemented
    return Super(made, method.owner)


def _isinstance(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value, kinds = (one.value for one in positional[:2]) if len(positional) > 1 else (None, None)
    if isinstance(value, Object) and is_data(value):
        wanted = {one.last for one in (kinds if isinstance(kinds, tuple) else (kinds,)) if isinstance(one, Name)}
        parts = value.last == "load_dataset" and "split" not in value.keywords
        if wanted <= {"dict", "DatasetDict", "Dataset", "IterableDataset"}:
            return bool(wanted & ({"dict", "DatasetDict"} if parts else {"Dataset"}))
    if isinstance(value, Object) and value.last == "from_pretrained" and _of_other_family(value, kinds):
        return False
    if isinstance(value, Splits):
        return machine.unknown(node, "a type") if not isinstance(kinds, Name) else kinds.last in ("DatasetDict", "dict")
    names = {
        "dict" if one.last in ("Mapping", "MutableMapping") else one.path
        for one in (kinds if isinstance(kinds, tuple) else (kinds,))
        if isinstance(one, Name)
    }
    if isinstance(value, str) and names and all(one.startswith(("io.", "_io.")) for one in names):
        return False  # the value represents the name of a file, not an open file
    if isinstance(value, (*Scalar, list, tuple, dict)) and names <= PLAIN_TYPES:
        own = "dict" if isinstance(value, dict) else type(value).__name__
        return own in names or (own == "bool" and "int" in names) if names else machine.unknown(node, "a type")
    return machine.unknown(node, "it depends on a type that is not known")


def _of_other_family(loaded: Object, kinds: object) -> bool:
    """Whether a loaded model or tokenizer is, by its name, an instance of no class in `kinds`: the tokenizer of
    `Qwen/Qwen2.5-3B` is no `LlamaTokenizer`.
    """
    named = loaded.argument("pretrained_model_name_or_path", 0)
    name = str(named.value).lower().rstrip("/").rpartition("/")[2] if named is not None else ""
    stems = next((one for word, one in STEMS.items() if re.search(rf"(?<![a-z]){word}(?![a-z])", name)), "")
    classes = [one.last for one in (kinds if isinstance(kinds, tuple) else (kinds,)) if isinstance(one, Name)]
    special = [one for one in classes if re.search("Tokenizer(?:Fast)?$|ForCausalLM$|PreTrainedModel$", one)]
    return (
        bool(stems and classes)
        and special == classes
        and not any(
            one.startswith((*([stems] if isinstance(stems, str) else stems), "PreTrained", "Auto")) for one in classes
        )
    )


def _vars(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """Compute `vars(object)`, whose items are the object's attributes."""
    value = first(positional, keywords)
    if isinstance(value, Instance) or (isinstance(value, Object) and is_settings(value)):
        return Members(value)
    return machine.unknown(node, ATTRIBUTES)


def _map(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """Interpret `map(function, model.parameters())`: a function that changes the parameters is recorded like a loop
    that changes them.
    """
    function = first(positional, keywords)
    if isinstance(function, Function) and len(positional) == 2:
        change_parameters(machine, function.node, positional[1].value, node)
    return NotImplemented


def _asdict(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords)
    if isinstance(value, Instance):
        return Table(value.attributes, value.locations)
    return machine.unknown(node, ATTRIBUTES)


def _partial(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    function = first(positional, keywords)
    return Bound(function, None, keywords) if len(positional) == 1 else machine.unknown(node, "a partial function")


def _run(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    function = first(positional, keywords)
    if not isinstance(function, Function):
        return NotImplemented
    return machine.call(function, [], parameters(machine, function), node)


def _typer(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    function = first(positional, keywords)
    if not isinstance(function, Function):
        return NotImplemented
    return machine.call(function, [], dict(given(machine, function, 1)), node)


def _configured(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    kind_ = first(positional, keywords)
    machine.command_line.append(machine.location(node))
    if isinstance(kind_, Function):
        return _run(machine, positional, keywords, node)
    return machine.call(kind_, [], settings(machine, kind_), node) if isinstance(kind_, Class) else NotImplemented


def _sort(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords)
    if isinstance(value, list) and all(isinstance(one, str) for one in value) and not keywords:
        return sorted(map(str, value))
    return machine.unknown(node, "it depends on an order that is not known")


def _loaded(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """Compute `yaml.safe_load` and `json.load`: the contents of a file next to the script."""
    handle = first(positional, keywords)
    found = opened(handle) if isinstance(handle, Object) else None
    if isinstance(handle, Object) and handle.path == "<line>":
        return Row(source=handle.receiver)
    if isinstance(handle, Object) and (handle.path == "open" or handle.path.startswith("pathlib.Path.")):
        handle = first(handle.positional, handle.keywords, "file")
    if isinstance(handle, Object) and handle.path in DUMPED:
        return copied(first(handle.positional, handle.keywords, "obj"))
    if isinstance(handle, Unknown):
        return Unknown(handle.why, handle.location)
    if not isinstance(handle, str):
        return machine.unknown(node, "the contents of a file that is not known")
    value = contents(machine.read, handle)
    if value is None and found is not None and handle.endswith((".json", ".jsonl")):
        return Object("json.load", [Argument(handle, found.location)], {}, found.location, found)
    why = f"the contents of `{handle[:60]}`, which cannot be read here"
    return machine.unknown(node, why) if value is None else value


def _downloaded(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """Compute `snapshot_download(name)`: not the downloaded folder, but the repository's name, which the spec can
    state.
    """
    name = first(positional, keywords, "repo_id") or first([], keywords, "model_id")
    at = machine.location(node)
    found = machine.evaluate(node.func) if isinstance(node, ast.Call) else None
    if isinstance(found, Name):
        machine.calls.append(Object(found.path, list(positional), dict(keywords), at))
    why = "it depends on a repository that is not known"
    return name if isinstance(name, str) else machine.inherited(node, why, name)


def _replace(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """Compute `dataclasses.replace(configuration, **changes)`: a copy with some fields changed."""
    value = copied(positional[0].value) if positional else None
    if not isinstance(value, Object | Instance) or any(name.startswith("**") for name in keywords):
        return NotImplemented
    for name, one in keywords.items():
        set_attribute(machine, value, name, one.value, one.location)
    return value


def _configuration(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """Compute `OmegaConf.load(file)` and `OmegaConf.create(dict)`: an object whose attributes are the keys."""
    value = first(positional, keywords)
    return namespace(value if isinstance(value, dict) else _loaded(machine, positional, keywords, node))


def _splits(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = dict_of(machine, positional, keywords, node)
    return Splits(value, getattr(value, "locations", {})) if isinstance(value, dict) else NotImplemented


def _structured(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """The fields of a dataclass, or of its object, as a configuration."""
    return namespace(hydra.structured(machine, first(positional, keywords), node))


def _stored(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    """Record a class that a script registers with hydra: `store(name="config", node=Config)`."""
    given = {"name": 0, "node": 1} if "group" not in keywords else {}
    name, kind = (keywords.get(one, positional[at] if at < len(positional) else None) for one, at in given.items())
    if name is not None and kind is not None and isinstance(name.value, str):
        machine.stored[name.value] = kind.value
    return None


def _from_cli(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    machine.command_line.append(machine.location(node))
    return namespace(hydra.command_line(machine))


def _merged(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    tables = [one.value for one in positional if isinstance(one.value, Table)]
    return namespace(hydra.merged(tables)) if len(tables) == len(positional) else NotImplemented


def _shuffle(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords, "x")
    if not isinstance(value, list) or not row_lists.is_row_list(machine, value):
        return NotImplemented
    machine.journal.change(value, row_lists.shuffled(machine, value, node))
    return None


def _sample(machine: Machine, positional: Arguments, keywords: Keywords, node: ast.AST) -> object:
    value = first(positional, keywords, "population")
    if not isinstance(value, list) or not row_lists.is_row_list(machine, value):
        return NotImplemented
    count = keywords["k"].value if "k" in keywords else positional[1].value if len(positional) > 1 else None
    return row_lists.part(machine, row_lists.shuffled(machine, value, node), [None, count], node)


def _constant(value: object) -> Callable[..., object]:
    """Return a function with the same result for all arguments."""
    return lambda *_: value


SHARED: dict[Callable[..., object], tuple[str, ...]] = {
    first_argument: ("*.tqdm", "copy.copy", "asyncio.run", "omegaconf.OmegaConf.to_container",
                     "omegaconf.OmegaConf.to_object", "textwrap.dedent"),
    _vars: ("vars",),
    _map: ("map",),
    _asdict: ("asdict", "dataclasses.asdict"),
    _constant(EXIT): ("exit", "quit", "sys.exit", "os._exit"),
    _constant(None): ("print", "*.get_kbit_device_map", "omegaconf.OmegaConf.resolve"),
    _constant(True): ("dataclasses.is_dataclass", "torch.cuda.is_available"),
    _constant(False): ("torch.backends.mps.is_available", "torch.distributed.is_initialized", "torch.xpu.is_available",
                       "*.is_torch_xpu_available", "*.is_torch_npu_available"),
    lambda machine, *_: machine.gpu_has_bf16: ("torch.cuda.is_bf16_supported", "*.is_bfloat16_supported",
                                               "transformers.utils.is_torch_bf16_gpu_available", "*.is_bf16_supported"),
    _partial: ("functools.partial", "partial"),
    _loaded: ("yaml.safe_load", "yaml.load", "json.load", "json.loads", "yaml.full_load", "toml.load",
              "tomllib.load"),
    _configuration: ("omegaconf.OmegaConf.load", "omegaconf.OmegaConf.create", "easydict.EasyDict", "munch.munchify",
                     "box.Box", "addict.Dict"),
    _stored: ("hydra.core.config_store.ConfigStore.instance.store", "ConfigStore.instance.store"),
    lambda *given: namespace(dict_of(*given), False): ("types.SimpleNamespace", "argparse.Namespace"),
    _shuffle: ("random.shuffle", "random.Random.shuffle", "numpy.random.shuffle"),
    _sample: ("random.sample", "random.Random.sample"),
}  # fmt: skip
"""Maps a function of the interpreter to the names of the calls that it computes."""
KNOWN: dict[str, Callable[..., object]] = {
    **BUILTIN_FUNCTIONS,
    **OS_FUNCTIONS,
    **{name: function for function, names in SHARED.items() for name in names},
    "copy.deepcopy": lambda machine, positional, keywords, node: copied(first(positional, keywords, "x")),
    "*.snapshot_download": _downloaded,
    "dataclasses.replace": _replace,
    "getattr": _getattr,
    "setattr": _setattr,
    "hasattr": _hasattr,
    "super": _super,
    "isinstance": _isinstance,
    "input": _typed,
    "dataclasses.fields": _class_fields,
    "torch.cuda.device_count": lambda machine, *_: machine.gpus,
    "sorted": _sort,
    "torch.cuda.get_device_capability": lambda machine, *_: (9, 0) if machine.gpu_has_bf16 else (7, 0),
    "fire.Fire": _run,
    "typer.run": _typer,
    "tyro.cli": _configured,
    "*.get_peft_config": adapter,
    "*.get_quantization_config": quantization,
    "omegaconf.OmegaConf.from_cli": _from_cli,
    "omegaconf.OmegaConf.structured": _structured,
    "omegaconf.OmegaConf.merge": _merged,
    "datasets.DatasetDict": _splits,
}
"""Maps the dotted name of each known call to the function that computes its result. `*.tqdm` is a function `tqdm` of
any module.
"""
