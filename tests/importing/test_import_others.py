"""Files of LLaMA-Factory and axolotl: the spec states the tool's defaults, and the file's keys become settings."""

from __future__ import annotations

import json

import pytest
from import_support import HARDWARE, imported, unaccounted

from xpc.compiler.importing.axolotl.templates import axolotl_template
from xpc.compiler.importing.text import yaml as yamltext

pytestmark = pytest.mark.slow

LF = (
    "model_name_or_path: Qwen/Qwen3-4B-Instruct-2507\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
    "dataset: identity,other\ntemplate: qwen3_nothink\ncutoff_len: 1024\noutput_dir: saves/x\nbf16: true\n"
)
SWANLAB = "plugins:\n  - axolotl.integrations.swanlab.SwanLabPlugin\n"
AX = (
    "base_model: Qwen/Qwen2.5-3B\ndatasets:\n  - path: org/chat\n    type: chat_template\nsequence_len: 2048\n"
    "micro_batch_size: 2\ngradient_accumulation_steps: 4\nnum_epochs: 4\nlearning_rate: 0.0002\nbf16: auto\n"
    "output_dir: ./out\n"
)
TRL = (
    "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: trl-lib/Capybara\noutput_dir: out\n"
    "per_device_train_batch_size: 2\nlearning_rate: 2.0e-5\nbf16: true\n"
)


def lf(more: str = "", without: str = "", *arguments: str):
    return imported(LF.replace(without, "") + more, *HARDWARE, *arguments)


def ax(more: str = "", *arguments: str):
    return imported(AX + more, *HARDWARE, *arguments)


def test_llamafactory_defaults_are_stated():
    found = lf("lora_rank: 8\n")
    lora = found.payload["lora"]
    assert (lora["rank"], lora["alpha"], lora["dropout"], lora["targets"]) == (8, 16, 0.0, "all-linear")
    assert found.arguments["completion_only_loss"] is True
    assert found.arguments["max_length"] == 1024
    assert found.arguments["activation_checkpointing_kwargs"] == {"use_reentrant": True}
    assert found.payload["model"]["dtype"] == "bfloat16"
    assert (found.arguments["learning_rate"], found.arguments["per_device_train_batch_size"]) == (5e-5, 8)
    assert [one["path"] for one in found.payload["data"]["sources"]] == ["data/identity.json", "data/other.json"]
    assert "for 3 epochs" in found.text
    assert "for 10 steps" in lf("max_steps: 10\n").text


@pytest.mark.parametrize(
    ("more", "arguments", "resumed"),
    [
        ("", (), True),
        ("overwrite_output_dir: true\n", (), False),
        ("fsdp_config:\n  version: 2\n  state_dict_type: FULL_STATE_DICT\n", ("--target", "trl-0.24"), True),
    ],
)
def test_llamafactory_adapters_that_fsdp_would_lose_start_anew(more, arguments, resumed):
    found = lf(f"lora_rank: 8\nfsdp: full_shard auto_wrap\n{more}", "", *arguments)
    assert found.payload["run"]["resume"] == "never"
    why = "LLaMA-Factory resumes from the newest checkpoint in `output_dir`; the spec starts anew, because trl-"
    assert (why in found.text) is resumed


def test_llamafactory_full_tuning_trains_weights_of_32_bits_and_pretraining_packs():
    found = lf(
        "stage: pt\nfinetuning_type: full\nflash_attn: fa2\n", "stage: sft\ndo_train: true\nfinetuning_type: lora\n"
    )
    assert found.payload["lora"] is None
    assert found.payload["model"]["dtype"] == "float32"
    assert found.arguments["packing"] is True
    assert found.payload["data"]["sources"][0]["shape"] == "text"


def test_llamafactory_reads_its_own_list_of_datasets(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dataset_info.json").write_text(
        json.dumps({"identity": {"hf_hub_url": "org/identity", "formatting": "sharegpt", "split": "train"}})
    )
    found = imported(LF.replace("identity,other", "identity"), *HARDWARE, root=str(tmp_path))
    assert found.payload["data"]["sources"][0]["id"] == "org/identity"
    assert found.payload["data"]["sources"][0]["shape"] == "conversations"


