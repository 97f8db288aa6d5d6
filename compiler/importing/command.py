"""Import a command line or a script: the launcher's options, the program, and the arguments of transformers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from xpc.compiler.importing import keys
from xpc.compiler.importing.accelerate import config as sharding
from xpc.compiler.importing.draft import Draft, Written
from xpc.compiler.importing.llamafactory import command as llamafactory_command
from xpc.compiler.importing.overrides import Machines, Overrides, load, native
from xpc.compiler.importing.text import json as jsontext
from xpc.compiler.importing.text import yaml as yamltext
from xpc.compiler.importing.text.entries import Entries, Entry, Unreadable, boolean, shown, text
from xpc.compiler.importing.text.shell import Call, Word, calls
from xpc.compiler.importing.trl import reader as trlyaml
from xpc.compiler.language.methods import METHODS
from xpc.compiler.stacks import DEFAULT, names
from xpc.grammar.package_data import read_text
from xpc.grammar.record import evolve, record

KEYS = keys.load("launchers.toml")
ENVIRONMENT = {"WANDB_PROJECT": "wandb_project"}
FASTCHAT = ("data_path", "lazy_preprocess", "q_lora", "flash_attn")


LAUNCHED = re.compile(r"(?:accelerate\s+launch|torchrun|deepspeed|python3?)\s[^\n]*?\.py|(?:^|\s)trl\s+\w+\s+--")
"""A training command within a text."""
OTHER = re.compile(r"eval|infer|generat|bench|merge|serve|test|preprocess|convert|upload|push_to|download")
"""Words in the names of programs that train nothing."""
NAMING = ("save", "track.name", "track.project", "save.hub.name")
"""Settings that only name a run: the members of a sweep have names of their own."""


NAMES = ("output_dir", "run_name", "logging_dir", "hub_model_id", "wandb_project", "cache_dir")
"""Arguments that only name a run or a place."""


@record
class Line:
    """A parsed command: the launcher, its options, the program, its arguments, and words without a key (`rest`).

    `again` are earlier values of arguments that the command has twice, which argparse ignores.
    """

    launcher: str
    options: dict[str, Entry]
    program: str
    arguments: dict[str, Entry]
    rest: tuple[Word, ...] = ()
    again: tuple[Entry, ...] = ()


def command(text_: str, file: str, overrides: Overrides, launch: Entries | None, zero: Entries | None) -> Draft:
    """Convert a training command of a script to a draft; the values of a loop become a sweep. Raises Unreadable if
    there is no such command, or if there are several and `--pick` does not say which.
    """
    loops: dict[str, tuple[str, ...]] = {}
    at, training = _chosen(text_, overrides, loops)
    draft = _converted(training, text_, file, overrides, launch, zero)
    for name, values in loops.items():
        _sweep(draft, name, values, at, text_, file, overrides, launch, zero)
    return draft


def _chosen(text_: str, overrides: Overrides, loops: dict[str, tuple[str, ...]]) -> tuple[int, Call]:
    """The training command that `--pick` names, or the only one, with its place among them."""
    training = _training(text_, overrides.sets, loops)
    if overrides.pick is None and len(training) > 1:  # a script may also evaluate what it trains
        kept = [one for one in training if not OTHER.search(_named(one).lower())]
        if len(kept) == 1:
            return training.index(kept[0]), kept[0]
    if not training:
        raise Unreadable("it has no training command (torchrun, accelerate launch, deepspeed, trl)")
    if overrides.pick is None and len(training) > 1:
        listed = "; ".join(f"{number} on line {one.words[0].line} ({_named(one)})"
                           for number, one in enumerate(training[:8], 1))  # fmt: skip
        raise Unreadable(f"it has {len(training)} training commands: {listed}. `--pick N` takes one of them, and "
                         "`--pick all` with `-o` writes all")  # fmt: skip
    place = (overrides.pick or 1) - 1
    if place >= len(training):
        raise Unreadable(f"it has {len(training)} training commands, so there is no `--pick {overrides.pick}`")
    return place, training[place]


def _training(text_: str, sets: Mapping[str, str], loops: dict[str, tuple[str, ...]] | None = None) -> list[Call]:
    """The training commands of a script; if there are none, those in its quoted texts, such as `bash -c "..."`."""
    found = calls(text_, sets, loops)
    training = [one for one in found if one.words and _trains(one.words)]
    if training:
        return training
    for one in found:
        for word in (*one.words, *one.environment):
            inner = word.text.partition("=")[2] if word in one.environment else word.text
            if LAUNCHED.search(inner):
                nested = [each for each in calls(inner, sets) if each.words and _trains(each.words)]
                training += [evolve(each, words=tuple(evolve(part, line=word.line) for part in each.words))
                             for each in nested]  # fmt: skip
    return list({one.words: one for one in training}.values())


def count(text_: str, overrides: Overrides) -> int:
    """How many training commands a script has."""
    return len(_training(text_, overrides.sets))


def _named(call: Call) -> str:
    """The program of a command, or its configuration file."""
    names = [one.text for one in call.words if one.text.endswith((".py", ".yaml", ".yml"))]
    return ", ".join(os.path.basename(one)[:40] for one in names[:2]) or call.words[0].text[:40]


def _converted(call: Call, text_: str, file: str, overrides: Overrides, launch: Entries | None,
               zero: Entries | None) -> Draft:  # fmt: skip
    environment = [word for one in calls(text_, overrides.sets) for word in one.environment]
    return _draft(_taken_apart(call, file), environment, file, overrides, launch, zero)


def _sweep(draft: Draft, name: str, values: Sequence[str], at: int, text_: str, file: str, overrides: Overrides,
           launch: Entries | None, zero: Entries | None) -> None:  # fmt: skip
    """Write the settings that a loop over values changes as lists of a sweep."""
    changed: dict[str, list[str]] = {}
    for value in values:
        sets = {**overrides.sets, name: value}
        training = _training(text_, sets)
        if at >= len(training):
            return
        member = _converted(training[at], text_, file, evolve(overrides, sets=sets), launch, zero)
        for path, written in {**member.settings, "model": Written(member.model)}.items():
            if path not in NAMING and path not in ("hardware", "nodes"):
                changed.setdefault(path, []).append(written.text)
        if member.sources != draft.sources:
            loop = Entry(f"${name}", " ".join(values), file, 0)
            draft.error(loop, "a sweep has one corpus, and the loop has several", f"`--set {name}=VALUE` takes one")
            return
    for path, texts in changed.items():
        if len(texts) == len(values) and len(set(texts)) > 1:
            draft.sweep[path] = texts
            draft.settings.pop(path, None)


def _trains(words: Sequence[Word]) -> bool:
    name = os.path.basename(words[0].text)
    if name == "trl":
        return len(words) > 1 and words[1].text not in ("vllm-serve", "chat", "env")
    if name in ("torchrun", "deepspeed"):
        return True
    if name in ("llamafactory-cli", "axolotl"):  # only `train` is a run; other subcommands export, serve and evaluate
        return len(words) > 1 and words[1].text in llamafactory_command.VERBS
    if name in ("accelerate", "accelerate-launch"):
        return name != "accelerate" or (len(words) > 1 and words[1].text == "launch")
    if name in ("srun", "nohup", "env", "time", "uv", "poetry", "exec"):
        return len(words) > 1 and any(_trains(words[n:]) for n in range(1, min(len(words), 12)))
    program = any(one.text.endswith(".py") or one.text == "-m" for one in words[1:4])
    given = any(one.text.startswith("--") or one.text.endswith((".yaml", ".yml")) for one in words)
    return name.startswith("python") and program and given


def _taken_apart(call: Call, file: str) -> Line:
    words = list(call.words)
    while os.path.basename(words[0].text) in ("srun", "nohup", "env", "time", "uv", "poetry", "exec"):
        words.pop(0)
        while words and not _trains(words):
            words.pop(0)
    launcher = os.path.basename(words.pop(0).text)
    if launcher == "accelerate":
        words.pop(0)
    if launcher.startswith("python"):
        launcher = "python"
        if [one.text for one in words[:2]] in (["-m", "torch.distributed.run"], ["-m", "torch.distributed.launch"]):
            launcher, words = "torchrun", words[2:]
        elif [one.text for one in words[:2]] == ["-m", "accelerate.commands.launch"]:
            launcher, words = "accelerate", words[2:]
    if launcher in ("trl", "llamafactory-cli", "axolotl"):
        program = f"{launcher} {words.pop(0).text}" if words else launcher
        options: dict[str, Entry] = {}
    else:
        options, program, words = _options(words, file)
    again: list[Entry] = []
    arguments, rest = _arguments(words, file, again)
    return Line(launcher, options, program, arguments, tuple(rest), tuple(again))


def _options(words: list[Word], file: str) -> tuple[dict[str, Entry], str, list[Word]]:
    """The launcher's options, the program (or the module of `-m`), and the words after the program."""
    out: dict[str, Entry] = {}
    flags = KEYS.column("flag")
    while words:
        word = words.pop(0)
        if not word.text.startswith("-"):
            return out, word.text, words
        name, equals, value = word.text.lstrip("-").partition("=")
        key = name.replace("-", "_")
        if key in ("m", "module"):
            return out, words.pop(0).text if words else "", words
        if equals:
            out[key] = Entry(key, value, file, word.line, value, unset=word.open)
        elif key in flags or not words or words[0].text.startswith("-") or words[0].text.endswith(".py"):
            out[key] = Entry(key, True, file, word.line)
        else:
            one = words.pop(0)
            out[key] = Entry(key, one.text, file, word.line, one.text, unset=one.open)
    return out, "", words


