"""Open-R1's arguments of reward functions become arguments in the spec."""

from __future__ import annotations

from pathlib import Path

from import_support import HARDWARE, HEAD, convert, imported

GRPO = HEAD + "num_generations: 8\nper_device_train_batch_size: 8\nreward_funcs: [cosine, repetition_penalty]\n"
STATED = "cosine_max_len: 4000\ncosine_max_value_wrong: -1.0\nrepetition_n_grams: 4\n"


def test_arguments_are_written_with_their_function() -> None:
    found = imported(GRPO + STATED + "soft_punish_cache: 100\n", *HARDWARE)
    assert not found.errors
    assert [one.get("options") for one in found.payload["method"]["rewards"]] == [
        {"max_value_wrong": -1.0, "max_len": 4000}, {"ngram_size": 4},
    ]  # fmt: skip
    assert found.outcomes["soft_punish_cache"] == "irrelevant"
    assert imported(GRPO + "cosine_max_len: [1]\n", *HARDWARE).draft.wrong
    soft = GRPO.replace("cosine", "soft_overlong_punishment") + "max_completion_len: 8192\n"
    # Open-R1's default is 4096; a bundle's is a quarter of max_completion_len
    assert "soft_overlong_punishment(max_completion_len=8192, soft_punish_cache=4096)" in imported(soft, *HARDWARE).text


def test_trl_grpo_takes_the_reward_functions_of_trl() -> None:
    command = (
        "trl grpo --model_name_or_path Qwen/Qwen3-0.6B --dataset_name trl-lib/tldr --learning_rate 1e-6 "
        "--reward_funcs think_format_reward accuracy_reward get_soft_overlong_punishment my.own.right"
    )
    found = imported(command, *HARDWARE, name="train.sh")
    assert found.draft.settings["data.format"].text == "prompt", "the answers of trl-lib/tldr are not generated"
    names = [one.strip('", ') for one in found.text.partition("rewards = [")[2].partition("]")[0].split("\n")]
    assert [one for one in names if one] == [
        "trl_rewards.py:think_format_reward", "accuracy",
        "soft_overlong_punishment(max_completion_len=1280, soft_punish_cache=256)", "my/own.py:right",
    ]  # fmt: skip
    assert b"from trl.rewards import think_format_reward\n" in found.draft.files["trl_rewards.py"]


def test_a_reward_model_is_refused_with_the_reason() -> None:
    found = imported(GRPO + "reward_model_name_or_path: org/rewards\n", *HARDWARE)
    assert any("functions, not models" in one for one in found.messages if one.startswith("error"))


SCRIPT = """
from datasets import load_dataset
from trl import DatasetMixtureConfig, GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser, get_dataset
{rewards}
parser = TrlParser((ScriptArguments, GRPOConfig, ModelConfig, DatasetMixtureConfig))
script, training, model, mixture = parser.parse_args_and_config()
rows = get_dataset(mixture) if mixture.datasets else load_dataset(script.dataset_name)
trainer = GRPOTrainer(model.model_name_or_path, reward_funcs=[{names}], args=training, train_dataset=rows["train"])
trainer.train()
"""
COMMAND = "python grpo.py --model_name_or_path Qwen/Qwen3-0.6B --dataset_name org/rows --learning_rate 1e-6"
IMPORTED = "from trl.rewards import accuracy_reward, get_repetition_penalty_reward\n"
OWN = "def accuracy_reward(completions, **kwargs):\n    return [1.0] * len(completions)\n"


def test_rewards_that_a_script_takes_from_trl(tmp_path: Path) -> None:
    names = "accuracy_reward, get_repetition_penalty_reward(2, max_penalty=-0.5)"
    (tmp_path / "grpo.py").write_text(SCRIPT.format(rewards=IMPORTED, names=names))
    found = imported(COMMAND, *HARDWARE, name="train.sh", root=str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert 'rewards = [accuracy, "trl_rewards.py:repetition_penalty_reward"]' in found.text
    made = b"repetition_penalty_reward = get_repetition_penalty_reward(ngram_size=2, max_penalty=-0.5)\n"
    assert made in found.draft.files["trl_rewards.py"]


def test_a_script_may_have_its_own_function_of_this_name(tmp_path: Path) -> None:
    (tmp_path / "grpo.py").write_text(SCRIPT.format(rewards=OWN, names="accuracy_reward"))
    text = convert(f"{COMMAND} --reward_funcs accuracy_reward", *HARDWARE, name="train.sh", folder=str(tmp_path))[1]
    assert '"rewards.py:accuracy_reward"' in text
