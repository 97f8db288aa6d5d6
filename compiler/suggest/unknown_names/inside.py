"""Suggest what to write for an unknown name in a clause, such as `evry` in `save { evry = 100 }`."""

from __future__ import annotations

import re
from functools import cached_property

from xpc.compiler.language import schema
from xpc.compiler.language.advisor import Suggestion, UnknownName
from xpc.compiler.language.kinds import FLAG
from xpc.compiler.language.schema import Setting
from xpc.compiler.suggest.components import HEADS, head_word
from xpc.compiler.suggest.converted_values import NO, YES
from xpc.compiler.suggest.extra_form import extra_suggestion
from xpc.compiler.suggest.flag_values import AROUND, KINDS, flag_setting, head_choice, reward, setting_of_choice
from xpc.compiler.suggest.known_names import NEVER_LEGAL, known_choice
from xpc.compiler.suggest.likeness import parts
from xpc.compiler.suggest.meaning import SAME, Meaning, meaning
from xpc.compiler.suggest.no_equivalent import advice, own_reason, without_equivalent
from xpc.compiler.suggest.registry_names import either
from xpc.compiler.suggest.sentence import named_outside
from xpc.compiler.suggest.similar_choices import choice
from xpc.compiler.suggest.tables import mapped, words_of
from xpc.compiler.suggest.typed_form import by_word_or_value, clause_line, intended_value, typed, written
from xpc.compiler.suggest.unknown_names.case import Case, first_answer, is_in, settings_of
from xpc.compiler.suggest.unknown_names.data_names import data_advice
from xpc.compiler.suggest.unknown_names.outside import choice_with_a_value, first_line_again, split_in_parts
from xpc.compiler.suggest.unknown_names.search import search
from xpc.compiler.suggest.unknown_names.setting import NAMED_THERE, of_guess, of_source
from xpc.compiler.suggest.unknown_names.similar_phrases import by_its_words
from xpc.compiler.suggest.unknown_names.wrong_value import wrong_value
from xpc.grammar.record import evolve, record
from xpc.grammar.tree import Ref


def inside(unknown: UnknownName) -> Suggestion:
    """The suggestion for a name in a clause. The functions in `steps` are called one after another until one returns a
    suggestion.
    """
    steps = (
        first_line_again,
        split_in_parts,
        _word_for_true,
        _about_data,
        _option_of_the_job,
        _name_of_the_model,
        _with_capital_letters,
        _switch_of_the_block,
        _block_of_settings,
        _choice_of_the_clause,
        _choice_without_its_setting,
        _by_word_or_value,
        _with_the_clause_before,
        _setting_of_a_source,
        _known_only_with_the_clause,
        _flag_as_a_value,
        _too_general,
        _legal_nowhere,
        _own_by_another_name,
        _argument_of_the_trainer,
        _clause_in_a_clause,
        _choice_of_another_clause,
        _impossible_value,
    )
    case = Inside(unknown)
    found = first_answer(case, steps) or _of_another_clause(case)
    rest = "_".join(parts(case.name[:80])[1:])  # `lora_lr` in `lora`, which takes no number, is `lr`
    headed = len(rest) > 1 and rest not in YES and parts(case.name)[0] in (case.block, *schema.ADAPTERS)
    refused = found.refusing == case.clause or {found.refusing, case.clause} <= {*schema.ADAPTERS}
    only_similar = rest in schema.outer_names() and meaning(case.name, case.clause, exact=True) is None
    if headed and (refused or only_similar):
        found = evolve(inside(evolve(unknown, name=rest)), message=case.message)
    elif refused:
        found = case.says(settings_of(case.clause))
    elsewhere = found.refusing and not is_in(found.refusing, case.clause)
    return (by_its_words(case) if elsewhere else None) or found


@record
class Inside(Case):
    """An unknown name in a clause, and the settings that it may stand for, in this clause and in other clauses."""

    @property
    def block(self) -> str:
        """The last part of the clause: `hub` for `save.hub`."""
        return self.clause.rpartition(".")[2]

    @cached_property
    def joined(self) -> Meaning | None:
        """The setting for the unknown name together with the clause's name. For example, `limit` in `save` becomes
        `save_limit`, and so it does not mean the `limit` of a data source.
        """
        found = meaning(f"{self.block} {self.name}", exact=True)
        if found is None or found.likeness == 1.0:
            return found
        # `lr_warmup` in `schedule` is `warmup`, and not `warmup_lr`
        alone = meaning(self.name, self.clause, exact=True)
        return alone if alone is not None and alone.likeness == 1.0 and is_in(alone.path, self.clause) else found

    @cached_property
    def rows(self) -> list[Setting]:
        """The rows of the schema's table with the same name in other clauses: `optimizer.lr` for `lr` in `schedule`."""
        return [row for row in schema.TABLE if row.name == self.name and row.path not in NEVER_LEGAL]


