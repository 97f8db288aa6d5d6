"""A bundle trains on the rows on which axolotl would train. The import also knows axolotl's keys for checkpoints,
schedules and models.
"""

from __future__ import annotations

import pytest
from import_support import HARDWARE, imported

CHAT = """\
base_model: Qwen/Qwen2.5-3B
micro_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 2e-4
num_epochs: 2
output_dir: ./out
bf16: true
datasets:
  - path: org/chat
    type: chat_template
"""
PAIRS = CHAT.replace("type: chat_template", "type: chatml.intel") + "rl: dpo\n"
REWARDED = CHAT.replace("    type: chat_template\n", "") + (
    "rl: grpo\ntrl:\n  num_generations: 4\n  use_vllm: true\n  reward_funcs: [rewards.short]\n"
)


def test_a_part_of_a_data_set_is_a_share_of_its_shuffled_rows() -> None:
    found = imported(CHAT + "    shards: 10\n    shards_idx: 0\n", *HARDWARE)
    assert found.payload["data"]["sources"][0]["take"] == {"fraction": 0.1}
    assert "shards_idx" not in found.draft.differences
    other = imported(CHAT + "    shards: 4\n    shards_idx: 2\n", *HARDWARE)
    assert other.payload["data"]["sources"][0]["take"] == {"fraction": 0.25}
    assert "another shard" in other.draft.differences["shards_idx"]
    whole = imported(CHAT + "    shards: 1\n", *HARDWARE)
    assert whole.payload["data"]["sources"][0]["take"] is None


def test_a_part_of_rows_in_their_order_is_refused() -> None:
    found = imported(CHAT + "    shards: 10\ncurriculum_sampling: true\n", *HARDWARE)
    assert any("shuffles the rows before" in one for one in found.messages if found.draft.wrong)


@pytest.mark.parametrize(("more", "shuffled"), [
    ("shuffle_merged_datasets: false\n", True),
    ("curriculum_sampling: true\n", False),
    ("curriculum_sampling: true\nrl: kto\n", True),
    ("streaming: true\nmax_steps: 9\nshuffle_merged_datasets: false\n", False),
    ("streaming: true\nmax_steps: 9\ncurriculum_sampling: true\n", True),
])  # fmt: skip
def test_rows_keep_their_order_where_axolotls_trainer_keeps_it(more: str, shuffled: bool) -> None:
    found = imported(CHAT + more, *HARDWARE)
    assert found.payload["data"]["shuffle"] is shuffled, found.text


def test_rows_at_the_end_are_held_out_if_axolotl_does_not_shuffle_them_first() -> None:
    found = imported(CHAT + "shuffle_merged_datasets: false\nval_set_size: 0.1\n", *HARDWARE)
    assert "holds out the last rows" in found.draft.differences["shuffle_merged_datasets"]
    assert not imported(CHAT + "val_set_size: 0.1\n", *HARDWARE).draft.differences.get("shuffle_merged_datasets")


def test_axolotl_reads_every_row_of_pairs() -> None:
    found = imported(PAIRS.replace("rl: dpo\n", "    shards: 10\nrl: dpo\n"), *HARDWARE)
    assert found.payload["data"]["sources"][0]["take"] is None
    assert found.outcomes["datasets[0].shards"] == "irrelevant"


@pytest.mark.slow
def test_the_rows_of_a_part_are_axolotls() -> None:
    """With axolotl's key `shards`, a bundle takes the same rows of the dataset as axolotl. Source: axolotl 0.18.0,
    utils/data/sft.py: `dataset.shuffle(seed=seed).shard(num_shards=shards, index=0)`.
    """
    from datasets import Dataset

    from xpc.runtime.features.rows.mixture import _take

    found = imported(CHAT + "    shards: 7\n", *HARDWARE)
    data = found.payload["data"]
    rows = Dataset.from_dict({"n": list(range(70))})
    theirs = rows.shuffle(seed=42).shard(num_shards=7, index=0)["n"]
    assert list(_take(rows, data["sources"][0]["take"], data["seed"], data["shuffle"])["n"]) == list(theirs)


