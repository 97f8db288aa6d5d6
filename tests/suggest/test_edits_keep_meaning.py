"""The spec after a suggested edit means what the user wrote: the same as the spec with the correct name, for every
setting whose name is misspelt and for mistakes in real specs; for any other text, no value is lost or invented.
"""

from __future__ import annotations

import os
import zlib
from random import Random

import pytest
from compile_support import REPOSITORY, checked, edited
from edit_properties import violations
from spec_mutations import mistake, specs, typos
from test_unknown_names import HEAD, LATER, LINE, stated, texts

from xpc.compiler.language import schema
from xpc.compiler.language.kinds import BLOCK, FLAG, Amount
from xpc.compiler.suggest.known_names import NEVER_LEGAL
from xpc.compiler.suggest.legal import example
from xpc.compiler.suggest.typed_form import typed

ROWS = [
    row for row in schema.TABLE
    if not (row.kind is BLOCK or row.path.startswith("train.") or row.path in NEVER_LEGAL)
]  # fmt: skip


AMBIGUOUS = ("loa",)
"""Typos that are one letter away from two settings. For `loa`, these are `lora`, which is suggested, and `loha`."""


def wrong_edits(row: schema.Setting) -> list[str]:
    """Suggested edits for misspelt forms of a setting, if the edited spec means something else than the correctly spelt
    form.
    """
    value = None if row.kind is FLAG else example(row)
    form, value_text = typed(row, value), "" if value is None else value
    at = form.rfind(f"{row.name}={value_text}" if value_text else row.name)
    if at < 0 or (row.path == "hardware"):
        return []
    right = f"{HEAD}{form}\n"
    out = []
    for name in typos(row.name):
        if name in AMBIGUOUS:
            continue
        wrong = f"{HEAD}{form[:at]}{name}{form[at + len(row.name) :]}\n"
        for found in checked(wrong).problems:
            if found.code not in ("XP101", "XP102") or not found.edits:
                continue
            after = edited(wrong, found)
            errors = [one.code for one in checked(after).problems if one.severity == "error" and one.code < "XP125"]
            if not errors and stated(after) != stated(right):
                out.append(f"{wrong!r} -> {after!r}")
    return out