def _word_for_true(case: Inside) -> Suggestion | None:
    """Handle a word that turns the switch before it on or off: `lora True`, `freeze no`. A switch needs no value."""
    row = schema.BY_PATH.get(case.clause)
    switch = row is not None and row.kind is FLAG and case.node is None
    name = case.name.lower()
    if not switch or name not in (*YES, *NO) or name.isdecimal() or len(name) < 2:
        return None
    if name in NO:
        return case.says(f"leave `{case.block}` out, which turns it off")
    found = case.says(f"leave `{case.name}` out: `{case.block}` alone turns it on")
    after = case.unknown.label.source.text[case.unknown.label.span.end :].lstrip(" \t")
    return found if after[:1] == "," else evolve(found, edit="")


def _about_data(case: Inside) -> Suggestion | None:
    """Handle another tool's key for a column or a source: `chosen = good` in `data`."""
    instead = data_advice(case.unknown) if case.clause == "data" else None
    return None if instead is None else case.says(instead)


def _option_of_the_job(case: Inside) -> Suggestion | None:
    """Handle an option of the program that starts the job: `open_mode = append` in `launch slurm`."""
    option, value = case.name.replace("_", "-").lower(), case.typed.strip('"')
    if case.clause != "launch" or option not in mapped("job_options") or value in NO:
        return None
    if mapped("job_options")[option] != head_word(case.unknown, "launch"):
        return None
    form = f"--{option}" if value in ("", *YES) else f"--{option}={value}"
    return case.says(f'write `extra_args = ["{form}"]`: an option of the program that starts the job')


def _name_of_the_model(case: Inside) -> Suggestion | None:
    """Handle the name of the model in a block about it: `path = "me/model"` in `model`."""
    form = named_outside(case.unknown, case.clause)
    return None if form is None else case.says(form, code="XP102")


def _with_capital_letters(case: Inside) -> Suggestion | None:
    """Handle a setting of the clause that is written with capital letters: `LR` in `optimizer` is `lr`."""
    path = f"{case.clause}.{case.name.lower()}"
    known = path in schema.BY_PATH and path not in NEVER_LEGAL
    return of_guess(case.unknown, Meaning(path, own=True)) if known else None


def _switch_of_the_block(case: Inside) -> Suggestion | None:
    """Handle a switch that turns its block on or off: `enabled = true` in `fp16 { ... }`."""
    known = meaning(f"{case.block} {case.name}", exact=True)
    if case.name.lower() not in ("enabled", "enable") or (known is not None and known.path != case.clause):
        return None
    typed = case.typed.strip('"').lower()
    if typed == "auto":
        return case.says("leave the block out: xpc then chooses")
    text, at = case.unknown.label.source.text, case.unknown.label.span.start
    bf16 = re.search(r"\bbf16[ \t]*[({][^(){}]*$", text[max(0, at - 200) : at])  # without it, bf16 is the default
    off = "write `fp32` instead of the block" if bf16 else "leave the block out, which turns it off"
    return case.says(off if typed in NO else f"leave `{case.name}` out: the block turns it on")


def _block_of_settings(case: Inside) -> Suggestion | None:
    """Handle another tool's block for the settings of a clause: `params { lr = 1e-5 }` in `optimizer`."""
    block = re.compile(r"[ \t]*[({]([^(){}]*)").match(case.unknown.label.source.text, case.unknown.label.span.end)
    if case.node is not None or block is None or {*parts(case.name)} - words_of("setting_blocks"):
        return None
    return case.says(f"write `{' '.join(block[1].split())[:60]}` in `{case.clause}` itself, without `{case.name}`")


