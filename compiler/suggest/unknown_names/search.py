"""Suggest what to write for an unknown name if the steps of inside.py and outside.py gave no answer. The suggestion is
the setting that the name probably stands for, or an argument for `extra`. If the name has no equivalent, the suggestion
is to leave it out.
"""

from __future__ import annotations

import re

from xpc.compiler import stacks
from xpc.compiler.language import schema
from xpc.compiler.language.advisor import Suggestion, UnknownName
from xpc.compiler.language.kinds import FLAG
from xpc.compiler.suggest.components import HEADS, by_last_part
from xpc.compiler.suggest.converted_values import YES, methods_with
from xpc.compiler.suggest.extra_form import extra_suggestion
from xpc.compiler.suggest.known_names import known_choice
from xpc.compiler.suggest.likeness import parts
from xpc.compiler.suggest.meaning import Meaning, is_known, meaning, nearest_other_name
from xpc.compiler.suggest.no_equivalent import NO_EQUIVALENT, advice, excluded, own_reason, without_equivalent
from xpc.compiler.suggest.registry_names import either
from xpc.compiler.suggest.sentence import output_folder
from xpc.compiler.suggest.tables import mapped, words_of
from xpc.compiler.suggest.typed_form import intended_value, near_settings, typed
from xpc.compiler.suggest.unknown_names.case import REFERENCE, Case, denied, first_answer, is_in, settings_of
from xpc.compiler.suggest.unknown_names.data_names import IN_ORDER, columns_of
from xpc.compiler.suggest.unknown_names.dotted import is_unclear_path, key_of_a_component, key_of_evaluation, of_the_run
from xpc.compiler.suggest.unknown_names.guess import NEAR, TYPO, best_guess
from xpc.compiler.suggest.unknown_names.setting import first_line, of_guess
from xpc.compiler.suggest.unknown_names.similar_phrases import by_its_words
from xpc.grammar.record import evolve
from xpc.grammar.tree import Ref

NOUNS = ("model.attn", "optimizer", "schedule", "strategy", "precision", "track", "model.dtype", "method")
"""Settings whose choice may stand before the name of the setting: `use_sdpa_attention` means the choice `sdpa` of
`attn`.
"""
PLUGIN = re.compile(r"(?:\w+\.)+(\w+)Plugin\b")
"""A pattern for the class of a plugin, such as `axolotl.integrations.liger.LigerPlugin`."""
VARIABLE = re.compile(
    r"(?:torch_)?nccl_|gloo_|cublas_|omp_|mkl_|ucx_|fi_|ofi_|nvte_|pytorch_cuda_|tokenizers_|torchinductor_|cuda_launch_|"
    r"cuda_device_|hf_hub_|hf_home|xla_",
    re.IGNORECASE,
)
"""A pattern for the beginning of an environment variable that a library reads."""
FILES = ("fsdp_", "zero_", "stage3_")
"""Beginnings of keys that exist only in the configuration files of accelerate and DeepSpeed."""


def search(unknown: UnknownName) -> Suggestion:
    """The suggestion for an unknown name. Several functions are called one after another until one returns a
    suggestion. The functions in `by_name` use only the name and its value; those after them also use the
    guessed setting.
    """
    by_name = (_target, _capital_letters, _base_file, _plugin, _with_advice, _choice_with_noun, _refused_value)
    found = first_answer(Case(unknown), by_name)
    if found is not None:
        return found
    guess = best_guess(unknown)
    near = near_settings(unknown, unknown.clause) if guess is None or guess.likeness < NEAR else []
    if len(near) > 1:
        return _one_of(unknown, near)
    case = Case(unknown, near[0] if near else guess)
    parts_of_paths = (key_of_a_component, key_of_evaluation, _last_part)
    after_the_guess = (
        _refused_word,
        _of_a_library,
        _environment_variable,
        *parts_of_paths,
        _clause_of_the_value,
        _model_or_data,
    )
    return first_answer(case, after_the_guess) or _by_guess(_without_general_guess(case))


