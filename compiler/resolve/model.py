"""Find the model in the first line of a spec: in the registry, in a local folder, or, if it is not registered, on the
hub.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from xpc.compiler import registry
from xpc.compiler.files.workspace import Read, Unreadable, Workspace
from xpc.compiler.language.codes import Problems, report
from xpc.compiler.language.values import LARGEST, plain_text
from xpc.compiler.registry.types import IMAGE_FAMILIES, ModelFacts
from xpc.compiler.resolve.names import is_hub_id, unquoted
from xpc.compiler.spec.resources import Model
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.record import evolve, field, mutable
from xpc.grammar.tree import Ref, String

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""File names under which transformers looks for weights in a folder, in this order."""
POINTER = b"version https://git-lfs.github.com/spec/"

TRAINED = "qwen2.5-vl"
"""A model that reads images can be trained only if its name contains this text."""
SENSES = (
    "vision_config", "visual", "vision_tower", "mm_vision_tower", "img_processor", "vision_model", "audio_config",
    "speech_config", "thinker_config", "vlm_config",
)  # fmt: skip
"""Keys of a config.json that only models for images or sound have, such as `vision_config`. Some of the keys occur only
in models with custom code.
"""


def find_model(
    node: Ref | String, label: Label, config: Read | None, revision: str | None, workspace: Workspace
) -> tuple[Model, list[Diagnostic]]:
    """Return the model in the first line of the spec, and findings about it. `config` is the file in `model { config =
    file(...) }`, or None.
    """
    search = _Search(label, workspace, revision)
    if config is not None:
        search.read(config.name, config.data)
    if isinstance(node, Ref) and not node.name:  # the `train` line names no model, which is already reported
        return Model(label, "", None, revision, search.facts, search.known, config=search.config), search.problems
    family = registry.encoder_decoder(node.name) if isinstance(node, Ref) else None
    if isinstance(node, String):
        model = search.in_folder(node.value)
    elif family is not None and not search.problems:
        search.problems.append(_encoder_decoder(node.name, family, label))
        model = Model(label, node.name, None, revision, None, "registry")
    else:
        model = search.by_name(node)
    return model, search.problems