def test_rows_that_are_not_prepared_stay_as_long_as_they_are() -> None:
    assert imported(PAIRS, *HARDWARE).payload["data"]["max_tokens"] == 512
    kept = imported(PAIRS + "skip_prepare_dataset: true\nremove_unused_columns: false\n", *HARDWARE)
    assert kept.payload["data"]["max_tokens"] is None
    trained = imported(CHAT + "skip_prepare_dataset: true\nremove_unused_columns: false\n", *HARDWARE)
    assert trained.draft.wrong
    assert any("images or tokens" in one for one in trained.messages)
    assert not imported(CHAT + "skip_prepare_dataset: false\n", *HARDWARE).errors


def test_the_server_of_vllm_may_stand_in_a_block_of_its_own() -> None:
    block = "  vllm: {port: 8001, host: elsewhere, vllm_gpu_memory_utilization: 0.9}\n"
    found = imported(REWARDED + block + "skip_prepare_dataset: true\n", *HARDWARE)
    assert not found.draft.wrong, found.messages
    assert found.draft.settings["method.vllm.port"].text == "8001"
    assert found.outcomes["trl.vllm.vllm_gpu_memory_utilization"] == "irrelevant"
    assert any("XPC_VLLM_HOST" in one for one in found.messages)
    both = imported(REWARDED + "  vllm_server_port: 8002\n" + block, *HARDWARE)
    assert both.draft.settings["method.vllm.port"].text == "8002"


def test_the_best_checkpoints_are_among_those_of_every_evaluation() -> None:
    more = "save_strategy: best\nmetric_for_best_model: loss\n"
    found = imported(CHAT + more + "val_set_size: 0.1\neval_steps: 50\n", *HARDWARE)
    assert (found.arguments["save_strategy"], found.arguments["save_steps"]) == ("steps", 50)
    assert "evaluates better" in found.draft.differences["save_strategy"]
    assert imported(CHAT + more, *HARDWARE).draft.wrong


def test_a_stable_phase_is_what_warm_up_and_decay_leave() -> None:
    kwargs = "lr_scheduler: warmup_stable_decay\nwarmup_steps: 50\nmax_steps: 250\nlr_scheduler_kwargs: {{num_stable_steps: {}, num_decay_steps: 50, num_cycles: 0.5}}\n"  # noqa: E501
    found = imported(CHAT + kwargs.format(150), *HARDWARE)
    assert not found.errors
    assert found.draft.settings["schedule.decay"].text == "50"
    assert any("stays at its peak" in one for one in imported(CHAT + kwargs.format(100), *HARDWARE).messages)


@pytest.mark.parametrize("name", ["model_config", "overrides_of_model_config"])
def test_a_model_is_read_as_its_configuration_has_it(name: str) -> None:
    """A key of axolotl can override a value of the model's config.json. The import accepts such a key only if it has
    the same value as config.json. Any other value, such as untied embeddings, is an error.
    """
    for quiet in ("use_cache: false", "pad_token_id: 0", "tie_word_embeddings: true"):
        assert not imported(CHAT + f"{name}: {{{quiet}}}\n", *HARDWARE).errors, quiet
    for loud in ("tie_word_embeddings: false", "attention_dropout: 0.0", "output_router_logits: false",
                 "rope_scaling: null"):  # fmt: skip
        assert imported(CHAT + f"{name}: {{{loud}}}\n", *HARDWARE).draft.wrong, loud


def test_a_scaling_of_positions_is_a_setting() -> None:
    scaling = "{type: yarn, factor: 4.0, original_max_position_embeddings: 32768, beta_fast: 16}"
    found = imported(CHAT + f"overrides_of_model_config: {{rope_scaling: {scaling}}}\n", *HARDWARE)
    assert not found.errors
    assert found.draft.settings["model.rope"].text == "yarn(factor=4, original=32768, beta_fast=16)"
    for wrong in ("{type: yarn}", "{type: su, factor: 4}", "{type: linear, factor: 4, low: 1}"):
        assert imported(CHAT + f"model_config: {{rope_scaling: {wrong}}}\n", *HARDWARE).draft.wrong, wrong


def test_data_set_without_a_path_is_refused_as_axolotl_does() -> None:
    found = imported(CHAT.replace("path: org/chat", "data_files: [a.jsonl]\n    ds_type: json"), *HARDWARE)
    assert any("fails for a dataset without a `path`" in one for one in found.messages)


