"""Features of the public files in a second sample, such as numbers written as strings, and booleans that have no
effect.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import HARDWARE, HEAD, imported
from test_import_wild_files import AXOLOTL, FACTORY

pytestmark = pytest.mark.slow

SECOND = """\
model: Qwen/Qwen3-4B
train_dataset: data/rows.yaml
output_dir: out
max_steps: 10
learning_rate: 1e-4
micro_batch_size: 1
"""


@pytest.mark.parametrize("head", [HEAD, FACTORY])
def test_a_mapping_may_be_a_text_of_json(head: str) -> None:
    more = (
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs: '{\"use_reentrant\": false}'\n"
        "lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: '{\"min_lr_rate\": 0.1}'\n"
    )
    found = imported(head + more, *HARDWARE)
    assert not found.draft.wrong, found.messages
    assert "checkpointing(reentrant=false)" in found.text
    assert found.arguments["lr_scheduler_kwargs"] == {"min_lr_rate": 0.1}
    broken = imported(head + more.replace(": false}", ""), *HARDWARE)
    assert any("the value must be a mapping such as" in one for one in broken.messages)


def test_gradient_checkpointing_turns_nothing_off_in_llamafactory() -> None:
    found = imported(FACTORY + "gradient_checkpointing: false\n", *HARDWARE)
    assert found.outcomes["gradient_checkpointing"] == "irrelevant"
    assert "checkpointing(reentrant=true)" in found.text
    assert any("only `disable_gradient_checkpointing` turns this off" in one for one in found.messages)
    off = imported(FACTORY + "gradient_checkpointing: false\ndisable_gradient_checkpointing: true\n", *HARDWARE)
    assert "checkpointing(" not in off.text
    assert not any("has no effect: LLaMA-Factory recomputes" in one for one in off.messages)
    assert "checkpointing(" not in imported(HEAD + "gradient_checkpointing: false\n", *HARDWARE).text


@pytest.mark.parametrize("more", ["warmup_ratio: 0.03\n", "weight_decay: 0.1\n", "gradient_accumulation_steps: 4\n"])
def test_the_second_layout_has_keys_of_its_own(more: str) -> None:
    assert not imported(SECOND, *HARDWARE).draft.wrong
    found = imported(SECOND + more, *HARDWARE)
    (output,) = [one for one in found.draft.messages if one.severity == "error"]
    assert "no such key in a file with `train_dataset`" in output.text


def test_fully_trained_modules_of_a_quantized_base_are_kept_in_fp32() -> None:
    more = (
        "bf16: false\nfp16: true\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 16\n"
        "lora_target_linear: true\nlora_modules_to_save: [embed_tokens, lm_head]\n"
    )
    found = imported(AXOLOTL + more, *HARDWARE)
    assert not found.errors, found.errors
    assert found.payload["model"]["dtype"] == "float32"
    assert "torch_dtype" in found.draft.differences
    alone = imported(AXOLOTL + more.replace("lora_modules_to_save: [embed_tokens, lm_head]\n", ""), *HARDWARE)
    assert alone.payload["model"]["dtype"] == "float16"


def test_default_accelerator_config_is_accepted() -> None:
    usual = "accelerator_config:\n  split_batches: false\n  dispatch_batches: null\n  non_blocking: true\n"
    assert not imported(HEAD + usual, *HARDWARE).draft.wrong
    assert not imported(HEAD + "accelerator_config: '{\"even_batches\": true}'\n", *HARDWARE).draft.wrong
    found = imported(HEAD + usual.replace("split_batches: false", "split_batches: true"), *HARDWARE)
    assert any("how accelerate forms batches" in one for one in found.messages)


CHAT = (
    AXOLOTL.replace("tatsu-lab/alpaca", "org/chat")
    .replace("type: alpaca", "type: chat_template")
    .replace("Qwen/Qwen2.5-7B", "Qwen/Qwen3-4B")
)
REPORTED = "chat_template_kwargs:\n  enable_thinking: false\n"


def test_template_arguments_are_written_into_the_template_or_refused() -> None:
    jinja = 'chat_template_jinja: "{%- if enable_thinking %}t{% endif %}\\n{{ messages }}"\n'
    found = imported(CHAT + jinja + REPORTED, *HARDWARE)
    assert not found.draft.wrong, found.messages
    assert 'chat_template = file("recipe.chat_template.jinja", enable_thinking=false)' in found.text
    reasoning = imported(CHAT + REPORTED, *HARDWARE)
    assert not reasoning.errors, reasoning.errors
    assert 'chat_template = file("recipe.chat_template.jinja", enable_thinking=false)' in reasoning.text
    quiet = imported(CHAT.replace("Qwen3-4B", "Qwen2.5-7B-Instruct") + REPORTED, *HARDWARE)
    assert not quiet.errors, quiet.errors
    assert quiet.outcomes["chat_template_kwargs.enable_thinking"] == "irrelevant"
    elsewhere = imported(CHAT.replace("Qwen/Qwen3-4B", "org/another") + REPORTED, *HARDWARE)
    (output,) = [one for one in elsewhere.draft.messages if one.severity == "error"]
    assert "the tokenizer's own template reads it" in output.text
    assert not imported(AXOLOTL + REPORTED, *HARDWARE).draft.wrong


FULL = FACTORY.replace("finetuning_type: lora", "finetuning_type: full")
PAIRS = FACTORY.replace("stage: sft", "stage: dpo").replace("alpaca_en_demo", "dpo_en_demo")
TEXTS = FACTORY.replace("stage: sft", "stage: pt")
TOGETHER = {
    "max_samples": FACTORY + "streaming: true\nmax_samples: 10\nmax_steps: 5\n",
    "val_size": FACTORY + "streaming: true\nval_size: 0.1\nmax_steps: 5\n",
    "streaming": FACTORY + "streaming: true\n",
    "mask_history": FACTORY + "mask_history: true\ntrain_on_prompt: true\n",
    "resize_vocab": FACTORY + "quantization_bit: 4\nresize_vocab: true\n",
    "use_galore": FACTORY + "use_galore: true\n",
    "interleave_probs": FACTORY + "interleave_probs: '1'\n",
    "do_predict": FACTORY + "do_predict: true\n",
    "do_eval": FACTORY + "do_eval: true\n",
    "eval_strategy": FACTORY + "eval_strategy: steps\neval_steps: 10\n",
    "use_rslora": FULL + "use_rslora: true\n",
    "use_dora": FACTORY.replace("finetuning_type: lora", "finetuning_type: oft") + "use_dora: true\n",
    "loraplus_lr_ratio": FULL + "loraplus_lr_ratio: 16.0\n",
    "pure_bf16": FULL + "pure_bf16: true\ndeepspeed: examples/deepspeed/ds_z3_config.json\n",
    "train_on_prompt": PAIRS + "train_on_prompt: true\n",
    "neat_packing": TEXTS + "neat_packing: true\nflash_attn: fa2\n",
    "load_best_model_at_end": PAIRS.replace("dpo\n", "rm\n")
    + "load_best_model_at_end: true\nval_size: 0.1\neval_strategy: steps\neval_steps: 500\n",
}
"""Files that LLaMA-Factory itself refuses. Each is under the key that the import's error message must name."""


