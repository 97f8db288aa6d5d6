"""Help texts are true: the edit that a help proposes keeps the meaning of what the user wrote, and no help names files,
rows or GPUs that the user does not have.
"""

from __future__ import annotations

import pytest
from compile_support import checked, edited, put, shown

from xpc.compiler.suggest.likeness import typo_of
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.nearest import misspelt_file

LINE = "train qwen2.5-3b on infinity-instruct"
HEAD = f"xpc 1\n{LINE}\n"
ROW = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'


def first(text: str, root: str | None = None) -> Diagnostic:
    found = checked(text) if root is None else checked(text, root)
    errors = [one for one in found.problems if one.severity == "error"]
    assert errors, shown(found)
    return errors[0]


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ("optimiser adamw(lr=1e-5)", "optimizer adamw(lr=1e-5)"),
        ("scheduler cosine(warmup=3%)", "schedule cosine(warmup=3%)"),
        ("data_seed=7", "extra trl(data_seed=7)"),
        ("strategy zero2 {\n  offload_optimizer = true\n}", "strategy zero2 {\n  offload = optimizer\n}"),
        ("strategy zero2 {\n  offload_optimizer_device = cpu\n}", "strategy zero2 {\n  offload = optimizer\n}"),
        ("strategy zero3 {\n  offload_param = true\n}", "strategy zero3 {\n  offload = cpu\n}"),
        ("gradient_checkpointing_kwargs(use_reentrant=false)", "checkpointing(reentrant=false)"),
        ("lora(targets=[Q_PROJ])", "lora(targets=[q_proj])"),
        ('lora(targets=["q_proj|k_proj"])', "lora(targets=[q_proj, k_proj])"),
        ("lora(targets=[self_attn])", "lora(targets=[k_proj, o_proj, q_proj, v_proj])"),
        ("attn flash_attention_2", "attn=flash2"),
        ("dtype bfloat16", "dtype=bf16"),
        ('save "out" {\n  hub "me/x"\n}', 'save "out" {\n  hub = "me/x"\n}'),
        ('save "x" {\n  every = 500steps\n}', 'save "x" {\n  every = 500\n}'),
        ("merge_adapter=true", "save(merge)"),
        ("merge_and_unload", "save(merge)"),
        ("strategy zero3 {\n  sequence_parallel_size = 2\n}", "strategy zero3 {\n  context_parallel = 2\n}"),
        ("precision 16", "precision fp16"),
        ("lora(dropout=.1)", "lora(dropout=0.1)"),
        ("lora(dropout=.2)", "lora(dropout=0.2)"),
        ("target trl 1.16", "target trl-1.16"),
        ("data.seed=3", "data(seed=3)"),
        ("validation_ds.micro_batch_size=2\ndata(holdout=5%)", "eval(micro=2)\ndata(holdout=5%)"),
        ("lora_target_modules=q_proj,v_proj", "lora(targets=[q_proj, v_proj])"),
        ("sweep {\n  lr = choice(1e-6, 1e-4)\n}", "sweep {\n  lr = [1e-6, 1e-4]\n}"),
        ("eva(every=epoch)\ndata(holdout=5%)", "eval(every=epoch)\ndata(holdout=5%)"),
        ("method SFT", "method sft"),
        ("strategy zero2(offload=true)", "strategy zero2(offload=optimizer)"),
        ("strategy zero3(offload=true)", "strategy zero3(offload=cpu)"),
        ("target trl==1.16", "target trl-1.16"),
        ("hardware h100-80gb x 8", "hardware 8 x h100-80gb"),
        ("use_lion_optimizer = true", "optimizer lion"),
        ("disable_liger = true", "liger=false"),
        ("grad_norm_threshold = 0.5", "clip = 0.5"),
        ("val_check_interval_steps = 50\ndata(holdout=5%)", "eval(every=50)\ndata(holdout=5%)"),
        ("lora(modules=[q_proj])", "lora(targets=[q_proj])"),
        ("memory {\n  activation_checkpointing = selective\n}", "memory {\n  checkpointing(selective)\n}"),
        (
            "schedule wsd(decay=10, decay_type=1-sqrt)\ntrack none",
            "schedule wsd(decay=10, decay_type=sqrt)\ntrack none",
        ),
        ("sweep {\n  lr in [1e-5, 2e-5]\n}", "sweep {\n  lr = [1e-5, 2e-5]\n}"),
    ],
)
def test_an_edit_means_what_was_written(written, right):
    after = edited(HEAD + written + "\n", first(HEAD + written + "\n"))
    wanted, got = checked(HEAD + right + "\n"), checked(after)
    assert {one.code for one in got.problems} <= {one.code for one in wanted.problems}, shown(got)
    if wanted.spec is not None:
        assert got.spec is not None
        assert {path: one.value for path, one in got.spec.values.items()} == {
            path: one.value for path, one in wanted.spec.values.items()
        }
        assert {to: {name: one.value for name, one in items.items()} for to, items in got.spec.extra.items()} == {
            to: {name: one.value for name, one in items.items()} for to, items in wanted.spec.extra.items()
        }


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("resume=true", "leave `resume` out"),
        ("save(resume=true)", "leave `resume` out"),
        ("auto_resume=true", "leave `resume` out"),
        ("resume_from_checkpoint=true", "leave `resume` out"),
        ("chat_template=tokenizer_default", "leave `chat_template` out"),
        ("fp16=false", "leave `fp16` out"),
        ("save_last=true", "the final model is always saved"),
        ("lr=2k", "such as `lr = 2e-5`"),
        ("generation_batch_size=8", "steps_per_generation"),
        ("lambda_d=1.33", "desirable=1.33"),
        ("loss=assistant", "`assistant_only`"),
        ("optimizer lamb", "`optim` of transformers has no such optimizer"),
        ("optimizer galore_adafactor_layerwise", "Adafactor then refuses a learning rate"),
        ("model(chat_template=gpt-oss)", "leave `chat_template` out if the model is of this family"),
        ("model(chat_template=harmony)", "leave `chat_template` out if the model is of this family"),
        ("model(chat_template=gemma4)", "leave `chat_template` out if the model is of this family"),
        ("model(chat_template=qwen3.5)", "leave `chat_template` out if the model is of this family"),
        ("model(attn=flash4)", "which no bundle installs"),
        ("method rejection_sampling", "train on their file by sft or dpo"),
        ("method grpo(loss=gmpo)", "an experimental trainer of TRL"),
        ("sequence_parallel_size=2", "`strategy zero3(context_parallel=2)` for DeepSpeed's Ulysses"),
        ("method grpo {\n  vllm(tensor_parallel_size=2)\n}", "`tensor_parallel`"),
        ("model qwen2.5-0.5b-instruct", "`train qwen2.5-0.5b-instruct on DATA`"),
        ("data(streaming)", "`for 1000 steps`"),
        ("500steps", "for 500 steps"),
        ("image_root=3", "a local file is quoted where it is used"),
        ("eva_config=3", "write `lora(init = eva, init_rows = 256)`"),
        ("min_pixels=3136", "the model's own processor"),
        ("quokka=3", "xpc list settings"),
        ('freeze {\n  except_parameters = [""]\n}', "such as"),
        ("lora(targets=[query_key_value])", "name modules of qwen2"),
        ("block_size = 1024", "write `seq=1024`"),
        ("nodes 2 x h100", "write `nodes 2`, and `hardware N x h100`"),
        ("target trl>=1.0", "one version, as in `target trl-1.16`"),
        ("optimizer adamw:", "a block is written `optimizer adamw {`"),
        ('track wandb "a"', 'write `project="a"`, or `name="a"`'),
        ("accelerate launch train.py", "launch.sh"),
        ("axolotl preprocess config.yml", "launch.sh"),
        ("hardware {\n  gpus = 8\n  type = h100\n}", "write `hardware 8 x h100-80gb`"),
        ("data t {\n  alpaca, dolly-15k\n}", "each on its own line"),
        ("batch {\n  gbs = 128 sequences\n}", "write `gbs = 128`"),
        ("method dpo {\n  cdpo_eps = 0.1\n}", "label_smoothing"),
    ],
)
def test_a_help_says_what_is_true(written, words):
    found = first(HEAD + written + "\n")
    assert words in (found.help or ""), found


