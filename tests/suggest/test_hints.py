"""Mistakes for which the advice was once wrong. The tests check that it is now right."""

from __future__ import annotations

import json

import pytest
from compile_support import checked

from xpc.compiler import registry
from xpc.grammar.diagnostic import ERROR, Diagnostic, applied


def one(text: str, code: str, folder=None) -> Diagnostic:
    (found,) = [
        one for one in (checked(text) if folder is None else checked(text, folder)).problems if one.code == code
    ]
    return found


def edited(text: str, found: Diagnostic) -> str:
    assert len(found.edits) == 1
    return applied(text, found.edits)


LINE = "train qwen2.5-3b on infinity-instruct"


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("t4-16gb", "t4"),
        ("tesla-t4", "t4"),
        ("A100-SXM4-80GB", "a100-80gb"),
        ("h100-80gb-hbm3", "h100-80gb"),
        ("rtx4090", "rtx-4090"),
        ("v100-32", "v100-32gb"),
        ("h200-141gb", "h200"),
        ("a100", None),
        ("v100", None),
        ("h100", None),
        ("gh200-480gb", None),
        ("rtx-6000", None),
        ("rtx-4080", None),
        ("adamw8bit", None),
    ],
)
def test_spelling_of_a_provider_is_one_gpu_or_none(name, gpu):
    found = registry.find_gpu(name)
    assert (found.name if found else None) == gpu


@pytest.mark.parametrize("name", ["a100", "v100", "h100", "gh200-480gb", "rtx-6000", "rtx-4080", "m40", "mi300x"])
def test_no_edit_chooses_an_ambiguous_gpu(name):
    found = [one for one in checked(f"{LINE} with hardware = 8 x {name}\n").problems if one.code == "XP112"]
    assert found
    assert not found[0].edits


def test_one_note_for_datasets_that_are_not_registered():
    text = "xpc 1\ntrain qwen2.5-3b on mix\ndata mix {\n  org/a\n  org/b\n  org/a[test]\n}\n"
    assert [one.code for one in checked(text).problems].count("XP111") == 1


def test_a_learning_rate_above_1_is_an_error():
    (found,) = [one for one in checked(f"{LINE} with lr=2e5\n").problems if one.severity == ERROR]
    assert found.code == "XP107"
    assert found.help == "write `lr = 2e-5`"


def test_a_call_inside_of_extra_is_its_block():
    spec = checked(f"{LINE} with zero3 extra(deepspeed, zero_optimization(sub_group_size=1000))\n").spec
    assert spec is not None
    assert spec.extra["deepspeed"]["zero_optimization.sub_group_size"].value == 1000


ROLLOUTS = "xpc 1\ntrain gpt2 on alpaca with grpo(rewards=[accuracy], {}) data(prompt=instruction)\n"


@pytest.mark.parametrize(
    ("lengths", "help"),
    [
        ("max_prompt=512, max_completion=2048", "write `max_completion = 512`"),
        ("max_prompt=1000, max_completion=100", "write `max_prompt = 924`"),
        ("max_prompt=1500, max_completion=1600", "write `max_prompt = 512` and `max_completion = 512`"),
    ],
)
def test_reinforcement_past_the_context_has_lengths_of_its_own(lengths, help):
    found = one(ROLLOUTS.format(lengths), "XP319")
    assert found.help == help
    if found.edits:
        text = edited(ROLLOUTS.format(lengths), found)
        assert not [one for one in checked(text).problems if one.code in ("XP319", "XP126", "XP101")]


@pytest.mark.parametrize(
    ("row", "method", "form"),
    [
        ('{"question": "a", "answer": "b"}', "sft", "data(format=prompt_completion, columns=[question, answer])"),
        ('{"question": "a", "answer": "b"}', "grpo(rewards=[accuracy])", "data(prompt=question)"),
        ('{"question": "a", "win": "b", "lose": "c"}', "dpo", "data(format=preference, columns=[question, win, lose])"),
        (
            '{"query": "a", "reply": "b", "is_good": true}',
            "kto",
            "data(format=unpaired, columns=[query, reply, is_good])",
        ),
        ('{"chat": [{"role": "user", "content": "a"}]}', "sft", "data(format=messages, columns=[chat])"),
    ],
)
def test_columns_that_look_like_a_shape_are_suggested(tmp_path, row, method, form):
    (tmp_path / "rows.jsonl").write_text((row + "\n") * 200)
    text = 'xpc 1\ntrain qwen2.5-3b on "rows.jsonl" with ' + method
    found = one(text + "\n", "XP124", tmp_path)
    assert f"`{form}`" in found.help
    after = checked(f"{text} {form}\n", tmp_path).problems
    assert not [one for one in after if one.code in ("XP124", "XP503")]


