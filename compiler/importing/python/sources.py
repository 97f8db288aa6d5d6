"""Write a script's dataset as a source of the spec: a file or a Hub dataset with its configuration and split."""

from __future__ import annotations

import json
import shlex
from math import ceil

from xpc.compiler import registry
from xpc.compiler.importing.draft import Draft, Source
from xpc.compiler.importing.python.chain import Chain
from xpc.compiler.importing.python.data import Data
from xpc.compiler.importing.python.interpreter.values import Argument, Location, Object, Table, Unknown
from xpc.compiler.importing.text.entries import LARGEST, Entry
from xpc.compiler.importing.trl.data import PART, SPLIT
from xpc.compiler.importing.trl.model import reference, revised
from xpc.compiler.language.kinds import Amount

KINDS = ("json", "csv", "parquet", "text", "jsonl")


def source_of(draft: Draft, chain: Chain, data: Data) -> Source | None:
    """The data source for a traced dataset. Reports an error and returns None if a spec cannot name it."""
    found, location = _named(draft, chain, data)
    if found is None:
        return None
    ref = reference(draft, found, "dataset")
    if ref is None:
        return None
    draft.mark(found, "mapped", f"data {{ {ref} }}")
    take = limit = None
    for name, one in (("take", data.take), ("limit", data.limit)):
        if one is None or not isinstance(one.value, int):
            continue
        number = _with_held_rows(draft, data, one)
        draft.mark(one.location.entry(f"data.{name}", one.value), "mapped", f"{name} = {number}")
        if name == "take":
            take = Amount("count", number)
            draft.differs(
                "select",
                "the script shuffles the rows and takes the first; the spec shuffles them in "
                "another order, and takes as many",
            )
        else:
            limit = number
    if ref.startswith('"'):
        if chain.loaded is not None:
            _otherwise(draft, chain.loaded)
        limit = _part_of_file(draft, chain, data, found, limit)
        return Source(ref, (), take, limit)
    return Source(_with_parts(draft, chain, data, ref, location), (), take, limit)


def _with_held_rows(draft: Draft, data: Data, given: Argument) -> int:
    """The number of rows that a spec must `take` so that the run trains on `given` rows. A spec first takes rows and
    then holds some of them out, so it must take more rows than a script that holds rows out first.
    """
    count = given.value
    assert isinstance(count, int)
    held = data.holdout.value if data.after_holdout and data.holdout is not None else 0
    if isinstance(held, bool) or not isinstance(held, int | float) or not 0 < held < LARGEST:
        return count
    draft.differs(
        "select",
        f"the script holds out rows and then takes {count} of the others; the spec takes more rows, so that "
        f"{count} remain after it holds out some",
        given.location.entry("select", count),
    )
    return count + int(held) if held >= 1 else ceil(count / (1 - held))


def _part_of_file(draft: Draft, chain: Chain, data: Data, found: Entry, limit: int | None) -> int | None:
    """The number of rows to read from a file: 100 for `split="train[:100]"`. A hub dataset without an owner in its
    name, such as `squad`, is an error, because a spec would read the name as a file.
    """
    call = chain.loaded
    if call is None or call.last != "load_dataset":
        return limit
    name = str(found.value)
    if "data_files" not in call.keywords and "/" not in name and "." not in name:
        why = "it is a hub dataset without its owner, whose name a spec would read as a file"
        draft.error(found, why, f"`--data OWNER/{name}` names the dataset by its present name on the hub")
        return limit
    split = call.keywords.get("split")
    if split is not None and isinstance(split.value, Unknown):
        draft.error(split.location.entry("load_dataset.split"), split.value.why)
    written = split_of(call, data)
    if "[" not in written or split is None:
        return limit
    entry = split.location.entry("load_dataset.split", written)
    match = SPLIT.fullmatch(written)
    if match is None or match[2] is None or not match[2].isdecimal() or limit is not None:
        draft.error(
            entry, "a spec cannot name this part of a file", "for the first N rows, write `limit = N` after the source"
        )
        return limit
    draft.mark(entry, "mapped", f"limit = {match[2]}")
    return int(match[2])