def _by_guess(case: Case) -> Suggestion:
    """The last step of the search: suggest the setting that the name resembles, or say that nothing resembles it."""
    steps = (
        _negated,
        _clause_of_the_value,
        _without_loose_word,
        _misspelt_other_name,
        _loss_of_a_method,
        _with_its_choice,
        _guessed_setting,
    )
    return first_answer(case, steps) or _nothing_near(case)


def _target(case: Case) -> Suggestion | None:
    """Handle the name of a stack outside of clauses: `trl-0.24` is `target=trl-0.24`."""
    if case.clause or case.name not in stacks.names():
        return None
    form = f"target={case.name}"
    return Suggestion("XP101", f"`{case.name}` is a target", help=f"write `{form}`", edit=form)


def _capital_letters(case: Case) -> Suggestion | None:
    """Handle a legal name that is written with capital letters: `BF16` is `bf16`."""
    lower = case.name.lower()
    legal = [*(one for one in schema.CLAUSES if one != "train"), *schema.outer_names(), *schema.bare_choices()]
    if case.clause or lower == case.name or lower not in legal:
        return None
    return case.suggests(lower, lower, replaces_value=False)


def _base_file(case: Case) -> Suggestion | None:
    """Handle another tool's word for `extends`: `import "base.xp"`, `include "base.xp"`."""
    base = not case.clause and case.typed.endswith('.xp"')
    return case.says(f"write `extends {case.typed}`, above the sentence and all clauses") if base else None


def _plugin(case: Case) -> Suggestion | None:
    """Handle Python classes of plugins, each of which is a switch of xpc or has no equivalent:
    `plugins = [axolotl.integrations.liger.LigerPlugin]` is `liger`.
    """
    forms: list[str] = []
    helps: list[str] = []
    for name in PLUGIN.findall(case.typed):
        guess = meaning(name, exact=True)
        row = schema.BY_PATH.get(guess.path) if guess is not None else None
        advised = advice(name, "") or (without_equivalent("", name) or case.says("")).help
        if row is not None and row.kind is FLAG:
            forms.append(row.name)
        helps.append(f"write `{row.name}`" if row is not None and row.kind is FLAG else advised)
    if not helps or "" in helps:
        return None
    return case.suggests(forms[0], forms[0]) if len(helps) == len(forms) == 1 else case.says("; ".join(helps))


def _with_advice(case: Case) -> Suggestion | None:
    """Handle a name that has an entry in the tables of advice, alone or together with its value:
    `offload_optimizer_device = nvme`.
    """
    parents = case.name.split(".")
    for at in range(max(1, len(parents) - 1)):  # `reward_model.overlong_buffer.len`
        name = ".".join(parents[at:])
        named = f"{name} {case.typed}"
        advised = advice(named, "") or (advice(name, case.typed) if own_reason(named) is None else None)
        if advised is not None:
            return case.says(advised)
    return None


def _refused_value(case: Case) -> Suggestion | None:
    """Handle a name with a value for which xpc has no equivalent: `algorithm = ppo`."""
    named = f"{case.name} {case.typed}"
    return without_equivalent(case.message, named, loosely=False) if case.typed else None


def _one_of(unknown: UnknownName, near: list[Meaning]) -> Suggestion:
    """Suggest several settings that one typing mistake explains: `bata` may be `data` or `batch`."""
    names = [one.value or one.path.rpartition(".")[2] for one in near]
    found = Case(unknown).says(f"write {either(names)}")
    return evolve(found, intended=tuple(one.path for one in near))


def _refused_word(case: Case) -> Suggestion | None:
    """Handle a name that has no equivalent in xpc, and resembles a setting only because of a synonym, such as `iters`
    for `steps`.
    """
    synonym = case.guess is not None and case.exact and case.guess.likeness < 1.0
    return without_equivalent(case.message, case.name, loosely=False) if synonym else None


