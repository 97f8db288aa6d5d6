"""`xpc import --partial`: write a spec with everything that can be converted, and list what the user must decide.

With and without `--partial`, importers report each line that a spec cannot express by `Draft.error(entry, why, help)`;
`entry` has the line's key, value, file and number. Without `--partial`, a single error means that no spec is written.
With `--partial`, `apply` turns every error into a comment of the spec, such as

    # grpo.yaml:12: reward_type: exact  (the imported tool has no such key; train.py:31 reads it)

and into an entry of `decisions`, which are printed on one screen. All keys that only the repository's own script reads
(`own=True`) become one decision. A missing model or missing dataset is a decision without a line.
"""

from __future__ import annotations

import re

from xpc.compiler.importing import reward_file
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.outcomes import ERROR, UNDECIDED, Decision, Message
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.script_keys import ScriptKey, find
from xpc.compiler.importing.text.entries import SECRET, shown
from xpc.compiler.language.kinds import Weighted
from xpc.compiler.language.methods import METHODS
from xpc.grammar.record import evolve

MODEL = re.compile(r"model(?:_name|_path|_id|_name_or_path)?$")
DATA = re.compile(r"(?:train_dataset|load_dataset|dataset)\b|(?:dataset_name|dataset_path|data_path|data|train_file)$")
"""Match the keys of errors that explain why the model (MODEL) or the data (DATA) is unknown."""
ABOUT = re.compile(
    "^(?:the column `[^`]*`: |the rows of the evaluation are not known: |the rows are not known: |"
    "the columns that the function makes are not read: )+"
)
"""Matches the subject at the beginning of an error's reason, such as "the column `x`: "."""
AS_IS = re.compile("; the spec reads `[^`]*` as it is$")
GIVEN = re.compile("the script takes `[^`]*` from its command line, without a default: `--set [^`]*` gives it")
"""Matches errors that disappear if `--set` gives a value to an argument of the script."""
STATUS = 3
"""The exit status of an import that wrote a spec, but left decisions to a person."""
MOST = 18
"""The largest number of decisions that are printed, one per line."""


def apply(draft: Draft, overrides: Overrides) -> None:
    """Turn the errors of a draft into comments and decisions. If the draft has no errors, and has a model and data, it
    stays unchanged.
    """
    errors = [one for one in draft.messages if one.severity == "error"]
    draft.messages = [one for one in draft.messages if one.severity != "error"]
    for name, outcome in draft.outcomes.items():
        if outcome.outcome == ERROR:
            draft.outcomes[name] = evolve(outcome, outcome=UNDECIDED)
    explained = _missing(draft, errors)
    _rewards(draft, errors, overrides)
    doubtful = [one.entry.key for one in errors if one.entry and (one.own or one.similar)]
    known = find(draft, doubtful, overrides) if errors else {}
    # a key that a script near the source reads is the script's own key, not a misspelling
    errors = [evolve(one, own=True) if one.similar and one.entry and one.entry.key in known else one for one in errors]
    grouped: dict[tuple[str, str], list[Message]] = {}
    for one in errors:
        why = one.why
        if one.own and one.entry is not None and one.entry.key in known:
            why = known[one.entry.key].sentence
        comment = _comment(one, why)
        if comment not in draft.undecided:
            draft.undecided.append(comment)
        if not one.own and one not in explained:
            chosen = one.help if "--set" in one.help else ""  # each condition is a separate decision
            grouped.setdefault((_cause(why), chosen), []).append(one)
    draft.decisions += [_decision(why, group) for (why, _), group in grouped.items()]
    own = [one for one in errors if one.own and one.entry is not None]
    if own:
        draft.decisions.append(_own(own, known, overrides))


def _rewards(draft: Draft, errors: list[Message], overrides: Overrides) -> None:
    """If the file with the reward functions is missing, write one with stubs, or with one stub if no key names a
    function, and add a decision.
    """
    missing = METHODS[draft.method].grouped and not draft.has("method.rewards")
    if missing:
        file = overrides.rewards or reward_file.USUAL
        draft.put("method.rewards", (Weighted("reward", None, file, "reward"),), None, "no key names a reward")
    rewards = draft.settings.get("method.rewards")
    named = dict.fromkeys(re.findall(r'"([^":]+\.py):(\w+)', draft.value("method.rewards")))
    written = {file: overrides.read(file) for file, _ in named if file not in draft.files}
    lost = sorted(file for file, body in written.items() if body is None or reward_file.has_stubs(body))
    for file in lost:
        if written[file] is not None:
            continue
        rows = [(name, "completions, **kwargs", "") for one, name in named if one == file]
        draft.files[file] = reward_file.stubs(rows, "TRL")
    explained = missing and any(one.entry is not None and "reward_func" in one.entry.key for one in errors)
    if rewards is None or explained or not (lost or missing):
        return
    location = (rewards.entry.location,) if rewards.entry is not None else ()
    names = ", ".join(f"`{name}`" for file, name in named if file in lost)
    if missing:
        text = "which reward functions score the completions: no key names them"
        help_ = "`--rewards FILE` names the file with the functions"
    else:
        without = "has only stubs" if written[lost[0]] is not None else "is not next to the spec"
        text = f"what the reward functions compute, because the file `{lost[0]}` {without}"
        help_ = "copy it from the imported file's repository"
    if lost:
        help_ += f", or write {names} in `{lost[0]}`, which has the signatures"
    draft.decisions.append(Decision(text, location, help_))