@pytest.mark.parametrize("written", ["gpus=8", "world_size=8", "gpus", "hardware", "launch slurm {\n  gpus = 8\n}",
                                     "hardware {\n  count = 8\n}", "num_gpus 4"])  # fmt: skip
def test_no_help_names_a_gpu_that_nobody_wrote(written):
    found = first(HEAD + written + "\n")
    assert "h100" not in (found.help or "")
    assert "x GPU" in (found.help or "")
    assert not found.edits


@pytest.mark.parametrize("name", ["lr", "seed", "hardware", "rank", "gbs"])
def test_no_edit_invents_a_value(name):
    found = checked(f"{LINE} with {name}\n")
    assert not [one.edits for one in found.problems if one.severity == "error" and one.edits]


def test_no_help_names_another_file(tmp_path):
    files = {"m.xp": HEAD, "note.xp": HEAD, "run-b.xp": HEAD, "rows-2.jsonl": ROW * 64, "one.jsonl": ROW}
    root = put(tmp_path, files)
    for text in (
        'xpc 1\nextends "nope.xp"\n', 'xpc 1\nextends "run-a.xp"\n', 'train qwen2.5-3b on "m.jsonl.gz" for 1 epochs\n',
        'train qwen2.5-3b on "rows-1.jsonl" for 1 epochs\n',
    ):  # fmt: skip
        helps = " ".join(one.help or "" for one in checked(text, root).problems)
        assert "which is here" not in helps, text
    assert misspelt_file("trian.jsonl", ["train.jsonl", "test.jsonl"]) == "train.jsonl"
    assert misspelt_file("Base.xp", ["base.xp"]) == "base.xp"
    assert misspelt_file("rows.jsonl.gz", ["rows.jsonl"]) == "rows.jsonl"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('train qwen2.5-3b on rows\ndata rows {\n  "rows.jsonl" {\n    take = 1%\n  }\n}\n', "larger share"),
        ('train qwen2.5-3b on "one.jsonl"\ndata(holdout=1)\neval(every=epoch)\n', "leave `holdout` out"),
    ],
)
def test_no_help_names_another_number_of_rows(tmp_path, text, words):
    root = put(tmp_path, {"rows.jsonl": ROW * 64, "one.jsonl": ROW})
    found = next(one for one in checked("xpc 1\n" + text, root).problems if one.code == "XP555")
    assert words in (found.help or "")
    assert not any(c.isdigit() for c in found.help or "")


