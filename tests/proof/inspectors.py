"""Run prover.py as a process in a target's interpreter, and send it jobs. A thread reads the answers, so that the
caller can go on meanwhile.
"""

from __future__ import annotations

import threading
from typing import Any

from prove import Prover


class Looker:
    """A running prover.py in a target's interpreter. A thread receives the answers, and `collect` returns them."""

    def __init__(self, target: str, jobs: int) -> None:
        self.prover = Prover(target, jobs)
        self.sent = self.read = 0
        self.ended = ""
        self.answers: dict[str, Any] = {}
        self.lock = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                one = self.prover.next()
            except (RuntimeError, ValueError) as error:
                with self.lock:
                    self.ended = f"the process of the target ended: {error}"
                    self.lock.notify_all()
                return
            with self.lock:
                self.answers[one["id"]] = one
                self.read += 1
                self.lock.notify_all()

    def send(self, job: dict[str, Any], most: int = 6) -> None:
        """Send a job. If `most` jobs have no answer yet, first wait for an answer. Raises RuntimeError if the process
        has ended.
        """
        with self.lock:
            self.lock.wait_for(lambda: self.ended or self.sent - self.read < most)
            if self.ended:
                raise RuntimeError(self.ended)
        self.sent += 1
        self.prover.send(job)

    def collect(self) -> list[dict[str, Any]]:
        """Wait until every job is answered; return the answers that have arrived since the last call. Raises
        RuntimeError if the process has ended.
        """
        with self.lock:
            self.lock.wait_for(lambda: self.ended or self.read == self.sent)
            if self.ended:
                raise RuntimeError(self.ended)
            answers = list(self.answers.values())
            self.answers.clear()
        return answers

    def close(self) -> None:
        """Wait until no job is left, and end the process."""
        self.prover.close()
