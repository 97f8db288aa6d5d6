"""Suggest the setting that an unknown name probably stands for, together with its value in xpc's notation."""

from __future__ import annotations

import re
from functools import cached_property

from xpc.compiler.language import schema
from xpc.compiler.language.advisor import Suggestion, UnknownName
from xpc.compiler.language.expand.missing_equals import SPLITS
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import Setting
from xpc.compiler.suggest.components import head_word
from xpc.compiler.suggest.converted_values import LENGTH, NO, YES, methods_with
from xpc.compiler.suggest.legal import example
from xpc.compiler.suggest.likeness import parts, words
from xpc.compiler.suggest.meaning import Meaning, meaning
from xpc.compiler.suggest.registry_names import YOUR_GPU, hardware_help
from xpc.compiler.suggest.sentence import method_of, named_by_value, output_folder, sentence
from xpc.compiler.suggest.similar_choices import open_setting
from xpc.compiler.suggest.typed_form import clause_line, decided_value, intended_value, other_beta, typed, with_tracker
from xpc.compiler.suggest.unknown_names.case import Case, first_answer, is_in, settings_of
from xpc.compiler.suggest.unknown_names.data_names import IN_ORDER, ONLINE, columns_of
from xpc.compiler.suggest.unknown_names.guess import TYPO
from xpc.compiler.suggest.unknown_names.wrong_value import wrong_value
from xpc.compiler.suggest.unset_values import ALREADY, NULLS
from xpc.grammar.record import evolve, record
from xpc.grammar.tree import List, Number, Ref, String

FOUR_BITS = re.compile(r"\b(?:nf4|fp4|int4|4-?bit)\b|nf4")
HARDWARE = re.compile(r"\bhardware[ \t=]+(?P<count>\d+)[ \t]*x[ \t]*(?P<gpu>[a-z][\w-]*)")
NODES = re.compile(r"\bnodes[ \t=]+(\d+)")
"""Patterns for the GPUs and the machines of a spec: `hardware 8 x h100-80gb`, `nodes 2`."""
NAMED_THERE = "the first line names the model and the data"


def of_guess(unknown: UnknownName, guess: Meaning) -> Suggestion:
    """The suggestion for a name that probably means the setting `guess`. Rules then treat this setting as written."""
    if guess.path.startswith("train.") and re.fullmatch(r'"?\d+ ?(?:h|m|hours?|minutes?)"?', unknown.typed or ""):
        guess = Meaning("launch.time")  # `max_duration = 12h`
    row = schema.BY_PATH.get(guess.path)
    if row is None or row.path.startswith("train."):
        found = _no_setting(Case(unknown), guess, row)
    else:
        found = _of_setting(Guessed(unknown, guess))
    return evolve(found, intended=(guess.path,))


def _of_setting(case: Guessed) -> Suggestion:
    """The suggestion for a guessed setting. The functions in `steps` are called one after another until one returns a
    suggestion.
    """
    case = evolve(case, guess=_fitting_the_value(case))
    steps = (
        _switched_off,
        _loss_of_a_method,
        _number_of_gpus,
        _flag_with_a_flag,
        _other_beta,
        _share_for_evaluation,
        _done_anyway,
        _kind_of_rows,
        _scaling_without_its_factor,
        _choice_without_its_number,
        _adapter_as_a_value,
        _of_another_method,
        _impossible_value,
        _no_column,
        _clause_itself,
        _in_the_clause,
        _alone,
    )
    found = first_answer(case, steps) or _with_its_value(case)
    return evolve(found, edit=None) if _changes_the_value(case) else found


def _changes_the_value(case: Guessed) -> bool:
    """Whether the setting would get another value than the user probably means, so that an edit could be wrong."""
    if case.row.path == "data.format" and re.search("[:.]", case.text):
        return True  # `type: alpaca:phi` and `bradley_terry.chat_template` name more than a format
    if case.guess.likeness < TYPO and case.text in NO and case.value == "0":
        return True  # `decay_norm = false` is not a `weight_decay` of 0
    if not case.exact and case.text in YES and case.row.alone and case.value == case.row.alone:
        return True  # `apply_to_mlp` is not `all-linear`
    implied = not case.exact and case.node is not None and bool(case.guess.value)
    return implied and case.text not in (*YES, *NO, case.guess.value)  # `cp_mode = ulysses` is not `hardware=cpu`