@pytest.mark.parametrize(
    ("more", "section", "name", "value"),
    [
        ("quantization_bit: 4\n", "lora", "bits", 4),
        ("quantization_bit: 8\n", "lora", "bits", 8),
        ("lora_target: q_proj,v_proj\n", "lora", "targets", ["q_proj", "v_proj"]),
        ("train_on_prompt: true\n", "arguments", "assistant_only_loss", False),
        ("disable_gradient_checkpointing: true\n", "arguments", "activation_checkpointing", False),
        ("use_dft_loss: true\n", "arguments", "loss_type", "dft"),
        ("val_size: 0.1\neval_strategy: steps\neval_steps: 50\n", "data", "holdout", {"fraction": 0.1}),
        ("deepspeed: examples/deepspeed/ds_z3_config.json\n", "run", "zero_stage", 3),
        ("pref_loss: sigmoid\n", "method", "name", "sft"),
        ("streaming: true\n", "run", "world_size", 8),
    ],
)
def test_llamafactory_keys_become_settings(more, section, name, value):
    assert lf(more).payload[section][name] == value


def test_a_teacher_on_a_server_is_refused():
    text = TRL + "teacher_model_server_url: http://localhost:8000\nloss_top_k: 1\n"
    found = [one.text for one in imported(text, *HARDWARE).draft.messages if one.severity == "error"]
    assert any("a run loads the teacher itself" in one for one in found)


STREAMS = (
    (LF.replace("identity,other", "identity"), "streaming: true\nbuffer_size: 500\n", 500),
    (LF.replace("identity,other", "identity"), "streaming: true\npreprocessing_num_workers: 16\n", 16384),
    (LF.replace("identity,other", "identity"), "streaming: true\ndisable_shuffling: true\nbuffer_size: 500\n", None),
    (AX, "streaming: true\n", 10_000),
    (AX, "streaming: true\nstreaming_multipack_buffer_size: 64\n", 64),
    (AX, "streaming: true\npretrain_multipack_buffer_size: 64\n", 64),
    (AX, "streaming: true\nshuffle_merged_datasets: false\n", None),
    (TRL, "dataset_streaming: true\n", None),
    (TRL, "streaming: true\nshuffle_dataset: true\n", 1000),
)
"""Files with one streamed source. A row has the file, additional lines, and the expected number of rows in the shuffle
buffer.
"""


@pytest.mark.parametrize(("text", "more", "buffer"), STREAMS)
def test_a_stream_of_one_source_with_steps_is_imported(text, more, buffer):
    found = imported(f"{text}save_strategy: steps\nsave_steps: 20\nmax_steps: 100\n{more}", *HARDWARE)
    assert not found.errors
    assert found.payload["data"]["streaming"] == {"shuffle_buffer": buffer}
    assert found.payload["data"]["shuffle"] is (buffer is not None)
    assert found.arguments["max_steps"] == 100


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        (AX, "", "a streamed run needs a number of steps"),
        (AX, "max_steps: 100\nval_set_size: 0.1\nsave_steps: 20\n", "`data.holdout` needs all rows"),
        (AX.replace("type: chat_template", "type: chat_template\n    split: train[:20%]"),
         "max_steps: 100\nsave_steps: 20\n", "the run selects a part of the rows"),
        (LF.replace("identity,other", "identity"), "max_steps: 100\nsave_strategy: steps\nsave_steps: 20\n"
         "do_eval: true\neval_dataset: other\neval_strategy: epoch\n", "`eval.every` counts epochs"),
        (LF, "max_steps: 100\nsave_steps: 20\n", "a stream has one source"),
        (AX.replace("type: chat_template", "type:"), "max_steps: 100\nsave_steps: 20\n", "the token ids of all rows"),
    ],
)  # fmt: skip
def test_a_stream_that_a_spec_cannot_have_is_read_before_the_run(text, more, why):
    found = imported(f"{text}streaming: true\n{more}", *HARDWARE)
    assert "streaming" not in found.payload["data"]
    assert any(why in one.text for one in found.draft.messages if one.severity == "warning")
    assert found.outcomes["streaming"] == "irrelevant"


@pytest.mark.parametrize(
    ("more", "optim"),
    [("use_galore: true\ngalore_rank: 64\n", "galore_adamw"), ("use_apollo: true\napollo_rank: 64\n", "apollo_adamw")],
)
def test_llamafactory_projected_optimizers_keep_their_rank(more, optim):
    found = lf("finetuning_type: full\n" + more, "finetuning_type: lora\n")
    assert found.arguments["optim"] == optim
    assert found.arguments["optim_target_modules"] == "all-linear"
    assert "rank = 64" in found.text
    assert lf(more.replace("true", "false")).arguments["optim"] == "adamw_torch_fused"


