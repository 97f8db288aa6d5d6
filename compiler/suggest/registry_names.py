"""Guess which registered model, dataset or GPU an unknown name stands for.

A name is parsed into words and sizes: `llama3.1-8b-it` is llama, 3.1 and 8b, and a chat model. A suggestion has the
same sizes. For the name of a base model, no chat model is suggested.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from xpc.compiler import registry
from xpc.compiler.language.codes import report
from xpc.compiler.language.kinds import FLAG
from xpc.compiler.suggest.likeness import letter_likeness
from xpc.compiler.suggest.no_equivalent import advice, loose_reason, own_reason
from xpc.grammar.diagnostic import ERROR, WARNING, Diagnostic, Edit, Label
from xpc.grammar.nearest import letters, nearest
from xpc.grammar.record import evolve, record
from xpc.grammar.scan import line_bounds
from xpc.grammar.tree import Ref

PART = re.compile(r"\d+(?:\.\d+)?(?:x\d+)?(?:[bmk](?![a-z]))?|[a-z]+|\d+")
CHAT = ("instruct", "chat", "it", "instruction", "inst")
BASE = ("base", "pretrained", "pt", "foundation")
IGNORED = ("hf", "meta", "google", "microsoft", "facebook", "fp16", "bf16", "model", "unsloth", "the", "dataset")
YOUR_GPU = "with the name of your GPU: `xpc list gpus` prints the names"
YOUR_GPUS = "write `hardware N x GPU`, with the number and the name of your GPUs"
MOST = 4
TYPO = 0.8
"""Two words count as misspellings of each other only if their similarity (from 0 to 1) is at least this."""


@record
class Guess:
    """The registered names that an unknown name may stand for, the most likely first. `certain` is true if the unknown
    name can stand for only one of them.
    """

    names: tuple[str, ...]
    certain: bool = False


@record
class ParsedName:
    """The parts of a name of a model or dataset: its words and sizes (`parts`), whether it is the name of a chat or a
    base model (`kind` is `chat`, `base` or empty), and all its letters.
    """

    parts: tuple[str, ...]
    kind: str
    letters: str


def _parsed(name: str, words: frozenset[str] = frozenset()) -> ParsedName:
    """Parse the name of a model or dataset. A word that misspells one in `words` is corrected."""
    kind, parts = "", []
    for part in PART.findall(name.lower().replace("_", "-")):
        word = part
        if words and part.isalpha() and len(part) > 3 and part not in (*words, *CHAT, *BASE, *IGNORED):
            word = _word(part, words) or part
        if word in CHAT:
            kind = "chat"
        elif word in BASE:
            kind = "base"
        elif word not in IGNORED:
            parts.append(word.replace(".", "") if word[0].isdecimal() else word)
    return ParsedName(tuple(parts), kind, "".join(parts))


def _word(part: str, words: frozenset[str]) -> str | None:
    near = nearest(part, sorted((*words, *CHAT, *BASE)))
    same = near is not None and abs(len(near) - len(part)) <= 2 and (near[0] == part[0] or sorted(near) == sorted(part))
    return near if near is not None and same and letter_likeness(part, near) > 0.7 else None


def _words(names: Iterable[str]) -> frozenset[str]:
    return frozenset(part for name in names for part in PART.findall(name) if part.isalpha())


def model(name: str) -> Guess:
    """The registered models that a name may stand for."""
    names = registry.model_names()
    words = _words(names)
    parsed, known = _parsed(name[:80], words), {one: _parsed(one) for one in names}
    plain = _parsed(name[:80])
    if any(one.letters == plain.letters for one in known.values()):
        parsed = plain
    same = [one for one in names if known[one].letters == parsed.letters]
    kinds = {known[one].kind for one in same}
    exact = [one for one in same if known[one].kind == parsed.kind]
    if not exact and parsed.kind == "base" and "" in kinds:
        exact = [one for one in same if not known[one].kind]
    if exact:
        return Guess((exact[0],), certain=len(exact) == 1)
    if same:
        without = [one for one in same if parsed.kind != "chat" or known[one].kind != "base"]
        longer = [
            one for one in names if parsed.kind == known[one].kind == "chat" and _has_all_parts(known[one], parsed)
        ]
        # leave out models of the other kind: do not suggest `qwen3-4b-base` for `qwen3-4b-instruct`
        return Guess(tuple([*(without or same), *longer][:MOST]))
    more = [one for one in names if _has_all_parts(known[one], parsed)]
    if not more and name[-1:].isdecimal():
        return model(name + "b")  # the size may lack its unit, as in `qwen2.5-3`
    kept = [one for one in more if known[one].kind == parsed.kind] or more
    same = [
        one for one in kept if known[one].kind == parsed.kind and Counter(known[one].parts) == Counter(parsed.parts)
    ]
    if len(same) == 1:  # the words may be in another order, as in `mistral-v0.3-7b`
        return Guess((same[0],), certain=True)
    if not kept:
        return _like(plain, known)
    return Guess(tuple(sorted(kept, key=lambda one: (len(known[one].parts), one))[:MOST]))


def _last_of_id(alias: str) -> str:
    """The last part of a dataset's hub id, such as `openassistant-guanaco`."""
    known = registry.find_dataset(alias)
    return "" if known is None else known.id.rpartition("/")[2]