@pytest.mark.parametrize("key", TOGETHER)
def test_combinations_that_llamafactory_refuses_are_refused(key: str) -> None:
    found = imported(TOGETHER[key], *HARDWARE)
    (output,) = [one for one in found.draft.messages if one.severity == "error"]
    assert f"`{key}" in output.text.split(":")[0]
    assert "LLaMA-Factory refuses the file, too" in output.text


def test_combinations_that_llamafactory_accepts_are_accepted() -> None:
    for text in (
        FACTORY + "streaming: true\nval_size: 10\nmax_steps: 5\n",
        FACTORY + "do_eval: true\nval_size: 0.1\n",
        FACTORY + "eval_strategy: 'no'\ndo_eval: false\n",
        FACTORY + "eval_strategy: steps\neval_steps: 10\neval_dataset: identity\n",
        FACTORY + "use_rslora: true\nmask_history: true\ntrain_on_prompt: false\n",
        FULL + "use_rslora: false\npure_bf16: true\n",
    ):
        assert not imported(text, *HARDWARE).draft.wrong, text


@pytest.mark.parametrize("line", ["    type:\n", ""])
def test_rows_without_a_type_are_tokens_already(line: str) -> None:
    found = imported(AXOLOTL.replace("    type: alpaca\n", line), *HARDWARE)
    assert not found.draft.wrong
    (warned,) = [one for one in found.draft.messages if "tokenized rows" in one.text]
    assert "`--data`" in warned.help
    (source,) = found.payload["data"]["sources"]
    assert (source["shape"], source["tokens"]) == ("tokens", "labels")


@pytest.mark.parametrize(
    "text",
    [
        FACTORY + "adapter_name_or_path: saves/first\n",
        AXOLOTL + "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\nlora_model_dir: saves/first\n",
    ],
)
def test_missing_adapter_is_reported_immediately(text: str) -> None:
    found = imported(text, *HARDWARE)
    assert any("`saves/first` does not exist" in one for one in found.messages)
    assert [one.split()[0] for one in found.errors] == ["XP930"]


