"""Cases of data, supervised losses, hub and logging (XP50x, XP55x to XP62x, XP75x to XP77x, XP85x)."""

from __future__ import annotations

from case_support import MARKED, PLAIN, Case, data, spec, trained

CASES: tuple[Case, ...] = (
    Case("XP501", spec("eval(every=epoch)"), spec("eval(every=epoch)", "data(holdout=5%)")),
    Case("XP502", spec("data(holdout=5%)"), spec("data(holdout=5%)", "eval(every=epoch)")),
    Case("XP503", spec(train=trained("qwen2.5-3b on ultrafeedback-binarized")), spec()),
    Case("XP503", spec(train=trained("qwen2.5-3b on deepmath-103k")), spec(), variant="prompts"),
    Case(
        "XP504",
        spec("method sft(completion_only)"),
        spec("method sft(completion_only)", train=trained("qwen2.5-3b on alpaca")),
    ),
    Case("XP505", spec(train=trained("gpt2 on infinity-instruct")), spec(train=trained("gpt2 on alpaca"))),
    Case(
        "XP506",
        spec('model(chat_template=file("plain.jinja"))', "method sft(assistant_only)"),
        spec('model(chat_template=file("marked.jinja"))', "method sft(assistant_only)"),
        {"plain.jinja": PLAIN, "marked.jinja": MARKED},
    ),
    Case(
        "XP507",
        spec(train=trained("qwen2.5-3b on infinity-instruct[test]")),
        spec(train=trained("qwen2.5-3b on infinity-instruct[train]")),
    ),
    Case(
        "XP508",
        spec(data("infinity-instruct", "c4", name="mix"), train=trained("qwen2.5-3b on mix")),
        spec(data("infinity-instruct", "capybara", name="mix"), train=trained("qwen2.5-3b on mix")),
    ),
    Case(
        "XP601",
        spec("method sft(assistant_only)", "target trl-0.18"),
        spec("method sft(assistant_only)", "target trl-1.16"),
    ),
    Case("XP601", spec("data(shuffle=false)", "target trl-0.18"), spec("data(shuffle=false)"), variant="shuffle"),
    Case(
        "XP601",
        spec("method sft(completion_only)", "memory(liger)", "target trl-0.18", train=trained("qwen2.5-3b on alpaca")),
        spec("method sft(completion_only)", "target trl-0.18", train=trained("qwen2.5-3b on alpaca")),
        variant="lost-mask",
    ),
)
