"""Files for axolotl and LLaMA-Factory, each with a few data rows. For every row format that a tool can tokenize, there
is a case.

A case states the rows, the family of the tokenizer, and its own keys, which are added to the common keys of the tool's
files. The model is in `model/` next to the file. The rows are in `rows.jsonl` (for LLaMA-Factory in `data/`, next to
its dataset_info.json).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

import token_models

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A configuration file with its rows. For axolotl, `dataset` has the keys of the dataset's entry; for
    LLaMA-Factory, `about` is the dataset's entry in dataset_info.json.
    """

    name: str
    rows: list[Row]
    tokenizer: str = "chatml"
    keys: dict[str, Any] = field(default_factory=dict)
    dataset: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def source(self, tool: str) -> dict[str, Any]:
        """The keys of the configuration file of this case, for the tool `axolotl` or `llamafactory`."""
        if tool == "llamafactory":
            return {**LLAMAFACTORY, **self.keys}
        made = {**AXOLOTL, "datasets": [{"path": "rows.jsonl", **self.dataset}], **self.keys}
        return {key: one for key, one in made.items() if one is not None}

    def lay(self, tool: str, folder: str) -> str:
        """Write a case into a folder: the model, the rows, and the configuration file for `tool`. Return the text of
        the configuration file. The text is JSON, and therefore also valid YAML.
        """
        token_models.build(os.path.join(folder, "model"), self.tokenizer)
        data = os.path.join(folder, "data") if tool == "llamafactory" else folder
        os.makedirs(data, exist_ok=True)
        with open(os.path.join(data, "rows.jsonl"), "w", encoding="utf-8") as handle:
            handle.writelines(json.dumps(row) + "\n" for row in self.rows)
        if tool == "llamafactory":
            with open(os.path.join(data, "dataset_info.json"), "w", encoding="utf-8") as handle:
                json.dump({"rows": {"file_name": "rows.jsonl", **self.about}}, handle)
        text = json.dumps(self.source(tool), indent=1)
        with open(os.path.join(folder, "recipe.yaml"), "w", encoding="utf-8") as handle:
            handle.write(text)
        return text


AXOLOTL: dict[str, Any] = {
    "base_model": "./model", "sequence_len": 256, "micro_batch_size": 1, "gradient_accumulation_steps": 1,
    "num_epochs": 1, "learning_rate": 1e-4, "optimizer": "adamw_torch", "lr_scheduler": "constant",
    "output_dir": "./out", "sample_packing": False, "val_set_size": 0, "bf16": False, "gradient_checkpointing": False,
    "logging_steps": 1,
}  # fmt: skip
LLAMAFACTORY: dict[str, Any] = {
    "model_name_or_path": "./model", "stage": "sft", "do_train": True, "finetuning_type": "full", "dataset": "rows",
    "dataset_dir": "data", "template": "qwen", "cutoff_len": 256, "per_device_train_batch_size": 1,
    "num_train_epochs": 1.0, "learning_rate": 1e-4, "output_dir": "./out",
}  # fmt: skip


def talk(*turns: str, who: tuple[str, str] = ("role", "content"), names: tuple[str, ...] = ("user", "assistant"),
         system: str = "") -> list[Row]:  # fmt: skip
    """A conversation with alternating turns of a user and an assistant.

    `who` has the two keys of a turn (such as `from` and `value`), and `names` the two values of the role (such as
    `human` and `gpt`).
    """
    begun = [{who[0]: "system", who[1]: system}] if system else []
    return begun + [{who[0]: names[index % 2], who[1]: turn} for index, turn in enumerate(turns)]


