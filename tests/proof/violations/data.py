"""Proofs of rules about data, supervised losses, hub and logging."""

from __future__ import annotations

import json

from case_support import ROW, spec, trained
from prove import Proof

from xpc.compiler.stacks import STACKS

SPLITS = {
    "rows/train.jsonl": ROW * 8,
    "rows/test.jsonl": ROW.replace("2 + 2?", "test") * 8,
}
IMAGES = {
    "rows.jsonl": json.dumps({**json.loads(ROW), "images": ["a.png"]}) + "\n",
    "good.jsonl": ROW,
}


def on(data: str, *more: str) -> str:
    return spec(*more, train=trained(f"qwen2.5-3b on {data}"))


LONG_ENOUGH = spec(train=trained('qwen2.5-3b on "long.jsonl"'), batch="gbs=128 micro=16 seq=4096")
"""A spec with a `seq` that is long enough for the tiny tokenizer, for which each letter is a token."""
CHAT = spec("data(chat)", train=trained('qwen2.5-3b-instruct on "rows.jsonl"'))

PROOFS: tuple[Proof, ...] = (
    Proof("E01", "XP501", at="init", raises="ValueError", match="eval_dataset"),
    Proof("E12", "XP525", at="load", measure="rows.evaluated_masked", expect={"training": True, "evaluation": False}),
    Proof("E12", "XP525", at="load", measure="rows.evaluated_masked", expect={"training": True, "evaluation": False},
          target="trl-0.18", variant="0.18"),
    Proof("T54", "XP542", at="load", measure="rows.evaluated",
          expect=lambda seen: seen["trained_on"]),
    Proof("T27", "XP580", at="load", measure="rows.built", raises="RunError", match="no file of the split"),
    Proof("T27", "XP580", case="XP580-train", at="load", measure="rows.folder", raises="ValueError", match="Unknown split",
          variant="train"),
    Proof("T28", "XP581", at="load", measure="rows.folder", expect={"all": False}),
    Proof("T84", "XP579", at="load", measure="rows.built", raises="RunError", match="cannot read more"),
    # the loss
    Proof("S01", "XP504", at="init", measure="rows.masked", expect={"masked": 0}),
    Proof("S01", "XP504", at="init", target="trl-0.18", measure="rows.masked", expect={"masked": 0}, variant="0.18"),
    Proof("S03", "XP504", case="XP504-plain", at="init", legal=spec("method sft(assistant_only)"),
          raises="ValueError", match="not conversational"),
    Proof("S04", "XP506", measure="templates.training", raises="ValueError", match="not training-compatible"),
    Proof("S04", "XP506", at="load", target="trl-0.24", measure="templates.trainer", raises="RuntimeError",
          match="no assistant tokens", variant="0.24"),
    Proof("S05", "XP604", measure="templates.stops", expect={"stop": False}),
    Proof("S06", "XP602", at="load", measure="rows.own", raises="RuntimeError", match="no assistant"),
    Proof("S08", "XP106", case="XP106-sft-loss", at="init", onto="legal", arguments={"loss_type": "dftt"},
          raises="ValueError", match="Invalid `loss_type`"),
    Proof("S09", "XP606", at="init", raises="ValueError", match="not a Mixture-of-Experts"),
    Proof("S11", "XP607", warns="keep_end.*deprecated"),
    Proof("S12", "XP603", case="XP603-every", at="load", keep=("max_length",), measure="rows.left", expect={"rows": 0},
          legal=LONG_ENOUGH),
    Proof("S12", "XP603", case="XP603-every", at="load", keep=("max_length",), target="trl-0.18", measure="rows.left",
          expect={"learnt": 0}, legal=LONG_ENOUGH, variant="0.18"),
    Proof("S13", "XP104", case="XP104-dataset-kwargs", at="load", arguments={"dataset_kwargs": {"skip_prepare_dataset": True}},
          measure="rows.masks_alone", raises="ValueError", match="mask columns but no 'labels'"),
    Proof("S14", "XP559", at="init", raises="ValueError", match="not found in the vocabulary"),
    Proof("S17", "XP104", case="XP104-dataset-keys", at="load", arguments={"dataset_kwargs": {"add_special_tokens": False}},
          measure="rows.unread", expect={"unread": ["add_special_tokens"]}),
    Proof("S18", "XP556", files=IMAGES, at="load", measure="rows.raw", raises="ValueError", match="vision-related"),
    Proof("S22", "XP605", at="init", keep=("max_length",), measure="losses.gradient", expect={"moves": False}),
    Proof("S22", "XP605", at="init", keep=("max_length",), target="trl-0.18", measure="losses.gradient",
          expect={"moves": False}, variant="0.18"),
    Proof("K14", "XP608", at="init", measure="losses.smoothing", expect={"read": False}, legal=spec(),
          common={"label_smoothing_factor": 0.1}),
    Proof("K14", "XP608", case="XP608-twice", at="init", warns="label_smoothing_factor.*deprecated", variant="twice"),
    # data and loader
    Proof("T01", "XP505", case="XP505-local", at="load", measure="templates.trainer", raises="ValueError",
          match="chat.template"),
    Proof("T02", "XP553", at="load", measure="rows.raw", raises="KeyError", match="text"),
    Proof("T03", "XP119", needs="TRL's command line, which no bundle uses"),
    Proof("T05", "XP550", files=SPLITS, measure="rows.evaluated", expect={"from_test": False},
          text=on('"rows"', "data(holdout=25%)", "eval(every=epoch, split=test)"),
          legal=on('"rows"', "eval(every=epoch, split=test)")),
    Proof("T07", "XP561", raises="ValueError", match="prefetch_factor"),
    Proof("T08", "XP561", case="XP561-persistent", at="train", raises="ValueError", match="persistent_workers"),
    Proof("T09", "XP561", case="XP561-context", at="train", raises="ValueError", match="multiprocessing_context"),
    Proof("T10", "XP104", case="XP104-sampling", at="init", onto="legal", measure="rows.order",
          arguments={"train_sampling_strategy": "sequental"}, expect={"sampler": "RandomSampler"}),
    Proof("T15", "XP104", case="XP104-accelerator-config", at="init", arguments={"accelerator_config": {"non_blocking": True}},
          warns="non_blocking.*dataloader_pin_memory"),
    Proof("T16", "XP105", at="init", onto="legal", arguments={"max_length": "2k"}, raises="TypeError", match=""),
    Proof("T18", "XP560", measure="templates.pieces", expect=lambda seen: seen["most"] > 1),
    Proof("T65", "XP131", measure="templates.unread", expect={"same": True, "bare": True}),
    *(Proof("T71", "XP186", case=case, at="load", measure="rows.templated", expect={"templated": False},
            target=target, variant=f"{case[6:]}-{target[4:]}".strip("-"), legal=legal)
      for target in STACKS for case, legal in (("XP186", ""), ("XP186-sft", CHAT))),
    Proof("T44", "XP513", measure="templates.ended", expect={"ends": False}),
    Proof("T38", "XP567", measure="templates.instructed", raises="TemplateError", match="System role not supported",
          legal=spec("model(attn=eager, chat_template=gemma3)", 'data(system="Be brief.")', batch="gbs=128 micro=1",
                     train="gemma-2-2b-it on capybara for 3 epochs")),
    Proof("T24", "XP551", measure="rows.evaluated", expect={"trained_on": True}, files={
        "rows.jsonl": ROW * 8, **SPLITS}),
    Proof("T25", "XP554", measure="rows.built", raises="RunError", match="alien"),
    Proof("T29", "XP530", measure="rows.stored", raises="DatasetGenerationError", match=""),
    Proof("T29", "XP530", case="XP530-csv", measure="rows.stored", raises="DatasetGenerationError", match="", variant="csv"),
    Proof("T30", "XP531", measure="rows.stored", raises="UnicodeDecodeError", match="utf-8"),
    Proof("T31", "XP532", measure="rows.heard", expect={"left_out": 1}),
    Proof("T32", "XP533", at="load", measure="rows.silent", expect={"silent": 1}),
    Proof("T32", "XP533", case="XP533-turn", at="load", measure="rows.silent", expect={"silent": 1}, variant="turn"),
    Proof("T33", "XP534", at="load", measure="rows.unasked", expect={"unasked": 1}),
    Proof("T34", "XP535", at="load", measure="rows.repeated", expect={"repeated": 1}),
    Proof("T35", "XP536", case="XP536-every", at="load", measure="rows.gradient", expect={"moves": False}),
    Proof("T26", "XP555", measure="rows.built", raises="RunError", match="asks for 50 rows of a source that has only 40"),
    Proof("T26", "XP555", case="XP555-holdout", measure="rows.built", raises="RunError", match="40 rows", variant="holdout"),
    Proof("T39", "XP562", at="train", raises="AssertionError", match="prefetch_factor must be greater than 0"),
    Proof("T39", "XP562", at="train", raises="ValueError", match="(num_workers|prefetch_factor) option should be non-negative",
          text=spec("extra trl {\n  dataloader_num_workers = -1\n}"), legal=spec(), variant="fewer-than-none"),
    Proof("T40", "XP563", at="init", measure="rows.order", expect=lambda seen: seen["sampler"] != "SequentialSampler",
          legal=spec("data(shuffle=false)")),
    Proof("T42", "XP565", at="load", measure="rows.own", raises="KeyError", match="", files={"tales.jsonl": '{"text": "once"}\n' * 8},
          text=on('"tales.jsonl"', "extra trl {", '  dataset_text_field = "prompt"', "}"),
          legal=on('"tales.jsonl"', "extra trl {", '  dataset_text_field = "story"', "}")),
    Proof("T42", "XP565", at="load", target="trl-0.18", measure="rows.ends", expect={"ended": False}, variant="no-end",
          files={"tales.jsonl": '{"text": "once"}\n' * 8},
          text=on('"tales.jsonl"', "extra trl {", '  dataset_text_field = "story"', "}"),
          legal=on('"tales.jsonl"')),
    # a stream
    Proof("B15", "XP191", at="load", keep=("max_steps",), measure="streams.trainer",
          raises="ValueError", match="max_steps has to be specified"),
    Proof("B15", "XP191", at="load", keep=("max_steps",), measure="streams.trainer",
          raises="ValueError", match="max_steps has to be specified", target="trl-0.18", variant="0.18"),
    Proof("T72", "XP192", measure="streams.held_out", raises="AttributeError", match="train_test_split"),
    Proof("T73", "XP193", at="init", measure="streams.saves", expect={"once": True}),
    Proof("T74", "XP194", at="init", measure="streams.first_rows", expect={"repeated": True}),
    Proof("T11", "XP194", case="XP194-sampler", at="init", measure="streams.first_rows", expect={"as_stored": True},
          legal=spec("extra trl {", "  train_sampling_strategy = group_by_length", "}")),
    Proof("T66", "XP150", at="load", measure="rows.tokenized", raises="IndexError", match="index out of range"),
    Proof("T67", "XP151", at="load", measure="rows.tokenized", expect={"as_stored": True, "own": False}),
    Proof("T67", "XP151", case="XP151-0.18", at="load", measure="rows.tokenized",
          expect={"as_stored": False, "masked": 0}, variant="0.18"),
    Proof("T68", "XP152", at="load", measure="rows.tokenized", expect={"as_stored": False, "masked": 1}),
    Proof("T69", "XP153", at="load", measure="rows.tokenized", expect={"as_stored": False, "masked": 0}),
    # hub and logging
    Proof("H02", "XP106", case="XP106-tracker", at="init", onto="legal", arguments={"report_to": ["wanbd"]},
          raises="ValueError", match="wanbd is not supported", legal=spec()),
    Proof("H02", "XP751", at="init", keep=("report_to",), raises="ValueError", match="trackio is not supported",
          legal=spec("target trl-0.18")),
    Proof("H05", "XP106", case="XP106-hub-strategy", onto="legal", arguments={"hub_strategy": "each_save"},
          raises="ValueError", match="HubStrategy", legal=spec()),
    Proof("H06", "XP758", needs="the hub"),
    Proof("H11", "XP757", needs="the hub"),
    Proof("H07", "XP107", case="XP107-logging", onto="legal", arguments={"logging_steps": 0}, raises="ValueError",
          match="non-zero --logging_steps"),
    Proof("H08", "XP753", at="init", common={"logging_steps": 2}, measure="losses.hidden", expect={"hidden": True}),
    Proof("H08", "XP753", at="init", target="trl-0.18", common={"logging_steps": 2}, measure="losses.hidden",
          expect={"hidden": True}, variant="0.18"),
    Proof("H09", "XP752", measure="rows.project", expect={"project": "huggingface"}),
    Proof("H19", "XP173", needs="the package swanlab; tests/proof/test_trackers.py has it and shows the error"),
    Proof("H10", "XP121", case="XP121-logging-dir", arguments={"logging_dir": "logs"}, raises="TypeError",
          match="logging_dir"),
)  # fmt: skip
