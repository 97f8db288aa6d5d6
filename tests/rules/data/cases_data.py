"""Cases of data, supervised losses, hub and logging (XP50x, XP55x to XP60x, XP75x)."""

from __future__ import annotations

import json

from case_support import MARKED, PLAIN, ROW, Case, data, spec, trained
from compile_support import CONFIG

NAMED = json.dumps({"messages": [{"role": "guest", "content": "2 + 2?"}, {"role": "host", "content": "4"}]}) + "\n"
ASKED = json.dumps({"prompt": "2 + 2?", "completion": "4"}) + "\n"
PAIR = json.dumps({"prompt": "2 + 2?", "chosen": "4", "rejected": "fish"}) + "\n"
HELD = {
    "rows.jsonl": ROW * 40,
    "held.jsonl": ROW.replace("2 + 2?", "3 + 1?") * 8,
    "far.jsonl": ROW.replace("4", "four"),
}
SPLIT = {"rows/train.jsonl": ROW * 9, "rows/test.jsonl": ROW.replace("2 + 2?", "3?")}
PAIRED = {
    "pairs.jsonl": PAIR * 40,
    "pairs2.jsonl": PAIR.replace("4", "5") * 4,
    "pairs3.jsonl": PAIR.replace("4", "6") * 4,
}
OWN, PAIRS = trained('qwen2.5-3b on "rows.jsonl"'), trained('qwen2.5-3b on "pairs.jsonl"')
JUDGED = json.dumps({"prompt": "2 + 2?", "completion": "4", "label": True}) + "\n"
JUDGED += json.dumps({"prompt": "2 + 2?", "completion": "fish", "label": False}) + "\n"
SEVERAL = 'eval(data=["held.jsonl", "far.jsonl"])'
"""Rows to train on, and two sets to evaluate on."""
LONG = json.dumps({"prompt": "why " * 600, "completion": "because"}) + "\n"
UNANSWERED = json.dumps({"messages": [{"role": "user", "content": "2 + 2?"}]}) + "\n"
TALKS = json.dumps(
    {"prompt": [{"role": "user", "content": "2 + 2?"}], "completion": [{"role": "assistant", "content": "4"}]}
)
SHARED = json.dumps({"conversations": [{"from": "human", "value": "2?"}, {"from": "gpt", "value": "4"}]}) + "\n"
ALIEN = SHARED.replace("gpt", "alien")
PICTURE = ROW.replace('"2 + 2?"', '[{"type": "image"}, {"type": "text", "text": "?"}]')
LISTED = f"[{ROW}, {ROW}]"
FORMAT = "data(format=messages)"
LATIN = (ROW + ROW.replace("2 + 2", "caf\xe9")).encode("latin-1")
HUMAN = ROW.replace("user", "human")
SILENT = ROW.replace('"4"', '" "')
CALLED = ROW.replace('"4"', 'null, "tool_calls": []').replace("[]}", '[{"function": {"name": "add"}}]}')
UNASKED = ROW.replace('"2 + 2?"', "null")
PAIR = json.dumps({"prompt": "2 + 2?", "chosen": "4", "rejected": "22"}) + "\n"
OPEN_ENDED = MARKED.replace("{% endgeneration %}", "{% endgeneration %}<|im_end|>")
CLOSED = MARKED.replace("{% endgeneration %}", "<|im_end|>{% endgeneration %}")
PROMPTED = PLAIN + "{% if add_generation_prompt %}assistant:{% endif %}"
TINY = {
    "tiny/config.json": json.dumps(CONFIG),
    "tiny/tokenizer_config.json": '{"tokenizer_class": "PreTrainedTokenizerFast"}',
    "tiny/tokenizer.json": '{"added_tokens": [{"content": "<|im_start|>"}, {"content": "<|im_end|>"}]}',
}
"""A local model whose tokenizer has a vocabulary and no chat template."""
CHATTY = {**TINY, "tiny/chat_template.jinja": MARKED}
ON_TINY = {"train": trained('"tiny" on infinity-instruct'), "batch": "gbs=128 micro=16 seq=512"}