def _like(parsed: ParsedName, known: Mapping[str, ParsedName]) -> Guess:
    """The names with the same numbers and nearly the same letters as `parsed`: `zephyr-7b-sft-full` for
    `zephyr-7b-sft-ful`.
    """
    numbers = re.findall(r"\d+", parsed.letters)
    ranked = sorted(
        ((letter_likeness(parsed.letters, one.letters), name) for name, one in known.items()
         if re.findall(r"\d+", one.letters) == numbers and one.kind == parsed.kind), reverse=True,
    )  # fmt: skip
    found = [(like, name) for like, name in ranked[:2] if like >= TYPO]
    return Guess(tuple(name for _, name in found), certain=len(found) == 1 and found[0][0] >= 0.85)


def hub_typo(name: str) -> str | None:
    """The registered hub id of a model that this id misspells (same owner, same numbers), or None."""
    return _misspelt_id(
        name, [one.id for alias in registry.model_names() if (one := registry.find_model(alias)) is not None]
    )


def misspelt_dataset(found: Diagnostic, label: Label, name: str) -> Diagnostic:
    """Turn the note about a dataset that is not in the registry (`found`) into a warning if the name probably misspells
    the name of a registered dataset.
    """
    ids = [one.id for alias in registry.dataset_names() if (one := registry.find_dataset(alias)) is not None]
    near = _misspelt_id(name, ids)
    if near is None:
        return found
    edits = (Edit(label.span, near),) if label.typed == name else ()
    return evolve(found, severity="warning", help=f"write `{near}`, unless the dataset has this name", edits=edits)


def _misspelt_id(name: str, ids: Iterable[str]) -> str | None:
    """The hub id in `ids` that another id misspells (same owner, same numbers), or None."""
    owner, _, model_name = name[:120].partition("/")
    own = {one.partition("/")[2]: one for one in ids if one.partition("/")[0].lower() == owner.lower()}
    if model_name in own:
        return own[model_name]  # only the owner's case differs, as in `qwen/Qwen3-4B`
    same = [one for one in own if letters(one) == letters(model_name)]  # only separators differ: `Meta-Llama3-8B`
    like = same or [one for one in own if _same_words(re.split("[-_]", one), re.split("[-_]", model_name))]
    return own[like[0]] if len(like) == 1 else None


def _same_words(one: list[str], other: list[str]) -> bool:
    """Whether two names have the same words in the same order. Misspellings of words without digits are ignored."""
    return len(one) == len(other) and all(
        a.lower() == b.lower() or (a.isalpha() and b.isalpha() and letter_likeness(a.lower(), b.lower()) >= TYPO)
        for a, b in zip(one, other, strict=True)
    )