def _named(draft: Draft, chain: Chain, data: Data) -> tuple[Entry | None, Location | None]:
    """Return the entry that names the data (a file, a folder or a hub dataset), and the location of the call that loads
    them.
    """
    if chain.file is not None:
        value, location = chain.file.value, chain.file.location
        if isinstance(value, str):
            return location.entry("data", value), location
        why = value.why if isinstance(value, Unknown) else "its name is not known"
        draft.error(
            location.entry("data"), f"the import cannot tell which file has the rows: {why}", "`--data NAME` names it"
        )
        return None, location
    if chain.rows:
        return chain.location.entry("rows", draft.write_rows(chain.rows)), chain.location
    if chain.loaded is None:
        return None, None
    call = chain.loaded
    folder = call.keywords.get("data_dir")
    if folder is not None and folder.value is not None and "data_files" not in call.keywords:
        draft.error(
            folder.location.entry("load_dataset.data_dir", folder.value if isinstance(folder.value, str) else None),
            "the script reads one folder of the dataset; a spec reads the complete dataset",
            "`--data FOLDER` names a local folder; save the rows of any other folder as Parquet"
        )  # fmt: skip
    given = _path_or_file(call, data)
    if given is None or not isinstance(given.value, str):
        why = "it names several files, or none"
        if given is not None and isinstance(given.value, Unknown):
            why = f"{given.value.why} ({given.value.location})"
        location = given.location if given is not None else call.location
        draft.error(location.entry("load_dataset"), why, "`--data NAME` names the data")
        return None, call.location
    name = given.value
    if call.last == "load_from_disk":
        name = _exported(name, data.split)
        # write the name as a path, so that the spec does not read it as a dataset of the hub
        name = name if name.startswith((".", "/", "~")) else f"./{name}"
    return given.location.entry("load_dataset", name), call.location


def _path_or_file(call: Object, data: Data) -> Argument | None:
    """The name of the dataset that a call of `load_dataset` loads or, if the call reads a file, the name of the file.
    If there is a file for each split, the file of the selected split.
    """
    path = call.argument("path", 0) or call.argument("dataset_path", 0)
    files = call.keywords.get("data_files")
    if files is None or (path is not None and path.value not in KINDS):
        return path
    value, location = files.value, files.location
    if isinstance(value, dict):
        key = split_of(call, data) or "train"
        location = value.locations.get(key, location) if isinstance(value, Table) else location
        value = value.get(key.partition("[")[0])
    single = isinstance(value, list | tuple) and len(value) == 1
    return Argument(value[0] if single else value, location)  # type: ignore[index]


def _exported(folder: str, split: str) -> str:
    """The name of a Parquet file next to a folder that `save_to_disk` wrote: `rows-train.parquet` for the folder `rows`
    and the split `train`.
    """
    return folder.rstrip("/") + (f"-{split}" if split else "") + ".parquet"


def refuse_arrow(draft: Draft, call: Object, data: Data) -> None:
    """Report that a spec cannot read a folder that `save_to_disk` wrote. The help has the command that exports the rows
    to the Parquet file in the spec.
    """
    given = call.argument("dataset_path", 0)
    folder = given.value if given is not None and isinstance(given.value, str) else None
    help = "save it as JSONL or Parquet, and name that file"
    if folder is not None:
        source, target = (json.dumps(one, ensure_ascii=False) for one in (folder, _exported(folder, data.split)))
        code = f"from datasets import load_from_disk; load_from_disk({source}).to_parquet({target})"
        if data.split:  # one command for all splits, so that the user has a single decision
            plain = folder.replace("{", "{{").replace("}", "}}")
            each = json.dumps(_exported(plain, "{key}"), ensure_ascii=False)
            code = (f"from datasets import load_from_disk; "
                    f"[rows.to_parquet(f{each}) for key, rows in load_from_disk({source}).items()]")  # fmt: skip
        help = f"`python -c {shlex.quote(code)}` writes the file that the spec names"
    entry = call.location.entry("load_from_disk", folder)
    draft.error(entry, "a spec cannot read the folder of Arrow files that `save_to_disk` writes", help)