@pytest.mark.slow
def test_an_edit_for_a_misspelt_setting_states_the_setting():
    wrong = [one for row in ROWS for one in wrong_edits(row)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_an_edit_for_another_name_of_a_setting_keeps_its_value():
    """A user may type a setting under its name in the trainer, with a legal value. The edit then writes our name with
    the same value, or there is no edit.
    """
    wrong = []
    for row in ROWS:
        if row.kind is FLAG or len(row.args) != 1 or row.path in ("hardware", "strategy", "precision") or row.head:
            continue
        written = f"{HEAD}{row.args[0]}={example(row)}\n"
        for found in checked(written).problems:
            if found.code == "XP101" and found.edits:
                after = edited(written, found)
                if stated(after) != stated(f"{HEAD}{typed(row, example(row))}\n"):
                    wrong.append(f"{written!r} -> {after!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", ["no_{} = true", "disable_{} = true", "dont_{}", "{}_off = true", "{}_disabled = true"]
)
def test_no_edit_for_a_denied_name_turns_anything_on(form):
    wrong = []
    for row in ROWS:
        written = f"{HEAD}{form.format(row.name)}\n"
        if row.choices or row.name == "shard":  # `no_track = true` is `track none`, and `no_shard` is a strategy
            continue
        for found in checked(written).problems:
            after = edited(written, found)
            if found.edits and not any(one.severity == "error" for one in checked(after).problems):
                new = {path: value for path, value in stated(after).items() if path not in stated(HEAD)}
                if any(value not in (False, 0, Amount("never", 0)) for value in new.values()):
                    wrong.append(f"{written!r} -> {after!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("written", "help"),
    [
        ("max_lr_ratio = 0.1", "`lr` is the peak rate"),
        ("lora { max_train_steps = 100 }", "write `for 100 steps` outside of `lora`"),
        ("lora-16", "write `lora(rank=16)`"),
        ("optimizer { adamw8 }", "write `optimizer adamw8bit`"),
        ("schedule { cos }", "write `schedule cosine`"),
        ("max_sample_len = 512", "write `seq=512` for the length"),
        ("no_sdpa_attention", "`model.attn` decides it"),
        ("lion8bit_off = true", "`optimizer` decides it"),
        ("no_use_dora", "leave `no_use_dora` out"),
        ("queue = true", "`launch.partition` decides it"),
        ("use_iterations = false", "the first line has the length of the run"),
        ("answer_column = reply", "write `data(columns=[PROMPT, reply])`: the names"),
        ('batch { data = "eval.jsonl" }', 'write `train MODEL on "eval.jsonl"`'),
        ("save_every = 3 epochs", "write one word as the value"),
        ("optimizer adamw { batch_size = 8 }", "write `gbs=8` for the sequences of an optimizer step"),
        ("logging_steps = 30m", "`track.every` decides it"),
        ('optim = "adamw_torch(lr=1e-5)"', "`optimizer` decides it"),
        ("optimizer apollo_mini", "it has no equivalent, because `apollo_adamw` scales each channel"),
        ("method = pretrain", "write `method sft`, and `data(format=text)`"),
        ("method = full", "leave it out: without a block such as `lora`"),
        ("epsilon = (0.2, 0.28)", "write `method grpo(epsilon=0.2, epsilon_high=0.28)`"),
        ("launch slurm { tasks_total = 16 }", "leave it out: it has no equivalent"),
        ("launch slurm { total_task = 16 }", "leave it out: it has no equivalent"),
        ("per_dataset_eval = true", "`eval.data` decides it"),
        ("callables_for_scores = accuracy", "write `rewards`"),
        ("lr = 20u", "write a number above 0"),
        ("nan_check = true", "leave it out: a run stops if its loss is nan"),
        ("lr = 100 steps", "`lr` takes a number, without `steps`"),
        ('lora { rank = "100 steps" }', "`rank` takes a whole number"),
        ("lora { alpha = 200% }", "write a number above 0"),
        ("lora { targets = off }", "`targets` takes"),
        ("seq = 5pct", "write a number of tokens"),
        ("seq = 8K tokens", "write 8192, 8Ki or 8000"),
        ("eos = off", "`eos` takes a quoted text"),
        ("gbs = 4 * 8 * gpus", "a spec has no arithmetic"),
        ("lr = 2e-4%", "write `lr = 2e-4`, without a percent sign"),
        ("lr = {foo: 1}", "`lr` has no `foo`"),
        ("extra trl { group_by_len = true }", "write `train_sampling_strategy`"),
        ("eval { generate_max_tokens = 256 }", "leave it out: it has no equivalent"),
        ("save every 1000 samples", "`every` takes a number of steps (100)"),
        ("micro batch of 4096 tokens", "a value follows `=`"),
        ("lora 100 steps", "write the name of its setting, such as `rank = 100`; the length of the run is `for 100"),
        ("lora 8 16", "write the name of its setting"),
        ("batch 32 tokens", "write the name of its setting"),
        ('save "out" steps', "write `every = 100`"),
        ("batch { gradient_accumulation }", "write `accum = 2`"),
        ("data {\n  streaming and shufle_buffer = 5000\n}", "no setting has a similar name"),
        ("batch {\n  packing maen = global_tokens\n}", "it belongs to `batch`: write `mean=global_tokens`"),
        ("memory { checkpointing = unsloth }", "write `checkpointing` and `offload_activations`"),
        ("data {\n  alpaca {\n    num_proc = 8\n  }\n}", "write `workers = 8` below the sources"),
        ("data {\n  alpaca {\n    weight = high\n  }\n}", "write `share = 50%`"),
        ("sweep {\n  Loss = sigmoid, ipo\n}", "settings on their own lines take no commas"),
        ("data { only_last_turn = true }", "write `assistant_only`, with which every turn"),
        ("fsdp_cpu_offload", "write `strategy fsdp(offload=cpu)`"),
        ("strategy zero2_cpu", "`zero2` is a choice"),
        ("strategy zero3 { wall_clock_breakdown = false }", "leave it out: every DeepSpeed configuration"),
    ],
)
def test_an_unclear_name_or_value_gets_a_help_without_an_edit(written, help):
    problems = [one for one in checked(f"{HEAD}{written}\n").problems if one.severity == "error"]
    found = [one for one in problems if one.code in ("XP101", "XP102")] or problems
    assert (found[0].help or "").startswith(help)
    assert not found[0].edits


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ("lora(targets={q_proj, v_proj})", "lora(targets=[q_proj, v_proj])"),
        ("optimizer adamw { betas = {0.9, 0.95} }", "optimizer adamw { betas = [0.9, 0.95] }"),
        ("eval { log_interval = 10 }", "track(every=10)"),
        ("method grpo { bf16 = true }", "method grpo\nbf16"),
        ("report_to_wandb = true", "track wandb"),
        ("optimizer_lion = true", "optimizer lion"),
        ("launch slurm { n_hosts = 4 }", "launch slurm\nnodes=4"),
        ("seed = int(7)", "seed = 7"),
        ("gbs = 4 * 8", "gbs = 32"),
        ("warmup_ratio = 0.0", "warmup=0"),
        ("track wandb, tensorboard", "track wandb tensorboard"),
        ("extra trl { neftune = 5 }", "extra trl(neftune_noise_alpha=5)"),
        ("warmup = 500 optimizer steps", "warmup = 500"),
        ("eval { per_device_train_batch_size = 4 }", "micro=4"),
        ("track wandb { hf_repo = me/model }", 'track wandb\nhub(name="me/model")'),
        ("dont_save_weights_only = true", "save(full_state)"),
        ("packing_off = true", "packing=false"),
        ("unique_rows = none", "data(unique=false)"),
        ("modules_to_save = none", ""),
        ("report_to = none", "track none"),
        ("wandb.enabled = false", "track none"),
        ("partition = false", ""),
        ("method grpo(rewards=accuracy)\nn = 8", "method grpo(rewards=accuracy, generations=8)"),
        ("schedule reduce_lr_on_plateau\ngamma = 0.5", "schedule reduce_lr_on_plateau(factor=0.5)"),
        ("schedule { warmup_duration = 100 }", "schedule { warmup = 100 }"),
        ("method dpo { loss = logistic }", "method dpo { loss = sigmoid }"),
        ("method grpo { loss = standard }", "method grpo { loss = grpo }"),
        ("method grpo { rewards = [math, code] }", "method grpo { rewards = [accuracy, code] }"),
        ('save "out" {\n  evry = never\n}', 'save "out" {\n  every = never\n}'),
        ("schedule cosine { lr_scheduler_warmup = 3% }", "schedule cosine { warmup = 3% }"),
        ("data { input_column = problem }", "data { prompt = problem }"),
        ('save "out" 500 steps', 'save "out" every=500'),
        ("batch gbs=4*4 micro=4", "batch gbs=16 micro=4"),
        (
            "launch slurm {\n  partition = gpu and acocunt = lab\n}",
            "launch slurm {\n  partition = gpu\n  account = lab\n}",
        ),
        ("sweep {\n  lr to [1e-5, 2e-5]\n}", "sweep {\n  lr = [1e-5, 2e-5]\n}"),
        (
            'data mix {\n  "faq.jsonl"\n  {\n    take = 10%\n  }\n}',
            'data mix {\n  "faq.jsonl" {\n    take = 10%\n  }\n}',
        ),
    ],
)
def test_an_edit_writes_the_intended_setting(written, right):
    text = f"{HEAD}{written}\n"
    found = next(one for one in checked(text).problems if one.edits)
    assert stated(edited(text, found)) == stated(f"{HEAD}{right}\n")