@record
class Guessed(Case):
    """An unknown name that probably stands for a setting."""

    guess: Meaning

    @property
    def row(self) -> Setting:
        """The row of the schema for the setting that the unknown name is guessed to mean."""
        return schema.BY_PATH[self.guess.path]

    @property
    def text(self) -> str:
        """The value in small letters, without quotes: `nf4` for `"NF4"`."""
        return self.typed.strip('"').lower()

    @cached_property
    def value(self) -> str | None:
        """The value to suggest: the user's value in xpc's notation, or the value that the name implies. None if the
        setting cannot have the user's value, or if it needs no value.
        """
        return decided_value(self.row, self.unknown, self.guess)

    @property
    def invented(self) -> bool:
        """Whether the suggested value is only an example, because neither the user nor the name states a value."""
        stated = self.guess.value or self.value in (None, *parts(self.name))
        return self.node is None and self.row.kind is not FLAG and not stated

    @property
    def kept(self) -> bool:
        """Whether the suggestion keeps the user's value."""
        return self.value is None or self.value == self.unknown.typed


def _no_setting(case: Case, guess: Meaning, row: Setting | None) -> Suggestion:
    """Handle a name that means a part of the first line (`num_epochs`), a part of a data source (`subset`), or a clause
    (`evals`).
    """
    text, length = case.typed.strip('"').lower(), "the first line has the length of the run, such as `for 3 epochs`"
    # `max_steps = -1` means no limit, so it states no length
    if row is not None and (text in NULLS or (isinstance(case.node, Number) and case.node.value <= 0)):
        return case.says(f"leave `{case.name}` out: {length}")
    if row is not None and text and not LENGTH.match(intended_value(row, case.unknown) or text):
        return case.says(length)  # `epochs = full`
    form = sentence(case.unknown, guess, row)
    if guess.path.startswith("data."):
        return case.says(f"write `{form}`{_at_a_source(case.clause)}", f"did you mean `{form}`?")
    if guess.path not in schema.CLAUSES or guess.path == "train":
        return case.suggests(form)
    form = clause_line(guess.path, case.unknown) if case.clause and case.name == guess.path else guess.path
    if form == case.name and case.node is not None:
        return case.says(settings_of(form))  # `eval = 8` in `batch`: `eval` takes no number
    return case.suggests(form, guess.path, replaces_value=False)


def of_source(case: Case) -> Suggestion:
    """The suggestion for a name that is a setting of a single source in the `data` block: `take = 1000`."""
    help = f"write `SOURCE({case.name}={case.typed or '...'})`{_at_a_source(case.clause)}"
    return Suggestion("XP102", f"`{case.name}` belongs to a source", help=help)


def _at_a_source(clause: str) -> str:
    """The end of a help that says where to write a setting of a single source. `clause` contains the unknown name."""
    return " for each source" if clause == "data" else " in the `data` block, for each source"


def _fitting_the_value(case: Guessed) -> Meaning:
    """The setting that fits the value, if the guessed setting takes another kind of value; otherwise the guess."""
    path, node, text = case.row.path, case.node, case.text
    folder = isinstance(node, String) and "/" in node.value
    template = schema.BY_PATH["model.chat_template"].choices
    a_split = "split" in words(case.name) and re.fullmatch(r"[a-z]\w*", text)
    others = (
        (case.row.kind is FLAG and "/" in case.typed, f"{path}.name"),  # `push_to_hub = "me/model"`
        (path == "save.hub.name" and text in ("true", "false"), "save.hub"),  # `push = true`
        (path in ("lora.bits", "qlora") and case.clause == "lora" and FOUR_BITS.search(text), "lora.bits"),
        (path == "track.name" and text in schema.BY_PATH["track"].choices, "track"),  # `logger_name = wandb`
        (path == "lora.bits" and FOUR_BITS.search(text), "qlora"),  # `quantize = bnb.nf4`
        (path in schema.ADAPTERS and folder, "lora.from"),  # `adapter = "out/first"`
        (path == "eval.split" and isinstance(node, Number), "data.holdout"),  # `dev_split = 0.05`
        (path.startswith("data.") and case.row.kind.name == "name" and isinstance(node, List), "data.columns"),
        (path in ("eval.data", "eval.every") and text in SPLITS, "eval.split"),  # `eval(on=test)`
        (path == "track" and case.exact and isinstance(node, Number), "track.every"),  # `log = 10`
        (path == "eval.every" and isinstance(node, String) and "." in text, "eval.data"),  # `eval(on="rows.jsonl")`
        (path == "data.holdout" and a_split, "eval.split"),  # `validation_split = "test"`
        # `chat_format = chatml`
        (path == "data.format" and not case.clause and text in template, "model.chat_template"),
        (path == "data.prompt" and isinstance(node, List), "data.columns"),  # `input_columns = [q, a]`
        (path == "data.context" and isinstance(node, Number), "batch.seq"),  # `ctx = 4096`
        # `prompt_text = "Q: {{ q }}"`
        (path in ("data.prompt", "data.format") and "{{" in text, "data.prompt_template"),
        # `system_from = role`
        (path == "data.system" and isinstance(node, Ref) and node.is_name, "data.system_column"),
    )
    found = next((other for fits, other in others if fits and other in schema.BY_PATH), "")
    value = {"save.hub": text, "qlora": "true", "lora.bits": "4"}.get(found, "")
    return Meaning(found, value, own=found != "qlora") if found else case.guess


