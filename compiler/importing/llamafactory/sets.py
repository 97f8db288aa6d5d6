"""Translate the entries of LLaMA-Factory's `dataset_info.json` to row formats of a spec.

Source: LLaMA-Factory 0.9.5, data/parser.py (`DatasetAttr`) and data/converter.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.llamafactory import images
from xpc.compiler.importing.text.entries import Entry
from xpc.grammar.record import record
from xpc.runtime.core.row_names import ROLES as KNOWN

About = Mapping[str, object]
"""The entry of one dataset in `dataset_info.json`."""
SPEAKERS = {"user_tag": "user", "assistant_tag": "assistant", "system_tag": "system"}
"""Maps the keys of an entry in dataset_info.json that name a speaker (`user_tag: human`) to the speaker's role:
`user_tag` to `user`.
"""
TAGS = {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt", "system_tag": "system"}
"""Maps each key under `tags` in an entry of dataset_info.json to LLaMA-Factory's default: `role_tag` to `from`."""
MEDIA = ("images", "videos", "audios")
WITHOUT = {True: "a spec does not train on", False: "a model that reads only text does not need"}
"""The end of an error about a column of images, videos or sounds: True for models that read images, False for other
models.
"""


@record
class Rows:
    """How a spec reads the rows of a dataset: their format (`shape`), whether texts become turns of a conversation
    (`chat`), the columns, and a column whose text is added to the question (`context`).
    """

    shape: str
    chat: bool = False
    columns: tuple[str, ...] = ()
    context: str | None = None


def rows(draft: Draft, entry: Entry, name: str, about: About, stage: str) -> Rows | None:
    """How a spec reads the rows of the dataset `name`. Reports an error and returns None if it cannot read them."""
    columns, tags = table(about, "columns"), table(about, "tags")
    ranking, form = about.get("ranking") is True, str(about.get("formatting", "alpaca"))
    usual = {"prompt": "instruction", "query": "input", "response": "output", "messages": "conversations"}
    named = columns if "columns" in about else usual
    wrong = _unread(draft, entry, name, columns, tags, form)
    if ranking != (stage in ("rm", "dpo")):
        draft.error(
            entry,
            f"`{name}` has preference pairs (`ranking`), which `stage: {stage}` cannot use"
            if ranking
            else f"`{name}` has no preference pairs (`ranking`), which `stage: {stage}` needs",
        )
        return None
    if wrong:
        return None
    if images.reads_images(draft):
        found = images.shape(draft, entry, name, named, tags, form, ranking)
        return None if found is None else Rows(found[0], False, found[1])
    if "system" in columns and stage != "pt":
        draft.put("data.system_column", columns["system"], entry)
    if stage == "pt":
        return Rows("text", False, (named.get("prompt", "text"),))
    if form == "alpaca":
        return _alpaca(named, ranking)
    turns = named.get("messages", "conversations")
    if about.get("alternates") is not True:
        draft.differs("formatting", "LLaMA-Factory drops a row whose speakers do not alternate; the spec trains on it")
    shape = "messages" if (tags or {}).get("role_tag", "from") == "role" else "conversations"
    _speakers(draft, entry, tags or {}, shape)
    if ranking:
        return Rows("preference", False, (turns, named.get("chosen", "chosen"), named.get("rejected", "rejected")))
    if "kto_tag" in named:
        return Rows("unpaired", False, (turns, named["kto_tag"]))
    return Rows(shape, False, (turns,) if turns != shape else ())


def _alpaca(named: Mapping[str, str], ranking: bool) -> Rows:
    question = [one for one in (named.get("prompt"), named.get("query")) if one is not None]
    context = named.get("query")
    if ranking:
        answers = (named.get("chosen", "chosen"), named.get("rejected", "rejected"))
        return Rows("preference", True, (*question[:1], *answers), context)
    if "kto_tag" in named:
        return Rows("unpaired", True, (*question[:1], named.get("response", "output"), named["kto_tag"]), context)
    columns = (*question, named.get("response", "output"))
    return Rows("alpaca", True, columns if columns != ("instruction", "input", "output") else ())


def table(about: About, key: str) -> dict[str, str]:
    """The mapping under a key of a dataset's entry, such as the names of columns under `columns`, without keys whose
    value is null.
    """
    given = about.get(key)
    return {str(name): str(one) for name, one in given.items() if one is not None} if isinstance(given, dict) else {}


def _speakers(draft: Draft, entry: Entry, tags: Mapping[str, str], shape: str) -> None:
    """Set `user_roles`, `assistant_roles` or `system_roles` to a speaker's name that the runtime does not know."""
    for key, role in SPEAKERS.items():
        speaker = tags.get(key, TAGS[key])
        if (speaker if shape == "messages" else KNOWN.get(speaker, speaker)) != role:
            draft.put(f"data.{role}_roles", (speaker,), entry)


def _unread(draft: Draft, entry: Entry, name: str, columns: Mapping[str, str], tags: Mapping[str, str],
            form: str) -> bool:  # fmt: skip
    """Report an error for everything in the rows that the runtime does not read, such as images. Returns whether there
    is an error.
    """
    pictured = images.reads_images(draft)
    media = MEDIA[1:] if pictured else MEDIA
    whys = [f"`{name}` has a column of {key}, which {WITHOUT[pictured]}" for key in media if key in columns]
    if "tools" in columns:
        draft.error(
            entry,
            f"`{name}` has a column of tools (`{columns['tools']}`), for which LLaMA-Factory adds its own text to the "
            "prompt; the chat template that `xpc import` writes has no such text",
            "remove this column from the dataset and import again; then name a template that writes tools, such as "
            "`chat_template = qwen3`, so that the run reads the column `tools`",
        )
    others = [("history", "earlier turns"), *[("system", "system prompts")] * pictured]
    for key, what in others:
        if key in columns:
            whys.append(
                f"`{name}` has a column of {what} (`{columns[key]}`), which the runtime does not read in rows of this "
                "shape"
            )
    pair = (tags.get("role_tag", "from"), tags.get("content_tag", "value"))
    if form in ("sharegpt", "openai") and pair not in (("from", "value"), ("role", "content")):
        whys.append(
            f"`{name}` has messages with the keys `{pair[0]}` and `{pair[1]}`: the runtime reads `role` and `content`, "
            "or `from` and `value`"
        )
    if form == "openai":
        whys.append(
            f"`{name}` has rows of the format `openai`, and LLaMA-Factory adds `detailed thinking off` to their system "
            "prompts"
        )
    elif form not in ("alpaca", "sharegpt"):
        whys.append(f"`{name}` has rows of `{form[:40]}`, a format that LLaMA-Factory does not have")
    for why in whys:
        draft.error(entry, why, "write the rows as messages, and give their file with `--data`")
    return bool(whys) or "tools" in columns