def _choice_of_the_clause(case: Inside) -> Suggestion | None:
    """Handle the clause's choice as a setting: `name = adamw` in `optimizer` is `optimizer adamw`."""
    if case.joined is not None and is_in(case.joined.path, case.clause) and case.joined.likeness == 1.0:
        return None  # `shape = linear` in `schedule wsd` means `decay_type`, and not the schedule `linear`
    exact = meaning(case.name, case.clause, exact=True)
    own = exact is not None and exact.path == case.clause
    if not own and not {row.name for row in schema.children(case.clause)}.isdisjoint(parts(case.name)):
        return None  # `warmup_style = linear` in `schedule cosine` is about the warm-up
    chosen = head_choice(case.clause, case.name, case.node, case.unknown.typed)
    row = schema.BY_PATH.get(case.clause)
    guess = meaning(case.name, case.clause) if chosen is None and case.node is None and row is not None else None
    if row is not None and guess is not None and guess.path == case.clause:
        chosen = choice(row, case.name)  # `adamw8` in `optimizer` is `optimizer adamw8bit`
    if chosen is not None and chosen == head_word(case.unknown, case.clause):
        return case.says(f"leave `{case.name[:60]}` out: `{case.clause} {chosen}` states it", code="XP102")
    if row is not None and chosen is None and case.name in KINDS and case.clause in HEADS and case.typed:
        text = AROUND.sub("", case.typed.strip('"'))  # `name = torch.optim.lr_scheduler.ExponentialLR`
        node = case.node and Ref(case.node.span, text)
        return wrong_value(row, evolve(case.unknown, name=case.clause, node=node, typed=text), case.message)
    if chosen is None and case.name in KINDS and case.clause in schema.ADAPTERS:  # `kind = ia3` in `lora`
        return without_equivalent(case.message, case.typed.strip('"'), loosely=False)
    return None if chosen is None else case.says(f"write `{case.clause} {chosen}`", code="XP102")


def _choice_without_its_setting(case: Inside) -> Suggestion | None:
    """Handle a choice that stands alone: `colocate` in `vllm` is `mode = colocate`."""
    switch = case.unknown.typed in (None, "true")
    alone = setting_of_choice(_settings_read(case.unknown, case.clause), case.name) if switch else None
    before = case.unknown.label.source.text[: case.unknown.label.span.start].rstrip("( \t")
    stated = case.typed == "true" or re.search(r"(?:\n|\bwith )[ \t]*reward$", before)
    if case.clause == "method" and stated and (known := reward(case.name)) is not None:  # `reward accuracy`
        return case.says(f"write `rewards = [{known}]`, which `method` grpo, rloo reads")
    return None if alone is None else case.suggests(alone, alone, True, case.node is not None)


def _by_word_or_value(case: Inside) -> Suggestion | None:
    """Handle a word that only one setting of the clause contains, if it accepts the value: `gpu = 50%` in `vllm` is
    `gpu_memory`.
    """
    part = by_word_or_value(case.unknown, case.clause)
    joined = case.joined  # `modules` in `lora` is another tool's name for `targets`
    own = joined is not None and joined.likeness == 1.0 and is_in(joined.path, case.clause)
    return None if part is None else of_guess(case.unknown, joined if own and joined is not None else part)


def _with_the_clause_before(case: Inside) -> Suggestion | None:
    """Handle a name that becomes known if the name of the clause, or the clause's choice, is put before it: `tp_size`
    in `vllm` is `vllm_tp_size`, and `alpha` in `method cpo` is `cpo_alpha`.
    """
    reason = own_reason(f"{case.block} {case.name}")
    if reason is None and any(case.typed in row.choices for row in case.rows):
        return _of_another_clause(case)  # `mode = colocate` in `optimizer adamw` is not the argument `adam_w_mode`
    if case.name.startswith(f"{case.clause}_") and (found := without_equivalent(case.message, case.name, False)):
        return found  # `eval_iters` in `eval`
    head = head_word(case.unknown, case.clause)
    answers = (_with_word_before(case, word, word == head) for word in (head, case.block) if word)
    return next((found for found in answers if found is not None), None)