@pytest.mark.parametrize(("method", "shape"), [("kto", "unpaired"), ("dpo", "preference")])
def test_columns_of_any_names_get_the_format_of_the_method(tmp_path, method, shape):
    (tmp_path / "rows.jsonl").write_text('{"a": "2 + 2?", "b": "4", "c": true}\n' * 200)
    text = f'xpc 1\ntrain qwen2.5-3b on "rows.jsonl" with {method}'
    assert f"`data(format={shape}, columns=[NAME, ...])`" in one(text + "\n", "XP124", tmp_path).help
    after = checked(f"{text} data(format={shape}, columns=[a, b, c])\n", tmp_path).problems
    assert "XP124" not in {one.code for one in after}


def test_rows_of_another_method_with_a_prompt_suggest_its_column(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n' * 200)
    text = 'xpc 1\ntrain qwen2.5-3b on "rows.jsonl" with grpo(rewards=[accuracy]) data(format=preference)\n'
    assert "`data(prompt=prompt)`" in one(text, "XP503", tmp_path).help
    text = "xpc 1\ntrain qwen2.5-3b on fineweb with grpo(rewards=[accuracy])\n"
    assert "`data(prompt=NAME)`" in one(text, "XP503").help


@pytest.mark.parametrize(
    ("name", "turn"), [("messages", {"role": "user", "content": "2+2?"}), ("chat", {"from": "human", "value": "2+2?"})]
)
@pytest.mark.parametrize(
    "method", ["grpo(rewards=[format])", "rloo(rewards=[format])", 'distill(teacher="qwen2.5-7b")']
)
def test_conversations_of_a_method_on_prompts_become_prompts(tmp_path, name, turn, method):
    """The suggested line compiles, and nothing asks for an answer in these prompts."""
    (tmp_path / "rows.jsonl").write_text(json.dumps({name: [turn]}) + "\n")
    shape = "conversations" if "from" in turn else "messages"
    text = f'xpc 1\ntrain qwen2.5-3b on "rows.jsonl" with {method}'
    found = checked(f"{text} data(format={shape}, columns=[{name}])\n", tmp_path).problems
    assert "XP533" not in {one.code for one in found}
    (refused,) = (one for one in found if one.code == "XP503")
    assert f"write `data(prompt={name})`, and move an answer at the end of a conversation" in refused.help
    after = checked(f"{text} data(prompt={name})\n", tmp_path).problems
    assert not {one.code for one in after} & {"XP124", "XP503", "XP533", "XP578"}


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ("deepspeed { wandb.enabled = true }", "`track=wandb`"),
        ("deepspeed { tensorboard.enabled = true }", "`track=tensorboard`"),
        ("deepspeed { csv_monitor.enabled = true }", "no equivalent"),
        ('accelerate { fp8_config.backend = "te" }', "no equivalent, because torchao computes in fp8"),
        ('accelerate { fp8_config = "te" }', "no equivalent, because torchao computes in fp8"),
        ('accelerate { dynamo_config.dynamo_backend = "inductor" }', '`extra trl(torch_compile_backend="inductor")`'),
        ("accelerate { megatron_lm_config.megatron_lm_tp_degree = 2 }", "there is no Megatron"),
        ("trl { bema = true }", "the model's weights are never averaged"),
        ("trl { use_liger_loss = true }", "always compute the loss in chunks"),
    ],
)
def test_mapping_of_the_stack_names_the_setting_that_decides_it(inside, words):
    head, _, rest = inside.partition("{ ")
    found = [one for one in checked(f"{LINE}\nextra {head}{{\n  {rest[:-2]}\n}}\n").problems if one.severity == ERROR]
    assert [one.code for one in found] in (["XP121"], ["XP104"])
    assert words in found[0].help


@pytest.mark.parametrize("name", ["wandb.enabled", "fp8_config", "fp8_config.backend"])
def test_a_mapping_is_no_precision(name):
    assert "precision" not in one(f"{LINE} with {name}=true\n", "XP101").help