def _loss_of_a_method(case: Guessed) -> Suggestion | None:
    """Handle a loss that only other methods have: `loss_type = dapo`."""
    methods = methods_with(case.text) if case.row.path == "method.loss" else []
    written = method_of(case.unknown.label.source.text)
    if not methods or "sft" in methods or case.clause == "method" or written in methods:
        return None
    form = f"loss={case.text}"
    return case.says(f"write `{form}`, which `method` {', '.join(methods[:3])} reads", f"did you mean `{form}`?")


def _switched_off(case: Guessed) -> Suggestion | None:
    """Handle a switch that is off, and whose name contains the value of a setting: `load_in_8bit = false`."""
    stated = case.guess.value not in ("", "!", "true", "false") and case.row.kind is not FLAG
    stated = stated or (case.row.path == "qlora" and "lora" not in words(case.name))  # `load_in_4bit = false`
    values = (None, case.guess.value, "false", *(("none",) if case.clause == "track" else ()))  # of another tracker
    off = stated and case.value in values and case.text in ("false", "no", "off", "0")
    return case.says(f"leave `{case.name[:60]}` out: it is off") if off and case.name != case.row.name else None


def _number_of_gpus(case: Guessed) -> Suggestion | None:
    """Handle a number of GPUs: `n_gpus = 8` is `hardware 8 x GPU`. If the spec names the GPU, the help does, too."""
    node, stated = case.node, HARDWARE.search(case.unknown.label.source.text)
    counted = node is None or isinstance(node, Number) or case.text in YES
    if case.row.path != "hardware" or case.guess.value == "cpu" or not counted:
        return None
    if isinstance(node, Number) and len(case.text) > 2:  # `gpu = 3090`
        return case.says(hardware_help(case.text))
    count = node.value if isinstance(node, Number) and isinstance(node.value, int) and node.value > 0 else "N"
    nodes = NODES.search(case.unknown.label.source.text)
    if stated is not None and count in (int(stated["count"]), int(stated["count"]) * int(nodes[1] if nodes else 1)):
        return case.says(f"leave `{case.name}` out: `hardware` and `nodes` state it")
    gpu = "GPU" if stated is None else stated["gpu"]
    form = f"hardware{'=' if case.unknown.header else ' '}{count} x {gpu}"
    if stated is not None:
        return case.says(f"write `{form}`: `hardware` has the number of GPUs in a node")
    return case.says(f"write `{form}`, {YOUR_GPU}")


def _flag_with_a_flag(case: Guessed) -> Suggestion | None:
    """Handle another tool's name for a flag, if the value is the name of a setting in the flag's block. For example,
    `activation_checkpointing = selective` names the flag `checkpointing`, which has a setting `selective`.
    """
    row, node = case.row, case.node
    inner = isinstance(node, Ref) and row.kind is FLAG and f"{row.path}.{node.name}" in schema.BY_PATH
    if inner and case.unknown.label.source.text[case.unknown.label.span.end :][:9].lstrip(" \t")[:1] == "=":
        form = case.text if row.path == case.clause else f"{row.name}({case.text})"
        return case.suggests(form, form, bool(case.clause))
    return case.suggests(row.name, row.name, bool(case.clause), replaces_value=False) if inner else None