def _arguments(words: list[Word], file: str, again: list[Entry]) -> tuple[dict[str, Entry], list[Word]]:
    """The values of `--key value`, `--key=value`, `--key` and `--key a b c`, and the words before the first key.
    `again` receives the earlier values of a key that is given twice.
    """
    out: dict[str, Entry] = {}
    rest: list[Word] = []
    while words and not words[0].text.startswith("--"):
        rest.append(words.pop(0))
    while words:
        word = words.pop(0)
        name, equals, value = word.text[2:].partition("=")
        key = name.replace("-", "_")
        values = [Word(value, word.line, word.open)] if equals else []
        while words and not words[0].text.startswith("--"):
            values.append(words.pop(0))
        off = not values and key.startswith("no_") and _switched_off(key[3:])
        key = key[3:] if off else key
        if key in out:
            again.append(out[key])
        out[key] = Entry(key, False, file, word.line) if off else _entry(key, values, file, word.line)
    return out, rest


def _switched_off(key: str) -> bool:
    """Whether `--no_KEY` exists: transformers' HfArgumentParser adds it for arguments that are on by default."""
    stacks = [load(name) for name in names()]
    return any(
        key in fields and fields[key].declared is True
        for stack in stacks
        for config in stack.configs
        for fields in [stack.fields(config)]
    )


