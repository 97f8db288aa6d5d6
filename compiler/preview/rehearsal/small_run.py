"""Rehearse one spec: write its twin (a small version of the experiment), a few rows and a small model, and run all
steps in a warm interpreter, which already has the libraries imported.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile

from xpc.compiler.files.file_memory import user_memory
from xpc.compiler.files.inputs import UsageError, read_spec
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.schema import ADAPTERS, BY_PATH
from xpc.compiler.pipeline import check_text, compile_text
from xpc.compiler.preview.process import chosen_run, progress
from xpc.compiler.preview.rehearsal import show
from xpc.compiler.preview.rehearsal.forks import Forks
from xpc.compiler.preview.rehearsal.local_hub import WRITE, Hub
from xpc.compiler.preview.rehearsal.rows import copy_head, other_columns, write_made
from xpc.compiler.preview.rehearsal.steps import Rehearsal, run_worker
from xpc.compiler.preview.rehearsal.twin import MODEL, TEACHER, Twin, twin_of, without
from xpc.compiler.registry import chat_templates
from xpc.grammar.diagnostic import ERROR
from xpc.grammar.record import evolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from xpc.compiler.spec.checked import CheckedSpec
    from xpc.compiler.spec.resources import DataSource, Model

SPECIAL = re.compile(r"<[|｜]?[A-Za-z0-9_▁]+[|｜]?>|\[/?INST\]")
"""Matches the control tokens in the text of a chat template."""
STOCK_FAMILY = "llama"
ROUNDS = 20
"""If a rule refuses a setting on a CPU, the setting is omitted or replaced. This is done for at most this many
settings.
"""
ISOLATED = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MASTER_", "TORCHELASTIC_", "XPC_", "HF_", "SLURM_", "PET_")
"""Beginnings of the names of environment variables that a rehearsal hides from its launches."""
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK")


def rehearse(
    spec: CheckedSpec, path: str, warm: Forks, rows: str | None = None, keep: str | None = None
) -> dict[str, Any]:
    """Rehearse a checked spec in a warm interpreter, and return the report. `path` is the spec's file. Raises
    UsageError.

    `rows` is a file with rows for the sources that this machine lacks. `keep` is a folder into which the twin and its
    runs are copied.
    """
    owner = str(spec.get("save.hub.name") or "").rpartition("/")[0]
    with tempfile.TemporaryDirectory(prefix="xpc-rehearse-") as folder, Hub(organizations=(owner or "team",)) as hub:
        try:
            found = _rehearsed(spec, os.path.dirname(os.path.abspath(path)), warm, rows, folder, hub)
        finally:
            if keep is not None:
                shutil.copytree(folder, keep, symlinks=True)
    return {"spec": os.path.basename(path), "stack": spec.stack.name, **show.table(found, spec.problems)}


def checked_run(path: str, member: str | None = None) -> CheckedSpec:
    """Check a spec, or a member of its sweep, for a rehearsal. Raises UsageError and SpecError."""
    data, name, workspace = read_spec(path)
    workspace = evolve(workspace, memory=user_memory(), allow_oom=True, most_members=int(member is None))
    spec = chosen_run(check_text(data, name, workspace), path, member, "rehearse")
    if spec.reads_images:
        raise UsageError(
            f"{path} trains a model that reads images, and rehearse has no small model with a processor; `xpc preview` "
            "shows its rows, and `launch.sh --rehearse` of its bundle runs two steps on the machine that trains"
        )
    return spec


def warm_interpreter(python: str) -> Forks:
    """Start an interpreter that has imported the training libraries, for rehearsals. The libraries see no GPU and no
    hub.
    """
    progress("starting the interpreter that trains")
    return Forks(python, {**_environ(), "HF_HUB_OFFLINE": "1"}, os.devnull)


def _environ() -> dict[str, str]:
    """The environment variables for a launch. Those that an outer launch has set, such as RANK, are left out."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ISOLATED) and name not in RANKS}
    return kept | {
        "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "TOKENIZERS_PARALLELISM": "false",
        "WANDB_MODE": "disabled", "XPC_MADE_UP_TOOL_CALLS": "1",
    }  # fmt: skip


def _rehearsed(spec: CheckedSpec, root: str, warm: Forks, rows: str | None, folder: str, hub: Hub) -> Rehearsal:
    def here(source: DataSource) -> bool:
        return source.path is not None and os.path.exists(os.path.join(root, source.path))

    twin = twin_of(spec, here, rows is not None)
    home = {"HF_HOME": os.path.join(folder, "hf"), "PYTHON": warm.python}
    environ = _environ() | home | hub.environment(WRITE)
    texts = _write_rows(twin, rows, root, folder)
    progress("making a small model")
    made = _models(spec, twin, root, texts, folder, warm.python)
    twin, files, small = _compiled_twin(twin, folder)
    found = Rehearsal(
        folder, twin, small, files, warm.python, environ, hub, progress,
        own_tokenizer=all(one["tokenizer"] for one in made),
        made_rows=rows is None and any(one.absent for one in twin.rows),
    )  # fmt: skip
    _place_of_results(spec, root, found)
    found.run()
    return found