def _other_beta(case: Guessed) -> Suggestion | None:
    """Handle `beta2 = 0.95` next to a `beta1`: suggest to leave it out, because the suggestion for `beta1` contains
    both betas.
    """
    spec = case.unknown.label.source.text
    listed = re.search(r"(?<![\w.])betas[ \t]*=[ \t]*(\[[\d., ]+\])", spec)  # the spec states both as a list, too
    stated = listed is not None or ("2" in case.name and other_beta(False, spec))
    if case.row.path != "optimizer.betas" or not case.value or not stated:
        return None
    both = listed[1] if listed is not None and case.typed in listed[1] else case.value
    return case.says(f"leave `{case.name}` out: `betas = {both}` sets both", "did you mean `betas`?")


def _share_for_evaluation(case: Guessed) -> Suggestion | None:
    """Handle a share for evaluation, which may be a share of the rows or of the run: `validation = 5%`."""
    if case.row.path != "eval.every" or words(case.name) != ("eval",) or not {"%", "."} & set(case.typed):
        return None
    share = case.value or example(case.row)
    return case.says(f"write `holdout={share}` for a share of the rows, or `eval(every={share})` for how often")


def _done_anyway(case: Guessed) -> Suggestion | None:
    """Handle a value that need not be written, because xpc always behaves so: `resume_from_checkpoint = auto`."""
    value = case.value or "" if case.node is not None else "auto"
    advised = ALREADY.get((case.row.path, value))
    return None if advised is None else case.says(advised)


def _kind_of_rows(case: Guessed) -> Suggestion | None:
    """Handle `train_on_inputs = false`, which means `assistant_only` if the rows are conversations, and
    `completion_only` if they are prompts with completions. The rows are not read yet, so both settings are suggested.
    """
    row, on = case.row, (case.value or "true") == "true"
    if row.path != "method.completion_only" or not on or case.name in (row.name, *row.args):
        return None
    conversations = "`assistant_only` for rows of conversations"
    return case.says(f"write {conversations}, or `completion_only` for a prompt and its completion")


def _impossible_value(case: Guessed) -> Suggestion | None:
    """Handle a value that the setting cannot have: `learning_rate = fast`. It may name the model or the data."""
    if case.value is not None or case.node is None or case.row.kind is BLOCK:
        return None
    elsewhere = case.row.path.partition(".")[0] != case.clause.partition(".")[0]
    if not case.exact and elsewhere and (case.clause or case.guess.likeness < TYPO):
        return first_line(case) or case.says(settings_of(case.clause))  # two reasons against the guess
    return first_line(case) or wrong_value(case.row, case.unknown, case.message)


def first_line(case: Case) -> Suggestion | None:
    """Handle a name whose value is a model or a dataset, which belong in the first line: `base = "me/model"`."""
    folder = output_folder(case.unknown)
    if folder is not None:
        return case.says(f"write `{folder}`")
    form = named_by_value(case.unknown)
    return None if form is None else case.says(f"write `{form}`: {NAMED_THERE}")


def _no_column(case: Guessed) -> Suggestion | None:
    """Handle a dataset that is written where the name of a column belongs: `prompt_data = org/name`. Also handle the
    name of one column of several: `answer_column = reply`.
    """
    columns = columns_of(case.unknown) if case.row.path == "data.columns" and case.node is not None else None
    if columns is not None and "," in columns:
        return case.says(f"write `{typed(case.row, columns)}`: {IN_ORDER}")
    return first_line(case) if "/" in case.text and case.row.kind.name == "name" else None


def _scaling_without_its_factor(case: Guessed) -> Suggestion | None:
    """Handle another tool's name for `rope` with a kind of scaling, but without the factor: `rope_scaling = yarn`."""
    bare = case.row.path == "model.rope" and case.text in case.row.choices and len(case.name) > 5
    return case.says(f"write `rope={case.text}(factor=4)`, with your factor") if bare else None


def _choice_without_its_number(case: Guessed) -> Suggestion | None:
    """Handle a choice whose name mentions a number that is missing: `optim = sgd_momentum`."""
    head = case.row.head and case.node is not None and case.value in case.row.choices
    number = open_setting(case.row, case.text, case.value or "", case.unknown.label.source.text) if head else ""
    return case.says(f"write `{case.row.name} {case.value}({number}=...)`") if number else None


