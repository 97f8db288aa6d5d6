"""If a script calls a training function twice, the import sees two runs. If a script changes a trainer after creating
it, the import reports the change.
"""

from __future__ import annotations

import pytest
from import_support import Imported, imported

HEAD = """
from datasets import load_dataset
from peft import AutoPeftModelForCausalLM, LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, HfArgumentParser, TrainingArguments
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, RewardConfig, RewardTrainer, SFTConfig, SFTTrainer
import hydra, os, pydra, torch
"""
DATA = 'load_dataset("org/rows", split="train")'
TWICE = f"""
def train(folder, rate):
    args = SFTConfig(folder, learning_rate=rate)
    SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset={DATA}).train()
"""


def script(text: str, *options: str) -> Imported:
    return imported(HEAD + text, *options, name="train.py")


def decided(found: Imported, words: str) -> bool:
    """Whether the import reports an error with these words. With `--partial`, each such error is a decision for the
    user.
    """
    return any(words in one.text for one in found.draft.messages if one.severity == "error")


def test_two_calls_of_a_function_are_two_runs() -> None:
    with pytest.raises(Exception, match=r"1\. SFTTrainer on line 10 \(out/a\), 2\. SFTTrainer on line 10 \(out/b\)"):
        script(TWICE + 'train("out/a", 1e-5)\ntrain("out/b", 2e-5)\n')


def test_pick_takes_the_second_call() -> None:
    found = script(TWICE + 'train("out/a", 1e-5)\ntrain("out/b", 2e-5)\n', "--pick", "2")
    assert "lr = 2e-5" in found.text
    assert 'save "out/b"' in found.text


def test_one_trainer_that_trains_twice_is_one_run() -> None:
    found = script(TWICE.replace(".train()", "") + f"""
trainer = SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"), train_dataset={DATA})
if os.path.isdir("out"):
    trainer.train(resume_from_checkpoint=True)
else:
    trainer.train()
""")  # fmt: skip
    assert not found.draft.wrong


GRPO = f"""
def length(completions, **kwargs):
    return [0.0 for one in completions]
trainer = GRPOTrainer(model="Qwen/Qwen2.5-0.5B", args=GRPOConfig("out"), train_dataset={DATA}, reward_funcs=length)
"""


def test_generation_settings_that_the_script_changes_are_a_decision() -> None:
    found = script(GRPO + "trainer.generation_config.top_p = 0.5\ntrainer.train()\n", "--partial")
    assert decided(found, "`trainer.generation_config.top_p: 0.5`")


def test_trainers_attribute_that_the_script_sets_is_a_decision() -> None:
    found = script(GRPO + "trainer.epsilon_low = 0.1\ntrainer.train()\n", "--partial")
    assert decided(found, "`trainer.epsilon_low: 0.1`")


def test_generation_settings_mean_nothing_without_generation() -> None:
    text = f'trainer = SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"), train_dataset={DATA})\n'
    found = script(text + "trainer.generation_config.top_p = 0.5\ntrainer.train()\n")
    assert found.outcomes["trainer.generation_config.top_p"] == "irrelevant"


PYDRA = f"""
class Settings(pydra.Config):
    def __init__(self):
        self.model, self.rate = "Qwen/Qwen2.5-0.5B", 3e-5

@pydra.main(base=Settings)
def main(config: Settings):
    SFTTrainer(model=config.model, args=SFTConfig("out", learning_rate=config.rate), train_dataset={DATA}).train()

main()
"""


@pytest.mark.parametrize(("options", "rate"), [((), "3e-5"), (("--set", "rate=5e-6"), "5e-6")])
def test_class_of_pydra_has_the_settings(options: tuple[str, ...], rate: str) -> None:
    found = script(PYDRA, *options)
    assert not found.draft.wrong
    assert f"lr = {rate}" in found.text


def test_hydra_without_a_name_says_how_to_give_one() -> None:
    found = script(f"""
@hydra.main(config_path="conf", version_base=None)
def main(cfg):
    SFTTrainer(model=cfg.model, args=SFTConfig("out"), train_dataset={DATA}).train()
main()
""", "--partial")  # fmt: skip
    assert decided(found, "`--set config_name=VALUE` gives it")


REQUIRED = f"""
from dataclasses import dataclass, field
@dataclass
class Arguments:
    model_path: str = field(metadata={{"help": "the model"}})
    rate: float = field(default=1e-5)
arguments, = HfArgumentParser(Arguments).parse_args_into_dataclasses()
args = SFTConfig("out", learning_rate=arguments.rate)
SFTTrainer(model=arguments.model_path, args=args, train_dataset={DATA}).train()
"""


def test_field_without_a_default_says_how_to_give_one() -> None:
    assert decided(script(REQUIRED, "--partial"), "`--set model_path=VALUE` gives it")


def test_set_gives_a_field_its_value() -> None:
    found = script(REQUIRED, "--set", "model_path=Qwen/Qwen2.5-0.5B", "--set", "rate=2e-6")
    assert not found.draft.wrong
    assert "train Qwen/Qwen2.5-0.5B" in found.text
    assert "lr = 2e-6" in found.text


def test_merged_adapter_is_a_decision_that_names_it() -> None:
    found = script(f"""
model = AutoPeftModelForCausalLM.from_pretrained("./out/sft").merge_and_unload()
DPOTrainer(model=model, args=DPOConfig("out"), train_dataset={DATA}).train()
""", "--partial")  # fmt: skip
    assert 'train "./out/sft"' in found.text
    assert decided(found, "merges this adapter")


