"""The table of logged completions is printed once for each step, below the line that the run prints for the step."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.slow


class Trl:
    """A class that stands in for trl's trainer. It prints completions in each call of `log` if `log_completions` is
    true."""

    log_completions = True

    def __init__(self) -> None:
        self.tables: list[bool] = []

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        self.tables.append(self.log_completions)


def test_the_log_at_the_end_of_training_has_no_completions() -> None:
    pytest.importorskip("transformers")
    from xpc.runtime.features.method.log_completions import CompletionsTrainer

    class Own(CompletionsTrainer, Trl):
        """A trainer class with its base classes in the order in which a bundle's trainer has them."""

        __init__ = Trl.__init__

    trainer = Own()
    trainer.log({"loss": 1.0}, 0.0)
    trainer.log({"train_runtime": 3.0})
    trainer.log({"loss": 0.5})
    assert trainer.tables == [True, False, True]


@pytest.mark.parametrize("log_completions", [True, False])
def test_a_table_begins_on_a_line_of_its_own(log_completions: bool, tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip("transformers")
    from xpc.runtime.core import errors, metrics_log

    bundle = SimpleNamespace(arguments={"log_completions": log_completions}, features=())
    log = metrics_log.Reporter.__new__(metrics_log.Reporter)
    vars(log).update(bundle=bundle, trainer=SimpleNamespace(saved=0), lr=None, tokens_before=0, before=0.0,
                     started=0.0, path=str(tmp_path / "metrics.jsonl"), logs=2, last=None)  # fmt: skip
    monkeypatch.setattr(errors, "_renewable", False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(log, "_line", lambda event, total, now: f"step {event['step']}")
    state = SimpleNamespace(is_world_process_zero=True, global_step=6, epoch=1.0, max_steps=6)
    log.on_log(SimpleNamespace(output_dir=str(tmp_path)), state, None, {"loss": 0.0})
    assert capsys.readouterr().out.endswith("step 6\n" if log_completions else "step 6")