@pytest.mark.parametrize("written", ["save(every=30 minutes)", "eval(every=2 hours)"])
def test_a_time_is_no_value_of_every(written):
    found = checked(f"{HEAD}{written}\n").problems
    assert [one.edits for one in found if one.code == "XP023"] == [()]
    assert any("a share of the run such as `5%`" in (one.help or "") for one in found)


def test_a_setting_after_at_is_written_in_its_block():
    found = checked(f"{HEAD}lora@rank=8\n").problems
    assert any(one.help == "write `lora(rank=...)`" for one in found)


@pytest.mark.parametrize("typed", ["trainer.nnodes=2", "optim.lr=1e-5", "model.lora.rank=8", "critic.lr=1e-5"])
def test_edit_of_a_dotted_name_keeps_the_first_line(typed: str) -> None:
    text = f"{LINE} with {typed}\n"
    assert all(edited(text, found).startswith(f"{LINE} with ") for found in checked(text).problems)


@pytest.mark.parametrize(
    "written",
    [
        "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD",
        "lr_scheduler:\n  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
        '"learning_rate": 2e-5  # ours',
        "hardware 2 nodes x 8 x h100-80gb  # ours",
        "lora:\n  target_modules:\n    - q_proj\n    - v_proj  # ours",
        "gbs = 32 (4 per GPU)",
        "gbs = 32 (4 x 8)  # ours",
    ],
)
def test_the_edit_of_each_finding_alone_keeps_values_and_comments(written):
    text = f"{HEAD}{written}\n"
    assert not violations(text, checked(text).problems)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_an_edit_neither_loses_nor_invents_a_value(part):
    """Every tenth text of the lists of unknown names is judged, with a setting before it and a comment after it. Names
    are chosen by their checksum, so that another list changes no choice. At most one name in fifty may be judged
    wrongly: `quarter epoch` becomes a share of the run, for example, and the judge misses the word.
    """
    wrong, chosen = [], [(tool, name) for tool, name, _ in LATER if zlib.crc32(name.encode()) % 40 == part]
    for tool, name in chosen:
        for text in texts(tool, name):
            lines = text.replace(HEAD, f"{HEAD}seed 3\n").removesuffix("\n") + "  # why\n"
            wrong += violations(lines, checked(lines).problems)
    assert len(wrong) <= 0.02 * len(chosen), "\n".join(wrong)


