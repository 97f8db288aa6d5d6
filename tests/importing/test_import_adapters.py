"""Adapters of every kind and frozen layers are imported, both from the files of each tool and from a bundle."""

from __future__ import annotations

import json

import pytest
from import_support import HARDWARE, imported
from test_import_others import AX, LF

from xpc.compiler.cli import main

pytestmark = pytest.mark.slow

TRL = "model_name_or_path: meta-llama/Llama-3.1-8B-Instruct\ndataset_name: org/chat\nmax_seq_length: 1024\n"
BARE = LF.replace("finetuning_type: lora\n", "")


def mapped(found, *keys: str) -> None:
    assert not found.draft.wrong, found.messages
    assert {key: found.outcomes[key] for key in keys} == dict.fromkeys(keys, "mapped")


def test_llamafactory_lora_plus_and_additional_modules_become_settings():
    found = imported(
        LF + "loraplus_lr_ratio: 16.0\nadditional_target: embed_tokens,lm_head\nuse_rslora: true\nuse_dora: true\n",
        *HARDWARE,
    )
    mapped(found, "loraplus_lr_ratio", "additional_target", "use_rslora", "use_dora")
    lora = found.payload["lora"]
    assert (lora["lr_ratio"], lora["embedding_lr"], lora["rslora"], lora["dora"]) == (16, 1e-6, True, True)
    assert lora["modules_to_save"] == ["embed_tokens", "lm_head"]


@pytest.mark.parametrize(
    ("more", "iterations"),
    [("", 16), ("pissa_iter: 4\n", 4), ("pissa_iter: -1\npissa_convert: true\n", None)],
)
def test_llamafactory_pissa_keeps_its_iterations(more, iterations):
    found = imported(LF + "pissa_init: true\n" + more, *HARDWARE)
    mapped(found, "pissa_init")
    assert (found.payload["lora"]["init"], found.payload["lora"].get("init_iterations")) == ("pissa", iterations)
    assert found.outcomes.get("pissa_convert", "irrelevant") == "irrelevant"


@pytest.mark.parametrize(
    ("value", "init", "iterations"),
    [("pissa", "pissa", None), ("pissa_niter_8", "pissa", 8), ("olora", "olora", None), ("gaussian", "gaussian", None)],
)
def test_axolotl_initial_weights_become_settings(value, init, iterations):
    found = imported(
        AX + f"adapter: lora\nlora_r: 8\nlora_target_linear: true\npeft_init_lora_weights: {value}\n", *HARDWARE
    )
    mapped(found, "peft_init_lora_weights")
    assert (found.payload["lora"]["init"], found.payload["lora"].get("init_iterations")) == (init, iterations)


@pytest.mark.parametrize(("value", "outcome"), [("true", "irrelevant"), ("eva", "error"), ("loftq", "error")])
def test_axolotl_initial_weights_without_a_setting_are_irrelevant_or_refused(value, outcome):
    found = imported(
        AX + f"adapter: lora\nlora_r: 8\nlora_target_linear: true\npeft_init_lora_weights: {value}\n", *HARDWARE
    )
    assert found.outcomes["peft_init_lora_weights"] == outcome


@pytest.mark.parametrize(
    ("more", "block", "rank"),
    [("oft_block_size: 16\n", 16, None), ("oft_rank: 4\noft_block_size: 0\n", None, 4), ("", 32, None)],
)
def test_llamafactory_oft_keeps_its_blocks_and_targets(more, block, rank):
    found = imported(BARE + "finetuning_type: oft\noft_target: q_proj,v_proj\nmodule_dropout: 0.1\n" + more, *HARDWARE)
    mapped(found, "finetuning_type", "oft_target", "module_dropout")
    lora = found.payload["lora"]
    assert (lora["kind"], lora["block_size"], lora["rank"], lora["dropout"]) == ("oft", block, rank, 0.1)
    assert lora["targets"] == ["q_proj", "v_proj"]


def test_llamafactory_oft_keeps_four_bits_and_ignores_keys_of_lora():
    found = imported(BARE + "finetuning_type: oft\nquantization_bit: 4\nlora_rank: 8\nuse_dora: false\n", *HARDWARE)
    assert found.payload["lora"]["bits"] == 4
    assert (found.outcomes["lora_rank"], found.outcomes["use_dora"]) == ("irrelevant", "irrelevant")


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ("", {"last": 2, "first": None, "layer_modules": None, "modules": None, "parameters": None}),
        ("freeze_trainable_layers: -3\nfreeze_trainable_modules: all\n",
         {"last": None, "first": 3, "layer_modules": None, "modules": None, "parameters": None}),
        ("freeze_trainable_layers: 4\nfreeze_trainable_modules: self_attn,mlp\nfreeze_extra_modules: embed_tokens\n",
         {"last": 4, "first": None, "layer_modules": ["self_attn", "mlp"], "modules": ["embed_tokens"],
          "parameters": None}),
    ],
)  # fmt: skip
def test_llamafactory_freeze(more, wanted):
    found = imported(BARE + "finetuning_type: freeze\n" + more, *HARDWARE)
    assert not found.draft.wrong, found.messages
    assert found.payload["freeze"] == wanted
    assert found.payload["lora"] is None


def test_the_second_layout_has_the_same_in_peft_config():
    head = "model: Qwen/Qwen3-4B\ntrain_dataset: data/rows.yaml\noutput_dir: out\nmax_steps: 10\n"
    found = imported(head + "peft_config:\n  name: freeze\n  freeze_trainable_layers: 3\n", *HARDWARE)
    assert found.payload["freeze"]["last"] == 3
    found = imported(head + "peft_config:\n  name: lora\n  r: 4\n  target_modules: all\n", *HARDWARE)
    assert (found.payload["lora"]["rank"], found.payload["lora"]["alpha"]) == (4, 16)


