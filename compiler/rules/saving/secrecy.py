"""Secrets in a spec, and weights that are pickled (XP790 to XP792)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.files.secrets import HEX, find, pinned
from xpc.compiler.files.workspace import TASK_ROWS
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import either, secrets, written
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Label
from xpc.grammar.source import Source, Span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

WHEN = either(written("model.pickle", "data.system"), secrets)

HELP = (
    "take it out, and revoke it; the run reads HF_TOKEN, WANDB_API_KEY and the like from the environment of its launch"
)
TRACKED: Final = ("track.name", "track.project")


def sources(spec: Spec) -> list[Source]:
    """The texts that the spec is made of: its own, and those of bases that state something."""
    values = [*spec.values.values(), *(one for table in spec.extra.values() for one in table.values())]
    labels = [one.origin.label for one in values]
    labels += [spec.model.label, *(one.label for one in spec.sources)]
    found = {id(spec.source): spec.source}
    found.update({id(one.source): one.source for one in labels if one is not None})
    return list(found.values())


@rule("XP790", "secret-in-the-spec")
def secret(spec: Spec) -> Iterator[Finding]:
    """A spec and the files that it names hold no tokens, keys or passwords: a bundle is made to be shown.

    Its files can be read by everybody on the machine, and the run's arguments are told to trackers and model cards.
    What is looked for are the shapes that issuers give their secrets, comments included, in the spec, its bases and
    the texts that it names; rows of data are not looked through. A digest or a commit is no secret. Nothing is said
    today.
    """
    for source in sources(spec):
        for start, end, kind in find(source.text):  # which no finding prints (pipeline)
            yield Finding(Label(source, Span(start, end)), f"{kind} stands in the spec", HELP)
    for path, text in _texts(spec):
        for _, _, kind in find(text)[:1]:
            yield Finding(spec.place(path, "the file holds it"), f"{kind} would stand in the bundle", HELP)


def _texts(spec: Spec) -> Iterator[tuple[Path, str]]:
    """The texts of files, with the setting that names each."""
    system, label = spec.get("data.system"), spec.label("data.system")
    if isinstance(system, str) and label is not None and system not in label.source.text:
        yield "data.system", system
    named: tuple[Path, ...] = ("model.chat_template", "model.config", "launch.setup")
    places = {str(spec.get(path)): path for path in named}
    for name, data in spec.bundled.items():
        if name.startswith("data/") or (name not in places and name.endswith(TASK_ROWS)):
            continue
        path = places.get(name) or ("method.rewards" if name.endswith(".py") and spec.online else "eval.tasks")
        yield path, data.decode("utf-8", "replace")


@rule("XP791", "name-like-a-key", "warning")
def like_a_key(spec: Spec) -> Iterator[Finding]:
    """40 hexadecimal digits are the older shape of a key of Weights & Biases, and that of a commit.

    As the name or the project of a run they are more likely the key, and everybody who sees the run sees them. Nothing
    is said today. Revisions are not looked at.
    """
    for path in TRACKED:
        value = spec.get(path)
        if spec.written(path) and isinstance(value, str) and len(value) == 40 and set(value) <= HEX:
            yield Finding(
                spec.place(path, "40 hexadecimal digits"),
                f"`{path[6:]}` looks like a key of Weights & Biases",
                f'write a name, such as `{path[6:]} = "{spec.name}"`; of a commit the first digits do',
            )


@rule("XP792", "pickled-weights-unpinned")
def pickle_unpinned(spec: Spec) -> Iterator[Finding]:
    """Pickled weights (`pytorch_model.bin`) are read only where `pickle` is written, and from one commit.

    A pickle is a program for a small machine. torch runs it with the instructions that weights need and no others
    (`weights_only`), which has had holes (CVE-2025-32434); safetensors has no instructions. What was looked at once is
    what a commit keeps; a branch can be another file tomorrow. A folder of one's own needs no commit. Today
    transformers reads what it finds, and without a word asks a service to convert it. Source: transformers 5.23 and
    4.52.3 `modeling_utils.py` (`_get_resolved_checkpoint_files`), huggingface_hub guide "Download files" (a commit is
    the whole hash).
    """
    if spec.flag("model.pickle") and spec.model.id is not None and not pinned(spec.model.revision):
        yield Finding(
            spec.place("model.pickle", "what is read can change"),
            "pickled weights of no fixed commit",
            f"write the model as `{spec.model.id}@COMMIT`, all 40 digits of it, or leave `pickle` out",
            (spec.label("model.revision", "a branch or a tag"),),
        )
