"""A time limit for each conversation that a chat template writes."""

import signal
import threading
from collections.abc import Callable

from ..core.errors import RunError
from ..core.feature import Bundle, Feature, Tokenizer

SECONDS = 60.0
"""A call may take this many CPU seconds. One conversation takes milliseconds, and a batch of 1,000 two seconds."""


class TemplateTime(Feature):
    """Hooks for a run whose rows go through a chat template. The limit is for this process and its forks."""

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Tokenizer) -> None:
        """Set the time limit. If the template does not end for a row, the run stops."""
        from transformers import tokenization_utils_base as base

        base.render_jinja_template = _limited(base.render_jinja_template)


def _limited(render: Callable[..., object]) -> Callable[..., object]:
    def rendered(*args: object, **options: object) -> object:
        # Only the main thread can set a signal handler. If `time_limit` has already set a handler, its limit, which is
        # shorter, applies.
        main = threading.main_thread()
        if threading.current_thread() is not main or signal.getsignal(signal.SIGVTALRM) != signal.SIG_DFL:
            return render(*args, **options)
        signal.signal(signal.SIGVTALRM, _stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            return render(*args, **options)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL)

    return rendered


def _stop(*_: object) -> None:
    raise RunError(f"the chat template writes a conversation for more than {SECONDS:.0f} s: it may never end")