def test_llamafactory_muon_keeps_its_rates():
    found = lf("finetuning_type: full\nuse_muon: true\noptim: adamw_torch\n", "finetuning_type: lora\n")
    assert found.payload["muon"]["matrices"]["adjust_lr"] == "match_rms_adamw"
    assert found.payload["muon"]["others"]["lr"] == found.payload["muon"]["matrices"]["lr"]
    assert lf("use_muon: false\n").arguments["optim"] == "adamw_torch_fused"


def test_files_of_llamafactorys_second_generation_are_read():
    found = imported(
        "model: Qwen/Qwen3-4B\nmodel_class: llm\npeft_config:\n  name: lora\n  r: 16\n  lora_alpha: 32\n"
        "dist_config:\n  name: fsdp2\n  dcp_path: null\ntrain_dataset: data/demo.yaml\noutput_dir: out\n"
        "micro_batch_size: 1\ncutoff_len: 2048\nlearning_rate: 1.0e-4\nmax_steps: 10\n", *HARDWARE,
    )  # fmt: skip
    assert found.payload["lora"]["rank"] == 16
    assert found.arguments["max_steps"] == 10
    assert "strategy fsdp" in found.text


def test_llamafactory_scales_positions_up_to_the_length():
    assert lf("rope_scaling: yarn\n").outcomes["rope_scaling"] == "irrelevant"
    found = lf("rope_scaling: yarn\ncutoff_len: 300000\n")
    assert found.draft.settings["model.rope"].text == "yarn(factor=2)"
    assert found.draft.settings["save.merge"].text == "true"
    assert not found.errors
    assert lf("rope_scaling: su\n").draft.wrong


@pytest.mark.parametrize(
    ("more", "shares", "exhausted"),
    [
        ("mix_strategy: interleave_under\ninterleave_probs: 0.7,0.3\n", [0.7, 0.3], "stop"),
        ("mix_strategy: interleave_over\ninterleave_probs: [0.25, 0.75]\n", [0.25, 0.75], "repeat"),
        ("mix_strategy: interleave_over\n", [0.5, 0.5], "repeat"),
    ],
)
def test_llamafactory_interleaved_sets_have_shares(more, shares, exhausted):
    found = lf(more)
    data = found.payload["data"]
    assert [one["share"] for one in data["sources"]] == shares
    assert data["exhausted"] == exhausted
    assert "the spec's shares are exact" in found.text


@pytest.mark.parametrize("more", ["interleave_probs: 0.7,0.2\n", "interleave_probs: '1'\n", "interleave_probs: a,b\n"])
def test_llamafactory_probabilities_are_one_together(more):
    assert imported(LF + "mix_strategy: interleave_under\n" + more, *HARDWARE).outcomes["interleave_probs"] == "error"


@pytest.mark.parametrize("more", ["mix_strategy: concat\n", "mix_strategy: interleave_once\n"])
def test_llamafactory_other_mixtures_are_irrelevant_or_refused(more):
    outcome = "irrelevant" if "concat" in more else "error"
    assert imported(LF + more, *HARDWARE).outcomes["mix_strategy"] == outcome


@pytest.mark.parametrize(
    ("more", "key"),
    [("use_badam: true\n", "use_badam"), ("stage: ppo\n", "stage"), ("use_mca: true\n", "use_mca"),
     ("cutoff_ln: 3\n", "cutoff_ln"), ("pipeline_model_parallel_size: 2\n", "pipeline_model_parallel_size")],
)  # fmt: skip
def test_llamafactory_keys_without_a_place_are_refused(more, key):
    text = LF.replace("stage: sft\n", "") + more if key == "stage" else LF + more
    found = imported(text, *HARDWARE)
    assert found.outcomes[key] == "error"
    assert unaccounted(found.draft, yamltext.read(text, "recipe.yaml")) == []


def test_axolotl_muon_keeps_its_momentum():
    found = ax("optimizer: muon\noptim_args:\n  momentum: 0.9\n")
    assert found.payload["muon"]["matrices"]["momentum"] == 0.9
    assert found.payload["muon"]["others"]["betas"] == [0.95, 0.95]
    assert "norms and biases" in found.draft.differences["optimizer"]


