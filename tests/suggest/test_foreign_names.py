"""Names of other tools that resemble a setting only by their letters, and names whose meaning depends on the method or
the block around them.
"""

from __future__ import annotations

import pytest
from compile_support import checked, edited

LINE = "xpc 1\ntrain qwen2.5-3b on alpaca\n"
DPO = "xpc 1\ntrain qwen2.5-3b-instruct on ultrafeedback-binarized\n"


@pytest.mark.parametrize(
    ("typed", "write"),
    [
        ("saves_per_epoch = 1", "save(every=epoch)"),
        ("evals_per_epoch = 0", "eval(every=never)"),
        ("eval_epoch = 1", "eval(every=epoch)"),
        ("epochs_per_save = 1", "save(every=epoch)"),
        ("save_period = 1", "save(every=1)"),
    ],
)
def test_a_number_of_epochs_or_of_times_per_epoch_is_no_number_of_steps(typed: str, write: str) -> None:
    found = checked(f"{LINE}{typed}\n").problems[0]
    assert [one.text for one in found.edits] == [write]


@pytest.mark.parametrize("typed", ["eval_epoch = 2", "val_epochs = 3", "epochs_per_save = 2"])
def test_a_number_of_epochs_gets_no_edit(typed: str) -> None:
    found = checked(f"{LINE}{typed}\n").problems[0]
    assert not found.edits
    assert "times an epoch" not in (found.help or "")


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("adam_beta3 = 0.99", "another optimizer"),
        ("adam_epsilon2 = 1e-8", "another optimizer"),
        ("backend = nccl", "NCCL"),
        ("torch_compile_options = true", "default options"),
        ("parallelism_config_dp_replicate_size = 2", "hsdp(shard=N)"),
        ("ray_num_workers = 4", "hardware 8 x GPU"),
        ("wandb_run_id = abc", "wandb reads it from its environment"),
        ('log_dir = "logs"', "trackers write into the folder of `save`"),
        ("max_lora_rank = 64", "vLLM has the adapters of the run"),
        ("vllm_importance_sampling_cap = 2.0", "vllm_importance_sampling_clip_max=2.0"),
        ("dpo_use_weighting = true", "extra trl(use_weighting=true)`, which `method dpo` reads"),
        ("loss.gamma = 0.1", "beta=0.1`, which `method`"),
        ("loss:\n  _component_: a.b.Loss", "names no class of Python"),
        ("checkpointer:\n  checkpoint_dir: /tmp/q\n  output_dir: out/x", 'write `train "/tmp/q" on DATA`'),
        ('os.environ["NCCL_DEBUG"] = "INFO"', 'launch(env=["NCCL_DEBUG=INFO"])'),
        ('persona = "Be brief."', 'write `data(system="Be brief.")`'),
        ('path = "out/x"', "`xpc list settings` prints them all"),
        ("size = 16", "`xpc list settings` prints them all"),
        ("model { use_safetensors = false }", "`model(pickle)` also reads pickled ones"),
    ],
)
def test_names_without_a_setting_get_no_edit(typed: str, says: str) -> None:
    found = checked(f"{LINE}{typed}\n").problems[0]
    assert says in (found.help or ""), found.help
    assert not found.edits


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (
            f'{LINE}data {{ prompt_text = "Q: {{{{ q }}}}" }}\n',
            f'{LINE}data {{ prompt_template = "Q: {{{{ q }}}}" }}\n',
        ),
        (f"{LINE}data {{ system_from = persona }}\n", f'{LINE}data {{ system_column = "persona" }}\n'),
        (f"{LINE}data {{ in_order = true }}\n", f"{LINE}data {{ shuffle = false }}\n"),
        (f"{LINE}lora {{ bnb_bits = 4 }}\n", f"{LINE}lora {{ bits = 4 }}\n"),
        (f"{LINE}lora {{ calibration_rows = 256 }}\n", f"{LINE}lora {{ init_rows = 256 }}\n"),
        (f"{LINE}lora {{ targets = every }}\n", f"{LINE}lora {{ targets = all-linear }}\n"),
        (f"{LINE}lora {{ lora_lr = 1e-4 }}\n", f"{LINE}lora\nlr=1e-4\n"),
        (f"{LINE}plugins:\n  - axolotl.integrations.liger.LigerPlugin\n", f"{LINE}liger\n"),
        (f'{LINE}trainer.logger=["console","wandb"]\n', f"{LINE}track=[wandb]\n"),
        (f'{LINE}os.environ["WANDB_PROJECT"] = "demo"\n', f'{LINE}track wandb(project="demo")\n'),
        (f'{LINE}<param name="lr" value="1e-5"/>\n', f"{LINE}lr=1e-5\n"),
        (f"{DPO}dpo loss type ipo\n", f"{DPO}dpo\nloss=ipo\n"),
        (f"{DPO}stage: dpo\n", f"{DPO}method=dpo\n"),
        (f"{DPO.strip()} with dpo loss ipo beta 0.1\n", f"{DPO.strip()} with dpo loss=ipo beta=0.1\n"),
        (
            f"{LINE.strip()} with grpo(rewards=[accuracy]) num_iterations=4\n",
            f"{LINE.strip()} with grpo(rewards=[accuracy]) method(iterations=4)\n",
        ),
        (
            f"{LINE.strip()} on 2 nodes with 8 h100-80gb each\n",
            f"{LINE}hardware 8 x h100-80gb\nnodes 2\n",
        ),
        (
            f"{LINE.strip()} with zero3 on 16 h100-80gb across 2 nodes\n",
            f"{LINE.strip()} with zero3\nhardware 8 x h100-80gb\nnodes 2\n",
        ),
        (f"{LINE.strip()} on 4 nodes with zero3\n", f"{LINE.strip()} with zero3\nnodes 4\n"),
    ],
)
def test_names_and_values_become_settings(text: str, right: str) -> None:
    assert edited(text, checked(text).problems[0]) == right