@mutable
class _Search:
    """The state of the search for a model. It has the findings so far, the architecture, and the name of the file that
    states the architecture.
    """

    label: Label
    workspace: Workspace
    revision: str | None
    problems: Problems = field(factory=Problems)
    facts: ModelFacts | None = None
    config: dict[str, object] = field(factory=dict)
    known: str = ""

    def read(self, name: str, data: bytes) -> None:
        """Take the architecture from a config.json."""
        self.known = name
        try:
            config = json.loads(data)
        except (ValueError, RecursionError):
            self._refuse(f"`{name}` is not JSON", "give the config.json of a transformers model")
            return
        if not isinstance(config, dict):
            self._refuse(f"`{name}` is not a JSON object", "give a model's config.json")
        elif (refused := _untrainable(name, config, self.label)) is not None:
            self.problems.append(refused)
        else:
            self._count(name, config)

    def _count(self, name: str, config: dict[str, object]) -> None:
        """Compute the sizes of a model from its config.json. They stay None if xpc has no formula for them, because the
        family's decoder is not like Llama's.
        """
        # few specs name a config.json
        from xpc.compiler.registry.architecture import facts_from_config, uncounted
        from xpc.compiler.registry.config_json import ConfigError

        try:
            why = uncounted(config)
            if why is not None:
                self.config = config
                help = "write `micro`: without the model's sizes xpc cannot choose it"
                self.problems.report("XP109", f"`{name}`: {why}", self.label, help=help)
                return
            facts = facts_from_config(config, name, name)
        except ConfigError as error:
            self._refuse(f"`{name}`: {error}", "give a model's complete config.json")
            return
        except (TypeError, ValueError, ArithmeticError) as error:
            self._refuse(f"`{name}` has a value that cannot be used ({error})", "")
            return
        sizes = (facts.params, facts.layers, facts.hidden, facts.intermediate, facts.heads, facts.vocab, facts.context)
        if max(sizes) > LARGEST:
            self._refuse(f"`{name}` states impossible sizes", "give the config.json of a transformers model")
        else:
            self.facts, self.config = facts, config

    def _refuse(self, why: str, help: str) -> None:
        self.problems.report("XP118", why, self.label, help=help)

    def in_folder(self, path: str) -> Model:
        """The model in a local folder, as in `train "out/first" on alpaca`."""
        wrong, folder = plain_text(path), path.rstrip("/")
        if wrong:
            self.problems.report("XP108", f"the model's path cannot be used: {wrong}", self.label)
        elif self.facts is None and not self.problems:
            self._read_folder(path)
        model = Model(self.label, None, path, self.revision, self.facts, self.known, config=self.config)
        if wrong:
            return model
        if all(self.workspace.kind(f"{folder}/{name}") for name in ("config.json", "adapter_config.json")):
            why = f"`{path[:80]}` contains an adapter next to a model, and transformers would load both"
            self._refuse(why, "move adapter_config.json and the adapter's weights to another folder")
        of_run = _of_run(folder, self.label, self.workspace, self.problems)
        weights = next((name for name in WEIGHTS if self.workspace.kind(f"{folder}/{name}")), "")
        if (fault := _incomplete(folder, weights, self.workspace)) is not None:
            self.problems.report("XP935", fault[0], self.label, help=fault[1])
        elif not of_run and self.workspace.kind(f"{folder}/config.json"):
            missing = "tokenizer" if weights else "weights"
            if not weights or not self.workspace.has_tokenizer(folder):
                why = f"`{path[:80]}` has no {missing} here: a bundle that is compiled without them does not start"
                help = f"copy the model's {missing} into `{folder[:80]}` before `xpc compile`"
                self.problems.append(evolve(report("XP935", why, self.label, help=help), severity="warning"))
        pickled = weights.startswith("pytorch_model")
        return _with_tokenizer(evolve(model, of_run=of_run, pickled=pickled), folder, self.workspace)

    def _read_folder(self, path: str) -> None:
        """Take the architecture from the config.json in a folder. A folder without this file is reported."""
        try:
            read = self.workspace.read(path.rstrip("/") + "/config.json")
        except Unreadable as error:
            self._report_folder(path, str(error))
        else:
            self.read(read.name, read.data)

    def _report_folder(self, path: str, fault: str) -> None:
        if _is_elsewhere(path, self.workspace):
            why = f"`{path[:80]}` is not here: the run will look for it, and its architecture is not checked"
            gives = self.workspace.help_for_base(path, self.label.source.name)
            gives = gives or '`model(config=file("config.json"))` gives the architecture'
            self.problems.append(evolve(report("XP118", why, self.label, help=gives), severity="warning"))
        else:
            why, help = _no_config(path, fault, self.workspace)
            help = self.workspace.help_for_base(path, self.label.source.name) or help
            self.problems.report("XP118", why, self.label, help=help)

    def by_name(self, node: Ref) -> Model:
        """Find a model by its name in the registry or on the hub, as in `train qwen2.5-3b on alpaca`."""
        self._check_parts(node)
        entry = registry.find_model(node.name)
        id, chat = (node.name, None) if entry is None else (entry.id, entry.chat)
        revision = node.revision or self.revision
        pin = None if self.workspace.pins is None else self.workspace.pins.find("model", id, revision)
        if pin is not None:
            revision, chat = pin.revision, chat if pin.chat is None else pin.chat
            if entry is None and not self.known and pin.config:
                self.read(self.workspace.lock, pin.config.encode())
        if entry is None:
            self._check_name(node)
        known = self.known or ("" if entry is None else "registry")
        return Model(self.label, id, None, revision, self.facts or entry, known, chat, config=self.config)

    def _check_parts(self, node: Ref) -> None:
        """Report parts of the model's name that only a dataset's name can have, as in `qwen2.5-3b[train]`. Also report
        a revision in the name that differs from the revision in `model { revision = ... }`.
        """
        if node.config is not None or node.split is not None:
            sized = registry.find_model(f"{node.name}-{node.config}")  # `qwen2.5:0.5b`, as Ollama writes it
            name = node.name if sized is None else sized.alias
            help = f"write `{name}`, or `{name}@REVISION`"
            self.problems.report("XP108", "a model takes no configuration or split of a dataset", self.label, help=help)
        if node.revision is not None and self.revision is not None and node.revision != self.revision:
            why = f"the model has two revisions, `{node.revision}` and `{self.revision}`"
            self.problems.report("XP122", why, self.label, help="keep one of the two")

    def _check_name(self, node: Ref) -> None:
        """Report a model that is not in the registry. If a config.json states its architecture, nothing is reported."""
        stated = self.facts is not None or bool(self.config)
        if "/" not in node.name and registry.multimodal(node.name) and TRAINED not in node.name.lower():
            self._report_images(node.name)
        elif "/" not in node.name:
            # imported only here, because only a wrong spec needs it
            from xpc.compiler.suggest.registry_names import unknown_model

            self.problems.append(unknown_model(node, self.label))
        elif (path := unquoted(node.name, self.label, "XP108", "XP109", self.workspace)) is not None:
            self.problems.append(path)
        elif not stated and not self.problems and registry.multimodal(node.name):
            self._report_images(node.name)
        elif not stated:
            self.problems.append(_unregistered(node, self.label))

    def _report_images(self, name: str) -> None:
        """Report a model that reads images or sound. If xpc can train such a model, the help asks for its
        config.json.
        """
        if TRAINED not in name.lower():
            why = "is the name of a model that reads images or sound"
            self.problems.append(_multimodal(name, why, self.label))
            return
        self.known = f"`{name[:80]}` reads images, and its architecture is not in the registry"
        help = '`config = file("config.json")` in `model` gives the architecture'
        self.problems.report("XP130", self.known, self.label, help=help)