def test_axolotl_defaults_are_stated():
    found = ax("gradient_checkpointing: true\nval_set_size: 0.05\nevals_per_epoch: 4\nsaves_per_epoch: 1\n")
    assert found.arguments["assistant_only_loss"] is True
    assert found.arguments["activation_checkpointing_kwargs"] == {"use_reentrant": True}
    assert found.arguments["eval_steps"] == 1 / 16
    assert (found.arguments["save_strategy"], found.arguments["save_steps"]) == ("steps", 1 / 4)
    assert found.payload["data"]["holdout"] == {"fraction": 0.05}
    assert found.payload["model"]["dtype"] == "bfloat16"
    assert found.arguments["optim"] == "adamw_torch_fused"
    assert found.arguments["lr_scheduler_type"] == "cosine"
    assert found.payload["run"]["gbs"] == 64


def test_axolotl_without_held_out_rows_evaluates_nothing():
    found = ax("val_set_size: 0\nevals_per_epoch: 4\n")
    assert found.arguments["eval_strategy"] == "no"
    assert found.outcomes["evals_per_epoch"] == "irrelevant"


@pytest.mark.parametrize(
    ("more", "section", "name", "value"),
    [
        ("adapter: qlora\nload_in_4bit: true\nlora_r: 32\nlora_alpha: 16\nlora_target_linear: true\n", "lora",
         "bits", 4),
        ("adapter: lora\nload_in_8bit: true\nlora_r: 32\nlora_alpha: 16\nlora_target_modules: [q_proj]\n", "lora",
         "targets", ["q_proj"]),
        ("adapter: lora\nlora_r: 8\nlora_alpha: 8\n"
         "lora_target_modules: 'model.layers.[\\d]+.(mlp|self_attn).(up|q)_proj'\n",
         "lora", "targets", ["up_proj", "q_proj"]),
        ("sample_packing: true\nattn_implementation: flash_attention_2\n", "arguments", "packing", True),
        ("train_on_inputs: true\n", "arguments", "assistant_only_loss", False),
        ("deepspeed: deepspeed_configs/zero2.json\n", "run", "zero_stage", 2),
        ("cosine_min_lr_ratio: 0.1\n", "arguments", "lr_scheduler_type", "cosine_with_min_lr"),
        ("wandb_project: p\nwandb_name: n\n", "arguments", "report_to", ["wandb"]),
        ("mlflow_experiment_name: p\nmlflow_run_name: n\n", "arguments", "report_to", ["mlflow"]),
        ("use_mlflow: true\nmlflow_run_name: n\n", "arguments", "run_name", "n"),
        (SWANLAB + "swanlab_project: p\n", "run", "project", "p"),
        (SWANLAB + "use_swanlab: true\nswanlab_experiment_name: n\n", "arguments", "report_to", ["swanlab"]),
        # axolotl reads the keys of SwanLab only if SwanLab's plugin is listed
        ("use_swanlab: true\nswanlab_project: p\n", "arguments", "report_to", []),
        ("special_tokens:\n  pad_token: '<|pad|>'\n", "tokenizer", "pad_token", "<|pad|>"),
    ],
)  # fmt: skip
def test_axolotl_keys_become_settings(more, section, name, value):
    assert ax(more).payload[section][name] == value


def test_additional_special_tokens_of_axolotl_are_added_tokens():
    text = 'tokens: ["<a>"]\nspecial_tokens:\n  pad_token: "<p>"\n  additional_special_tokens: ["<b>", "<a>"]\n'
    found = ax(text)
    assert 'tokens = ["<a>", "<b>"]' in found.text
    assert 'pad = "<p>"' in found.text
    assert not any("additional_special_tokens" in one for one in found.messages)


@pytest.mark.parametrize(
    ("rows", "shape", "columns"),
    [
        ("  - path: a/b\n    type: chat_template\n    field_messages: conversations\n    message_property_mappings:\n"
         "      role: from\n      content: value\n", "conversations", None),
        ("  - path: a/b\n    type: chat_template\n    field_messages: talk\n", "messages", ["talk"]),
        ("  - path: a/b\n    type: alpaca\n", "prompt_completion", ["instruction", "output"]),
        ("  - path: a/b\n    type: completion\n    field: body\n", "text", ["body"]),
        ("  - path: a/b\n", "tokens", ["input_ids"]),
        ("  - path: a/b\n    type: chat_template\n    split: train[:20%]\n", "messages", None),
    ],
)  # fmt: skip
def test_axolotl_data_keeps_its_shape_and_columns(rows, shape, columns):
    found = imported(AX.replace("  - path: org/chat\n    type: chat_template\n", rows), *HARDWARE)
    (source,) = found.payload["data"]["sources"]
    assert (source["shape"], source["columns"]) == (shape, columns)
    assert source["slice"] == ("20%" if "20%" in rows else None)