def _entry(key: str, values: list[Word], file: str, line: int) -> Entry:
    if not values:
        return Entry(key, True, file, line)
    if len(values) > 1:
        parts: list[Entry] = [Entry(f"{key}[{n}]", one.text, file, one.line, one.text) for n, one in enumerate(values)]
        return Entry(key, parts, file, line)
    if values[0].open:
        return Entry(key, values[0].text, file, line, values[0].text, unset=values[0].open)
    return jsontext.unfolded(Entry(key, values[0].text, file, line, values[0].text))


def _draft(line: Line, environment: list[Word], file: str, overrides: Overrides, launch: Entries | None,
           zero: Entries | None) -> Draft:  # fmt: skip
    found, options = Machines(), line.options
    entries = dict(line.arguments)
    config = entries.pop("config", None)
    if llamafactory_command.is_llamafactory(line.program, entries):
        return _factory(line, environment, file, overrides, launch, zero)
    if line.program.startswith("axolotl"):
        raise Unreadable(f"`{line.program}` reads a file: import that file instead")
    rest = list(line.rest)
    if config is None and len(rest) == 1 and rest[0].text.endswith((".yaml", ".yml", ".json")):
        word = rest.pop()
        config = Entry("config", word.text, file, word.line, unset=word.open)
    overridden: list[Entry] = []
    lost = config is not None and overrides.read(text(config) or "") is None
    if config is not None and not lost:
        table = _file(config, overrides)
        overridden += [one for key, one in table.items() if key in entries]
        entries = {**table, **entries}
    unset = {key: one for key, one in entries.items() if one.unset and key not in ("deepspeed", "deepspeed_config")}
    entries = {key: one for key, one in entries.items() if key not in unset}
    method = overrides.method or _method(line.program)
    wandb = [Entry(ENVIRONMENT[name], value, file, word.line) for word in environment
             for name, _, value in [word.text.partition("=")] if name in ENVIRONMENT]  # fmt: skip
    entries.update({one.key: one for one in wandb if one.key not in entries})
    chat = "fastchat" in line.program or any(key in entries for key in FASTCHAT)
    draft, source = trlyaml.start(evolve(overrides, method=method or ("sft" if chat else None)), entries, file)
    _unset(draft, unset)
    for one in line.again:
        draft.warn(one, f"it is given twice: the last value, {shown(line.arguments[one.key])}, counts")
    if config is not None and lost:
        draft.error(config, "the file does not exist, and most of the run is in it", "import that file itself")
    elif config is not None:
        draft.mark(config, "mapped", "the file was read")
        for over in overridden:
            draft.note(over, f"line {line.arguments[over.key].line} of the command overrides it")
    if chat:
        entries = fastchat(draft, entries, line.program, overrides)
        # scripts with `evaluation_strategy` were written for that stack
        source, _ = native({"evaluation_strategy"}, draft.method, None)
    named = options.get("config_file")
    lost = named is not None and launch is None and overrides.read(text(named) or "") is None
    if named is not None and launch is None and not (lost and sharding.missing_launch(draft, named, text(named) or "")):
        launch = _file(named, overrides, "--accelerate")
        draft.mark(named, "mapped", "the file was read")
        draft.read.append(launch)
    launch = _launcher(draft, line, found, launch)
    for path in ("deepspeed", "deepspeed_config"):
        chosen = entries.get(path)
        if chosen is not None and isinstance(chosen.value, str) and chosen.value.startswith("$") and zero is None:
            draft.error(
                chosen, "the script does not set the variable that names the file", "`--deepspeed FILE` names it"
            )
    trlyaml.arguments(draft, entries, overrides, source, launch, zero, found)
    for word in environment:
        _environment(draft, word, file)
    for word in rest:
        draft.error(Entry(word.text, None, file, word.line), "an argument without a key")
    return draft