def test_freezing_nothing_is_an_error():
    found = imported(BARE + "finetuning_type: freeze\nfreeze_trainable_layers: 0\n", *HARDWARE)
    assert found.outcomes["freeze_trainable_layers"] == "error"


def test_axolotl_modules_and_parameters_become_settings():
    found = imported(
        AX + "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_modules_to_save:\n  - embed_tokens\n  - lm_head\n"
        "loraplus_lr_ratio: 8\nloraplus_lr_embedding: 1.0e-5\npeft_use_rslora: true\nlora_target_modules: [q_proj]\n",
        *HARDWARE,
    )
    mapped(found, "lora_modules_to_save", "loraplus_lr_ratio", "loraplus_lr_embedding", "peft_use_rslora")
    lora = found.payload["lora"]
    assert (lora["modules_to_save"], lora["lr_ratio"], lora["embedding_lr"]) == (["embed_tokens", "lm_head"], 8, 1e-5)
    found = imported(
        AX.replace("Qwen/Qwen2.5-3B", "Qwen/Qwen3-30B-A3B") + "adapter: lora\nlora_r: 8\nlora_alpha: 16\n"
        "lora_target_modules: [q_proj]\nlora_target_parameters:\n  - mlp.experts.gate_up_proj\nlora_modules_to_save:\n"
        "loraplus_lr_embedding: 1.0e-5\n",
        *HARDWARE,
    )
    assert found.payload["lora"]["parameters"] == ["mlp.experts.gate_up_proj"]
    assert (found.outcomes["lora_modules_to_save"], found.outcomes["loraplus_lr_embedding"]) == (
        "irrelevant",
        "irrelevant",
    )


def test_axolotl_unfrozen_parameters_become_settings_or_are_refused():
    found = imported(AX + "unfrozen_parameters:\n  - ^lm_head.weight$\n  - model.layers.3[0-5]+.mlp\n", *HARDWARE)
    mapped(found, "unfrozen_parameters")
    assert found.payload["freeze"]["parameters"] == ["^lm_head.weight$", "model.layers.3[0-5]+.mlp"]
    for more in ("  - model.embed_tokens.weight[:32000]\n", "  - lm_head\nadapter: lora\nlora_r: 8\nlora_alpha: 16\n"):
        assert imported(AX + "unfrozen_parameters:\n" + more, *HARDWARE).outcomes["unfrozen_parameters"] == "error"


def test_new_tokens_are_added_to_the_tokenizer():
    found = imported(AX + "tokens:\n  - <|think|>\n  - <|/think|>\n", *HARDWARE)
    mapped(found, "tokens")
    assert found.payload["tokenizer"]["added"] == ["<|think|>", "<|/think|>"]
    assert imported(AX + "tokens:\n", *HARDWARE).payload["tokenizer"]["added"] is None
    found = imported(
        BARE + "finetuning_type: full\nadd_tokens: <a>,<b>\nadd_special_tokens: <c>\nresize_vocab: true\n", *HARDWARE
    )
    mapped(found, "add_tokens", "add_special_tokens")
    assert found.payload["tokenizer"]["added"] == ["<a>", "<b>", "<c>"]


def test_axolotl_rows_that_are_left_out():
    found = imported(AX + "min_sample_len: 20\ndataset_exact_deduplication: true\n", *HARDWARE)
    mapped(found, "min_sample_len", "dataset_exact_deduplication")
    assert (found.payload["data"]["min_tokens"], found.payload["data"]["unique"]) == (20, True)
    found = imported(AX + "dataset_exact_deduplication: false\n", *HARDWARE)
    assert (found.outcomes["dataset_exact_deduplication"], found.payload["data"]["unique"]) == ("irrelevant", False)


def test_trl_model_config_becomes_an_adapter():
    found = imported(
        TRL + "use_peft: true\nuse_dora: true\nlora_modules_to_save: [lm_head]\nlora_target_parameters: null\n",
        *HARDWARE, name="sft/x.yaml",
    )  # fmt: skip
    mapped(found, "use_dora", "lora_modules_to_save")
    assert (found.payload["lora"]["dora"], found.payload["lora"]["modules_to_save"]) == (True, ["lm_head"])


SPECS = {
    "oft": "oft {\n  block_size = 16\n  bits = 4\n}",
    "lora": "lora {\n  dora\n  modules_to_save = [lm_head]\n  lr_ratio = 16\n}",
    "freeze": "freeze {\n  except_last = 2\n  except_modules = [norm]\n}",
}


@pytest.mark.parametrize("what", SPECS)
def test_a_bundle_gives_them_back(what, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "back").mkdir()
    text = (
        "xpc 1\n\ntrain llama-3.1-8b-instruct on infinity-instruct for 1 epochs\n\n" + SPECS[what]
        + "\n\nhardware 8 x h100-80gb\n\nstrategy zero2\n\nprecision bf16\n\nbatch {\n  gbs = 128\n  micro = 8\n}\n\n"
        'save "out"\n'
    )  # fmt: skip
    (tmp_path / "a.xp").write_text(text)
    assert main(["compile", "a.xp", "-o", "a.bundle"]) == 0
    assert main(["import", "a.bundle", "-o", "back/a.xp"]) == 0, capsys.readouterr()
    output = (tmp_path / "back" / "a.xp").read_text()
    assert output.count("\n" + SPECS[what].split("\n")[0]) == 1
    assert main(["compile", "back/a.xp", "-o", "b.bundle"]) == 0
    one, two = (json.loads((tmp_path / f"{end}.bundle" / "trainer_args.json").read_text()) for end in "ab")
    assert one == two