def dataset(name: str) -> Guess:
    """The registered datasets that a name may stand for."""
    names = registry.dataset_names()
    parsed, known = _parsed(name[:80], _words(names)), {one: _parsed(one) for one in names}
    plain = _parsed(name[:80])
    exact = [one for one in names if known[one].letters == plain.letters] or [
        one for one in names if known[one].letters == parsed.letters
    ]
    exact = exact or [one for one in names if letters(_last_of_id(one)) == letters(name[:80])]
    if exact:
        return Guess((exact[0],), certain=len(exact) == 1)
    more = [one for one in names if _has_all_parts(known[one], parsed)]
    if not more and (like := _like(plain, known)).names:
        return like
    if not more and len(parsed.letters) > 5:
        # the unknown name may be the beginning or the last word of a registered name: `tulu-3-sft-mix`, `guanaco`
        more = [one for one in names if known[one].letters.startswith(parsed.letters) or one.endswith(f"-{name}")]
    return Guess(tuple(sorted(more, key=lambda one: (len(known[one].parts), one))[:MOST]))


def _has_all_parts(known: ParsedName, parsed: ParsedName) -> bool:
    """Whether a registered name (`known`) has all words and sizes of the parsed name. If the parsed name is a single
    word, the registered name must begin with it.
    """
    first = bool(parsed.parts) and (known.parts[:1] == parsed.parts[:1] or len(parsed.parts) > 1)
    return first and not Counter(parsed.parts) - Counter(known.parts)


def gpu(name: str) -> tuple[Guess, str]:
    """Return a pair: the registered GPUs that a name may stand for, and a help text ("" if there are such GPUs)."""
    from xpc.compiler.registry import provider_names as provider_names

    found = provider_names.fitting(name) or provider_names.of_model(name)
    if found:
        return Guess(tuple(found[:MOST]), certain=provider_names.certain(name) is not None), ""
    if provider_names.of_another_maker(name):
        return Guess(()), "the stack runs on NVIDIA GPUs with CUDA, or on CPUs with `hardware cpu`"
    # two letters may be swapped, as in `h100-80bg`
    swapped = [one for one in registry.gpu_names() if sorted(one) == sorted(name.lower())]
    if len(swapped) == 1:
        return Guess((swapped[0],), certain=True), ""
    numbers = re.findall(r"\d{3,}", name)
    like = [one for one in registry.gpu_names() if numbers and numbers[0] in re.findall(r"\d+", one)]
    if like:
        # prefer GPUs whose own name occurs in the unknown name: `h100s` stands for an H100, and not for an A100
        called = [one for one in like if one.partition("-")[0] in name.lower()]
        return Guess(tuple((called or like)[:MOST])), ""
    typos = [one for one in registry.gpu_names() if letter_likeness(letters(name), letters(one)) >= 0.85]
    if typos:
        return Guess(tuple(typos[:MOST])), ""
    if re.fullmatch("(?:gpu|card|device|cuda|accelerator|nvidia|auto|all|any|multi|default)s?", name.lower()):
        return Guess(()), f"write `hardware N x GPU`, {YOUR_GPU}"
    return Guess(()), "`xpc list gpus` prints the GPUs of the registry"


def gpus_named(name: str) -> Guess:
    """The registered GPUs whose names begin with a name, which may be a plural: `H100s` stands for two GPUs with
    different memory sizes.
    """
    name = name.lower()
    known = registry.find_gpu(name) or registry.find_gpu(name.removesuffix("s"))
    if known is not None:
        return Guess((known.name,), certain=True)
    kinds = [one for one in registry.gpu_names() if one.startswith(f"{name.removesuffix('s')}-")]
    return Guess(tuple(kinds[:MOST]))


def either(names: Iterable[str]) -> str:
    """Join names for a message, each in backticks: "`a`, `b` or `c`"."""
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} or {last}" if first else last