def _unset(draft: Draft, entries: Mapping[str, Entry]) -> None:
    """Report arguments whose value has a variable that the script does not set. Names of runs are left to the spec."""
    for key, one in entries.items():
        if key in NAMES:
            draft.note(one, f"it names the run by {one.unset}, which the script does not set")
            draft.warn(one, f"the script does not set {one.unset}, and the spec leaves the name to its default")
        else:
            name = one.unset.removeprefix("$")
            how = f"`--set {name}=VALUE` sets it" if name.isidentifier() or name.isdecimal() else "write its value"
            draft.error(one, f"the script does not set {one.unset}", how)


def _factory(line: Line, environment: list[Word], file: str, overrides: Overrides, launch: Entries | None,
             zero: Entries | None) -> Draft:  # fmt: skip
    rest, named, table = list(line.rest), line.options.get("config_file"), None
    if rest and rest[0].text.endswith((".yaml", ".yml", ".json")):
        word = rest.pop(0)
        table = _file(Entry("config", word.text, file, word.line), overrides)
    if named is not None and launch is None:
        launch = _file(named, overrides)
    variables = [Entry(f"${name}", value, file, word.line, value) for word in environment
            for name, _, value in [word.text.partition("=")]]  # fmt: skip
    alone = {"nproc_per_node": Entry("python", 1, file, 0)} if line.launcher == "python" else {}
    draft = llamafactory_command.factory(
        line.program, line.arguments, rest, {**line.options, **alone}, variables, file, overrides, table, launch, zero
    )
    for word in environment:
        _environment(draft, word, file)
    return draft


def _environment(draft: Draft, word: Word, file: str) -> None:
    name, _, value = word.text.partition("=")
    entry = Entry(f"${name}", value, file, word.line, value)
    if name in ENVIRONMENT:
        draft.mark(entry, "mapped", ENVIRONMENT[name])
    elif (file, entry.key) not in draft.fates:
        draft.note(entry, "the environment of the launch")


def _file(entry: Entry, overrides: Overrides, option: str = "") -> dict[str, Entry]:
    """Read a YAML or JSON file that an option names. Raises Unreadable."""
    name = text(entry) or ""
    data = overrides.read(name)
    if data is None:
        raise Unreadable(f"`{name[:80]}` does not exist{option and f'; `{option} FILE` names it'}", entry.line)
    body = data.decode("utf-8-sig", "replace")
    return jsontext.read(body, name) if body.lstrip().startswith("{") else yamltext.read(body, name)


def _method(program: str) -> str | None:
    """The method that the program's name contains: `sft.py`, `open_r1/grpo.py`, `trl dpo`."""
    words = (
        program.lower()
        .replace(".py", "")
        .replace("/", " ")
        .replace("_", " ")
        .replace(".", " ")
        .replace("-", " ")
        .split()
    )
    return next((one for one in reversed(words) if one in METHODS), "reward" if "rm" in words else None)