TALK = ("What is in the user's box?", "The box has a toy.\n\nAnother: none.", "And here?", " Nothing: I looked.")
CHAT = [
    {"messages": talk(*TALK[:2])},
    {"messages": talk(*TALK)},
    {"messages": talk(*TALK, system="Be brief:\nuse few words.")},
    {"messages": talk("Hi", "\nHello.\n")},
]
"""Four conversations: with one question, with two questions, with a system prompt, and with an answer that has line
breaks at both ends.
"""
SHAREGPT = [
    {"conversations": talk(*TALK[:2], who=("from", "value"), names=("human", "gpt"))},
    {"conversations": talk(*TALK, who=("from", "value"), names=("human", "gpt"), system="Be brief.")},
]
INSTRUCTIONS = [
    {"instruction": "Name the toy.", "input": "", "output": "The toy is a car.\n"},
    {"instruction": "Name the toy in the box:", "input": "a box, a toy", "output": "In the box: a toy"},
]
BEGUN = [{**INSTRUCTIONS[1], "output": "\nIn the box."}]
"""A row whose answer begins with a line break."""
WITH_SYSTEM = [{**row, "system": system} for row, system in zip(INSTRUCTIONS, ("Be brief.", ""), strict=True)]
TEXTS = [{"text": "The toy is in the box.\n\nThe user has it."}, {"text": "Another: none. " * 40}, {"text": "Hi\n"}]
LONG = [{"messages": talk("Hi", "Hello. " * size)} for size in (2, 4, 60)]
PAIRS = [
    {
        "prompt": "Name the toy.",
        "chosen": "A car.",
        "rejected": "A box.",
        "system": "",
        "question": "Name the toy.",
        "input": "Name the toy.",
        "instruction": "Name the toy.",
    },
]
PAIRS_OF_TURNS = [{"chosen": talk("Name the toy.", "A car."), "rejected": talk("Name the toy.", "A box.")}]
SHORT = {"messages": talk("Name it."), "chosen": talk("", "A car.")[1], "rejected": talk("", "A box.")[1]}
JUDGED = [
    {"prompt": "Name the toy.", "completion": "A car.", "label": True, "instruction": "Name the toy."},
    {"prompt": "Name the toy.", "completion": "A box.", "label": False, "instruction": "Name the toy."},
]

TEMPLATE = {"chat_template": "chatml"}
TALKED = {"type": "chat_template"}
FILE = {"split": "train", "ds_type": "json"}
OF_KTO = {"rl": "kto", "remove_unused_columns": False, "micro_batch_size": 2}
OF_REWARDS = {"reward_model": True, "num_labels": 1, "model_type": "AutoModelForSequenceClassification"}


def chat(name: str, tokenizer: str = "chatml", rows: list[Row] = CHAT, keys: dict[str, Any] | None = None,
         **dataset: Any) -> Case:  # fmt: skip
    """The entry of an axolotl dataset of the type `chat_template`."""
    return Case(name, rows, tokenizer, TEMPLATE if keys is None else keys, {**TALKED, **dataset})