@pytest.mark.parametrize(
    ("inside", "help"),
    [
        ("alpaca = 30%", "write `alpaca { take = 30% }`"),
        ("alpaca = 0.3", "write `alpaca { take = 30% }`"),
        ("smoltalk = 20k", "write `smoltalk { take = 20k }`"),
        ("smoltalk = -1", "write `smoltalk { take = 10% }`"),
        ("smoltalk = 1e999", "write `smoltalk { take = 10% }`"),
        ('text = ""', "write `columns = [TEXT]`"),
        ("prompt = question\n  chosen = good\n  rejected = bad", "write `columns = [question, good, bad]`"),
        ('prompt = "the question"\n  completion = answer', 'write `columns = ["the question", answer]`'),
    ],
)
def test_share_of_mixture_and_single_columns_get_their_form(inside, help):
    found = checked(f"train qwen2.5-3b on rows\ndata rows {{\n  alpaca-gpt4\n  {inside}\n}}\n")
    assert help in {one.help.partition(":")[0] for one in found.problems if one.code == "XP101"}


@pytest.mark.parametrize("path", ["data/rows.jsonl", "data/more.csv", "rows.json", "there/rows"])
def test_unquoted_path_of_data_gets_quotes(tmp_path, path):
    (tmp_path / "there" / "rows").mkdir(parents=True)
    text = f"xpc 1\ntrain qwen2.5-3b on {path}\n"
    found = [one for one in checked(text, tmp_path).problems if one.code in ("XP110", "XP111")]
    assert [one.severity for one in found] == ["warning" if path == "there/rows" else "error"]
    assert edited(text, found[0]) == f'xpc 1\ntrain qwen2.5-3b on "{path}"\n'


def test_unquoted_folder_of_a_model_gets_quotes(tmp_path):
    (tmp_path / "out" / "model").mkdir(parents=True)
    text = "xpc 1\ntrain out/model on alpaca\n"
    found = one(text, "XP109", tmp_path)
    assert found.severity == "warning"
    assert edited(text, found) == 'xpc 1\ntrain "out/model" on alpaca\n'
    assert one("xpc 1\ntrain org/model on alpaca\n", "XP109", tmp_path).severity == "note"


@pytest.mark.parametrize("path", ["./tiny", "../models/tiny", "/models/tiny", "~/tiny"])
def test_path_that_does_not_begin_like_a_name_gets_quotes(path):
    assert f'`"{path}"`' in one(f"xpc 1\ntrain {path} on alpaca\n", "XP014").help


def test_a_budget_is_above_0_and_a_count_per_epoch_a_share():
    (found,) = [one for one in checked("train qwen2.5-3b on alpaca for -1 epochs\n").problems if one.severity == ERROR]
    assert found.help == "write a number above 0, such as `for 3 epochs`"
    assert found.primary.text == "a number above 0"
    help = one(f"{LINE} with evals_per_epoch=4\n", "XP101").help
    assert help.endswith("`every = 25%` for one epoch, and `every = 8.333%` for three")


@pytest.mark.parametrize(
    ("clause", "intended"),
    [
        ("schedule cosine_with_min_lr(min_lr=0.1)", "cosine"),
        ("schedule wsdd(decay=10%)", "wsd"),
        ("method dop(beta=0.1)", "dpo"),
        ("method grpoo(rewards=[accuracy], generations=8)", "grpo"),
        ('launch slurmm(partition="a", time=24h)', "slurm"),
        ('launch k8ss(image="a")', "k8s"),
        ('track wandbb(project="x")', "wandb"),
        ("strategy zer3(offload=optimizer)", "zero3"),
        ("strategy fsdp3(context_parallel=2)", "fsdp"),
        ("precision bfloat", "bf16"),
    ],
)
def test_default_left_by_a_misspelt_choice_is_not_reported(clause: str, intended: str) -> None:
    """In `method dop(beta=0.1)`, only `dop` is wrong. Before a fix, the help was to leave out `beta`, because sft (the
    default method) has no such setting.
    """
    text = f"xpc 1\n\n{LINE} for 1 epochs\n\nhardware 8 x h100-80gb\nbatch(gbs=128, micro=8, seq=1024)\n{clause}\n"
    wrong = [one for one in checked(text).problems if one.severity == ERROR]
    assert [one.code for one in wrong] == ["XP106"]
    assert f"write `{intended}`" in wrong[0].help
    assert [one.text for one in wrong[0].edits] == [intended]


@pytest.mark.parametrize(("attn", "code"), [("paged", "XP106"), ("7", "XP104"), ('["sdpa"]', "XP104")])
def test_packing_is_not_compared_with_a_default_left_by_a_wrong_attention(attn: str, code: str) -> None:
    text = f"{LINE} for 1 epochs\nhardware 8 x h100-80gb\nbatch(gbs=128, micro=8, seq=1024, packing)\n"
    wrong = [one for one in checked(f"{text}model(attn={attn})\n").problems if one.severity == ERROR]
    assert [one.code for one in wrong] == [code]


