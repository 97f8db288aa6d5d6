"""axolotl's key table, its plugins, and the import of the keys that no other module reads."""

from __future__ import annotations

from xpc.compiler.importing.accelerate import float8
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.keys import load
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, text
from xpc.compiler.language.schema import ADAPTERS
from xpc.grammar.package_data import read_text

VERSION = "0.19.0"
KEYS = load("axolotl/keys.toml")


def names(of: str = "") -> frozenset[str]:
    """The names of all keys of axolotl and its plugins; with `of="datasets."`, those of a dataset entry.

    `make oracles` writes them, the fields of axolotl's classes, to names.txt. axolotl 0.19 has all fields of 0.18.
    """
    every = read_text(__file__, "names.txt").split()
    return frozenset(one.removeprefix(of) for one in every if one.startswith(of) and "." not in one.removeprefix(of))


def known(draft: Draft, entries: Entries, of: str = "") -> Entries:
    """Return the entries whose keys axolotl knows, and warn about each other key, which axolotl ignores. With
    `of="datasets."`, `entries` are the keys of a dataset entry.
    """
    all_names = names(of)
    for key, entry in entries.items():
        if key not in all_names:
            from xpc.compiler.suggest.likeness import typo_of  # imported only for an unknown key

            near = typo_of(key, all_names)
            draft.note(entry, f"axolotl {VERSION} knows no such key")
            why = f"axolotl {VERSION} knows no such key and ignores it"
            draft.warn(entry, why, f"did you mean `{near}`?" if near else "")
    return {key: entry for key, entry in entries.items() if key in all_names}


KERNEL = "it chooses a kernel, which computes the same result"
LANGUAGE_MODEL = {
    "model.language_model.*", "^model.language_model.*", "lm_head.*", "^lm_head.*", "lm_head", "embed_tokens",
}  # fmt: skip
PLUGINS = {
    "CutCrossEntropyPlugin": KERNEL,
    "LigerPlugin": "",
    "KernelsPlugin": KERNEL,
    "SwanLabPlugin": "a tracker",
    "ExpertParallelPlugin": "see `expert_parallel_size`",
}


def plugins(draft: Draft, entry: Entry, names: list[str]) -> None:
    """Import `plugins`. Liger becomes a setting; plugins that do not change results are irrelevant; any other plugin is
    an error.
    """
    for name in names:
        last = name.rpartition(".")[2]
        if last == "LigerPlugin":
            draft.put("memory.liger", True, entry)
        elif last in PLUGINS:
            draft.mark(entry, "mapped", "", PLUGINS[last])
        else:
            draft.error(entry, f"the stack has no {last}")


def rest(draft: Draft, named: Entries) -> None:
    """Import the switches of single Liger kernels, fp8, and `unfrozen_parameters`. Then handle the remaining keys by
    the columns of the key table: report an `irrelevant` key, and keep a `comment` key in a comment of the spec.
    """
    for key, one in named.items():
        if key.startswith("liger_") and key not in KEYS:
            if boolean(one) and draft.has("memory.liger"):
                draft.mark(one, "mapped", "memory.liger", "a bundle applies every kernel of Liger to the model")
            else:
                draft.note(one, "it is off" if one.off else "the Liger plugin is not on")
    KEYS.note_irrelevant(draft, named)
    KEYS.note_unneeded(draft, named)
    draft.keep(named, KEYS.column("comment"))
    float8.switch(draft, named, "fp8_enable_fsdp_float8_all_gather")
    _unfrozen(draft, named.get("unfrozen_parameters"))


def _unfrozen(draft: Draft, entry: Entry | None) -> None:
    """Import `unfrozen_parameters` as `freeze { except_parameters }`. The key lists patterns of the names of trained
    weights. If they match the complete language model, nothing is frozen.
    """
    if entry is None:
        return
    names = {text(one) for one in entry.items}
    if entry.empty or (names <= LANGUAGE_MODEL and any("language_model" in str(name) for name in names)):
        draft.note(entry, "it matches all weights of the language model")
    elif any(map(draft.has, ADAPTERS)):
        draft.error(
            entry, "adapters freeze every weight of the model", "`lora_modules_to_save` trains complete modules"
        )
    elif not all(names) or any(str(one).endswith("]") and ":" in str(one) for one in names):
        draft.error(entry, "a spec freezes complete parameters, not some rows of a parameter")
    else:
        draft.put("freeze", True, entry)
        draft.put("freeze.except_parameters", tuple(str(text(one)) for one in entry.items), entry)