def _launcher(draft: Draft, line: Line, found: Machines, launch: Entries | None) -> Entries | None:
    """Import the launcher's options: processes, nodes, and options that accelerate's file can also contain."""
    table = dict(launch or {})
    extra: dict[str, Entry] = {}
    irrelevant = KEYS.column("irrelevant")
    for key, one in line.options.items():
        if key == "config_file":
            continue
        if key in ("nproc_per_node", "num_gpus", "nnodes", "num_nodes", "num_processes", "num_machines"):
            slot = {"nproc_per_node": "each", "num_gpus": "each", "num_processes": "total"}.get(key, "nodes")
            if one.unset:
                draft.note(one, f"the script does not set {one.unset}")
                draft.warn(one, f"the script does not set {one.unset}: `--hardware` and `--nodes` name the machines")
            elif text(one) in ("gpu", "auto", "-1"):
                draft.note(one, "all devices of the node: `--hardware` sets how many")
            else:
                sharding.count(draft, one, slot, found)
                if key in ("num_processes", "num_machines") and key in table:
                    draft.note(table.pop(key), f"line {one.line} of the command overrides it")
        elif line.launcher == "accelerate" and key not in irrelevant:
            extra[key] = one
        elif key == "mixed_precision" and line.launcher == "accelerate":
            table["mixed_precision"] = one
        elif key in irrelevant:
            draft.note(one, irrelevant[key])
        else:
            draft.error(one, f"an unknown option of {line.launcher}")
    return _accelerate(draft, extra, table) or None


def _accelerate(draft: Draft, options: dict[str, Entry], table: dict[str, Entry]) -> dict[str, Entry]:
    """Convert accelerate's options, such as `--use_fsdp --fsdp_version 2`, to the layout of its file."""
    zero = {key: one for key, one in options.items() if key in KEYS.column("renamed")}
    fsdp = {key: one for key, one in options.items() if key.startswith("fsdp_")}
    for switch, kind, inside, block in (("use_deepspeed", "DEEPSPEED", zero, "deepspeed_config"),
                                        ("use_fsdp", "FSDP", fsdp, "fsdp_config")):  # fmt: skip
        if switch in options:
            one = options.pop(switch)
            table["distributed_type"] = Entry(one.key, kind, one.file, one.line)
        if inside:
            first = next(iter(inside.values()))
            held = table[block].mapping if block in table else {}
            table[block] = Entry(block, {**held, **inside}, first.file, first.line)
    for key in ("cpu", "use_cpu"):
        if key in options:
            table["use_cpu"] = options.pop(key)
    for key, one in options.items():
        if key not in zero and key not in fsdp:
            table[key] = one
    return table


def fastchat(draft: Draft, entries: dict[str, Entry], program: str, overrides: Overrides) -> dict[str, Entry]:
    """Import FastChat's scripts: their chat template with the loss on answers, their LoRA defaults and their
    attention.
    """
    draft.stack = load(overrides.target or DEFAULT)
    out = dict(entries)
    tuned = "train_lora" in program or "q_lora" in entries
    low = out.pop("q_lora", None)
    if tuned:
        first = low or next(iter(entries.values()))
        on = Entry("use_peft", True, first.file, first.line)
        draft.note(on, "train_lora.py trains adapters")
        out["use_peft"] = on
        if low is not None:
            out["load_in_4bit"] = low
        draft.default("lora.rank", 8, "not set: FastChat's own")
        draft.default("lora.alpha", 16.0, "not set: FastChat's own")
        if low is not None and boolean(low):
            draft.default("lora.double_quant", True, "FastChat's own")
    flash = out.pop("flash_attn", None)
    if flash is not None:
        draft.put("model.attn", "flash2" if str(flash.value).lower() == "true" else "eager", flash)
    else:
        memory = "train_mem" in program
        why = "train_mem.py turns flash attention on" if memory else "the attention of FastChat's transformers"
        draft.put("model.attn", "flash2" if memory else "eager", None, why)
    name = f"{draft.stem}.chat_template.jinja"
    if "chat_template" not in out:
        draft.files[name] = read_text(trlyaml.__file__, "vicuna.jinja").encode()
        draft.put("model.chat_template", name, None, "the conversation that FastChat's scripts write")
        draft.put("model.pad", "<unk>", None, "FastChat pads with the unknown token")
        draft.put("method.assistant_only", True, None, "FastChat masks the questions")
        draft.warn(None, "FastChat masks questions and pads with `<unk>`: the spec does the same with a template that "
                   "is written next to it")  # fmt: skip
    draft.default("batch.seq", 512, "not set: FastChat's model_max_length") if "model_max_length" not in out else None
    return out