def test_a_slice_from_the_first_row_is_one_from_the_beginning() -> None:
    for output, cut in (("train[0:100]", "100"), ("train[0%:5%]", "5%"), ("train[:100]", "100")):
        found = imported(CHAT + f"    split: {output}\n", *HARDWARE)
        assert found.payload["data"]["sources"][0]["slice"] == cut
    assert imported(CHAT + "    split: train[10:100]\n", *HARDWARE).draft.wrong


def test_a_sequence_that_fsdp1_or_ddp_would_divide_is_divided_under_fsdp2() -> None:
    context = "context_parallel_size: 2\nflash_attention: true\n"
    more = context + "fsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    for text in ("fsdp_version: 1\n" + more, context):
        found = imported(CHAT + text, *HARDWARE)
        assert not found.errors
        assert found.draft.settings["strategy"].text == "fsdp"
        assert "context_parallel_size" in found.draft.differences
    again = imported(CHAT + "fsdp_version: 2\n" + more, *HARDWARE)
    assert not again.errors
    assert "context_parallel_size" not in again.draft.differences


def test_default_split_of_a_test_set_is_test() -> None:
    """Source: axolotl 0.18.0, utils/data/sft.py: `_load_tokenized_prepared_datasets(..., split="test")`."""
    more = "eval_steps: 50\neval_strategy: steps\ntest_datasets:\n  - path: {}\n    type: chat_template\n"
    for name, split in (("org/held", "test"), ("org/held\n    split: train", "train"), ("held.jsonl", "train")):
        found = imported(CHAT + more.format(name), *HARDWARE)
        ((one,),) = [held["sources"] for held in found.payload["data"]["evaluation"]["sets"]]
        assert one["split"] == split, name


def test_a_key_that_axolotl_does_not_know_may_differ_between_test_and_training_set() -> None:
    more = "    train_on_split: train\neval_steps: 50\ntest_datasets:\n  - path: org/held\n    type: {}\n"
    assert not imported(CHAT + more.format("chat_template"), *HARDWARE).draft.wrong
    assert imported(CHAT + more.format("alpaca"), *HARDWARE).draft.wrong


def test_a_data_set_is_read_at_its_revision() -> None:
    found = imported(CHAT + "    split: train[:5%]\n    revision: refs/pr/3\n", *HARDWARE)
    (one,) = found.payload["data"]["sources"]
    assert (one["revision"], one["slice"]) == ("refs/pr/3", "5%")
    assert imported(CHAT + "    revision: 'a b'\n", *HARDWARE).draft.wrong


@pytest.mark.parametrize(("more", "part"), [
    ("", "the spec keeps its beginning"),
    ("  - path: org/chat\n    type: chat_template\n", "the spec drops the text"),
    ("  - path: org/chat\n    type: chat_template\nexcess_length_strategy: truncate\n", "the spec keeps its beginning"),
])  # fmt: skip
def test_the_lost_rest_of_a_long_text_is_reported(more: str, part: str) -> None:
    text = CHAT.replace("type: chat_template", "type: completion") + more
    assert part in imported(text, *HARDWARE).draft.differences["sequence_len"]


def test_a_streamed_pretraining_dataset_holds_out_no_rows() -> None:
    """axolotl 0.18.0 evaluates a streamed run only on `test_datasets` (utils/data/sft.py:
    `_prepare_streaming_dataset`).
    """
    text = CHAT.partition("datasets:")[0] + "max_steps: 10\nval_set_size: 0.05\neval_steps: 5\n"
    raw = imported(text + "pretraining_dataset:\n  - path: json\n    data_files: [a.jsonl]\n", *HARDWARE)
    assert "holdout" not in raw.text
    assert raw.outcomes["val_set_size"] == raw.outcomes["eval_steps"] == "irrelevant"
    assert "holdout = 5%" in imported(text + "datasets:\n  - path: a.jsonl\n    type: completion\n", *HARDWARE).text