def _with_word_before(case: Inside, word: str, is_head: bool) -> Suggestion | None:
    """The suggestion for a name that means a setting of the clause if `word` is put before it: `cpo` before `alpha`."""
    joined = f"{word} {case.name}"
    if (advised := advice(f"{joined} {case.typed}", "") or advice(joined, case.typed)) is not None:
        return case.says(advised)
    guess = meaning(joined, exact=True) if is_head else case.joined
    plain = meaning(case.name, case.clause, exact=True)
    if own_reason(joined) is not None and plain is not None and plain.likeness < 1.0:
        return without_equivalent(case.message, joined, loosely=False)  # `iters` in `eval` is no synonym of `every`
    surely = plain is not None and is_in(plain.path, case.clause) and (is_head or plain.likeness == 1.0)
    if surely and plain is not None and guess and guess.likeness < 1.0:
        # `learning_rate` in `optimizer adamw` stands for `lr`, and not for `adamw_lr`, a setting of muon
        return of_guess(case.unknown, plain)
    clause = case.name in schema.CLAUSES and (case.node is None or case.name in schema.BY_PATH)
    is_clause = clause and "." not in case.clause  # `packing(method=bfd)` does not mean a training method
    if guess is not None and is_in(guess.path, case.clause) and not is_clause:
        return of_guess(case.unknown, guess)
    return without_equivalent(case.message, joined, loosely=guess is None and case.clause == "eval" and not case.rows)


def _setting_of_a_source(case: Inside) -> Suggestion | None:
    """Handle a setting that belongs to a single data source (`take = 1000`), but is written in the `data` block
    itself.
    """
    name, joined = case.name, case.joined
    if name not in schema.SOURCE_SETTINGS or (case.clause != "data" and f"data.{name}" in schema.BY_PATH):
        return None
    return of_guess(case.unknown, joined) if joined and is_in(joined.path, case.clause) else of_source(case)


def _known_only_with_the_clause(case: Inside) -> Suggestion | None:
    """Handle a name that xpc knows only together with the name of the clause: `size` in `eval` is `eval_size`, and
    `delay` in `eval` is the argument `eval_delay`.
    """
    if case.rows or "." in case.name:
        return None
    refused = without_equivalent(case.message, f"{case.clause} {case.name}")
    joined = case.joined if refused is None else None
    if joined is not None and not is_in(joined.path, case.clause) and meaning(case.name, exact=True) is not None:
        joined = None  # drop the guess: `batch_size` in `optimizer` is a setting of another clause
    if joined is not None and joined.path in schema.BY_PATH:
        return of_guess(case.unknown, joined)
    if refused is not None or case.name in schema.CLAUSES:
        return refused
    return extra_suggestion(evolve(case.unknown, name=f"{case.block}_{case.name}"), case.message)


def _flag_as_a_value(case: Inside) -> Suggestion | None:
    """Handle a flag of the clause as the value of another name: `variant = dora` in `lora` is `dora`."""
    row = schema.BY_PATH.get(f"{case.clause}.{case.typed}")
    if row is None or row.kind is not FLAG or any(intended_value(one, case.unknown) for one in case.rows):
        return None
    exact = None if case.rows else meaning(case.name, case.clause, exact=True)
    known = None if exact is None else schema.BY_PATH.get(exact.path)
    if exact is not None and (known is None or intended_value(known, case.unknown) is not None):
        return None
    return case.suggests(row.name, row.name, True)


def _too_general(case: Inside) -> Suggestion | None:
    """Handle a name that could mean anything: `type` in `save`. Its value may show the setting: `stop =
    first_exhausted` in `data` is `exhausted`.
    """
    if case.name in words_of("general") and case.name not in schema.CLAUSES and isinstance(case.node, Ref):
        value = case.node.name
        rows = [row for row in schema.children(case.clause) if row.choices and known_choice(row, value) is not None]
        if len(rows) == 1 and len(parts(value)) > 1:
            return of_guess(case.unknown, Meaning(rows[0].path, own=True))
    general = case.name in words_of("general") and case.name not in schema.CLAUSES
    own = general and meaning(case.name, case.clause, exact=True) is not None
    return case.says(settings_of(case.clause)) if general and not own else None


def _legal_nowhere(case: Inside) -> Suggestion | None:
    """Handle a name that is not a setting, choice or clause of xpc: `evry` in `save`."""
    legal = case.rows or case.name in schema.bare_choices() or case.name in schema.CLAUSES
    return None if legal else search(case.unknown)


def _own_by_another_name(case: Inside) -> Suggestion | None:
    """Handle a setting of this clause that is written with another tool's name, or in the singular: `block_size` in
    `batch`.
    """
    guess = meaning(case.name, case.clause)
    if guess is None or not is_in(guess.path, case.clause):
        return None
    plural = guess.path == f"{case.clause}.{case.name}s"
    return search(case.unknown) if plural or guess.likeness >= SAME else None