def hardware_help(text: str) -> str:
    """The help for a value that `hardware` cannot have: `hardware 2 x t4` for `gpu:t4:2`."""
    cards = re.fullmatch(r"(?:gpu:)?(?:(?P<name>[A-Za-z][\w.-]*)[:=])?(?P<count>[1-9]\d*)", text)
    name, count = (cards["name"], cards["count"]) if cards is not None else (None, "N")
    names = ("cpu",) if name == "cpu" else gpus_named(name).names if name else ()
    forms = [f"hardware {count} x {one}" for one in names]
    if len(count) > 2:  # `hardware 3090`
        forms = [f"hardware {one}" for one in gpu(count)[0].names]
    return f"write {either(forms)}" if forms else f"write `hardware {count} x GPU`, {YOUR_GPU}"


def unknown_gpu(node: Ref, label: Label | None) -> Diagnostic:
    """The finding for an unknown GPU. It names the GPUs that may be meant."""
    from xpc.compiler.registry.provider_names import rented

    cards = rented(node.name)
    if cards is not None and label is not None:  # the name may be a machine of a cloud, such as `p4d.24xlarge`
        count = re.search(r"(\d+)[ \t]*x[ \t]*$", label.source.text[max(0, node.span.start - 20) : node.span.start])
        nodes = "" if count is None or count[1] == "1" else f", and `nodes {count[1]}` on its own line"
        message = f"`{node.name[:60]}` is a machine, and `hardware` takes its GPUs"
        edits, help = (Edit(node.span, cards),) if count is None else (), f"write `hardware {cards}`{nodes}"
        return report("XP112", message, Label(label.source, node.span), help=help, edits=edits)
    guess, why = gpu(node.name)
    near = guess.names[0] if guess.certain else ""
    location = None if label is None else Label(label.source, node.span, f"did you mean `{near}`?" if near else "")
    return report(
        "XP112",
        f"`{node.name[:60]}` is not a GPU of the registry" + (", it is one of several" if len(guess.names) > 1 else ""),
        location,
        help=f"write {either(guess.names)}" if guess.names else why,
        edits=(Edit(node.span, near),) if near else (),
    )


def unknown_model(node: Ref, label: Label) -> Diagnostic:
    """The finding for an unknown model. It names the models that may be meant."""
    name = node.name[:80]
    message = f"`{name}` is not a model of the registry"
    if (why := loose_reason(f"closed {name}")) is not None:
        return report("XP108", message, label, help=why)
    known = registry.find_model(guess.names[0]) if (guess := model(name)).certain else None
    return _unknown("XP108", message, node, label, guess, known.id if known else f"{_owner(name)}/{name}", "folder")


def _owner(name: str) -> str:
    """The owner on the hub for an unknown name. It is the owner of most registered models that begin with the same
    word: `Qwen` for `qwen4-8b`. `org` if there is no such model.
    """
    first = _parsed(name).parts[:1]
    ids = [registry.find_model(one) for one in registry.model_names() if _parsed(one).parts[:1] == first]
    owners = Counter(one.id.partition("/")[0] for one in ids if one is not None)
    return max(owners, key=lambda one: owners[one], default="org")


def copied(id: str) -> str | None:
    """If a hub id names a copy of a registered model by another owner, return the registered model: `qwen3-4b` for
    `unsloth/Qwen3-4B`. None for any other id.
    """
    parsed = _parsed(id[:120].rpartition("/")[2])
    for alias in registry.model_names():
        known = registry.find_model(alias)
        if known is not None and _parsed(known.id.rpartition("/")[2]) == parsed:
            return alias
    return None


def unknown_dataset(node: Ref, label: Label) -> Diagnostic:
    """The finding for an unknown dataset. It names the datasets that may be meant."""
    name = node.name[:80]
    message = f"`{name}` is neither a dataset of the registry nor a `data` block"
    return _unknown("XP110", message, node, label, dataset(name), "org/name", "file")


