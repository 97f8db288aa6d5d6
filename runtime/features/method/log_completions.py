"""Print the table of `log_completions` once for each logged step."""

from ...core.fault_tolerance import FaultTolerant


class CompletionsTrainer(FaultTolerant):
    """Trainer methods for a run that logs completions."""

    log_completions: bool

    def log(self, logs: dict[str, object], *rest: object, **more: object) -> None:
        """Log as trl does, but without completions in the log at the end of training.

        After the last step, transformers logs the duration of the training; trl would then print (and upload) this
        step's completions a second time.
        """
        chosen = self.log_completions
        self.log_completions = chosen and "train_runtime" not in logs
        try:
            super().log(logs, *rest, **more)  # type: ignore[misc]
        finally:
            self.log_completions = chosen
