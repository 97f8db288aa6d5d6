"""Rules about secrets in a spec, and pickled weights (XP790 to XP792)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.files.secrets import HEX, find, pinned
from xpc.compiler.files.workspace import TASK_ROWS
from xpc.compiler.language.setting import Path, TextPath
from xpc.compiler.rules.core.conditions import any_of, may_have_secrets, pickled_weights, written
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Label
from xpc.grammar.source import Source, Span

WHEN = any_of(written("model.pickle", "data.system"), may_have_secrets, pickled_weights)

HELP = "remove and revoke the secret; the run reads HF_TOKEN, WANDB_API_KEY and others from its launch environment"
TRACKED: tuple[TextPath, ...] = ("track.name", "track.project")


def sources(spec: Spec) -> list[Source]:
    """The source text of the spec, and the source text of each base (`extends`) from which the spec takes a setting."""
    values = [*spec.values.values(), *(one for table in spec.extra.values() for one in table.values())]
    labels = [one.origin.label for one in values]
    labels += [spec.model.label, *(one.label for one in spec.sources)]
    found = {id(spec.source): spec.source}
    found.update({id(one.source): one.source for one in labels if one is not None})
    return list(found.values())


@rule("XP790", "secret-in-the-spec")
def secret(spec: Spec) -> Iterator[Finding]:
    """A spec and the files that it names must not contain tokens, keys or passwords. This rule searches the text of the
    spec, of its bases and of these files for the usual formats of secrets; comments are searched, too. Rows of data are
    not searched, and neither are digests and commits.

    Why it is bad: a bundle is meant to be shared: everybody on the machine can read its files, and the run's arguments
    are sent to trackers and model cards.

    Without this rule: nothing is reported.

    Source: the formats that issuers give their secrets (compiler/files/secrets.py).
    """
    for source in sources(spec):
        for start, end, kind in find(source.text):  # the secret itself is never printed
            yield Finding(Label(source, Span(start, end)), f"the spec contains {kind}", HELP)
    for path, text in _texts(spec):
        for _, _, kind in find(text)[:1]:
            yield Finding(spec.location(path, "the file contains it"), f"the bundle would contain {kind}", HELP)


def _texts(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Yield a pair for each file that a setting names: the setting, and the text of the file."""
    system, label = spec.get("data.system"), spec.label("data.system")
    if isinstance(system, str) and label is not None and system not in label.source.text:
        yield "data.system", system
    named: tuple[Path, ...] = ("model.config", "launch.setup")
    locations = {str(spec.get(path)): path for path in named}
    if spec.template is not None:
        locations[spec.template.file] = "model.chat_template"
    for name, data in spec.bundled.items():
        if name.startswith("data/") or (name not in locations and name.endswith(TASK_ROWS)):
            continue
        path = locations.get(name) or ("method.rewards" if name.endswith(".py") and spec.online else "eval.tasks")
        yield path, data.decode("utf-8", "replace")


@rule("XP791", "name-like-a-key", "warning")
def like_a_key(spec: Spec) -> Iterator[Finding]:
    """The name and the project of a run should not be 40 hexadecimal digits. The revision of a model or a dataset may
    be 40 digits.

    Why it is bad: older keys of Weights & Biases have 40 hexadecimal digits. The hash of a commit has 40 hexadecimal
    digits, too, but a name of this form is more likely a key that was entered by mistake. Everybody who can see the run
    can read its name.

    Without this rule: nothing is reported.

    Source: this is a convention; no tracker refuses such a name.
    """
    for path in TRACKED:
        value = spec.get(path)
        if spec.written(path) and isinstance(value, str) and len(value) == 40 and set(value) <= HEX:
            yield Finding(
                spec.location(path, "40 hexadecimal digits"),
                f"`{path[6:]}` looks like a Weights & Biases key",
                f'write a name, such as `{path[6:]} = "{spec.name}"`; if the value is a commit, write its first digits',
            )


@rule("XP792", "pickled-weights-unpinned")
def pickle_unpinned(spec: Spec) -> Iterator[Finding]:
    """Pickled weights (`pytorch_model.bin`) need the setting `pickle` and a pinned commit. A local
    folder needs no commit. A teacher cannot have pickled weights.

    Why it is bad: a pickle is a program. torch restricts it to the instructions that weights need (`weights_only`), but
    this restriction has had holes (CVE-2025-32434). safetensors files contain no instructions. A commit keeps the file
    that was inspected; a branch may contain another file tomorrow.

    Without this rule: transformers loads pickled weights if it finds them, and asks a service of the hub to convert
    them to safetensors. The bundle's runtime stops a run without `pickle` when it loads the model, after the rows.

    Source: transformers 5.23 and 4.52.3 `modeling_utils.py` (`_get_resolved_checkpoint_files`), huggingface_hub guide
    "Download files" (a commit is the complete hash).
    """
    if spec.flag("model.pickle") and spec.model.id is not None and not pinned(spec.model.revision):
        yield Finding(
            spec.location("model.pickle", "the file can change"),
            "pickled weights are not pinned to a commit",
            f"write the model as `{spec.model.id}@COMMIT` with all 40 digits, or leave `pickle` out",
            (spec.label("model.revision", "a branch or a tag"),),
        )
    for model in spec.models:
        if model.pickled and not (model is spec.model and spec.flag("model.pickle")):
            help = "write `model(pickle)` if you trust the file" if model is spec.model else "convert its weights"
            yield Finding(model.label, f"`{model.name[:80]}` has only pickled weights", f"{help}, or use safetensors")