def _unknown(code: str, message: str, node: Ref, label: Label, guess: Guess, hub: str, local: str) -> Diagnostic:
    if local == "file" and node.name.lower().endswith((".jsonl", ".json", ".csv", ".parquet", ".txt")):
        return report(
            code, message, label, help=f'write `"{node.name}"` for the file', edits=_quoting(node.name, label)
        )
    line = label.source.text[slice(*line_bounds(label.source.text, label.span.start, label.span.start))]
    swapped = _swapped(node.name, line, local)
    if swapped is not None:
        what = "dataset" if local == "folder" else "model"
        return report(code, f"`{node.name[:80]}` is a {what}", label, help=f"write `{swapped}`")
    source = local == "file" and not guess.names and not line.lstrip().startswith("train ")
    if source and (found := _data_setting(node, label)) is not None:
        return found
    near = guess.names[0] if guess.certain else ""
    start = f"write {', '.join(f'`{one}`' for one in guess.names)}, a" if guess.names else "write a"
    return report(
        code,
        message,
        evolve(label, text=f"did you mean `{near}`?" if near else ""),
        help=f"{start} hub id such as `{hub}`, or a quoted local {local}",
        edits=(Edit(label.span, near),) if near and node.is_name else (),
    )


def _swapped(name: str, line: str, local: str) -> str | None:
    """Return the first line with the model and the data in the right order, if the user has swapped them; otherwise
    None. They are swapped if the model is the name of a dataset, or the data is the name of a model.
    """
    known = registry.find_dataset(name) if local == "folder" else registry.find_model(name)
    if known is None:
        return None
    ref = r"(\"[^\"]*\"|\S+)"
    form = re.sub(rf"^[ \t]*train[ \t]+{ref}[ \t]+on[ \t]+{ref}", r"train \2 on \1", line.partition("#")[0].rstrip())
    return None if form == line else form


def _data_setting(node: Ref, label: Label) -> Diagnostic | None:
    """The finding for a line that looks like a data source, but is another tool's name for a setting of `data`, such as
    `deduplicate`. None for any other line.
    """
    from xpc.compiler.language.schema import BY_PATH
    from xpc.compiler.suggest.meaning import meaning

    help, name = advice(node.name, ""), node.name[:80]
    found = meaning(name, "data", exact=True) if help is None and node.is_name else None
    row = BY_PATH.get(found.path) if found is not None and found.path.startswith("data.") else None
    message = f"`{name}` is not a setting of `data`"
    if row is not None and row.name == name:
        # the name is a legal setting of `data`, and was read as a source because of another error: the `train` line
        # names another block, or the setting stands outside of its block
        return None
    if row is not None:
        edits = (Edit(label.span, row.name),) if row.kind is FLAG else ()
        form = row.name if row.kind is FLAG else f"{row.name} = ..."
        return report("XP101", message, label, help=f"write `{form}`", edits=edits)
    why = own_reason(name) if help is None else None
    help = f"leave it out: it has no equivalent, because {why}" if why is not None else help
    return None if help is None or not node.is_name else report("XP101", message, label, help=help)


def unquoted(name: str, label: Label, code: str, kind: str) -> Diagnostic:
    """The finding for a path without quotes. For a folder, it is only a warning, because a repository on the hub may
    have the same name as the folder.
    """
    there = f"and a {kind} with that name exists here" if kind else "and ends like a file"
    return evolve(
        report(
            code,
            f"`{name[:80]}` without quotes is a hub id, {there}",
            label,
            help=f'write `"{name[:80]}"` for the {kind or "file"}',
            edits=_quoting(name, label),
        ),
        severity=WARNING if kind == "folder" else ERROR,
    )


def _quoting(name: str, label: Label) -> tuple[Edit, ...]:
    stands = label.typed == name
    return (Edit(label.span, f'"{name}"'),) if stands else ()