AXOLOTL_ANSWERS = [
    chat("chatml"),
    chat("chatml over a base model's end", "chatml-base"),
    chat("chatml over a base model's end, with eot_tokens", "chatml-base",
         keys={**TEMPLATE, "eot_tokens": ["<|im_end|>"]}),
    chat("chatml with its end as the tokenizer's", "chatml-base",
         keys={**TEMPLATE, "special_tokens": {"eos_token": "<|im_end|>"}}),
    chat("llama3", "llama3", keys={"chat_template": "llama3"}),
    chat("qwen_25", keys={"chat_template": "qwen_25"}),
    chat("qwen3", keys={"chat_template": "qwen3"}),
    chat("the tokenizer's template", keys={}),
    chat("the tokenizer's template by name", keys={"chat_template": "tokenizer_default"}),
    chat("a template of one's own", keys={"chat_template_jinja": token_models.MARKED.replace("im_start", "im_end")}),
    chat("a template that is told something", keys={
        "chat_template_jinja": token_models.MARKED.replace(
            "'<|im_start|>' +", "('<|im_end|>' if brief else '<|im_start|>') +"),
        "chat_template_kwargs": {"brief": True},
    }),
    chat("train_on_inputs", keys={**TEMPLATE, "train_on_inputs": True}),
    chat("roles_to_train: assistant", roles_to_train=["assistant"]),
    chat("roles_to_train: none", roles_to_train=[]),
    chat("roles_to_train: both", roles_to_train=["user", "assistant"]),
    chat("train_on_eos: all", train_on_eos="all"),
    chat("train_on_eos: turn", train_on_eos="turn"),
    chat("train_on_eos: last", train_on_eos="last"),
    chat("train_on_eos: none", train_on_eos="none"),
    chat("field_messages", rows=[{"talk": row["messages"]} for row in CHAT], field_messages="talk"),
    chat("from and value", rows=SHAREGPT, field_messages="conversations",
         message_property_mappings={"role": "from", "content": "value"}),
    chat("from and value, older keys", rows=SHAREGPT, field_messages="conversations", message_field_role="from",
         message_field_content="value"),
    chat("other keys of a message", rows=[{"messages": talk(*TALK[:2], who=("who", "what"))}],
         message_property_mappings={"role": "who", "content": "what"}),
    chat("other speakers", rows=[{"messages": talk(*TALK[:2], names=("ask", "answer"))}],
         roles={"user": ["ask"], "assistant": ["answer"]}),
    chat("other speakers of from and value", field_messages="conversations",
         rows=[{"conversations": talk(*TALK[:2], who=("from", "value"), names=("human", "model"))}],
         message_property_mappings={"role": "from", "content": "value"},
         roles={"user": ["human"], "assistant": ["system", "model", "assistant"]}),
    chat("a column of system prompts", rows=[{**row, "system": "Be kind."} for row in CHAT]),
    chat("message_field_training", message_field_training="train",
         rows=[{"messages": [{**turn, "train": index == 1} for index, turn in enumerate(talk(*TALK))]}]),
    chat("drop_system_message", drop_system_message=True),
    chat("default_system_message", keys={**TEMPLATE, "default_system_message": "Be kind."}),
    chat("rows that are too long", rows=LONG, keys={**TEMPLATE, "sequence_len": 64}),
    chat("rows that are too long are cut", rows=LONG,
         keys={**TEMPLATE, "sequence_len": 64, "excess_length_strategy": "truncate"}),
    chat("rows that come twice", rows=[*CHAT, *CHAT[:2]], keys={**TEMPLATE, "dataset_exact_deduplication": True}),
    chat("rows that end with a question", rows=[*CHAT, {"messages": talk(*TALK[:3])}]),
    Case("alpaca", INSTRUCTIONS, dataset={"type": "alpaca"}),
    Case("alpaca, an answer that begins with the end of a line", BEGUN, dataset={"type": "alpaca"}),
    Case("alpaca after a first token", INSTRUCTIONS, "plain", dataset={"type": "alpaca"}),
    Case("alpaca with train_on_inputs", INSTRUCTIONS, "plain", {"train_on_inputs": True}, {"type": "alpaca"}),
    Case("alpaca:chat", INSTRUCTIONS, "plain", dataset={"type": "alpaca:chat"}),
    Case("alpaca:instruct", INSTRUCTIONS, "plain", dataset={"type": "alpaca:instruct"}),
    Case("alpaca:phi", INSTRUCTIONS, "plain", dataset={"type": "alpaca:phi"}),
    Case("alpaca_w_system.load_chat", WITH_SYSTEM, "plain", dataset={"type": "alpaca_w_system.load_chat"}),
    Case("words of one's own around a system prompt", [*WITH_SYSTEM, INSTRUCTIONS[1]], "plain",
         dataset={"type": {"format": "<{instruction}|{input}>", "no_input_format": "<{instruction}>",
                           "system_prompt": "Be kind: {}", "system_format": "[{system}]\n"}}),
    Case("alpaca_chat.load_qa", [{"question": "Name it.", "answer": "A car."}], "plain",
         dataset={"type": "alpaca_chat.load_qa"}),
    Case("alpaca_w_system.load_open_orca", [{"system_prompt": "S", "question": "Name it.", "response": "A car."}],
         "plain", dataset={"type": "alpaca_w_system.load_open_orca"}),
    Case("context_qa.load_v2", [{"context": "C", "question": "Name it.", "answer": "A car."}], "plain",
         dataset={"type": "context_qa.load_v2"}),
    Case("gpteacher", [{"instruction": "Name it.", "input": "", "response": "A car."}], "plain",
         dataset={"type": "gpteacher"}),
    Case("alpaca, too long", [*INSTRUCTIONS, {**INSTRUCTIONS[0], "output": "A car. " * 80}], "plain",
         dataset={"type": "alpaca"}),
    Case("words of one's own", INSTRUCTIONS, "plain",
         dataset={"type": {"format": "[{instruction} {input}]", "no_input_format": "[{instruction}]",
                           "field_output": "output"}}),
    Case("columns of one's own", [{"q": "Name it.", "a": "A car."}], "plain",
         dataset={"type": {"field_instruction": "q", "field_output": "a", "format": "{instruction}",
                           "no_input_format": "{instruction}"}}),
    Case("input_output", [{"segments": [{"label": True, "text": "<s>Hi"}, {"label": False, "text": " you"},
                                        {"label": True, "text": "!</s>"}]}], "plain", dataset={"type": "input_output"}),
    Case("completion", TEXTS[:1], "plain", dataset={"type": "completion"}),
    Case("completion of a longer text", TEXTS, "plain", dataset={"type": "completion"}),
    Case("completion of another column", [{"body": TEXTS[0]["text"]}], dataset={"type": "completion", "field": "body"}),
    *(Case(f"dpo {word} ({family})", rows, family, {**template, "rl": "dpo"}, {**FILE, "type": word})
      for word, rows, family, template in (
          ("chatml.intel", PAIRS, "chatml", {}),
          ("chatml.prompt_pairs", PAIRS, "chatml", {}),
          ("chatml.icr", PAIRS, "chatml", {}),
          ("chatml", PAIRS, "chatml", {}),
          ("llama3.prompt_pairs", PAIRS, "llama3", {}),
          ("chatml.argilla_chat", PAIRS_OF_TURNS, "chatml", {}),
          ("chat_template.argilla_chat", PAIRS_OF_TURNS, "chatml", TEMPLATE),
          ("chat_template.default", [SHORT], "chatml", TEMPLATE),
          ("chat_template.default", [SHORT], "llama3", {"chat_template": "llama3"}),
      )),
    Case("dpo chatml.intel over a base model's end", PAIRS, "chatml-base", {"rl": "dpo"},
         {**FILE, "type": "chatml.intel"}),
    Case("dpo chatml.intel after a first token", PAIRS, "plain", {"rl": "dpo"}, {**FILE, "type": "chatml.intel"}),
    Case("dpo qwen_25 over a base model's end", [SHORT], "chatml-base", {"chat_template": "qwen_25", "rl": "dpo"},
         {**FILE, "type": "chat_template.default"}),
    Case("simpo chat_template.default", [SHORT], "chatml", {**TEMPLATE, "rl": "simpo"},
         {**FILE, "type": "chat_template.default"}),
    Case("kto chatml.argilla over a base model's end", JUDGED, "chatml-base", OF_KTO,
         {**FILE, "type": "chatml.argilla"}),
    Case("dpo passthrough of texts", [{key: PAIRS[0][key] for key in ("prompt", "chosen", "rejected")}], "plain",
         {"rl": "dpo"}, {**FILE, "type": "passthrough"}),
    Case("dpo with columns of its own", PAIRS, "plain", {"rl": "dpo"},
         {**FILE, "type": {"field_prompt": "question", "prompt_format": "[{prompt}]", "chosen_format": "{chosen}!",
                           "rejected_format": "{rejected}!"}}),
    *(Case(f"kto {word}", JUDGED, family, OF_KTO, {**FILE, "type": word})
      for word, family in (("chatml.argilla", "chatml"), ("chatml.prompt_pairs", "chatml"),
                           ("llama3.argilla", "llama3"))),
    Case("orpo", PAIRS_OF_TURNS, keys={**TEMPLATE, "rl": "orpo"}, dataset={"type": "chat_template.argilla"}),
    Case("orpo by qwen3", PAIRS_OF_TURNS, keys={"chat_template": "qwen3", "rl": "orpo"},
         dataset={"type": "chat_template.argilla"}),
    Case("reward", PAIRS, keys={**TEMPLATE, **OF_REWARDS}, dataset={"type": "bradley_terry.chat_template"}),
    Case("reward with a system prompt", [{**row, "system": "Be kind."} for row in PAIRS],
         keys={**TEMPLATE, **OF_REWARDS}, dataset={"type": "bradley_terry.chat_template"}),
]  # fmt: skip