def _of_a_library(case: Case) -> Suggestion | None:
    """Handle another tool's name that has no equivalent in xpc, or that is an argument for `extra`: `ddp_timeout`."""
    guess, name, message = case.guess, case.name, case.message
    if guess is not None and case.exact and guess.own:
        return None
    parents, dot, last = name.rpartition(".")
    in_a_block = bool(dot) and meaning(last, exact=True) is not None
    of_file = name.startswith(FILES) and not in_a_block and (guess is None or guess.path == "strategy")
    of_file = of_file or (guess is not None and guess.path == case.clause == "precision")  # `fp16 { auto_cast = true }`
    # `loosely` also accepts a name that only begins like a listed name (`ema_...`), but not if the name may be a
    # misspelt setting
    loosely = guess is None or guess.likeness < TYPO
    # `loss_fn.reference_policy_kl_penalty`: the last part is a setting, so only the parents are looked up in the list
    # of names without an equivalent
    family = re.sub(r"^value\.", "critic.", f"{parents}.x" if in_a_block else name)  # NeMo's `value` is the critic
    of_family = without_equivalent(message, family) if loosely else None
    return (
        without_equivalent(message, name, loosely=False)
        or (extra_suggestion(case.unknown, message) if of_file or not (case.exact or in_a_block) else None)
        or of_family
        or (None if case.exact else excluded(message, name))
    )


def _environment_variable(case: Case) -> Suggestion | None:
    """Handle an environment variable: `nccl_socket_ifname = eth0` is `launch(env=["NCCL_SOCKET_IFNAME=eth0"])`."""
    if case.exact or not case.typed or not VARIABLE.match(case.name):
        return None
    form = 'env=["{}={}"]'.format(case.name.upper(), case.typed.strip('"'))
    return case.says(
        f"write `{form if case.clause == 'launch' else f'launch({form})'}`: environment variables of the run"
    )


def _last_part(case: Case) -> Suggestion | None:
    """Handle a dotted name whose last part is known: for `trainer.nnodes`, the suggestion for `nnodes` is returned."""
    if not is_unclear_path(case):
        return None
    part = by_last_part(case.unknown) or _similar_last_word(case.unknown)
    if part is None:  # `chat_template_kwargs.reasoning_effort`
        parents = case.name.split(".")[-2::-1]
        known = (advice(one, "") or (without_equivalent("", one) or case.says("")).help for one in parents)
        return next((case.says(help) for help in known if help), None)
    return of_the_run(case, evolve(search(part), message=case.message))


def _similar_last_word(unknown: UnknownName) -> UnknownName | None:
    """The last part of a path, if it is similar to a setting: `model.enable_checkpointing`. Otherwise None."""
    last = evolve(unknown, name=unknown.name.rpartition(".")[2])
    nothing = (REFERENCE, settings_of(unknown.clause or ""))
    return last if last.name not in words_of("general") and search(last).help not in nothing else None


def _model_or_data(case: Case) -> Suggestion | None:
    """Handle a name whose value is a model or a dataset, which belong in the first line:
    `policy_checkpoint = "me/model"`. Also handle a name whose value is the folder of outputs: `checkpoint "out/x"`.
    """
    folder = output_folder(case.unknown) is not None
    return first_line(case) if folder or not case.exact else None


def _without_general_guess(case: Case) -> Case:
    """Drop the guessed setting for a general word such as `path` outside of all clauses, and for a dotted name that
    ends in one: xpc does not suggest `rollouts` for `rollout.name`.
    """
    row = None if case.guess is None else schema.BY_PATH.get(case.guess.path)
    deep = row is not None and row.path.count(".") > 1 and intended_value(row, case.unknown) is None  # `mode = sft`
    alone = not case.clause and case.guess is not None and (case.guess.likeness < 1 or deep)
    general = (alone or is_unclear_path(case)) and case.name.rpartition(".")[2] in words_of("general")
    return evolve(case, guess=None) if general else case