def _unregistered(node: Ref, label: Label) -> Diagnostic:
    """The finding for a model of the hub that is not in the registry. The finding is a warning if the name probably
    misspells the name of another model.
    """
    # imported only here, because only an unregistered model needs it
    from xpc.compiler.suggest.registry_names import copied, hub_typo

    message = f"`{node.name[:80]}` is not in the registry: its architecture is not checked"
    help, near = '`config = file("config.json")` gives the architecture', hub_typo(node.name)
    if near is None:
        same = copied(node.name)
        if same is not None:
            help = f"write `{same}` if this is a copy of that model; otherwise {help}"
        return report("XP109", message, label, help=help)
    edits = (Edit(label.span, near),) if label.typed == node.name else ()
    found = report("XP109", message, label, help=f"write `{near}`; if the model has this name, {help}", edits=edits)
    return evolve(found, severity="warning")


def _is_elsewhere(path: str, workspace: Workspace) -> bool:
    """Whether a model's folder may be on the training machine. True if neither the folder nor its parent folder exists
    here. False for a hub id in quotes.
    """
    above, _, _ = path.rstrip("/").rpartition("/")
    named = is_hub_id(path) or path.startswith("~") or "://" in path
    return bool(above) and not named and not workspace.kind(above)


def _of_run(folder: str, label: Label, workspace: Workspace, problems: Problems) -> bool:
    """Whether a folder is the output folder of a run, or a checkpoint. A checkpoint with only sharded weights is
    reported, because a model cannot be loaded from sharded weights.
    """
    if not any(workspace.kind(f"{folder}/{name}") for name in ("trainer_state.json", "xpc_run.json")):
        return False
    if workspace.kind(f"{folder}/config.json") and not any(workspace.kind(f"{folder}/{name}") for name in WEIGHTS):
        sharded = workspace.kind(f"{folder}/pytorch_model_fsdp_0")
        made = f"{folder}/whole"
        help = f"`accelerate merge-weights {folder}/pytorch_model_fsdp_0 {made}` merges FSDP's shards"
        if not sharded:
            help = f"`python {folder}/zero_to_fp32.py {folder} {made} --safe_serialization` merges ZeRO's shards"
        help += f"; copy config.json and the tokenizer into `{made}`, and train `{made}`"
        if not sharded and not workspace.kind(f"{folder}/zero_to_fp32.py"):
            help = (
                "name a folder with complete weights: the output folder of the finished run, or one of its checkpoints"
            )
        problems.report("XP935", f"`{folder[:80]}` is a checkpoint with sharded weights only", label, help=help)
    return True