def _argument_of_the_trainer(case: Inside) -> Suggestion | None:
    """Handle the name of a trainer's argument that a nested block also has as a setting: `max_length` in `method grpo`
    means `seq`, and not the `max_length` of vLLM.
    """
    exact = meaning(case.name, exact=True)
    deep = bool(case.rows) and all(row.inner and row.path.count(".") > 1 for row in case.rows)
    trainers = deep and exact is not None and exact.path not in [row.path for row in case.rows]
    return of_guess(case.unknown, exact) if trainers and exact is not None else None


def _clause_in_a_clause(case: Inside) -> Suggestion | None:
    """Handle a clause inside another clause: `save = 5` in `eval`."""
    if case.name not in schema.CLAUSES:
        return None
    if case.name == "data" and case.node is not None:
        return case.says(f"write `train MODEL on {case.typed}`: {NAMED_THERE}", code="XP102")
    row, line = schema.BY_PATH.get(case.name), clause_line(case.name, case.unknown)
    text = case.typed.strip('"').lower()
    if row is not None and row.kind is FLAG and text in NO:
        return case.says(f"leave `{case.name}` out: it is off")
    if row is not None and row.kind is FLAG and case.node is not None and text not in YES:
        line = flag_setting(row, case.node, text) or ""
    valued = row is not None and case.node is not None and not (row.kind is FLAG and line) and "(every=" not in line
    if row is not None and valued and intended_value(row, case.unknown) is None:
        return evolve(wrong_value(row, case.unknown, case.message), code="XP102")  # `method = rslora` in `lora`
    return case.says(f"write `{line}` on a line of its own, outside of `{case.clause}`", code="XP102")


def _choice_of_another_clause(case: Inside) -> Suggestion | None:
    """Handle a choice of another clause: `bf16` in `optimizer` belongs to `precision`."""
    path = schema.bare_choices().get(case.name)
    if path is None:
        return None
    kept = None if case.typed.strip('"').lower() in ("", *YES) else choice_with_a_value(Case(case.unknown))
    if kept is not None:
        return case.says(kept.help, code=kept.code)
    home = path.partition(".")[0]
    return case.says(f"it belongs to `{home}`: write `{case.name}` outside of `{case.clause}`", code="XP102")


def _impossible_value(case: Inside) -> Suggestion | None:
    """Handle a value that the only setting of this name cannot have: `rank = many` in `optimizer`."""
    row = case.rows[0]
    if len(case.rows) > 1 or case.node is None or intended_value(row, case.unknown) is not None:
        return None
    found = of_guess(case.unknown, Meaning(row.path, own=True))  # `context = 4096` in `model` is `seq`
    if (found.help.startswith("write `") and not found.refusing) or found.refusing not in ("", row.path):
        return found
    owners = [one for one in schema.TABLE if case.typed in one.choices and not one.head]
    if len(owners) == 1:  # `chat = chatml` in `method`
        return case.says(f"write `{typed(owners[0], case.typed)}` outside of `{case.clause}`")
    if row.choices:
        return case.says(settings_of(case.clause))  # `level = debug` in `track`
    return evolve(wrong_value(row, case.unknown, case.message), code="XP102")


def _of_another_clause(case: Inside) -> Suggestion:
    """Handle a setting of other clauses: `lr = 1e-5` in `schedule` belongs to `optimizer`."""
    forms = [written(row, case.unknown) for row in case.rows]
    alone, first = len(forms) == 1, case.rows[0].path
    if alone and first.startswith(f"{case.clause}."):  # `private` in `save` belongs to `save.hub`
        return case.says(f"write {either(forms)}", code="XP102")
    where = f"it belongs to `{first.partition('.')[0]}`: " if alone else ""
    found = case.says(f"{where}write {either(forms)} outside of `{case.clause}`", code="XP102")
    return evolve(found, intended=(first,) if alone else ())


def _settings_read(unknown: UnknownName, clause: str) -> list[Setting]:
    """The settings of a clause that the spec's method or launch engine reads. For `launch k8s`, for example,
    `partition` is not among them.
    """
    head = head_word(unknown, clause)
    rows = [row for row in schema.children(clause) if row.path not in NEVER_LEGAL]
    return [row for row in rows if not head or all(head in one for one in (row.methods, row.engines) if one)]