def meaning(text: str) -> dict[str, str]:
    """What a spec states. The quotes of names do not count."""
    return {path: str(value).replace('"', "") for path, value in stated(text).items()}


def wrong_correction(right: str, wrong: str) -> str:
    """Apply the edits for a spec with mistakes one after another. Returns how the corrected spec differs from the spec
    before the mistakes; if errors are left, only the settings that the edits changed count. "" if nothing is wrong.
    """
    text, seen, root = wrong, [wrong], os.path.join(REPOSITORY, "specs")
    while found := next((one for one in checked(text, root).problems if one.edits and one.code < "XP125"), None):
        text = edited(text, found)
        if text in seen:
            return f"the edits do not end: {seen[-1]!r} -> {text!r}"
        seen.append(text)
    old, new, mistaken = meaning(right), meaning(text), meaning(wrong)
    errors = any(one.severity == "error" and one.code < "XP125" for one in checked(text, root).problems)
    paths = [path for path in old if old[path] != new.get(path) and (not errors or mistaken.get(path) == old[path])]
    paths += [path for path in new if path not in old and not errors]
    changed = "; ".join(f"{path}: {old.get(path)} -> {new.get(path)}" for path in paths)
    return f"{wrong!r} -> {text!r}: {changed}" if len(seen) > 1 and changed else ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_edits_for_a_spec_with_mistakes_restore_the_spec(seed):
    chance, wrong = Random(seed), []
    correct = [one for one in specs() if not any(found.code < "XP106" for found in checked(one).problems)]
    assert len(correct) > 30
    for _ in range(120):
        right = chance.choice(correct)
        wrong.append(wrong_correction(right, mistake(right, chance)))
    assert not any(wrong), "\n".join(filter(None, wrong))