def test_lines_of_xml_around_settings_are_removed() -> None:
    text = f"{LINE}<config>\n  <seed>3</seed>\n</config>\n"
    assert [one.help for one in checked(text).problems] == [
        "leave the line out",
        "write `seed=3`",
        "leave the line out",
    ]


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("on two nodes with eight h100-80gb each", "\nhardware 8 x h100-80gb\nnodes 2"),
        ("on a single node with 8 a100-80gb", "\nhardware 8 x a100-80gb"),
        ("with 4-bit lora", " with qlora"),
        ("with max length 2048 and packing on", " with seq=2048 packing"),
        ("with dpo, ipo loss, beta 0.1", " with dpo loss=ipo beta=0.1"),
    ],
)
def test_words_of_a_sentence_become_settings(typed: str, right: str) -> None:
    line = f"{LINE.strip()} {typed}\n"
    assert edited(line, checked(line).problems[0]) == f"{LINE.strip()}{right}\n"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (", batch size 32, lr 2e-5, cosine", ["lr=2e-5", "gbs=32", "micro=32"]),
        ("\nLearning rate: 1e-5. Batch size: 64.", ["lr=1e-5", "gbs=64"]),
        ("\nfrom trl import SFTTrainer", ["leave the line out"]),
        ("\nsweep {\n  learning_rate = {min = 1e-6, max = 1e-4}\n}", ["lr = [1e-6, 1e-4]"]),
        ("\nFORCE_TORCHRUN=1 llamafactory-cli train a.yaml", ["FORCE_TORCHRUN=1", "launch.sh", "xpc import a.yaml"]),
        ("\nrewards = [accuracy, format]\nreward_weights = [1.0, 0.2]", ["[accuracy(weight=1.0), format(weight=0.2)]"]),
        ("\neval 5%", ["every=5%", "data(holdout=5%)"]),
        ('\nmodel = "Qwen/Qwen2.5-7B"', ["train Qwen/Qwen2.5-7B on DATA"]),
        ("\nliger_fused_ops = true", ["write `liger`"]),
        ("\nmax_value_wrong = 0.5", ["rewards = [cosine(max_value_wrong=0.5)]"]),
        ('\naccelerators = "H100:8"', ["hardware 8 x h100-80gb"]),
    ],
)
def test_what_is_unclear_is_said_without_an_edit(typed: str, says: list[str]) -> None:
    found = checked(f"{LINE.strip()}{typed}\n").problems[0]
    assert all(one in (found.help or "") for one in says), found.help
    assert not found.edits


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("with linear warmup of 100 steps and cosine decay", " with warmup=100 cosine"),
        ("with lora, rank=64, all linear layers", " with lora(rank=64, targets=all-linear)"),
        ("with full precision", " with fp32"),
        (", keep the best checkpoint", " with extra(trl, load_best_model_at_end=true)"),
        ("on cpu only", "\nhardware cpu"),
    ],
)
def test_further_words_of_a_sentence_become_settings(typed: str, right: str) -> None:
    line = f"{LINE.strip()}{'' if typed[0] == ',' else ' '}{typed}\n"
    assert edited(line, checked(line).problems[0]) == f"{LINE.strip()}{right}\n"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("fine-tune qwen2.5-3b with lora on alpaca using lr 1e-4 for 2 epochs", " for 2 epochs with lora lr=1e-4"),
        (f"{LINE.strip()}\nmodel = get_peft_model(model, LoraConfig(r=8))", "\nlora(rank=8)"),
        (f"{LINE.strip()}\nmethod dpo\nloss_fn.reference_policy_kl_penalty = 0.01", "\nmethod dpo\nbeta = 0.01"),
        (f"{LINE.strip()}\nfinetune_type = lora", "\nlora"),
    ],
)
def test_calls_and_sentences_of_other_tools_become_settings(text: str, right: str) -> None:
    line = LINE.strip() if text.startswith("xpc") else "train qwen2.5-3b on alpaca"
    assert edited(f"{text}\n", checked(f"{text}\n").problems[0]) == f"{line}{right}\n"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("\ntrainer = SFTTrainer(\n  model=model,\n  args=args,\n)", "the bundle has its own trainer"),
        ("\nmodel = prepare_model_for_kbit_training(model)", "`qlora` prepares its base"),
        (" on my laptop", "hardware cpu"),
    ],
)
def test_calls_that_set_nothing_get_no_edit(typed: str, says: str) -> None:
    found = checked(f"{LINE.strip()}{typed}\n").problems[0]
    assert says in (found.help or "")
    assert not found.edits


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("\nlora_on_all_linear = true", "targets=all-linear"),
        ("\ndrop_last_batch = true", "dataloader_drop_last=true"),
        ("\ngpu_ids = 0,1", "no equivalent"),
        ("\nlr: ${LR}", "no variables"),
    ],
)
def test_help_names_the_setting_or_the_reason(typed: str, says: str) -> None:
    found = checked(f"{LINE.strip()}{typed}\n").problems[0]
    assert says in (found.help or ""), found.help


def test_data_without_a_name_is_a_file_or_a_dataset() -> None:
    found = checked("xpc 1\ntrain qwen2.5-3b on my data\n").problems[0]
    assert "the path of your file in quotes" in (found.help or "")
    assert not found.edits


def test_words_that_say_nothing_are_left_out() -> None:
    line = f"{LINE.strip()} as a full finetune in bf16\n"
    assert edited(line, checked(line).problems[0]) == f"{LINE.strip()} with bf16\n"
    assert not any(one.edits for one in checked(f"{LINE.strip()} from scratch\n").problems)