def test_a_pretraining_dataset_is_streamed() -> None:
    """axolotl 0.19 streams it, with a shuffle buffer of 10,000 rows, whatever `streaming` says; a run that is counted
    in epochs reads all rows.
    """
    text = CHAT.partition("datasets:")[0] + "pretraining_dataset:\n  - path: org/texts\n"
    for more in ("", "streaming: false\n"):
        stream = imported(f"{text}max_steps: 10\n{more}", *HARDWARE)
        assert "  streaming\n  shuffle_buffer = 10000\n" in stream.text
    assert "streaming" not in imported(text, *HARDWARE).text.partition("#")[0]


@pytest.mark.parametrize("rl", ["", "dpo", "ipo", "kto", "orpo", "simpo"])
@pytest.mark.parametrize(("more", "readers"), [
    ("trl:\n  beta: 0.3\n", "dpo ipo kto orpo simpo"), ("rl_beta: 0.3\n", "dpo ipo kto orpo simpo"),
    ("orpo_alpha: 0.3\n", "dpo ipo kto orpo simpo"), ("simpo_gamma: 0.7\n", "simpo"), ("cpo_alpha: 0.7\n", "simpo"),
    ("kto_desirable_weight: 2.0\n", "kto"), ("kto_undesirable_weight: 2.0\n", "kto"),
    ("center_rewards_coefficient: 0.01\n", "reward"), ("dpo_label_smoothing: 0.1\n", "dpo"),
    ("dpo_use_weighting: true\n", "dpo ipo"), ("neftune_noise_alpha: 5\n", "sft"), ("group_by_length: true\n", "sft"),
    ("val_set_size: 0.1\neval_steps: 9\nearly_stopping_patience: 3\n", "sft"),
])  # fmt: skip
def test_a_key_of_another_method_has_no_effect(rl: str, more: str, readers: str) -> None:
    """Source: axolotl 0.19.0, core/builders/rl.py, causal.py and core/trainers/dpo/__init__.py."""
    found = imported(CHAT + more + (f"rl: {rl}\n" if rl else ""), *HARDWARE)
    keys = {one.key: one.outcome for one in found.draft.outcomes.values()}
    outcome = keys["trl.beta" if "trl" in more else more.splitlines()[-1].partition(":")[0]]
    assert (outcome == "irrelevant") == ((rl or "sft") not in readers.split()), found.messages
    if "0.3" in more and rl in readers.split():
        assert found.draft.settings["method.beta"].text == "0.3"


def test_beta_of_the_block_trl_decides() -> None:
    found = imported(CHAT + "rl: kto\nrl_beta: 0.1\ntrl:\n  beta: 0.3\n", *HARDWARE)
    assert found.draft.settings["method.beta"].text == "0.3"
    assert found.outcomes["rl_beta"] == "irrelevant"


@pytest.mark.parametrize(("template", "thinking"), [("qwen3", True), ("qwen_25", False), ("chatml", False)])
def test_orpo_counts_the_tag_of_thoughts_to_the_prompt(template: str, thinking: bool) -> None:
    keys = CHAT.replace("type: chat_template", "type: chat_template.argilla") + f"chat_template: {template}\n"
    differences = imported(keys + "rl: orpo\n", *HARDWARE).draft.differences["datasets.type"]
    assert ("counts `<think>`" in differences) is thinking
    assert "counts `<think>`" not in imported(keys + "rl: dpo\n", *HARDWARE).draft.differences.get("datasets.type", "")


@pytest.mark.parametrize(("model", "day"), [
    ("meta-llama/Llama-3.1-8B-Instruct", False), ("meta-llama/Llama-3.2-1B-Instruct", True),
])  # fmt: skip
def test_template_that_trl_cannot_mark_is_the_built_in_one(model: str, day: bool) -> None:
    found = imported(CHAT.replace("Qwen/Qwen2.5-3B", model), *HARDWARE)
    assert not found.errors, found.errors
    assert "chat_template = llama3.1" in found.text
    assert ("day of the run" in found.draft.differences.get("chat_template", "")) is day


@pytest.mark.parametrize(("more", "every"), [("logging_steps: 7\n", "7"), ("", "0.5%")])
def test_evaluations_without_a_number_of_steps_follow_logging(more: str, every: str) -> None:
    found = imported(CHAT + "val_set_size: 0.1\neval_strategy: steps\n" + more, *HARDWARE)
    assert found.draft.settings["eval.every"].text == every