def test_no_help_names_a_precision_that_the_gpu_lacks():
    text = f"{HEAD}hardware 8 x {{}}\nextra trl {{{{\n  bf16 = true\n}}}}\n"
    assert "precision=fp16" in (first(text.format("v100-32gb")).help or "")
    assert "precision=bf16" in (first(text.format("h100-80gb")).help or "")


def test_the_first_line_is_mended():
    for text in ("trian qwen2.5-3b on infinity-instruct\n", "train qwen2.5 3b on infinity-instruct\n"):
        assert edited(text, first(text)) == f"{LINE}\n"
    assert "infinity-instruct[train:20%]" in (first(f"{LINE}[20%:]\n").help or "")


@pytest.mark.parametrize(
    ("options", "right"),
    [
        ("1e-5 lr", "lr=1e-5"),
        ("10% warmup", "warmup=10%"),
        ("zero 3", "zero3"),
        ("cosine schedule", "cosine"),
        ("no checkpointing", "checkpointing=false"),
        ("lora r=8", "lora rank=8"),
    ],
)
def test_words_of_a_sentence_become_settings(options, right):
    found = first(f"{LINE} with {options}\n")
    assert edited(f"{LINE} with {options}\n", found) == f"{LINE} with {right}\n"
    assert checked(f"{LINE} with {right}\n").spec is not None