@pytest.mark.parametrize(("folder", "earlier"), [
    ("saves/first", "sft.yaml"), ("./saves/first/checkpoint-40", "sft.yaml"), ("saves/second", ""), ("saves/fir.t", ""),
])  # fmt: skip
def test_config_that_writes_a_missing_adapter_is_named(folder: str, earlier: str, tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(FACTORY.replace("output_dir: out", "output_dir: './saves/first/'  # LoRA"))
    later = FACTORY.replace("output_dir: out", "output_dir: saves/second") + "adapter_name_or_path: saves/second\n"
    (tmp_path / "again.yaml").write_text(later)
    found = imported(FACTORY + f"adapter_name_or_path: {folder}\n", *HARDWARE, root=str(tmp_path))
    (help,) = [one.help for one in found.draft.messages if "reads the adapter's shape" in one.text]
    assert ("first run the spec of `sft.yaml`" in help) is (earlier == "sft.yaml"), help
    assert "again.yaml" not in help


def test_reference_loading_is_irrelevant_without_a_reference() -> None:
    found = imported(PAIRS + "ref_model: null\nref_model_quantization_bit: 4\n", *HARDWARE)
    assert not found.draft.wrong, found.messages
    assert found.outcomes["ref_model_quantization_bit"] == "irrelevant"
    assert imported(PAIRS + "ref_model: org/other\nref_model_quantization_bit: 4\n", *HARDWARE).draft.wrong


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("mllm_demo", "a column of images"),
        ("glaive_toolcall_en_demo", "a column of tools"),
        ("dpo_zh_demo", "has preference pairs"),
    ],
)
def test_llamafactorys_own_sets_are_known_by_its_list(name: str, output: str) -> None:
    found = imported(FACTORY.replace("alpaca_en_demo", name), *HARDWARE)
    assert any(output in one.text for one in found.draft.messages if one.severity == "error"), found.messages
    elsewhere = imported(FACTORY.replace("alpaca_en_demo", name) + "dataset_dir: rows\n", *HARDWARE)
    assert not elsewhere.draft.wrong
    assert any("`rows/dataset_info.json`, which describes" in one for one in elsewhere.messages)


def test_a_set_of_llamafactorys_own_on_the_hub_is_read_there() -> None:
    found = imported(FACTORY.replace("alpaca_en_demo", "adgen_train,web_instruct"), *HARDWARE)
    assert "HasturOfficial/adgen[train]" in found.text
    talks = imported(FACTORY.replace("alpaca_en_demo", "open_thoughts"), *HARDWARE)
    assert "llamafactory/OpenThoughts-114k" in talks.text
    assert not talks.errors, talks.errors


def test_rows_that_are_evaluated_on_are_as_many_as_there_are() -> None:
    held = "eval_dataset: identity\neval_strategy: steps\neval_steps: 10\n"
    assert "max_samples" in imported(FACTORY + held + "max_samples: 100\n", *HARDWARE).draft.differences
    assert "max_samples" not in imported(FACTORY + held, *HARDWARE).draft.differences
    share = "val_size: 0.1\neval_strategy: steps\neval_steps: 10\nmax_samples: 100\n"
    assert "max_samples" not in imported(FACTORY + share, *HARDWARE).draft.differences


COMMIT = "c1899de289a04d12100db370d81485cdf75e47ca"


@pytest.mark.parametrize(("folder", "model", "revision"), [
    (f"/home/u/.cache/huggingface/hub/models--Qwen--Qwen3-0.6B/snapshots/{COMMIT}", "Qwen/Qwen3-0.6B", COMMIT),
    ("models--my-org--a--b/", "my-org/a--b", None),
])  # fmt: skip
def test_folder_of_the_hubs_cache_is_the_model_of_the_hub(folder: str, model: str, revision: str | None) -> None:
    data = "/home/u/.cache/huggingface/hub/datasets--trl-lib--Capybara"
    found = imported(f"model_name_or_path: {folder}\ndataset_name: {data}\n", *HARDWARE, "--method", "sft")
    assert f"\ntrain {model} on trl-lib/Capybara for 3 epochs\n" in found.text
    assert (f"  revision = {revision}\n" in found.text) is (revision is not None)
    assert not any("does not exist here" in one for one in found.messages), found.messages


def test_folder_that_only_looks_like_the_hubs_cache_is_a_folder() -> None:
    found = imported("model_name_or_path: /m/models--org--name/checkpoint-5\ndataset_name: a/b\n", "--method", "sft")
    assert '\ntrain "/m/models--org--name/checkpoint-5" on a/b' in found.text


PARQUET = "model_name_or_path: Qwen/Qwen3-0.6B\ndatasets:\n- path: parquet\n  data_files: "


@pytest.mark.parametrize(("files", "source"), [
    ("a.parquet", 'on "a.parquet" for'),
    ("[a.parquet]", 'on "a.parquet" for'),
    ("{train: a.parquet}", 'on "a.parquet" for'),
    ('{train: a.parquet}\n  split: "train[:40]"', '  "a.parquet" {\n    limit = 40\n'),
    ("{fit: [a.parquet]}\n  split: fit", 'on "a.parquet" for'),
])  # fmt: skip
def test_the_one_file_of_a_dataset_is_the_data(files: str, source: str) -> None:
    found = imported(PARQUET + files + "\n", *HARDWARE, "--method", "sft")
    assert not found.draft.wrong, found.messages
    assert source in found.text


@pytest.mark.parametrize("files", ["{train: [a.parquet, b.parquet]}", "{fit: a.parquet}", "a.parquet\n  split: fit",
                                   'a.parquet\n  split: "train[:10%]"'])  # fmt: skip
def test_other_files_of_a_dataset_are_an_error(files: str) -> None:
    found = imported(PARQUET + files + "\n", *HARDWARE, "--method", "sft")
    assert found.draft.wrong
