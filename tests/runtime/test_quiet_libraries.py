"""Messages of the libraries that a user can do nothing about are not printed. All other messages are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from xpc.runtime.core import arguments
from xpc.runtime.features.messages import turn_notes
from xpc.runtime.features.method.checkpointing_warning import CheckpointingWarning
from xpc.runtime.features.rows.packing import Packing

BUNDLE: Any = SimpleNamespace(features=[], arguments={}, method="sft", data={})
OTHER = "something else that a user should read"
LOGGERS = ("DeepSpeed", "trl.trainer.sft_trainer", *(name for name, _ in arguments.UNTRUE))
PACKED = "You are using packing, but the attention implementation is not set to a supported flash attention variant."
FREE = "Padding-free training is enabled, but the attention implementation is not set to a supported variant."


@pytest.fixture
def printed() -> Iterator[list[str]]:
    """Yield the messages that the loggers of the test print. During the test, these loggers have no filters that
    earlier tests left.
    """
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in (*LOGGERS, "transformers")]
    before = [(one, one.level, list(one.filters)) for one in loggers]
    for one in loggers:
        one.setLevel(logging.INFO)
        one.filters = []
        one.addHandler(handler)
    yield messages
    for one, level, filters in before:
        one.removeHandler(handler)
        one.setLevel(level)
        one.filters = filters


def test_a_run_names_no_accelerator_and_no_experiment(printed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "")
    monkeypatch.setenv("DISABLE_SAFETENSORS_CONVERSION", "")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "")
    arguments.prepare_environment(BUNDLE)
    assert arguments.os.environ["TRL_EXPERIMENTAL_SILENCE"] == "1"
    logging.getLogger("DeepSpeed").info("Setting ds_accelerator to cpu (override)")
    logging.getLogger("DeepSpeed").info(OTHER)
    assert printed == [OTHER]


@pytest.mark.slow  # imports transformers
def test_a_resumed_run_is_not_told_that_a_share_is_no_number_of_steps(
    printed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the run resumes, transformers compares `save every=50%` with the checkpoint. The interval is 0.5 in the
    arguments and 40 steps in the checkpoint, but no difference may be reported.
    """
    monkeypatch.setattr(arguments.os, "environ", dict(arguments.os.environ))
    from transformers.trainer_utils import compare_trainer_and_checkpoint_args, logger

    stated = SimpleNamespace(save_steps=0.5, per_device_train_batch_size=2, n_gpu=1)
    stored = SimpleNamespace(save_steps=40, train_batch_size=2)
    for mentioned in (True, False):
        logger.warning_once.cache_clear()
        compare_trainer_and_checkpoint_args(stated, stored)
        assert any("save_steps: 0.5" in one for one in printed) == mentioned
        printed.clear()
        arguments.prepare_environment(BUNDLE)


def test_packed_rows_have_no_doubts_about_a_checked_attention(printed: list[str]) -> None:
    Packing().libraries_imported(BUNDLE)
    for message in (FREE, PACKED, OTHER):
        logging.getLogger("trl.trainer.sft_trainer").warning(message)
    assert printed == [OTHER]


def test_a_checkpointed_model_says_nothing_of_a_cache(printed: list[str]) -> None:
    CheckpointingWarning().libraries_imported(BUNDLE)
    model = logging.getLogger("transformers.models.llama.modeling_llama")
    model.warning("`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.")
    model.warning(OTHER)
    assert printed == [OTHER]


@pytest.mark.parametrize(("method", "notes"), [("orpo", 1), ("reward", 0)])
def test_a_reward_model_learns_no_turn_of_a_user(
    method: str, notes: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_notes, "sampled_rows", lambda rows: [0])
    turns = [{"role": role, "content": "hi", "fields": None} for role in ("user", "assistant")]
    bundle: Any = SimpleNamespace(arguments={}, method=method, data={})
    source = {"id": None, "path": "pairs.jsonl", "split": "train"}
    turn_notes.check(bundle, source, [{"chosen": turns, "rejected": turns}], doubles=False)
    output = capsys.readouterr()
    assert (output.out + output.err).count("and these turns are learned, too") == notes