def test_words_of_a_sentence_that_no_edit_can_mend():
    for options, words in (
        ("8 h100", "`8 x h100-80gb` or"),
        ("8 gpus", "hardware=8 x GPU"),
    ):
        found = first(f"{LINE} with {options}\n")
        assert words in (found.help or "")
        assert not found.edits
    for line, words in (
        ("train qwen2.5-3b with lora on alpaca", "write `train qwen2.5-3b on alpaca with lora`"),
        (
            "train qwen2.5-3b on alpaca with lora for 3 epochs",
            "write `train qwen2.5-3b on alpaca for 3 epochs with lora`",
        ),
        ('train qwen2.5-3b on alpaca save to "out/a"', 'with save="out/a"`'),
        ("train qwen2.5-3b on alpaca logging to wandb", "with track=wandb`"),
    ):
        assert words in (first(f"{line}\n").help or "")


def test_a_misspelt_dataset_of_the_hub_is_a_warning():
    found = [one for one in checked("train qwen2.5-3b on tatsu-lab/alpacca\n").problems if one.code == "XP111"]
    assert [(one.severity, [edit.text for edit in one.edits]) for one in found] == [("warning", ["tatsu-lab/alpaca"])]
    other = [one for one in checked("train qwen2.5-3b on tatsu-lab/poems\n").problems if one.code == "XP111"]
    assert [(one.severity, one.edits) for one in other] == [("note", ())]


def test_a_name_of_a_file_has_a_floor_of_likeness():
    keys = ["disable_dropout", "lora_target_modules", "sync_ref_model", "rl", "train_on_eos", "learning_rate"]
    for key in ("image_root", "target_max_len", "base_model", "lr", "train_on_split"):
        assert typo_of(key, keys) is None
    assert typo_of("learing_rate", keys) == "learning_rate"


@pytest.mark.parametrize(
    "line", ["data_seed = [1, 2]", "neftune_noise_alpha = [5, 10]", "extra trl(neftune_noise_alpha=[5, 10])"]
)
def test_a_sweep_says_that_it_cannot_vary_extras(line):
    found = first(f"{HEAD}sweep {{\n  {line}\n}}\n")
    assert found.code == "XP882"
    assert not found.edits
    assert "write one spec for each" in (found.help or "")


@pytest.mark.parametrize(
    ("written", "help"),
    [
        ("hardware 4 x RTX 4090", "write `hardware 4 x rtx-4090`"),
        ("critic.optim.lr=1e-5", "no equivalent, because the rewards of grpo"),
        ("validation_ds.global_batch_size=8", "`eval` has every"),
        ("ref.fsdp_config.param_offload=true", "no equivalent, because the reference"),
        ("max_num_seqs=256", "no equivalent"),
        ("output_dir=true", "a quoted path"),
        ("warmup_epochs=1", "one epoch of three is `warmup=33%`"),
        ('resume_from_checkpoint="out/checkpoint-100"', "leave `resume` out"),
        ("method online_dpo", "no equivalent, because a judge or a reward model compares"),
        ("optimizer adamw {\n  bits = 8\n}", "write `optimizer adamw8bit`"),
        ('track wandb {\n  group = "a"\n}', "no equivalent, because wandb reads it from its environment"),
        ("extra deepspeed {\n  stage = 3\n}", "`strategy` decides it: write `strategy=zero3`"),
    ],
)
def test_a_name_of_another_component_gets_no_edit_of_training(written, help):
    found = first(HEAD + written + "\n")
    assert help in (found.help or "")
    assert not found.edits or written.startswith("hardware")


@pytest.mark.parametrize("values", ["loguniform(1e-6, 1e-4)", "uniform(1e-6, 1e-4)", "[1e-6..1e-4]"])
def test_a_distribution_or_a_range_is_not_taken_for_its_ends(values):
    found = first(f"{HEAD}sweep {{\n  lr = {values}\n}}\n")
    assert "write each value in a list" in found.help
    assert not found.edits


def test_the_note_on_the_default_precision_says_that_tf32_is_not_a_precision():
    found = [
        one for one in checked(HEAD + "precision tf32\n").problems if "the spec states no precision" in one.message
    ]
    assert "`precision fp32(tf32)`" in found[0].help
    assert all(
        "tf32" not in one.help for one in checked(HEAD).problems if "the spec states no precision" in one.message
    )