def _misspelt_other_name(case: Case) -> Suggestion | None:
    """The suggestion for a misspelt name of another tool, such as `ddp_timout` for `ddp_timeout`, if the correct name
    is an argument for `extra`, or has no equivalent.
    """
    guess = case.guess
    other, likeness = (None, 0.0) if case.exact else nearest_other_name(case.name)
    of_file = guess is not None and guess.path == "strategy" and case.name.startswith(FILES)
    if other is None or not (of_file or guess is None or likeness > guess.likeness):
        return None
    advised = advice(other, case.typed)
    if advised is not None:
        return case.says(advised)
    found = extra_suggestion(evolve(case.unknown, name=other), case.message) or excluded(case.message, other)
    # `found` is None if the advice for `other` would need a number from the user's value, and the user wrote no value
    return case.says(settings_of(case.clause)) if found is None else evolve(found, text=f"did you mean `{other}`?")


def _loss_of_a_method(case: Case) -> Suggestion | None:
    """Handle a loss of some methods: `dapo` is `loss=dapo`, which `method grpo` reads."""
    methods = methods_with(case.name)
    if not methods or (case.exact and case.guess is not None and case.guess.path != "method"):
        return None
    return case.says(f"write `loss={case.name}`, which `method` {', '.join(methods[:3])} reads")


def _with_its_choice(case: Case) -> Suggestion | None:
    """Handle a name that begins with a choice which the spec does not state: `muon_lr = 1e-3` is `optimizer
    muon(lr=1e-3)`.
    """
    head, dot, last = ("" if case.guess is None else case.guess.path).partition(".")
    row = schema.BY_PATH[head] if head in HEADS and dot and not case.clause else None
    chosen = None if row is None else known_choice(row, parts(case.name)[0])
    stated = re.findall(r"[\w.-]+", case.unknown.label.source.text)
    if row is None or chosen is None or chosen == row.default or not {*row.choices}.isdisjoint(stated):
        return None
    value = intended_value(schema.BY_PATH[f"{head}.{last}"], case.unknown)
    form = f"{head} {chosen}({last}={value})"
    return None if value is None else case.suggests(form, form)


def _guessed_setting(case: Case) -> Suggestion | None:
    """Suggest the setting that the name probably stands for: `every` for `evry` in `save`."""
    if case.guess is None:
        return None
    if case.guess.path in ("batch.gbs", "batch.micro") and case.guess.likeness < TYPO:
        # any other word before `batch_size`, as in `ppo_batch_size`, and a batch of tokens
        like = {"size": "mini_batch_train", "tokens": "batch_tokens"}.get(parts(case.name)[-1], "")
        if (other := advice(like, case.typed)) is not None:
            return case.says(other)
    found = of_guess(case.unknown, case.guess)
    # a name that is only similar does not mean a setting which cannot have the value
    unlikely = case.guess.likeness < 0.85 and found.refusing not in ("", case.clause)
    weak = case.guess.likeness < 0.8 and not case.clause  # `reasoning = 1` only resembles `omit_reasoning`
    return None if unlikely else evolve(found, edit=None) if weak else found


def _clause_of_the_value(case: Case) -> Suggestion | None:
    """Handle a value that only one setting has, outside of all clauses: `platform = slurm` is `launch slurm`."""
    guessed = schema.BY_PATH.get(case.guess.path) if case.guess is not None and case.guess.likeness >= TYPO else None
    named = guessed is not None and (guessed.choices or guessed.kind.name == "weighted")  # `pref_loss = distill`
    misspelt = guessed is not None and (named or intended_value(guessed, case.unknown) is not None)
    text = "" if case.clause or misspelt or not isinstance(case.node, Ref) else case.typed.lower()
    if text in (*schema.ADAPTERS, *schema.bare_choices()) and case.name in words_of("general"):
        return case.says(f"write `{text}`")  # `mode = bf16`, which is also a `dtype`
    rows = [(row, one) for row in schema.TABLE if row.choices and text and (one := known_choice(row, text))]
    rows += [(row, "true") for row in schema.TABLE if row.kind is FLAG and not row.inner and row.name == text]
    if len(rows) != 1 or len(text) < 3 or not (rows[0][0].head or rows[0][0].bare or rows[0][1] == "true"):
        return None
    row, choice = rows[0]
    return case.says(f"write `{row.name} {choice}`" if row.head and row.choices else f"write `{typed(row, choice)}`")