def _write_rows(twin: Twin, given: str | None, root: str, folder: str) -> list[str]:
    """Write the rows of each data source. Returns the texts of the made-up rows, so that a tokenizer can be trained on
    them. Raises UsageError.
    """
    texts: list[str] = []
    more = other_columns(twin.spec)
    for one in twin.rows:
        target = os.path.join(folder, one.path)
        try:
            if not one.absent and one.source.path is not None:
                copy_head(os.path.join(root, one.source.path), target)
            elif given is not None:
                copy_head(given, target)
            else:
                texts += write_made(one.source, target, more)
        except OSError as error:
            raise UsageError(f"{error.filename or one.source.name} cannot be copied: {error.strerror}") from error
    return texts


def _models(
    spec: CheckedSpec, twin: Twin, root: str, texts: list[str], folder: str, python: str
) -> list[dict[str, Any]]:
    """Make the small models. Returns the worker's answer for each of them: whether it has the tokenizer of the spec's
    model, and its number of parameters.
    """
    wanted = [_wanted(spec, spec.model, root, os.path.join(folder, MODEL))]
    if spec.teacher is not None:
        wanted.append(_wanted(spec, spec.teacher, root, os.path.join(folder, TEACHER)))
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    texts = texts or ["What colour is the red apple? The apple is red. It is a sentence with some words in it."]
    return list(run_worker(python, "small_models.py", {"models": wanted, "texts": texts}, environ)["models"])


def _wanted(spec: CheckedSpec, model: Model, root: str, folder: str) -> dict[str, Any]:
    alias = model.facts.alias if model.facts is not None else ""
    template = spec.chat_template
    if template is None and model.chat is not False:
        template = chat_templates.text(chat_templates.native(alias) or "chatml").decode()
    end = spec.get("model.eos") or model.eos or chat_templates.base_end(alias) or _end_of(template)
    special = [*SPECIAL.findall(template or ""), *spec.names("model.tokens"), str(end)]
    kinds = model.config.get("architectures")
    scores = isinstance(kinds, list) and any("SequenceClassification" in str(one) for one in kinds)
    return {
        "folder": folder, "source": os.path.join(root, model.path) if model.path else model.id,
        "revision": model.revision, "model_type": model.model_type or STOCK_FAMILY, "config": dict(model.config),
        "scores": scores, "special": special, "end": end, "pad": spec.get("model.pad") or "<|pad|>",
        "template": template, "tools": spec.calls_tools,
    }  # fmt: skip


def _end_of(template: str | None) -> str:
    """An end token for a model whose own end token is unknown: a common end token that the chat template contains, or
    `</s>` if the template contains no such token.
    """
    known = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "</s>")
    return next((one for one in known if template and one in template), "</s>")


def _compiled_twin(twin: Twin, folder: str) -> tuple[Twin, dict[str, bytes], CheckedSpec]:
    """Compile the twin, the small version of the spec. If a rule refuses a setting because the twin runs on a CPU, the
    setting is omitted or replaced. Raises UsageError.
    """
    for name, content in twin.spec.bundled.items():
        location = os.path.join(folder, name)
        os.makedirs(os.path.dirname(location), exist_ok=True)
        with open(location, "wb") as out:
            out.write(content)
    for _ in range(ROUNDS):
        text = twin.text
        with open(os.path.join(folder, "twin.xp"), "w", encoding="utf-8") as out:
            out.write(text)
        files, checked = compile_text(text.encode(), "twin.xp", Workspace(folder, allow_oom=True))
        if files is not None and checked.spec is not None:
            return twin, files, checked.spec
        refused = next(one for one in checked.problems if one.severity == ERROR)
        smaller = None
        for label in (refused.primary, *refused.related):
            if label is not None and smaller is None:
                path = _path_at(text, label.span.start)
                smaller = None if path is None else without(twin, path, f"{refused.message} ({refused.code})")
        if smaller is None:
            raise UsageError(f"the small version of the spec does not compile: {refused.code}: {refused.message}")
        twin = smaller
    raise UsageError("the small version of the spec does not compile")


def _path_at(text: str, offset: int) -> str | None:
    """The path of the setting at an offset in the text of a spec. None if there is no setting at this offset."""
    begin = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    line = text[begin : end if end >= 0 else len(text)]
    clause = line.split(" ")[0] if line[:1].strip() else text[:begin].rstrip("\n").rpartition("\n\n")[2].split(" ")[0]
    clause = "lora" if clause in ADAPTERS else clause
    if line[:1].strip():
        return clause if clause in BY_PATH else None
    name = re.split(r"[ (=]", line.strip(), maxsplit=1)[0]
    path = f"{clause}.{name}"
    return path if path in BY_PATH else None


def _place_of_results(spec: CheckedSpec, root: str, found: Rehearsal) -> None:
    """Record a finding if the user cannot write to the spec's output folder, or cannot create this folder if it does
    not exist.
    """
    location = spec.text("save")
    while location and not os.path.lexists(os.path.join(root, location)):
        location = os.path.dirname(location)
    target = os.path.join(root, location) if location else root
    if not os.path.isdir(target) or not os.access(target, os.W_OK | os.X_OK):
        message = f"`{spec.text('save')}` cannot be written: you may not write to {location or '.'}"
        found.find("save", message, "save", 'name another folder, such as `save "out/run"`')