def test_a_gpu_in_the_plural_is_not_another_one_with_its_number() -> None:
    found = one(f"xpc 1\n\n{LINE} for 1 epochs\n\nhardware 8 x h100s\n", "XP112")
    assert found.help == "write `h100-80gb`, `h100-nvl-94gb` or `h100-pcie-80gb`"


@pytest.mark.parametrize(
    ("block", "edit"),
    [
        ("hardware {\n  type = h100-80gb\n  count = 4\n}", "hardware 4 x h100-80gb"),
        ("hardware {\n  gpu = a100-80gb\n  gpus = 8\n  nodes = 2\n}", "hardware 8 x a100-80gb\nnodes 2"),
        ("early_stopping {\n  patience = 3\n}", "eval(patience=3)"),
        ("peft {\n  r = 16\n  lora_alpha = 32\n}", "lora(rank=16, alpha=32)"),
        ('lora {\n  adapter = "out/first"\n}', "from"),
        ("qlora(r=16)", "rank"),
        ("oft {\n  bock_size = 32\n}", "block_size"),
        ("training {\n  learning_rate = 1e-5\n  micro_batch_size = 4\n}", "lr=1e-5\nmicro=4"),
        ("scheduler {\n  type = cosine\n  warmup_steps = 10\n}", "schedule=cosine\nwarmup=10"),
        ("slurm_config {\n  partition = gpu\n}", 'launch slurm(partition="gpu")'),
        ('"zero_optimization": {"stage": 3},', "strategy=zero3"),
        ("--gradient_checkpointing_kwargs '{\"use_reentrant\": false}'", "reentrant"),
        ("--no_remove_unused_columns", "extra trl(remove_unused_columns=false)"),
        ("gbs = 4,096", "4096"),
        ("gbs = 8 * 16", "128"),
        ("seed = 0x2a", "42"),
        ("betas = 0.9, 0.95", "[0.9, 0.95]"),
    ],
)
def test_a_block_or_a_number_of_another_tool_is_one_edit(block, edit):
    text = f"xpc 1\n{LINE}\n{block}\n"
    found = [one for one in checked(text).problems if one.severity == ERROR]
    reported = found[0].edits[0].text if found[0].edits else found[0].help
    assert edit in reported if edit == "reentrant" else reported == edit, found
    assert len(found) == 1


def test_no_rule_speaks_of_what_a_misread_block_leaves_open():
    text = "xpc 1\ntrain llama-3.1-8b on alpaca\nhardware {\n  gpus = 8\n  type = h200\n}\npeft {\n  r = 16\n}\n"
    found = {(one.code, one.slug) for one in checked(text).problems if one.severity == ERROR}
    assert found == {("XP101", "unknown-setting"), ("XP102", "misplaced-setting")}


def test_block_with_unknown_settings_gets_help_without_edit():
    (found,) = [
        one for one in checked(f"xpc 1\n{LINE}\nhardware {{\n  type = l4\n}}\n").problems if one.code == "XP102"
    ]
    assert found.help == "write `hardware N x l4`, with the number that you have"
    assert not found.edits


@pytest.mark.parametrize(
    ("method", "columns", "shape"),
    [
        ("sft", "question, good", "prompt_completion"),
        ("dpo", "question, good, bad", "preference"),
        ("reward", "question, good, bad", "preference"),
        ("dpo", "question, good", None),
        ("kto", "question, good, bad", None),
        ("sft", "good", "text"),
        ("sft", "question, good, bad", None),
    ],
)
def test_named_columns_say_the_shape_where_their_number_is_that_of_one(tmp_path, method, columns, shape):
    (tmp_path / "rows.jsonl").write_text('{"question": "2 + 2?", "good": "4", "bad": "5"}\n' * 9)
    data = f'data rows {{\n  "rows.jsonl"\n  columns = [{columns}]\n}}\n'
    found = checked(f"train qwen2.5-3b on rows for 1 epochs\nmethod {method}\n{data}", str(tmp_path))
    unknown = [one for one in found.problems if one.code == "XP124"]
    assert [one.shape for one in found.spec.sources] == [shape] if shape else unknown


def test_a_line_down_to_a_floor_stays_a_line() -> None:
    found = one(f"{LINE} with schedule linear(min_lr=10%)\n", "XP204")
    assert "`schedule polynomial`" in (found.help or "")
    line = checked(f"{LINE} with schedule polynomial(min_lr=10%)\n")
    assert not [each for each in line.problems if each.severity == ERROR]
    # the polynomial schedule is a line, because transformers' default for its power is 1
    assert "schedule.power" not in line.spec.values
    assert one(f"{LINE} with schedule linear(min_lr=0)\n", "XP204").help == "leave `min_lr` out: `linear` ends at 0"
    assert "`schedule cosine`" in (one(f"{LINE} with schedule cosine_with_restarts(min_lr=0)\n", "XP204").help or "")