def split_of(call: Object, data: Data) -> str:
    """The split that the script selects, such as `train[:10%]`; "" if it selects none."""
    given = call.keywords.get("split")
    return data.split or (given.value if given is not None and isinstance(given.value, str) else "")


def _with_parts(draft: Draft, chain: Chain, data: Data, ref: str, location: Location | None) -> str:
    """Add the configuration and split to a Hub reference: `org/name:config[split]`."""
    call = chain.loaded
    if call is None:
        return ref
    config, split = call.argument("name", 1), call.keywords.get("split")
    if config is not None and isinstance(config.value, str) and not PART.fullmatch(config.value):
        name, split_name = json.dumps(config.value), json.dumps(split_of(call, data) or "train")
        rows = f"load_dataset({json.dumps(ref)}, {name})[{split_name}]"
        code = f'from datasets import load_dataset; {rows}.to_parquet("rows.parquet")'
        why = "a spec cannot name this configuration"
        help = f"`python -c {shlex.quote(code)}` writes a file for `--data rows.parquet`"
        draft.error(config.location.entry("load_dataset.name", config.value), why, help)
    elif config is not None and isinstance(config.value, str) and config.value != "default":
        ref += f":{config.value}"
        draft.mark(config.location.entry("load_dataset.name", config.value), "mapped", f"data {{ {ref} }}")
    elif config is not None and isinstance(config.value, Unknown):
        draft.error(config.location.entry("load_dataset.name"), config.value.why)
    _otherwise(draft, call)
    name = split_of(call, data)
    if split is not None and isinstance(split.value, Unknown):
        draft.error(split.location.entry("load_dataset.split"), split.value.why)
    found = SPLIT.fullmatch(name) if name else None
    if name and found is None and call is not None:
        help = "write the name of one split, with `[:N]` or `[:N%]` after it"
        draft.error(call.location.entry("load_dataset.split", name), "a spec cannot name this split", help)
    elif found is not None:
        known = registry.find_dataset(ref.partition(":")[0])
        usual = "train" if known is None else known.split
        cut = "" if found[2] is None else f":{found[2]}"
        ref += f"[{found[1]}{cut}]" if cut or found[1] != usual else ""
        at = split.location if split is not None else call.location
        draft.mark(at.entry("load_dataset.split", name), "mapped", f"data {{ {ref} }}")
    revision = call.keywords.get("revision")
    if revision is None or revision.value is None:
        return ref
    return revised(draft, ref, revision.location.entry("load_dataset.revision", revision.value))


USUAL = {
    "path", "dataset_path", "name", "data_dir", "data_files", "split", "cache_dir", "features", "download_config",
    "download_mode", "verification_mode", "ignore_verifications", "keep_in_memory", "revision", "token",
    "use_auth_token", "streaming", "num_proc", "storage_options", "trust_remote_code",
}  # fmt: skip
"""Arguments of `load_dataset` that another function handles, or that do not change the rows. All others, such as
`delimiter` and `field`, change how a file is read.
"""


def _otherwise(draft: Draft, call: Object) -> None:
    """Report an error for each argument that changes how a file is read, such as the `delimiter` of a CSV file."""
    for name, one in call.keywords.items() if call.last == "load_dataset" else ():
        if name not in USUAL and not name.startswith("**") and one.value is not None:
            why = "this argument changes how the script reads the file; a spec reads it only by its format"
            help = "save the rows as JSONL or Parquet, and name that file by `--data`"
            draft.error(one.location.entry(f"load_dataset.{name}"), why, help)