def test_quantization_in_the_models_arguments_is_read() -> None:
    found = script(f"""
bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
args = SFTConfig("out", bf16=True, model_init_kwargs={{"quantization_config": bits, "device_map": "auto"}})
lora = LoraConfig(target_modules="all-linear")
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset={DATA}, peft_config=lora).train()
""")  # fmt: skip
    assert not found.draft.wrong
    assert "qlora" in found.text


def test_own_model_configuration_and_a_dict_of_arguments_are_read() -> None:
    found = script(f"""
config = AutoConfig.from_pretrained("Qwen/Qwen2.5-0.5B", trust_remote_code=True)
config.use_cache = False
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", config=config)
given = TrainingArguments("out", learning_rate=3e-6).to_dict()
given.update({{"weight_decay": 0.3}})
DPOTrainer(model=model, args=TrainingArguments(**given), beta=0.2, train_dataset={DATA}).train()
""")  # fmt: skip
    assert not found.draft.wrong
    assert "lr = 3e-6" in found.text
    assert "weight_decay = 0.3" in found.text


def test_changed_configuration_of_the_model_is_an_error() -> None:
    found = script(f"""
config = AutoConfig.from_pretrained("Qwen/Qwen2.5-0.5B")
config.num_hidden_layers = 4
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", config=config)
SFTTrainer(model=model, args=SFTConfig("out"), train_dataset={DATA}).train()
""")  # fmt: skip
    assert found.draft.wrong


def test_an_encoder_is_refused() -> None:
    with pytest.raises(Exception, match="an encoder"):
        script(f'RewardTrainer(model="distilroberta-base", args=RewardConfig("out"), train_dataset={DATA}).train()')


def test_folder_of_an_earlier_run_is_a_path() -> None:
    found = script(f'SFTTrainer(model="checkpoints/sft", args=SFTConfig("out"), train_dataset={DATA}).train()')
    assert 'train "./checkpoints/sft"' in found.text
    assert not found.errors


@pytest.mark.parametrize(("value", "warned"), [('"2"', False), ('"0,1"', True)])
def test_several_visible_gpus_are_a_warning(value: str, warned: bool) -> None:
    found = script(f'os.environ["CUDA_VISIBLE_DEVICES"] = {value}\n' + TWICE + 'train("out", 1e-5)\n')
    assert any("'2 x h100-80gb'" in one for one in [m.help for m in found.draft.messages]) == warned


def test_gpu_of_a_condition_is_not_several() -> None:
    text = 'if "CUDA_VISIBLE_DEVICES" not in os.environ:\n    os.environ["CUDA_VISIBLE_DEVICES"] = "2"\n'
    found = script(text + TWICE + 'train("out", 1e-5)\n')
    assert not any("names several GPUs" in one for one in found.messages)


def test_length_of_an_own_subclass_is_the_length_of_older_versions() -> None:
    found = script(f"""
from dataclasses import dataclass, field
@dataclass
class Own(SFTConfig):
    max_seq_length: int = field(default=4096)
    dataset_path: str = field(default="x")
args = Own(output_dir="out")
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset={DATA}).train()
""")  # fmt: skip
    assert "seq = 4096" in found.text
    assert found.outcomes["dataset_path"] == "irrelevant"


def test_end_token_that_the_script_writes_is_no_part_of_the_prompt() -> None:
    token = "<\uff5cend\u2581of\u2581sentence\uff5c>"
    found = script(f"""
data = {DATA}.map(lambda row: {{"text": f"Q: {{row['q']}} A: {{row['a']}}{token}"}})
SFTTrainer(model="deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", args=SFTConfig("out"), train_dataset=data).train()
""")  # fmt: skip
    assert not found.draft.wrong, found.messages
    assert "columns = [q, a]" in found.text


def test_code_of_the_hub_is_not_run_for_a_family_of_transformers() -> None:
    found = script(f"""
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3.5-2B", trust_remote_code=True)
SFTTrainer(model=model, args=SFTConfig("out"), train_dataset={DATA}).train()
""")  # fmt: skip
    assert "trust_remote_code" in found.draft.differences
    assert "XP701" not in " ".join(found.errors)


def test_template_of_a_quantized_models_tokenizer_is_known() -> None:
    found = script(f"""
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained(model_name="unsloth/Qwen2.5-32B-Instruct-bnb-4bit")
model = FastLanguageModel.get_peft_model(model, r=8)
if tokenizer.chat_template is None:
    tokenizer.chat_template = "{{{{ messages[0].content }}}}"
SFTTrainer(model=model, args=SFTConfig("out"), processing_class=tokenizer, train_dataset={DATA}).train()
""")  # fmt: skip
    assert not found.draft.wrong, found.messages
    assert "chat_template" not in found.text


def test_global_of_the_rewards_that_the_script_sets_is_an_error() -> None:
    text = f"""
known = []
def remember(names):
    global known
    known = [one.lower() for one in names]
def right(completions, **kwargs):
    return [float(one in known) for one in completions]
remember(open("names.txt").read().split())
GRPOTrainer(model="Qwen/Qwen2.5-0.5B", args=GRPOConfig("out"), train_dataset={DATA}, reward_funcs=right).train()
"""
    found = script(text, "--rewards", "rewards.py")
    assert decided(found, "`remember` sets this global variable of the reward functions")
    assert not decided(script(text.replace("\nremember(", "\nprint("), "--rewards", "rewards.py"), "sets this global")