def on(data: str, *more: str) -> str:
    return spec(*more, train=trained(f"qwen2.5-3b on {data}"))


def extra(*lines: str) -> str:
    return "\n".join(["extra trl {", *(f"  {line}" for line in lines), "}"])


LARGE = {"strategy": "zero3", "batch": "gbs=128 micro=1"}
SYSTEM_ROW = (
    '{"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "2?"}, '
    '{"role": "assistant", "content": "4"}]}\n'
)


def on_gemma(*more: str, data: str = "capybara") -> str:
    return spec("model(attn=eager)", *more, train=trained(f"gemma-2-2b-it on {data}"), batch="gbs=128 micro=1")


DATA = (
    Case("XP501", spec("eval(every=epoch)"), spec("eval(every=epoch)", "data(holdout=5%)")),
    Case("XP502", spec("data(holdout=5%)"), spec("data(holdout=5%)", "eval(every=epoch)")),
    Case("XP503", on("ultrafeedback-binarized"), spec()),
    Case("XP503", on("deepmath-103k"), spec(), variant="prompts"),
    Case(
        "XP503",
        spec("method dpo"),
        spec("method dpo", train=trained("qwen2.5-3b on ultrafeedback-binarized")),
        variant="dpo",
    ),
    Case(
        "XP503",
        spec("method grpo(rewards=format)", train=trained("qwen2.5-3b on gsm8k")),
        spec("method grpo(rewards=format)", "data(prompt=question)", train=trained("qwen2.5-3b on gsm8k")),
        variant="grpo",
    ),
    Case("XP505", spec(train=trained("gpt2 on infinity-instruct")), spec(train=trained("gpt2 on alpaca"))),
    Case(
        "XP505",
        spec(train=trained("llama-3.1-8b on infinity-instruct"), **LARGE),
        spec("model(chat_template=llama3.1)", train=trained("llama-3.1-8b on infinity-instruct"), **LARGE),
        variant="family",
    ),
    Case(
        "XP505",
        spec(**ON_TINY),
        spec('model(chat_template=file("marked.jinja"))', **ON_TINY),
        {**TINY, "marked.jinja": MARKED},
        variant="local",
    ),
    Case(
        "XP504",
        on("alpaca", "method sft(assistant_only, completion_only)"),
        on("alpaca", "method sft(completion_only)"),
        variant="both",
    ),
    Case(
        "XP504",
        on('"rows.jsonl"', "method sft(assistant_only)", "data(format=alpaca)"),
        on('"rows.jsonl"', "method sft(assistant_only)", "data(format=alpaca, chat)"),
        {"rows.jsonl": json.dumps({"instruction": "2 + 2?", "output": "4"}) + "\n"},
        variant="alpaca",
    ),
    Case("XP507", on("infinity-instruct[test]"), on("infinity-instruct[train]")),
    Case(
        "XP508",
        on("mix", "method kto", data('"judged.jsonl"', '"pairs.jsonl"', name="mix")),
        on("mix", "method kto", data('"judged.jsonl"', '"judged2.jsonl"', name="mix")),
        {"judged.jsonl": JUDGED * 40, "judged2.jsonl": JUDGED.replace("fish", "3") * 4, "pairs.jsonl": PAIR * 40},
    ),
    Case("XP509", spec("data(shuffle=false)", "target trl-0.18"), spec("data(shuffle=false)")),
    Case(
        "XP550",
        spec("data(holdout=5%)", "eval(every=epoch, split=test)"),
        spec("eval(every=epoch, split=test)"),
    ),
    Case(
        "XP551",
        on('"rows.jsonl"', "eval(every=epoch, split=test)"),
        on('"rows"', "eval(every=epoch, split=test)"),
        {"rows.jsonl": ROW * 40, "rows/train.jsonl": ROW, "rows/test.jsonl": ROW},
    ),
    Case(
        "XP550",
        on('"rows.jsonl"', 'eval(data="held.jsonl")', "data(holdout=5%)"),
        on('"rows.jsonl"', 'eval(data="held.jsonl")'),
        HELD,
        variant="own",
    ),
    Case(
        "XP552",
        on('"rows.jsonl"', 'eval(data="rows.jsonl")'),
        on('"rows.jsonl"', 'eval(data="held.jsonl")'),
        HELD,
        variant="own",
    ),
    Case(
        "XP525",
        on('"asked.jsonl"', 'eval(data="held.jsonl")'),
        on('"asked.jsonl"', 'eval(data="held.jsonl")', "method sft(completion_only=false)"),
        {**HELD, "asked.jsonl": ASKED * 40},
    ),
    Case(
        "XP526",
        on('"rows.jsonl"', SEVERAL, *extra('metric_for_best_model = "eval_loss"').splitlines()),
        on('"rows.jsonl"', SEVERAL, *extra('metric_for_best_model = "eval_held_loss"').splitlines()),
        HELD,
    ),
    Case(
        "XP526",
        on('"rows.jsonl"', SEVERAL, *extra("load_best_model_at_end = true").splitlines()),
        on('"rows.jsonl"', 'eval(data="held.jsonl")', *extra("load_best_model_at_end = true").splitlines()),
        HELD,
        variant="best",
    ),
    Case(
        "XP526",
        on('"rows.jsonl"', SEVERAL, "schedule reduce_lr_on_plateau", "strategy ddp").replace("strategy zero2\n", ""),
        on('"rows.jsonl"', 'eval(data="held.jsonl")', "schedule reduce_lr_on_plateau", "strategy ddp").replace(
            "strategy zero2\n", ""
        ),
        HELD,
        variant="schedule",
    ),
    Case(
        "XP527",
        on('"pairs.jsonl"', 'eval(data=["pairs2.jsonl", "pairs3.jsonl"])', "method dpo(precompute)", "target trl-0.18"),
        on('"pairs.jsonl"', 'eval(data=["pairs2.jsonl", "pairs3.jsonl"])', "method dpo", "target trl-0.18"),
        PAIRED,
    ),
    Case(
        "XP580",
        on('"rows"', "eval(every=epoch, split=validation)"),
        on('"rows"', "eval(every=epoch, split=test)"),
        SPLIT,
    ),
    Case(
        "XP580",
        on('"rows"'),
        on('"plain"'),
        {"rows/a.jsonl": ROW * 9, "rows/test.jsonl": ROW, "plain/a.jsonl": ROW * 9},
        variant="train",
    ),
    Case(
        "XP581",
        on('"rows"', "data(format=text)"),
        on('"plain"', "data(format=text)"),
        {"rows/a.txt": "a\n", "rows/b.csv": "text\na\n", "plain/a.txt": "a\n", "plain/b.txt": "b\n"},
    ),
    Case("XP552", spec("eval(every=epoch, split=train)"), spec("eval(every=epoch, split=test)")),
    Case(
        "XP553",
        on("mix", data('"odd.jsonl" {\n    columns = [tale]\n  }', "format = text", name="mix")),
        on("mix", data('"odd.jsonl" {\n    columns = [story]\n  }', "format = text", name="mix")),
        {"odd.jsonl": '{"story": "once", "id": 1}\n'},
    ),
    Case("XP554", on('"rows.jsonl"'), on('"good.jsonl"'), {"rows.jsonl": SHARED + ALIEN, "good.jsonl": SHARED}),
    Case(
        "XP554",
        on('"rows.jsonl"'),
        on('"good.jsonl"'),
        {"rows.jsonl": ROW + '{"messages": []}\n', "good.jsonl": ROW},
        variant="empty",
    ),
    Case(
        "XP555",
        on("mix", data('"rows.jsonl" {\n    take = 50\n  }', name="mix")),
        on("mix", data('"rows.jsonl" {\n    take = 40\n  }', name="mix")),
        {"rows.jsonl": ROW * 40},
    ),
    Case(
        "XP555",
        on('"rows.jsonl"', "data {", "  holdout = 40", "}", "eval(every=epoch)"),
        on('"rows.jsonl"', "data {", "  holdout = 4", "}", "eval(every=epoch)"),
        {"rows.jsonl": ROW * 40},
        variant="holdout",
    ),
    Case(
        "XP555",
        on("no-robots", "data(holdout=100%)", "eval(every=epoch)"),
        on("no-robots", "data(holdout=5%)", "eval(every=epoch)"),
        variant="all-of-it",
    ),
    Case("XP556", on('"rows.jsonl"'), on('"good.jsonl"'), {"rows.jsonl": PICTURE, "good.jsonl": ROW}),
    Case("XP530", on('"rows.jsonl"'), on('"good.jsonl"'), {"rows.jsonl": ROW * 3 + ROW[:30], "good.jsonl": ROW}),
    Case(
        "XP530",
        on('"rows.csv"'),
        on('"good.csv"'),
        {"rows.csv": "prompt,completion\n2?,4\n2?,4,5\n", "good.csv": 'prompt,completion\n2?,"4,5"\n3?,9\n'},
        variant="csv",
    ),
    Case(
        "XP530", on('"rows.json"'), on('"good.json"'), {"rows.json": LISTED[:-2], "good.json": LISTED}, variant="list"
    ),
    Case(
        "XP530",
        on('"rows.jsonl"', FORMAT),
        on('"good.jsonl"', FORMAT),
        {"rows.jsonl": "\n", "good.jsonl": ROW},
        variant="none",
    ),
    Case("XP531", on('"rows.jsonl"'), on('"good.jsonl"'), {"rows.jsonl": LATIN, "good.jsonl": "\ufeff" + ROW}),
    Case("XP532", on('"rows.jsonl"'), on('"good.jsonl"'), {"rows.jsonl": ROW + HUMAN, "good.jsonl": ROW * 2}),
    Case(
        "XP532",
        on('"rows.jsonl"'),
        on('"rows.jsonl"', 'model(chat_template=file("critic.jinja"))'),
        {"rows.jsonl": ROW + HUMAN.replace("human", "critic"), "critic.jinja": PLAIN + "{# 'critic' #}"},
        variant="own",
    ),
    Case("XP533", on('"rows.jsonl"'), on('"good.jsonl"'), {"rows.jsonl": ROW + SILENT, "good.jsonl": ROW + CALLED}),
    Case(
        "XP533", on('"rows.jsonl"'), on('"good.jsonl"'), {"rows.jsonl": SILENT * 2, "good.jsonl": ROW}, variant="every"
    ),
    Case(
        "XP533",
        on('"rows.jsonl"'),
        on('"good.jsonl"'),
        {"rows.jsonl": ROW + UNANSWERED, "good.jsonl": ROW},
        variant="turn",
    ),
    Case("XP534", on('"rows.jsonl"'), on('"good.jsonl"'), {"rows.jsonl": ROW + UNASKED, "good.jsonl": ROW}),
    Case("XP535", on('"rows.jsonl"'), on('"rows.jsonl"', "data(unique)"), {"rows.jsonl": ROW * 2}),
    Case(
        "XP536",
        on('"rows.jsonl"', "method dpo"),
        on('"good.jsonl"', "method dpo"),
        {"rows.jsonl": PAIR + PAIR.replace("22", "4"), "good.jsonl": PAIR},
    ),
    Case(
        "XP536",
        on('"rows.jsonl"', "method dpo"),
        on('"good.jsonl"', "method dpo"),
        {"rows.jsonl": PAIR.replace("22", "4"), "good.jsonl": PAIR},
        variant="every",
    ),
    Case(
        "XP770",
        on('"rows.jsonl"', 'data(prompt_template="Q: {{ messages }}")'),
        on('"asked.jsonl"', 'data(format=prompt_completion, prompt_template="Q: {{ prompt }}")'),
        {"rows.jsonl": ROW, "asked.jsonl": ASKED},
    ),
    Case(
        "XP771",
        on('"asked.jsonl"', 'data(format=prompt_completion, prompt_template="Q: {prompt}")'),
        on('"asked.jsonl"', 'data(format=prompt_completion, prompt_template="Q: {{ prompt }}")'),
        {"asked.jsonl": ASKED},
    ),
    Case(
        "XP772",
        on('"asked.jsonl"', 'data(format=prompt_completion, prompt_template="Q: {{ question }}")'),
        on('"asked.jsonl"', 'data(format=prompt_completion, prompt_template="Q: {{ prompt }}")'),
        {"asked.jsonl": ASKED},
    ),
    Case(
        "XP773",
        on('"rows.jsonl"', "data(system_column=persona)"),
        on('"with.jsonl"', "data(system_column=persona)"),
        {"rows.jsonl": ROW, "with.jsonl": json.dumps({**json.loads(ROW), "persona": "Be brief."}) + "\n"},
    ),
    Case(
        "XP775",
        on('"named.jsonl"', "data(user_roles=[guest], assistant_roles=[host, guest])"),
        on('"named.jsonl"', "data(user_roles=[guest], assistant_roles=[host])"),
        {"named.jsonl": NAMED},
    ),
    Case(
        "XP776",
        on('"asked.jsonl"', "data(format=prompt_completion, user_roles=[guest])"),
        on('"named.jsonl"', "data(user_roles=[guest], assistant_roles=[host])"),
        {"asked.jsonl": ASKED, "named.jsonl": NAMED},
    ),
    Case(
        "XP774",
        on("oasst-guanaco", "data(system_column=persona)"),
        spec("data(system_column=persona)"),
    ),
    Case("XP557", on("oasst-guanaco", 'data(system="Be brief.")'), spec('data(system="Be brief.")')),
    Case(
        "XP558",
        on("oasst-guanaco", 'model(chat_template=file("plain.jinja"))'),
        on("capybara", 'model(chat_template=file("plain.jinja"))'),
        {"plain.jinja": PLAIN},
    ),
    Case("XP559", spec('model(eos="<|stop|>")', **ON_TINY), spec('model(eos="<|im_end|>")', **ON_TINY), CHATTY),
    Case(
        "XP559",
        spec('model(pad="<|pad|>")', **ON_TINY),
        spec('model(pad="<|im_start|>")', **ON_TINY),
        CHATTY,
        variant="pad",
    ),
    Case(
        "XP513",
        spec("model(chat_template=chatml)", **ON_TINY),
        spec('model(chat_template=chatml, eos="<|im_end|>")', **ON_TINY),
        {**TINY, "tiny/tokenizer_config.json": '{"eos_token": "<eos>"}'},
    ),
    Case(
        "XP560",
        spec('model(chat_template=file("foreign.jinja"))', **ON_TINY),
        spec('model(chat_template=file("own.jinja"))', **ON_TINY),
        {**TINY, "foreign.jinja": "<|assistant|>" + PLAIN, "own.jinja": "<|im_start|>" + PLAIN},
    ),
    Case(
        "XP560",
        spec("model(chat_template=chatml)", train=trained("llama-3.1-8b on infinity-instruct"), **LARGE),
        spec("model(chat_template=llama3.1)", train=trained("llama-3.1-8b on infinity-instruct"), **LARGE),
        variant="registered",
    ),
    Case(
        "XP567",
        on_gemma("model(chat_template=gemma)", 'data(system="Be brief.")'),
        on_gemma("model(chat_template=gemma3)", 'data(system="Be brief.")'),
    ),
    Case(
        "XP567",
        on_gemma(data='"rows.jsonl"'),
        on_gemma("model(chat_template=gemma3)", data='"rows.jsonl"'),
        {"rows.jsonl": SYSTEM_ROW * 200},
        variant="rows",
    ),
)

CASES: tuple[Case, ...] = DATA
