"""The header's model and data: registry, local files, and hub ids that nobody has registered."""

from __future__ import annotations

import json
from collections.abc import Sequence

from xpc.compiler import registry
from xpc.compiler.data.contents import contents
from xpc.compiler.data.shapes import ALPACA, INPUT, SHAPES, columns_of, in_words
from xpc.compiler.files import DATA_FORMATS, Read, Workspace
from xpc.compiler.language.codes import Problems, report
from xpc.compiler.language.convert import convert
from xpc.compiler.language.items import Row
from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.schema import SOURCE_SETTINGS
from xpc.compiler.language.values import LARGEST, Wrong, plain_text
from xpc.compiler.methods import DEFAULT, METHODS
from xpc.compiler.registry import ModelFacts
from xpc.compiler.resources import DataSource, Model
from xpc.grammar.diagnostic import ERROR, Diagnostic, Label
from xpc.grammar.record import evolve
from xpc.grammar.tree import Ref, String


def find_model(
    node: Ref | String, label: Label, config: Read | None, revision: str | None, workspace: Workspace
) -> tuple[Model, list[Diagnostic]]:
    """The model that the header names. `config` is what `model { config = file(...) }` names."""
    problems = Problems()
    facts: ModelFacts | None = None
    known = ""
    said: dict[str, object] = {}
    if config is not None:
        facts, said, problem = _facts(config.name, config.data, label)
        known = config.name
        problems += problem
    family = registry.encoder_decoder(node.name) if isinstance(node, Ref) else None
    if isinstance(node, Ref) and family is not None and not problems:
        problems.append(_encoder_decoder(node.name, family, label))
        return Model(label, node.name, None, revision, None, "registry"), problems
    if isinstance(node, String):
        wrong = plain_text(node.value)
        if wrong:
            problems.report("XP108", f"the model's path cannot be used: {wrong}", label)
        elif facts is None and not problems:
            read = workspace.read(node.value.rstrip("/") + "/config.json")
            if isinstance(read, str):
                problems.report(
                    "XP118",
                    f"{read}, so the architecture is not known",
                    label,
                    help=f"write `{node.value}` without quotes for a model of the hub, or beside a folder that "
                    'is to come `model(config=file("config.json"))`'
                    if _is_hub_id(node.value)
                    else 'a local model is a folder with config.json; or write `config = file("config.json")`',
                )
            else:
                facts, said, problem = _facts(read.name, read.data, label)
                known = read.name
                problems += problem
        chat, template = (None, None) if wrong else _template(node.value, workspace)
        return Model(label, None, node.value, revision, facts, known, chat, template, config=said), problems
    if node.config is not None or node.split is not None:
        problems.report(
            "XP108",
            "a model has no configuration and no split",
            label,
            help=f"write `{node.name}`, with `@revision` if one is meant",
        )
    if node.revision is not None and revision is not None and node.revision != revision:
        problems.report(
            "XP122",
            f"the model is asked for at `{node.revision}` and at `{revision}`",
            label,
            help="keep one of the two",
        )
    entry = registry.find_model(node.name)
    id, chat = (node.name, None) if entry is None else (entry.id, entry.chat)
    revision = node.revision or revision
    pin = None if workspace.pins is None else workspace.pins.find("model", id, revision)
    if pin is not None:
        revision, chat = pin.revision, chat if pin.chat is None else pin.chat
        if entry is None and config is None and pin.config:
            facts, said, problem = _facts(workspace.lock, pin.config.encode(), label)
            known = workspace.lock
            problems += problem
    if entry is not None:
        return Model(
            label, entry.id, None, revision, facts or entry, known or "registry", chat, config=said
        ), problems  # fmt: skip
    if "/" not in node.name:
        from xpc.compiler.suggest.registry_names import unknown_model  # only a wrong spec pays for it

        problems.append(unknown_model(node, label))
    elif (path := _unquoted(node.name, label, "XP108", "XP109", workspace)) is not None:
        problems.append(path)
    elif facts is None and not said:
        problems.report(
            "XP109",
            f"`{node.name[:80]}` is not in the registry: its architecture is not checked",
            label,
            help='`config = file("config.json")` gives the architecture',
        )
    return Model(label, node.name, None, revision, facts, known, chat, config=said), problems