def _cause(why: str) -> str:
    """The text of a reason without the name of the key or column; errors with the same text become one decision."""
    given = GIVEN.search(why)
    return given[0] if given is not None else AS_IS.sub("", ABOUT.sub("", why))


def _missing(draft: Draft, errors: list[Message]) -> list[Message]:
    """Add the decisions about a missing model and missing data. Returns the errors that explain why the model or the
    data are missing; these errors need no decisions of their own.

    If the cause is an unset variable of a shell script, such as `$1`, everything that depends on it becomes one
    decision.
    """
    wanted = [("which model is trained", MODEL, "`--model NAME`")] if not draft.model else []
    wanted += [("which data the run trains on", DATA, "`--data NAME`")] if not draft.sources else []
    explained: list[Message] = []
    shared: dict[str, list[tuple[str, str]]] = {}
    for what, keys, option in wanted:
        found = [one for one in errors if not one.own and one.entry is not None
                 and (keys.match(one.entry.key) or keys.match(one.entry.key.rpartition(".")[2]))]  # fmt: skip
        explained += found
        if found and "--set" in found[0].help + _cause(found[0].why):
            shared.setdefault(_cause(found[0].why), []).append((what, option))
            continue
        why = found[0].why if found else "no key names it"
        locations = tuple(dict.fromkeys(one.location for one in found if one.location))
        draft.decisions.append(Decision(f"{what}: {why}", locations, option))
    for why, missing in shared.items():
        same = [one for one in errors if _cause(one.why) == why]
        help_ = next((one.help for one in same if "--set" in one.help), "")
        names = [f"`{one.entry.key}`" for one in same if one.entry is not None and one not in explained]
        explained += same
        locations = tuple(dict.fromkeys(one.location for one in same if one.location))
        help_ = f"{help_}, and {missing[0][1]} names it" if help_ and len(missing) == 1 and not names else help_
        text = f"{_listed([*(what for what, _ in missing), *names])}: {why}"
        draft.decisions.append(Decision(text, locations, help_))
    return explained


def _listed(names: list[str]) -> str:
    """The first six names, separated by commas, and the number of further names."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _decision(why: str, messages: list[Message]) -> Decision:
    """Make one decision of several errors that have the same cause (`why`)."""
    locations = tuple(one.location for one in messages if one.location)
    if len(messages) == 1:
        return Decision(messages[0].text, locations, messages[0].help)
    names = dict.fromkeys(f"`{one.entry.key}`" for one in messages if one.entry is not None)
    if "--set" not in why:
        why = next((ABOUT.sub("", one.why) for one in messages if AS_IS.search(one.why)), why)
    return Decision(f"{_listed([*names])}: {why}", locations, messages[0].help)


def _comment(message: Message, why: str) -> str:
    if message.entry is None:
        return message.text
    if message.entry.value is None:
        return f"{message.entry.location}: {message.entry.key}  ({why})"
    value = shown(message.entry)
    if value != SECRET and message.entry.typed:
        value = message.entry.typed.partition("\n")[0][:200]
    return f"{message.entry.location}: {message.entry.key}: {value}  ({why})"


def _own(messages: list[Message], known: dict[str, ScriptKey], overrides: Overrides) -> Decision:
    """The decision about keys that the repository's own scripts define. Its help names the scripts that create a
    trainer.
    """
    names = [f"`{one.entry.key}`" for one in messages if one.entry is not None]
    what = "key" if len(names) == 1 else "keys"
    where = "" if known else ", and no script next to the source declares them"
    text = f"what {len(names)} {what} of the repository's own script should do: {_listed(names)}{where}"
    help_ = "the spec keeps the lines of these keys as comments"
    scripts = {one.location.rpartition(":")[0] for one in known.values()}
    training = sorted(name for name, body in overrides.scripts() if name in scripts and "Trainer(" in body)
    if training:
        these = " or ".join(f"`{one}`" for one in training[:3])
        help_ += f"; `xpc import` also reads the script that uses them: {these}"
    return Decision(text, tuple(one.location for one in messages), help_)


def screen(draft: Draft, out: str | None) -> str:
    """The list of decisions to print after `--partial`, at most one screen long."""
    count = len(draft.decisions)
    mapped = sum(one.outcome in ("mapped", "extra") for one in draft.outcomes.values())
    head = f"{mapped} keys are in the spec; {count} decision{'s' * (count != 1)} left"
    lines = [head + ":"]
    for number, one in enumerate(draft.decisions[:MOST], 1):
        location = f"{one.locations[0]}: " if one.locations else ""
        lines.append(f"  {number}. {location}{one.text}" + (f" (help: {one.help})" if one.help else ""))
    if count > MOST:
        lines.append(f"  ... and {count - MOST} more, in the comments of the spec")
    warnings = sum(one.severity == "warning" for one in draft.messages)
    if warnings:
        lines.append(f"{warnings} warning{'s' * (warnings != 1)}: `--report text` shows them")
    if out not in (None, "-"):
        lines.append(f"wrote {out}")
    return "\n".join(lines) + "\n"