def _incomplete(folder: str, weights: str, workspace: Workspace) -> tuple[str, str] | None:
    """The message and the help for a folder with a part of a model's weights, or with Git LFS's pointers to them.
    `weights` is the file that transformers would read, one of `WEIGHTS`. None for a folder without any weights.
    """
    names = [weights] if weights else []
    try:
        if weights.endswith(".json"):
            shards = {*json.loads(workspace.read(f"{folder}/{weights}").data)["weight_map"].values()}
            names = sorted(name for name in shards if "/" not in name)
        present = [name for name in names if workspace.kind(f"{folder}/{name}")]
        pointer = next((name for name in present if _is_pointer(f"{folder}/{name}", workspace)), None)
    except (Unreadable, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"`{folder[:80]}/{weights}` cannot be read", "copy the model's folder again"
    if pointer is not None:
        return f"`{folder[:80]}/{pointer[:80]}` is a pointer of Git LFS, without weights", "run `git lfs pull` there"
    if present and len(present) < len(names):
        missing = next(name for name in names if name not in present)
        message = f"`{folder[:80]}` has {len(present)} of the {len(names)} files of the model's weights"
        return message, f"copy or download the others, such as `{missing[:80]}`"
    return None


def _is_pointer(path: str, workspace: Workspace) -> bool:
    """Whether a file is a pointer of Git LFS. False for a file of an earlier commit whose contents are not here."""
    try:
        return workspace.size(path) < len(POINTER) * 8 and workspace.read(path).data.startswith(POINTER)
    except Unreadable:
        return False


def _no_config(path: str, why: str, workspace: Workspace) -> tuple[str, str]:
    """The message and the help for a model's folder without config.json."""
    folder = path.rstrip("/")
    if workspace.kind(folder + "/adapter_config.json"):
        return (
            f"`{path[:80]}` contains an adapter, not a model",
            f'train its base with `lora(from = "{folder}")`, or train `"{folder}/merged"`, which a run writes with '
            "`save(merge)`",
        )
    near = workspace.nearest_name(folder)
    if near is not None and workspace.kind(near + "/config.json"):
        help = f'name `"{near}"`, which is here'
    elif registry.find_model(path) is not None and "/" not in path:
        help = f"write `{path}` without quotes: it is a model of the registry; a quoted name is a folder"
    elif is_hub_id(path):
        help = f"for a model of the hub, write `{path}` without quotes; for a folder that a later run writes, "
        help += 'give its architecture: `model(config=file("config.json"))`'
    elif not workspace.kind(folder):
        help = "name an existing folder; for a folder that a later run writes, give its architecture: "
        help += '`model(config=file("config.json"))`'
    else:
        help = 'a local model is a folder with config.json; or write `config = file("config.json")`'
    return f"{why}, so the architecture is not known", help


def _with_tokenizer(model: Model, folder: str, workspace: Workspace) -> Model:
    """A copy of the model with facts from the tokenizer in its folder: whether there is a chat template, its text (if
    there is exactly one), the end token, and the largest id of an added token.
    """
    location, name = folder + "/", f"{folder}/tokenizer_config.json"
    try:
        found = json.loads(workspace.read(name).data) if workspace.kind(name) else None
    except (Unreadable, ValueError, RecursionError):
        found = None
    eos = found.get("eos_token") if isinstance(found, dict) else None
    eos = eos.get("content") if isinstance(eos, dict) else eos
    added = found.get("added_tokens_decoder") if isinstance(found, dict) else None
    ids = [int(one) for one in added if one.isdecimal()] if isinstance(added, dict) else []
    end = eos if isinstance(eos, str) and eos else None
    model = evolve(model, eos=end, largest_token=max(ids, default=None))
    if workspace.kind(location + "additional_chat_templates") or workspace.kind(location + "chat_template.json"):
        return model
    if workspace.kind(location + "chat_template.jinja"):
        try:
            template = workspace.read(location + "chat_template.jinja").data.decode("utf-8", "replace")
        except Unreadable:
            template = None
        return evolve(model, chat=True, template=template)
    if not isinstance(found, dict):
        return model
    text = found.get("chat_template")
    return evolve(model, chat=text is not None, template=text if isinstance(text, str) else None)


def vocabulary(model: Model, workspace: Workspace) -> bytes | None:
    """The tokens of a local model, in the notation of its tokenizer.json. None if the model has no tokenizer.json."""
    if model.path is None or not workspace.kind(model.path.rstrip("/") + "/tokenizer.json"):
        return None
    location, found = model.path.rstrip("/") + "/", []
    for name in ("tokenizer.json", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"):
        try:
            found += [workspace.read(location + name).data] if workspace.kind(location + name) else []
        except Unreadable:
            return None
    return b"\n".join(found)


def _untrainable(name: str, config: Mapping[str, object], label: Label) -> Diagnostic | None:
    """The finding for a config.json of a model that xpc cannot train: one with an encoder, or one for images or
    sound.
    """
    kind = config.get("model_type")
    family = registry.encoder_decoder(kind) if isinstance(kind, str) else None
    if family is not None:
        return _encoder_decoder(name, family, label)
    part = next((key for key in SENSES if config.get(key) and kind not in IMAGE_FAMILIES), None)
    if part is not None:
        return _multimodal(name, f"has a `{part}`: the model reads images or sound", label)
    named = isinstance(kind, str) and registry.multimodal(kind) and kind not in IMAGE_FAMILIES
    if isinstance(kind, str) and named and not kind.endswith("_text"):
        return _multimodal(name, f"is a `{kind[:60]}` model, which reads images or sound", label)
    return None


def _encoder_decoder(name: str, family: str, label: Label) -> Diagnostic:
    message = f"`{name[:80]}` is a {family} model, with an encoder: xpc trains models without an encoder only"
    return report("XP128", message, label, help="write a causal language model, such as `qwen2.5-3b`")


def _multimodal(name: str, why: str, label: Label) -> Diagnostic:
    help = "write a language model, such as `qwen2.5-3b`, or `qwen2.5-vl-3b-instruct` for rows with images"
    return report("XP130", f"`{name[:80]}` {why}, but xpc trains only text models and Qwen2.5-VL", label, help=help)
