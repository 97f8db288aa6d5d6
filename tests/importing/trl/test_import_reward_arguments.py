"""Open-R1's arguments of reward functions become arguments in the spec."""

from __future__ import annotations

from import_support import HARDWARE, HEAD, imported

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