def test_axolotl_preferences_become_dpo():
    rows = (
        "  - path: a/b\n    type: chat_template.default\n    field_messages: talk\n    field_chosen: good\n"
        "    field_rejected: bad\n"
    )
    text = AX.replace("  - path: org/chat\n    type: chat_template\n", rows) + "rl: dpo\nrl_beta: 0.3\n"
    found = imported(text, *HARDWARE)
    assert found.draft.method == "dpo"
    assert "columns = [talk, good, bad]" in found.text
    assert "beta = 0.3" in found.text


def test_axolotl_ipo_and_the_hub_become_settings():
    found = imported(
        AX.replace("type: chat_template", "type: chatml.intel") + "rl: ipo\nhub_model_id: me/x\n", *HARDWARE
    )
    assert found.draft.method == "dpo"
    assert "loss = ipo" in found.text
    assert "columns = [question, chosen, rejected]" in found.text
    assert 'hub(name="me/x", private=true)' in found.text
    assert "system" in found.draft.differences["datasets.system"]


@pytest.mark.parametrize(
    ("more", "key"),
    [("rl: ebft\n", "rl"), ("unfrozen_parameters: ['lm_head[:9]']\n", "unfrozen_parameters"),
     ("plugins: [x.DiffusionPlugin]\n", "plugins"), ("tensor_parallel_size: 2\n", "tensor_parallel_size")],
)  # fmt: skip
def test_axolotl_keys_without_a_place_are_refused(more, key):
    found = ax(more)
    assert found.outcomes[key] == "error"
    assert unaccounted(found.draft, yamltext.read(AX + more, "recipe.yaml")) == []


CONVERSATIONS = (
    [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": " Hi "}],
    [{"role": "system", "content": "S"}, {"role": "user", "content": "a\nb"}, {"role": "assistant", "content": "c"},
     {"role": "user", "content": "d"}],
)  # fmt: skip


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_our_templates_say_what_the_tools_say(messages):
    chatml = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages)
    llama3 = "<s>" + "".join(
        f"<|start_header_id|>{one['role']}<|end_header_id|>\n\n{one['content'].strip()}<|eot_id|>" for one in messages
    )
    assert rendered("chatml", messages) == chatml
    assert rendered("llama3", messages) == llama3


def rendered(name: str, messages: object) -> str:
    """The conversation as transformers renders it with this template. The `{% generation %}` tags of the template are
    ignored.
    """
    jinja2 = pytest.importorskip("jinja2", reason="jinja2 comes with the training stack")
    text = (axolotl_template(name) or "").replace("{%- generation -%}", "").replace("{%- endgeneration -%}", "")
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    out: str = environment.from_string(text).render(messages=messages, bos_token="<s>", add_generation_prompt=False)
    return out


def test_simpo_is_a_loss_of_cpo() -> None:
    simpo = {"loss_type": "simpo", "beta": 2.0, "simpo_gamma": 0.6, "cpo_alpha": 0.0}
    text = AX.replace("type: chat_template", "type: chat_template.default\n    field_messages: talk")
    found = imported(text + "rl: simpo\nrl_beta: 2\nsimpo_gamma: 0.6\ncpo_alpha: 0\n", *HARDWARE)
    assert {name: found.arguments[name] for name in simpo} == simpo
    assert found.payload["method"]["name"] == "cpo"
    found = imported(text + "rl: simpo\nrl_beta: 2\nsimpo_gamma: 0.6\n", *HARDWARE)
    assert found.arguments["cpo_alpha"] == 1.0
    text = LF.replace("stage: sft", "stage: dpo") + "pref_loss: simpo\npref_beta: 2\nsimpo_gamma: 0.6\n"
    found = imported(text, *HARDWARE)
    assert {name: found.arguments[name] for name in simpo} == simpo


def test_muon_of_the_second_generation_keeps_its_numbers():
    options = "optim_config:\n  name: muon\n  wd: 0.1\n  adamw_betas: [0.9, 0.97]\n"
    found = imported(
        "model: Qwen/Qwen3-4B\nmodel_class: llm\ndist_config:\n  name: fsdp2\ntrain_dataset: data/demo.yaml\n"
        f"output_dir: out\nmax_steps: 10\n{options}", *HARDWARE,
    )  # fmt: skip
    assert found.draft.settings["optimizer.betas"].text == "[0.9, 0.97]"
    assert found.draft.settings["optimizer.weight_decay"].text == "0.1"