def _template(folder: str, workspace: Workspace) -> tuple[bool | None, str | None]:
    """Whether the tokenizer in a folder has a chat template (None: not known), and its text where there is one text."""
    place = folder.rstrip("/") + "/"
    if workspace.kind(place + "additional_chat_templates") or workspace.kind(place + "chat_template.json"):
        return None, None
    if workspace.kind(place + "chat_template.jinja"):
        read = workspace.read(place + "chat_template.jinja")
        return True, None if isinstance(read, str) else read.data.decode("utf-8", "replace")
    read = workspace.read(place + "tokenizer_config.json") if workspace.kind(place + "tokenizer_config.json") else ""
    try:
        found = None if isinstance(read, str) else json.loads(read.data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return None, None
    text = found.get("chat_template")
    return text is not None, text if isinstance(text, str) else None


def vocabulary(model: Model, workspace: Workspace) -> bytes | None:
    """The tokens of a local model, as the files of its tokenizer spell them; None where it has no tokenizer.json."""
    if model.path is None or not workspace.kind(model.path.rstrip("/") + "/tokenizer.json"):
        return None
    place, found = model.path.rstrip("/") + "/", []
    for name in ("tokenizer.json", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"):
        if workspace.kind(place + name):
            read = workspace.read(place + name)
            if isinstance(read, str):
                return None
            found.append(read.data)
    return b"\n".join(found)


def _unquoted(name: str, label: Label, code: str, note: str, workspace: Workspace) -> Diagnostic | None:
    """The finding for a path without quotes, which would be asked of the hub: it ends like a file, or is here."""
    kind = workspace.kind(name)
    if not kind and not name.lower().endswith((*DATA_FORMATS, ".safetensors", ".gguf")):
        return None
    from xpc.compiler.suggest.registry_names import unquoted  # only a wrong spec pays for it

    return unquoted(name, label, note if kind == "folder" else code, kind)


def _is_hub_id(path: str) -> bool:
    """Whether a quoted path reads like `org/name`."""
    org, slash, name = path.partition("/")
    plain = all(c.isascii() and (c.isalnum() or c in "-_.") for c in org + name)
    return bool(slash and org.strip(".") and name) and plain and not path.lower().endswith(DATA_FORMATS)


def _facts(name: str, data: bytes, label: Label) -> tuple[ModelFacts | None, dict[str, object], list[Diagnostic]]:
    """What a config.json says of a model, counted and as it stands; the latter alone for a family of another shape."""
    try:
        config = json.loads(data)
    except (ValueError, RecursionError):
        return _no_facts(label, f"`{name}` is not JSON", "give the config.json of a transformers model")
    if not isinstance(config, dict):
        return _no_facts(label, f"`{name}` is not a JSON object", "give a model's config.json")
    kind = config.get("model_type")
    family = registry.encoder_decoder(kind) if isinstance(kind, str) else None
    if family is not None:
        return None, {}, [_encoder_decoder(name, family, label)]
    try:
        why = registry.uncounted(config)
        facts = registry.facts_from_config(config, name, name) if why is None else None
    except (TypeError, ValueError, ArithmeticError) as error:
        return _no_facts(label, f"`{name}` has a value that cannot be used ({error})", "")
    if facts is None:
        note = report("XP109", f"`{name}`: {why}", label, help="write `micro`: without sizes it cannot be planned")
        return None, config, [note]
    if isinstance(facts, str):
        return _no_facts(label, f"`{name}`: {facts}", "give a model's whole config.json")
    sizes = (facts.params, facts.layers, facts.hidden, facts.intermediate, facts.heads, facts.vocab, facts.context)
    if max(sizes) > LARGEST:
        return _no_facts(label, f"`{name}` states a model too large to be one", "give a real config.json")
    return facts, config, []


def _encoder_decoder(name: str, family: str, label: Label) -> Diagnostic:
    return report(
        "XP128",
        f"`{name[:80]}` is a {family} model, with an encoder: the trainers here train decoders alone",
        label,
        help="write a causal language model, such as `qwen2.5-3b`",
    )


def _no_facts(label: Label, why: str, help: str) -> tuple[None, dict[str, object], list[Diagnostic]]:
    return None, {}, [report("XP118", why, label, help=help)]


def find_source(
    row: Row,
    shape: str | None,
    workspace: Workspace,
    method: str = DEFAULT,
    prompt: str | None = None,
    context: str | None = None,
) -> tuple[DataSource, list[Diagnostic]]:
    """One source of data with what is known about it.

    `shape` is `data { format = ... }`, `prompt` and `context` its columns of that name, when written. Reinforcement
    reads nothing but the prompt, so there a prompt column is the shape.
    """
    if shape is None and prompt is not None and METHODS[method].shapes[0] == "prompt":
        shape = "prompt"
    problems = Problems()
    settings: dict[str, object] = {}
    for item in row.items:
        value = convert(SOURCE_SETTINGS[item.path], item)
        if isinstance(value, Wrong):
            from xpc.compiler.suggest.legal import answer  # only a wrong spec pays for it

            problems.append(answer(value))
        elif item.path in settings:
            first = next(one for one in row.items if one.path == item.path).label
            twice = f"`{item.path}` is written twice"
            problems.report("XP103", twice, item.label, related=(first,), help="keep one of the two")
        elif isinstance(value, Amount) and value.value == 0:
            nothing = f"`{item.path}` keeps no rows"
            problems.report("XP107", nothing, item.label, help="write `take = 50%`, or leave the source out")
        else:
            settings[item.path] = value
    node = row.ref
    if isinstance(node, String):
        source, more = _local(node, row.label, "prompt_completion" if shape == "alpaca" else shape, workspace, method)
    else:
        source, more = _remote(node, row.label, "prompt_completion" if shape == "alpaca" else shape, workspace, method)
    columns, take, own = settings.get("columns"), settings.get("take"), settings.get("context")
    named = columns if isinstance(columns, tuple) else None
    source, wrong = columns_of(source, shape, named, prompt, own if isinstance(own, str) else context)
    problems += wrong
    if isinstance(take, Amount):
        source = evolve(source, take=take)
    most = settings.get("limit")
    if isinstance(most, int):
        source = evolve(source, limit=most, rows=None if source.rows is None else min(source.rows, most))
    if source.parts:
        read = {name: getattr(source, name) for name in ("shape", "columns", "only", "context", "wording")}
        source = evolve(source, parts=tuple(evolve(part, **read) for part in source.parts))
    source, last = contents(source, workspace)
    return source, [*problems, *more, *last]


def _remote(
    node: Ref, label: Label, shape: str | None, workspace: Workspace, method: str
) -> tuple[DataSource, list[Diagnostic]]:
    source, found = _of_the_hub(node, label, shape, workspace, method)
    if node.slice is None and not source.split.isdigit():
        return source, found
    from xpc.compiler.language.slices import part

    cut, wrong = part(node, label)
    return evolve(source, slice=cut), wrong + found


def _of_the_hub(
    node: Ref, label: Label, shape: str | None, workspace: Workspace, method: str
) -> tuple[DataSource, list[Diagnostic]]:
    entry = registry.find_dataset(node.name)
    id, part = (node.name, node.config) if entry is None else (entry.id, node.config or entry.config)
    pin = None if workspace.pins is None else workspace.pins.find("dataset", id, node.revision, part)
    revision = node.revision if pin is None else pin.revision
    if entry is not None:
        fitting = shape is None or shape == entry.shape
        config, split = part, node.split or entry.split
        return DataSource(
            entry.id,
            None,
            label,
            config,
            split,
            node.slice,
            revision,
            shape or entry.shape,
            entry.columns if fitting else None,
            rows=entry.rows if (config, split, node.slice) == (entry.config, entry.split, None) else None,
            context=entry.context if fitting else None,
        ), []
    usual = METHODS[method].shapes[0]
    source = DataSource(
        node.name, None, label, node.config, node.split or "train", node.slice, revision, shape or usual
    )
    if pin is not None and pin.columns and not node.is_name:
        known, found = _shaped(source, pin.columns, shape, method)
        return evolve(known, rows=None if node.slice else pin.rows.get(known.split)), found
    if not node.is_name and "/" in node.name:
        path = _unquoted(node.name, label, "XP110", "XP111", workspace)
        if path is not None or shape is not None:
            return source, [path] if path is not None else []
        return source, [
            report(
                "XP111",
                f"`{node.name[:80]}` is not in the registry: its rows are taken to be {in_words(usual)}",
                label,
                help=f"`data(format={METHODS[method].shapes[-1] if method == 'kto' else 'conversations'})` or the like "
                "states another shape"
                if len(METHODS[method].shapes) > 1
                else f"`data(format={usual})` states it",
            )
        ]
    from xpc.compiler.suggest.registry_names import unknown_dataset  # only a wrong spec pays for it

    return source, [unknown_dataset(node, label)]


def _local(
    node: String, label: Label, shape: str | None, workspace: Workspace, method: str
) -> tuple[DataSource, list[Diagnostic]]:
    path = node.value
    source = DataSource(None, path, label, shape=shape or METHODS[method].shapes[0])
    wrong = plain_text(path)
    if wrong:
        return source, [report("XP110", f"the data's path cannot be used: {wrong}", label)]
    kind = workspace.kind(path)
    if kind == "file" and not path.lower().endswith(DATA_FORMATS):
        return source, [
            report(
                "XP110",
                f"`{path[:80]}` has no format that can be read",
                label,
                help="data is " + ", ".join(DATA_FORMATS) + ", or a folder of them",
            )
        ]
    if not kind:
        return source, [_not_here(path, label, shape, workspace)]
    if kind == "folder":
        return _folder(source, node, shape, workspace, method)
    from xpc.compiler.data.rows import first_columns  # a spec of registered data has no use for it

    try:
        columns = first_columns(path, workspace.head(path))
    except OSError as error:
        wrong = f"`{path[:80]}` cannot be read ({error.strerror or error})"
        return source, [report("XP114", wrong, label, help="make the file readable")]
    return _shaped(source, columns, shape, method)


def _shaped(
    source: DataSource, columns: Sequence[str] | None, shape: str | None, method: str
) -> tuple[DataSource, list[Diagnostic]]:
    """The source with the shape that its columns show, where none is written."""
    problems = Problems()
    if shape is None and columns is not None:
        order = SHAPES if method == DEFAULT else (*METHODS[method].shapes, *SHAPES)
        found = next((name for name in order if set(SHAPES[name]) <= set(columns)), None)
        if found is None and set(ALPACA) <= set(columns):
            source = evolve(source, shape="prompt_completion", columns=ALPACA, context=INPUT)
        elif found is None:
            from xpc.compiler.suggest.likely_columns import wanted  # only a wrong spec pays for it

            listed = ", ".join(columns[:8]) or "none"
            problems.report(
                "XP124",
                f"the columns of `{source.name[:80]}` are of no known shape",
                source.label,
                related=(),
                help=f"its columns are {listed}; {wanted(method, columns)}",
            )
            columns = None
        else:
            source = evolve(source, shape=found)
    source = evolve(source, found=None if columns is None else tuple(columns))
    return source, problems


def _folder(
    source: DataSource, node: String, shape: str | None, workspace: Workspace, method: str
) -> tuple[DataSource, list[Diagnostic]]:
    """A folder with its files. The first row of the first file to train on says what all of them are."""
    from xpc.compiler.data import folders

    path, label = node.value.rstrip("/") or "/", source.label
    names = workspace.walk(path)
    if isinstance(names, str):
        return source, [report("XP114", names, label, help="name a folder that holds files of rows, and no others")]
    names = [
        one for one in names if one.lower().endswith(DATA_FORMATS) and one.rpartition("/")[2] not in folders.IGNORED
    ]
    if not names:
        help = "a data folder holds files of rows: " + ", ".join(DATA_FORMATS)
        return source, [report("XP110", f"`{path[:80]}` holds no data", label, help=help)]
    first = (folders.of_split(tuple(names), source.split) or names)[0]
    found, problems = _local(String(node.span, f"{path}/{first}"), label, shape, workspace, method)
    parts = tuple(evolve(found, path=f"{path}/{one}", found=None) for one in names)
    return evolve(found, path=node.value, parts=parts), problems


def _not_here(path: str, label: Label, shape: str | None, workspace: Workspace) -> Diagnostic:
    """A warning where `format` says what the rows are, or not even their folder is here: then the data may be where the
    run will be, and only there."""
    elsewhere = shape is not None or workspace.kind(path.rpartition("/")[0] or ("/" if path[:1] == "/" else ".")) == ""
    message = f"`{path[:80]}` is not here" + (": the run will look for it, unchecked" if elsewhere else "")
    if _is_hub_id(path):
        help = f"write `{path}` without quotes for a dataset of the hub"
    elif elsewhere:
        help = "the path is relative to the spec; XPC_DATA_ROOT names another folder at the run"
    else:
        help = "the path is relative to the spec; `data(format=...)` says what the rows of data are that is elsewhere"
    return evolve(report("XP123", message, label, help=help), severity="warning" if elsewhere else ERROR)