def _choice_with_noun(case: Case) -> Suggestion | None:
    """Handle a switch whose name joins a choice and a name of its setting: `use_lion_optimizer = true` is `optimizer
    lion`, and `report_to_wandb = true` is `track wandb`.
    """
    written = [word for word in parts(case.name[:80]) if word not in words_of("switches")]
    is_on = case.typed.strip('"').lower() in ("", *YES)
    if case.clause or not is_on or denied(case.name) or meaning(case.name, exact=True) is not None:
        return None
    for at in range(1, len(written)):
        for noun, chosen in ((written[at:], written[:at]), (written[:at], written[at:])):
            guess = meaning("_".join(noun), exact=True)
            row = schema.BY_PATH[guess.path] if guess is not None and guess.path in NOUNS and not guess.value else None
            choice = None if row is None else known_choice(row, " ".join(chosen))
            if row is not None and choice is not None:
                form = f"{row.name}{' ' if row.head else ' = '}{choice}"
                return case.suggests(form, form)
    return None


def _negated(case: Case) -> Suggestion | None:
    """Handle a switch whose name denies a flag: `no_pack = true` is `packing = false`. If the name denies a choice, as
    `no_sdpa_attention` does, name the setting, but suggest no value.
    """
    rest = "" if case.exact else denied(case.name)
    guess = meaning(rest, case.unknown.clause, exact=True) if rest else None
    row = None if guess is None else schema.BY_PATH.get(guess.path)
    if row is None or guess is None or case.typed.strip('"').lower() not in ("", *YES):
        return None
    if row.kind is not FLAG or guess.value not in ("", "true", "!", "false"):
        return case.says(f"`{row.path}` decides it: {row.doc}")
    off = guess.value in ("", "true")
    block = schema.BY_PATH.get(row.path.rpartition(".")[0])
    # `hub(private=false)` would turn `hub` on
    others = case.unknown.label.source.text.replace(case.name, "")
    switched = block is not None and block.kind is FLAG and block.name not in others
    if off and (row.engines or switched) and not case.clause:
        return case.says(f"leave `{case.name[:60]}` out: it is off")
    value = "false" if off else "true"
    inside = is_in(row.path, case.clause)
    form = f"{row.name} = {value}" if inside else typed(row, value)
    return evolve(case.suggests(form, form, inside), intended=(row.path,))


def _without_loose_word(case: Case) -> Suggestion | None:
    """Handle a known name to which a meaningless word is added: `_steps` in `val_check_interval_steps`, or a word for
    the clause: `actor_` in `actor_kl_coef` in `method`.
    """
    written = parts(case.name[:80])
    if case.exact or (case.guess is not None and case.guess.likeness >= TYPO):
        return None
    for at, word in enumerate(written):
        rest = "_".join(written[:at] + written[at + 1 :])
        guess = meaning(rest, case.unknown.clause, True)
        of_clause = mapped("components").get(word) == case.clause and (guess is None or is_in(guess.path, case.clause))
        if (
            (word in words_of("loose") or of_clause)
            and rest not in words_of("general")
            and (len(written) > 2 or rest in schema.outer_names())
            and (is_known(rest) or guess)
        ):
            return evolve(search(evolve(case.unknown, name=rest)), message=case.message)
    return None


def _nothing_near(case: Case) -> Suggestion:
    """Suggest what the words of the name suggest, or list all settings of the clause."""
    columns = None if case.clause else columns_of(case.unknown)
    if columns is not None:  # `winner_column = good`
        return case.says(f"write `data(columns={columns})`: {IN_ORDER}")
    of_vllm = f"{NO_EQUIVALENT}a bundle leaves other options of vLLM at vLLM's defaults; "
    option = case.clause == "method.vllm" or any(one.startswith("vllm") for one in case.name.split(".")[:-1])
    return by_its_words(case) or case.says(of_vllm * option + settings_of(case.clause or "method.vllm" * option))
