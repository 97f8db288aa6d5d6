"""If a run with adapters does not fit in its GPU, the first suggestion of the help is a smaller dtype for the frozen
base.
"""

from __future__ import annotations

from compile_support import checked

TEXT = """xpc 1
train llama-3.1-8b-instruct on capybara for 1 epochs
hardware 1 x rtx-4090
strategy ddp
batch gbs=128 micro=1
{adapter}
{model}
save "out/x"
"""


def helps(adapter: str, model: str = "") -> str:
    found = checked(TEXT.format(adapter=adapter, model=model))
    return " ".join(one.help or "" for one in found.problems if one.code in ("XP480", "XP960"))


def test_a_frozen_base_in_bf16_and_then_in_four_bits_is_proposed() -> None:
    text = helps("lora(rank=16)")
    assert text.index("`model(dtype=bf16)`") < text.index("`qlora`")
    assert helps("lora(rank=16)", "model(dtype=bf16)") == helps("qlora(rank=16)") == ""
    assert "model(dtype" not in helps("")