def _adapter_as_a_value(case: Guessed) -> Suggestion | None:
    """Handle the name of an adapter as a value: `peft = lora` is `lora`."""
    name = case.typed.strip('"')
    if case.row.path in schema.ADAPTERS and case.value == "true" and name in schema.ADAPTERS:
        already = case.says(f"leave `{case.name}` out: `{name}` states it")
        return already if name == case.clause else case.suggests(name, name)
    if case.clause or case.row.path not in schema.ADAPTERS or not name:
        return None
    # the adapter may be a switch of `lora`, as in `adapter = dora`
    kind = meaning(name, exact=True) if case.value is None else None
    row = None if kind is None else schema.BY_PATH.get(kind.path)
    if kind is None or row is None or not row.path.startswith("lora.") or not (row.kind is FLAG or kind.value):
        return None
    form = typed(row, kind.value or None)
    return case.suggests(form, form)


def _clause_itself(case: Guessed) -> Suggestion | None:
    """Handle a clause's own value, written as a setting: `output_dir = "out/x"` in `save` is `save "out/x"`."""
    own = case.guess.path == case.clause
    if own and case.row.kind is FLAG and case.value == "true":
        return case.says(f"leave `{case.name}` out: `{case.clause}` alone turns it on")
    value = case.value or example(case.row)
    form = f"{case.row.name}{' = ' if value.startswith('[') else ' '}{value}"
    return case.suggests(form, inside=True) if own else None


def _of_another_method(case: Guessed) -> Suggestion | None:
    """Handle a setting that the spec's method does not read: `num_generations = 8` with `method sft`."""
    row, method = case.row, method_of(case.unknown.label.source.text)
    head = head_word(case.unknown, "launch") if case.clause == "launch" else method
    readers = row.methods or row.engines
    prefix = words(case.name)[0]
    others = METHODS.keys() - {method, "reward", "sft"} if method and not case.clause else ()
    if prefix in others and row.path.startswith("method."):  # `orpo_alpha` in a spec of grpo
        return case.says(f"leave `{case.name}` out: it is a setting of {prefix}, and the method is {method}")
    if not readers or head in readers or row.path.startswith("method.rewards"):
        return None
    form = typed(row, case.value)
    if case.clause in ("method", "launch") and head:
        return case.says(f"`{row.name}` is a setting of {', '.join(readers)}: `{case.clause} {head}` does not read it")
    if case.clause or not row.methods or "sft" in row.methods:
        return None
    # a name with `kl`, such as `kl_loss_coef`, is meant for the methods of reinforcement learning
    methods = [one for one in row.methods if one in ONLINE] if "kl" in words(case.name) else row.methods[:3]
    return case.says(f"write `{form}`, which `method` {', '.join(methods)} reads", f"did you mean `{form}`?")


def _in_the_clause(case: Guessed) -> Suggestion | None:
    """Handle a setting of the clause that contains the name: `evry = 100` in `save` is `every`."""
    if not case.clause or not is_in(case.guess.path, case.clause):
        return None
    tracker = {parts(case.name)[0]} & {*schema.BY_PATH["track"].choices} if case.clause == "track" else ()
    if tracker and not head_word(case.unknown, "track"):  # `wandb_project` in `track` without a tracker
        return case.says(f"write `track {tracker.pop()}({case.row.name}={case.value})`")
    form = case.row.name if case.kept else f"{case.row.name} = {case.value}"
    return case.suggests(form, None if case.invented else form, True, not case.kept)


def _alone(case: Guessed) -> Suggestion | None:
    """Handle a name that is replaced while its value stays: `gradient_accumulation = 8` becomes `accum = 8`."""
    row = case.row
    if case.clause or row.inner or case.guess.value:
        return None
    stands = row.head or row.kind in (FLAG, BLOCK) or bool(row.alone)
    alone = stands if case.node is None else case.kept and row.kind is not FLAG
    return case.suggests(row.name, row.name, replaces_value=False) if alone else None


def _with_its_value(case: Guessed) -> Suggestion:
    """Suggest the setting with its value: `warmup_ratio = 0.1` is `schedule(warmup=10%)`. If neither the user nor the
    name states a value, the suggestion shows an example value, but an editor does not insert it.
    """
    row, value, guess = case.row, case.value, case.guess
    alone = value if value == guess.value and row.bare and value in schema.bare_choices() else None
    form = alone or typed(row, value)
    form = form if case.clause else with_tracker(form, case.unknown)
    nested = bool(case.clause) and row.path.startswith(f"{case.clause}.")
    return case.suggests(form, None if case.invented else form, nested)
