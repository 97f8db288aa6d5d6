"""A chat template that loops forever, or writes without limit, is reported before any row is converted."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from patience import HUNG

from xpc.runtime.core.errors import RunError
from xpc.runtime.features.launch.time_limit import TooSlow, time_limit
from xpc.runtime.features.model import chat_template
from xpc.runtime.features.model.chat_template import ChatTemplate
from xpc.runtime.library_internals import template_time

NESTED = "{% for i in range(99999) %}{% for j in range(99999) %}@{% endfor %}{% endfor %}"
BUNDLE: Any = SimpleNamespace(
    tokenizer={"chat_template": None},
    row_format=lambda: SimpleNamespace(conversations=lambda row: [row["messages"]]),
)
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"


def tokenizer(template: str) -> Any:
    jinja = pytest.importorskip("jinja2.sandbox")
    compiled = jinja.ImmutableSandboxedEnvironment().from_string(template)

    def apply_chat_template(messages: Any, tokenize: bool) -> str:
        return str(compiled.render(messages=messages))

    return SimpleNamespace(chat_template=template, apply_chat_template=apply_chat_template)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 0.3)


@pytest.mark.slow
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("inner", ["", "x", "{% set y = 1 %}"])
def test_a_template_that_does_not_end_stops_the_launch(inner: str) -> None:
    start = time.monotonic()
    with pytest.raises(RunError, match="for more than 0 s: it may never end"):
        ChatTemplate().tokenizer_loaded(BUNDLE, tokenizer(NESTED.replace("@", inner)))
    assert time.monotonic() - start < HUNG


@pytest.mark.slow
def test_a_template_that_does_not_end_for_a_row_stops_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    template = "{% if messages|length > 2 %}" + NESTED + "{% endif %}" + PLAIN
    made = tokenizer(template)
    ChatTemplate().tokenizer_loaded(BUNDLE, made)
    row = {"messages": [{"role": "user", "content": "x"}] * 3}
    monkeypatch.setattr(chat_template, "SECONDS", 0.3)
    with pytest.raises(RunError, match=r"writes row 0 of rows\.jsonl for more than"):
        ChatTemplate().check_first_row(BUNDLE, "rows.jsonl", row, made)


def test_a_large_output_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "LARGEST", 1000)
    with pytest.raises(RunError, match="writes 2,000 characters for a conversation of two words"):
        ChatTemplate().tokenizer_loaded(BUNDLE, tokenizer("{{ 'x' * 2000 }}"))


@pytest.mark.parametrize("template", [PLAIN, "{{ raise_exception('no') }}", "{{ missing.name }}"])
def test_other_templates_are_not_stopped(template: str) -> None:
    ChatTemplate().tokenizer_loaded(BUNDLE, tokenizer(template))


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Any:
    """transformers has a module that renders templates. Replace it by a fake one, with the time limit that a launch
    sets.
    """
    base = SimpleNamespace(render_jinja_template=lambda work: work())
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(tokenization_utils_base=base))
    monkeypatch.setattr(template_time, "SECONDS", 0.3)
    for _ in range(2):  # when a second tokenizer is loaded, the limit is not set twice
        template_time.TemplateTime().tokenizer_loaded(BUNDLE, None)
    return base


def forever() -> None:
    while True:
        pass


@pytest.mark.slow
def test_any_row_has_a_limit(limited: Any) -> None:
    assert [limited.render_jinja_template(word.upper) for word in "ab"] == ["A", "B"]
    for _ in range(2):
        with pytest.raises(RunError, match="may never end"):
            limited.render_jinja_template(forever)
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    assert signal.getsignal(signal.SIGVTALRM) == signal.SIG_DFL


def test_a_shorter_limit_decides(limited: Any) -> None:
    with pytest.raises(TooSlow), time_limit(0.1):
        limited.render_jinja_template(forever)


def test_a_signal_that_arrives_after_the_block_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    started, sent, kill, received = threading.Event(), threading.Event(), signal.pthread_kill, list[int]()

    def late(*thread_and_signal: int) -> None:
        started.set()
        timer: Any = threading.current_thread()
        timer.finished.wait(HUNG)  # the block ends before the time limit, which stops the timer
        time.sleep(0.1)
        kill(*thread_and_signal)
        sent.set()

    monkeypatch.setattr(signal, "pthread_kill", late)
    before = signal.signal(signal.SIGVTALRM, lambda number, _: received.append(number))
    try:
        with time_limit(0.01):
            assert started.wait(HUNG)
        assert sent.wait(HUNG)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    assert not received


@pytest.mark.slow
def test_a_process_that_tokenizes_has_the_limit(limited: Any) -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(RunError, match="may never end"):
        pool.apply(_rendered)


def _rendered() -> None:
    sys.modules["transformers"].tokenization_utils_base.render_jinja_template(forever)