def factory(name: str, rows: list[Row], tokenizer: str = "chatml", about: dict[str, Any] | None = None,
            **keys: Any) -> Case:  # fmt: skip
    """Make a case for LLaMA-Factory."""
    return Case(name, rows, tokenizer, keys, about=about or {})


OF_SHAREGPT = {"formatting": "sharegpt"}
OF_OPENAI = {"formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": {
    "role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
    "system_tag": "system"}}  # fmt: skip
THOUGHT = [{"messages": talk("Hi", "<think>\nI see.\n</think>\n\nHello.")}, *CHAT[:2]]
LLAMAFACTORY_ANSWERS = [
    *(factory(f"alpaca by {template}", INSTRUCTIONS, family, template=template)
      for template, family in (("qwen", "chatml"), ("qwen3", "chatml"), ("qwen3_nothink", "chatml"),
                               ("chatml", "chatml"), ("llama3", "llama3"), ("alpaca", "plain"), ("default", "plain"),
                               ("llama2", "plain"), ("mistral", "plain"), ("vicuna", "plain"), ("zephyr", "plain"),
                               ("empty", "plain"), ("deepseek", "plain"), ("deepseek3", "plain"), ("gemma", "plain"),
                               ("phi", "plain"), ("fewshot", "plain"))),
    *(factory(f"sharegpt by {template}", SHAREGPT, family, OF_SHAREGPT, template=template)
      for template, family in (("qwen", "chatml"), ("qwen3", "chatml"), ("llama3", "llama3"), ("chatml", "chatml"),
                               ("alpaca", "plain"), ("default", "plain"), ("vicuna", "plain"))),
    factory("qwen over a base model's end", SHAREGPT, "chatml-base", OF_SHAREGPT),
    factory("no template", SHAREGPT, about=OF_SHAREGPT, template=None),
    factory("messages with tags", CHAT[:3], about=OF_OPENAI),
    factory("other speakers", [{"messages": talk(*TALK[:2], names=("ask", "answer"))}], about={
        **OF_OPENAI, "tags": {**OF_OPENAI["tags"], "user_tag": "ask", "assistant_tag": "answer"}}),
    factory("an answer that begins with the end of a line", BEGUN, template="chatml"),
    factory("openai", CHAT, about={**OF_OPENAI, "formatting": "openai"}),
    factory("thoughts", THOUGHT, about=OF_OPENAI, template="qwen3"),
    factory("thoughts off", THOUGHT, about=OF_OPENAI, template="qwen3", enable_thinking=False),
    factory("columns of one's own", [{"q": "Name it.", "a": "A car."}], about={"columns": {"prompt": "q",
                                                                                          "response": "a"}}),
    factory("a column of system prompts", WITH_SYSTEM, about={"columns": {
        "prompt": "instruction", "query": "input", "response": "output", "system": "system"}}),
    factory("earlier turns", [{**INSTRUCTIONS[0], "history": [["Hi", "Hello."]]}], about={"columns": {
        "prompt": "instruction", "query": "input", "response": "output", "history": "history"}}),
    factory("earlier turns in some rows", [
        {**WITH_SYSTEM[0], "history": [["Hi", "Hello."], ["", "\nNothing."]]}, {**WITH_SYSTEM[1], "history": None},
        {"instruction": "Hi", "input": None, "output": None, "system": "", "history": []}], template="qwen3",
            mask_history=True, about={"columns": {"prompt": "instruction", "query": "input", "response": "output",
                                                  "system": "system", "history": "history"}}),
    factory("no earlier turns", [{**row, "history": []} for row in INSTRUCTIONS], about={"columns": {
        "prompt": "instruction", "query": "input", "response": "output", "history": "history"}}),
    factory("pairs of texts after earlier turns", [{**PAIRS[0], "history": [["Hi", "Hello."]]}], stage="dpo", about={
        "ranking": True, "columns": {"prompt": "instruction", "chosen": "chosen", "rejected": "rejected",
                                     "history": "history"}}),
    factory("judged answers after earlier turns", [{**row, "history": [["Hi", "Hello."]]} for row in JUDGED], about={
        "columns": {"prompt": "prompt", "response": "completion", "kto_tag": "label", "history": "history"}},
            stage="kto", per_device_train_batch_size=2),
    factory("a column of system prompts beside turns", [{**row, "sys": "Be kind."} for row in SHAREGPT],
            about={"formatting": "sharegpt", "columns": {"messages": "conversations", "system": "sys"}}),
    factory("mask_history", SHAREGPT, about=OF_SHAREGPT, mask_history=True),
    factory("mask_history over thoughts", [{"messages": [*THOUGHT[0]["messages"], *THOUGHT[0]["messages"]]}],
            about=OF_OPENAI, template="qwen3", mask_history=True),
    factory("train_on_prompt", SHAREGPT, about=OF_SHAREGPT, train_on_prompt=True),
    factory("default_system", SHAREGPT, about=OF_SHAREGPT, default_system="Be kind."),
    factory("rows that are too long", [
        {"conversations": talk("Hi. " * size, "Hello. " * size, who=("from", "value"), names=("human", "gpt"))}
        for size in (2, 20)
    ], about=OF_SHAREGPT, template="chatml", cutoff_len=100),
    factory("max_samples", SHAREGPT, about=OF_SHAREGPT, max_samples=1),
    factory("turns that do not alternate", [*SHAREGPT, {"conversations": [
        {"from": "human", "value": "Hi"}, {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}]}],
            about=OF_SHAREGPT),
    factory("pretraining", TEXTS, "plain", {"columns": {"prompt": "text"}}, stage="pt", template=None, cutoff_len=64),
    factory("pretraining without packing", TEXTS, "plain", {"columns": {"prompt": "text"}}, stage="pt", template=None,
            packing=False, cutoff_len=64),
    *(factory(f"pairs, {stage}", [{"conversations": talk("Hi", who=("from", "value"), names=("human", "gpt")),
                                   "chosen": {"from": "gpt", "value": "A car."},
                                   "rejected": {"from": "gpt", "value": "A box."}}], about={
        "formatting": "sharegpt", "ranking": True, "columns": {"messages": "conversations", "chosen": "chosen",
                                                              "rejected": "rejected"}}, stage=stage)
      for stage in ("dpo", "rm")),
    *(factory(f"pairs of texts, {stage} by {template}", PAIRS, family, {
        "ranking": True, "columns": {"prompt": "instruction", "chosen": "chosen", "rejected": "rejected"}},
        stage=stage, template=template)
      for stage, template, family in (("dpo", "qwen", "chatml"), ("dpo", "llama3", "llama3"), ("rm", "qwen", "chatml"),
                                      ("dpo", "default", "plain"))),
    factory("pairs after earlier turns, dpo by qwen3", [
        {"conversations": talk("Hi", "Ho", "He?", who=("from", "value"), names=("human", "gpt")),
         "chosen": {"from": "gpt", "value": "A car."}, "rejected": {"from": "gpt", "value": "A box."}}], about={
        "formatting": "sharegpt", "ranking": True, "columns": {"messages": "conversations", "chosen": "chosen",
                                                              "rejected": "rejected"}}, stage="dpo", template="qwen3"),
    factory("judged answers", JUDGED, about={"columns": {
        "prompt": "prompt", "response": "completion", "kto_tag": "label"}}, stage="kto",
            per_device_train_batch_size=2),
    factory("pairs with an input", [{**PAIRS[0], "input": "a box, a toy"}], about={"ranking": True, "columns": {
        "prompt": "instruction", "query": "input", "chosen": "chosen", "rejected": "rejected"}}, stage="dpo"),
    factory("judged answers with an input", [{**row, "input": "a box"} for row in JUDGED], about={"columns": {
        "prompt": "instruction", "query": "input", "response": "completion", "kto_tag": "label"}}, stage="kto",
            per_device_train_batch_size=2),
    factory("judged turns", [{"messages": talk("Name it.", "A car."), "label": True},
                             {"messages": talk("Name it.", "A box."), "label": False}], about={
        **OF_OPENAI, "columns": {"messages": "messages", "kto_tag": "label"}}, stage="kto",
            per_device_train_batch_size=2),
]  # fmt: skip
CASES = {"axolotl": AXOLOTL_ANSWERS, "llamafactory": LLAMAFACTORY_ANSWERS}