@pytest.mark.parametrize(
    "line", ["lora targets [q_proj, v_proj]", "optimizer adamw betas [0.9, 0.95]", "lora rank=8 targets [q_proj]"]
)
def test_a_list_without_its_equals_sign_gets_one(line) -> None:
    text = f"xpc 1\n{LINE}\n{line}\n"
    found = one(text, "XP025")
    again = edited(text, found)
    assert not [each for each in checked(again).problems if each.severity == ERROR], again


@pytest.mark.parametrize(
    ("model", "help"),
    [
        ("qwen2.5-3b-instuct", "write `qwen2.5-3b-instruct`, a hub id such as `Qwen/Qwen2.5-3B-Instruct`, or"),
        ("falcon4-7b", "write a hub id such as `tiiuae/falcon4-7b`, or a quoted local folder"),
        ("unheard-7b", "write a hub id such as `org/unheard-7b`, or a quoted local folder"),
        ("unsloth/Qwen3-4B", "write `qwen3-4b` if this is a copy of that model; otherwise"),
        ("NousResearch/Meta-Llama-3.1-8B-Instruct", "write `llama-3.1-8b-instruct` if this is a copy of that model"),
        ("unsloth/Qwen3-4B-Base", "write `qwen3-4b-base` if this is a copy of that model"),
        ("someone/Qwen3-4B-Medical", "`config = file("),
    ],
)
def test_an_unknown_model_gets_its_owner_or_the_model_that_it_copies(model: str, help: str) -> None:
    (found,) = (
        each for each in checked(f"xpc 1\ntrain {model} on alpaca\n").problems if each.code in ("XP108", "XP109")
    )
    assert (found.help or "").startswith(help)


@pytest.mark.parametrize(
    ("typed", "help"),
    [
        ("truncation_side=left", "leave it out: it has no equivalent, because rows are cut at their end"),
        ("truncation_side=right", "leave it out: longer rows are cut at `seq`, at their end"),
        ("truncation=true", "rows are cut at `seq`"),
    ],
)
def test_truncation_is_not_advised_as_padding(typed: str, help: str) -> None:
    assert (one(f"xpc 1\n{LINE}\nbatch({typed})\n", "XP101").help or "").startswith(help)


ROW = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
SPEAKERS = '{"talk": [{"speaker": "user", "text": "a"}, {"speaker": "bot", "text": "b"}]}\n'


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (f'{{"version": 1, "data": [{ROW}]}}', "XP124", "write its list `data` alone into the file"),
        # the file is longer than the part that is read to find the columns of the first row
        (
            f'{{"version": 1, "data": [{", ".join([ROW] * 20_000)}]}}',
            "XP553",
            "write its list `data` alone into the file",
        ),
        ('{"authors": ["a"], "data": {"a": 1}}', "XP124", "its columns are authors, data; rows have messages"),
        (SPEAKERS, "XP124", "the turns of `talk` have `speaker` and `text`, and rows have turns with `role` and"),
        (
            '{"talk": [{"by": "user", "text": "a", "at": 1, "id": 2}]}',
            "XP124",
            "the turns of `talk` have `by` and `text` and `at`, and rows have turns with",
        ),
    ],
)
def test_rows_within_an_object_and_turns_with_other_keys_are_named(tmp_path, content, code, words):
    (tmp_path / "rows.json").write_text(content)
    found = checked('xpc 1\ntrain qwen2.5-3b on "rows.json" for 3 epochs\n', tmp_path).problems
    assert [(one.code, words in one.help) for one in found if one.severity == ERROR] == [(code, True)]
    # if the columns have no known format, they say nothing about the number of rows
    assert code == "XP553" or "XP208" not in {one.code for one in found}


@pytest.mark.parametrize("method", ["dpo", "kto"])
def test_unknown_columns_are_the_only_finding_about_the_rows(tmp_path, method):
    (tmp_path / "rows.jsonl").write_text('{"foo": "a", "bar": 1}\n' * 200)
    text = f'xpc 1\ntrain qwen2.5-3b on "rows.jsonl" for 3 epochs\nmethod {method}\nmodel(chat_template=chatml)\n'
    codes = {one.code for one in checked(text, tmp_path).problems}
    assert "XP124" in codes
    assert not codes & {"XP186", "XP558"}
